//! Contracts of a house whose ledger is not ours: what it shows of a contract becomes the arbiter's own record of it, and
//! the work on it begins, begins anew or ends as it would inside the house.
//!
//! Promises: an answer that is older than what is known changes nothing; a contract that has ended stays ended; a look
//! under way on what has changed since is worth nothing, because its row names another delivery. Deliberately absent:
//! money. The record is what a verdict is judged on, never what anybody owns.

use super::{judgeable, look_for};
use crate::record::{Change, Contract, Decision, House, LookRow, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use serde_json::Value;

/// What an answer of the house meant for the arbiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// Not for this arbiter, or nothing new.
    Nothing,
    /// To be looked at.
    Work,
    /// No longer to be judged.
    Ended,
}

/// A contract as a house shows it to its parties. It must be the one that was asked for.
pub fn shown(house: &House, id: &str, mut doc: Value) -> Result<Contract, Refusal> {
    let bad = |why: String| Refusal::new(Rule::BadDocument, format!("the contract {id} as the house shows it: {why}"));
    if let Some(object) = doc.as_object_mut() {
        // Beside the contract, not of it.
        VIEW_FIELDS.iter().for_each(|field| drop(object.remove(*field)));
    }
    let contract = Contract::from_json(doc).ok_or_else(|| bad("it is not a contract".to_owned()))?;
    if contract.id != id {
        return Err(bad(format!("it is {}", contract.id)));
    }
    if contract.house != house.domain {
        return Err(bad(format!("it is of {}, not of {}", contract.house, house.domain)));
    }
    Ok(contract)
}

pub fn follow(house: &House, view: &dyn View, now: Timestamp, contract: &Contract) -> Decision<Followed> {
    if !contract.is_arbitrated_by(&house.domain) {
        return Decision::nothing(Followed::Nothing);
    }
    let known = view.contract(&contract.id);
    let mut changes = Vec::new();
    match &known {
        Some(known) if known.state.terminal() || known.history.len() > contract.history.len() => {
            return Decision::nothing(Followed::Nothing);
        }
        Some(known) if known.history.len() == contract.history.len() && known.state == contract.state => {}
        Some(_) => changes.push(Change::PutContract(contract.clone())),
        None if contract.state.terminal() => return Decision::nothing(Followed::Nothing),
        None => changes.push(Change::InsertContract(contract.clone())),
    }
    let row = view.look(&contract.id);
    if !judgeable(contract) {
        let open = row.filter(|row| !row.done);
        let ended = open.is_some();
        if let Some(row) = open {
            // What a posted verdict stands on is kept; what was only looked at supports nothing.
            if row.posting.is_none() {
                changes.push(Change::ForgetEvidence { contract: contract.id.clone() });
            }
            changes.push(Change::PutLook(LookRow { done: true, lease_until: None, ..row }));
        }
        return Decision { changes, reply: if ended { Followed::Ended } else { Followed::Nothing } };
    }
    let delivery = contract.history.len() as u64;
    if row.is_some_and(|row| row.delivery == delivery) {
        return Decision { changes, reply: Followed::Nothing };
    }
    changes.push(Change::PutLook(look_for(contract, now)));
    Decision { changes, reply: Followed::Work }
}

