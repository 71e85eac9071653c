//! Cards: what a domain says of itself, and what it certifies of its agents.
//!
//! The chain is domain key -> agent card -> envelope. A delegated card adds the parent's own signature: the house alone
//! cannot make somebody a subagent. The whole document is kept, because the certification covers unknown fields.

use crate::limits;
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::{Address, Domain};
use crate::wire::envelope::{Envelope, Kind};
use crate::wire::key::{PublicKey, Signature, SigningKey};
use crate::wire::seal::SealPublic;
use serde_json::{Map, Value, json};
use std::ops::Deref;
use std::sync::Arc;

/// A domain card whose own signature was checked.
#[derive(Clone, Debug)]
pub struct DomainCard {
    pub domain: Domain,
    /// Base URL of the house, without a trailing slash.
    pub estafeta: String,
    /// The first is the active one.
    pub keys: Vec<PublicKey>,
    /// Everything that leaves this domain is sealed.
    pub outbound_sealed: bool,
    signer: PublicKey,
    doc: Value,
}

impl DomainCard {
    /// Checks form and signature. With an anchor, the card must be signed by exactly that key.
    pub fn verify(doc: Value, expected: &Domain, anchor: Option<&PublicKey>) -> Result<DomainCard, Refusal> {
        let text = |field: &str| doc.get(field).and_then(Value::as_str);
        if text("nyx5") != Some("1") {
            return Err(bad("the domain card is not of protocol version 1"));
        }
        if text("domain") != Some(expected.as_str()) {
            return Err(bad(&format!("the domain card is not of {expected}")));
        }
        let estafeta = text("estafeta").map(|url| url.trim_end_matches('/').to_owned());
        let estafeta = estafeta.filter(|url| url.starts_with("https://") || url.starts_with("http://"));
        let estafeta = estafeta.ok_or_else(|| bad("the domain card has no estafeta URL"))?;
        let listed = doc.get("keys").and_then(Value::as_array).filter(|keys| (1..=16).contains(&keys.len()));
        let mut keys = Vec::new();
        for entry in listed.ok_or_else(|| bad("the domain card must list 1 to 16 keys"))? {
            let key = entry.get("sig").and_then(Value::as_str).map(PublicKey::parse);
            keys.push(key.ok_or_else(|| bad("a key of the domain card has no sig"))??);
        }
        let kid = Signature::of(&doc, "signature").map(|s| s.kid.to_owned());
        let signer = keys.iter().find(|key| kid.as_deref().is_some_and(|kid| key.is_kid(kid)));
        let signer = signer.ok_or_else(|| bad("the domain card is not signed by one of its own keys"))?;
        if let Some(anchor) = anchor
            && signer != anchor
        {
            return Err(bad(&format!(
                "the domain card is signed by {signer}, and the anchor of {expected} is {anchor}"
            )));
        }
        if !signer.verify_object(&doc, "signature") {
            return Err(bad("the signature of the domain card does not verify"));
        }
        let policy = doc.get("policy");
        let outbound_sealed = policy.and_then(|p| p.get("outbound")).and_then(Value::as_str) == Some("sealed");
        let signer = *signer;
        Ok(DomainCard { domain: expected.clone(), estafeta, keys, outbound_sealed, signer, doc })
    }

    pub fn doc(&self) -> &Value {
        &self.doc
    }

    pub fn active_key(&self) -> &PublicKey {
        // `verify` admits no card without a key.
        &self.keys[0]
    }

    /// The key that signed the card, which is how others know the domain.
    pub fn signer(&self) -> &PublicKey {
        &self.signer
    }

    /// The key that the domain is changing to: active already, and vouched for by the signer.
    pub fn announced(&self) -> Option<&PublicKey> {
        Some(self.active_key()).filter(|key| *key != &self.signer)
    }
}

/// An agent card as published. Parsing checks form only; [`AgentCard::certified_by`] and [`AgentCard::delegated_by`]
/// check the two signatures. Clones are the same card: it is read once and never changes.
#[derive(Clone, Debug)]
pub struct AgentCard(Arc<CardParts>);

/// What a card says.
#[derive(Debug)]
pub struct CardParts {
    pub address: Address,
    pub sig: PublicKey,
    pub enc: Option<SealPublic>,
    pub valid_until: Option<Timestamp>,
    pub revoked: bool,
    pub delegation: Option<Delegation>,
    pub inbox: Inbox,
    pub visibility: Visibility,
    previous: Vec<(PublicKey, Timestamp)>,
    doc: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    Public,
    Private,
    Secret,
}

