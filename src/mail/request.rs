//! A registration as its sender wrote it: the fields that may be asked for, each checked and bounded.
//!
//! The list of fields is closed. What else a body holds is signed along with it and reaches neither the card nor the
//! records: nobody writes themselves a gift, a custody, a system name or a group.

use super::{profile, push};
use crate::limits;
use crate::record::House;
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::{Address, Domain, Local};
use crate::wire::card::Delegation;
use crate::wire::json::type_name;
use crate::wire::key::PublicKey;
use crate::wire::seal::SealPublic;
use serde_json::{Map, Value, json};

/// A field whose absence, whose `null` and whose value mean three things.
#[derive(Clone, Debug, PartialEq)]
pub enum Given<T> {
    Omitted,
    Null,
    Value(T),
}

/// The body of `POST /agents`, read.
#[derive(Clone, Debug)]
pub struct RegistrationRequest {
    pub local: Local,
    pub sig: PublicKey,
    pub enc: Option<SealPublic>,
    /// An object; the defaults where the body has none.
    pub capabilities: Value,
    pub inbox: Value,
    /// Kept as they were where the body has none.
    pub wallets: Option<Vec<Value>>,
    pub valid_until: Option<Timestamp>,
    pub visibility: Given<&'static str>,
    pub profile: Given<Value>,
    pub delegation: Option<Delegation>,
    /// Where the agent says it comes from; goes to an event and nowhere else.
    pub source: Option<String>,
    pub invite: Option<String>,
    /// Where the agent wants to be called; only the house knows it.
    pub webhook: Option<String>,
    /// When the body was signed, if that can be read.
    pub ts: Option<Timestamp>,
}

impl RegistrationRequest {
    pub fn parse(house: &House, body: &Value, now: Timestamp) -> Result<RegistrationRequest, Refusal> {
        if !body.is_object() {
            let reason = format!("a registration is an object, got {}", type_name(body));
            return Err(Refusal::new(Rule::NotAnObject, reason));
        }
        no_email(body)?;
        let local = text(body, "local")?.ok_or_else(|| bad("local is missing: the name before the @"))?;
        let local =
            Local::parse(&local).map_err(|r| Refusal::new(Rule::NameInvalid, format!("local: {}", r.reason)))?;
        let sig = text(body, "sig")?.ok_or_else(|| bad("sig is missing: the public signing key"))?;
        let sig = PublicKey::parse(&sig).map_err(|r| bad(&format!("sig: {}", r.reason)))?;
        if house.holds(&sig) {
            return Err(bad("sig is the key of this house; an agent holds its own"));
        }
        let visibility = match body.get("visibility") {
            None => Given::Omitted,
            Some(Value::Null) => Given::Null,
            Some(value) => ["public", "private", "secret"]
                .into_iter()
                .find(|name| value.as_str() == Some(name))
                .map(Given::Value)
                .ok_or_else(|| bad("visibility must be public, private or secret"))?,
        };
        let profile = match body.get("profile") {
            None => Given::Omitted,
            Some(Value::Null) => Given::Null,
            Some(value) => Given::Value(profile::read(house, value, now)?),
        };
        let delegation = given(body, "delegation").cloned().map(Delegation::parse).transpose();
        let delegation = delegation.map_err(|r| bad(&format!("delegation: {}", r.reason)))?;
        Ok(RegistrationRequest {
            local,
            sig,
            enc: text(body, "enc")?.map(|enc| SealPublic::parse(&enc)).transpose()?,
            capabilities: capabilities(given(body, "capabilities"))?,
            inbox: inbox(house, given(body, "inbox"))?,
            wallets: wallets(body)?,
            valid_until: instant(body, "valid_until")?,
            visibility,
            profile,
            delegation,
            source: given(body, "source").and_then(Value::as_str).map(source).filter(|source| !source.is_empty()),
            invite: text(body, "invite")?,
            webhook: text(body, "webhook")?.map(|text| push::url(&text, &house.settings.addresses)).transpose()?,
            // Unreadable is absent: the check that needs it refuses both.
            ts: given(body, "ts").and_then(Value::as_str).and_then(Timestamp::parse),
        })
    }
}

/// A price in dollars can only be paid to a wallet.
pub(super) fn asks_dollars(inbox: &Value) -> bool {
    inbox.get("price_usd").is_some()
}

fn capabilities(value: Option<&Value>) -> Result<Value, Refusal> {
    let mut object = match value {
        None => Map::new(),
        Some(Value::Object(object)) => object.clone(),
        Some(other) => return Err(bad(&format!("capabilities must be an object, got {}", type_name(other)))),
    };
    match object.get("accepts") {
        None | Some(Value::Null) => {
            object.insert("accepts".into(), json!(["text/plain", "application/json"]));
        }
        Some(Value::Array(media)) if media.len() <= limits::ACCEPTS_MAX && media.iter().all(Value::is_string) => {}
        Some(_) => {
            let most = limits::ACCEPTS_MAX;
            return Err(bad(&format!("capabilities.accepts must be a list of at most {most} media types")));
        }
    }
    for flag in ["listed", "presence", "read_receipts"] {
        if object.get(flag).is_some_and(|value| !value.is_boolean()) {
            return Err(bad(&format!("capabilities.{flag} must be true or false")));
        }
    }
    Ok(Value::Object(object))
}

