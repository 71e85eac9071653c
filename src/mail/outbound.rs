//! An agent hands its house an envelope to send: one job for each domain, its own included.
//!
//! An id of a sender names one envelope for ever. The same envelope handed in again is answered as the first time; another
//! envelope under the same id is refused, here and at every house that saw the first.

use super::{Answer, by_domain, delegation, job_id, not_expired, weight, within_rate};
use crate::record::{Change, Decided, Decision, House, Job, JobStatus, SeenRecord, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::SystemName;
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
    delegation::stands(view, &sender, now)?;
    delegation::admits(view, &sender, envelope)?;
    sealed_abroad(house, envelope)?;
    not_expired(envelope, now)?;
    let seen = view.seen(&envelope.from, &envelope.id);
    let sha256 = envelope.sha256().hex();
    if seen.as_ref().is_some_and(|seen| seen.sha256 != sha256) {
        return Err(id_reused(envelope));
    }
    let key = format!("outbound:{}", envelope.from);
    within_rate(view.rate(&key, now), house.settings.mail_per_minute, now, "envelopes from one sender")?;
    let mut changes = Vec::new();
    let mut jobs = Vec::new();
    for (domain, to) in by_domain(&envelope.to) {
        let job = job_id(envelope.from.as_str(), &envelope.id, &domain);
        jobs.push(json!({"job": job, "domain": domain, "to": to}));
        if view.job(&job).is_some() {
            continue;
        }
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
            envelope: envelope.doc().clone().into(),
        }));
    }
    let fresh = changes.len();
    changes.push(Change::CountRate { key, at: now, hits: weight(envelope, fresh) });
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
    if fresh == 0 {
        body["duplicate"] = true.into();
    }
    Ok(Decision { changes, reply: Answer::new(202, body) })
}

/// A house that promises to send everything sealed does not let an agent break its promise: other houses would refuse
/// the letter. What a ledger must read goes in clear.
fn sealed_abroad(house: &House, envelope: &Envelope) -> Result<(), Refusal> {
    let abroad = envelope.to.iter().find(|to| !house.is_mine(to) && !to.is_system(&to.domain(), SystemName::Libro));
    match abroad.filter(|_| house.settings.outbound_sealed && !envelope.is_sealed()) {
        None => Ok(()),
        Some(to) => {
            let reason = format!("{} sends nothing in clear to other houses; seal the letter for {to}", house.domain);
            Err(Refusal::new(Rule::MustBeSealed, reason))
        }
    }
}

