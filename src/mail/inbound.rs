//! An envelope arrives: checked as a whole, then for each recipient of this house, and all that it causes in one
//! decision.
//!
//! An id of a sender names one envelope for ever: the same envelope again changes nothing for whoever has it, and another
//! one under the same id is refused. This is looked at after the signature was verified, so that nobody spoils another's
//! id or learns who received an envelope.

use super::cards::{Asker, seen_by};
use super::groups::{self, Group};
use super::outbound::id_reused;
use super::policy::{Welcome, welcome};
use super::{Answer, Arrival, delegation, letters, no_such_agent, precheck, push, weight, within_rate};
use crate::ids::Ids;
use crate::libro::{self, Books, Ctx};
use crate::record::{AgentRecord, Cards, Change, Decided, Decision, House, Letter, MailRecord, OperationRecord};
use crate::record::{SeenRecord, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::{Address, SystemName};
use crate::wire::{AgentCard, Doc, Envelope};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// `POST /inbound`. `cards` holds what [`libro::cards_needed`] asked for.
pub fn inbound(
    house: &House,
    view: &dyn View,
    now: Timestamp,
    ids: &mut Ids,
    cards: &Cards,
    arrival: &Arrival,
) -> Decided<Answer> {
    let envelope = arrival.verified.envelope();
    precheck(house, now, envelope)?;
    let sha256 = envelope.sha256().hex();
    let seen = view.seen(&envelope.from, &envelope.id);
    if seen.as_ref().is_some_and(|seen| seen.sha256 != sha256) {
        return Err(id_reused(envelope));
    }
    let earlier = seen.map(|seen| seen.accepted).unwrap_or_default();
    let waiting: Vec<&Address> = envelope.to.iter().filter(|to| house.is_mine(to) && !earlier.contains(to)).collect();
    if waiting.is_empty() {
        return Ok(Decision::nothing(repeated(house, view, envelope, &earlier)));
    }
    let sender = Sender::check(house, view, now, arrival)?;
    if house.settings.require_relay && !arrival.relay_verified {
        let reason = "this house takes mail only with the signature of the house that relays it";
        return Err(Refusal::new(Rule::BadRelay, reason));
    }
    let rate = sender.rate(view, now, envelope);
    let mut hits = 0;
    if let Some((_, counted)) = &rate {
        within_rate(*counted, house.settings.mail_per_minute, now, "envelopes from one sender")?;
        hits = weight(envelope, waiting.len());
    }
    let ctx = Ctx { house, view, now, cards };
    let mut desk = Desk {
        ctx: &ctx,
        arrival,
        sender: &sender,
        sha256: &sha256,
        books: Books::open(view),
        rows: Vec::new(),
        letters: Vec::new(),
        results: BTreeMap::new(),
        repeated: false,
        counted: rate.as_ref().map_or(0, |(_, counted)| *counted),
        hits,
        stamped: false,
    };
    let mut accepted = earlier.clone();
    let mut rejected: Vec<(&Address, Refusal)> = Vec::new();
    for to in waiting {
        match desk.take(ids, to) {
            Ok(()) => accepted.push(to.clone()),
            Err(refusal) => rejected.push((to, refusal)),
        }
    }
    let duplicate = !earlier.is_empty() || desk.repeated;
    let mut changes: Vec<Change> =
        rate.into_iter().map(|(key, _)| Change::CountRate { key, at: now, hits: desk.hits }).collect();
    let reply = answer(&accepted, &rejected, std::mem::take(&mut desk.results), duplicate);
    if accepted.len() > earlier.len() {
        changes.extend(desk.books.into_changes());
        changes.extend(desk.rows);
        changes.extend(letters::letters(house, view, now, desk.letters));
        let (from, id) = (envelope.from.clone(), envelope.id.clone());
        changes.push(Change::PutSeen(SeenRecord { from, id, sha256: sha256.clone(), at: now, accepted }));
    }
    Ok(Decision { changes, reply })
}

/// What is known of the sender inside the transaction.
struct Sender {
    /// The record, for an agent of this house.
    own: Option<AgentRecord>,
    /// One of the house's own names: its mail is not a stranger's.
    own_voice: bool,
}

impl Sender {
    fn check(house: &House, view: &dyn View, now: Timestamp, arrival: &Arrival) -> Result<Sender, Refusal> {
        let (envelope, card) = (arrival.verified.envelope(), arrival.verified.sender());
        if !house.is_mine(&envelope.from) {
            if card.ended(now) {
                let reason = format!("the card of {} is revoked or past its date", envelope.from);
                return Err(Refusal::new(Rule::SenderEnded, reason));
            }
            card.scope().map_or(Ok(()), |scope| scope.admits(envelope))?;
            return Ok(Sender { own: None, own_voice: false });
        }
        // The card was resolved before this transaction; what counts is the one in force now.
        let record = view.agent(envelope.from.local());
        let record = record.filter(|record| record.card.accepted_key(&envelope.kid, now).is_some());
        let record = record.ok_or_else(|| {
            let reason = format!("{} does not hold this key at this house", envelope.from);
            Refusal::new(Rule::SenderUnknown, reason)
        })?;
        delegation::stands(view, &record.card, now)?;
        delegation::admits(view, &record.card, envelope)?;
        let own_voice = record.system;
        Ok(Sender { own: Some(record), own_voice })
    }

    /// The name under which the sender's letters are counted, and how many were in this minute. The house's own voice is
    /// not counted.
    fn rate(&self, view: &dyn View, now: Timestamp, envelope: &Envelope) -> Option<(String, u32)> {
        let key = match &self.own {
            _ if self.own_voice => return None,
            Some(_) => format!("inbound:{}", envelope.from),
            None => format!("inbound:{}", envelope.from.domain()),
        };
        let counted = view.rate(&key, now);
        Some((key, counted))
    }

    fn card<'a>(&'a self, arrival: &'a Arrival) -> &'a AgentCard {
        self.own.as_ref().map_or(arrival.verified.sender(), |record| &record.card)
    }
}

/// Where the recipients of one envelope are served, one after the other, over the same open books.
struct Desk<'a> {
    ctx: &'a Ctx<'a>,
    arrival: &'a Arrival,
    sender: &'a Sender,
    sha256: &'a str,
    books: Books<'a>,
    rows: Vec<Change>,
    letters: Vec<Letter>,
    results: BTreeMap<String, Doc>,
    /// An operation had been applied before.
    repeated: bool,
    /// The sender's letters in this minute, and what this envelope adds to them.
    counted: u32,
    hits: u32,
    /// The envelope's one stamp was spent here and now.
    stamped: bool,
}

