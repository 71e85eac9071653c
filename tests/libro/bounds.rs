//! Each bound of the ledger at its limit and one beyond, and shapes that no honest client sends.

use crate::world::{World, at};
use serde_json::{Map, Value, json};
use verifica::ids::Ids;
use verifica::libro::{self, Books, Ctx, Issue};
use verifica::limits;
use verifica::record::View;
use verifica::wire::amount::Amount;
use verifica::wire::card::Scope;
use verifica::wire::digest::Sha256;

fn held(world: &mut World) -> String {
    world.play("topup ana 100\n ana accept q1 leo escrow 10 => 202");
    world.id("q1")
}

#[test]
fn evidence_is_bounded_and_must_agree_with_its_hash() {
    let mut world = World::new();
    let id = held(&mut world);
    let text = "e".repeat(limits::EVIDENCE_BYTES_MAX);
    let deliver = |more: Value| {
        let mut body = json!({"op": "deliver", "contract": id});
        body.as_object_mut().expect("object").extend(more.as_object().cloned().expect("object"));
        body
    };
    for bad in [
        json!({"evidence": format!("{text}e")}),
        json!({"evidence": 5}),
        json!({"evidence_sha256": "ab"}),
        json!({"evidence_sha256": 5}),
        json!({"evidence": text, "evidence_sha256": Sha256::of("other")}),
        json!({"note": 5}),
    ] {
        assert_eq!(world.operate("leo", deliver(bad)).expect_err("bad").code(), 400);
    }
    let note = "n".repeat(limits::NOTE_CHARS_MAX + 1);
    let good = json!({"evidence": text, "evidence_sha256": Sha256::of(&text).hex().to_uppercase(), "note": note});
    let delivered = world.operate("leo", deliver(good)).expect("delivered");
    let contract = &delivered.result["contract"];
    assert_eq!(contract["evidence_sha256"], json!(Sha256::of(&text)));
    assert_eq!(contract["evidence"], json!(text));
    assert_eq!(contract["history"][1]["note"].as_str().map(str::len), Some(limits::NOTE_CHARS_MAX));
}

