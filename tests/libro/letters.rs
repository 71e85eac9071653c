//! Whom the ledger tells, and what.

use crate::world::{World, at};
use serde_json::{Value, json};
use verifica::libro::{self, Books, Ctx, Operated};
use verifica::record::{Letter, View};
use verifica::wire::card::Scope;
use verifica::wire::digest::Sha256;
use verifica::wire::quote::RECEIPT_MEDIA;

fn body(letter: &Letter) -> &Value {
    &letter.doc["content"]["body"]
}

fn to(letter: &Letter) -> Vec<&str> {
    letter.to.iter().map(|address| address.local()).collect()
}

fn run(world: &mut World, line: &str) -> Operated {
    let words: Vec<&str> = line.split_whitespace().collect();
    world.line(words[0], words[1], &words[2..]).expect(line)
}

#[test]
fn a_receipt_names_its_cause_and_is_signed_by_the_house() {
    let mut world = World::new();
    world.topup("ana", 1000);
    let quote = world.quote("q1", "leo", "ana", "spot", 200, &[]);
    let op = world.envelope("ana", "operation-of-ana", json!({"op": "accept", "quote": quote}));
    let operated = world.apply(&op).expect("accepted");
    let [letter] = operated.letters.as_slice() else { panic!("{:?}", operated.letters) };
    assert!(world.house.key.public().verify_object(&letter.doc, "signature"));
    assert_eq!(letter.doc["from"], "libro@a.example");
    assert_eq!(letter.doc["type"], "receipt");
    assert_eq!(letter.doc["content"]["media"], RECEIPT_MEDIA);
    assert_eq!(letter.doc["in_reply_to"], "operation-of-ana");
    assert_eq!(letter.doc["thread"], operated.result["contract"]["id"]);
    assert_eq!(letter.doc["to"], json!(["leo@a.example", "ana@a.example"]));
    let said = body(letter);
    assert_eq!(said["of"], "operation-of-ana");
    assert_eq!(said["op"], "accept");
    assert_eq!(said["op_sha256"], json!(op.envelope().sha256()));
    assert_eq!(said["from"], "ana@a.example");
    assert_eq!(said["cotizacion_sha256"], json!(Sha256::of(verifica::wire::json::canonical(&quote))));
    assert_eq!(said["fee"], json!({"account": "casa@a.example", "amount": 20, "bps": 1000}));
    assert_eq!(said.get("commission"), None);
    let entry = &said["asiento"];
    assert!(world.house.key.public().verify_object(entry, "signature"));
    assert_eq!(entry["refs"]["op_sha256"], said["op_sha256"]);
    assert_eq!(entry["refs"]["quote_sha256"], said["cotizacion_sha256"]);
    assert_eq!(entry["refs"]["contract"], operated.result["contract"]["id"]);
    assert_eq!(entry["meta"], json!({"kind": "charge", "fee": 20, "contract": entry["refs"]["contract"]}));
    assert_eq!(entry["n"], 2);
    assert_eq!(entry["at"], "2026-09-15T10:00:00.000Z");
}

#[test]
fn every_party_is_told_and_only_entries_that_split_state_a_fee() {
    let mut world = World::new();
    world.topup("ana", 1000);
    let accepted = run(
        &mut world,
        "ana accept q1 leo escrow 200 arbiter=@abi referrer={\"address\":\"fox@b.example\",\"share\":1500}",
    );
    assert_eq!(to(&accepted.letters[0]), ["leo", "ana", "abi"]);
    assert_eq!(body(&accepted.letters[0]).get("fee"), None);
    let delivered = run(&mut world, "leo deliver q1 note=done");
    assert_eq!(to(&delivered.letters[0]), ["leo", "ana", "abi"]);
    assert_eq!(body(&delivered.letters[0]).get("asiento"), None);
    let released = run(&mut world, "abi release q1");
    let said = body(&released.letters[0]);
    assert_eq!(said["fee"]["amount"], 20);
    assert_eq!(said["commission"], json!({"account": "fox@b.example", "amount": 30, "bps": 1500}));
    let bond = run(&mut world, "ana bond b1 100 leo beneficiary=@casa vouchee=@eva");
    assert_eq!(to(&bond.letters[0]), ["ana", "leo", "eva"]);
    let forfeited = run(&mut world, "leo forfeit b1 reason=untrue");
    assert_eq!(body(&forfeited.letters[0]).get("fee"), None);
    assert_eq!(body(&forfeited.letters[0])["asiento"]["meta"]["reason"], "untrue");
}

