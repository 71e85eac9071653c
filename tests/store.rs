//! What the store promises, asked of it through its own doors.

mod store_fixture;
mod store_late;

use rusqlite::Connection;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
use store_fixture::{
    CASA, HOUSE, Place, address, agent, at, contract, entry, entry_at, invitation, key, mail, mandate, operation, put,
    seal, seen,
};
use verifica::limits;
use verifica::record::{Change, ContractState, Decision, Line, MandateState, ObservationRow, Pin, SealRecord, View};
use verifica::refusal::{Refusal, Rule};
use verifica::store::{Denied, DirectoryQuery, MailFilter, Store, StoreError};
use verifica::wire::digest::Sha256;

fn conflict(outcome: Result<(), Denied>) -> bool {
    matches!(outcome, Err(Denied::Store(StoreError::Conflict(_))))
}

fn bug(outcome: Result<(), Denied>) -> bool {
    matches!(outcome, Err(Denied::Store(StoreError::Bug(_))))
}

fn count(place: &Place, table: &str) -> i64 {
    let conn = Connection::open(place.path()).expect("opens");
    conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("counts")
}

// ---- opening -----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_new_store_is_private_and_runs_under_the_settings_it_promises() {
    let place = Place::new();
    place.put(vec![Change::InsertInvitation(invitation("c", 1))]).await.expect("written");
    for name in ["house.db", "house.db-wal", "house.db.lock"] {
        let mode = std::fs::metadata(place.folder().join(name)).expect(name).permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let settings = place.store.settings();
    assert_eq!((settings.journal_mode.as_str(), settings.synchronous), ("wal", 2));
    assert_eq!((settings.foreign_keys, settings.trusted_schema), (1, 0));
    assert_eq!(settings.wal_autocheckpoint, limits::STORE_WAL_BACKSTOP_PAGES);
    assert!(settings.user_version >= 1);
}

#[tokio::test]
async fn a_file_that_others_could_read_is_closed_to_them() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("house.db");
    std::fs::write(&path, b"").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("opened up");
    let _store = Store::open(&path, 1).expect("opens");
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_second_process_is_refused_until_the_first_has_gone() {
    let place = Place::new();
    assert_eq!(Store::open(&place.path(), 1).err(), Some(StoreError::Locked));
    let (store, path) = (place.store.clone(), place.path());
    store.close().await.expect("closed");
    Store::open(&path, 1).expect("the lock went with the store").close().await.expect("closed");
    assert_eq!(store.close().await, Err(StoreError::Closed));
    let late = put(&store, vec![Change::InsertInvitation(invitation("c", 1))]).await;
    assert_eq!(late, Err(Denied::Store(StoreError::Closed)));
    assert_eq!(store.read(|r| r.counts()).await, Err(StoreError::Closed));
}

#[tokio::test]
async fn dropping_the_last_handle_frees_the_file() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("house.db");
    for n in 1..=5_u64 {
        let store = Store::open(&path, 1).expect("opens again at once");
        put(&store, vec![Change::Journal(entry(n, &[]))]).await.expect("written");
    }
}

#[tokio::test]
async fn a_newer_store_and_another_programs_database_are_left_alone() {
    let place = Place::new();
    place.store.close().await.expect("closed");
    let conn = Connection::open(place.path()).expect("opens");
    conn.pragma_update(None, "user_version", 99).expect("set");
    assert!(matches!(Store::open(&place.path(), 1).err(), Some(StoreError::Newer { found: 99, .. })));

    let other = place.folder().join("other.db");
    let conn = Connection::open(&other).expect("opens");
    conn.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);").expect("made");
    assert!(matches!(Store::open(&other, 1).err(), Some(StoreError::Foreign(_))));
    let left: i64 = conn.query_row("SELECT x FROM theirs", [], |row| row.get(0)).expect("untouched");
    assert_eq!(left, 1);

    let text = place.folder().join("text.db");
    std::fs::write(&text, "not a database, and longer than the header of one, which has a hundred bytes. ".repeat(4))
        .expect("written");
    assert!(matches!(Store::open(&text, 1).err(), Some(StoreError::Io(_))));
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_reopening() {
    let place = Place::new();
    place.put(vec![Change::InsertAgent(agent("ana", "public", json!({})))]).await.expect("agent");
    let lines = [(CASA, -7), ("ana@mar.example", 7)];
    place
        .put(vec![Change::Journal(entry(1, &lines)), Change::InsertContract(contract("c1", ContractState::Held))])
        .await
        .expect("entry");
    place.store.close().await.expect("closed");
    let store = Store::open(&place.path(), 1).expect("opens");
    let (card, journal, held) =
        store.read(|r| Ok((r.agent("ana"), r.journal(1, 10)?, r.contract("c1")))).await.expect("reads");
    let (card, before) = (card.expect("ana"), agent("ana", "public", json!({})));
    assert_eq!(card.card.doc(), before.card.doc());
    assert_eq!((card.webhook, card.created), (before.webhook, before.created));
    assert_eq!(journal[0].doc, entry(1, &lines).doc);
    assert_eq!(held.expect("c1").to_json(), contract("c1", ContractState::Held).to_json());
}

