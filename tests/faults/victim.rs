//! A house on disk, its real program started plain or under strace, and a client that asks for the same things again.

use serde_json::{Map, Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};
use verifica::limits::ENVELOPE_BYTES_DEFAULT;
use verifica::time::Timestamp;
use verifica::wire::auth::{Request, Token};
use verifica::wire::envelope::{Draft, Envelope, Kind, Payload};
use verifica::wire::quote::{ContractKind, OP_MEDIA, Offer};
use verifica::wire::{Address, Amount, SigningKey};

pub const CREATED: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// A house with two agents and tokens, stopped. Every fault begins with a copy of it.
pub struct Base {
    folder: tempfile::TempDir,
    token: String,
}

/// One copy, and its program.
pub struct Victim {
    folder: tempfile::TempDir,
    pub port: u16,
    token: String,
    program: Option<Child>,
    traced: bool,
    /// How it ended: with a code, or by a signal.
    exit: Option<Option<i32>>,
}

/// What the client was told, and when.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Names of the steps that were acknowledged.
    pub acked: Vec<(String, f64)>,
    /// How many were answered 503.
    pub unavailable: usize,
    /// The contract, once it was made.
    pub contract: Option<String>,
}

impl Base {
    pub fn new() -> Base {
        let folder = tempfile::tempdir().expect("a folder");
        let house = folder.path().join("house");
        let init =
            program().args(["init", "--domain", "mar.example", "--dir"]).arg(&house).output().expect("init runs");
        assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
        let token = std::fs::read_to_string(house.join("admin.token")).expect("token").trim().to_owned();
        let base = Base { folder, token };
        let mut victim = base.victim();
        victim.start();
        assert!(victim.ready(), "the house comes up");
        for local in ["ana", "leo"] {
            let key = key(local);
            let mut body = json!({"local": local, "sig": key.public().kid(), "ts": now()});
            key.sign_object(&mut body, "signature");
            let (code, answer) = victim.post("/agents", &[], &body).expect("an answer");
            assert!((200..300).contains(&code), "{code} {answer}");
        }
        victim.stop();
        copy(&victim.folder.path().join("data"), &base.folder.path().join("house/data"));
        base
    }

    pub fn victim(&self) -> Victim {
        let folder = tempfile::tempdir().expect("a folder");
        self.victim_in(folder, None)
    }

    /// With its data somewhere else.
    pub fn victim_at(&self, data: &Path) -> Victim {
        let folder = tempfile::tempdir().expect("a folder");
        self.victim_in(folder, Some(data))
    }

    fn victim_in(&self, folder: tempfile::TempDir, data: Option<&Path>) -> Victim {
        let from = self.folder.path().join("house");
        let to = folder.path();
        for file in ["domain.key", "admin.token"] {
            std::fs::copy(from.join(file), to.join(file)).expect("copied");
        }
        let data = data.map_or_else(|| to.join("data"), Path::to_owned);
        copy(&from.join("data"), &data);
        let port = free_port();
        let config = format!(
            r#"
domain = "mar.example"
public_url = "http://127.0.0.1:{port}"
listen = "127.0.0.1:{port}"
data_dir = "{}"
domain_key_file = "domain.key"
admin_token_file = "admin.token"
[registration]
mode = "open"
min_name_length = 3
[arbiter]
enabled = false
[mail]
rate_per_minute = 100000
retry_base = "50ms"
retry_max = "300ms"
"#,
            data.display()
        );
        std::fs::write(to.join("verifica.toml"), config).expect("written");
        Victim { folder, port, token: self.token.clone(), program: None, traced: false, exit: None }
    }
}

