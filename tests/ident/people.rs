//! Subagents, profiles, names and promises, through the doors of whole houses.

use crate::houses::{TestAgent, TestHouse, eventually};
use serde_json::{Map, Value, json};
use verifica::wire::card::{Delegation, Scope};
use verifica::wire::envelope::Kind;
use verifica::wire::quote::OP_MEDIA;

fn scope(more: Value) -> Scope {
    Scope::parse(Some(&more)).expect("scope")
}

fn signed(parent: &TestAgent, child: &TestAgent, bounds: &Scope) -> Value {
    let now = crate::houses::now();
    Delegation::sign(&parent.address, &parent.key, &child.address, &child.key.public(), bounds, None, now)
}

/// A subagent that its parent enrolled.
async fn subagent(house: &TestHouse, parent: &TestAgent, name: &str, bounds: Value) -> TestAgent {
    let child = house.unregistered(&format!("{name}.{}", parent.address.local()));
    let body = json!({
        "local": child.address.local(), "sig": child.key.public().kid(), "inbox": {"policy": "open"},
        "delegation": signed(parent, &child, &scope(bounds)),
    });
    let (status, answer) = parent.post("/agents", &body).await;
    assert_eq!((status, &answer["registered_via"]), (201, &json!("delegation")), "{answer}");
    child
}

async fn outbound(from: &TestAgent, to: &str, kind: Kind, more: Value) -> (u16, Value) {
    let more = more.as_object().cloned().unwrap_or_default();
    from.post("/outbound", &from.envelope_with(&[to], kind, "application/json", json!({}), more)).await
}

/// Incident 4: limits at one door only let a messages-only subagent pay through the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subagent_is_bound_at_both_doors_and_in_the_ledger() {
    let house = TestHouse::started("mar.example", 101).await;
    let mike = house.agent("mike", json!({})).await;
    house.agent("otra", json!({})).await;
    let bot = subagent(&house, &mike, "bot", json!({"types": ["message"], "to_domains": ["mar.example"]})).await;
    let mute = subagent(&house, &mike, "mudo", json!({"messages_only": true})).await;
    assert_eq!(outbound(&bot, "otra@mar.example", Kind::Message, json!({})).await.0, 202);
    assert_eq!(outbound(&bot, "otra@mar.example", Kind::Task, json!({})).await.0, 403);
    assert_eq!(outbound(&bot, "leo@b.example", Kind::Message, json!({})).await.0, 403);
    assert_eq!(outbound(&mute, "otra@mar.example", Kind::Task, json!({})).await.0, 403);
    let stamp = json!({"stamp": {"house": "mar.example", "amount": 1}});
    assert_eq!(outbound(&mute, "otra@mar.example", Kind::Message, stamp).await.0, 403);
    let pay = json!({"op": "pay", "to": "otra@mar.example", "amount": 1, "concept": "x"});
    for (who, kind) in [(&bot, Kind::Task), (&mute, Kind::Task), (&mute, Kind::Message)] {
        let order = who.envelope_with(&["libro@mar.example"], kind, OP_MEDIA, pay.clone(), Map::new());
        assert_eq!(house.post("/inbound", &order).await.0, 403, "{}", who.address);
        assert_eq!(who.post("/outbound", &order).await.0, 403, "{}", who.address);
    }
    let direct = bot.envelope_with(&["otra@mar.example"], Kind::Task, "application/json", json!({}), Map::new());
    assert_eq!(house.post("/inbound", &direct).await.0, 403);
}

