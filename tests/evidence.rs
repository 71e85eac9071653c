//! What a verdict stands on, from the look to the auditor: kept when the verdict is signed, given to the parties over
//! HTTP, judged again offline by the real program, and removed when its time has come and not before.

#[allow(dead_code)]
mod hostile;
#[allow(dead_code)]
mod support;

use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use support::{Site, TestHouse, contract_in, ok, order, quote, status};
use verifica::client::agent::{AgentClient, ClientError};
use verifica::ids::Ids;
use verifica::limits;
use verifica::time::Timestamp;
use verifica::verdict::{self, EvidenceName};
use verifica::wire::Sha256;

const BODY: &str = r#"{"status":"ready","version":3,"items":[{"name":"uno"}]}"#;
const WORK: &str = "the work itself";

fn every_type() -> Value {
    let url = "https://seller.example/";
    json!([
        {"type": "http_status", "name": "up", "url": url},
        {"type": "sha256", "url": url, "expect": Sha256::of(BODY)},
        {"type": "sha256", "name": "delivered", "expect": Sha256::of(WORK)},
        {"type": "json_path", "url": url, "path": "items[0].name", "expect": "uno"},
        {"type": "regex", "url": url, "pattern": "\"version\":\\d+"},
        {"type": "size", "url": url, "max_bytes": 1_000},
        {"type": "header", "url": url, "name": "X-Build", "equals": "7"},
    ])
}

struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

