//! A house, its agents and their money, through the program only.

use super::house::HouseProcess;
use super::{Ran, folder, program, ran_by, verifica, write};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use tempfile::TempDir;

/// An agent of this house with its identity in a file; answers the name of the file.
pub fn agent(folder: &TempDir, house: &HouseProcess, name: &str) -> String {
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

/// Asks until a letter of this thread with this body waits.
fn waits_in(folder: &TempDir, file: &str, thread: &str, body: &str) -> bool {
    for _ in 0..100 {
        let ran = verifica(folder.path(), &["agent", "inbox", "--as", file, "--thread", thread, "--json"]);
        if ran.json()["messages"].as_array().expect("messages").iter().any(|mail| mail["body"] == body) {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    false
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
    // A conversation is found behind newer letters of others.
    for (body, thread) in [("first", "t-old"), ("second", "t-new"), ("third", "t-new")] {
        let args = ["agent", "send", "leandro@mar.example", "--as", &ana, "--body", body, "--thread", thread];
        assert_eq!(verifica(folder.path(), &args).code, 0);
        assert!(waits_in(&folder, &leo, thread, body), "{body}");
    }
    let old = verifica(folder.path(), &["agent", "inbox", "--as", &leo, "--limit", "1", "--thread", "t-old", "--json"]);
    assert_eq!(old.json()["messages"][0]["body"], json!("first"), "{}", old.out);
    let new = verifica(folder.path(), &["agent", "inbox", "--as", &leo, "--limit", "1", "--thread", "t-new", "--json"]);
    assert_eq!(new.json()["messages"].as_array().map(Vec::len), Some(1), "{}", new.out);
    assert_eq!(new.json()["messages"][0]["body"], json!("third"), "{}", new.out);
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
    let elsewhere =
        verifica(folder.path(), &["libro", "statement", "--csv", "--as", &seller, "--house", "other.example"]);
    assert_eq!((elsewhere.code, elsewhere.out.as_str()), (2, ""), "{}", elsewhere.err);
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
    // Two more escrows are judged by a program, where this machine can enforce the sandbox.
    let (endings, balances) = match doc["sandbox_missing"].as_str() {
        None => (vec!["release", "refund", "release", "refund"], (-960, 600, 360)),
        Some(missing) => {
            assert!(std::env::var_os("VERIFICA_REQUIRE_ALL").is_none(), "nothing may be left out: {missing}");
            eprintln!("SKIPPED: the escrows with jobs: {missing}");
            (vec!["release", "refund"], (-980, 800, 180))
        }
    };
    assert_eq!(doc["settled"].as_array().map(Vec::len), Some(endings.len()));
    assert_eq!(
        doc["balances"],
        json!({"casa@mar.example": balances.0, "compras@mar.example": balances.1, "taller@mar.example": balances.2})
    );
    let at = doc["folder"].as_str().expect("folder");
    let (buyer, config) = (format!("{at}/compras.json"), format!("{at}/verifica.toml"));
    for (n, op) in endings.into_iter().enumerate() {
        let code = i32::from(op == "refund");
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
        assert_eq!(dry.json()["would_settle"], Value::Null, "it has ended: nothing would move");

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

#[test]
fn another_house_under_the_same_name_is_noticed() {
    let folder = folder();
    let house = HouseProcess::start(folder.path(), "mar.example");
    let file = agent(&folder, &house, "anabel");
    let elsewhere = tempfile::tempdir().expect("a folder");
    let impostor = HouseProcess::start(elsewhere.path(), "mar.example");
    let path = folder.path().join(&file);
    let text = fs::read_to_string(&path).expect("identity").replace(&house.url, &impostor.url);
    fs::write(&path, text).expect("written");
    let ran = verifica(folder.path(), &["agent", "inbox", "--as", &file]);
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(ran.err.contains("anchor of mar.example"), "{}", ran.err);
}
