//! What the writer remembers of the records beside the file, so that a command does not read them again.
//!
//! Nobody else writes to the file while this process holds its lock, so what was read or written here stays true until
//! the transaction is undone, and then all of it is forgotten. Two kinds:
//!
//! - **Read once**: agents with their parsed cards, balances, counters, and the end of the journal.
//! - **Written once a transaction**: an account or a counter that many commands of one transaction move is written when
//!   the transaction ends, with its last value. [`Kept::flush`] must run before the commit; nothing is acknowledged
//!   before that.
//!
//! Both are bounded: what was not asked for during a whole generation is dropped.

use super::late::{self, Late};
use super::rows::Rows;
use super::{StoreError, sql};
use crate::limits;
use crate::record::AgentRecord;
use crate::time::Timestamp;
use rusqlite::params;
use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
pub struct Kept {
    agents: RefCell<Generations<String, AgentRecord>>,
    accounts: RefCell<Table<String, Account>>,
    rates: RefCell<Table<(String, i64), u32>>,
    journal: Cell<Option<(u64, Timestamp)>>,
    casa: RefCell<Option<Arc<str>>>,
    pub late: Late,
    writes: Cell<u64>,
}

/// An account as its row says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub balance: i64,
    pub entries: i64,
}

impl Kept {
    /// How often something was changed here that is not in the file yet, or was not at the time.
    pub fn writes(&self) -> u64 {
        self.writes.get()
    }

    pub fn agent(&self, local: &str) -> Option<AgentRecord> {
        self.agents.borrow_mut().get(local).cloned()
    }

    pub fn read_agent(&self, agent: &AgentRecord, bytes: usize) {
        self.agents.borrow_mut().put(agent.local.as_str().to_owned(), agent.clone(), bytes, limits::STORE_KEPT_BYTES);
    }

    pub fn forget_agent(&self, local: &str) {
        self.agents.borrow_mut().forget(local);
    }

    pub fn journal(&self) -> Option<(u64, Timestamp)> {
        self.journal.get()
    }

    pub fn set_journal(&self, last: (u64, Timestamp)) {
        self.journal.set(Some(last));
    }

    pub fn casa(&self) -> Option<Arc<str>> {
        self.casa.borrow().clone()
    }

    pub fn set_casa(&self, casa: Arc<str>) {
        self.casa.replace(Some(casa));
    }

    pub fn account(&self, name: &str) -> Option<Account> {
        self.accounts.borrow_mut().get(name)
    }

    pub fn read_account(&self, name: &str, account: Account) {
        self.accounts.borrow_mut().read(name.to_owned(), account);
    }

    pub fn put_account(&self, name: &str, account: Account) {
        self.count();
        self.accounts.borrow_mut().changed.insert(name.to_owned(), account);
    }

    pub fn rate(&self, key: &(String, i64)) -> Option<u32> {
        self.rates.borrow_mut().get(key)
    }

    pub fn read_rate(&self, key: (String, i64), hits: u32) {
        self.rates.borrow_mut().read(key, hits);
    }

    pub fn put_rate(&self, key: (String, i64), hits: u32) {
        self.count();
        self.rates.borrow_mut().changed.insert(key, hits);
    }

    /// Writes what was changed into the open transaction.
    pub fn flush(&self, rows: &Rows<'_>) -> Result<(), StoreError> {
        late::settle(rows)?;
        let accounts = std::mem::take(&mut self.accounts.borrow_mut().changed);
        for (name, account) in accounts {
            rows.exec(sql::PUT_ACCOUNT, params![name, account.balance, account.entries])?;
            self.accounts.borrow_mut().read(name, account);
        }
        let rates = std::mem::take(&mut self.rates.borrow_mut().changed);
        for (key, hits) in rates {
            rows.exec(sql::PUT_RATE, params![key.0, key.1, hits])?;
            self.rates.borrow_mut().read(key, hits);
        }
        Ok(())
    }

    /// The transaction was undone: nothing that was seen in it holds.
    pub fn forget(&self) {
        self.agents.take();
        self.accounts.take();
        self.rates.take();
        self.journal.take();
        self.casa.take();
        self.late.forget();
    }

    /// Something was changed here that is not in the file.
    pub fn count(&self) {
        self.writes.set(self.writes.get() + 1);
    }
}

/// Rows that were read, and over them those that were changed since the last flush.
struct Table<K, V> {
    changed: BTreeMap<K, V>,
    read: Generations<K, V>,
}

impl<K: Ord, V: Copy> Table<K, V> {
    fn get<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.changed.get(key).or_else(|| self.read.get(key)).copied()
    }

    fn read(&mut self, key: K, value: V) {
        self.read.put(key, value, 1, limits::STORE_KEPT_ROWS);
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table { changed: BTreeMap::new(), read: Generations::default() }
    }
}

/// A bounded memory: when the young generation is full it becomes the old one, and the old one goes.
struct Generations<K, V> {
    young: BTreeMap<K, (V, usize)>,
    old: BTreeMap<K, (V, usize)>,
    weight: usize,
}

impl<K: Ord, V> Generations<K, V> {
    fn get<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        if let Some((key, row)) = self.old.remove_entry(key) {
            self.weight += row.1;
            self.young.insert(key, row);
        }
        self.young.get(key).map(|(value, _)| value)
    }

    /// What alone outweighs a generation is not kept.
    fn put(&mut self, key: K, value: V, weight: usize, max: usize) {
        self.forget(&key);
        if weight > max {
            return;
        }
        if self.weight + weight > max {
            self.old = std::mem::take(&mut self.young);
            self.weight = 0;
        }
        self.weight += weight;
        self.young.insert(key, (value, weight));
    }

    fn forget<Q: Ord + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.old.remove(key);
        if let Some((_, weight)) = self.young.remove(key) {
            self.weight -= weight;
        }
    }
}

impl<K, V> Default for Generations<K, V> {
    fn default() -> Self {
        Generations { young: BTreeMap::new(), old: BTreeMap::new(), weight: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_bounded_by_weight_and_what_is_asked_for_stays() {
        let mut kept: Generations<String, u32> = Generations::default();
        for n in 0..4 {
            kept.put(format!("{n}"), n, 25, 100);
        }
        assert_eq!((kept.young.len(), kept.old.len()), (4, 0), "at the bound all stay");
        kept.put("4".into(), 4, 1, 100);
        assert_eq!((kept.young.len(), kept.old.len()), (1, 4), "one beyond it begins a new generation");
        assert_eq!(kept.get("2"), Some(&2));
        kept.put("5".into(), 5, 100, 100);
        assert_eq!(kept.get("2"), Some(&2), "asked for, so in the last generation still");
        assert_eq!(kept.get("3"), None);
        kept.put("6".into(), 6, 101, 100);
        assert_eq!(kept.get("6"), None, "alone over the bound");
        kept.forget("2");
        assert_eq!(kept.get("2"), None);
    }

    #[test]
    fn a_promoted_row_may_pass_the_bound_until_the_next_one_comes() {
        let mut kept: Generations<u32, ()> = Generations::default();
        for n in 0..200 {
            kept.put(n, (), 1, 100);
            kept.get(&(n / 2));
            assert!(kept.young.len() + kept.old.len() <= 300, "{n}");
        }
    }
}
