//! Queries for doors and workers, each over one snapshot, beside the writer.
//!
//! A reader sees whole transactions only. Every list has a bound that the caller names and an order that is said here.

use super::rows::{self, Rows, bound};
use super::{StoreError, apply, schema, sql};
use crate::limits;
use crate::record::{
    AccountPage, AgentRecord, BlobRecord, Contract, ContractState, Entry, EvidenceRow, Invitation, Job, LookRow,
    MailRecord, Mandate, ObservationRow, OperationRecord, Pin, SealRecord, SeenRecord, View,
};
use crate::time::Timestamp;
use crate::wire::address::Address;
use crate::wire::digest::Sha256;
use rusqlite::{Connection, Row, params};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// One snapshot of the records.
pub struct Reader<'c>(Rows<'c>);

/// What the public directory is asked for.
#[derive(Clone, Debug, Default)]
pub struct DirectoryQuery {
    /// A capability that the card claims.
    pub capability: Option<String>,
    /// A media type among `capabilities.accepts`.
    pub accepts: Option<String>,
    /// A part of the address or of the capabilities, in any case.
    pub q: Option<String>,
    pub limit: usize,
    pub offset: usize,
}

/// Which pending mail a waiting agent wants.
#[derive(Clone, Debug, Default)]
pub struct MailFilter {
    pub from: Option<String>,
    /// An envelope of this thread, or the one with this id.
    pub thread: Option<String>,
    /// Only what came to be visible after this instant.
    pub since: Option<Timestamp>,
    /// Only of this project, by its name.
    pub project: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub agents: u64,
    /// Jobs of the sending queue that are not finished.
    pub queue: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    pub name: String,
    pub at: Timestamp,
    pub actor: String,
    pub data: Value,
}

/// The readers' connections.
pub struct Pool {
    places: Semaphore,
    idle: Mutex<Vec<Connection>>,
    path: PathBuf,
}

impl<'c> Reader<'c> {
    pub fn domain_card(&self) -> Result<Option<Value>, StoreError> {
        self.0.one(sql::DOMAIN_CARD, [], |row| rows::document(row, 0))
    }

    /// How many cards match, and one page of them by name.
    pub fn directory(&self, query: &DirectoryQuery) -> Result<(u64, Vec<Value>), StoreError> {
        let q = query.q.as_ref().map(|q| q.to_lowercase());
        let total = self.0.integer(sql::DIRECTORY_TOTAL, params![query.capability, query.accepts, q])?.unwrap_or(0);
        let page = params![query.capability, query.accepts, q, bound(query.limit), bound(query.offset)];
        let cards = self.0.many(sql::DIRECTORY, page, |row| rows::document(row, 0))?;
        Ok((total.cast_unsigned(), cards))
    }

    /// The newest pending mail that the owner may see now, oldest first; less than `limit` where the letters are large. What is not deferred can be seen whatever the
    /// clock says: a clock that went back hides no mail.
    pub fn mailbox(&self, local: &str, limit: usize, now: Timestamp) -> Result<Vec<MailRecord>, StoreError> {
        let lists = [
            self.0.many_within(sql::MAILBOX, params![local, bound(limit)], placed)?,
            self.0.many_within(sql::MAILBOX_DEFERRED, params![local, bound(limit), now.millis()], placed)?,
        ];
        // Nothing older than where a list ended early: what is shown has no gaps.
        let oldest = lists.iter().filter(|(_, cut)| *cut).filter_map(|(list, _)| Some(list.last()?.0)).max();
        let mut mail: Vec<_> = lists.into_iter().flat_map(|(list, _)| list).collect();
        mail.retain(|(place, _)| oldest.is_none_or(|oldest| *place >= oldest));
        mail.sort_by_key(|(place, _)| *place);
        Ok(mail.split_off(mail.len().saturating_sub(limit)).into_iter().map(|(_, mail)| mail).collect())
    }

    /// The oldest pending mail that passes the filter and that the owner may see now.
    pub fn first_pending(
        &self,
        local: &str,
        filter: &MailFilter,
        now: Timestamp,
    ) -> Result<Option<MailRecord>, StoreError> {
        let since = filter.since.map_or(i64::MIN, Timestamp::millis);
        let (from, thread, project) = (&filter.from, &filter.thread, &filter.project);
        let found = [
            self.0.one(sql::FIRST_PENDING, params![local, since, from, thread, project], placed)?,
            self.0.one(sql::FIRST_DEFERRED, params![local, since, from, thread, project, now.millis()], placed)?,
        ];
        Ok(found.into_iter().flatten().min_by_key(|(place, _)| *place).map(|(_, mail)| mail))
    }

