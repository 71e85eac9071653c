//! `GET /conversations/:local`: who sees it, what it says, how it pages.

use crate::houses::{TestAgent, TestHouse, eventually, now};
use serde_json::{Map, Value, json};
use verifica::limits;
use verifica::wire::envelope::Kind;

/// Sends a message under a project; answers its id.
async fn under(agent: &TestAgent, to: &[&str], project: Value) -> String {
    let more = Map::from_iter([("extensions".to_owned(), json!({"urn:nyx5:ext:proyecto": {"project": project}}))]);
    let envelope = agent.envelope_with(to, Kind::Message, "text/plain", json!("hola"), more);
    let (status, body) = agent.post("/outbound", &envelope).await;
    assert_eq!(status, 202, "{body}");
    envelope["id"].as_str().expect("id").to_owned()
}

async fn ask(agent: &TestAgent, query: &str) -> Value {
    let (status, body) = agent.get(&format!("/conversations/{}?{query}", agent.address.local())).await;
    assert_eq!(status, 200, "{query}: {body}");
    body
}

async fn arrived(agent: &TestAgent, n: usize) {
    eventually("the letters arrive", || async { agent.inbox().await.len() >= n }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_has_both_directions_and_its_counts() {
    let house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anamar", json!({})).await;
    let eva = house.agent("evamar", json!({})).await;
    let leo = house.agent("leomar", json!({})).await;
    assert_eq!(ask(&ana, "").await, json!({"conversations": []}));
    let first = ana.send("evamar@mar.example", "one").await;
    let second = eva.send("anamar@mar.example", "two").await;
    let third = leo.send("anamar@mar.example", "three").await;
    arrived(&ana, 2).await;
    arrived(&eva, 1).await;
    let listed = ask(&ana, "").await["conversations"].clone();
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    assert_eq!((listed[0]["with"].clone(), listed[0]["last_id"].clone()), (json!("leomar@mar.example"), json!(third)));
    let with_eva = &listed[1];
    assert_eq!(
        (
            with_eva["with"].clone(),
            with_eva["count"].clone(),
            with_eva["pending"].clone(),
            with_eva["last_dir"].clone()
        ),
        (json!("evamar@mar.example"), json!(2), json!(1), json!("in"))
    );
    assert_eq!(with_eva["projects"], json!([]));
    assert!(with_eva.get("pending_by_project").is_none() && with_eva.get("pending_other").is_none());

    let history = ask(&ana, "with=evamar@mar.example").await;
    assert_eq!(history["with"], "evamar@mar.example");
    let messages = history["messages"].as_array().expect("messages");
    let said: Vec<_> = messages.iter().map(|m| (m["id"].clone(), m["dir"].clone())).collect();
    assert_eq!(said, vec![(json!(first), json!("out")), (json!(second), json!("in"))], "oldest first");
    assert_eq!(messages[0]["envelope"]["id"], json!(first));
    assert_eq!((messages[0]["status"].clone(), messages[1]["acked"].clone()), (json!("delivered"), json!(null)));
    assert!(messages[0].get("acked").is_none() && messages[1].get("status").is_none());
    assert!(history.get("next").is_none());

    ana.acknowledge(&[&second]).await;
    ana.acknowledge(&[&second]).await;
    let listed = ask(&ana, "").await["conversations"].clone();
    assert_eq!((listed[1]["count"].clone(), listed[1]["pending"].clone()), (json!(2), json!(0)));
    assert!(ask(&ana, "with=evamar@mar.example").await["messages"][1]["acked"].is_string());
    assert_eq!(ask(&ana, "with=EVAMAR@mar.example").await["messages"].as_array().map(Vec::len), Some(2));
    assert_eq!(ask(&ana, "with=nobody@b.example").await["messages"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_writes_to_oneself_and_to_several_appears_once() {
    let mut house = TestHouse::new("mar.example", 1);
    let mut other = TestHouse::new("luz.example", 2);
    house.knows(&other);
    other.knows(&house);
    house.start().await;
    other.start().await;
    let ana = house.agent("anamar", json!({})).await;
    house.agent("evamar", json!({})).await;
    other.agent("leoluz", json!({})).await;
    let note = ana.send("anamar@mar.example", "remember").await;
    arrived(&ana, 1).await;
    let listed = ask(&ana, "").await["conversations"].clone();
    assert_eq!((listed[0]["count"].clone(), listed[0]["last_dir"].clone()), (json!(1), json!("in")), "{listed}");
    assert_eq!(listed[0]["last_id"], json!(note));
    let both = under(&ana, &["leoluz@luz.example", "evamar@mar.example"], json!(null)).await;
    let listed = ask(&ana, "").await["conversations"].clone();
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    assert_eq!((listed[0]["with"].clone(), listed[0]["count"].clone()), (json!("leoluz@luz.example"), json!(1)));
    eventually("the status is of the letter to the contact", || async {
        let messages = ask(&ana, "with=leoluz@luz.example").await["messages"].clone();
        assert_eq!(messages[0]["id"], json!(both));
        messages[0]["status"] == "delivered"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn projects_are_normalised_counted_and_filtered() {
    let house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anamar", json!({})).await;
    let eva = house.agent("evamar", json!({})).await;
    let to = ["anamar@mar.example"];
    let first = under(&eva, &to, json!("Nyx\u{200b}5 ")).await;
    under(&eva, &to, json!("nyx5")).await;
    under(&eva, &to, json!("Otro")).await;
    for none in [json!("__proto__"), json!("\u{200b}"), json!(7), json!(null)] {
        under(&eva, &to, none).await;
    }
    arrived(&ana, 7).await;
    let all = ask(&ana, "").await["conversations"][0].clone();
    assert_eq!((all["count"].clone(), all["pending"].clone()), (json!(7), json!(7)));
    assert_eq!(all["projects"].as_array().map(Vec::len), Some(2), "{all}");
    assert_eq!(all["pending_by_project"], json!({"nyx5": 2, "otro": 1}));
    ana.acknowledge(&[&first]).await;
    let one = ask(&ana, "project=NYX5").await["conversations"].clone();
    assert_eq!(one.as_array().map(Vec::len), Some(1));
    assert_eq!(
        (one[0]["count"].clone(), one[0]["pending"].clone(), one[0]["projects"].clone()),
        (json!(2), json!(1), json!(["nyx5"]))
    );
    assert_eq!(ask(&ana, "project=none").await, json!({"conversations": []}));
    assert_eq!(ask(&ana, "project=").await["conversations"][0]["count"], 7, "an empty filter is none");
    let said = ask(&ana, "with=evamar@mar.example&project=otro").await;
    assert_eq!(said["messages"].as_array().map(Vec::len), Some(1));
    for path in ["/conversations/anamar?project=", "/mailbox/anamar/wait?timeout=0&project="] {
        for bad in ["%E2%80%8B", "__proto__", "constructor", "%20"] {
            assert_eq!(ana.get(&format!("{path}{bad}")).await.0, 400, "{path}{bad}");
        }
    }
    let (_, waited) = ana.get("/mailbox/anamar/wait?timeout=0&project=oTRO").await;
    assert_eq!(waited["message"]["envelope"]["extensions"]["urn:nyx5:ext:proyecto"]["project"], "Otro");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_projects_are_listed_and_the_rest_is_added_up() {
    let house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anamar", json!({})).await;
    let eva = house.agent("evamar", json!({})).await;
    for n in 0..=limits::PROJECTS_LISTED_MAX {
        under(&eva, &["anamar@mar.example"], json!(format!("p{n}"))).await;
        arrived(&ana, n + 1).await;
    }
    let one = ask(&ana, "").await["conversations"][0].clone();
    let projects = one["projects"].as_array().expect("projects");
    assert_eq!(projects.len(), limits::PROJECTS_LISTED_MAX);
    assert_eq!(projects[0], json!(format!("p{}", limits::PROJECTS_LISTED_MAX)), "by last use");
    assert!(!projects.contains(&json!("p0")));
    assert_eq!(one["pending_by_project"].as_object().map(Map::len), Some(limits::PROJECTS_LISTED_MAX));
    assert_eq!(one["pending_other"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_alone_sees_them_whatever_else_is_asked() {
    let house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anamar", json!({})).await;
    house.agent("evamar", json!({})).await;
    house.agent("oculta", json!({"visibility": "secret"})).await;
    let mut answers = Vec::new();
    for name in ["evamar", "oculta", "nobody", "..%2Fx", "%E0%A4%A"] {
        for query in ["", "?project=__proto__", "?before=x", "?with=a"] {
            let (status, body) = ana.get(&format!("/conversations/{name}{query}")).await;
            assert_eq!(status, 403, "{name}{query}: {body}");
            answers.push(body);
            assert_eq!(house.get(&format!("/conversations/{name}{query}")).await.0, 401);
        }
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "the same for all: {answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_have_bounds_and_go_on_where_they_ended() {
    let house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anamar", json!({})).await;
    let senders = ["beamar", "cirmar", "dormar"];
    let mut sent = Vec::new();
    for name in senders {
        let sender = house.agent(name, json!({})).await;
        for n in 0..3 {
            sent.push(sender.send("anamar@mar.example", &n.to_string()).await);
            arrived(&ana, sent.len()).await;
        }
    }
    for bad in ["limit=0", "limit=-5", "limit=x", "limit=99999999999999999999", "unknown=1"] {
        assert_eq!(ask(&ana, bad).await["conversations"].as_array().map(Vec::len), Some(3), "{bad}");
        let said = ask(&ana, &format!("with=beamar@mar.example&{bad}")).await;
        assert_eq!(said["messages"].as_array().map(Vec::len), Some(3), "{bad}");
    }
    for bad in ["before=x", "before=1", "before=1.x&with=a@b"] {
        assert_eq!(ana.get(&format!("/conversations/anamar?{bad}")).await.0, 400, "{bad}");
    }
    let long = "a".repeat(limits::CONTACT_BYTES_MAX);
    assert_eq!(ana.get(&format!("/conversations/anamar?with={long}")).await.0, 200);
    assert_eq!(ana.get(&format!("/conversations/anamar?with={long}a")).await.0, 400);
    let mut walked = Vec::new();
    let mut query = "limit=1".to_owned();
    loop {
        let page = ask(&ana, &query).await;
        walked.extend(page["conversations"].as_array().expect("list").iter().map(|c| c["with"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        query = format!("limit=1&before={next}");
    }
    assert_eq!(walked, vec!["dormar@mar.example", "cirmar@mar.example", "beamar@mar.example"]);
    let newest = ask(&ana, "with=cirmar@mar.example&limit=2").await;
    let ids = |page: &Value| -> Vec<Value> {
        page["messages"].as_array().expect("list").iter().map(|m| m["id"].clone()).collect()
    };
    assert_eq!(ids(&newest), vec![json!(sent[4]), json!(sent[5])], "the newest, oldest first");
    let before = newest["next"].as_str().expect("more");
    let older = ask(&ana, &format!("with=cirmar@mar.example&limit=2&before={before}")).await;
    assert_eq!(ids(&older), vec![json!(sent[3])]);
    assert!(older.get("next").is_none());
}

/// Incident: `since` on a hidden field, and mail for later. What is deferred is nowhere before its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_for_later_is_in_no_conversation_before_its_time() {
    let house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anamar", json!({})).await;
    let eva = house.agent("evamar", json!({})).await;
    let at = now().plus(1_500);
    let more = Map::from_iter([("deliver_after".to_owned(), json!(at))]);
    let envelope = eva.envelope_with(&["anamar@mar.example"], Kind::Message, "text/plain", json!("later"), more);
    let (status, body) = house.post("/inbound", &envelope).await;
    assert_eq!(status, 202, "{body}");
    assert_eq!(ask(&ana, "").await, json!({"conversations": []}));
    assert_eq!(ask(&ana, "with=evamar@mar.example").await["messages"], json!([]));
    eventually("its time comes", || async { !ana.inbox().await.is_empty() }).await;
    let listed = ask(&ana, "").await["conversations"].clone();
    assert_eq!((listed[0]["count"].clone(), listed[0]["pending"].clone()), (json!(1), json!(1)), "{listed}");
    assert_eq!(ask(&ana, "with=evamar@mar.example").await["messages"].as_array().map(Vec::len), Some(1));
}

/// Incident 9: only the house of the reader marks a letter as read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_is_marked_as_read_by_the_house_of_its_reader_only() {
    let mut house = TestHouse::new("mar.example", 1);
    let mut other = TestHouse::new("luz.example", 2);
    house.knows(&other);
    other.knows(&house);
    house.start().await;
    other.start().await;
    let ana = house.agent("anamar", json!({})).await;
    let eva = house.agent("evamar", json!({})).await;
    let leo = other.agent("leoluz", json!({"capabilities": {"read_receipts": true}})).await;
    let id = ana.send("leoluz@luz.example", "read me").await;
    arrived(&leo, 1).await;
    let forge = |agent: &TestAgent, by: &str| {
        let body = json!({"read_of": id, "read_by": by, "read_at": now()});
        agent.envelope_with(&["anamar@mar.example"], Kind::Receipt, "application/nyx5.recibo+json", body, Map::new())
    };
    for forged in
        [forge(&eva, "leoluz@luz.example"), forge(&eva, "evamar@mar.example"), forge(&leo, "leoluz@luz.example")]
    {
        let (status, body) = house.post("/inbound", &forged).await;
        assert_eq!(status, 202, "{body}");
    }
    let read = async || ask(&ana, "with=leoluz@luz.example").await["messages"][0]["read"].clone();
    assert_eq!(read().await, json!(null));
    leo.acknowledge(&[&id]).await;
    eventually("the receipt of the reader's house", || async { !read().await.is_null() }).await;
    let mark = read().await;
    assert_eq!(mark["by"], "leoluz@luz.example");
    leo.acknowledge(&[&id]).await;
    assert_eq!(read().await, mark, "a second time says nothing");
}
