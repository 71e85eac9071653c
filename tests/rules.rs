//! Rules of verification that hold across all types of tests, each at its edges: causes, the joint answer, two readings,
//! two looks, no clock, reasons and evidence, segments and literals. The tables in `fixtures/tests` hold the rest.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use verifica::limits;
use verifica::probe::address::AddressRule;
use verifica::probe::exit_0::{JobEnd, JobRun};
use verifica::probe::file::{FileKind, TestFile};
use verifica::probe::observation::{
    Cause, Content, End, FetchKey, FetchPlan, Header, Observation, Phase, Response, Seen,
};
use verifica::probe::regex::{Answer, Pattern};
use verifica::probe::url::{Target, UrlPolicy};
use verifica::probe::{Capabilities, Delivery, Outcome, Parsed, Suite, TestResult, acceptable};
use verifica::time::Timestamp;
use verifica::verdict::{Look, Verdict, agree, joint};
use verifica::wire::Sha256;

const URL: &str = "https://s.example/";

/// An answer with these header lines, its content read as far as the plan reads.
fn answered(plan: &FetchPlan, status: u16, headers: &[(&str, &[u8])], body: &[u8]) -> Observation {
    let read = usize::try_from(plan.read).unwrap_or(usize::MAX);
    let keep = usize::try_from(plan.keep).unwrap_or(usize::MAX);
    let bytes = &body[..body.len().min(read)];
    let end = match read {
        0 => End::NotRead,
        _ if body.len() >= read => End::Cut,
        _ => End::Complete,
    };
    let content = Content {
        kept: bytes[..bytes.len().min(keep)].to_vec(),
        bytes: bytes.len() as u64,
        sha256: Sha256::of(bytes),
        end,
    };
    let headers =
        headers.iter().map(|(name, value)| Header { name: (*name).to_owned(), value: value.to_vec() }).collect();
    observed(plan, Seen::Response(Response { status, headers, content }))
}

fn nothing(plan: &FetchPlan, cause: Cause) -> Observation {
    observed(plan, Seen::Nothing { phase: Phase::Connect, cause, reason: "no answer came".to_owned() })
}

