//! The sending queue: when a job is tried, what an answer means for each recipient, when to try again, when to give up.
//!
//! A recipient is delivered only when the receiving house names it as accepted. Whatever is not said is tried again;
//! whatever is refused for good goes back to the sender, at once and once. An envelope of the house's own that cannot be
//! delivered is kept in the mailbox of postmaster@ instead: a bounce never bounces.

use super::letters::{self, Fate};
use crate::ids::Ids;
use crate::limits;
use crate::probe::text;
use crate::record::{Change, Decided, Decision, House, Job, JobStatus, View};
use crate::refusal::retryable;
use crate::time::Timestamp;
use crate::wire::address::Address;
use serde_json::{Value, json};

/// What to do with a job that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Its envelope may not be delivered any more: settle it as [`Outcome::Expired`] without sending.
    Expired,
    Send,
    /// Nothing: it ended, or its time has not come.
    Nothing,
}

/// What came of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiving house answered for its recipients, one by one.
    Answered {
        accepted: Vec<Address>,
        rejected: Vec<Rejection>,
    },
    /// The whole attempt failed; zero where nobody answered.
    Failed {
        code: u16,
        reason: String,
    },
    Expired,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub to: Address,
    pub code: u16,
    pub reason: String,
}

pub fn plan_attempt(job: &Job, now: Timestamp) -> Attempt {
    if !job.status.open() || job.next_attempt > now {
        return Attempt::Nothing;
    }
    match expiry(job) {
        Some(expires) if expires <= now => Attempt::Expired,
        _ => Attempt::Send,
    }
}

/// Reads the answer of a receiving house. A success that does not speak of recipients is not this protocol's answer:
/// somebody in between gave it, and the envelope may never have arrived.
pub fn judge_answer(status: u16, body: &Value) -> Outcome {
    if status != 200 && status != 202 {
        let reason = body.get("reason").and_then(Value::as_str).map(shown);
        return Outcome::Failed { code: status, reason: reason.unwrap_or_else(|| format!("answered {status}")) };
    }
    let list = |field: &str| body.get(field).and_then(Value::as_array);
    let (accepted, rejected) = (list("accepted"), list("rejected"));
    if accepted.is_none() && rejected.is_none() {
        let reason = format!("answered {status} without naming a recipient; this is not a house's answer");
        return Outcome::Failed { code: 502, reason };
    }
    let address = |value: &Value| value.as_str().and_then(|text| Address::parse(text).ok());
    let rejection = |value: &Value| {
        let code = value.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        Some(Rejection {
            to: value.get("to").and_then(address)?,
            // A refusal without a readable code is no verdict: it is tried again.
            code: code.unwrap_or(502),
            reason: value.get("reason").and_then(Value::as_str).map(shown).unwrap_or_default(),
        })
    };
    Outcome::Answered {
        accepted: accepted.into_iter().flatten().filter_map(address).collect(),
        rejected: rejected.into_iter().flatten().filter_map(rejection).collect(),
    }
}

/// Writes down what came of an attempt: who has it, who will never have it, who is tried again and when.
pub fn settle(
    house: &House,
    view: &dyn View,
    now: Timestamp,
    ids: &mut Ids,
    job: &str,
    outcome: &Outcome,
) -> Decided<JobStatus> {
    let Some(mut job) = view.job(job) else { return Ok(Decision::nothing(JobStatus::Failed)) };
    if !job.status.open() {
        return Ok(Decision::nothing(job.status));
    }
    job.attempts = job.attempts.saturating_add(1);
    job.updated = now;
    let mut sorted = sort(&job.to, outcome);
    let expired = expiry(&job).is_some_and(|expires| expires <= now);
    let too_old = now.since(started(&job)) > house.settings.give_up_ms;
    if expired || too_old {
        let why = if expired { "the envelope expired while it waited" } else { "no success within the time allowed" };
        sorted.failed.extend(sorted.retry.drain(..).map(|(to, reason)| Fate {
            to,
            delivered: false,
            reason: if reason.is_empty() { why.to_owned() } else { format!("{why}; last: {reason}") },
        }));
    }
    let detail = summary(&sorted);
    job.delivered.extend(sorted.delivered.iter().cloned());
    job.failed.extend(sorted.failed.iter().map(|fate| fate.to.clone()));
    job.to = sorted.retry.into_iter().map(|(to, _)| to).collect();
    job.status = match (job.to.is_empty(), job.delivered.is_empty()) {
        (false, _) => JobStatus::Retrying,
        (true, true) => JobStatus::Failed,
        (true, false) => JobStatus::Delivered,
    };
    if job.status == JobStatus::Retrying {
        let again = now.plus(delay(house, job.attempts, ids));
        job.next_attempt = expiry(&job).map_or(again, |expires| again.min(expires));
    }
    job.log.push(json!({"at": now, "attempt": job.attempts, "status": job.status, "detail": detail}));
    let surplus = job.log.len().saturating_sub(limits::JOB_LOG_MAX);
    job.log.drain(..surplus);
    let status = job.status;
    let mut changes = tell_sender(house, view, now, ids, &job, &sorted.delivered, &sorted.failed);
    changes.push(Change::PutJob(job));
    Ok(Decision { changes, reply: status })
}

