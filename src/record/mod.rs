//! What the house remembers, as types: the records, the read-only [`View`] that a decision looks at, and the
//! [`Change`]s that it asks for.
//!
//! A rule is a pure function from a `View`, the time and a command to a [`Decision`] or a refusal. The store runs it
//! inside one durable transaction: what the view shows is what the changes are applied to, and either all of them are
//! kept or none. Effects (a letter to deliver, a contract to look at) are rows among the changes, so a crash repeats an
//! effect and never loses one.

pub mod agent;
pub mod blob;
pub mod house;
pub mod ledger;
pub mod look;
pub mod mail;
pub mod memory;

pub use agent::{AgentRecord, Invitation};
pub use blob::{BlobRecord, BlobState};
pub use house::{House, Pin, Registration, Settings};
pub use ledger::{
    AccountPage, Contract, ContractState, Entry, Line, Mandate, MandateState, OperationRecord, SealRecord,
};
pub use look::{EvidenceRow, LookRow, ObservationRow};
pub use mail::{Job, JobStatus, MailRecord, Push, SeenRecord};

use crate::refusal::Refusal;
use crate::time::Timestamp;
use crate::wire::address::Address;
use crate::wire::card::AgentCard;
use crate::wire::doc::Doc;
use crate::wire::key::PublicKey;
use serde_json::Value;
use std::collections::BTreeMap;

/// The records that a decision may look at, as they are inside its transaction.
///
/// Reading cannot fail here: a store that cannot read discards the decision and reports its own error.
pub trait View {
    /// The card and private extras of an agent of this house.
    fn agent(&self, local: &str) -> Option<AgentRecord>;
    fn invitation(&self, code: &str) -> Option<Invitation>;
    /// What was accepted of this envelope before.
    fn seen(&self, from: &Address, id: &str) -> Option<SeenRecord>;
    /// Whether this mailbox holds a pending envelope of this id, and who sent it.
    fn pending(&self, local: &str, id: &str) -> Vec<MailRecord>;
    fn job(&self, id: &str) -> Option<Job>;
    /// The hour in which this agent was last here, as it was written down.
    fn last_seen(&self, local: &str) -> Option<Timestamp>;
    /// Hits counted under this key in the minute window that holds `at`.
    fn rate(&self, key: &str, at: Timestamp) -> u32;
    fn nonce_used(&self, key: &str) -> bool;
    /// The number of the last journal entry; zero in an empty journal.
    fn journal_last(&self) -> u64;
    /// Zero for an account that never had an entry.
    fn balance(&self, account: &str) -> i64;
    fn contract(&self, id: &str) -> Option<Contract>;
    /// The contract that was made from this quote, which [`ledger::quote_key`] names.
    fn contract_of_quote(&self, quote: &str) -> Option<String>;
    fn operation(&self, from: &Address, id: &str) -> Option<OperationRecord>;
    fn look(&self, contract: &str) -> Option<LookRow>;
    /// When the last journal entry was made; the epoch in an empty journal. Times never fall as numbers rise.
    fn journal_last_at(&self) -> Timestamp;
    /// The newest `limit` entries with a line of this account among those with `since <= at < until`.
    fn account_page(
        &self,
        account: &str,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        limit: usize,
    ) -> AccountPage;
    /// Contracts in which this account is seller, buyer, verifier or arbiter, newest first.
    fn contracts_of(&self, account: &str, limit: usize) -> Vec<Contract>;
    fn mandate(&self, id: &str) -> Option<Mandate>;
    /// Active mandates whose chain holds this one, itself included.
    fn mandates_under(&self, id: &str) -> Vec<Mandate>;
    /// Mandates that this account gave or holds, newest first.
    fn mandates_of(&self, account: &str, limit: usize) -> Vec<Mandate>;
    /// The key that this foreign domain is known by.
    fn pin(&self, domain: &str) -> Option<Pin>;
    /// The seal that this declarant has on this hash.
    fn seal(&self, sha256: &str, by: &Address) -> Option<SealRecord>;
    fn blob(&self, blob: &str) -> Option<BlobRecord>;
    /// Bytes of all attachments that the house holds or has reserved room for.
    fn blob_bytes(&self) -> u64;
    /// Bytes of attachments that this sender has handed in on a day of UTC.
    fn blob_day(&self, sender: &Address, day: i64) -> u64;
}

