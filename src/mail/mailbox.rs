//! What an owner reads and acknowledges.
//!
//! Acknowledging keeps the envelope and takes it off the pending list. Only what was pending and visible is
//! acknowledged; anything else in the list of ids is passed over in silence, so that a repetition is harmless.

use super::{Answer, letters};
use crate::ids::Ids;
use crate::limits;
use crate::record::{Change, Decided, Decision, House, Job, Letter, MailRecord, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::AgentCard;
use crate::wire::address::{Address, SystemName};
use crate::wire::envelope::{Draft, Kind, Payload};
use crate::wire::quote::RECEIPT_MEDIA;
use serde_json::{Map, Value, json};

/// `GET /mailbox/:local`, from the records that the reader found.
pub fn messages(records: &[MailRecord]) -> Value {
    json!({"messages": records.iter().map(MailRecord::to_json).collect::<Vec<_>>()})
}

/// `GET /outbox/:local`.
pub fn sent(jobs: &[Job]) -> Value {
    json!({"sent": jobs.iter().map(outbox_entry).collect::<Vec<_>>()})
}

pub fn outbox_entry(job: &Job) -> Value {
    let mut doc = json!({
        "job": job.job, "id": job.envelope_id, "domain": job.domain, "to": job.to, "status": job.status,
        "attempts": job.attempts, "next_attempt": job.next_attempt, "updated": job.updated, "log": job.log,
        "envelope": job.envelope,
    });
    for (field, list) in [("delivered", &job.delivered), ("failed", &job.failed)] {
        if !list.is_empty() {
            doc[field] = json!(list);
        }
    }
    doc
}

/// `POST /mailbox/:local/ack`: the caller is the owner of the mailbox.
pub fn acknowledge(
    house: &House,
    view: &dyn View,
    now: Timestamp,
    ids: &mut Ids,
    owner: &AgentCard,
    body: &Value,
) -> Decided<Answer> {
    let listed = ids_of(body)?;
    let local = owner.address.local();
    let mut acked: Vec<String> = Vec::new();
    let mut changes = Vec::new();
    let mut notices = Vec::new();
    for id in listed {
        let mut pending = view.pending(local, &id);
        pending.retain(|record| record.acked.is_none() && record.visible_from.is_none_or(|from| from <= now));
        if pending.is_empty() || acked.contains(&id) {
            continue;
        }
        changes.push(Change::Acknowledge { local: local.to_owned(), id: id.clone(), at: now });
        if owner.capability("read_receipts") == Some(&Value::Bool(true)) {
            notices.extend(pending.iter().filter_map(|record| read_receipt(house, now, ids, &owner.address, record)));
        }
        acked.push(id);
    }
    changes.extend(letters::letters(house, view, now, notices));
    Ok(Decision { changes, reply: Answer::new(200, json!({"acked": acked})) })
}

fn ids_of(body: &Value) -> Result<Vec<String>, Refusal> {
    let listed = body.get("ids").and_then(Value::as_array);
    let listed = listed.ok_or_else(|| Refusal::new(Rule::BadField, "ids must be a list of envelope ids"))?;
    if listed.len() > limits::ACK_IDS_MAX {
        let reason = format!("ids lists {} envelopes; at most {} at a time", listed.len(), limits::ACK_IDS_MAX);
        return Err(Refusal::new(Rule::BadField, reason));
    }
    let text = |id: &Value| id.as_str().map(str::to_owned);
    listed
        .iter()
        .map(text)
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| Refusal::new(Rule::BadField, "ids must be a list of envelope ids, each a text"))
}

