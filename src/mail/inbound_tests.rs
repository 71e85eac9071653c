//! Each rule of arrival with its code, and the promise that no repetition in any order doubles anything.

use super::fixture::{START, World, address, card, envelope, key};
use super::{Answer, Arrival};
use crate::ids::Ids;
use crate::libro::{self, Books, Ctx};
use crate::limits;
use crate::record::{Cards, Change, House, Settings, View};
use crate::refusal::Rule;
use crate::wire::amount::Amount;
use crate::wire::card::Delegation;
use crate::wire::quote::OP_MEDIA;
use crate::wire::{pow, seal};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

const ANA: &str = "ana@mar.example";
const LEO: &str = "leo@b.example";

fn world_with(inbox: Value) -> World {
    let mut world = World::new();
    world.agent("ana", json!({"inbox": inbox}));
    world
}

fn open() -> World {
    world_with(json!({"policy": "open"}))
}

fn fund(world: &mut World, account: &str, tokens: u64) {
    let changes = {
        let cards = Cards::new();
        let ctx = Ctx { house: &world.house, view: &world.view, now: world.now, cards: &cards };
        let mut books = Books::open(&world.view);
        let mut ids = Ids::from_seed([200; 32]);
        let (account, tokens) = (address(account), Amount::new(tokens).expect("amount"));
        libro::topup(&ctx, &mut books, &mut ids, &account, tokens, None, Map::new()).expect("topup");
        books.into_changes()
    };
    world.view.apply(changes).expect("applied");
}

fn rule_of(answer: &Answer) -> Option<u64> {
    answer.body["rule"].as_u64()
}

fn is(answer: &Answer, rule: Rule) {
    assert_eq!((answer.code, rule_of(answer)), (rule.code(), Some(u64::from(rule.number()))), "{answer:?}");
}

fn operation(id: &str, from: &str, body: Value) -> Value {
    envelope(id, from, &["libro@mar.example"], json!({"type": "task", "content": {"media": OP_MEDIA, "body": body}}))
}

#[test]
fn an_accepted_envelope_is_in_the_mailbox_as_it_was_signed() {
    let mut world = open();
    let doc = envelope("envelope-1", LEO, &[ANA, "tom@c.example"], json!({"x-later": [1]}));
    let answer = world.arrive(doc.clone());
    assert_eq!(answer.code, 202);
    assert_eq!(answer.body, json!({"ok": true, "code": 202, "accepted": [ANA], "rejected": [], "results": {}}));
    let mail = world.mailbox("ana");
    assert_eq!(mail.len(), 1);
    assert_eq!(mail[0].envelope, doc);
    assert_eq!(mail[0].meta["from_verified"], true);
    assert_eq!(mail[0].meta["relay_verified"], true);
    assert_eq!(mail[0].meta["sender_kid"], json!(key(LEO).public().kid()));
    let again = world.arrive(doc);
    assert_eq!(again.code, 200);
    assert_eq!(again.body["duplicate"], true);
    assert_eq!(again.body["accepted"], json!([ANA]));
    assert_eq!(world.mailbox("ana").len(), 1);
}

#[test]
fn another_envelope_under_a_used_id_is_never_applied() {
    let mut world = open();
    assert_eq!(world.arrive(envelope("envelope-1", LEO, &[ANA], json!({}))).code, 202);
    let other = envelope("envelope-1", LEO, &[ANA], json!({"content": {"media": "text/plain", "body": "otra"}}));
    is(&world.arrive(other), Rule::IdReused);
    assert_eq!(world.mailbox("ana").len(), 1);
    // Ids belong to their senders: nobody takes another's.
    assert_eq!(world.arrive(envelope("envelope-1", "eva@b.example", &[ANA], json!({}))).code, 202);
    assert_eq!(world.mailbox("ana").len(), 2);
}

#[test]
fn what_was_refused_may_come_again_and_then_be_taken() {
    let mut world = World::new();
    let doc = envelope("envelope-1", LEO, &[ANA], json!({}));
    is(&world.arrive(doc.clone()), Rule::NoSuchAgent);
    world.agent("ana", json!({}));
    assert_eq!(world.arrive(doc).code, 202);
}

