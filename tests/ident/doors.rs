//! Every route of the table, walked: its caps, its buckets, and that a secret name is answered as an absent one.

use crate::houses::{ADMIN, TestAgent, TestHouse, nonce, now};
use serde_json::{Map, Value, json};
use verifica::limits;
use verifica::server::{Auth, Route, TABLE};
use verifica::wire::auth::OnBehalf;
use verifica::wire::envelope::Kind;
use verifica::wire::quote::{ContractKind, OP_MEDIA, Offer};
use verifica::wire::{Address, Amount};

/// Anybody may ask these as often as connections allow: each costs one read of a bounded size, or has a rate of its own
/// inside its rule (registration by address, arrival by sender).
const UNCOUNTED: &[&str] = &["/.well-known/nyx5.json", "/health", "/live", "/ready", "/agents", "/inbound"];

/// A request line and its headers, the same for every name of the same length.
fn filled(route: &Route, name: &str, domain: &str) -> String {
    let segments = route.path.split('/').map(|segment| match segment {
        "{local}" => name.to_owned(),
        "{address}" => format!("{name}@{domain}"),
        "{domain}" => "beta.example".to_owned(),
        parameter if parameter.starts_with('{') => "0".repeat(64),
        other => other.to_owned(),
    });
    segments.collect::<Vec<_>>().join("/")
}

async fn ask(house: &TestHouse, method: &str, path: &str, headers: &[String], body: &str) -> String {
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    for header in headers {
        request.push_str(&format!("{header}\r\n"));
    }
    if !matches!(method, "GET" | "DELETE") {
        request.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
    }
    house.raw(format!("{request}\r\n{body}").as_bytes()).await
}

/// An answer without what differs between two moments and two names.
fn plain(answer: &str, name: &str) -> String {
    let kept = answer.lines().filter(|line| !line.to_ascii_lowercase().starts_with("date:"));
    kept.collect::<Vec<_>>().join("\n").replace(name, "NAME")
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default()
}

