//! The judges against tables of cases (`fixtures/tests`), and the properties that hold between cases: one snapshot for
//! all tests of a contract, replay to the byte, and the joint answer.

use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use verifica::limits;
use verifica::probe::equal::{Equality, equality};
use verifica::probe::exit_0::{JobEnd, JobRun};
use verifica::probe::json::Document;
use verifica::probe::observation::{
    Cause, Content, End, FetchKey, FetchPlan, Header, Observation, Phase, Response, Seen,
};
use verifica::probe::url::UrlPolicy;
use verifica::probe::{Capabilities, Delivery, Outcome, Parsed, Suite, TestResult, TestType, acceptable};
use verifica::time::Timestamp;
use verifica::verdict::{self, Case, Look, LookRecord, Policy, Verdict};
use verifica::wire::Sha256;

/// What a server does, before any plan decides how far it is read.
#[derive(Clone, Debug)]
struct World {
    status: u16,
    headers: Vec<Header>,
    body: Vec<u8>,
    end: &'static str,
    nothing: Option<Cause>,
}

impl World {
    fn of(status: u16, body: impl Into<Vec<u8>>) -> World {
        World { status, headers: Vec::new(), body: body.into(), end: "complete", nothing: None }
    }

    /// As the guarded fetch observes it: it stops at what the plan reads.
    fn observe(&self, plan: &FetchPlan) -> Observation {
        let seen = match self.nothing {
            Some(cause) => Seen::Nothing { phase: Phase::Connect, cause, reason: "no answer".to_owned() },
            None => Seen::Response(Response {
                status: self.status,
                headers: self.headers.clone(),
                content: self.content(plan.read, plan.keep),
            }),
        };
        Observation {
            key: plan.key.clone(),
            started: Timestamp::from_millis(1_790_000_000_000),
            ended: Timestamp::from_millis(1_790_000_000_250),
            address: "198.51.100.7:443".parse().ok(),
            certificate_sha256: Some(Sha256::of("certificate")),
            certificate_not_after: None,
            tls: Some("TLSv1.3".to_owned()),
            seen,
        }
    }

    fn content(&self, read: u64, keep: u64) -> Content {
        let reached = self.body.len() as u64 >= read;
        let bytes = &self.body[..self.body.len().min(read as usize)];
        let end = match (read, reached, self.end) {
            (0, ..) => End::NotRead,
            (_, true, _) => End::Cut,
            (_, _, "complete") => End::Complete,
            (_, _, "unconfirmed") => End::Unconfirmed,
            (_, _, "broken") => End::Broken { cause: Cause::Network, reason: "connection reset".to_owned() },
            (_, _, other) => panic!("no such end: {other}"),
        };
        Content {
            kept: bytes[..bytes.len().min(keep as usize)].to_vec(),
            bytes: bytes.len() as u64,
            sha256: Sha256::of(bytes),
            end,
        }
    }
}

fn suite(tests: &Value) -> Suite {
    Suite::from_tests(tests, &UrlPolicy::default(), &Capabilities::network())
}

fn look_at(suite: &Suite, world: impl Fn(&FetchKey) -> World) -> BTreeMap<FetchKey, Observation> {
    let plans = suite.fetches(limits::PROBE_MS_DEFAULT);
    plans.into_iter().map(|plan| (plan.key.clone(), world(&plan.key).observe(&plan))).collect()
}

fn judge(tests: &Value, world: &World) -> Vec<TestResult> {
    let suite = suite(tests);
    let seen = look_at(&suite, |_| world.clone());
    suite.judge(&seen, &Delivery::default())
}

fn answer(result: &TestResult) -> String {
    match result.outcome {
        Outcome::Fail if result.evidence.contains_key("rule") => {
            format!("malformed {}", result.evidence["rule"].as_str().expect("a rule"))
        }
        Outcome::Undecided(cause) => format!("undecided {}", cause.name()),
        decided => decided.word().to_owned(),
    }
}

fn bytes_of(body: &Value) -> Vec<u8> {
    match body {
        Value::Null => Vec::new(),
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Array(parts) => parts.iter().flat_map(bytes_of).collect(),
        Value::Object(part) => match (part.get("times"), part.get("byte")) {
            (Some(times), _) => {
                let of = part["of"].as_str().expect("of");
                of.repeat(times.as_u64().expect("times") as usize).into_bytes()
            }
            (_, Some(byte)) => vec![byte.as_u64().expect("byte") as u8],
            _ => panic!("no such body: {body}"),
        },
        _ => panic!("no such body: {body}"),
    }
}

fn world_of(case: &Value) -> World {
    let latin1 = case["latin1"] == true;
    let header = |pair: &Value| {
        let (name, value) = (pair[0].as_str().expect("name"), pair[1].as_str().expect("value"));
        let value = if latin1 { value.chars().map(|c| c as u8).collect() } else { value.as_bytes().to_vec() };
        Header { name: name.to_ascii_lowercase(), value }
    };
    World {
        status: case["status"].as_u64().unwrap_or(200) as u16,
        headers: case["headers"].as_array().map(|list| list.iter().map(header).collect()).unwrap_or_default(),
        body: bytes_of(&case["body"]),
        end: match case["end"].as_str() {
            Some("unconfirmed") => "unconfirmed",
            Some("broken") => "broken",
            Some(other) => panic!("no such end: {other}"),
            None => "complete",
        },
        nothing: case.get("nothing").map(|cause| serde_json::from_value(cause.clone()).expect("a cause")),
    }
}

