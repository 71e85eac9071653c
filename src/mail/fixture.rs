//! A house with agents, for the tests of this room: every decision is committed to records in memory, as a store would.

use super::{Answer, Arrival, Authority, cards, inbound, outbound, queue, register, system_cards};
use crate::ids::Ids;
use crate::limits;
use crate::record::memory::MemoryView;
use crate::record::{
    AgentRecord, Cards, Change, Decided, House, Job, JobStatus, MailRecord, Registration, Settings, View,
};
use crate::time::Timestamp;
use crate::wire::address::{Address, Domain, Local};
use crate::wire::digest::Sha256;
use crate::wire::{AgentCard, Envelope, SigningKey};
use serde_json::{Value, json};

pub const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

pub struct World {
    pub house: House,
    pub view: MemoryView,
    pub now: Timestamp,
    /// Where registrations come from.
    pub ip: String,
    drawn: u64,
}

/// The key of a name is derived from the name.
pub fn key(name: &str) -> SigningKey {
    SigningKey::from_seed(Sha256::of(name).0)
}

pub fn address(text: &str) -> Address {
    Address::parse(text).expect("address")
}

pub fn domain(text: &str) -> Domain {
    Domain::parse(text).expect("domain")
}

impl World {
    pub fn new() -> World {
        World::with(Settings { registration: Registration::Open, ..Settings::default() })
    }

    pub fn with(settings: Settings) -> World {
        let house = House {
            domain: domain("mar.example"),
            public_url: "https://mail.mar.example".into(),
            host: "mail.mar.example".into(),
            key: key("mar.example"),
            retiring: None,
            settings,
        };
        let mut world = World { house, view: MemoryView::new(), now: START, ip: "192.0.2.1".into(), drawn: 0 };
        let changes = system_cards(&world.house, &world.view, world.now).expect("system cards");
        world.view.apply(changes).expect("applied");
        world
    }

    pub fn ids(&mut self) -> Ids {
        self.drawn += 1;
        Ids::from_seed(Sha256::of(self.drawn.to_be_bytes()).0)
    }

    /// An agent of this house with what `more` adds to its card.
    pub fn agent(&mut self, local: &str, more: Value) -> AgentCard {
        let card = card(&self.house.key, &format!("{local}@mar.example"), more);
        let record = AgentRecord {
            local: Local::parse(local).expect("local"),
            card: card.clone(),
            webhook: None,
            notify_email: None,
            registered_via: "admin".into(),
            system: false,
            created: self.now,
        };
        let known = self.view.agent(local).is_some();
        let change = if known { Change::PutAgent(record) } else { Change::InsertAgent(record) };
        self.view.apply(vec![change]).expect("applied");
        card
    }

    pub fn card_of(&self, local: &str) -> AgentCard {
        self.view.agent(local).expect("agent").card
    }

    /// The sender's card as a resolver would give it.
    pub fn resolve(&self, from: &Address) -> AgentCard {
        if self.house.is_mine(from) {
            return self.card_of(from.local());
        }
        card(&key(from.domain().as_str()), from.as_str(), json!({}))
    }

    pub fn arrival(&self, doc: Value) -> Arrival {
        let sender = self.resolve(&address(doc["from"].as_str().expect("from")));
        self.arrival_from(doc, sender)
    }

    pub fn arrival_from(&self, doc: Value, sender: AgentCard) -> Arrival {
        let envelope = Envelope::parse(doc, limits::ENVELOPE_BYTES_DEFAULT).expect("envelope");
        let verified = envelope.verify(sender, self.now).expect("verifies");
        Arrival { verified, relay_verified: true, sender_promises_sealed: false }
    }

    /// A signed envelope arrives and what was decided is kept.
    pub fn arrive(&mut self, doc: Value) -> Answer {
        let arrival = self.arrival(doc);
        self.take(&arrival)
    }