#[test]
fn the_fee_is_the_one_of_the_day_of_acceptance() {
    let mut world = World::new();
    world.topup("ana", 1000);
    run(&mut world, "ana accept q1 leo escrow 200 referrer={\"address\":\"fox@b.example\",\"share\":9000}");
    world.house.settings.fee_bps = 5000;
    let released = run(&mut world, "ana release q1");
    assert_eq!(body(&released.letters[0])["fee"], json!({"account": "casa@a.example", "amount": 20, "bps": 1000}));
    assert_eq!((world.balance("leo"), world.balance("fox")), (0, 180));
}

#[test]
fn a_deadline_is_recalled_later_once_and_not_where_nothing_is_open() {
    let mut world = World::new();
    world.topup("ana", 1000);
    let accepted = run(&mut world, "ana accept q1 leo escrow 200 arbiter=@abi terms=deadline+2d");
    let [_, notice] = accepted.letters.as_slice() else { panic!("{:?}", accepted.letters) };
    assert_eq!(notice.deliver_after.map(|at| at.to_string()).as_deref(), Some("2026-09-17T10:00:00.000Z"));
    assert_eq!(notice.doc["deliver_after"], "2026-09-17T10:00:00.000Z");
    assert_eq!(notice.doc["in_reply_to"], json!(null));
    assert_eq!(to(notice), ["leo", "ana", "abi"]);
    assert_eq!(body(notice)["aviso"], "plazo");
    assert_eq!(body(notice)["contract"], world.id("q1"));
    let notice = notice.doc.clone();
    assert!(!libro::is_moot(&world.view, &notice));
    run(&mut world, "ana release q1");
    assert!(libro::is_moot(&world.view, &notice));

    let spot = run(&mut world, "ana accept q2 leo spot 200 terms=deadline+2d");
    assert_eq!(spot.letters.len(), 1);
    let past = run(&mut world, "ana accept q3 leo escrow 200 terms={\"deadline\":\"2026-09-01\"}");
    assert_eq!(past.letters[1].deliver_after, None);
}

#[test]
fn a_delivery_leaves_the_order_to_expire_with_the_clock() {
    let mut world = World::new();
    world.topup("ana", 1000);
    run(&mut world, "ana accept q1 leo escrow 200 arbiter=@abi terms=deadline+2d");
    let delivered = run(&mut world, "leo deliver q1");
    let [_, order] = delivered.letters.as_slice() else { panic!("{:?}", delivered.letters) };
    // The deadline in two days, and the review of three.
    assert_eq!(order.deliver_after.map(|at| at.to_string()).as_deref(), Some("2026-09-20T10:00:00.000Z"));
    assert_eq!(to(order), ["libro"]);
    assert_eq!(body(order), &json!({"op": "expire", "contract": world.id("q1")}));
    assert!(!libro::is_moot(&world.view, &order.doc));
    let order = world.sign(order.doc.value().clone(), &at("libro"));
    assert_eq!(world.apply(&order).expect_err("too early").code(), 409);
    world.now = order.envelope().deliver_after.expect("instant");
    world.apply(&order).expect("expired");
    assert_eq!((world.state("q1").as_str(), world.balance("leo")), ("released", 180));
    assert!(libro::is_moot(&world.view, order.envelope().doc()));

    // Nothing is ordered that would be refused: without a deadline, or while this house's arbiter is to judge.
    run(&mut world, "ana accept q2 leo escrow 200 arbiter=@abi");
    assert_eq!(run(&mut world, "leo deliver q2").letters.len(), 1);
    let tests = r#"{"deadline":"2027-01-01","verify":{"type":"size","url":"https://seller.example/x","max_bytes":10}}"#;
    run(&mut world, &format!("ana accept q3 leo escrow 200 arbiter=@verifica terms={tests}"));
    assert_eq!(run(&mut world, "leo deliver q3").letters.len(), 1);
    // Somebody else's letter that reads like the order is not the clock's.
    let forged = world.envelope("ana", "operation-forged", json!({"op": "expire", "contract": world.id("q1")}));
    assert!(!libro::is_moot(&world.view, forged.envelope().doc()));
}