fn run_table(file: &str, text: &str) {
    let cases: Vec<Value> = serde_json::from_str(text).expect(file);
    assert!(cases.len() > 20, "{file} lost its cases");
    let mut wrong = Vec::new();
    for (n, case) in cases.iter().enumerate() {
        let policy = UrlPolicy::default();
        let suite = match case.get("text") {
            Some(text) => {
                Suite::from_text(text.as_str().expect("text"), &policy, &Capabilities::network()).expect("readable")
            }
            None => suite(&case["test"]),
        };
        let world = world_of(case);
        let delivery: Delivery =
            case.get("delivery").map(|d| serde_json::from_value(d.clone()).expect("delivery")).unwrap_or_default();
        let seen = look_at(&suite, |_| world.clone());
        let results = suite.judge(&seen, &delivery);
        let [result] = results.as_slice() else { panic!("{file} {n}: one test, {} results", results.len()) };
        let expected = case["is"].as_str().expect("is");
        let says = case["says"].as_str().unwrap_or_default();
        if answer(result) != expected || !result.reason.contains(says) {
            wrong.push(format!("{file} {n} ({}): {} {:?}\n   of {case}", case["rule"], answer(result), result.reason));
        }
        check_shape(file, n, result);
        if expected.starts_with("malformed") {
            assert!(suite.fetches(1).is_empty(), "{file} {n}: a malformed test makes no request (V10)");
        }
        // V11: what is accepted is exactly what can be judged
        let judgeable = matches!(suite.tests()[0].parsed, Parsed::Ready(_));
        assert_eq!(suite.acceptable().is_ok(), judgeable, "{file} {n}");
    }
    assert!(wrong.is_empty(), "{} of {} cases are wrong:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// What holds of every result, whatever the test (V8).
fn check_shape(file: &str, n: usize, result: &TestResult) {
    let reason = &result.reason;
    assert!(!reason.is_empty() && !reason.ends_with('.') && reason.chars().count() < 900, "{file} {n}: {reason:?}");
    assert!(!reason.chars().any(|c| c.is_control()), "{file} {n}: {reason:?}");
    let json = result.to_json();
    assert_eq!(TestResult::from_json(&json).as_ref(), Some(result), "{file} {n}");
    assert_safe_numbers(&json, file, n);
}

fn assert_safe_numbers(value: &Value, file: &str, n: usize) {
    match value {
        Value::Number(number) => {
            let integer = number.as_i64().unwrap_or_else(|| panic!("{file} {n}: {number} is not an integer"));
            assert!(integer.unsigned_abs() <= limits::SAFE_INTEGER_MAX, "{file} {n}: {number}");
        }
        Value::Array(items) => items.iter().for_each(|item| assert_safe_numbers(item, file, n)),
        Value::Object(members) => members.values().for_each(|item| assert_safe_numbers(item, file, n)),
        _ => {}
    }
}

#[test]
fn http_status() {
    run_table("http_status", include_str!("../fixtures/tests/http_status.json"));
}

#[test]
fn sha256() {
    run_table("sha256", include_str!("../fixtures/tests/sha256.json"));
}

#[test]
fn json_path() {
    run_table("json_path", include_str!("../fixtures/tests/json_path.json"));
}

#[test]
fn regex() {
    run_table("regex", include_str!("../fixtures/tests/regex.json"));
}

#[test]
fn size() {
    run_table("size", include_str!("../fixtures/tests/size.json"));
}

#[test]
fn header() {
    run_table("header", include_str!("../fixtures/tests/header.json"));
}

#[test]
fn exit_0() {
    run_table("exit_0", include_str!("../fixtures/tests/exit_0.json"));
}

#[test]
fn jobs_have_bounds_at_the_limit() {
    let able = Capabilities::with_jobs(60);
    let acceptable = |test: Value| Suite::from_tests(&test, &UrlPolicy::default(), &able).acceptable();
    let word = |n: usize| "x".repeat(n);
    let argv = |words: Vec<String>| json!({"type": "exit_0", "argv": words});
    assert_eq!(acceptable(argv(vec![word(1); limits::ARGV_WORDS_MAX])), Ok(()));
    assert!(acceptable(argv(vec![word(1); limits::ARGV_WORDS_MAX + 1])).is_err());
    assert_eq!(acceptable(argv(vec![word(limits::ARGV_BYTES_MAX - 1), word(1)])), Ok(()));
    assert!(acceptable(argv(vec![word(limits::ARGV_BYTES_MAX), word(1)])).is_err());
    assert_eq!(acceptable(json!({"type": "exit_0", "argv": ["x"], "within": 60})), Ok(()));
    let why = acceptable(json!({"type": "exit_0", "argv": ["x"], "within": 61})).expect_err("over the wall");
    assert!(why.contains("at most 60 s"), "{why}");
    let input = |n: usize| json!({"path": format!("in/{n}"), "url": "https://s.example/", "sha256": "evidence"});
    let inputs = |n: usize| json!({"type": "exit_0", "argv": ["x"], "inputs": (0..n).map(input).collect::<Vec<_>>()});
    assert_eq!(acceptable(inputs(limits::INPUTS_MAX)), Ok(()));
    assert!(acceptable(inputs(limits::INPUTS_MAX + 1)).is_err());
    let path = |n: usize| {
        let path = format!("{}/{}", vec!["d".repeat(100); 9].join("/"), "f".repeat(n - 909));
        json!({"type": "exit_0", "argv": ["x"], "inputs": [{"path": path, "url": "https://s.example/", "sha256": "evidence"}]})
    };
    assert_eq!(acceptable(path(limits::INPUT_PATH_BYTES_MAX)), Ok(()));
    assert!(acceptable(path(limits::INPUT_PATH_BYTES_MAX + 1)).is_err());
}

/// V5, V44 and V82.
#[test]
fn runs_of_a_job_are_judged_together() {
    let able = Capabilities::with_jobs(60);
    let suite = Suite::from_tests(&json!({"type": "exit_0", "argv": ["x"]}), &UrlPolicy::default(), &able);
    assert_eq!(suite.jobs().len(), 1);
    let judged = |ends: Vec<JobEnd>| {
        let runs = ends.into_iter().map(|end| JobRun { end, attestation: Some(Sha256::of("a")) }).collect();
        let results = suite.judge_with_jobs(&BTreeMap::new(), &BTreeMap::from([(0, runs)]), &Delivery::default());
        check_shape("jobs", 0, &results[0]);
        (answer(&results[0]), results[0].reason.clone(), results[0].unenforced())
    };
    let code = |code| JobEnd::Code { code };
    let limit = |limit: &str| JobEnd::Limit { limit: limit.to_owned() };
    let time = || JobEnd::Time { limit: "wall".to_owned() };
    let reason = || "why".to_owned();
    for (ends, is) in [
        (vec![], "undecided host"),
        (vec![code(0)], "pass"),
        (vec![code(0), code(0)], "pass"),
        (vec![code(1)], "fail"),
        (vec![code(0), code(1)], "undecided origin"),
        (vec![code(1), code(0)], "undecided origin"),
        (vec![code(1), code(2)], "fail"),
        (vec![JobEnd::Signal { signal: 11 }], "fail"),
        (vec![limit("memory"), limit("memory")], "fail"),
        (vec![limit("memory"), code(0)], "undecided origin"),
        (vec![time()], "undecided host"),
        (vec![code(0), time()], "undecided host"),
        (vec![time(), code(0)], "undecided host"),
        (vec![JobEnd::Within { seconds: 5 }, JobEnd::Within { seconds: 5 }], "fail"),
        (vec![JobEnd::Within { seconds: 5 }, code(0)], "undecided origin"),
        (vec![JobEnd::NotExecutable { reason: reason() }], "fail"),
        (vec![JobEnd::ArchiveRefused { path: "x".to_owned(), reason: reason() }], "fail"),
        (vec![JobEnd::Unavailable { cause: Cause::Network, reason: reason() }], "undecided network"),
    ] {
        let (got, why, unenforced) = judged(ends.clone());
        assert_eq!(got, is, "{ends:?}: {why}");
        assert!(!unenforced);
    }
    let (got, why, unenforced) =
        judged(vec![JobEnd::Unenforced { mechanism: "landlock".to_owned(), reason: reason() }]);
    assert_eq!((got.as_str(), unenforced), ("undecided host", true), "{why}");
    let without = Capabilities { unenforced: Some("no landlock".to_owned()), ..Capabilities::network() };
    let suite = Suite::from_tests(&json!({"type": "exit_0", "argv": ["x"]}), &UrlPolicy::default(), &without);
    let results = suite.judge(&BTreeMap::new(), &Delivery::default());
    assert!(results[0].unenforced() && results[0].reason.contains("no landlock"), "{:?}", results[0]);
}

/// V11 and V12.
#[test]
fn acceptance_names_the_test_and_the_rule() {
    let good = json!({"type": "http_status", "url": "https://s.example/"});
    let refuse =
        |terms: Value| acceptable(&terms, &UrlPolicy::default(), &Capabilities::network()).expect_err("refused");
    let accept = |terms: Value| acceptable(&terms, &UrlPolicy::default(), &Capabilities::network());
    assert_eq!(accept(json!({})), Ok(()));
    assert_eq!(accept(json!({"verify": null})), Ok(()));
    assert_eq!(accept(json!({"verify": good})), Ok(()));
    assert_eq!(accept(json!({"verify": [good, good]})), Ok(()));
    assert_eq!(accept(json!({"pruebas": good})), Ok(()));
    assert_eq!(accept(json!({"verify": good, "pruebas": "nonsense"})), Ok(()), "verify wins");
    assert_eq!(accept(json!({"verify": null, "pruebas": good})), Ok(()), "null is absent");
    assert!(refuse(json!({"verify": [], "pruebas": good})).contains("empty"));
    assert!(refuse(json!({"pruebas": []})).contains("empty"));
    assert!(refuse(json!({"verify": "x"})).starts_with("test 1 is refused by rule V11"));
    let why = refuse(json!({"verify": [good, {"type": "regex", "url": "http://s.example/", "pattern": "a"}]}));
    assert!(why.starts_with("test 2 is refused by rule V20: regex: the url"), "{why}");
    let why = refuse(json!({"verify": [good, good, {"type": "exit_0", "argv": ["true"]}]}));
    assert!(why.starts_with("test 3 is refused by rule V11: exit_0: this host does not run"), "{why}");
    assert_eq!(accept(json!({"verify": vec![good.clone(); limits::TESTS_MAX]})), Ok(()));
    assert!(refuse(json!({"verify": vec![good.clone(); limits::TESTS_MAX + 1]})).contains("17 tests"));
}

#[test]
fn a_suite_that_no_house_accepts_is_undecided_as_a_whole() {
    let good = json!({"type": "http_status", "url": "https://s.example/"});
    let many = suite(&json!(vec![good; limits::TESTS_MAX + 1]));
    assert!(many.fetches(1).is_empty());
    let results = many.judge(&BTreeMap::new(), &Delivery::default());
    assert_eq!(results.len(), 1);
    assert_eq!(answer(&results[0]), "undecided contract");
    assert!(results[0].reason.contains("no house accepts"), "{}", results[0].reason);

    let sized = |bytes: usize| {
        let test = |pad: usize| json!({"type": "json_path", "url": "https://s.example/", "path": "a", "expect": "x".repeat(pad)});
        let empty = test(0).to_string().len();
        suite(&test(bytes - empty))
    };
    assert_eq!(sized(limits::TESTS_DOC_BYTES_MAX).acceptable(), Ok(()));
    let why = sized(limits::TESTS_DOC_BYTES_MAX + 1).acceptable().expect_err("too long");
    assert!(why.contains("65537 bytes"), "{why}");
}

#[test]
fn one_snapshot_for_each_url_method_and_accept() {
    let tests = json!([
        {"type": "http_status", "url": "https://s.example/a#one"},
        {"type": "header", "url": "https://s.example/a#two", "name": "x", "equals": "y"},
        {"type": "size", "url": "https://S.example/a", "max_bytes": 10},
        {"type": "regex", "url": "https://s.example:443/a", "pattern": "a"},
        {"type": "sha256", "url": "https://s.example/a", "expect": "a".repeat(64)},
        {"type": "json_path", "url": "https://s.example/a", "path": "a", "expect": 1},
        {"type": "http_status", "url": "https://s.example/a", "method": "HEAD"},
        {"type": "http_status", "url": "https://s.example/b"},
        {"type": "sha256", "expect": "a".repeat(64)},
        {"type": "size", "url": "https://s.example/c", "min_bytes": 7},
    ]);
    let plans = suite(&tests).fetches(4_000);
    let told: Vec<String> = plans
        .iter()
        .map(|p| format!("{} {} {} {} {}", p.key.method.name(), p.key.url, p.key.accept, p.read, p.keep))
        .collect();
    assert_eq!(
        told,
        [
            "GET https://s.example/a */* 67108865 1048577",
            "GET https://s.example/a application/json 1048577 1048577",
            "HEAD https://s.example/a */* 0 0",
            "GET https://s.example/b */* 0 0",
            "GET https://s.example/c */* 7 0",
        ]
    );
    assert!(plans.iter().all(|p| p.timeout_ms == 4_000));
}

/// An observation of a content that is too long to hold here: only its length and its hash are known.
fn long(suite: &Suite, bytes: u64, end: End) -> BTreeMap<FetchKey, Observation> {
    let mut seen = look_at(suite, |_| World::of(200, ""));
    for observation in seen.values_mut() {
        if let Seen::Response(response) = &mut observation.seen {
            response.content = Content { kept: Vec::new(), bytes, sha256: Sha256::of("abc"), end: end.clone() };
        }
    }
    seen
}

#[test]
fn hashes_and_sizes_have_bounds_at_64_mib() {
    let judged = |test: Value, bytes: u64, end: End| {
        let suite = suite(&test);
        answer(&suite.judge(&long(&suite, bytes, end), &Delivery::default())[0])
    };
    let hash = || json!({"type": "sha256", "url": "https://s.example/", "expect": Sha256::of("abc").hex()});
    assert_eq!(judged(hash(), limits::SHA256_BODY_MAX, End::Complete), "pass");
    assert_eq!(judged(hash(), limits::SHA256_BODY_MAX + 1, End::Cut), "undecided origin");
    assert_eq!(judged(hash(), limits::SHA256_BODY_MAX + 1, End::Complete), "undecided origin");
    let size = |key: &str| json!({"type": "size", "url": "https://s.example/", key: limits::SIZE_BOUND_MAX});
    assert_eq!(judged(size("max_bytes"), limits::SIZE_BOUND_MAX, End::Complete), "pass");
    assert_eq!(judged(size("max_bytes"), limits::SIZE_BOUND_MAX + 1, End::Cut), "fail");
    assert_eq!(judged(size("min_bytes"), limits::SIZE_BOUND_MAX - 1, End::Complete), "fail");
    assert_eq!(judged(size("min_bytes"), limits::SIZE_BOUND_MAX, End::Cut), "pass");
}

#[test]
fn an_observation_that_lacks_what_a_test_needs_decides_nothing() {
    for test in [
        json!({"type": "json_path", "url": "https://s.example/", "path": "a", "exists": false}),
        json!({"type": "regex", "url": "https://s.example/", "pattern": "a"}),
        json!({"type": "size", "url": "https://s.example/", "max_bytes": 100}),
        json!({"type": "sha256", "url": "https://s.example/", "expect": Sha256::of("abc").hex()}),
    ] {
        let suite = suite(&test);
        for end in [End::Cut, End::NotRead] {
            let results = suite.judge(&long(&suite, 50, end), &Delivery::default());
            assert_eq!(answer(&results[0]), "undecided ours", "{test}");
        }
    }
    let suite = suite(&json!({"type": "json_path", "url": "https://s.example/", "path": "a", "exists": false}));
    let results = suite.judge(&long(&suite, 50, End::Complete), &Delivery::default());
    assert_eq!(answer(&results[0]), "undecided ours", "only 0 of 50 bytes were kept");
}

#[test]
fn statuses_that_are_not_final_decide_nothing() {
    for status in [0, 99, 100, 101, 199, 600, 999] {
        let results = judge(&json!({"type": "http_status", "url": "https://s.example/"}), &World::of(status, ""));
        assert_eq!(answer(&results[0]), "undecided origin", "{status}");
    }
}

#[test]
fn a_url_that_was_not_observed_is_our_fault() {
    let suite = suite(&json!({"type": "http_status", "url": "https://s.example/"}));
    let results = suite.judge(&BTreeMap::new(), &Delivery::default());
    assert_eq!(answer(&results[0]), "undecided ours");
}

/// V60.
#[test]
fn evidence_tells_what_was_seen() {
    let tests = json!([
        {"type": "http_status", "url": "https://s.example/#f", "expect": 201},
        {"type": "regex", "url": "https://s.example/", "pattern": "b+", "flags": "i"},
        {"type": "json_path", "url": "https://s.example/", "path": "v", "expect": 3, "name": "version"},
    ]);
    let results = judge(&tests, &World::of(200, "{\"v\":3}"));
    let status = results[0].to_json();
    assert_eq!(status["evidencia"]["url"], "https://s.example/#f");
    assert_eq!(status["evidencia"]["address"], "198.51.100.7:443");
    assert_eq!(status["evidencia"]["status"], 200);
    assert_eq!(status["evidencia"]["seen"], 200);
    assert_eq!(status["evidencia"]["expect"], 201);
    assert_eq!(status["evidencia"]["tls"], "TLSv1.3");
    assert_eq!(status["evidencia"]["certificate_sha256"], Sha256::of("certificate").hex());
    assert_eq!(status["evidencia"]["observation"].as_str().map(str::len), Some(64));
    assert_eq!(results[1].to_json()["evidencia"]["truncated"], false);
    assert_eq!(results[1].to_json()["evidencia"]["expect"], "/b+/i");
    let field = results[2].to_json();
    assert_eq!(field["name"], "version");
    assert_eq!(field["evidencia"]["path"], "v");
    assert_eq!(field["evidencia"]["seen"], 3);
    assert_eq!(field["evidencia"]["bytes_read"], 7);
    assert_eq!(field["evidencia"]["sha256"], Sha256::of("{\"v\":3}").hex());
    assert!(field.get("indeciso").is_none());
}

/// V2.
#[test]
fn the_joint_answer_is_undecided_then_fail_then_pass() {
    let result = |outcome| TestResult {
        outcome,
        test_type: "size".to_owned(),
        name: None,
        reason: "why".to_owned(),
        evidence: Default::default(),
    };
    let (pass, fail) = (|| result(Outcome::Pass), || result(Outcome::Fail));
    let undecided = || result(Outcome::Undecided(Cause::Edge));
    for (results, verdict, razon) in [
        (vec![], Verdict::Undecided, "there are no tests to judge"),
        (vec![pass()], Verdict::Pass, "1 test passed: size: why"),
        (vec![pass(), pass()], Verdict::Pass, "2 tests passed: size: why · size: why"),
        (vec![pass(), fail()], Verdict::Fail, "1 of 2 tests failed: size: why"),
        (vec![fail()], Verdict::Fail, "1 of 1 test failed: size: why"),
        (vec![fail(), undecided(), pass()], Verdict::Undecided, "1 of 3 tests undecided: size (edge): why"),
    ] {
        let joint = verdict::joint(&results);
        assert_eq!((joint.verdict, joint.razon.as_str()), (verdict, razon));
        let check = verdict::check_json(&results);
        assert_eq!(check["verdict"], verdict.word());
        assert_eq!(check["pasa"], verdict == Verdict::Pass);
        assert_eq!(check["indeciso"], verdict == Verdict::Undecided);
        assert_eq!(check["schema"], "verifica.check/1");
        assert_eq!(check["resultados"].as_array().map(Vec::len), Some(results.len()));
    }
    let long = vec![TestResult { reason: "x".repeat(500), ..fail() }; 16];
    assert_eq!(verdict::joint(&long).razon.chars().count(), limits::VERDICT_REASON_CHARS_MAX);
}

fn policy() -> Policy {
    Policy { name: "default".to_owned(), confirm_after_ms: 2_000, sha256: Sha256::of("policy") }
}

struct Taken {
    look: Look,
    seen: BTreeMap<FetchKey, Observation>,
}

fn take(suite: &Suite, at: i64, world: &World) -> Taken {
    let seen = look_at(suite, |_| world.clone());
    let look = Look::new(Timestamp::from_millis(at), suite.judge(&seen, &Delivery::default()), &seen);
    Taken { look, seen }
}

/// V5 and V80.
#[test]
fn two_looks_agree_or_nothing_is_decided() {
    let suite = suite(&json!([
        {"type": "http_status", "url": "https://s.example/"},
        {"type": "regex", "url": "https://s.example/", "pattern": "up"},
    ]));
    let at = |n: i64, world: &World| take(&suite, n, world).look;
    let (up, down, gone) = (World::of(200, "up"), World::of(200, "no"), World::of(500, ""));
    let edge = World::of(522, "");
    let agreed = |a: &World, b: &World| verdict::agree(&at(1, a), &at(2, b));
    assert_eq!(agreed(&up, &up).joint().verdict, Verdict::Pass);
    let ran = JobRun { end: JobEnd::Code { code: 0 }, attestation: Some(Sha256::of("a")) };
    let ran = BTreeMap::from([(1, vec![ran])]);
    for look in [at(1, &up), at(2, &edge), Look { runs: ran, ..at(3, &gone) }] {
        let stored: Value = serde_json::from_str(&look.to_json().to_string()).expect("json");
        assert_eq!(Look::from_json(&stored), Some(look));
    }
    // V80: two that fail for different reasons agree, and the later reason is told
    let fail = agreed(&down, &gone);
    assert_eq!(fail.joint().verdict, Verdict::Fail);
    assert_eq!(fail, at(2, &gone));
    let flapping = agreed(&up, &down);
    assert_eq!(flapping.joint().verdict, Verdict::Undecided);
    assert_eq!(answer(&flapping.results[0]), "pass");
    assert_eq!(answer(&flapping.results[1]), "undecided origin");
    assert!(flapping.results[1].reason.starts_with("two looks disagree: first pass"), "{}", flapping.results[1].reason);
    assert_eq!(agreed(&down, &up).joint().verdict, Verdict::Undecided);
    let fewer = take(&self::suite(&json!({"type": "http_status", "url": "https://s.example/"})), 1, &up).look;
    for (a, b) in [(&fewer, &at(2, &down)), (&at(1, &down), &fewer), (&fewer, &at(2, &up))] {
        assert_eq!(verdict::agree(a, b).joint().verdict, Verdict::Undecided, "looks of different tests decide nothing");
    }
    for (a, b, is) in [(&up, &edge, 2), (&edge, &up, 1), (&edge, &edge, 2), (&down, &edge, 2), (&edge, &down, 1)] {
        let both = agreed(a, b);
        assert_eq!((both.joint().verdict, both.at.millis()), (Verdict::Undecided, is));
    }
}

#[test]
fn the_verdict_document_has_its_fields_and_only_safe_numbers() {
    let suite = suite(&json!([{"type": "json_path", "url": "https://s.example/", "path": "a", "expect": 0.5}]));
    let looks = [
        take(&suite, 1_000, &World::of(200, "{\"a\":0.5}")).look,
        take(&suite, 3_000, &World::of(200, "{\"a\":0.5}")).look,
    ];
    let agreed = verdict::agree(&looks[0], &looks[1]);
    let document = verdict::Document {
        id: "11111111-2222-4333-8444-555555555555",
        contract: "c-1",
        house: "mar.example",
        by: "verifica@mar.example",
        at: Timestamp::from_millis(4_000),
        policy: &policy(),
        evidence: None,
        looks: &looks,
        agreed: &agreed,
    }
    .to_json();
    for (key, value) in [
        ("nyx5", json!("1")),
        ("tipo", json!("veredicto")),
        ("contract", json!("c-1")),
        ("at", json!("1970-01-01T00:00:04.000Z")),
        ("rules", json!(verdict::RULES)),
        ("policy", json!({"name": "default", "sha256": Sha256::of("policy").hex()})),
        ("pasa", json!(true)),
        ("indeciso", json!(false)),
    ] {
        assert_eq!(document[key], value, "{key}");
    }
    assert!(document.get("signature").is_none());
    assert_eq!(document["looks"].as_array().map(Vec::len), Some(2));
    assert_eq!(document["looks"][0]["observations"][0]["url"], "https://s.example/");
    assert_safe_numbers(&document, "document", 0);
}

fn evidence_file(tests: &Value, worlds: &[World], inline: bool) -> (Value, BTreeMap<Sha256, Vec<u8>>) {
    let suite = suite(tests);
    let taken: Vec<Taken> = worlds.iter().enumerate().map(|(n, w)| take(&suite, n as i64 * 2_000, w)).collect();
    let (delivery, urls, capabilities, policy) =
        (Delivery::default(), UrlPolicy::default(), Capabilities::network(), policy());
    let supplied = BTreeMap::new();
    let case = Case {
        tests: suite.source(),
        delivery: &delivery,
        urls: &urls,
        capabilities: &capabilities,
        policy: &policy,
        accepted: false,
        supplied: &supplied,
    };
    let records: Vec<LookRecord<'_>> =
        taken.iter().map(|t| LookRecord { look: &t.look, seen: inline.then_some(&t.seen) }).collect();
    let agreed = taken.iter().map(|t| t.look.clone()).reduce(|a, b| verdict::agree(&a, &b)).expect("a look");
    let stored = taken.iter().flat_map(|t| t.seen.values()).map(|seen| (seen.sha256(), seen.to_bytes())).collect();
    (case.to_json(&records, &agreed), stored)
}

fn every_type() -> Value {
    json!([
        {"type": "http_status", "url": "https://s.example/", "expect": 200},
        {"type": "sha256", "url": "https://s.example/", "expect": Sha256::of("{\"a\":1}").hex()},
        {"type": "json_path", "url": "https://s.example/", "path": "a", "expect": 1},
        {"type": "regex", "url": "https://s.example/", "pattern": "[a-z]"},
        {"type": "size", "url": "https://s.example/", "max_bytes": 100},
        {"type": "header", "url": "https://s.example/", "name": "x-build", "equals": "7"},
        {"type": "http_status", "url": "http://s.example/"},
        {"type": "exit_0", "argv": ["true"]},
        {"type": "nothing"},
    ])
}

#[test]
fn evidence_replays_to_the_byte_and_a_changed_file_does_not() {
    let build = Header { name: "x-build".to_owned(), value: b"7".to_vec() };
    let good = World { headers: vec![build], ..World::of(200, "{\"a\":1}") };
    let worlds = [good.clone(), good.clone()];
    let (file, stored) = evidence_file(&every_type(), &worlds, true);
    // through text, as a file is
    let file: Value = serde_json::from_str(&file.to_string()).expect("json");
    let replayed = verdict::replay(&file).expect("replays");
    assert_eq!(replayed.differences, Vec::<String>::new());
    assert_eq!(replayed.results.len(), 9);

    let (by_hash, _) = evidence_file(&every_type(), &worlds, false);
    assert!(verdict::replay(&by_hash).expect_err("no observations").contains("not at hand"));
    let again = verdict::replay_with(&by_hash, &|hash| stored.get(hash).cloned()).expect("replays");
    assert!(again.same() && again.results == replayed.results);
    let other = verdict::replay_with(&by_hash, &|_| Some(b"{}".to_vec())).expect_err("other bytes");
    assert!(other.contains("other bytes"), "{other}");

    let changed = |path: &str, value: Value| {
        let mut file = file.clone();
        *file.pointer_mut(path).expect(path) = value;
        verdict::replay(&file)
    };
    assert!(!changed("/resultados/0/razon", json!("because")).expect("replays").same());
    assert!(!changed("/looks/0/resultados/0/pasa", json!(false)).expect("replays").same());
    assert!(!changed("/pasa", json!(true)).expect("replays").same());
    assert!(!changed("/razon", json!("")).expect("replays").same());
    assert!(!changed("/resultados", json!([])).expect("replays").same());
    assert!(!changed("/looks/1/observations/0/seen/status", json!(404)).expect("replays").same());
    assert!(!changed("/looks/1/observations/0/seen/content/kept", json!("AAAA")).expect("replays").same());
    for (field, value) in [("kept", json!("AAAAAAAAAA")), ("bytes", json!(1))] {
        let lied = changed(&format!("/looks/1/observations/0/seen/content/{field}"), value).expect("replays");
        assert!(lied.differences[0].contains("look 2") && lied.differences[0].contains("not what its hash says"));
    }
    let more = changed("/looks/1/observations/0", json!({"key": {}})).expect_err("half an observation");
    assert!(more.contains("look 2"), "{more}");
    assert!(!changed("/looks/1/observations/0/address", json!("198.51.100.8:443")).expect("replays").same());
    assert!(changed("/schema", json!("x")).is_err());
    assert!(changed("/tests", json!("[")).is_err());
    assert!(changed("/looks", json!([])).is_err());
    assert!(changed("/capabilities/types/0", json!("lighthouse")).is_err());
    assert!(changed("/urls/allow_networks", json!(["x"])).is_err());
    let other_rules = changed("/rules", json!("verifica.rules/0")).expect("replays");
    assert!(other_rules.same() && other_rules.rules == "verifica.rules/0");
}

fn any_world() -> impl Strategy<Value = World> {
    let status = prop_oneof![Just(200u16), Just(201), Just(204), Just(205), Just(206), Just(302), Just(404), Just(522)];
    let body = prop_oneof![
        Just(Vec::new()),
        Just(b"{\"a\":1}".to_vec()),
        Just(b"{\"a\":2,\"b\":[1e400]}".to_vec()),
        "[a-c]{0,12}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    let end = prop_oneof![3 => Just("complete"), 1 => Just("unconfirmed"), 1 => Just("broken")];
    let headers = prop_oneof![
        3 => Just(vec![]),
        1 => Just(vec![("content-encoding", "gzip")]),
        1 => Just(vec![("x-build", "7"), ("x-build", "8")]),
    ];
    (status, body, end, headers).prop_map(|(status, body, end, headers)| World {
        status,
        headers: headers
            .into_iter()
            .map(|(name, value)| Header { name: name.to_owned(), value: value.as_bytes().to_vec() })
            .collect(),
        body,
        end,
        nothing: None,
    })
}

fn any_test() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"type": "http_status", "url": "https://s.example/"})),
        Just(json!({"type": "header", "url": "https://s.example/", "name": "x-build", "equals": "7, 8"})),
        Just(json!({"type": "sha256", "url": "https://s.example/", "expect": Sha256::of("{\"a\":1}").hex()})),
        (0u64..14).prop_map(|n| json!({"type": "size", "url": "https://s.example/", "max_bytes": n})),
        (0u64..14).prop_map(|n| json!({"type": "size", "url": "https://s.example/", "min_bytes": n})),
        "[abc]{1,3}".prop_map(|p| json!({"type": "regex", "url": "https://s.example/", "pattern": p})),
        Just(json!({"type": "json_path", "url": "https://s.example/", "path": "a", "expect": 1})),
        Just(json!({"type": "json_path", "url": "https://s.example/", "path": "b", "exists": true})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// V6: what a test answers does not depend on what else the contract asks, nor in which order.
    #[test]
    fn no_test_changes_anothers_answer(tests in proptest::collection::vec(any_test(), 1..6), world in any_world()) {
        let together = judge(&json!(tests), &world);
        for (test, result) in tests.iter().zip(&together) {
            let alone = judge(test, &world);
            prop_assert_eq!(&alone[0].outcome, &result.outcome, "{} in {:?}", test, tests);
            prop_assert_eq!(&alone[0].reason, &result.reason, "{} in {:?}", test, tests);
        }
    }

    /// V61: the file that holds a judgement reproduces it, whatever was seen.
    #[test]
    fn everything_replays(tests in proptest::collection::vec(any_test(), 0..5), worlds in proptest::collection::vec(any_world(), 1..3)) {
        let (file, _) = evidence_file(&json!(tests), &worlds, true);
        let file: Value = serde_json::from_str(&file.to_string()).expect("json");
        let replayed = verdict::replay(&file).expect("replays");
        prop_assert_eq!(replayed.differences, Vec::<String>::new());
    }

    /// V4: a content whose end is not known never decides against what its continuation could say.
    #[test]
    fn an_unconfirmed_end_never_contradicts_a_continuation(test in any_test(), body in "[a-c{}\":1]{0,8}", rest in "[a-c{}\":1]{0,8}") {
        let open = World { end: "unconfirmed", ..World::of(200, body.clone()) };
        let cut = judge(&test, &open)[0].outcome;
        let whole = judge(&test, &World::of(200, format!("{body}{rest}")))[0].outcome;
        // An equal hash proves itself whatever follows (V71); everything else must hold for every continuation.
        if !matches!(cut, Outcome::Undecided(_)) && test["type"] != "sha256" {
            prop_assert_eq!(cut, whole, "{} on {:?} then {:?}", test, body, rest);
        }
    }

    /// What is read is written back with the same meaning.
    #[test]
    fn documents_survive_reading_and_writing(value in arbitrary_json()) {
        let document = Document::from_value(&value).expect("json");
        let text = document.root().to_text();
        let back = Document::read(&text).expect("json");
        prop_assert_eq!(equality(document.root(), back.root()), Equality::Equal);
        prop_assert_eq!(back.root().to_text(), text);
    }

    /// A test object of any shape is answered, without a panic, and what is not ready makes no request.
    #[test]
    fn any_object_has_an_answer(test in arbitrary_json(), kind in proptest::sample::select(TestType::ALL.to_vec())) {
        let mut test = test;
        if let Some(object) = test.as_object_mut() {
            object.insert("type".to_owned(), json!(kind.name()));
        }
        let suite = suite(&json!([test]));
        let seen = look_at(&suite, |_| World::of(200, "{}"));
        let results = suite.judge(&seen, &Delivery::default());
        prop_assert_eq!(results.len(), 1);
        check_shape("any", 0, &results[0]);
    }
}

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|f| json!(f)),
        ".{0,12}".prop_map(Value::from),
        Just(json!("https://s.example/")),
        Just(json!("evidence")),
    ];
    let key = prop_oneof![
        proptest::sample::select(vec![
            "url",
            "expect",
            "equals",
            "exists",
            "path",
            "pattern",
            "flags",
            "name",
            "max_bytes",
            "min_bytes",
            "argv",
            "inputs",
            "within",
            "method",
            "sha256",
            "unpack",
            "mode",
        ])
        .prop_map(str::to_owned),
        ".{0,4}",
    ];
    scalar.prop_recursive(3, 24, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}
