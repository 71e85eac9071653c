//! The program as a person or a script meets it: the real binary, its output, its files and its codes.

#[path = "cli/checks.rs"]
mod checks;
#[path = "attest/facts.rs"]
#[allow(dead_code)]
mod facts;
#[path = "cli/files.rs"]
mod files;
#[path = "cli/flows.rs"]
mod flows;
#[path = "cli/house.rs"]
mod house;
#[path = "cli/lost.rs"]
mod lost;
#[path = "cli/people.rs"]
mod people;
#[path = "cli/site.rs"]
mod site;
#[path = "cli/talks.rs"]
mod talks;

use assert_cmd::Command;
use house::HouseProcess;
use serde_json::{Value, json};
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
    // What the build says it can run is what the self-test of this machine says.
    let doctor = verifica(folder.path(), &["doctor", "--offline", "--json"]).json();
    let lines = doctor["items"].as_array().cloned().unwrap_or_default();
    let proof = lines.iter().find(|line| line["name"] == "sandbox").expect("the line about jobs");
    let offered = long["tests"].as_str().expect("tests").split(' ').any(|name| name == "exit_0");
    assert_eq!(offered, proof["level"] == "ok", "{doctor}");
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

/// What the configuration names by file is looked at before anything listens: the failure names the file and how to mend
/// it, and nothing is left running.
#[test]
fn files_that_a_configuration_names_are_read_before_the_house_opens() {
    let folder = folder();
    let house = HouseProcess::init(folder.path(), "mar.example");
    let pair = rcgen::generate_simple_self_signed(vec!["mar.example".to_owned()]).expect("certificate");
    let other = rcgen::generate_simple_self_signed(vec!["mar.example".to_owned()]).expect("certificate");
    let files = [
        ("cert.pem", pair.cert.pem(), 0o644),
        ("key.pem", pair.signing_key.serialize_pem(), 0o640),
        ("open.pem", pair.signing_key.serialize_pem(), 0o644),
        ("other.pem", other.signing_key.serialize_pem(), 0o600),
        ("text.pem", "no certificate".to_owned(), 0o644),
    ];
    for (name, text, mode) in &files {
        fs::write(house.join(name), text).expect("written");
        fs::set_permissions(house.join(name), fs::Permissions::from_mode(*mode)).expect("mode");
    }
    let cases: [(&str, &[&str]); 11] = [
        ("[tls]\ncert = \"gone.pem\"\nkey = \"key.pem\"", &["the certificate of [tls]", "gone.pem", "no such file"]),
        ("[tls]\ncert = \"cert.pem\"\nkey = \"gone.pem\"", &["the key of [tls]", "gone.pem", "no such file"]),
        ("[tls]\ncert = \"text.pem\"\nkey = \"key.pem\"", &["certificate of [tls]", "text.pem", "no certificate"]),
        ("[tls]\ncert = \"cert.pem\"\nkey = \"text.pem\"", &["mode is 0644", "text.pem", "chmod 600"]),
        ("[tls]\ncert = \"cert.pem\"\nkey = \"open.pem\"", &["mode is 0644", "open.pem", "chmod 600"]),
        ("[tls]\ncert = \"cert.pem\"\nkey = \"other.pem\"", &["the key of [tls]", "other.pem", "do not make a pair"]),
        ("[probe]\nextra_ca = [\"gone.pem\"]", &["probe.extra_ca", "gone.pem", "no such file"]),
        ("[probe]\nextra_ca = [\"cert.pem\", \"text.pem\"]", &["probe.extra_ca", "text.pem", "no certificate"]),
        ("[arbiter]\npolicy = \"./gone.toml\"", &["the policy cannot be read", "gone.toml", "no such file"]),
        ("[arbiter]\njob_policy = \"./gone.toml\"", &["the policy cannot be read", "gone.toml", "no such file"]),
        ("[arbiter]\npolicy = \"./text.pem\"", &["the policy cannot be used", "text.pem"]),
    ];
    for (section, parts) in cases {
        let text = format!("domain = \"mar.example\"\nlisten = \"127.0.0.1:0\"\n{section}\n");
        fs::write(house.join("other.toml"), text).expect("written");
        let ran = verifica(&house, &["serve", "--config", "other.toml"]);
        assert_eq!(ran.code, 2, "{section}: {}", ran.err);
        for part in parts {
            assert!(ran.err.contains(part), "{section}: {part}: {}", ran.err);
        }
    }
    for (key, hint) in [("domain_key_file", "domain_key_file"), ("admin_token_file", "admin_token_file")] {
        let text = format!("domain = \"mar.example\"\nlisten = \"127.0.0.1:0\"\n{key} = \"gone\"\n");
        fs::write(house.join("other.toml"), text).expect("written");
        let ran = verifica(&house, &["serve", "--config", "other.toml"]);
        assert_eq!(ran.code, 2, "{key}: {}", ran.err);
        assert!(ran.err.contains(&format!("hint: {hint} in the configuration")), "{key}: {}", ran.err);
    }
    let mut spoilt = program(&house, &["serve"]);
    spoilt.env("VERIFICA_LIBRO__FEE_BPS", <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"5\xff"));
    let told = ran_by(spoilt);
    assert_eq!(told.code, 2, "a value that is not text is a fault: {}", told.err);
    assert!(told.err.contains("VERIFICA_LIBRO__FEE_BPS"), "{}", told.err);
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
    // A key's text may begin with a hyphen, and is then still a key and no flag.
    let hyphen = format!("-{}", &kid[1..]);
    let wrong = verifica(folder.path(), &["verify", "quote.json", "--key", &hyphen]);
    assert!(!wrong.err.contains("unexpected argument"), "{}", wrong.err);
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
fn a_wrong_call_is_answered_in_json_when_json_was_asked_for() {
    let folder = folder();
    let ran = verifica(folder.path(), &["libro", "pay", "ana", "5", "--json"]);
    let failure = ran.json();
    assert_eq!((ran.code, ran.err.as_str(), &failure["schema"]), (2, "", &json!("verifica.error/1")));
    assert_eq!(failure["exit"], 2);
    assert!(
        failure["what"].as_str().is_some_and(|what| what.contains("ana") && !what.starts_with("error")),
        "{failure}"
    );
    assert_eq!(verifica(folder.path(), &["check", "--", "--json"]).out, "", "what follows -- is no flag");
}

