//! Files that go with letters, through the program only.

use super::flows::agent;
use super::house::HouseProcess;
use super::{folder, verifica};
use serde_json::{Value, json};
use std::fs;

#[test]
fn a_file_is_sent_listed_fetched_checked_and_taken_back() {
    let folder = folder();
    let house = HouseProcess::start(folder.path(), "mar.example");
    let (ana, leo) = (agent(&folder, &house, "anabel"), agent(&folder, &house, "leandro"));
    let run = |args: &[&str]| verifica(folder.path(), args);
    let report: Vec<u8> = (0..200_000u32).map(|i| (i * 13) as u8).collect();
    fs::write(folder.path().join("report.pdf"), &report).expect("file");
    fs::write(folder.path().join("note.txt"), "a note").expect("file");
    let to = "leandro@mar.example";
    let sent = run(&["agent", "send", to, "--as", &ana, "--attach", "report.pdf", "--attach", "note.txt", "--json"]);
    assert_eq!(sent.code, 0, "{}", sent.err);
    assert_eq!(sent.json()["sealed"], true);
    let id = sent.json()["id"].as_str().expect("id").to_owned();
    let waited = run(&["agent", "inbox", "--as", &leo, "--wait", "20", "--json"]).json()["messages"][0].clone();
    assert_eq!(
        (&waited["attachments"][0]["name"], &waited["attachments"][1]["bytes"]),
        (&json!("report.pdf"), &json!(6))
    );
    assert!(waited["attachments"][0]["key"].is_null());
    let shown = run(&["agent", "inbox", "--as", &leo]).out;
    assert!(shown.contains("file report.pdf, 200000 bytes"), "{shown}");
    let listed = run(&["agent", "attachment", "list", &id, "--as", &leo]).out;
    let blob = listed.lines().next().and_then(|line| line.rsplit('\t').next()).expect("blob").to_owned();
    assert!(listed.starts_with("report.pdf\t200000\t") && listed.contains("\nnote.txt\t6\t"), "{listed}");

    let unclear = run(&["agent", "attachment", "get", &id, "--as", &leo]);
    assert_eq!(unclear.code, 2, "{}", unclear.err);
    let there = run(&["agent", "attachment", "get", &id, "--as", &leo, "--name", "report.pdf"]);
    assert_eq!(there.code, 2, "nothing that is there is replaced: {}", there.err);
    let got = ["agent", "attachment", "get", &id, "--as", &leo, "--name", "report.pdf", "--out", "got.pdf", "--json"];
    let got = run(&got);
    assert_eq!(got.code, 0, "{}", got.err);
    assert_eq!(got.json()["sha256"], verifica::wire::Sha256::of(&report).hex());
    assert_eq!(fs::read(folder.path().join("got.pdf")).expect("got"), report);
    let text = run(&["agent", "attachment", "get", &id, "--as", &leo, "--name", "note.txt", "--out", "-"]);
    assert_eq!((text.code, text.out.as_str()), (0, "a note"));

    // Handled, it is found in the conversation; of another letter, nothing.
    assert_eq!(run(&["agent", "ack", &id, "--as", &leo]).code, 0);
    let again = ["agent", "attachment", "list", &id, "--as", &leo, "--with", "anabel@mar.example", "--json"];
    let again: Value = run(&again).json();
    assert_eq!(again["attachments"][1]["name"], "note.txt");
    assert_eq!(run(&["agent", "attachment", "list", "unknown-letter", "--as", &leo]).code, 5);

    assert_eq!(run(&["agent", "attachment", "remove", &blob, "--as", &leo]).code, 5, "it is its sender's");
    assert_eq!(run(&["agent", "attachment", "remove", &blob, "--as", &ana]).code, 0);
    let gone =
        ["agent", "attachment", "get", &id, "--as", &leo, "--with", "anabel@mar.example", "--name", "report.pdf"];
    let gone = run(&[&gone[..], &["--out", "again.pdf"]].concat());
    assert_eq!(gone.code, 5, "{}", gone.err);
    assert!(gone.err.contains("no such attachment"), "{}", gone.err);
    assert!(!folder.path().join("again.pdf").exists());
}
