//! `check` and `replay`: what they answer, show, keep and refuse.

use super::site::{Answer, Site};
use super::{Ran, folder, ran_by, verifica, write};
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

/// Figures that differ from run to run, made alike.
fn steady(text: &str, site: &Site) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let line = line.replace(&site.address.to_string(), "SITE");
        let mut words: Vec<String> = Vec::new();
        for word in line.split(' ') {
            let figure = word
                .trim_end_matches(']')
                .strip_suffix('s')
                .is_some_and(|n| n.contains('.') && n.parse::<f64>().is_ok());
            let date = word.len() >= 10 && word.as_bytes()[4] == b'-' && word.as_bytes()[7] == b'-';
            words.push(match (figure, date) {
                (true, _) => word.replace(|c: char| c.is_ascii_digit(), "0"),
                (_, true) => format!("DATE{}", &word[10..]),
                _ => word.to_owned(),
            });
        }
        out.push_str(words.join(" ").trim_end());
        out.push('\n');
    }
    out
}

fn shop() -> Site {
    Site::start(vec![
        ("/health", Answer::ok("text/plain", "fine\n")),
        ("/version", Answer::ok("application/json", "{\"version\":\"2\",\"n\":[1,2]}")),
        ("/notes", Answer::ok("text/plain", "version 3\nsecond line\n")),
        ("/teapot", Answer::new(418, "text/plain", "no")),
        ("/edge", Answer::new(522, "text/plain", "origin unreachable")),
    ])
}

fn check(folder: &TempDir, site: &Site, file: &str, more: &[&str]) -> Ran {
    let resolve = format!("seller.example:443:{}:{}", site.address.ip(), site.address.port());
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, &site.ca_pem).expect("ca");
    let mut args = vec!["check", file, "--resolve", &resolve, "--ca", "ca.pem", "--allow-private"];
    args.extend_from_slice(more);
    verifica(folder.path(), &args)
}

const PASSING: &str = r#"[
  {"type": "http_status", "name": "health", "url": "https://seller.example/health"},
  {"type": "json_path", "name": "version", "url": "https://seller.example/version", "path": "version", "expect": "2"},
  {"type": "regex", "name": "notes", "url": "https://seller.example/notes", "pattern": "^version [0-9]+$", "flags": "m"},
  {"type": "size", "url": "https://seller.example/notes", "max_bytes": 100},
  {"type": "header", "url": "https://seller.example/health", "name": "content-type", "equals": "text/plain"}
]
"#;