/// Who may write to this mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbox {
    pub policy: InboxPolicy,
    pub allowlist: Vec<String>,
    pub blocklist: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboxPolicy {
    Open,
    Allowlist,
    Pow {
        bits: u32,
    },
    Stamp {
        price: u64,
        house: Option<Domain>,
    },
    /// A policy that this house does not know admits nobody.
    Unknown(String),
}

/// A parent's word that a subagent acts on its behalf, and within which bounds.
#[derive(Clone, Debug)]
pub struct Delegation {
    pub by: Address,
    pub scope: Scope,
    pub valid_until: Option<Timestamp>,
    doc: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub types: Option<Vec<String>>,
    pub to_domains: Option<Vec<String>>,
    pub cap: Option<u64>,
    pub messages_only: bool,
}

impl Deref for AgentCard {
    type Target = CardParts;

    fn deref(&self) -> &CardParts {
        &self.0
    }
}

impl AgentCard {
    pub fn parse(doc: Value) -> Result<AgentCard, Refusal> {
        let text = |field: &str| doc.get(field).and_then(Value::as_str);
        if text("nyx5") != Some("1") {
            return Err(bad("the card is not of protocol version 1"));
        }
        let address = Address::parse(text("address").ok_or_else(|| bad("the card has no address"))?)?;
        let sig = PublicKey::parse(text("sig").ok_or_else(|| bad("the card has no sig"))?)?;
        let enc = match doc.get("enc") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(SealPublic::parse(text)?),
            Some(_) => return Err(bad("enc must be a text or null")),
        };
        let valid_until = optional_instant(&doc, "valid_until")?;
        let mut previous = Vec::new();
        for entry in doc.get("previous").and_then(Value::as_array).into_iter().flatten() {
            let key = entry.get("sig").and_then(Value::as_str).and_then(|text| PublicKey::parse(text).ok());
            let until = entry.get("until").and_then(Value::as_str).and_then(Timestamp::parse);
            // An old key without a date never counts.
            if let (Some(key), Some(until)) = (key, until) {
                previous.push((key, until));
            }
        }
        let delegation = match doc.get("delegation") {
            None | Some(Value::Null) => None,
            Some(given) => Some(Delegation::parse(given.clone())?),
        };
        let visibility = match text("visibility") {
            Some("public") => Visibility::Public,
            Some("secret") => Visibility::Secret,
            _ => Visibility::Private,
        };
        let inbox = Inbox::read(doc.get("inbox"));
        let revoked = doc.get("revoked").is_some_and(|value| !value.is_null());
        let parts = CardParts { address, sig, enc, valid_until, revoked, delegation, inbox, visibility, previous, doc };
        Ok(AgentCard(Arc::new(parts)))
    }

    pub fn doc(&self) -> &Value {
        &self.doc
    }

    /// Signs a card document with the domain's key.
    pub fn certify(mut doc: Value, domain_key: &SigningKey) -> Result<AgentCard, Refusal> {
        domain_key.sign_object(&mut doc, "certification");
        AgentCard::parse(doc)
    }

    pub fn certified_by(&self, domain: &DomainCard) -> Result<(), Refusal> {
        if !self.address.is_of(&domain.domain) {
            return Err(bad(&format!("the card of {} does not belong to {}", self.address, domain.domain)));
        }
        if domain.keys.iter().any(|key| key.verify_object(&self.doc, "certification")) {
            return Ok(());
        }
        Err(bad(&format!("the card of {} is not certified by a key of {}", self.address, domain.domain)))
    }

    /// Checks the parent's signature over this card's delegation. The parent's own chain is the caller's to follow.
    pub fn delegated_by(&self, parent: &AgentCard, now: Timestamp) -> Result<(), Refusal> {
        let Some(delegation) = &self.delegation else { return Err(bad("the card carries no delegation")) };
        let says = |field: &str| delegation.doc.get(field).and_then(Value::as_str);
        let named = says("address") == Some(self.address.as_str()) && says("sig") == Some(self.sig.kid().as_str());
        let below = self
            .address
            .local()
            .strip_suffix(parent.address.local())
            .is_some_and(|head| head.len() > 1 && head.ends_with('.'));
        if delegation.by != parent.address || !named || !below || !self.address.is_of(&parent.address.domain()) {
            return Err(bad(&format!("the delegation of {} does not name this card and its parent", self.address)));
        }
        let kid = Signature::of(&delegation.doc, "signature").map(|s| s.kid.to_owned()).unwrap_or_default();
        let signed = parent.accepted_key(&kid, now).is_some_and(|key| key.verify_object(&delegation.doc, "signature"));
        if signed {
            Ok(())
        } else {
            Err(bad(&format!("the delegation of {} is not signed by {}", self.address, parent.address)))
        }
    }

    /// The key of this name, if the card accepts it now: the current one, or an old one within its grace.
    pub fn accepted_key(&self, kid: &str, now: Timestamp) -> Option<&PublicKey> {
        if self.sig.is_kid(kid) {
            return Some(&self.sig);
        }
        self.previous.iter().find(|(key, until)| *until > now && key.is_kid(kid)).map(|(key, _)| key)
    }

    /// Revoked, past its date, or past its delegation's date.
    pub fn ended(&self, now: Timestamp) -> bool {
        let past = |until: Option<Timestamp>| until.is_some_and(|until| until <= now);
        self.revoked || past(self.valid_until) || self.delegation.as_ref().is_some_and(|d| past(d.valid_until))
    }

    pub fn scope(&self) -> Option<&Scope> {
        self.delegation.as_ref().map(|delegation| &delegation.scope)
    }

    pub fn messages_only(&self) -> bool {
        self.scope().is_some_and(|scope| scope.messages_only)
    }

    pub fn capability(&self, name: &str) -> Option<&Value> {
        self.doc.get("capabilities")?.get(name)
    }

    /// Whether the card asked for the public directory. A secret agent never stands there.
    pub fn listed(&self) -> bool {
        match self.visibility {
            Visibility::Secret => false,
            Visibility::Public => true,
            Visibility::Private => self.capability("listed") == Some(&Value::Bool(true)),
        }
    }
}

