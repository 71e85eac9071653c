//! Attachments in a bucket that speaks the protocol of S3: `blobs/<name>` is an object.
//!
//! What comes is gathered in a file first and put as one object, which every such store takes whole or not at all. The
//! requests go over this program's own HTTP client: its roots, no proxy, no redirects.

use super::ObjectFault;
use super::folder::Incoming;
use crate::limits;
use bytes::Bytes;
use http_body_util::BodyExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStoreExt, RetryConfig};
use secrecy::{ExposeSecret, SecretString};
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Where the bucket is, and who this house is there.
#[derive(Clone, Debug)]
pub struct BucketConfig {
    pub bucket: String,
    pub region: String,
    /// The store's own URL; the cloud's own when absent. Plain HTTP only where it says so.
    pub endpoint: Option<String>,
    pub access_key: String,
    pub secret_key: SecretString,
}

pub struct Bucket {
    store: AmazonS3,
    puts: Semaphore,
}

pub(super) struct Pieces(axum::body::Body);

impl Bucket {
    pub(super) fn open(config: &BucketConfig, http: reqwest::Client) -> Result<Bucket, ObjectFault> {
        let plain = config.endpoint.as_ref().is_some_and(|url| url.starts_with("http://"));
        let retry = RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: limits::BUCKET_RETRIES_MAX,
            retry_timeout: Duration::from_millis(limits::BLOB_KEEP_MS),
        };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&config.bucket)
            .with_region(&config.region)
            .with_access_key_id(&config.access_key)
            .with_secret_access_key(config.secret_key.expose_secret())
            .with_allow_http(plain)
            .with_retry(retry)
            // One object a request is what every such store can do.
            .with_disable_bulk_delete(true)
            .with_http_connector(Connector(http));
        if let Some(endpoint) = &config.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let store = builder.build().map_err(fault)?;
        Ok(Bucket { store, puts: Semaphore::new(limits::BUCKET_PUTS_MAX) })
    }

    pub(super) async fn keep(&self, mut incoming: Incoming, name: &str) -> Result<(), ObjectFault> {
        let _place = self.puts.acquire().await;
        let whole = incoming.whole().await?;
        self.store.put(&key(name), whole.into()).await.map(drop).map_err(fault)
    }

    pub(super) async fn read(&self, name: &str) -> Result<Option<(u64, Pieces)>, ObjectFault> {
        match self.store.get(&key(name)).await {
            Ok(found) => Ok(Some((found.meta.size, Pieces(axum::body::Body::from_stream(found.into_stream()))))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(fault(error)),
        }
    }

    pub(super) async fn remove(&self, name: &str) -> Result<(), ObjectFault> {
        match self.store.delete(&key(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(fault(error)),
        }
    }
}

impl Pieces {
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ObjectFault> {
        loop {
            match self.0.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(ObjectFault::Bucket(error.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }
}

/// This program's own client, as the library asks for one.
#[derive(Debug)]
struct Connector(reqwest::Client);

#[derive(Debug)]
struct Service(reqwest::Client);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service(self.0.clone())))
    }
}

impl HttpService for Service {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let request = reqwest::Request::try_from(request.map(reqwest::Body::wrap)).map_err(http_error)?;
            let answer = self.0.execute(request).await.map_err(http_error)?;
            let (head, body) = http::Response::<reqwest::Body>::from(answer).into_parts();
            Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body.map_err(http_error))))
        })
    }
}

fn http_error(error: reqwest::Error) -> HttpError {
    let kind = match &error {
        error if error.is_timeout() => HttpErrorKind::Timeout,
        error if error.is_connect() => HttpErrorKind::Connect,
        error if error.is_request() => HttpErrorKind::Request,
        error if error.is_body() => HttpErrorKind::Interrupted,
        error if error.is_decode() => HttpErrorKind::Decode,
        _ => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, error.without_url())
}

/// In the operator's log only; what a request was signed with is not in it.
fn fault(error: object_store::Error) -> ObjectFault {
    ObjectFault::Bucket(error.to_string())
}

fn key(name: &str) -> Path {
    Path::from_iter(["blobs", name])
}
