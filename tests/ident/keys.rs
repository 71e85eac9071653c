//! Keys of houses: pinned on first use, followed from one to the next, confirmed by the operator otherwise.

use crate::houses::{TestAgent, TestHouse, eventually};
use reqwest::Method;
use serde_json::{Value, json};
use verifica::mail;
use verifica::wire::{PublicKey, SigningKey};

async fn two(seed: u8) -> (TestHouse, TestHouse) {
    let mut mar = TestHouse::new("mar.example", seed);
    let mut rio = TestHouse::new("rio.example", seed + 1);
    mar.knows(&rio);
    rio.knows(&mar);
    mar.start().await;
    rio.start().await;
    (mar, rio)
}

async fn delivered(from: &TestAgent, to: &str, text: &str) {
    let id = from.send(to, text).await;
    let path = format!("/outbox/{}", from.address.local());
    eventually(text, async || {
        let (_, body) = from.get(&path).await;
        let sent = body["sent"].as_array().cloned().unwrap_or_default();
        sent.iter().any(|job| job["id"] == json!(id) && job["status"] == "delivered")
    })
    .await;
}

async fn pinned(house: &TestHouse, domain: &str) -> (Value, Value) {
    let (status, body) = house.admin(Method::GET, "/pins", None).await;
    assert_eq!(status, 200);
    let pins = body["pins"].as_array().cloned().unwrap_or_default();
    let pin = pins.into_iter().find(|pin| pin["domain"] == domain).expect("pinned");
    (pin["key"].clone(), pin["next"].clone())
}

fn kid(key: &SigningKey) -> Value {
    json!(key.public().kid())
}

