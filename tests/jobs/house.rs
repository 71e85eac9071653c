//! What the tests of jobs share: a house of the real program, as this user or as another, its agents and their deals.

use crate::site::{Answer, Site};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use verifica::client::agent::http::HouseClient;
use verifica::client::agent::identity::Identity;
use verifica::client::agent::{self, AgentClient, ClientError, Joining, Options, Receipt};
use verifica::ids::Ids;
use verifica::observe::jobs::Jobs;
use verifica::sandbox::JobPolicy;
use verifica::time::Timestamp;
use verifica::wire::quote::{ContractKind, Offer};
use verifica::wire::{Address, Amount, Domain, Sha256};

pub const DOMAIN: &str = "mar.example";

/// Under whom a house runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum User {
    Own,
    Ordinary,
}

pub struct House {
    pub url: String,
    pub folder: tempfile::TempDir,
    user: User,
    program: PathBuf,
    port: u16,
    /// Before the program, in the shell that starts it.
    before: String,
    child: Option<Child>,
}

pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

/// Every user under whom a house can be tested here.
pub fn users() -> Vec<User> {
    if is_root() { vec![User::Own, User::Ordinary] } else { vec![User::Own] }
}

/// Whether this host can run jobs at all, said aloud where it cannot.
pub fn able() -> bool {
    verifica::sandbox::set_launcher(PathBuf::from(env!("CARGO_BIN_EXE_verifica")));
    let offered = Jobs::offered_here(&JobPolicy::named("default").expect("default"));
    let Some(missing) = offered.unenforced else { return true };
    assert!(std::env::var_os("VERIFICA_REQUIRE_ALL").is_none(), "nothing may be skipped: {missing}");
    eprintln!("SKIPPED: {missing}");
    false
}

pub fn is_root() -> bool {
    let own = std::fs::read_to_string("/proc/self/status").expect("status");
    own.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// The work of a seller: a program and its test, in a compressed archive.
pub fn archive(test: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, text) in [("tool.sh", "#!/bin/sh\necho forty-two\n"), ("test.sh", test)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o755);
        header.set_cksum();
        tar.append_data(&mut header, name, text.as_bytes()).expect("entry");
    }
    tar.into_inner().and_then(flate2::write::GzEncoder::finish).expect("archive")
}

/// The agreed test: a program of the buyer's choice over what was delivered.
pub fn test_of_the_work() -> Value {
    json!({"verify": [{
        "type": "exit_0", "name": "the work works", "argv": ["/bin/sh", "test.sh"],
        "inputs": [{"path": "work", "url": "https://seller.example/work.tar.gz", "sha256": "evidence", "unpack": "tar.gz"}],
    }]})
}

/// A site with a deliverable.
pub fn site(work: Vec<u8>) -> Site {
    Site::start(vec![("/work.tar.gz", Answer::bytes(work))])
}

