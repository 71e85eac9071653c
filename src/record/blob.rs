//! What the house knows of an attachment: whose it is, who may have it, how large it is. Never what is in it.

use crate::time::Timestamp;
use crate::wire::address::Address;
use serde::{Deserialize, Serialize};

/// One object that the house holds, or is about to hold, or is about to remove. Its row is there before the object and
/// goes after it, so no object is ever without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRecord {
    pub blob: String,
    pub from: Address,
    /// Who may fetch it beside its sender, a group of this house for its members.
    pub to: Vec<Address>,
    /// As stored; as reserved while it is coming.
    pub bytes: u64,
    pub state: BlobState,
    /// Which upload it came with.
    pub upload: String,
    /// Of the bytes as stored, once they are.
    pub sha256: Option<String>,
    pub created: Timestamp,
    /// From then on it is gone for everybody, and its object is to be removed.
    pub until: Timestamp,
    /// Those of `to` who have had all of it.
    pub fetched: Vec<Address>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BlobState {
    /// Reserved; the bytes are on their way.
    Coming,
    Kept,
    /// The object is being removed.
    Going,
}

impl BlobRecord {
    /// Whether it can be had now.
    pub fn is_there(&self, now: Timestamp) -> bool {
        self.state == BlobState::Kept && now < self.until
    }
}
