//! Who may enter, under which name, with what on the card; and what an owner can and cannot change.

use super::fixture::{START, World, address, certified, envelope, key, registration};
use super::registration::{is_reserved, set_profile};
use super::{Answer, Authority, delegation, invitations};
use crate::limits;
use crate::record::{Registration, Settings, View};
use crate::refusal::Rule;
use crate::time::Timestamp;
use crate::wire::address::Address;
use crate::wire::card::{Delegation, Scope};
use crate::wire::{AgentCard, SigningKey};
use proptest::prelude::*;
use serde_json::{Value, json};

fn mode(registration: Registration) -> World {
    World::with(Settings { registration, ..Settings::default() })
}

fn rule_of(answer: &Answer) -> Option<u64> {
    answer.body["rule"].as_u64()
}

fn is(answer: &Answer, rule: Rule) {
    assert_eq!((answer.code, rule_of(answer)), (rule.code(), Some(u64::from(rule.number()))), "{answer:?}");
}

fn by_oneself(world: &mut World, local: &str, more: Value) -> Answer {
    let body = registration(local, world.now, more);
    world.register(body, Authority::Nobody)
}

fn by_admin(world: &mut World, local: &str, more: Value) -> Answer {
    let body = registration(local, world.now, more);
    world.register(body, Authority::Admin)
}

fn owner(world: &World, local: &str) -> Authority {
    Authority::Agent(Box::new(world.card_of(local)))
}

fn delegate(parent: &str, child: &str, child_key: &SigningKey, scope: Value, issued: Timestamp) -> Value {
    let scope = Scope::parse(Some(&scope)).expect("scope");
    let (parent, child) = (address(parent), address(child));
    Delegation::sign(&parent, &key(parent.as_str()), &child, &child_key.public(), &scope, None, issued)
}

/// Registers `local` under the delegation of the name after its first dot.
fn subagent(world: &mut World, local: &str, scope: Value) -> Answer {
    let (_, parent) = local.split_once('.').expect("dotted");
    let (parent, child) = (format!("{parent}@mar.example"), format!("{local}@mar.example"));
    let doc = delegate(&parent, &child, &key(&child), scope, world.now);
    let authority = owner(world, address(&parent).local());
    let body = registration(local, world.now, json!({"delegation": doc}));
    world.register(body, authority)
}

#[test]
fn a_card_is_certified_and_carries_what_was_asked_for_and_nothing_else() {
    let mut world = World::new();
    let answer = by_oneself(
        &mut world,
        "maria",
        json!({
            "capabilities": {"mcp": "https://mar.example/mcp", "listed": true}, "visibility": "public",
            "custody": {"keys": "house"}, "revoked": {"at": "x"}, "system": true, "group": {"admins": []},
            "_welcome": 1_000_000, "certification": {"alg": "x"}, "address": "libro@mar.example", "previous": [{"sig": "x"}],
            "registered_via": "admin", "nyx5": "2", "valid_from": "1999-01-01", "source": "web <script>",
        }),
    );
    assert_eq!(answer.code, 201, "{answer:?}");
    assert_eq!(answer.body["registered_via"], "open");
    let card = world.card_of("maria");
    assert!(certified(&world, &card));
    let fields: Vec<&str> = card.doc().as_object().expect("object").keys().map(String::as_str).collect();
    let mut fields = fields;
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            "address",
            "capabilities",
            "certification",
            "enc",
            "inbox",
            "nyx5",
            "previous",
            "sig",
            "valid_from",
            "valid_until",
            "visibility"
        ]
    );
    assert_eq!(card.address, address("maria@mar.example"));
    assert_eq!(card.doc()["capabilities"]["accepts"], json!(["text/plain", "application/json"]));
    assert_eq!(card.doc()["inbox"], json!({"policy": "open"}));
    assert_eq!(card.doc()["previous"], json!([]));
    assert_eq!(world.view.balance("maria@mar.example"), 0);
    let (_, _, _, joined) = world.view.events().find(|(name, ..)| *name == "join").expect("event");
    assert_eq!(joined, &json!({"via": "open", "source": "webscript"}));
}

