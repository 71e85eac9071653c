//! The mail's rules: what a house takes in, what it sends, when it tries again, who may enter and who sees whom.
//!
//! Every rule is a function from the records inside one transaction, the time and a command to a decision. All that one
//! arrival causes (mailbox rows, what was seen, entries of the ledger, receipts, counted rates) is in one decision, so a
//! crash keeps all of it or none, and the sender's repetition finds either nothing or everything.
//!
//! Deliberately absent: seeded work (tareas@) and the e-mail bridge. Mail to tareas@ is refused in words; nothing pretends
//! to have taken it.

pub mod blobs;
pub mod cards;
pub mod delegation;
pub mod groups;
pub mod inbound;
pub mod index;
pub mod invitations;
pub mod letters;
pub mod mailbox;
pub mod outbound;
pub mod pins;
pub mod policy;
pub mod presence;
pub mod profile;
pub mod push;
pub mod queue;
pub mod registration;
pub mod request;
pub mod system;
pub mod talk;

pub use cards::{Asker, visible_to};
pub use inbound::inbound;
pub use letters::letters;
pub use outbound::outbound;
pub use registration::register;
pub use system::system_cards;

use crate::limits;
use crate::record::House;
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::{Address, Domain};
use crate::wire::{AgentCard, Doc, Envelope, Verified};
use serde_json::json;

/// What a door answers: the protocol's code, which is also the HTTP status, and the body.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub code: u16,
    pub body: Doc,
    /// Seconds, with a 429 or 503.
    pub retry_after: Option<u64>,
}

/// An envelope at the door, with what the door found out about it.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub verified: Verified,
    /// The sending house vouches for having relayed it.
    pub relay_verified: bool,
    /// The sender's domain card says that everything it sends is sealed.
    pub sender_promises_sealed: bool,
}

/// Who signed the request.
#[derive(Clone, Debug)]
pub enum Authority {
    /// The operator's token.
    Admin,
    /// An agent of this house, by its current key.
    Agent(Box<AgentCard>),
    Nobody,
}

impl Answer {
    pub fn new(code: u16, body: impl Into<Doc>) -> Answer {
        Answer { code, body: body.into(), retry_after: None }
    }

    /// A whole request refused, in the shape that a sending house reads.
    pub fn refused(refusal: &Refusal) -> Answer {
        let mut body = json!({
            "ok": false, "code": refusal.code(), "reason": refusal.reason, "rule": refusal.rule.number(),
        });
        if let Some(bits) = refusal.pow_bits {
            body["pow_bits"] = bits.into();
        }
        Answer { code: refusal.code(), body: body.into(), retry_after: refusal.retry_after }
    }

    /// A refusal as every route but those of arriving mail says it, for a decision that is kept all the same.
    pub fn denied(refusal: &Refusal) -> Answer {
        let body = json!({"reason": refusal.reason, "rule": refusal.rule.number()});
        Answer { code: refusal.code(), body: body.into(), retry_after: refusal.retry_after }
    }

    pub const fn ok(&self) -> bool {
        self.code < 300
    }
}

/// What needs no card and no record, checked before anybody's key is looked up: not expired, and somebody here is meant.
pub fn precheck(house: &House, now: Timestamp, envelope: &Envelope) -> Result<(), Refusal> {
    not_expired(envelope, now)?;
    if envelope.to.iter().any(|to| house.is_mine(to)) {
        return Ok(());
    }
    Err(Refusal::new(Rule::NoRecipientHere, format!("no recipient of this envelope belongs to {}", house.domain)))
}

pub(crate) fn not_expired(envelope: &Envelope, now: Timestamp) -> Result<(), Refusal> {
    match envelope.expires {
        Some(expires) if expires <= now => {
            Err(Refusal::new(Rule::EnvelopeExpired, format!("the envelope expired at {expires}")))
        }
        _ => Ok(()),
    }
}

/// What everybody reads who asks for a name that is absent, or that is not for them to see.
pub(crate) fn no_such_agent() -> Refusal {
    Refusal::new(Rule::NoSuchAgent, "no such agent")
}

/// Refuses once the hits of this minute window have reached the limit.
pub(crate) fn within_rate(hits: u32, limit: u32, now: Timestamp, what: &str) -> Result<(), Refusal> {
    if hits < limit {
        return Ok(());
    }
    let reason = format!("over {limit} {what} a minute; wait for the next minute");
    Err(Refusal::new(Rule::RateLimited, reason).retry_after(now.seconds_to_next_minute()))
}

/// What an envelope counts for towards its sender's rate: one, or as many as the copies of it that this house keeps fill
/// largest envelopes. Fifty recipients of a short letter are one letter; of the longest, fifty.
pub(crate) fn weight(envelope: &Envelope, copies: usize) -> u32 {
    let kept = envelope.bytes.saturating_mul(copies).div_ceil(limits::ENVELOPE_BYTES_DEFAULT);
    u32::try_from(kept).unwrap_or(u32::MAX).max(1)
}

/// The distinct domains of these addresses, each with its own, in the order of first mention.
pub(crate) fn by_domain(to: &[Address]) -> Vec<(Domain, Vec<Address>)> {
    let mut groups: Vec<(Domain, Vec<Address>)> = Vec::new();
    for address in to {
        match groups.iter_mut().find(|(domain, _)| address.is_of(domain)) {
            Some((_, members)) => members.push(address.clone()),
            None => groups.push((address.domain(), vec![address.clone()])),
        }
    }
    groups
}

/// The same envelope towards the same domain is always the same job, so that a repetition finds it.
pub(crate) fn job_id(from: &str, envelope_id: &str, domain: &Domain) -> String {
    let name = format!("{from}\n{envelope_id}\n{domain}");
    uuid::Uuid::new_v5(&JOB_NAMESPACE, name.as_bytes()).to_string()
}

const JOB_NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x6e79_7835_0001_4a6f_8b73_7665_7269_6669);

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod inbound_tests;
#[cfg(test)]
mod registration_tests;
