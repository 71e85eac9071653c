//! Records out of rows: what both the writer's transaction and a reader's snapshot can be asked.
//!
//! [`View`] cannot report an error, so the first read that fails is latched: from then on the view answers nothing, and
//! whoever ran the rule discards its decision and reports the fault. No decision is ever made on missing data.

use super::kept::{Account, Kept};
use super::{StoreError, late, sql};
use crate::limits;
use crate::record::{
    AccountPage, AgentRecord, BlobRecord, Contract, Entry, Invitation, Job, Line, LookRow, MailRecord, Mandate,
    OperationRecord, Pin, Push, SealRecord, SeenRecord, View,
};
use crate::time::Timestamp;
use crate::wire::address::{Address, Local};
use crate::wire::card::AgentCard;
use crate::wire::doc::Doc;
use crate::wire::key::PublicKey;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, Params, Row, Statement, params};
use serde::de::DeserializeOwned;
use std::cell::RefCell;

/// A connection inside a transaction.
pub struct Rows<'c> {
    conn: &'c Connection,
    /// What the writer remembers; a reader sees its snapshot and nothing else.
    kept: Option<&'c Kept>,
    /// The statements used so far: finding one again costs less here than among all that the connection knows.
    statements: RefCell<Vec<(&'static str, Option<CachedStatement<'c>>)>>,
    fault: RefCell<Option<StoreError>>,
}

impl<'c> Rows<'c> {
    pub fn new(conn: &'c Connection) -> Self {
        Rows { conn, kept: None, statements: RefCell::new(Vec::new()), fault: RefCell::new(None) }
    }

    /// As the writer sees its own transaction.
    pub fn keeping(conn: &'c Connection, kept: &'c Kept) -> Self {
        Rows { kept: Some(kept), ..Rows::new(conn) }
    }

    pub fn kept(&self) -> Option<&'c Kept> {
        self.kept
    }

    /// A number that is another one after any change of the records. A row that only follows what was decided earlier
    /// changes nothing.
    pub fn changes(&self) -> u64 {
        let (writes, followed) = self.kept.map_or((0, 0), |kept| (kept.writes(), kept.late.written()));
        self.written() + writes - followed
    }

    /// How many rows this connection has written.
    pub fn written(&self) -> u64 {
        self.conn.total_changes()
    }

    /// The first read that failed since the last call.
    pub fn take_fault(&self) -> Option<StoreError> {
        self.fault.borrow_mut().take()
    }

    pub fn one<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        self.with(sql, |statement| {
            let mut rows = statement.query(params)?;
            match rows.next()? {
                Some(row) => Ok(Some(read(row)?)),
                None => Ok(None),
            }
        })
    }

    pub fn many<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.with(sql, |statement| {
            let mut rows = statement.query(params)?;
            let mut out = Vec::new();
            while let Some(row) = rows.next()? {
                out.push(read(row)?);
            }
            Ok(out)
        })
    }

    /// As [`Rows::many`], ending before the rows read hold more than [`limits::STORE_LIST_BYTES_MAX`], so that no list of
    /// large documents fills the memory; one row is always read. Answers whether it ended early.
    pub fn many_within<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<(Vec<T>, bool), StoreError> {
        self.with(sql, |statement| {
            let columns = statement.column_count();
            let mut rows = statement.query(params)?;
            let mut out = Vec::new();
            let mut bytes = 0;
            while let Some(row) = rows.next()? {
                for column in 0..columns {
                    if let ValueRef::Text(held) | ValueRef::Blob(held) = row.get_ref(column)? {
                        bytes += held.len();
                    }
                }
                if bytes > limits::STORE_LIST_BYTES_MAX && !out.is_empty() {
                    return Ok((out, true));
                }
                out.push(read(row)?);
            }
            Ok((out, false))
        })
    }

    /// Runs a statement that changes rows; how many it changed.
    pub fn exec(&self, sql: &'static str, params: impl Params) -> Result<usize, StoreError> {
        self.with(sql, |statement| Ok(statement.execute(params)?))
    }

    /// The number that the last insert gave its row.
    pub fn last_number(&self) -> i64 {
        self.conn.last_insert_rowid()
    }

    pub fn integer(&self, sql: &'static str, params: impl Params) -> Result<Option<i64>, StoreError> {
        Ok(self.one(sql, params, |row| Ok(row.get::<_, Option<i64>>(0)?))?.flatten())
    }

    pub fn text(&self, sql: &'static str, params: impl Params) -> Result<Option<String>, StoreError> {
        self.one(sql, params, |row| Ok(row.get(0)?))
    }

    /// Takes a statement for as long as it is used; one that is in use already is taken from the connection.
    fn with<T>(
        &self,
        sql: &'static str,
        run: impl FnOnce(&mut Statement<'c>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let place = self.statements.borrow().iter().position(|(known, _)| std::ptr::eq(*known, sql));
        let taken = place.and_then(|place| self.statements.borrow_mut()[place].1.take());
        let mut statement = match taken {
            Some(statement) => statement,
            None => self.conn.prepare_cached(sql)?,
        };
        let outcome = run(&mut statement);
        let mut statements = self.statements.borrow_mut();
        match place {
            Some(place) => statements[place].1 = Some(statement),
            None => statements.push((sql, Some(statement))),
        }
        outcome
    }

    /// A question over the whole file: what waits for the end of the transaction is written first. One that looks at
    /// nothing of what `late` lets wait may be asked by [`Rows::latch`].
    fn settled<T: Default>(&self, read: impl FnOnce() -> Result<T, StoreError>) -> T {
        self.latch(|| {
            late::settle(self)?;
            read()
        })
    }

    fn latch<T: Default>(&self, read: impl FnOnce() -> Result<T, StoreError>) -> T {
        if self.fault.borrow().is_some() {
            return T::default();
        }
        match read() {
            Ok(value) => value,
            Err(fault) => {
                *self.fault.borrow_mut() = Some(fault);
                T::default()
            }
        }
    }
}

