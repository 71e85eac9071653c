//! Agents of this house and the invitations that let them in.

use crate::time::Timestamp;
use crate::wire::address::Local;
use crate::wire::card::AgentCard;
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