impl Victim {
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub fn store(&self) -> PathBuf {
        self.data().join("house.db")
    }

    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    /// Under `wrapper`, whose words stand before the program's.
    pub fn start_with(&mut self, wrapper: &[String]) {
        let own = PathBuf::from(env!("CARGO_BIN_EXE_verifica"));
        let mut words: Vec<std::ffi::OsString> = wrapper.iter().map(Into::into).collect();
        words.push(own.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("--config").arg(self.folder.path().join("verifica.toml")).arg("serve");
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
        self.program = Some(child);
        self.exit = None;
        self.traced = !wrapper.is_empty();
    }

    /// Whether it takes work; `false` when it ended instead.
    pub fn ready(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            if self.ended().is_some() {
                return false;
            }
            if self.get("/ready").is_some_and(|(code, _)| code == 200) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the house neither comes up nor ends");
    }

    /// Its exit code, or `None` inside for a signal, once it has ended.
    pub fn ended(&mut self) -> Option<Option<i32>> {
        if let Some(program) = &mut self.program {
            let status = program.try_wait().expect("a status")?;
            self.program = None;
            self.exit = Some(status.code());
        }
        self.exit
    }

    /// In order, as an operator would end it.
    pub fn stop(&mut self) -> Option<i32> {
        let Some(child) = self.program.as_ref().map(Child::id) else { return self.exit? };
        // Without its program strace is about to end by itself.
        if let Some(pid) = if self.traced { traced(child) } else { Some(child) } {
            let _ = Command::new("kill").args(["-TERM", &pid.to_string()]).stderr(Stdio::null()).status();
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            if let Some(code) = self.ended() {
                return code;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the house does not end");
    }

    pub fn get(&self, path: &str) -> Option<(u16, Value)> {
        http(self.port, "GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, headers: &[String], body: &Value) -> Option<(u16, Value)> {
        http(self.port, "POST", path, headers, body.to_string().as_bytes())
    }

    /// A signed request of an agent.
    pub fn as_agent(&self, local: &str, method: &str, path: &str, body: &[u8]) -> Option<(u16, Value)> {
        let host = format!("127.0.0.1:{}", self.port);
        let request = Request { method, path, host: &host };
        let nonce = format!("{:?}", SystemTime::now());
        let header = Token::header(&address(local), &key(local), request, now(), &nonce);
        http(self.port, method, path, &[format!("Authorization: {header}")], body)
    }

    /// Asks for every step in order. A step that is not acknowledged is asked for again as often as `tries` says; the
    /// session ends where the program does.
    pub fn session(&mut self, letters: usize, tries: usize) -> Told {
        let mut told = Told::default();
        for step in steps(letters) {
            let mut done = false;
            for _ in 0..tries {
                match self.ask(&step, &told) {
                    Some((200..=202, answer)) => {
                        if step == "accept" {
                            let id = answer.pointer("/results/libro@mar.example/contract/id").and_then(Value::as_str);
                            told.contract = id.map(str::to_owned).or(told.contract.take());
                        }
                        told.acked.push((step.clone(), seconds()));
                        done = true;
                    }
                    Some((503, _)) => told.unavailable += 1,
                    Some((code, answer)) => panic!("{step} is answered {code}: {answer}"),
                    None => {}
                }
                if done || self.ended().is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            if self.program.is_none() {
                break;
            }
            if !done && matches!(step.as_str(), "fund" | "accept" | "deliver") {
                // What comes after needs it.
                break;
            }
        }
        told
    }

    /// Sixteen kilobytes from ana to leo.
    pub fn long_letter(&self, step: &str) -> Option<(u16, Value)> {
        let body = json!("x".repeat(16_384));
        self.post("/inbound", &[], envelope("ana", step, &address("leo"), Kind::Message, "text/plain", body).doc())
    }

    fn ask(&self, step: &str, told: &Told) -> Option<(u16, Value)> {
        let contract = told.contract.clone().unwrap_or_default();
        match step {
            "fund" => {
                let body = json!({"id": "issue-00000001", "account": address("ana"), "amount": 1_000});
                self.post("/libro/topup", &[format!("Authorization: Bearer {}", self.token)], &body)
            }
            "accept" => {
                let quote = quote();
                self.order("ana", step, json!({"op": "accept", "quote": quote}))
            }
            "deliver" => self.order("leo", step, json!({"op": "deliver", "contract": contract})),
            "release" => self.order("ana", step, json!({"op": "release", "contract": contract})),
            "queued" => {
                let letter = envelope("leo", step, &address("ana"), Kind::Message, "text/plain", json!("by the queue"));
                self.as_agent("leo", "POST", "/outbound", letter.doc().to_string().as_bytes())
            }
            pay if pay.starts_with("pay") => {
                self.order("ana", pay, json!({"op": "pay", "to": address("leo"), "amount": 7}))
            }
            letter => {
                let doc = envelope("ana", letter, &address("leo"), Kind::Message, "text/plain", json!("x".repeat(900)));
                self.post("/inbound", &[], doc.doc())
            }
        }
    }

    fn order(&self, who: &str, step: &str, body: Value) -> Option<(u16, Value)> {
        let libro = address("libro");
        self.post("/inbound", &[], envelope(who, step, &libro, Kind::Task, OP_MEDIA, body).doc())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        if let Some(mut child) = self.program.take() {
            if self.traced
                && let Some(pid) = traced(child.id())
            {
                let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The script: an issue, a contract from beginning to end, letters and payments, and one letter through the queue.
pub fn steps(letters: usize) -> Vec<String> {
    let mut steps = vec!["fund".to_owned(), "accept".to_owned(), "queued".to_owned()];
    for n in 0..letters {
        steps.push(format!("letter{n}"));
        steps.push(format!("pay{n}"));
    }
    steps.extend(["deliver".to_owned(), "release".to_owned()]);
    steps
}

pub fn id_of(step: &str) -> String {
    format!("envelope-{step}")
}

pub fn address(local: &str) -> Address {
    Address::parse(&format!("{local}@mar.example")).expect("address")
}

pub fn every_point() -> bool {
    std::env::var("VERIFICA_FAULTS").as_deref() == Ok("all")
}

/// Whether strace may trace here; without it the caller says so, and under `VERIFICA_REQUIRE_ALL` fails.
pub fn strace_works() -> bool {
    let works = Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !works {
        assert!(std::env::var_os("VERIFICA_REQUIRE_ALL").is_none(), "strace is missing or may not trace here");
        eprintln!("SKIPPED: strace is missing or may not trace here, so no system call was made to fail");
    }
    works
}

pub fn seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").as_secs_f64()
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("a type").is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    }
}

/// The quote is the same every time, so that a repetition is one.
fn quote() -> Value {
    let offer = Offer {
        id: "quote-00000001".into(),
        house: address("ana").domain(),
        seller: address("leo"),
        buyer: address("ana"),
        kind: ContractKind::Escrow,
        price: Amount::new(100).expect("price"),
        concept: "work".into(),
        terms: json!({"deadline": "2099-01-01"}),
        arbiter: None,
        referrer: None,
        service: None,
        issued: CREATED,
        expires: None,
    };
    offer.sign(&key("leo"))
}

fn envelope(who: &str, step: &str, to: &Address, kind: Kind, media: &str, body: Value) -> Envelope {
    let draft = Draft {
        id: id_of(step),
        from: address(who),
        to: vec![to.clone()],
        kind,
        created: CREATED,
        expires: None,
        deliver_after: None,
        thread: None,
        in_reply_to: None,
        payload: Payload::Clear { media: media.to_owned(), body },
        more: Map::new(),
    };
    Envelope::sign(draft.into_doc(), &key(who), ENVELOPE_BYTES_DEFAULT).expect("envelope")
}

fn key(local: &str) -> SigningKey {
    SigningKey::from_seed([local.as_bytes()[0]; 32])
}

fn now() -> Timestamp {
    Timestamp::from_millis((seconds() * 1_000.0) as i64)
}

/// One request over one connection, or nothing if nobody answers it.
fn http(port: u16, method: &str, path: &str, headers: &[String], body: &[u8]) -> Option<(u16, Value)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n",
        body.len()
    );
    for header in headers {
        head += &format!("{header}\r\n");
    }
    head += "\r\n";
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let code = head.split_whitespace().nth(1)?.parse().ok()?;
    let from = body.find('{')?;
    let value = serde_json::Deserializer::from_str(&body[from..]).into_iter::<Value>().next()?.ok()?;
    Some((code, value))
}

/// The program that this strace traces.
fn traced(strace: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{strace}/task/{strace}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_verifica"))
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("address").port()
}
