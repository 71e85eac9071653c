//! What becomes of a delivered contract when the judged hosts answer nothing for the whole of its review.
//!
//! No look decides such a contract, so nothing moves while the review lasts. When it is over the operator is told, once.
//! Where the house chose `on_undecided_at_expiry = refund`, the arbiter then gives the tokens back, but only if every
//! look since the delivery was undecided by the judged hosts alone while a control page answered, with no long time
//! between two looks: a fault of this house or of its network refunds nobody.

use crate::limits::{UNREACHED_GAP_MS, UNREACHED_LOOKS_MIN};
use crate::probe::observation::Cause;
use crate::probe::result::Outcome;
use crate::record::house::OnUndecided;
use crate::record::look::Unreached;
use crate::record::{Contract, House, LookRow};
use crate::time::Timestamp;
use crate::verdict::Look;

/// What an undecided look leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The review lasts, or never ends by itself.
    Wait,
    /// The review is over and nothing moves: the operator is told now.
    Tell,
    /// The review is over and the judged hosts never answered: the tokens go back.
    Refund,
}

/// Whether nothing but the judged hosts kept this look from deciding. `control` says whether a page that has nothing to
/// do with them answered at the same time.
pub fn only_the_hosts(look: &Look, control: bool) -> bool {
    let mut causes = look.results.iter().filter_map(|result| match result.outcome {
        Outcome::Undecided(cause) => Some(cause),
        Outcome::Pass | Outcome::Fail => None,
    });
    let first = causes.next();
    control && first.into_iter().chain(causes).all(of_the_host) && first.is_some()
}

/// The record of the looks since the delivery, with one more.
pub fn with_look(row: &LookRow, now: Timestamp, only_the_hosts: bool) -> Unreached {
    let before = row.unreached;
    let last = if before.looks == 0 { row.created } else { before.last };
    let in_time = (0..=UNREACHED_GAP_MS).contains(&now.since(last));
    Unreached {
        looks: before.looks.saturating_add(1),
        last: now,
        broken: before.broken || !only_the_hosts || !in_time,
        told: before.told,
    }
}

/// A look that decided something, or could not be posted: the hosts were reached.
pub fn reached(row: &LookRow) -> Unreached {
    Unreached { broken: true, ..row.unreached }
}

pub fn turn(house: &House, contract: &Contract, now: Timestamp, looks: Unreached) -> Turn {
    if house.review_ends_of(contract).is_none_or(|ends| now < ends) {
        return Turn::Wait;
    }
    let unbroken = !looks.broken && looks.looks >= UNREACHED_LOOKS_MIN;
    match house.settings.on_undecided_at_expiry {
        OnUndecided::Refund if unbroken => Turn::Refund,
        OnUndecided::Refund | OnUndecided::Hold if !looks.told => Turn::Tell,
        _ => Turn::Wait,
    }
}