#[test]
fn a_number_that_nobody_may_sign_is_not_signed() {
    let folder = folder();
    verifica(folder.path(), &["agent", "new", "ana@mar.example", "--house", "http://127.0.0.1:9", "--as", "ana.json"]);
    let test = r#"[{"type": "json_path", "url": "https://a.example/", "path": "$.a", "expect": 0.5}]"#;
    write(&folder, "tests.json", test);
    let quote = ["libro", "quote", "leo@mar.example", "--price", "5", "--verify", "tests.json", "--as", "ana.json"];
    let ran = verifica(folder.path(), &quote);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    assert!(ran.err.contains("terms/verify/0/expect") && ran.err.contains("0.5"), "{}", ran.err);
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

#[test]
fn the_operators_token_never_crosses_an_open_network() {
    let folder = folder();
    write(&folder, "admin.token", "a-token-of-some-length\n");
    fs::set_permissions(folder.path().join("admin.token"), fs::Permissions::from_mode(0o600)).expect("mode");
    let topup = [
        "libro",
        "topup",
        "ana@mar.example",
        "5",
        "--admin-token-file",
        "admin.token",
        "--house",
        "http://mar.example",
    ];
    let ran = verifica(folder.path(), &topup);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("in clear") && ran.err.contains("https"), "{}", ran.err);
}

#[test]
fn attestations_verify_and_travel_as_dsse() {
    let folder = folder();
    let attestation = facts::whole();
    let kid = facts::key().public().kid();
    write(&folder, "seen.json", &json!({"attestations": [attestation.doc()]}).to_string());
    let valid = verifica(folder.path(), &["verify", "seen.json", "--key", &kid]);
    assert!(valid.code == 0 && valid.out.contains("VALID  attestation"), "{}{}", valid.out, valid.err);
    let handed = verifica(folder.path(), &["verify", "seen.json", "--key", &kid, "--format", "dsse"]);
    assert_eq!(handed.json()["payloadType"], "application/vnd.in-toto+json");
    write(&folder, "dsse.json", &handed.out);
    assert_eq!(verifica(folder.path(), &["verify", "dsse.json", "--key", &kid]).code, 0);
    assert_eq!(verifica(folder.path(), &["verify", "dsse.json"]).code, 3, "a keyid establishes nobody");
    let other = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    assert_eq!(verifica(folder.path(), &["verify", "dsse.json", "--key", other]).code, 1);
    write(&folder, "forged.json", &attestation.doc().to_string().replace("\"code\":0", "\"code\":1"));
    assert_eq!(verifica(folder.path(), &["verify", "forged.json", "--key", &kid]).code, 1);
    assert_eq!(verifica(folder.path(), &["verify", "forged.json", "--format", "dsse"]).code, 1, "nothing is handed on");
}
