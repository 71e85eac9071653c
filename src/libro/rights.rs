//! Who may do what, in which state: one table for every operation on a contract, read by one function.
//!
//! The order of answers is the protocol's: another kind of contract is 409, somebody without the right is 403, the right
//! in another state is 409. Where a right exists in one state only and lapses afterwards, its holder is answered 403, as
//! if he had never had it.

use crate::record::{Contract, ContractState, House};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::{Address, SystemName};
use crate::wire::quote::ContractKind;

/// An operation that a contract undergoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Deliver,
    Release,
    Refund,
    Reclaim,
    Expire,
    Forfeit,
}

impl Act {
    pub const ALL: [Act; 6] = [Act::Deliver, Act::Release, Act::Refund, Act::Reclaim, Act::Expire, Act::Forfeit];

    pub const fn as_str(self) -> &'static str {
        match self {
            Act::Deliver => "deliver",
            Act::Release => "release",
            Act::Refund => "refund",
            Act::Reclaim => "reclaim",
            Act::Expire => "expire",
            Act::Forfeit => "forfeit",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Buyer,
    Seller,
    Arbiter,
    Verifier,
    /// `libro@` of this house: its clock.
    Clock,
}

/// What somebody is answered who has the right in another state than this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Otherwise {
    WrongState,
    NoRight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// Once the contract's own `expires` has passed.
    Expired,
}

struct Right {
    kind: ContractKind,
    act: Act,
    role: Role,
    states: &'static [ContractState],
    when: When,
    otherwise: Otherwise,
}

/// May this address do this to this contract now?
pub fn may(act: Act, contract: &Contract, sender: &Address, house: &House, now: Timestamp) -> Result<(), Refusal> {
    let kind = contract.kind();
    let of_kind = || RIGHTS.iter().filter(|right| right.kind == kind && right.act == act);
    if of_kind().next().is_none() {
        return Err(Refusal::new(
            Rule::WrongKind,
            format!("{} does not apply to a contract of the kind {}", act.as_str(), kind.as_str()),
        ));
    }
    let mut answer = Otherwise::NoRight;
    for right in of_kind() {
        if !holds(right.role, contract, sender, house) || !due(right.when, contract, now) {
            continue;
        }
        if right.states.contains(&contract.state) {
            return Ok(());
        }
        if right.otherwise == Otherwise::WrongState {
            answer = Otherwise::WrongState;
        }
    }
    let state = contract.state.as_str();
    Err(match answer {
        Otherwise::WrongState => Refusal::new(Rule::WrongState, wrong_state(act, contract.state, state)),
        Otherwise::NoRight => Refusal::new(
            Rule::NotAParty,
            format!("{sender} may not {} this {} {}", act.as_str(), kind.as_str(), who_may(kind, act)),
        ),
    })
}

fn holds(role: Role, contract: &Contract, sender: &Address, house: &House) -> bool {
    match role {
        Role::Buyer => contract.buyer.as_ref() == Some(sender),
        Role::Seller => &contract.seller == sender,
        Role::Arbiter => contract.arbiter.as_ref() == Some(sender),
        Role::Verifier => contract.verifier.as_ref() == Some(sender),
        Role::Clock => sender.is_system(&house.domain, SystemName::Libro),
    }
}

fn due(when: When, contract: &Contract, now: Timestamp) -> bool {
    match when {
        When::Always => true,
        When::Expired => contract.expires().is_some_and(|at| at <= now),
    }
}

fn wrong_state(act: Act, state: ContractState, text: &str) -> String {
    match (act, state) {
        (Act::Reclaim, ContractState::Delivered) => {
            "the seller has delivered: an undelivered escrow can be reclaimed, this one can be released".into()
        }
        (_, state) if state.terminal() => format!("the contract has ended: it is {text}"),
        _ => format!("{} does not apply while the contract is {text}", act.as_str()),
    }
}

fn who_may(kind: ContractKind, act: Act) -> &'static str {
    match (kind, act) {
        (ContractKind::Escrow, Act::Deliver) => "(the seller may)",
        (ContractKind::Escrow, Act::Release) => "(the buyer or the arbiter may)",
        (ContractKind::Escrow, Act::Refund) => "(the seller or the arbiter may, and the buyer before a delivery)",
        (ContractKind::Escrow, Act::Reclaim) => "(the buyer may)",
        (ContractKind::Escrow, Act::Expire) => "(only the clock of the house may)",
        (ContractKind::Bond, Act::Release) => {
            "(the verifier or the arbiter may, and who posted it once it has expired)"
        }
        (ContractKind::Bond, Act::Forfeit) => "(the verifier or the arbiter may)",
        _ => "here",
    }
}

const fn right(kind: ContractKind, act: Act, role: Role, states: &'static [ContractState]) -> Right {
    Right { kind, act, role, states, when: When::Always, otherwise: Otherwise::WrongState }
}

const OPEN: &[ContractState] = &[ContractState::Held, ContractState::Delivered];
const HELD: &[ContractState] = &[ContractState::Held];
const DELIVERED: &[ContractState] = &[ContractState::Delivered];
const POSTED: &[ContractState] = &[ContractState::Posted];

const RIGHTS: &[Right] = &[
    right(ContractKind::Escrow, Act::Deliver, Role::Seller, HELD),
    right(ContractKind::Escrow, Act::Release, Role::Buyer, OPEN),
    right(ContractKind::Escrow, Act::Release, Role::Arbiter, OPEN),
    right(ContractKind::Escrow, Act::Refund, Role::Seller, OPEN),
    right(ContractKind::Escrow, Act::Refund, Role::Arbiter, OPEN),
    Right { otherwise: Otherwise::NoRight, ..right(ContractKind::Escrow, Act::Refund, Role::Buyer, HELD) },
    right(ContractKind::Escrow, Act::Reclaim, Role::Buyer, HELD),
    right(ContractKind::Escrow, Act::Expire, Role::Clock, DELIVERED),
    right(ContractKind::Bond, Act::Release, Role::Verifier, POSTED),
    right(ContractKind::Bond, Act::Release, Role::Arbiter, POSTED),
    Right { when: When::Expired, ..right(ContractKind::Bond, Act::Release, Role::Seller, POSTED) },
    right(ContractKind::Bond, Act::Forfeit, Role::Verifier, POSTED),
    right(ContractKind::Bond, Act::Forfeit, Role::Arbiter, POSTED),
];
