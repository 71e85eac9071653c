//! Calls: the house tells an agent's own server of each letter, signed with the domain's key.
//!
//! A call is a row made in the transaction that keeps its letter, so a crash repeats it and never loses it. It is tried
//! again for an hour and then given up: the letter lies in the mailbox whatever becomes of the call, and a letter that has
//! been handled is not called for any more. A place that an agent names is judged by the same rule as the places that
//! tests name, when it is named and again when it is dialled.

use crate::ids::Ids;
use crate::limits;
use crate::probe::url::{AddressRule, Target, UrlPolicy};
use crate::record::{AgentRecord, Change, Decision, MailRecord, Push};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use serde_json::{Value, json};

/// What came of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered with a success.
    Taken,
    Failed,
    /// There is nothing left to call for.
    Moot,
}

/// A `webhook` as it may be registered.
pub fn url(text: &str, addresses: &AddressRule) -> Result<String, Refusal> {
    let policy = UrlPolicy { addresses: addresses.clone() };
    match Target::parse(text, &policy) {
        Ok(target) => Ok(target.url().to_string()),
        Err(why) => Err(Refusal::new(Rule::BadField, format!("webhook: {why}"))),
    }
}

/// The row that goes with a letter to an agent that wants to be called.
pub fn due(record: &AgentRecord, mail: &MailRecord, now: Timestamp) -> Option<Change> {
    record.webhook.as_ref()?;
    let wake = mail.visible_from.map_or(now, |from| from.max(now));
    Some(Change::InsertPush(Push {
        local: mail.local.clone(),
        from: mail.from.clone(),
        id: mail.id.clone(),
        attempts: 0,
        first: wake,
        wake,
    }))
}

/// Where to call and with what; nothing when nobody is to be called or the letter has been handled.
pub fn call(record: Option<&AgentRecord>, mail: Option<&MailRecord>, now: Timestamp) -> Option<(String, Value)> {
    let record = record.filter(|record| !record.card.ended(now))?;
    let mail = mail.filter(|mail| mail.acked.is_none() && mail.visible_from.is_none_or(|from| from <= now))?;
    Some((record.webhook.clone()?, json!({"envelope": mail.envelope})))
}

/// Writes down what came of a call: done, given up, or when to try again.
pub fn settle(now: Timestamp, ids: &mut Ids, push: &Push, outcome: Outcome) -> Decision<bool> {
    let end = Change::EndPush { local: push.local.clone(), from: push.from.clone(), id: push.id.clone() };
    let too_old = now.since(push.first) >= limits::PUSH_GIVE_UP_MS;
    if outcome != Outcome::Failed || too_old {
        return Decision { changes: vec![end], reply: true };
    }
    let doublings = push.attempts.min(20);
    let whole = limits::PUSH_RETRY_BASE_MS.saturating_mul(1 << doublings).min(limits::PUSH_RETRY_MAX_MS);
    let wait = whole.saturating_mul(800 + i64::from(ids.per_mille()) * 400 / 1000) / 1000;
    let again = Push { attempts: push.attempts.saturating_add(1), wake: now.plus(wait), ..push.clone() };
    Decision { changes: vec![Change::PutPush(again)], reply: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::fixture::{START, World, envelope};
    use crate::record::View;

    /// Defect 17: the URL of a webhook was never judged.
    #[test]
    fn a_place_inside_is_refused_when_it_is_named() {
        let rule = AddressRule::default();
        assert_eq!(url("https://hooks.example/x?key=1#f", &rule), Ok("https://hooks.example/x?key=1".to_owned()));
        for bad in [
            "http://hooks.example/x",
            "https://127.0.0.1/x",
            "https://[::1]/x",
            "https://169.254.169.254/latest",
            "https://10.0.0.7/",
            "https://0x7f000001/",
            "https://localhost/",
            "https://house.internal/",
            "https://user@hooks.example/",
            "https://hooks.example:22/",
            "file:///etc/passwd",
            "",
        ] {
            assert_eq!(url(bad, &rule).map_err(|refusal| refusal.code()), Err(400), "{bad}");
        }
        let long = format!("https://hooks.example/{}", "x".repeat(limits::URL_BYTES_MAX - 22));
        assert!(url(&long, &rule).is_ok() && url(&format!("{long}x"), &rule).is_err());
    }

    fn called() -> World {
        let mut world = World::new();
        world.agent("ana", json!({}));
        let mut record = world.view.agent("ana").expect("ana");
        record.webhook = Some("https://hooks.example/x".into());
        world.view.apply(vec![Change::PutAgent(record)]).expect("applied");
        world
    }

    #[test]
    fn every_letter_to_an_agent_with_a_webhook_has_its_row_whichever_door_it_came_through() {
        let mut world = called();
        world.agent("bob", json!({}));
        let to = ["ana@mar.example", "bob@mar.example"];
        world.arrive(envelope("envelope-1", "leo@b.example", &to, json!({})));
        let later = START.plus(5_000);
        world.arrive(envelope("envelope-2", "leo@b.example", &to, json!({"deliver_after": later})));
        // What the house itself writes: a bounce.
        let sent = world.send(envelope("envelope-3", "ana@mar.example", &["eva@c.example"], json!({})));
        let job = sent.body["jobs"][0]["job"].as_str().expect("job").to_owned();
        world.settle(&job, &crate::mail::queue::Outcome::Failed { code: 404, reason: "gone".into() });
        let rows: Vec<(String, Timestamp)> = world.view.pushes().map(|push| (push.from.clone(), push.wake)).collect();
        let (leo, postmaster) = ("leo@b.example".to_owned(), "postmaster@mar.example".to_owned());
        assert_eq!(rows, vec![(leo.clone(), START), (leo, later), (postmaster, START)]);
    }

    #[test]
    fn a_call_is_repeated_for_an_hour_and_a_handled_letter_is_not_called_for() {
        let mut world = called();
        world.arrive(envelope("envelope-1", "leo@b.example", &["ana@mar.example"], json!({})));
        let mut push = world.view.pushes().next().expect("row").clone();
        let (record, mail) = (world.view.agent("ana").expect("ana"), world.mailbox("ana")[0].clone());
        let (url, body) = call(Some(&record), Some(&mail), START).expect("a call");
        assert_eq!((url.as_str(), body["envelope"]["id"].as_str()), ("https://hooks.example/x", Some("envelope-1")));
        assert!(call(None, Some(&mail), START).is_none() && call(Some(&record), None, START).is_none());
        let acked = MailRecord { acked: Some(START), ..mail.clone() };
        assert!(call(Some(&record), Some(&acked), START).is_none());
        let silent = AgentRecord { webhook: None, ..record };
        assert!(call(Some(&silent), Some(&mail), START).is_none());

        let mut ids = world.ids();
        let (mut now, mut tries) = (START, 1);
        loop {
            let decision = settle(now, &mut ids, &push, Outcome::Failed);
            let done = decision.reply;
            world.view.apply(decision.changes).expect("applied");
            let Some(row) = world.view.pushes().next().cloned() else {
                assert!(done && now.since(START) >= limits::PUSH_GIVE_UP_MS);
                break;
            };
            assert!(row.wake.since(now) <= limits::PUSH_RETRY_MAX_MS * 12 / 10 && row.wake > now);
            (push, now, tries) = (row.clone(), row.wake, tries + 1);
        }
        assert!((15..60).contains(&tries), "{tries}");
        for outcome in [Outcome::Taken, Outcome::Moot] {
            assert!(matches!(settle(START, &mut ids, &push, outcome).changes[..], [Change::EndPush { .. }]));
        }
    }
}
