//! Records and changes for the tests and the bench of the store.
#![allow(dead_code, reason = "each test binary uses its own part")]

use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use verifica::record::ledger::ContractKindText;
use verifica::record::{
    AgentRecord, Change, Contract, ContractState, Decision, Entry, EvidenceRow, Invitation, Job, JobStatus, Line,
    LookRow, MailRecord, Mandate, MandateState, ObservationRow, OperationRecord, SealRecord, SeenRecord, View,
};
use verifica::store::Store;
use verifica::time::Timestamp;
use verifica::wire::address::{Address, Domain, Local};
use verifica::wire::card::AgentCard;
use verifica::wire::digest::Sha256;
use verifica::wire::key::SigningKey;
use verifica::wire::quote::ContractKind;

pub const HOUSE: &str = "mar.example";
pub const CASA: &str = "casa@mar.example";

/// A store in a folder that goes when it does.
pub struct Place {
    pub store: Store,
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(&folder.path().join("house.db"), 2).expect("a new store");
        Place { store, folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("house.db")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes these changes in one transaction.
    pub async fn put(&self, changes: Vec<Change>) -> Result<(), verifica::store::Denied> {
        put(&self.store, changes).await
    }
}

pub async fn put(store: &Store, changes: Vec<Change>) -> Result<(), verifica::store::Denied> {
    store.transact(move |_| Ok(Decision { changes: changes.clone(), reply: () })).await
}

pub fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + ms)
}

pub fn address(text: &str) -> Address {
    Address::parse(text).expect("an address")
}

pub fn domain() -> Domain {
    Domain::parse(HOUSE).expect("a domain")
}

pub fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed([seed; 32])
}

pub fn agent(local: &str, visibility: &str, capabilities: Value) -> AgentRecord {
    let doc = json!({
        "nyx5": "1", "address": format!("{local}@{HOUSE}"), "sig": key(3).public().kid(), "enc": null,
        "visibility": visibility, "capabilities": capabilities, "inbox": {"policy": "open"},
        "unknown": {"kept": [1, "é"]},
    });
    AgentRecord {
        local: Local::parse(local).expect("a name"),
        card: AgentCard::certify(doc, &key(1)).expect("a card"),
        webhook: Some("https://hook.example/x".to_owned()),
        notify_email: None,
        registered_via: "admin".to_owned(),
        system: false,
        created: at(0),
    }
}

pub fn invitation(code: &str, uses: u64) -> Invitation {
    Invitation {
        code: code.to_owned(),
        uses,
        used: 0,
        expires: Some(at(1_000)),
        note: Some("for the fair".to_owned()),
        welcome: Some(5),
        created: at(0),
        by: CASA.to_owned(),
        last_used: None,
    }
}

pub fn mail(local: &str, from: &str, id: &str, received: i64) -> MailRecord {
    let meta = json!({"from_verified": true, "sender_kid": "k"});
    MailRecord {
        local: local.to_owned(),
        id: id.to_owned(),
        from: from.to_owned(),
        received: at(received),
        acked: None,
        visible_from: None,
        meta: object(meta),
        envelope: json!({"nyx5": "1", "id": id, "from": from, "to": [format!("{local}@{HOUSE}")], "thread": "t1",
            "type": "message",
            "content": {"media": "text/plain", "body": "hola"}, "signature": {"kid": "k", "value": "v"}})
        .into(),
    }
}

pub fn job(id: &str, to_domain: &str, next_attempt: i64) -> Job {
    Job {
        job: id.to_owned(),
        envelope_id: format!("envelope-{id}"),
        from_local: "ana".to_owned(),
        domain: Domain::parse(to_domain).expect("a domain"),
        to: vec![address(&format!("leo@{to_domain}"))],
        status: JobStatus::Queued,
        attempts: 0,
        next_attempt: at(next_attempt),
        created: at(0),
        updated: at(0),
        log: Vec::new(),
        delivered: Vec::new(),
        failed: Vec::new(),
        envelope: json!({"id": format!("envelope-{id}")}).into(),
    }
}

pub fn look(contract: &str, seller: &str, due: i64) -> LookRow {
    LookRow {
        contract: contract.to_owned(),
        delivery: 2,
        seller: seller.to_owned(),
        due: at(due),
        lease_until: None,
        attempts: 0,
        first: None,
        posting: None,
        last: Some(json!({"razon": "nothing yet"})),
        unreached: Default::default(),
        created: at(0),
        done: false,
    }
}

pub fn observation(contract: &str, bytes: &str) -> ObservationRow {
    ObservationRow { sha256: Sha256::of(bytes), at: at(1), contract: contract.to_owned(), bytes: bytes.into() }
}

pub fn evidence(contract: &str, bytes: &str) -> EvidenceRow {
    EvidenceRow { contract: contract.to_owned(), sha256: Sha256::of(bytes), at: at(2), bytes: bytes.into() }
}

pub fn seen(from: &str, id: &str, sha256: &str) -> SeenRecord {
    SeenRecord {
        from: address(from),
        id: id.to_owned(),
        sha256: sha256.to_owned(),
        at: at(0),
        accepted: vec![address("leo@mar.example")],
    }
}