/// What a peer does when the five minutes of its memory are over.
fn forgets(house: &TestHouse, other: &TestHouse) {
    house.running().doors.resolver.distrust(&other.domain);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_house_changes_its_key_and_others_follow_by_the_old_ones_word() {
    let (mar, mut rio) = two(90).await;
    let ana = mar.agent("anamar", json!({})).await;
    let eva = rio.agent("evario", json!({})).await;
    delivered(&ana, "evario@rio.example", "before").await;
    delivered(&eva, "anamar@mar.example", "before, back").await;
    let (old, new) = (rio.key.clone(), SigningKey::from_seed([99; 32]));
    assert_eq!(pinned(&mar, "rio.example").await, (kid(&old), Value::Null));

    rio.stop().await;
    (rio.key, rio.retiring) = (new.clone(), Some(old.clone()));
    rio.start().await;
    let (_, card) = rio.get("/.well-known/nyx5.json").await;
    assert_eq!((&card["keys"][0]["sig"], &card["keys"][1]["sig"]), (&kid(&new), &kid(&old)));
    assert_eq!(card["signature"]["kid"], kid(&old), "the old key vouches for the new one");
    let (_, own) = rio.get("/agents/evario").await;
    assert_eq!(own["certification"]["kid"], kid(&new), "cards are certified anew before the doors open");
    // No peer forgets anything in between: the unknown key makes it look once more.
    delivered(&eva, "anamar@mar.example", "during").await;
    delivered(&ana, "evario@rio.example", "during, there").await;
    let record = ana.inbox().await.pop().expect("mail");
    assert_eq!(record["relay_verified"], true);
    forgets(&mar, &rio);
    delivered(&eva, "anamar@mar.example", "announced").await;
    assert_eq!(pinned(&mar, "rio.example").await, (kid(&old), kid(&new)));

    rio.stop().await;
    rio.retiring = None;
    rio.start().await;
    forgets(&mar, &rio);
    delivered(&eva, "anamar@mar.example", "after").await;
    assert_eq!(pinned(&mar, "rio.example").await, (kid(&new), Value::Null));
    // What the old key signs from now on is nobody's word.
    let (_, card) = rio.get("/.well-known/nyx5.json").await;
    assert_eq!(card["keys"].as_array().map(Vec::len), Some(1));
    let system = rio.get("/agents/postmaster").await.1;
    assert_eq!(system["previous"][0]["sig"], kid(&old), "letters under way still verify for the time of grace");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_nobody_announced_waits_for_the_operator() {
    let (mar, mut rio) = two(92).await;
    let ana = mar.agent("anamar", json!({})).await;
    let eva = rio.agent("evario", json!({})).await;
    delivered(&ana, "evario@rio.example", "before").await;
    let old = rio.key.clone();
    rio.stop().await;
    rio.key = SigningKey::from_seed([98; 32]);
    rio.start().await;
    forgets(&mar, &rio);
    let envelope = eva.envelope(&["anamar@mar.example"], json!({}));
    let (status, body) = mar.post("/inbound", &envelope).await;
    assert_eq!(status, 403, "{body}");
    assert!(body["reason"].as_str().is_some_and(|why| why.contains("the operator must confirm")), "{body}");

    let (status, shown) = mar.admin(Method::GET, "/pins/rio.example", None).await;
    assert_eq!((status, &shown["pinned"]["key"], &shown["presented"]), (200, &kid(&old), &kid(&rio.key)));
    let fresh = rio.key.public().kid();
    for (domain, body) in [
        ("rio.example", json!({})),
        ("rio.example", json!({"key": "AAAA"})),
        ("rio.example", json!({"key": 5})),
        ("mar.example", json!({"key": fresh})),
        ("not..a..domain", json!({"key": fresh})),
    ] {
        assert_eq!(mar.admin(Method::POST, &format!("/pins/{domain}"), Some(body)).await.0, 400, "{domain}");
    }
    assert_eq!(mar.post("/pins/rio.example", &json!({"key": fresh})).await.0, 401);
    assert_eq!(ana.post("/pins/rio.example", &json!({"key": fresh})).await.0, 401);
    assert_eq!(mar.post("/inbound", &envelope).await.0, 403, "nothing was confirmed");
    let (status, body) = mar.admin(Method::POST, "/pins/rio.example", Some(json!({"key": fresh}))).await;
    assert_eq!((status, &body["before"]), (200, &kid(&old)));
    let (status, body) = mar.post("/inbound", &envelope).await;
    assert_eq!(status, 202, "at once: {body}");
    assert_eq!(pinned(&mar, "rio.example").await.0, kid(&rio.key));
}

/// A key that was stolen is dropped without its word, and leaves no grace behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compromised_key_leaves_no_grace() {
    let mut rio = TestHouse::started("rio.example", 94).await;
    rio.agent("evario", json!({})).await;
    rio.stop().await;
    rio.key = SigningKey::from_seed([97; 32]);
    rio.start().await;
    for name in ["postmaster", "libro", "evario"] {
        let card = rio.get(&format!("/agents/{name}")).await.1;
        assert_eq!((&card["previous"], &card["certification"]["kid"]), (&json!([]), &kid(&rio.key)), "{name}");
    }
    let (_, card) = rio.get("/.well-known/nyx5.json").await;
    assert_eq!(card["signature"]["kid"], kid(&rio.key));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_enrols_a_key_of_the_house_old_or_new() {
    let mut rio = TestHouse::new("rio.example", 95);
    let old = SigningKey::from_seed([96; 32]);
    rio.retiring = Some(old.clone());
    rio.start().await;
    for key in [&rio.key, &old] {
        let mut thief = rio.unregistered("ladron");
        thief.key = key.clone();
        assert_eq!(thief.register(json!({})).await.0, 400);
    }
    let listed: Vec<PublicKey> = [&rio.key, &old].map(SigningKey::public).to_vec();
    let stored = rio.get("/.well-known/nyx5.json").await.1;
    let made = mail::cards::domain_card(&rio.running().doors.house(), Some(&stored), crate::houses::now());
    assert_eq!(made, stored, "signed once");
    assert_eq!(listed.len(), stored["keys"].as_array().map_or(0, Vec::len));
}
