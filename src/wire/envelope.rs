//! The envelope: the unit of sending. Parsed once at the door, in the protocol's order of checks; what is not looked at
//! here is kept as it came, because the signature covers it.
//!
//! [`Envelope`] is well formed and nothing more. [`Verified`] can only be made by checking the signature against the
//! sender's card, so code that moves money or mail cannot be handed anything less.

use crate::limits;
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::Address;
use crate::wire::card::AgentCard;
use crate::wire::digest::Sha256;
use crate::wire::json::{self, canonical, canonical_without};
use crate::wire::key::{Signature, SigningKey};
use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Message,
    Task,
    Result,
    Receipt,
    Intro,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Message, Kind::Task, Kind::Result, Kind::Receipt, Kind::Intro];

    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Message => "message",
            Kind::Task => "task",
            Kind::Result => "result",
            Kind::Receipt => "receipt",
            Kind::Intro => "intro",
        }
    }

    pub fn parse(text: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A well-formed envelope whose signature nobody has checked.
#[derive(Clone, Debug)]
pub struct Envelope {
    pub id: String,
    pub from: Address,
    /// Each recipient once, in the order of the envelope.
    pub to: Vec<Address>,
    pub kind: Kind,
    pub created: Timestamp,
    pub expires: Option<Timestamp>,
    pub deliver_after: Option<Timestamp>,
    pub thread: Option<String>,
    pub in_reply_to: Option<String>,
    pub kid: String,
    /// Bytes of the compact JSON text.
    pub bytes: usize,
    signed_text: String,
    sha256: Sha256,
    signature: String,
    doc: Value,
}

impl Envelope {
    pub fn parse(doc: Value, max_bytes: usize) -> Result<Envelope, Refusal> {
        let Some(object) = doc.as_object() else {
            return Err(Refusal::new(
                Rule::NotAnObject,
                format!("an envelope is an object, got {}", json::type_name(&doc)),
            ));
        };
        if object.get("nyx5").and_then(Value::as_str) != Some("1") {
            return Err(bad("nyx5 must be \"1\": this house speaks version 1 of the protocol"));
        }
        let id = text(object, "id")
            .filter(|id| is_id(id))
            .ok_or_else(|| bad("id must be 8 to 128 characters of A-Z a-z 0-9 . _ : -"))?;
        let from = Address::parse(text(object, "from").ok_or_else(|| bad("from must be an address"))?)
            .map_err(|r| bad(&format!("from: {}", r.reason)))?;
        let to = recipients(object)?;
        let kind = text(object, "type")
            .and_then(Kind::parse)
            .ok_or_else(|| bad("type must be one of message, task, result, receipt, intro"))?;
        let created =
            instant(object, "created")?.ok_or_else(|| bad("created must be an ISO 8601 instant with a zone"))?;
        let expires = instant(object, "expires")?;
        let deliver_after = instant(object, "deliver_after")?;
        if let (Some(expires), Some(after)) = (expires, deliver_after)
            && expires <= after
        {
            return Err(bad(
                "expires is not after deliver_after: the envelope would expire before it can be delivered",
            ));
        }
        let sealed = content_or_sealed(object)?;
        attachments(object, sealed)?;
        let signature = Signature::of(&doc, "signature").ok_or_else(|| {
            bad("signature must be {alg: \"Ed25519\", kid, value} and no more, with kid and value not empty")
        })?;
        let signed_text = canonical_without(object, "signature");
        let whole = canonical(&doc);
        let bytes = whole.len();
        if bytes > max_bytes {
            return Err(Refusal::new(
                Rule::BodyTooLarge,
                format!("the envelope is {bytes} bytes; this house takes up to {max_bytes}"),
            ));
        }
        Ok(Envelope {
            id: id.to_owned(),
            to,
            kind,
            created,
            expires,
            deliver_after,
            thread: text(object, "thread").map(str::to_owned),
            in_reply_to: text(object, "in_reply_to").map(str::to_owned),
            kid: signature.kid.to_owned(),
            signature: signature.value.to_owned(),
            bytes,
            signed_text,
            sha256: Sha256::of(whole),
            from,
            doc,
        })
    }

    /// Completes a document with the sender's signature and reads it back: a client sends only what a house would take.
    pub fn sign(mut doc: Value, key: &SigningKey, max_bytes: usize) -> Result<Envelope, Refusal> {
        key.sign_object(&mut doc, "signature");
        Envelope::parse(doc, max_bytes)
    }

    /// The envelope as it was signed, unknown fields and all.
    pub fn doc(&self) -> &Value {
        &self.doc
    }

    pub fn into_doc(self) -> Value {
        self.doc
    }

    pub fn field(&self, name: &str) -> Option<&Value> {
        self.doc.get(name).filter(|value| !value.is_null())
    }

    pub fn is_sealed(&self) -> bool {
        self.field("encrypted").is_some()
    }

    /// The media type of clear content.
    pub fn media(&self) -> Option<&str> {
        self.field("content")?.get("media")?.as_str()
    }

    /// The body of clear content.
    pub fn body(&self) -> Option<&Value> {
        self.field("content")?.get("body")
    }

    pub fn extension(&self, urn: &str) -> Option<&Value> {
        self.field("extensions")?.get(urn)
    }

    pub fn wants_delivery_receipt(&self) -> bool {
        self.field("receipt").and_then(Value::as_str) == Some("delivered")
    }

    /// SHA-256 of the canonical text, signature included: what receipts name as `op_sha256` or `sha256`.
    pub fn sha256(&self) -> Sha256 {
        self.sha256
    }

    /// Whether the signature is by one of the keys that this card accepts now.
    pub fn is_signed_by(&self, sender: &AgentCard, now: Timestamp) -> Result<(), Refusal> {
        if sender.address != self.from {
            return Err(Refusal::new(Rule::BadSignature, "the card is not the sender's"));
        }
        let key = sender.accepted_key(&self.kid, now).ok_or_else(|| not_a_key_of(&self.kid, &self.from))?;
        if !key.verify(self.signed_text.as_bytes(), &self.signature) {
            return Err(Refusal::new(Rule::BadSignature, "the signature does not verify over the canonical envelope"));
        }
        Ok(())
    }

    pub fn verify(self, sender: AgentCard, now: Timestamp) -> Result<Verified, Refusal> {
        self.is_signed_by(&sender, now)?;
        Ok(Verified { envelope: self, sender })
    }

    /// As [`Envelope::verify`], by who holds the key itself: a signature follows from key and text, so it is made again
    /// and compared.
    pub fn verify_by(self, key: &SigningKey, sender: AgentCard, now: Timestamp) -> Result<Verified, Refusal> {
        let held = sender.address == self.from
            && sender.accepted_key(&self.kid, now) == Some(&key.public())
            && key.sign(self.signed_text.as_bytes()) == self.signature;
        if held { Ok(Verified { envelope: self, sender }) } else { self.verify(sender, now) }
    }
}

/// What whoever signs with another key than the sender's is told. A house says the same of a name that it does not have,
/// so that nobody learns by forging letters which names exist.
pub fn not_a_key_of(kid: &str, from: &Address) -> Refusal {
    let reason = format!("signed with the key {}, which is not a current key of {from}", shown(kid));
    Refusal::new(Rule::BadSignature, reason)
}

/// An envelope whose signature verifies with a key of the sender's certified card.
#[derive(Clone, Debug)]
pub struct Verified {
    envelope: Envelope,
    sender: AgentCard,
}

impl Verified {
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    pub fn sender(&self) -> &AgentCard {
        &self.sender
    }
}

/// The fields of an envelope that a sender chooses; [`Draft::into_doc`] is the document to sign.
#[derive(Clone, Debug)]
pub struct Draft {
    pub id: String,
    pub from: Address,
    pub to: Vec<Address>,
    pub kind: Kind,
    pub created: Timestamp,
    pub expires: Option<Timestamp>,
    pub deliver_after: Option<Timestamp>,
    pub thread: Option<String>,
    pub in_reply_to: Option<String>,
    /// `content` or `encrypted`.
    pub payload: Payload,
    /// `receipt`, `stamp`, `pow`, `extensions`, `attachments` and whatever a later version adds.
    pub more: Map<String, Value>,
}

#[derive(Clone, Debug)]
pub enum Payload {
    Clear { media: String, body: Value },
    Sealed(Value),
}

impl Draft {
    pub fn into_doc(self) -> Value {
        let mut doc = self.more;
        let mut put = |name: &str, value: Value| {
            doc.insert(name.to_owned(), value);
        };
        put("nyx5", "1".into());
        put("id", self.id.into());
        put("from", self.from.to_string().into());
        put("to", self.to.iter().map(|a| Value::from(a.as_str())).collect());
        put("type", self.kind.as_str().into());
        put("created", self.created.to_string().into());
        put("expires", self.expires.map(|at| at.to_string()).into());
        if let Some(at) = self.deliver_after {
            put("deliver_after", at.to_string().into());
        }
        put("thread", self.thread.into());
        put("in_reply_to", self.in_reply_to.into());
        match self.payload {
            Payload::Clear { media, body } => put("content", serde_json::json!({"media": media, "body": body})),
            Payload::Sealed(sealed) => put("encrypted", sealed),
        }
        Value::Object(doc)
    }
}

pub fn is_id(id: &str) -> bool {
    (limits::ENVELOPE_ID_MIN..=limits::ENVELOPE_ID_MAX).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-'))
}

fn text<'a>(object: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    object.get(field)?.as_str()
}

