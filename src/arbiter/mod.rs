//! The arbiter's rules: which contracts to look at, when to look again, and what to post.
//!
//! A look is a row with a due time. It comes to be in the transaction that makes a contract judgeable and ends in the
//! transaction that ends the contract, so no crash leaves a contract unwatched or a verdict posted twice. A verdict
//! leaves the house only when two looks agree; everything else is *undecided*: the row comes round again, later and
//! later, and nothing moves.

pub mod follow;
pub mod schedule;
pub mod settle;
pub mod silence;

use crate::record::look::Unreached;
use crate::record::{Contract, ContractState, LookRow};
use crate::time::Timestamp;

/// The work on a contract that has just become judgeable: look at once.
pub fn look_for(contract: &Contract, now: Timestamp) -> LookRow {
    LookRow {
        contract: contract.id.clone(),
        delivery: contract.history.len() as u64,
        seller: contract.seller.to_string(),
        due: now,
        lease_until: None,
        attempts: 0,
        first: None,
        posting: None,
        last: None,
        unreached: Unreached::default(),
        created: now,
        done: false,
    }
}

/// Whether a contract in this state is to be looked at, once its terms name this arbiter and tests.
pub fn judgeable(contract: &Contract) -> bool {
    match contract.state {
        ContractState::Delivered => true,
        ContractState::Held => contract.looks_while_held(),
        _ => false,
    }
}
