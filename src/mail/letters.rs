//! The house's own letters on their way: receipts and notices of libro@, bounces and delivery receipts of postmaster@.
//!
//! A letter to an agent of this house lands in the mailbox within the decision that caused it, past every policy: it
//! answers something the agent did. A letter elsewhere, or for later, is a job of the sending queue, and so is what the
//! ledger orders itself: it is carried out by the inbound door, not read in a mailbox. The letters of postmaster@ are
//! signed in clear and name the hash of what they speak of.

use super::{by_domain, job_id, push};
use crate::ids::Ids;
use crate::limits;
use crate::probe::text;
use crate::record::{Change, House, Job, JobStatus, Letter, MailRecord, View};
use crate::time::Timestamp;
use crate::wire::address::{Address, SystemName};
use crate::wire::envelope::{Draft, Kind, Payload};
use crate::wire::json::canonical_sha256;
use serde_json::{Map, Value, json};

/// What became of an envelope for one recipient, as postmaster@ tells its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    pub to: Address,
    pub delivered: bool,
    pub reason: String,
}

/// The rows that carry these letters. A recipient that this house does not have gets nothing: there is nobody to tell.
pub fn letters(house: &House, view: &dyn View, now: Timestamp, letters: Vec<Letter>) -> Vec<Change> {
    let mut changes = Vec::new();
    for letter in letters {
        let (id, from) = (letter.id.clone(), format!("{}@{}", letter.via, house.domain));
        let later = letter.deliver_after.filter(|at| *at > now);
        for (domain, to) in by_domain(&letter.to) {
            if domain == house.domain && later.is_none() && !letter.order {
                for record in to.iter().filter_map(|to| view.agent(to.local())) {
                    let mail = record_of(&letter, record.local.as_str(), &id, &from, now);
                    changes.extend(push::due(&record, &mail, now));
                    changes.push(Change::Deliver(mail));
                }
                continue;
            }
            let job = job_id(&from, &id, &domain);
            if view.job(&job).is_some() {
                continue;
            }
            changes.push(Change::PutJob(Job {
                job,
                envelope_id: id.clone(),
                from_local: letter.via.to_owned(),
                domain,
                to,
                status: JobStatus::Queued,
                attempts: 0,
                next_attempt: later.unwrap_or(now),
                created: now,
                updated: now,
                log: Vec::new(),
                delivered: Vec::new(),
                failed: Vec::new(),
                envelope: letter.doc.clone(),
            }));
        }
    }
    changes
}

/// The letter by which postmaster@ tells the sender of an envelope what became of it for one recipient.
pub fn notice(house: &House, now: Timestamp, ids: &mut Ids, original: &Value, sender: &Address, fate: &Fate) -> Letter {
    let text_of = |field: &str| original.get(field).and_then(Value::as_str).map(str::to_owned);
    let of = text_of("id");
    let body = json!({
        "of": of, "sha256": canonical_sha256(original).hex(), "to": fate.to,
        "status": if fate.delivered { "delivered" } else { "failed" },
        "reason": text::plain(&fate.reason, limits::PEER_REASON_CHARS_MAX),
    });
    let id = ids.uuid();
    let draft = Draft {
        id: id.clone(),
        from: house.address(SystemName::Postmaster),
        to: vec![sender.clone()],
        kind: Kind::Receipt,
        created: now,
        expires: None,
        deliver_after: None,
        thread: text_of("thread").or_else(|| of.clone()),
        in_reply_to: of,
        payload: Payload::Clear { media: "application/json".to_owned(), body },
        more: Map::new(),
    };
    let (doc, to) = (house.letter(draft).into(), vec![sender.clone()]);
    Letter { id, doc, to, via: "postmaster", deliver_after: None, order: false }
}

/// Whether this name belongs to the house itself: nobody reads a bounce that is sent there.
pub fn is_own_voice(local: &str) -> bool {
    [SystemName::Postmaster, SystemName::Libro, SystemName::Verifica, SystemName::Tareas, SystemName::Casa]
        .iter()
        .any(|name| name.as_str() == local)
}

