//! Records of the arbiter: which contract is to be looked at, when, and what was seen.

use crate::time::Timestamp;
use crate::wire::digest::Sha256;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The arbiter's work on one contract. There is at most one row a contract; it goes when the contract has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LookRow {
    pub contract: String,
    /// Length of the contract's history when this work began: a look that began before a delivery says nothing about it.
    pub delivery: u64,
    /// Fairness is across sellers.
    pub seller: String,
    pub due: Timestamp,
    /// While this lies in the future somebody is looking.
    pub lease_until: Option<Timestamp>,
    /// Looks that ended undecided, in a row.
    pub attempts: u32,
    /// The first of two looks that must agree, with the hash of what was judged, waiting for the second.
    #[serde(default)]
    pub first: Option<Value>,
    /// The signed verdict envelope, from before it is posted until the ledger has taken it.
    #[serde(default)]
    pub posting: Option<Value>,
    /// The last outcome in words, for the operator and the parties.
    #[serde(default)]
    pub last: Option<Value>,
    /// The looks since the delivery, as far as a refund for want of an answer rests on them.
    #[serde(default)]
    pub unreached: Unreached,
    pub created: Timestamp,
    /// Nothing more to do: the contract ended.
    pub done: bool,
}

/// Whether every look since the delivery was undecided by the judged hosts alone, one soon after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreached {
    pub looks: u32,
    /// When the last of them was settled.
    pub last: Timestamp,
    /// One of them was not, or came too long after the one before.
    pub broken: bool,
    /// The operator knows that the review ended undecided.
    pub told: bool,
}

/// A stored observation, named by the hash of its bytes. Each contract has its own copy, since each is forgotten in its
/// own time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservationRow {
    pub sha256: Sha256,
    pub at: Timestamp,
    pub contract: String,
    pub bytes: Vec<u8>,
}

/// The evidence that a signed verdict stands on, with its observations by hash; named by the hash of its bytes. There is
/// at most one a contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvidenceRow {
    pub contract: String,
    pub sha256: Sha256,
    pub at: Timestamp,
    pub bytes: Vec<u8>,
}
