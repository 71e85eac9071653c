//! What each operation answers and leaves, as tables.

use crate::world::{World, at};
use serde_json::json;
use verifica::ids::Ids;
use verifica::libro::{self, Books};
use verifica::record::{AgentRecord, Cards, Change, View};
use verifica::wire::Amount;
use verifica::wire::card::Scope;
use verifica::wire::key::SigningKey;

#[test]
fn a_spot_pays_the_seller_the_house_and_the_referrer_at_once() {
    World::new().play(
        r#"
        topup ana 1000
        ana accept q1 leo spot 200 => 202 ana=800 leo=180 casa=-980 q1:settled
        ana accept q1 => 409 ana=800
        ana accept q2 leo spot 200 referrer={"address":"fox@b.example","share":1500} => 202 ana=600 leo=330 fox=30 casa=-960
        ana accept q3 leo spot 601 => 402 ana=600
        ana accept q4 leo spot 600 => 202 ana=0 leo=870
        ana accept q5 leo spot 1 => 402
        leo release q1 => 409
        leo deliver q1 => 409
        "#,
    );
}

#[test]
fn an_id_that_another_seller_quoted_first_takes_nothing_from_the_one_who_gave_it() {
    World::new().play(
        r#"
        topup ana 1000
        topup eva 1000
        eva accept q1 abi spot 10 => 202 eva=990 abi=9
        ana accept q1 leo spot 200 => 202 ana=800 leo=180
        ana accept q1 => 409 ana=800 leo=180
        "#,
    );
}

#[test]
fn an_escrow_is_decided_once_by_those_who_may() {
    World::new().play(
        r#"
        topup ana 1000
        ana accept q1 leo escrow 200 arbiter=@abi => 202 ana=800 q1:held
        eva release q1 => 403
        eva refund q1 => 403
        leo release q1 => 403
        ana deliver q1 => 403
        abi deliver q1 => 403
        leo deliver q1 => 202 q1:delivered
        leo deliver q1 => 409
        ana refund q1 => 403
        eva refund q1 => 403
        abi release q1 => 202 ana=800 leo=180 casa=-980 q1:released
        abi refund q1 => 409
        ana refund q1 => 403
        leo refund q1 => 409
        ana release q1 => 409 leo=180

        ana accept q2 leo escrow 100 => 202 ana=700
        leo refund q2 => 202 ana=800 q2:refunded
        ana accept q3 leo escrow 100 => 202
        leo deliver q3 => 202
        leo refund q3 => 202 ana=800 q3:refunded
        ana accept q4 leo escrow 100 => 202
        ana release q4 => 202 ana=700 leo=270 q4:released
        # a buyer's own cancellation, before a delivery
        ana accept q5 leo escrow 100 => 202 ana=600
        ana refund q5 => 202 ana=700 q5:refunded
        ana release no-such-contract => 404
        ana deliver no-such-contract => 404
        "#,
    );
}

#[test]
fn money_comes_back_after_a_deadline_and_silence_pays_after_the_review() {
    World::new().play(
        r#"
        topup ana 1000
        ana accept q1 leo escrow 100 terms=deadline+2d => 202 ana=900
        leo reclaim q1 => 403
        ana reclaim q1 => 409
        wait 71h
        ana reclaim q1 => 409
        wait 1h
        ana reclaim q1 => 202 ana=1000 q1:refunded
        ana reclaim q1 => 409

        ana accept q2 leo escrow 100 => 202
        ana reclaim q2 => 409 q2:held
        leo deliver q2 => 202
        libro expire q2 => 409

        ana accept q3 leo escrow 100 terms=deadline+2d => 202
        libro expire q3 => 409
        wait 3d
        # late, but the review counts from the later of deadline and delivery
        leo deliver q3 => 202
        ana reclaim q3 => 409
        leo expire q3 => 403
        ana expire q3 => 403
        wait 71h
        libro expire q3 => 409
        wait 1h
        libro expire q3 => 202 leo=90 q3:released
        libro expire q3 => 409
        libro expire no-such-contract => 404
        leo expire no-such-contract => 403
        "#,
    );
}