#[test]
fn the_whole_envelope_is_refused() {
    let mut world = open();
    is(&world.arrive(envelope("envelope-1", LEO, &[ANA], json!({"expires": START}))), Rule::EnvelopeExpired);
    assert_eq!(world.arrive(envelope("envelope-2", LEO, &[ANA], json!({"expires": START.plus(1)}))).code, 202);
    is(&world.arrive(envelope("envelope-3", LEO, &["tom@c.example"], json!({}))), Rule::NoRecipientHere);

    let b = key("b.example");
    for more in [json!({"valid_until": START}), json!({"revoked": {"at": START, "by": "casa@b.example"}})] {
        let arrival = world.arrival_from(envelope("envelope-4", LEO, &[ANA], json!({})), card(&b, LEO, more));
        is(&world.take(&arrival), Rule::SenderEnded);
    }
    // A stranger with a domain key of its own, under a name of this house.
    let ghost = card(&key("mar.example"), "ghost@mar.example", json!({}));
    let arrival = world.arrival_from(envelope("envelope-5", "ghost@mar.example", &[ANA], json!({})), ghost);
    is(&world.take(&arrival), Rule::SenderUnknown);

    let mut strict = World::with(Settings { require_relay: true, ..Settings::default() });
    strict.agent("ana", json!({}));
    let mut arrival = strict.arrival(envelope("envelope-6", LEO, &[ANA], json!({})));
    arrival.relay_verified = false;
    is(&strict.take(&arrival), Rule::BadRelay);
    arrival.relay_verified = true;
    assert_eq!(strict.take(&arrival).code, 202);
}

#[test]
fn absent_secret_and_ended_recipients_answer_alike() {
    let mut world = open();
    world.agent("oculta", json!({"visibility": "secret", "inbox": {"policy": "open", "allowlist": ["c.example"]}}));
    world.agent("ida", json!({"valid_until": START}));
    let told: Vec<Value> = ["nobody", "oculta", "ida"]
        .iter()
        .enumerate()
        .map(|(n, name)| {
            let to = format!("{name}@mar.example");
            let mut body = world.arrive(envelope(&format!("envelope-{n}"), LEO, &[&to], json!({}))).body.into_value();
            body["rejected"][0]["to"] = json!("x");
            body
        })
        .collect();
    assert_eq!(told[0]["code"], 404);
    assert!(told.iter().all(|body| body == &told[0]), "{told:?}");
    let friend = envelope("envelope-9", "tom@c.example", &["oculta@mar.example"], json!({}));
    assert_eq!(world.arrive(friend).code, 202);
}

/// Incident 38: a repetition after a partial delivery must not reach anybody twice.
#[test]
fn some_accepted_some_rejected_and_the_retry_reaches_the_rest() {
    let mut world = open();
    world.agent("eva", json!({"inbox": {"policy": "allowlist"}}));
    let to = [ANA, "eva@mar.example", "nobody@mar.example"];
    let doc = envelope("envelope-1", LEO, &to, json!({}));
    let first = world.arrive(doc.clone());
    assert_eq!(first.code, 202);
    assert_eq!(first.body["accepted"], json!([ANA]));
    let codes: Vec<&Value> = first.body["rejected"].as_array().expect("list").iter().map(|r| &r["code"]).collect();
    assert_eq!(codes, vec![403, 404]);
    world.agent("eva", json!({}));
    let second = world.arrive(doc);
    assert_eq!(second.body["accepted"], json!([ANA, "eva@mar.example"]));
    assert_eq!(second.body["duplicate"], true);
    assert_eq!((world.mailbox("ana").len(), world.mailbox("eva").len()), (1, 1));
}

#[test]
fn a_recipient_named_twice_counts_once() {
    let mut world = world_with(json!({"policy": "stamp", "price": 5}));
    fund(&mut world, LEO, 100);
    let doc = envelope("envelope-1", LEO, &[ANA, ANA], json!({"stamp": {"house": "mar.example", "amount": 5}}));
    let answer = world.arrive(doc);
    assert_eq!(answer.body["accepted"], json!([ANA]));
    assert_eq!(answer.body["rejected"], json!([]));
    assert_eq!(world.view.balance(LEO), 95);
}