#[test]
fn possession_of_the_key_is_proved_now_or_not_at_all() {
    let mut world = World::new();
    let good = registration("maria", world.now, json!({}));
    let mut cases: Vec<Value> = Vec::new();
    let mut unsigned = good.clone();
    unsigned.as_object_mut().expect("object").remove("signature");
    cases.push(unsigned);
    let mut changed = good.clone();
    changed["inbox"] = json!({"policy": "pow"});
    cases.push(changed);
    let mut other = good.clone();
    key("eve").sign_object(&mut other, "signature");
    cases.push(other);
    for ts in [json!("NaN"), json!(null), json!(5), json!("2026-09-15T10:00:00"), json!("yesterday"), json!({})] {
        cases.push(registration("maria", world.now, json!({"ts": ts})));
    }
    for off in [limits::AUTH_WINDOW_MS + 1, -limits::AUTH_WINDOW_MS - 1] {
        cases.push(registration("maria", world.now.plus(off), json!({})));
    }
    for (n, body) in cases.into_iter().enumerate() {
        world.ip = n.to_string();
        is(&world.register(body, Authority::Nobody), Rule::PossessionNotProved);
    }
    assert!(world.view.agent("maria").is_none());
    let edge = registration("maria", world.now.minus(limits::AUTH_WINDOW_MS), json!({}));
    assert_eq!(world.register(edge, Authority::Nobody).code, 201);
}

#[test]
fn modes_let_in_whom_they_say() {
    let mut world = mode(Registration::Admin);
    is(&by_oneself(&mut world, "maria", json!({})), Rule::RegistrationClosed);
    assert_eq!(by_admin(&mut world, "maria", json!({})).code, 201);
    assert_eq!(world.view.agent("maria").map(|r| r.registered_via), Some("admin".into()));

    let mut world = mode(Registration::Invite);
    is(&by_oneself(&mut world, "maria", json!({})), Rule::InvitationInvalid);
    is(&by_oneself(&mut world, "maria", json!({"invite": "nothing"})), Rule::InvitationInvalid);
}

fn invite(world: &mut World, body: Value) -> String {
    let mut ids = world.ids();
    let decided = invitations::create(world.now, &mut ids, &body);
    let answer = world.keep(decided);
    assert_eq!(answer.code, 201, "{answer:?}");
    answer.body["code"].as_str().expect("code").to_owned()
}

/// Incident 2: read, check and write let one code register many.
#[test]
fn an_invitation_is_spent_once_and_never_by_a_rejected_registration() {
    let mut world = mode(Registration::Invite);
    let code = invite(&mut world, json!({"uses": 1, "welcome": 40}));
    assert_eq!(code.len(), 20);
    assert!(code.bytes().all(|b| b.is_ascii_hexdigit()));
    for local in ["libro", "abc", "g.amigos"] {
        assert_eq!(by_oneself(&mut world, local, json!({"invite": code})).code, 409, "{local}");
    }
    assert_eq!(world.view.invitation(&code).map(|invitation| invitation.used), Some(0));
    let answer = by_oneself(&mut world, "maria", json!({"invite": code}));
    assert_eq!(answer.code, 201, "{answer:?}");
    assert_eq!(answer.body["registered_via"], json!(format!("invite:{code}")));
    assert_eq!(world.view.balance("maria@mar.example"), 40);
    is(&by_oneself(&mut world, "pedro", json!({"invite": code})), Rule::InvitationInvalid);

    let code = invite(&mut world, json!({"uses": 5, "expires": START.plus(60_000)}));
    world.now = world.now.plus(60_000);
    is(&by_oneself(&mut world, "pedro", json!({"invite": code})), Rule::InvitationInvalid);
}

/// Incident 3: two registrations of one name at once split the key and paid the gift twice.
#[test]
fn two_registrations_decided_at_once_cannot_share_a_name_or_an_invitation() {
    let mut world = mode(Registration::Invite);
    let code = invite(&mut world, json!({"welcome": 10}));
    let decide = |world: &World, local: &str, seed: u8| {
        let body = registration(local, world.now, json!({"invite": code}));
        let mut ids = crate::ids::Ids::from_seed([seed; 32]);
        super::register(&world.house, &world.view, world.now, &mut ids, &body, &Authority::Nobody, "::1").expect("ok")
    };
    let (first, second) = (decide(&world, "maria", 1), decide(&world, "pedro", 2));
    assert!(world.view.commit(first).is_ok());
    assert!(world.view.commit(second).is_err());
    assert!(world.view.agent("pedro").is_none());
    assert_eq!(world.view.balance("pedro@mar.example"), 0);
}

#[test]
fn bad_invitations() {
    let mut world = World::new();
    for body in [
        json!({"uses": 0}),
        json!({"uses": "1"}),
        json!({"uses": limits::INVITATION_USES_MAX + 1}),
        json!({"expires": "soon"}),
        json!({"expires": START}),
        json!({"note": "x".repeat(limits::INVITATION_NOTE_MAX + 1)}),
        json!({"note": 5}),
        json!({"welcome": -1}),
        json!({"welcome": limits::SAFE_INTEGER_MAX + 1}),
    ] {
        let decided = invitations::create(world.now, &mut world.ids(), &body);
        is(&world.keep(decided), Rule::BadField);
    }
    invite(&mut world, json!({"uses": limits::INVITATION_USES_MAX, "note": "x".repeat(limits::INVITATION_NOTE_MAX)}));
}

