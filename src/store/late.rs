//! Changes that are written when their transaction ends.
//!
//! Most operations make documents that the house signs, and a signature costs more than all else that the writer does for
//! them. So a decision that only adds rows which nothing else of its transaction looks at is taken at once into what the
//! writer keeps (balances, counters, the end of the journal, with every check of the ledger), and its rows follow when
//! the transaction is about to be committed: meanwhile other processors sign. Whatever asks for such a row earlier, or
//! asks for more, has all of them written first, so each decision is made on exactly what was decided before it.
//!
//! A row that cannot be written late undoes the transaction, which then runs again with nothing late.

use super::kept::{Account, Kept};
use super::rows::Rows;
use super::{StoreError, apply};
use crate::limits;
use crate::record::Change;
use crate::wire::Doc;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// What waits for the end of the transaction.
pub struct Late {
    rows: RefCell<Vec<LateRow>>,
    /// Sender and id of what is looked for by them.
    operations: RefCell<BTreeSet<(String, String)>>,
    seen: RefCell<BTreeSet<(String, String)>>,
    allowed: Cell<bool>,
    broken: Cell<bool>,
    /// How many rows were written for what had been decided earlier.
    written: Cell<u64>,
    signers: Signers,
}

struct LateRow {
    change: Change,
    /// Of an entry: its accounts as they are after each line.
    accounts: Vec<Account>,
}

/// Makes the changes of one decision, now or at the end of the transaction.
pub fn make(rows: &Rows<'_>, changes: Vec<Change>) -> Result<(), StoreError> {
    let Some(kept) = rows.kept().filter(|kept| kept.late.allowed.get() && changes.iter().all(waits)) else {
        settle(rows)?;
        return changes.iter().try_for_each(|change| apply::apply(rows, change));
    };
    let mut docs = Vec::new();
    for change in changes {
        if let Change::CountRate { .. } = &change {
            apply::apply(rows, &change)?;
            continue;
        }
        kept.count();
        let mut accounts = Vec::new();
        match &change {
            Change::Journal(entry) => {
                docs.push(entry.doc.clone());
                accounts = apply::move_accounts(rows, entry)?;
            }
            Change::InsertOperation(operation) => {
                docs.push(operation.result.clone());
                let key = (operation.from.to_string(), operation.id.clone());
                kept.late.operations.borrow_mut().insert(key);
            }
            Change::PutSeen(seen) => {
                kept.late.seen.borrow_mut().insert((seen.from.to_string(), seen.id.clone()));
            }
            Change::Deliver(mail) => docs.push(mail.envelope.clone()),
            _ => {}
        }
        kept.late.rows.borrow_mut().push(LateRow { change, accounts });
    }
    kept.late.signers.ask(docs);
    if kept.late.rows.borrow().len() >= limits::STORE_LATE_ROWS_MAX { settle(rows) } else { Ok(()) }
}

/// Writes what waits.
pub fn settle(rows: &Rows<'_>) -> Result<(), StoreError> {
    let Some(late) = rows.kept().map(|kept| &kept.late) else { return Ok(()) };
    let waiting = late.take();
    if waiting.is_empty() {
        return Ok(());
    }
    let write = || {
        late.signers.help();
        waiting.iter().try_for_each(|row| match &row.change {
            Change::Journal(entry) => apply::write_entry(rows, entry, &row.accounts),
            change => apply::apply(rows, change),
        })
    };
    let before = rows.written();
    let outcome = catch_unwind(AssertUnwindSafe(write));
    let outcome = outcome.unwrap_or_else(|_| Err(StoreError::Bug("a late document could not be made".to_owned())));
    late.written.set(late.written.get() + rows.written() - before);
    late.broken.set(late.broken.get() || outcome.is_err());
    outcome
}

/// Writes what waits if this operation is among it.
pub fn settle_operation(rows: &Rows<'_>, from: &str, id: &str) -> Result<(), StoreError> {
    let waits = |kept: &Kept| kept.late.operations.borrow().contains(&(from.to_owned(), id.to_owned()));
    if rows.kept().is_some_and(waits) { settle(rows) } else { Ok(()) }
}

/// Writes what waits if what was accepted of this envelope is among it.
pub fn settle_seen(rows: &Rows<'_>, from: &str, id: &str) -> Result<(), StoreError> {
    let waits = |kept: &Kept| kept.late.seen.borrow().contains(&(from.to_owned(), id.to_owned()));
    if rows.kept().is_some_and(waits) { settle(rows) } else { Ok(()) }
}

impl Late {
    /// Whether a row could not be written: nothing of the transaction can be kept.
    pub fn is_broken(&self) -> bool {
        self.broken.get()
    }

