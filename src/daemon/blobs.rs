//! The clock of attachments: what has outlived its time goes, its object first and its row after it.
//!
//! At a start nothing is on its way, so what was reserved and did not come goes too. An object that cannot be removed
//! now is removed later: its row stays until it is, and nobody can have it meanwhile.

use crate::limits;
use crate::mail::blobs;
use crate::objects::Objects;
use crate::record::{Decision, View};
use crate::refusal::Refusal;
use crate::server::{Doors, discard};
use crate::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Gives up what was on its way when the last process ended. The doors are not open yet.
pub async fn recover(doors: &Doors, objects: &Objects) -> Result<(), Refusal> {
    loop {
        let page = doors.read(|reader| reader.blobs_coming(limits::BLOB_SWEEP_ROWS)).await?;
        if page.is_empty() {
            return Ok(());
        }
        for blob in page {
            let (name, now) = (blob.clone(), doors.now());
            if doors.commit(move |view| blobs::abandon(view, now, &name)).await? {
                removed(doors, objects, &blob).await;
            }
        }
    }
}

pub async fn run(doors: Arc<Doors>, objects: Arc<Objects>, stopping: CancellationToken) {
    loop {
        sweep(&doors, &objects, &stopping).await;
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(limits::HOUSEKEEPING_MS)) => {}
        }
    }
}

/// Removes what is due; ends at the first page of which something is left.
async fn sweep(doors: &Doors, objects: &Objects, stopping: &CancellationToken) {
    loop {
        let now = doors.now();
        let Ok(page) = doors.read(move |reader| reader.blobs_due(now, limits::BLOB_SWEEP_ROWS)).await else { return };
        let (due, mut done) = (page.len(), 0);
        for blob in page {
            if stopping.is_cancelled() {
                return;
            }
            done += usize::from(lapse(doors, objects, &blob, now).await);
        }
        if due < limits::BLOB_SWEEP_ROWS || done < due {
            return;
        }
    }
}

async fn lapse(doors: &Doors, objects: &Objects, blob: &str, now: Timestamp) -> bool {
    let name = blob.to_owned();
    let going = doors.commit(move |view: &dyn View| {
        let decision: Decision<bool> = blobs::lapse(view, now, &name)?;
        Ok(decision)
    });
    matches!(going.await, Ok(true)) && removed(doors, objects, blob).await
}

async fn removed(doors: &Doors, objects: &Objects, blob: &str) -> bool {
    match discard(doors, objects, blob).await {
        Ok(()) => true,
        Err(fault) => {
            tracing::warn!(event = "attachment_not_removed", blob = %blob, error = %fault);
            false
        }
    }
}