/// The real program, while the houses of this process go on.
async fn verifica(folder: &Path, args: &[&str]) -> Ran {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_verifica"));
    let output = command.current_dir(folder).args(args).env_clear().env("HOME", folder).output().await;
    let output = output.expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// A passed and a failed escrow of one house, with what its parties hold.
struct Deal {
    site: Site,
    house: TestHouse,
    buyer: AgentClient,
    seller: AgentClient,
    passed: String,
    failed: String,
    ids: Ids,
    folder: tempfile::TempDir,
}

impl Deal {
    async fn new(seed: u8) -> Deal {
        let site = Site::start().await;
        let mut house = TestHouse::new("mar.example", 1).arbitrating(site.fetcher());
        house.start().await;
        let (buyer, seller) = (house.join("ana-buys", 11).await, house.join("leo-sells", 12).await);
        house.topup(buyer.address(), 1_000).await;
        let (folder, ids) = (tempfile::tempdir().expect("folder"), Ids::from_seed([seed; 32]));
        let (passed, failed) = (String::new(), String::new());
        let mut deal = Deal { site, house, buyer, seller, passed, failed, ids, folder };
        deal.site.show(ok("x-build: 7\r\n", BODY));
        deal.passed = deal.delivered(every_type()).await;
        assert_eq!(contract_in(&deal.buyer, &deal.passed, &["released", "refunded"]).await["state"], "released");
        deal.site.show(ok("x-build: 8\r\n", BODY));
        deal.failed = deal.delivered(every_type()).await;
        assert_eq!(contract_in(&deal.buyer, &deal.failed, &["released", "refunded"]).await["state"], "refunded");
        deal
    }

    /// A contract that was accepted and delivered, with its work inline.
    async fn delivered(&mut self, tests: Value) -> String {
        let (libro, terms) = (self.house.libro(), json!({"verify": tests}));
        let quote = quote(&self.house, &self.seller, self.buyer.address(), 100, terms, &mut self.ids);
        let accepted = order(&self.buyer, &libro, json!({"op": "accept", "quote": quote})).await.expect("accepted");
        let contract = accepted.body["contract"]["id"].as_str().expect("id").to_owned();
        let op = json!({"op": "deliver", "contract": contract, "evidence": WORK});
        order(&self.seller, &libro, op).await.expect("delivered");
        contract
    }

    /// The last verdict in the history of a contract.
    async fn verdict(&self, contract: &str) -> Value {
        let contract = self.buyer.contract(contract).await.expect("contract");
        contract["history"].as_array().and_then(|items| items.last()).expect("ending")["veredicto"].clone()
    }

    fn write(&self, name: &str, doc: &Value) -> String {
        std::fs::write(self.folder.path().join(name), doc.to_string()).expect("written");
        name.to_owned()
    }

    async fn run(&self, args: &[&str]) -> Ran {
        verifica(self.folder.path(), args).await
    }

    /// `check` of a file against the site, as the arbiter looks at it.
    async fn check(&self, file: &str, more: &[&str]) -> Ran {
        std::fs::write(self.folder.path().join("ca.pem"), hostile::ca().pem()).expect("roots");
        let at = self.site.server.address;
        let resolve = format!("seller.example:443:{}:{}", at.ip(), at.port());
        let mut args = vec!["check", file, "--json", "--resolve", &resolve, "--ca", "ca.pem", "--allow-private"];
        args.extend_from_slice(more);
        self.run(&args).await
    }
}

fn refused(answer: Result<Value, ClientError>) -> (u16, String) {
    match answer {
        Err(ClientError::Refused { status, reason, .. }) => (status, reason),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_posted_verdict_can_be_judged_again_from_what_the_house_gives_out() {
    let mut deal = Deal::new(1).await;
    for (contract, word) in [(deal.passed.clone(), "pass"), (deal.failed.clone(), "fail")] {
        let evidence = deal.buyer.evidence(&contract).await.expect("evidence");
        assert_eq!(evidence, deal.seller.evidence(&contract).await.expect("evidence"), "both parties get the same");
        let posted = deal.verdict(&contract).await;
        assert_eq!(evidence["veredicto"], posted);
        assert_eq!(evidence["verdict"], word);
        assert_eq!(posted["evidence"], json!(EvidenceName::of(&evidence)));
        let replayed = verdict::replay(&evidence).expect("replays");
        assert_eq!(replayed.differences, Vec::<String>::new());
        assert_eq!(evidence["looks"].as_array().map(Vec::len), Some(2));
        assert_eq!(evidence["delivery"]["evidence"], WORK);
    }
    // Strangers, nobody, and contracts without a verdict.
    let stranger = deal.house.join("eva-looks", 13).await;
    assert_eq!(refused(stranger.evidence(&deal.passed).await).0, 403);
    assert_eq!(refused(deal.buyer.evidence("no-such-contract").await).0, 404);
    let bare = deal.house.http();
    let path = format!("/libro/contrato/{}/evidencia", deal.passed);
    let url = format!("{}{path}", bare.url());
    assert_eq!(reqwest_status(&url).await, 401);
    deal.site.show(status(522));
    let stuck = deal.delivered(every_type()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (code, reason) = refused(deal.buyer.evidence(&stuck).await);
    assert_eq!(code, 404);
    assert!(reason.contains("no verdict"), "{reason}");
    // Settled by hand: what the arbiter saw supports nothing, and none of it stays.
    deal.site.show(ok("x-build: 7\r\n", BODY));
    let libro = deal.house.libro();
    order(&deal.buyer, &libro, json!({"op": "release", "contract": stuck})).await.expect("released");
    let (code, reason) = refused(deal.buyer.evidence(&stuck).await);
    assert_eq!(code, 404);
    assert!(reason.contains("without a verdict"), "{reason}");
    let left = deal.house.doors().store.read(move |reader| reader.observations_of(&stuck, 99)).await.expect("reads");
    assert_eq!(left, Vec::<String>::new());
    deal.house.stop().await;
}

async fn reqwest_status(url: &str) -> u16 {
    let house = verifica::client::agent::HouseClient::new(url, &[]).expect("client");
    let path = url.splitn(4, '/').nth(3).map(|rest| format!("/{rest}")).expect("path");
    let authorize = || Ok(None);
    let call = verifica::client::agent::http::Call {
        method: reqwest::Method::GET,
        path: &path,
        query: &[],
        body: None,
        authorize: &authorize,
        repeatable: false,
        timeout_ms: 10_000,
    };
    refused(house.json(call).await).0
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_replays_verifies_and_checks_what_a_house_posted() {
    let deal = Deal::new(2).await;
    std::fs::write(deal.folder.path().join("ana.json"), deal.buyer.identity().to_text().as_bytes()).expect("identity");
    private(&deal.folder.path().join("ana.json"));
    let kid = deal.house.public_key().kid();
    for (contract, word) in [(&deal.passed, "pass"), (&deal.failed, "fail")] {
        let seen = format!("{word}.json");
        let got = deal.run(&["libro", "evidence", contract, "--as", "ana.json", "--out", &seen]).await;
        assert_eq!(got.code, 0, "{}{}", got.out, got.err);
        let twice = deal.run(&["libro", "evidence", contract, "--as", "ana.json", "--out", &seen]).await;
        assert_eq!(twice.code, 2, "evidence is never replaced: {}", twice.err);
        let printed = deal.run(&["libro", "evidence", contract, "--as", "ana.json", "--json"]).await;
        assert_eq!(printed.json(), deal.seller.evidence(contract).await.expect("evidence"));
        // Whatever the verdict was, it is true.
        let replayed = deal.run(&["replay", &seen, "--json"]).await;
        let doc = replayed.json();
        assert_eq!((replayed.code, &doc["same"], &doc["verdict"]), (0, &json!(true), &json!(word)), "{doc:#}");
        let posted = deal.verdict(contract).await;
        assert_eq!(doc["resultados"], posted["resultados"]);
        let shown = deal.run(&["replay", &seen]).await;
        assert!(shown.err.contains("checks made") && shown.err.contains("the signature holds"), "{}", shown.err);

        // The verdict alone, inside its contract, inside the operation that carried it, and beside its evidence.
        let id = contract.clone();
        let look =
            deal.house.doors().store.read(move |r| Ok(verifica::record::View::look(r, &id))).await.expect("reads");
        let operation = look.and_then(|row| row.posting).expect("the envelope that was posted");
        let files = [
            (deal.write("verdict.json", &posted), 1),
            (deal.write("contract.json", &deal.buyer.contract(contract).await.expect("contract")), 1),
            (deal.write("operation.json", &operation), 2),
            (seen.clone(), 1),
        ];
        for (file, signed) in files {
            let verified = deal.run(&["verify", &file, "--key", kid.as_str(), "--json"]).await;
            let doc = verified.json();
            assert_eq!((verified.code, &doc["answer"]), (0, &json!("valid")), "{file} {doc:#}");
            assert_eq!(doc["documents"].as_array().map(Vec::len), Some(signed), "{file}");
            assert!(doc["documents"].as_array().is_some_and(|all| all.iter().any(|one| one["kind"] == "verdict")));
            let by_card = deal.run(&["verify", &file, "--house", &deal.house.url]).await;
            assert_eq!(by_card.code, 0, "{file} {}{}", by_card.out, by_card.err);
            assert!(by_card.err.contains("checks made"), "{}", by_card.err);
            let nobody = deal.run(&["verify", &file]).await;
            assert_eq!(nobody.code, 3, "{file} {}", nobody.out);
            let other = deal.seller.identity().sig.public().kid();
            assert_eq!(deal.run(&["verify", &file, "--key", other.as_str()]).await.code, 1, "{file}");
        }
        // Judged offline, the contract's own tests say the same to the byte; looked at afresh, test by test the same.
        let offline = deal.check("contract.json", &["--offline", &seen]).await;
        assert_eq!(offline.json()["resultados"], posted["resultados"]);
        assert_eq!(offline.json()["razon"], posted["razon"]);
        deal.site.show(ok(if word == "pass" { "x-build: 7\r\n" } else { "x-build: 8\r\n" }, BODY));
        let fresh = deal.check("contract.json", &["--policy", &quick_policy(&deal)]).await;
        let fresh = fresh.json();
        assert_eq!((&fresh["verdict"], &fresh["razon"]), (&json!(word), &posted["razon"]));
        let of = |doc: &Value| -> Vec<Value> {
            let results = doc["resultados"].as_array().expect("results").iter();
            results.map(|one| json!([one["pasa"], one["indeciso"], one["prueba"], one["razon"]])).collect()
        };
        assert_eq!(of(&fresh), of(&posted));
    }
}

fn quick_policy(deal: &Deal) -> String {
    let text = include_str!("../policies/default.toml").replace("value = \"2s\"", "value = \"20ms\"");
    std::fs::write(deal.folder.path().join("quick.toml"), text).expect("written");
    "quick.toml".to_owned()
}

fn private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("private");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_changed_in_evidence_is_found_and_named() {
    let deal = Deal::new(3).await;
    let evidence = deal.buyer.evidence(&deal.failed).await.expect("evidence");
    let other = deal.buyer.evidence(&deal.passed).await.expect("evidence");
    let at = |pointer: &str, value: Value| {
        let mut changed = evidence.clone();
        *changed.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        changed
    };
    let tests = evidence["tests"].as_str().expect("tests");
    let easier = Value::from(tests.replace("\"equals\":\"7\"", "\"equals\":\"8\""));
    let same_answer = Value::from(tests.replace("1000", "2000"));
    assert!(easier != evidence["tests"] && same_answer != evidence["tests"]);
    let kept = evidence["looks"][1]["observations"][0]["seen"]["content"]["kept"].as_str().expect("kept");
    let longer = Value::from(kept.replacen(&kept[..4], "AAAA", 1));
    let forged = |field: &str, value: Value| at(&format!("/veredicto/{field}"), value);
    for (what, changed, named) in [
        (
            "a later time",
            at("/looks/0/observations/0/started", json!("2026-01-01T00:00:00.000Z")),
            "look 1, the observation of GET",
        ),
        ("another status", at("/looks/1/observations/0/seen/status", json!(201)), "look 2, the observation of GET"),
        (
            "another body",
            at("/looks/1/observations/0/seen/content/kept", json!("AAAA")),
            "look 2, the observation of GET",
        ),
        (
            "another body of the same length",
            at("/looks/1/observations/0/seen/content/kept", longer),
            "its content is not what its hash says",
        ),
        (
            "another header",
            at("/looks/0/observations/1/seen/headers/0/value", json!("Nw")),
            "look 1, the observation of GET",
        ),
        ("a look of another contract", at("/looks/0", other["looks"][0].clone()), "look 1"),
        ("a result of a look", at("/looks/0/resultados/6/pasa", json!(true)), "look 1, test 7"),
        ("a reason of a look", at("/looks/1/resultados/6/razon", json!("fine")), "look 2, test 7"),
        ("a result", at("/resultados/6/razon", json!("fine")), "the evidence, test 7"),
        ("the answer", at("/pasa", json!(true)), "pasa"),
        ("a test that turns", at("/tests", easier), "tests: not what the verdict was reached on"),
        ("a test that does not turn", at("/tests", same_answer), "tests: not what the verdict was reached on"),
        (
            "the delivery",
            at("/delivery/evidence", json!("other work")),
            "delivery: not what the verdict was reached on",
        ),
        ("the rules", at("/rules", json!("verifica.rules/0")), "rules"),
        ("the policy", at("/policy/name", json!("other")), "policy"),
        ("the networks", at("/urls/allow_networks", json!([])), "urls"),
        ("the capabilities", at("/capabilities/job_wall_s", json!(9)), "capabilities"),
        ("the verdict of another contract", at("/veredicto", other["veredicto"].clone()), "the signed verdict"),
        ("the verdict's answer", forged("pasa", json!(true)), "the signature does not hold"),
        ("the verdict's results", forged("resultados/6/pasa", json!(true)), "the signed verdict, test 7"),
        ("the verdict's time", forged("at", json!("2026-01-01T00:00:00.000Z")), "the signature does not hold"),
        ("the verdict's evidence", forged("evidence", json!(null)), "names no evidence"),
        ("fewer looks", at("/looks", json!([evidence["looks"][1]])), "stands on 2 looks"),
    ] {
        let file = deal.write("changed.json", &changed);
        let ran = deal.run(&["replay", &file, "--json"]).await;
        let differences = ran.json()["differences"].to_string();
        assert_eq!(ran.code, 1, "{what}: {differences}");
        assert!(differences.contains(named), "{what}: {differences}");
    }
    // What cannot be read at all is not judged.
    let mut hidden = evidence.clone();
    hidden["looks"][0]["observations"][0]["note"] = json!("x");
    let unsaid = deal.write("hidden.json", &hidden);
    for changed in
        [hidden, at("/looks/0/observations/0", json!({})), at("/schema", json!("x")), at("/tests", json!("["))]
    {
        let file = deal.write("changed.json", &changed);
        assert_eq!(deal.run(&["replay", &file]).await.code, 2);
    }
    let mut added = evidence.clone();
    added["note"] = json!("x");
    let file = deal.write("changed.json", &added);
    assert_eq!(deal.run(&["replay", &file]).await.code, 1);
    let kid = deal.house.public_key().kid();
    assert_eq!(deal.run(&["verify", &file, "--key", kid.as_str()]).await.code, 1, "not the evidence that it names");
    assert_eq!(
        deal.run(&["verify", &unsaid, "--key", kid.as_str()]).await.code,
        1,
        "nor with a word in an observation"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_party_of_another_house_gets_the_evidence_from_the_house_that_judged() {
    let site = Site::start().await;
    let (here, there) = (TestHouse::new("mar.example", 1), TestHouse::new("sal.example", 2));
    let mut there = there.knows(&here);
    let mut here = here.knows(&there).arbitrating(site.fetcher());
    here.start().await;
    there.start().await;
    let (buyer, seller) = (here.join("ana-buys", 11).await, there.join("leo-sells", 12).await);
    here.topup(buyer.address(), 500).await;
    site.show(ok("x-build: 7\r\n", BODY));
    let terms = json!({"verify": {"type": "http_status", "url": "https://seller.example/"}});
    let quote = quote(&here, &seller, buyer.address(), 100, terms, &mut Ids::from_seed([4; 32]));
    let accepted = order(&buyer, &here.libro(), json!({"op": "accept", "quote": quote})).await.expect("accepted");
    let contract = accepted.body["contract"]["id"].as_str().expect("id").to_owned();
    order(&seller, &here.libro(), json!({"op": "deliver", "contract": contract})).await.expect("delivered");
    assert_eq!(contract_in(&buyer, &contract, &["released", "refunded"]).await["state"], "released");
    let evidence = seller.evidence_at(&here.http(), &contract).await.expect("evidence");
    assert_eq!(evidence, buyer.evidence(&contract).await.expect("evidence"));
    assert!(verdict::replay(&evidence).expect("replays").same());
    assert_eq!(refused(seller.evidence(&contract).await).0, 404, "its own house knows nothing of it");
    let stranger = there.join("eva-looks", 13).await;
    assert_eq!(refused(stranger.evidence_at(&here.http(), &contract).await).0, 403);
    here.stop().await;
    there.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn evidence_is_kept_for_its_time_and_then_gone() {
    let deal = Deal::new(5).await;
    let ended = deal.buyer.contract(&deal.passed).await.expect("contract")["updated"].clone();
    let ended = Timestamp::parse(ended.as_str().expect("a time")).expect("a time");
    let store = deal.house.doors().store.clone();
    store.housekeeping(ended.plus(limits::EVIDENCE_KEEP_MS), limits::EVIDENCE_KEEP_MS).await.expect("swept");
    deal.buyer.evidence(&deal.passed).await.expect("to the last moment");
    store.housekeeping(ended.plus(limits::EVIDENCE_KEEP_MS + 1), limits::EVIDENCE_KEEP_MS).await.expect("swept");
    let (code, reason) = refused(deal.buyer.evidence(&deal.passed).await);
    assert_eq!(code, 410);
    assert!(reason.contains("180 days"), "{reason}");
    deal.buyer.evidence(&deal.failed).await.expect("the later one is still there");
    // The verdict itself stays in the contract.
    assert_eq!(deal.verdict(&deal.passed).await["pasa"], true);
}
