//! Random histories: whatever agents try, the books stay true.

use crate::mirror::Mirror;
use crate::world::{DAY, World, at};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use verifica::libro::statement::{Range, Statement};
use verifica::record::View;
use verifica::time::Timestamp;
use verifica::wire::envelope::Verified;

const HANDS: [&str; 5] = ["ana", "leo", "eva", "abi", "fox"];

#[derive(Clone, Debug)]
enum Step {
    Accept { buyer: usize, seller: usize, arbiter: usize, kind: usize, price: u64, share: u64, deadline: bool },
    On { who: usize, what: usize, which: usize },
    Bond { who: usize, verifier: usize, beneficiary: usize, amount: u64 },
    Mandate { who: usize, grantee: usize, parent: Option<usize>, cap: u64, most: Option<u64> },
    Charge { who: usize, which: usize, amount: u64 },
    Revoke { who: usize, which: usize },
    Pay { who: usize, to: usize, amount: u64 },
    Again { which: usize },
    Wait { hours: i64 },
}

fn step() -> impl Strategy<Value = Step> {
    let hand = 0..HANDS.len();
    let tokens = prop_oneof![1..400u64, 1..20u64];
    prop_oneof![
        4 => (hand.clone(), hand.clone(), hand.clone(), 0..3usize, tokens.clone(), 0..9_500u64, any::<bool>())
            .prop_map(|(buyer, seller, arbiter, kind, price, share, deadline)| Step::Accept {
                buyer, seller, arbiter, kind, price, share, deadline
            }),
        8 => (0..6usize, 0..6usize, 0..40usize).prop_map(|(who, what, which)| Step::On { who, what, which }),
        1 => (hand.clone(), hand.clone(), hand.clone(), tokens.clone())
            .prop_map(|(who, verifier, beneficiary, amount)| Step::Bond { who, verifier, beneficiary, amount }),
        2 => (hand.clone(), hand.clone(), proptest::option::of(0..10usize), tokens.clone(), proptest::option::of(1..50u64))
            .prop_map(|(who, grantee, parent, cap, most)| Step::Mandate { who, grantee, parent, cap, most }),
        3 => (hand.clone(), 0..10usize, tokens.clone()).prop_map(|(who, which, amount)| Step::Charge { who, which, amount }),
        1 => (hand.clone(), 0..10usize).prop_map(|(who, which)| Step::Revoke { who, which }),
        2 => (hand.clone(), hand, tokens).prop_map(|(who, to, amount)| Step::Pay { who, to, amount }),
        2 => (0..60usize).prop_map(|which| Step::Again { which }),
        2 => (1..100i64).prop_map(|hours| Step::Wait { hours }),
    ]
}

/// What a history has made so far.
#[derive(Default)]
struct Made {
    contracts: Vec<String>,
    mandates: Vec<String>,
    applied: Vec<(Verified, Value)>,
}

fn body(world: &World, made: &Made, step: &Step) -> Option<(&'static str, Value)> {
    let pick = |list: &Vec<String>, which: usize| list.get(which % list.len().max(1)).cloned();
    Some(match step {
        Step::Accept { buyer, seller, arbiter, kind, price, share, deadline } => {
            let kind = ["spot", "escrow", "metered"][*kind];
            let mut more = Vec::new();
            if *arbiter < 3 {
                more.push(("arbiter".to_owned(), json!(at(HANDS[*arbiter]))));
            }
            if *share > 0 && share % 2 == 0 {
                more.push(("referrer".to_owned(), json!({"address": at(HANDS[arbiter % 4]), "share": share})));
            }
            if *deadline {
                more.push(("terms".to_owned(), json!({"deadline": world.now.plus(DAY)})));
            }
            let name = format!("{}", made.applied.len() + world.sent as usize * 1000);
            let quote = world.quote(&name, HANDS[*seller], HANDS[*buyer], kind, *price, &more);
            (HANDS[*buyer], json!({"op": "accept", "quote": quote}))
        }
        Step::On { who, what, which } => {
            let who = if *who == HANDS.len() { "libro" } else { HANDS[*who] };
            let op = ["deliver", "release", "refund", "reclaim", "expire", "forfeit"][*what];
            (who, json!({"op": op, "contract": pick(&made.contracts, *which)?}))
        }
        Step::Bond { who, verifier, beneficiary, amount } => (
            HANDS[*who],
            json!({"op": "bond", "amount": amount, "claim": "so it is", "verifier": at(HANDS[*verifier]),
                "beneficiary": at(HANDS[*beneficiary])}),
        ),
        Step::Mandate { who, grantee, parent, cap, most } => {
            let mut body = json!({"op": "mandate", "grantee": at(HANDS[*grantee]), "cap": cap});
            if let Some(parent) = parent {
                body["parent"] = json!(pick(&made.mandates, *parent)?);
            }
            if let Some(most) = most {
                body["scope"] = json!({"max_per_charge": most});
            }
            (HANDS[*who], body)
        }
        Step::Charge { who, which, amount } => {
            (HANDS[*who], json!({"op": "charge", "mandate": pick(&made.mandates, *which)?, "amount": amount}))
        }
        Step::Revoke { who, which } => (HANDS[*who], json!({"op": "revoke", "mandate": pick(&made.mandates, *which)?})),
        Step::Pay { who, to, amount } => (HANDS[*who], json!({"op": "pay", "to": at(HANDS[*to]), "amount": amount})),
        Step::Again { .. } | Step::Wait { .. } => return None,
    })
}

