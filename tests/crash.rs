//! The real daemon, killed with SIGKILL again and again while agents write, pay and deliver. Afterwards nothing that was
//! acknowledged is missing, nothing happened twice, the books sum to zero and every escrow has ended once.

#[allow(dead_code)]
mod hostile;
#[allow(dead_code)]
mod support;

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{Site, ok};
use verifica::client::agent::http::HouseClient;
use verifica::client::agent::identity::Identity;
use verifica::client::agent::{self, AgentClient, ClientError, Joining, Options};
use verifica::ids::Ids;
use verifica::limits::ENVELOPE_BYTES_DEFAULT;
use verifica::record::View;
use verifica::store::Store;
use verifica::time::Timestamp;
use verifica::wire::envelope::{Draft, Envelope, Kind, Payload};
use verifica::wire::quote::{ContractKind, OP_MEDIA, Offer};
use verifica::wire::{Address, Amount, PublicKey};

const KILLS: usize = 12;
const PAYERS: u8 = 4;

/// A house on disk whose daemon is started and killed.
struct Victim {
    folder: tempfile::TempDir,
    port: u16,
    daemon: Option<Child>,
}

impl Victim {
    fn new(site: &Site) -> Victim {
        let folder = tempfile::tempdir().expect("folder");
        let house = folder.path().join("house");
        let init =
            program().args(["init", "--domain", "mar.example", "--dir"]).arg(&house).output().expect("init runs");
        assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
        let port = free_port();
        std::fs::write(house.join("ca.pem"), hostile::ca().pem()).expect("written");
        let site_port = site.server.address.port();
        let config = format!(
            r#"
domain = "mar.example"
public_url = "http://127.0.0.1:{port}"
listen = "127.0.0.1:{port}"
data_dir = "data"
domain_key_file = "domain.key"
admin_token_file = "admin.token"
[registration]
mode = "open"
per_minute = 1000
[mail]
rate_per_minute = 100000
retry_base = "50ms"
retry_max = "300ms"
[arbiter]
confirm_after = "20ms"
tick = "50ms"
[probe]
per_host_per_minute = 100000
allow_networks = ["127.0.0.0/8"]
extra_ca = ["ca.pem"]
resolve = {{ "seller.example:443" = "127.0.0.1:{site_port}" }}
"#
        );
        std::fs::write(house.join("verifica.toml"), config).expect("written");
        Victim { folder, port, daemon: None }
    }