/// Incident 19: the promise to seal was looked at after the stamp, and skipped where mail is paid for.
#[test]
fn blocked_first_then_the_promise_of_the_domain_then_the_policy() {
    for entry in [LEO, "b.example"] {
        let mut world = world_with(json!({"policy": "open", "blocklist": [entry], "allowlist": [LEO]}));
        is(&world.arrive(envelope("envelope-1", LEO, &[ANA], json!({}))), Rule::Blocked);
    }
    for inbox in [
        json!({"policy": "open"}),
        json!({"policy": "allowlist", "allowlist": [LEO]}),
        json!({"policy": "stamp", "price": 1}),
    ] {
        let mut world = world_with(inbox);
        fund(&mut world, LEO, 100);
        let more = json!({"stamp": {"house": "mar.example", "amount": 1}});
        let mut arrival = world.arrival(envelope("envelope-1", LEO, &[ANA], more));
        arrival.sender_promises_sealed = true;
        is(&world.take(&arrival), Rule::MustBeSealed);
        assert_eq!(world.view.balance(LEO), 100);
    }
    let mut world = open();
    let mut doc = envelope("envelope-2", LEO, &[ANA], json!({}));
    doc["content"] = Value::Null;
    let to = [ANA.to_owned()];
    let binding = seal::Binding { id: "envelope-2", from: LEO, to: &to };
    let chance = seal::SealChance {
        content_key: Zeroizing::new([1; 32]),
        ephemeral: [2; 32],
        content_iv: [3; 12],
        wrap_iv: [4; 12],
    };
    let reader = (address(ANA), seal::SealKey::from_seed([5; 32]).public());
    doc["encrypted"] =
        seal::seal(&json!({"media": "text/plain", "body": "x"}), &binding, &[reader], chance).expect("s");
    key(LEO).sign_object(&mut doc, "signature");
    let mut arrival = world.arrival(doc);
    arrival.sender_promises_sealed = true;
    assert_eq!(world.take(&arrival).code, 202);
    // The ledger must read what it is told: its envelopes are clear whatever was promised.
    let mut arrival = world.arrival(operation("operation-1", LEO, json!({"op": "balance"})));
    arrival.sender_promises_sealed = true;
    assert_eq!(world.take(&arrival).code, 202);
}

#[test]
fn an_allowlist_lets_in_the_listed_and_short_introductions() {
    for entry in [LEO, "b.example"] {
        let mut world = world_with(json!({"policy": "allowlist", "allowlist": [entry]}));
        assert_eq!(world.arrive(envelope("envelope-1", LEO, &[ANA], json!({}))).code, 202);
        is(&world.arrive(envelope("envelope-2", "leo@xb.example", &[ANA], json!({}))), Rule::NotListed);
    }
    let mut world = world_with(json!({"policy": "allowlist"}));
    let intro = |id: &str, fill: usize| {
        let body = "x".repeat(fill);
        envelope(id, LEO, &[ANA], json!({"type": "intro", "content": {"media": "text/plain", "body": body}}))
    };
    let bytes = |doc: &Value| crate::wire::json::canonical(doc).len();
    let room = limits::INTRO_BYTES_MAX - bytes(&intro("envelope-3", 0));
    let longest = intro("envelope-3", room);
    assert_eq!(bytes(&longest), limits::INTRO_BYTES_MAX);
    assert_eq!(world.arrive(longest).code, 202);
    is(&world.arrive(intro("envelope-4", room + 1)), Rule::NotListed);
    is(&world.arrive(envelope("envelope-5", LEO, &[ANA], json!({}))), Rule::NotListed);
}