#[test]
fn names() {
    let mut world = World::new();
    for name in ["", "A", "María", ".maria", "-x", "a/b", "../domain", "a@b", &"a".repeat(65)] {
        let body = registration("x", world.now, json!({"local": name}));
        is(&world.register(body, Authority::Admin), Rule::NameInvalid);
    }
    for name in
        ["postmaster", "libro", "verifica", "tareas", "casa", "admin", "root", "indice", "historial", "qa", "ideas"]
    {
        assert!(is_reserved(name));
        assert_eq!(by_admin(&mut world, name, json!({})).code, 409, "{name}");
    }
    is(&by_admin(&mut world, "g.amigos", json!({})), Rule::NameReserved);
    // What a person would read as the house speaking.
    for name in ["casa.", "libro-1", "verifica_bot", "casa.pagos", "maria.", "maria..luz"] {
        is(&by_admin(&mut world, name, json!({})), Rule::NameReserved);
    }
    for name in ["casamiento", "librero", "maria.luz"] {
        assert_eq!(by_admin(&mut world, name, json!({})).code, 201, "{name}");
    }
    is(&by_admin(&mut world, "abc", json!({})), Rule::NameTooShort);
    assert_eq!(by_admin(&mut world, "abcd", json!({})).code, 201);
    // Nobody takes the house's own name by holding the house's key either.
    let mut body = registration("verifica", world.now, json!({}));
    body["sig"] = json!(key("mar.example").public().kid());
    assert!(world.register(body, owner(&world, "verifica")).code >= 400);
    let body = registration("verifica", world.now, json!({}));
    is(&world.register(body, owner(&world, "verifica")), Rule::NameReserved);
}

#[test]
fn a_dotted_name_under_an_existing_agent_needs_its_delegation_at_any_depth() {
    let mut world = World::new();
    by_admin(&mut world, "alicia", json!({}));
    for local in ["evil.alicia", "evil.x.alicia", "a.b.c.alicia"] {
        assert_eq!(by_admin(&mut world, local, json!({})).code, 409, "{local}");
        assert_eq!(by_oneself(&mut world, local, json!({})).code, 409, "{local}");
    }
    assert_eq!(by_admin(&mut world, "ana.garcia", json!({})).code, 201);
    assert_eq!(subagent(&mut world, "bot.alicia", json!({})).code, 201);
}

#[test]
fn a_taken_secret_name_answers_as_a_reserved_one_at_every_step() {
    for registration_mode in [Registration::Admin, Registration::Invite, Registration::Open] {
        let mut world = mode(registration_mode);
        world.agent("oculta", json!({"visibility": "secret"}));
        world.agent("vista", json!({}));
        let code = invite(&mut world, json!({"uses": 9}));
        is(&by_oneself(&mut world, "vista", json!({"invite": code})), Rule::NameTaken);
        let ask = |world: &mut World, local: &str, more: Value| {
            let answer = by_oneself(world, local, more);
            let mut body = answer.body.value().clone();
            body["reason"] = answer.body["reason"].as_str().expect("reason").replace(local, "NAME").into();
            Answer { body: body.into(), ..answer }
        };
        for more in [json!({"invite": code}), json!({"invite": "none"}), json!({"ts": "NaN"}), json!({"visibility": 5})]
        {
            let hidden = ask(&mut world, "oculta", more.clone());
            assert_eq!(hidden, ask(&mut world, "root", more.clone()), "{registration_mode:?} {more}");
            world.now = world.now.plus(60_000);
        }
        assert_eq!(world.view.invitation(&code).map(|invitation| invitation.used), Some(0));
    }
}

#[test]
fn attempts_are_counted_before_signatures_are_looked_at() {
    let mut world = World::new();
    let mut unsigned = registration("maria", world.now, json!({}));
    unsigned["signature"]["value"] = json!("AA");
    for _ in 0..limits::RATE_REGISTRATION_PER_MINUTE {
        is(&world.register(unsigned.clone(), Authority::Nobody), Rule::PossessionNotProved);
    }
    let over = by_oneself(&mut world, "maria", json!({}));
    is(&over, Rule::RateLimited);
    assert!(over.retry_after.is_some());
    // The operator is nobody's neighbour.
    assert_eq!(by_admin(&mut world, "maria", json!({})).code, 201);
    world.now = world.now.plus(60_000);
    assert_eq!(by_oneself(&mut world, "pedro", json!({})).code, 201);
}