    /// The newest jobs of this sender, finished ones too, newest first.
    pub fn outbox(&self, local: &str, limit: usize) -> Result<Vec<Job>, StoreError> {
        Ok(self.0.many_within(sql::OUTBOX, params![local, bound(limit)], |row| rows::document(row, 0))?.0)
    }

    /// Newest first.
    pub fn invitations(&self, limit: usize) -> Result<Vec<Invitation>, StoreError> {
        self.0.many(sql::INVITATIONS, params![i64::MAX, bound(limit)], rows::invitation)
    }

    pub fn pinned(&self, domain: &str) -> Result<Option<Pin>, StoreError> {
        self.0.one(sql::PIN, [domain], rows::pin)
    }

    /// By domain, after the one named.
    pub fn pins(&self, after: &str, limit: usize) -> Result<Vec<Pin>, StoreError> {
        self.0.many(sql::PINS, params![after, bound(limit)], rows::pin)
    }

    /// Every agent, by name, after the one named.
    pub fn agents_after(&self, after: &str, limit: usize) -> Result<Vec<AgentRecord>, StoreError> {
        self.0.many(sql::AGENTS_AFTER, params![after, bound(limit)], rows::agent)
    }

    /// Those whose card says that this agent delegated it, revoked ones too, by name.
    pub fn subagents(&self, parent: &Address, after: &str, limit: usize) -> Result<Vec<AgentRecord>, StoreError> {
        self.0.many(sql::SUBAGENTS, params![parent.as_str(), after, bound(limit)], rows::agent)
    }

    /// Attachments whose time has come, the oldest first.
    pub fn blobs_due(&self, now: Timestamp, limit: usize) -> Result<Vec<String>, StoreError> {
        self.0.many(sql::BLOBS_DUE, params![now.millis(), bound(limit)], |row| Ok(row.get(0)?))
    }

    /// Attachments that are reserved and not there.
    pub fn blobs_coming(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        self.0.many(sql::BLOBS_COMING, params![bound(limit)], |row| Ok(row.get(0)?))
    }

    /// Every seal on this hash, the oldest first.
    pub fn seals(&self, sha256: &str, limit: usize) -> Result<Vec<SealRecord>, StoreError> {
        self.0.many(sql::SEALS, params![sha256, bound(limit)], |row| rows::document(row, 0))
    }

    pub fn seal_by_id(&self, id: &str) -> Result<Option<SealRecord>, StoreError> {
        self.0.one(sql::SEAL_BY_ID, [id], |row| rows::document(row, 0))
    }

    /// Contracts in this state that have not ended, those that changed longest ago first; from after `after`, which is
    /// the `updated` and `id` of the last one seen.
    pub fn contracts_in(
        &self,
        state: ContractState,
        after: Option<(Timestamp, &str)>,
        limit: usize,
    ) -> Result<Vec<Contract>, StoreError> {
        let (updated, id) = after.map_or((i64::MIN, ""), |(updated, id)| (updated.millis(), id));
        self.0.many(sql::CONTRACTS_OPEN, params![state.as_str(), updated, id, bound(limit)], rows::contract)
    }

    /// Entries from number `from` on, in order.
    pub fn journal(&self, from: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.0.many(sql::JOURNAL, params![i64::try_from(from).unwrap_or(i64::MAX), bound(limit)], rows::entry)
    }