#[test]
fn a_vouch_needs_a_standing_bond_between_exactly_these_three() {
    let vouch = |bond: &str| json!({"extensions": {"urn:nyx5:ext:aval": {"voucher": "eva@mar.example", "bond": bond}}});
    let bond = |vouchee: &str, beneficiary: &str, verifier: &str, expires: Value| {
        json!({"op": "bond", "amount": 10, "claim": "leo is no nuisance", "verifier": verifier,
            "beneficiary": beneficiary, "vouchee": vouchee, "expires": expires})
    };
    let later = json!(START.plus(86_400_000));
    let posted = |world: &mut World, body: Value| {
        world.agent("eva", json!({}));
        fund(world, "eva@mar.example", 100);
        let answer = world.arrive(operation("bond-op-0001", "eva@mar.example", body));
        assert_eq!(answer.code, 202, "{answer:?}");
        answer.body["results"]["libro@mar.example"]["contract"]["id"].as_str().expect("contract").to_owned()
    };
    let listed = json!({"policy": "allowlist", "allowlist": ["eva@mar.example"]});

    let mut world = world_with(listed.clone());
    let id = posted(&mut world, bond(LEO, ANA, ANA, later.clone()));
    let answer = world.arrive(envelope("envelope-1", LEO, &[ANA], vouch(&id)));
    assert_eq!(answer.code, 202, "{answer:?}");
    let mail = world.mailbox("ana");
    let row = mail.iter().find(|mail| mail.id == "envelope-1").expect("row");
    assert_eq!(row.meta["vouched_by"], "eva@mar.example");
    assert_eq!(row.meta["vouch_bond"], json!(id));
    is(&world.arrive(envelope("envelope-2", "tom@b.example", &[ANA], vouch(&id))), Rule::NotListed);
    is(&world.arrive(envelope("envelope-3", LEO, &[ANA], vouch("no-such-bond"))), Rule::NotListed);
    for shape in [json!(null), json!("x"), json!({"voucher": 5, "bond": id}), json!({"voucher": "eva@mar.example"})] {
        let more = json!({"extensions": {"urn:nyx5:ext:aval": shape}});
        is(&world.arrive(envelope("envelope-4", LEO, &[ANA], more)), Rule::NotListed);
    }
    world.now = START.plus(86_400_000);
    is(&world.arrive(envelope("envelope-5", LEO, &[ANA], vouch(&id))), Rule::NotListed);

    // The voucher is not listed any more.
    let mut world = world_with(listed.clone());
    let id = posted(&mut world, bond(LEO, ANA, ANA, later.clone()));
    world.agent("ana", json!({"inbox": {"policy": "allowlist"}}));
    is(&world.arrive(envelope("envelope-1", LEO, &[ANA], vouch(&id))), Rule::NotListed);

    // Another verifier could let the bond go: it stands for nothing here.
    let mut world = world_with(listed.clone());
    world.agent("rita", json!({}));
    let id = posted(&mut world, bond(LEO, ANA, "rita@mar.example", later));
    is(&world.arrive(envelope("envelope-1", LEO, &[ANA], vouch(&id))), Rule::NotListed);
}

#[test]
fn a_proof_of_work_is_asked_for_in_bits() {
    let mut world = world_with(json!({"policy": "pow", "pow_bits": 12, "allowlist": ["c.example"]}));
    let missing = world.arrive(envelope("envelope-1", LEO, &[ANA], json!({})));
    is(&missing, Rule::ProofOfWorkMissing);
    assert_eq!(missing.body["rejected"][0]["pow_bits"], 12);
    let work = pow::search("envelope-1", 12, 1 << 20).expect("found");
    assert_eq!(world.arrive(envelope("envelope-1", LEO, &[ANA], json!({"pow": work.clone()}))).code, 202);
    is(&world.arrive(envelope("envelope-2", LEO, &[ANA], json!({"pow": work}))), Rule::ProofOfWorkMissing);
    assert_eq!(world.arrive(envelope("envelope-3", "tom@c.example", &[ANA], json!({}))).code, 202);
}

#[test]
fn a_stamp_pays_one_mailbox_once() {
    let mut world = world_with(json!({"policy": "stamp", "price": 20, "allowlist": ["c.example"]}));
    fund(&mut world, LEO, 100);
    is(&world.arrive(envelope("envelope-1", LEO, &[ANA], json!({}))), Rule::StampMissing);
    let stamp = |amount: Value, house: &str| json!({"stamp": {"house": house, "amount": amount}});
    for (amount, house) in [
        (json!(19), "mar.example"),
        (json!(20), "b.example"),
        (json!("20"), "mar.example"),
        (json!(-20), "mar.example"),
    ] {
        is(&world.arrive(envelope("envelope-2", LEO, &[ANA], stamp(amount, house))), Rule::StampMissing);
    }
    assert_eq!(world.view.balance(LEO), 100);
    let doc = envelope("envelope-3", LEO, &[ANA], stamp(json!(50), "mar.example"));
    assert_eq!(world.arrive(doc.clone()).code, 202);
    assert_eq!(world.arrive(doc).code, 200);
    // The mailbox's price, not what the sender was ready to pay.
    assert_eq!(world.view.balance(LEO), 80);
    assert_eq!(world.view.balance(ANA), 18);
    assert!(world.mailbox("ana")[0].meta["stamp"].is_string());
    assert_eq!(world.arrive(envelope("envelope-4", "tom@c.example", &[ANA], json!({}))).code, 202);
    let poor = envelope("envelope-5", "poor@b.example", &[ANA], stamp(json!(20), "mar.example"));
    assert_eq!(world.arrive(poor).code, 402);
}