#[test]
fn an_update_replaces_the_card_and_keeps_what_it_must() {
    let mut world = World::new();
    let first = json!({
        "capabilities": {"presence": true}, "inbox": {"policy": "pow", "pow_bits": 20}, "webhook": null,
        "notify_email": null, "valid_until": START.plus(1_000_000), "visibility": "public",
        "profile": {"display_name": "María"}, "wallets": [{"network": "base", "address": "0x12"}],
        "enc": crate::wire::seal::SealKey::from_seed([4; 32]).public().text(),
    });
    assert_eq!(by_oneself(&mut world, "maria", first).code, 201);
    let authority = owner(&world, "maria");
    let answer = world.register(registration("maria", world.now, json!({})), authority);
    assert_eq!((answer.code, answer.body["registered_via"].clone()), (201, json!("self")));
    let record = world.view.agent("maria").expect("record");
    let doc = record.card.doc();
    assert_eq!(doc["enc"], Value::Null);
    assert_eq!(doc["inbox"], json!({"policy": "open"}));
    assert_eq!(doc["valid_until"], Value::Null);
    assert_eq!(doc["capabilities"], json!({"accepts": ["text/plain", "application/json"]}));
    assert_eq!(doc["visibility"], "public");
    assert_eq!(doc["profile"]["display_name"], "María");
    assert_eq!(doc["wallets"], json!([{"network": "base", "address": "0x12"}]));
    assert_eq!(record.registered_via, "open");

    let authority = owner(&world, "maria");
    let cleared = json!({"profile": null, "visibility": null});
    world.register(registration("maria", world.now, cleared), authority);
    let card = world.card_of("maria");
    assert!(card.doc().get("profile").is_none() && card.doc().get("visibility").is_none());
    assert_eq!(world.view.events().filter(|(name, ..)| *name == "join").count(), 1);
}

fn rotate(world: &mut World, local: &str, to: &SigningKey) -> Answer {
    let authority = owner(world, local);
    let body = json!({"local": local, "sig": to.public().kid()});
    world.register(body, authority)
}

#[test]
fn rotation_leaves_the_old_keys_a_week_and_no_more_than_three() {
    let mut world = World::new();
    by_admin(&mut world, "maria", json!({}));
    let first = key("maria@mar.example").public();
    let mut newest = Vec::new();
    for n in 1..=4u8 {
        world.now = world.now.plus(1_000);
        assert_eq!(rotate(&mut world, "maria", &SigningKey::from_seed([n; 32])).code, 201);
        newest.insert(0, SigningKey::from_seed([n; 32]).public());
    }
    let card = world.card_of("maria");
    assert_eq!(card.sig, newest[0]);
    let previous: Vec<&str> =
        card.doc()["previous"].as_array().expect("list").iter().filter_map(|key| key["sig"].as_str()).collect();
    assert_eq!(previous, newest[1..].iter().map(|key| key.kid()).collect::<Vec<_>>());
    assert!(card.accepted_key(&first.kid(), world.now).is_none());
    let second = newest[3].kid();
    assert!(card.accepted_key(&newest[1].kid(), world.now.plus(limits::KEY_GRACE_MS - 1)).is_some());
    assert!(card.accepted_key(&newest[1].kid(), world.now.plus(limits::KEY_GRACE_MS)).is_none());
    assert!(card.accepted_key(&second, world.now).is_some() == (previous.contains(&second.as_str())));

    // An envelope that was on its way when the key changed still arrives.
    let mut world = World::new();
    by_admin(&mut world, "maria", json!({}));
    by_admin(&mut world, "pedro", json!({}));
    let doc = envelope("envelope-1", "maria@mar.example", &["pedro@mar.example"], json!({}));
    rotate(&mut world, "maria", &SigningKey::from_seed([1; 32]));
    assert_eq!(world.arrive(doc).code, 202);
    // The old key does not change the card any more.
    let mut stale = world.card_of("maria").doc().clone();
    stale["sig"] = json!(key("maria@mar.example").public().kid());
    let stale = Authority::Agent(Box::new(AgentCard::certify(stale, &world.house.key).expect("card")));
    let body = registration("maria", world.now, json!({}));
    is(&world.register(body, stale), Rule::Unauthenticated);
}

