//! The sending queue's worker: takes jobs that are due, delivers many at once, writes down what came of each.
//!
//! It sleeps until it is called or the next job is due. Deliveries run beside each other, and only so many to one domain,
//! so a house that answers slowly holds up nobody's mail but its own. A job whose worker dies comes back when its claim
//! lapses. Whether an answer is a delivery, and when to try again, is the mail's rule.

use crate::client::relay::{self, Relayed};
use crate::ids::Ids;
use crate::libro;
use crate::limits;
use crate::mail::queue::{Attempt, Outcome, judge_answer, plan_attempt, settle};
use crate::record::{Job, JobStatus};
use crate::refusal::Refusal;
use crate::server::Doors;
use crate::wire::address::{Domain, SystemName};
use crate::wire::json;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Runs until `stopping`, then finishes the deliveries under way.
pub async fn run(doors: Arc<Doors>, stopping: CancellationToken) {
    let mut under_way: JoinSet<Domain> = JoinSet::new();
    let mut busy = Busy::default();
    while !stopping.is_cancelled() {
        while let Some(ended) = under_way.try_join_next() {
            busy.end(ended);
        }
        let free = limits::QUEUE_SLOTS.saturating_sub(under_way.len());
        let claimed = if free == 0 { Vec::new() } else { claim(&doors, free.min(limits::QUEUE_BATCH), &busy).await };
        if !claimed.is_empty() {
            for job in claimed {
                busy.begin(&job.domain);
                under_way.spawn(attempt(doors.clone(), job));
            }
            continue;
        }
        let full = free == 0;
        let sleep = if full { None } else { Some(until_due(&doors).await) };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = doors.wakes.queue.notified(), if !full => {}
            () = pause(sleep) => {}
            Some(ended) = under_way.join_next(), if !under_way.is_empty() => busy.end(ended),
        }
    }
    while under_way.join_next().await.is_some() {}
}

/// Deliveries under way, by domain.
#[derive(Default)]
struct Busy(BTreeMap<String, usize>);

impl Busy {
    fn begin(&mut self, domain: &Domain) {
        *self.0.entry(domain.to_string()).or_insert(0) += 1;
    }

    fn end(&mut self, ended: Result<Domain, tokio::task::JoinError>) {
        let domain = match ended {
            Ok(domain) => domain,
            Err(error) => {
                // Which domain it was went down with it; counting anew is safe, because claims are exclusive.
                tracing::error!(event = "delivery_died", error = %error);
                self.0.clear();
                return;
            }
        };
        if let Some(count) = self.0.get_mut(domain.as_str()) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.0.remove(domain.as_str());
            }
        }
    }
}

async fn claim(doors: &Doors, n: usize, busy: &Busy) -> Vec<Job> {
    let busy = busy.0.clone();
    let room =
        move |domain: &str| limits::QUEUE_SLOTS_PER_DOMAIN.saturating_sub(busy.get(domain).copied().unwrap_or(0));
    match doors.store.claim_jobs(doors.now(), n, room).await {
        Ok(jobs) => jobs,
        Err(error) => {
            tracing::error!(event = "queue_claim_failed", error = %error);
            Vec::new()
        }
    }
}

/// How long nothing will be due. What is due and was not handed out waits for room, which the end of a delivery makes.
async fn until_due(doors: &Doors) -> Duration {
    let now = doors.now();
    let wait = match doors.store.earliest_work(now).await {
        Ok(Some(at)) if at > now => u64::try_from(at.since(now)).unwrap_or(0),
        Ok(Some(_)) => limits::QUEUE_RECHECK_MS,
        Ok(None) | Err(_) => limits::QUEUE_IDLE_MS,
    };
    Duration::from_millis(wait.min(limits::QUEUE_IDLE_MS))
}

async fn pause(sleep: Option<Duration>) {
    match sleep {
        Some(sleep) => tokio::time::sleep(sleep).await,
        None => std::future::pending().await,
    }
}

/// One attempt of one job, from the claim to the record of what came of it.
async fn attempt(doors: Arc<Doors>, job: Job) -> Domain {
    let domain = job.domain.clone();
    let outcome = match plan_attempt(&job, doors.now()) {
        Attempt::Nothing => return domain,
        Attempt::Expired => Outcome::Expired,
        Attempt::Send if is_moot(&doors, &job).await => Outcome::Moot,
        Attempt::Send if job.domain == doors.house().domain => deliver_here(&doors, &job).await,
        Attempt::Send => deliver_away(&doors, &job).await,
    };
    match record(&doors, &job.job, outcome).await {
        Ok(status) => {
            tracing::info!(
                event = "delivery", job = %job.job, id = %job.envelope_id, domain = %job.domain,
                attempt = job.attempts + 1, status = status.as_str()
            );
        }
        // The claim lapses and the job comes back; receivers take the same envelope once.
        Err(refusal) => tracing::error!(event = "delivery_not_recorded", job = %job.job, reason = %refusal.reason),
    }
    domain
}

/// Only the ledger defers letters whose occasion may pass. When the store cannot say, the letter goes out and the door
/// decides.
async fn is_moot(doors: &Doors, job: &Job) -> bool {
    if job.from_local != SystemName::Libro.as_str() {
        return false;
    }
    let letter = job.envelope.clone();
    doors.read(move |reader| Ok(libro::is_moot(reader, &letter))).await.unwrap_or(false)
}

async fn deliver_here(doors: &Doors, job: &Job) -> Outcome {
    let header = relay::relay_header(&doors.house(), &job.envelope_id, &doors.house().domain);
    let answer = doors.inbound(job.envelope.to_string().as_bytes(), Some(&header)).await;
    judge_answer(answer.code, &answer.body)
}

async fn deliver_away(doors: &Doors, job: &Job) -> Outcome {
    let house = doors.house();
    let sent = relay::deliver(&doors.resolver, &house, &job.domain, &job.envelope_id, &job.envelope);
    match sent.await {
        Relayed::Answered(answer) => {
            let body = json::parse_object(&answer.body).unwrap_or(Value::Null);
            judge_answer(answer.status, &body)
        }
        // That a house cannot be established now says nothing for good: its DNS or its operator may be at fault.
        Relayed::NotResolved(refusal) => Outcome::Failed { code: 0, reason: refusal.reason },
        Relayed::NotReached(fault) => Outcome::Failed { code: 0, reason: fault.0 },
    }
}

async fn record(doors: &Doors, job: &str, outcome: Outcome) -> Result<JobStatus, Refusal> {
    let (house, now, seed, job) = (doors.house(), doors.now(), doors.seed()?, job.to_owned());
    doors.commit(move |view| settle(&house, view, now, &mut Ids::from_seed(seed), &job, &outcome)).await
}
