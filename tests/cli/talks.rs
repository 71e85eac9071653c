//! Conversations, groups, presence and events, through the program only.

use super::flows::agent;
use super::house::HouseProcess;
use super::{folder, verifica};
use serde_json::{Value, json};
use tempfile::TempDir;

fn json_of(folder: &TempDir, args: &[&str]) -> Value {
    let mut args = args.to_vec();
    args.push("--json");
    let ran = verifica(folder.path(), &args);
    assert_eq!(ran.code, 0, "{args:?}: {} {}", ran.out, ran.err);
    ran.json()
}

fn text_of(folder: &TempDir, args: &[&str]) -> String {
    let ran = verifica(folder.path(), args);
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
    ran.out
}

#[test]
fn a_group_talks_and_its_letters_are_read_by_conversation_and_project() {
    let folder = folder();
    let house = HouseProcess::start(folder.path(), "mar.example");
    let (ana, leo) = (agent(&folder, &house, "anabel"), agent(&folder, &house, "leandro"));
    let (leo_at, group) = ("leandro@mar.example", "g.crew@mar.example");
    let made = json_of(&folder, &["agent", "group", "create", "crew", leo_at, "--as", &ana]);
    assert_eq!((made["address"].clone(), made["schema"].clone()), (json!(group), json!("verifica.group/1")));
    let shown = text_of(&folder, &["agent", "group", "show", group, "--as", &leo]);
    assert_eq!(shown, "g.crew@mar.example\nadmin   anabel@mar.example\nmember  leandro@mar.example\n");

    let labels = ["--project", "Nyx 5", "--role", "seller", "--summary", "the first\nline"];
    let mut send = vec!["agent", "send", group, "--as", &ana, "--body", "hola", "--sealed"];
    send.extend(labels);
    let sent = json_of(&folder, &send);
    assert_eq!(sent["sealed"], true);
    let waited = json_of(&folder, &["agent", "inbox", "--as", &leo, "--wait", "10", "--project", "NYX 5"])["messages"]
        [0]
    .clone();
    assert_eq!(
        (waited["body"].clone(), waited["project"].clone(), waited["summary"].clone()),
        (json!("hola"), json!("nyx 5"), json!("the first line"))
    );
    let seen = text_of(&folder, &["agent", "inbox", "--as", &leo]);
    assert!(seen.contains("project nyx 5") && seen.contains("unchecked): the first line"), "{seen}");
    let none = json_of(&folder, &["agent", "inbox", "--as", &leo, "--project", "other"]);
    assert_eq!(none["messages"], json!([]));

    let list = json_of(&folder, &["agent", "conversations", "--as", &leo])["conversations"].clone();
    assert_eq!((list[0]["with"].clone(), list[0]["pending_by_project"].clone()), (json!(group), json!({"nyx 5": 1})));
    let line = text_of(&folder, &["agent", "conversations", "--as", &leo]);
    assert!(line.starts_with("g.crew@mar.example\t1\t1\t") && line.ends_with("\tnyx 5\n"), "{line}");
    for (who, state) in [(&ana, "delivered"), (&leo, "waits")] {
        let said = json_of(&folder, &["agent", "conversation", group, "--as", who, "--project", "nyx 5"]);
        assert_eq!(said["messages"][0]["body"], "hola", "both ends open it: {said}");
        let said = text_of(&folder, &["agent", "conversation", group, "--as", who]);
        assert!(said.contains(state) && said.contains("    hola\n"), "{said}");
    }
    // Incident 33: an answer without a thread broke its conversation.
    let asked = json_of(&folder, &["agent", "send", leo_at, "--as", &ana, "--body", "?", "--thread", "t-9"]);
    let id = asked["id"].as_str().expect("id");
    json_of(&folder, &["agent", "inbox", "--as", &leo, "--wait", "10", "--thread", "t-9"]);
    let back = ["agent", "send", "anabel@mar.example", "--as", &leo, "--body", "!", "--reply-to", id];
    json_of(&folder, &back);
    let answer =
        json_of(&folder, &["agent", "inbox", "--as", &ana, "--wait", "10", "--thread", "t-9"])["messages"][0].clone();
    assert_eq!((answer["in_reply_to"].clone(), answer["thread"].clone()), (json!(id), json!("t-9")));
    for bad in [["--project", "\u{200b}"], ["--summary", "\n"], ["--project", "__proto__"]] {
        let ran = verifica(folder.path(), &["agent", "send", leo_at, "--as", &ana, "--body", "x", bad[0], bad[1]]);
        assert_eq!(ran.code, 2, "{bad:?}: a label of which nothing is left is not sent: {}", ran.err);
    }
    let ran = verifica(folder.path(), &["agent", "group", "add", group, leo_at, "--as", &leo]);
    assert_eq!(ran.code, 5, "only an admin adds: {}", ran.err);
    json_of(&folder, &["agent", "group", "leave", group, "--as", &leo]);
    let left = json_of(&folder, &["agent", "group", "show", group, "--as", &ana]);
    assert_eq!(left["group"]["members"], json!(["anabel@mar.example"]));
}

#[test]
fn presence_cards_and_events_are_shown() {
    let folder = folder();
    let house = HouseProcess::start(folder.path(), "mar.example");
    let ana = agent(&folder, &house, "anabel");
    let token = house.folder.join("admin.token");
    let token = token.to_str().expect("path");
    let made = verifica(
        folder.path(),
        &["agent", "new", "leandro@mar.example", "--house", &house.url, "--as", "leandro.json"],
    );
    assert_eq!(made.code, 0, "{}", made.err);
    let join = ["agent", "join", "--as", "leandro.json", "--admin-token-file", token, "--presence", "--read-receipts"];
    assert_eq!(verifica(folder.path(), &join).code, 0);
    let ask = ["agent", "presence", "leandro@mar.example", "--as", &ana];
    assert_eq!(text_of(&folder, &ask), "not known\n");
    text_of(&folder, &["agent", "inbox", "--as", "leandro.json"]);
    assert!(json_of(&folder, &ask)["last_seen"].is_string());
    assert!(text_of(&folder, &ask).contains(":00:00"));
    let card = text_of(&folder, &["agent", "resolve", "leandro@mar.example", "--as", &ana]);
    assert!(card.contains("last seen") && card.contains(":00:00"), "{card}");
    let card = json_of(&folder, &["agent", "resolve", "leandro@mar.example", "--as", &ana]);
    assert_eq!(card["capabilities"]["read_receipts"], true);
    let events = ["agent", "events", "--house", &house.url, "--admin-token-file", token, "--name", "join"];
    assert_eq!(json_of(&folder, &events)["conteo"], json!({"join": 2}));
    assert_eq!(text_of(&folder, &events).lines().count(), 2);
    let inside = ["agent", "join", "--as", "leandro.json", "--webhook", "https://127.0.0.1/x", "--invite", "x"];
    let ran = verifica(folder.path(), &inside);
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(ran.err.contains("webhook"), "{}", ran.err);
}