fn of_the_host(cause: Cause) -> bool {
    matches!(cause, Cause::Network | Cause::Origin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbiter::look_for;
    use crate::arbiter::settle::{self, Step};
    use crate::ids::Ids;
    use crate::limits::LOOK_LEASE_MS;
    use crate::probe::result::{Evidence, TestResult};
    use crate::record::memory::MemoryView;
    use crate::record::{Change, Settings, View};
    use crate::verdict::Looked;
    use crate::wire::Domain;
    use crate::wire::key::SigningKey;
    use serde_json::json;
    use std::collections::BTreeMap;

    const HOUR: i64 = 3_600_000;
    const NETWORK: Outcome = Outcome::Undecided(Cause::Network);
    const ORIGIN: Outcome = Outcome::Undecided(Cause::Origin);

    struct Scene {
        house: House,
        view: MemoryView,
        ids: Ids,
        now: Timestamp,
        told: usize,
    }

    impl Scene {
        /// A contract delivered at its deadline, with a review of 72 hours.
        fn new(mode: OnUndecided) -> Scene {
            let house = House {
                domain: Domain::parse("mar.example").expect("domain"),
                public_url: "http://127.0.0.1:1".into(),
                host: "127.0.0.1:1".into(),
                key: SigningKey::from_seed([1; 32]),
                retiring: None,
                settings: Settings { on_undecided_at_expiry: mode, ..Settings::default() },
            };
            let now = Timestamp::from_millis(1_800_000_000_000);
            let contract = json!({
                "id": "contract-1", "kind": "escrow", "house": "mar.example", "seller": "leo@b.example",
                "buyer": "ana@a.example", "amount": 200, "arbiter": "verifica@mar.example", "state": "delivered",
                "terms": {"deadline": now, "verify": [{"type": "http_status", "url": "https://seller.example/"}]},
                "created": now, "updated": now, "history": [{"op": "accept", "at": now}, {"op": "deliver", "at": now}],
            });
            let contract = Contract::from_json(contract).expect("contract");
            let mut view = MemoryView::new();
            let row = look_for(&contract, now);
            view.apply(vec![Change::InsertContract(contract), Change::PutLook(row)]).expect("applied");
            Scene { house, view, ids: Ids::from_seed([2; 32]), now, told: 0 }
        }

        fn look(&mut self, outcomes: &[Outcome], control: bool) -> Step {
            let row = self.view.look("contract-1").expect("row");
            let row = LookRow { lease_until: Some(self.now.plus(LOOK_LEASE_MS)), ..row };
            self.view.apply(vec![Change::PutLook(row.clone())]).expect("applied");
            let result = |outcome: &Outcome| TestResult {
                outcome: *outcome,
                test_type: "http_status".into(),
                name: None,
                reason: "no answer".into(),
                evidence: Evidence::new(),
            };
            let look = Look::new(self.now, outcomes.iter().map(result).collect(), &BTreeMap::new());
            let looked = Looked { look, seen: BTreeMap::new(), attestations: Vec::new() };
            let (house, now) = (&self.house, self.now);
            let decision = settle::settle(house, &self.view, now, &mut self.ids, &row, &looked, control);
            let events = decision.changes.iter().filter(|change| matches!(change, Change::Event { .. }));
            self.told += events.count();
            self.view.commit(decision).expect("applied")
        }

        /// Looks every hour for so many hours; how the last one ended.
        fn hours(&mut self, hours: i64, outcomes: &[Outcome], control: bool) -> Step {
            let mut last = Step::Stale;
            for _ in 0..hours {
                self.now = self.now.plus(HOUR);
                last = self.look(outcomes, control);
            }
            last
        }
    }

    #[test]
    fn a_host_that_never_answered_in_the_whole_review_is_refunded_where_the_house_chose_so() {
        let mut scene = Scene::new(OnUndecided::Refund);
        for outcomes in [&[NETWORK][..], &[ORIGIN], &[Outcome::Pass, NETWORK], &[ORIGIN, NETWORK]] {
            assert!(matches!(scene.hours(17, outcomes, true), Step::Undecided { .. }));
        }
        // 68 hours are over; the review lasts 72.
        assert!(matches!(scene.hours(3, &[NETWORK], true), Step::Undecided { .. }));
        let Step::Post(envelope) = scene.hours(1, &[NETWORK], true) else { panic!("no refund at the end") };
        let body = &envelope["content"]["body"];
        assert_eq!((body["op"].as_str(), body["contract"].as_str()), (Some("refund"), Some("contract-1")));
        assert!(body.get("veredicto").is_none(), "nothing was decided: {body}");
        assert!(body["note"].as_str().is_some_and(|note| note.contains("72 looks")), "{body}");
        assert!(scene.house.key.public().verify_object(&envelope, "signature"));
        assert_eq!(scene.view.look("contract-1").and_then(|row| row.posting), Some(envelope));
    }

    #[test]
    fn one_look_that_was_not_the_hosts_fault_keeps_everything_where_it_is() {
        let spoilers: [(&[Outcome], bool); 7] = [
            (&[NETWORK], false),
            (&[Outcome::Undecided(Cause::Ours)], true),
            (&[Outcome::Undecided(Cause::Host), NETWORK], true),
            (&[Outcome::Undecided(Cause::Edge)], true),
            (&[Outcome::Undecided(Cause::Contract)], true),
            (&[Outcome::Pass], true),
            (&[Outcome::Fail], true),
        ];
        for (outcomes, control) in spoilers {
            let mut scene = Scene::new(OnUndecided::Refund);
            scene.hours(40, &[NETWORK], true);
            scene.hours(1, outcomes, control);
            assert!(matches!(scene.hours(100, &[NETWORK], true), Step::Undecided { .. }), "{outcomes:?} {control}");
            assert_eq!(scene.told, 1, "the operator is told once: {outcomes:?}");
        }
    }

    #[test]
    fn a_time_without_looks_or_too_few_of_them_refund_nobody() {
        for (gap, refunds) in [(UNREACHED_GAP_MS, true), (UNREACHED_GAP_MS + 1, false), (-1, false)] {
            let mut scene = Scene::new(OnUndecided::Refund);
            scene.hours(40, &[NETWORK], true);
            scene.now = scene.now.plus(gap - HOUR);
            let last = scene.hours(33, &[NETWORK], true);
            assert_eq!(matches!(last, Step::Post(_)), refunds, "{gap}");
        }
        let mut scene = Scene::new(OnUndecided::Refund);
        scene.house.settings.review_window_ms = 0;
        let few = i64::from(UNREACHED_LOOKS_MIN) - 1;
        assert!(matches!(scene.hours(few, &[NETWORK], true), Step::Undecided { .. }));
        assert!(matches!(scene.hours(1, &[NETWORK], true), Step::Post(_)));
    }

    #[test]
    fn without_that_choice_nothing_moves_and_the_operator_is_told_once_when_the_review_is_over() {
        let mut scene = Scene::new(OnUndecided::Hold);
        scene.hours(71, &[NETWORK], true);
        assert_eq!(scene.told, 0);
        assert!(matches!(scene.hours(200, &[NETWORK], true), Step::Undecided { .. }));
        assert_eq!(scene.told, 1);
        // Where silence pays, the clock of the ledger ends the contract.
        let mut scene = Scene::new(OnUndecided::Expire);
        assert!(matches!(scene.hours(200, &[NETWORK], true), Step::Undecided { .. }));
        assert_eq!(scene.told, 0);
    }
}