    pub fn written(&self) -> u64 {
        self.written.get()
    }

    pub fn allow(&self, allowed: bool) {
        self.allowed.set(allowed);
    }

    /// The transaction was undone.
    pub fn forget(&self) {
        self.take();
        self.signers.forget();
        self.broken.set(false);
    }

    fn take(&self) -> Vec<LateRow> {
        self.operations.take();
        self.seen.take();
        self.rows.take()
    }
}

impl Default for Late {
    fn default() -> Self {
        Late {
            rows: RefCell::default(),
            operations: RefCell::default(),
            seen: RefCell::default(),
            allowed: Cell::new(true),
            broken: Cell::new(false),
            written: Cell::new(0),
            signers: Signers::start(),
        }
    }
}

fn waits(change: &Change) -> bool {
    matches!(
        change,
        Change::CountRate { .. }
            | Change::Journal(_)
            | Change::InsertOperation(_)
            | Change::Deliver(_)
            | Change::PutSeen(_)
            | Change::Event { .. }
    )
}

/// Threads that make promised documents while the writer decides. Whoever comes to a document that is not made yet makes
/// it, so nothing depends on these threads but time.
struct Signers {
    desk: Arc<Desk>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Desk {
    asked: Mutex<Asked>,
    bell: Condvar,
}

#[derive(Default)]
struct Asked {
    /// The documents of one decision together: the later ones hold the earlier ones.
    docs: VecDeque<Vec<Doc>>,
    closed: bool,
}

impl Signers {
    /// The writer has a processor of its own; the others sign. None is started where none can be.
    fn start() -> Signers {
        let desk = Arc::new(Desk::default());
        let others = std::thread::available_parallelism().map_or(1, usize::from).saturating_sub(1);
        let threads = (0..others.min(limits::STORE_SIGNERS_MAX)).filter_map(|_| {
            let desk = Arc::clone(&desk);
            std::thread::Builder::new().name("signer".to_owned()).spawn(move || desk.serve()).ok()
        });
        let threads = threads.collect();
        Signers { desk, threads }
    }

    fn ask(&self, docs: Vec<Doc>) {
        if !self.threads.is_empty() && !docs.is_empty() {
            self.desk.lock().docs.push_back(docs);
            self.desk.bell.notify_one();
        }
    }

    /// Makes what nobody has begun.
    fn help(&self) {
        loop {
            let next = self.desk.lock().docs.pop_front();
            let Some(docs) = next else { return };
            make_texts(&docs);
        }
    }

    fn forget(&self) {
        self.desk.lock().docs.clear();
    }
}

impl Drop for Signers {
    fn drop(&mut self) {
        self.desk.lock().closed = true;
        self.desk.bell.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn serve(&self) {
        let mut asked = self.lock();
        while !asked.closed {
            match asked.docs.pop_front() {
                Some(docs) => {
                    drop(asked);
                    // A document that cannot be made is the writer's to report.
                    let _ = catch_unwind(AssertUnwindSafe(|| make_texts(&docs)));
                    drop(docs);
                    asked = self.lock();
                }
                None => asked = self.bell.wait(asked).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Nothing is done under this lock that could leave the queue half changed.
    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn make_texts(docs: &[Doc]) {
    docs.iter().for_each(|doc| {
        doc.text();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{schema, sql};
    use crate::time::Timestamp;
    use serde_json::json;

    #[test]
    fn what_waits_is_bounded() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("house.db");
        std::fs::File::create(&path).expect("file");
        let conn = schema::open_writer(&path).expect("opens");
        let kept = Kept::default();
        let rows = Rows::keeping(&conn, &kept);
        rows.exec(sql::BEGIN, []).expect("begins");
        let event =
            |_| Change::Event { name: "e", at: Timestamp::from_millis(1), actor: "a".into(), data: json!(null) };
        let waiting = || (kept.late.rows.borrow().len(), rows.written());
        make(&rows, (1..limits::STORE_LATE_ROWS_MAX).map(event).collect()).expect("made");
        assert_eq!(waiting(), (limits::STORE_LATE_ROWS_MAX - 1, 0));
        let before = rows.changes();
        make(&rows, vec![event(0)]).expect("made");
        let (left, written) = waiting();
        assert!(left == 0 && written >= limits::STORE_LATE_ROWS_MAX as u64, "{left} {written}");
        assert_eq!(rows.changes(), before + 1, "a row that follows is no change of whoever had it written");
        make(&rows, vec![event(0)]).expect("made");
        assert_eq!(waiting(), (1, written));
    }
}
