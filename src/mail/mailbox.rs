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
    let own_voice = house.is_mine(&sender) && letters::is_own_voice(sender.local());
    let receipt = record.envelope.get("type").and_then(Value::as_str) == Some("receipt");
    if receipt || own_voice || &sender == owner {
        return None;
    }
    let thread = record.envelope.get("thread").and_then(Value::as_str).unwrap_or(&record.id);
    let draft = Draft {
        id: ids.uuid(),
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
    Some(Letter { doc: house.letter(draft), to: vec![sender], via: "postmaster", deliver_after: None })
}