#[test]
fn one_stamp_never_pays_twice_not_even_over_two_deliveries() {
    let mut world = world_with(json!({"policy": "stamp", "price": 20}));
    world.agent("eva", json!({"inbox": {"policy": "stamp", "price": 10}}));
    fund(&mut world, LEO, 100);
    let more = json!({"stamp": {"house": "mar.example", "amount": 20}});
    let doc = envelope("envelope-1", LEO, &[ANA, "eva@mar.example"], more);
    let first = world.arrive(doc.clone());
    assert_eq!(first.body["accepted"], json!([ANA]));
    assert_eq!(first.body["rejected"][0]["code"], 402);
    let second = world.arrive(doc);
    assert_eq!(second.body["accepted"], json!([ANA]));
    assert_eq!(second.body["rejected"][0]["code"], 402);
    assert_eq!(world.view.balance(LEO), 80);
    assert!(world.mailbox("eva").is_empty());
}

#[test]
fn an_unknown_policy_admits_nobody() {
    let mut world = world_with(json!({"policy": "friends", "allowlist": [LEO]}));
    is(&world.arrive(envelope("envelope-1", LEO, &[ANA], json!({}))), Rule::UnknownPolicy);
}

#[test]
fn what_an_agent_writes_to_itself_passes_its_own_policy() {
    for inbox in [
        json!({"policy": "allowlist"}),
        json!({"policy": "stamp", "price": 9}),
        json!({"policy": "pow", "pow_bits": 40}),
        json!({"policy": "open", "blocklist": ["mar.example"]}),
    ] {
        let mut world = world_with(inbox);
        assert_eq!(world.arrive(envelope("reminder-1", ANA, &[ANA], json!({}))).code, 202);
    }
}

#[test]
fn mail_for_later_is_taken_and_not_shown_before_its_date() {
    let mut world = open();
    let after = START.plus(1_000);
    assert_eq!(world.arrive(envelope("envelope-1", LEO, &[ANA], json!({"deliver_after": after}))).code, 202);
    assert_eq!(world.mailbox("ana")[0].visible_from, Some(after));
    assert_eq!(world.mailbox("ana")[0].received, after);
    assert_eq!(world.arrive(envelope("envelope-2", LEO, &[ANA], json!({"deliver_after": START}))).code, 202);
    assert_eq!(world.mailbox("ana").iter().filter(|mail| mail.visible_from.is_none()).count(), 1);
    // An operation is not done before its date, and the sender tries again.
    let mut doc = operation("operation-1", ANA, json!({"op": "balance"}));
    doc["deliver_after"] = json!(after);
    key(ANA).sign_object(&mut doc, "signature");
    is(&world.arrive(doc.clone()), Rule::NotYet);
    assert!(Rule::NotYet.transient());
    world.now = after;
    assert_eq!(world.arrive(doc).code, 202);
}

#[test]
fn rates_count_an_own_agent_alone_and_a_foreign_domain_together() {
    let mut world = open();
    let limit = limits::RATE_MAIL_PER_MINUTE;
    for n in 0..limit {
        let from = if n % 2 == 0 { LEO } else { "eva@b.example" };
        assert_eq!(world.arrive(envelope(&format!("envelope-{n}"), from, &[ANA], json!({}))).code, 202);
    }
    let over = world.arrive(envelope("envelope-over", "tom@b.example", &[ANA], json!({})));
    is(&over, Rule::RateLimited);
    assert!(over.retry_after.is_some_and(|seconds| (1..=60).contains(&seconds)));
    assert_eq!(world.arrive(envelope("envelope-c", "tom@c.example", &[ANA], json!({}))).code, 202);
    assert_eq!(world.arrive(envelope("envelope-own", ANA, &[ANA], json!({}))).code, 202);
    // A repetition costs nothing and is answered all the same.
    assert_eq!(world.arrive(envelope("envelope-0", LEO, &[ANA], json!({}))).code, 200);
    world.now = world.now.plus(60_000);
    assert_eq!(world.arrive(envelope("envelope-over", "tom@b.example", &[ANA], json!({}))).code, 202);
}

