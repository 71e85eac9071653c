//! The domain's card, how any card is certified, and who may see which.
//!
//! A document is signed once and signed again only when its content changes, so its bytes are the same from every door
//! and after every start.

use crate::limits;
use crate::probe::plan::{Capabilities, TestType};
use crate::record::{AgentRecord, House, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::AgentCard;
use crate::wire::address::Address;
use crate::wire::card::Visibility;
use crate::wire::json::canonical;
use serde_json::{Map, Value, json};

/// Who asks about a name.
#[derive(Clone, Copy, Debug)]
pub enum Asker<'a> {
    Nobody,
    /// Known by address alone: another house vouches for who it is.
    Address(&'a Address),
    /// With the card, so that a subagent is known by its delegation and not by its name.
    Card(&'a AgentCard),
}

/// The one rule of secrecy, for every door. A secret agent is seen by itself, by whoever delegated it, by its live
/// subagents, and by the addresses and domains of its allowlist; everybody else must get what an absent name gives.
pub fn visible_to(card: &AgentCard, asker: Asker<'_>, now: Timestamp) -> bool {
    if card.visibility != Visibility::Secret {
        return true;
    }
    let (address, own_card) = match asker {
        Asker::Nobody => return false,
        Asker::Address(address) => (address, None),
        Asker::Card(card) => (&card.address, Some(card)),
    };
    let delegated_it = card.delegation.as_ref().is_some_and(|delegation| &delegation.by == address);
    let its_subagent = own_card.is_some_and(|own| {
        !own.ended(now) && own.delegation.as_ref().is_some_and(|delegation| delegation.by == card.address)
    });
    address == &card.address || delegated_it || its_subagent || card.inbox.lists(address)
}

/// The card of an agent of this house, if this asker may see it.
pub fn seen_by(view: &dyn View, local: &str, asker: Asker<'_>, now: Timestamp) -> Option<AgentRecord> {
    view.agent(local).filter(|record| visible_to(&record.card, asker, now))
}

/// The domain's own card: the stored one as long as it says the same and its signature holds, else a new one.
pub fn domain_card(house: &House, stored: Option<&Value>, now: Timestamp) -> Value {
    let kid = house.key.public().kid();
    let stored_key = stored.and_then(|card| card.get("keys")?.as_array()?.first());
    let since = stored_key.filter(|key| key.get("sig").and_then(Value::as_str) == Some(kid.as_str()));
    let created = since.and_then(|key| key.get("created")?.as_str()).map_or_else(|| now.to_string(), str::to_owned);
    let content = json!({
        "nyx5": "1",
        "domain": house.domain,
        "estafeta": house.public_url,
        "keys": [{"sig": kid, "created": created}],
        "policy": {
            "inbound": "verified",
            "max_bytes": house.settings.max_bytes,
            "registration": house.settings.registration.as_str(),
        },
        "extensions": EXTENSIONS,
    });
    match stored {
        Some(card)
            if same_but_for(card, &content, &["issued", "signature"])
                && house.key.public().verify_object(card, "signature") =>
        {
            card.clone()
        }
        _ => {
            let mut content = content;
            content["issued"] = json!(now);
            house.signed(content)
        }
    }
}

/// Signs a card document with the domain's key, within the size that a card may have.
pub fn certify(house: &House, doc: Value) -> Result<AgentCard, Refusal> {
    let card = AgentCard::certify(doc, &house.key)?;
    let bytes = canonical(card.doc()).len();
    if bytes > limits::CARD_BYTES_MAX {
        let reason = format!("the card is {bytes} bytes; a card has up to {}", limits::CARD_BYTES_MAX);
        return Err(Refusal::new(Rule::BadProfile, reason));
    }
    Ok(card)
}

/// One entry of the directory: the card exactly as certified, delegation and all, so that whoever crawls the directory
/// can verify both signatures.
pub fn directory_entry(card: &AgentCard) -> Value {
    card.doc().clone()
}

/// Whether a card answers a query of the directory. `q` is compared in lower case with the address and with the text of
/// the capabilities.
pub fn matches(card: &AgentCard, capability: Option<&str>, accepts: Option<&str>, q: Option<&str>) -> bool {
    let capabilities = card.doc().get("capabilities");
    let truthy = |value: &Value| match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    };
    let has = |name: &str| card.capability(name).is_some_and(truthy);
    let takes = |media: &str| {
        let listed = card.capability("accepts").and_then(Value::as_array);
        listed.into_iter().flatten().any(|entry| entry.as_str() == Some(media))
    };
    let says = |q: &str| {
        let q = q.to_lowercase();
        card.address.as_str().contains(&q) || capabilities.is_some_and(|c| canonical(c).to_lowercase().contains(&q))
    };
    capability.is_none_or(has) && accepts.is_none_or(takes) && q.is_none_or(says)
}

/// One entry of `GET /delegations/:local`: a subagent as its parent sees it.
pub fn delegation_entry(card: &AgentCard) -> Value {
    let doc = card.doc();
    let field = |name: &str| doc.get(name).cloned().unwrap_or_default();
    json!({
        "address": card.address, "sig": field("sig"), "enc": field("enc"), "since": field("valid_from"),
        "valid_until": field("valid_until"), "revoked": field("revoked"), "custody": field("custody"),
        "scope": card.scope().map(|scope| scope.to_json()), "inbox": field("inbox"),
    })
}

/// The names of the test types, in their fixed order, as verifica@ publishes them.
pub fn test_names(capabilities: &Capabilities) -> Vec<&'static str> {
    capabilities.types.iter().map(|test| test_name(*test)).collect()
}

const fn test_name(test: TestType) -> &'static str {
    match test {
        TestType::HttpStatus => "http_status",
        TestType::Sha256 => "sha256",
        TestType::JsonPath => "json_path",
        TestType::Regex => "regex",
        TestType::Size => "size",
        TestType::Header => "header",
        TestType::Exit0 => "exit_0",
    }
}

/// Whether two documents are equal once these fields are left out of both.
pub(super) fn same_but_for(a: &Value, b: &Value, fields: &[&str]) -> bool {
    let without = |doc: &Value| -> Map<String, Value> {
        let mut doc = doc.as_object().cloned().unwrap_or_default();
        fields.iter().for_each(|field| {
            doc.remove(*field);
        });
        doc
    };
    canonical(&Value::Object(without(a))) == canonical(&Value::Object(without(b)))
}

const EXTENSIONS: &[&str] =
    &["urn:nyx5:ext:mcp", "urn:nyx5:ext:a2a", "urn:nyx5:ext:libro", "urn:nyx5:ext:aval", "urn:nyx5:ext:proyecto"];