impl Delegation {
    pub fn parse(doc: Value) -> Result<Delegation, Refusal> {
        let by = doc.get("by").and_then(Value::as_str).ok_or_else(|| bad("the delegation has no by"))?;
        let by = Address::parse(by)?;
        let valid_until = optional_instant(&doc, "valid_until")?;
        let scope = Scope::parse(doc.get("scope"))?;
        Ok(Delegation { by, scope, valid_until, doc })
    }

    /// The document that a parent signs for a subagent.
    pub fn sign(
        parent: &Address,
        parent_key: &SigningKey,
        child: &Address,
        child_sig: &PublicKey,
        scope: &Scope,
        valid_until: Option<Timestamp>,
        issued: Timestamp,
    ) -> Value {
        let mut doc = json!({
            "by": parent, "address": child, "sig": child_sig.kid(), "scope": scope.to_json(),
            "valid_until": valid_until, "issued": issued,
        });
        parent_key.sign_object(&mut doc, "signature");
        doc
    }

    pub fn doc(&self) -> &Value {
        &self.doc
    }
}

impl Scope {
    /// A bound that cannot be read is not a bound that can be kept: unreadable scopes are refused.
    pub fn parse(value: Option<&Value>) -> Result<Scope, Refusal> {
        let object = match value {
            None | Some(Value::Null) => return Ok(Scope::default()),
            Some(Value::Object(object)) => object,
            Some(_) => return Err(bad("scope must be an object")),
        };
        let list = |field: &str| match object.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(items)) if items.len() <= limits::ALLOWLIST_MAX => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
                .map(Some)
                .ok_or_else(|| bad(&format!("scope.{field} must be a list of texts"))),
            Some(_) => Err(bad(&format!("scope.{field} must be a list of texts"))),
        };
        let cap = match object.get("cap") {
            None | Some(Value::Null) => None,
            Some(value) => Some(
                value
                    .as_u64()
                    .filter(|cap| *cap <= limits::SAFE_INTEGER_MAX)
                    .ok_or_else(|| bad("scope.cap must be a whole number of tokens"))?,
            ),
        };
        let messages_only = match object.get("messages_only") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => return Err(bad("scope.messages_only must be true or false")),
        };
        Ok(Scope { types: list("types")?, to_domains: list("to_domains")?, cap, messages_only })
    }

    pub fn to_json(&self) -> Value {
        let mut doc = Map::new();
        if let Some(types) = &self.types {
            doc.insert("types".into(), json!(types));
        }
        if let Some(domains) = &self.to_domains {
            doc.insert("to_domains".into(), json!(domains));
        }
        if let Some(cap) = self.cap {
            doc.insert("cap".into(), json!(cap));
        }
        if self.messages_only {
            doc.insert("messages_only".into(), json!(true));
        }
        Value::Object(doc)
    }

    /// Whether this subagent may hand anything to all of these.
    pub fn reaches(&self, to: &[Address]) -> Result<(), Refusal> {
        let Some(domains) = &self.to_domains else { return Ok(()) };
        match to.iter().find(|to| !domains.iter().any(|d| d == to.domain().as_str())) {
            None => Ok(()),
            Some(to) => {
                let reason = format!("this subagent may not write to {}", to.domain());
                Err(Refusal::new(Rule::OutOfScope, reason))
            }
        }
    }

    /// One rule for `/outbound`, `/inbound` and the ledger: may this subagent send this envelope?
    pub fn admits(&self, envelope: &Envelope) -> Result<(), Refusal> {
        let refuse = |why: String| Err(Refusal::new(Rule::OutOfScope, why));
        if let Some(types) = &self.types
            && !types.iter().any(|t| t == envelope.kind.as_str())
        {
            return refuse(format!("this subagent may not send the type {}", envelope.kind.as_str()));
        }
        self.reaches(&envelope.to)?;
        if self.messages_only {
            if !matches!(envelope.kind, Kind::Message | Kind::Result | Kind::Receipt) {
                return refuse(format!("a messages-only address may not send the type {}", envelope.kind.as_str()));
            }
            if envelope.to.iter().any(|to| to.local() == "libro") {
                return refuse("a messages-only address may not operate a ledger".into());
            }
            if envelope.field("stamp").is_some() {
                return refuse("a messages-only address may not pay a stamp".into());
            }
        }
        Ok(())
    }
}