// ---- changes -----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_name_is_given_once_and_the_directory_follows_its_card() {
    let place = Place::new();
    let capable = json!({"accepts": ["text/plain", "a/b"], "Translate": true, "cook": false, "listed": true});
    place.put(vec![Change::InsertAgent(agent("ana", "public", capable.clone()))]).await.expect("ana");
    place.put(vec![Change::InsertAgent(agent("leo", "private", capable.clone()))]).await.expect("leo");
    place.put(vec![Change::InsertAgent(agent("eva", "secret", capable))]).await.expect("eva");
    place.put(vec![Change::InsertAgent(agent("rui", "private", json!({})))]).await.expect("rui");
    assert!(conflict(place.put(vec![Change::InsertAgent(agent("ana", "public", json!({})))]).await));

    let ask = async |query: DirectoryQuery| {
        let query = DirectoryQuery { limit: query.limit.max(1), ..query };
        let (total, cards) = place.store.read(move |r| r.directory(&query)).await.expect("reads");
        let names: Vec<String> =
            cards.iter().map(|card| card["address"].as_str().unwrap_or("").replace("@mar.example", "")).collect();
        (total, names.join(" "))
    };
    let all = |limit, offset| DirectoryQuery { limit, offset, ..DirectoryQuery::default() };
    assert_eq!(ask(all(10, 0)).await, (2, "ana leo".to_owned()));
    assert_eq!(ask(all(1, 1)).await, (2, "leo".to_owned()));
    let by = |field: &str, value: &str| {
        let some = |name: &str| (name == field).then(|| value.to_owned());
        DirectoryQuery { capability: some("capability"), accepts: some("accepts"), q: some("q"), limit: 10, offset: 0 }
    };
    assert_eq!(ask(by("capability", "Translate")).await.0, 2);
    assert_eq!(ask(by("capability", "cook")).await.0, 0, "a capability that says false is none");
    assert_eq!(ask(by("accepts", "a/b")).await.0, 2);
    assert_eq!(ask(by("accepts", "a/")).await.0, 0);
    assert_eq!(ask(by("q", "LEO@")).await, (1, "leo".to_owned()));
    assert_eq!(ask(by("q", "translate")).await.0, 2);
    assert_eq!(ask(by("q", "%")).await.0, 0, "a wildcard is a character");

    place.put(vec![Change::PutAgent(agent("leo", "secret", json!({"Translate": true})))]).await.expect("hides");
    assert_eq!(ask(by("capability", "Translate")).await, (1, "ana".to_owned()));
    assert_eq!(place.store.read(|r| r.counts()).await.expect("counts").agents, 4);
    place.put(vec![Change::PutAgent(agent("new", "public", json!({})))]).await.expect("put makes what is missing");
    assert_eq!(place.store.read(|r| r.counts()).await.expect("counts").agents, 5);
}

#[tokio::test]
async fn an_invitation_is_used_as_often_as_it_says_and_not_after_its_date() {
    let place = Place::new();
    place
        .put(vec![Change::InsertInvitation(invitation("twice", 2)), Change::InsertInvitation(invitation("never", 0))])
        .await
        .expect("made");
    assert!(conflict(place.put(vec![Change::InsertInvitation(invitation("twice", 9))]).await));
    let take = |code: &str, ms| vec![Change::UseInvitation { code: code.to_owned(), at: at(ms) }];
    place.put(take("twice", 1)).await.expect("first");
    assert!(conflict(place.put(take("twice", 1_000)).await), "its date has come");
    place.put(take("twice", 999)).await.expect("second");
    assert!(conflict(place.put(take("twice", 2)).await));
    assert!(conflict(place.put(take("never", 2)).await));
    assert!(conflict(place.put(take("unknown", 2)).await));
    let kept = place.store.read(|r| Ok((r.invitation("twice"), r.invitations(10)?))).await.expect("reads");
    let twice = kept.0.expect("twice");
    assert_eq!((twice.used, twice.last_used, twice.welcome), (2, Some(at(999)), Some(5)));
    assert_eq!(kept.1.len(), 2);
}

