//! The clock of the federated index: takes houses whose pass is due, a few at once, and reads each.
//!
//! What is due is a row, so a stop loses nothing: a pass that did not finish comes back when its claim lapses.

use crate::limits;
use crate::server::{Doors, index};
use crate::wire::address::Domain;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Runs until `stopping`; passes under way are dropped then, and begin again with the next start.
pub async fn run(doors: Arc<Doors>, stopping: CancellationToken) {
    let mut passes = JoinSet::new();
    loop {
        while passes.try_join_next().is_some() {}
        let room = limits::INDEX_CRAWLS_AT_ONCE.saturating_sub(passes.len());
        let due = match room {
            0 => Vec::new(),
            room => doors.store.index_claim(doors.now(), room).await.unwrap_or_else(|error| {
                tracing::warn!(event = "index_not_claimed", error = %error);
                Vec::new()
            }),
        };
        let more = due.len() == room;
        for domain in due {
            let doors = doors.clone();
            passes.spawn(async move {
                let Ok(domain) = Domain::parse(&domain) else { return };
                if let Err(refusal) = index::pass(&doors, &domain).await {
                    tracing::warn!(event = "index_pass_not_recorded", domain = %domain, reason = %refusal.reason);
                }
            });
        }
        let next = index::next(&doors).await.ok().flatten().map(|at| at.since(doors.now()));
        let most = i64::try_from(limits::INDEX_TICK_MS).unwrap_or(i64::MAX);
        let wait = u64::try_from(next.unwrap_or(most).clamp(LEAST_WAIT_MS, most)).unwrap_or(limits::INDEX_TICK_MS);
        tokio::select! {
            () = stopping.cancelled() => return,
            Some(_) = passes.join_next(), if more && !passes.is_empty() => {}
            () = tokio::time::sleep(Duration::from_millis(wait)) => {}
            () = doors.wakes.index.notified() => {}
        }
    }
}

const LEAST_WAIT_MS: i64 = 50;