#[test]
fn each_route_has_its_rule_its_cap_and_its_bucket() {
    for route in TABLE {
        let at = format!("{} {}", route.method, route.path);
        let takes = matches!(route.method, "POST" | "PUT");
        assert_eq!(takes, route.body_max > 0, "{at}: a body where one is taken, and nowhere else");
        let cap = limits::REQUEST_BODY_MAX.max(limits::SMALL_BODY_MAX);
        assert!(route.body_max <= cap || route.path.starts_with("/blob"), "{at}: the cap is a named one");
        let counted = match route.auth {
            // The signature, or the token, says who it is; what it may do has its own rate in the rule.
            Auth::House | Auth::Agent | Auth::Owner | Auth::AnyAgent | Auth::HouseOrAgent => true,
            // Who presents a credential is counted before it is looked at.
            Auth::Asker => true,
            Auth::None | Auth::Open => route.bucket.is_some() || UNCOUNTED.contains(&route.path),
        };
        assert!(counted, "{at}: anybody may ask, and nobody counts");
        let names = route.path.contains("{local}") || route.path.contains("{address}");
        assert!(!names || route.auth != Auth::None, "{at}: a name is shown to whoever may see it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_route_refuses_strangers_and_bodies_over_its_cap() {
    let house = TestHouse::started("mar.example", 81).await;
    let ana = house.agent("anamar", json!({})).await;
    for route in TABLE {
        let path = filled(route, "anamar", "mar.example");
        let nobody = matches!(route.auth, Auth::None | Auth::Asker | Auth::Open);
        let bare = ask(&house, route.method, &path, &[], "{}").await;
        assert_eq!(status(&bare) == 401, !nobody, "{} {path}: {bare}", route.method);
        if route.body_max == 0 || route.body_max > limits::REQUEST_BODY_MAX {
            continue;
        }
        let header = match route.auth {
            Auth::House | Auth::HouseOrAgent => format!("authorization: Bearer {ADMIN}"),
            _ => format!("authorization: {}", ana.token(route.method, &path, &nonce())),
        };
        // The length alone is enough to be refused: nothing of the body is sent.
        let request = format!(
            "{} {path} HTTP/1.1\r\nhost: x\r\n{header}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            route.method,
            route.body_max + 1
        );
        let over = house.raw(request.as_bytes()).await;
        assert_eq!(status(&over), 413, "{} {path}: {over}", route.method);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_is_full_says_when_to_come_back() {
    for route in TABLE.iter().filter(|route| route.bucket.is_some() && route.auth == Auth::Asker) {
        let house = TestHouse::started("mar.example", 82).await;
        let path = filled(route, "nobody", "mar.example");
        let mut last = String::new();
        for _ in 0..=limits::RATE_LOOKUP_PER_MINUTE * 2 {
            last = ask(&house, route.method, &path, &[], "").await;
            if status(&last) == 429 {
                break;
            }
        }
        assert_eq!(status(&last), 429, "{path}");
        assert!(last.to_ascii_lowercase().contains("retry-after:"), "{last}");
    }
}

/// Incidents 7 and 8: a suffix that looks delegated, a 401 beside a 404, an early 409.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_answers_for_a_secret_name_what_it_answers_for_an_absent_one() {
    let mut mar = TestHouse::new("mar.example", 83);
    let mut rio = TestHouse::new("rio.example", 84);
    mar.knows(&rio);
    rio.knows(&mar);
    mar.start().await;
    rio.start().await;
    let (secret, absent) = ("oculta1", "ausente");
    let hidden = mar.agent(secret, json!({"visibility": "secret", "inbox": {"policy": "open"}})).await;
    let stranger = mar.agent("curiosa", json!({})).await;
    let foreign = rio.agent("forastera", json!({})).await;
    let credentials = |who: &str, method: &str, path: &str| -> Vec<String> {
        match who {
            "nobody" => Vec::new(),
            "stranger" => vec![format!("authorization: {}", stranger.token(method, path, &nonce()))],
            "foreign" => vec![format!("authorization: {}", foreign.at(&mar).token(method, path, &nonce()))],
            "house" => {
                let asked = OnBehalf::header(&rio.domain, &rio.key, &foreign.address, &mar.domain, now());
                vec![format!("x-nyx5-for: {asked}")]
            }
            "impostor" => {
                // The name itself is claimed, with a key that is not its own.
                let name = if path.contains(secret) { secret } else { absent };
                let impostor = TestAgent { key: stranger.key.clone(), ..mar.unregistered(name) };
                vec![format!("authorization: {}", impostor.token(method, path, &nonce()))]
            }
            _ => vec!["authorization: Nyx5 bm90.YQ".to_owned()],
        }
    };
    let mut compared = 0;
    for route in TABLE.iter().filter(|route| route.path.contains("{local}") || route.path.contains("{address}")) {
        for who in ["nobody", "stranger", "foreign", "house", "impostor", "garbage"] {
            let mut answers = Vec::new();
            for name in [secret, absent] {
                let path = filled(route, name, "mar.example");
                let headers = credentials(who, route.method, &path);
                answers.push(plain(&ask(&mar, route.method, &path, &headers, "{}").await, name));
            }
            assert!(!answers[0].is_empty());
            assert_eq!(answers[0], answers[1], "{} {} as {who}", route.method, route.path);
            compared += 1;
        }
    }
    assert!(compared >= 40, "{compared}");

    // Its own people see it all the same.
    let path = format!("/agents/{secret}");
    assert_eq!(hidden.get(&path).await.0, 200);

    // Mail: the same refusal in the same place, and the same bounce.
    let arrived = async |from: &TestAgent, name: &str| {
        let to = format!("{name}@mar.example");
        let envelope = from.envelope(&[&to], json!({"text": "are you there?"}));
        let answer = ask(&mar, "POST", "/inbound", &[], &envelope.to_string()).await;
        plain(&answer, name)
    };
    for from in [&stranger, &foreign] {
        assert_eq!(arrived(from, secret).await, arrived(from, absent).await);
    }
    // Nor does a forged letter find out: under the name, with another key, as its sender or as the seller of a quote.
    let forged = async |name: &str| {
        let impostor = TestAgent { key: stranger.key.clone(), ..mar.unregistered(name) };
        let letter = impostor.envelope(&["curiosa@mar.example"], json!({}));
        let to_libro = |from: &TestAgent, body: Value| {
            from.envelope_with(&["libro@mar.example"], Kind::Task, OP_MEDIA, body, Map::new())
        };
        let operation = to_libro(&impostor, json!({"op": "balance"}));
        let offer = Offer {
            id: "quote-001".into(),
            house: mar.domain.clone(),
            seller: impostor.address.clone(),
            buyer: stranger.address.clone(),
            kind: ContractKind::Escrow,
            price: Amount::new(10).expect("price"),
            concept: "nothing".into(),
            terms: json!({}),
            arbiter: None,
            referrer: None,
            service: None,
            issued: now(),
            expires: None,
        };
        let accept = to_libro(&stranger, json!({"op": "accept", "quote": offer.sign(&stranger.key)}));
        let mut answers = String::new();
        for envelope in [letter, operation, accept] {
            answers.push_str(&plain(&ask(&mar, "POST", "/inbound", &[], &envelope.to_string()).await, name));
        }
        answers
    };
    let answers = forged(secret).await;
    assert_eq!(answers.matches("HTTP/1.1 403").count(), 3, "{answers}");
    assert_eq!(answers, forged(absent).await);
    // The name is not to be had, as a reserved one is not.
    let entering = async |name: &str| {
        let newcomer = mar.unregistered(name);
        let (code, mut body) = newcomer.register(json!({})).await;
        body["reason"] = body["reason"].as_str().unwrap_or_default().replace(name, "NAME").into();
        (code, body)
    };
    assert_eq!(entering(secret).await, entering("root").await);
}

/// An envelope to several, one of them secret: each is answered alone, and nothing else tells them apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_name_among_others_is_rejected_as_an_absent_one() {
    let house = TestHouse::started("mar.example", 85).await;
    house.agent("oculta1", json!({"visibility": "secret"})).await;
    house.agent("abierta", json!({})).await;
    let stranger = house.agent("curiosa", json!({})).await;
    let to = ["abierta@mar.example", "oculta1@mar.example", "ausente@mar.example"];
    let envelope = stranger.envelope(&to, json!({}));
    let (code, body) = house.post("/inbound", &envelope).await;
    assert_eq!((code, &body["accepted"]), (202, &json!(["abierta@mar.example"])));
    let rejected: Vec<Value> = body["rejected"].as_array().cloned().unwrap_or_default();
    let of = |name: &str| {
        let address = Address::parse(name).expect("address");
        let mut entry = rejected.iter().find(|entry| entry["to"] == json!(address)).cloned().expect("rejected");
        entry["to"] = Value::Null;
        entry
    };
    assert_eq!(of("oculta1@mar.example"), of("ausente@mar.example"));
}

/// Incidents 1, 49 and 51: a path in place of a name, an escape that decodes to nothing, a HEAD.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_none_are_absent_and_a_head_is_an_answer_without_a_body() {
    let house = TestHouse::started("mar.example", 86).await;
    house.agent("anamar", json!({})).await;
    let absent = plain(&ask(&house, "GET", "/agents/ausente", &[], "").await, "ausente");
    for name in ["..%2Fdomain", "%E0%A4%A", "..%2f..%2fstore.db", "%00", "g.", "-x"] {
        assert_eq!(plain(&ask(&house, "GET", &format!("/agents/{name}"), &[], "").await, name), absent, "{name}");
    }
    let head = ask(&house, "HEAD", "/agents/anamar", &[], "").await;
    assert_eq!(status(&head), 200);
    assert_eq!(head.split("\r\n\r\n").nth(1), Some(""), "{head}");
}