#[tokio::test]
async fn a_mailbox_shows_the_newest_pending_mail_in_order_and_no_envelope_twice() {
    let place = Place::new();
    let mut later = mail("ana", "leo@mar.example", "later", 2);
    later.visible_from = Some(at(100));
    let mut changes: Vec<Change> =
        (0..5).map(|i| Change::Deliver(mail("ana", "leo@mar.example", &format!("id-{i}"), i))).collect();
    changes.push(Change::Deliver(mail("ana", "leo@mar.example", "id-0", 50)));
    changes.push(Change::Deliver(mail("ana", "eva@mar.example", "id-0", 5)));
    changes.push(Change::Deliver(mail("rui", "leo@mar.example", "id-0", 5)));
    changes.push(Change::Deliver(later));
    place.put(changes).await.expect("delivered");
    let list = async |limit, now| {
        let mail = place.store.read(move |r| r.mailbox("ana", limit, at(now))).await.expect("reads");
        mail.iter()
            .map(|m| format!("{}/{}", m.from.split('@').next().unwrap_or(""), m.id))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(list(10, 10).await, "leo/id-0 leo/id-1 leo/id-2 leo/id-3 leo/id-4 eva/id-0");
    assert_eq!(list(2, 10).await, "leo/id-4 eva/id-0");
    assert_eq!(list(1, 100).await, "leo/later", "it arrives when it can be seen");
    assert_eq!(list(0, 100).await, "");
    assert_eq!(list(2, -1_000).await, "leo/id-4 eva/id-0", "a clock that went back hides no mail");

    let first = async |from: Option<&str>, thread: Option<&str>, since: Option<i64>, now| {
        let filter = MailFilter {
            from: from.map(str::to_owned),
            thread: thread.map(str::to_owned),
            since: since.map(at),
            project: None,
        };
        place.store.read(move |r| r.first_pending("ana", &filter, at(now))).await.expect("reads").map(|m| m.id)
    };
    assert_eq!(first(None, None, None, 10).await.as_deref(), Some("id-0"));
    assert_eq!(first(None, None, Some(0), 10).await.as_deref(), Some("id-1"));
    assert_eq!(first(Some("eva@mar.example"), None, None, 10).await.as_deref(), Some("id-0"));
    assert_eq!(first(None, Some("id-3"), None, 10).await.as_deref(), Some("id-3"));
    assert_eq!(first(None, Some("t1"), None, 10).await.as_deref(), Some("id-0"));
    assert_eq!(first(None, Some("t2"), None, 10).await, None);
    assert_eq!(first(None, None, Some(5), 99).await, None);
    assert_eq!(first(None, None, Some(5), 100).await.as_deref(), Some("later"));

    let ack = |id: &str, ms| Change::Acknowledge { local: "ana".to_owned(), id: id.to_owned(), at: at(ms) };
    place.put(vec![ack("id-0", 10), ack("later", 10), ack("unknown", 10)]).await.expect("acknowledged");
    assert_eq!(
        list(10, 100).await,
        "leo/id-1 leo/id-2 leo/id-3 leo/id-4 leo/later",
        "nobody acknowledges what he cannot see"
    );
    place.put(vec![Change::Deliver(mail("ana", "leo@mar.example", "id-0", 60))]).await.expect("again");
    assert_eq!(
        list(10, 100).await,
        "leo/id-1 leo/id-2 leo/id-3 leo/id-4 leo/later",
        "a repetition does not bring it back"
    );
    let (pending, other) =
        place.store.read(|r| Ok((r.pending("ana", "id-1"), r.pending("rui", "id-0")))).await.expect("reads");
    assert_eq!((pending.len(), other.len()), (1, 1));
    assert_eq!(pending[0].to_json()["envelope"]["signature"]["value"], "v");
    assert_eq!(count(&place, "mailbox"), 8, "acknowledged mail stays");
}

#[tokio::test]
async fn what_was_seen_and_what_was_done_stays_what_it_was() {
    let place = Place::new();
    place.put(vec![Change::PutSeen(seen("ana@mar.example", "e1", "aa"))]).await.expect("seen");
    let mut more = seen("ana@mar.example", "e1", "aa");
    more.accepted.push(address("rui@mar.example"));
    place.put(vec![Change::PutSeen(more.clone())]).await.expect("more recipients");
    assert!(conflict(place.put(vec![Change::PutSeen(seen("ana@mar.example", "e1", "bb"))]).await));
    place.put(vec![Change::PutSeen(seen("eva@mar.example", "e1", "bb"))]).await.expect("another sender's id");
    let ana = address("ana@mar.example");
    assert_eq!(place.store.read(move |r| Ok(r.seen(&ana, "e1"))).await.expect("reads"), Some(more));

    place.put(vec![Change::InsertOperation(operation("ana@mar.example", "o1"))]).await.expect("applied");
    let again = vec![
        Change::CountRate { key: "k".into(), at: at(0), hits: 1 },
        Change::InsertOperation(operation("ana@mar.example", "o1")),
    ];
    assert!(conflict(place.put(again).await));
    place.put(vec![Change::InsertOperation(operation("leo@mar.example", "o1"))]).await.expect("another sender's id");
    let ana = address("ana@mar.example");
    let (kept, hits) =
        place.store.read(move |r| Ok((r.operation(&ana, "o1"), r.rate("k", at(0))))).await.expect("reads");
    let kept = kept.expect("o1");
    assert_eq!((kept.result, kept.sha256), (operation("ana@mar.example", "o1").result, "ab".repeat(32)));
    assert_eq!(hits, 0, "a conflict leaves nothing of its decision");
}

#[tokio::test]
async fn rates_and_nonces_count_and_are_swept_when_they_can_bind_nobody() {
    let place = Place::new();
    let hit = |key: &str, ms, hits| Change::CountRate { key: key.to_owned(), at: at(ms), hits };
    let burn = |key: &str, ms| Change::BurnNonce { key: key.to_owned(), at: at(ms) };
    place
        .put(vec![hit("a", 0, 2), hit("a", 59_000, 3), hit("a", 60_000, 1), hit("b", 0, 1), burn("n1", 0)])
        .await
        .expect("counted");
    assert!(conflict(place.put(vec![burn("n1", 1)]).await));
    let state = async || {
        place
            .store
            .read(|r| Ok((r.rate("a", at(0)), r.rate("a", at(60_000)), r.nonce_used("n1"), r.nonce_used("n2"))))
            .await
            .expect("reads")
    };
    assert_eq!(state().await, (5, 1, true, false));
    place.store.housekeeping(at(limits::NONCE_KEEP_MS), limits::EVIDENCE_KEEP_MS).await.expect("swept");
    assert_eq!(state().await, (0, 0, true, false), "a nonce is kept for as long as a credential could carry it");
    place.store.housekeeping(at(limits::NONCE_KEEP_MS + 1), limits::EVIDENCE_KEEP_MS).await.expect("swept");
    assert_eq!(state().await, (0, 0, false, false));

    let many = (0..limits::STORE_PRUNE_ROWS + 1).map(|i| burn(&format!("m{i}"), 0)).collect();
    place.put(many).await.expect("burnt");
    place.put(vec![hit("c", 0, 1), hit("c", 120_000, 1), hit("c", 180_000, 1)]).await.expect("counted");
    place.store.housekeeping(at(180_000), limits::EVIDENCE_KEEP_MS).await.expect("swept");
    assert_eq!((count(&place, "nonce"), count(&place, "rate")), (limits::STORE_PRUNE_ROWS as i64 + 1, 2));
    place.store.housekeeping(at(limits::NONCE_KEEP_MS + 1), limits::EVIDENCE_KEEP_MS).await.expect("swept");
    assert_eq!((count(&place, "nonce"), count(&place, "rate")), (0, 0));
}

#[tokio::test]
async fn the_journal_takes_only_what_follows_cancels_out_and_is_covered() {
    let place = Place::new();
    let one = |n, lines: &[(&str, i64)]| vec![Change::Journal(entry(n, lines))];
    place.put(one(1, &[(CASA, -10), ("ana@mar.example", 10)])).await.expect("funded");
    assert!(conflict(place.put(one(1, &[])).await));
    assert!(conflict(place.put(one(3, &[])).await));
    let big = limits::SAFE_INTEGER_MAX as i64;
    let mut lying = entry(2, &[("ana@mar.example", -1), ("leo@mar.example", 1)]);
    lying.lines = vec![
        Line { account: "ana@mar.example".into(), delta: -2 },
        Line { account: "leo@mar.example".into(), delta: 2 },
    ];
    for broken in [
        one(2, &[("ana@mar.example", -1)]),
        one(2, &[("ana@mar.example", -11), ("leo@mar.example", 11)]),
        one(2, &[("casa@otra.example", -1), ("leo@mar.example", 1)]),
        one(2, &[(CASA, -big), ("leo@mar.example", big)]),
        one(2, &[("escrow:x", -1), ("leo@mar.example", 1)]),
        one(2, &[(CASA, i64::MIN), (CASA, i64::MAX), (CASA, 1)]),
        vec![Change::Journal(entry_at(2, 0, &[]))],
        vec![Change::Journal(lying)],
    ] {
        assert!(bug(place.put(broken.clone()).await), "{broken:?}");
    }
    place.put(one(2, &[("ana@mar.example", -4), ("ana@mar.example", 1), ("escrow:c", 3)])).await.expect("held");
    place.put(one(3, &[])).await.expect("a control entry has no lines");
    let (balances, last, last_at) =
        place.store.read(|r| Ok((r.balances("", 10)?, r.journal_last(), r.journal_last_at()))).await.expect("reads");
    assert_eq!(balances, [("ana@mar.example".into(), 7), (CASA.to_owned(), -10), ("escrow:c".into(), 3)]);
    assert_eq!((last, last_at), (3, at(3)));
    let rest = place.store.read(|r| r.balances("ana@mar.example", 1)).await.expect("reads");
    assert_eq!(rest, [(CASA.to_owned(), -10)]);
}

#[tokio::test]
async fn a_page_of_an_account_opens_with_the_balance_before_it_and_counts_the_rest() {
    let place = Place::new();
    for n in 1..=6_u64 {
        let account = if n == 4 { "leo@mar.example" } else { "ana@mar.example" };
        place
            .put(vec![Change::Journal(entry_at(n, (n as i64 / 2) * 10, &[(CASA, -5), (account, 2), (account, 3)]))])
            .await
            .expect("entry");
    }
    let page = async |since: Option<i64>, until: Option<i64>, limit| {
        let (since, until) = (since.map(at), until.map(at));
        let page =
            place.store.read(move |r| Ok(r.account_page("ana@mar.example", since, until, limit))).await.expect("reads");
        (page.opening, page.entries.iter().map(|e| e.n).collect::<Vec<_>>(), page.total)
    };
    // Entries of ana: 1 at 0, 2 and 3 at 10, 5 at 20, 6 at 30.
    assert_eq!(page(None, None, 2).await, (15, vec![5, 6], 5));
    assert_eq!(page(None, None, 99).await, (0, vec![1, 2, 3, 5, 6], 5));
    assert_eq!(page(Some(10), Some(30), 99).await, (5, vec![2, 3, 5], 3));
    assert_eq!(page(Some(10), Some(30), 1).await, (15, vec![5], 3));
    assert_eq!(page(Some(11), Some(20), 99).await, (15, vec![], 0));
    assert_eq!(page(Some(31), None, 99).await, (25, vec![], 0));
    assert_eq!(page(None, Some(0), 99).await, (0, vec![], 0));
    assert_eq!(page(Some(30), Some(10), 99).await, (20, vec![], 0), "an empty span is empty");
    let nobody = place.store.read(|r| Ok(r.account_page("nadie@mar.example", None, None, 9))).await.expect("reads");
    assert_eq!((nobody.opening, nobody.entries.len(), nobody.total), (0, 0, 0));
}

#[tokio::test]
async fn a_contract_has_one_quote_its_parties_and_one_ending() {
    let place = Place::new();
    place.put(vec![Change::InsertContract(contract("c1", ContractState::Held))]).await.expect("held");
    assert!(conflict(place.put(vec![Change::InsertContract(contract("c1", ContractState::Held))]).await));
    let mut same_quote = contract("c2", ContractState::Held);
    same_quote.quote_id = Some("quote-c1".to_owned());
    assert!(conflict(place.put(vec![Change::InsertContract(same_quote.clone())]).await));
    same_quote.seller = address("luz@otra.example");
    let other_books = Place::new();
    other_books.put(vec![Change::InsertContract(contract("c1", ContractState::Held))]).await.expect("held");
    other_books.put(vec![Change::InsertContract(same_quote)]).await.expect("ids of quotes are their seller's");
    let mut bare = contract("c3", ContractState::Active);
    bare.quote_id = None;
    let mut other = contract("c4", ContractState::Active);
    other.quote_id = None;
    place.put(vec![Change::InsertContract(bare), Change::InsertContract(other)]).await.expect("no quote is no clash");
    assert!(conflict(place.put(vec![Change::PutContract(contract("nowhere", ContractState::Held))]).await));

    let step = |state, ms| {
        let mut next = contract("c1", state);
        next.updated = at(ms);
        vec![Change::PutContract(next)]
    };
    place.put(step(ContractState::Delivered, 5)).await.expect("delivered");
    let open = async |state| place.store.read(move |r| r.contracts_in(state, None, 9)).await.expect("reads").len();
    assert_eq!((open(ContractState::Held).await, open(ContractState::Delivered).await), (0, 1));
    place.put(step(ContractState::Released, 6)).await.expect("released");
    assert!(bug(place.put(step(ContractState::Refunded, 7)).await));
    assert!(bug(place.put(step(ContractState::Held, 7)).await));
    place.put(step(ContractState::Released, 8)).await.expect("a note may still be added");
    assert_eq!(open(ContractState::Delivered).await, 0);
    let (of_quote, of_seller, of_arbiter, of_none) = place
        .store
        .read(|r| {
            let ids =
                |address: &str, n| r.contracts_of(address, n).into_iter().map(|c| c.id).collect::<Vec<_>>().join(" ");
            Ok((
                r.contract_of_quote("sol@otra.example quote-c1"),
                ids("sol@otra.example", 9),
                ids("verifica@mar.example", 2),
                ids("leo@mar.example", 9),
            ))
        })
        .await
        .expect("reads");
    assert_eq!(of_quote.as_deref(), Some("c1"));
    assert_eq!((of_seller.as_str(), of_arbiter.as_str(), of_none.as_str()), ("c4 c3 c1", "c4 c3", ""));

    let at_once = place.store.read(|r| r.contracts_in(ContractState::Active, None, 1)).await.expect("reads");
    let after = (at_once[0].updated, at_once[0].id.clone());
    let next = place
        .store
        .read(move |r| r.contracts_in(ContractState::Active, Some((after.0, &after.1)), 9))
        .await
        .expect("reads");
    assert_eq!((at_once[0].id.as_str(), next.len(), next[0].id.as_str()), ("c3", 1, "c4"));
}

#[tokio::test]
async fn mandates_hang_under_their_chain_while_they_are_active() {
    let place = Place::new();
    let active = MandateState::Active;
    place
        .put(vec![
            Change::InsertMandate(mandate("m1", &["m1"], active)),
            Change::InsertMandate(mandate("m2", &["m1", "m2"], active)),
            Change::InsertMandate(mandate("m3", &["m1", "m2", "m3"], active)),
        ])
        .await
        .expect("given");
    assert!(conflict(place.put(vec![Change::InsertMandate(mandate("m1", &["m1"], active))]).await));
    assert!(conflict(place.put(vec![Change::PutMandate(mandate("m9", &["m9"], active))]).await));
    let under = async |id: &'static str| {
        let found = place.store.read(move |r| Ok(r.mandates_under(id))).await.expect("reads");
        found.into_iter().map(|m| m.id).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((under("m1").await.as_str(), under("m2").await.as_str()), ("m1 m2 m3", "m2 m3"));
    place.put(vec![Change::PutMandate(mandate("m2", &["m1", "m2"], MandateState::Revoked))]).await.expect("revoked");
    assert_eq!((under("m1").await.as_str(), under("m2").await.as_str()), ("m1 m3", "m3"));
    let mut spent = mandate("m1", &["m1"], active);
    spent.spent = 7;
    place.put(vec![Change::PutMandate(spent)]).await.expect("charged");
    let (m1, given, held) = place
        .store
        .read(|r| Ok((r.mandate("m1"), r.mandates_of("ana@mar.example", 2), r.mandates_of("bot.ana@mar.example", 9))))
        .await
        .expect("reads");
    assert_eq!(m1.map(|m| m.spent), Some(7));
    assert_eq!((given.len(), given[0].id.as_str(), held.len()), (2, "m3", 3));
}

#[tokio::test]
async fn a_hash_is_sealed_once_by_each_declarant() {
    let place = Place::new();
    let hash = "9".repeat(64);
    place.put(vec![Change::InsertSeal(seal("s2", &hash, "leo@mar.example", 2))]).await.expect("sealed");
    place.put(vec![Change::InsertSeal(seal("s1", &hash, "ana@mar.example", 2))]).await.expect("sealed");
    assert!(conflict(place.put(vec![Change::InsertSeal(seal("s3", &hash, "ana@mar.example", 3))]).await));
    assert!(conflict(place.put(vec![Change::InsertSeal(seal("s1", &"8".repeat(64), "ana@mar.example", 3))]).await));
    let ana = address("ana@mar.example");
    let (mine, all, by_id): (Option<SealRecord>, Vec<SealRecord>, Option<SealRecord>) = place
        .store
        .read(move |r| Ok((r.seal(&hash, &ana), r.seals(&hash, 9)?, r.seal_by_id("s2")?)))
        .await
        .expect("reads");
    assert_eq!(mine.map(|s| s.id).as_deref(), Some("s1"));
    assert_eq!(all.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["s1", "s2"]);
    assert_eq!(by_id.map(|s| s.by), Some(address("leo@mar.example")));
}

/// Incident 57: counters in memory made a limit as many times what it says as there were processes; and pins that were
/// written anew from memory lost those of others.
#[tokio::test]
async fn what_was_counted_and_pinned_holds_after_the_process_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("house.db");
    let pin = |domain: &str| Change::InsertPin { domain: domain.into(), key: key(7).public(), at: at(1) };
    for (run, domain) in ["a.example", "b.example", "c.example"].into_iter().enumerate() {
        let store = Store::open(&path, 1).expect("opens");
        let counted = store.read(|r| Ok((r.rate("sender", at(0)), r.pins("", 9)?.len()))).await.expect("reads");
        assert_eq!(counted, (run as u32, run));
        let hit = Change::CountRate { key: "sender".to_owned(), at: at(0), hits: 1 };
        put(&store, vec![hit, pin(domain)]).await.expect("counted");
        store.close().await.expect("closes");
    }
}

