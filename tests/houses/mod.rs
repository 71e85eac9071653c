//! Whole houses on loopback for tests: real sockets, a real store, agents with their own keys, and a raw connection for
//! what no well-behaved client would send.
#![allow(dead_code)]

use reqwest::Method;
use rustls::pki_types::CertificateDer;
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use verifica::client::dns::{TxtAnswer, TxtLookup};
use verifica::client::resolver::HostOverride;
use verifica::daemon::{Listen, Running, ServeOptions, TlsFiles, serve};
use verifica::record::{House, Registration, Settings};
use verifica::time::{Clock, Timestamp};
use verifica::wire::auth::{Request, Token, host_of};
use verifica::wire::envelope::{Draft, Kind, Payload};
use verifica::wire::{Address, Domain, SigningKey};

pub const ADMIN: &str = "test-operator-token";

/// A house that can be stopped and started again on the same port with the same books.
pub struct TestHouse {
    pub domain: Domain,
    pub url: String,
    pub key: SigningKey,
    /// The key before, while the house changes its key.
    pub retiring: Option<SigningKey>,
    pub hosts: BTreeMap<Domain, HostOverride>,
    pub settings: Settings,
    pub running: Option<Running>,
    pub tls: Option<TlsFiles>,
    pub extra_roots: Vec<CertificateDer<'static>>,
    at: SocketAddr,
    dir: tempfile::TempDir,
}

impl TestHouse {
    /// A house that is not started yet; its port is free to be taken.
    pub fn new(domain: &str, seed: u8) -> TestHouse {
        let socket = TcpListener::bind("127.0.0.1:0").expect("port");
        let at = socket.local_addr().expect("address");
        let settings = Settings {
            registration: Registration::Open,
            registrations_per_minute: 1_000,
            retry_base_ms: 50,
            retry_max_ms: 200,
            ..Settings::default()
        };
        TestHouse {
            domain: Domain::parse(domain).expect("domain"),
            url: format!("http://{at}"),
            key: SigningKey::from_seed([seed; 32]),
            retiring: None,
            hosts: BTreeMap::new(),
            settings,
            running: None,
            tls: None,
            extra_roots: Vec::new(),
            at,
            dir: tempfile::tempdir().expect("folder"),
        }
    }

    /// As [`TestHouse::new`], over HTTPS with a certificate of its own; answers the certificate for those who trust it.
    pub fn secured(domain: &str, seed: u8) -> (TestHouse, CertificateDer<'static>) {
        let mut house = TestHouse::new(domain, seed);
        let certificate = house.new_certificate();
        house.url = format!("https://{}", house.at);
        (house, certificate)
    }

    /// Writes a new certificate and key where the house reads them.
    pub fn new_certificate(&mut self) -> CertificateDer<'static> {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("certificate");
        let files = TlsFiles { certificates: self.dir.path().join("cert.pem"), key: self.dir.path().join("key.pem") };
        std::fs::write(&files.certificates, made.cert.pem()).expect("write");
        std::fs::write(&files.key, made.signing_key.serialize_pem()).expect("write");
        self.tls = Some(files);
        made.cert.der().clone()
    }

    pub async fn started(domain: &str, seed: u8) -> TestHouse {
        let mut house = TestHouse::new(domain, seed);
        house.start().await;
        house
    }

    pub fn knows(&mut self, other: &TestHouse) {
        self.hosts.insert(other.domain.clone(), HostOverride { url: other.url.clone(), sig: None });
    }

    pub fn options(&self) -> ServeOptions {
        let house = House {
            domain: self.domain.clone(),
            public_url: self.url.clone(),
            host: self.host(),
            key: self.key.clone(),
            retiring: self.retiring.clone(),
            settings: self.settings.clone(),
        };
        let mut options = ServeOptions::new(house, Listen::At(self.at), self.dir.path().join("store.db"));
        options.admin_token = Some(SecretString::from(ADMIN.to_owned()));
        options.hosts = self.hosts.clone();
        options.tls = self.tls.clone();
        options.extra_roots = self.extra_roots.clone();
        options.dns = Arc::new(NoDns);
        options.drain = Duration::from_secs(5);
        options
    }

    pub async fn start(&mut self) {
        let mut last = None;
        for _ in 0..50 {
            match serve(self.options()).await {
                Ok(running) => {
                    self.running = Some(running);
                    return;
                }
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the house does not start: {last:?}");
    }

    pub async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            let drained = running.shutdown().await;
            assert!(drained.store_closed, "{drained:?}");
        }
    }

    pub fn running(&self) -> &Running {
        self.running.as_ref().expect("started")
    }

    pub fn host(&self) -> String {
        host_of(&self.url).expect("host")
    }

    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// A new agent of this house, registered over HTTP by itself.
    pub async fn agent(&self, local: &str, more: Value) -> TestAgent {
        let agent = self.unregistered(local);
        let (status, body) = agent.register(more).await;
        assert_eq!(status, 201, "{body}");
        agent
    }

    pub fn unregistered(&self, local: &str) -> TestAgent {
        let mut seed = [0u8; 32];
        getrandom::fill(&mut seed).expect("random");
        let address = Address::parse(&format!("{local}@{}", self.domain)).expect("address");
        TestAgent { address, key: SigningKey::from_seed(seed), url: self.url.clone(), host: self.host() }
    }

    /// As the operator.
    pub async fn admin(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let request = client().request(method, format!("{}{path}", self.url)).bearer_auth(ADMIN);
        answer(match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        })
        .await
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        answer(client().get(format!("{}{path}", self.url))).await
    }

    /// Without a credential.
    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = client().post(format!("{}{path}", self.url)).header("content-type", "application/json");
        answer(request.body(body.to_string())).await
    }

    /// Sends bytes as they are and reads until the other side ends or is silent.
    pub async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.at).await.expect("connect");
        // The house may have answered and closed before all was written.
        drop(stream.write_all(bytes).await);
        read_silent(&mut stream, Duration::from_millis(1_500)).await
    }
}