impl House {
    /// A house that reaches the site and is not yet started.
    pub fn new(user: User, site: &Site) -> House {
        let folder = tempfile::tempdir().expect("folder");
        let at = folder.path().to_owned();
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o755)).expect("mode");
        let program = at.join("verifica");
        if user == User::Ordinary {
            std::fs::copy(env!("CARGO_BIN_EXE_verifica"), &program).expect("copy");
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("mode");
        } else {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_verifica"), &program).expect("link");
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("port").local_addr().expect("address").port();
        let url = format!("http://127.0.0.1:{port}");
        let house = House { url, folder, user, program, port, before: String::new(), child: None };
        let made = house.run(&["init", "--domain", DOMAIN, "--dir", "house"]);
        assert_eq!(made.code, 0, "{}", made.err);
        std::fs::write(house.path("ca.pem"), &site.ca_pem).expect("roots");
        let text = std::fs::read_to_string(house.path("verifica.toml")).expect("configuration");
        let text = text
            .replace("allow_networks = []", "allow_networks = [\"127.0.0.0/8\"]")
            .replace("extra_ca = []", "extra_ca = [\"ca.pem\"]")
            .replace("resolve = {}", &format!("resolve = {{ \"seller.example:443\" = \"{}\" }}", site.address))
            .replace("# confirm_after = \"2s\"", "confirm_after = \"100ms\"")
            .replace("tick = \"1s\"", "tick = \"100ms\"")
            .replace("mode = \"admin\"", "mode = \"open\"");
        std::fs::write(house.path("verifica.toml"), text).expect("configuration");
        if user == User::Ordinary {
            house.hand_over(&at.join("house"));
        }
        house
    }

    /// What a shell does before it becomes the house.
    pub fn after(mut self, before: &str) -> House {
        self.before = before.to_owned();
        self
    }

    pub fn configured(self, from: &str, to: &str) -> House {
        let text = std::fs::read_to_string(self.path("verifica.toml")).expect("configuration");
        assert!(text.contains(from), "{text}");
        std::fs::write(self.path("verifica.toml"), text.replace(from, to)).expect("configuration");
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("house").join(name)
    }

    pub fn start(&mut self) {
        let script = format!("{} exec \"$0\" \"$@\"", self.before);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).arg(&self.program).args(["serve", "--config", "verifica.toml"]);
        command
            .env_clear()
            .env("VERIFICA_PUBLIC_URL", &self.url)
            .env("VERIFICA_LISTEN", format!("127.0.0.1:{}", self.port));
        command.current_dir(self.folder.path().join("house")).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::piped());
        if self.user == User::Ordinary {
            command.uid(ORDINARY).gid(ORDINARY);
        }
        let mut child = command.spawn().expect("serve");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr"));
        let (mut line, mut said) = (String::new(), String::new());
        while !line.starts_with("ready ") {
            line.clear();
            assert!(lines.read_line(&mut line).expect("a line") > 0, "the house ended before it was ready: {said}");
            said.push_str(&line);
        }
        std::thread::spawn(move || {
            let mut rest = Vec::new();
            let _ = lines.read_to_end(&mut rest);
            if std::env::var_os("VERIFICA_TEST_LOGS").is_some() {
                eprintln!("{}", String::from_utf8_lossy(&rest));
            }
        });
        self.child = Some(child);
    }

    pub fn pid(&self) -> String {
        self.child.as_ref().expect("running").id().to_string()
    }

    /// From now on its jobs could not get the limits of their policy.
    pub fn lower_limits(&self) {
        let mut command = Command::new("prlimit");
        command.args(["--pid", &self.pid(), "--nofile=200:200"]);
        if self.user == User::Ordinary {
            command.uid(ORDINARY).gid(ORDINARY);
        }
        assert!(command.status().expect("prlimit").success());
    }

    pub fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([&format!("-{name}"), &self.pid()]).status().expect("kill").success());
    }

    pub fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("running");
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("status") {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "the house does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn http(&self) -> HouseClient {
        HouseClient::new(&self.url, &[]).expect("client")
    }

    pub fn libro(&self) -> Address {
        Domain::parse(DOMAIN).expect("domain").system(verifica::wire::SystemName::Libro)
    }

    pub fn verifica(&self) -> Address {
        Domain::parse(DOMAIN).expect("domain").system(verifica::wire::SystemName::Verifica)
    }

    pub fn token(&self) -> String {
        std::fs::read_to_string(self.path("admin.token")).expect("token").trim().to_owned()
    }

    pub async fn join(&self, local: &str, seed: u8) -> AgentClient {
        let address = Address::parse(&format!("{local}@{DOMAIN}")).expect("address");
        let identity = Identity::from_seeds(address, self.url.clone(), [seed; 32], [seed + 100; 32]);
        let client = AgentClient::new(identity, Options::default()).expect("client");
        client.join(&Joining::default()).await.expect("joins");
        client
    }

    /// A buyer with money and a seller.
    pub async fn people(&self) -> (AgentClient, AgentClient) {
        let (buyer, seller) = (self.join("ana-buys", 11).await, self.join("leo-sells", 12).await);
        let id = uuid::Uuid::new_v4().to_string();
        agent::topup(&self.http(), &self.token(), &id, buyer.address(), 1_000, None).await.expect("topup");
        (buyer, seller)
    }

    pub async fn balance(&self, client: &AgentClient) -> i64 {
        let books = agent::journal(&self.http(), &self.token(), 1).await.expect("books");
        let balances = books["balances"].as_object().expect("balances").clone();
        assert_eq!(balances.values().filter_map(Value::as_i64).sum::<i64>(), 0, "{balances:?}");
        balances.get(client.address().as_str()).and_then(Value::as_i64).unwrap_or(0)
    }

    /// What verifica@ says that it can run.
    pub async fn offered(&self) -> Vec<String> {
        let card = agent::public_card(&self.http(), &self.verifica()).await.expect("card");
        let tests = card.pointer("/capabilities/verifica/pruebas").and_then(Value::as_array).cloned();
        tests.unwrap_or_default().iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    pub async fn accepted(
        &self,
        buyer: &AgentClient,
        seller: &AgentClient,
        terms: Value,
    ) -> Result<String, ClientError> {
        let seed = *uuid::Uuid::new_v4().as_bytes();
        let mut ids = Ids::from_seed([seed, seed].concat().try_into().expect("seed"));
        let offer = Offer {
            id: ids.uuid(),
            house: Domain::parse(DOMAIN).expect("domain"),
            seller: seller.address().clone(),
            buyer: buyer.address().clone(),
            kind: ContractKind::Escrow,
            price: Amount::new(100).expect("price"),
            concept: "a tool that works".into(),
            terms,
            arbiter: Some(self.verifica()),
            referrer: None,
            service: None,
            issued: Timestamp::from_millis(1_800_000_000_000),
            expires: None,
        };
        let quote = offer.sign(&seller.identity().sig);
        let receipt = self.order(buyer, json!({"op": "accept", "quote": quote})).await?;
        Ok(receipt.body["contract"]["id"].as_str().expect("id").to_owned())
    }

    pub async fn delivered(&self, buyer: &AgentClient, seller: &AgentClient, terms: Value, work: &[u8]) -> String {
        let contract = self.accepted(buyer, seller, terms).await.expect("accepted");
        let op = json!({"op": "deliver", "contract": contract, "evidence_sha256": Sha256::of(work)});
        self.order(seller, op).await.expect("delivered");
        contract
    }

    pub async fn order(&self, client: &AgentClient, op: Value) -> Result<Receipt, ClientError> {
        let id = client.operate_at(&self.libro(), &op).await?;
        client.wait_receipt(&id, Duration::from_secs(30)).await
    }

    /// The program on the house's folder, as the house's user.
    pub fn run(&self, args: &[&str]) -> Ran {
        let mut command = Command::new(&self.program);
        command
            .current_dir(self.folder.path())
            .args(args)
            .env_clear()
            .env("HOME", self.folder.path())
            .stdin(Stdio::null());
        let output = command.output().expect("the program runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    pub fn write(&self, name: &str, doc: &Value) {
        std::fs::write(self.folder.path().join(name), doc.to_string()).expect("written");
    }

    fn hand_over(&self, path: &Path) {
        chown(path, Some(ORDINARY), Some(ORDINARY)).expect("chown");
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            self.hand_over(&entry.path());
        }
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The contract as a party sees it, once `until` holds of it.
pub async fn contract_when(client: &AgentClient, id: &str, until: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    for _ in 0..600 {
        last = client.contract(id).await.expect("contract");
        if until(&last) {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the contract stays {last:#}");
}

pub fn ended(contract: &Value) -> bool {
    contract["state"] == "released" || contract["state"] == "refunded"
}

/// Processes anywhere on the host with a word in their arguments.
pub fn processes_with(word: &str) -> usize {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").expect("proc").flatten();
    let names = entries.map(|entry| entry.path()).filter(|path| !path.ends_with(&own));
    names
        .filter(|path| String::from_utf8_lossy(&std::fs::read(path.join("cmdline")).unwrap_or_default()).contains(word))
        .count()
}

const ORDINARY: u32 = 54_322;