impl View for Rows<'_> {
    fn agent(&self, local: &str) -> Option<AgentRecord> {
        self.latch(|| {
            if let Some(known) = self.kept.and_then(|kept| kept.agent(local)) {
                return Ok(Some(known));
            }
            self.one(sql::AGENT, [local], |row| {
                let read = agent(row)?;
                if let Some(kept) = self.kept {
                    kept.read_agent(&read, row.get_ref(1)?.as_str().map_or(0, str::len));
                }
                Ok(read)
            })
        })
    }

    fn pin(&self, domain: &str) -> Option<Pin> {
        self.latch(|| self.one(sql::PIN, [domain], pin))
    }

    fn blob(&self, blob: &str) -> Option<BlobRecord> {
        self.latch(|| self.one(sql::BLOB, [blob], |row| document(row, 0)))
    }

    fn blob_bytes(&self) -> u64 {
        self.latch(|| self.text(sql::META, [META_BLOB_BYTES])).and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    fn blob_day(&self, sender: &Address, day: i64) -> u64 {
        self.latch(|| self.integer(sql::BLOB_DAY, params![sender.as_str(), day])).map_or(0, i64::cast_unsigned)
    }

    fn invitation(&self, code: &str) -> Option<Invitation> {
        self.latch(|| self.one(sql::INVITATION, [code], invitation))
    }

    fn seen(&self, from: &Address, id: &str) -> Option<SeenRecord> {
        self.latch(|| {
            late::settle_seen(self, from.as_str(), id)?;
            self.one(sql::SEEN, [from.as_str(), id], |row| {
                Ok(SeenRecord {
                    from: from.clone(),
                    id: id.to_owned(),
                    sha256: row.get(0)?,
                    at: instant(row, 1)?,
                    accepted: document(row, 2)?,
                })
            })
        })
    }

    fn pending(&self, local: &str, id: &str) -> Vec<MailRecord> {
        self.settled(|| self.many(sql::PENDING, [local, id], mail))
    }

    fn job(&self, id: &str) -> Option<Job> {
        self.latch(|| self.one(sql::JOB, [id], |row| document(row, 0)))
    }

    fn last_seen(&self, local: &str) -> Option<Timestamp> {
        self.latch(|| self.integer(sql::LAST_SEEN, [local])).map(Timestamp::from_millis)
    }

    fn rate(&self, key: &str, at: Timestamp) -> u32 {
        self.latch(|| rate(self, key, at))
    }

    fn nonce_used(&self, key: &str) -> bool {
        self.latch(|| self.integer(sql::NONCE, [key])).is_some()
    }

    fn journal_last(&self) -> u64 {
        self.latch(|| journal_last(self)).0
    }

    fn journal_last_at(&self) -> Timestamp {
        self.latch(|| journal_last(self)).1
    }

    fn account_page(
        &self,
        account: &str,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        limit: usize,
    ) -> AccountPage {
        self.settled(|| account_page(self, account, since, until, limit).map(Some)).unwrap_or_else(nothing)
    }

    fn contracts_of(&self, account: &str, limit: usize) -> Vec<Contract> {
        self.settled(|| Ok(self.many_within(sql::CONTRACTS_OF, params![account, bound(limit)], contract)?.0))
    }

    fn mandate(&self, id: &str) -> Option<Mandate> {
        self.latch(|| self.one(sql::MANDATE, [id], |row| document(row, 0)))
    }

    fn mandates_under(&self, id: &str) -> Vec<Mandate> {
        self.latch(|| self.many(sql::MANDATES_UNDER, [id], |row| document(row, 0)))
    }

    fn mandates_of(&self, account: &str, limit: usize) -> Vec<Mandate> {
        self.settled(|| self.many(sql::MANDATES_OF, params![account, bound(limit)], |row| document(row, 0)))
    }

    fn seal(&self, sha256: &str, by: &Address) -> Option<SealRecord> {
        self.settled(|| self.one(sql::SEAL, [sha256, by.as_str()], |row| document(row, 0)))
    }

    fn balance(&self, account: &str) -> i64 {
        self.latch(|| account_of(self, account)).balance
    }

    fn contract(&self, id: &str) -> Option<Contract> {
        self.latch(|| self.one(sql::CONTRACT, [id], contract))
    }

    fn contract_of_quote(&self, quote: &str) -> Option<String> {
        self.latch(|| self.text(sql::CONTRACT_OF_QUOTE, [quote]))
    }

    fn operation(&self, from: &Address, id: &str) -> Option<OperationRecord> {
        self.latch(|| {
            late::settle_operation(self, from.as_str(), id)?;
            self.one(sql::OPERATION, [from.as_str(), id], |row| {
                Ok(OperationRecord {
                    from: from.clone(),
                    id: id.to_owned(),
                    sha256: row.get(0)?,
                    at: instant(row, 1)?,
                    result: document(row, 2)?,
                })
            })
        })
    }

    fn look(&self, contract: &str) -> Option<LookRow> {
        self.latch(|| self.one(sql::LOOK, [contract], look))
    }
}