#[test]
fn silence_does_not_pay_while_the_houses_arbiter_has_not_decided() {
    let mut world = World::new();
    world.play(
        r#"
        topup ana 1000
        ana accept q1 leo escrow 100 arbiter=@verifica terms={"deadline":"2026-09-16","verify":[{"type":"size","url":"https://seller.example/x","max_bytes":10}]} => 202
        leo deliver q1 => 202
        wait 9d
        libro expire q1 => 409 q1:delivered
        "#,
    );
    assert!(!world.view.look(&world.id("q1")).expect("a look").done);
    world.play("ana release q1 => 202 leo=90 q1:released");
    assert!(world.view.look(&world.id("q1")).expect("a look").done);

    let mut world = World::new();
    world.house.settings.on_undecided_at_expiry = verifica::record::house::OnUndecided::Expire;
    world.play(
        r#"
        topup ana 1000
        ana accept q1 leo escrow 100 arbiter=@verifica terms={"deadline":"2026-09-16","verify":{"type":"size","url":"https://seller.example/x","max_bytes":10}} => 202
        leo deliver q1 => 202
        wait 9d
        libro expire q1 => 202 q1:released
        "#,
    );
}

#[test]
fn no_money_is_locked_behind_tests_that_cannot_decide() {
    let mut world = World::new();
    world.topup("ana", 1000);
    for tests in [
        r#"[]"#,
        r#"{}"#,
        r#"[5]"#,
        r#"{"type":"telepathy"}"#,
        r#"[{"type":"exit_0","argv":["true"]}]"#,
        r#"[{"type":"size","url":"https://a.b.example/","max_bytes":1},{"type":"SIZE"}]"#,
    ] {
        for field in ["verify", "pruebas"] {
            let line = format!(
                "ana accept bad leo escrow 100 arbiter=@verifica terms={{\"{field}\":{tests}}} => 400 ana=1000"
            );
            world.play(&line);
            for kind in ["spot", "metered"] {
                world.play(&line.replace("escrow", kind));
            }
            // Another arbiter judges by its own means.
            let line = format!("ana accept bad leo escrow 5000 arbiter=@abi terms={{\"{field}\":{tests}}} => 402");
            world.play(&line);
        }
    }
    world.house.settings.arbiter = false;
    world.play(
        r#"ana accept off leo escrow 100 arbiter=@verifica terms={"verify":{"type":"size","url":"https://seller.example/","max_bytes":1}} => 400"#,
    );
}

#[test]
fn a_deal_has_two_sides_and_its_judge_is_neither() {
    World::new().play(
        r#"
        topup ana 1000
        ana accept q1 ana escrow 100 => 400
        ana accept q2 ana spot 100 => 400
        ana accept q3 leo escrow 100 arbiter=@leo => 400
        ana accept q4 leo escrow 100 arbiter=@ana => 400
        ana accept q5 leo escrow 100 referrer={"address":"leo@a.example","share":10} => 400
        ana accept q6 leo escrow 100 referrer={"address":"casa@a.example","share":10} => 400
        ana accept q7 leo escrow 100 referrer={"address":"eva@a.example","share":9001} => 400
        ana accept q8 leo escrow 100 referrer={"address":"eva@a.example","share":9000} => 202 ana=900
        ana accept q9 leo spot 100 referrer={"address":"nobody@a.example","share":10} => 404 ana=900
        ana release q8 => 202 leo=0 eva=90 casa=-990
        "#,
    );
}