#[tokio::test]
async fn observations_pins_cards_and_events_are_kept() {
    let place = Place::new();
    let row = ObservationRow { sha256: Sha256::of(b"seen"), at: at(1), contract: "c1".into(), bytes: vec![0, 255, 7] };
    let pin = |seed| Change::InsertPin { domain: "otra.example".into(), key: key(seed).public(), at: at(1) };
    let event =
        |ms| Change::Event { name: "join", at: at(ms), actor: "ana@mar.example".into(), data: json!({"n": ms}) };
    let card = |n: u64| Change::PutDomainCard(json!({"nyx5": "1", "domain": HOUSE, "n": n}));
    let twice = Change::PutObservation(row.clone());
    place
        .put(vec![twice.clone(), twice, pin(7), pin(8), event(1), event(2), event(3), card(1), card(2)])
        .await
        .expect("kept");
    assert!(
        conflict(place.put(vec![Change::PutDomainCard(json!({"domain": "otra.example"}))]).await),
        "the books have a house"
    );
    assert!(bug(place.put(vec![Change::PutDomainCard(json!({}))]).await));
    let name = row.sha256;
    let (found, names, first, pins, events, card) = place
        .store
        .read(move |r| {
            let events = r.events("join", at(2), 9)?;
            Ok((
                r.observation("c1", &name)?,
                r.observations_of("c1", 9)?,
                r.pinned("otra.example")?,
                r.pins("", 9)?,
                events,
                r.domain_card()?,
            ))
        })
        .await
        .expect("reads");
    assert_eq!(found, Some(row.clone()));
    assert_eq!(names, [row.sha256.hex()]);
    assert_eq!((first.as_ref().map(|pin| pin.key), pins.len()), (Some(key(7).public()), 1));
    let next = Pin { next: Some(key(9).public()), ..first.expect("pinned") };
    place.put(vec![Change::PutPin(next.clone())]).await.expect("the operator's hand");
    let kept = place.store.read(|r| Ok((r.pinned("otra.example")?, r.pin("otra.example")))).await.expect("reads");
    assert_eq!(kept, (Some(next.clone()), Some(next)));
    assert_eq!(events.iter().map(|e| e.data["n"].as_i64()).collect::<Vec<_>>(), [Some(3), Some(2)]);
    assert_eq!(card.map(|c| c["n"].clone()), Some(Value::from(2)));
}

