//! An agent hands its house an envelope to send: one job for each domain, its own included.
//!
//! An id of a sender names one envelope for ever. The same envelope handed in again is answered as the first time; another
//! envelope under the same id is refused, here and at every house that saw the first.

use super::{Answer, by_domain, job_id, not_expired, within_rate};
use crate::record::{Change, Decided, Decision, House, Job, JobStatus, SeenRecord, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::{AgentCard, Envelope};
use serde_json::json;

/// `POST /outbound`. `caller` is the agent that signed the request.
pub fn outbound(
    house: &House,
    view: &dyn View,
    now: Timestamp,
    caller: &AgentCard,
    envelope: &Envelope,
) -> Decided<Answer> {
    if envelope.from != caller.address {
        let reason = format!("from is {}, and the request is signed by {}", envelope.from, caller.address);
        return Err(Refusal::new(Rule::NotThisSender, reason));
    }
    let sender = view.agent(caller.address.local()).map(|record| record.card);
    let Some(sender) = sender.filter(|card| card.sig == caller.sig && !card.ended(now)) else {
        return Err(Refusal::new(Rule::Unauthenticated, "the sender's card changed since the request was signed"));
    };
    if !sender.sig.is_kid(&envelope.kid) {
        let reason = "an envelope leaves its house signed with the sender's current key; sign it again";
        return Err(Refusal::new(Rule::BadSignature, reason));
    }
    envelope.is_signed_by(&sender, now)?;
    if let Some(scope) = sender.scope() {
        scope.admits(envelope)?;
    }
    not_expired(envelope, now)?;
    let seen = view.seen(&envelope.from, &envelope.id);
    let sha256 = envelope.sha256().hex();
    if seen.as_ref().is_some_and(|seen| seen.sha256 != sha256) {
        return Err(id_reused(envelope));
    }
    let key = format!("outbound:{}", envelope.from);
    within_rate(view.rate(&key, now), house.settings.mail_per_minute, now, "envelopes from one sender")?;
    let mut changes = vec![Change::CountRate { key, at: now, hits: 1 }];
    let mut jobs = Vec::new();
    let mut fresh = false;
    for (domain, to) in by_domain(&envelope.to) {
        let job = job_id(envelope.from.as_str(), &envelope.id, &domain);
        jobs.push(json!({"job": job, "domain": domain, "to": to}));
        if view.job(&job).is_some() {
            continue;
        }
        fresh = true;
        changes.push(Change::PutJob(Job {
            job,
            envelope_id: envelope.id.clone(),
            from_local: envelope.from.local().to_owned(),
            domain,
            to,
            status: JobStatus::Queued,
            attempts: 0,
            next_attempt: envelope.deliver_after.map_or(now, |after| after.max(now)),
            created: now,
            updated: now,
            log: Vec::new(),
            delivered: Vec::new(),
            failed: Vec::new(),
            envelope: envelope.doc().clone(),
        }));
    }
    if seen.is_none() {
        changes.push(Change::PutSeen(SeenRecord {
            from: envelope.from.clone(),
            id: envelope.id.clone(),
            sha256,
            at: now,
            accepted: Vec::new(),
        }));
    }
    let mut body = json!({"ok": true, "code": 202, "id": envelope.id, "jobs": jobs});
    if !fresh {
        body["duplicate"] = true.into();
    }
    Ok(Decision { changes, reply: Answer::new(202, body) })
}

pub(super) fn id_reused(envelope: &Envelope) -> Refusal {
    let reason = format!("{} already sent another envelope as {}; take a new id", envelope.from, envelope.id);
    Refusal::new(Rule::IdReused, reason)
}
