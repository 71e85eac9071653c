//! Conversations: with whom a letter is, under which project, and whether it was read.
//!
//! The store files every letter by [`received`] and [`sent`] in the transaction that keeps it, so no door can keep a
//! letter and leave it out of the history. A conversation is with one contact: the group, when the letter went to a group
//! of this house; otherwise whoever wrote it, or the first recipient that is not the sender. Letters of the house's own
//! names are not filed, and what an agent writes to itself appears once, as received.
//!
//! Counts are kept as letters come and are acknowledged, over everything received and sent; the protocol's text asks for
//! the newest thousand received at least, and a count that is kept costs nothing more.

use super::letters::is_own_voice;
use super::profile;
use crate::limits;
use crate::record::{Job, JobStatus, MailRecord};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::{Address, Domain, SystemName};
use crate::wire::envelope::Kind;
use serde_json::{Map, Value, json};
use unicode_normalization::UnicodeNormalization;

/// Where a letter is filed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub contact: String,
    /// As [`project_name`] writes it.
    pub project: Option<String>,
}

/// What a house says on behalf of a reader of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadMark {
    /// The id of the letter that was read.
    pub of: String,
    pub by: Address,
    pub at: Timestamp,
}

/// One contact in the list of conversations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    pub with: String,
    pub count: u64,
    pub pending: u64,
    /// Of the pending, those under any project.
    pub filed: u64,
    pub last_at: Timestamp,
    pub last_in: bool,
    pub last_id: String,
    /// Names by last use, with what is pending under each; at most [`limits::PROJECTS_LISTED_MAX`].
    pub projects: Vec<(String, u64)>,
}

/// One letter of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    pub id: String,
    pub at: Timestamp,
    /// Where the next older page begins.
    pub seq: i64,
    pub envelope: Value,
    pub way: Way,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    In { acked: Option<Timestamp> },
    Out { status: JobStatus, read: Option<(String, Timestamp)> },
}

/// From where on a page of older conversations or letters begins: an instant and what tells apart what has the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before<T> {
    pub at: Timestamp,
    pub than: T,
}

pub const PROJECT_URN: &str = "urn:nyx5:ext:proyecto";
pub const SUMMARY_URN: &str = "urn:nyx5:ext:resumen";

/// Where a letter in a mailbox of this house is filed; `None` where nobody asks for the history.
pub fn received(house: Option<&Domain>, mail: &MailRecord) -> Option<Place> {
    if is_own_voice(&mail.local) || mail.local.starts_with(GROUP_PREFIX) {
        return None;
    }
    let noted = |name: &str| mail.meta.get(name).and_then(Value::as_str).map(str::to_owned);
    let contact = noted("group")
        .or_else(|| house.and_then(|house| group_among(&mail.envelope, house)))
        .or_else(|| noted("email_from"))
        .unwrap_or_else(|| mail.from.clone());
    Some(Place { contact, project: project_of(&mail.envelope) })
}

/// Where what an agent of this house sent is filed.
pub fn sent(job: &Job) -> Option<Place> {
    let from = job.envelope.get("from").and_then(Value::as_str).and_then(|from| Address::parse(from).ok())?;
    if is_own_voice(&job.from_local) {
        return None;
    }
    let contact = group_among(&job.envelope, &from.domain())
        .or_else(|| recipients(&job.envelope).find(|to| *to != from.as_str()).map(str::to_owned))?;
    Some(Place { contact, project: project_of(&job.envelope) })
}

/// The job that carries a filed letter to its contact.
pub fn job_towards(job: &Job, place: &Place) -> Option<String> {
    let from = job.envelope.get("from").and_then(Value::as_str)?;
    let contact = Address::parse(&place.contact).ok()?;
    Some(super::job_id(from, &job.envelope_id, &contact.domain()))
}

