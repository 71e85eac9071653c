//! The sending queue: when a job is tried, what an answer means for each recipient, when to try again, when to give up.
//!
//! A recipient is delivered only when the receiving house names it as accepted. Whatever is not said is tried again;
//! whatever is refused for good goes back to the sender, at once and once. An envelope of the house's own that cannot be
//! delivered is kept in the mailbox of postmaster@ instead: a bounce never bounces. A deferred letter of the ledger whose
//! contract has ended meanwhile ends here without a word to anybody.

use super::letters::{self, Fate};
use crate::ids::Ids;
use crate::libro;
use crate::limits;
use crate::probe::text;
use crate::record::{Change, Decided, Decision, House, Job, JobStatus, View};
use crate::refusal::retryable;
use crate::time::Timestamp;
use crate::wire::address::{Address, SystemName};
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
    /// The letter had nothing more to say or to do and was not sent: nobody is told of it.
    Moot,
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
    // The house waits for its own ledger's order alone: an agent that words a letter like one gets no other treatment.
    let ledgers = job.from_local == SystemName::Libro.as_str();
    let order_due = if ledgers { libro::order_due(house, view, &job.envelope) } else { None };
    if order_due.is_some() {
        sorted.retry.extend(sorted.failed.drain(..).map(|fate| (fate.to, fate.reason)));
    }
    let begun = started(&job).max(order_due.unwrap_or_default());
    let expired = expiry(&job).is_some_and(|expires| expires <= now);
    let too_old = now.since(begun) > house.settings.give_up_ms;
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
        let again = now.plus(delay(house, job.attempts, ids)).max(order_due.unwrap_or_default());
        job.next_attempt = expiry(&job).map_or(again, |expires| again.min(expires));
    }
    job.log.push(json!({"at": now, "attempt": job.attempts, "status": job.status, "detail": detail}));
    let surplus = job.log.len().saturating_sub(limits::JOB_LOG_MAX);
    job.log.drain(..surplus);
    let status = job.status;
    // A contract that ended while the letter was on its way makes the same refusal as one that ended before.
    if ledgers && libro::is_moot(view, &job.envelope) {
        sorted.failed.clear();
    }
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
            Outcome::Moot => (410, "the contract has ended, so this was not sent".to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::fixture::{START, World, address, envelope, key};
    use crate::record::Letter;
    use crate::wire::json::canonical_sha256;

    /// A job of ana's towards leo and eva of another house.
    fn queued(more: Value) -> (World, String, Value) {
        let mut world = World::new();
        world.agent("ana", json!({}));
        let doc = envelope("envelope-1", "ana@mar.example", &["leo@b.example", "eva@b.example"], more);
        let answer = world.send(doc.clone());
        assert_eq!(answer.code, 202);
        let job = answer.body["jobs"][0]["job"].as_str().expect("job").to_owned();
        (world, job, doc)
    }

    fn answered(accepted: &[&str], rejected: &[(&str, u16)]) -> Outcome {
        let rejected: Vec<Value> =
            rejected.iter().map(|(to, code)| json!({"to": to, "code": code, "reason": "because"})).collect();
        judge_answer(202, &json!({"accepted": accepted, "rejected": rejected}))
    }

    fn notices(world: &World, local: &str) -> Vec<Value> {
        world.mailbox(local).into_iter().map(|mail| mail.envelope.into_value()).collect()
    }

    /// Incident 25: a success without a usable body counted as a delivery.
    #[test]
    fn only_a_house_that_names_recipients_has_answered() {
        let failed = |status: u16, body: Value| match judge_answer(status, &body) {
            Outcome::Failed { code, .. } => code,
            other => panic!("{other:?}"),
        };
        for body in [json!({}), json!(null), json!("<html>"), json!({"accepted": "all"}), json!({"ok": true})] {
            assert_eq!(failed(200, body.clone()), 502, "{body}");
            assert_eq!(failed(202, body.clone()), 502, "{body}");
        }
        // The status counts before the body.
        assert_eq!(failed(403, json!({"accepted": ["leo@b.example"]})), 403);
        assert_eq!(failed(204, json!({"accepted": []})), 204);
        let hostile = json!({
            "accepted": [3, null, "LEO@b.example", "leo@b.example"],
            "rejected": [{"to": "eva@b.example", "code": 70_000}, {"code": 403}, "x", {"to": "a@b", "code": -1}],
        });
        let Outcome::Answered { accepted, rejected } = judge_answer(200, &hostile) else { panic!("answered") };
        assert_eq!(accepted, vec![address("leo@b.example")]);
        assert_eq!(rejected.iter().map(|r| r.code).collect::<Vec<_>>(), vec![502, 502]);
    }

    /// The order that comes before its time is the only one there will be: it waits for its time, and is given up only
    /// long after that.
    #[test]
    fn the_clocks_order_that_comes_too_early_waits_for_its_time() {
        let mut world = World::new();
        let contract = json!({
            "id": "contract-1", "kind": "escrow", "house": "mar.example", "seller": "leo@b.example",
            "buyer": "ana@mar.example", "amount": 200, "state": "delivered", "terms": {"deadline": START},
            "created": START, "updated": START,
            "history": [{"op": "accept", "at": START}, {"op": "deliver", "at": START}],
        });
        let contract = crate::record::Contract::from_json(contract).expect("contract");
        let body = json!({"op": "expire", "contract": "contract-1"});
        let content = json!({"enc": "none", "media": crate::wire::quote::OP_MEDIA, "body": body});
        let libro = "libro@mar.example";
        let after = START.plus(1_000);
        let doc = envelope("order-0001", libro, &[libro], json!({"deliver_after": after, "content": content}));
        let letter = Letter {
            id: "order-0001".into(),
            doc: doc.into(),
            to: vec![address(libro)],
            via: "libro",
            deliver_after: Some(after),
            order: true,
        };
        let filed = letters::letters(&world.house, &world.view, world.now, vec![letter]);
        world.view.apply(filed).expect("filed");
        world.view.apply(vec![Change::InsertContract(contract.clone())]).expect("contract");
        let job = world.view.jobs().next().expect("job").job.clone();
        let due = START.plus(world.house.settings.review_window_ms);
        let early = || answered(&[], &[(libro, 409)]);

        world.now = after;
        assert_eq!(world.settle(&job, &early()), JobStatus::Retrying);
        assert_eq!(world.view.job(&job).expect("job").next_attempt, due);
        // A review that was made longer moves it again, however old the order is.
        world.house.settings.review_window_ms *= 5;
        world.now = due;
        let later = START.plus(world.house.settings.review_window_ms);
        assert_eq!(world.settle(&job, &early()), JobStatus::Retrying);
        assert_eq!(world.view.job(&job).expect("job").next_attempt, later);
        // Whatever refuses it at its time is tried again like a passing fault, and not for ever.
        world.now = later;
        assert_eq!(world.settle(&job, &early()), JobStatus::Retrying);
        world.now = later.plus(world.house.settings.give_up_ms + 1);
        assert_eq!(world.settle(&job, &early()), JobStatus::Failed);
    }

    /// A letter of an agent that is worded like the ledger's own is a letter like any other: what refuses it for good ends
    /// it at once, and its author is told.
    #[test]
    fn a_letter_worded_like_the_clocks_order_is_not_waited_for() {
        let contract = |state: &str| {
            let doc = json!({
                "id": "contract-1", "kind": "escrow", "house": "mar.example", "seller": "leo@b.example",
                "buyer": "ana@mar.example", "amount": 200, "state": state, "terms": {"deadline": START},
                "created": START, "updated": START,
                "history": [{"op": "accept", "at": START}, {"op": "deliver", "at": START}],
            });
            crate::record::Contract::from_json(doc).expect("contract")
        };
        for (state, body) in [
            ("delivered", json!({"op": "expire", "contract": "contract-1"})),
            ("released", json!({"op": "expire", "contract": "contract-1"})),
            ("released", json!({"aviso": "plazo", "contract": "contract-1"})),
        ] {
            let mut world = World::new();
            world.agent("ana", json!({}));
            world.view.apply(vec![Change::InsertContract(contract(state))]).expect("contract");
            let content = json!({"enc": "none", "media": crate::wire::quote::OP_MEDIA, "body": body});
            let to = ["ana@mar.example", "leo@b.example"];
            let doc = envelope("envelope-1", "ana@mar.example", &to, json!({"content": content}));
            let sent = world.send(doc);
            let job = sent.body["jobs"][1]["job"].as_str().expect("job").to_owned();
            assert_eq!(world.settle(&job, &answered(&[], &[("leo@b.example", 403)])), JobStatus::Failed, "{state}");
            assert_eq!(notices(&world, "ana").len(), 1, "{state} {body}");
        }
    }

    #[test]
    fn each_recipient_has_its_own_fate() {
        let (mut world, job, doc) = queued(json!({"receipt": "delivered"}));
        let status = world.settle(&job, &answered(&["leo@b.example"], &[("eva@b.example", 429)]));
        assert_eq!(status, JobStatus::Retrying);
        let row = world.view.job(&job).expect("job");
        assert_eq!(row.to, vec![address("eva@b.example")]);
        assert_eq!(row.delivered, vec![address("leo@b.example")]);
        assert_eq!(notices(&world, "ana").len(), 1);
        assert_eq!(notices(&world, "ana")[0]["content"]["body"]["status"], "delivered");

        world.now = row.next_attempt;
        assert_eq!(plan_attempt(&row, world.now), Attempt::Send);
        assert_eq!(world.settle(&job, &answered(&["leo@b.example"], &[("eva@b.example", 403)])), JobStatus::Delivered);
        let told = notices(&world, "ana");
        assert_eq!(told.len(), 2, "leo is told of once");
        let bounce = &told[1];
        assert_eq!(bounce["from"], "postmaster@mar.example");
        assert_eq!(bounce["type"], "receipt");
        assert_eq!(bounce["in_reply_to"], "envelope-1");
        assert_eq!(bounce["thread"], "envelope-1");
        assert!(key("mar.example").public().verify_object(bounce, "signature"));
        let body = &bounce["content"]["body"];
        assert_eq!(body["of"], "envelope-1");
        assert_eq!(body["to"], "eva@b.example");
        assert_eq!(body["status"], "failed");
        assert_eq!(body["sha256"], json!(canonical_sha256(&doc).hex()));
        assert_eq!(body["reason"], "rejected (403): because");
    }

    /// Incident 26: a recipient missing from the answer counted as delivered.
    #[test]
    fn what_is_not_mentioned_is_tried_again_and_codes_decide_the_rest() {
        for (code, again) in [
            (400, false),
            (402, false),
            (403, false),
            (404, false),
            (408, true),
            (409, false),
            (410, false),
            (413, false),
            (421, true),
            (425, true),
            (429, true),
            (500, true),
            (501, false),
            (502, true),
            (503, true),
            (504, true),
            (507, false),
            (0, true),
            (301, false),
        ] {
            let (mut world, job, _) = queued(json!({}));
            let status = world.settle(&job, &Outcome::Failed { code, reason: "because".into() });
            assert_eq!(status.open(), again, "{code}");
            assert_eq!(notices(&world, "ana").len(), if again { 0 } else { 2 }, "{code}");
        }
        let (mut world, job, _) = queued(json!({}));
        assert_eq!(world.settle(&job, &answered(&[], &[])), JobStatus::Retrying);
        assert_eq!(world.view.job(&job).map(|job| job.to.len()), Some(2));
    }

    #[test]
    fn waits_double_to_a_minute_with_a_fifth_of_jitter() {
        let (mut world, job, _) = queued(json!({}));
        for attempt in 1u32..=9 {
            world.settle(&job, &Outcome::Failed { code: 0, reason: "down".into() });
            let row = world.view.job(&job).expect("job");
            assert_eq!(row.attempts, attempt);
            let waited = row.next_attempt.since(world.now);
            let whole = (1_000i64 << (attempt - 1)).min(60_000);
            assert!((whole * 8 / 10..=whole * 12 / 10).contains(&waited), "{attempt}: {waited}");
            assert_eq!(plan_attempt(&row, row.next_attempt.minus(1)), Attempt::Nothing);
            world.now = row.next_attempt;
        }
    }

    #[test]
    fn gives_up_after_three_days_counted_from_the_date_of_delivery() {
        let later = START.plus(10 * 86_400_000);
        for (more, from) in [(json!({}), START), (json!({"deliver_after": later}), later)] {
            let (mut world, job, _) = queued(more);
            assert_eq!(world.view.job(&job).map(|job| job.next_attempt), Some(from));
            world.now = from.plus(limits::GIVE_UP_MS);
            let down = Outcome::Failed { code: 503, reason: "down".into() };
            assert_eq!(world.settle(&job, &down), JobStatus::Retrying);
            world.now = from.plus(limits::GIVE_UP_MS + 1);
            assert_eq!(world.settle(&job, &down), JobStatus::Failed);
            assert_eq!(notices(&world, "ana").len(), 2);
            // A late answer of a lapsed worker changes nothing.
            assert_eq!(world.settle(&job, &down), JobStatus::Failed);
            assert_eq!(notices(&world, "ana").len(), 2);
        }
    }

    #[test]
    fn an_envelope_that_expires_in_the_queue_bounces() {
        let expires = START.plus(60_000);
        let (mut world, job, _) = queued(json!({"expires": expires}));
        let row = world.view.job(&job).expect("job");
        assert_eq!(plan_attempt(&row, expires.minus(1)), Attempt::Send);
        assert_eq!(plan_attempt(&row, expires), Attempt::Expired);
        world.now = expires;
        assert_eq!(world.settle(&job, &Outcome::Expired), JobStatus::Failed);
        let told = notices(&world, "ana");
        assert_eq!(told.len(), 2);
        assert!(told[0]["content"]["body"]["reason"].as_str().is_some_and(|reason| reason.contains("410")));
    }

    #[test]
    fn the_next_attempt_never_lies_beyond_the_expiry() {
        let (mut world, job, _) = queued(json!({"expires": START.plus(500)}));
        world.settle(&job, &Outcome::Failed { code: 0, reason: "down".into() });
        assert_eq!(world.view.job(&job).map(|job| job.next_attempt), Some(START.plus(500)));
    }

    #[test]
    fn a_bounce_never_bounces() {
        let mut world = World::new();
        let doc = envelope("bounce-0001", "postmaster@mar.example", &["leo@b.example"], json!({"type": "receipt"}));
        let letter = Letter {
            id: "bounce-0001".into(),
            doc: doc.clone().into(),
            to: vec![address("leo@b.example")],
            via: "postmaster",
            deliver_after: None,
            order: false,
        };
        let changes = letters::letters(&world.house, &world.view, world.now, vec![letter]);
        world.view.apply(changes).expect("applied");
        let job = world.jobs()[0].job.clone();
        assert_eq!(world.settle(&job, &answered(&[], &[("leo@b.example", 403)])), JobStatus::Failed);
        assert_eq!(world.jobs().len(), 1, "nothing more is sent");
        let kept = world.mailbox("postmaster");
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].envelope, doc);
        assert_eq!(kept[0].meta["undelivered"][0]["to"], "leo@b.example");
    }

    #[test]
    fn the_log_keeps_the_newest_lines_and_bounds_what_a_peer_says() {
        let (mut world, job, _) = queued(json!({}));
        let loud = Outcome::Failed { code: 503, reason: "\u{202e}\n".repeat(100_000) };
        for _ in 0..=limits::JOB_LOG_MAX {
            world.settle(&job, &loud);
        }
        let row = world.view.job(&job).expect("job");
        assert_eq!(row.log.len(), limits::JOB_LOG_MAX);
        assert_eq!(row.log.last().map(|line| line["attempt"].clone()), Some(json!(limits::JOB_LOG_MAX + 1)));
        assert!(row.log.iter().all(|line| line["detail"].as_str().is_some_and(|d| d.len() < 8_000)));
    }

    #[test]
    fn a_refusal_from_this_house_itself_bounces_like_any_other() {
        let (mut world, job, _) = queued(json!({}));
        let body = crate::mail::Answer::refused(&crate::mail::no_such_agent()).body;
        assert_eq!(world.settle(&job, &judge_answer(404, &body)), JobStatus::Failed);
        let reason = notices(&world, "ana")[0]["content"]["body"]["reason"].clone();
        assert_eq!(reason, "rejected (404): no such agent");
    }
}
