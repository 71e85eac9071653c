//! Envelopes on their way, with what they ask for as the model reads it.

use super::order::Order;
use crate::limits;
use crate::time::Timestamp;
use crate::wire::address::Address;
use crate::wire::envelope::{Draft, Envelope, Kind, Payload};
use crate::wire::key::SigningKey;
use crate::wire::quote::OP_MEDIA;
use serde_json::{Map, Value, json};
use std::fmt;

#[derive(Clone, Debug)]
pub enum Content {
    Order(Order),
    Letter,
}

/// An envelope, its sender's intention, and whether the sender is who it says.
#[derive(Clone, Debug)]
pub struct Post {
    pub id: String,
    pub from: String,
    pub to: Vec<String>,
    pub content: Content,
    /// Equal for equal envelopes and for no others.
    pub body: u64,
    /// Of which house, and how much.
    pub stamp: Option<(String, i64)>,
    pub expires: Option<Timestamp>,
    /// Signed with a key that is not the sender's.
    pub forged: bool,
    pub envelope: Envelope,
}

/// What a post is made of.
pub struct Writing<'a> {
    pub id: String,
    pub from: &'a str,
    pub to: Vec<String>,
    pub content: Content,
    pub body: u64,
    pub stamp: Option<(String, i64)>,
    pub expires: Option<Timestamp>,
    pub forged: bool,
    pub created: Timestamp,
}

impl Post {
    pub fn write(writing: Writing<'_>, key_of: &dyn Fn(&str) -> SigningKey) -> Result<Post, String> {
        let Writing { id, from, to, content, body, stamp, expires, forged, created } = writing;
        let address = |text: &str| Address::parse(text).map_err(|r| r.to_string());
        let mut more = Map::new();
        if let Some((house, amount)) = &stamp {
            more.insert("stamp".into(), json!({"house": house, "amount": amount}));
        }
        let (kind, media, value) = match &content {
            Content::Order(order) => (Kind::Task, OP_MEDIA, order.body(key_of)),
            Content::Letter => (Kind::Message, "text/plain", Value::from(format!("letter {body}"))),
        };
        if matches!(content, Content::Order(_)) {
            more.insert("x-body".into(), body.into());
        }
        let draft = Draft {
            id: id.clone(),
            from: address(from)?,
            to: to.iter().map(|to| address(to)).collect::<Result<_, _>>()?,
            kind,
            created,
            expires,
            deliver_after: None,
            thread: None,
            in_reply_to: None,
            payload: Payload::Clear { media: media.to_owned(), body: value },
            more,
        };
        let signer = if forged { key_of("nobody@nowhere.example") } else { key_of(from) };
        let envelope = Envelope::sign(draft.into_doc(), &signer, limits::ENVELOPE_BYTES_DEFAULT);
        let envelope = envelope.map_err(|r| r.to_string())?;
        Ok(Post { id, from: from.to_owned(), to, content, body, stamp, expires, forged, envelope })
    }

    /// An envelope of a house's own, which nobody in the simulator wrote.
    pub fn of_house(doc: &Value) -> Result<Post, String> {
        let envelope = Envelope::parse(doc.clone(), limits::ENVELOPE_BYTES_DEFAULT).map_err(|r| r.to_string())?;
        let said = envelope.body();
        let named = |field: &str| said.and_then(|said| said.get(field)).and_then(Value::as_str);
        let contract = named("contract").unwrap_or_default().to_owned();
        let claimed = || {
            let verdict = said.and_then(|said| said.get("veredicto"))?;
            Some(super::order::Claimed {
                pasa: verdict.get("pasa").and_then(Value::as_bool)?,
                contract: verdict.get("contract").and_then(Value::as_str)?.to_owned(),
                at: verdict.get("at").and_then(Value::as_str).and_then(Timestamp::parse)?,
            })
        };
        let content = match (envelope.media() == Some(OP_MEDIA), named("op")) {
            (true, Some("expire")) => Content::Order(Order::Expire { contract }),
            (true, Some("release")) => Content::Order(Order::Release { contract, verdict: claimed() }),
            (true, Some("refund")) => Content::Order(Order::Refund { contract, verdict: claimed() }),
            (true, other) => return Err(format!("a house sends itself the order {other:?}")),
            (false, _) => Content::Letter,
        };
        let [a, b, c, d, e, f, g, h, ..] = envelope.sha256().0;
        let body = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        Ok(Post {
            id: envelope.id.clone(),
            from: envelope.from.to_string(),
            to: envelope.to.iter().map(ToString::to_string).collect(),
            content,
            body,
            stamp: None,
            expires: envelope.expires,
            forged: false,
            envelope,
        })
    }
}

impl fmt::Display for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forged = if self.forged { " (forged)" } else { "" };
        match &self.content {
            Content::Order(order) => write!(f, "{} of {}{forged} as {}: {order:?}", order.name(), self.from, self.id),
            Content::Letter => {
                write!(f, "letter of {}{forged} as {} to {} {:?}", self.from, self.id, self.to.join(" "), self.stamp)
            }
        }
    }
}