// ---- transactions ------------------------------------------------------------------------------------------------

/// Keeps the writer busy until the returned sender is used.
async fn busy(store: &Store) -> (std::sync::mpsc::Sender<()>, tokio::task::JoinHandle<Result<(), Denied>>) {
    let (release, released) = std::sync::mpsc::channel();
    let released = std::sync::Mutex::new(Some(released));
    let (started, begun) = tokio::sync::oneshot::channel();
    let started = std::sync::Mutex::new(Some(started));
    let store = store.clone();
    let blocked = tokio::spawn(async move {
        store
            .transact(move |_| {
                started.lock().expect("lock").take().map(|started| started.send(()));
                // It may run again with its batch, and then has nothing to wait for.
                if let Some(released) = released.lock().expect("lock").take() {
                    released.recv().expect("released");
                }
                Ok(Decision::nothing(()))
            })
            .await
    });
    begun.await.expect("begun");
    (release, blocked)
}

/// Asks while the writer is busy, so that everything asked for falls into one batch.
async fn in_one_batch<T>(store: &Store, ask: impl Future<Output = T>) -> T {
    let (release, blocked) = busy(store).await;
    let mut ask = std::pin::pin!(ask);
    // The first poll puts every command into the queue.
    let early = std::future::poll_fn(|cx| Poll::Ready(ask.as_mut().poll(cx).is_ready())).await;
    assert!(!early, "nothing is answered while the writer is busy");
    release.send(()).expect("released");
    blocked.await.expect("ended").expect("nothing to fail");
    ask.await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_one_batch_see_each_other_and_fail_alone() {
    let place = Place::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let add = |delta: i64| {
        let runs = Arc::clone(&runs);
        place.store.transact(move |view| {
            runs.fetch_add(1, Ordering::SeqCst);
            let n = view.journal_last() + 1;
            let lines = [(CASA, -delta), ("ana@mar.example", delta)];
            Ok(Decision {
                changes: vec![Change::Journal(entry(n, &lines))],
                reply: (n, view.balance("ana@mar.example")),
            })
        })
    };
    let refuse = place.store.transact(|view| -> verifica::record::Decided<()> {
        Err(Refusal::new(Rule::NotEnough, format!("has {}", view.balance("ana@mar.example"))))
    });
    let panics = place.store.transact(|_| -> verifica::record::Decided<()> { panic!("a bug in a rule") });
    // Fails after it began to write: the first nonce is new, the second is not.
    let burn = || Change::BurnNonce { key: "n".into(), at: at(0) };
    let half = place.put(vec![Change::Journal(entry(2, &[])), burn(), burn()]);
    let (a, refused, panicked, half, b) =
        in_one_batch(&place.store, async { tokio::join!(add(5), refuse, panics, half, add(7)) }).await;
    assert_eq!(a, Ok((1, 0)));
    assert_eq!(b, Ok((2, 5)), "it sees what came before it in the batch");
    assert!(matches!(refused, Err(Denied::Refused(r)) if r.rule == Rule::NotEnough && r.reason == "has 5"));
    assert_eq!(panicked, Err(Denied::Store(StoreError::Bug("a rule panicked".into()))));
    assert!(conflict(half));
    assert_eq!(
        runs.load(Ordering::SeqCst),
        3,
        "one batch: what ran before the failure ran again, what came after ran once"
    );
    let (balance, used, last) = place
        .store
        .read(|r| Ok((r.balance("ana@mar.example"), r.nonce_used("n"), r.journal_last())))
        .await
        .expect("reads");
    assert_eq!((balance, used, last), (12, false, 2));
}

#[tokio::test]
async fn a_reply_that_says_no_keeps_the_changes_it_came_with() {
    let place = Place::new();
    let reply = place
        .store
        .transact(|_| {
            Ok(Decision { changes: vec![Change::CountRate { key: "k".into(), at: at(0), hits: 1 }], reply: 429 })
        })
        .await;
    assert_eq!(reply, Ok(429));
    assert_eq!(place.store.read(|r| Ok(r.rate("k", at(0)))).await, Ok(1));
}

#[tokio::test]
async fn no_decision_is_made_on_records_that_cannot_be_read() {
    let place = Place::new();
    place
        .put(vec![
            Change::InsertAgent(agent("ana", "public", json!({}))),
            Change::InsertContract(contract("c1", ContractState::Held)),
        ])
        .await
        .expect("made");
    let conn = Connection::open(place.path()).expect("opens");
    conn.execute_batch("UPDATE agent SET card = '{}'; UPDATE contract SET doc = '{}';").expect("damaged");
    let decide = place.store.transact(|view| {
        // To the rule an unreadable agent looks like none; it may not act on that.
        assert!(view.agent("ana").is_none());
        let changes = vec![Change::InsertInvitation(invitation("c", 1))];
        Ok(Decision { changes, reply: view.rate("k", at(0)) })
    });
    assert!(matches!(decide.await, Err(Denied::Store(StoreError::Bug(_)))));
    let refuse = place.store.transact(|view| -> verifica::record::Decided<()> {
        view.contract("c1");
        Err(Refusal::new(Rule::NoSuchContract, "no such contract"))
    });
    assert!(matches!(refuse.await, Err(Denied::Store(StoreError::Bug(_)))), "nor may it refuse on that");
    assert!(matches!(place.store.read(|r| Ok(r.contract("c1").is_some())).await, Err(StoreError::Bug(_))));
    assert_eq!(place.store.read(|r| Ok(r.invitation("c"))).await, Ok(None));
    assert!(!place.store.is_poisoned());
}

#[tokio::test]
async fn a_rule_that_panics_over_an_unreadable_record_harms_only_itself() {
    let place = Place::new();
    place.put(vec![Change::InsertContract(contract("c1", ContractState::Held))]).await.expect("made");
    Connection::open(place.path()).expect("opens").execute_batch("UPDATE contract SET doc = '{}'").expect("damaged");
    let panics = place.store.transact(|view| -> verifica::record::Decided<()> {
        view.contract("c1").expect("the rule counts on it");
        Ok(Decision::nothing(()))
    });
    let next = place.put(vec![Change::InsertInvitation(invitation("next", 1))]);
    let (panicked, next) = in_one_batch(&place.store, async { tokio::join!(panics, next) }).await;
    assert!(matches!(panicked, Err(Denied::Store(StoreError::Bug(_)))));
    assert_eq!(next, Ok(()));
}

#[tokio::test]
async fn a_caller_who_left_before_its_turn_changes_nothing_and_harms_nobody() {
    let place = Place::new();
    let (release, blocked) = busy(&place.store).await;
    {
        let mut ask = std::pin::pin!(place.put(vec![Change::InsertInvitation(invitation("gone", 1))]));
        let early = std::future::poll_fn(|cx| Poll::Ready(ask.as_mut().poll(cx).is_ready())).await;
        assert!(!early, "it waits in the queue, and then its caller leaves");
    }
    release.send(()).expect("released");
    blocked.await.expect("ended").expect("nothing to fail");
    place.put(vec![Change::InsertInvitation(invitation("next", 1))]).await.expect("goes on");
    let kept = place.store.read(|r| Ok((r.invitation("gone"), r.invitation("next").is_some()))).await;
    assert_eq!(kept, Ok((None, true)));
}

#[tokio::test]
async fn readers_see_whole_transactions_and_survive_a_panic() {
    let place = Place::new();
    let panicked = place.store.read(|_| -> Result<(), StoreError> { panic!("a bug in a query") }).await;
    assert!(matches!(panicked, Err(StoreError::Bug(_))));
    let writer = place.store.clone();
    let runtime = tokio::runtime::Handle::current();
    let (before, during) = place
        .store
        .read(move |r| {
            let before = r.journal_last();
            std::thread::scope(|s| {
                s.spawn(|| runtime.block_on(put(&writer, vec![Change::Journal(entry(1, &[]))])).expect("written"));
            });
            Ok((before, r.journal_last()))
        })
        .await
        .expect("reads");
    assert_eq!((before, during), (0, 0), "one snapshot");
    assert_eq!(place.store.read(|r| Ok(r.journal_last())).await, Ok(1));
}

#[tokio::test]
async fn the_queue_for_the_writer_is_bounded_and_says_so_in_time() {
    let place = Place::new();
    let (release, blocked) = busy(&place.store).await;
    let (answer, mut answers) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..limits::STORE_QUEUE_MAX + 1 {
        let (store, answer) = (place.store.clone(), answer.clone());
        tokio::spawn(async move {
            let hit = Change::CountRate { key: "k".into(), at: at(0), hits: 1 };
            answer.send(put(&store, vec![hit]).await)
        });
    }
    drop(answer);
    // Nobody can be served yet, so the only answer is to the one for whom there is no place.
    let first = tokio::time::timeout(Duration::from_secs(60), answers.recv()).await.expect("an answer in time");
    assert_eq!(first, Some(Err(Denied::Store(StoreError::Busy))));
    release.send(()).expect("released");
    blocked.await.expect("ended").expect("nothing to fail");
    let mut served = 0;
    while let Some(outcome) = answers.recv().await {
        assert_eq!(outcome, Ok(()), "those that had a place are served");
        served += 1;
    }
    assert_eq!(served, limits::STORE_QUEUE_MAX);
    let hits = place.store.read(|r| Ok(r.rate("k", at(0)))).await;
    assert_eq!(hits, Ok(limits::STORE_QUEUE_MAX as u32));
}

#[tokio::test]
async fn the_log_starts_over_instead_of_growing() {
    let place = Place::new();
    let data = Value::from("x".repeat(256 * 1_024));
    let mut longest = 0;
    for i in 0..480 {
        let event = Change::Event { name: "big", at: at(i), actor: "ana@mar.example".into(), data: data.clone() };
        place.put(vec![event]).await.expect("written");
        longest = longest.max(std::fs::metadata(place.folder().join("house.db-wal")).expect("a log").len());
    }
    let bound = limits::STORE_WAL_PAGES as u64 * 4_120;
    let written = std::fs::metadata(place.path()).expect("a file").len();
    assert!(longest > bound / 2 && longest < bound + bound / 4, "{longest} bytes of log for {bound}");
    assert!(written > 2 * bound, "{written} bytes came through it");
}

#[test]
fn what_a_peer_is_told_depends_on_whether_it_may_try_again() {
    let told = |fault| Denied::Store(fault).into_refusal();
    assert_eq!(told(StoreError::Conflict("x".into())).code(), 421);
    for fault in [
        StoreError::Full,
        StoreError::Poisoned,
        StoreError::Busy,
        StoreError::Closed,
        StoreError::Io("secret path".into()),
        StoreError::Bug("x".into()),
    ] {
        let refusal = told(fault);
        assert_eq!((refusal.code(), refusal.retry_after.is_some()), (503, true));
        assert!(!refusal.reason.contains("secret"));
    }
    let refusal = Refusal::new(Rule::NotEnough, "x");
    assert_eq!(Denied::Refused(refusal.clone()).into_refusal(), refusal);
}