fn inbox(house: &House, value: Option<&Value>) -> Result<Value, Refusal> {
    let object = match value {
        None => return Ok(json!({"policy": "open"})),
        Some(Value::Object(object)) => object,
        Some(other) => return Err(bad(&format!("inbox must be an object, got {}", type_name(other)))),
    };
    let given = |field: &str| object.get(field).filter(|value| !value.is_null());
    let policy = match given("policy") {
        None => "open",
        Some(value) => ["open", "allowlist", "pow", "stamp"]
            .into_iter()
            .find(|name| value.as_str() == Some(name))
            .ok_or_else(|| bad("inbox.policy must be open, allowlist, pow or stamp"))?,
    };
    let mut out = Map::new();
    out.insert("policy".into(), policy.into());
    for field in ["allowlist", "blocklist"] {
        if let Some(list) = given(field) {
            out.insert(field.into(), senders(list, field)?);
        }
    }
    for (field, most) in [
        ("pow_bits", u64::from(limits::POW_BITS_MAX)),
        ("price", limits::SAFE_INTEGER_MAX),
        ("price_usd", limits::SAFE_INTEGER_MAX),
    ] {
        if let Some(value) = given(field) {
            let number = value.as_u64().filter(|n| (1..=most).contains(n));
            let number =
                number.ok_or_else(|| bad(&format!("inbox.{field} must be a whole number from 1 to {most}")))?;
            out.insert(field.into(), number.into());
        }
    }
    if let Some(value) = given("house") {
        if value.as_str() != Some(house.domain.as_str()) {
            let reason = format!("inbox.house must be {}: stamps are paid in the ledger of this house", house.domain);
            return Err(bad(&reason));
        }
        out.insert("house".into(), value.clone());
    }
    Ok(Value::Object(out))
}

/// A list of addresses and whole domains. A spelling that could never match is refused, not stored.
fn senders(list: &Value, field: &str) -> Result<Value, Refusal> {
    let entries = list.as_array().filter(|entries| entries.len() <= limits::ALLOWLIST_MAX);
    let entries = entries
        .ok_or_else(|| bad(&format!("inbox.{field} must be a list of at most {} entries", limits::ALLOWLIST_MAX)))?;
    for (i, entry) in entries.iter().enumerate() {
        let text = entry.as_str().unwrap_or_default();
        if Address::parse(text).is_err() && Domain::parse(text).is_err() {
            return Err(bad(&format!("inbox.{field}[{i}] must be an address or a domain, in lower case")));
        }
    }
    Ok(list.clone())
}

/// `wallets`, or the older `wallet` with one.
fn wallets(body: &Value) -> Result<Option<Vec<Value>>, Refusal> {
    let listed = match (given(body, "wallets"), given(body, "wallet")) {
        (Some(Value::Array(listed)), _) => listed.clone(),
        (Some(_), _) => return Err(bad("wallets must be a list of {network, address}")),
        (None, Some(one)) => vec![one.clone()],
        (None, None) => return Ok(None),
    };
    if listed.len() > limits::WALLETS_MAX {
        return Err(bad(&format!("wallets lists at most {}", limits::WALLETS_MAX)));
    }
    let mut out: Vec<Value> = Vec::with_capacity(listed.len());
    for (i, wallet) in listed.iter().enumerate() {
        let part = |field: &str, also: &[char]| {
            let text = wallet.get(field).and_then(Value::as_str).unwrap_or_default();
            let plain = |c: char| c.is_ascii_alphanumeric() || also.contains(&c);
            let whole = (1..=limits::WALLET_CHARS_MAX).contains(&text.len()) && text.chars().all(plain);
            whole.then(|| text.to_owned()).ok_or_else(|| {
                let most = limits::WALLET_CHARS_MAX;
                bad(&format!("wallets[{i}].{field} must be 1 to {most} letters and digits"))
            })
        };
        let (network, address) = (part("network", &['-', '_', ':', ' '])?, part("address", &[':'])?);
        if out.iter().any(|other| other.get("network").and_then(Value::as_str) == Some(network.as_str())) {
            return Err(bad(&format!("wallets[{i}]: a second wallet on {network}")));
        }
        out.push(json!({"network": network, "address": address}));
    }
    Ok(Some(out))
}

/// This house writes no e-mail. Taking the field and never writing would lose somebody's mail to their trust in it.
fn no_email(body: &Value) -> Result<(), Refusal> {
    match given(body, "notify_email") {
        None => Ok(()),
        Some(_) => {
            Err(bad("notify_email is not offered by this house: give a webhook, read the mailbox, or wait on it"))
        }
    }
}

fn source(text: &str) -> String {
    let kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '@' | '/' | '-');
    text.chars().filter(kept).take(limits::SOURCE_CHARS_MAX).collect()
}

fn given<'a>(body: &'a Value, field: &str) -> Option<&'a Value> {
    body.get(field).filter(|value| !value.is_null())
}

fn text(body: &Value, field: &str) -> Result<Option<String>, Refusal> {
    match given(body, field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(bad(&format!("{field} must be a text, got {}", type_name(other)))),
    }
}

fn instant(body: &Value, field: &str) -> Result<Option<Timestamp>, Refusal> {
    let Some(value) = text(body, field)? else { return Ok(None) };
    Timestamp::parse(&value)
        .map(Some)
        .ok_or_else(|| bad(&format!("{field} must be an ISO 8601 instant with a zone, or null")))
}

fn bad(reason: &str) -> Refusal {
    Refusal::new(Rule::BadField, reason)
}