impl Desk<'_> {
    /// Takes the envelope for one recipient, or leaves everything as it was.
    fn take(&mut self, ids: &mut Ids, to: &Address) -> Result<(), Refusal> {
        let (house, view, now) = (self.ctx.house, self.ctx.view, self.ctx.now);
        let envelope = self.arrival.verified.envelope();
        offered(house, to)?;
        let record = if self.sender.own_voice {
            view.agent(to.local())
        } else {
            seen_by(view, to.local(), Asker::Card(self.sender.card(self.arrival)), now)
        };
        let record = record.filter(|record| !record.card.ended(now)).ok_or_else(no_such_agent)?;
        if to.is_system(&house.domain, SystemName::Libro) {
            return self.operate(ids, to);
        }
        if let Some(group) = Group::of(&record.card) {
            return self.fan_out(to, &group);
        }
        let mut meta = self.meta();
        if self.sender.own_voice {
            meta.insert("via".into(), envelope.from.local().into());
        } else {
            let promised = self.arrival.sender_promises_sealed;
            match welcome(view, now, &house.domain, &record.card.inbox, to, envelope, promised)? {
                Welcome::Free => {}
                Welcome::Vouched { voucher, bond } => {
                    meta.insert("vouched_by".into(), json!(voucher));
                    meta.insert("vouch_bond".into(), bond.into());
                }
                Welcome::Stamp { price } => {
                    meta.insert("stamp".into(), self.stamp(ids, to, price)?.into());
                }
            }
        }
        self.deliver(to, meta, Some(&record));
        Ok(())
    }

    fn meta(&self) -> Map<String, Value> {
        let mut meta = Map::new();
        meta.insert("from_verified".into(), true.into());
        meta.insert("relay_verified".into(), self.arrival.relay_verified.into());
        meta.insert("sender_kid".into(), self.arrival.verified.envelope().kid.clone().into());
        meta
    }

    fn deliver(&mut self, to: &Address, meta: Map<String, Value>, record: Option<&AgentRecord>) {
        let (envelope, now) = (self.arrival.verified.envelope(), self.ctx.now);
        let later = envelope.deliver_after.filter(|after| *after > now);
        let mail = MailRecord {
            local: to.local().to_owned(),
            id: envelope.id.clone(),
            from: envelope.from.to_string(),
            received: later.unwrap_or(now),
            acked: None,
            visible_from: later,
            meta,
            envelope: envelope.doc().clone().into(),
        };
        self.rows.extend(record.and_then(|record| push::due(record, &mail, now)));
        self.rows.push(Change::Deliver(mail));
    }

    /// The same envelope to every member that takes it from its author, and one for the group: all or none.
    fn fan_out(&mut self, to: &Address, group: &Group) -> Result<(), Refusal> {
        let author = self.sender.own.as_ref().filter(|_| !self.sender.own_voice).map(|record| &record.card);
        let envelope = self.arrival.verified.envelope();
        let audience = groups::audience(self.ctx.view, self.ctx.now, group, author, envelope)?;
        let n = audience.members.len();
        let copies = weight(envelope, n).max(u32::try_from(n).unwrap_or(u32::MAX));
        let limit = self.ctx.house.settings.mail_per_minute;
        groups::room_for_all(self.counted, self.hits, copies, limit, self.ctx.now)?;
        self.hits = self.hits.saturating_add(copies);
        let mut meta = self.meta();
        meta.insert("group".into(), json!(to));
        for member in audience.members.iter().chain([to]) {
            let record = self.ctx.view.agent(member.local());
            self.deliver(member, meta.clone(), record.as_ref());
        }
        self.results.insert(to.to_string(), json!({"members": n, "skipped": audience.skipped}).into());
        Ok(())
    }

    fn operate(&mut self, ids: &mut Ids, to: &Address) -> Result<(), Refusal> {
        let envelope = self.arrival.verified.envelope();
        if envelope.deliver_after.is_some_and(|after| after > self.ctx.now) {
            let reason = "an operation does not wait here; send it when its deliver_after has come";
            return Err(Refusal::new(Rule::NotYet, reason));
        }
        let operated = libro::operate(self.ctx, &mut self.books, ids, &self.arrival.verified)?;
        self.letters.extend(operated.letters);
        self.repeated |= operated.duplicate;
        self.results.insert(to.to_string(), operated.result);
        Ok(())
    }

    /// One envelope carries one stamp, now and for ever: what its sender signed is one payment.
    fn stamp(&mut self, ids: &mut Ids, to: &Address, price: u64) -> Result<String, Refusal> {
        let envelope = self.arrival.verified.envelope();
        let spent = |view: &dyn View| view.operation(&envelope.from, &stamp_key(&envelope.id)).is_some();
        if self.stamped || spent(self.ctx.view) {
            let reason = "the stamp of this envelope already paid another mailbox; send one envelope for each";
            return Err(Refusal::new(Rule::StampMissing, reason));
        }
        let entry = libro::stamp(self.ctx, &mut self.books, ids, &self.arrival.verified, to, price)?;
        self.stamped = true;
        self.rows.push(Change::InsertOperation(OperationRecord {
            from: envelope.from.clone(),
            id: stamp_key(&envelope.id),
            sha256: self.sha256.to_owned(),
            result: json!({"stamp": entry, "to": to}).into(),
            at: self.ctx.now,
        }));
        Ok(entry)
    }
}

