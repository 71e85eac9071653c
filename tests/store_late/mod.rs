//! What is written when its transaction ends: seen by whoever asks earlier, and undone for one command alone.

use super::store_fixture::{CASA, Place, address, at, entry, mail, operation, seen};
use super::{bug, conflict, in_one_batch};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use verifica::record::{Change, Decided, Decision, Entry, View};
use verifica::refusal::{Refusal, Rule};
use verifica::store::{Denied, Store};
use verifica::wire::Doc;

const ANA: &str = "ana@mar.example";

/// A payment to ana as a rule that looks at nothing but the journal's number decides it.
fn pay(change: impl Fn(Entry) -> Vec<Change> + Send + Sync + 'static) -> impl Fn(&dyn View) -> Decided<u64> {
    move |view| {
        let n = view.journal_last() + 1;
        Ok(Decision { changes: change(entry(n, &[(CASA, -1), (ANA, 1)])), reply: n })
    }
}

fn done(operation_id: &'static str) -> impl Fn(&dyn View) -> Decided<u64> {
    pay(move |entry| vec![Change::Journal(entry), Change::InsertOperation(operation(ANA, operation_id))])
}

async fn journal(place: &Place) -> (Vec<u64>, i64) {
    let read =
        place.store.read(|r| Ok((r.journal(1, 100)?.iter().map(|entry| entry.n).collect::<Vec<_>>(), r.balance(ANA))));
    read.await.expect("reads")
}

#[tokio::test]
async fn a_later_command_of_the_batch_sees_every_row_of_an_earlier_one() {
    let place = Place::new();
    let first = place.store.transact(pay(|entry| {
        vec![
            Change::Journal(entry),
            Change::InsertOperation(operation(ANA, "o1")),
            Change::PutSeen(seen(ANA, "o1", "aa")),
            Change::Deliver(mail("leo", ANA, "letter-1", 1)),
        ]
    }));
    let operation_of = place.store.transact(|view| Ok(Decision::nothing(view.operation(&address(ANA), "o1"))));
    let second = place.store.transact(done("o2"));
    let all = place.store.transact(|view| {
        let page = view.account_page(ANA, None, None, 10);
        let seen = view.seen(&address(ANA), "o1").map(|seen| seen.sha256);
        Ok(Decision::nothing((page.entries.len(), page.total, seen, view.pending("leo", "letter-1").len())))
    });
    let third = place.store.transact(done("o3"));
    let (first, known, second, all, third) =
        in_one_batch(&place.store, async { tokio::join!(first, operation_of, second, all, third) }).await;
    assert_eq!((first, second, third), (Ok(1), Ok(2), Ok(3)));
    assert_eq!(known.map(|known| known.is_some()), Ok(true));
    assert_eq!(all, Ok((2, 2, Some("aa".to_owned()), 1)));
    assert_eq!(journal(&place).await, (vec![1, 2, 3], 3));
}

#[tokio::test]
async fn a_row_that_cannot_be_written_late_fails_its_command_and_no_other() {
    let place = Place::new();
    let again = pay(|entry| vec![Change::Journal(entry), Change::InsertOperation(operation(ANA, "o1"))]);
    let lies = pay(|mut entry| {
        entry.doc = Doc::from(json!({"n": entry.n, "id": entry.id, "lines": []}));
        vec![Change::Journal(entry)]
    });
    let unmade = pay(|entry| {
        let mut letter = mail("leo", ANA, "letter-1", 1);
        letter.envelope = Doc::later(|| panic!("a document that cannot be made"));
        vec![Change::Journal(entry), Change::Deliver(letter)]
    });
    let store = &place.store;
    let (first, again, lies, unmade, last) = in_one_batch(store, async {
        tokio::join!(
            store.transact(done("o1")),
            store.transact(again),
            store.transact(lies),
            store.transact(unmade),
            store.transact(done("o2")),
        )
    })
    .await;
    assert_eq!((first, last), (Ok(1), Ok(2)), "no number is left out");
    assert!(conflict(again.map(drop)));
    assert!(bug(lies.map(drop)) && bug(unmade.map(drop)));
    assert_eq!(journal(&place).await, (vec![1, 2], 2));
    assert_eq!(place.store.transact(done("o3")).await, Ok(3), "what was undone is forgotten");
    let page = place.store.read(|r| Ok(r.account_page(ANA, None, None, 1))).await.expect("reads");
    assert_eq!((page.opening, page.total, page.entries[0].n), (2, 3, 3));
}

#[tokio::test]
async fn an_account_that_a_whole_batch_moves_has_a_row_for_each_movement() {
    let place = Place::new();
    let store = &place.store;
    let all = in_one_batch(store, async {
        let one = |n: usize| {
            store.transact(pay(move |entry| {
                let count = Change::CountRate { key: "k".into(), at: at(0), hits: 1 };
                let id = format!("o{n}");
                vec![count, Change::Journal(entry), Change::InsertOperation(operation(ANA, &id))]
            }))
        };
        tokio::join!(one(0), one(1), one(2), one(3), one(4), one(5))
    })
    .await;
    assert_eq!(all, (Ok(1), Ok(2), Ok(3), Ok(4), Ok(5), Ok(6)));
    let (page, rate) =
        store.read(|r| Ok((r.account_page(ANA, Some(at(3)), None, 2), r.rate("k", at(0))))).await.expect("reads");
    assert_eq!((page.opening, page.total, rate), (4, 4, 6));
    assert_eq!(page.entries.iter().map(|entry| entry.n).collect::<Vec<_>>(), [5, 6]);
    store.close().await.expect("closed");
    let again = Store::open(&place.path(), 1).expect("opens");
    let kept = again.read(|r| Ok((r.balance(ANA), r.rate("k", at(0))))).await;
    assert_eq!(kept, Ok((6, 6)), "as the file has it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_looked_at_what_waits_takes_nothing_of_its_neighbours_with_it() {
    let place = Place::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = |rule: fn(&dyn View) -> Decided<u64>| {
        let runs = Arc::clone(&runs);
        place.store.transact(move |view| {
            runs.fetch_add(1, Ordering::SeqCst);
            rule(view)
        })
    };
    let first = counted(|view| done("o1")(view));
    let refused = counted(|view| {
        assert!(view.operation(&address(ANA), "o1").is_some());
        Err(Refusal::new(Rule::CannotPayTo, "no"))
    });
    let last = counted(|view| done("o2")(view));
    let (first, refused, last) = in_one_batch(&place.store, async { tokio::join!(first, refused, last) }).await;
    assert_eq!((first, last), (Ok(1), Ok(2)));
    assert!(matches!(refused, Err(Denied::Refused(_))), "{refused:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 3, "no command ran twice");
    assert_eq!(journal(&place).await, (vec![1, 2], 2));
}