    /// Accounts by name, after the one named, with what they hold.
    pub fn balances(&self, after: &str, limit: usize) -> Result<Vec<(String, i64)>, StoreError> {
        self.0.many(sql::BALANCES, params![after, bound(limit)], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    pub fn counts(&self) -> Result<Counts, StoreError> {
        let queue = self.0.integer(sql::QUEUE_LENGTH, [])?.unwrap_or(0).cast_unsigned();
        Ok(Counts { agents: apply::agents(&self.0)?, queue })
    }

    pub fn observation(&self, contract: &str, sha256: &Sha256) -> Result<Option<ObservationRow>, StoreError> {
        self.0.one(sql::OBSERVATION, params![contract, sha256.hex()], |row| {
            let (at, contract, bytes) = (rows::instant(row, 1)?, row.get(2)?, row.get(3)?);
            Ok(ObservationRow { sha256: hash(row, 0)?, at, contract, bytes })
        })
    }

    /// Names of the observations that are kept for this contract.
    pub fn observations_of(&self, contract: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        self.0.many(sql::OBSERVATIONS_OF, params![contract, bound(limit)], |row| Ok(row.get(0)?))
    }

    /// What the verdict on this contract stands on.
    pub fn evidence(&self, contract: &str) -> Result<Option<EvidenceRow>, StoreError> {
        self.0.one(sql::EVIDENCE, [contract], |row| {
            let (contract, at, bytes) = (row.get(0)?, rows::instant(row, 2)?, row.get(3)?);
            Ok(EvidenceRow { contract, sha256: hash(row, 1)?, at, bytes })
        })
    }

    /// Looks that are not done, the next one first.
    pub fn looks(&self, limit: usize) -> Result<Vec<LookRow>, StoreError> {
        self.0.many(sql::LOOKS_OPEN, [bound(limit)], rows::look)
    }

    /// One letter, handled or not.
    pub fn mail(&self, local: &str, from: &str, id: &str) -> Result<Option<MailRecord>, StoreError> {
        self.0.one(sql::MAIL_OF, params![local, id, from], rows::mail)
    }

    /// Events since then, of one name or of all, newest first; each with its number.
    pub fn event_log(
        &self,
        name: Option<&str>,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<(i64, EventRow)>, StoreError> {
        let read = |row: &Row<'_>| {
            let (name, at) = (row.get(1)?, rows::instant(row, 2)?);
            Ok((row.get(0)?, EventRow { name, at, actor: row.get(3)?, data: rows::document(row, 4)? }))
        };
        let (since, most) = (since.millis(), bound(limit));
        Ok(match name {
            Some(name) => self.0.many_within(sql::EVENT_LOG_OF, params![name, since, most], read)?.0,
            None => self.0.many_within(sql::EVENT_LOG, params![since, most], read)?.0,
        })
    }

    /// How many events of each name there were since then, names without any left out.
    pub fn event_counts(&self, name: Option<&str>, since: Option<Timestamp>) -> Result<Vec<(String, u64)>, StoreError> {
        let all: Vec<(String, i64)> =
            self.0.many(sql::EVENT_COUNTS, params!["", bound(limits::EVENTS_PAGE_MAX)], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let mut counts = Vec::new();
        for (one, total) in all.into_iter().filter(|(one, _)| name.is_none_or(|name| name == one)) {
            let n = match since {
                None => total,
                Some(since) => {
                    let first = self.0.integer(sql::EVENT_FIRST_SINCE, params![one, since.millis()])?;
                    first.map_or(0, |nth| total - nth + 1)
                }
            };
            counts.extend(u64::try_from(n).ok().filter(|n| *n > 0).map(|n| (one, n)));
        }
        Ok(counts)
    }

    /// Events of this name since then, newest first.
    pub fn events(&self, name: &str, since: Timestamp, limit: usize) -> Result<Vec<EventRow>, StoreError> {
        self.0.many(sql::EVENTS, params![name, since.millis(), bound(limit)], |row| {
            Ok(EventRow {
                name: row.get(0)?,
                at: rows::instant(row, 1)?,
                actor: row.get(2)?,
                data: rows::document(row, 3)?,
            })
        })
    }

    pub(super) fn rows(&self) -> &Rows<'c> {
        &self.0
    }
}

impl View for Reader<'_> {
    fn agent(&self, local: &str) -> Option<AgentRecord> {
        self.0.agent(local)
    }
    fn pin(&self, domain: &str) -> Option<Pin> {
        self.0.pin(domain)
    }
    fn blob(&self, blob: &str) -> Option<BlobRecord> {
        self.0.blob(blob)
    }
    fn blob_bytes(&self) -> u64 {
        self.0.blob_bytes()
    }
    fn blob_day(&self, sender: &Address, day: i64) -> u64 {
        self.0.blob_day(sender, day)
    }

    fn invitation(&self, code: &str) -> Option<Invitation> {
        self.0.invitation(code)
    }
    fn seen(&self, from: &Address, id: &str) -> Option<SeenRecord> {
        self.0.seen(from, id)
    }
    fn pending(&self, local: &str, id: &str) -> Vec<MailRecord> {
        self.0.pending(local, id)
    }
    fn job(&self, id: &str) -> Option<Job> {
        self.0.job(id)
    }
    fn last_seen(&self, local: &str) -> Option<Timestamp> {
        self.0.last_seen(local)
    }
    fn rate(&self, key: &str, at: Timestamp) -> u32 {
        self.0.rate(key, at)
    }
    fn nonce_used(&self, key: &str) -> bool {
        self.0.nonce_used(key)
    }
    fn journal_last(&self) -> u64 {
        self.0.journal_last()
    }
    fn balance(&self, account: &str) -> i64 {
        self.0.balance(account)
    }
    fn contract(&self, id: &str) -> Option<Contract> {
        self.0.contract(id)
    }
    fn contract_of_quote(&self, quote: &str) -> Option<String> {
        self.0.contract_of_quote(quote)
    }
    fn operation(&self, from: &Address, id: &str) -> Option<OperationRecord> {
        self.0.operation(from, id)
    }
    fn look(&self, contract: &str) -> Option<LookRow> {
        self.0.look(contract)
    }
    fn journal_last_at(&self) -> Timestamp {
        self.0.journal_last_at()
    }
    fn account_page(
        &self,
        account: &str,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        limit: usize,
    ) -> AccountPage {
        self.0.account_page(account, since, until, limit)
    }
    fn contracts_of(&self, account: &str, limit: usize) -> Vec<Contract> {
        self.0.contracts_of(account, limit)
    }
    fn mandate(&self, id: &str) -> Option<Mandate> {
        self.0.mandate(id)
    }
    fn mandates_under(&self, id: &str) -> Vec<Mandate> {
        self.0.mandates_under(id)
    }
    fn mandates_of(&self, account: &str, limit: usize) -> Vec<Mandate> {
        self.0.mandates_of(account, limit)
    }
    fn seal(&self, sha256: &str, by: &Address) -> Option<SealRecord> {
        self.0.seal(sha256, by)
    }
}

impl Pool {
    pub fn open(path: &Path, size: usize) -> Result<Pool, StoreError> {
        let size = size.max(1);
        let idle = (0..size).map(|_| schema::open_reader(path)).collect::<Result<Vec<_>, _>>()?;
        Ok(Pool { places: Semaphore::new(size), idle: Mutex::new(idle), path: path.to_owned() })
    }

