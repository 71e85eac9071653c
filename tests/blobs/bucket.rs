//! A bucket on loopback that speaks as much of the protocol of S3 as a house asks for, and fails when told to.

use crate::houses::{TestHouse, eventually, nonce};
use crate::{BLOB, delete, get, held, put};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use verifica::daemon::ServeOptions;
use verifica::limits;
use verifica::objects::{BucketConfig, Place};

#[derive(Default)]
struct Bucket {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    down: AtomicBool,
}

impl Bucket {
    async fn answer(&self, request: Request) -> Response {
        let (head, body) = request.into_parts();
        let whole = |status: u16, body: Vec<u8>| {
            let builder = Response::builder().status(status).header("etag", "\"one\"");
            let builder = builder.header("last-modified", "Tue, 01 Dec 2026 00:00:00 GMT");
            builder.body(Body::from(body)).expect("response")
        };
        let header =
            |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        if self.down.load(Ordering::Acquire) {
            return whole(400, b"<Error><Code>Down</Code></Error>".to_vec());
        }
        let signed = header("authorization").starts_with("AWS4-HMAC-SHA256 Credential=access-1/");
        let bytes = to_bytes(body, 64 << 20).await.unwrap_or_default();
        if !signed || header("x-amz-content-sha256") != verifica::wire::Sha256::of(&bytes).hex() {
            return whole(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>".to_vec());
        }
        let key = head.uri.path().to_owned();
        let mut objects = self.objects.lock().expect("objects");
        match head.method.as_str() {
            "PUT" => {
                objects.insert(key, bytes.to_vec());
                whole(200, Vec::new())
            }
            "GET" => match objects.get(&key) {
                Some(object) => whole(200, object.clone()),
                None => whole(404, b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
            },
            "DELETE" => {
                objects.remove(&key);
                whole(204, Vec::new())
            }
            _ => whole(405, Vec::new()),
        }
    }

    fn keys(&self) -> Vec<String> {
        self.objects.lock().expect("objects").keys().cloned().collect()
    }
}

async fn served() -> (Arc<Bucket>, String) {
    let bucket = Arc::new(Bucket::default());
    let shown = bucket.clone();
    let router = Router::new().fallback(move |request: Request| {
        let bucket = shown.clone();
        async move { bucket.answer(request).await }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
    let at = listener.local_addr().expect("address");
    tokio::spawn(async move { axum::serve(listener, router.layer(axum::extract::DefaultBodyLimit::disable())).await });
    (bucket, format!("http://{at}"))
}

fn in_bucket(house: &TestHouse, endpoint: &str) -> ServeOptions {
    let mut options = house.options();
    let Place::Folder(beside) = options.attachments else { panic!("a folder by default") };
    let config = BucketConfig {
        bucket: "attachments".to_owned(),
        region: "eu-north-1".to_owned(),
        endpoint: Some(endpoint.to_owned()),
        access_key: "access-1".to_owned(),
        secret_key: "secret-1".to_owned().into(),
    };
    options.attachments = Place::Bucket(Box::new(config), beside);
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_holds_what_a_folder_holds_and_one_that_is_down_loses_nothing() {
    let (bucket, endpoint) = served().await;
    let mut house = TestHouse::new("mar.example", 20);
    house.running = Some(verifica::daemon::serve(in_bucket(&house, &endpoint)).await.expect("starts"));
    let ana = house.agent("anna", json!({})).await;
    let eva = house.agent("evaa", json!({})).await;
    let large: Vec<u8> = (0..limits::ATTACHMENT_BYTES_MAX).map(|i| (i * 7) as u8).collect();
    let (status, body) = put(&ana, BLOB, "evaa@mar.example", &large).await;
    assert_eq!(status, 201, "{body}");
    assert_eq!(bucket.keys(), [format!("/attachments/blobs/{BLOB}")]);
    assert_eq!(get(&eva, BLOB).await, (200, Some(large)));
    bucket.down.store(true, Ordering::Release);
    let other = nonce();
    let (status, body) = put(&ana, &other, "evaa@mar.example", &[1; 50]).await;
    assert_eq!((status, &body["rule"]), (503, &json!(601)), "{body}");
    assert_eq!(get(&eva, BLOB).await.0, 503);
    // For everybody it is gone; the bucket has it until it answers again.
    assert_eq!(delete(&ana, BLOB).await, 200);
    bucket.down.store(false, Ordering::Release);
    assert_eq!(get(&eva, BLOB).await.0, 404);
    assert_eq!(bucket.keys().len(), 1);
    let third = nonce();
    assert_eq!(put(&ana, &third, "evaa@mar.example", &[1; 50]).await.0, 201);
    assert_eq!(get(&eva, &third).await, (200, Some(vec![1; 50])));
    // The clock, at the next start.
    house.stop().await;
    house.running = Some(verifica::daemon::serve(in_bucket(&house, &endpoint)).await.expect("starts again"));
    eventually("the bucket is swept", || async { held(&house).await == 50 && bucket.keys().len() == 1 }).await;
    house.stop().await;
}
