//! Statements: the rows that each kind of account sees, ranges, and the file for a spreadsheet.

use crate::world::{DAY, World, at};
use serde_json::{Value, json};
use verifica::libro::statement::{Range, Statement};
use verifica::record::View;
use verifica::time::Timestamp;

fn statement(world: &World, who: &str, range: Range) -> Statement {
    let account = at(who);
    let page = world.view.account_page(account.as_str(), range.since, range.until, range.limit);
    Statement::of(account.as_str(), &world.house, &page, &range, world.view.balance(account.as_str()))
}

fn all() -> Range {
    Range::parse(None, None, None, 1000).expect("range")
}

/// `kind counterparty in out fee balance` of each row.
fn rows(doc: &Value) -> Vec<String> {
    let row = |row: &Value| {
        let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let number = |field: &str| row[field].as_i64().expect("number");
        let (kind, other) = (text("kind"), text("counterparty"));
        format!("{kind} {other} {} {} {} {}", number("in"), number("out"), number("fee"), number("balance"))
    };
    doc["entries"].as_array().expect("entries").iter().map(row).collect()
}

#[test]
fn shares_are_rows_of_whoever_received_the_gross_amount() {
    let mut world = World::new();
    world.play(
        r#"
        topup ana 1000
        ana accept q1 leo spot 200 referrer={"address":"fox@b.example","share":1500} => 202
        ana pay leo 5 => 202
        "#,
    );
    let doc = |who: &str| statement(&world, who, all()).to_json();
    let seller = doc("leo");
    assert_eq!(
        rows(&seller),
        [
            "movement ana@a.example 200 0 0 200",
            "fee casa@a.example 0 20 20 180",
            "commission fox@b.example 0 30 0 150",
            "movement ana@a.example 5 0 0 155",
        ]
    );
    assert_eq!(seller["totals"], json!({"in": 205, "out": 50, "fees": 20, "commissions": 30}));
    assert_eq!(
        (&seller["entries_shown"], &seller["entries_total"], &seller["rows"]),
        (&json!(2), &json!(2), &json!(4))
    );
    assert_eq!((&seller["ledger_balance"], &seller["reconciled"]), (&json!(155), &json!(true)));
    let buyer = [
        "movement casa@a.example 1000 0 0 1000",
        "movement leo@a.example 0 200 0 800",
        "movement leo@a.example 0 5 0 795",
    ];
    assert_eq!(rows(&doc("ana")), buyer);
    assert_eq!(rows(&doc("fox")), ["movement ana@a.example 30 0 0 30"]);
    assert_eq!(rows(&doc("casa")), ["movement ana@a.example 0 1000 0 -1000", "movement ana@a.example 20 0 0 -980"]);
    assert_eq!(rows(&doc("eva")), Vec::<String>::new());
    assert_eq!(doc("eva")["reconciled"], true);
}

#[test]
fn a_forfeited_bond_is_no_fee_of_the_house() {
    let mut world = World::new();
    world.play("topup ana 100\n ana bond b1 100 leo => 202\n leo forfeit b1 => 202");
    let doc = statement(&world, "casa", all()).to_json();
    assert_eq!(rows(&doc)[1].split(' ').next(), Some("movement"));
    assert_eq!(doc["totals"]["fees"], 0);
}

#[test]
fn ranges_are_half_open_and_keep_the_newest() {
    let mut world = World::new();
    world.topup("ana", 100);
    for _ in 0..4 {
        world.now = world.now.plus(DAY);
        world.play("ana pay leo 10 => 202");
    }
    let doc = |since: Option<&str>, until: Option<&str>, limit: Option<u64>| {
        statement(&world, "leo", Range::parse(since, until, limit, 1000).expect("range")).to_json()
    };
    let middle = doc(Some("2026-09-17"), Some("2026-09-18T10:00:00Z"), None);
    assert_eq!((&middle["opening_balance"], &middle["closing_balance"]), (&json!(10), &json!(20)));
    assert_eq!((&middle["since"], &middle["reconciled"]), (&json!("2026-09-17T00:00:00.000Z"), &json!(null)));
    let newest = doc(None, None, Some(1));
    assert_eq!((&newest["opening_balance"], &newest["closing_balance"]), (&json!(30), &json!(40)));
    assert_eq!(
        (&newest["truncated"], &newest["entries_total"], &newest["reconciled"]),
        (&json!(true), &json!(4), &json!(true))
    );
    let empty = doc(Some("2027-01-01"), None, None);
    assert_eq!((&empty["opening_balance"], &empty["closing_balance"]), (&json!(40), &json!(40)));
}

