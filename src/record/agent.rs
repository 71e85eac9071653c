//! Agents of this house and the invitations that let them in.

use crate::limits;
use crate::record::View;
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::{Address, Local};
use crate::wire::card::{AgentCard, Visibility};
use serde_json::Value;

/// An agent of this house: its certified card, and what only the house knows.
#[derive(Clone, Debug)]
pub struct AgentRecord {
    pub local: Local,
    pub card: AgentCard,
    pub webhook: Option<String>,
    pub notify_email: Option<String>,
    /// `admin`, `self`, `delegation`, `open`, `invite:<code>` or `system`.
    pub registered_via: String,
    /// One of the house's own names; holds the domain key.
    pub system: bool,
    pub created: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Invitation {
    pub code: String,
    pub uses: u64,
    pub used: u64,
    pub expires: Option<Timestamp>,
    pub note: Option<String>,
    pub welcome: Option<u64>,
    pub created: Timestamp,
    pub by: String,
    pub last_used: Option<Timestamp>,
}

impl AgentRecord {
    /// The card as anybody may see it.
    pub fn public(&self) -> &Value {
        self.card.doc()
    }
}

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

/// Whether a card of this house, and every parent above it, is neither revoked nor past its date.
pub fn stands(view: &dyn View, card: &AgentCard, now: Timestamp) -> Result<(), Refusal> {
    let ended = |card: &AgentCard| {
        let reason = format!("the card of {} is revoked or past its date", card.address);
        Err(Refusal::new(Rule::SenderEnded, reason))
    };
    if card.ended(now) {
        return ended(card);
    }
    let parents = parents(view, card);
    let whole = parents.last().unwrap_or(card).delegation.is_none();
    match parents.iter().find(|parent| parent.ended(now)) {
        Some(parent) => ended(parent),
        None if whole => Ok(()),
        None => Err(Refusal::new(Rule::SenderEnded, format!("the delegation of {} leads to nobody", card.address))),
    }
}

/// Whether this card or a parent above it may only write messages: it commits no tokens and could spend none.
pub fn messages_only(view: &dyn View, card: &AgentCard) -> bool {
    card.messages_only() || parents(view, card).iter().any(AgentCard::messages_only)
}

/// The parents above a card of this house, nearest first, as far as a verifier follows.
pub fn parents(view: &dyn View, card: &AgentCard) -> Vec<AgentCard> {
    let mut above: Vec<AgentCard> = Vec::new();
    while above.len() < limits::DELEGATION_DEPTH_MAX {
        let last = above.last().unwrap_or(card);
        let by = last.delegation.as_ref().map(|delegation| delegation.by.clone());
        let parent = by.filter(|by| by.is_of(&card.address.domain())).and_then(|by| view.agent(by.local()));
        let Some(parent) = parent else { break };
        above.push(parent.card);
    }
    above
}
