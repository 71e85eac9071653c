//! What went wrong elsewhere with reading mail, each by its number in the list of incidents.

use crate::houses::{TestHouse, eventually};
use serde_json::{Map, Value, json};
use verifica::wire::envelope::Kind;

/// Incident 31: a listing took the oldest and hid new mail. And defect 19: a limit that is none took the wrong end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_keeps_the_newest_and_what_is_no_limit_is_the_default() {
    let house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anamar", json!({})).await;
    let eva = house.agent("evamar", json!({})).await;
    let mut sent = Vec::new();
    for n in 0..4 {
        sent.push(eva.send("anamar@mar.example", &n.to_string()).await);
        eventually("it arrives", || async { ana.inbox().await.len() == n + 1 }).await;
    }
    let ids = async |query: &str| -> Vec<Value> {
        let (status, body) = ana.get(&format!("/mailbox/anamar?{query}")).await;
        assert_eq!(status, 200, "{query}");
        body["messages"].as_array().expect("list").iter().map(|record| record["envelope"]["id"].clone()).collect()
    };
    assert_eq!(ids("limit=2").await, vec![json!(sent[2]), json!(sent[3])]);
    for odd in ["limit=-5", "limit=0", "limit=NaN", "limit=1e9"] {
        assert_eq!(ids(odd).await.len(), 4, "{odd}");
    }
}

/// Incident 34: waiting gave an old letter as the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_since_then_passes_over_what_lay_there() {
    let house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anamar", json!({})).await;
    let eva = house.agent("evamar", json!({})).await;
    eva.send("anamar@mar.example", "old").await;
    let old = ana.wait("").await;
    let since = old["received"].as_str().expect("received").to_owned();
    let (_, none) = ana.get(&format!("/mailbox/anamar/wait?timeout=0&since={since}")).await;
    assert_eq!(none, json!({"message": null}));
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let new = eva.send("anamar@mar.example", "new").await;
    assert_eq!(ana.wait(&format!("since={since}")).await["envelope"]["id"], json!(new));
}

/// Incident 17: a project of 200,000 characters, and one named like what every object of JavaScript has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_that_is_huge_or_a_trap_breaks_no_reader() {
    let house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anamar", json!({})).await;
    let eva = house.agent("evamar", json!({})).await;
    for project in [json!("x".repeat(200_000)), json!("__proto__"), json!({"constructor": 1}), json!(["a"])] {
        let more = Map::from_iter([("extensions".to_owned(), json!({"urn:nyx5:ext:proyecto": {"project": project}}))]);
        let envelope = eva.envelope_with(&["anamar@mar.example"], Kind::Message, "text/plain", json!("x"), more);
        let (status, body) = house.post("/inbound", &envelope).await;
        assert_eq!(status, 202, "{body}");
    }
    let (_, listed) = ana.get("/conversations/anamar").await;
    let one = &listed["conversations"][0];
    assert_eq!((one["count"].clone(), one["projects"].clone()), (json!(4), json!(["x".repeat(40)])));
    assert_eq!(one["pending_by_project"], json!({"x".repeat(40): 1}));
}
