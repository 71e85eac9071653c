//! Groups over the doors: consent, one envelope for all, who sees whom.

use crate::houses::{TestAgent, TestHouse, answer, client, eventually};
use reqwest::Method;
use serde_json::{Value, json};
use verifica::client::agent::talk::{GroupChange, Page};
use verifica::client::agent::{AgentClient, Identity, Joining, Message, Options, Privacy};
use verifica::wire::Address;
use verifica::wire::envelope::Kind;

fn full(local: &str) -> String {
    format!("{local}@mar.example")
}

async fn ids_of(agent: &TestAgent) -> Vec<Value> {
    agent.inbox().await.iter().map(|record| record["envelope"]["id"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_made_written_to_changed_and_left() {
    let house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anamar", json!({})).await;
    let eva = house.agent("evamar", json!({})).await;
    let leo = house.agent("leomar", json!({})).await;
    let (status, made) = ana.post("/groups", &json!({"name": "crew", "members": [full("evamar")]})).await;
    assert_eq!((status, made["address"].clone()), (201, json!("g.crew@mar.example")), "{made}");
    assert_eq!(made["group"]["admins"], json!([full("anamar")]));
    assert_eq!(ana.post("/groups", &json!({"name": "crew"})).await.0, 409);
    let id = ana.send("g.crew@mar.example", "to all").await;
    let copy = eva.wait("timeout=10").await;
    assert_eq!((copy["envelope"]["id"].clone(), copy["group"].clone()), (json!(id), json!("g.crew@mar.example")));
    assert!(ids_of(&ana).await.is_empty(), "the author has it already");
    let (_, listed) = eva.get("/conversations/evamar").await;
    assert_eq!(listed["conversations"][0]["with"], "g.crew@mar.example", "{listed}");
    let (_, mine) = ana.get("/conversations/anamar?with=g.crew@mar.example").await;
    assert_eq!((mine["messages"][0]["id"].clone(), mine["messages"][0]["dir"].clone()), (json!(id), json!("out")));

    // A member asks, others do not; the name of a group is checked before anything is looked for.
    let path = "/groups/g.crew/members";
    assert_eq!(eva.get(path).await.0, 200);
    assert_eq!(leo.get(path).await.0, 403);
    assert_eq!(house.get(path).await.0, 401);
    assert_eq!(leo.get("/groups/g.none/members").await.0, 404);
    assert_eq!(leo.get("/groups/crew/members").await.0, 400);
    let token = leo.token("PUT", path, "n-1");
    let put = client().request(Method::PUT, format!("{}{path}", house.url)).header("authorization", token);
    assert_eq!(answer(put).await.0, 405);

    let (status, _) = leo.post(path, &json!({"add": [full("leomar")]})).await;
    assert_eq!(status, 403);
    let (status, changed) = ana.post(path, &json!({"add": [full("leomar")]})).await;
    assert_eq!(status, 200, "{changed}");
    assert!(leo.inbox().await.is_empty(), "nothing from before");
    assert_eq!(eva.post(path, &json!({"remove": [full("evamar")]})).await.0, 200);
    assert_eq!(eva.post("/outbound", &eva.envelope(&["g.crew@mar.example"], json!("x"))).await.0, 202);
    let bounce = eva.wait("from=postmaster@mar.example").await;
    assert_eq!(bounce["envelope"]["content"]["body"]["status"], "failed");
    assert_eq!(ana.post(path, &json!({"remove": [full("anamar")]})).await.0, 409);
    let (_, again) = ana.post(path, &json!({"admins": [full("leomar")], "remove": [full("anamar")]})).await;
    assert_eq!(again["group"]["members"], json!([full("leomar")]));
}

/// Incidents 10 and "group delivery ignored each member's policy": consent to be added, and at each delivery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_dragged_into_a_group_nor_written_to_through_one() {
    let house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anamar", json!({})).await;
    let eva = house.agent("evamar", json!({})).await;
    let only_ana = json!({"inbox": {"policy": "allowlist", "allowlist": [full("anamar")]}});
    let shy = house.agent("shymar", only_ana).await;
    let hidden = json!({"visibility": "secret", "inbox": {"policy": "open", "allowlist": [full("anamar")]}});
    let secret = house.agent("secretmar", hidden).await;
    let by_eva = |names: &[&str]| json!({"name": "crew", "members": names.iter().map(|n| full(n)).collect::<Vec<_>>()});
    let (status, refused) = eva.post("/groups", &by_eva(&["shymar"])).await;
    assert_eq!(status, 400, "{refused}");
    let (status, unseen) = eva.post("/groups", &by_eva(&["secretmar"])).await;
    let (absent_status, absent) = eva.post("/groups", &by_eva(&["absentmar"])).await;
    assert_eq!((status, absent_status), (400, 400));
    assert_eq!(unseen.to_string().replace("secretmar", "X"), absent.to_string().replace("absentmar", "X"));
    for bad in [
        json!({"name": "crew", "members": "all"}),
        json!({"name": "crew", "members": [1]}),
        json!({"name": "crew", "members": ["leo@b.example"]}),
        json!({"name": "crew", "members": [full("libro")]}),
        json!({"name": {"__proto__": 1}}),
        json!([]),
    ] {
        assert_eq!(eva.post("/groups", &bad).await.0, 400, "{bad}");
    }
    let (status, made) = ana.post("/groups", &by_eva(&["evamar", "shymar", "secretmar"])).await;
    assert_eq!(status, 201, "{made}");
    let envelope = eva.envelope(&["g.crew@mar.example"], json!("from eva"));
    let (status, taken) = house.post("/inbound", &envelope).await;
    assert_eq!(status, 202);
    assert_eq!(taken["results"]["g.crew@mar.example"], json!({"members": 1, "skipped": 2}), "{taken}");
    assert!(ids_of(&shy).await.is_empty() && ids_of(&secret).await.is_empty());
    let envelope = ana.envelope(&["g.crew@mar.example"], json!("from ana"));
    let (_, taken) = house.post("/inbound", &envelope).await;
    assert_eq!(taken["results"]["g.crew@mar.example"], json!({"members": 3, "skipped": 0}));
    assert_eq!(ids_of(&shy).await, ids_of(&secret).await);

    // The names in a group are its members' to read.
    let (_, outside) = house.get("/agents/g.crew").await;
    assert_eq!(outside["group"]["post"], "members");
    assert!(!outside.to_string().contains("secretmar"), "{outside}");
    let (_, inside) = eva.get("/agents/g.crew").await;
    assert!(inside.to_string().contains("secretmar"));
    let (_, directory) = house.get("/agents?q=g.crew").await;
    assert_eq!(directory["total"], 0);
    // Nobody registers as a group or under one.
    let name_taken = house.unregistered("g.other").register(json!({})).await;
    assert_eq!(name_taken.0, 409);
}

/// Incident 36: with a remembered card of the group, a new member received mail that it could not open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sealed_for_a_group_opens_for_every_member_of_that_moment() {
    let house = TestHouse::started("mar.example", 1).await;
    let join = async |local: &str, seed: u8| {
        let address = Address::parse(&full(local)).expect("address");
        let identity = Identity::from_seeds(address, house.url.clone(), [seed; 32], [seed + 100; 32]);
        let client = AgentClient::new(identity, Options::default()).expect("client");
        client.join(&Joining::default()).await.expect("joins");
        client
    };
    let (ana, eva, leo) = (join("anamar", 11).await, join("evamar", 12).await, join("leomar", 13).await);
    let group = Address::parse("g.crew@mar.example").expect("address");
    ana.create_group("crew", std::slice::from_ref(eva.address()), false).await.expect("made");
    let letter = |text: &str| Message {
        to: vec![group.clone()],
        kind: Kind::Message,
        media: "text/plain".into(),
        body: json!(text),
        thread: None,
        in_reply_to: None,
        expires: None,
        deliver_after: None,
        privacy: Privacy::Sealed,
        receipt: false,
        stamp: None,
        extensions: serde_json::Map::new(),
        files: Vec::new(),
    };
    ana.send(&letter("one")).await.expect("sent");
    let early = ana.write("written-before-leo", &letter("early")).await.expect("written");
    let change = GroupChange { add: vec![leo.address().clone()], ..GroupChange::default() };
    ana.change_group(&group, &change).await.expect("changed");
    ana.post(&early).await.expect("sent");
    ana.send(&letter("two")).await.expect("sent");
    eventually("all arrive", || async { eva.inbox(9).await.expect("inbox").len() == 3 }).await;
    let read = |client: &AgentClient, mails: &[verifica::client::agent::Mail]| -> Vec<Value> {
        mails.iter().map(|mail| client.open(mail).expect("opens")["body"].clone()).collect()
    };
    let mut of_eva = read(&eva, &eva.inbox(9).await.expect("inbox"));
    of_eva.sort_by_key(Value::to_string);
    assert_eq!(of_eva, vec![json!("early"), json!("one"), json!("two")]);
    assert_eq!(read(&leo, &leo.inbox(9).await.expect("inbox")), vec![json!("two")], "nothing from before");
    let history = ana.history(group.as_str(), &Page::default()).await.expect("history");
    let own: Vec<Value> = history["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|message| {
            ana.open(&verifica::client::agent::Mail { record: message.clone() }).expect("opens")["body"].clone()
        })
        .collect();
    assert_eq!(own, vec![json!("one"), json!("early"), json!("two")], "its author reads its own history");
}