    pub fn take(&mut self, arrival: &Arrival) -> Answer {
        let mut ids = self.ids();
        let mut resolved = Cards::new();
        for address in crate::libro::cards_needed(&self.house, arrival.verified.envelope()) {
            let card = self.resolve(&address);
            resolved.insert(address, Ok(card));
        }
        let decided = inbound(&self.house, &self.view, self.now, &mut ids, &resolved, arrival);
        self.keep(decided)
    }

    pub fn send(&mut self, doc: Value) -> Answer {
        let envelope = Envelope::parse(doc, limits::ENVELOPE_BYTES_DEFAULT).expect("envelope");
        let caller = self.card_of(envelope.from.local());
        let decided = outbound(&self.house, &self.view, self.now, &caller, &envelope);
        self.keep(decided)
    }

    pub fn register(&mut self, body: Value, authority: Authority) -> Answer {
        let mut ids = self.ids();
        let decided = register(&self.house, &self.view, self.now, &mut ids, &body, &authority, &self.ip);
        self.keep(decided)
    }

    pub fn settle(&mut self, job: &str, outcome: &queue::Outcome) -> JobStatus {
        let mut ids = self.ids();
        let decision = queue::settle(&self.house, &self.view, self.now, &mut ids, job, outcome).expect("settled");
        self.view.commit(decision).expect("committed")
    }

    /// Commits a decision; a refusal becomes the answer that a door would give.
    pub fn keep(&mut self, decided: Decided<Answer>) -> Answer {
        match decided {
            Ok(decision) => self.view.commit(decision).expect("committed"),
            Err(refusal) => Answer::refused(&refusal),
        }
    }

    pub fn mailbox(&self, local: &str) -> Vec<MailRecord> {
        self.view.mailbox(local).into_iter().cloned().collect()
    }

    pub fn jobs(&self) -> Vec<Job> {
        self.view.jobs().cloned().collect()
    }
}

/// A card of any domain, certified by `domain_key`.
pub fn card(domain_key: &SigningKey, address: &str, more: Value) -> AgentCard {
    let mut doc = json!({
        "nyx5": "1", "address": address, "sig": key(address).public().kid(), "enc": null,
        "capabilities": {"accepts": ["text/plain"]}, "inbox": {"policy": "open"}, "valid_from": START, "valid_until": null,
        "previous": [],
    });
    for (field, value) in more.as_object().expect("object") {
        doc[field] = value.clone();
    }
    AgentCard::certify(doc, domain_key).expect("card")
}

/// An envelope signed by its sender, with what `more` adds or changes.
pub fn envelope(id: &str, from: &str, to: &[&str], more: Value) -> Value {
    let signer = if from.starts_with("libro@") || from.starts_with("verifica@") || from.starts_with("postmaster@") {
        key(from.split_once('@').expect("domain").1)
    } else {
        key(from)
    };
    let mut doc = json!({
        "nyx5": "1", "id": id, "from": from, "to": to, "created": START, "expires": null, "thread": null,
        "in_reply_to": null, "type": "message", "content": {"media": "text/plain", "body": "hola"},
    });
    for (field, value) in more.as_object().expect("object") {
        doc[field] = value.clone();
    }
    signer.sign_object(&mut doc, "signature");
    doc
}

/// A registration body signed with the key that it enrols.
pub fn registration(local: &str, now: Timestamp, more: Value) -> Value {
    let own = key(&format!("{local}@mar.example"));
    let mut body = json!({"local": local, "sig": own.public().kid(), "ts": now});
    for (field, value) in more.as_object().expect("object") {
        body[field] = value.clone();
    }
    own.sign_object(&mut body, "signature");
    body
}

/// Certification that a resolver of another house would check.
pub fn certified(world: &World, card: &AgentCard) -> bool {
    let doc = cards::domain_card(&world.house, None, world.now);
    let domain = crate::wire::DomainCard::verify(doc, &world.house.domain, None).expect("domain card");
    card.certified_by(&domain).is_ok()
}
