//! `verifica doctor` and `verifica policy` as a person or a script meets them: each protection by name, the house as it
//! is on the disk and as others find it, and codes that say whether anything must be mended.

use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use verifica::sandbox::JobPolicy;

struct Ran {
    code: i32,
    out: String,
    err: String,
}

fn verifica(folder: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verifica"));
    let output = command.current_dir(folder).args(args).env_clear().env("HOME", folder).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

fn items(ran: &Ran) -> Vec<(String, String, String)> {
    let doc: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err));
    assert_eq!(doc["schema"], "verifica.doctor/1");
    let text = |item: &Value, name: &str| item[name].as_str().expect("text").to_owned();
    let list = doc["items"].as_array().expect("items").iter();
    let list: Vec<_> = list.map(|item| (text(item, "name"), text(item, "level"), text(item, "seen"))).collect();
    let failures = list.iter().filter(|(_, level, _)| level == "fail").count();
    assert_eq!(doc["failures"], failures);
    assert_eq!(ran.code, i32::from(failures > 0), "{}", ran.out);
    list
}

fn level<'a>(items: &'a [(String, String, String)], name: &str) -> (&'a str, &'a str) {
    let found = items.iter().find(|(known, _, _)| known == name);
    let (_, level, seen) = found.unwrap_or_else(|| panic!("{name} is not among {items:?}"));
    (level, seen)
}

#[test]
fn a_machine_without_a_house_shows_each_protection_of_the_sandbox() {
    let folder = tempfile::tempdir().expect("folder");
    for policy in JobPolicy::names() {
        let ran = verifica(folder.path(), &["doctor", "--offline", "--json", "--policy", policy]);
        let items = items(&ran);
        assert_eq!(level(&items, "house").0, "warn");
        let required = JobPolicy::named(policy).expect("policy").required;
        let missing: Vec<&String> = required.iter().filter(|name| level(&items, name).0 != "ok").collect();
        assert_eq!(level(&items, "sandbox").0 == "ok", missing.is_empty(), "{policy}: {missing:?}");
        assert!(items.iter().all(|(name, _, seen)| !name.is_empty() && !seen.is_empty()));
    }
    let plain = verifica(folder.path(), &["doctor", "--offline"]);
    assert!(
        plain.out.contains("landlock") && plain.out.lines().last().is_some_and(|line| line.contains(" ok, ")),
        "{}",
        plain.out
    );
    let unknown = verifica(folder.path(), &["doctor", "--policy", "lax"]);
    assert!(unknown.code == 2 && unknown.err.contains("known: "), "{}", unknown.err);
}

#[test]
fn a_house_is_looked_at_on_the_disk_and_from_outside() {
    let folder = tempfile::tempdir().expect("folder");
    let made = verifica(folder.path(), &["init", "--domain", "mar.example", "--dir", "."]);
    assert_eq!(made.code, 0, "{}", made.err);
    let config = folder.path().join("verifica.toml");
    let text = fs::read_to_string(&config).expect("config");
    let lines = text.lines().filter(|line| !line.starts_with("public_url"));
    let local = format!("public_url = \"http://127.0.0.1:1\"\n{}\n", lines.collect::<Vec<_>>().join("\n"));
    fs::write(&config, local).expect("written");

    let offline = items(&verifica(folder.path(), &["doctor", "--offline", "--json"]));
    assert_eq!(level(&offline, "domain key").0, "ok");
    assert_eq!(level(&offline, "admin token").0, "ok");
    let (found, seen) = level(&offline, "store");
    assert!(found == "ok" && seen.contains("wal"), "{seen}");
    assert!(offline.iter().all(|(name, _, _)| name != "discovery"));

    let outside = items(&verifica(folder.path(), &["doctor", "--json"]));
    let (found, seen) = level(&outside, "discovery");
    assert!(found == "fail" && seen.starts_with("http://127.0.0.1:1/.well-known/nyx5.json: "), "{seen}");

    fs::set_permissions(folder.path().join("domain.key"), fs::Permissions::from_mode(0o644)).expect("mode");
    fs::write(folder.path().join("data/house.db"), "this is no database, and must be said to be none")
        .expect("written");
    let _ = fs::remove_file(folder.path().join("data/house.db-wal"));
    let broken = items(&verifica(folder.path(), &["doctor", "--offline", "--json"]));
    let (found, seen) = level(&broken, "domain key");
    assert!(found == "fail" && seen.contains("0644"), "{seen}");
    assert_eq!(level(&broken, "store").0, "fail");
    let shown = verifica(folder.path(), &["doctor", "--offline"]);
    assert!(shown.code == 1 && shown.out.contains("hint: chmod 600 "), "{}", shown.out);
}

#[test]
fn policies_are_shown_with_their_reasons_and_files_of_rules_are_checked() {
    let folder = tempfile::tempdir().expect("folder");
    let list = verifica(folder.path(), &["policy", "show"]);
    for name in JobPolicy::names() {
        assert!(list.out.contains(name), "{}", list.out);
        let shown = verifica(folder.path(), &["policy", "show", name]);
        assert!(shown.code == 0 && shown.out.contains("why = "), "{}", shown.err);
        fs::write(folder.path().join("mine.toml"), &shown.out).expect("written");
        let valid = verifica(folder.path(), &["policy", "validate", "mine.toml"]);
        assert!(
            valid.code == 0 && valid.out.starts_with(&format!("valid  {name}, a policy for jobs")),
            "{}",
            valid.err
        );
        let hash = JobPolicy::named(name).expect("policy").sha256().hex();
        assert!(valid.out.contains(&hash), "{}", valid.out);
    }
    let network = include_str!("../policies/default.toml");
    fs::write(folder.path().join("network.toml"), network).expect("written");
    let valid = verifica(folder.path(), &["policy", "validate", "network.toml", "--json"]);
    let valid: Value = serde_json::from_str(&valid.out).expect("json");
    assert_eq!((&valid["valid"], &valid["for"]), (&Value::Bool(true), &Value::from("network tests")));

    let strict = JobPolicy::source("strict").expect("ships");
    for (what, broken) in [
        ("unknown rule", format!("{strict}\n[network]\nvalue = true\nwhy = \"no\"\n")),
        ("no schema", strict.replacen("schema", "scheme", 1)),
        ("not TOML", "[".to_owned()),
    ] {
        fs::write(folder.path().join("broken.toml"), broken).expect("written");
        let ran = verifica(folder.path(), &["policy", "validate", "broken.toml"]);
        assert!(ran.code == 2 && ran.err.contains("the policy cannot be used"), "{what}: {}{}", ran.out, ran.err);
    }
    let near = verifica(folder.path(), &["policy", "show", "strickt"]);
    assert!(near.code == 2 && near.err.contains("did you mean strict"), "{}", near.err);
}