#[test]
fn a_referrer_whom_the_buyer_may_not_see_is_answered_as_nobody() {
    let mut world = World::new();
    world.enrol("ghost", "a.example", SigningKey::from_seed([60; 32]), json!({"visibility": "secret"}));
    let known = json!({"visibility": "secret", "inbox": {"policy": "allowlist", "allowlist": ["ana@a.example"]}});
    world.enrol("shade", "a.example", SigningKey::from_seed([61; 32]), known);
    world.play("topup ana 1000\n topup eva 1000");
    let mut told = |line: &str, name: &str| {
        let refusal = world.line("ana", "accept", &line.split(' ').collect::<Vec<_>>()).expect_err(line);
        (refusal.rule, refusal.reason.replace(name, "NAME"))
    };
    for kind in ["spot", "escrow"] {
        let ask = |quote: &str, name: &str| {
            format!(r#"{quote} leo {kind} 100 referrer={{"address":"{name}@a.example","share":10}}"#)
        };
        assert_eq!(told(&ask("q1", "ghost"), "ghost"), told(&ask("q2", "nobody"), "nobody"), "{kind}");
    }
    world.play(
        r#"
        ana accept q3 leo spot 100 referrer={"address":"ghost@a.example","share":10} => 404 ana=1000
        eva accept q4 leo spot 100 referrer={"address":"shade@a.example","share":10} => 404 eva=1000
        ana accept q5 leo spot 100 referrer={"address":"shade@a.example","share":1000} => 202 ana=900 shade=10
        "#,
    );
}

#[test]
fn a_quote_is_taken_only_as_its_seller_signed_it_for_this_buyer_here_and_now() {
    let mut world = World::new();
    world.play(
        r#"
        topup ana 1000
        topup eva 1000
        ana accept q1 leo escrow 100 house=b.example => 400
        ana accept q2 leo escrow 100 buyer=@eva => 403
        eva accept q2 => 202 eva=900
        ana accept q3 leo escrow 100 expires=2026-09-15T09:59:59Z => 410
        ana accept q4 leo escrow 100 contract=bond => 400
        ana accept q5 leo escrow 100 contract=barter => 400
        ana accept q6 leo escrow 100 price=0 => 400
        ana accept q7 leo escrow 100 price=9007199254740992 => 400
        ana accept q8 leo escrow 100 arbiter=nobody => 400
        ana accept q9 leo escrow 100 tipo=quote => 400
        ana accept q10 leo escrow 100 terms=5 => 400
        ana accept q11 leo escrow 100 service=lessons => 400
        ana accept q14 leo escrow 100 currency=eur => 400
        ana accept q12 fox escrow 100 => 202 ana=900
        "#,
    );
    let mut forged = world.quote("forged", "leo", "ana", "escrow", 100, &[]);
    forged["price"] = json!(1);
    let refused = world.operate("ana", json!({"op": "accept", "quote": forged})).expect_err("forged");
    assert_eq!(refused.code(), 403);
    world.cards.remove(&at("fox"));
    world.play("ana accept q13 fox escrow 100 => 421");
}

#[test]
fn a_quote_that_names_a_service_says_what_the_catalogue_says_today() {
    let mut world = World::new();
    let key = SigningKey::from_seed([11; 32]);
    let profile = json!({"profile": {"services": [{"id": "lesson", "price": {"tokens": 300}, "contract": "escrow"}]}});
    world.enrol("leo", "a.example", key.clone(), profile);
    world.play(
        r#"
        topup ana 1000
        ana accept q1 leo escrow 250 service=lesson => 400
        ana accept q2 leo spot 300 service=lesson => 400
        ana accept q3 leo escrow 300 service=lesson => 202
        ana accept q4 leo escrow 250 => 202
        "#,
    );
    let refused = world.line("ana", "accept", &["q5", "leo", "spot", "250", "service=lesson"]).expect_err("undercut");
    assert!(refused.reason.contains("published at 300 tok as escrow; the quote says 250 as spot"), "{refused}");
    // Today's card counts, not the one that was resolved before.
    world.enrol("leo", "a.example", key.clone(), json!({"profile": {"services": []}}));
    let stale = json!({"profile": {"services": [{"id": "lesson", "price": {"tokens": 300}, "contract": "escrow"}]}});
    let kept = world.view.clone();
    world.enrol("leo", "a.example", key, stale);
    world.view = kept;
    world.play("ana accept q6 leo escrow 300 service=lesson => 400");
}

#[test]
fn a_bond_goes_back_or_is_forfeited_by_its_verifier() {
    World::new().play(
        r#"
        topup ana 1000
        ana bond b1 100 leo => 202 ana=900 b1:posted
        ana release b1 => 403
        eva release b1 => 403
        eva forfeit b1 => 403
        leo deliver b1 => 409
        leo refund b1 => 409
        leo release b1 => 202 ana=1000 b1:released
        leo forfeit b1 => 409
        ana bond b2 100 leo beneficiary=@eva arbiter=@abi => 202
        abi forfeit b2 reason=untrue => 202 ana=900 eva=100 b2:forfeited
        ana bond b3 100 leo => 202
        leo forfeit b3 => 202 ana=800 casa=-900 b3:forfeited
        ana bond b4 100 leo expires=+2d => 202
        ana release b4 => 403
        wait 2d
        ana release b4 => 202 ana=800 b4:released
        ana bond b5 100 ana => 400
        ana bond b6 100 leo arbiter=@ana => 400
        ana bond b7 100 leo beneficiary=@ana => 400
        ana bond b8 801 leo => 402
        ana bond b9 100 leo expires=soon => 400
        ana bond b10 100 leo claim=5 => 400
        ana bond b11 100 leo verifier=nobody => 400
        ana bond b12 100 leo evidence_sha256=abc => 400
        ana bond b13 0 leo => 400 ana=800
        "#,
    );
}

/// Tokens are never left where nobody can move them: with a name that is not here, with one of the house's own, or under
/// a bond that nobody would ever judge and its poster could never take back.
#[test]
fn no_tokens_go_where_nobody_could_spend_or_return_them() {
    let mut world = World::new();
    world.enrol_below_ana("mute.ana", &Scope { messages_only: true, ..Scope::default() });
    for name in ["libro", "verifica"] {
        let record = world.view.agent(name).expect("record");
        world.change(vec![Change::PutAgent(AgentRecord { system: true, ..record })]);
    }
    world.play(
        r#"
        topup ana 1000
        ana bond b1 100 nobody => 404
        ana bond b2 100 leo beneficiary=@nobody => 404
        ana bond b3 100 leo beneficiary=@libro => 400
        ana bond b4 100 leo beneficiary=@mute.ana => 400
        ana bond b5 100 verifica => 400
        ana bond b6 100 verifica expires=+2d => 202 ana=900
        ana bond b7 100 fox beneficiary=@fox => 202 ana=800
        fox release b7 => 202 ana=900
        ana accept q1 leo spot 100 referrer={"address":"verifica@a.example","share":10} => 400
        ana pay libro 5 => 400 ana=900
        wait 2d
        ana release b6 => 202 ana=1000
        "#,
    );
    let issue =
        libro::Issue { id: None, account: at("verifica"), amount: Amount::new(5).expect("amount"), concept: None };
    let cards = Cards::new();
    let ctx = libro::Ctx { house: &world.house, view: &world.view, now: world.now, cards: &cards };
    let refused = libro::issue(&ctx, &mut Books::open(&world.view), &mut Ids::from_seed([3; 32]), &issue);
    assert_eq!(refused.map(|_| ()).map_err(|refusal| refusal.code()), Err(400));
}

#[test]
fn mandates_only_narrow_and_every_link_is_checked() {
    World::new().play(
        r#"
        topup ana 1000
        ana mandate m1 leo 500 scope={"max_per_charge":100} => 202
        leo charge m1 101 => 403
        eva charge m1 10 => 403
        leo charge m1 100 => 202 ana=900 leo=90
        leo mandate m2 eva 401 parent=$m1 => 403
        eva mandate m2 abi 10 parent=$m1 => 403
        leo mandate m2 eva 400 parent=$m1 => 202
        eva charge m2 101 => 403
        eva charge m2 100 concept=work => 202 ana=800 eva=90 leo=90
        leo charge m1 100 => 202
        leo charge m1 100 => 202
        leo charge m1 100 => 202 ana=500
        # the parent is spent, whatever its child has left
        eva charge m2 1 => 402
        ana revoke m1 => 202 m1:revoked m2:revoked
        eva charge m2 1 => 409
        ana revoke m1 => 202

        ana mandate m3 leo 100 scope={"concepts":["rent"]} expires=+2d => 202
        leo charge m3 10 => 403
        leo charge m3 10 concept=Rent => 403
        leo charge m3 10 concept=rent => 202 ana=490
        leo mandate m4 eva 50 parent=$m3 expires=+3d => 403
        leo mandate m4 eva 50 parent=$m3 expires=+2d => 202
        eva charge m4 10 concept=food => 403
        eva charge m4 10 concept=rent => 202
        eva revoke m3 => 403
        eva revoke m4 => 403
        ana revoke m4 => 202 m4:revoked m3:active
        wait 2d
        leo charge m3 10 concept=rent => 410
        ana mandate m5 leo 10 scope={"max_per_day":5} => 400
        ana mandate m5 leo 10 scope={"max_per_charge":11} => 400
        ana mandate m5 leo 10 scope=[] => 400
        ana mandate m5 leo 10 scope={"concepts":"rent"} => 400
        ana mandate m5 leo 10 expires=soon => 400
        ana mandate m5 leo 0 => 400
        ana mandate m5 ana 10 => 400
        leo charge no-such-mandate 10 => 404
        # caps beyond what the root holds are its own affair
        ana mandate m6 leo 5000 => 202
        leo charge m6 4999 => 402
        "#,
    );
}

#[test]
fn a_metered_contract_is_a_mandate_from_buyer_to_seller() {
    World::new().play(
        r#"
        topup ana 1000
        ana accept q1 leo metered 300 terms={"scope":{"max_per_charge":100}} => 202 ana=1000 q1.mandate:active
        leo charge q1.mandate 101 => 403
        leo charge q1.mandate 100 => 202 ana=900 leo=90
        ana accept q2 leo metered 300 terms={"scope":{"per_day":1}} => 400
        ana accept q3 leo metered 300 terms={"expires":"soon"} => 400
        ana accept q4 leo metered 300 expires=+1d => 202
        wait 1d
        leo charge q4.mandate 1 => 410
        ana revoke q1.mandate => 202
        leo charge q1.mandate 1 => 409
        "#,
    );
}

#[test]
fn authority_ends_with_the_card_of_who_gave_it() {
    let mut world = World::new();
    world.play("topup ana 100\n ana mandate m1 leo 50 => 202\n leo charge m1 10 => 202");
    let revoked = json!({"revoked": {"at": "2026-09-15T10:00:00Z"}});
    world.enrol("ana", "a.example", SigningKey::from_seed([10; 32]), revoked);
    world.play(
        "leo charge m1 10 => 403 ana=90\n ana balance => 403\n leo pay ana 1 => 404\n leo accept q1 ana spot 1 => 403",
    );
}

#[test]
fn pay_is_free_and_goes_only_where_it_can_be_spent() {
    let mut world = World::new();
    world.enrol("ghost", "a.example", SigningKey::from_seed([60; 32]), json!({"visibility": "secret"}));
    let known = json!({"visibility": "secret", "inbox": {"policy": "allowlist", "allowlist": ["ana@a.example"]}});
    world.enrol("shade", "a.example", SigningKey::from_seed([61; 32]), known);
    world.enrol_below_ana("bot.ana", &Scope { messages_only: true, ..Scope::default() });
    world.play(
        r#"
        topup ana 1000
        ana pay leo 100 => 202 ana=900 leo=100 casa=-1000
        ana pay leo 901 => 402
        ana pay leo 0 => 400
        ana pay ana 1 => 400
        ana pay fox 1 => 400
        ana pay nobody 1 => 404
        ana pay ghost 1 => 404
        ana pay shade 1 => 202
        leo pay shade 1 => 404
        leo pay bot.ana 1 => 400
        ana pay leo 1 to=5 => 400
        ana pay leo 1 to=null => 400
        ana pay leo 1 amount=9007199254740992 => 400
        "#,
    );
}

#[test]
fn a_subagent_commits_no_more_than_its_cap_and_a_messages_only_one_nothing() {
    let mut world = World::new();
    world.enrol_below_ana("bot.ana", &Scope { cap: Some(50), ..Scope::default() });
    world.enrol_below_ana("mute.ana", &Scope { messages_only: true, ..Scope::default() });
    world.play(
        r#"
        topup bot.ana 1000
        topup mute.ana 1000
        bot.ana accept q1 leo spot 51 => 403
        bot.ana accept q2 leo spot 50 => 202
        bot.ana bond b1 51 leo => 403
        bot.ana mandate m1 leo 51 => 403
        bot.ana mandate m2 leo 50 => 202
        ana mandate m3 bot.ana 500 => 202
        bot.ana charge m3 51 => 403
        bot.ana pay leo 51 => 403
        bot.ana pay leo 50 => 202
        mute.ana pay leo 1 => 403
        mute.ana balance => 403
        ana accept q3 mute.ana spot 1 => 403
        "#,
    );
}

#[test]
fn bounds_drawn_above_a_subagent_bind_it_at_once() {
    let mut world = World::new();
    world.enrol_below("ana", "bot.ana", &Scope::default());
    world.enrol_below("bot.ana", "tip.bot.ana", &Scope::default());
    world.play("topup tip.bot.ana 100\n tip.bot.ana pay leo 20 => 202\n tip.bot.ana mandate m1 leo 20 => 202");
    world.enrol_below("ana", "bot.ana", &Scope { cap: Some(10), ..Scope::default() });
    world.play("tip.bot.ana pay leo 11 => 403\n tip.bot.ana pay leo 10 => 202");
    world.enrol_below("ana", "bot.ana", &Scope { messages_only: true, ..Scope::default() });
    world.play("tip.bot.ana pay leo 1 => 403\n leo pay tip.bot.ana 1 => 400\n leo accept q1 tip.bot.ana spot 1 => 403");
    let key = world.keys.get(&at("bot.ana")).expect("key").clone();
    world.play("leo charge m1 1 => 202");
    world.enrol("bot.ana", "a.example", key, json!({"revoked": {"at": "2026-09-15T10:00:00Z"}}));
    world.play("leo charge m1 1 => 403\n leo pay tip.bot.ana 1 => 404\n leo accept q2 tip.bot.ana spot 1 => 403");
    world.play("tip.bot.ana balance => 403");
}

#[test]
fn reads_are_for_those_concerned() {
    let mut world = World::new();
    world.play(
        r#"
        topup ana 1000
        ana accept q1 leo escrow 100 arbiter=@abi => 202
        ana contract q1 => 202
        abi contract q1 => 202
        eva contract q1 => 403
        ana contract no-such-contract => 404
        fox balance => 202
        ana statement since=yesterday => 400
        ana statement since=2026-09-16 until=2026-09-15 => 400
        ana statement since=2026-09-15T10:00:00 => 400
        "#,
    );
    let view = world.line("ana", "balance", &[]).expect("balance").result;
    assert_eq!(view["balance"], 900);
    assert_eq!(view["contracts"][0]["acp"], json!({"phase": "Funded", "outcome": null, "state": "held"}));
    let read = world.line("leo", "contract", &["q1"]).expect("contract").result;
    assert_eq!(read["contract"]["acp"], json!(null));
}
