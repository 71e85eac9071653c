//! The arbiter alone beside a house that runs as another program with no arbiter of its own: `verifica watch`, killed and
//! started again, before a house that is killed and comes back. Each contract ends once, by one verdict.

#[allow(dead_code)]
mod hostile;
#[allow(dead_code)]
mod support;

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::{Site, contract_in, ok, order};
use verifica::client::agent::http::HouseClient;
use verifica::client::agent::identity::Identity;
use verifica::client::agent::{self, AgentClient, Joining, Options};
use verifica::ids::Ids;
use verifica::wire::quote::{ContractKind, Offer};
use verifica::wire::{Address, Amount, SigningKey, SystemName};

/// Two programs in two folders: the house and, with the key of verifica@, its arbiter.
struct Pair {
    folder: tempfile::TempDir,
    port: u16,
    house: Option<Child>,
    watch: Option<Child>,
}

impl Pair {
    fn new(site: &Site) -> Pair {
        let folder = tempfile::tempdir().expect("folder");
        let house = folder.path().join("house");
        let init =
            program().args(["init", "--domain", "mar.example", "--dir"]).arg(&house).output().expect("init runs");
        assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
        let watch = folder.path().join("watch");
        std::fs::create_dir(&watch).expect("folder");
        std::fs::copy(house.join("domain.key"), watch.join("verifica.key")).expect("the key of verifica@");
        std::fs::write(watch.join("ca.pem"), hostile::ca().pem()).expect("written");
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let named = format!("domain = \"mar.example\"\npublic_url = \"http://127.0.0.1:{port}\"\n");
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
        Pair { folder, port, house: None, watch: None }
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
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
