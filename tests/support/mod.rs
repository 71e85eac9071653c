//! Whole houses in one process, over real HTTP and a real store, and a site whose answers a test chooses.

use crate::hostile::pki::Identity as Certificate;
use crate::hostile::server::{Server, Stage, Step, Tls};
use crate::hostile::{self, AddressRule, Fetcher, FetcherConfig};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use verifica::client::agent::http::HouseClient;
use verifica::client::agent::identity::Identity;
use verifica::client::agent::{self, AgentClient, ClientError, Joining, Options, Receipt};
use verifica::client::resolver::HostOverride;
use verifica::daemon::{self, ArbiterOptions, Listen, Running, ServeOptions};
use verifica::ids::Ids;
use verifica::record::{House, Registration, Settings};
use verifica::verdict::ProbePolicy;
use verifica::wire::quote::{ContractKind, Offer};
use verifica::wire::{Address, Amount, Domain, SigningKey};

pub const ADMIN: &str = "operator-token-for-tests";

/// A house that can be stopped and started again on the same books and the same port.
pub struct TestHouse {
    pub domain: Domain,
    pub url: String,
    port: u16,
    key: SigningKey,
    folder: tempfile::TempDir,
    running: Option<Running>,
    hosts: BTreeMap<Domain, HostOverride>,
    fetcher: Option<Fetcher>,
    confirm_after_ms: u64,
    /// Which addresses a test may name.
    pub addresses: AddressRule,
    review_window_ms: i64,
}

impl TestHouse {
    pub fn new(domain: &str, seed: u8) -> TestHouse {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("address").port();
        TestHouse {
            domain: Domain::parse(domain).expect("domain"),
            url: format!("http://127.0.0.1:{port}"),
            port,
            key: SigningKey::from_seed([seed; 32]),
            folder: tempfile::tempdir().expect("folder"),
            running: None,
            hosts: BTreeMap::new(),
            fetcher: None,
            confirm_after_ms: 50,
            addresses: hostile::loopback(),
            review_window_ms: verifica::limits::REVIEW_WINDOW_MS,
        }
    }

    /// This house finds that one there.
    pub fn knows(mut self, other: &TestHouse) -> TestHouse {
        self.hosts.insert(other.domain.clone(), HostOverride { url: other.url.clone(), sig: None });
        self
    }

    /// Its arbiter looks through this.
    pub fn arbitrating(mut self, fetcher: Fetcher) -> TestHouse {
        self.fetcher = Some(fetcher);
        self
    }

    /// Silence pays so long after a deadline and a delivery.
    pub fn reviewing(mut self, ms: i64) -> TestHouse {
        self.review_window_ms = ms;
        self
    }

    pub async fn start(&mut self) {
        let settings = Settings {
            registration: Registration::Open,
            registrations_per_minute: 10_000,
            mail_per_minute: 1_000_000,
            addresses: self.addresses.clone(),
            policy: ProbePolicy { confirm_after_ms: self.confirm_after_ms, ..ProbePolicy::default() },
            review_window_ms: self.review_window_ms,
            retry_base_ms: 100,
            retry_max_ms: 1_000,
            arbiter: self.fetcher.is_some(),
            ..Settings::default()
        };
        let house = House {
            domain: self.domain.clone(),
            public_url: self.url.clone(),
            host: format!("127.0.0.1:{}", self.port),
            key: self.key.clone(),
            retiring: None,
            settings,
        };
        let at = SocketAddr::from(([127, 0, 0, 1], self.port));
        let mut options = ServeOptions::new(house, Listen::At(at), self.folder.path().join("house.db"));
        options.admin_token = Some(ADMIN.to_owned().into());
        options.hosts = self.hosts.clone();
        options.peer_addresses = hostile::loopback();
        options.arbiter = self.fetcher.clone().map(|fetcher| ArbiterOptions {
            control: None,
            fetcher,
            jobs: None,
            slots: 16,
            tick: Duration::from_millis(100),
        });
        self.running = Some(daemon::serve(options).await.expect("the house starts"));
    }

