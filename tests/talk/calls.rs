//! What a house tells without being asked for a letter: calls to agents' own servers, presence, events.

use crate::houses::{ADMIN, TestHouse, answer, client, eventually, now};
use reqwest::Method;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use verifica::limits;
use verifica::probe::address::{AddressRule, Network};
use verifica::wire::auth::Push;

/// A server of an agent's: what it was sent, and the status that it answers.
struct Hook {
    at: SocketAddr,
    certificate: CertificateDer<'static>,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    status: Arc<AtomicU16>,
}

impl Hook {
    async fn start() -> Hook {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("certificate");
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let certificate = made.cert.der().clone();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("server");
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
        let at = listener.local_addr().expect("address");
        let hook = Hook { at, certificate, seen: Arc::default(), status: Arc::new(AtomicU16::new(200)) };
        let (seen, status) = (hook.seen.clone(), hook.status.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, seen, status) = (acceptor.clone(), seen.clone(), status.clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut bytes = Vec::new();
                    let mut piece = [0u8; 4_096];
                    while let Ok(n) = stream.read(&mut piece).await {
                        bytes.extend_from_slice(&piece[..n]);
                        let text = String::from_utf8_lossy(&bytes).into_owned();
                        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                        let Ok(body) = serde_json::from_str::<Value>(body) else { continue };
                        seen.lock().expect("seen").push((head.to_owned(), body));
                        let code = status.load(Ordering::SeqCst);
                        let more = if code == 302 { "location: https://127.0.0.1:1/\r\n" } else { "" };
                        let said = format!("HTTP/1.1 {code} X\r\n{more}content-length: 0\r\nconnection: close\r\n\r\n");
                        let _ = stream.write_all(said.as_bytes()).await;
                        let _ = stream.shutdown().await;
                        return;
                    }
                });
            }
        });
        hook
    }

    fn url(&self) -> String {
        format!("https://{}/hook?key=1", self.at)
    }

    fn calls(&self) -> Vec<(String, Value)> {
        self.seen.lock().expect("seen").clone()
    }
}

fn house_that_calls(hook: &Hook) -> TestHouse {
    let mut house = TestHouse::new("mar.example", 1);
    let own = Network::parse("127.0.0.0/8").expect("network");
    house.settings.addresses = AddressRule { allow: vec![own], ..AddressRule::default() };
    house.extra_roots = vec![hook.certificate.clone()];
    house
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_is_called_with_each_letter_signed_by_the_house() {
    let hook = Hook::start().await;
    let mut house = house_that_calls(&hook);
    house.start().await;
    let ana = house.agent("anamar", json!({"webhook": hook.url()})).await;
    let eva = house.agent("evamar", json!({})).await;
    let (_, card) = house.get("/agents/anamar").await;
    assert!(!card.to_string().contains("hook"), "the card does not say where: {card}");
    let id = eva.send("anamar@mar.example", "hello").await;
    eventually("the call", || async { !hook.calls().is_empty() }).await;
    let (head, body) = hook.calls()[0].clone();
    assert!(head.starts_with("POST /hook?key=1 HTTP/1.1"), "{head}");
    assert_eq!(body["envelope"]["id"], json!(id));
    assert_eq!(body.as_object().map(|body| body.len()), Some(1));
    let line = head.lines().find_map(|line| line.strip_prefix("x-nyx5-push: ")).expect("signed");
    let push = Push::parse(line).expect("header");
    assert!(push.verifies(&[house.key.public()], &id) && !push.verifies(&[house.key.public()], "other"));
    assert_eq!(ana.inbox().await.len(), 1, "the mailbox keeps it");
    // A bounce of the house's own is a letter too.
    ana.send("nobody@mar.example", "x").await;
    eventually("the bounce", || async { hook.calls().len() == 2 }).await;
    assert_eq!(hook.calls()[1].1["envelope"]["from"], "postmaster@mar.example");
}

/// Incident 35: calls that ran beside the request were lost with it. Here each is a row, over failures and restarts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_fails_is_made_again_also_after_a_restart() {
    let hook = Hook::start().await;
    hook.status.store(500, Ordering::SeqCst);
    let mut house = house_that_calls(&hook);
    house.start().await;
    house.agent("anamar", json!({"webhook": hook.url()})).await;
    let eva = house.agent("evamar", json!({})).await;
    eva.send("anamar@mar.example", "hello").await;
    eventually("a first call", || async { !hook.calls().is_empty() }).await;
    house.stop().await;
    let before = hook.calls().len();
    hook.status.store(204, Ordering::SeqCst);
    house.start().await;
    eventually("another call", || async { hook.calls().len() > before }).await;
    let settled = async || {
        let now = now();
        house.running().doors.store.earliest_push(now).await.expect("reads").is_none()
    };
    eventually("the row ends", settled).await;
    let after = hook.calls().len();
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(hook.calls().len(), after, "taken once");
    // A redirect is no success, and nobody follows it; a handled letter is called for no more.
    hook.status.store(302, Ordering::SeqCst);
    let ana_calls = hook.calls().len();
    eva.send("anamar@mar.example", "again").await;
    eventually("the redirected call", || async { hook.calls().len() > ana_calls }).await;
    assert!(house.running().doors.store.earliest_push(now()).await.expect("reads").is_some());
}