#[test]
fn refused_recipients_count_towards_the_rate_too() {
    let mut world = World::new();
    for n in 0..limits::RATE_MAIL_PER_MINUTE {
        world.arrive(envelope(&format!("envelope-{n}"), LEO, &["nobody@mar.example"], json!({})));
    }
    is(&world.arrive(envelope("envelope-x", LEO, &["nobody@mar.example"], json!({}))), Rule::RateLimited);
}

#[test]
fn the_houses_own_names() {
    let mut world = open();
    let mut one = |id: &str, to: &str, more: Value| world.arrive(envelope(id, LEO, &[to], more));
    is(&one("envelope-1", "tareas@mar.example", json!({})), Rule::NotOfferedHere);
    is(&one("envelope-2", "g.amigos@mar.example", json!({})), Rule::NoSuchAgent);
    is(&one("envelope-3", "casa@mar.example", json!({})), Rule::NoSuchAgent);
    is(&one("envelope-4", "postmaster@mar.example", json!({})), Rule::NotListed);
    assert_eq!(one("envelope-5", "verifica@mar.example", json!({})).code, 202);
    is(&one("envelope-6", "libro@mar.example", json!({})), Rule::BadEnvelope);
    // A letter of the ledger that waited in the queue reaches the mailbox whatever its policy.
    let mut world = world_with(json!({"policy": "allowlist", "blocklist": ["mar.example"]}));
    let answer = world.arrive(envelope("receipt-01", "libro@mar.example", &[ANA], json!({"type": "receipt"})));
    assert_eq!(answer.code, 202, "{answer:?}");
    assert_eq!(world.mailbox("ana")[0].meta["via"], "libro");
    // The ledger's letters find a secret agent too: it is the one that they are about.
    world.agent("oculta", json!({"visibility": "secret"}));
    let doc = envelope("receipt-02", "libro@mar.example", &["oculta@mar.example"], json!({"type": "receipt"}));
    assert_eq!(world.arrive(doc).code, 202);
}

#[test]
fn an_operation_is_answered_receipted_and_done_once() {
    let mut world = open();
    world.agent("eva", json!({}));
    fund(&mut world, ANA, 100);
    let doc = operation("payment-0001", ANA, json!({"op": "pay", "to": "eva@mar.example", "amount": 30}));
    let answer = world.arrive(doc.clone());
    assert_eq!(answer.code, 202, "{answer:?}");
    assert!(answer.body["results"]["libro@mar.example"].is_object());
    assert_eq!((world.view.balance(ANA), world.view.balance("eva@mar.example")), (70, 30));
    assert_eq!((world.mailbox("ana").len(), world.mailbox("eva").len()), (1, 1));
    assert_eq!(world.mailbox("eva")[0].envelope["in_reply_to"], "payment-0001");
    assert!(world.mailbox("libro").is_empty());
    let again = world.arrive(doc);
    assert_eq!((again.code, again.body["results"].clone()), (200, answer.body["results"].clone()));
    assert_eq!((world.view.balance(ANA), world.mailbox("eva").len()), (70, 1));
    // Refused operations move nothing and leave nothing.
    let journal = world.view.journal_last();
    let broke = operation("payment-0002", ANA, json!({"op": "pay", "to": "eva@mar.example", "amount": 71}));
    assert_eq!(world.arrive(broke).code, 402);
    assert_eq!(world.view.journal_last(), journal);
    assert!(world.view.seen(&address(ANA), "payment-0002").is_none());
}