/// Incident 24: declaring less does not escape the parent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subagent_of_a_subagent_is_narrower_or_refused() {
    let house = TestHouse::started("mar.example", 102).await;
    let mike = house.agent("mike", json!({})).await;
    let bot = subagent(&house, &mike, "bot", json!({"cap": 10, "types": ["message"]})).await;
    for (name, bounds, expected) in [
        ("a", json!({}), 403),
        ("b", json!({"cap": 11, "types": ["message"]}), 403),
        ("c", json!({"cap": 10}), 403),
        ("d", json!({"cap": 10, "types": ["message", "task"]}), 403),
        ("e", json!({"cap": 10, "types": ["message"]}), 201),
    ] {
        let child = house.unregistered(&format!("{name}.bot.mike"));
        let body = json!({
            "local": child.address.local(), "sig": child.key.public().kid(),
            "delegation": signed(&bot, &child, &scope(bounds)),
        });
        assert_eq!(bot.post("/agents", &body).await.0, expected, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delegations_are_listed_for_their_parent_and_end_at_once_at_every_door() {
    let mut mar = TestHouse::new("mar.example", 103);
    let mut rio = TestHouse::new("rio.example", 104);
    mar.knows(&rio);
    rio.knows(&mar);
    mar.start().await;
    rio.start().await;
    let mike = mar.agent("mike", json!({})).await;
    let otra = mar.agent("otra", json!({})).await;
    let eva = rio.agent("evario", json!({})).await;
    assert_eq!(mike.get("/delegations/mike").await, (200, json!({"delegations": []})));
    let bot = subagent(&mar, &mike, "bot", json!({"cap": 7})).await;
    let second = subagent(&mar, &mike, "zeta", json!({})).await;
    let (status, listed) = mike.get("/delegations/mike").await;
    assert_eq!(status, 200);
    let entries = listed["delegations"].as_array().cloned().unwrap_or_default();
    assert_eq!(entries.len(), 2);
    let first = &entries[0];
    assert_eq!((&first["address"], &first["scope"]), (&json!("bot.mike@mar.example"), &json!({"cap": 7})));
    assert_eq!((&first["sig"], &first["revoked"]), (&json!(bot.key.public().kid()), &Value::Null));
    for field in ["address", "sig", "enc", "since", "valid_until", "revoked", "custody", "scope", "inbox"] {
        assert!(first.get(field).is_some(), "{field}");
    }
    assert_eq!(otra.get("/delegations/mike").await.0, 403);
    assert_eq!(mar.get("/delegations/mike").await.0, 401);
    assert_eq!(bot.get("/delegations/bot.mike").await, (200, json!({"delegations": []})));

    // Known abroad, and then ended: every door and every memory of this house stops believing it.
    let id = bot.send("evario@rio.example", "one").await;
    assert_eq!(eva.wait("").await["envelope"]["id"], json!(id));
    let ready = bot.envelope(&["otra@mar.example"], json!({"text": "signed before"}));
    assert_eq!(otra.post("/agents/bot.mike/revoke", &json!({})).await.0, 403);
    let (status, body) = mike.post("/agents/bot.mike/revoke", &json!({})).await;
    assert_eq!((status, &body["revoked"]["by"]), (200, &json!("mike@mar.example")));
    assert_eq!(mike.post("/agents/bot.mike/revoke", &json!({})).await.1["already"], true);
    assert_eq!(mar.post("/inbound", &ready).await.0, 403);
    assert_eq!(bot.get("/mailbox/bot.mike").await.0, 401);
    let (status, _) = bot.post("/outbound", &ready).await;
    assert_eq!(status, 401);
    let to_it = mike.envelope(&["bot.mike@mar.example"], json!({}));
    assert_eq!(mar.post("/inbound", &to_it).await.0, 404);
    assert_eq!(bot.get("/libro/cuenta/bot.mike@mar.example").await.0, 401);
    let listed = mike.get("/delegations/mike").await.1;
    assert_eq!(listed["delegations"][0]["revoked"]["by"], "mike@mar.example");
    assert_eq!(listed["delegations"][1]["revoked"], Value::Null);
    // Itself may end itself, and only itself.
    assert_eq!(second.post("/agents/zeta.mike/revoke", &json!({})).await.0, 200);
    // A root address is ended by nobody.
    assert_eq!(mike.post("/agents/mike/revoke", &json!({})).await.0, 404);
}

/// Incident 7: a suffix looked like a delegation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dot_in_a_name_is_a_delegation_and_nothing_else() {
    let house = TestHouse::started("mar.example", 105).await;
    let before = house.unregistered("bot.mike");
    let (status, body) = before.register(json!({})).await;
    assert_eq!(status, 409, "nobody is called of mike before there is a mike: {body}");
    let mike = house.agent("mike", json!({})).await;
    let (status, after) = before.register(json!({})).await;
    assert_eq!((status, &after), (409, &body), "nor after, and the answer tells neither from the other");
    // Somebody else's signature makes nobody mike's subagent.
    let eve = house.agent("evaeva", json!({})).await;
    let forged = json!({
        "local": "bot.mike", "sig": before.key.public().kid(), "delegation": signed(&eve, &before, &Scope::default()),
    });
    assert!(eve.post("/agents", &forged).await.0 >= 400);
    assert_eq!(house.get("/agents/bot.mike").await.0, 404);
    subagent(&house, &mike, "bot", json!({})).await;
    assert_eq!(house.get("/agents/bot.mike").await.1["delegation"]["by"], "mike@mar.example");
}

/// Incident 17: what a profile may hold is closed, at the route and in a registration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_is_set_by_its_owner_or_parent_and_changes_nothing_else() {
    let house = TestHouse::started("mar.example", 106).await;
    let mike = house.agent("mike", json!({"inbox": {"policy": "allowlist", "allowlist": ["b.example"]}})).await;
    let otra = house.agent("otra", json!({})).await;
    let bot = subagent(&house, &mike, "bot", json!({})).await;
    let mute = subagent(&house, &mike, "mudo", json!({"messages_only": true})).await;
    let service = json!({
        "id": "translate", "name": "Translation", "price": {"tokens": 300}, "unit": "job", "contract": "escrow",
        "acceptance": {"kind": "http_status", "template": "answers 200"},
    });
    let profile = json!({"profile": {"display_name": "Mike\u{202e}", "services": [service]}});
    let (status, body) = mike.post("/agents/mike/profile", &profile).await;
    assert_eq!((status, &body["profile"]["display_name"]), (200, &json!("Mike")), "{body}");
    let card = house.get("/agents/mike").await.1;
    assert_eq!(card["profile"]["services"][0]["price"]["tokens"], 300);
    assert_eq!(card["inbox"]["allowlist"], json!(["b.example"]), "nothing else is touched");
    let set = async |who: &TestAgent, local: &str, profile: Value| {
        who.post(&format!("/agents/{local}/profile"), &json!({"profile": profile})).await.0
    };
    assert_eq!(set(&mike, "bot.mike", json!({"summary": "a bot"})).await, 200);
    assert_eq!(set(&bot, "bot.mike", json!({"summary": "itself"})).await, 200);
    assert_eq!(set(&otra, "mike", json!({"summary": "x"})).await, 403);
    assert_eq!(set(&mute, "mudo.mike", json!({"summary": "x"})).await, 403);
    assert_eq!(set(&mike, "nobody", json!({"summary": "x"})).await, 404);
    assert_eq!(house.post("/agents/mike/profile", &json!({})).await.0, 401);
    for bad in [
        json!({"surname": "x"}),
        json!({"services": [{"id": "x"}]}),
        json!({"links": ["https://mar.example@evil.example"]}),
        json!({"services": [{
            "id": "t", "name": "t", "price": {"tokens": 1, "usd": "1.0"}, "unit": "job", "contract": "spot",
        }]}),
        json!("text"),
        json!({"languages": vec!["x".repeat(180_000); 10]}),
    ] {
        let status = set(&mike, "mike", bad.clone()).await;
        assert!(status == 400 || status == 413, "{status} {}", bad.to_string().chars().take(80).collect::<String>());
    }
    assert_eq!(set(&mike, "mike", Value::Null).await, 200);
    assert!(house.get("/agents/mike").await.1.get("profile").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_house_that_promises_to_seal_keeps_its_promise() {
    let mut mar = TestHouse::new("mar.example", 107);
    let mut rio = TestHouse::new("rio.example", 108);
    mar.settings.outbound_sealed = true;
    mar.knows(&rio);
    rio.knows(&mar);
    mar.start().await;
    rio.start().await;
    assert_eq!(mar.get("/.well-known/nyx5.json").await.1["policy"]["outbound"], "sealed");
    assert!(rio.get("/.well-known/nyx5.json").await.1["policy"].get("outbound").is_none());
    let ana = mar.agent("anamar", json!({})).await;
    let leo = mar.agent("leomar", json!({})).await;
    let eva = rio.agent("evario", json!({})).await;
    let (status, body) = outbound(&ana, "evario@rio.example", Kind::Message, json!({})).await;
    assert_eq!(status, 403, "{body}");
    // At home, to a ledger, and sealed: nothing is in the way.
    ana.send("leomar@mar.example", "at home").await;
    leo.wait("").await;
    assert_eq!(outbound(&ana, "libro@rio.example", Kind::Task, json!({})).await.0, 202);
    let mut sealed = ana.envelope(&["evario@rio.example"], json!({}));
    sealed["content"] = Value::Null;
    sealed["encrypted"] = json!({"ct": "AAAA"});
    ana.key.sign_object(&mut sealed, "signature");
    assert_eq!(ana.post("/outbound", &sealed).await.0, 202);
    eva.wait("").await;
    // Another house holds it to its word, before any policy, whoever its sender is listed by (incident 19).
    let clear = ana.envelope(&["evario@rio.example"], json!({}));
    let (status, body) = rio.post("/inbound", &clear).await;
    assert_eq!((status, &body["rule"]), (403, &json!(308)), "{body}");
    // What came back to eva, and what the house reports, is in clear and arrives all the same.
    eva.send("nobody@mar.example", "anybody?").await;
    eventually("the bounce", async || {
        eva.inbox().await.iter().any(|mail| mail["envelope"]["from"] == "postmaster@rio.example")
    })
    .await;
}

/// Errors of registration have the shape of every other answer, and an attempt costs before its signature is looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registration_is_counted_first_and_answers_in_one_shape() {
    let mut house = TestHouse::new("mar.example", 109);
    house.settings.registrations_per_minute = 4;
    house.start().await;
    let mut codes = Vec::new();
    for n in 0..6 {
        let stranger = house.unregistered(&format!("name{n}"));
        let body = json!({"local": stranger.address.local(), "sig": stranger.key.public().kid(), "signature": "none"});
        let (status, answer) = house.post("/agents", &body).await;
        let mut fields: Vec<&String> = answer.as_object().expect("an object").keys().collect();
        fields.sort();
        assert_eq!(fields, ["reason", "rule"], "as every other route answers");
        codes.push(status);
    }
    // The window may turn over once on the way.
    assert!(codes.contains(&429) && codes.iter().all(|code| [401, 429].contains(code)), "{codes:?}");
}
