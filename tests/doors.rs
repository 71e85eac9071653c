//! The doors of one house over real HTTP: who may do what, and what stays the same however it is asked.

mod houses;

use houses::{ADMIN, TestHouse, answer, client, eventually, nonce, now};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use verifica::limits;
use verifica::server::{Auth, TABLE};
use verifica::wire::auth::{Request, Token};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_enters_writes_to_a_neighbour_and_the_neighbour_reads_and_acknowledges() {
    let house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anamar", json!({})).await;
    let eva = house.agent("evamar", json!({"inbox": {"policy": "open"}})).await;
    let id = ana.send("evamar@mar.example", "hello").await;
    let record = eva.wait(&format!("from={}", ana.address)).await;
    assert_eq!(record["envelope"]["id"], id.as_str());
    assert_eq!(record["from_verified"], true);
    assert_eq!(record["relay_verified"], true);
    assert_eq!(eva.acknowledge(&[&id, "unknown-id"]).await, json!({"acked": [id]}));
    assert_eq!(eva.acknowledge(&[&id]).await, json!({"acked": []}));
    assert!(eva.inbox().await.is_empty());
    let (_, sent) = ana.get("/outbox/anamar").await;
    assert_eq!(sent["sent"][0]["status"], "delivered", "{sent}");
    let (status, health) = house.get("/health").await;
    assert_eq!((status, &health["ok"], &health["queue"]), (200, &json!(true), &json!(0)));
    assert_eq!(house.get("/ready").await.0, 200);
    let (_, card) = house.get("/.well-known/nyx5.json").await;
    assert_eq!(card["domain"], "mar.example");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_that_asks_who_you_are_says_401_before_anything_else() {
    let house = TestHouse::started("mar.example", 2).await;
    house.agent("anamar", json!({})).await;
    for route in TABLE {
        if matches!(route.auth, Auth::None | Auth::Asker | Auth::Open) {
            continue;
        }
        for name in ["anamar", "nobody-here", "%E0%A4%A", "..%2Fdomain"] {
            let path = route.path.replace("{local}", name).replace("{address}", name).replace("{id}", name);
            for credential in [None, Some("Bearer wrong"), Some("Nyx5 AAAA.BBBB"), Some("Basic YTpi"), Some("\u{1}")] {
                let mut text = format!("{} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n", route.method);
                if let Some(credential) = credential.filter(|c| c.is_ascii() && !c.contains('\u{1}')) {
                    text += &format!("authorization: {credential}\r\n");
                }
                if route.method == "POST" {
                    text += "content-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
                } else {
                    text += "\r\n";
                }
                let seen = house.raw(text.as_bytes()).await;
                assert!(seen.starts_with("HTTP/1.1 401 "), "{} {path}: {seen}", route.method);
                assert!(seen.contains("\"rule\":200"), "{seen}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_good_for_one_answer_also_when_the_answer_is_no() {
    let house = TestHouse::started("mar.example", 3).await;
    let ana = house.agent("anamar", json!({})).await;
    let ask = async |path: &str, token: String| {
        answer(client().get(format!("{}{path}", house.url)).header("authorization", token)).await.0
    };
    let token = ana.token("GET", "/mailbox/anamar", "first-nonce");
    assert_eq!(ask("/mailbox/anamar", token.clone()).await, 200);
    assert_eq!(ask("/mailbox/anamar", token).await, 401);
    let other = ana.token("GET", "/mailbox/evamar", "second-nonce");
    assert_eq!(ask("/mailbox/evamar", other.clone()).await, 403);
    assert_eq!(ask("/mailbox/evamar", other).await, 401, "refused, and spent");
    let refused = ana.token("POST", "/outbound", "third-nonce");
    let post = async |token: String| {
        let request = client().post(format!("{}/outbound", house.url)).header("authorization", token);
        answer(request.header("content-type", "application/json").body("{\"nyx5\":\"1\"}")).await.0
    };
    assert_eq!(post(refused.clone()).await, 400);
    assert_eq!(post(refused).await, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_holds_only_for_its_method_path_host_time_and_key() {
    let house = TestHouse::started("mar.example", 4).await;
    let ana = house.agent("anamar", json!({})).await;
    let path = "/mailbox/anamar";
    let right = Request { method: "GET", path, host: &ana.host };
    let sign = |request: Request<'_>, at: i64| Token::header(&ana.address, &ana.key, request, now().plus(at), &nonce());
    let late = 301_000;
    let cases = [
        ("method", sign(Request { method: "POST", ..right }, 0)),
        ("path", sign(Request { path: "/mailbox/anamar/", ..right }, 0)),
        ("query signed", sign(Request { path: "/mailbox/anamar?limit=1", ..right }, 0)),
        ("host", sign(Request { host: "mar.example", ..right }, 0)),
        ("too old", sign(right, -late)),
        ("too new", sign(right, late)),
        ("key", Token::header(&ana.address, &house.key, right, now(), &nonce())),
    ];
    for (what, token) in cases {
        let request = client().get(format!("{}{path}?limit=1", house.url)).header("authorization", token);
        let (status, body) = answer(request).await;
        assert_eq!((status, &body["rule"]), (401, &json!(200)), "{what}: {body}");
    }
    let good = client().get(format!("{}{path}?limit=1", house.url)).header("authorization", sign(right, -200_000));
    assert_eq!(answer(good).await.0, 200);
    let head = client().head(format!("{}{path}", house.url)).header("authorization", sign(right, 0));
    assert_eq!(answer(head).await, (200, Value::Null), "HEAD is signed as GET");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn absent_malformed_and_secret_names_are_answered_with_the_same_bytes() {
    let house = TestHouse::started("mar.example", 5).await;
    let hidden = house.agent("hidden", json!({"visibility": "secret"})).await;
    let friend = house.agent("friend", json!({})).await;
    let raw = async |path: &str| {
        let seen = house.raw(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await;
        seen.lines().filter(|line| !line.starts_with("date:")).collect::<Vec<_>>().join("\n")
    };
    let absent = raw("/agents/absent").await;
    assert!(absent.starts_with("HTTP/1.1 404 "), "{absent}");
    for path in
        ["/agents/hidden", "/agents/..%2Fdomain", "/agents/%E0%A4%A", "/agents/.x", "/resolve/hidden@mar.example"]
    {
        assert_eq!(raw(path).await, absent, "{path}");
    }
    assert_eq!(friend.get("/agents/hidden").await.0, 404);
    let (status, card) = hidden.get("/agents/hidden").await;
    assert_eq!((status, &card["address"]), (200, &json!("hidden@mar.example")));
    let envelope = friend.envelope(&["hidden@mar.example"], json!({}));
    let (secret, body) = house.post("/inbound", &envelope).await;
    let envelope = friend.envelope(&["absent@mar.example"], json!({}));
    let (nobody, other) = house.post("/inbound", &envelope).await;
    assert_eq!((secret, &body["reason"]), (nobody, &other["reason"]));
    assert_eq!(secret, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn public_answers_can_be_kept_and_private_ones_cannot() {
    let house = TestHouse::started("mar.example", 6).await;
    let ana = house.agent("anamar", json!({"visibility": "public"})).await;
    let first = client().get(format!("{}/.well-known/nyx5.json", house.url)).send().await.expect("answer");
    assert_eq!(first.headers()["cache-control"], "public, max-age=300");
    let tag = first.headers()["etag"].clone();
    let again = client().get(format!("{}/.well-known/nyx5.json", house.url)).header("if-none-match", tag);
    let again = again.send().await.expect("answer");
    assert_eq!(again.status().as_u16(), 304);
    assert!(again.bytes().await.expect("body").is_empty());
    let token = ana.token("GET", "/agents/anamar", &nonce());
    let asked = client().get(format!("{}/agents/anamar", house.url)).header("authorization", token);
    assert_eq!(asked.send().await.expect("answer").headers()["cache-control"], "no-store");
    let (_, listed) = house.get("/agents?q=ANAMAR&limit=-1").await;
    assert_eq!((&listed["total"], &listed["agents"][0]["address"]), (&json!(1), &json!("anamar@mar.example")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_ends_with_the_letter_and_not_before() {
    let house = TestHouse::started("mar.example", 7).await;
    let ana = house.agent("anamar", json!({})).await;
    let eva = house.agent("evamar", json!({"inbox": {"policy": "open"}})).await;
    let started = std::time::Instant::now();
    let (_, nothing) = eva.get("/mailbox/evamar/wait?timeout=1").await;
    assert!(nothing["message"].is_null() && started.elapsed() >= Duration::from_secs(1));
    let waiting = tokio::spawn({
        let eva = eva.clone();
        async move { eva.get("/mailbox/evamar/wait?timeout=20").await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let started = std::time::Instant::now();
    let id = ana.send("evamar@mar.example", "now").await;
    let (_, found) = waiting.await.expect("waited");
    assert_eq!(found["message"]["envelope"]["id"], id.as_str());
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    assert_eq!(eva.get("/mailbox/evamar/wait?since=yesterday").await.0, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_requests_wait_at_a_mailbox_and_the_oldest_makes_room() {
    let house = TestHouse::started("mar.example", 12).await;
    let eva = house.agent("evamar", json!({})).await;
    let doors = house.running().doors.clone();
    let wait = || {
        let eva = eva.clone();
        tokio::spawn(async move { eva.get("/mailbox/evamar/wait?timeout=30").await })
    };
    let oldest = wait();
    eventually("the first waits", async || doors.wakes.waiting("evamar") == 1).await;
    let others: Vec<_> = (1..limits::WAITS_PER_AGENT_MAX).map(|_| wait()).collect();
    eventually("all of them wait", async || doors.wakes.waiting("evamar") == limits::WAITS_PER_AGENT_MAX).await;
    let newest = wait();
    let started = std::time::Instant::now();
    assert_eq!(oldest.await.expect("waited"), (200, json!({"message": null})));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(doors.wakes.waiting("evamar"), limits::WAITS_PER_AGENT_MAX);
    others.iter().chain([&newest]).for_each(|one| one.abort());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mailbox_of_large_letters_is_shown_from_the_newest_as_far_as_one_answer_holds() {
    let house = TestHouse::started("mar.example", 14).await;
    let ana = house.agent("anamar", json!({})).await;
    let eva = house.agent("evamar", json!({"inbox": {"policy": "open"}})).await;
    let mut sent = Vec::new();
    for _ in 0..7 {
        let envelope = ana.envelope(&["evamar@mar.example"], json!("x".repeat(900_000)));
        let (status, body) = house.post("/inbound", &envelope).await;
        assert_eq!(status, 202, "{body}");
        assert_eq!(ana.post("/outbound", &envelope).await.0, 202);
        sent.push(envelope["id"].as_str().expect("id").to_owned());
    }
    let ids = |records: &[Value]| -> Vec<String> {
        records.iter().map(|r| r["envelope"]["id"].as_str().expect("id").to_owned()).collect()
    };
    let shown = ids(&eva.inbox().await);
    let fit = limits::STORE_LIST_BYTES_MAX / 900_000;
    assert_eq!(shown, sent[7 - fit..], "the newest, oldest of them first");
    let listed: Vec<&str> = shown.iter().map(String::as_str).collect();
    eva.acknowledge(&listed).await;
    assert_eq!(ids(&eva.inbox().await), sent[..7 - fit], "then the older ones");
    let (_, outbox) = ana.get("/outbox/anamar").await;
    let listed = ids(outbox["sent"].as_array().expect("list"));
    assert!((1..=fit).contains(&listed.len()) && listed[0] == sent[6], "{listed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_of_one_address_are_counted_and_refused_with_a_time() {
    let house = TestHouse::started("mar.example", 13).await;
    for _ in 0..limits::RATE_LOOKUP_PER_MINUTE {
        house.get("/resolve/nobody@mar.example").await;
    }
    let mut refused = false;
    // The minute may have turned in between; a second round cannot meet another turn.
    for _ in 0..=limits::RATE_LOOKUP_PER_MINUTE {
        let answer = client().get(format!("{}/resolve/nobody@mar.example", house.url)).send().await.expect("answer");
        if answer.status().as_u16() == 429 {
            let seconds: u64 = answer.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
            assert!((1..=60).contains(&seconds));
            refused = true;
            break;
        }
        assert_eq!(answer.status().as_u16(), 404);
    }
    assert!(refused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_tops_up_and_reads_the_books_by_pages() {
    let house = TestHouse::started("mar.example", 8).await;
    let ana = house.agent("anamar", json!({})).await;
    for amount in [100, 23] {
        let body = json!({"account": "anamar@mar.example", "amount": amount});
        let (status, entry) = house.admin(Method::POST, "/libro/topup", Some(body)).await;
        assert_eq!(status, 201, "{entry}");
    }
    for bad in
        [json!({}), json!({"account": "anamar@mar.example", "amount": 1.5}), json!({"account": "x", "amount": 1})]
    {
        assert_eq!(house.admin(Method::POST, "/libro/topup", Some(bad)).await.0, 400);
    }
    let (_, account) = ana.get("/libro/cuenta/anamar@mar.example").await;
    assert_eq!(account["balance"], 123, "{account}");
    assert_eq!(ana.get("/libro/cuenta/casa@mar.example").await.0, 403);
    let (_, page) = house.admin(Method::GET, "/libro/diario?limit=1", None).await;
    assert_eq!((page["journal"].as_array().map(Vec::len), &page["next"]), (Some(1), &json!(2)), "{page}");
    let (_, page) = house.admin(Method::GET, "/libro/diario?from=2", None).await;
    assert_eq!((&page["journal"][0]["n"], &page["next"]), (&json!(2), &Value::Null));
    assert_eq!(page["balances"], json!({"anamar@mar.example": 123, "casa@mar.example": -123}));
    let (_, statement) = ana.get("/libro/estado").await;
    assert_eq!((&statement["closing_balance"], &statement["reconciled"]), (&json!(123), &json!(true)));
    assert_eq!(ana.get("/libro/estado?formato=xml").await.0, 400);
    let (status, _) =
        answer(client().get(format!("{}/libro/diario", house.url)).bearer_auth(format!("{ADMIN}x"))).await;
    assert_eq!(status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invitation_lets_one_agent_in_once() {
    let mut house = TestHouse::new("mar.example", 9);
    house.settings.registration = verifica::record::Registration::Invite;
    house.start().await;
    let (status, made) = house.admin(Method::POST, "/invitations", Some(json!({}))).await;
    assert_eq!(status, 201);
    let code = made["code"].clone();
    let ana = house.unregistered("anamar");
    assert_eq!(ana.register(json!({})).await.0, 403);
    let (status, body) = ana.register(json!({"invite": code})).await;
    assert_eq!(status, 201, "{body}");
    assert_eq!(house.unregistered("evamar").register(json!({"invite": code})).await.0, 403);
    let (_, listed) = house.admin(Method::GET, "/invitations", None).await;
    assert_eq!(listed["invitations"][0]["used"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_house_that_ends_finishes_what_it_was_asked_and_keeps_its_books() {
    let mut house = TestHouse::started("mar.example", 10).await;
    let ana = house.agent("anamar", json!({})).await;
    let eva = house.agent("evamar", json!({"inbox": {"policy": "open"}})).await;
    let (_, before) = house.get("/.well-known/nyx5.json").await;
    let waiting = tokio::spawn({
        let eva = eva.clone();
        async move { eva.get("/mailbox/evamar/wait?timeout=60").await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let started = std::time::Instant::now();
    house.stop().await;
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert_eq!(waiting.await.expect("waited"), (200, json!({"message": null})), "the one who waited got an answer");
    house.start().await;
    let (_, after) = house.get("/.well-known/nyx5.json").await;
    assert_eq!(before, after, "the same card, byte for byte");
    ana.send("evamar@mar.example", "after").await;
    eventually("the letter is delivered", async || eva.inbox().await.len() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_books_of_one_house_are_not_opened_by_another() {
    let mut house = TestHouse::started("mar.example", 11).await;
    house.stop().await;
    let mut options = house.options();
    options.house.domain = verifica::wire::Domain::parse("rio.example").expect("domain");
    let refused = verifica::daemon::serve(options).await.err().map(|error| error.to_string());
    assert!(refused.as_ref().is_some_and(|text| text.contains("holds the books of mar.example")), "{refused:?}");
}
