//! Subagents, cards, keys and the operator's own commands, through the program only.

use super::flows::agent;
use super::house::HouseProcess;
use super::{folder, verifica};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use verifica::wire::SigningKey;

#[test]
fn an_agent_makes_bounds_lists_and_ends_a_subagent() {
    let folder = folder();
    let house = HouseProcess::start(folder.path(), "mar.example");
    let mike = agent(&folder, &house, "mike");
    agent(&folder, &house, "otra");
    let run = |args: &[&str]| verifica(folder.path(), args);
    let made = run(&[
        "agent",
        "delegate",
        "bot",
        "--as",
        &mike,
        "--out",
        "bot.json",
        "--type",
        "message",
        "--to-domain",
        "mar.example",
        "--cap",
        "5",
        "--json",
    ]);
    assert_eq!(made.code, 0, "{} {}", made.out, made.err);
    assert_eq!(made.json()["address"], "bot.mike@mar.example");
    let mode = std::fs::metadata(folder.path().join("bot.json")).expect("identity").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let sent = run(&["agent", "send", "--as", "bot.json", "otra@mar.example", "--body", "hola"]);
    assert_eq!(sent.code, 0, "{}", sent.err);
    let over = run(&["agent", "send", "--as", "bot.json", "otra@mar.example", "--body", "hola", "--type", "task"]);
    assert_eq!(over.code, 5, "{}", over.err);
    let again =
        run(&["agent", "delegate", "libro", "--as", &mike, "--out", "x.json", "--until", "2020-01-01T00:00:00Z"]);
    assert_eq!(again.code, 5, "{}", again.err);
    assert!(!folder.path().join("x.json").exists(), "a refused subagent leaves no identity behind");

    let listed = run(&["agent", "delegations", "--as", &mike, "--json"]).json();
    let scope = &listed["delegations"][0]["scope"];
    assert_eq!(scope, &json!({"types": ["message"], "to_domains": ["mar.example"], "cap": 5}));
    assert_eq!(run(&["agent", "revoke", "bot.mike@mar.example", "--as", &mike]).code, 0);
    let again = run(&["agent", "revoke", "bot.mike@mar.example", "--as", &mike, "--json"]);
    assert_eq!((again.code, &again.json()["already"]), (0, &json!(true)));
    let shown = run(&["agent", "delegations", "--as", &mike]);
    assert!(shown.out.contains("bot.mike@mar.example\trevoked "), "{}", shown.out);
    assert_ne!(run(&["agent", "inbox", "--as", "bot.json"]).code, 0);
}

/// Incident 37: a client adopted new keys before the house had them, and locked itself out.
#[test]
fn a_card_changes_in_what_was_named_and_a_key_is_replaced_in_one_step() {
    let folder = folder();
    let house = HouseProcess::start(folder.path(), "mar.example");
    let mike = agent(&folder, &house, "mike");
    let run = |args: &[&str]| verifica(folder.path(), args);
    let profile = json!({"display_name": "Mike", "summary": "a seller"});
    std::fs::write(folder.path().join("profile.json"), profile.to_string()).expect("write");
    let set = run(&["agent", "profile", "--as", &mike, "--set", "profile.json", "--json"]);
    assert_eq!((set.code, &set.json()["profile"]["summary"]), (0, &json!("a seller")), "{}", set.err);
    let changed = run(&[
        "agent",
        "update",
        "--as",
        &mike,
        "--inbox",
        r#"{"policy":"stamp","price":5}"#,
        "--capabilities",
        r#"{"presence":true}"#,
        "--json",
    ]);
    assert_eq!(changed.code, 0, "{}", changed.err);
    let card = changed.json();
    assert_eq!((&card["inbox"]["price"], &card["capabilities"]["presence"]), (&json!(5), &json!(true)));
    assert_eq!((&card["profile"]["summary"], &card["visibility"]), (&json!("a seller"), &json!("public")));
    assert_eq!(run(&["agent", "update", "--as", &mike]).code, 2, "nothing to change");

    let before = std::fs::read_to_string(folder.path().join(&mike)).expect("identity");
    let rotated = run(&["agent", "rotate", "--as", &mike, "--json"]);
    assert_eq!(rotated.code, 0, "{} {}", rotated.out, rotated.err);
    let after: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join(&mike)).expect("identity")).expect("json");
    assert_ne!(before, after.to_string());
    let card = run(&["agent", "card", "--as", &mike, "--json"]).json();
    assert_eq!(card["sig"], rotated.json()["sig"]);
    assert_eq!(card["previous"].as_array().map(Vec::len), Some(1), "the old key has its grace");
    assert_eq!(card["inbox"]["price"], 5, "and everything else stays");
    assert!(!folder.path().join(format!("{mike}.next")).exists());

    // The house took the new key and its answer was lost: the new identity is beside the old one, and is adopted.
    std::fs::write(folder.path().join("lost.json"), &before).expect("write");
    let kept = std::fs::read(folder.path().join(&mike)).expect("identity");
    std::fs::write(folder.path().join("lost.json.next"), kept).expect("write");
    for file in ["lost.json", "lost.json.next"] {
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(folder.path().join(file), private).expect("mode");
    }
    let adopted = run(&["agent", "rotate", "--as", "lost.json"]);
    assert_eq!(adopted.code, 0, "{}", adopted.err);
    assert_eq!(run(&["agent", "inbox", "--as", "lost.json"]).code, 0);
    let gone = run(&["agent", "profile", "--as", &mike, "--delete", "--json"]);
    assert_eq!((gone.code, &gone.json()["profile"]), (0, &Value::Null));
}

