//! Whether a mailbox takes an envelope: its owner's lists and policy, read in one place for every door.
//!
//! Order: who is blocked; what the sender's own domain promised; then the policy. A policy that this house does not know
//! admits nobody.

use crate::limits;
use crate::record::{Contract, ContractState, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::{Address, Domain, SystemName};
use crate::wire::card::{Inbox, InboxPolicy};
use crate::wire::envelope::{Envelope, Kind};
use crate::wire::pow;
use crate::wire::quote::ContractKind;
use serde_json::Value;

/// By what an envelope comes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Welcome {
    Free,
    /// Somebody on the allowlist stands for the sender with a bond.
    Vouched {
        voucher: Address,
        bond: String,
    },
    /// Once this price is paid.
    Stamp {
        price: u64,
    },
}

pub const VOUCH_URN: &str = "urn:nyx5:ext:aval";

pub fn welcome(
    view: &dyn View,
    now: Timestamp,
    house: &Domain,
    inbox: &Inbox,
    to: &Address,
    envelope: &Envelope,
    promised_sealed: bool,
) -> Result<Welcome, Refusal> {
    let from = &envelope.from;
    // What an agent writes to itself is not a stranger's mail.
    let oneself = from == to;
    if !oneself && inbox.blocks(from) {
        return Err(Refusal::new(Rule::Blocked, "this mailbox does not take mail from this sender"));
    }
    if promised_sealed && !envelope.is_sealed() && !houses_notice(envelope) {
        let reason = format!("{} promises that everything it sends is sealed, and this is not", from.domain());
        return Err(Refusal::new(Rule::MustBeSealed, reason));
    }
    if oneself {
        return Ok(Welcome::Free);
    }
    let listed = inbox.lists(from);
    match &inbox.policy {
        InboxPolicy::Open => Ok(Welcome::Free),
        InboxPolicy::Allowlist | InboxPolicy::Pow { .. } | InboxPolicy::Stamp { .. } if listed => Ok(Welcome::Free),
        InboxPolicy::Allowlist if envelope.kind == Kind::Intro && envelope.bytes <= limits::INTRO_BYTES_MAX => {
            Ok(Welcome::Free)
        }
        InboxPolicy::Allowlist => match envelope.extension(VOUCH_URN) {
            Some(vouch) => vouched(view, now, inbox, to, envelope, vouch),
            None => Err(Refusal::new(
                Rule::NotListed,
                format!(
                    "this mailbox takes mail from its list, an intro of up to {} bytes, or a bonded vouch",
                    limits::INTRO_BYTES_MAX
                ),
            )),
        },
        InboxPolicy::Pow { bits } if pow::suffices(&envelope.id, envelope.field("pow"), *bits) => Ok(Welcome::Free),
        InboxPolicy::Pow { bits } => {
            let reason = format!("this mailbox asks for a proof of work of {bits} bits over <id>:<nonce>");
            Err(Refusal::new(Rule::ProofOfWorkMissing, reason).pow_bits(*bits))
        }
        InboxPolicy::Stamp { house: Some(other), .. } if other != house => {
            let reason = format!("this mailbox asks for stamps of {other}, which are not paid here");
            Err(Refusal::new(Rule::StampMissing, reason))
        }
        InboxPolicy::Stamp { price, .. } => Ok(Welcome::Stamp { price: (*price).max(1) }),
        InboxPolicy::Unknown(_) => {
            Err(Refusal::new(Rule::UnknownPolicy, "this mailbox has a policy that this house does not know"))
        }
    }
}

/// What a house itself reports, of deliveries and of its ledger, is in clear always; it seals for nobody. The name is
/// the house's own: its key is the domain's.
fn houses_notice(envelope: &Envelope) -> bool {
    let (from, domain) = (&envelope.from, envelope.from.domain());
    let own_voice = [SystemName::Postmaster, SystemName::Libro].iter().any(|name| from.is_system(&domain, *name));
    own_voice && envelope.kind == Kind::Receipt
}

/// The bond must be standing, posted by the voucher for this sender, and this recipient must judge and receive it.
fn vouched(
    view: &dyn View,
    now: Timestamp,
    inbox: &Inbox,
    to: &Address,
    envelope: &Envelope,
    vouch: &Value,
) -> Result<Welcome, Refusal> {
    let refused = |reason: &str| Err(Refusal::new(Rule::NotListed, reason));
    let text = |field: &str| vouch.get(field).and_then(Value::as_str);
    let voucher = text("voucher").and_then(|voucher| Address::parse(voucher).ok());
    let (Some(voucher), Some(id)) = (voucher, text("bond")) else {
        return refused("the vouch must be {voucher: an address, bond: the id of a bond}");
    };
    if !inbox.lists(&voucher) || inbox.blocks(&voucher) {
        return refused("the voucher is not on this mailbox's list");
    }
    let Some(bond) = view.contract(id).filter(|contract| contract.kind() == ContractKind::Bond) else {
        return refused("the vouch names no bond in the ledger of this house");
    };
    if bond.state != ContractState::Posted || expires(&bond).is_some_and(|at| at <= now) {
        return refused("the bond of the vouch is not standing any more");
    }
    let named = |field: &str| bond.more.get(field).and_then(Value::as_str);
    let mine = named("beneficiary") == Some(to.as_str()) && bond.verifier.as_ref() == Some(to);
    if bond.seller != voucher || named("vouchee") != Some(envelope.from.as_str()) || !mine {
        return refused("the bond of the vouch is not by this voucher, for this sender and towards this mailbox");
    }
    Ok(Welcome::Vouched { voucher, bond: id.to_owned() })
}

fn expires(bond: &Contract) -> Option<Timestamp> {
    bond.more.get("expires").and_then(Value::as_str).and_then(Timestamp::parse)
}