#[test]
fn a_subagent_is_bound_by_its_scope_and_by_every_parent_above_it() {
    let mut world = open();
    world.agent("eva", json!({}));
    let delegated = |world: &mut World, local: &str, by: &str, scope: Value| {
        let (child, parent) = (format!("{local}@mar.example"), address(&format!("{by}@mar.example")));
        let scope = crate::wire::card::Scope::parse(Some(&scope)).expect("scope");
        let doc = Delegation::sign(
            &parent,
            &key(parent.as_str()),
            &address(&child),
            &key(&child).public(),
            &scope,
            None,
            START,
        );
        world.agent(local, json!({"delegation": doc}));
    };
    delegated(&mut world, "bot.eva", "eva", json!({"messages_only": true}));
    delegated(&mut world, "sub.bot.eva", "bot.eva", json!({}));
    for from in ["bot.eva@mar.example", "sub.bot.eva@mar.example"] {
        assert_eq!(
            world.arrive(envelope(&format!("mail:{}", from.replace('@', ":")), from, &[ANA], json!({}))).code,
            202
        );
        let pay = json!({"op": "pay", "to": ANA, "amount": 1});
        let pays = operation(&format!("pays:{}", from.replace('@', ":")), from, pay);
        is(&world.arrive(pays.clone()), Rule::OutOfScope);
        is(&world.send(pays), Rule::OutOfScope);
        let away = envelope(&format!("away:{}", from.replace('@', ":")), from, &["leo@b.example"], json!({}));
        assert_eq!(world.send(away).code, 202);
    }
    let revoked = json!({"revoked": {"at": START, "by": "eva@mar.example"}});
    let mut more = revoked.as_object().cloned().expect("object");
    more.insert("delegation".into(), world.card_of("bot.eva").doc()["delegation"].clone());
    world.agent("bot.eva", Value::Object(more));
    for from in ["bot.eva@mar.example", "sub.bot.eva@mar.example"] {
        is(
            &world.arrive(envelope(&format!("next:{}", from.replace('@', ":")), from, &[ANA], json!({}))),
            Rule::SenderEnded,
        );
    }
    let orphan = envelope("next-orphan", "sub.bot.eva@mar.example", &["leo@b.example"], json!({}));
    is(&world.send(orphan), Rule::SenderEnded);
}

#[test]
fn what_changed_since_the_card_was_resolved_is_seen_inside_the_transaction() {
    let mut world = open();
    let arrival = world.arrival(envelope("envelope-1", ANA, &[ANA], json!({})));
    world.agent("ana", json!({"sig": key("thief").public().kid()}));
    is(&world.take(&arrival), Rule::SenderUnknown);
    world.agent("ana", json!({"revoked": {"at": START, "by": "casa@mar.example"}}));
    is(&world.take(&arrival), Rule::SenderEnded);
}

/// Everything that a repetition must not change.
#[derive(Debug, PartialEq)]
struct Settled {
    boxes: Vec<usize>,
    entries: u64,
    balances: Vec<i64>,
    jobs: usize,
}

fn settled(world: &World) -> Settled {
    let names = ["ana", "eva", "libro", "verifica", "postmaster"];
    let mut balances: Vec<i64> = world.view.balances().values().copied().collect();
    balances.sort_unstable();
    Settled {
        boxes: names.iter().map(|name| world.mailbox(name).len()).collect(),
        entries: world.view.journal_last(),
        balances,
        jobs: world.jobs().len(),
    }
}

