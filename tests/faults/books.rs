//! The audit of a stopped house: what the file says, row by row, whatever the program would say about it.

use super::victim::{Told, id_of};
use rusqlite::Connection;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use verifica::store::Store;

/// What a house ended with, in terms that do not depend on the ids it chose.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    /// By operation, kind and lines, in the order of the journal.
    entries: Vec<String>,
    balances: BTreeMap<String, i64>,
    contracts: Vec<String>,
    /// Who has what from whom: the envelope, or the receipt of which operation.
    mail: BTreeMap<String, usize>,
    open_jobs: usize,
}

/// Fails unless the file is whole, its books add up, and everything that was acknowledged is in it once.
pub fn audit(path: &Path, told: &Told, what: &str) -> Ended {
    drop(Store::open(path, 1).unwrap_or_else(|fault| panic!("{what}: the store does not open: {fault}")));
    let conn = Connection::open(path).expect("opens");
    let whole: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("answers");
    assert_eq!(whole, "ok", "{what}");
    let texts = |sql: &str| -> Vec<Vec<String>> {
        let mut statement = conn.prepare(sql).expect("prepares");
        let columns = statement.column_count();
        let text = |row: &rusqlite::Row<'_>, at: usize| match row.get_ref(at).expect("a column") {
            rusqlite::types::ValueRef::Integer(n) => n.to_string(),
            rusqlite::types::ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
            other => format!("{other:?}"),
        };
        let rows = statement.query_map([], |row| Ok((0..columns).map(|at| text(row, at)).collect()));
        rows.expect("answers").map(|row| row.expect("a row")).collect()
    };

    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    let mut causes: BTreeSet<String> = BTreeSet::new();
    let mut endings: BTreeSet<String> = BTreeSet::new();
    let mut entries = Vec::new();
    for (at, row) in texts("SELECT n, doc FROM entry ORDER BY n").into_iter().enumerate() {
        assert_eq!(row[0], (at + 1).to_string(), "{what}: the journal has a gap");
        let doc: Value = serde_json::from_str(&row[1]).expect("an entry");
        let mut total = 0;
        let mut lines = Vec::new();
        for line in doc["lines"].as_array().expect("lines") {
            let (account, delta) = (line["account"].as_str().expect("account"), line["delta"].as_i64().expect("delta"));
            *sums.entry(account.to_owned()).or_default() += delta;
            total += delta;
            let shown = if account.starts_with("escrow:") { "escrow" } else { account };
            lines.push(format!("{shown} {delta}"));
        }
        assert_eq!(total, 0, "{what}: entry {} does not sum to zero", at + 1);
        let op = doc["refs"]["op"].as_str().unwrap_or("the operator").to_owned();
        assert!(causes.insert(op.clone()), "{what}: {op} made two entries");
        let kind = doc["meta"]["kind"].as_str().unwrap_or_default();
        if matches!(kind, "release" | "refund" | "reclaim" | "expire") {
            let contract = doc["meta"]["contract"].as_str().expect("contract").to_owned();
            assert!(endings.insert(contract), "{what}: a contract ended twice");
        }
        entries.push(format!("{op} {kind} {}", lines.join(", ")));
    }
    let mut balances = BTreeMap::new();
    for row in texts("SELECT name, balance FROM account ORDER BY name") {
        let balance: i64 = row[1].parse().expect("a balance");
        assert_eq!(sums.get(&row[0]).copied().unwrap_or(0), balance, "{what}: {}", row[0]);
        assert!(balance >= 0 || row[0] == "casa@mar.example", "{what}: {} is below zero", row[0]);
        let name = if row[0].starts_with("escrow:") { "escrow".to_owned() } else { row[0].clone() };
        balances.insert(name, balance);
    }
    assert_eq!(balances.values().sum::<i64>(), 0, "{what}");

    let operations: BTreeSet<String> =
        texts("SELECT id FROM operation").into_iter().map(|row| row[0].clone()).collect();
    let mut mail: BTreeMap<String, usize> = BTreeMap::new();
    for row in texts("SELECT local, sender, id, envelope FROM mailbox") {
        let doc: Value = serde_json::from_str(&row[3]).expect("an envelope");
        let about = doc["content"]["body"]["of"].as_str().unwrap_or(&row[2]).to_owned();
        *mail.entry(format!("{} has {about} of {}", row[0], row[1])).or_default() += 1;
    }
    if let Some((twice, _)) = mail.iter().find(|(_, times)| **times > 1) {
        panic!("{what}: twice: {twice}");
    }
    let seen: BTreeSet<String> = texts("SELECT id FROM seen").into_iter().map(|row| row[0].clone()).collect();
    for (step, _) in &told.acked {
        let id = id_of(step);
        let kept = match step.as_str() {
            "fund" => operations.contains("issue-00000001"),
            "queued" => seen.contains(&id),
            letter if letter.starts_with("letter") => mail.contains_key(&format!("leo has {id} of ana@mar.example")),
            _ => operations.contains(&id) && causes.contains(&id),
        };
        assert!(kept, "{what}: {step} was acknowledged and is not there");
    }
    for cause in causes.iter().filter(|cause| cause.starts_with("envelope-")) {
        let parties: &[&str] = &["ana", "leo"];
        for local in parties {
            let receipt = format!("{local} has {cause} of libro@mar.example");
            assert!(mail.contains_key(&receipt), "{what}: an entry without its receipt: {receipt}");
        }
    }
    let states = texts("SELECT json_extract(doc, '$.state') FROM contract ORDER BY id");
    let contracts = states.into_iter().map(|row| row[0].clone()).collect();
    let open_jobs = texts("SELECT job FROM job WHERE wake IS NOT NULL AND domain = 'mar.example'").len();
    Ended { entries, balances, contracts, mail, open_jobs }
}
