//! A house in memory with a few agents, and a small language for what they do.
//!
//! A table is lines of `who op arguments => code facts`. `wait 3d` moves the clock, `topup who amount` issues tokens.
//! A contract or mandate is named by the word that made it: `ana accept q1 leo escrow 200` makes `q1`. Facts are
//! `who=balance` and `name:state`. Arguments of the form `field=value` go into the operation, or into the quote of an
//! accept; a value that reads as JSON is JSON, `+3d` is an instant that far from now.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use verifica::ids::Ids;
use verifica::libro::{self, Books, Ctx, Operated};
use verifica::limits;
use verifica::record::memory::MemoryView;
use verifica::record::{AgentRecord, Cards, Change, House, Settings, View};
use verifica::refusal::Refusal;
use verifica::time::Timestamp;
use verifica::wire::address::{Address, Domain, SystemName};
use verifica::wire::amount::Amount;
use verifica::wire::card::{AgentCard, Delegation, Scope};
use verifica::wire::envelope::{Draft, Envelope, Kind, Payload, Verified};
use verifica::wire::key::SigningKey;
use verifica::wire::quote::{ContractKind, OP_MEDIA, Offer};

pub struct World {
    pub house: House,
    pub view: MemoryView,
    pub now: Timestamp,
    pub cards: Cards,
    pub keys: BTreeMap<Address, SigningKey>,
    /// What the words of a table stand for: contract and mandate ids.
    pub named: BTreeMap<String, String>,
    /// Quotes by the word that named them.
    pub quotes: BTreeMap<String, Value>,
    pub seed: u64,
    pub sent: u64,
    /// A durable store that is to decide and remember exactly as the model does.
    pub mirror: Option<crate::mirror::Mirror>,
}

pub const DAY: i64 = 86_400_000;

impl World {
    /// ana, leo, eva and abi of `a.example`, fox of `b.example`; nobody has tokens.
    pub fn new() -> World {
        World::with(None)
    }

    pub fn with(mirror: Option<crate::mirror::Mirror>) -> World {
        let domain = Domain::parse("a.example").expect("domain");
        let house = House {
            domain: domain.clone(),
            public_url: "https://mail.a.example".into(),
            host: "mail.a.example".into(),
            key: SigningKey::from_seed([9; 32]),
            retiring: None,
            settings: Settings::default(),
        };
        let mut world = World {
            house,
            view: MemoryView::new(),
            now: Timestamp::parse("2026-09-15T10:00:00Z").expect("time"),
            cards: Cards::new(),
            keys: BTreeMap::new(),
            named: BTreeMap::new(),
            quotes: BTreeMap::new(),
            seed: 0,
            sent: 0,
            mirror,
        };
        for name in [SystemName::Libro, SystemName::Verifica, SystemName::Casa] {
            let key = world.house.key.clone();
            world.enrol(name.as_str(), "a.example", key, json!({}));
        }
        for (i, local) in ["ana", "leo", "eva", "abi"].into_iter().enumerate() {
            world.enrol(local, "a.example", SigningKey::from_seed([10 + i as u8; 32]), json!({}));
        }
        world.enrol("fox", "b.example", SigningKey::from_seed([50; 32]), json!({}));
        world
    }

    /// Gives an agent a certified card, and a record if it is of this house. Foreign cards are certified by a key of
    /// their own; whoever resolved them checked that.
    pub fn enrol(&mut self, local: &str, domain: &str, key: SigningKey, more: Value) -> AgentCard {
        let mut doc = json!({"nyx5": "1", "address": format!("{local}@{domain}"), "sig": key.public().kid()});
        doc.as_object_mut().expect("object").extend(more.as_object().cloned().unwrap_or_default());
        let card = AgentCard::certify(doc, &self.house.key).expect("card");
        let address = card.address.clone();
        if self.house.is_mine(&address) {
            let record = AgentRecord {
                local: verifica::wire::address::Local::parse(local).expect("local"),
                card: card.clone(),
                webhook: None,
                notify_email: None,
                registered_via: "admin".into(),
                system: false,
                created: self.now,
            };
            self.change(vec![Change::PutAgent(record)]);
        }
        self.cards.insert(address.clone(), Ok(card.clone()));
        self.keys.insert(address, key);
        card
    }

    pub fn enrol_below_ana(&mut self, local: &str, scope: &Scope) {
        self.enrol_below("ana", local, scope);
    }

    /// A subagent with bounds.
    pub fn enrol_below(&mut self, parent: &str, local: &str, scope: &Scope) {
        let (parent, key) = (at(parent), SigningKey::from_seed([70 + local.len() as u8; 32]));
        let parent_key = self.keys.get(&parent).expect("key").clone();
        let child = at(local);
        let delegation = Delegation::sign(&parent, &parent_key, &child, &key.public(), scope, None, self.now);
        self.enrol(local, "a.example", key, json!({"delegation": delegation}));
    }