/// What arrives until the end, or until nothing came for this long.
pub async fn read_silent(stream: &mut TcpStream, silence: Duration) -> String {
    let mut seen = Vec::new();
    let mut piece = [0u8; 8_192];
    while let Ok(Ok(n)) = tokio::time::timeout(silence, stream.read(&mut piece)).await {
        if n == 0 {
            break;
        }
        seen.extend_from_slice(&piece[..n]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}

/// An agent with its own key, talking to its house or to another's.
#[derive(Clone)]
pub struct TestAgent {
    pub address: Address,
    pub key: SigningKey,
    pub url: String,
    pub host: String,
}

impl TestAgent {
    pub async fn register(&self, more: Value) -> (u16, Value) {
        let mut body = json!({
            "local": self.address.local(), "sig": self.key.public().kid(), "ts": now(),
        });
        if let (Some(fields), Some(more)) = (body.as_object_mut(), more.as_object()) {
            fields.extend(more.clone());
        }
        self.key.sign_object(&mut body, "signature");
        let request = client().post(format!("{}/agents", self.url)).header("content-type", "application/json");
        answer(request.body(body.to_string())).await
    }

    pub fn token(&self, method: &str, path: &str, nonce: &str) -> String {
        let path = path.split('?').next().unwrap_or(path);
        Token::header(&self.address, &self.key, Request { method, path, host: &self.host }, now(), nonce)
    }

    /// The same agent asking at another house.
    pub fn at(&self, house: &TestHouse) -> TestAgent {
        TestAgent { url: house.url.clone(), host: house.host(), ..self.clone() }
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        let token = self.token("GET", path, &nonce());
        answer(client().get(format!("{}{path}", self.url)).header("authorization", token)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let token = self.token("POST", path, &nonce());
        let request = client().post(format!("{}{path}", self.url)).header("authorization", token);
        answer(request.header("content-type", "application/json").body(body.to_string())).await
    }

    pub fn envelope(&self, to: &[&str], body: Value) -> Value {
        self.envelope_with(to, Kind::Message, "application/json", body, Map::new())
    }

    pub fn envelope_with(&self, to: &[&str], kind: Kind, media: &str, body: Value, more: Map<String, Value>) -> Value {
        let draft = Draft {
            id: nonce(),
            from: self.address.clone(),
            to: to.iter().map(|to| Address::parse(to).expect("address")).collect(),
            kind,
            created: now(),
            expires: None,
            deliver_after: None,
            thread: None,
            in_reply_to: None,
            payload: Payload::Clear { media: media.to_owned(), body },
            more,
        };
        let mut doc = draft.into_doc();
        self.key.sign_object(&mut doc, "signature");
        doc
    }

    /// Hands a message to the house; answers its id.
    pub async fn send(&self, to: &str, text: &str) -> String {
        let envelope = self.envelope(&[to], json!({"text": text}));
        let (status, body) = self.post("/outbound", &envelope).await;
        assert_eq!(status, 202, "{body}");
        envelope["id"].as_str().expect("id").to_owned()
    }

    /// Pending envelopes, oldest first.
    pub async fn inbox(&self) -> Vec<Value> {
        let (status, body) = self.get(&format!("/mailbox/{}", self.address.local())).await;
        assert_eq!(status, 200, "{body}");
        body["messages"].as_array().cloned().unwrap_or_default()
    }

    /// The next pending record that fits the query, waiting for it.
    pub async fn wait(&self, query: &str) -> Value {
        let (status, body) = self.get(&format!("/mailbox/{}/wait?timeout=10&{query}", self.address.local())).await;
        assert_eq!(status, 200, "{body}");
        assert!(!body["message"].is_null(), "nothing came for {} with {query}", self.address);
        body["message"].clone()
    }

    pub async fn acknowledge(&self, ids: &[&str]) -> Value {
        let (status, body) = self.post(&format!("/mailbox/{}/ack", self.address.local()), &json!({"ids": ids})).await;
        assert_eq!(status, 200, "{body}");
        body
    }
}

/// No name exists.
pub struct NoDns;

impl TxtLookup for NoDns {
    fn txt<'a>(&'a self, _: &'a str) -> std::pin::Pin<Box<dyn Future<Output = TxtAnswer> + Send + 'a>> {
        Box::pin(async { TxtAnswer::Failed("no network in tests".to_owned()) })
    }
}

pub async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    let bytes = response.bytes().await.expect("a body");
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// One connection a request: a runtime that ends takes its pooled connections with it.
pub fn client() -> reqwest::Client {
    client_trusting(&[])
}

pub fn client_trusting(roots: &[CertificateDer<'static>]) -> reqwest::Client {
    let tls = verifica::client::tls::client_config(roots).expect("tls");
    let builder = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().pool_max_idle_per_host(0);
    builder.build().expect("client")
}

pub fn now() -> Timestamp {
    verifica::client::agent::SystemClock.now()
}

pub fn nonce() -> String {
    let mut seed = [0u8; 32];
    getrandom::fill(&mut seed).expect("random");
    verifica::ids::Ids::from_seed(seed).uuid()
}

/// Tries until it holds.
pub async fn eventually<F, Fut>(what: &str, mut holds: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    for _ in 0..200 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never happened: {what}");
}
