//! The federated index: whole houses over HTTP, houses that lie, walks while everything changes, and the cost of a page.

mod houses;

#[path = "index/fake.rs"]
mod fake;
#[path = "index/walks.rs"]
mod walks;

use fake::{Fake, card, history};
use houses::{TestHouse, answer, client, now};
use serde_json::{Value, json};
use std::process::Command;
use verifica::client::agent::{HouseClient, index as lib};
use verifica::limits;
use verifica::mail::index::stripped;
use verifica::server::index::pass;
use verifica::wire::card::{AgentCard, DomainCard};
use verifica::wire::{Domain, SigningKey};

fn domain(text: &str) -> Domain {
    Domain::parse(text).expect("domain")
}

async fn index_of(name: &str, seed: u8, of: &[&TestHouse]) -> TestHouse {
    let mut index = TestHouse::new(name, seed);
    index.settings.index = true;
    of.iter().for_each(|house| index.knows(house));
    index.start().await;
    index
}

async fn list(index: &TestHouse, name: &str) -> (u16, Value) {
    index.post("/index/houses", &json!({"domain": name})).await
}

async fn found(index: &TestHouse, query: &str) -> Vec<String> {
    let (status, page) = index.get(&format!("/index/agents?{query}")).await;
    assert_eq!(status, 200, "{page}");
    let agents = page["agents"].as_array().cloned().unwrap_or_default();
    agents.iter().map(|card| card["address"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn again(index: &TestHouse, name: &str) {
    pass(&index.running().doors, &domain(name)).await.expect("a pass");
}

#[tokio::test]
async fn two_houses_are_found_on_an_index_by_what_their_agents_asked_to_show() {
    let mar = TestHouse::started("mar.example", 1).await;
    let sol = TestHouse::started("sol.example", 2).await;
    let service = json!({
        "id": "t", "name": "Translate", "price": {"tokens": 30}, "unit": "job", "contract": "escrow",
        "acceptance": {"kind": "http_status", "template": "https://out.example/x"},
    });
    let profile = json!({"summary": "Letters", "tags": ["letters"], "languages": ["es-CL"], "services": [service]});
    let ana = mar.agent("ana-translates", json!({"visibility": "public", "profile": profile})).await;
    mar.agent("leopold", json!({})).await;
    mar.agent("evasecret", json!({"visibility": "secret", "capabilities": {"listed": true}})).await;
    let capable = json!({"listed": true, "mcp": "https://x.example", "accepts": ["text/x-poem"]});
    let rui = sol.agent("rui-poems", json!({"capabilities": capable})).await;
    let index = index_of("faro.example", 3, &[&mar, &sol]).await;

    let (_, card) = index.get("/.well-known/nyx5.json").await;
    assert!(card["extensions"].as_array().expect("list").contains(&json!("urn:nyx5:ext:indice")));
    for name in ["mar.example", "Sol.Example"] {
        let (status, record) = list(&index, name).await;
        assert_eq!(status, 201, "{record}");
        assert!(record["last_ok"].is_string() && record["fails"] == 0, "{record}");
        assert_eq!(record["agents"], 2, "verifica@ and the one that asked: {record}");
    }
    let (status, twice) = list(&index, "mar.example").await;
    assert_eq!((status, &twice["agents"]), (201, &json!(2)), "listed once");
    let (_, houses) = index.get("/index/houses").await;
    assert_eq!(houses["total"], 2);
    assert_eq!(houses["houses"][1]["domain"], "sol.example");

    let all = ["ana-translates@mar.example", "rui-poems@sol.example", "verifica@mar.example", "verifica@sol.example"];
    assert_eq!(found(&index, "").await, all, "neither the private nor the secret one");
    for (query, expected) in [
        ("q=LETTERS", &all[..1]),
        ("tag=letters", &all[..1]),
        ("tag=letter", &[]),
        ("lang=es", &all[..1]),
        ("lang=ES-cl", &all[..1]),
        ("lang=es-es", &[]),
        ("capability=mcp", &all[1..2]),
        ("accepts=text/x-poem", &all[1..2]),
        ("house=SOL.example", &[all[1], all[3]][..]),
        ("price_max=30", &all[..1]),
        ("price_max=29", &[]),
        ("min_score=0", &[]),
        ("capability=mcp&tag=letters", &[]),
    ] {
        assert_eq!(found(&index, query).await, expected, "{query}");
    }

    // Signed by the index; each card verifies by the chain once the index's notes are taken off.
    let house = HouseClient::new(&index.url, &[]).expect("client");
    let page = lib::search(&house, Some(&index.key.public()), &[("tag", "letters".to_owned())]).await.expect("page");
    assert_eq!(page["total"], 1);
    let result = &page["agents"][0];
    assert_eq!((&result["_house"], &result["_price_min"]), (&json!("mar.example"), &json!(30)));
    assert!(result["_score"].is_null() && result["_jobs_done"] == 0, "{result}");
    let (_, doc) = mar.get("/.well-known/nyx5.json").await;
    let home = DomainCard::verify(doc, &mar.domain, Some(&mar.key.public())).expect("card");
    AgentCard::parse(stripped(result)).expect("card").certified_by(&home).expect("certified");
    let stranger = SigningKey::from_seed([9; 32]).public();
    assert!(lib::search(&house, Some(&stranger), &[]).await.is_err(), "another index at the same place");

    // Who stops asking, and who is revoked, is gone after the next pass.
    let (status, body) = ana
        .post("/agents", &json!({"local": "ana-translates", "sig": ana.key.public().kid(), "visibility": "private"}))
        .await;
    assert_eq!(status, 201, "{body}");
    again(&index, "mar.example").await;
    assert_eq!(found(&index, "").await, all[1..]);
    let (status, body) = rui
        .post("/agents", &json!({"local": "rui-poems", "sig": rui.key.public().kid(), "visibility": "secret"}))
        .await;
    assert_eq!(status, 201, "{body}");
    again(&index, "sol.example").await;
    assert_eq!(found(&index, "").await, all[2..]);
    assert_eq!(found(&index, "q=poem").await, [""; 0]);

    // A house that runs no index answers as if there were no such routes.
    for (status, body) in [
        mar.get("/index/houses").await,
        mar.get("/index/agents").await,
        mar.post("/index/houses", &json!({"domain": "sol.example"})).await,
    ] {
        assert_eq!((status, body["reason"].as_str()), (404, Some("unknown route")));
    }
}

#[tokio::test]
async fn the_index_outlives_a_restart_and_reads_again_by_its_own_clock() {
    let mar = TestHouse::started("mar.example", 1).await;
    mar.agent("first-agent", json!({"visibility": "public"})).await;
    let mut index = TestHouse::new("faro.example", 3);
    index.settings.index = true;
    index.settings.index_every_ms = 200;
    index.knows(&mar);
    index.start().await;
    assert_eq!(list(&index, "mar.example").await.0, 201);
    assert_eq!(list(&index, "faro.example").await.0, 201, "its own agents, without a detour");
    index.stop().await;
    mar.agent("second-agent", json!({"visibility": "public"})).await;
    index.start().await;
    index.agent("third-agent", json!({"visibility": "public"})).await;
    for _ in 0..200 {
        let seen = found(&index, "q=-agent@").await;
        if seen.len() == 3 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("never read again: {:?}", found(&index, "").await);
}

#[tokio::test]
async fn a_house_enters_nothing_that_it_did_not_certify_and_nobody_who_did_not_ask() {
    let fake = Fake::start("lies.example", 40).await;
    let index = {
        let mut index = TestHouse::new("faro.example", 3);
        index.settings.index = true;
        fake.known_to(&mut index);
        index.start().await;
        index
    };
    let key = fake.key.clone();
    let shown = json!({"listed": true});
    let good = card("good@lies.example", &key, json!({"capabilities": shown}));
    let mut tampered = card("tampered@lies.example", &key, json!({"capabilities": shown}));
    tampered["enc"] = json!("A".repeat(43));
    let stranger = SigningKey::from_seed([41; 32]);
    let past = now().plus(-1).to_string();
    let soon = now().plus(3_600_000).to_string();
    let twin = |n: u8| card("twin@lies.example", &key, json!({"capabilities": {"listed": true, "n": n}}));
    let wide: Vec<String> = (0..limits::INDEX_TERMS_MAX).map(|n| format!("text/x-{n}")).collect();
    fake.shows(vec![
        good.clone(),
        good.clone(),
        card("prized@other.example", &key, json!({"capabilities": shown})),
        card("forged@lies.example", &stranger, json!({"capabilities": shown})),
        tampered,
        card("private@lies.example", &key, json!({})),
        card("unasked@lies.example", &key, json!({"capabilities": {"listed": "yes"}})),
        card("secret@lies.example", &key, json!({"visibility": "secret", "capabilities": shown})),
        card("revoked@lies.example", &key, json!({"revoked": {"at": past}, "capabilities": shown})),
        card("past@lies.example", &key, json!({"valid_until": past, "capabilities": shown})),
        card("alive@lies.example", &key, json!({"valid_until": soon, "capabilities": shown})),
        card("noted@lies.example", &key, json!({"_score": 1, "capabilities": shown})),
        card("fat@lies.example", &key, json!({"x": "x".repeat(limits::INDEX_CARD_BYTES_MAX), "capabilities": shown})),
        card("half@lies.example", &key, json!({"capabilities": {"listed": true, "n": 0.5}})),
        card("wide@lies.example", &key, json!({"capabilities": {"listed": true, "accepts": wide}})),
        twin(1),
        twin(2),
        json!("no card"),
        json!({"address": "../domain@lies.example"}),
    ]);
    // What a house says of itself is held to what it may say: a share of what its own arbiter decided.
    fake.tells(json!({
        "good@lies.example": history("good@lies.example", "verifica@lies.example", [(3, 300), (1, 100), (0, 0)]),
        "alive@lies.example": history("alive@lies.example", "verifica@other.example", [(9, 900), (0, 0), (0, 0)]),
        "victim@other.example": history("victim@other.example", "verifica@lies.example", [(0, 0), (9, 900), (0, 0)]),
    }));
    let (status, record) = list(&index, "lies.example").await;
    assert_eq!((status, &record["agents"]), (201, &json!(2)), "{record}");
    assert_eq!(
        record["reputacion"],
        json!({
            "pedidas": 2, "con_puntaje": 1, "sin_historial": 1, "sin_arbitrados": 0, "fallidas": 0,
        })
    );
    let (_, page) = index.get("/index/agents").await;
    assert_eq!(found(&index, "").await, ["good@lies.example", "alive@lies.example"], "{page}");
    assert_eq!((&page["agents"][0]["_score"], &page["agents"][0]["_jobs_done"]), (&json!(0.75), &json!(3)));
    assert!(page["agents"][1]["_score"].is_null());
    assert_eq!(found(&index, "min_score=0.75").await, ["good@lies.example"]);
    assert_eq!(found(&index, "min_score=0.7501").await, [""; 0]);

    // A history that fails, or a house that cannot be read, changes nothing of what was known.
    fake.tells_nothing();
    again(&index, "lies.example").await;
    assert_eq!(found(&index, "min_score=0.75").await, ["good@lies.example"]);
    for trouble in fake::Trouble::ALL {
        fake.troubled(*trouble);
        again(&index, "lies.example").await;
        assert_eq!(found(&index, "").await.len(), 2, "{trouble:?}");
    }
    let (_, record) = list(&index, "lies.example").await;
    assert_eq!(record["fails"], fake::Trouble::ALL.len(), "{record}");

    // It shows more than it was asked for, for ever: the pass ends, and what enters is bounded.
    fake.endless();
    again(&index, "lies.example").await;
    let (_, record) = list(&index, "lies.example").await;
    assert_eq!(
        (&record["fails"], &record["agents"]),
        (&json!(0), &json!(0)),
        "the same card again and again: {record}"
    );
    assert!(fake.asked() < 100, "{} questions", fake.asked());

    // Another key signs its card than the one that is known: nothing that it certified stands.
    fake.shows(vec![good]);
    again(&index, "lies.example").await;
    assert_eq!(found(&index, "").await, ["good@lies.example"]);
    fake.changes_its_key();
    again(&index, "lies.example").await;
    assert_eq!(found(&index, "").await, [""; 0]);
}

#[tokio::test]
async fn what_cannot_be_verified_is_not_listed_and_questions_are_held_to_their_form() {
    let index = index_of("faro.example", 3, &[]).await;
    for (body, status) in [
        (json!({}), 400),
        (json!({"domain": 7}), 400),
        (json!({"domain": "not a domain"}), 400),
        (json!({"domain": "../x"}), 400),
        (json!({"domain": "nobody.example"}), 422),
        (json!({"domain": "127.0.0.1"}), 422),
        (json!({"domain": "169.254.169.254"}), 422),
    ] {
        let (got, answer) = index.post("/index/houses", &body).await;
        assert_eq!(got, status, "{body}: {answer}");
    }
    assert_eq!(index.get("/index/houses").await.1["total"], 0);
    let long = "x".repeat(limits::INDEX_TEXT_CHARS_MAX + 1);
    let cursor = |doc: Value| {
        use base64::Engine;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(doc.to_string())
    };
    let bad = [
        "offset=0".to_owned(),
        "offset=".to_owned(),
        format!("q={long}"),
        format!("house={long}"),
        format!("accepts={long}"),
        "capability=A".to_owned(),
        format!("capability={}", "a".repeat(65)),
        "tag=a_b".to_owned(),
        format!("tag={}", "a".repeat(33)),
        "lang=e".to_owned(),
        "lang=es-".to_owned(),
        "lang=es-123456789".to_owned(),
        "price_max=-1".to_owned(),
        "price_max=1.5".to_owned(),
        "price_max=%2B1".to_owned(),
        "min_score=1.0001".to_owned(),
        "min_score=-0.1".to_owned(),
        "min_score=NaN".to_owned(),
        "min_score=1e-1".to_owned(),
        "cursor=***".to_owned(),
        format!("cursor={}", "A".repeat(limits::INDEX_CURSOR_CHARS_MAX + 1)),
        format!("cursor={}", cursor(json!([]))),
        format!("cursor={}", cursor(json!({"s": null, "a": "x"}))),
        format!("cursor={}", cursor(json!({"s": null, "a": "x", "g": 0, "k": 1}))),
        format!("cursor={}", cursor(json!({"s": 1.5, "a": "x", "g": 0}))),
        format!("cursor={}", cursor(json!({"s": "1", "a": "x", "g": 0}))),
        format!("cursor={}", cursor(json!({"s": null, "a": 7, "g": 0}))),
        format!("cursor={}", cursor(json!({"s": null, "a": "x".repeat(321), "g": 0}))),
        format!("cursor={}", cursor(json!({"s": null, "a": "x", "g": -1}))),
        format!("cursor={}", cursor(json!({"s": null, "a": "x", "g": 9_000_000_000_000_000_i64}))),
    ];
    for query in bad {
        let (status, answer) = index.get(&format!("/index/agents?{query}")).await;
        assert_eq!(status, 400, "{query}: {answer}");
        assert!(answer["reason"].is_string());
    }
    for fine in ["limit=0", "limit=-1", "limit=many", "limit=100000", "q=", "min_score=1", "unknown=1"] {
        assert_eq!(index.get(&format!("/index/agents?{fine}")).await.0, 200, "{fine}");
    }
}

#[tokio::test]
async fn one_address_cannot_ask_without_end() {
    let index = index_of("faro.example", 3, &[]).await;
    for _ in 0..2 * limits::RATE_LOOKUP_PER_MINUTE {
        let response = client().get(format!("{}/index/agents", index.url)).send().await.expect("answer");
        if response.status().as_u16() == 429 {
            assert!(response.headers().contains_key("retry-after"));
            return;
        }
    }
    panic!("never refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_finds_lists_and_verifies() {
    let mut mar = TestHouse::new("mar.example", 1);
    let index = index_of("faro.example", 3, &[]).await;
    mar.knows(&index);
    mar.start().await;
    let dir = tempfile::tempdir().expect("folder");
    let run = async |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_verifica"));
        command.current_dir(dir.path()).args(args).env("VERIFICA_INDEX", &index.url).env("NO_COLOR", "1");
        let output = tokio::task::spawn_blocking(move || command.output().expect("runs")).await.expect("ran");
        let text = String::from_utf8(output.stdout).expect("text");
        (output.status.code().unwrap_or(-1), text, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    index.agent("poet-here", json!({"visibility": "public"})).await;
    let (code, text, why) = run(&["agent", "houses", "--add", "faro.example"]).await;
    assert_eq!(code, 0, "{why}");
    assert!(text.starts_with("faro.example is listed, 2 agents"), "{text}");
    let (_, text, _) = run(&["agent", "houses", "--json"]).await;
    let listed: Value = serde_json::from_str(&text).expect("json");
    assert_eq!(listed["total"], 1);
    let (code, text, why) = run(&["agent", "search", "poet"]).await;
    assert_eq!(code, 0, "{why}");
    assert!(text.starts_with("poet-here@faro.example\t-\t0\t-"), "{text}");
    assert!(why.contains("hint"), "{why}");
    let (code, _, _) = run(&["agent", "search", "--min-score", "2"]).await;
    assert_eq!(code, 5, "a rule refuses it");
    let (code, ..) = run(&["agent", "new", "reader-two@mar.example", "--house", &mar.url]).await;
    assert_eq!(code, 0);
    let (code, _, why) = run(&["agent", "join"]).await;
    assert_eq!(code, 0, "{why}");
    let (code, text, why) = run(&["agent", "search", "poet", "--verify", "--json"]).await;
    assert_eq!(code, 0, "{why}");
    let checked: Value = serde_json::from_str(&text).expect("json");
    assert_eq!(checked["checked"], json!([{"address": "poet-here@faro.example", "verified": true}]));
    let (_, first, _) = run(&["agent", "search", "--limit", "1", "--json"]).await;
    let first: Value = serde_json::from_str(&first).expect("json");
    let cursor = first["next_cursor"].as_str().expect("more");
    let (_, second, _) = run(&["agent", "search", "--limit", "1", "--cursor", cursor, "--json"]).await;
    let second: Value = serde_json::from_str(&second).expect("json");
    assert_ne!(first["agents"][0]["address"], second["agents"][0]["address"]);
    assert_eq!((&first["total"], second["agents"].as_array().map(Vec::len)), (&json!(2), Some(1)));
    let (status, _) = answer(client().get(format!("{}/index/houses", index.url))).await;
    assert_eq!(status, 200);
}
