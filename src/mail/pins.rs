//! The keys that foreign domains are known by, as their operator sees and confirms them.
//!
//! A key is learned on first use and followed when the house announces the next one under the old one's signature. Any
//! other change is the operator's to confirm, who has asked the other house by another way.

use super::Answer;
use crate::record::{Change, Decided, Decision, House, Pin, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::Domain;
use crate::wire::key::PublicKey;
use serde_json::{Value, json};

pub fn entry(pin: &Pin) -> Value {
    json!({"domain": pin.domain, "key": pin.key.kid(), "next": pin.next.map(|key| key.kid()), "at": pin.at})
}

/// One page; `after` asks for the next one.
pub fn listing(pins: &[Pin]) -> Value {
    json!({"pins": pins.iter().map(entry).collect::<Vec<_>>(), "after": pins.last().map(|pin| &pin.domain)})
}

/// `POST /pins/:domain`, by the operator.
pub fn confirm(house: &House, view: &dyn View, now: Timestamp, domain: &Domain, body: &Value) -> Decided<Answer> {
    let bad = |reason: &str| Refusal::new(Rule::BadField, reason);
    if *domain == house.domain {
        return Err(bad("this house knows its own key"));
    }
    let given = body.get("key").and_then(Value::as_str).ok_or_else(|| bad("key is missing: the key to confirm"))?;
    let key = PublicKey::parse(given).map_err(|_| bad("key is not a public key in base64url"))?;
    let before = view.pin(domain.as_str());
    let pin = Pin { domain: domain.to_string(), key, at: now, next: None };
    let mut shown = entry(&pin);
    shown["before"] = json!(before.as_ref().map(|pin| pin.key.kid()));
    let event = Change::Event {
        name: "pin_confirmed",
        at: now,
        actor: "admin".to_owned(),
        data: json!({"domain": domain, "key": key.kid()}),
    };
    Ok(Decision { changes: vec![Change::PutPin(pin), event], reply: Answer::new(200, shown) })
}