impl Inbox {
    /// A mailbox without a stated policy is open; a policy that cannot be read is unknown, and admits nobody.
    pub fn read(value: Option<&Value>) -> Inbox {
        let texts = |field: &str| -> Vec<String> {
            let listed = value.and_then(|inbox| inbox.get(field)).and_then(Value::as_array);
            listed.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let number = |field: &str| value.and_then(|inbox| inbox.get(field)).and_then(Value::as_u64);
        let policy = match value {
            None | Some(Value::Null) => InboxPolicy::Open,
            Some(inbox) => match inbox.get("policy").map(|p| p.as_str().unwrap_or_default()) {
                None | Some("open") => InboxPolicy::Open,
                Some("allowlist") => InboxPolicy::Allowlist,
                Some("pow") => {
                    let bits = number("pow_bits").and_then(|bits| u32::try_from(bits).ok());
                    InboxPolicy::Pow { bits: bits.unwrap_or(limits::POW_BITS_DEFAULT) }
                }
                Some("stamp") => InboxPolicy::Stamp {
                    price: number("price").unwrap_or(1),
                    house: inbox.get("house").and_then(Value::as_str).and_then(|d| Domain::parse(d).ok()),
                },
                Some(other) => InboxPolicy::Unknown(other.to_owned()),
            },
        };
        Inbox { policy, allowlist: texts("allowlist"), blocklist: texts("blocklist") }
    }

    pub fn lists(&self, sender: &Address) -> bool {
        sender.is_named_in(self.allowlist.iter().map(String::as_str))
    }

    pub fn blocks(&self, sender: &Address) -> bool {
        sender.is_named_in(self.blocklist.iter().map(String::as_str))
    }
}

fn optional_instant(doc: &Value, field: &str) -> Result<Option<Timestamp>, Refusal> {
    match doc.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Timestamp::parse(text)
            .map(Some)
            .ok_or_else(|| bad(&format!("{field} must be an ISO 8601 instant with a zone"))),
        Some(_) => Err(bad(&format!("{field} must be a text or null"))),
    }
}