#[test]
fn a_repetition_answers_the_same_and_does_nothing() {
    let mut world = World::new();
    world.topup("ana", 1000);
    let op = world.envelope("ana", "operation-once", json!({"op": "pay", "to": "leo@a.example", "amount": 10}));
    let first = world.apply(&op).expect("paid");
    let entries = world.view.journal_last();
    world.now = world.now.plus(1000);
    let again = world.apply(&op).expect("repeated");
    assert!(again.duplicate && !first.duplicate);
    assert_eq!(again.result, first.result);
    assert!(again.letters.is_empty());
    assert_eq!((world.view.journal_last(), world.balance("leo")), (entries, 10));

    let other = world.envelope("ana", "operation-once", json!({"op": "pay", "to": "leo@a.example", "amount": 11}));
    assert_eq!(world.apply(&other).expect_err("reused").code(), 409);
    // Another sender's ids are its own.
    world.topup("leo", 10);
    let leos = world.envelope("leo", "operation-once", json!({"op": "pay", "to": "ana@a.example", "amount": 10}));
    assert!(!world.apply(&leos).expect("leo's own").duplicate);
}

#[test]
fn a_refusal_is_not_kept_and_the_same_envelope_may_succeed_later() {
    let mut world = World::new();
    let op = world.envelope("ana", "operation-poor", json!({"op": "pay", "to": "leo@a.example", "amount": 10}));
    assert_eq!(world.apply(&op).expect_err("poor").code(), 402);
    world.topup("ana", 10);
    assert!(!world.apply(&op).expect("paid").duplicate);
}

#[test]
fn a_payment_is_announced_only_where_the_mailbox_would_take_it() {
    let mut world = World::new();
    let key = |n: u8| verifica::wire::key::SigningKey::from_seed([n; 32]);
    world.topup("ana", 1000);
    let mailbox = |inbox: Value| json!({"inbox": inbox});
    world.enrol("dear", "a.example", key(80), mailbox(json!({"policy": "stamp", "price": 500})));
    world.enrol("shut", "a.example", key(81), mailbox(json!({"policy": "allowlist", "allowlist": []})));
    world.enrol("work", "a.example", key(82), mailbox(json!({"policy": "pow"})));
    world.enrol("odd", "a.example", key(83), mailbox(json!({"policy": "friends"})));
    world.enrol("cross", "a.example", key(84), mailbox(json!({"policy": "open", "blocklist": ["a.example"]})));
    for (payee, amount, told) in [
        ("leo", 1, true),
        ("dear", 1, false),
        ("dear", 500, true),
        ("shut", 1, false),
        ("work", 1, false),
        ("odd", 1, false),
        ("cross", 1, false),
    ] {
        let paid = run(&mut world, &format!("ana pay {payee} {amount}"));
        let expected: Vec<&str> = if told { vec!["ana", payee] } else { vec!["ana"] };
        assert_eq!(to(&paid.letters[0]), expected, "{payee} {amount}");
        assert_eq!(paid.result["notified"], told);
    }
}