    pub async fn read<T, F>(self: Arc<Self>, queries: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Reader<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let pool = Arc::clone(&self);
        let Ok(place) = self.places.acquire().await else { return Err(StoreError::Closed) };
        place.forget();
        // From here on the place is given back by the worker, even if the caller goes away.
        let work = tokio::task::spawn_blocking(move || {
            let idle = pool.idle().pop();
            let outcome = match idle.map_or_else(|| schema::open_reader(&pool.path), Ok) {
                Ok(conn) => {
                    let outcome = snapshot(&conn, queries);
                    // A connection that could not end its snapshot is not used again.
                    if conn.is_autocommit() && !pool.places.is_closed() {
                        pool.idle().push(conn);
                    }
                    outcome
                }
                Err(fault) => Err(fault),
            };
            pool.places.add_permits(1);
            outcome
        });
        work.await.unwrap_or_else(|e| Err(StoreError::Bug(format!("a reader ended early: {e}"))))
    }

    pub fn close(&self) {
        self.places.close();
        self.idle().clear();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn snapshot<T>(conn: &Connection, queries: impl FnOnce(&Reader<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
    let reader = Reader(Rows::new(conn));
    reader.0.exec(sql::BEGIN_READ, [])?;
    let outcome = catch_unwind(AssertUnwindSafe(|| queries(&reader)))
        .unwrap_or_else(|_| Err(StoreError::Bug("a query panicked".to_owned())));
    let fault = reader.0.take_fault();
    reader.0.exec(sql::ROLLBACK, [])?;
    match fault {
        Some(fault) => Err(fault),
        None => outcome,
    }
}

/// A mail with its place in the mailbox: when it came to be visible, then in which order it arrived.
fn placed(row: &Row<'_>) -> Result<((i64, i64), MailRecord), StoreError> {
    Ok(((row.get(8)?, row.get(9)?), rows::mail(row)?))
}

fn hash(row: &Row<'_>, column: usize) -> Result<Sha256, StoreError> {
    let text: String = row.get(column)?;
    Sha256::parse(&text).ok_or_else(|| StoreError::Bug(format!("{text} is not a stored hash")))
}