    pub fn ids(&mut self) -> Ids {
        self.seed += 1;
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_be_bytes());
        Ids::from_seed(seed)
    }

    /// An operation as a door would hand it over.
    pub fn envelope(&mut self, who: &str, id: &str, body: Value) -> Verified {
        let from = at(who);
        let draft = Draft {
            id: id.to_owned(),
            from: from.clone(),
            to: vec![self.house.address(SystemName::Libro)],
            kind: Kind::Task,
            created: self.now,
            expires: None,
            deliver_after: None,
            thread: None,
            in_reply_to: None,
            payload: Payload::Clear { media: OP_MEDIA.into(), body },
            more: Map::new(),
        };
        self.sign(draft.into_doc(), &from)
    }

    pub fn sign(&mut self, doc: Value, from: &Address) -> Verified {
        let key = self.keys.get(from).expect("key of the sender");
        let envelope = Envelope::sign(doc, key, limits::ENVELOPE_BYTES_DEFAULT).expect("envelope");
        let card = self.cards.get(from).cloned().expect("card").expect("resolved");
        envelope.verify(card, self.now).expect("verified")
    }

    /// Makes changes that no operation asked for.
    pub fn change(&mut self, changes: Vec<Change>) {
        if let Some(mirror) = &self.mirror {
            mirror.change(changes.clone());
        }
        self.view.apply(changes).expect("admitted");
    }

    /// Decides and commits.
    pub fn apply(&mut self, op: &Verified) -> Result<Operated, Refusal> {
        let mut ids = self.ids();
        let mirrored = self.mirror.as_ref().map(|m| m.operate(&self.house, &self.cards, self.now, ids.clone(), op));
        let ctx = Ctx { house: &self.house, view: &self.view, now: self.now, cards: &self.cards };
        let mut books = Books::open(&self.view);
        let operated = libro::operate(&ctx, &mut books, &mut ids, op);
        let changes = books.into_changes();
        if operated.is_err() {
            assert!(changes.is_empty(), "a refusal left changes in the books");
        }
        self.view.apply(changes).expect("the records admit what a rule asked for");
        if let Some(mirrored) = mirrored {
            let told = |outcome: &Result<Operated, Refusal>| {
                let letters = |operated: &Operated| operated.letters.iter().map(|l| l.doc.clone()).collect::<Vec<_>>();
                outcome.as_ref().map(|o| (o.result.clone(), letters(o), o.duplicate)).map_err(Refusal::clone)
            };
            assert_eq!(told(&mirrored), told(&operated), "the store decided otherwise");
        }
        operated
    }

    pub fn operate(&mut self, who: &str, body: Value) -> Result<Operated, Refusal> {
        self.sent += 1;
        let id = format!("operation-{}", self.sent);
        let op = self.envelope(who, &id, body);
        self.apply(&op)
    }

    pub fn topup(&mut self, who: &str, amount: u64) {
        let mut ids = self.ids();
        let ctx = Ctx { house: &self.house, view: &self.view, now: self.now, cards: &self.cards };
        let mut books = Books::open(&self.view);
        let amount = Amount::new(amount).expect("amount");
        libro::topup(&ctx, &mut books, &mut ids, &at(who), amount, None, Map::new()).expect("topup");
        let changes = books.into_changes();
        self.change(changes);
    }

    pub fn balance(&self, who: &str) -> i64 {
        self.view.balance(at(who).as_str())
    }

    /// A signed quote to a buyer; `more` replaces fields before signing.
    pub fn quote(
        &self,
        name: &str,
        seller: &str,
        buyer: &str,
        kind: &str,
        price: u64,
        more: &[(String, Value)],
    ) -> Value {
        let seller = at(seller);
        let key = self.keys.get(&seller).expect("seller's key");
        let offer = Offer {
            id: format!("quote-{name}-00"),
            house: self.house.domain.clone(),
            seller,
            buyer: at(buyer),
            kind: ContractKind::parse(kind).unwrap_or(ContractKind::Escrow),
            price: Amount::new(price).expect("price"),
            concept: format!("work {name}"),
            terms: json!({}),
            arbiter: None,
            referrer: None,
            service: None,
            issued: self.now,
            expires: None,
        };
        let mut quote = offer.sign(key);
        for (field, value) in more {
            quote[field] = value.clone();
        }
        key.sign_object(&mut quote, "signature");
        quote
    }

    pub fn id(&self, name: &str) -> String {
        self.named.get(name).cloned().unwrap_or_else(|| name.to_owned())
    }

    pub fn state(&self, name: &str) -> String {
        let id = self.id(name);
        let contract = self.view.contract(&id).map(|contract| contract.state.as_str().to_owned());
        let mandate = || self.view.mandate(&id).map(|mandate| format!("{:?}", mandate.state).to_lowercase());
        contract.or_else(mandate).unwrap_or_else(|| "unknown".into())
    }

    /// Runs a table; panics at the first line whose code or facts differ.
    pub fn play(&mut self, table: &str) {
        for (number, line) in
            table.lines().map(str::trim).enumerate().filter(|(_, l)| !l.is_empty() && !l.starts_with('#'))
        {
            let (command, facts) = line.split_once("=>").unwrap_or((line, ""));
            let words: Vec<&str> = command.split_whitespace().collect();
            let mut facts = facts.split_whitespace();
            match words.as_slice() {
                ["wait", span] => self.now = self.now.plus(span_ms(span)),
                ["topup", who, amount] => self.topup(who, amount.parse().expect("amount")),
                [who, op, arguments @ ..] => {
                    let outcome = self.line(who, op, arguments);
                    let code = outcome.as_ref().map_or_else(|refusal| refusal.code(), |_| 202);
                    let wanted: u16 = facts.next().expect("a code").parse().expect("a code");
                    let why = outcome.err().map(|refusal| refusal.to_string()).unwrap_or_default();
                    assert_eq!(code, wanted, "line {}: {line}\n{why}", number + 1);
                }
                other => panic!("line {}: {other:?}", number + 1),
            }
            for fact in facts {
                let seen = match fact.split_once('=') {
                    Some((who, _)) => format!("{who}={}", self.balance(who)),
                    None => format!(
                        "{0}:{1}",
                        fact.split(':').next().expect("name"),
                        self.state(fact.split(':').next().expect("name"))
                    ),
                };
                assert_eq!(seen, fact, "line {}: {line}", number + 1);
            }
        }
    }

    /// One operation of a table.
    pub fn line(&mut self, who: &str, op: &str, arguments: &[&str]) -> Result<Operated, Refusal> {
        let (plain, fields): (Vec<&str>, Vec<&str>) = arguments.iter().partition(|a| !a.contains('='));
        let fields: Vec<(String, Value)> = fields
            .iter()
            .map(|field| {
                let (name, value) = field.split_once('=').expect("field");
                (name.to_owned(), self.value(value))
            })
            .collect();
        let body = match (op, plain.as_slice()) {
            ("accept", [name, seller, kind, price]) => {
                let quote = self.quote(name, seller, who, kind, price.parse().expect("price"), &fields);
                self.quotes.insert((*name).to_owned(), quote.clone());
                json!({"op": "accept", "quote": quote})
            }
            ("accept", [name]) => json!({"op": "accept", "quote": self.quotes.get(*name).expect("quoted before")}),
            ("bond", [_, amount, verifier]) => {
                json!({"op": op, "amount": amount.parse::<u64>().expect("amount"), "claim": "it holds",
                    "verifier": at(verifier)})
            }
            ("mandate", [_, grantee, cap]) => {
                json!({"op": op, "grantee": at(grantee), "cap": cap.parse::<u64>().expect("cap")})
            }
            ("charge", [mandate, amount]) => {
                json!({"op": op, "mandate": self.id(mandate), "amount": amount.parse::<u64>().expect("amount")})
            }
            ("revoke", [mandate]) => json!({"op": op, "mandate": self.id(mandate)}),
            ("pay", [to, amount]) => json!({"op": op, "to": at(to), "amount": amount.parse::<u64>().expect("amount")}),
            ("balance" | "statement" | "notarize", []) => json!({"op": op}),
            (_, [contract]) => json!({"op": op, "contract": self.id(contract)}),
            (_, other) => json!({"op": op, "contract": other}),
        };
        let mut body = body;
        if op != "accept" {
            for (name, value) in &fields {
                body[name] = value.clone();
            }
        }
        let operated = self.operate(who, body)?;
        for field in ["mandate", "contract"] {
            if let (Some(id), Some(name)) = (operated.result[field]["id"].as_str(), plain.first()) {
                self.named.entry((*name).to_owned()).or_insert_with(|| id.to_owned());
                if field == "mandate" && op == "accept" {
                    self.named.insert(format!("{name}.mandate"), id.to_owned());
                    self.named.remove(*name);
                }
            }
        }
        Ok(operated)
    }

    fn value(&self, text: &str) -> Value {
        if let Some(span) = text.strip_prefix('+') {
            return json!(self.now.plus(span_ms(span)));
        }
        if let Some(name) = text.strip_prefix('$') {
            return json!(self.id(name));
        }
        if let Some(span) = text.strip_prefix("deadline+") {
            return json!({"deadline": self.now.plus(span_ms(span))});
        }
        if let Some(local) = text.strip_prefix('@') {
            return json!(at(local));
        }
        serde_json::from_str(text).unwrap_or_else(|_| json!(text))
    }
}

/// An address of this house, or of another where the name says so.
pub fn at(local: &str) -> Address {
    let full = match local {
        "fox" => "fox@b.example".to_owned(),
        other if other.contains('@') => other.to_owned(),
        other => format!("{other}@a.example"),
    };
    Address::parse(&full).expect("address")
}

pub fn span_ms(text: &str) -> i64 {
    let (number, unit) = text.split_at(text.len() - 1);
    let scale = match unit {
        "s" => 1_000,
        "h" => 3_600_000,
        "d" => DAY,
        other => panic!("unit {other}"),
    };
    number.parse::<i64>().expect("span") * scale
}