/// One thing to remember. Applied in order; all of a decision's changes or none.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new name; a conflict if it is taken.
    InsertAgent(AgentRecord),
    PutAgent(AgentRecord),
    InsertInvitation(Invitation),
    /// Counts one use; a conflict if the invitation is unknown, used up or expired.
    UseInvitation {
        code: String,
        at: Timestamp,
    },
    /// Into a mailbox; nothing happens if the same (mailbox, sender, id) is there already.
    Deliver(MailRecord),
    /// Takes off the pending list what is visible at `at`; what is to appear later stays.
    Acknowledge {
        local: String,
        id: String,
        at: Timestamp,
    },
    /// Files under their conversations the deferred letters of this mailbox whose time has come.
    FileDeferred {
        local: String,
        at: Timestamp,
    },
    /// A call for a letter; nothing happens if there is one.
    InsertPush(Push),
    /// Replaces a call; nothing happens if there is none.
    PutPush(Push),
    EndPush {
        local: String,
        from: String,
        id: String,
    },
    /// The hour in which an agent was last here.
    SeenIn {
        local: String,
        hour: Timestamp,
    },
    /// Inserts or replaces; a conflict if this sender's id was seen with another body.
    PutSeen(SeenRecord),
    /// Inserts or replaces a job of the sending queue.
    PutJob(Job),
    /// Counts hits under a key in the minute window that holds `at`.
    CountRate {
        key: String,
        at: Timestamp,
        hits: u32,
    },
    /// A conflict if the nonce was used.
    BurnNonce {
        key: String,
        at: Timestamp,
    },
    /// The next journal entry: its number must follow the last one, its lines must sum to zero and no account but the
    /// house's may end below zero; its time may not lie before the last one's. Balances move with it.
    Journal(Entry),
    /// A new contract; a conflict if its id or its quote is known.
    InsertContract(Contract),
    /// Replaces a contract; a conflict if there is none. One that has ended keeps its ending.
    PutContract(Contract),
    /// A new mandate; a conflict if its id is known.
    InsertMandate(Mandate),
    /// Replaces a mandate; a conflict if there is none.
    PutMandate(Mandate),
    /// A new seal; a conflict if its id, or its hash and declarant, are known.
    InsertSeal(SealRecord),
    /// The outcome of a ledger operation, kept for its repetition; a conflict if one is kept already.
    InsertOperation(OperationRecord),
    /// Inserts or replaces the look of a contract.
    PutLook(LookRow),
    PutObservation(ObservationRow),
    /// Inserts or replaces the evidence of a contract's verdict.
    PutEvidence(EvidenceRow),
    /// What was seen for a contract, and the evidence made of it: no verdict stands on them.
    ForgetEvidence {
        contract: String,
    },
    /// First wins: a pinned key changes only by the operator's hand.
    InsertPin {
        domain: String,
        key: PublicKey,
        at: Timestamp,
    },
    /// Inserts or replaces: the operator confirmed the key, or the pinned key's house announced its next one.
    PutPin(Pin),
    PutDomainCard(Value),
    /// Inserts or replaces; the bytes of all attachments move with it.
    PutBlob(BlobRecord),
    /// The object is gone; nothing happens if there is no such row.
    DropBlob {
        blob: String,
    },
    /// Adds to what a sender has handed in on a day of UTC; it never falls below zero.
    CountBlobs {
        sender: Address,
        day: i64,
        bytes: i64,
    },
    /// Instrumentation: never content.
    Event {
        name: &'static str,
        at: Timestamp,
        actor: String,
        data: Value,
    },
}

/// What a rule decided: the changes to make durable, then the reply to give.
#[derive(Clone, Debug)]
pub struct Decision<T> {
    pub changes: Vec<Change>,
    pub reply: T,
}

impl<T> Decision<T> {
    pub fn nothing(reply: T) -> Self {
        Decision { changes: Vec::new(), reply }
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Decision<U> {
        Decision { changes: self.changes, reply: f(self.reply) }
    }
}

pub type Decided<T> = Result<Decision<T>, Refusal>;

/// Cards that were resolved, with their whole chain verified, before a decision; a refusal where resolving failed
/// (transient or not).
pub type Cards = BTreeMap<Address, Result<AgentCard, Refusal>>;

/// A signed envelope of the house's own (receipt, notice, bounce) with those it goes to.
#[derive(Clone, Debug)]
pub struct Letter {
    pub id: String,
    pub doc: Doc,
    pub to: Vec<Address>,
    /// `libro` or `postmaster`.
    pub via: &'static str,
    /// A letter for later always waits in the queue, even for a mailbox of this house.
    pub deliver_after: Option<Timestamp>,
    /// What the house orders itself is carried out by the door that it comes in by, not read in a mailbox.
    pub order: bool,
}