fn observed(plan: &FetchPlan, seen: Seen) -> Observation {
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

fn suite(tests: &Value) -> Suite {
    Suite::from_tests(tests, &UrlPolicy::default(), &Capabilities::network())
}

fn look_at(suite: &Suite, see: impl Fn(&FetchPlan) -> Observation) -> BTreeMap<FetchKey, Observation> {
    suite.fetches(limits::PROBE_MS_DEFAULT).iter().map(|plan| (plan.key.clone(), see(plan))).collect()
}

/// The answer to one test.
fn judged(test: &Value, see: impl Fn(&FetchPlan) -> Observation) -> TestResult {
    let suite = suite(test);
    let seen = look_at(&suite, see);
    let mut results = suite.judge(&seen, &Delivery::default());
    assert_eq!(results.len(), 1, "{test}");
    results.remove(0)
}

fn judged_on(test: &Value, body: &str) -> TestResult {
    judged(test, |plan| answered(plan, 200, &[], body.as_bytes()))
}

fn path(path: &str, claim: (&str, Value)) -> Value {
    json!({"type": "json_path", "url": URL, "path": path, claim.0: claim.1})
}

fn result(outcome: Outcome) -> TestResult {
    TestResult {
        outcome,
        test_type: "size".to_owned(),
        name: None,
        reason: "why".to_owned(),
        evidence: Value::Null.as_object().cloned().unwrap_or_default(),
    }
}

/// One test of every type that asks a server, true of the answer that [`good`] is.
fn every_type() -> [Value; 6] {
    [
        json!({"type": "http_status", "url": URL, "expect": 200}),
        json!({"type": "header", "url": URL, "name": "x-build", "equals": "7"}),
        json!({"type": "sha256", "url": URL, "expect": Sha256::of(GOOD).hex()}),
        json!({"type": "size", "url": URL, "max_bytes": 100}),
        json!({"type": "json_path", "url": URL, "path": "a", "expect": 1}),
        json!({"type": "regex", "url": URL, "pattern": "\"a\""}),
    ]
}

fn good(plan: &FetchPlan) -> Observation {
    answered(plan, 200, &[("x-build", b"7")], GOOD.as_bytes())
}

const GOOD: &str = "{\"a\":1}";

/// V1: there are three ends, undecided has one of six causes, and each says so where it travels.
#[test]
fn every_end_and_every_cause_travels() {
    let status = json!({"type": "http_status", "url": URL});
    let unseen = |test: &Value| suite(test).judge(&BTreeMap::new(), &Delivery::default()).remove(0);
    for (result, word, cause) in [
        (judged(&status, good), "pass", None),
        (judged(&status, |plan| answered(plan, 404, &[], b"")), "fail", None),
        (unseen(&json!({"type": "opinion", "url": URL})), "undecided", Some("contract")),
        (unseen(&json!({"type": "exit_0", "argv": ["true"]})), "undecided", Some("host")),
        (judged(&status, |plan| nothing(plan, Cause::Network)), "undecided", Some("network")),
        (judged(&status, |plan| answered(plan, 522, &[], b"")), "undecided", Some("edge")),
        (judged(&status, |plan| nothing(plan, Cause::Origin)), "undecided", Some("origin")),
        (unseen(&status), "undecided", Some("ours")),
    ] {
        assert_eq!((result.outcome.word(), result.outcome.cause().map(Cause::name)), (word, cause), "{result:?}");
        let sent = result.to_json();
        assert_eq!(sent["pasa"], word == "pass", "{sent}");
        assert_eq!(sent.get("indeciso"), cause.map(|_| &Value::Bool(true)), "{sent}");
        assert_eq!(sent["evidencia"]["cause"].as_str(), cause, "{sent}");
        assert_eq!(TestResult::from_json(&sent), Some(result));
    }
}

/// V2: any undecided, else any fail, else pass; whatever the order and however many; nothing at all is undecided.
#[test]
fn the_joint_answer_of_every_combination() {
    let ends = [Outcome::Pass, Outcome::Fail, Outcome::Undecided(Cause::Network)];
    assert_eq!(joint(&[]).verdict, Verdict::Undecided);
    for length in 1..=5u32 {
        for number in 0..3usize.pow(length) {
            let outcomes: Vec<Outcome> = (0..length).map(|at| ends[number / 3usize.pow(at) % 3]).collect();
            let results: Vec<TestResult> = outcomes.iter().copied().map(result).collect();
            let expected = match (outcomes.contains(&ends[2]), outcomes.contains(&ends[1])) {
                (true, _) => Verdict::Undecided,
                (false, true) => Verdict::Fail,
                (false, false) => Verdict::Pass,
            };
            assert_eq!(joint(&results).verdict, expected, "{outcomes:?}");
        }
    }
    // All tests run, and none stands in another's way.
    let tests = json!([
        {"type": "http_status", "url": URL, "expect": 404},
        {"type": "opinion"},
        {"type": "http_status", "url": "http://s.example/"},
        {"type": "http_status", "url": URL, "expect": 200},
    ]);
    let suite = suite(&tests);
    let results = suite.judge(&look_at(&suite, good), &Delivery::default());
    let words: Vec<&str> = results.iter().map(|result| result.outcome.word()).collect();
    assert_eq!(words, ["fail", "undecided", "fail", "pass"]);
    assert_eq!(joint(&results).verdict, Verdict::Undecided);
}

/// V3: where a strict reader and a JavaScript one would answer differently, neither answer is given and the ambiguity is
/// named; where both agree, their answer stands.
#[test]
fn two_readings_must_agree() {
    let is = |value: Value| path("a", ("expect", value));
    let header = json!({"type": "header", "url": URL, "name": "x-n", "equals": "café"});
    let fold =
        |flags: &str| json!({"type": "regex", "url": URL, "pattern": "^\u{1}$".replace('\u{1}', "ſ"), "flags": flags});
    for (result, end, says) in [
        // One decimal, two doubles apart; two decimals, one double; both ways the same.
        (judged_on(&is(json!(0.1)), "{\"a\":0.1000000000000000055}"), "undecided", "readers disagree"),
        (judged_on(&is(json!(0.1)), "{\"a\":0.10000000000000002}"), "fail", "expected"),
        (judged_on(&is(json!(0.1)), "{\"a\":0.100}"), "pass", "0.1"),
        // The first key, or the last.
        (judged_on(&is(json!(1)), "{\"a\":1,\"a\":2}"), "undecided", "twice"),
        (judged_on(&is(json!(1)), "{\"a\":1,\"b\":1,\"b\":2}"), "pass", "1"),
        // Replacement characters, or no text at all.
        (judged(&is(json!(1)), |plan| answered(plan, 200, &[], b"{\"a\":1,\"b\":\"\xff\"}")), "undecided", "utf-8"),
        // Latin-1, or UTF-8.
        (
            judged(&header, |plan| answered(plan, 200, &[("x-n", "café".as_bytes())], b"")),
            "undecided",
            "readers disagree",
        ),
        (judged(&header, |plan| answered(plan, 200, &[("x-n", b"caf\xe9")], b"")), "pass", "café"),
        (judged(&header, |plan| answered(plan, 200, &[("x-n", "cafés".as_bytes())], b"")), "fail", "expected"),
        // An overflow: an infinity, or a number of its own.
        (judged_on(&is(json!(1)), "{\"a\":1e400}"), "undecided", "larger than any double"),
        // Case folding is ECMAScript's own in both modes: by upper case without u, simple with it.
        (judged_on(&fold("i"), "S"), "fail", "does not match"),
        (judged_on(&fold("iu"), "S"), "pass", ""),
    ] {
        assert_eq!(result.outcome.word(), end, "{result:?}");
        assert!(result.reason.contains(says), "{says}: {}", result.reason);
    }
}

/// V5: two looks that both pass pass, two that both fail fail, and everything else is undecided; a contradiction is the
/// origin's, and a look that could not decide keeps its own cause.
#[test]
fn every_pair_of_looks() {
    let ends = [Outcome::Pass, Outcome::Fail, Outcome::Undecided(Cause::Network)];
    let look = |at: i64, outcome| Look::new(Timestamp::from_millis(at), vec![result(outcome)], &BTreeMap::new());
    for first in ends {
        for second in ends {
            let agreed = agree(&look(1, first), &look(2, second));
            let cause = match (first, second) {
                (a, b) if a == b => a.cause(),
                (Outcome::Undecided(_), _) | (_, Outcome::Undecided(_)) => Some(Cause::Network),
                _ => Some(Cause::Origin),
            };
            assert_eq!(agreed.results[0].outcome.cause(), cause, "{first:?} then {second:?}");
            if cause.is_none() {
                assert_eq!((agreed.results[0].outcome, agreed.at.millis()), (second, 2));
            }
        }
    }
    // Runs of one job are looks at it: they agree, or nothing is decided.
    let able = Capabilities::with_jobs(60);
    let suite = Suite::from_tests(&json!({"type": "exit_0", "argv": ["x"]}), &UrlPolicy::default(), &able);
    for (codes, end) in [([0, 0], "pass"), ([1, 1], "fail"), ([0, 1], "undecided"), ([1, 0], "undecided")] {
        let runs = codes.iter().map(|code| JobRun { end: JobEnd::Code { code: *code }, attestation: None }).collect();
        let results = suite.judge_with_jobs(&BTreeMap::new(), &BTreeMap::from([(0, runs)]), &Delivery::default());
        assert_eq!(results[0].outcome.word(), end, "{codes:?}");
    }
}

/// V7: how long a look took is evidence and nothing more: a slow host and a fast one answer alike, reason included; and
/// the matcher's bound is a count, so that the answer at the bound is the same every time.
#[test]
fn time_decides_nothing() {
    for test in every_type() {
        let quick = judged(&test, good);
        let slow = judged(&test, |plan| Observation {
            started: Timestamp::from_millis(0),
            ended: Timestamp::from_millis(86_400_000),
            ..good(plan)
        });
        assert_eq!((slow.outcome, &slow.reason), (quick.outcome, &quick.reason), "{test}");
        let differing: Vec<&String> = quick
            .evidence
            .iter()
            .filter(|(key, value)| slow.evidence.get(*key) != Some(value))
            .map(|(key, _)| key)
            .collect();
        assert_eq!(differing, ["ended", "observation", "started"], "{test}");
        // The deadline of a request is not part of what is judged.
        let (short, long) = (suite(&test).fetches(100), suite(&test).fetches(60_000));
        assert_eq!((short[0].read, short[0].keep), (long[0].read, long[0].keep), "{test}");
    }
    let heavy = Pattern::parse(r"(?=\w{60}!)(?=[^x]{90}y)(?=\W{0,90}z)[^q]{200}\w{50}!", "u").expect("a pattern");
    let window = "añ".repeat(60_000);
    let first = heavy.evaluate(window.as_bytes(), false);
    assert!(matches!(first, Answer::NoMatch | Answer::OverBudget), "{first:?}");
    assert_eq!(heavy.evaluate(window.as_bytes(), false), first);
}

/// V8: whoever reads a reason knows what was seen and what was expected.
#[test]
fn reasons_say_what_was_seen_and_what_was_expected() {
    let other = |plan: &FetchPlan| answered(plan, 503, &[("x-build", b"8")], b"{\"a\":\"x\"}");
    let odd = |plan: &FetchPlan| answered(plan, 200, &[("x-build", b"8")], b"{\"a\":\"x\"}");
    let [status, header, hash, size, field, pattern] = every_type();
    let small = json!({"type": "size", "url": URL, "max_bytes": 8});
    for (test, see, parts) in [
        (&status, &other as &dyn Fn(&FetchPlan) -> Observation, &["503", "200"][..]),
        (&header, &odd, &["x-build", "\"8\"", "\"7\""]),
        (&hash, &odd, &[&Sha256::of("{\"a\":\"x\"}").hex()[..8], &Sha256::of(GOOD).hex()[..8]]),
        (&hash, &other, &["503"]),
        (&small, &odd, &["8"]),
        (&size, &other, &["503"]),
        (&field, &odd, &["\"a\"", "string \"x\"", "number 1"]),
        (&field, &other, &["503"]),
        (&json!({"type": "regex", "url": URL, "pattern": "zz"}), &odd, &["zz"]),
        (&pattern, &other, &["503"]),
    ] {
        let result = judged(test, see);
        assert_eq!(result.outcome, Outcome::Fail, "{test}: {}", result.reason);
        for part in parts {
            assert!(result.reason.contains(part), "{part:?} in {:?} of {test}", result.reason);
        }
    }
    for test in every_type() {
        for see in [&good as &dyn Fn(&FetchPlan) -> Observation, &other, &odd, &|plan| nothing(plan, Cause::Network)] {
            let result = judged(&test, see);
            assert!(result.reason.len() > 4, "{test}");
            assert!(result.evidence.contains_key("observation") && result.evidence["url"] == URL, "{result:?}");
        }
    }
}

/// V60: a network test tells where it was answered from, by whom, with what and when, and names its observation.
#[test]
fn evidence_of_every_network_test_is_whole() {
    for test in every_type() {
        let suite = suite(&test);
        let seen = look_at(&suite, good);
        let observation = seen.values().next().expect("one fetch");
        let evidence = suite.judge(&seen, &Delivery::default()).remove(0).evidence;
        for (key, value) in [
            ("url", json!(URL)),
            ("address", json!("198.51.100.7:443")),
            ("certificate_sha256", json!(Sha256::of("certificate").hex())),
            ("tls", json!("TLSv1.3")),
            ("status", json!(200)),
            ("started", json!("2026-09-21T14:13:20.000Z")),
            ("ended", json!("2026-09-21T14:13:20.250Z")),
            ("observation", json!(Sha256::of(observation.to_bytes()).hex())),
        ] {
            assert_eq!(evidence.get(key), Some(&value), "{key} of {test}");
        }
        assert_eq!(Observation::from_bytes(&observation.to_bytes()).as_ref(), Some(observation));
        let kind = test["type"].as_str().expect("type");
        if !matches!(kind, "http_status" | "header") {
            assert_eq!(evidence["bytes_read"], GOOD.len(), "{kind}");
            assert_eq!(evidence["sha256"], Sha256::of(GOOD).hex(), "{kind}");
            assert_eq!(evidence["truncated"], false, "{kind}");
        }
        // What was judged: the header or the field itself.
        match kind {
            "header" => assert_eq!((&evidence["name"], &evidence["seen"]), (&json!("x-build"), &json!("7"))),
            "json_path" => assert_eq!((&evidence["path"], &evidence["seen"]), (&json!("a"), &json!(1))),
            _ => {}
        }
        let silent = judged(&test, |plan| Observation {
            address: None,
            certificate_sha256: None,
            tls: None,
            ..nothing(plan, Cause::Network)
        });
        for absent in ["status", "address", "certificate_sha256", "tls", "bytes_read", "sha256", "seen"] {
            assert!(!silent.evidence.contains_key(absent), "{absent} was not seen: {:?}", silent.evidence);
        }
        assert!(silent.evidence.contains_key("observation"), "{test}");
    }
    let pattern = json!({"type": "regex", "url": URL, "pattern": "b"});
    let window = usize::try_from(limits::REGEX_WINDOW).expect("small");
    for (length, truncated) in [(window, false), (window + 1, true)] {
        let result = judged_on(&pattern, &"a".repeat(length));
        assert_eq!((result.outcome, &result.evidence["truncated"]), (Outcome::Fail, &json!(truncated)), "{length}");
    }
}

/// V73: a dotted segment is a key of an object whatever it looks like; an array takes a canonical index and nothing else;
/// between brackets there is only such an index.
#[test]
fn segments_are_keys_on_objects_and_indexes_on_arrays() {
    for key in ["0", "00", "01", "-1", "1e0", " ", "*", "$", "length", "__proto__", "ñ", "a b", "99999999999999999999"]
    {
        let there = path(&format!("o.{key}"), ("expect", json!(1)));
        let body = json!({"o": {key: 1}}).to_string();
        assert_eq!(judged_on(&there, &body).outcome, Outcome::Pass, "{key} on an object");
        let canonical = matches!(key, "0" | "99999999999999999999");
        for exists in [true, false] {
            let asked = path(&format!("l.{key}"), ("exists", json!(exists)));
            let result = judged_on(&asked, "{\"l\":[7]}");
            let expected = match (canonical, key == "0", exists) {
                (false, ..) => Outcome::Undecided(Cause::Contract),
                (true, found, wanted) if found == wanted => Outcome::Pass,
                _ => Outcome::Fail,
            };
            assert_eq!(result.outcome, expected, "{key} on an array, exists {exists}: {}", result.reason);
        }
        let bracketed = judged_on(&path(&format!("o[{key}]"), ("expect", json!(1))), &body);
        if canonical {
            assert_eq!(bracketed.outcome, Outcome::Pass, "[{key}] is .{key}");
        } else {
            assert_eq!((bracketed.outcome, &bracketed.evidence["rule"]), (Outcome::Fail, &json!("V33")), "[{key}]");
        }
    }
}

/// V76: where the tests stand in a file, and what is not a test file.
#[test]
fn a_file_says_one_thing() {
    let test = r#"{"type":"http_status","url":"https://s.example/"}"#;
    let bom = "\u{feff}";
    for (text, kind) in [
        (test.to_owned(), FileKind::Test),
        (format!("{bom}{test}"), FileKind::Test),
        (format!("[{test}]"), FileKind::List),
        (format!("{{\"pruebas\":9,\"verify\":{test}}}"), FileKind::Terms),
        (format!("{{\"pruebas\":{test},\"verify\":null}}"), FileKind::Terms),
        (
            format!("{{\"evidence_sha256\":\"ab\",\"evidence\":\"text\",\"terms\":{{\"verify\":{test}}}}}"),
            FileKind::Agreement,
        ),
    ] {
        let file = TestFile::read(text.as_bytes()).unwrap_or_else(|faults| panic!("{text}: {faults:?}"));
        assert_eq!(file.kind, kind, "{text}");
        let suite = Suite::from_part(file.tests.root(), &UrlPolicy::default(), &Capabilities::network());
        assert_eq!(suite.acceptable(), Ok(()), "{text}");
        let delivered = kind == FileKind::Agreement;
        assert_eq!(file.delivery.evidence.as_deref(), delivered.then_some("text"));
        assert_eq!(file.delivery.evidence_sha256.as_deref(), delivered.then_some("ab"));
    }
    for (text, faults) in [
        ("null", 1),
        ("\"x\"", 1),
        ("1", 1),
        ("", 1),
        ("{\"a\":1,\"a\":2}", 1),
        ("{\"a\":{\"b\":1,\"b\":2,\"b\":3},\"a\":2}", 2),
        ("\u{feff}\u{feff}{}", 1),
    ] {
        assert_eq!(TestFile::read(text.as_bytes()).map_err(|found| found.len()), Err(faults), "{text}");
    }
    let both = json!({"verify": {"type": "http_status", "url": URL}, "pruebas": "nonsense"});
    assert_eq!(acceptable(&both, &UrlPolicy::default(), &Capabilities::network()), Ok(()), "verify wins");
}

/// V78: which names belong to one connection, what `equals` may hold, and the one reading of bytes that are not UTF-8.
#[test]
fn header_names_and_values_at_their_edges() {
    let test = |name: &str, equals: &str| json!({"type": "header", "url": URL, "name": name, "equals": equals});
    let rule = |test: &Value| match &suite(test).tests()[0].parsed {
        Parsed::Malformed { rule, .. } => Some(*rule),
        _ => None,
    };
    for name in [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ] {
        for spelt in [name.to_owned(), name.to_ascii_uppercase()] {
            assert_eq!(rule(&test(&spelt, "x")), Some("V43"), "{spelt}");
        }
        assert_eq!(rule(&test(&format!("x-{name}"), "x")), None, "{name}");
    }
    for name in ["content-length", "date", "server", "via", "www-authenticate", "trailers", "t"] {
        assert_eq!(rule(&test(name, "x")), None, "{name}");
    }
    for code in 0..=0x7fu8 {
        let allowed = (0x20..0x7f).contains(&code) || code == b'\t';
        assert_eq!(rule(&test("x-n", &format!("a{}b", char::from(code)))).is_none(), allowed, "{code:#x}");
    }
    for (equals, bytes, end) in [
        ("a\tb", &b"a\tb"[..], "pass"),
        ("a\tb", b"\t a\tb \t", "pass"),
        ("a\tb", b"a b", "fail"),
        ("\u{e9}", b"\xe9", "pass"),
        ("\u{fffd}", b"\xe9", "fail"),
        ("\u{c3}\u{a9}", b"\xc3\xa9", "undecided"),
        ("\u{e9}", b"\xc3\xa9", "undecided"),
        ("\u{e9}x", b"\xc3\xa9", "fail"),
    ] {
        let result = judged(&test("x-n", equals), |plan| answered(plan, 200, &[("x-n", bytes)], b""));
        assert_eq!(result.outcome.word(), end, "{equals:?} on {}: {}", bytes.escape_ascii(), result.reason);
    }
}

/// V79: a literal is admitted by the allow rule or the test is malformed; so is a name that is not on the public
/// internet. A dry run may open its own machine and its private networks, and nothing else.
#[test]
fn literals_and_names_at_the_edge_of_the_public_internet() {
    let own = UrlPolicy { addresses: AddressRule { allow: Vec::new(), allow_private: true } };
    let admitted = |host: &str, policy: &UrlPolicy| Target::parse(&format!("https://{host}/x"), policy).is_ok();
    for (host, public, private) in [
        ("[1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]", false, false),
        ("[2000::]", true, true),
        ("[3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff]", true, true),
        ("[4000::]", false, false),
        ("[fec0::1]", false, false),
        ("[feff::1]", false, false),
        ("[ff00::]", false, false),
        ("[ff0e::1]", false, false),
        ("223.255.255.255", true, true),
        ("224.0.0.0", false, false),
        ("239.255.255.255", false, false),
        ("127.0.0.1", false, true),
        ("[::1]", false, true),
        ("10.0.0.1", false, true),
        ("172.31.255.255", false, true),
        ("172.32.0.0", true, true),
        ("192.168.0.1", false, true),
        ("[fd00::1]", false, true),
        ("169.254.169.254", false, false),
        ("[fe80::1]", false, false),
        ("0.0.0.0", false, false),
        ("localhost", false, true),
        ("a.localhost", false, true),
        ("home.arpa", false, false),
        ("a.home.arpa", false, false),
        ("xhome.arpa", true, true),
        ("a..example", false, false),
        (".example.com", false, false),
        ("a.example.", false, false),
        ("seller", false, false),
        ("seller.internal", false, false),
    ] {
        assert_eq!((admitted(host, &UrlPolicy::default()), admitted(host, &own)), (public, private), "{host}");
        let test = json!({"type": "http_status", "url": format!("https://{host}/x")});
        let planned = suite(&test);
        let parsed = &planned.tests()[0].parsed;
        assert_eq!(matches!(parsed, Parsed::Ready(_)), public, "{host}: {parsed:?}");
        assert_eq!(matches!(parsed, Parsed::Malformed { rule: "V20", .. }), !public, "{host}: {parsed:?}");
    }
}

/// V82: a program that cannot run, and an archive that is refused, are the seller's; the run that did not take place is
/// nobody's.
#[test]
fn what_a_job_ends_with_says_whose_it_is() {
    let able = Capabilities::with_jobs(60);
    let suite = Suite::from_tests(&json!({"type": "exit_0", "argv": ["./run"]}), &UrlPolicy::default(), &able);
    let judged = |end: JobEnd, runs: usize| {
        let run = JobRun { end, attestation: None };
        let runs = BTreeMap::from([(0, vec![run; runs])]);
        suite.judge_with_jobs(&BTreeMap::new(), &runs, &Delivery::default()).remove(0)
    };
    // One run is enough for `--once`, and the daemon's two agree.
    for runs in [1, 2] {
        for why in ["is a directory", "is not executable", "is of a foreign format"] {
            let result = judged(JobEnd::NotExecutable { reason: why.to_owned() }, runs);
            assert_eq!(result.outcome, Outcome::Fail);
            assert!(result.reason.contains(why), "{}", result.reason);
        }
        let refused = JobEnd::ArchiveRefused { path: "in/a.tar".to_owned(), reason: "a link leaves it".to_owned() };
        let result = judged(refused, runs);
        assert_eq!(result.outcome, Outcome::Fail);
        assert!(result.reason.contains("in/a.tar") && result.reason.contains("a link leaves it"), "{}", result.reason);
        assert_eq!(result.evidence["runs"], runs);
        let gone = JobEnd::Unavailable { cause: Cause::Network, reason: "the input did not come".to_owned() };
        assert_eq!(judged(gone, runs).outcome, Outcome::Undecided(Cause::Network));
    }
    let input = |path: &str, mode: Value| {
        let input = json!({"path": path, "url": URL, "sha256": "evidence", "mode": mode});
        let suite = Suite::from_tests(
            &json!({"type": "exit_0", "argv": ["x"], "inputs": [input]}),
            &UrlPolicy::default(),
            &able,
        );
        suite.acceptable().is_ok()
    };
    assert!(input("a/b", json!("0777")) && input("a/b", json!("0")) && input("a", Value::Null));
    assert!(!input("a/b", json!("1000")) && !input("a/b", json!("0888")) && !input("a/b", json!("-1")));
    for dirty in ["", "/a", "a/", "./a", "../a", "a/../b", "a/./b", "a//b", ".", "..", "a\0b"] {
        assert!(!input(dirty, Value::Null), "{dirty:?}");
    }
    assert!(input("..a", Value::Null) && input("a..", Value::Null) && input(".hidden", Value::Null));
}
