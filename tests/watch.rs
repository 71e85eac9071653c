//! The arbiter alone beside a house that runs as another program with no arbiter of its own: `verifica watch`, killed and
//! started again, before a house that is killed and comes back. Each contract ends once, by one verdict.

#[allow(dead_code)]
mod hostile;
#[allow(dead_code)]
mod support;

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Site, contract_in, ok, order};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use verifica::client::agent::http::HouseClient;
use verifica::client::agent::identity::Identity;
use verifica::client::agent::{self, AgentClient, Joining, Options};
use verifica::ids::Ids;
use verifica::wire::quote::{ContractKind, Offer};
use verifica::wire::{Address, Amount, SigningKey, SystemName};

/// Two programs in two folders: the house and, with the key of verifica@, its arbiter.
struct Pair {
    folder: tempfile::TempDir,
    /// Where the house listens.
    port: u16,
    /// Where its URL says that it is.
    public: u16,
    house: Option<Child>,
    watch: Option<Child>,
}

impl Pair {
    fn new(site: &Site) -> Pair {
        let port = free_port();
        Pair::behind(site, port, port)
    }

    fn behind(site: &Site, public: u16, port: u16) -> Pair {
        let folder = tempfile::tempdir().expect("folder");
        let house = folder.path().join("house");
        let init =
            program().args(["init", "--domain", "mar.example", "--dir"]).arg(&house).output().expect("init runs");
        assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
        let watch = folder.path().join("watch");
        std::fs::create_dir(&watch).expect("folder");
        std::fs::copy(house.join("domain.key"), watch.join("verifica.key")).expect("the key of verifica@");
        std::fs::write(watch.join("ca.pem"), hostile::ca().pem()).expect("written");
        let named = format!("domain = \"mar.example\"\npublic_url = \"http://127.0.0.1:{public}\"\n");
        let serve = format!(
            r#"{named}
listen = "127.0.0.1:{port}"
[registration]
mode = "open"
per_minute = 1000
[mail]
rate_per_minute = 100000
retry_base = "50ms"
retry_max = "300ms"
[arbiter]
elsewhere = true
[probe]
allow_networks = ["127.0.0.0/8"]
"#
        );
        std::fs::write(house.join("verifica.toml"), serve).expect("written");
        let beside = format!(
            r#"{named}
domain_key_file = "verifica.key"
[arbiter]
confirm_after = "150ms"
tick = "50ms"
[probe]
per_host_per_minute = 100000
allow_networks = ["127.0.0.0/8"]
extra_ca = ["ca.pem"]
resolve = {{ "seller.example:443" = "127.0.0.1:{}" }}
"#,
            site.server.address.port()
        );
        std::fs::write(watch.join("verifica.toml"), beside).expect("written");
        Pair { folder, port, public, house: None, watch: None }
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.public)
    }

    async fn start_house(&mut self) {
        self.house = Some(start(&self.dir("house"), "serve"));
        let http = HouseClient::new(&self.url(), &[]).expect("client");
        for _ in 0..400 {
            if agent::well_known(&http).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("the house does not come up");
    }

    fn start_watch(&mut self) {
        self.watch = Some(start(&self.dir("watch"), "watch"));
    }

    /// SIGKILL: nothing is finished in order.
    fn kill(child: &mut Option<Child>) {
        if let Some(mut child) = child.take() {
            child.kill().expect("killed");
            child.wait().expect("gone");
        }
    }

    fn client(&self, local: &str, seed: u8) -> AgentClient {
        let address = Address::parse(&format!("{local}@mar.example")).expect("address");
        let identity = Identity::from_seeds(address, self.url(), [seed; 32], [seed + 100; 32]);
        AgentClient::new(identity, Options::default()).expect("client")
    }

    /// verifica@ itself, to see what it sent.
    fn arbiter(&self) -> AgentClient {
        let text = std::fs::read_to_string(self.dir("watch").join("verifica.key")).expect("key");
        let key = SigningKey::parse(text.trim()).expect("key");
        let identity = Identity { sig: key, enc: None, ..self.client("verifica", 1).identity().clone() };
        AgentClient::new(identity, Options::default()).expect("client")
    }

    async fn people(&self) -> (AgentClient, AgentClient) {
        let (buyer, seller) = (self.client("anabuys", 11), self.client("leosells", 12));
        for client in [&buyer, &seller] {
            client.join(&Joining::default()).await.expect("joins");
        }
        let token = std::fs::read_to_string(self.dir("house").join("admin.token")).expect("token");
        let http = HouseClient::new(&self.url(), &[]).expect("client");
        agent::topup(&http, token.trim(), "funds-of-ana", buyer.address(), 10_000, None).await.expect("topup");
        (buyer, seller)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        Pair::kill(&mut self.watch);
        Pair::kill(&mut self.house);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_arbiter_beside_another_programs_house_ends_each_contract_once_through_kills_and_outages() {
    let site = Site::start().await;
    site.show(ok("", "delivered"));
    let mut pair = Pair::new(&site);
    // The arbiter comes first: a house that is not there yet is an outage like any other.
    pair.start_watch();
    pair.start_house().await;
    let (buyer, seller) = pair.people().await;
    let mut ids = Ids::from_seed([7; 32]);
    let (passes, fails) = (
        delivered(&buyer, &seller, "deliv[e]red", &mut ids).await,
        delivered(&buyer, &seller, "never there", &mut ids).await,
    );
    let first = contract_in(&buyer, &passes, &["released", "refunded"]).await;
    assert_eq!(first["state"], "released");
    assert_eq!(contract_in(&buyer, &fails, &["released", "refunded"]).await["state"], "refunded");

    // The same document as at home: signed, two looks, results of each test.
    let key = buyer.domain_card().await.expect("card").keys[0];
    let ending = first["history"].as_array().and_then(|h| h.last()).expect("ending").clone();
    assert_eq!(ending["by"], "verifica@mar.example");
    assert!(key.verify_object(&ending["veredicto"], "signature"), "{ending:#}");
    assert_eq!(ending["veredicto"]["looks"].as_array().map(Vec::len), Some(2));

    // Contracts come while the arbiter is killed at uneven moments: before, between and after its two looks.
    let mut contracts = vec![(passes, true), (fails, false)];
    for round in 0..8u64 {
        let good = round.is_multiple_of(2);
        let pattern = if good { "deliv[e]red" } else { "never there" };
        contracts.push((delivered(&buyer, &seller, pattern, &mut ids).await, good));
        tokio::time::sleep(Duration::from_millis(60 + (round * 83) % 340)).await;
        Pair::kill(&mut pair.watch);
        pair.start_watch();
    }
    // And while the house is away: delivered just before, so that the arbiter's work falls into the outage.
    for round in 0..2u64 {
        contracts.push((delivered(&buyer, &seller, "deliv[e]red", &mut ids).await, true));
        tokio::time::sleep(Duration::from_millis(40 + round * 160)).await;
        Pair::kill(&mut pair.house);
        tokio::time::sleep(Duration::from_millis(900)).await;
        pair.start_house().await;
    }
    for (id, good) in &contracts {
        let contract = ended(&buyer, id).await;
        assert_eq!(contract["state"], if *good { "released" } else { "refunded" }, "{contract:#}");
        let judged =
            contract["history"].as_array().expect("history").iter().filter(|item| item["veredicto"].is_object());
        assert_eq!(judged.count(), 1, "{id}");
    }
    let good = contracts.iter().filter(|(_, good)| *good).count() as u64;
    let account = buyer.account().await.expect("account");
    assert_eq!(account["balance"], json!(10_000 - 100 * good));

    // One order for each contract left verifica@, however often it was killed, and the ledger refused none of them.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let sent = pair.arbiter().outbox().await.expect("outbox");
    for (id, _) in &contracts {
        let orders: Vec<&Value> = sent.iter().filter(|job| job["envelope"]["thread"] == **id).collect();
        assert_eq!(orders.len(), 1, "{orders:#?}");
        assert_eq!(orders[0]["status"], "delivered", "{orders:#?}");
    }
    assert_eq!(sent.len(), contracts.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn contracts_whose_letters_were_lost_are_found_in_the_account_and_hand_made_endings_are_left_alone() {
    let site = Site::start().await;
    site.show(ok("", "delivered"));
    let mut pair = Pair::new(&site);
    pair.start_house().await;
    let (buyer, seller) = pair.people().await;
    let mut ids = Ids::from_seed([8; 32]);
    let waits = delivered(&buyer, &seller, "deliv[e]red", &mut ids).await;
    let settled = delivered(&buyer, &seller, "deliv[e]red", &mut ids).await;
    let libro = seller.address().domain().system(SystemName::Libro);
    order(&buyer, &libro, json!({"op": "release", "contract": settled})).await.expect("released by hand");
    // Nobody is left to tell.
    let arbiter = pair.arbiter();
    let letters = arbiter.inbox(100).await.expect("inbox");
    let told: Vec<String> = letters.iter().map(|letter| letter.id().to_owned()).collect();
    assert!(!told.is_empty(), "verifica@ is told of its contracts");
    arbiter.ack(&told).await.expect("acked");

    pair.start_watch();
    assert_eq!(ended(&buyer, &waits).await["state"], "released");
    let sent = arbiter.outbox().await.expect("outbox");
    assert_eq!(sent.len(), 1, "{sent:#?}");
    assert_eq!(sent[0]["envelope"]["thread"], *waits);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_is_posted_as_the_same_bytes_until_the_house_has_it() {
    let site = Site::start().await;
    site.show(ok("", "delivered"));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut pair = Pair::behind(&site, listener.local_addr().expect("address").port(), free_port());
    let wire = Arc::new(Wire { house: pair.port, posts: Mutex::default(), loses: Mutex::new(Loses::Nothing) });
    let carrying = tokio::spawn(wire.clone().carry(listener));
    pair.start_house().await;
    let (buyer, seller) = pair.people().await;
    let mut ids = Ids::from_seed([9; 32]);
    // The post never comes to the house, and its answer never to the arbiter; each time the arbiter is killed there.
    for loses in [Loses::Posts, Loses::Answers] {
        let contract = delivered(&buyer, &seller, "deliv[e]red", &mut ids).await;
        let before = wire.posts.lock().expect("posts").len();
        *wire.loses.lock().expect("mode") = loses;
        pair.start_watch();
        for _ in 0..600 {
            if wire.posts.lock().expect("posts").len() > before {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        Pair::kill(&mut pair.watch);
        *wire.loses.lock().expect("mode") = Loses::Nothing;
        if loses == Loses::Posts {
            assert_eq!(buyer.contract(&contract).await.expect("contract")["state"], "delivered");
        }
        pair.start_watch();
        assert_eq!(ended(&buyer, &contract).await["state"], "released");
        Pair::kill(&mut pair.watch);
        let posts = wire.posts.lock().expect("posts")[before..].to_vec();
        assert!(!posts.is_empty() && posts.iter().all(|post| *post == posts[0]), "{posts:#?}");
        assert_eq!(posts[0]["thread"], *contract);
        if loses == Loses::Posts {
            assert!(posts.len() > 1, "the lost post was not repeated");
        }
    }
    assert_eq!(pair.arbiter().outbox().await.expect("outbox").len(), 2);
    carrying.abort();
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Loses {
    Nothing,
    Posts,
    Answers,
}

/// What stands between the arbiter and the house: it keeps what verifica@ hands to `/outbound`, and loses it at will.
struct Wire {
    house: u16,
    posts: Mutex<Vec<Value>>,
    loses: Mutex<Loses>,
}

impl Wire {
    async fn carry(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(self.clone().connection(stream));
        }
    }

    async fn connection(self: Arc<Self>, mut client: TcpStream) -> Option<()> {
        let mut house = TcpStream::connect(("127.0.0.1", self.house)).await.ok()?;
        loop {
            let (head, body) = message(&mut client).await?;
            let envelope = serde_json::from_slice::<Value>(&body).unwrap_or_default();
            let verdict = head.starts_with("POST /outbound") && envelope["from"] == "verifica@mar.example";
            let loses = if verdict { *self.loses.lock().expect("mode") } else { Loses::Nothing };
            if verdict {
                self.posts.lock().expect("posts").push(envelope);
            }
            if loses == Loses::Posts {
                return None;
            }
            house.write_all(&[head.as_bytes(), &body].concat()).await.ok()?;
            let (head, body) = message(&mut house).await?;
            if loses == Loses::Answers {
                return None;
            }
            client.write_all(&[head.as_bytes(), &body].concat()).await.ok()?;
        }
    }
}

/// One request or answer, its length said in its head.
async fn message(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, body))
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port()
}

/// Within a minute: undecided looks in an outage come back after seconds.
async fn ended(client: &AgentClient, id: &str) -> Value {
    let mut last = Value::Null;
    for _ in 0..600 {
        if let Ok(contract) = client.contract(id).await {
            last = contract;
            if matches!(last["state"].as_str(), Some("released" | "refunded")) {
                return last;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the contract stays {last:#}");
}

async fn delivered(buyer: &AgentClient, seller: &AgentClient, pattern: &str, ids: &mut Ids) -> String {
    let domain = seller.address().domain();
    let libro = domain.system(SystemName::Libro);
    let offer = Offer {
        id: ids.uuid(),
        house: domain.clone(),
        seller: seller.address().clone(),
        buyer: buyer.address().clone(),
        kind: ContractKind::Escrow,
        price: Amount::new(100).expect("price"),
        concept: "a page".into(),
        terms: json!({"verify": [{"type": "regex", "url": "https://seller.example/", "pattern": pattern}]}),
        arbiter: Some(domain.system(SystemName::Verifica)),
        referrer: None,
        service: None,
        issued: verifica::time::Timestamp::from_millis(1_800_000_000_000),
        expires: None,
    };
    let quote = offer.sign(&seller.identity().sig);
    let receipt = order(buyer, &libro, json!({"op": "accept", "quote": quote})).await.expect("accepted");
    let contract = receipt.body["contract"]["id"].as_str().expect("id").to_owned();
    order(seller, &libro, json!({"op": "deliver", "contract": contract})).await.expect("delivered");
    contract
}

fn start(folder: &Path, command: &str) -> Child {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).expect("log");
    let child = program()
        .arg("--config")
        .arg(folder.join("verifica.toml"))
        .args([command, "--log", "json"])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    child.expect("it runs")
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_verifica"))
}
