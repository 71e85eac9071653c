//! What the reference ledger keeps: deals, grants, and what an order does to them.

use super::order::Kind;
use crate::time::Timestamp;
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Held,
    Delivered,
    Released,
    Refunded,
    Settled,
    Posted,
    Forfeited,
    Active,
}

impl State {
    pub const fn word(self) -> &'static str {
        match self {
            State::Held => "held",
            State::Delivered => "delivered",
            State::Released => "released",
            State::Refunded => "refunded",
            State::Settled => "settled",
            State::Posted => "posted",
            State::Forfeited => "forfeited",
            State::Active => "active",
        }
    }

    pub const fn over(self) -> bool {
        matches!(self, State::Released | State::Refunded | State::Settled | State::Forfeited)
    }
}

#[derive(Clone, Debug)]
pub struct Deal {
    pub id: String,
    pub quote: String,
    pub kind: Kind,
    pub state: State,
    pub seller: String,
    pub buyer: Option<String>,
    pub verifier: Option<String>,
    pub arbiter: Option<String>,
    pub beneficiary: Option<String>,
    pub vouchee: Option<String>,
    pub amount: i64,
    pub fee_bps: i64,
    pub referrer: Option<(String, i64)>,
    pub deadline: Option<Timestamp>,
    pub expires: Option<Timestamp>,
    pub delivered: Option<Timestamp>,
    pub updated: Timestamp,
    pub tests: bool,
    /// Operations that it has undergone.
    pub steps: u64,
}

#[derive(Clone, Debug)]
pub struct Grant {
    pub id: String,
    pub grantor: String,
    pub grantee: String,
    pub root: String,
    pub cap: i64,
    pub spent: i64,
    pub max: Option<i64>,
    pub concept: Option<String>,
    pub expires: Option<Timestamp>,
    pub chain: Vec<String>,
    pub active: bool,
}

/// One look that was made at a contract and recorded.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    /// The contract's operations when it began.
    pub steps: u64,
    /// `None` is undecided.
    pub passed: Option<bool>,
}

#[derive(Clone, Debug)]
pub struct Rules {
    pub house: String,
    pub fee_bps: i64,
    pub grace_ms: i64,
    pub review_ms: i64,
    /// Silence pays although the house's arbiter has not decided.
    pub silence_over_arbiter: bool,
}

/// What an order must do.
#[derive(Clone, Debug)]
pub struct Effect {
    /// `None`: no entry is made. An entry that moves nothing has no lines.
    pub entry: Option<(&'static str, Vec<(String, i64)>)>,
    /// Who is told.
    pub receipts: BTreeSet<String>,
    pub after: After,
}

#[derive(Clone, Debug)]
pub enum After {
    Nothing,
    Begun(Box<Deal>),
    Metered(Box<Deal>, Box<Grant>),
    Delivered(String),
    Ended(String, State),
    Granted(Box<Grant>),
    Charged(Vec<String>, i64),
    Revoked(Vec<String>),
    Sealed(u8, String),
}

/// Ids that the house chose, which the model cannot foresee.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    pub contract: Option<String>,
    pub mandate: Option<String>,
    pub seal: Option<String>,
}

/// Stands for the id of a contract that is about to begin.
pub const NEW: &str = "new";

/// Lines with the id that the house gave to a new contract.
pub fn named(lines: &[(String, i64)], contract: &str) -> Vec<(String, i64)> {
    let new = escrow(NEW);
    lines.iter().map(|(a, d)| (if *a == new { escrow(contract) } else { a.clone() }, *d)).collect()
}

pub fn parties(deal: &Deal) -> Vec<String> {
    let mut parties = vec![deal.seller.clone()];
    for party in [&deal.buyer, &deal.verifier, &deal.arbiter].into_iter().flatten() {
        if !parties.contains(party) {
            parties.push(party.clone());
        }
    }
    parties
}

pub fn escrow(id: &str) -> String {
    format!("escrow:{id}")
}
