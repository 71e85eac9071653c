//! What no well-behaved client sends: each of it gets the right code and one clear reason, and never a 500.

mod houses;

use houses::{ADMIN, TestAgent, TestHouse, nonce, read_silent};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use verifica::limits;
use verifica::server::{Auth, Route, TABLE};

/// Status and body of a whole raw answer.
fn read(seen: &str) -> (u16, Value) {
    let status = seen.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let body = seen.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

fn path_of(route: &Route) -> String {
    route.path.replace("{local}", "anamar").replace("{address}", "anamar@mar.example").replace("{id}", "contract-1")
}

/// A head for this route that is let in.
fn head(route: &Route, path: &str, agent: &TestAgent) -> String {
    let credential = match route.auth {
        Auth::None | Auth::Asker | Auth::Open => String::new(),
        Auth::House => format!("authorization: Bearer {ADMIN}\r\n"),
        Auth::Agent | Auth::Owner | Auth::AnyAgent | Auth::HouseOrAgent => {
            format!("authorization: {}\r\n", agent.token(route.method, path, &nonce()))
        }
    };
    format!("{} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{credential}", route.method)
}

async fn post(house: &TestHouse, route: &Route, agent: &TestAgent, more: &str, body: &[u8]) -> (u16, Value) {
    let mut bytes = head(route, &path_of(route), agent).into_bytes();
    bytes.extend_from_slice(format!("content-length: {}\r\n{more}\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    read(&house.raw(&bytes).await)
}

/// A house with everything switched on that adds a route.
async fn with_every_route(seed: u8) -> TestHouse {
    let mut house = TestHouse::new("mar.example", seed);
    house.settings.index = true;
    house.start().await;
    house
}

fn posts() -> impl Iterator<Item = &'static Route> {
    TABLE.iter().filter(|route| route.method == "POST")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_that_takes_a_body_refuses_garbage_with_a_reason() {
    let house = with_every_route(20).await;
    let ana = house.agent("anamar", json!({})).await;
    let deep = format!("{}{}", "[".repeat(2_000), "]".repeat(2_000));
    let nested = format!("{{\"a\":{}1{}}}", "[".repeat(120), "]".repeat(120));
    let bodies: [(&str, &[u8]); 16] = [
        ("cut", b"{\"a\":"),
        ("words", b"hello"),
        ("array", b"[]"),
        ("null", b"null"),
        ("number", b"17"),
        ("two documents", b"{}{}"),
        ("not utf-8", b"{\"a\":\"\xff\xfe\"}"),
        ("lone surrogate", b"{\"a\":\"\\ud800\"}"),
        ("nul", b"\0\0\0\0"),
        ("deep", deep.as_bytes()),
        ("nested", nested.as_bytes()),
        ("fraction", b"{\"a\":1.5}"),
        ("beyond 2^53", b"{\"a\":9007199254740993}"),
        ("huge exponent", b"{\"a\":1e400}"),
        ("comment", b"{/* */}"),
        ("markup", b"<?xml version=\"1.0\"?>"),
    ];
    for route in posts() {
        for (what, body) in bodies {
            let (status, answer) = post(&house, route, &ana, "content-type: application/json\r\n", body).await;
            let reason = answer["reason"].as_str().unwrap_or_default();
            assert_eq!(status, 400, "{} {what}: {answer}", route.path);
            assert!(reason.len() > 8 && answer["rule"].is_u64(), "{} {what}: {answer}", route.path);
        }
        let duplicate = br#"{"nyx5":"1","nyx5":"2","local":"a","local":{}}"#;
        let (status, answer) = post(&house, route, &ana, "", duplicate).await;
        assert!((200..500).contains(&status), "{}: {status} {answer}", route.path);
    }
    assert_eq!(house.get("/health").await.0, 200);
}

/// A house that relays reads one shape of refusal, whichever step refused.
fn as_mail_is_answered(route: &Route, answer: &Value, code: u16) {
    if route.path == "/inbound" {
        assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!(code)), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_kind_of_body_is_415_and_no_kind_is_json() {
    let house = with_every_route(21).await;
    let ana = house.agent("anamar", json!({})).await;
    for route in posts() {
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "\u{7f}"] {
            let kind = format!("content-type: {}\r\n", if kind.is_ascii() && kind != "\u{7f}" { kind } else { "/" });
            let (status, answer) = post(&house, route, &ana, &kind, b"{}").await;
            assert_eq!((status, &answer["rule"]), (415, &json!(112)), "{}", route.path);
            as_mail_is_answered(route, &answer, 415);
        }
        let squeezed = "content-type: application/json\r\ncontent-encoding: gzip\r\n";
        assert_eq!(post(&house, route, &ana, squeezed, b"\x1f\x8b").await.0, 415, "{}", route.path);
        let (status, _) = post(&house, route, &ana, "content-type: application/nyx5.x+json\r\n", b"{").await;
        assert_eq!(status, 400, "{}", route.path);
        assert_eq!(post(&house, route, &ana, "", b"{").await.0, 400, "{}", route.path);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_over_the_bound_is_413_declared_or_counted() {
    let house = with_every_route(22).await;
    let ana = house.agent("anamar", json!({})).await;
    for route in posts() {
        let declared = format!("{}content-length: {}\r\n\r\n", head(route, &path_of(route), &ana), route.body_max + 1);
        let (status, answer) = read(&house.raw(declared.as_bytes()).await);
        assert_eq!((status, &answer["rule"]), (413, &json!(109)), "{}", route.path);
        as_mail_is_answered(route, &answer, 413);

        let mut sent = format!("{}content-length: {}\r\n\r\n", head(route, &path_of(route), &ana), route.body_max + 1);
        sent.push_str(&" ".repeat(route.body_max + 1));
        assert_eq!(read(&house.raw(sent.as_bytes()).await).0, 413, "{}: all of it sent", route.path);

        let mut counted = format!("{}transfer-encoding: chunked\r\n\r\n", head(route, &path_of(route), &ana));
        let piece = "x".repeat(0x10000);
        for _ in 0..route.body_max / 0x10000 + 1 {
            counted += &format!("10000\r\n{piece}\r\n");
        }
        counted += "0\r\n\r\n";
        assert_eq!(read(&house.raw(counted.as_bytes()).await).0, 413, "{}: counted", route.path);

        let at = " ".repeat(route.body_max);
        let (status, _) = post(&house, route, &ana, "", at.as_bytes()).await;
        assert_eq!(status, 400, "{}: at the bound it is read", route.path);
    }
    let huge = "POST /inbound HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999999\r\n\r\n";
    assert_eq!(read(&house.raw(huge.as_bytes()).await).0, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_stops_short_is_400_and_a_slow_one_408() {
    let house = TestHouse::started("mar.example", 23).await;
    let cut = async |text: &str| {
        let mut stream = TcpStream::connect(house.address()).await.expect("connect");
        stream.write_all(text.as_bytes()).await.expect("write");
        stream.shutdown().await.expect("half close");
        read(&read_silent(&mut stream, Duration::from_secs(3)).await)
    };
    let (status, answer) = cut("POST /inbound HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{\"a\":").await;
    assert_eq!((status, &answer["rule"]), (400, &json!(110)), "{answer}");
    let chunked = "POST /inbound HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    for broken in ["5\r\n{\"a\":", "zz\r\n", "5\r\nabcdeXX", "ffffffffffffffffffff\r\n"] {
        assert_eq!(cut(&format!("{chunked}{broken}")).await.0, 400, "{broken:?}");
    }
    let mut slow = TcpStream::connect(house.address()).await.expect("connect");
    let began = std::time::Instant::now();
    slow.write_all(b"POST /inbound HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n").await.expect("write");
    let (reader, mut writer) = slow.into_split();
    let drip = tokio::spawn(async move {
        while writer.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let mut whole = reader;
    let mut seen = Vec::new();
    let bound = Duration::from_millis(limits::REQUEST_READ_MS + 5_000);
    let read_all = tokio::io::AsyncReadExt::read_to_end(&mut whole, &mut seen);
    let _ = tokio::time::timeout(bound, read_all).await;
    drip.abort();
    let (status, answer) = read(&String::from_utf8_lossy(&seen));
    assert_eq!((status, &answer["rule"]), (408, &json!(111)), "a byte now and then does not stretch it");
    assert!(began.elapsed() >= Duration::from_millis(limits::REQUEST_READ_MS));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_methods_and_unknown_paths_are_404_with_a_reason() {
    let house = TestHouse::started("mar.example", 24).await;
    let known = |method: &str, path: &str| TABLE.iter().any(|row| row.method == method && row.path == path);
    for route in TABLE {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
            if known(method, route.path) {
                continue;
            }
            let text = format!("{method} {} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", path_of(route));
            let (status, answer) = read(&house.raw(text.as_bytes()).await);
            // The specification answers a wrong method on a group with 405.
            let expected = if route.path.starts_with("/groups/") { (405, json!(115)) } else { (404, json!(113)) };
            assert_eq!((status, answer["rule"].clone()), expected, "{method} {}", route.path);
        }
    }
    for path in [
        "/",
        "//",
        "/agents/",
        "/agents//",
        "/agents/a/b",
        "/AGENTS",
        "/../etc/passwd",
        "/%2e%2e/domain",
        "/%00",
        "/.well-known/nyx5.json/",
        "/libro",
        "/favicon.ico",
        "/?q=1",
        "/%E0%A4%A",
        "/mailbox",
        "/mailbox/a/ack/b",
    ] {
        let text = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let (status, answer) = read(&house.raw(text.as_bytes()).await);
        assert_eq!((status, &answer["reason"]), (404, &json!("unknown route")), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_escapes_in_a_path_or_query_never_make_a_500() {
    let house = TestHouse::started("mar.example", 25).await;
    let ana = house.agent("anamar", json!({})).await;
    for route in TABLE.iter().filter(|route| route.path.contains('{')) {
        for bad in ["%E0%A4%A", "%", "%zz", "%ff%fe", "%00", "..%2F..%2Fdomain", "%25E0", "a%0d%0ab", "%F0%9F%92%A9"] {
            let path = route.path.replace("{local}", bad).replace("{address}", bad).replace("{id}", bad);
            let mut text = head(route, &path, &ana);
            text += if route.method == "POST" { "content-length: 2\r\n\r\n{}" } else { "\r\n" };
            let (status, answer) = read(&house.raw(text.as_bytes()).await);
            assert!((400..=404).contains(&status), "{} {path}: {status} {answer}", route.method);
            assert!(answer["reason"].is_string(), "{path}");
        }
    }
    for query in [
        "?q=%E0%A4%A&limit=%zz&offset=-1",
        "?limit=99999999999999999999",
        "?&&&===",
        "?offset=1e9&q=%00",
        "?q=%25%5f%5f",
    ] {
        assert_eq!(house.get(&format!("/agents{query}")).await.0, 200, "{query}");
    }
    for limit in ["-5", "0", "abc", "", "1e3", "99999999999999999999"] {
        assert_eq!(ana.get(&format!("/mailbox/anamar?limit={limit}")).await.0, 200, "{limit}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_http_and_absurd_heads_are_turned_away() {
    let house = TestHouse::started("mar.example", 26).await;
    let many: String = (0..limits::HTTP_HEADERS_MAX + 10).map(|n| format!("x-{n}: y\r\n")).collect();
    let long = "a".repeat(limits::HTTP_HEAD_MAX + 1);
    let cases: [(&str, String, u16); 10] = [
        ("tls hello", "\u{16}\u{3}\u{1}\u{2}\u{0}\r\n\r\n".to_owned(), 400),
        ("no version", "GET /health\r\n\r\n".to_owned(), 400),
        ("other protocol", "HELO mail.example\r\n\r\n".to_owned(), 400),
        ("header without colon", "GET /health HTTP/1.1\r\nnonsense\r\n\r\n".to_owned(), 400),
        ("space before colon", "GET /health HTTP/1.1\r\nhost : x\r\n\r\n".to_owned(), 400),
        ("too many headers", format!("GET /health HTTP/1.1\r\n{many}\r\n"), 431),
        ("one long header", format!("GET /health HTTP/1.1\r\nx: {long}\r\n\r\n"), 431),
        ("long path", format!("GET /{long} HTTP/1.1\r\n\r\n"), 431),
        ("two lengths", "POST /inbound HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}".to_owned(), 400),
        (
            "length and chunks",
            "POST /inbound HTTP/1.1\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
            400,
        ),
    ];
    for (what, text, expected) in cases {
        let seen = house.raw(text.as_bytes()).await;
        assert_eq!(read(&seen).0, expected, "{what}: {seen}");
    }
    // What a proxy could read otherwise is refused, and what follows on the connection is not read.
    let second = "GET /live HTTP/1.1\r\nhost: x\r\n\r\n";
    for (what, lines) in [
        ("no host", ""),
        ("two hosts", "host: x\r\nhost: y\r\n"),
        ("another coding beside chunks", "host: x\r\ntransfer-encoding: gzip, chunked\r\n"),
        ("chunks twice", "host: x\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n"),
        ("two credentials", "host: x\r\nauthorization: Bearer a\r\nauthorization: Bearer b\r\n"),
    ] {
        let seen = house.raw(format!("POST /inbound HTTP/1.1\r\n{lines}\r\n0\r\n\r\n{second}").as_bytes()).await;
        assert_eq!(read(&seen).0, 400, "{what}: {seen}");
        assert!(!seen.contains("HTTP/1.1 200"), "{what}: {seen}");
    }
    let close = "host: x\r\nconnection: close\r\n";
    for (line, expected) in [
        ("CONNECT mail.example:443 HTTP/1.1", 404),
        ("OPTIONS * HTTP/1.1", 404),
        ("GET http://other.example/live HTTP/1.1", 200),
        ("GET /live HTTP/1.0", 200),
        ("GET /live HTTP/9.9", 400),
        ("GET live HTTP/1.1", 404),
    ] {
        let seen = house.raw(format!("{line}\r\n{close}\r\n").as_bytes()).await;
        assert_eq!(read(&seen).0, expected, "{line}: {seen}");
    }
    let fits: String = (0..limits::HTTP_HEADERS_MAX - 2).map(|n| format!("x-{n}: y\r\n")).collect();
    let seen = house.raw(format!("GET /live HTTP/1.1\r\n{close}{fits}\r\n").as_bytes()).await;
    assert_eq!(read(&seen).0, 200, "as many headers as are allowed: {seen}");
    let room = "a".repeat(limits::HTTP_HEAD_MAX - 200);
    let seen = house.raw(format!("GET /live HTTP/1.1\r\n{close}x: {room}\r\n\r\n").as_bytes()).await;
    assert_eq!(read(&seen).0, 200, "a head that fits: {seen}");
    let piped = "GET /live HTTP/1.1\r\nhost: x\r\n\r\nGET /live HTTP/1.1\r\nhost: x\r\n\r\n\u{0}garbage\r\n\r\n";
    let seen = house.raw(piped.as_bytes()).await;
    assert_eq!(seen.matches("HTTP/1.1 200 ").count(), 2, "{seen}");
    assert_eq!(seen.matches("HTTP/1.1 400 ").count(), 1, "{seen}");
    assert_eq!(house.get("/live").await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strange_but_signed_requests_are_refused_by_rule_and_by_name() {
    let house = TestHouse::started("mar.example", 27).await;
    let ana = house.agent("anamar", json!({})).await;
    for ids in [json!("a"), json!([1]), json!({}), json!(null), json!(vec!["x"; limits::ACK_IDS_MAX + 1])] {
        let (status, body) = ana.post("/mailbox/anamar/ack", &json!({"ids": ids})).await;
        assert_eq!(status, 400, "{body}");
    }
    let good = ana.envelope(&["evamar@rio.example"], json!({}));
    let change = |field: &str, value: Value| {
        let mut envelope = good.clone();
        envelope[field] = value;
        ana.key.sign_object(&mut envelope, "signature");
        envelope
    };
    let cases = [
        ("nyx5", json!("2")),
        ("id", json!("short")),
        ("id", json!("../../../etc/passwd")),
        ("from", json!("ANAMAR@mar.example")),
        ("to", json!([])),
        ("to", json!("evamar@rio.example")),
        ("to", json!(["x"])),
        ("type", json!("order")),
        ("created", json!("yesterday")),
        ("expires", json!(5)),
        ("content", json!(null)),
        ("attachments", json!({})),
        ("signature", json!("x")),
    ];
    for (field, value) in cases {
        let mut envelope = change(field, value);
        if field == "signature" {
            envelope["signature"] = json!("x");
        }
        for (status, body) in [ana.post("/outbound", &envelope).await, house.post("/inbound", &envelope).await] {
            assert_eq!(status, 400, "{field}: {body}");
            assert!(body["reason"].as_str().is_some_and(|reason| reason.contains(field)), "{field}: {body}");
        }
    }
    let mut forged = good.clone();
    forged["content"]["body"] = json!({"changed": true});
    assert_eq!(ana.post("/outbound", &forged).await.0, 403);
    let (status, body) = ana.post("/outbound", &change("from", json!("evamar@mar.example"))).await;
    assert_eq!((status, &body["rule"]), (403, &json!(202)), "{body}");
    let (status, body) = house.post("/inbound", &change("to", json!(["absent@rio.example"]))).await;
    assert_eq!((status, &body["rule"]), (404, &json!(302)), "{body}");
}