#[test]
fn the_operator_invites_confirms_keys_and_changes_the_houses_own() {
    let folder = folder();
    let mut house = HouseProcess::start(folder.path(), "mar.example");
    let token = house.folder.join("admin.token");
    let token = token.to_str().expect("path").to_owned();
    let config = house.folder.join("verifica.toml");
    let config = config.to_str().expect("path").to_owned();
    let url = house.url.clone();
    let ask = |args: &[&str]| {
        let mut all = vec!["house"];
        all.extend(args);
        all.extend(["--house", &url, "--admin-token-file", &token]);
        verifica(folder.path(), &all)
    };
    let invited = ask(&["invite", "--uses", "2", "--note", "friends", "--json"]);
    assert_eq!(invited.code, 0, "{}", invited.err);
    let code = invited.json()["code"].as_str().expect("code").to_owned();
    assert!(ask(&["invitations"]).out.contains(&format!("{code}\t0/2")));
    let key = SigningKey::from_seed([3; 32]).public().kid();
    let confirmed = ask(&["confirm", "rio.example", "--key", &key, "--json"]);
    assert_eq!((confirmed.code, &confirmed.json()["key"]), (0, &json!(key)), "{}", confirmed.err);
    assert_eq!(ask(&["pins", "--json"]).json()["pins"][0]["domain"], "rio.example");
    assert_eq!(ask(&["confirm", "rio.example", "--key", "AAAA"]).code, 2);
    assert_eq!(ask(&["revoke", "bot.mike@mar.example"]).code, 5, "there is none");

    house.signal("TERM");
    house.ended();
    let rotate = |more: &[&str]| {
        let mut all = vec!["house", "rotate-key", "--config", &config, "--json"];
        all.extend(more);
        verifica(folder.path(), &all)
    };
    let begun = rotate(&[]);
    assert_eq!((begun.code, &begun.json()["state"]), (0, &json!("begun")), "{}", begun.err);
    let (new, old) = (begun.json()["key"].clone(), begun.json()["old"].clone());
    assert_eq!(rotate(&[]).code, 5, "one change at a time");
    let card = |house: &HouseProcess| {
        let at = house.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(at).expect("connect");
        let request = "GET /.well-known/nyx5.json HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let body = answer.split("\r\n\r\n").nth(1).expect("body").to_owned();
        serde_json::from_str::<Value>(&body).expect("json")
    };
    let mut house = HouseProcess::serve(house.folder.clone());
    let during = card(&house);
    assert_eq!((&during["keys"][0]["sig"], &during["keys"][1]["sig"]), (&new, &old));
    assert_eq!(during["signature"]["kid"], old);
    house.signal("TERM");
    house.ended();
    assert_eq!(rotate(&["--finish"]).code, 5, "not within a week");
    assert_eq!(rotate(&["--finish", "--now"]).json()["state"], "finished");
    assert_eq!(rotate(&["--finish"]).code, 2, "nothing is under way");
    let house = HouseProcess::serve(house.folder.clone());
    let after = card(&house);
    assert_eq!((&after["signature"]["kid"], after["keys"].as_array().map(Vec::len)), (&new, Some(1)));
    drop(house);
    let replaced = rotate(&["--compromised"]);
    assert_eq!((&replaced.json()["state"], &replaced.json()["old"]), (&json!("replaced"), &Value::Null));
}