#[test]
fn nobody_writes_another_name() {
    let mut world = World::new();
    by_admin(&mut world, "maria", json!({}));
    by_admin(&mut world, "pedro", json!({}));
    let authority = owner(&world, "pedro");
    is(&world.register(registration("maria", world.now, json!({})), authority), Rule::NameTaken);
    // Nor by signing that an existing name is one's subagent.
    world.agent("x.pedro", json!({}));
    let new_key = SigningKey::from_seed([9; 32]);
    let doc = delegate("pedro@mar.example", "x.pedro@mar.example", &new_key, json!({}), START);
    let mut body = json!({"local": "x.pedro", "sig": new_key.public().kid(), "ts": world.now, "delegation": doc});
    new_key.sign_object(&mut body, "signature");
    let authority = owner(&world, "pedro");
    is(&world.register(body, authority), Rule::NameTaken);
    assert_eq!(world.card_of("x.pedro").sig, key("x.pedro@mar.example").public());
}

#[test]
fn a_subagent_is_narrower_than_its_parent_in_every_bound() {
    let mut world = World::new();
    by_admin(&mut world, "eva0", json!({}));
    let scope = json!({"types": ["message", "result"], "to_domains": ["mar.example"], "cap": 50});
    let answer = subagent(&mut world, "bot.eva0", scope.clone());
    assert_eq!(answer.code, 201, "{answer:?}");
    let card = world.card_of("bot.eva0");
    assert!(card.delegated_by(&world.card_of("eva0"), world.now).is_ok());
    assert_eq!(world.view.balance("bot.eva0@mar.example"), 0);
    for wider in [
        json!({}),
        json!({"types": ["message", "task"], "to_domains": ["mar.example"], "cap": 50}),
        json!({"types": ["message"], "to_domains": ["mar.example", "b.example"], "cap": 50}),
        json!({"types": ["message"], "to_domains": ["mar.example"], "cap": 51}),
        json!({"types": ["message"], "to_domains": ["mar.example"]}),
        json!({"types": ["message"], "cap": 5}),
    ] {
        is(&subagent(&mut world, "sub.bot.eva0", wider), Rule::OutOfScope);
    }
    let same = subagent(&mut world, "sub.bot.eva0", scope);
    assert_eq!(same.code, 201, "{same:?}");
    assert!(world.card_of("sub.bot.eva0").delegated_by(&card, world.now).is_ok());
    by_admin(&mut world, "mudo", json!({}));
    subagent(&mut world, "bot.mudo", json!({"messages_only": true}));
    is(&subagent(&mut world, "sub.bot.mudo", json!({"messages_only": false})), Rule::OutOfScope);
    assert_eq!(subagent(&mut world, "sub.bot.mudo", json!({"messages_only": true})).code, 201);
}

#[test]
fn a_delegation_names_its_parent_its_child_and_its_key() {
    let mut world = World::new();
    by_admin(&mut world, "alicia", json!({}));
    by_admin(&mut world, "oculta", json!({"visibility": "secret"}));
    let own = key("bot.alicia@mar.example");
    let ask = |world: &mut World, local: &str, doc: Value| {
        let body = registration(local, world.now, json!({"delegation": doc}));
        world.register(body, Authority::Admin)
    };
    let good = |parent: &str, child: &str| delegate(parent, child, &own, json!({}), START);
    is(&ask(&mut world, "bot.alicia", good("alicia@b.example", "bot.alicia@mar.example")), Rule::BadField);
    is(&ask(&mut world, "bot.pedro", good("alicia@mar.example", "bot.pedro@mar.example")), Rule::BadField);
    is(&ask(&mut world, "bot.nadie", good("nadie@mar.example", "bot.nadie@mar.example")), Rule::NoSuchAgent);
    is(&ask(&mut world, "bot.alicia", good("alicia@mar.example", "other.alicia@mar.example")), Rule::OutOfScope);
    let other_key = delegate("alicia@mar.example", "bot.alicia@mar.example", &key("x"), json!({}), START);
    is(&ask(&mut world, "bot.alicia", other_key), Rule::OutOfScope);
    let mut forged = good("alicia@mar.example", "bot.alicia@mar.example");
    key("eve").sign_object(&mut forged, "signature");
    is(&ask(&mut world, "bot.alicia", forged), Rule::OutOfScope);
    let mut hidden = good("oculta@mar.example", "bot.oculta@mar.example");
    key("eve").sign_object(&mut hidden, "signature");
    is(&ask(&mut world, "bot.oculta", hidden), Rule::NoSuchAgent);
    is(&ask(&mut world, "bot.libro", good("libro@mar.example", "bot.libro@mar.example")), Rule::NoSuchAgent);
    assert_eq!(ask(&mut world, "bot.alicia", good("alicia@mar.example", "bot.alicia@mar.example")).code, 201);
}