fn recipients(object: &Map<String, Value>) -> Result<Vec<Address>, Refusal> {
    let listed = object.get("to").and_then(Value::as_array);
    let listed = listed
        .filter(|to| (1..=limits::RECIPIENTS_MAX).contains(&to.len()))
        .ok_or_else(|| bad(&format!("to must list 1 to {} addresses", limits::RECIPIENTS_MAX)))?;
    let mut to: Vec<Address> = Vec::with_capacity(listed.len());
    for (i, entry) in listed.iter().enumerate() {
        let text = entry.as_str().ok_or_else(|| bad(&format!("to[{i}] must be an address")))?;
        let address = Address::parse(text).map_err(|r| bad(&format!("to[{i}]: {}", r.reason)))?;
        if !to.contains(&address) {
            to.push(address);
        }
    }
    Ok(to)
}

fn instant(object: &Map<String, Value>, field: &str) -> Result<Option<Timestamp>, Refusal> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Timestamp::parse(text).map(Some).ok_or_else(|| {
            bad(&format!("{field} must be an ISO 8601 instant with a zone, such as 2026-09-15T10:00:00Z"))
        }),
        Some(_) => Err(bad(&format!("{field} must be a text, an ISO 8601 instant with a zone"))),
    }
}

/// Exactly one of `content` and `encrypted`; answers whether it is sealed.
fn content_or_sealed(object: &Map<String, Value>) -> Result<bool, Refusal> {
    let present = |field: &str| object.get(field).filter(|value| !value.is_null());
    match (present("content"), present("encrypted")) {
        (Some(content), None) if content.get("media").is_some_and(Value::is_string) => Ok(false),
        (Some(_), None) => Err(bad("content must be an object with a text media")),
        (None, Some(sealed)) if sealed.get("ct").is_some_and(Value::is_string) => Ok(true),
        (None, Some(_)) => Err(bad("encrypted must be an object with a text ct")),
        (None, None) => Err(bad("the envelope has neither content nor encrypted; exactly one is needed")),
        (Some(_), Some(_)) => Err(bad("the envelope has both content and encrypted; exactly one is allowed")),
    }
}