/// What this house does not do is refused in words, before anybody looks for a card.
fn offered(house: &House, to: &Address) -> Result<(), Refusal> {
    let what = if to.is_system(&house.domain, SystemName::Tareas) {
        "seeded work"
    } else {
        return Ok(());
    };
    Err(Refusal::new(Rule::NotOfferedHere, format!("{} does not offer {what}", house.domain)))
}

fn repeated(house: &House, view: &dyn View, envelope: &Envelope, accepted: &[Address]) -> Answer {
    let body = json!({"ok": true, "code": 200, "duplicate": true, "accepted": accepted, "rejected": []});
    let libro = house.address(SystemName::Libro);
    let operation = if accepted.contains(&libro) { view.operation(&envelope.from, &envelope.id) } else { None };
    match operation {
        Some(operation) => {
            let results = BTreeMap::from([(libro.to_string(), operation.result)]);
            Answer::new(200, with_results(body, results))
        }
        None => Answer::new(200, body),
    }
}

fn answer(
    accepted: &[Address],
    rejected: &[(&Address, Refusal)],
    results: BTreeMap<String, Doc>,
    duplicate: bool,
) -> Answer {
    let listed: Vec<Value> = rejected
        .iter()
        .map(|(to, refusal)| {
            let mut entry = json!({
                "to": to, "code": refusal.code(), "reason": refusal.reason, "rule": refusal.rule.number(),
            });
            if let Some(bits) = refusal.pow_bits {
                entry["pow_bits"] = bits.into();
            }
            entry
        })
        .collect();
    if let (true, Some((_, first))) = (accepted.is_empty(), rejected.first()) {
        let answer = Answer::refused(first);
        let mut body = answer.body.value().clone();
        body["accepted"] = json!([]);
        body["rejected"] = json!(listed);
        return Answer { body: body.into(), ..answer };
    }
    let mut body = json!({"ok": true, "code": 202, "accepted": accepted, "rejected": listed});
    if duplicate {
        body["duplicate"] = true.into();
    }
    Answer::new(202, with_results(body, results))
}

fn with_results(mut body: Value, results: BTreeMap<String, Doc>) -> Doc {
    Doc::later(move || {
        body["results"] = json!(results);
        body
    })
}

/// Not an envelope id, so that no operation can be taken for it.
fn stamp_key(id: &str) -> String {
    format!("stamp/{id}")
}