/// A project's name as every door writes and compares it: NFKC, lower case, without what cannot be seen, at most 40
/// UTF-16 units. Nothing where no name is left, or where the name is a trap for readers that are written in JavaScript.
pub fn project_name(text: &str) -> Option<String> {
    let folded: String = text.chars().take(limits::PROJECT_CHARS_READ_MAX).nfkc().collect();
    // What is removed may have stood between characters that compose.
    let bare = profile::clean(&folded.to_lowercase(), usize::MAX);
    let folded: String = bare.nfkc().collect();
    let mut name = String::new();
    let mut units = 0;
    for c in profile::clean(&folded, limits::PROJECT_UNITS_MAX).chars() {
        units += c.len_utf16();
        if units > limits::PROJECT_UNITS_MAX {
            break;
        }
        name.push(c);
    }
    name.truncate(name.trim_end().len());
    (!name.is_empty() && !TRAPS.contains(&name.as_str())).then_some(name)
}

/// The project that an envelope declares, signed and in clear.
pub fn project_of(envelope: &Value) -> Option<String> {
    extension(envelope, PROJECT_URN)?.get("project").and_then(Value::as_str).and_then(project_name)
}

/// The part of a project's work that an envelope is for: free text.
pub fn role_of(envelope: &Value) -> Option<String> {
    let role = extension(envelope, PROJECT_URN)?.get("role").and_then(Value::as_str)?;
    Some(profile::clean(role, limits::ROLE_CHARS_MAX)).filter(|role| !role.is_empty())
}

/// The one line that a sender lets travel in clear, cleaned; nothing where nothing is left.
pub fn summary(text: &str) -> Option<String> {
    let text: String = text.chars().take(limits::SUMMARY_CHARS_READ_MAX).collect();
    Some(profile::clean(&text, limits::SUMMARY_CHARS_MAX)).filter(|line| !line.is_empty())
}

/// The sender's own line about an envelope, unchecked.
pub fn summary_of(envelope: &Value) -> Option<String> {
    extension(envelope, SUMMARY_URN)?.get("text").and_then(Value::as_str).and_then(summary)
}

/// The `project` of a query: absent or empty is no filter, and what is no name is refused.
pub fn project_filter(given: Option<&str>) -> Result<Option<String>, Refusal> {
    match given.filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => project_name(text).map(Some).ok_or_else(|| {
            Refusal::new(Rule::BadParameter, "project is not a name: nothing of it can be seen, or it is reserved")
        }),
    }
}

/// What a letter says about having been read: only the house of the reader says it, in a receipt of its postmaster.
pub fn read_mark(mail: &MailRecord) -> Option<ReadMark> {
    let doc = &mail.envelope;
    let receipt = doc.get("type").and_then(Value::as_str) == Some(Kind::Receipt.as_str());
    let verified = mail.meta.get("from_verified") == Some(&Value::Bool(true));
    let body = doc.get("content")?.get("body")?;
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let by = Address::parse(text("read_by")?).ok()?;
    let said_by_its_house = mail.from == by.domain().system(SystemName::Postmaster).as_str();
    (receipt && verified && said_by_its_house).then_some(ReadMark {
        of: text("read_of")?.to_owned(),
        by,
        at: text("read_at").and_then(Timestamp::parse).unwrap_or(mail.received),
    })
}

/// Whether the one who read was written to: by name, or through a group of its house.
pub fn was_written_to(envelope: &Value, reader: &Address) -> bool {
    let domain = reader.domain();
    recipients(envelope).any(|to| to == reader.as_str()) || group_among(envelope, &domain).is_some()
}

/// `GET /conversations/:local`: newest first. Under a project, everything is of that project alone.
pub fn listing(list: &[Conversation], project: Option<&str>, full: bool) -> Value {
    let entries: Vec<Value> = list.iter().map(|conversation| entry(conversation, project)).collect();
    let next = list.last().filter(|_| full).map(|last| cursor(last.last_at, &last.with));
    paged(json!({"conversations": entries}), next)
}

/// `GET /conversations/:local?with=`: oldest first.
pub fn history(with: &str, newest_first: Vec<Said>, full: bool) -> Value {
    let next = newest_first.last().filter(|_| full).map(|last| cursor(last.at, last.seq));
    let messages: Vec<Value> = newest_first.into_iter().rev().map(message).collect();
    paged(json!({"with": with, "messages": messages}), next)
}

