//! Records of the mail: what lies in mailboxes, what was seen, what waits to be sent.

use crate::time::Timestamp;
use crate::wire::address::{Address, Domain};
use crate::wire::doc::Doc;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An envelope in a mailbox of this house.
#[derive(Clone, Debug)]
pub struct MailRecord {
    pub local: String,
    pub id: String,
    pub from: String,
    pub received: Timestamp,
    pub acked: Option<Timestamp>,
    /// Before this instant the owner does not see it.
    pub visible_from: Option<Timestamp>,
    /// `from_verified`, `relay_verified`, `sender_kid`, `via`, `stamp`, ...
    pub meta: Map<String, Value>,
    pub envelope: Doc,
}

impl MailRecord {
    /// As `GET /mailbox/:local` shows it.
    pub fn to_json(&self) -> Value {
        let mut doc = self.meta.clone();
        doc.insert("received".into(), self.received.to_string().into());
        doc.insert("envelope".into(), self.envelope.value().clone());
        Value::Object(doc)
    }
}

/// A call that is due for one letter in a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    pub local: String,
    pub from: String,
    pub id: String,
    pub attempts: u32,
    /// When it was first due.
    pub first: Timestamp,
    pub wake: Timestamp,
}

/// What was accepted of one envelope, by its sender and id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRecord {
    pub from: Address,
    pub id: String,
    pub sha256: String,
    pub at: Timestamp,
    pub accepted: Vec<Address>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    Queued,
    Retrying,
    Delivered,
    Failed,
}

impl JobStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            JobStatus::Queued => "queued",
            JobStatus::Retrying => "retrying",
            JobStatus::Delivered => "delivered",
            JobStatus::Failed => "failed",
        }
    }

    pub const fn open(self) -> bool {
        matches!(self, JobStatus::Queued | JobStatus::Retrying)
    }
}

/// One envelope on its way to one domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub job: String,
    pub envelope_id: String,
    /// The sender's local name at this house.
    pub from_local: String,
    pub domain: Domain,
    /// Those who do not have it yet.
    pub to: Vec<Address>,
    pub status: JobStatus,
    pub attempts: u32,
    pub next_attempt: Timestamp,
    pub created: Timestamp,
    pub updated: Timestamp,
    /// `{at, attempt, status, detail}`, newest last.
    pub log: Vec<Value>,
    #[serde(default)]
    pub delivered: Vec<Address>,
    #[serde(default)]
    pub failed: Vec<Address>,
    pub envelope: Doc,
}