fn bad(why: &str) -> Refusal {
    Refusal::new(Rule::BadDocument, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain() -> (SigningKey, DomainCard) {
        let key = SigningKey::from_seed([7; 32]);
        let mut doc = json!({
            "nyx5": "1", "domain": "a.example", "estafeta": "https://mail.a.example/", "keys": [{"sig": key.public()
            .kid(), "created": "2026-01-01T00:00:00Z"}], "policy": {"inbound": "verified"}, "later": [1],
        });
        key.sign_object(&mut doc, "signature");
        let card = DomainCard::verify(doc, &Domain::parse("a.example").expect("d"), None).expect("card");
        (key, card)
    }

    fn agent(local: &str, key: &SigningKey, domain_key: &SigningKey, more: Value) -> AgentCard {
        let mut doc = json!({"nyx5": "1", "address": format!("{local}@a.example"), "sig": key.public().kid()});
        for (name, value) in more.as_object().expect("object") {
            doc[name] = value.clone();
        }
        AgentCard::certify(doc, domain_key).expect("card")
    }

    #[test]
    fn a_domain_card_must_be_signed_by_itself_and_by_its_anchor() {
        let (key, card) = domain();
        assert_eq!(card.estafeta, "https://mail.a.example");
        let a = Domain::parse("a.example").expect("d");
        assert!(DomainCard::verify(card.doc().clone(), &a, Some(&key.public())).is_ok());
        let other = SigningKey::from_seed([8; 32]).public();
        assert!(DomainCard::verify(card.doc().clone(), &a, Some(&other)).is_err());
        assert!(DomainCard::verify(card.doc().clone(), &Domain::parse("b.example").expect("d"), None).is_err());
        let mut changed = card.doc().clone();
        changed["estafeta"] = json!("https://evil.example");
        assert!(DomainCard::verify(changed, &a, None).is_err());
    }

    #[test]
    fn old_keys_count_only_within_their_grace() {
        let (domain_key, card) = domain();
        let (key, old, undated) =
            (SigningKey::from_seed([1; 32]), SigningKey::from_seed([2; 32]), SigningKey::from_seed([3; 32]));
        let until = Timestamp::from_millis(1_000_000);
        let ana = agent(
            "ana",
            &key,
            &domain_key,
            json!({"previous": [
            {"sig": old.public().kid(), "until": until}, {"sig": undated.public().kid()}]}),
        );
        assert!(ana.certified_by(&card).is_ok());
        let kid = old.public().kid();
        assert!(ana.accepted_key(&kid, until.minus(1)).is_some());
        assert!(ana.accepted_key(&kid, until).is_none());
        assert!(ana.accepted_key(&undated.public().kid(), until).is_none());
    }

    #[test]
    fn a_delegated_card_needs_both_signatures() {
        let (domain_key, _) = domain();
        let (parent_key, child_key) = (SigningKey::from_seed([1; 32]), SigningKey::from_seed([2; 32]));
        let now = Timestamp::from_millis(1_000_000);
        let parent = agent("ana", &parent_key, &domain_key, json!({}));
        let child_address = Address::parse("bot.ana@a.example").expect("a");
        let scope = Scope { cap: Some(5), messages_only: true, ..Scope::default() };
        let sign = |key: &SigningKey| {
            Delegation::sign(&parent.address, key, &child_address, &child_key.public(), &scope, None, now)
        };
        let child = agent("bot.ana", &child_key, &domain_key, json!({"delegation": sign(&parent_key)}));
        assert!(child.delegated_by(&parent, now).is_ok());
        assert!(child.messages_only());
        let forged = agent("bot.ana", &child_key, &domain_key, json!({"delegation": sign(&child_key)}));
        assert!(forged.delegated_by(&parent, now).is_err());
        let other_name = agent("bot.eva", &child_key, &domain_key, json!({"delegation": sign(&parent_key)}));
        assert!(other_name.delegated_by(&parent, now).is_err());
    }

    #[test]
    fn unreadable_bounds_are_refused_and_unknown_policies_admit_nobody() {
        for bad in
            [json!({"cap": "5"}), json!({"cap": -1}), json!({"types": "task"}), json!({"messages_only": 1}), json!([])]
        {
            assert!(Scope::parse(Some(&bad)).is_err(), "{bad}");
        }
        let policy = |value: Value| Inbox::read(Some(&value)).policy;
        assert_eq!(policy(json!({"policy": "friends"})), InboxPolicy::Unknown("friends".into()));
        assert_eq!(policy(json!({"policy": 5})), InboxPolicy::Unknown(String::new()));
        assert_eq!(policy(json!({"policy": "pow"})), InboxPolicy::Pow { bits: 16 });
    }
}