/// The `before` of a query, as an earlier answer gave it in `next`.
pub fn before<T: std::str::FromStr>(given: Option<&str>) -> Result<Option<Before<T>>, Refusal> {
    let Some(text) = given else { return Ok(None) };
    let read = text
        .split_once('.')
        .and_then(|(at, than)| Some(Before { at: Timestamp::from_millis(at.parse().ok()?), than: than.parse().ok()? }));
    let wrong = || Refusal::new(Rule::BadParameter, "before must be the `next` of an earlier answer, as it stands");
    read.map(Some).ok_or_else(wrong)
}

fn entry(conversation: &Conversation, project: Option<&str>) -> Value {
    let mut doc = json!({
        "with": conversation.with, "count": conversation.count, "pending": conversation.pending,
        "last_at": conversation.last_at, "last_dir": if conversation.last_in { "in" } else { "out" },
        "last_id": conversation.last_id,
    });
    let one = project.map(|name| vec![(name.to_owned(), conversation.pending)]);
    let listed = one.as_ref().unwrap_or(&conversation.projects);
    doc["projects"] = listed.iter().map(|(name, _)| name.as_str()).collect();
    let waiting: Map<String, Value> =
        listed.iter().filter(|(_, pending)| *pending > 0).map(|(name, n)| (name.clone(), json!(n))).collect();
    let shown: u64 = listed.iter().map(|(_, pending)| *pending).sum();
    if !waiting.is_empty() {
        doc["pending_by_project"] = Value::Object(waiting);
    }
    let other = conversation.filed.saturating_sub(shown);
    if other > 0 && project.is_none() {
        doc["pending_other"] = other.into();
    }
    doc
}

fn message(said: Said) -> Value {
    let mut doc = json!({"id": said.id, "at": said.at});
    match said.way {
        Way::In { acked } => {
            doc["dir"] = "in".into();
            doc["acked"] = json!(acked);
        }
        Way::Out { status, read } => {
            doc["dir"] = "out".into();
            doc["status"] = status.as_str().into();
            if let Some((by, at)) = read {
                doc["read"] = json!({"by": by, "at": at});
            }
        }
    }
    doc["envelope"] = said.envelope;
    doc
}

fn paged(mut doc: Value, next: Option<String>) -> Value {
    if let Some(next) = next {
        doc["next"] = next.into();
    }
    doc
}

fn cursor(at: Timestamp, than: impl std::fmt::Display) -> String {
    format!("{}.{than}", at.millis())
}

/// The first group of this house that the envelope goes to.
fn group_among(envelope: &Value, house: &Domain) -> Option<String> {
    let group = |to: &&str| {
        to.starts_with(GROUP_PREFIX) && to.split_once('@').is_some_and(|(_, domain)| domain == house.as_str())
    };
    recipients(envelope).find(group).map(str::to_owned)
}

fn recipients(envelope: &Value) -> impl Iterator<Item = &str> {
    envelope.get("to").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn extension<'a>(envelope: &'a Value, urn: &str) -> Option<&'a Value> {
    envelope.get("extensions")?.get(urn)
}

/// What starts the local name of a group.
pub const GROUP_PREFIX: &str = "g.";

