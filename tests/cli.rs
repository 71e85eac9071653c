//! The program as a person or a script meets it: the real binary, its output, its files and its codes.

#[path = "cli/house.rs"]
mod house;
#[path = "cli/site.rs"]
mod site;

use assert_cmd::Command;
use house::HouseProcess;
use serde_json::{Value, json};
use site::{Answer, Site};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;

struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

fn verifica(folder: &Path, args: &[&str]) -> Ran {
    ran_by(program(folder, args))
}

fn program(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verifica"));
    command.current_dir(folder).args(args).env_clear().env("HOME", folder);
    command
}

fn ran_by(mut command: Command) -> Ran {
    let output = command.output().expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn write(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, text).expect("written");
    path
}

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
fn init_makes_a_house_once_with_private_keys() {
    let folder = folder();
    let house = folder.path().join("house");
    let shown = verifica(folder.path(), &["init", "--domain", "mar.example", "--dir", "house", "--dry-run"]);
    assert_eq!((shown.code, house.exists()), (0, false), "{}", shown.err);
    assert!(shown.out.contains("+ create 0600  house/domain.key"), "{}", shown.out);

    let made = verifica(folder.path(), &["init", "--domain", "mar.example", "--dir", "house"]);
    assert_eq!(made.code, 0, "{}", made.err);
    assert!(made.err.contains("verifica serve --config house/verifica.toml"), "{}", made.err);
    for (name, mode) in [("domain.key", 0o600), ("admin.token", 0o600), ("verifica.toml", 0o644), ("data", 0o700)] {
        let found = fs::metadata(house.join(name)).expect(name).mode() & 0o777;
        assert_eq!(found, mode, "{name}: {found:o}");
    }
    let key = fs::read_to_string(house.join("domain.key")).expect("key");
    let again = verifica(folder.path(), &["init", "--domain", "mar.example", "--dir", "house"]);
    assert_eq!(again.code, 2);
    assert!(again.err.contains("nothing was changed"), "{}", again.err);
    assert_eq!(fs::read_to_string(house.join("domain.key")).expect("key"), key);

    let other = verifica(folder.path(), &["init", "--domain", "b.example", "--dir", "b", "--json"]).json();
    assert_eq!((other["schema"].as_str(), other["domain"].as_str()), (Some("verifica.init/1"), Some("b.example")));
    assert_eq!(verifica(folder.path(), &["init", "--domain", "Mar.example"]).code, 2);
    assert_eq!(verifica(folder.path(), &["init", "--domain", "c.example", "--public-url", "ftp://c"]).code, 2);
}

#[test]
fn version_is_short_and_long() {
    let folder = folder();
    let short = verifica(folder.path(), &["--version"]);
    assert_eq!((short.code, short.out.as_str()), (0, concat!("verifica ", env!("CARGO_PKG_VERSION"), "\n")));
    let long = verifica(folder.path(), &["version", "--json"]).json();
    assert_eq!(long["schema"], "verifica.version/1");
    assert_eq!(long["protocol"], "nyx5/1");
    assert!(long["sqlite"].is_string() && long["rules"].is_string());
    assert!(verifica(folder.path(), &["version"]).out.starts_with("verifica "));
}

#[test]
fn check_passes_and_says_what_was_seen() {
    let (folder, site) = (folder(), shop());
    write(&folder, "tests.json", PASSING);
    let ran = check(&folder, &site, "tests.json", &["--once"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let shown = steady(&ran.out, &site);
    let expected = include_str!("cli/pass.txt");
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
    assert_eq!(shown, include_str!("cli/fail.txt"), "\n{shown}");
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
    let ran = verifica(folder.path(), &["check", "job.json", "--json"]);
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
    let quiet = check(&folder, &site, "quote.json", &["--once", "-q"]);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("pass\n", ""));
}

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
    include_str!("../policies/default.toml")
        .replace("name = \"default\"", "name = \"quick\"")
        .replace("value = \"2s\"", "value = \"20ms\"")
}

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