/// What could not be delivered and has no sender to tell: kept where the operator finds it.
pub fn undeliverable(now: Timestamp, job: &Job, fates: &[Fate]) -> Change {
    let from = job.envelope.get("from").and_then(Value::as_str).unwrap_or_default().to_owned();
    let lost: Vec<Value> = fates.iter().map(|fate| json!({"to": fate.to, "reason": fate.reason})).collect();
    let meta = json!({"via": "postmaster", "from_verified": true, "undelivered": lost});
    Change::Deliver(MailRecord {
        local: SystemName::Postmaster.as_str().to_owned(),
        id: job.envelope_id.clone(),
        from,
        received: now,
        acked: None,
        visible_from: None,
        meta: meta.as_object().cloned().unwrap_or_default(),
        envelope: job.envelope.clone(),
    })
}

fn record_of(letter: &Letter, local: &str, id: &str, from: &str, now: Timestamp) -> MailRecord {
    let mut meta = Map::new();
    meta.insert("via".into(), letter.via.into());
    meta.insert("from_verified".into(), true.into());
    MailRecord {
        local: local.to_owned(),
        id: id.to_owned(),
        from: from.to_owned(),
        received: now,
        acked: None,
        visible_from: None,
        meta,
        envelope: letter.doc.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::fixture::{START, World, address, domain, envelope};

    fn letter(to: &[&str], deliver_after: Option<Timestamp>) -> Letter {
        let doc = envelope("receipt-01", "libro@mar.example", to, json!({"type": "receipt"}));
        let to = to.iter().map(|to| address(to)).collect();
        Letter { id: "receipt-01".into(), doc: doc.into(), to, via: "libro", deliver_after, order: false }
    }

    #[test]
    fn here_into_the_mailbox_elsewhere_into_the_queue_and_nobody_nowhere() {
        let mut world = World::new();
        world.agent("ana", json!({"inbox": {"policy": "allowlist", "blocklist": ["mar.example"]}}));
        let to = ["ana@mar.example", "nobody@mar.example", "leo@b.example", "eva@b.example", "tom@c.example"];
        let changes = letters(&world.house, &world.view, world.now, vec![letter(&to, None)]);
        world.view.apply(changes).expect("applied");
        assert_eq!(world.mailbox("ana").len(), 1);
        assert_eq!(world.mailbox("ana")[0].meta["via"], "libro");
        let jobs = world.jobs();
        let mut queued: Vec<(String, usize)> = jobs.iter().map(|j| (j.domain.to_string(), j.to.len())).collect();
        queued.sort();
        assert_eq!(queued, vec![("b.example".to_owned(), 2), ("c.example".to_owned(), 1)]);
        assert!(jobs.iter().all(|job| job.from_local == "libro" && job.next_attempt == START));
        // The same letter again changes nothing.
        let changes = letters(&world.house, &world.view, world.now, vec![letter(&to, None)]);
        world.view.apply(changes).expect("applied");
        assert_eq!((world.mailbox("ana").len(), world.jobs().len()), (1, 2));
    }

    #[test]
    fn a_letter_for_later_waits_in_the_queue_even_for_a_mailbox_of_this_house() {
        let mut world = World::new();
        world.agent("ana", json!({}));
        let later = START.plus(1_000);
        let changes = letters(&world.house, &world.view, world.now, vec![letter(&["ana@mar.example"], Some(later))]);
        world.view.apply(changes).expect("applied");
        assert!(world.mailbox("ana").is_empty());
        assert_eq!(world.jobs()[0].next_attempt, later);
        assert_eq!(world.jobs()[0].domain, domain("mar.example"));
    }

    #[test]
    fn notices_bound_what_a_peer_says() {
        let world = World::new();
        let original = envelope("envelope-1", "ana@mar.example", &["leo@b.example"], json!({"thread": "hilo"}));
        let fate = Fate { to: address("leo@b.example"), delivered: false, reason: "x".repeat(1 << 20) };
        let mut ids = Ids::from_seed([1; 32]);
        let notice = notice(&world.house, START, &mut ids, &original, &address("ana@mar.example"), &fate);
        let reason = notice.doc["content"]["body"]["reason"].as_str().expect("reason");
        assert_eq!(reason.chars().count(), limits::PEER_REASON_CHARS_MAX + 1);
        assert_eq!(notice.doc["thread"], "hilo");
    }
}
