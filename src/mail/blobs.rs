//! Attachments: who may hand one in, who may have it, and how long it stays.
//!
//! The house holds bytes that it cannot read. An attachment is reserved before its bytes come, kept when they are safe,
//! and marked as going before they are removed: whatever stops the house in between, what is there has a row, and what
//! has no room was never taken. Room is counted where it is decided, in one transaction: by sender and day of UTC, and
//! for the whole house. Once kept, the bytes under a name never change.
//!
//! Whoever may not have an attachment that exists is told so (403), as the protocol says; the name is a uuid that nobody
//! guesses. Deliberately absent: any look at the bytes.

use super::{delegation, groups};
use crate::limits;
use crate::record::{BlobRecord, BlobState, Change, Decided, Decision, House, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::AgentCard;
use crate::wire::address::Address;
use serde_json::{Value, json};

/// What `PUT /blob/:blob` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    pub blob: String,
    pub to: Vec<Address>,
    /// As declared; nothing when it is not known before the end.
    pub bytes: Option<u64>,
}

/// Whether the bytes are new to the house or said to be those that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    New,
    Again,
}

impl Handed {
    /// `to` is the query's values: each a list of addresses with commas between.
    pub fn parse<'a>(blob: &str, to: impl Iterator<Item = &'a str>, bytes: Option<u64>) -> Result<Handed, Refusal> {
        let blob = name(blob)?;
        let mut readers: Vec<Address> = Vec::new();
        for text in to.flat_map(|list| list.split(',')).map(str::trim).filter(|text| !text.is_empty()) {
            let address = Address::parse(text).map_err(|r| bad(&format!("to: {}", r.reason)))?;
            if !readers.contains(&address) {
                readers.push(address);
            }
            if readers.len() > limits::ATTACHMENT_READERS_MAX {
                return Err(bad(&format!("to names more than {} addresses", limits::ATTACHMENT_READERS_MAX)));
            }
        }
        if readers.is_empty() {
            return Err(bad("to is missing: the addresses that may fetch it, as ?to=ana@a.example,leo@b.example"));
        }
        match bytes {
            Some(0) => Err(bad("the body is empty; it is the sealed file")),
            Some(bytes) if bytes > limits::ATTACHMENT_BYTES_MAX => Err(too_large()),
            _ => Ok(Handed { blob, to: readers, bytes }),
        }
    }
}

/// The name of an attachment as it is kept: a uuid in lower case with hyphens.
pub fn name(text: &str) -> Result<String, Refusal> {
    let plain = (text.len() == 36).then(|| uuid::Uuid::try_parse(text).ok()).flatten();
    plain.map(|uuid| uuid.to_string()).ok_or_else(|| bad("the name of an attachment is a uuid"))
}

pub fn too_large() -> Refusal {
    Refusal::new(
        Rule::BodyTooLarge,
        format!("an attachment has at most {} bytes as it is stored", limits::ATTACHMENT_BYTES_MAX),
    )
}