    fn house(&self) -> PathBuf {
        self.folder.path().join("house")
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn token(&self) -> String {
        std::fs::read_to_string(self.house().join("admin.token")).expect("token").trim().to_owned()
    }

    fn start(&mut self) {
        let daemon = program()
            .arg("--config")
            .arg(self.house().join("verifica.toml"))
            .arg("serve")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.daemon = Some(daemon.expect("serve runs"));
    }

    async fn ready(&self) {
        let http = HouseClient::new(&self.url(), &[]).expect("client");
        for _ in 0..400 {
            if agent::well_known(&http).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("the daemon does not come up");
    }

    fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().expect("killed");
            daemon.wait().expect("gone");
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_the_house_loses_and_doubles_nothing() {
    let site = Site::start().await;
    site.show(ok("", "delivered"));
    let mut victim = Victim::new(&site);
    victim.start();
    victim.ready().await;
    let admin = victim.token();
    let http = HouseClient::new(&victim.url(), &[]).expect("client");
    let mut agents = Vec::new();
    for n in 0..PAYERS {
        let client = join(&victim.url(), &format!("payer{n}"), 10 + n).await;
        agent::topup(&http, &admin, &format!("funds-{}", client.address().local()), client.address(), 1_000_000, None)
            .await
            .expect("topup");
        agents.push(Arc::new(client));
    }
    let sink = Arc::new(join(&victim.url(), "sink", 50).await);
    let seller = Arc::new(join(&victim.url(), "seller", 51).await);

    let stop = Arc::new(AtomicBool::new(false));
    let mut work = Vec::new();
    for (n, client) in agents.iter().enumerate() {
        work.push(tokio::spawn(customer(client.clone(), sink.clone(), seller.clone(), n as u8, stop.clone())));
    }
    let started = Instant::now();
    for round in 0..KILLS {
        // Uneven pauses, so that the kill falls on every stage of the work.
        tokio::time::sleep(Duration::from_millis(150 + (round as u64 * 97) % 400)).await;
        victim.kill();
        victim.start();
        victim.ready().await;
    }
    stop.store(true, Ordering::SeqCst);
    let mut done = Done::default();
    for customer in work {
        done.add(customer.await.expect("the customer ends"));
    }
    assert!(
        done.paid.len() > 20 && done.letters.len() > 20 && done.contracts.len() > 5,
        "{done:?} in {:?}",
        started.elapsed()
    );
    let counted = (done.paid.len(), done.letters.len(), done.contracts.len());
    println!("{KILLS} kills in {:?}; acknowledged payments, letters, contracts: {counted:?}", started.elapsed());
    everything_arrives(&sink, &done).await;
    let house_key = AgentClient::domain_card(&sink).await.expect("card").keys[0];
    victim.kill();
    audit(&victim.house(), &done, &house_key, &agents).await;
}

/// What was acknowledged to the customers.
#[derive(Debug, Default)]
struct Done {
    /// Order id and amount.
    paid: BTreeMap<String, u64>,
    letters: BTreeSet<String>,
    contracts: BTreeSet<String>,
}

impl Done {
    fn add(&mut self, other: Done) {
        self.paid.extend(other.paid);
        self.letters.extend(other.letters);
        self.contracts.extend(other.contracts);
    }
}

/// Writes, pays and buys until told to stop. Every envelope is repeated, byte for byte, until it is acknowledged.
async fn customer(
    client: Arc<AgentClient>,
    sink: Arc<AgentClient>,
    seller: Arc<AgentClient>,
    n: u8,
    stop: Arc<AtomicBool>,
) -> Done {
    let mut ids = Ids::from_seed([n; 32]);
    let mut done = Done::default();
    let mut round = 0u64;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        let letter = envelope(&client, sink.address(), Kind::Message, "text/plain", json!("hola"), &mut ids);
        post(&client, &letter).await;
        done.letters.insert(letter.id.clone());
        let op = json!({"op": "pay", "to": sink.address(), "amount": round});
        let order = order(&client, op, &mut ids);
        post(&client, &order).await;
        done.paid.insert(order.id.clone(), round);
        if round.is_multiple_of(3) {
            done.contracts.insert(buy(&client, &seller, round.is_multiple_of(2), &mut ids).await);
        }
    }
    done
}

/// One escrow from quote to delivery; half of them are to pass. The contract is known by its quote.
async fn buy(buyer: &AgentClient, seller: &AgentClient, passes: bool, ids: &mut Ids) -> String {
    let domain = seller.address().domain();
    let pattern = if passes { "deliv[e]red" } else { "never there" };
    let quote = ids.uuid();
    let offer = Offer {
        id: quote.clone(),
        house: domain.clone(),
        seller: seller.address().clone(),
        buyer: buyer.address().clone(),
        kind: ContractKind::Escrow,
        price: Amount::new(100).expect("price"),
        concept: if passes { "passes" } else { "fails" }.into(),
        terms: json!({"verify": [{"type": "regex", "url": "https://seller.example/", "pattern": pattern}]}),
        arbiter: Some(Address::parse(&format!("verifica@{domain}")).expect("address")),
        referrer: None,
        service: None,
        issued: Timestamp::from_millis(1_800_000_000_000),
        expires: None,
    };
    let accept = order(buyer, json!({"op": "accept", "quote": offer.sign(&seller.identity().sig)}), ids);
    post(buyer, &accept).await;
    // The order goes through the queue: the contract appears when the ledger has taken it.
    let contract = loop {
        if let Ok(account) = seller.account().await {
            let contracts = account["contracts"].as_array().cloned().unwrap_or_default();
            if let Some(contract) = contracts.iter().find(|c| c["quote_id"] == *quote) {
                break contract["id"].as_str().expect("id").to_owned();
            }
        }
        tokio::time::sleep(Duration::from_millis(40)).await;
    };
    post(seller, &order(seller, json!({"op": "deliver", "contract": contract}), ids)).await;
    contract
}

/// Waits until the queue is empty and every contract has ended.
async fn everything_arrives(sink: &AgentClient, done: &Done) {
    let mut left = String::new();
    for _ in 0..1_200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let Ok(health) = sink.signed(reqwest::Method::GET, "/health", &[], None, true).await else { continue };
        let queue = health["queue"].as_u64().unwrap_or(u64::MAX);
        let Ok(account) = sink.account().await else { continue };
        left = format!("queue {queue}, balance {}", account["balance"]);
        let paid: u64 = done.paid.values().sum();
        if queue == 0 && account["balance"].as_u64() == Some(paid) {
            return;
        }
    }
    panic!("not everything arrives: {left}");
}

async fn audit(house: &Path, done: &Done, key: &PublicKey, agents: &[Arc<AgentClient>]) {
    let data = house.join("data");
    let file = std::fs::read_dir(&data)
        .expect("data")
        .map(|entry| entry.expect("entry").path())
        .find(|path| path.extension().is_some_and(|e| e == "db" || e == "sqlite"))
        .expect("the store");
    let store = Store::open(&file, 2).expect("the store opens again");
    // Contracts may still be looked at when the daemon was killed for the last time; those that ended, ended once.
    let contracts = done.contracts.clone();
    let (journal, balances, ended) = store
        .read(move |reader| {
            let mut journal = Vec::new();
            loop {
                let from = journal.last().map_or(1, |entry: &verifica::record::Entry| entry.n + 1);
                let page = reader.journal(from, 500)?;
                if page.is_empty() {
                    break;
                }
                journal.extend(page);
            }
            let ended: Vec<_> = contracts.iter().filter_map(|id| reader.contract(id)).collect();
            Ok((journal, reader.balances("", 100_000)?, ended))
        })
        .await
        .expect("reads");
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    let mut by_op: BTreeMap<String, usize> = BTreeMap::new();
    let mut endings: BTreeMap<String, usize> = BTreeMap::new();
    for (i, entry) in journal.iter().enumerate() {
        assert_eq!(entry.n, i as u64 + 1, "the journal has a gap");
        assert!(key.verify_object(&entry.doc, "signature"), "entry {} is not signed by the house", entry.n);
        assert_eq!(entry.lines.iter().map(|line| line.delta).sum::<i64>(), 0);
        entry.lines.iter().for_each(|line| *sums.entry(line.account.clone()).or_default() += line.delta);
        if let Some(op) = entry.doc["refs"]["op"].as_str() {
            *by_op.entry(op.to_owned()).or_default() += 1;
        }
        if matches!(entry.doc["meta"]["kind"].as_str(), Some("release" | "refund")) {
            *endings.entry(entry.doc["meta"]["contract"].as_str().expect("contract").to_owned()).or_default() += 1;
        }
    }
    for (op, amount) in &done.paid {
        assert_eq!(by_op.get(op), Some(&1), "the payment {op} of {amount}");
    }
    assert!(by_op.values().all(|times| *times == 1), "an operation made two entries");
    assert!(endings.values().all(|times| *times == 1), "a contract ended twice");
    for (account, balance) in &balances {
        assert_eq!(sums.get(account).copied().unwrap_or(0), *balance, "{account}");
        assert!(*balance >= 0 || account == "casa@mar.example", "{account} is below zero");
    }
    assert_eq!(balances.iter().map(|(_, b)| b).sum::<i64>(), 0);
    assert_eq!(ended.len(), done.contracts.len(), "an accepted contract is missing");
    for contract in &ended {
        let state = contract.state.as_str();
        let expected = if contract.concept == "passes" { "released" } else { "refunded" };
        assert!(state == expected || state == "delivered", "{} is {state}, not {expected}", contract.id);
        let verdicts = contract.history.iter().filter(|item| item.get("veredicto").is_some()).count();
        assert_eq!(verdicts, usize::from(state == expected), "{}", contract.id);
    }
    assert!(ended.iter().filter(|c| c.state.terminal()).count() * 2 > ended.len(), "hardly any contract ended");
    let received = store
        .read(|reader| reader.mailbox("sink", 1_000_000, Timestamp::from_millis(i64::MAX / 4)))
        .await
        .expect("mailbox");
    let mut letters: BTreeMap<String, usize> = BTreeMap::new();
    let own: BTreeSet<&str> = agents.iter().map(|a| a.address().as_str()).collect();
    for mail in received.iter().filter(|mail| own.contains(mail.from.as_str())) {
        *letters.entry(mail.id.clone()).or_default() += 1;
    }
    for id in &done.letters {
        assert_eq!(letters.get(id), Some(&1), "the acknowledged letter {id}");
    }
}

async fn join(url: &str, local: &str, seed: u8) -> AgentClient {
    let address = Address::parse(&format!("{local}@mar.example")).expect("address");
    let identity = Identity::from_seeds(address, url.to_owned(), [seed; 32], [seed + 100; 32]);
    let client = AgentClient::new(identity, Options::default()).expect("client");
    client.join(&Joining::default()).await.expect("joins");
    client
}

fn order(client: &AgentClient, op: Value, ids: &mut Ids) -> Envelope {
    let libro = client.address().domain().system(verifica::wire::SystemName::Libro);
    envelope(client, &libro, Kind::Task, OP_MEDIA, op, ids)
}

fn envelope(client: &AgentClient, to: &Address, kind: Kind, media: &str, body: Value, ids: &mut Ids) -> Envelope {
    let draft = Draft {
        id: ids.uuid(),
        from: client.address().clone(),
        to: vec![to.clone()],
        kind,
        created: Timestamp::from_millis(1_800_000_000_000),
        expires: None,
        deliver_after: None,
        thread: None,
        in_reply_to: None,
        payload: Payload::Clear { media: media.to_owned(), body },
        more: Map::new(),
    };
    Envelope::sign(draft.into_doc(), &client.identity().sig, ENVELOPE_BYTES_DEFAULT).expect("envelope")
}

/// Until the house says that it has it.
async fn post(client: &AgentClient, envelope: &Envelope) {
    for _ in 0..2_000 {
        match client.post(envelope).await {
            Ok(_) => return,
            Err(ClientError::Refused { status, reason, .. }) if !matches!(status, 421 | 429 | 503) => {
                panic!("{} is refused {status}: {reason}", envelope.id)
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    panic!("{} is never acknowledged", envelope.id);
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_verifica"))
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("address").port()
}