const VIEW_FIELDS: [&str; 2] = ["acp", "look"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Settings;
    use crate::record::memory::MemoryView;
    use crate::wire::Domain;
    use crate::wire::key::SigningKey;
    use serde_json::json;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn house() -> House {
        House {
            domain: Domain::parse("mar.example").expect("domain"),
            public_url: "http://127.0.0.1:1".into(),
            host: "127.0.0.1:1".into(),
            key: SigningKey::from_seed([1; 32]),
            retiring: None,
            settings: Settings::default(),
        }
    }

    fn doc(state: &str, steps: usize) -> Value {
        json!({
            "id": "contract-1", "kind": "escrow", "house": "mar.example", "seller": "leo@b.example",
            "buyer": "ana@a.example", "amount": 200, "arbiter": "verifica@mar.example", "state": state,
            "terms": {"verify": [{"type": "http_status", "url": "https://seller.example/"}]},
            "created": NOW, "updated": NOW, "history": vec![json!({"op": "step"}); steps],
            "acp": {"phase": "Submitted"}, "look": {"reason": "the house's own view"},
        })
    }

    fn told(view: &mut MemoryView, doc: Value) -> Followed {
        let contract = shown(&house(), "contract-1", doc).expect("contract");
        let decision = follow(&house(), view, NOW, &contract);
        view.apply(decision.changes).expect("applied");
        decision.reply
    }

    #[test]
    fn work_begins_once_begins_anew_with_a_delivery_and_ends_with_the_contract() {
        let mut view = MemoryView::new();
        assert_eq!(told(&mut view, doc("held", 1)), Followed::Nothing);
        assert!(view.look("contract-1").is_none());
        assert_eq!(told(&mut view, doc("delivered", 2)), Followed::Work);
        assert_eq!(told(&mut view, doc("delivered", 2)), Followed::Nothing);
        assert_eq!(view.look("contract-1").map(|row| row.delivery), Some(2));
        assert_eq!(told(&mut view, doc("delivered", 3)), Followed::Work);
        // An answer that was long under way says nothing about now.
        assert_eq!(told(&mut view, doc("delivered", 2)), Followed::Nothing);
        assert_eq!(view.look("contract-1").map(|row| (row.delivery, row.done)), Some((3, false)));
        assert_eq!(told(&mut view, doc("released", 4)), Followed::Ended);
        assert_eq!(view.look("contract-1").map(|row| row.done), Some(true));
        for (state, steps) in [("delivered", 3), ("delivered", 5), ("released", 4)] {
            assert_eq!(told(&mut view, doc(state, steps)), Followed::Nothing);
            assert_eq!(view.look("contract-1").map(|row| row.done), Some(true), "{state} {steps}");
        }
    }

    #[test]
    fn a_contract_that_ended_before_it_was_known_or_is_not_for_this_arbiter_is_no_work() {
        let mut view = MemoryView::new();
        assert_eq!(told(&mut view, doc("refunded", 3)), Followed::Nothing);
        for (field, value) in [
            ("arbiter", json!("verifica@b.example")),
            ("arbiter", json!("eva@mar.example")),
            ("arbiter", json!(null)),
            ("terms", json!({})),
            ("kind", json!("spot")),
        ] {
            let mut other = doc("delivered", 2);
            other[field] = value;
            assert_eq!(told(&mut view, other), Followed::Nothing, "{field}");
        }
        assert!(view.contract("contract-1").is_none() && view.look("contract-1").is_none());
    }

    #[test]
    fn an_answer_about_another_contract_or_house_is_refused_and_the_view_of_it_is_not_kept() {
        let contract = shown(&house(), "contract-1", doc("delivered", 2)).expect("contract");
        assert!(!contract.more.contains_key("acp") && !contract.more.contains_key("look"));
        assert!(shown(&house(), "contract-2", doc("delivered", 2)).is_err());
        let mut foreign = doc("delivered", 2);
        foreign["house"] = json!("b.example");
        assert!(shown(&house(), "contract-1", foreign).is_err());
        for broken in [json!(null), json!([]), json!({"id": "contract-1"})] {
            assert!(shown(&house(), "contract-1", broken).is_err());
        }
    }

    #[test]
    fn what_a_posted_verdict_stands_on_outlives_the_contract() {
        let mut view = MemoryView::new();
        told(&mut view, doc("delivered", 2));
        let row = view.look("contract-1").expect("row");
        let posting = Some(json!({"id": "the verdict"}));
        view.apply(vec![Change::PutLook(LookRow { posting: posting.clone(), ..row })]).expect("applied");
        let contract = shown(&house(), "contract-1", doc("released", 3)).expect("contract");
        let decision = follow(&house(), &view, NOW, &contract);
        assert!(!decision.changes.iter().any(|change| matches!(change, Change::ForgetEvidence { .. })));
        view.apply(decision.changes).expect("applied");
        assert_eq!(view.look("contract-1").map(|row| (row.done, row.posting)), Some((true, posting)));
    }
}