/// Seen while reading: a fan-out that the rate cut lost the members it had not reached. Here the author's house comes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_the_rate_does_not_reach_gets_nothing_and_is_not_lost() {
    let mut house = TestHouse::new("mar.example", 1);
    house.settings.mail_per_minute = 8;
    house.start().await;
    let ana = house.agent("anamar", json!({})).await;
    let mut names = Vec::new();
    let mut members = Vec::new();
    for n in 0..4 {
        members.push(house.agent(&format!("member{n}"), json!({})).await);
        names.push(full(&format!("member{n}")));
    }
    assert_eq!(ana.post("/groups", &json!({"name": "crew", "members": names})).await.0, 201);
    let first = ana.envelope(&["g.crew@mar.example"], json!(1));
    let second = ana.envelope(&["g.crew@mar.example"], json!(2));
    assert_eq!(house.post("/inbound", &first).await.0, 202);
    let (status, refused) = house.post("/inbound", &second).await;
    if status == 429 {
        assert_eq!((refused["accepted"].clone(), refused["rejected"][0]["code"].clone()), (json!([]), json!(429)));
        for member in &members {
            assert_eq!(ids_of(member).await, vec![first["id"].clone()]);
        }
    } else {
        // The minute ended between the two.
        assert_eq!(status, 202, "{refused}");
    }
}