    pub async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown().await;
        }
    }

    /// An agent of this house, registered over HTTP.
    pub async fn join(&self, local: &str, seed: u8) -> AgentClient {
        let address = Address::parse(&format!("{local}@{}", self.domain)).expect("address");
        let identity = Identity::from_seeds(address, self.url.clone(), [seed; 32], [seed + 100; 32]);
        let client = AgentClient::new(identity, Options::default()).expect("client");
        client.join(&Joining::default()).await.expect("joins");
        client
    }

    pub fn http(&self) -> HouseClient {
        HouseClient::new(&self.url, &[]).expect("client")
    }

    pub async fn topup(&self, account: &Address, amount: u64) {
        let id = uuid::Uuid::new_v4().to_string();
        agent::topup(&self.http(), ADMIN, &id, account, amount, None).await.expect("topup");
    }

    /// Balances of the whole ledger; they must sum to zero.
    pub async fn balances(&self) -> BTreeMap<String, i64> {
        let running = self.running.as_ref().expect("running");
        let listed = running.doors.store.read(|reader| reader.balances("", 10_000)).await.expect("balances");
        let balances: BTreeMap<String, i64> = listed.into_iter().collect();
        assert_eq!(balances.values().sum::<i64>(), 0, "{balances:?}");
        balances
    }

    pub fn doors(&self) -> &Arc<verifica::server::Doors> {
        &self.running.as_ref().expect("running").doors
    }

    /// What lies in a mailbox of this house.
    pub async fn mailbox(&self, local: &str) -> Vec<Value> {
        let (running, local) = (self.running.as_ref().expect("running"), local.to_owned());
        let now = running.doors.now();
        let read = running.doors.store.read(move |reader| reader.mailbox(&local, 100, now));
        read.await.expect("mailbox").into_iter().map(|mail| mail.envelope.into_value()).collect()
    }

    pub fn verifica(&self) -> Address {
        self.domain.system(verifica::wire::SystemName::Verifica)
    }

    pub fn libro(&self) -> Address {
        self.domain.system(verifica::wire::SystemName::Libro)
    }

    pub fn public_key(&self) -> verifica::wire::PublicKey {
        self.key.public()
    }
}

/// A site at `https://seller.example/` whose answers can be changed while it runs.
pub struct Site {
    pub server: Server,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Site {
    pub async fn start() -> Site {
        let answer = Arc::new(Mutex::new(ok("", "")));
        let shown = answer.clone();
        let certificate: Certificate = hostile::identity();
        let server = Server::scripted("127.0.0.1:0", certificate, Tls::V13, move |_| {
            (Stage::Request, vec![Step::Send(shown.lock().expect("answer").clone()), Step::Notify])
        })
        .await;
        Site { server, answer }
    }

    pub fn show(&self, answer: Vec<u8>) {
        *self.answer.lock().expect("answer") = answer;
    }

    pub fn fetcher(&self) -> Fetcher {
        let config = FetcherConfig { resolve: vec![hostile::at(self.server.address)], ..hostile::config() };
        Fetcher::new(config).expect("fetcher")
    }
}

pub fn ok(headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len()).into_bytes()
}

pub fn status(code: u16) -> Vec<u8> {
    format!("HTTP/1.1 {code} X\r\ncontent-length: 0\r\n\r\n").into_bytes()
}

/// A quote of `seller` to `buyer` for an escrow at `house`, with these terms; its arbiter judges where they speak of tests.
pub fn quote(
    house: &TestHouse,
    seller: &AgentClient,
    buyer: &Address,
    price: u64,
    terms: Value,
    ids: &mut Ids,
) -> Value {
    let terms_name_tests = terms.get("verify").is_some();
    let offer = Offer {
        id: ids.uuid(),
        house: house.domain.clone(),
        seller: seller.address().clone(),
        buyer: buyer.clone(),
        kind: ContractKind::Escrow,
        price: Amount::new(price).expect("price"),
        concept: "a page that answers".into(),
        terms,
        arbiter: terms_name_tests.then(|| house.verifica()),
        referrer: None,
        service: None,
        issued: verifica::time::Timestamp::from_millis(1_800_000_000_000),
        expires: None,
    };
    offer.sign(&seller.identity().sig)
}

/// Orders a ledger and waits for its receipt.
pub async fn order(client: &AgentClient, libro: &Address, op: Value) -> Result<Receipt, ClientError> {
    let id = client.operate_at(libro, &op).await?;
    client.wait_receipt(&id, Duration::from_secs(30)).await
}

/// The contract as the house shows it to a party, once it is in one of these states.
pub async fn contract_in(client: &AgentClient, contract: &str, states: &[&str]) -> Value {
    let mut last = Value::Null;
    for _ in 0..400 {
        last = client.contract(contract).await.expect("contract");
        if states.iter().any(|state| last["state"] == *state) {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the contract stays {last:#}");
}

/// Accepts and delivers; answers the contract's id.
pub async fn accepted_and_delivered(
    house: &TestHouse,
    buyer: &AgentClient,
    seller: &AgentClient,
    price: u64,
    terms: Value,
    ids: &mut Ids,
) -> String {
    let quote = quote(house, seller, buyer.address(), price, terms, ids);
    let receipt = order(buyer, &house.libro(), json!({"op": "accept", "quote": quote})).await.expect("accepted");
    let contract = receipt.body["contract"]["id"].as_str().expect("id").to_owned();
    order(seller, &house.libro(), json!({"op": "deliver", "contract": contract})).await.expect("delivered");
    contract
}