/// For an agent that asked for it: the sender learns that the envelope was read. Receipts are not receipted, and the
/// house's own names do not read theirs.
fn read_receipt(house: &House, now: Timestamp, ids: &mut Ids, owner: &Address, record: &MailRecord) -> Option<Letter> {
    let sender = Address::parse(&record.from).ok()?;
    // A house's own names do not read, ours or another's.
    let own_voice = letters::is_own_voice(sender.local());
    let receipt = record.envelope.get("type").and_then(Value::as_str) == Some("receipt");
    if receipt || own_voice || &sender == owner {
        return None;
    }
    let thread = record.envelope.get("thread").and_then(Value::as_str).unwrap_or(&record.id);
    let id = ids.uuid();
    let draft = Draft {
        id: id.clone(),
        from: house.address(SystemName::Postmaster),
        to: vec![sender.clone()],
        kind: Kind::Receipt,
        created: now,
        expires: None,
        deliver_after: None,
        thread: Some(thread.to_owned()),
        in_reply_to: Some(record.id.clone()),
        payload: Payload::Clear {
            media: RECEIPT_MEDIA.to_owned(),
            body: json!({"read_of": record.id, "read_by": owner, "read_at": now}),
        },
        more: Map::new(),
    };
    let (doc, to) = (house.letter(draft).into(), vec![sender]);
    Some(Letter { id, doc, to, via: "postmaster", deliver_after: None, order: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::fixture::{START, World, envelope};

    fn ack(world: &mut World, body: Value) -> Answer {
        let owner = world.card_of("ana");
        let mut ids = world.ids();
        let decided = acknowledge(&world.house, &world.view, world.now, &mut ids, &owner, &body);
        world.keep(decided)
    }

    fn world(capabilities: Value) -> World {
        let mut world = World::new();
        world.agent("ana", json!({"capabilities": capabilities}));
        world.agent("bob", json!({}));
        for (id, to) in [("envelope-1", "ana"), ("envelope-2", "ana"), ("envelope-3", "bob")] {
            world.arrive(envelope(id, "leo@b.example", &[&format!("{to}@mar.example")], json!({"thread": "hilo"})));
        }
        world
    }

    #[test]
    fn only_what_lay_in_ones_own_mailbox_is_acknowledged_and_only_once() {
        let mut world = world(json!({}));
        let ids = json!({"ids": ["envelope-1", "envelope-3", "unknown-1", "envelope-1", "../bob/envelope-3", ""]});
        let answer = ack(&mut world, ids.clone());
        assert_eq!((answer.code, answer.body.into_value()), (200, json!({"acked": ["envelope-1"]})));
        assert_eq!(ack(&mut world, ids).body, json!({"acked": []}));
        assert!(world.mailbox("bob")[0].acked.is_none());
        assert!(world.jobs().is_empty());
    }

    #[test]
    fn a_list_that_is_none_is_refused_and_a_long_one_too() {
        let mut world = world(json!({}));
        for bad in [json!({}), json!({"ids": "envelope-1"}), json!({"ids": [1]}), json!({"ids": {}}), json!([])] {
            assert_eq!(ack(&mut world, bad).code, 400);
        }
        assert_eq!(ack(&mut world, json!({"ids": vec!["envelope-1"; limits::ACK_IDS_MAX]})).code, 200);
        assert_eq!(ack(&mut world, json!({"ids": vec!["envelope-1"; limits::ACK_IDS_MAX + 1]})).code, 400);
    }

    #[test]
    fn what_is_not_visible_yet_stays_pending_even_under_an_id_that_somebody_else_used() {
        let mut world = world(json!({}));
        let after = START.plus(1_000);
        let later = envelope("envelope-1", "eva@c.example", &["ana@mar.example"], json!({"deliver_after": after}));
        assert_eq!(world.arrive(later).code, 202);
        assert_eq!(ack(&mut world, json!({"ids": ["envelope-1"]})).body, json!({"acked": ["envelope-1"]}));
        assert_eq!(ack(&mut world, json!({"ids": ["envelope-1"]})).body, json!({"acked": []}));
        world.now = after;
        assert_eq!(ack(&mut world, json!({"ids": ["envelope-1"]})).body, json!({"acked": ["envelope-1"]}));
    }

    #[test]
    fn reading_is_receipted_for_those_who_asked_and_never_back_and_forth() {
        let mut world = world(json!({"read_receipts": true}));
        world.arrive(envelope("receipt-01", "leo@b.example", &["ana@mar.example"], json!({"type": "receipt"})));
        world.arrive(envelope("reminder-1", "ana@mar.example", &["ana@mar.example"], json!({})));
        world.arrive(envelope("notice-001", "libro@mar.example", &["ana@mar.example"], json!({})));
        world.arrive(envelope("envelope-4", "bob@mar.example", &["ana@mar.example"], json!({})));
        let ids = json!({"ids": ["receipt-01", "reminder-1", "notice-001", "envelope-1", "envelope-4"]});
        assert_eq!(ack(&mut world, ids.clone()).body["acked"].as_array().map(Vec::len), Some(5));
        let jobs = world.jobs();
        assert_eq!(jobs.len(), 1);
        let doc = &jobs[0].envelope;
        assert_eq!(
            (doc["from"].clone(), doc["to"].clone()),
            (json!("postmaster@mar.example"), json!(["leo@b.example"]))
        );
        assert_eq!((doc["thread"].clone(), doc["in_reply_to"].clone()), (json!("hilo"), json!("envelope-1")));
        let body = &doc["content"]["body"];
        assert_eq!(body, &json!({"read_of": "envelope-1", "read_by": "ana@mar.example", "read_at": START}));
        let local = world.mailbox("bob");
        assert_eq!(local.iter().filter(|mail| mail.meta.contains_key("via")).count(), 1);
        ack(&mut world, ids);
        assert_eq!((world.jobs().len(), world.mailbox("bob").len()), (1, local.len()));
    }

    #[test]
    fn listings_have_the_shape_of_the_protocol() {
        let world = world(json!({}));
        let listed = messages(&world.mailbox("ana"));
        let first = &listed["messages"][0];
        assert_eq!((first["received"].clone(), first["from_verified"].clone()), (json!(START), json!(true)));
        assert_eq!(first["envelope"]["id"], "envelope-1");
        let mut world = world;
        world.send(envelope("envelope-9", "ana@mar.example", &["leo@b.example"], json!({})));
        let entry = &sent(&world.jobs())["sent"][0];
        assert_eq!((entry["id"].clone(), entry["status"].clone()), (json!("envelope-9"), json!("queued")));
        assert_eq!(entry["envelope"]["id"], "envelope-9");
        assert!(entry.get("delivered").is_none());
    }
}