#[test]
fn a_verdict_is_kept_for_both_outcomes_and_must_agree_with_its_operation() {
    let terms = r#"terms={"verify":{"type":"size","url":"https://seller.example/","max_bytes":1}}"#;
    for (op, pasa) in [("release", true), ("refund", false)] {
        let mut world = World::new();
        world.topup("ana", 1000);
        run(&mut world, &format!("ana accept q1 leo escrow 200 arbiter=@verifica {terms}"));
        run(&mut world, "leo deliver q1");
        let id = world.id("q1");
        let at = world.now;
        let verdict = |pasa: bool| json!({"pasa": pasa, "indeciso": false, "razon": "why", "contract": id, "at": at});
        let send = |world: &mut World, verdict: Value| {
            world.operate("verifica", json!({"op": op, "contract": id, "note": "why", "veredicto": verdict}))
        };
        assert_eq!(send(&mut world, verdict(!pasa)).expect_err("contradiction").code(), 400);
        let mut undecided = verdict(pasa);
        undecided["indeciso"] = json!(true);
        assert_eq!(send(&mut world, undecided).expect_err("undecided").code(), 400);
        let mut other = verdict(pasa);
        other["contract"] = json!("another");
        assert_eq!(send(&mut world, other).expect_err("another").code(), 400);
        let mut early = verdict(pasa);
        early["at"] = json!(world.now.plus(-1));
        assert_eq!(send(&mut world, early).expect_err("before the delivery").code(), 409);
        assert_eq!(world.state("q1"), "delivered");
        send(&mut world, verdict(pasa)).expect("decided");
        let contract = world.view.contract(&id).expect("contract");
        let last = contract.history.last().expect("history");
        assert_eq!(last["veredicto"], verdict(pasa));
        assert_eq!(last["note"], "why");
        assert_eq!(last["by"], "verifica@a.example");
        assert!(world.view.look(&id).expect("look").done);
        assert!(
            world.view.events().any(|(name, _, _, data)| *name == "verificado" && data["pruebas"] == json!(["size"]))
        );
    }
}