/// Number and time of the last entry.
pub fn journal_last(rows: &Rows<'_>) -> Result<(u64, Timestamp), StoreError> {
    if let Some(last) = rows.kept().and_then(Kept::journal) {
        return Ok(last);
    }
    let last = rows.one(sql::JOURNAL_LAST, [], |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), instant(row, 1)?)))?;
    let last = last.unwrap_or_default();
    if let Some(kept) = rows.kept() {
        kept.set_journal(last);
    }
    Ok(last)
}

/// What an account holds, and of how many entries it is a part.
pub fn account_of(rows: &Rows<'_>, name: &str) -> Result<Account, StoreError> {
    if let Some(known) = rows.kept().and_then(|kept| kept.account(name)) {
        return Ok(known);
    }
    let read = |row: &Row<'_>| Ok(Account { balance: row.get(0)?, entries: row.get(1)? });
    let account = rows.one(sql::ACCOUNT, [name], read)?.unwrap_or_default();
    if let Some(kept) = rows.kept() {
        kept.read_account(name, account);
    }
    Ok(account)
}

/// Hits counted under this key in the minute of `at`.
pub fn rate(rows: &Rows<'_>, key: &str, at: Timestamp) -> Result<u32, StoreError> {
    let place = (key.to_owned(), at.minute());
    if let Some(hits) = rows.kept().and_then(|kept| kept.rate(&place)) {
        return Ok(hits);
    }
    let hits = rows.integer(sql::RATE, (key, at.minute()))?.unwrap_or(0);
    let hits = u32::try_from(hits).unwrap_or(u32::MAX);
    if let Some(kept) = rows.kept() {
        kept.read_rate(place, hits);
    }
    Ok(hits)
}

/// Times never fall as numbers rise, so a span of time is a span of numbers; and every line knows the balance after it
/// and which of its account's entries it belongs to. So nothing is added up or counted over history.
fn account_page(
    rows: &Rows<'_>,
    account: &str,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    limit: usize,
) -> Result<AccountPage, StoreError> {
    let number_at = |at: Option<Timestamp>, without: i64| match at {
        Some(at) => Ok(rows.integer(sql::ENTRY_FROM, [at.millis()])?.unwrap_or(i64::MAX)),
        None => Ok::<_, StoreError>(without),
    };
    let (from, to) = (number_at(since, 0)?, number_at(until, i64::MAX)?);
    let entries = rows.many(sql::ENTRIES_OF, params![account, from, to, bound(limit)], entry)?;
    let before = |n: i64| rows.one(sql::LINE_BEFORE, params![account, n], |row| Ok((row.get(0)?, row.get(1)?)));
    let (_, skipped): (i64, i64) = before(from)?.unwrap_or_default();
    let (_, reached): (i64, i64) = before(to)?.unwrap_or_default();
    let opens_at = match (entries.first(), since) {
        (Some(first), _) => i64::try_from(first.n).unwrap_or(i64::MAX),
        (None, Some(_)) => from,
        (None, None) => 0,
    };
    let (opening, _) = before(opens_at)?.unwrap_or_default();
    Ok(AccountPage { opening, entries, total: u64::try_from(reached - skipped).unwrap_or(0) })
}