/// Makes room for an attachment of `caller`, before its bytes are read. `upload` names this attempt.
pub fn reserve(
    house: &House,
    view: &dyn View,
    now: Timestamp,
    caller: &AgentCard,
    handed: &Handed,
    upload: &str,
) -> Decided<Taking> {
    let room = offered(house)?;
    let sender = view.agent(caller.address.local()).map(|record| record.card);
    let Some(sender) = sender.filter(|card| card.sig == caller.sig && !card.ended(now)) else {
        return Err(Refusal::new(Rule::Unauthenticated, "the sender's card changed since the request was signed"));
    };
    delegation::stands(view, &sender, now)?;
    delegation::reaches(view, &sender, &handed.to)?;
    match view.blob(&handed.blob) {
        None => {}
        Some(row) if row.from != sender.address => {
            return Err(Refusal::new(Rule::BlobTaken, "another sender's attachment has this name; take a new uuid"));
        }
        Some(row) if row.is_there(now) => return Ok(Decision::nothing(Taking::Again)),
        Some(_) => {
            let reason = "this attachment is on its way in or out; try again in a minute, or take a new uuid";
            return Err(Refusal::new(Rule::Conflict, reason));
        }
    }
    let bytes = handed.bytes.unwrap_or(limits::ATTACHMENT_BYTES_MAX);
    let (day, spent) = (now.day(), view.blob_day(&sender.address, now.day()));
    if spent.saturating_add(bytes) > limits::ATTACHMENT_DAY_BYTES_MAX {
        let reason =
            format!("{spent} of {} bytes of attachments are spent today (UTC)", limits::ATTACHMENT_DAY_BYTES_MAX);
        return Err(Refusal::new(Rule::AllowanceSpent, reason).retry_after(now.seconds_to_next_day()));
    }
    if view.blob_bytes().saturating_add(bytes) > room {
        let refusal = Refusal::new(Rule::NoRoom, "this house has no room for more attachments now");
        return Err(refusal.retry_after(limits::BLOB_NO_ROOM_RETRY_SECONDS));
    }
    let row = BlobRecord {
        blob: handed.blob.clone(),
        from: sender.address.clone(),
        to: handed.to.clone(),
        bytes,
        state: BlobState::Coming,
        upload: upload.to_owned(),
        sha256: None,
        created: now,
        until: now.plus(limits::BLOB_LEASE_MS),
        fetched: Vec::new(),
    };
    let changes = vec![counted(&row, day, signed(bytes)), Change::PutBlob(row)];
    Ok(Decision { changes, reply: Taking::New })
}

/// The bytes are safe: from now on the attachment can be had.
pub fn keep(view: &dyn View, now: Timestamp, blob: &str, upload: &str, bytes: u64, sha256: &str) -> Decided<Value> {
    let Some(row) = coming(view, blob, upload) else {
        return Err(Refusal::new(Rule::Conflict, "the attachment came too late; hand it in again"));
    };
    let less = signed(bytes) - signed(row.bytes);
    let day = row.created.day();
    let row = BlobRecord {
        bytes,
        state: BlobState::Kept,
        sha256: Some(sha256.to_owned()),
        until: now.plus(limits::ATTACHMENT_KEEP_MS),
        ..row
    };
    let reply = shown(&row);
    Ok(Decision { changes: vec![counted(&row, day, less), Change::PutBlob(row)], reply })
}

/// The bytes that came are those that are there already: whoever may fetch them now may be more than before.
pub fn repeat(view: &dyn View, now: Timestamp, caller: &Address, handed: &Handed, sha256: &str) -> Decided<Value> {
    let row = view.blob(&handed.blob).filter(|row| row.from == *caller && row.is_there(now));
    let Some(mut row) = row else {
        return Err(Refusal::new(Rule::Conflict, "the attachment was removed meanwhile; hand it in again"));
    };
    if row.sha256.as_deref() != Some(sha256) {
        return Err(Refusal::new(Rule::BlobTaken, "this name has other bytes already; take a new uuid"));
    }
    let more: Vec<Address> = handed.to.iter().filter(|to| !row.to.contains(to)).cloned().collect();
    if row.to.len() + more.len() > limits::ATTACHMENT_READERS_MAX {
        return Err(bad(&format!("more than {} addresses may fetch it", limits::ATTACHMENT_READERS_MAX)));
    }
    let mut changes = Vec::new();
    if !more.is_empty() {
        row.to.extend(more);
        row.until = row.created.plus(limits::ATTACHMENT_KEEP_MS);
        changes.push(Change::PutBlob(row.clone()));
    }
    let mut reply = shown(&row);
    reply["already"] = true.into();
    Ok(Decision { changes, reply })
}

/// The bytes did not come: the room and the day's allowance are given back.
pub fn release(view: &dyn View, blob: &str, upload: &str) -> Decided<()> {
    let Some(row) = coming(view, blob, upload) else { return Ok(Decision::nothing(())) };
    let changes = vec![counted(&row, row.created.day(), -signed(row.bytes)), Change::DropBlob { blob: row.blob }];
    Ok(Decision { changes, reply: () })
}