/// V12: `verify` has a delivered contract looked at, and with `verify_on` a held one.
#[test]
fn a_contract_is_looked_at_from_its_delivery_or_from_its_acceptance_where_it_says_so() {
    let mut world = World::new();
    world.topup("ana", 1000);
    run(
        &mut world,
        r#"ana accept q1 leo escrow 10 arbiter=@verifica terms={"verify":{"type":"size","url":"https://s.example/","max_bytes":1}}"#,
    );
    assert!(world.view.look(&world.id("q1")).is_none());
    run(&mut world, "leo deliver q1");
    assert!(world.view.look(&world.id("q1")).is_some());
    run(
        &mut world,
        r#"ana accept q2 leo escrow 10 arbiter=@verifica terms={"verify_on":"accept","verify":{"type":"size","url":"https://s.example/","max_bytes":1}}"#,
    );
    assert!(world.view.look(&world.id("q2")).is_some());
    let unjudgeable = world.line("ana", "accept", &["q3", "leo", "escrow", "10", "arbiter=@verifica"]);
    assert_eq!(unjudgeable.expect_err("nobody would ever decide").code(), 400);
    run(&mut world, r#"ana accept q3 leo escrow 10"#);
    run(&mut world, "leo deliver q3");
    assert!(world.view.look(&world.id("q3")).is_none());
}

#[test]
fn a_seal_is_made_once_and_told_to_its_declarant() {
    let mut world = World::new();
    let hash = Sha256::of("a contract").hex();
    let upper = hash.to_uppercase();
    let first = run(&mut world, &format!("ana notarize sha256={upper} name=deed"));
    assert_eq!(first.result["existing"], false);
    let seal = &first.result["seal"];
    assert!(world.house.key.public().verify_object(seal, "signature"));
    assert_eq!((&seal["sha256"], &seal["by"]), (&json!(hash), &json!("ana@a.example")));
    let again = run(&mut world, &format!("ana notarize sha256={hash} name=other"));
    assert_eq!((&again.result["seal"], &again.result["existing"]), (seal, &json!(true)));
    assert_eq!(to(&again.letters[0]), ["ana"]);
    let record = world.view.seal(&hash, &at("ana")).expect("record");
    assert_eq!(record.anonimo["by"], json!(null));
    assert!(world.house.key.public().verify_object(&record.anonimo, "signature"));
    assert_eq!(world.view.journal_last(), 0);
    assert_eq!(world.line("ana", "notarize", &["sha256=abc"]).expect_err("short").code(), 400);
}

#[test]
fn a_stamp_costs_the_price_of_the_mailbox_and_not_what_was_declared() {
    let mut world = World::new();
    world.topup("ana", 1000);
    for bad in [
        json!(null),
        json!({"amount": 100}),
        json!({"house": "b.example", "amount": 100}),
        json!({"house": "a.example", "amount": 99}),
        json!({"house": "a.example", "amount": "100"}),
    ] {
        assert_eq!(stamp(&mut world, "ana", bad.clone(), &["leo"]), Err(402), "{bad}");
    }
    let entry = stamp(&mut world, "ana", json!({"house": "a.example", "amount": 700}), &["leo"]).expect("charged");
    assert_eq!((world.balance("ana"), world.balance("leo"), world.balance("casa")), (900, 90, -990));
    let last = world.view.journal().last().expect("entry").doc.clone();
    assert_eq!(last["id"], json!(entry));
    assert_eq!(last["meta"], json!({"kind": "stamp", "fee": 10}));
    assert_eq!(last["refs"]["envelope"], "letter-with-stamp");
}

#[test]
fn a_stamp_is_bounded_like_every_other_spending() {
    let mut world = World::new();
    world.enrol_below_ana("bot.ana", &Scope { cap: Some(99), ..Scope::default() });
    world.enrol_below_ana("mute.ana", &Scope { messages_only: true, ..Scope::default() });
    world.topup("bot.ana", 1000);
    world.topup("mute.ana", 1000);
    let good = json!({"house": "a.example", "amount": 100});
    assert_eq!(stamp(&mut world, "bot.ana", good.clone(), &["leo"]), Err(403));
    assert_eq!(stamp(&mut world, "mute.ana", good, &["leo"]), Err(403));
    assert_eq!(world.balance("leo"), 0);
}

#[test]
fn movements_of_one_decision_see_each_other() {
    let mut world = World::new();
    world.topup("ana", 150);
    let good = json!({"house": "a.example", "amount": 100});
    // The second stamp finds what the first one left, although nothing is committed between them.
    assert_eq!(stamp(&mut world, "ana", good, &["leo", "eva"]), Err(402));
    assert_eq!((world.balance("ana"), world.balance("leo"), world.balance("eva")), (50, 90, 0));
}

/// Charges one letter's stamp for each recipient in one decision; the price is 100. Commits what was charged.
fn stamp(world: &mut World, from: &str, stamp: Value, to: &[&str]) -> Result<String, u16> {
    let mut letter = world.envelope(from, "letter-with-stamp", json!({})).envelope().doc().clone();
    letter["stamp"] = stamp;
    let letter = world.sign(letter, &at(from));
    let mut ids = world.ids();
    let ctx = Ctx { house: &world.house, view: &world.view, now: world.now, cards: &world.cards };
    let mut books = Books::open(&world.view);
    let charged = to.iter().map(|to| libro::stamp(&ctx, &mut books, &mut ids, &letter, &at(to), 100));
    let outcome: Result<Vec<String>, _> = charged.collect();
    let changes = books.into_changes();
    world.view.apply(changes).expect("stamp");
    outcome.map(|ids| ids.concat()).map_err(|refusal| refusal.code())
}