/// In a sealed envelope the outer list says nothing but which blob and how many bytes: a file name is content.
fn attachments(object: &Map<String, Value>, sealed: bool) -> Result<(), Refusal> {
    let listed = match object.get("attachments") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(listed)) => listed,
        Some(_) => return Err(bad("attachments must be a list")),
    };
    if listed.len() > limits::ATTACHMENTS_MAX {
        return Err(bad(&format!("an envelope carries at most {} attachments", limits::ATTACHMENTS_MAX)));
    }
    let mut total: u64 = 0;
    for (i, entry) in listed.iter().enumerate() {
        let entry = entry.as_object().ok_or_else(|| bad(&format!("attachments[{i}] must be an object")))?;
        if text(entry, "blob").and_then(|blob| uuid::Uuid::try_parse(blob).ok()).is_none() {
            return Err(bad(&format!("attachments[{i}].blob must be a uuid")));
        }
        let bytes = entry.get("bytes").and_then(Value::as_u64).filter(|bytes| *bytes <= limits::ATTACHMENT_BYTES_MAX);
        total = total.saturating_add(bytes.ok_or_else(|| {
            bad(&format!("attachments[{i}].bytes must be a number up to {}", limits::ATTACHMENT_BYTES_MAX))
        })?);
        if sealed && let Some(extra) = entry.keys().find(|key| !matches!(key.as_str(), "blob" | "bytes")) {
            return Err(bad(&format!(
                "attachments[{i}] carries \"{}\" in the clear beside sealed content; only blob and bytes may stand there",
                shown(extra)
            )));
        }
    }
    if total > limits::ATTACHMENTS_BYTES_MAX {
        return Err(bad(&format!("the attachments sum to {total} bytes; up to {}", limits::ATTACHMENTS_BYTES_MAX)));
    }
    Ok(())
}

fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