#[test]
fn a_bad_configuration_is_shown_with_every_fault() {
    let folder = folder();
    write(&folder, "verifica.toml", "domain = \"mar.example\"\n[libro]\nfee_bp = 5\n[mail]\nretry_base = \"soon\"\n");
    let ran = verifica(folder.path(), &["libro", "topup", "ana@mar.example", "5"]);
    assert_eq!(ran.code, 2);
    for part in ["verifica.toml:3:1", "did you mean libro.fee_bps", "verifica.toml:5:14", "\"soon\" is not a duration"]
    {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    let mut by_env = program(folder.path(), &["libro", "topup", "ana@mar.example", "5"]);
    by_env.env("VERIFICA_LIBRO__WELCOM", "5");
    let told = ran_by(by_env);
    assert!(told.err.contains("environment variable VERIFICA_LIBRO__WELCOM"), "{}", told.err);
}

#[test]
fn secrets_that_others_can_read_are_refused() {
    let folder = folder();
    let made = verifica(
        folder.path(),
        &["agent", "new", "ana@mar.example", "--house", "http://127.0.0.1:9", "--as", "ana.json"],
    );
    assert_eq!(made.code, 0, "{}", made.err);
    let path = folder.path().join("ana.json");
    assert_eq!(fs::metadata(&path).expect("identity").mode() & 0o777, 0o600);
    let key =
        serde_json::from_str::<Value>(&fs::read_to_string(&path).expect("identity")).expect("json")["sig"].clone();
    assert!(!made.out.contains(key.as_str().expect("key")), "the private key is shown");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("mode");
    let ran = verifica(folder.path(), &["agent", "card", "--as", "ana.json"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("mode is 0644") && ran.err.contains("chmod 600 ana.json"), "{}", ran.err);
    let again = verifica(
        folder.path(),
        &["agent", "new", "ana@mar.example", "--house", "http://127.0.0.1:9", "--as", "ana.json"],
    );
    assert_eq!(again.code, 2);
    assert_eq!(verifica(folder.path(), &["agent", "card", "--as", "absent.json"]).code, 2);
}

#[test]
fn a_house_that_is_not_there_is_unreachable() {
    let folder = folder();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("port");
    let url = format!("http://{}", socket.local_addr().expect("address"));
    drop(socket);
    verifica(folder.path(), &["agent", "new", "ana@mar.example", "--house", &url, "--as", "ana.json"]);
    let ran = verifica(folder.path(), &["agent", "inbox", "--as", "ana.json"]);
    assert_eq!(ran.code, 69, "{}", ran.err);
    assert!(ran.err.contains("cannot be reached") && ran.err.contains("refused"), "{}", ran.err);
}

#[test]
fn quotes_are_signed_verified_and_bounded_by_the_buyer() {
    let folder = folder();
    for name in ["ana", "leo"] {
        let address = format!("{name}@mar.example");
        let file = format!("{name}.json");
        verifica(folder.path(), &["agent", "new", &address, "--house", "http://127.0.0.1:9", "--as", &file]);
    }
    write(&folder, "tests.json", r#"[{"type": "http_status", "url": "https://seller.example/"}]"#);
    let made = verifica(
        folder.path(),
        &[
            "libro",
            "quote",
            "leo@mar.example",
            "--price",
            "200",
            "--verify",
            "tests.json",
            "--as",
            "ana.json",
            "-o",
            "quote.json",
        ],
    );
    assert_eq!(made.code, 0, "{}", made.err);
    let quote: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("quote.json")).expect("quote")).expect("json");
    assert_eq!((&quote["arbiter"], &quote["price"]), (&json!("verifica@mar.example"), &json!(200)));
    let kid = quote["signature"]["kid"].as_str().expect("kid");
    let valid = verifica(folder.path(), &["verify", "quote.json", "--key", kid]);
    assert_eq!(valid.code, 0, "{}", valid.out);
    assert!(valid.out.contains("VALID  quote"), "{}", valid.out);
    let unknown = verifica(folder.path(), &["verify", "quote.json"]);
    assert_eq!(unknown.code, 3, "{}", unknown.out);
    let other = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    assert_eq!(verifica(folder.path(), &["verify", "quote.json", "--key", other]).code, 1);
    let text = fs::read_to_string(folder.path().join("quote.json")).expect("quote");
    write(&folder, "changed.json", &text.replace("200", "100"));
    assert_eq!(verifica(folder.path(), &["verify", "changed.json", "--key", kid]).code, 1);
    let refused = verifica(folder.path(), &["libro", "accept", "quote.json", "--max-price", "100", "--as", "leo.json"]);
    assert_eq!(refused.code, 5, "{}", refused.err);
    assert_eq!(verifica(folder.path(), &["verify", "tests.json"]).code, 2);
}

#[test]
fn a_disk_that_is_full_and_a_reader_that_goes_away() {
    let folder = folder();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_verifica"));
    let status =
        command.arg("version").current_dir(folder.path()).stdout(full).stderr(Stdio::null()).status().expect("runs");
    assert_eq!(status.code(), Some(74));

    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_verifica"));
    let mut child = command
        .args(["generate", "completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ends");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn colour_follows_the_conventions() {
    let folder = folder();
    write(&folder, "job.json", r#"{"type": "exit_0", "argv": ["true"]}"#);
    let escape = "\u{1b}[";
    let plain = verifica(folder.path(), &["check", "job.json"]);
    assert!(!plain.out.contains(escape) && !plain.err.contains(escape));
    assert!(verifica(folder.path(), &["check", "job.json", "--color", "always"]).out.contains(escape));
    let mut forced = program(folder.path(), &["check", "job.json"]);
    forced.env("CLICOLOR_FORCE", "1");
    assert!(ran_by(forced).out.contains(escape));
    let mut not = program(folder.path(), &["check", "job.json"]);
    not.env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1");
    assert!(!ran_by(not).out.contains(escape));
}

#[test]
fn help_is_an_answer_and_a_wrong_call_is_not() {
    let folder = folder();
    for args in [&["--help"][..], &["check", "--help"], &["libro", "quote", "--help"], &["help", "agent"]] {
        let ran = verifica(folder.path(), args);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
    }
    for args in [
        &["--nope"][..],
        &[],
        &["check"],
        &["libro", "pay", "ana", "5"],
        &["check", "x", "--repeat", "0"],
        &["agent", "send"],
    ] {
        let ran = verifica(folder.path(), args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}");
    }
}

#[test]
fn completions_and_pages_come_from_the_grammar() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = verifica(folder.path(), &["generate", "completions", shell]);
        assert!(ran.code == 0 && ran.out.contains("evidence-out"), "{shell}");
    }
    let ran = verifica(folder.path(), &["generate", "man"]);
    assert!(ran.out.contains(".TH verifica 1") && ran.out.contains("Exit codes"), "{}", ran.out);
    assert_eq!(verifica(folder.path(), &["generate", "man", "--dir", "man"]).code, 0);
    for page in ["verifica.1", "verifica-check.1", "verifica-libro-quote.1"] {
        assert!(folder.path().join("man").join(page).exists(), "{page}");
    }
}

/// An agent of this house with its identity in a file; answers the name of the file.
fn agent(folder: &TempDir, house: &HouseProcess, name: &str) -> String {
    let file = format!("{name}.json");
    let address = format!("{name}@mar.example");
    let made = verifica(folder.path(), &["agent", "new", &address, "--house", &house.url, "--as", &file]);
    assert_eq!(made.code, 0, "{}", made.err);
    let token = house.folder.join("admin.token");
    let token = token.to_str().expect("path");
    let joined = verifica(
        folder.path(),
        &["agent", "join", "--as", &file, "--admin-token-file", token, "--visibility", "public"],
    );
    assert_eq!(joined.code, 0, "{}", joined.err);
    file
}

fn topup(folder: &TempDir, house: &HouseProcess, account: &str, amount: &str) -> Ran {
    let token = house.folder.join("admin.token");
    let token = token.to_str().expect("path");
    verifica(folder.path(), &["libro", "topup", account, amount, "--house", &house.url, "--admin-token-file", token])
}

fn waiting(folder: &TempDir, file: &str, seconds: &str) -> Vec<Value> {
    let ran = verifica(folder.path(), &["agent", "inbox", "--as", file, "--wait", seconds, "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.out);
    ran.json()["messages"].as_array().cloned().expect("messages")
}

#[test]
fn serve_says_when_it_is_ready_and_ends_in_order() {
    let folder = folder();
    let mut house = HouseProcess::start(folder.path(), "mar.example");
    let config = house.folder.join("verifica.toml");
    let config = config.to_str().expect("path");
    let second = verifica(folder.path(), &["serve", "--config", config, "--listen", "127.0.0.1:0"]);
    assert_eq!(second.code, 74, "one store, one house: {}", second.err);
    house.signal("TERM");
    assert_eq!(house.ended().code(), Some(0));

    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("port");
    let at = taken.local_addr().expect("address").to_string();
    let ran = verifica(folder.path(), &["serve", "--config", config, "--listen", &at]);
    assert_eq!(ran.code, 69, "{}", ran.err);
    assert!(ran.err.contains("another program listens there"), "{}", ran.err);

    let key = house.folder.join("domain.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).expect("mode");
    let ran = verifica(folder.path(), &["serve", "--config", config]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("chmod 600"), "{}", ran.err);
    assert_eq!(verifica(folder.path(), &["serve"]).code, 2, "no configuration");
}

#[test]
fn letters_are_sealed_opened_acknowledged_and_survive_a_kill() {
    let folder = folder();
    let mut house = HouseProcess::start(folder.path(), "mar.example");
    let (ana, leo) = (agent(&folder, &house, "anabel"), agent(&folder, &house, "leandro"));
    let again = verifica(folder.path(), &["agent", "join", "--as", &ana, "--json"]);
    assert_eq!((again.code, &again.json()["already"]), (0, &json!(true)), "{}", again.out);

    let sent = verifica(
        folder.path(),
        &["agent", "send", "leandro@mar.example", "--as", &ana, "--body", "hola", "--thread", "t-1", "--json"],
    );
    assert_eq!((sent.code, &sent.json()["sealed"]), (0, &json!(true)), "{}", sent.err);
    let mails = waiting(&folder, &leo, "10");
    assert_eq!(
        (&mails[0]["body"], &mails[0]["sealed"], &mails[0]["from"]),
        (&json!("hola"), &json!(true), &json!("anabel@mar.example"))
    );
    let id = mails[0]["id"].as_str().expect("id").to_owned();

    house.signal("KILL");
    assert!(!house.ended().success());
    let house = HouseProcess::serve(house.folder.clone());
    for file in [&ana, &leo] {
        let path = folder.path().join(file);
        let text = fs::read_to_string(&path).expect("identity");
        let mut doc: Value = serde_json::from_str(&text).expect("json");
        assert!(doc["house_key"].is_string(), "the key of the house is kept after the first visit");
        doc["house"] = house.url.as_str().into();
        fs::write(&path, doc.to_string()).expect("written");
    }
    assert_eq!(waiting(&folder, &leo, "1")[0]["id"], id.as_str());
    assert_eq!(verifica(folder.path(), &["agent", "ack", &id, "--as", &leo]).code, 0);
    assert_eq!(verifica(folder.path(), &["agent", "ack", &id, "--as", &leo]).code, 1, "it is not pending any more");

    let clear = verifica(
        folder.path(),
        &[
            "agent",
            "send",
            "leandro@mar.example",
            "--as",
            &ana,
            "--body",
            "1",
            "--media",
            "application/json",
            "--clear",
            "--json",
        ],
    );
    assert_eq!(clear.json()["sealed"], json!(false));
    assert_eq!(waiting(&folder, &leo, "10")[0]["body"], json!(1));
    let lost = verifica(folder.path(), &["agent", "send", "nobody@mar.example", "--as", &ana, "--body", "x"]);
    assert_eq!(lost.code, 5, "{}", lost.err);
    assert_eq!(verifica(folder.path(), &["agent", "send", "leandro@mar.example", "--as", &ana]).code, 2);

    let outbox = verifica(folder.path(), &["agent", "outbox", "--as", &ana]);
    assert!(outbox.out.contains("delivered") && outbox.out.contains("leandro@mar.example"), "{}", outbox.out);
    let directory = verifica(folder.path(), &["agent", "directory", "--house", &house.url]);
    assert!(
        directory.out.contains("anabel@mar.example") && directory.out.contains("verifica@mar.example"),
        "{}",
        directory.out
    );
    let card = verifica(folder.path(), &["agent", "card", "leandro@mar.example", "--as", &ana, "--json"]);
    write(&folder, "leo-card.json", &card.out);
    let checked = verifica(folder.path(), &["verify", "leo-card.json", "--house", &house.url]);
    assert_eq!(checked.code, 0, "{}", checked.out);
    let unknown = verifica(folder.path(), &["agent", "card", "nobody@mar.example", "--as", &ana, "--json"]);
    assert_eq!((unknown.code, &unknown.json()["rule"]), (5, &json!(301)), "{}", unknown.out);
}

#[test]
fn a_deal_goes_from_quote_to_receipt() {
    let folder = folder();
    let house = HouseProcess::start(folder.path(), "mar.example");
    let (seller, buyer) = (agent(&folder, &house, "taller"), agent(&folder, &house, "compras"));
    assert_eq!(topup(&folder, &house, "compras@mar.example", "1000").code, 0);
    let quote = [
        "libro",
        "quote",
        "compras@mar.example",
        "--price",
        "200",
        "--concept",
        "a thing",
        "--as",
        &seller,
        "--send",
        "-o",
        "quote.json",
    ];
    assert_eq!(verifica(folder.path(), &quote).code, 0);
    let letter = waiting(&folder, &buyer, "10")[0]["id"].as_str().expect("id").to_owned();
    let accepted = verifica(folder.path(), &["libro", "accept", &letter, "--as", &buyer, "--json"]);
    assert_eq!(accepted.code, 0, "{}", accepted.out);
    let contract = accepted.json()["receipt"]["contract"]["id"].as_str().expect("contract").to_owned();

    let twice = verifica(folder.path(), &["libro", "accept", "quote.json", "--as", &buyer, "--json"]);
    assert_eq!((twice.code, &twice.json()["code"]), (5, &json!(409)), "{}", twice.out);
    let not_his = verifica(folder.path(), &["libro", "deliver", &contract, "--as", &buyer]);
    assert_eq!(not_his.code, 5, "{}", not_his.err);
    let delivered = verifica(
        folder.path(),
        &["libro", "deliver", &contract, "--as", &seller, "--evidence", "quote.json", "--note", "done"],
    );
    assert_eq!(delivered.code, 0, "{}", delivered.err);
    let shown = verifica(folder.path(), &["libro", "contract", &contract, "--as", &buyer]);
    assert!(shown.out.contains("delivered") && shown.out.contains("taller@mar.example"), "{}", shown.out);
    let released = verifica(folder.path(), &["libro", "release", &contract, "--as", &buyer]);
    assert!(
        released.code == 0 && released.out.contains("fee 20 tok to casa@mar.example"),
        "{}{}",
        released.out,
        released.err
    );
    assert_eq!(verifica(folder.path(), &["libro", "refund", &contract, "--as", &seller]).code, 5);
    assert_eq!(verifica(folder.path(), &["libro", "pay", "taller@mar.example", "10", "--as", &buyer]).code, 0);
    for (file, balance) in [(&seller, "190\n"), (&buyer, "790\n")] {
        assert_eq!(verifica(folder.path(), &["libro", "balance", "-q", "--as", file]).out, balance);
    }
    let statement = verifica(folder.path(), &["libro", "statement", "--json", "--as", &seller]).json();
    assert_eq!((&statement["closing_balance"], &statement["reconciled"]), (&json!(190), &json!(true)));
    let csv = verifica(folder.path(), &["libro", "statement", "--csv", "--as", &seller]);
    assert!(csv.out.starts_with("date,entry,concept,counterparty,in,out,fee,balance\r\n"), "{}", csv.out);
    let poor = verifica(folder.path(), &["libro", "pay", "taller@mar.example", "100000", "--as", &buyer, "--json"]);
    assert_eq!((poor.code, &poor.json()["code"]), (5, &json!(402)), "{}", poor.out);

    write(&folder, "receipt.json", &accepted.json()["envelope"].to_string());
    assert_eq!(verifica(folder.path(), &["verify", "receipt.json", "--house", &house.url]).code, 0);
    assert!(
        waiting(&folder, &buyer, "0").iter().all(|mail| mail["in_reply_to"] != accepted.json()["id"]),
        "a shown receipt is handled"
    );
}

/// What a result says, without what differs from look to look.
fn claims(results: &Value) -> Vec<Value> {
    let one =
        |result: &Value| json!([result["prueba"], result["name"], result["pasa"], result["indeciso"], result["razon"]]);
    results.as_array().expect("results").iter().map(one).collect()
}

/// V62, V86, and the promise of `check`: the same tests in the same world get the same answer from the arbiter of a house
/// and from a dry run, test by test, outcome and reason.
#[test]
fn the_demonstration_pays_refunds_and_agrees_with_a_dry_run() {
    let folder = folder();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_verifica"));
    command.args(["demo", "--keep", "--json"]).env_clear().env("TMPDIR", folder.path()).current_dir(folder.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the demo");
    let mut line = String::new();
    let mut lines = std::io::BufReader::new(child.stdout.take().expect("stdout"));
    std::io::BufRead::read_line(&mut lines, &mut line).expect("a document");
    let doc: Value = serde_json::from_str(&line).expect("json");
    assert_eq!(doc["sum"], json!(0), "{doc}");
    assert_eq!(
        doc["balances"],
        json!({"casa@mar.example": -980, "compras@mar.example": 800, "taller@mar.example": 180})
    );
    let at = doc["folder"].as_str().expect("folder");
    let (buyer, config) = (format!("{at}/compras.json"), format!("{at}/verifica.toml"));
    for (n, (op, code)) in [("release", 0), ("refund", 1)].into_iter().enumerate() {
        let settled = &doc["settled"][n];
        assert_eq!(settled["op"], op);
        let id = settled["contract"].as_str().expect("contract");
        let contract = verifica(folder.path(), &["libro", "contract", id, "--as", &buyer, "--json"]);
        assert_eq!(contract.code, 0, "{}", contract.out);
        write(&folder, "contract.json", &contract.out);
        let dry = verifica(folder.path(), &["check", "contract.json", "--config", &config, "--once", "--json"]);
        assert_eq!(dry.code, code, "{}", dry.out);
        assert_eq!(claims(&dry.json()["resultados"]), claims(&settled["verdict"]["resultados"]));
        assert_eq!(dry.json()["razon"], settled["verdict"]["razon"]);
        assert_eq!(dry.json()["policy"], settled["verdict"]["policy"]);
        assert_eq!(dry.json()["would_settle"]["op"], op);

        write(&folder, "receipt.json", &settled["receipt"].to_string());
        let house = doc["house"].as_str().expect("house");
        for file in ["contract.json", "receipt.json"] {
            let valid = verifica(folder.path(), &["verify", file, "--house", house]);
            assert_eq!(valid.code, 0, "{file}: {}", valid.out);
        }
    }
    let stopped = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    assert!(stopped.success());
    assert_eq!(child.wait().expect("ends").code(), Some(0));

    let mut plain = program(folder.path(), &["demo", "--json"]);
    plain.env("TMPDIR", folder.path());
    assert_eq!(ran_by(plain).code, 0);
    let left = fs::read_dir(folder.path())
        .expect("folder")
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with("verifica-demo-"));
    assert_eq!(left.count(), 1, "only the kept one stays");
}
