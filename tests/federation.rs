//! Houses among each other: mail there and back, stops and starts, lies and silence in between.

mod houses;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use houses::{TestAgent, TestHouse, answer, client, eventually, now};
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use verifica::client::dns::{TxtAnswer, TxtLookup};
use verifica::client::resolver::HostOverride;
use verifica::wire::card::{Delegation, Scope};
use verifica::wire::envelope::Kind;
use verifica::wire::{Domain, SigningKey};

/// Two houses that know where the other one is.
async fn two(seed: u8) -> (TestHouse, TestHouse) {
    let mut mar = TestHouse::new("mar.example", seed);
    let mut rio = TestHouse::new("rio.example", seed + 1);
    mar.knows(&rio);
    rio.knows(&mar);
    mar.start().await;
    rio.start().await;
    (mar, rio)
}

fn open() -> Value {
    json!({"inbox": {"policy": "open"}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_goes_there_and_back_while_one_house_stops_and_starts_again() {
    let (mut mar, mut rio) = two(40).await;
    let ana = mar.agent("anamar", open()).await;
    let eva = rio.agent("evario", open()).await;
    let first = ana.send("evario@rio.example", "one").await;
    let record = eva.wait("").await;
    assert_eq!((&record["envelope"]["id"], &record["relay_verified"]), (&json!(first), &json!(true)));
    eva.acknowledge(&[&first]).await;

    rio.stop().await;
    let mut sent = Vec::new();
    for n in 0..20 {
        sent.push(ana.send("evario@rio.example", &format!("while you were away {n}")).await);
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    let (_, outbox) = ana.get("/outbox/anamar").await;
    assert_eq!(outbox["sent"][0]["status"], "retrying", "{outbox}");
    mar.stop().await;
    rio.start().await;
    mar.start().await;
    eventually("all twenty arrive", async || eva.inbox().await.len() == 20).await;
    let mut arrived: Vec<String> =
        eva.inbox().await.iter().map(|r| r["envelope"]["id"].as_str().expect("id").to_owned()).collect();
    arrived.sort();
    sent.sort();
    assert_eq!(arrived, sent, "each once");

    let back = eva.send("anamar@mar.example", "back").await;
    assert_eq!(ana.wait("from=evario@rio.example").await["envelope"]["id"], back.as_str());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_delivered_comes_back_and_what_was_asked_for_is_confirmed() {
    let (mar, rio) = two(42).await;
    let ana = mar.agent("anamar", open()).await;
    rio.agent("evario", open()).await;
    let lost = ana.send("nobody@rio.example", "lost").await;
    let bounce = ana.wait("from=postmaster@mar.example").await;
    let body = &bounce["envelope"]["content"]["body"];
    assert_eq!((&body["of"], &body["status"]), (&json!(lost), &json!("failed")), "{bounce}");
    assert!(body["reason"].as_str().is_some_and(|reason| reason.contains("404")), "{body}");
    ana.acknowledge(&[bounce["envelope"]["id"].as_str().expect("id")]).await;

    let mut more = Map::new();
    more.insert("receipt".into(), "delivered".into());
    let to = ["evario@rio.example", "nobody@rio.example"];
    let both = ana.envelope_with(&to, Kind::Message, "text/plain", json!("hi"), more);
    assert_eq!(ana.post("/outbound", &both).await.0, 202);
    eventually("a receipt and a bounce", async || ana.inbox().await.len() == 2).await;
    let mut told: Vec<(String, String)> = ana
        .inbox()
        .await
        .iter()
        .map(|r| &r["envelope"]["content"]["body"])
        .map(|b| (b["to"].as_str().unwrap_or("").to_owned(), b["status"].as_str().unwrap_or("").to_owned()))
        .collect();
    told.sort();
    let expected = [("evario@rio.example", "delivered"), ("nobody@rio.example", "failed")];
    assert_eq!(told, expected.map(|(to, status)| (to.to_owned(), status.to_owned())));
}

/// Something in front of a house: each request goes to `decide` first, and to the house when it says nothing.
async fn front(house: &TestHouse, decide: impl Fn(&str) -> Option<Response> + Send + Sync + 'static) -> String {
    let (target, decide) = (house.url.clone(), Arc::new(decide));
    let handler = move |request: Request| {
        let (target, decide) = (target.clone(), decide.clone());
        async move {
            if let Some(response) = decide(request.uri().path()) {
                return response;
            }
            let (head, body) = request.into_parts();
            let bytes = axum::body::to_bytes(body, 4 << 20).await.unwrap_or_default();
            let mut passed = client().request(head.method, format!("{target}{}", head.uri)).body(bytes);
            for name in ["content-type", "x-nyx5-relay", "x-nyx5-for", "authorization"] {
                if let Some(value) = head.headers.get(name) {
                    passed = passed.header(name, value);
                }
            }
            match passed.send().await {
                Ok(answer) => {
                    let status = answer.status();
                    (status, answer.bytes().await.unwrap_or_default()).into_response()
                }
                Err(_) => axum::http::StatusCode::BAD_GATEWAY.into_response(),
            }
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
    let at = listener.local_addr().expect("address");
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(handler)).await });
    format!("http://{at}")
}

fn known_at(house: &mut TestHouse, domain: &Domain, url: String) {
    house.hosts.insert(domain.clone(), HostOverride { url, sig: None });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intermediary_that_answers_for_a_house_is_not_believed() {
    let mut rio = TestHouse::new("rio.example", 44);
    let mut mar = TestHouse::new("mar.example", 45);
    rio.knows(&mar);
    let posts = Arc::new(AtomicUsize::new(0));
    let seen = posts.clone();
    let url = front(&rio, move |path| {
        let post = (path == "/inbound").then(|| seen.fetch_add(1, Ordering::SeqCst))?;
        match post {
            0 => Some("<html>welcome</html>".into_response()),
            1 => Some(axum::Json(json!({"ok": true})).into_response()),
            2 => Some(axum::Json(json!({"accepted": [], "rejected": []})).into_response()),
            3 => Some(Response::new(Body::from(vec![b'x'; 3 << 20]))),
            4 => Some((axum::http::StatusCode::BAD_GATEWAY, "upstream").into_response()),
            _ => None,
        }
    });
    known_at(&mut mar, &rio.domain, url.await);
    mar.start().await;
    rio.start().await;
    let eva = rio.agent("evario", open()).await;
    let ana = mar.agent("anamar", open()).await;
    ana.send("evario@rio.example", "through").await;
    eva.wait("").await;
    assert_eq!(posts.load(Ordering::SeqCst), 6, "five false answers were not taken for a delivery");
    eventually("settled", async || ana.get("/outbox/anamar").await.1["sent"][0]["status"] == "delivered").await;
    assert_eq!(eva.inbox().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_domain_key_is_refused_after_a_restart_too() {
    let (mut mar, mut rio) = two(46).await;
    let ana = mar.agent("anamar", open()).await;
    let eva = rio.agent("evario", open()).await;
    eva.send("anamar@mar.example", "first use").await;
    ana.wait("from=evario@rio.example").await;
    rio.stop().await;

    let mut impostor = TestHouse::new("rio.example", 99);
    impostor.knows(&mar);
    impostor.start().await;
    mar.stop().await;
    mar.hosts.clear();
    mar.knows(&impostor);
    mar.start().await;
    let forger = impostor.agent("evario", open()).await;
    let (status, body) = mar.post("/inbound", &forger.envelope(&["anamar@mar.example"], json!({}))).await;
    let reason = body["reason"].as_str().unwrap_or_default();
    assert_eq!(status, 403, "{body}");
    assert!(reason.contains(&rio.key.public().kid()) && reason.contains("operator"), "names the pin: {reason}");
    assert_eq!(mar.get("/resolve/evario@rio.example").await.0, 404);

    mar.stop().await;
    let confirmed = HostOverride { url: impostor.url.clone(), sig: Some(impostor.key.public()) };
    mar.hosts.insert(impostor.domain.clone(), confirmed);
    mar.start().await;
    let (status, body) = mar.post("/inbound", &forger.envelope(&["anamar@mar.example"], json!({}))).await;
    assert_eq!(status, 202, "the operator's word is the anchor: {body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_key_is_found_at_once_and_a_key_on_no_card_is_refused() {
    let (mar, rio) = two(48).await;
    let mut ana = mar.agent("anamar", open()).await;
    let eva = rio.agent("evario", open()).await;
    ana.send("evario@rio.example", "old key").await;
    eva.wait("").await;
    let old = ana.clone();
    let fresh = SigningKey::from_seed([7; 32]);
    let body = json!({"local": "anamar", "sig": fresh.public().kid(), "inbox": {"policy": "open"}});
    let (status, card) = ana.post("/agents", &body).await;
    assert_eq!(status, 201, "{card}");
    ana.key = fresh;
    let (status, body) = rio.post("/inbound", &ana.envelope(&["evario@rio.example"], json!({}))).await;
    assert_eq!(status, 202, "{body}");
    let (status, body) = rio.post("/inbound", &old.envelope(&["evario@rio.example"], json!({}))).await;
    assert_eq!(status, 202, "within its grace: {body}");
    assert_eq!(old.get("/mailbox/anamar").await.0, 401, "an old key signs mail and opens no door");
    let stranger = TestAgent { key: SigningKey::from_seed([8; 32]), ..ana.clone() };
    let (status, body) = rio.post("/inbound", &stranger.envelope(&["evario@rio.example"], json!({}))).await;
    assert_eq!((status, &body["rule"]), (403, &json!(203)), "{body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_agent_writes_abroad_to_those_it_lists_and_to_nobody_else() {
    let (mar, rio) = two(50).await;
    mar.agent("anamar", open()).await;
    mar.agent("evamar", open()).await;
    let more = json!({"visibility": "secret", "inbox": {"policy": "allowlist", "allowlist": ["anamar@mar.example"]}});
    let hidden = rio.agent("hidden", more).await;
    let (status, body) = mar.post("/inbound", &hidden.envelope(&["anamar@mar.example"], json!({}))).await;
    assert_eq!(status, 202, "{body}");
    let (status, body) = mar.post("/inbound", &hidden.envelope(&["evamar@mar.example"], json!({}))).await;
    assert_eq!(status, 403, "not even its existence is known on behalf of another: {body}");
    assert_eq!(mar.get("/resolve/hidden@rio.example").await.0, 404);
    let (status, body) = mar.post("/inbound", &hidden.envelope(&["anamar@mar.example"], json!({}))).await;
    assert_eq!(status, 202, "{body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_of_another_house_reads_its_own_account_and_nothing_else() {
    let (mar, rio) = two(52).await;
    let ana = mar.agent("anamar", open()).await;
    let body = json!({"account": "anamar@mar.example", "amount": 7});
    assert_eq!(rio.admin(Method::POST, "/libro/topup", Some(body)).await.0, 201);
    let abroad = ana.at(&rio);
    let (status, account) = abroad.get("/libro/cuenta/anamar@mar.example").await;
    assert_eq!((status, &account["balance"]), (200, &json!(7)), "{account}");
    assert_eq!(abroad.get("/libro/cuenta/casa@rio.example").await.0, 403);
    assert_eq!(abroad.get("/mailbox/anamar").await.0, 401);
    assert_eq!(abroad.post("/outbound", &ana.envelope(&["x@rio.example"], json!({}))).await.0, 401);
    let unknown = TestAgent { key: SigningKey::from_seed([9; 32]), ..abroad.clone() };
    assert_eq!(unknown.get("/libro/estado").await.0, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subagents_chain_is_followed_to_its_parent() {
    let (mar, rio) = two(54).await;
    let ana = mar.agent("anamar", open()).await;
    let eva = rio.agent("evario", open()).await;
    let bot = mar.unregistered("bot.anamar");
    let scope = Scope { to_domains: Some(vec!["rio.example".to_owned()]), ..Scope::default() };
    let sign =
        |scope: &Scope| Delegation::sign(&ana.address, &ana.key, &bot.address, &bot.key.public(), scope, None, now());
    let body = json!({"local": "bot.anamar", "sig": bot.key.public().kid(), "delegation": sign(&scope)});
    let (status, card) = ana.post("/agents", &body).await;
    assert_eq!(status, 201, "{card}");
    let (status, body) = rio.post("/inbound", &bot.envelope(&["evario@rio.example"], json!({}))).await;
    assert_eq!(status, 202, "{body}");
    eva.wait("from=bot.anamar@mar.example").await;
    let (status, body) = mar.post("/inbound", &bot.envelope(&["anamar@mar.example"], json!({}))).await;
    assert_eq!((status, &body["rule"]), (403, &json!(206)), "the scope holds at this door too: {body}");
    let (status, body) = ana.post("/agents/bot.anamar/revoke", &json!({})).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(bot.get("/mailbox/bot.anamar").await.0, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_house_that_never_answers_holds_up_nobody_elses_mail() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
    let silent_at = silent.local_addr().expect("address");
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = silent.accept().await {
            held.push(stream);
        }
    });
    let mut rio = TestHouse::new("rio.example", 56);
    let mut mar = TestHouse::new("mar.example", 57);
    mar.knows(&rio);
    rio.knows(&mar);
    known_at(&mut mar, &Domain::parse("mudo.example").expect("domain"), format!("http://{silent_at}"));
    mar.settings.mail_per_minute = 10_000;
    mar.start().await;
    rio.start().await;
    let ana = mar.agent("anamar", open()).await;
    let eva = rio.agent("evario", open()).await;
    for n in 0..150 {
        ana.send("anybody@mudo.example", &n.to_string()).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let started = std::time::Instant::now();
    ana.send("evario@rio.example", "quick").await;
    eva.wait("").await;
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_house_that_asks_for_a_relay_takes_nothing_without_one() {
    let mut mar = TestHouse::new("mar.example", 58);
    let mut rio = TestHouse::new("rio.example", 59);
    mar.knows(&rio);
    rio.knows(&mar);
    rio.settings.require_relay = true;
    mar.start().await;
    rio.start().await;
    let ana = mar.agent("anamar", open()).await;
    let eva = rio.agent("evario", open()).await;
    let envelope = ana.envelope(&["evario@rio.example"], json!({}));
    assert_eq!(rio.post("/inbound", &envelope).await.0, 403);
    let forged = format!("nyx51 domain=mar.example; kid={}; sig=AAAA", mar.key.public().kid());
    let request = client().post(format!("{}/inbound", rio.url)).header("x-nyx5-relay", forged);
    assert_eq!(answer(request.body(envelope.to_string())).await.0, 403);
    assert_eq!(ana.post("/outbound", &envelope).await.0, 202);
    assert_eq!(eva.wait("").await["relay_verified"], true);
}

struct Told(TxtAnswer);

impl TxtLookup for Told {
    fn txt<'a>(&'a self, _: &'a str) -> std::pin::Pin<Box<dyn Future<Output = TxtAnswer> + Send + 'a>> {
        Box::pin(async { self.0.clone() })
    }
}

/// Incident 16: an outage of DNS must not weaken the anchor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trouble_in_discovery_is_transient_and_anchors_nothing() {
    let key = SigningKey::from_seed([3; 32]).public();
    let record = |text: String| TxtAnswer::Records(vec![text]);
    let cases = [
        (TxtAnswer::Failed("SERVFAIL".into()), "SERVFAIL"),
        (record(format!("v=nyx51; url=http://10.0.0.1; sig={key}")), "no https url"),
        (record(format!("v=nyx51; url=https://10.0.0.1; sig={key}")), "not public"),
        (record(format!("v=nyx51; url=https://localhost:1; sig={key}")), "not dialled"),
        (record("v=nyx51; url=https://rio.example; sig=AAAA".into()), "not a key"),
        (
            TxtAnswer::Records(vec!["v=nyx51; url=https://a.example".into(), "v=nyx51; url=https://b.example".into()]),
            "differ",
        ),
    ];
    for (at, (told, expected)) in cases.into_iter().enumerate() {
        let mut house = TestHouse::new("mar.example", 60 + u8::try_from(at).expect("few"));
        let mut options = house.options();
        options.dns = Arc::new(Told(told));
        house.running = verifica::daemon::serve(options).await.ok();
        house.agent("anamar", open()).await;
        let (status, body) = house.get("/resolve/evario@rio.example").await;
        let reason = body["reason"].as_str().unwrap_or_default();
        assert!(status == 502 && reason.contains(expected), "{expected}: {status} {body}");
        let stranger = TestAgent {
            address: verifica::wire::Address::parse("evario@rio.example").expect("address"),
            key: SigningKey::from_seed([4; 32]),
            url: house.url.clone(),
            host: house.host(),
        };
        let (status, body) = house.post("/inbound", &stranger.envelope(&["anamar@mar.example"], json!({}))).await;
        assert_eq!((status, &body["rule"]), (421, &json!(311)), "{expected}: {body}");
        for told in [reason, body["reason"].as_str().unwrap_or_default()] {
            assert!(!told.contains("127.0.0.1") && !told.contains("::1"), "a name's private address shows: {told}");
        }
        let pins = house.running().doors.store.read(|reader| reader.pins("", 10)).await.expect("pins");
        assert!(pins.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answers_of_another_house_are_bounded_and_told_apart() {
    let rio = TestHouse::started("rio.example", 70).await;
    rio.agent("evario", open()).await;
    let reply = Arc::new(AtomicUsize::new(0));
    let chosen = reply.clone();
    let url = front(&rio, move |path| match (path, chosen.load(Ordering::SeqCst)) {
        ("/agents/evario", 1) => Some(axum::http::StatusCode::NOT_FOUND.into_response()),
        ("/agents/evario", 2) => Some(axum::http::StatusCode::GONE.into_response()),
        ("/agents/evario", 3) => Some(axum::http::StatusCode::TOO_MANY_REQUESTS.into_response()),
        ("/agents/evario", 4) => {
            Some((axum::http::StatusCode::FOUND, [("location", "/agents/evario")]).into_response())
        }
        ("/agents/evario", 5) => Some("<html>busy</html>".into_response()),
        ("/agents/evario", 6) => Some(Response::new(Body::from(vec![b' '; 1 << 20]))),
        ("/agents/evario", 7) => {
            Some(axum::Json(json!({"nyx5": "1", "address": "evario@rio.example"})).into_response())
        }
        _ => None,
    });
    let mut mar = TestHouse::new("mar.example", 71);
    known_at(&mut mar, &rio.domain, url.await);
    mar.start().await;
    for (which, expected) in [(1, 404), (2, 404), (3, 502), (4, 502), (5, 502), (6, 502), (7, 404), (0, 200)] {
        reply.store(which, Ordering::SeqCst);
        let (status, body) = mar.get("/resolve/evario@rio.example").await;
        assert_eq!(status, expected, "{which}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn houses_meet_over_tls_and_a_certificate_is_replaced_while_they_run() {
    let (mut rio, trusted) = TestHouse::secured("rio.example", 72);
    let mut mar = TestHouse::new("mar.example", 73);
    mar.knows(&rio);
    rio.knows(&mar);
    mar.extra_roots = vec![trusted.clone()];
    mar.start().await;
    rio.start().await;
    let ana = mar.agent("anamar", open()).await;
    assert!(rio_live(&rio, &trusted).await);
    let key = SigningKey::from_seed([5; 32]);
    let body = json!({"local": "evario", "sig": key.public().kid(), "inbox": {"policy": "open"}});
    let request = houses::client_trusting(std::slice::from_ref(&trusted)).post(format!("{}/agents", rio.url));
    let request = request.bearer_auth(houses::ADMIN).header("content-type", "application/json");
    assert_eq!(answer(request.body(body.to_string())).await.0, 201);
    ana.send("evario@rio.example", "over tls").await;
    eventually("delivered", async || ana.get("/outbox/anamar").await.1["sent"][0]["status"] == "delivered").await;

    let plain = rio.raw(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(!plain.contains("HTTP/1.1 200"), "{plain:?}");
    let replaced = rio.new_certificate();
    assert_eq!(rio.running().reload_tls(), Ok(true));
    assert!(rio_live(&rio, &replaced).await && !rio_live(&rio, &trusted).await);
    let unasked = rio.new_certificate();
    eventually("the changed files are read without being told", async || rio_live(&rio, &unasked).await).await;
    assert!(!rio_live(&rio, &replaced).await);
    let replaced = unasked;
    std::fs::write(&rio.tls.as_ref().expect("tls").key, "no key").expect("write");
    assert!(rio.running().reload_tls().is_err());
    assert!(rio_live(&rio, &replaced).await, "a pair that cannot be used changes nothing");
}

async fn rio_live(rio: &TestHouse, trusted: &rustls::pki_types::CertificateDer<'static>) -> bool {
    let client = houses::client_trusting(std::slice::from_ref(trusted));
    client.get(format!("{}/live", rio.url)).send().await.is_ok()
}