fn letters_of_a_day() -> Vec<Value> {
    let stamp = json!({"stamp": {"house": "mar.example", "amount": 20}});
    vec![
        envelope("envelope-1", LEO, &[ANA, "eva@mar.example"], json!({})),
        envelope("envelope-2", LEO, &["eva@mar.example", ANA], stamp),
        envelope("envelope-1", "tom@c.example", &[ANA], json!({})),
        operation("payment-0001", ANA, json!({"op": "pay", "to": "eva@mar.example", "amount": 30})),
        operation("payment-0002", "eva@mar.example", json!({"op": "pay", "to": ANA, "amount": 5})),
        operation("bond-op-001", ANA, json!({"op": "bond", "amount": 7, "claim": "x", "verifier": "eva@mar.example"})),
        envelope(
            "envelope-3",
            ANA,
            &["libro@mar.example", "eva@mar.example"],
            json!({"type": "task",
            "content": {"media": OP_MEDIA, "body": {"op": "pay", "to": "eva@mar.example", "amount": 2}}}),
        ),
        envelope("envelope-4", LEO, &["nobody@mar.example", "verifica@mar.example"], json!({})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_repetition_in_any_order_doubles_mail_or_money(order in prop::collection::vec(0usize..8, 8..40)) {
        let mut world = open();
        world.agent("eva", json!({"inbox": {"policy": "stamp", "price": 20, "allowlist": ["mar.example"]}}));
        fund(&mut world, LEO, 1_000);
        fund(&mut world, ANA, 1_000);
        fund(&mut world, "eva@mar.example", 1_000);
        let letters = letters_of_a_day();
        let mut done: Vec<usize> = Vec::new();
        for pick in order {
            let before = settled(&world);
            let answer = world.arrive(letters[pick].clone());
                prop_assert!(answer.code < 300, "{answer:?}");
            if done.contains(&pick) {
                prop_assert_eq!(&before, &settled(&world));
            }
            done.push(pick);
        }
        // The order of first deliveries decides nothing about the sum.
        let total: i64 = world.view.balances().values().sum();
        prop_assert_eq!(total, 0);
        let mut once: Vec<usize> = done.clone();
        once.sort_unstable();
        once.dedup();
        let mut fresh = open();
        fresh.agent("eva", json!({"inbox": {"policy": "stamp", "price": 20, "allowlist": ["mar.example"]}}));
        fund(&mut fresh, LEO, 1_000);
        fund(&mut fresh, ANA, 1_000);
        fund(&mut fresh, "eva@mar.example", 1_000);
        for pick in once {
            fresh.arrive(letters[pick].clone());
        }
        prop_assert_eq!(settled(&world), settled(&fresh));
    }

    #[test]
    fn hostile_extensions_and_fields_never_panic(
        field in prop::sample::select(vec!["extensions", "stamp", "pow", "receipt", "thread", "in_reply_to", "x"]),
        value in hostile(),
        policy in prop::sample::select(vec!["open", "allowlist", "pow", "stamp", "other"]),
    ) {
        let mut world = world_with(json!({"policy": policy, "price": 3}));
        let value = match field {
            "extensions" => json!({"urn:nyx5:ext:aval": value}),
            _ => value,
        };
        let doc = envelope("envelope-1", LEO, &[ANA], json!({field: value}));
        let answer = world.arrive(doc);
        prop_assert!(matches!(answer.code, 202 | 402 | 403));
        let body = operation("operation-1", ANA, json!({"op": "pay", "to": value_of(field), "amount": 1}));
        prop_assert!(world.arrive(body).code >= 400);
    }
}

fn value_of(field: &str) -> Value {
    json!({"nested": [field, null, {"deep": true}]})
}

fn hostile() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-9_007_199_254_740_991i64..=9_007_199_254_740_991).prop_map(Value::from),
        "\\PC{0,40}".prop_map(Value::from),
        Just(json!("eva@mar.example")),
        Just(json!("mar.example")),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        let keys = prop::sample::select(vec!["voucher", "bond", "house", "amount", "nonce", "bits", "__proto__"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

#[test]
fn an_arrival_is_one_decision() {
    let mut world = open();
    world.agent("eva", json!({}));
    fund(&mut world, ANA, 100);
    let doc = envelope(
        "envelope-1",
        ANA,
        &["libro@mar.example", "eva@mar.example"],
        json!({"type": "task", "content": {"media": OP_MEDIA,
            "body": {"op": "pay", "to": "eva@mar.example", "amount": 30}}}),
    );
    let arrival: Arrival = world.arrival(doc);
    let house: House = world.house.clone();
    let decision =
        super::inbound(&house, &world.view, world.now, &mut Ids::from_seed([9; 32]), &Cards::new(), &arrival)
            .expect("decided");
    let has = |wanted: fn(&Change) -> bool| decision.changes.iter().any(wanted);
    assert!(has(|change| matches!(change, Change::Journal(_))));
    assert!(has(|change| matches!(change, Change::InsertOperation(_))));
    assert!(has(|change| matches!(change, Change::Deliver(mail) if mail.local == "eva" && mail.id == "envelope-1")));
    assert!(has(|change| matches!(change, Change::Deliver(mail) if mail.meta.contains_key("via"))));
    assert!(has(|change| matches!(change, Change::PutSeen(_))));
    assert!(has(|change| matches!(change, Change::CountRate { .. })));
}