/// Everything that must hold between any two operations.
fn check(world: &World) {
    assert_eq!(world.view.balances().values().map(|b| i128::from(*b)).sum::<i128>(), 0, "balances sum to zero");
    for (account, balance) in world.view.balances() {
        assert!(*balance >= 0 || account == "casa@a.example", "{account} is at {balance}");
    }
    let mut folded: BTreeMap<&str, i64> = BTreeMap::new();
    for (i, entry) in world.view.journal().enumerate() {
        assert_eq!(entry.n, i as u64 + 1, "numbers have no gap");
        assert!(world.house.key.public().verify_object(&entry.doc, "signature"));
        for line in &entry.lines {
            *folded.entry(&line.account).or_default() += line.delta;
        }
    }
    for (account, balance) in folded {
        assert_eq!(world.view.balance(account), balance, "{account} is the sum of its lines");
    }
    for contract in world.view.contracts() {
        let endings = contract.history.iter().filter(|item| {
            matches!(item["op"].as_str(), Some("release" | "refund" | "reclaim" | "expire" | "forfeit"))
        });
        let endings = endings.count();
        let instant = contract.kind().as_str() == "spot";
        assert_eq!(endings, usize::from(contract.state.terminal() && !instant), "{contract:?}");
        let held = world.view.balance(&contract.escrow_account());
        let open = !contract.state.terminal() && contract.kind().as_str() != "metered";
        assert_eq!(held, if open { contract.amount as i64 } else { 0 }, "what {} holds", contract.id);
    }
}

fn statements_add_up(world: &World, cuts: &[Timestamp]) {
    for account in world.view.balances().keys() {
        let mut ranges = vec![(None, None)];
        for cut in cuts {
            ranges.extend([(Some(*cut), None), (None, Some(*cut)), (Some(cut.minus(20 * 3_600_000)), Some(*cut))]);
        }
        for (since, until) in ranges {
            for limit in [1, 3, 1000] {
                let range = Range { since, until, limit };
                let page = world.view.account_page(account, since, until, limit);
                let balance = world.view.balance(account);
                let statement = Statement::of(account, &world.house, &page, &range, balance);
                let doc = statement.to_json();
                let number = |value: &Value| value.as_i64().expect("number");
                let totals = &doc["totals"];
                assert_eq!(
                    number(&doc["opening_balance"]) + number(&totals["in"]) - number(&totals["out"]),
                    number(&doc["closing_balance"]),
                    "{account} {range:?}"
                );
                if until.is_none() && (since.is_none() || !page.entries.is_empty()) {
                    assert_eq!(doc["reconciled"], true, "{account} {range:?}: {doc}");
                }
                let raw: i64 =
                    page.entries.iter().flat_map(|e| &e.lines).filter(|l| &l.account == account).map(|l| l.delta).sum();
                assert_eq!(page.opening + raw, statement.closing);
                assert_eq!(statement.to_csv().lines().count(), 1 + doc["entries"].as_array().map_or(0, Vec::len));
            }
        }
    }
}

/// Lives a history, checking after every step; gives the instants at which the clock stood.
fn live(world: &mut World, steps: &[Step]) -> Vec<Timestamp> {
    for hand in HANDS {
        world.topup(hand, 1000);
    }
    let mut made = Made::default();
    let mut receipted: BTreeSet<String> = BTreeSet::new();
    let mut cuts = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        match step {
            Step::Wait { hours } => {
                world.now = world.now.plus(hours * 3_600_000);
                cuts.push(world.now);
            }
            Step::Again { which } => {
                let Some((op, result)) = made.applied.get(which % made.applied.len().max(1)).cloned() else { continue };
                let before = (world.view.journal_last(), world.view.balances().clone());
                let again = world.apply(&op).expect("a repetition is answered");
                assert!(again.duplicate && again.letters.is_empty());
                assert_eq!(again.result, result);
                assert_eq!((world.view.journal_last(), world.view.balances().clone()), before);
            }
            other => {
                let Some((who, body)) = body(world, &made, other) else { continue };
                let op = world.envelope(who, &format!("operation-{i}"), body);
                let Ok(operated) = world.apply(&op) else { continue };
                for (field, list) in [("contract", &mut made.contracts), ("mandate", &mut made.mandates)] {
                    if let Some(id) = operated.result[field]["id"].as_str()
                        && !list.iter().any(|known| known == id)
                    {
                        list.push(id.to_owned());
                        world.named.insert(id.to_owned(), id.to_owned());
                    }
                }
                for letter in &operated.letters {
                    assert!(world.house.key.public().verify_object(&letter.doc, "signature"));
                    if let Some(id) = letter.doc["content"]["body"]["asiento"]["id"].as_str() {
                        receipted.insert(id.to_owned());
                    }
                }
                assert!(!operated.letters.is_empty() || operated.result.get("revoked").is_some());
                made.applied.push((op, operated.result.into_value()));
            }
        }
        check(world);
    }
    for entry in world.view.journal() {
        let moves = !entry.lines.is_empty() && entry.doc["meta"]["kind"] != "topup";
        assert!(!moves || receipted.contains(&entry.id), "no receipt for {}", entry.doc);
    }
    cuts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_books_stay_true_whatever_is_tried(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        let cuts = live(&mut world, &steps);
        statements_add_up(&world, &cuts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_durable_store_remembers_what_the_model_does(steps in proptest::collection::vec(step(), 20..60)) {
        let mut world = World::with(Some(Mirror::new()));
        let cuts = live(&mut world, &steps);
        let mirror = world.mirror.as_ref().expect("mirror");
        mirror.compare(&world, &cuts);
    }
}
