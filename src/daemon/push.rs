//! The worker that calls agents' own servers: takes calls that are due, makes many at once, writes down what came of each.
//!
//! Only so many run for one agent, so that a server that never answers holds up its own agent's calls and nobody else's. A
//! call whose worker dies comes back when its claim lapses; whoever is called may be called twice for one letter. No
//! redirect is followed and no answer is read beyond its status.

use crate::client::peer::Peers;
use crate::ids::Ids;
use crate::limits;
use crate::mail::push::{self, Outcome};
use crate::record::{Push, View};
use crate::refusal::Refusal;
use crate::server::Doors;
use crate::wire::auth;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Runs until `stopping`, then finishes the calls under way.
pub async fn run(doors: Arc<Doors>, peers: Peers, stopping: CancellationToken) {
    let peers = Arc::new(peers);
    let mut under_way: JoinSet<String> = JoinSet::new();
    let mut busy: BTreeMap<String, usize> = BTreeMap::new();
    while !stopping.is_cancelled() {
        while let Some(ended) = under_way.try_join_next() {
            end(&mut busy, ended);
        }
        let free = limits::PUSH_SLOTS.saturating_sub(under_way.len());
        let claimed = if free == 0 { Vec::new() } else { claim(&doors, free, &busy).await };
        if !claimed.is_empty() {
            for row in claimed {
                *busy.entry(row.local.clone()).or_insert(0) += 1;
                under_way.spawn(attempt(doors.clone(), peers.clone(), row));
            }
            continue;
        }
        let sleep = until_due(&doors).await;
        tokio::select! {
            () = stopping.cancelled() => {}
            () = doors.wakes.push.notified(), if free > 0 => {}
            () = tokio::time::sleep(sleep) => {}
            Some(ended) = under_way.join_next(), if !under_way.is_empty() => end(&mut busy, ended),
        }
    }
    while under_way.join_next().await.is_some() {}
}

fn end(busy: &mut BTreeMap<String, usize>, ended: Result<String, tokio::task::JoinError>) {
    match ended {
        Ok(local) => {
            let left = busy.get(&local).copied().unwrap_or(0).saturating_sub(1);
            if left == 0 {
                busy.remove(&local);
            } else {
                busy.insert(local, left);
            }
        }
        Err(error) => {
            tracing::error!(event = "call_died", error = %error);
            busy.clear();
        }
    }
}

async fn claim(doors: &Doors, n: usize, busy: &BTreeMap<String, usize>) -> Vec<Push> {
    let busy = busy.clone();
    let room = move |local: &str| limits::PUSH_SLOTS_PER_AGENT.saturating_sub(busy.get(local).copied().unwrap_or(0));
    match doors.store.claim_pushes(doors.now(), n, room).await {
        Ok(rows) => rows,
        Err(error) => {
            tracing::error!(event = "call_claim_failed", error = %error);
            Vec::new()
        }
    }
}

/// How long nothing will be due. What is due and was not handed out waits for the end of a call of the same agent.
async fn until_due(doors: &Doors) -> Duration {
    let now = doors.now();
    let wait = match doors.store.earliest_push(now).await {
        Ok(Some(at)) if at > now => u64::try_from(at.since(now)).unwrap_or(0),
        Ok(Some(_)) => limits::QUEUE_RECHECK_MS,
        Ok(None) | Err(_) => limits::QUEUE_IDLE_MS,
    };
    Duration::from_millis(wait.min(limits::QUEUE_IDLE_MS))
}

/// One call, from the claim to the record of what came of it.
async fn attempt(doors: Arc<Doors>, peers: Arc<Peers>, row: Push) -> String {
    let local = row.local.clone();
    let outcome = match make(&doors, &peers, &row).await {
        Ok(outcome) => outcome,
        Err(refusal) => {
            tracing::error!(event = "call_not_read", local = %local, reason = %refusal.reason);
            return local;
        }
    };
    let recorded = record(&doors, row, outcome).await;
    if let Err(refusal) = recorded {
        tracing::error!(event = "call_not_recorded", local = %local, reason = %refusal.reason);
    }
    local
}

async fn make(doors: &Doors, peers: &Peers, row: &Push) -> Result<Outcome, Refusal> {
    let (wanted, now) = (row.clone(), doors.now());
    let call = doors.read(move |reader| {
        let mail = reader.mail(&wanted.local, &wanted.from, &wanted.id)?;
        let agent = reader.agent(&wanted.local);
        Ok(push::call(agent.as_ref(), mail.as_ref(), now))
    });
    let Some((url, body)) = call.await? else { return Ok(Outcome::Moot) };
    let house = doors.house();
    let header = ("x-nyx5-push", auth::Push::header(&house.domain, &house.key, &row.id));
    let body = Bytes::from(body.to_string());
    match peers.call(&url, header, body, limits::PUSH_MS).await {
        Ok(status) if (200..300).contains(&status) => Ok(Outcome::Taken),
        Ok(status) => {
            tracing::info!(event = "call_refused", local = %row.local, id = %row.id, status);
            Ok(Outcome::Failed)
        }
        Err(fault) => {
            tracing::info!(event = "call_failed", local = %row.local, id = %row.id, why = %fault.0);
            Ok(Outcome::Failed)
        }
    }
}

async fn record(doors: &Doors, row: Push, outcome: Outcome) -> Result<bool, Refusal> {
    let (now, seed) = (doors.now(), doors.seed()?);
    doors.commit(move |_| Ok(push::settle(now, &mut Ids::from_seed(seed), &row, outcome))).await
}