/// `GET /blob/:blob`: what may be handed to `caller`.
pub fn fetch(
    house: &House,
    view: &dyn View,
    now: Timestamp,
    caller: &Address,
    blob: &str,
) -> Result<BlobRecord, Refusal> {
    offered(house)?;
    let row = view.blob(&name(blob)?).filter(|row| row.is_there(now)).ok_or_else(no_such_blob)?;
    let member = |group: &Address| {
        house.is_mine(group)
            && view
                .agent(group.local())
                .and_then(|record| groups::Group::of(&record.card))
                .is_some_and(|group| group.members.contains(caller))
    };
    if row.from == *caller || row.to.contains(caller) || row.to.iter().any(member) {
        return Ok(row);
    }
    Err(Refusal::new(Rule::NotYours, format!("{caller} is neither the sender nor a recipient of this attachment")))
}

/// `caller` has had all of it. Once every recipient has, it stays a shorter time.
pub fn fetched(view: &dyn View, now: Timestamp, caller: &Address, blob: &str) -> Decided<()> {
    let row = view.blob(blob).filter(|row| row.is_there(now));
    let Some(mut row) = row.filter(|row| row.to.contains(caller) && !row.fetched.contains(caller)) else {
        return Ok(Decision::nothing(()));
    };
    row.fetched.push(caller.clone());
    if row.to.iter().all(|to| *to == row.from || row.fetched.contains(to)) {
        row.until = row.until.min(now.plus(limits::ATTACHMENT_KEEP_FETCHED_MS));
    }
    Ok(Decision { changes: vec![Change::PutBlob(row)], reply: () })
}

/// `DELETE /blob/:blob`: the copy is the sender's.
pub fn remove(house: &House, view: &dyn View, now: Timestamp, caller: &Address, blob: &str) -> Decided<String> {
    offered(house)?;
    let row = view.blob(&name(blob)?).filter(|row| row.is_there(now)).ok_or_else(no_such_blob)?;
    if row.from != *caller {
        return Err(Refusal::new(Rule::NotYours, "only its sender removes an attachment"));
    }
    let (blob, row) = (row.blob.clone(), BlobRecord { state: BlobState::Going, until: now, ..row });
    Ok(Decision { changes: vec![Change::PutBlob(row)], reply: blob })
}

/// Marks what has outlived its time; answers whether its object is to be removed now.
pub fn lapse(view: &dyn View, now: Timestamp, blob: &str) -> Decided<bool> {
    let Some(row) = view.blob(blob).filter(|row| row.until <= now) else { return Ok(Decision::nothing(false)) };
    Ok(going(row, now))
}

/// At a start nothing is on its way: what was reserved did not come.
pub fn abandon(view: &dyn View, now: Timestamp, blob: &str) -> Decided<bool> {
    let Some(row) = view.blob(blob).filter(|row| row.state == BlobState::Coming) else {
        return Ok(Decision::nothing(false));
    };
    Ok(going(row, now))
}

/// The object is removed.
pub fn gone(view: &dyn View, blob: &str) -> Decided<()> {
    let going = view.blob(blob).filter(|row| row.state == BlobState::Going);
    let changes = going.map(|row| Change::DropBlob { blob: row.blob }).into_iter().collect();
    Ok(Decision { changes, reply: () })
}

/// What the domain's card says of attachments.
pub fn published(house: &House) -> Option<Value> {
    house.settings.attachments?;
    Some(json!({
        "max_bytes": limits::ATTACHMENT_BYTES_MAX, "max_per_envelope": limits::ATTACHMENTS_MAX,
        "max_bytes_per_envelope": limits::ATTACHMENTS_BYTES_MAX, "max_bytes_per_day": limits::ATTACHMENT_DAY_BYTES_MAX,
    }))
}