#[test]
fn limits_default_by_range_and_stay_below_the_ceiling() {
    let limit = |since: Option<&str>, limit: Option<u64>| Range::parse(since, None, limit, 200).expect("range").limit;
    assert_eq!(limit(None, None), 20);
    assert_eq!(limit(Some("2026-09-15"), None), 200);
    assert_eq!(limit(None, Some(0)), 20);
    assert_eq!(limit(None, Some(200)), 200);
    assert_eq!(limit(None, Some(201)), 200);
    assert_eq!(limit(None, Some(u64::MAX)), 200);
    for bad in ["", "15/09/2026", "2026-09-15T10:00", "now"] {
        assert_eq!(Range::parse(Some(bad), None, None, 200).map_err(|r| r.code()), Err(400), "{bad}");
    }
    assert!(Range::parse(Some("2026-09-15"), Some("2026-09-15"), None, 200).is_ok());
    assert!(Range::parse(Some("2026-09-16"), Some("2026-09-15"), None, 200).is_err());
}

#[test]
fn the_file_is_rfc_4180_and_holds_no_formula() {
    let mut world = World::new();
    world.topup("ana", 100);
    for concept in ["=SUM(A1)", "plain", "with, comma", "a \"quote\"", "two\nlines", "-1", "@x", "a\u{1b}[2J\u{9b}b"] {
        world.operate("ana", json!({"op": "pay", "to": at("leo"), "amount": 1, "concept": concept})).expect("paid");
    }
    let csv = statement(&world, "leo", all()).to_csv();
    let lines: Vec<&str> = csv.split("\r\n").collect();
    assert_eq!(lines[0], "date,entry,concept,counterparty,in,out,fee,balance");
    let cell = |line: usize| lines[line].splitn(3, ',').nth(2).expect("concept onwards");
    assert_eq!(cell(1), "'=SUM(A1),ana@a.example,1,,,1");
    assert_eq!(cell(2), "plain,ana@a.example,1,,,2");
    assert_eq!(cell(3), "\"with, comma\",ana@a.example,1,,,3");
    assert_eq!(cell(4), "\"a \"\"quote\"\"\",ana@a.example,1,,,4");
    assert_eq!(cell(5), "\"two\nlines\",ana@a.example,1,,,5");
    assert_eq!(cell(6), "'-1,ana@a.example,1,,,6");
    assert_eq!(cell(7), "'@x,ana@a.example,1,,,7");
    assert_eq!(cell(8), "a\u{fffd}[2J\u{fffd}b,ana@a.example,1,,,8");
    assert_eq!(lines[9], "");
}

#[test]
fn the_files_name_says_whose_and_when() {
    let world = World::new();
    let today = Timestamp::parse("2026-09-20T12:00:00Z").expect("time");
    assert_eq!(statement(&world, "ana", all()).csv_name(today), "estado-ana-inicio-2026-09-20.csv");
    let range = Range::parse(Some("2026-09-01"), Some("2026-09-15"), None, 1000).expect("range");
    assert_eq!(statement(&world, "fox", range).csv_name(today), "estado-fox.b.example-2026-09-01-2026-09-15.csv");
}

#[test]
fn the_journals_times_never_fall_whatever_the_clock_does() {
    let mut world = World::new();
    world.play("topup ana 100\n ana pay leo 1 => 202");
    world.now = world.now.plus(-DAY);
    world.play("ana pay leo 1 => 202");
    let times: Vec<Timestamp> = world.view.journal().map(|entry| entry.at).collect();
    assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "{times:?}");
}