pub fn operation(from: &str, id: &str) -> OperationRecord {
    OperationRecord {
        from: address(from),
        id: id.to_owned(),
        sha256: "ab".repeat(32),
        result: json!({"ok": true, "code": 202, "result": {"asiento": "a"}}).into(),
        at: at(0),
    }
}

/// An entry whose document says what its lines say.
pub fn entry(n: u64, lines: &[(&str, i64)]) -> Entry {
    entry_at(n, n as i64, lines)
}

pub fn entry_at(n: u64, ms: i64, lines: &[(&str, i64)]) -> Entry {
    let lines: Vec<Line> =
        lines.iter().map(|(account, delta)| Line { account: (*account).to_owned(), delta: *delta }).collect();
    let id = format!("entry-{n}");
    let doc = json!({"id": id, "n": n, "at": at(ms).to_string(), "house": HOUSE, "concept": "x", "lines": lines,
        "meta": {"kind": "pay"}, "refs": {"op": "o", "op_sha256": "c".repeat(64)},
        "signature": {"kid": "k", "value": "s".repeat(86)}});
    Entry { n, id, at: at(ms), lines, doc: doc.into() }
}

pub fn contract(id: &str, state: ContractState) -> Contract {
    Contract {
        id: id.to_owned(),
        kind: ContractKindText(ContractKind::Escrow),
        house: domain(),
        seller: address("sol@otra.example"),
        buyer: Some(address("ana@mar.example")),
        verifier: None,
        amount: 100,
        concept: "a report".to_owned(),
        terms: json!({"deadline": "2027-02-01", "verify": [
            {"type": "http_status", "url": "https://sol.example/x", "expect": 200}]}),
        arbiter: Some(address("verifica@mar.example")),
        referrer: None,
        quote_id: Some(format!("quote-{id}")),
        state,
        created: at(0),
        updated: at(0),
        history: vec![json!({"at": at(0).to_string(), "op": "accept", "by": "ana@mar.example"})],
        more: object(json!({"quote_sha256": "d".repeat(64), "accept_sha256": "e".repeat(64)})),
    }
}

pub fn mandate(id: &str, chain: &[&str], state: MandateState) -> Mandate {
    Mandate {
        id: id.to_owned(),
        house: domain(),
        grantor: address("ana@mar.example"),
        grantee: address("bot.ana@mar.example"),
        cap: 50,
        spent: 0,
        scope: json!({}),
        expires: None,
        parent: None,
        root: address("ana@mar.example"),
        chain: chain.iter().map(|link| (*link).to_owned()).collect(),
        state,
        created: at(0),
        op_sha256: "f".repeat(64),
        contract: None,
        revoked: None,
    }
}

pub fn seal(id: &str, sha256: &str, by: &str, ms: i64) -> SealRecord {
    SealRecord {
        id: id.to_owned(),
        sha256: sha256.to_owned(),
        by: address(by),
        at: at(ms),
        secret: false,
        sello: json!({"id": id, "by": by}),
        anonimo: json!({"id": id, "by": null}),
    }
}

/// What a ledger operation costs the store: it looks at what a rule looks at, and asks for all that an `accept` leaves.
pub fn accept(view: &dyn View, id: &str, buyer: &str) -> Decision<u64> {
    let from = address(&format!("{buyer}@{HOUSE}"));
    let now = at(0).max(view.journal_last_at());
    assert!(view.operation(&from, id).is_none() && view.seen(&from, id).is_none(), "ids of the bench are fresh");
    assert!(view.contract_of_quote(&format!("sol@otra.example quote-{id}")).is_none());
    let known = view.agent(buyer).is_some();
    assert!(known && view.balance(from.as_str()) >= 1 && view.rate(buyer, now) < u32::MAX);
    let n = view.journal_last() + 1;
    let mut contract = contract(id, ContractState::Held);
    contract.buyer = Some(from.clone());
    let escrow = contract.escrow_account();
    let mut entry = entry_at(n, now.since(at(0)), &[(from.as_str(), -1), (&escrow, 1)]);
    entry.id = format!("entry-of-{id}");
    let mut doc = entry.doc.into_value();
    doc["id"] = entry.id.clone().into();
    entry.doc = doc.into();
    let changes = vec![
        Change::Journal(entry),
        Change::InsertContract(contract),
        Change::InsertOperation(OperationRecord { from: from.clone(), ..operation(from.as_str(), id) }),
        Change::Deliver(mail(buyer, "libro@mar.example", &format!("receipt-{id}"), 0)),
        Change::Deliver(mail("sol", "libro@mar.example", &format!("receipt-{id}"), 0)),
        Change::PutSeen(SeenRecord { from: from.clone(), ..seen(from.as_str(), id, &"ab".repeat(32)) }),
        Change::CountRate { key: buyer.to_owned(), at: now, hits: 1 },
        Change::Event { name: "first_quote", at: now, actor: from.to_string(), data: json!({"contract": id}) },
    ];
    Decision { changes, reply: n }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