/// Lower-case names that every object of JavaScript has.
const TRAPS: &[&str] = &["__proto__", "constructor"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::fixture::{START, domain};

    fn mail(from: &str, meta: Value, envelope: Value) -> MailRecord {
        MailRecord {
            local: "ana".into(),
            id: "envelope-1".into(),
            from: from.into(),
            received: START,
            acked: None,
            visible_from: None,
            meta: meta.as_object().cloned().unwrap_or_default(),
            envelope: envelope.into(),
        }
    }

    #[test]
    fn one_normaliser_writes_every_project() {
        for (text, name) in [
            ("Nyx", Some("nyx")),
            ("  Proyecto\u{200b}\tUno \u{202e}", Some("proyecto uno")),
            ("ＦＵＬＬ　ｗｉｄｔｈ", Some("full width")),
            ("ﬁn", Some("fin")),
            ("ÑANDÚ", Some("ñandú")),
            ("N\u{303}andu", Some("ñandu")),
            ("", None),
            ("\u{200b}\u{feff} \u{2066}", None),
            ("__proto__", None),
            ("__PROTO__", None),
            ("Con\u{ad}structor", None),
            ("constructor 2", Some("constructor 2")),
        ] {
            assert_eq!(project_name(text).as_deref(), name, "{text:?}");
        }
    }

    #[test]
    fn a_project_has_forty_units_and_naming_it_again_changes_nothing() {
        let at = |n: usize| project_name(&"a".repeat(n)).map(|name| name.len());
        assert_eq!((at(limits::PROJECT_UNITS_MAX), at(limits::PROJECT_UNITS_MAX + 1)), (Some(40), Some(40)));
        assert_eq!(at(200_000), Some(40));
        assert_eq!(project_name(&"😀".repeat(30)).map(|name| name.chars().count()), Some(20));
        assert_eq!(project_name(&format!("{} b", "a".repeat(39))).as_deref(), Some("a".repeat(39).as_str()));
        let odd =
            ["İİİİİİİİİİİİİİİİİİİİİİİİİİİİİİİİİİİİİİİİİİİ", "ϴΣ\u{345}ῼ", "ẞǅ\u{1d15e}", "\u{fdfa}\u{fdfa}\u{fdfa}"];
        for text in odd {
            let once = project_name(text).expect("a name");
            assert_eq!(project_name(&once).as_ref(), Some(&once), "{text:?}");
            assert!(once.encode_utf16().count() <= limits::PROJECT_UNITS_MAX);
        }
    }

    /// Incident 17: invisible and bidirectional characters disguised projects; a 200,000-character one reached a tool.
    #[test]
    fn names_are_idempotent_whatever_is_written() {
        let config = proptest::test_runner::Config { failure_persistence: None, ..Default::default() };
        proptest::proptest!(config, |(text in "\\PC{0,60}|[\\u{0}-\\u{20}\\u{300}-\\u{36f}\\u{fb00}-\\u{fb06}\\u{1f88}-\\u{1faf}]{0,60}")| {
            if let Some(once) = project_name(&text) {
                proptest::prop_assert_eq!(project_name(&once), Some(once.clone()));
                proptest::prop_assert!(!once.chars().any(char::is_control));
            }
        });
    }

    #[test]
    fn a_filter_that_is_no_name_is_refused_and_an_empty_one_is_none() {
        assert_eq!(project_filter(None), Ok(None));
        assert_eq!(project_filter(Some("")), Ok(None));
        assert_eq!(project_filter(Some("NYX ")), Ok(Some("nyx".to_owned())));
        for bad in ["\u{200b}", " ", "__proto__", "constructor"] {
            assert_eq!(project_filter(Some(bad)).map_err(|r| r.code()), Err(400), "{bad:?}");
        }
    }

    #[test]
    fn a_summary_is_one_line_of_at_most_140_characters() {
        assert_eq!(summary("a\r\nSubject: b\u{202e}c").as_deref(), Some("a Subject: bc"));
        assert_eq!(summary(&"x".repeat(141)).map(|s| s.len()), Some(140));
        assert_eq!(summary(&"x".repeat(140)).map(|s| s.len()), Some(140));
        assert_eq!(summary("\u{200b}\n\t"), None);
        let envelope = |value: Value| json!({"extensions": {SUMMARY_URN: value}});
        assert_eq!(summary_of(&envelope(json!({"text": " hola "}))).as_deref(), Some("hola"));
        for bad in [json!({"text": 3}), json!("hola"), json!(null), json!({})] {
            assert_eq!(summary_of(&envelope(bad)), None);
        }
    }

    #[test]
    fn a_letter_is_filed_under_its_group_or_whoever_wrote_it() {
        let house = domain("mar.example");
        let to =
            |to: &[&str]| json!({"from": "leo@b.example", "to": to, "extensions": {PROJECT_URN: {"project": "N"}}});
        let place = |meta: Value, envelope: Value| received(Some(&house), &mail("leo@b.example", meta, envelope));
        let contact = |meta: Value, envelope: Value| place(meta, envelope).expect("filed").contact;
        assert_eq!(contact(json!({}), to(&["ana@mar.example"])), "leo@b.example");
        assert_eq!(contact(json!({}), to(&["ana@mar.example", "g.team@mar.example"])), "g.team@mar.example");
        assert_eq!(contact(json!({}), to(&["ana@mar.example", "g.team@b.example"])), "leo@b.example");
        assert_eq!(contact(json!({"group": "g.x@mar.example"}), to(&[])), "g.x@mar.example");
        assert_eq!(contact(json!({"email_from": "eva@mail.example"}), to(&[])), "eva@mail.example");
        assert_eq!(place(json!({}), to(&[])).and_then(|place| place.project).as_deref(), Some("n"));
        let own = MailRecord { local: "postmaster".into(), ..mail("leo@b.example", json!({}), to(&[])) };
        assert_eq!(received(Some(&house), &own), None);
    }

    /// Incident 9: any receipt with `read_of` marked anything as read.
    #[test]
    fn only_the_house_of_the_reader_says_that_a_letter_was_read() {
        let receipt = |from: &str, by: &str, kind: &str, meta: Value| {
            let body = json!({"read_of": "envelope-9", "read_by": by, "read_at": START.plus(5)});
            read_mark(&mail(from, meta, json!({"type": kind, "content": {"media": "x", "body": body}})))
        };
        let sure = || json!({"from_verified": true});
        let mark = receipt("postmaster@b.example", "leo@b.example", "receipt", sure()).expect("mark");
        assert_eq!((mark.of.as_str(), mark.at), ("envelope-9", START.plus(5)));
        assert_eq!(receipt("leo@b.example", "leo@b.example", "receipt", sure()), None);
        assert_eq!(receipt("postmaster@c.example", "leo@b.example", "receipt", sure()), None);
        assert_eq!(receipt("postmaster@b.example", "leo@b.example", "message", sure()), None);
        assert_eq!(receipt("postmaster@b.example", "leo@b.example", "receipt", json!({})), None);
        assert_eq!(receipt("postmaster@b.example", "LEO@b.example", "receipt", sure()), None);
        let to = |to: &[&str]| json!({"to": to});
        let leo = Address::parse("leo@b.example").expect("leo");
        assert!(was_written_to(&to(&["eva@c.example", "leo@b.example"]), &leo));
        assert!(was_written_to(&to(&["g.team@b.example"]), &leo));
        assert!(!was_written_to(&to(&["eva@b.example", "g.team@c.example"]), &leo));
    }

    #[test]
    fn pages_say_where_they_go_on() {
        let list = vec![Conversation {
            with: "a.b@c.example".into(),
            count: 3,
            pending: 2,
            filed: 2,
            last_at: START,
            last_in: true,
            last_id: "envelope-1".into(),
            projects: vec![("nyx".into(), 1), ("old".into(), 0)],
        }];
        let doc = listing(&list, None, true);
        let read: Before<String> = before(doc["next"].as_str()).expect("reads").expect("some");
        assert_eq!(read, Before { at: START, than: "a.b@c.example".to_owned() });
        assert!(listing(&list, None, false).get("next").is_none());
        let entry = &doc["conversations"][0];
        assert_eq!(entry["projects"], json!(["nyx", "old"]));
        assert_eq!(entry["pending_by_project"], json!({"nyx": 1}));
        assert_eq!(entry["pending_other"], 1);
        let one = &listing(&list, Some("nyx"), false)["conversations"][0];
        assert_eq!((one["projects"].clone(), one["pending_by_project"].clone()), (json!(["nyx"]), json!({"nyx": 2})));
        for bad in ["", "x", "1", "1.", ".1", "1.x"] {
            assert!(before::<i64>(Some(bad)).is_err(), "{bad}");
        }
    }
}
