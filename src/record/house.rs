//! The house itself: its name, its key and its settings, as rules need them.

use super::ledger::Contract;
use crate::limits;
use crate::probe::address::AddressRule;
use crate::probe::plan::Capabilities;
use crate::time::Timestamp;
use crate::verdict::ProbePolicy;
use crate::wire::address::{Address, Domain, SystemName};
use crate::wire::doc::Doc;
use crate::wire::key::{PublicKey, SigningKey};
use serde_json::Value;

#[derive(Clone, Debug)]
pub struct House {
    pub domain: Domain,
    /// What the cards say, without a trailing slash.
    pub public_url: String,
    /// Host and port of the public URL: what credentials are bound to.
    pub host: String,
    pub key: SigningKey,
    /// The key before `key`, while the house changes from one to the other: both are on the domain card, and this one
    /// still signs it, so that whoever knows the house by the old key learns the new one from it.
    pub retiring: Option<SigningKey>,
    pub settings: Settings,
}

/// The key that a foreign domain is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub domain: String,
    pub key: PublicKey,
    pub at: Timestamp,
    /// The key that a card signed by `key` announced as the active one: believed from the day it signs.
    pub next: Option<PublicKey>,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub registration: Registration,
    pub registrations_per_minute: u32,
    pub min_name_length: usize,
    pub mail_per_minute: u32,
    pub max_bytes: usize,
    pub retry_base_ms: i64,
    pub retry_max_ms: i64,
    pub give_up_ms: i64,
    pub require_relay: bool,
    /// This house runs a federated index, and how often it reads the houses on it.
    pub index: bool,
    pub index_every_ms: i64,
    /// Agents of this house write to other houses sealed, or not at all.
    pub outbound_sealed: bool,
    pub fee_bps: u64,
    pub welcome: u64,
    pub reclaim_grace_ms: i64,
    pub review_window_ms: i64,
    /// Whether verifica@ of this house arbitrates.
    pub arbiter: bool,
    pub on_undecided_at_expiry: OnUndecided,
    /// How long what a verdict stands on is kept after its contract ended.
    pub evidence_keep_ms: i64,
    /// How many bytes of attachments this house holds; nothing where it holds none.
    pub attachments: Option<u64>,
    /// How looks are made.
    pub policy: ProbePolicy,
    /// The test types that this host can run now.
    pub capabilities: Capabilities,
    /// Which literal addresses a test may name.
    pub addresses: AddressRule,
}

/// What becomes of a delivered escrow whose review window has passed while this house's arbiter is undecided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUndecided {
    /// Nothing moves; the parties may settle by hand.
    Hold,
    /// Silence pays, as without an arbiter.
    Expire,
    /// The arbiter refunds, where every look of the window failed by the judged host alone.
    Refund,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    Admin,
    Invite,
    Open,
}

impl Registration {
    pub const fn as_str(self) -> &'static str {
        match self {
            Registration::Admin => "admin",
            Registration::Invite => "invite",
            Registration::Open => "open",
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            registration: Registration::Admin,
            registrations_per_minute: limits::RATE_REGISTRATION_PER_MINUTE,
            min_name_length: limits::NAME_MIN_DEFAULT,
            mail_per_minute: limits::RATE_MAIL_PER_MINUTE,
            max_bytes: limits::ENVELOPE_BYTES_DEFAULT,
            retry_base_ms: limits::RETRY_BASE_MS,
            retry_max_ms: limits::RETRY_MAX_MS,
            give_up_ms: limits::GIVE_UP_MS,
            require_relay: false,
            index: false,
            index_every_ms: limits::INDEX_EVERY_MS,
            outbound_sealed: false,
            fee_bps: limits::FEE_BPS_DEFAULT,
            welcome: 0,
            reclaim_grace_ms: limits::RECLAIM_GRACE_MS,
            review_window_ms: limits::REVIEW_WINDOW_MS,
            arbiter: true,
            on_undecided_at_expiry: OnUndecided::Hold,
            evidence_keep_ms: limits::EVIDENCE_KEEP_MS,
            attachments: Some(limits::ATTACHMENT_HOUSE_BYTES_DEFAULT),
            policy: ProbePolicy::default(),
            capabilities: Capabilities::network(),
            addresses: AddressRule::default(),
        }
    }
}

impl House {
    /// The key that signs the domain's card: the one that others know the house by.
    pub fn card_key(&self) -> &SigningKey {
        self.retiring.as_ref().unwrap_or(&self.key)
    }

    /// Whether this is a key of the house's own, old or new.
    pub fn holds(&self, key: &PublicKey) -> bool {
        std::iter::once(&self.key).chain(&self.retiring).any(|own| own.public() == *key)
    }

    pub fn address(&self, name: SystemName) -> Address {
        self.domain.system(name)
    }

    /// The account that issues tokens and takes fees; the only one that may be negative.
    pub fn casa(&self) -> Address {
        self.address(SystemName::Casa)
    }

    /// A document of the house's own, signed with the domain key.
    pub fn signed(&self, mut doc: Value) -> Value {
        self.key.sign_object(&mut doc, "signature");
        doc
    }

    /// As [`House::signed`], once somebody needs the document.
    pub fn signed_later(&self, make: impl FnOnce() -> Value + Send + 'static) -> Doc {
        Doc::signed_later(self.key.clone(), "signature", make)
    }

    /// A letter's document: from one of the house's own names, signed.
    pub fn letter(&self, draft: crate::wire::envelope::Draft) -> Value {
        self.signed(draft.into_doc())
    }

    pub fn is_mine(&self, address: &Address) -> bool {
        address.is_of(&self.domain)
    }

    /// When the review of what was delivered ends; `None` without a deadline or a delivery.
    pub fn review_ends_of(&self, contract: &Contract) -> Option<Timestamp> {
        Some(self.review_ends(contract.deadline()?, contract.delivered()?))
    }

    /// When silence pays a delivered escrow.
    pub fn review_ends(&self, deadline: Timestamp, delivered: Timestamp) -> Timestamp {
        deadline.max(delivered).plus(self.settings.review_window_ms)
    }
}