fn bad(why: &str) -> Refusal {
    Refusal::new(Rule::BadEnvelope, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn valid() -> Value {
        json!({
            "nyx5": "1", "id": "envelope-1", "from": "ana@a.example", "to": ["leo@b.example"],
            "created": "2026-09-15T10:00:00.000Z", "expires": null, "type": "message",
            "content": {"media": "text/plain", "body": "hola"}, "x-later": {"kept": [1, 2]},
        })
    }

    fn signed(doc: Value) -> Result<Envelope, Refusal> {
        Envelope::sign(doc, &SigningKey::from_seed([1; 32]), limits::ENVELOPE_BYTES_DEFAULT)
    }

    #[test]
    fn each_rule_refuses_its_own_fault() {
        assert!(signed(valid()).is_ok());
        let faults: Vec<(&str, Value, &str)> = vec![
            ("nyx5", json!(1), "nyx5"),
            ("id", json!("short"), "id"),
            ("id", json!("with space"), "id"),
            ("id", json!("x".repeat(129)), "id"),
            ("from", json!("Ana@a.example"), "from"),
            ("to", json!([]), "to"),
            ("to", json!(vec!["leo@b.example"; 51]), "to"),
            ("to", json!(["leo@b.example", 3]), "to[1]"),
            ("to", json!(["LEO@b.example"]), "to[0]"),
            ("type", json!("order"), "type"),
            ("created", json!("yesterday"), "created"),
            ("created", json!(null), "created"),
            ("expires", json!("soon"), "expires"),
            ("expires", json!(5), "expires"),
            ("deliver_after", json!("2026-09-15T10:00:00"), "deliver_after"),
            ("content", json!(null), "neither"),
            ("content", json!({"body": 1}), "media"),
            ("encrypted", json!({"ct": "x"}), "both"),
            ("attachments", json!({}), "attachments"),
            ("attachments", json!([{"blob": "../x", "bytes": 1}]), "uuid"),
        ];
        for (field, value, named) in faults {
            let mut doc = valid();
            doc[field] = value;
            let refusal = signed(doc).expect_err(named);
            assert_eq!(refusal.code(), 400);
            assert!(refusal.reason.contains(named), "{named}: {}", refusal.reason);
        }
        let mut unsigned = valid();
        unsigned["signature"] = json!({"alg": "RS256", "kid": "a", "value": "b"});
        assert_eq!(Envelope::parse(unsigned, 1000).map_err(|r| r.rule).err(), Some(Rule::BadEnvelope));
        // Whoever carries a letter cannot make a second one of it that bears its sender's signature.
        let mut carried = signed(valid()).expect("valid").into_doc();
        carried["signature"]["seen"] = json!(true);
        assert_eq!(Envelope::parse(carried, 1000).map_err(|r| r.rule).err(), Some(Rule::BadEnvelope));
    }

    #[test]
    fn size_at_the_limit_and_one_beyond() {
        let envelope = signed(valid()).expect("valid");
        let bytes = canonical(envelope.doc()).len();
        assert_eq!(envelope.bytes, bytes);
        assert!(Envelope::parse(envelope.doc().clone(), bytes).is_ok());
        assert_eq!(Envelope::parse(envelope.into_doc(), bytes - 1).map_err(|r| r.code()).err(), Some(413));
    }

    #[test]
    fn a_recipient_named_twice_counts_once_and_times_must_make_sense() {
        let mut doc = valid();
        doc["to"] = json!(["leo@b.example", "eva@b.example", "leo@b.example"]);
        assert_eq!(signed(doc).expect("valid").to.len(), 2);
        let mut doc = valid();
        doc["deliver_after"] = json!("2026-10-01T00:00:00Z");
        doc["expires"] = json!("2026-10-01T00:00:00Z");
        assert!(signed(doc).is_err());
    }

    #[test]
    fn outside_a_seal_an_attachment_says_nothing_but_blob_and_bytes() {
        let blob = "6f1c2b34-0000-4000-8000-000000000000";
        let mut doc = valid();
        doc["content"] = json!(null);
        doc["encrypted"] = json!({"ct": "x"});
        doc["attachments"] = json!([{"blob": blob, "bytes": limits::ATTACHMENT_BYTES_MAX}]);
        assert!(signed(doc.clone()).is_ok());
        doc["attachments"][0]["name"] = json!("severance.pdf");
        assert!(signed(doc.clone()).expect_err("named").reason.contains("\"name\""));
        doc["attachments"] = json!([{"blob": blob, "bytes": limits::ATTACHMENT_BYTES_MAX + 1}]);
        assert!(signed(doc.clone()).is_err());
        doc["attachments"] = json!(vec![json!({"blob": blob, "bytes": 1}); limits::ATTACHMENTS_MAX + 1]);
        assert!(signed(doc).is_err());
    }
}