#[test]
fn check_passes_and_says_what_was_seen() {
    let (folder, site) = (folder(), shop());
    write(&folder, "tests.json", PASSING);
    let ran = check(&folder, &site, "tests.json", &["--once"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let shown = steady(&ran.out, &site);
    let expected = include_str!("pass.txt");
    assert_eq!(shown, expected, "\n{shown}");
    assert!(ran.err.contains("looked at once"), "{}", ran.err);
}

#[test]
fn check_fails_at_the_place_in_the_file() {
    let (folder, site) = (folder(), shop());
    let tests = r#"[
  {"type": "http_status", "name": "health", "url": "https://seller.example/teapot"},
  {"type": "json_path", "name": "version", "url": "https://seller.example/version", "path": "version", "expect": 2}
]
"#;
    write(&folder, "tests.json", tests);
    let ran = check(&folder, &site, "tests.json", &["--once"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let shown = steady(&ran.out, &site);
    assert_eq!(shown, include_str!("fail.txt"), "\n{shown}");
}

#[test]
fn check_is_undecided_when_an_edge_answers() {
    let (folder, site) = (folder(), shop());
    write(
        &folder,
        "tests.toml",
        "[[test]]\ntype = \"http_status\"\nname = \"edge\"\nurl = \"https://seller.example/edge\"\n",
    );
    let ran = check(&folder, &site, "tests.toml", &["--once"]);
    assert_eq!(ran.code, 3, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("undecided(edge)") && ran.out.contains("tests.toml:4:7"), "{}", ran.out);
    assert!(ran.out.contains("verdict UNDECIDED   1 test: 0 passed, 0 failed, 1 undecided"), "{}", ran.out);
}

#[test]
fn check_ends_with_four_when_a_job_cannot_be_enforced() {
    let folder = folder();
    write(&folder, "job.json", r#"{"type": "exit_0", "argv": ["true"]}"#);
    // The job's own limits would be above the hard ones of this program: it could not have them.
    let mut shell = assert_cmd::Command::new("/bin/sh");
    shell.args(["-c", "ulimit -n 200; exec \"$0\" check job.json --json", env!("CARGO_BIN_EXE_verifica")]);
    shell.current_dir(folder.path()).env_clear().env("HOME", folder.path());
    let ran = ran_by(shell);
    let doc = ran.json();
    assert_eq!((ran.code, &doc["verdict"], &doc["indeciso"]), (4, &json!("undecided"), &json!(true)));
}

#[test]
fn check_answers_as_the_protocol_carries_it() {
    let (folder, site) = (folder(), shop());
    let quote = json!({
        "tipo": "cotizacion", "price": 200, "seller": "ana@mar.example", "buyer": "leo@mar.example",
        "terms": {"verify": serde_json::from_str::<Value>(PASSING).expect("tests")},
    });
    write(&folder, "quote.json", &quote.to_string());
    let ran = check(&folder, &site, "quote.json", &["--once", "--json"]);
    let doc = ran.json();
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(doc["schema"], "verifica.check/1");
    assert_eq!((&doc["verdict"], &doc["pasa"], &doc["indeciso"]), (&json!("pass"), &json!(true), &json!(false)));
    assert_eq!(doc["resultados"].as_array().map(Vec::len), Some(5));
    assert_eq!(doc["resultados"][0]["prueba"], "http_status");
    assert!(doc["resultados"][0]["evidencia"]["observation"].is_string());
    assert_eq!(doc["would_settle"], json!({"op": "release", "amount": 200, "to": "ana@mar.example"}));
    assert_eq!(doc["counts"], json!({"tests": 5, "passed": 5, "failed": 0, "undecided": 0}));
    let asked = &doc["tests"][1];
    assert_eq!(asked["claim"], "seller.example/version  version = \"2\"");
    assert_eq!((&asked["n"], &asked["status"], &asked["bytes"]), (&json!(2), &json!("pass"), &json!(25)));
    assert_eq!((&asked["address"], &asked["complete"]), (&json!(site.address.to_string()), &json!(true)));
    assert!(asked["duration_ms"].is_u64() && asked["tls"].as_str().is_some_and(|tls| tls.starts_with("TLSv1.")));
    assert!(asked["certificate_not_after"].as_str().is_some_and(|at| at.ends_with('Z')), "{asked}");
    assert_eq!(asked["line"], 1);
    let quiet = check(&folder, &site, "quote.json", &["--once", "-q"]);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("pass\n", ""));
}

/// V5: as a person meets it.
#[test]
fn two_looks_must_agree() {
    let folder = folder();
    let site = Site::start(vec![(
        "/flap",
        Answer::turns(vec![Answer::ok("text/plain", "a"), Answer::new(500, "text/plain", "b")]),
    )]);
    write(&folder, "flap.json", r#"{"type": "http_status", "url": "https://seller.example/flap"}"#);
    write(&folder, "quick.toml", &quick_policy());
    let ran = check(&folder, &site, "flap.json", &["--json", "--policy", "quick.toml"]);
    let doc = ran.json();
    assert_eq!((ran.code, &doc["verdict"]), (3, &json!("undecided")), "{doc}");
    assert!(doc["razon"].as_str().is_some_and(|why| why.contains("two looks disagree")), "{doc}");
    assert_eq!(doc["looks"].as_array().map(Vec::len), Some(2));
    assert_eq!(doc["policy"]["name"], "quick");
    let steady = Site::start(vec![("/flap", Answer::ok("text/plain", "a"))]);
    let ran = check(&folder, &steady, "flap.json", &["--json", "--policy", "quick.toml", "--repeat", "4"]);
    assert_eq!((ran.code, ran.json()["looks"].as_array().map(Vec::len)), (0, Some(4)));
}

fn quick_policy() -> String {
    include_str!("../../policies/default.toml")
        .replace("name = \"default\"", "name = \"quick\"")
        .replace("value = \"2s\"", "value = \"20ms\"")
}

/// V61: with no network, and to the byte.
#[test]
fn evidence_replays_and_a_changed_byte_shows() {
    let (folder, site) = (folder(), shop());
    write(&folder, "tests.json", PASSING);
    let ran = check(&folder, &site, "tests.json", &["--once", "--evidence-out", "seen.json", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.out);
    drop(site);
    let same = verifica(folder.path(), &["replay", "seen.json", "--json"]);
    assert_eq!((same.code, &same.json()["same"]), (0, &json!(true)), "{}", same.out);
    assert_eq!(same.json()["resultados"], ran.json()["resultados"]);

    let offline =
        verifica(folder.path(), &["check", "tests.json", "--offline", "seen.json", "--allow-private", "--json"]);
    assert_eq!((offline.code, &offline.json()["resultados"]), (0, &ran.json()["resultados"]), "{}", offline.out);

    let text = fs::read_to_string(folder.path().join("seen.json")).expect("evidence");
    write(&folder, "forged.json", &text.replace("\"status\":200", "\"status\":404"));
    let forged = verifica(folder.path(), &["replay", "forged.json"]);
    assert_eq!(forged.code, 1, "{}", forged.out);
    assert!(forged.out.contains("different"), "{}", forged.out);
    let again = check(&folder, &shop(), "tests.json", &["--once", "--evidence-out", "seen.json"]);
    assert_eq!(again.code, 2, "evidence is never replaced: {}", again.err);
    write(&folder, "not.json", "{\"schema\":\"other\"}");
    assert_eq!(verifica(folder.path(), &["replay", "not.json"]).code, 2);
}

#[test]
fn a_flapping_server_is_found_by_asking_often() {
    let folder = folder();
    let answers = [200, 200, 200, 500, 200].map(|status| Answer::new(status, "text/plain", "a"));
    let site = Site::start(vec![("/flap", Answer::turns(answers.into())), ("/calm", Answer::ok("text/plain", "a"))]);
    let tests = r#"[{"type": "http_status", "name": "flaps", "url": "https://seller.example/flap"},
        {"type": "http_status", "name": "calm", "url": "https://seller.example/calm"}]"#;
    write(&folder, "flap.json", tests);
    write(&folder, "quick.toml", &quick_policy());
    let twice = check(&folder, &site, "flap.json", &["--json", "--policy", "quick.toml"]);
    assert_eq!(twice.code, 0, "two looks were lucky: {}", twice.out);
    let ran = check(&folder, &site, "flap.json", &["--json", "--policy", "quick.toml", "--repeat", "3"]);
    let doc = ran.json();
    assert_eq!(ran.code, 3, "{doc}");
    let looks: Vec<_> = doc["looks"].as_array().expect("looks").iter().map(|look| look["verdict"].clone()).collect();
    assert_eq!(looks, ["pass", "fail", "pass"]);
    let results = doc["resultados"].as_array().expect("results");
    assert!(results[0]["razon"].as_str().is_some_and(|why| why.contains("first pass") && why.contains("then fail")));
    assert_eq!((&results[0]["indeciso"], &results[1]["pasa"]), (&json!(true), &json!(true)));
}

#[test]
fn stored_evidence_answers_other_questions_offline() {
    let (folder, site) = (folder(), shop());
    let delivered = json!({
        "tipo": "cotizacion", "price": 1, "evidence": "the work",
        "terms": {"verify": serde_json::from_str::<Value>(PASSING).expect("tests")},
    });
    write(&folder, "deal.json", &delivered.to_string());
    assert_eq!(check(&folder, &site, "deal.json", &["--once", "--evidence-out", "seen.json"]).code, 0);
    drop(site);
    let hash = "ab".repeat(32);
    for (tests, code, said) in [
        // Another test of what was seen, decided on the same bytes.
        (json!({"type": "regex", "url": "https://seller.example/notes", "pattern": "third"}), 1, "does not match"),
        (json!({"type": "json_path", "url": "https://seller.example/version", "path": "n[1]", "expect": 2}), 0, ""),
        // What was never asked for decides nothing.
        (json!({"type": "http_status", "url": "https://seller.example/other"}), 3, "not observed"),
        // The delivery is the evidence's where the file speaks of none.
        (json!({"type": "sha256", "expect": hash}), 1, "sha256"),
        (json!({"terms": {"verify": {"type": "sha256", "expect": hash}}}), 3, "undecided"),
    ] {
        write(&folder, "other.json", &tests.to_string());
        let ran = verifica(folder.path(), &["check", "other.json", "--offline", "seen.json", "--json"]);
        assert_eq!(ran.code, code, "{tests} {}{}", ran.out, ran.err);
        assert!(ran.out.contains(said), "{tests} {}", ran.out);
    }
    // Evidence whose content is not its own is not judged.
    let text = fs::read_to_string(folder.path().join("seen.json")).expect("evidence");
    let mut lying: Value = serde_json::from_str(&text).expect("json");
    for seen in lying["looks"][0]["observations"].as_array_mut().expect("observations") {
        seen["seen"]["content"]["bytes"] = json!(1);
    }
    write(&folder, "lying.json", &lying.to_string());
    let ran = verifica(folder.path(), &["check", "deal.json", "--offline", "lying.json"]);
    assert_eq!(ran.code, 2, "{}", ran.out);
    assert!(ran.err.contains("not what its hash says"), "{}", ran.err);
}

#[test]
fn a_true_record_of_a_failure_replays_with_zero() {
    let (folder, site) = (folder(), shop());
    for (path, code) in [("teapot", 1), ("edge", 3)] {
        let test = format!("{{\"type\": \"http_status\", \"url\": \"https://seller.example/{path}\"}}");
        write(&folder, "test.json", &test);
        let seen = format!("{path}.json");
        assert_eq!(check(&folder, &site, "test.json", &["--once", "--evidence-out", &seen]).code, code);
        let replayed = verifica(folder.path(), &["replay", &seen]);
        assert_eq!(replayed.code, 0, "{}{}", replayed.out, replayed.err);
        assert!(replayed.err.contains("no signed verdict"), "{}", replayed.err);
    }
}

#[test]
fn junit_counts_undecided_as_errors() {
    let (folder, site) = (folder(), shop());
    let tests = r#"[{"type": "http_status", "url": "https://seller.example/health"},
        {"type": "http_status", "url": "https://seller.example/teapot", "name": "a <b>"},
        {"type": "http_status", "url": "https://seller.example/edge"}]"#;
    write(&folder, "tests.json", tests);
    let ran = check(&folder, &site, "tests.json", &["--once", "--junit", "out.xml", "-q"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, "undecided\n"));
    let xml = fs::read_to_string(folder.path().join("out.xml")).expect("junit");
    assert!(xml.contains("tests=\"3\" failures=\"1\" errors=\"1\""), "{xml}");
    assert!(xml.contains("name=\"a &lt;b&gt;\""), "{xml}");
}

/// V76: code 2, with all diagnostics at once.
#[test]
fn a_file_that_does_not_parse_gets_all_its_faults() {
    let folder = folder();
    write(
        &folder,
        "twice.json",
        "{\n \"type\": \"size\",\n \"type\": \"header\",\n \"url\": \"x\",\n \"url\": \"y\"\n}\n",
    );
    let ran = verifica(folder.path(), &["check", "twice.json"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("twice.json:3:2") && ran.err.contains("twice.json:5:2"), "{}", ran.err);
    let doc = verifica(folder.path(), &["check", "twice.json", "--json"]).json();
    assert_eq!(doc["schema"], "verifica.error/1");
    assert_eq!(doc["diagnostics"].as_array().map(Vec::len), Some(2), "{doc}");
    for (name, text) in [("number.json", "3"), ("open.json", "[{"), ("bad.toml", "a = \n b"), ("empty.json", "")] {
        write(&folder, name, text);
        assert_eq!(verifica(folder.path(), &["check", name]).code, 2, "{name}");
    }
    fs::write(folder.path().join("latin.json"), b"{\"type\": \"\xff\"}").expect("written");
    assert_eq!(verifica(folder.path(), &["check", "latin.json"]).code, 2);
    assert_eq!(verifica(folder.path(), &["check", "absent.json"]).code, 2);
    assert_eq!(verifica(folder.path(), &["check", "empty.json", "--policy", "defualt"]).code, 2);
}

/// Whatever a file holds, the answer is a verdict or a reason, never a bug.
#[test]
fn damaged_files_are_refused_and_never_a_bug() {
    let (folder, site) = (folder(), shop());
    write(&folder, "tests.json", PASSING);
    assert_eq!(check(&folder, &site, "tests.json", &["--once", "--evidence-out", "seen.json"]).code, 0);
    verifica(folder.path(), &["agent", "new", "ana@mar.example", "--house", "http://127.0.0.1:9", "--as", "ana.json"]);
    verifica(
        folder.path(),
        &[
            "libro",
            "quote",
            "leo@mar.example",
            "--price",
            "5",
            "--verify",
            "tests.json",
            "--as",
            "ana.json",
            "-o",
            "quote.json",
        ],
    );
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).expect("small")
    };
    let pieces: [&[u8]; 8] = [b"\"", b"{", b"]", b"1e999", b"\\ud800", b"\xff", b",", b"null"];
    for (name, args) in [
        ("tests.json", &["check", "damaged.json", "--offline", "seen.json"][..]),
        ("quote.json", &["check", "damaged.json", "--offline", "seen.json"]),
        ("quote.json", &["verify", "damaged.json"]),
        ("seen.json", &["replay", "damaged.json"]),
        ("seen.json", &["check", "tests.json", "--offline", "damaged.json"]),
    ] {
        let whole = fs::read(folder.path().join(name)).expect("file");
        for _ in 0..60 {
            let mut bytes = whole.clone();
            for _ in 0..1 + draw(3) {
                let at = draw(bytes.len());
                let piece = pieces[draw(pieces.len())];
                match draw(3) {
                    0 => drop(bytes.remove(at)),
                    1 => bytes.truncate(at.max(1)),
                    _ => drop(bytes.splice(at..at, piece.iter().copied())),
                }
            }
            fs::write(folder.path().join("damaged.json"), &bytes).expect("written");
            let ran = verifica(folder.path(), args);
            assert!(
                (0..=5).contains(&ran.code),
                "{args:?} ended with {}: {}\n{}",
                ran.code,
                ran.err,
                String::from_utf8_lossy(&bytes)
            );
        }
    }
}