fn nothing() -> AccountPage {
    AccountPage { opening: 0, entries: Vec::new(), total: 0 }
}

/// A limit as SQLite takes it.
pub fn bound(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub fn pin(row: &Row<'_>) -> Result<Pin, StoreError> {
    let next = row.get::<_, Option<String>>(3)?;
    Ok(Pin {
        domain: row.get(0)?,
        key: key(&row.get::<_, String>(1)?)?,
        at: instant(row, 2)?,
        next: next.as_deref().map(key).transpose()?,
    })
}

fn key(kid: &str) -> Result<PublicKey, StoreError> {
    PublicKey::parse(kid).map_err(|_| StoreError::Bug("a stored pin cannot be read".to_owned()))
}

pub fn agent(row: &Row<'_>) -> Result<AgentRecord, StoreError> {
    let local: String = row.get(0)?;
    let local = Local::parse(&local).map_err(|_| unreadable("agent", &local))?;
    let card = AgentCard::parse(document(row, 1)?).map_err(|_| unreadable("card", local.as_str()))?;
    Ok(AgentRecord {
        local,
        card,
        webhook: row.get(2)?,
        notify_email: row.get(3)?,
        registered_via: row.get(4)?,
        system: row.get(5)?,
        created: instant(row, 6)?,
    })
}

pub fn invitation(row: &Row<'_>) -> Result<Invitation, StoreError> {
    let optional = |at| Ok::<_, StoreError>(row.get::<_, Option<i64>>(at)?);
    Ok(Invitation {
        code: row.get(0)?,
        uses: row.get::<_, i64>(1)?.cast_unsigned(),
        used: row.get::<_, i64>(2)?.cast_unsigned(),
        expires: optional(3)?.map(Timestamp::from_millis),
        note: row.get(4)?,
        welcome: optional(5)?.map(i64::cast_unsigned),
        created: instant(row, 6)?,
        by: row.get(7)?,
        last_used: optional(8)?.map(Timestamp::from_millis),
    })
}

pub fn mail(row: &Row<'_>) -> Result<MailRecord, StoreError> {
    let optional = |at| Ok::<_, StoreError>(row.get::<_, Option<i64>>(at)?.map(Timestamp::from_millis));
    Ok(MailRecord {
        local: row.get(0)?,
        id: row.get(1)?,
        from: row.get(2)?,
        received: instant(row, 3)?,
        acked: optional(4)?,
        visible_from: optional(5)?,
        meta: document(row, 6)?,
        envelope: document(row, 7)?,
    })
}

pub fn push(row: &Row<'_>) -> Result<Push, StoreError> {
    Ok(Push {
        local: row.get(0)?,
        from: row.get(1)?,
        id: row.get(2)?,
        attempts: row.get(3)?,
        first: instant(row, 4)?,
        wake: instant(row, 5)?,
    })
}

/// The lease lies in its own column, because claiming a look does not write its document again.
pub fn look(row: &Row<'_>) -> Result<LookRow, StoreError> {
    let mut look: LookRow = document(row, 0)?;
    look.lease_until = row.get::<_, Option<i64>>(1)?.map(Timestamp::from_millis);
    Ok(look)
}

pub fn contract(row: &Row<'_>) -> Result<Contract, StoreError> {
    document(row, 0)
}

pub fn entry(row: &Row<'_>) -> Result<Entry, StoreError> {
    let n: i64 = row.get(0)?;
    let doc: Doc = document(row, 3)?;
    let lines: Vec<Line> = doc
        .get("lines")
        .cloned()
        .and_then(|lines| serde_json::from_value(lines).ok())
        .ok_or_else(|| unreadable("entry", &n.to_string()))?;
    Ok(Entry { n: n.cast_unsigned(), id: row.get(1)?, at: instant(row, 2)?, lines, doc })
}

pub fn document<T: DeserializeOwned>(row: &Row<'_>, at: usize) -> Result<T, StoreError> {
    let text = row.get_ref(at)?.as_str().map_err(|e| StoreError::Bug(format!("column {at} is not a text: {e}")))?;
    serde_json::from_str(text).map_err(|e| StoreError::Bug(format!("a stored document cannot be read: {e}")))
}

pub fn instant(row: &Row<'_>, at: usize) -> Result<Timestamp, StoreError> {
    Ok(Timestamp::from_millis(row.get(at)?))
}

fn unreadable(what: &str, which: &str) -> StoreError {
    StoreError::Bug(format!("the stored {what} {which} cannot be read"))
}

/// What all attachments together measure, counted as they come and go.
pub const META_BLOB_BYTES: &str = "blob_bytes";
