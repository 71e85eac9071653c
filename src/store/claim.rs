//! Handing out work that is due, and sweeping what has lapsed.
//!
//! A claim is exclusive for a time; when the worker dies, the work comes back by itself. Work is handed out in turns:
//! by domain for letters, by seller for looks. However much one of them has waiting, the others get their turn, because
//! the turn goes on from where it stood and not from the oldest row.

use super::rows::{self, Rows};
use super::{Denied, Store, StoreError, apply, sql};
use crate::limits;
use crate::record::{Job, LookRow, Push};
use crate::time::Timestamp;
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, VecDeque};
use tokio::sync::Mutex;

/// Who was served last. It lives in memory: after a restart the round begins anew.
#[derive(Default)]
pub struct Turns {
    jobs: Mutex<String>,
    pushes: Mutex<String>,
    looks: Mutex<String>,
}

/// How one kind of work is found. Each statement answers `(group, id)`, or the group alone.
struct Kind {
    due: &'static str,
    next_group: &'static str,
    due_of_group: &'static str,
}

/// A group's waiting work, and how much of it may be taken.
struct Waiting {
    group: String,
    ids: VecDeque<String>,
    room: usize,
}

impl Store {
    /// Up to `n` jobs of the sending queue that are due, in turns by domain; each is this caller's alone for
    /// [`limits::QUEUE_CLAIM_MS`]. `room` says how many more of a domain the caller can take.
    pub async fn claim_jobs(
        &self,
        now: Timestamp,
        n: usize,
        room: impl Fn(&str) -> usize + Send + 'static,
    ) -> Result<Vec<Job>, StoreError> {
        let mut turn = self.0.turns.jobs.lock().await;
        let after = turn.clone();
        let (ids, last) =
            self.read(move |r| choose(r.rows(), &JOBS, now, n, &after, |domain| Ok(room(domain)))).await?;
        *turn = last;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let until = now.plus(limits::QUEUE_CLAIM_MS).millis();
        self.command(move |rows| {
            let claim = |id| rows.one(sql::CLAIM_JOB, params![id, now.millis(), until], |row| rows::document(row, 0));
            Ok(ids.iter().map(claim).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        })
        .await
        .map_err(Denied::into_fault)
    }

    /// Up to `n` looks that are due, in turns by seller, and never more than `per_seller` of one seller under way; each
    /// is this caller's alone for `lease_ms`.
    pub async fn claim_looks(
        &self,
        now: Timestamp,
        lease_ms: i64,
        n: usize,
        per_seller: usize,
    ) -> Result<Vec<LookRow>, StoreError> {
        let mut turn = self.0.turns.looks.lock().await;
        let after = turn.clone();
        let chosen = self.read(move |r| {
            choose(r.rows(), &LOOKS, now, n, &after, |seller| {
                let leased = r.rows().integer(sql::LOOKS_LEASED, params![seller, now.millis()])?.unwrap_or(0);
                Ok(per_seller.saturating_sub(usize::try_from(leased).unwrap_or(usize::MAX)))
            })
        });
        let (ids, last) = chosen.await?;
        *turn = last;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let until = now.plus(lease_ms).millis();
        self.command(move |rows| {
            let claim = |id| rows.one(sql::CLAIM_LOOK, params![id, now.millis(), until], rows::look);
            Ok(ids.iter().map(claim).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        })
        .await
        .map_err(Denied::into_fault)
    }

    /// Up to `n` calls that are due, in turns by agent; each is this caller's alone for [`limits::PUSH_CLAIM_MS`]. `room`
    /// says how many more of an agent the caller can make.
    pub async fn claim_pushes(
        &self,
        now: Timestamp,
        n: usize,
        room: impl Fn(&str) -> usize + Send + 'static,
    ) -> Result<Vec<Push>, StoreError> {
        let mut turn = self.0.turns.pushes.lock().await;
        let after = turn.clone();
        let (ids, last) =
            self.read(move |r| choose(r.rows(), &PUSHES, now, n, &after, |local| Ok(room(local)))).await?;
        *turn = last;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let until = now.plus(limits::PUSH_CLAIM_MS).millis();
        self.command(move |rows| {
            let claim = |id| rows.one(sql::CLAIM_PUSH, params![id, now.millis(), until], rows::push);
            Ok(ids.iter().map(claim).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        })
        .await
        .map_err(Denied::into_fault)
    }

    /// When the next call is due, or has been; `now` if that lies in the past.
    pub async fn earliest_push(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let earliest = self.read(|r| r.rows().integer(sql::PUSH_EARLIEST, [])).await?;
        Ok(earliest.map(|at| Timestamp::from_millis(at).max(now)))
    }

    /// When the next job or look is due, or has been; `now` if that lies in the past.
    pub async fn earliest_work(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let earliest = self.read(|r| {
            let job = r.rows().integer(sql::JOB_EARLIEST, [])?;
            let look = r.rows().integer(sql::LOOK_EARLIEST, [])?;
            Ok(job.into_iter().chain(look).min())
        });
        Ok(earliest.await?.map(|at| Timestamp::from_millis(at).max(now)))
    }

    /// Forgets nonces that no credential can carry any more, rates of past minutes, and the evidence of contracts that
    /// ended more than `evidence_keep_ms` ago. In small pieces, so that no command waits long behind it.
    pub async fn housekeeping(&self, now: Timestamp, evidence_keep_ms: i64) -> Result<(), StoreError> {
        let oldest_nonce = now.minus(limits::NONCE_KEEP_MS).millis();
        let oldest_minute = now.minute() - limits::RATE_KEEP_MINUTES;
        let oldest_hour = now.minus(limits::PRESENCE_KEEP_MS).millis();
        let piece = limits::STORE_PRUNE_ROWS;
        loop {
            let pruned = self.command(move |rows| {
                let nonces = rows.exec(sql::PRUNE_NONCE, params![oldest_nonce, piece as i64])?;
                let rates = rows.exec(sql::PRUNE_RATE, params![oldest_minute, piece as i64])?;
                let hours = rows.exec(sql::PRUNE_PRESENCE, params![oldest_hour, piece as i64])?;
                let days = rows.exec(sql::PRUNE_BLOB_DAY, params![now.day() - 1, piece as i64])?;
                Ok(nonces.max(rates).max(hours).max(days))
            });
            if pruned.await.map_err(Denied::into_fault)? < piece {
                break;
            }
        }
        let oldest_end = now.minus(evidence_keep_ms).millis();
        let piece = limits::EVIDENCE_PRUNE_CONTRACTS;
        loop {
            let pruned = self.command(move |rows| {
                let lapsed: Vec<String> =
                    rows.many(sql::EVIDENCE_LAPSED, params![oldest_end, piece as i64], |row| Ok(row.get(0)?))?;
                for contract in &lapsed {
                    apply::forget_evidence(rows, contract)?;
                }
                Ok(lapsed.len())
            });
            if pruned.await.map_err(Denied::into_fault)? < piece {
                return Ok(());
            }
        }
    }
}

/// Gives back what the last process had claimed. Whoever holds the lock on the store knows that nobody works any more;
/// what was claimed was due, so it is due now.
pub fn release_all(conn: &Connection) -> Result<(), StoreError> {
    for statement in [sql::RELEASE_JOBS, sql::RELEASE_LOOKS] {
        conn.execute(statement, [])?;
    }
    Ok(())
}

/// Picks up to `n` due ids, one a group and round; and the group after which the next turn begins.
///
/// If everything that is due fits in one scan, that is all there is to choose from. If not, the groups are walked from
/// where the last turn ended, so that a group with thousands of rows, however old, is one group among the others.
fn choose(
    rows: &Rows<'_>,
    kind: &Kind,
    now: Timestamp,
    n: usize,
    after: &str,
    room: impl Fn(&str) -> Result<usize, StoreError>,
) -> Result<(Vec<String>, String), StoreError> {
    let pair = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
    let scan = limits::STORE_DUE_SCAN;
    let oldest = rows.many(kind.due, params![now.millis(), scan as i64], pair)?;
    let crowded = oldest.len() >= scan;
    let mut order: Vec<Waiting> = Vec::new();
    let mut turn = after.to_owned();
    if crowded {
        (order, turn) = walk(rows, kind, now, n, after, &room)?;
    }
    let mut rest: BTreeMap<String, VecDeque<String>> = BTreeMap::new();
    for (group, id) in oldest {
        if !order.iter().any(|waiting| waiting.group == group) {
            rest.entry(group).or_default().push_back(id);
        }
    }
    let early = rest.split_off(turn.as_str());
    let (at_turn, later): (BTreeMap<_, _>, BTreeMap<_, _>) = early.into_iter().partition(|(group, _)| *group == turn);
    for (group, ids) in later.into_iter().chain(rest).chain(at_turn) {
        let room = room(&group)?;
        order.push(Waiting { group, ids, room });
    }
    let mut taken = Vec::new();
    let mut last = None;
    loop {
        let before = taken.len();
        for waiting in &mut order {
            if taken.len() < n
                && waiting.room > 0
                && let Some(id) = waiting.ids.pop_front()
            {
                waiting.room -= 1;
                taken.push(id);
                last = Some(waiting.group.clone());
            }
        }
        if taken.len() == before || taken.len() == n {
            break;
        }
    }
    let turn = if crowded { turn } else { last.unwrap_or(turn) };
    Ok((taken, turn))
}

/// The next groups in turn that have due work and room for it, and the group where the walk ended.
fn walk(
    rows: &Rows<'_>,
    kind: &Kind,
    now: Timestamp,
    n: usize,
    after: &str,
    room: &impl Fn(&str) -> Result<usize, StoreError>,
) -> Result<(Vec<Waiting>, String), StoreError> {
    let mut found = Vec::new();
    let mut at = after.to_owned();
    let mut wrapped = false;
    for _ in 0..limits::STORE_WALK_MAX {
        let Some(group) = rows.text(kind.next_group, [&at])? else {
            if wrapped {
                break;
            }
            wrapped = true;
            at = String::new();
            continue;
        };
        if wrapped && group.as_str() > after {
            break;
        }
        at.clone_from(&group);
        let room = room(&group)?;
        if room == 0 {
            continue;
        }
        let ids = rows.many(kind.due_of_group, params![group, now.millis(), n as i64], |row| Ok(row.get(1)?))?;
        if !ids.is_empty() {
            found.push(Waiting { group, ids: ids.into(), room });
        }
        if found.len() >= n {
            break;
        }
    }
    Ok((found, at))
}

const JOBS: Kind = Kind { due: sql::JOBS_DUE, next_group: sql::JOB_NEXT_DOMAIN, due_of_group: sql::JOBS_DUE_OF };
const PUSHES: Kind = Kind { due: sql::PUSHES_DUE, next_group: sql::PUSH_NEXT_AGENT, due_of_group: sql::PUSHES_DUE_OF };
const LOOKS: Kind = Kind { due: sql::LOOKS_DUE, next_group: sql::LOOK_NEXT_SELLER, due_of_group: sql::LOOKS_DUE_OF };
