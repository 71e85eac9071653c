//! How contracts and accounts are shown to those who may see them.

use crate::record::{Contract, ContractState, LookRow, Mandate};
use crate::wire::json::canonical;
use serde_json::{Value, json};

/// A contract with `acp`: the same work cycle in the vocabulary that on-chain contracts use.
pub fn contract(contract: &Contract) -> Value {
    let mut doc = contract.to_json();
    if let Some(object) = doc.as_object_mut() {
        let (phase, outcome) = acp(contract.state);
        let acp = json!({"phase": phase, "outcome": outcome, "state": contract.state.as_str()});
        object.insert("acp".into(), acp);
    }
    doc
}

/// The same for its parties: while an arbiter has not decided, what its last look came to and when the next is due. A
/// sandbox that refused to run a job says so in a signed document there.
pub fn watched(of: &Contract, look: Option<&LookRow>) -> Value {
    let mut doc = contract(of);
    if let (Some(object), Some(look)) = (doc.as_object_mut(), look.filter(|look| !look.done && look.last.is_some())) {
        let mut told = look.last.clone().unwrap_or_default();
        told["next"] = json!(look.due);
        object.insert("look".into(), told);
    }
    doc
}

/// An account: its balance, and its contracts and mandates, newest first. Those that would make the document longer than
/// `bytes` are left out, and `truncated` says so.
pub fn account(account: &str, balance: i64, contracts: &[Contract], mandates: &[Mandate], bytes: usize) -> Value {
    let mut left = bytes;
    let mut truncated = false;
    let mut fitting = |docs: &mut dyn Iterator<Item = Value>| -> Vec<Value> {
        let mut kept = Vec::new();
        for doc in docs {
            let size = canonical(&doc).len();
            if size > left {
                truncated = true;
                break;
            }
            left -= size;
            kept.push(doc);
        }
        kept
    };
    let contracts = fitting(&mut contracts.iter().map(contract));
    let mandates = fitting(&mut mandates.iter().map(|mandate| json!(mandate)));
    let mut view = json!({"account": account, "balance": balance, "contracts": contracts, "mandates": mandates});
    if truncated && let Some(object) = view.as_object_mut() {
        object.insert("truncated".into(), true.into());
    }
    view
}

/// Phase and outcome of a state.
pub const fn acp(state: ContractState) -> (&'static str, Option<&'static str>) {
    match state {
        ContractState::Held | ContractState::Posted | ContractState::Active => ("Funded", None),
        ContractState::Delivered => ("Submitted", None),
        ContractState::Released => ("Terminal", Some("accepted")),
        ContractState::Refunded => ("Terminal", Some("returned")),
        ContractState::Settled => ("Terminal", Some("paid")),
        ContractState::Forfeited => ("Terminal", Some("forfeited")),
    }
}