pub(super) fn id_reused(envelope: &Envelope) -> Refusal {
    let reason = format!("{} already sent another envelope as {}; take a new id", envelope.from, envelope.id);
    Refusal::new(Rule::IdReused, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;
    use crate::mail::fixture::{START, World, envelope, key};
    use serde_json::Value;

    fn world() -> World {
        let mut world = World::new();
        world.agent("ana", json!({}));
        world
    }

    fn from_ana(id: &str, to: &[&str], more: Value) -> Value {
        envelope(id, "ana@mar.example", to, more)
    }

    #[test]
    fn one_job_for_each_domain_its_own_included() {
        let mut world = world();
        let to = ["leo@b.example", "eva@mar.example", "tom@b.example", "leo@b.example"];
        let answer = world.send(from_ana("envelope-1", &to, json!({})));
        assert_eq!(answer.code, 202);
        assert_eq!(answer.body["id"], "envelope-1");
        let jobs: Vec<(Value, Value)> = answer.body["jobs"]
            .as_array()
            .expect("jobs")
            .iter()
            .map(|job| (job["domain"].clone(), job["to"].clone()))
            .collect();
        assert_eq!(
            jobs,
            vec![
                (json!("b.example"), json!(["leo@b.example", "tom@b.example"])),
                (json!("mar.example"), json!(["eva@mar.example"])),
            ]
        );
        assert_eq!(world.jobs().len(), 2);
    }

    #[test]
    fn the_same_envelope_again_is_harmless_and_another_under_its_id_is_refused() {
        let mut world = world();
        let doc = from_ana("envelope-1", &["leo@b.example"], json!({}));
        let first = world.send(doc.clone());
        let again = world.send(doc);
        assert_eq!(first.body["jobs"], again.body["jobs"]);
        assert_eq!(again.body["duplicate"], true);
        assert_eq!(world.jobs().len(), 1);
        let other = from_ana("envelope-1", &["tom@c.example"], json!({}));
        assert_eq!(world.send(other).code, 409);
        assert_eq!(world.jobs().len(), 1);
        // The id is the sender's own: somebody else's is another one.
        world.agent("eva", json!({}));
        assert_eq!(world.send(envelope("envelope-1", "eva@mar.example", &["leo@b.example"], json!({}))).code, 202);
        assert_eq!(world.jobs().len(), 2);
    }

    #[test]
    fn only_the_sender_itself_with_its_current_key() {
        let mut world = world();
        let eva = world.agent("eva", json!({}));
        let doc = from_ana("envelope-1", &["leo@b.example"], json!({}));
        let parsed = |doc: Value| Envelope::parse(doc, limits::ENVELOPE_BYTES_DEFAULT).expect("envelope");
        let refused = outbound(&world.house, &world.view, world.now, &eva, &parsed(doc.clone()));
        assert_eq!(refused.map_err(|r| r.rule).map(|_| ()), Err(Rule::NotThisSender));

        // Rotated: the old key is good for what is under way, not for something new.
        let old = key("ana@mar.example").public().kid();
        let until = world.now.plus(1_000);
        let rotated =
            world.agent("ana", json!({"sig": key("new").public().kid(), "previous": [{"sig": old, "until": until}]}));
        let refused = outbound(&world.house, &world.view, world.now, &rotated, &parsed(doc.clone()));
        assert_eq!(refused.map_err(|r| r.rule).map(|_| ()), Err(Rule::BadSignature));

        let mut forged = doc;
        forged["signature"]["kid"] = json!(key("new").public().kid());
        let refused = outbound(&world.house, &world.view, world.now, &rotated, &parsed(forged));
        assert_eq!(refused.map_err(|r| r.rule).map(|_| ()), Err(Rule::BadSignature));
    }

    #[test]
    fn expired_out_of_scope_and_over_the_rate() {
        let mut world = world();
        let past = from_ana("envelope-1", &["leo@b.example"], json!({"expires": START}));
        assert_eq!(world.send(past).code, 410);
        let future = from_ana("envelope-2", &["leo@b.example"], json!({"expires": START.plus(1)}));
        assert_eq!(world.send(future).code, 202);
        for n in 1..limits::RATE_MAIL_PER_MINUTE {
            let doc = from_ana(&format!("envelope-n{n}"), &["leo@b.example"], json!({}));
            assert_eq!(world.send(doc).code, 202, "{n}");
        }
        let over = world.send(from_ana("envelope-over", &["leo@b.example"], json!({})));
        assert_eq!(over.code, 429);
        assert!(over.retry_after.is_some_and(|seconds| (1..=60).contains(&seconds)));
        world.now = world.now.plus(60_000);
        assert_eq!(world.send(from_ana("envelope-over", &["leo@b.example"], json!({}))).code, 202);
    }

    #[test]
    fn a_long_letter_to_many_houses_counts_for_what_it_fills() {
        let mut world = world();
        let to: Vec<String> = (0..limits::RECIPIENTS_MAX).map(|n| format!("leo@d{n}.example")).collect();
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        let rate = |world: &World| world.view.rate("outbound:ana@mar.example", world.now);
        assert_eq!(world.send(from_ana("envelope-1", &to, json!({}))).code, 202);
        assert_eq!(rate(&world), 1);
        let body = "x".repeat(limits::ENVELOPE_BYTES_DEFAULT - 10_000);
        let long = json!({"content": {"media": "text/plain", "body": body}});
        assert_eq!(world.send(from_ana("envelope-2", &to, long.clone())).code, 202);
        let counted = rate(&world);
        assert_eq!(counted, 1 + limits::RECIPIENTS_MAX as u32);
        assert_eq!(world.send(from_ana("envelope-2", &to, long)).code, 202);
        assert_eq!(rate(&world), counted + 1, "a repetition keeps nothing more");
    }

    #[test]
    fn deferred_mail_waits_in_the_queue() {
        let mut world = world();
        let after = START.plus(86_400_000);
        world.send(from_ana("envelope-1", &["ana@mar.example"], json!({"deliver_after": after})));
        assert_eq!(world.jobs()[0].next_attempt, after);
        world.send(from_ana("envelope-2", &["ana@mar.example"], json!({"deliver_after": START.minus(5)})));
        assert!(world.jobs().iter().any(|job| job.next_attempt == START));
    }
}