fn going(row: BlobRecord, now: Timestamp) -> Decision<bool> {
    let mut changes = Vec::new();
    if row.state == BlobState::Coming {
        changes.push(counted(&row, row.created.day(), -signed(row.bytes)));
    }
    if row.state != BlobState::Going {
        changes.push(Change::PutBlob(BlobRecord { state: BlobState::Going, until: now, ..row }));
    }
    Decision { changes, reply: true }
}

fn offered(house: &House) -> Result<u64, Refusal> {
    house.settings.attachments.ok_or_else(|| Refusal::new(Rule::NoAttachments, "this house holds no attachments"))
}

fn coming(view: &dyn View, blob: &str, upload: &str) -> Option<BlobRecord> {
    view.blob(blob).filter(|row| row.state == BlobState::Coming && row.upload == upload)
}

fn counted(row: &BlobRecord, day: i64, bytes: i64) -> Change {
    Change::CountBlobs { sender: row.from.clone(), day, bytes }
}

fn shown(row: &BlobRecord) -> Value {
    json!({"ok": true, "blob": row.blob, "bytes": row.bytes, "sha256": row.sha256, "to": row.to, "until": row.until})
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn no_such_blob() -> Refusal {
    Refusal::new(Rule::NoSuchBlob, "no such attachment")
}

fn bad(why: &str) -> Refusal {
    Refusal::new(Rule::BadParameter, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::fixture::{START, World, address};

    const BLOB: &str = "6f1c2b34-0000-4000-8000-000000000000";
    const DAY: i64 = 86_400_000;

    fn world() -> World {
        let mut world = World::new();
        for name in ["ana", "bob", "eva"] {
            world.agent(name, json!({}));
        }
        world
    }

    fn blob(n: u64) -> String {
        uuid::Uuid::from_u128(u128::from(n) + 1).to_string()
    }

    fn handed(blob: &str, to: &[&str], bytes: Option<u64>) -> Handed {
        Handed::parse(blob, to.iter().copied(), bytes).expect("handed")
    }

    /// Reserves at an instant; the change is kept.
    fn reserve_at(world: &mut World, now: Timestamp, who: &str, handed: &Handed) -> Result<Taking, Refusal> {
        let card = world.view.agent(who).expect("agent").card;
        let decided = reserve(&world.house, &world.view, now, &card, handed, "upload-1")?;
        Ok(world.view.commit(decided).expect("applies"))
    }

    fn kept(world: &mut World, to: &[&str]) -> BlobRecord {
        assert_eq!(reserve_at(world, START, "ana", &handed(BLOB, to, Some(40))), Ok(Taking::New));
        let decided = keep(&world.view, START, BLOB, "upload-1", 40, "ab").expect("kept");
        world.view.commit(decided).expect("applies");
        world.view.blob(BLOB).expect("row")
    }

    fn fetch_as(world: &World, now: Timestamp, who: &str) -> Result<u64, u16> {
        let row = fetch(&world.house, &world.view, now, &address(who), BLOB);
        row.map(|row| row.bytes).map_err(|refusal| refusal.code())
    }

    #[test]
    fn names_are_uuids_and_recipients_are_bounded() {
        assert_eq!(name(&BLOB.to_uppercase()), Ok(BLOB.to_owned()));
        for bad in
            ["", "x", "../../etc/passwd", "6f1c2b34000040008000000000000000", "{6f1c2b34-0000-4000-8000-00000000000"]
        {
            assert_eq!(name(bad).map_err(|r| r.code()), Err(400), "{bad}");
        }
        let many = |n: usize| (0..n).map(|i| format!("a{i}@mar.example")).collect::<Vec<_>>().join(",");
        let parse = |to: &str, bytes| Handed::parse(BLOB, std::iter::once(to), bytes).map_err(|r| r.code());
        assert_eq!(parse(&many(limits::ATTACHMENT_READERS_MAX), None).map(|h| h.to.len()), Ok(100));
        assert_eq!(parse(&many(limits::ATTACHMENT_READERS_MAX + 1), None), Err(400));
        assert_eq!(parse("ana@mar.example, ana@mar.example", None).map(|h| h.to.len()), Ok(1));
        for bad in ["", " , ", "nobody", "ANA@mar.example"] {
            assert_eq!(parse(bad, None), Err(400), "{bad}");
        }
        assert!(parse("ana@mar.example", Some(limits::ATTACHMENT_BYTES_MAX)).is_ok());
        assert_eq!(parse("ana@mar.example", Some(limits::ATTACHMENT_BYTES_MAX + 1)), Err(413));
        assert_eq!(parse("ana@mar.example", Some(0)), Err(400));
    }

    #[test]
    fn the_days_allowance_ends_at_its_last_byte_and_comes_back_with_the_day() {
        let mut world = world();
        let whole = limits::ATTACHMENT_BYTES_MAX;
        for n in 0..10 {
            assert_eq!(
                reserve_at(&mut world, START, "ana", &handed(&blob(n), &["bob@mar.example"], Some(whole))),
                Ok(Taking::New)
            );
        }
        assert_eq!(world.view.blob_day(&address("ana@mar.example"), START.day()), limits::ATTACHMENT_DAY_BYTES_MAX);
        let one = handed(&blob(10), &["bob@mar.example"], Some(1));
        let refusal = reserve_at(&mut world, START, "ana", &one).expect_err("spent");
        assert_eq!((refusal.code(), refusal.retry_after), (429, Some(START.seconds_to_next_day())));
        assert!(reserve_at(&mut world, START, "bob", &handed(&blob(11), &["ana@mar.example"], None)).is_ok());
        // What did not come gives its allowance back.
        let decided = release(&world.view, &blob(0), "upload-1").expect("released");
        world.view.commit(decided).expect("applies");
        assert!(reserve_at(&mut world, START, "ana", &one).is_ok());
        let tomorrow = handed(&blob(12), &["bob@mar.example"], Some(whole));
        assert!(reserve_at(&mut world, START.plus(DAY), "ana", &tomorrow).is_ok());
    }

    #[test]
    fn the_house_takes_what_it_has_room_for_and_no_byte_more() {
        let mut world = world();
        world.house.settings.attachments = Some(100);
        assert!(reserve_at(&mut world, START, "ana", &handed(&blob(1), &["bob@mar.example"], Some(60))).is_ok());
        assert!(reserve_at(&mut world, START, "bob", &handed(&blob(2), &["ana@mar.example"], Some(40))).is_ok());
        let more = handed(&blob(3), &["ana@mar.example"], Some(1));
        assert_eq!(reserve_at(&mut world, START, "bob", &more).map_err(|r| r.code()), Err(503));
        // The bytes that came are fewer than were reserved.
        let decided = keep(&world.view, START, &blob(1), "upload-1", 59, "ab").expect("kept");
        world.view.commit(decided).expect("applies");
        assert!(reserve_at(&mut world, START, "bob", &more).is_ok());
        world.house.settings.attachments = None;
        assert_eq!(reserve_at(&mut world, START, "bob", &more).map_err(|r| r.code()), Err(503));
    }

    #[test]
    fn a_name_is_its_senders_and_its_bytes_never_change() {
        let mut world = world();
        kept(&mut world, &["bob@mar.example"]);
        let again = handed(BLOB, &["eva@mar.example"], Some(40));
        assert_eq!(reserve_at(&mut world, START, "bob", &again).map_err(|r| r.code()), Err(409));
        assert_eq!(reserve_at(&mut world, START, "ana", &again), Ok(Taking::Again));
        let ana = address("ana@mar.example");
        assert_eq!(repeat(&world.view, START, &ana, &again, "cd").map(|_| ()).map_err(|r| r.code()), Err(409));
        assert_eq!(fetch_as(&world, START, "eva@mar.example"), Err(403));
        let decided = repeat(&world.view, START, &ana, &again, "ab").expect("the same bytes");
        world.view.commit(decided).expect("applies");
        assert_eq!(fetch_as(&world, START, "eva@mar.example"), Ok(40));
        assert_eq!(fetch_as(&world, START, "bob@mar.example"), Ok(40));
        assert_eq!(world.view.blob_day(&ana, START.day()), 40, "a repetition costs nothing");
    }

    #[test]
    fn kept_thirty_days_or_seven_after_every_recipient_has_it() {
        let mut world = world();
        kept(&mut world, &["bob@mar.example", "leo@beta.example"]);
        let end = START.plus(limits::ATTACHMENT_KEEP_MS);
        assert_eq!(fetch_as(&world, end.minus(1), "leo@beta.example"), Ok(40));
        assert_eq!(fetch_as(&world, end, "leo@beta.example"), Err(404), "before the clock has run");
        let had = |world: &mut World, who: &str| {
            let decided = fetched(&world.view, START, &address(who), BLOB).expect("fetched");
            world.view.commit(decided).expect("applies");
            world.view.blob(BLOB).expect("row").until
        };
        assert_eq!(had(&mut world, "ana@mar.example"), end, "the sender is no recipient");
        assert_eq!(had(&mut world, "bob@mar.example"), end);
        assert_eq!(had(&mut world, "bob@mar.example"), end);
        assert_eq!(had(&mut world, "leo@beta.example"), START.plus(limits::ATTACHMENT_KEEP_FETCHED_MS));
        assert!(!lapse(&world.view, START, BLOB).expect("lapse").reply);
        let late = START.plus(limits::ATTACHMENT_KEEP_FETCHED_MS);
        let decided = lapse(&world.view, late, BLOB).expect("lapse");
        assert!(world.view.commit(decided).expect("applies"));
        assert_eq!(world.view.blob_bytes(), 40, "until the object is gone");
        let decided = gone(&world.view, BLOB).expect("gone");
        world.view.commit(decided).expect("applies");
        assert_eq!((world.view.blob_bytes(), world.view.blob(BLOB)), (0, None));
    }

    #[test]
    fn the_sender_and_recipients_fetch_and_the_sender_alone_removes() {
        let mut world = world();
        kept(&mut world, &["bob@mar.example"]);
        assert_eq!(fetch_as(&world, START, "ana@mar.example"), Ok(40));
        assert_eq!(fetch_as(&world, START, "bob@mar.example"), Ok(40));
        assert_eq!(fetch_as(&world, START, "eva@mar.example"), Err(403));
        let remove_as = |world: &World, who: &str| {
            remove(&world.house, &world.view, START, &address(who), BLOB).map_err(|refusal| refusal.code())
        };
        assert_eq!(remove_as(&world, "bob@mar.example").map(|d| d.reply), Err(403));
        let decided = remove_as(&world, "ana@mar.example").expect("removed");
        world.view.commit(decided).expect("applies");
        assert_eq!(fetch_as(&world, START, "ana@mar.example"), Err(404));
        assert_eq!(remove_as(&world, "ana@mar.example").map(|d| d.reply), Err(404));
    }

    #[test]
    fn what_did_not_come_before_a_crash_is_given_up_at_the_next_start() {
        let mut world = world();
        let ana = address("ana@mar.example");
        assert!(reserve_at(&mut world, START, "ana", &handed(BLOB, &["bob@mar.example"], None)).is_ok());
        assert_eq!(fetch_as(&world, START, "ana@mar.example"), Err(404), "reserved is not there");
        assert_eq!(world.view.blob_bytes(), limits::ATTACHMENT_BYTES_MAX);
        let again = handed(BLOB, &["bob@mar.example"], None);
        assert_eq!(reserve_at(&mut world, START, "ana", &again).map_err(|r| r.code()), Err(421));
        let decided = abandon(&world.view, START, BLOB).expect("abandoned");
        assert!(world.view.commit(decided).expect("applies"));
        assert_eq!(world.view.blob_day(&ana, START.day()), 0);
        assert!(keep(&world.view, START, BLOB, "upload-1", 40, "ab").is_err(), "too late");
        let decided = gone(&world.view, BLOB).expect("gone");
        world.view.commit(decided).expect("applies");
        assert!(reserve_at(&mut world, START, "ana", &again).is_ok());
    }
}