#[test]
fn chains_have_an_end() {
    let mut world = World::new();
    by_admin(&mut world, "raiz", json!({}));
    let mut name = "raiz".to_owned();
    let mut depth = 0;
    loop {
        name = format!("s.{name}");
        let answer = subagent(&mut world, &name, json!({}));
        if answer.code != 201 {
            is(&answer, Rule::OutOfScope);
            break;
        }
        depth += 1;
        let card = world.card_of(&name);
        assert!(delegation::stands(&world.view, &card, world.now).is_ok(), "{depth}");
    }
    assert_eq!(depth, limits::DELEGATION_DEPTH_MAX - 1);
}

#[test]
fn a_subagent_keeps_its_bounds_when_it_updates_itself() {
    let mut world = World::new();
    by_admin(&mut world, "alicia", json!({}));
    subagent(&mut world, "bot.alicia", json!({"cap": 50}));
    let wide = delegate(
        "alicia@mar.example",
        "bot.alicia@mar.example",
        &key("bot.alicia@mar.example"),
        json!({}),
        START.minus(60_000),
    );
    let authority = owner(&world, "bot.alicia");
    let body = registration("bot.alicia", world.now, json!({"inbox": {"policy": "pow"}}));
    assert_eq!(world.register(body, authority.clone()).code, 201);
    assert_eq!(world.card_of("bot.alicia").scope().and_then(|scope| scope.cap), Some(50));
    // An earlier, wider delegation does not come back.
    let body = registration("bot.alicia", world.now, json!({"delegation": wide}));
    is(&world.register(body, authority.clone()), Rule::OutOfScope);
    // A new key needs the parent's word for it.
    is(&rotate(&mut world, "bot.alicia", &SigningKey::from_seed([7; 32])), Rule::OutOfScope);
    let new_key = SigningKey::from_seed([7; 32]);
    let doc = delegate("alicia@mar.example", "bot.alicia@mar.example", &new_key, json!({"cap": 50}), START.plus(1));
    let body = json!({"local": "bot.alicia", "sig": new_key.public().kid(), "delegation": doc});
    assert_eq!(world.register(body, authority).code, 201);
}

fn revoke(world: &mut World, local: &str, by: &Authority) -> Answer {
    let decided = delegation::revoke(&world.house, &world.view, world.now, local, by);
    world.keep(decided)
}

/// Incident 14: a revoked key would return through the days of grace.
#[test]
fn revoking_ends_a_subagent_and_its_keys_for_good() {
    let mut world = World::new();
    by_admin(&mut world, "alicia", json!({}));
    by_admin(&mut world, "pedro", json!({}));
    subagent(&mut world, "bot.alicia", json!({}));
    let (alicia, pedro) = (owner(&world, "alicia"), owner(&world, "pedro"));
    is(&revoke(&mut world, "bot.alicia", &Authority::Nobody), Rule::Unauthenticated);
    is(&revoke(&mut world, "nadie.alicia", &Authority::Nobody), Rule::Unauthenticated);
    is(&revoke(&mut world, "bot.alicia", &pedro), Rule::NotYours);
    is(&revoke(&mut world, "pedro", &Authority::Admin), Rule::NoSuchDelegation);
    is(&revoke(&mut world, "Bad Name", &Authority::Admin), Rule::NameInvalid);
    let answer = revoke(&mut world, "bot.alicia", &alicia);
    assert_eq!((answer.code, answer.body["revoked"]["by"].clone()), (200, json!("alicia@mar.example")));
    assert!(world.card_of("bot.alicia").ended(world.now));
    assert!(certified(&world, &world.card_of("bot.alicia")));
    let again = revoke(&mut world, "bot.alicia", &alicia);
    assert_eq!(again.body["already"], true);

    // The name may come back with another key; the revoked key never does.
    let old = key("bot.alicia@mar.example").public();
    is(&subagent(&mut world, "bot.alicia", json!({})), Rule::BadField);
    let new_key = SigningKey::from_seed([7; 32]);
    let doc = delegate("alicia@mar.example", "bot.alicia@mar.example", &new_key, json!({}), START);
    let body = json!({"local": "bot.alicia", "sig": new_key.public().kid(), "delegation": doc});
    assert_eq!(world.register(body, alicia.clone()).code, 201);
    let card = world.card_of("bot.alicia");
    assert!(!card.ended(world.now));
    assert!(card.accepted_key(&old.kid(), world.now).is_none());

    // What the operator ended, the parent does not undo.
    revoke(&mut world, "bot.alicia", &Authority::Admin);
    let newer = SigningKey::from_seed([8; 32]);
    let doc = delegate("alicia@mar.example", "bot.alicia@mar.example", &newer, json!({}), START);
    let body = json!({"local": "bot.alicia", "sig": newer.public().kid(), "delegation": doc});
    is(&world.register(body.clone(), alicia), Rule::NotYours);
    assert_eq!(world.register(body, Authority::Admin).code, 201);
}

