//! A house that says whatever a test wants it to.

use crate::houses::TestHouse;
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use verifica::client::resolver::HostOverride;
use verifica::wire::{Domain, SigningKey};

#[derive(Clone)]
pub struct Fake {
    pub domain: Domain,
    pub url: String,
    pub key: SigningKey,
    says: Arc<Mutex<Says>>,
}

struct Says {
    key: SigningKey,
    cards: Vec<Value>,
    histories: Option<Value>,
    trouble: Option<Trouble>,
    endless: bool,
    asked: usize,
}

/// What goes wrong with its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Status,
    NotJson,
    NoList,
    Huge,
    Cut,
    /// Longer than one question may take.
    Silent,
}

impl Trouble {
    pub const ALL: &[Trouble] =
        &[Trouble::Status, Trouble::NotJson, Trouble::NoList, Trouble::Huge, Trouble::Cut, Trouble::Silent];
}

impl Fake {
    pub async fn start(domain: &str, seed: u8) -> Fake {
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("port");
        let key = SigningKey::from_seed([seed; 32]);
        let says = Says { key: key.clone(), cards: vec![], histories: None, trouble: None, endless: false, asked: 0 };
        let fake = Fake {
            domain: Domain::parse(domain).expect("domain"),
            url: format!("http://{}", socket.local_addr().expect("address")),
            key,
            says: Arc::new(Mutex::new(says)),
        };
        let serving = fake.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = socket.accept().await {
                tokio::spawn(serving.clone().answer(stream));
            }
        });
        fake
    }

    pub fn known_to(&self, house: &mut TestHouse) {
        house.hosts.insert(self.domain.clone(), HostOverride { url: self.url.clone(), sig: None });
    }

    pub fn shows(&self, cards: Vec<Value>) {
        let mut says = self.says();
        (says.cards, says.trouble, says.endless) = (cards, None, false);
    }

    pub fn tells(&self, histories: Value) {
        self.says().histories = Some(histories);
    }

    pub fn tells_nothing(&self) {
        self.says().histories = None;
    }

    pub fn troubled(&self, trouble: Trouble) {
        self.says().trouble = Some(trouble);
    }

    /// Every page is full, whatever is asked for.
    pub fn endless(&self) {
        let mut says = self.says();
        (says.endless, says.trouble, says.asked) = (true, None, 0);
    }

    pub fn changes_its_key(&self) {
        self.says().key = SigningKey::from_seed([99; 32]);
    }

    pub fn asked(&self) -> usize {
        self.says().asked
    }

    fn says(&self) -> MutexGuard<'_, Says> {
        self.says.lock().expect("lock")
    }

    async fn answer(self, mut stream: TcpStream) {
        let mut head = Vec::new();
        let mut piece = [0u8; 2_048];
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut piece).await {
                Ok(n) if n > 0 => head.extend_from_slice(&piece[..n]),
                _ => return,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let trouble = self.says().trouble.filter(|_| path.starts_with("/agents?"));
        if trouble == Some(Trouble::Silent) {
            // Until the other side has had enough.
            let _ = stream.read(&mut piece).await;
            return;
        }
        let (status, body) = self.page(&path, trouble);
        let length = body.len() + if trouble == Some(Trouble::Cut) { 10 } else { 0 };
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(body.as_bytes()).await;
    }

    fn page(&self, path: &str, trouble: Option<Trouble>) -> (u16, String) {
        let mut says = self.says();
        says.asked += 1;
        match trouble {
            Some(Trouble::Status) => return (500, "{}".into()),
            Some(Trouble::NotJson) => return (200, "<html>".into()),
            Some(Trouble::NoList) => return (200, json!({"agents": 7}).to_string()),
            Some(Trouble::Huge) => return (200, format!("{{\"agents\":[],\"x\":\"{}\"}}", "x".repeat(5_000_000))),
            Some(Trouble::Cut | Trouble::Silent) | None => {}
        }
        match path {
            "/.well-known/nyx5.json" => {
                let mut doc = json!({
                    "nyx5": "1", "domain": self.domain, "estafeta": self.url, "extensions": [], "policy": {},
                    "keys": [{"sig": says.key.public().kid(), "created": "2026-01-01T00:00:00Z"}],
                });
                says.key.sign_object(&mut doc, "signature");
                (200, doc.to_string())
            }
            path if path.starts_with("/agents?") => {
                let asked = |name: &str| {
                    let value = path.split(['?', '&']).find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
                    value.and_then(|value| value.parse::<usize>().ok()).unwrap_or(0)
                };
                let cards = match says.endless {
                    true => (0..asked("limit") + 50).map(|n| twin_of(&self.key, n)).collect(),
                    false => says.cards.iter().skip(asked("offset")).take(asked("limit")).cloned().collect::<Vec<_>>(),
                };
                (200, json!({"total": 1_000_000, "agents": cards}).to_string())
            }
            path if path.starts_with("/agents/historial?") => match &says.histories {
                Some(histories) => (200, json!({"historiales": histories}).to_string()),
                None => (503, "{}".into()),
            },
            _ => (404, json!({"reason": "no such agent"}).to_string()),
        }
    }
}

/// A card of the form that houses certify.
pub fn card(address: &str, key: &SigningKey, more: Value) -> Value {
    let mut doc = json!({
        "nyx5": "1", "address": address, "sig": SigningKey::from_seed([77; 32]).public().kid(), "enc": null,
        "inbox": {"policy": "open"}, "valid_from": "2026-01-01T00:00:00Z",
    });
    let fields: Map<String, Value> = more.as_object().cloned().unwrap_or_default();
    doc.as_object_mut().expect("object").extend(fields);
    key.sign_object(&mut doc, "certification");
    doc
}

/// A history with what was released, returned and forfeited.
pub fn history(address: &str, arbiter: &str, [won, returned, lost]: [(u64, u64); 3]) -> Value {
    let part = |(n, tokens): (u64, u64)| json!({"n": n, "tokens": tokens});
    json!({"address": address, "arbitrados": {
        "arbitro": arbiter, "liberados": part(won), "devueltos": part(returned), "ejecutadas": part(lost),
    }})
}

fn twin_of(key: &SigningKey, n: usize) -> Value {
    card("same@lies.example", key, json!({"capabilities": {"listed": true, "n": n}}))
}