struct Sorted {
    delivered: Vec<Address>,
    failed: Vec<Fate>,
    /// With the reason to try again.
    retry: Vec<(Address, String)>,
}

fn sort(waiting: &[Address], outcome: &Outcome) -> Sorted {
    let mut sorted = Sorted { delivered: Vec::new(), failed: Vec::new(), retry: Vec::new() };
    for to in waiting {
        let (code, reason) = match outcome {
            Outcome::Answered { accepted, .. } if accepted.contains(to) => {
                sorted.delivered.push(to.clone());
                continue;
            }
            Outcome::Answered { rejected, .. } => match rejected.iter().find(|rejection| &rejection.to == to) {
                Some(rejection) => (rejection.code, rejection.reason.clone()),
                None => (0, "the answer does not mention this recipient".to_owned()),
            },
            Outcome::Failed { code, reason } => (*code, reason.clone()),
            Outcome::Expired => (410, "the envelope expired while it waited".to_owned()),
        };
        if code == 0 || retryable(code) {
            sorted.retry.push((to.clone(), if code == 0 { reason } else { format!("({code}): {reason}") }));
        } else {
            let reason = format!("rejected ({code}): {reason}");
            sorted.failed.push(Fate { to: to.clone(), delivered: false, reason });
        }
    }
    sorted
}

fn tell_sender(
    house: &House,
    view: &dyn View,
    now: Timestamp,
    ids: &mut Ids,
    job: &Job,
    delivered: &[Address],
    failed: &[Fate],
) -> Vec<Change> {
    let field = |name: &str| job.envelope.get(name).and_then(Value::as_str);
    let sender = field("from").and_then(|from| Address::parse(from).ok());
    let Some(sender) = sender.filter(|_| !letters::is_own_voice(&job.from_local)) else {
        return if failed.is_empty() { Vec::new() } else { vec![letters::undeliverable(now, job, failed)] };
    };
    let receipts = if field("receipt") == Some("delivered") { delivered } else { &[] };
    let received = receipts.iter().map(|to| Fate { to: to.clone(), delivered: true, reason: String::new() });
    let fates: Vec<Fate> = failed.iter().cloned().chain(received).collect();
    let notices = fates.iter().map(|fate| letters::notice(house, now, ids, &job.envelope, &sender, fate)).collect();
    letters::letters(house, view, now, notices)
}

/// Doubling from the base to the ceiling, by 0.8 to 1.2 of it, so that houses that went down together do not come back
/// together.
fn delay(house: &House, attempts: u32, ids: &mut Ids) -> i64 {
    let doublings = attempts.saturating_sub(1).min(30);
    let whole = house.settings.retry_base_ms.saturating_mul(1 << doublings).min(house.settings.retry_max_ms);
    whole.saturating_mul(800 + i64::from(ids.per_mille()) * 400 / 1000) / 1000
}

/// Waiting that the sender asked for does not count towards giving up.
fn started(job: &Job) -> Timestamp {
    instant(job, "deliver_after").map_or(job.created, |after| after.max(job.created))
}

fn expiry(job: &Job) -> Option<Timestamp> {
    instant(job, "expires")
}

fn instant(job: &Job, field: &str) -> Option<Timestamp> {
    job.envelope.get(field).and_then(Value::as_str).and_then(Timestamp::parse)
}

fn summary(sorted: &Sorted) -> String {
    let mut parts = Vec::new();
    if !sorted.delivered.is_empty() {
        parts.push(format!("delivered to {}", list(sorted.delivered.iter())));
    }
    let failed = sorted.failed.iter().map(|fate| format!("{} {}", fate.to, fate.reason));
    let retried = sorted.retry.iter().map(|(to, reason)| format!("{to} to be tried again: {reason}"));
    parts.extend(failed.chain(retried));
    shown(&parts.join("; "))
}

fn list<'a>(addresses: impl Iterator<Item = &'a Address>) -> String {
    addresses.map(Address::as_str).collect::<Vec<_>>().join(", ")
}

fn shown(reason: &str) -> String {
    text::plain(reason, limits::PEER_REASON_CHARS_MAX)
}