#[test]
fn a_stranger_does_not_learn_of_a_secret_subagent_by_revoking() {
    let mut world = World::new();
    by_admin(&mut world, "alicia", json!({}));
    by_admin(&mut world, "pedro", json!({}));
    subagent(&mut world, "bot.alicia", json!({}));
    let mut doc = world.card_of("bot.alicia").doc().clone();
    doc["visibility"] = json!("secret");
    let more = json!({"visibility": "secret", "delegation": doc["delegation"]});
    world.agent("bot.alicia", more);
    let pedro = owner(&world, "pedro");
    let hidden = revoke(&mut world, "bot.alicia", &pedro);
    assert_eq!(hidden, revoke(&mut world, "none.alicia", &pedro));
    is(&hidden, Rule::NoSuchDelegation);
}

#[test]
fn fields_are_bounded_and_named_in_the_refusal() {
    let mut world = World::new();
    let many = |n: usize| (0..n).map(|i| json!(format!("d{i}.example"))).collect::<Vec<_>>();
    assert_eq!(
        by_admin(
            &mut world,
            "maria",
            json!({"inbox": {"policy": "allowlist", "allowlist": many(limits::ALLOWLIST_MAX)}})
        )
        .code,
        201
    );
    for (more, named) in [
        (json!({"inbox": {"policy": "allowlist", "allowlist": many(limits::ALLOWLIST_MAX + 1)}}), "allowlist"),
        (json!({"inbox": {"policy": "allowlist", "allowlist": ["LEO@b.example"]}}), "allowlist[0]"),
        (json!({"inbox": {"blocklist": [3]}}), "blocklist[0]"),
        (json!({"inbox": {"policy": "friends"}}), "inbox.policy"),
        (json!({"inbox": {"policy": "pow", "pow_bits": 0}}), "pow_bits"),
        (json!({"inbox": {"policy": "pow", "pow_bits": limits::POW_BITS_MAX + 1}}), "pow_bits"),
        (json!({"inbox": {"policy": "stamp", "price": 0}}), "inbox.price"),
        (json!({"inbox": {"policy": "stamp", "price": 1.5}}), "inbox.price"),
        (json!({"inbox": {"policy": "stamp", "price": 5, "house": "b.example"}}), "inbox.house"),
        (json!({"inbox": {"policy": "stamp", "price_usd": 5}}), "wallet"),
        (json!({"inbox": []}), "inbox"),
        (json!({"capabilities": []}), "capabilities"),
        (json!({"capabilities": {"accepts": "text/plain"}}), "accepts"),
        (json!({"capabilities": {"accepts": vec!["x"; limits::ACCEPTS_MAX + 1]}}), "accepts"),
        (json!({"capabilities": {"listed": "yes"}}), "listed"),
        (json!({"webhook": "http://hooks.example/x"}), "webhook"),
        (json!({"webhook": "https://127.0.0.1/x"}), "webhook"),
        (json!({"webhook": false}), "webhook"),
        (json!({"notify_email": "m@example.org"}), "notify_email is not offered"),
        (json!({"valid_until": "tomorrow"}), "valid_until"),
        (json!({"visibility": "hidden"}), "visibility"),
        (json!({"wallets": {"network": "base"}}), "wallets"),
        (json!({"wallets": [{"network": "base"}]}), "wallets[0].address"),
        (json!({"wallets": [{"network": "b", "address": "1"}, {"network": "b", "address": "2"}]}), "wallets[1]"),
        (json!({"wallets": vec![json!({"network": "b", "address": "1"}); limits::WALLETS_MAX + 1]}), "wallets"),
        (json!({"enc": "AA"}), "enc"),
        (json!({"sig": "AA"}), "sig"),
        (json!({"sig": key("mar.example").public().kid()}), "sig"),
        (json!({"delegation": 5}), "delegation"),
        (json!({"delegation": {"by": "x"}}), "delegation"),
        (json!({"capabilities": {"x": "y".repeat(limits::CARD_BYTES_MAX)}}), "card"),
    ] {
        let answer = by_admin(&mut world, "pedro", more.clone());
        assert_eq!(answer.code, 400, "{named}: {answer:?}");
        assert!(answer.body["reason"].as_str().is_some_and(|reason| reason.contains(named)), "{named}: {answer:?}");
    }
    assert!(world.view.agent("pedro").is_none());
}

