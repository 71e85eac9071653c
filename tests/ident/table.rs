//! Every route of section 8 of the specification, and of the sheet of wire facts, as it must answer: who may ask, what
//! success is, and each error that is named for it. The exchanges below must make every one of those codes come about.

use crate::houses::{ADMIN, TestAgent, TestHouse, answer, client, now};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use verifica::server::{Auth, TABLE};

struct Row {
    method: &'static str,
    path: &'static str,
    auth: Auth,
    success: u16,
    errors: &'static [u16],
}

const fn row(method: &'static str, path: &'static str, auth: Auth, success: u16, errors: &'static [u16]) -> Row {
    Row { method, path, auth, success, errors }
}

const SPEC: &[Row] = &[
    row("GET", "/.well-known/nyx5.json", Auth::None, 200, &[]),
    row("GET", "/health", Auth::None, 200, &[]),
    row("GET", "/agents", Auth::None, 200, &[]),
    row("GET", "/agents/{local}", Auth::Asker, 200, &[404]),
    row("POST", "/agents", Auth::Open, 201, &[400, 401, 403, 409]),
    row("POST", "/agents/{local}/profile", Auth::Agent, 200, &[400, 401, 403, 404]),
    row("POST", "/agents/{local}/revoke", Auth::HouseOrAgent, 200, &[401, 403, 404]),
    row("GET", "/agents/{local}/presence", Auth::Asker, 200, &[]),
    row("GET", "/delegations/{local}", Auth::Owner, 200, &[401, 403]),
    row("GET", "/resolve/{address}", Auth::Asker, 200, &[400, 404, 502]),
    row("POST", "/invitations", Auth::House, 201, &[401]),
    row("GET", "/invitations", Auth::House, 200, &[401]),
    row("POST", "/outbound", Auth::Agent, 202, &[400, 401, 403, 413]),
    row("POST", "/inbound", Auth::None, 202, &[400, 403, 404, 410, 413]),
    row("GET", "/mailbox/{local}", Auth::Owner, 200, &[401, 403]),
    row("POST", "/mailbox/{local}/ack", Auth::Owner, 200, &[401, 403]),
    row("GET", "/mailbox/{local}/wait", Auth::Owner, 200, &[401, 403]),
    row("GET", "/outbox/{local}", Auth::Owner, 200, &[401, 403]),
    row("GET", "/conversations/{local}", Auth::Owner, 200, &[400, 401, 403]),
    row("POST", "/groups", Auth::Agent, 201, &[400, 401, 409]),
    row("GET", "/groups/{local}/members", Auth::Agent, 200, &[401, 403, 404]),
    row("POST", "/groups/{local}/members", Auth::Agent, 200, &[400, 401, 403, 404, 409]),
    row("GET", "/libro/cuenta/{address}", Auth::AnyAgent, 200, &[401, 403]),
    row("GET", "/libro/estado", Auth::AnyAgent, 200, &[400, 401, 403]),
    row("POST", "/libro/topup", Auth::House, 201, &[400, 401]),
    row("GET", "/libro/diario", Auth::House, 200, &[401]),
    row("GET", "/eventos", Auth::House, 200, &[401]),
    row("POST", "/index/houses", Auth::None, 201, &[400, 422]),
    row("GET", "/index/houses", Auth::None, 200, &[]),
    row("GET", "/index/agents", Auth::None, 200, &[400, 410]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_answers_as_it_is_written() {
    for row in SPEC {
        let built = TABLE.iter().find(|route| route.method == row.method && route.path == row.path);
        let built = built.unwrap_or_else(|| panic!("there is no {} {}", row.method, row.path));
        assert_eq!(built.auth, row.auth, "{} {}", row.method, row.path);
    }
    let mut house = TestHouse::new("mar.example", 83);
    house.settings.index = true;
    house.start().await;
    let open = json!({"inbox": {"policy": "open"}});
    let (ana, eva) = (house.agent("anamar", open.clone()).await, house.agent("evamar", open).await);
    let seen = &mut Seen { house: &house, codes: BTreeMap::new() };

    for path in ["/.well-known/nyx5.json", "/health", "/agents", "/agents/anamar", "/agents/nobody", "/index/houses"] {
        seen.ask(By::Nobody, "GET", path, None).await;
    }
    for path in ["/resolve/anamar@mar.example", "/resolve/nobody@mar.example", "/resolve/x", "/resolve/a@rio.example"] {
        seen.ask(By::Nobody, "GET", path, None).await;
    }
    seen.ask(By::Nobody, "GET", "/agents/anamar/presence", None).await;

    // Registration: what is no name, no proof, a closed name, a taken one, and one that goes well.
    let new = house.unregistered("newcomer");
    let body = |local: &str| json!({"local": local, "sig": new.key.public().kid(), "ts": now()});
    seen.ask(By::Nobody, "POST", "/agents", Some(signed(&new, body("Not A Name")))).await;
    seen.ask(By::Nobody, "POST", "/agents", Some(body("newcomer"))).await;
    seen.ask(By::Nobody, "POST", "/agents", Some(signed(&new, body("anamar")))).await;
    seen.ask(By::Nobody, "POST", "/agents", Some(signed(&new, body("newcomer")))).await;
    let mut invited = TestHouse::new("rio.example", 84);
    invited.settings.registration = verifica::record::Registration::Invite;
    invited.start().await;
    let (status, _) = invited.unregistered("newcomer").register(json!({})).await;
    seen.codes.entry(("POST", "/agents")).or_default().insert(status);

    for (by, local, profile) in [
        (By::Agent(&ana), "anamar", json!({"summary": "x"})),
        (By::Agent(&ana), "anamar", json!({"unknown": 1})),
        (By::Agent(&ana), "evamar", json!(null)),
        (By::Agent(&ana), "nobody", json!(null)),
        (By::Nobody, "anamar", json!(null)),
    ] {
        seen.ask(by, "POST", &format!("/agents/{local}/profile"), Some(json!({"profile": profile}))).await;
    }

    // A subagent, so that there is somebody to revoke.
    let sub = house.unregistered("bot.anamar");
    let scope = verifica::wire::card::Scope::default();
    let delegation = verifica::wire::card::Delegation::sign(
        &ana.address,
        &ana.key,
        &sub.address,
        &sub.key.public(),
        &scope,
        None,
        now(),
    );
    let body = json!({"local": "bot.anamar", "sig": sub.key.public().kid(), "delegation": delegation});
    seen.ask(By::Agent(&ana), "POST", "/agents", Some(body)).await;
    for (by, local) in [
        (By::Agent(&eva), "bot.anamar"),
        (By::Nobody, "bot.anamar"),
        (By::Agent(&ana), "evamar"),
        (By::Agent(&ana), "bot.anamar"),
    ] {
        seen.ask(by, "POST", &format!("/agents/{local}/revoke"), Some(json!({}))).await;
    }

    // What is one's own: its owner, another, nobody.
    for (method, path) in [
        ("GET", "/delegations/anamar"),
        ("GET", "/mailbox/anamar"),
        ("POST", "/mailbox/anamar/ack"),
        ("GET", "/mailbox/anamar/wait?timeout=0"),
        ("GET", "/outbox/anamar"),
        ("GET", "/conversations/anamar"),
        ("GET", "/libro/cuenta/anamar@mar.example"),
        ("GET", "/libro/estado?account=anamar@mar.example"),
    ] {
        for by in [By::Agent(&ana), By::Agent(&eva), By::Nobody] {
            seen.ask(by, method, path, (method == "POST").then(|| json!({"ids": []}))).await;
        }
    }
    seen.ask(By::Agent(&ana), "GET", "/conversations/anamar?project=__proto__", None).await;
    seen.ask(By::Agent(&ana), "GET", "/libro/estado?formato=xml", None).await;

    for (method, path, good, bad) in [
        ("POST", "/invitations", Some(json!({"uses": 1})), None),
        ("GET", "/invitations", None, None),
        (
            "POST",
            "/libro/topup",
            Some(json!({"account": "anamar@mar.example", "amount": 5})),
            Some(json!({"amount": -1})),
        ),
        ("GET", "/libro/diario", None, None),
        ("GET", "/eventos", None, None),
    ] {
        seen.ask(By::Nobody, method, path, good.clone()).await;
        seen.ask(By::House, method, path, good).await;
        if bad.is_some() {
            seen.ask(By::House, method, path, bad).await;
        }
    }

    // Letters at both doors.
    let fine = ana.envelope(&["evamar@mar.example"], json!({"text": "x"}));
    let mut forged = fine.clone();
    forged["content"]["body"] = json!("another");
    let huge = Some(json!({"x": "x".repeat(verifica::limits::REQUEST_BODY_MAX)}));
    let mut expired = fine.clone();
    (expired["id"], expired["expires"]) = (json!("expired-00000001"), json!(now().plus(-1)));
    ana.key.sign_object(&mut expired, "signature");
    let nowhere = ana.envelope(&["nobody@mar.example"], json!({}));
    seen.ask(By::Agent(&eva), "POST", "/outbound", Some(fine.clone())).await;
    seen.ask(By::Nobody, "POST", "/outbound", Some(fine.clone())).await;
    for body in [json!({}), fine.clone()] {
        seen.ask(By::Agent(&ana), "POST", "/outbound", Some(body)).await;
    }
    seen.ask(By::Agent(&ana), "POST", "/outbound", huge.clone()).await;
    for body in [json!({}), forged, nowhere, expired, eva.envelope(&["anamar@mar.example"], json!({}))] {
        seen.ask(By::Nobody, "POST", "/inbound", Some(body)).await;
    }
    seen.ask(By::Nobody, "POST", "/inbound", huge).await;

    // Groups.
    let group = json!({"name": "team", "members": ["evamar@mar.example"]});
    seen.ask(By::Nobody, "POST", "/groups", Some(group.clone())).await;
    seen.ask(By::Agent(&ana), "POST", "/groups", Some(json!({"name": "!"}))).await;
    seen.ask(By::Agent(&ana), "POST", "/groups", Some(group.clone())).await;
    seen.ask(By::Agent(&ana), "POST", "/groups", Some(group)).await;
    let members = "/groups/g.team/members";
    for by in [By::Agent(&ana), By::Agent(&new), By::Nobody] {
        seen.ask(by, "GET", members, None).await;
    }
    seen.ask(By::Agent(&ana), "GET", "/groups/g.none/members", None).await;
    for (by, path, body) in [
        (By::Agent(&ana), members, json!({"add": ["nobody@mar.example"]})),
        (By::Nobody, members, json!({})),
        (By::Agent(&eva), members, json!({"remove": ["anamar@mar.example"]})),
        (By::Agent(&ana), "/groups/g.none/members", json!({"remove": ["anamar@mar.example"]})),
        (By::Agent(&ana), members, json!({"remove": ["anamar@mar.example"]})),
        (By::Agent(&eva), members, json!({"remove": ["evamar@mar.example"]})),
    ] {
        seen.ask(by, "POST", path, Some(body)).await;
    }

    // The index.
    for domain in [json!(7), json!("nowhere.example"), json!("mar.example")] {
        seen.ask(By::Nobody, "POST", "/index/houses", Some(json!({"domain": domain}))).await;
    }
    use base64::Engine;
    let old = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(r#"{"a":"x","g":1,"s":null}"#);
    for query in ["", "?offset=1", &format!("?cursor={old}")] {
        seen.ask(By::Nobody, "GET", &format!("/index/agents{query}"), None).await;
    }

    let mut faults = Vec::new();
    for row in SPEC {
        let codes = seen.codes.get(&(row.method, row.path)).cloned().unwrap_or_default();
        let expected: BTreeSet<u16> = row.errors.iter().copied().chain([row.success]).collect();
        if codes != expected {
            faults.push(format!("{} {}: {codes:?}, written {expected:?}", row.method, row.path));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // A wrong method is an unknown route, but where the protocol names it.
    assert_eq!(house.admin(Method::DELETE, "/agents/anamar", None).await.0, 404);
    assert_eq!(house.admin(Method::DELETE, members, None).await.0, 405);
    assert_eq!(house.get("/no/such/route").await, (404, house.get("/").await.1));
}

#[derive(Clone, Copy)]
enum By<'a> {
    Nobody,
    House,
    Agent(&'a TestAgent),
}

struct Seen<'a> {
    house: &'a TestHouse,
    codes: BTreeMap<(&'static str, &'static str), BTreeSet<u16>>,
}

impl Seen<'_> {
    async fn ask(&mut self, by: By<'_>, method: &'static str, path: &str, body: Option<Value>) {
        let bare = path.split('?').next().unwrap_or(path);
        let request = client().request(method.parse().expect("method"), format!("{}{path}", self.house.url));
        let request = match by {
            By::Nobody => request,
            By::House => request.bearer_auth(ADMIN),
            By::Agent(agent) => request.header("authorization", agent.token(method, bare, &crate::houses::nonce())),
        };
        let (status, _) = answer(match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        })
        .await;
        let fits = |pattern: &str| {
            let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), bare.split('/').collect());
            pattern.len() == path.len() && pattern.iter().zip(path).all(|(p, s)| p.starts_with('{') || *p == s)
        };
        let row = SPEC.iter().find(|row| row.method == method && fits(row.path)).expect("a row");
        self.codes.entry((row.method, row.path)).or_default().insert(status);
    }
}

fn signed(agent: &TestAgent, mut body: Value) -> Value {
    agent.key.sign_object(&mut body, "signature");
    body
}