/// Defect 17: what a name resolves to is judged when it is dialled, by the same rule as a test's address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_inside_is_neither_registered_nor_dialled() {
    let hook = Hook::start().await;
    let mut house = house_that_calls(&hook);
    house.settings.addresses = AddressRule::default();
    house.start().await;
    for bad in [hook.url(), "https://[::1]/".into(), "https://169.254.169.254/x".into(), "http://a.example/".into()] {
        let (status, body) = house.unregistered("anamar").register(json!({"webhook": bad})).await;
        assert_eq!(status, 400, "{bad}: {body}");
    }
    // A rule that has become narrower since the place was named binds the call.
    house.stop().await;
    house.settings.addresses = AddressRule { allow_private: true, ..AddressRule::default() };
    house.start().await;
    let ana = house.agent("anamar", json!({"webhook": hook.url()})).await;
    house.stop().await;
    house.settings.addresses = AddressRule::default();
    house.start().await;
    ana.send("anamar@mar.example", "hello").await;
    eventually("the call was tried", || async {
        let due = house.running().doors.store.earliest_push(now()).await.expect("reads");
        !ana.inbox().await.is_empty() && due.is_some_and(|at| at > now().plus(200))
    })
    .await;
    assert!(hook.calls().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn presence_is_shown_of_whoever_lets_it_be_known_and_the_same_nothing_of_the_rest() {
    let house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anamar", json!({"capabilities": {"presence": true}})).await;
    let eva = house.agent("evamar", json!({})).await;
    let hidden = json!({"visibility": "secret", "capabilities": {"presence": true},
        "inbox": {"policy": "open", "allowlist": ["anamar@mar.example"]}});
    let secret = house.agent("secretmar", hidden).await;
    let ask = async |name: &str| house.get(&format!("/agents/{name}/presence")).await;
    assert_eq!(ask("anamar").await, (200, json!({"address": "anamar@mar.example", "last_seen": null})));
    for agent in [&ana, &eva, &secret] {
        agent.inbox().await;
    }
    let seen = ask("anamar").await.1["last_seen"].as_str().expect("seen").to_owned();
    assert!(seen.contains(":00:00"), "{seen}");
    for name in ["evamar", "secretmar", "absent-one"] {
        let (status, body) = ask(name).await;
        assert_eq!((status, body["last_seen"].clone()), (200, Value::Null), "{name}");
    }
    assert!(ana.get("/agents/secretmar/presence").await.1["last_seen"].is_string());
    for bad in ["..%2Fdomain", "%E0%A4%A", "A%20b", "-"] {
        assert_eq!(ask(bad).await.0, 400, "{bad}");
    }
    let (_, resolved) = eva.get("/resolve/anamar@mar.example").await;
    assert_eq!(resolved["presence"], json!({"last_seen": seen}));
    assert_eq!(house.get("/resolve/evamar@mar.example").await.1["presence"], json!({"last_seen": null}));
    let (hidden_answer, absent_answer) =
        (house.get("/resolve/secretmar@mar.example").await, house.get("/resolve/absent-one@mar.example").await);
    assert_eq!(hidden_answer, absent_answer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_counted_listed_and_only_the_operators() {
    let house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anamar", json!({})).await;
    house.agent("evamar", json!({})).await;
    let (status, _) = ana.post("/groups", &json!({"name": "crew"})).await;
    assert_eq!(status, 201);
    let ask = async |query: &str| house.admin(Method::GET, &format!("/eventos?{query}"), None).await;
    let (status, all) = ask("").await;
    assert_eq!(status, 200, "{all}");
    assert_eq!((all["conteo"]["join"].clone(), all["conteo"]["group_created"].clone()), (json!(2), json!(1)), "{all}");
    let first = &all["eventos"][0];
    assert_eq!((first["name"].clone(), first["actor"].clone()), (json!("group_created"), json!("anamar@mar.example")));
    assert!(first["id"].is_number() && first["ts"].is_string() && first["data"].is_object());
    let (_, joins) = ask("name=join&limit=1").await;
    assert_eq!(joins["eventos"].as_array().map(Vec::len), Some(1));
    assert_eq!(joins["conteo"], json!({"join": 2}));
    let since = first["ts"].as_str().expect("ts").replace('+', "%2B");
    let (_, late) = ask(&format!("since={since}")).await;
    assert_eq!(late["conteo"]["group_created"], 1);
    let (_, none) = ask("since=2999-01-01T00:00:00Z").await;
    assert_eq!(none, json!({"conteo": {}, "eventos": []}));
    for bad in ["since=yesterday", &format!("name={}", "a".repeat(limits::EVENT_NAME_BYTES_MAX + 1))] {
        assert_eq!(ask(bad).await.0, 400, "{bad}");
    }
    assert_eq!(ask(&format!("name={}", "a".repeat(limits::EVENT_NAME_BYTES_MAX))).await.0, 200);
    for odd in ["limit=0", "limit=-1", "limit=x"] {
        assert_eq!(ask(odd).await.1["eventos"].as_array().map(Vec::len), Some(3), "{odd}");
    }
    assert_eq!(house.get("/eventos").await.0, 401);
    assert_eq!(ana.get("/eventos").await.0, 401);
    let wrong = client().get(format!("{}/eventos", house.url)).bearer_auth(format!("{ADMIN}x"));
    assert_eq!(answer(wrong).await.0, 401);
}