#[test]
fn the_welcome_gift_is_credited_once() {
    let settings = Settings { registration: Registration::Open, welcome: 25, ..Settings::default() };
    let mut world = World::with(settings);
    by_oneself(&mut world, "maria", json!({}));
    assert_eq!(world.view.balance("maria@mar.example"), 25);
    let authority = owner(&world, "maria");
    world.register(registration("maria", world.now, json!({})), authority);
    assert_eq!(subagent(&mut world, "bot.maria", json!({})).code, 201);
    assert_eq!(world.view.balance("maria@mar.example"), 25);
    assert_eq!(world.view.balance("bot.maria@mar.example"), 0);
    assert_eq!(world.view.balance("casa@mar.example"), -25);
}

#[test]
fn only_owner_and_parent_edit_a_profile() {
    let mut world = World::new();
    by_admin(&mut world, "alicia", json!({"inbox": {"policy": "pow"}}));
    by_admin(&mut world, "pedro", json!({}));
    subagent(&mut world, "bot.alicia", json!({}));
    subagent(&mut world, "mudo.alicia", json!({"messages_only": true}));
    world.agent("oculta", json!({"visibility": "secret"}));
    let edit = |world: &mut World, local: &str, by: &str, body: Value| {
        let caller = world.card_of(by);
        let decided = set_profile(&world.house, &world.view, world.now, local, &body, &caller);
        world.keep(decided)
    };
    let body = json!({"profile": {"summary": "hola"}});
    let before = world.card_of("alicia").doc().clone();
    let answer = edit(&mut world, "alicia", "alicia", body.clone());
    assert_eq!((answer.code, answer.body["profile"]["summary"].clone()), (200, json!("hola")));
    let after = world.card_of("alicia").doc().clone();
    assert!(super::cards::same_but_for(&before, &after, &["profile", "certification"]));
    assert_eq!(edit(&mut world, "bot.alicia", "alicia", body.clone()).code, 200);
    is(&edit(&mut world, "alicia", "pedro", body.clone()), Rule::NotYours);
    is(&edit(&mut world, "mudo.alicia", "mudo.alicia", body.clone()), Rule::OutOfScope);
    let authority = owner(&world, "mudo.alicia");
    let update = registration("mudo.alicia", world.now, body.clone());
    is(&world.register(update, authority.clone()), Rule::OutOfScope);
    let update = registration("mudo.alicia", world.now, json!({"inbox": {"policy": "pow"}}));
    assert_eq!(world.register(update, authority).code, 201);
    let hidden = edit(&mut world, "oculta", "pedro", body.clone());
    assert_eq!(hidden, edit(&mut world, "nadie", "pedro", body.clone()));
    is(&hidden, Rule::NoSuchAgent);
    is(&edit(&mut world, "libro", "libro", body), Rule::NoSuchAgent);
    assert_eq!(edit(&mut world, "alicia", "alicia", json!({})).body["profile"], Value::Null);
    assert!(world.card_of("alicia").doc().get("profile").is_none());
    let priced = json!({"profile": {"services": [{"id": "s", "name": "S", "unit": "job", "contract": "spot",
        "price": {"tokens": 1, "usd": "1.50"}}]}});
    is(&edit(&mut world, "alicia", "alicia", priced), Rule::BadField);
}

/// Incident 1: a path in place of a name read the house's own files.
#[test]
fn local_names_never_reach_a_record_unchecked() {
    let world = World::new();
    for local in ["..%2fdomain", "../domain", "a/b"] {
        assert!(Address::parse(&format!("{local}@mar.example")).is_err());
        assert!(delegation::revoke(&world.house, &world.view, world.now, local, &Authority::Admin).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_hostile_body_never_panics_and_never_takes_a_system_name(
        field in prop::sample::select(vec!["local", "sig", "enc", "capabilities", "inbox", "wallets", "wallet", "webhook",
            "notify_email", "valid_until", "visibility", "profile", "delegation", "source", "ts", "invite", "signature"]),
        value in hostile(),
    ) {
        let mut world = World::new();
        let body = registration("maria", world.now, json!({field: value}));
        let answer = world.register(body, Authority::Nobody);
        prop_assert!(answer.code == 201 || (400..500).contains(&answer.code));
        for name in ["libro", "verifica", "postmaster"] {
            prop_assert_eq!(&world.card_of(name).sig, &world.house.key.public());
        }
    }
}

fn hostile() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-9_007_199_254_740_991i64..=9_007_199_254_740_991).prop_map(Value::from),
        "\\PC{0,40}".prop_map(Value::from),
        prop::sample::select(vec!["libro", "maria@mar.example", "https://x.example/", "open", "stamp", "Ed25519"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let keys = prop::sample::select(vec![
            "policy",
            "allowlist",
            "price",
            "by",
            "scope",
            "signature",
            "alg",
            "kid",
            "value",
            "services",
            "id",
            "tokens",
            "network",
            "address",
            "display_name",
            "accepts",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}