#[test]
fn terms_are_bounded() {
    let mut world = World::new();
    world.topup("ana", 100);
    let filled = |bytes: usize| json!({"x": "y".repeat(bytes - r#"{"x":""}"#.len())});
    for (bytes, code) in [(limits::TERMS_BYTES_MAX + 1, Err(400)), (limits::TERMS_BYTES_MAX, Ok(()))] {
        let quote = world.quote("q", "leo", "ana", "escrow", 10, &[("terms".to_owned(), filled(bytes))]);
        let outcome = world.operate("ana", json!({"op": "accept", "quote": quote}));
        assert_eq!(outcome.map(|_| ()).map_err(|r| r.code()), code);
    }
}

#[test]
fn a_receipt_of_the_fullest_contract_fits_in_an_envelope() {
    let mut world = World::new();
    world.topup("ana", 100);
    let terms = json!({"x": "y".repeat(limits::TERMS_BYTES_MAX - 8)});
    let more = [("terms".to_owned(), terms), ("arbiter".to_owned(), json!(at("abi")))];
    let quote = world.quote("q", "leo", "ana", "escrow", 10, &more);
    let accepted = world.operate("ana", json!({"op": "accept", "quote": quote})).expect("accepted");
    let id = accepted.result["contract"]["id"].clone();
    let text = "e".repeat(limits::EVIDENCE_BYTES_MAX);
    let note = "\u{1}".repeat(limits::NOTE_CHARS_MAX);
    world.operate("leo", json!({"op": "deliver", "contract": id, "evidence": text, "note": note})).expect("delivered");
    let long = json!({"pasa": true, "razon": "r".repeat(limits::VERDICT_BYTES_MAX - 24)});
    assert_eq!(verifica::wire::json::canonical(&long).len(), limits::VERDICT_BYTES_MAX);
    let release = json!({"op": "release", "contract": id, "note": note, "veredicto": long});
    let released = world.operate("abi", release).expect("released");
    let bytes = verifica::wire::json::canonical(&released.letters[0].doc).len();
    assert!(bytes < limits::ENVELOPE_BYTES_DEFAULT / 2, "{bytes}");
    assert_eq!(released.result["contract"]["history"][2]["veredicto"], long);
}

#[test]
fn a_verdict_too_long_to_keep_still_decides() {
    let mut world = World::new();
    world.play("topup ana 100\n ana accept q1 leo escrow 10 arbiter=@abi => 202");
    let long = json!({"pasa": true, "razon": "r".repeat(limits::VERDICT_BYTES_MAX)});
    let release = json!({"op": "release", "contract": world.id("q1"), "veredicto": long});
    let released = world.operate("abi", release).expect("released");
    let kept = &released.result["contract"]["history"][1]["veredicto"];
    assert_eq!(kept["sha256"], json!(verifica::wire::json::canonical_sha256(&long)));
    assert_eq!(kept["pasa"], true);
}

#[test]
fn claims_chains_and_concepts_are_bounded() {
    let mut world = World::new();
    world.topup("ana", 100);
    let bond = |chars: usize| json!({"op": "bond", "amount": 1, "verifier": at("leo"), "claim": "c".repeat(chars)});
    assert_eq!(world.operate("ana", bond(limits::CLAIM_CHARS_MAX + 1)).expect_err("long").code(), 400);
    world.operate("ana", bond(limits::CLAIM_CHARS_MAX)).expect("bond");

    let mandate = |concepts: usize| {
        json!({"op": "mandate", "grantee": at("leo"), "cap": 1,
        "scope": {"concepts": vec!["c"; concepts]}})
    };
    assert_eq!(world.operate("ana", mandate(limits::MANDATE_CONCEPTS_MAX + 1)).expect_err("many").code(), 400);
    world.operate("ana", mandate(limits::MANDATE_CONCEPTS_MAX)).expect("mandate");

    let mut parent = Value::Null;
    let hands = ["ana", "leo"];
    for link in 0..=limits::MANDATE_CHAIN_MAX {
        let (from, to) = (hands[link % 2], hands[(link + 1) % 2]);
        let body = json!({"op": "mandate", "grantee": at(to), "cap": 1, "parent": parent});
        let outcome = world.operate(from, body);
        if link < limits::MANDATE_CHAIN_MAX {
            parent = outcome.expect("link").result["mandate"]["id"].clone();
        } else {
            assert_eq!(outcome.expect_err("too deep").code(), 409);
        }
    }
}

#[test]
fn balances_stay_within_safe_integers() {
    let mut world = World::new();
    let issue = |world: &mut World, who: &str, amount: u64| {
        let mut ids = Ids::from_seed([world.seed as u8; 32]);
        world.seed += 1;
        let ctx = Ctx { house: &world.house, view: &world.view, now: world.now, cards: &world.cards };
        let mut books = Books::open(&world.view);
        let amount = Amount::new(amount).expect("amount");
        let outcome = libro::topup(&ctx, &mut books, &mut ids, &at(who), amount, None, Map::new());
        let changes = books.into_changes();
        world.view.apply(changes).expect("applied");
        outcome.map(|_| ()).map_err(|refusal| refusal.code())
    };
    assert_eq!(issue(&mut world, "ana", limits::SAFE_INTEGER_MAX), Ok(()));
    assert_eq!(issue(&mut world, "leo", 1), Err(400));
    assert_eq!(world.view.journal_last(), 1);
    assert_eq!(issue(&mut world, "casa", 1), Err(400));
    world.play("ana accept q1 leo spot 9007199254740991 => 202 ana=0");
}

#[test]
fn an_issue_is_made_once_for_its_id_and_only_to_whoever_can_spend_it() {
    let mut world = World::new();
    world.enrol_below("ana", "mute.ana", &Scope { messages_only: true, ..Scope::default() });
    let mut issue = |who: &str, amount: u64, id: Option<&str>| {
        let mut ids = world.ids();
        let ctx = Ctx { house: &world.house, view: &world.view, now: world.now, cards: &world.cards };
        let mut books = Books::open(&world.view);
        let amount = Amount::new(amount).expect("amount");
        let issue = Issue { id: id.map(str::to_owned), account: at(who), amount, concept: None };
        let outcome = libro::issue(&ctx, &mut books, &mut ids, &issue);
        let changes = books.into_changes();
        world.view.apply(changes).expect("applied");
        world.now = world.now.plus(1_000);
        outcome.map(|issued| (issued.entry, issued.duplicate)).map_err(|refusal| refusal.code())
    };
    let first = issue("ana", 100, Some("issue-0001")).expect("issued");
    let again = issue("ana", 100, Some("issue-0001")).expect("repeated");
    assert_eq!((&first.0, first.1, again.1), (&again.0, false, true));
    assert_eq!(issue("ana", 101, Some("issue-0001")).expect_err("another"), 409);
    assert_eq!(issue("leo", 100, Some("issue-0001")).expect_err("another"), 409);
    issue("ana", 100, None).expect("without an id each is another");
    issue("ana", 100, None).expect("without an id each is another");
    assert_eq!(issue("nobody", 5, None).expect_err("absent"), 404);
    assert_eq!(issue("mute.ana", 5, None).expect_err("cannot spend"), 400);
    issue("fox", 5, None).expect("another house's agent holds tokens here");
    assert_eq!((world.balance("ana"), world.balance("nobody"), world.balance("casa")), (300, 0, -305));
}

#[test]
fn operations_of_no_known_shape_are_refused_and_change_nothing() {
    let mut world = World::new();
    let id = held(&mut world);
    let before = world.view.journal_last();
    for body in [
        json!(null),
        json!([]),
        json!("release"),
        json!({}),
        json!({"op": 5}),
        json!({"op": "topup", "account": at("ana"), "amount": 5}),
        json!({"op": "release"}),
        json!({"op": "release", "contract": 5}),
        json!({"op": "release", "contract": {"id": id}}),
        json!({"op": "accept"}),
        json!({"op": "accept", "quote": []}),
        json!({"op": "charge", "mandate": [], "amount": 1}),
        json!({"op": "mandate", "grantee": "LEO@a.example", "cap": 1}),
        json!({"op": "pay", "to": "leo", "amount": 1}),
        json!({"op": "pay", "to": at("leo"), "amount": -1}),
        json!({"op": "pay", "to": at("leo"), "amount": "1"}),
        json!({"op": "notarize"}),
    ] {
        let refused = world.operate("ana", body.clone()).expect_err("shape");
        assert_eq!(refused.code(), 400, "{body}: {refused}");
        assert!(!refused.reason.ends_with('.') && !refused.reason.is_empty());
    }
    assert_eq!(world.view.journal_last(), before);
    let mut sealed = world.envelope("ana", "operation-sealed", json!({})).envelope().doc().clone();
    sealed.as_object_mut().expect("object").remove("content");
    sealed["encrypted"] = json!({"ct": "x"});
    let sealed = world.sign(sealed, &at("ana"));
    assert_eq!(world.apply(&sealed).expect_err("sealed").code(), 400);
}
