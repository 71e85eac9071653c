//! What a look leads to. Two looks that agree become a signed verdict; anything else comes round again.
//!
//! Every function here is decided inside a transaction on the row as it is then. A worker whose lease lapsed, or whose
//! contract was delivered anew or ended meanwhile, finds another row and changes nothing.
//!
//! What a verdict stands on is kept in the transaction that signs it: the tests, the delivery, the rules, both looks with
//! their own results, and every observation under its hash. The verdict names it, so that anybody who gets it later can
//! tell that it is all of it and judge it again.

use super::silence::Turn;
use super::{judgeable, schedule, silence};
use crate::ids::Ids;
use crate::limits;
use crate::probe::observation::{Cause, Observation};
use crate::probe::plan::{Capabilities, Suite};
use crate::probe::result::{Outcome, TestResult};
use crate::probe::sha256::Delivery;
use crate::probe::url::UrlPolicy;
use crate::record::look::Unreached;
use crate::record::{Change, Contract, Decision, EvidenceRow, House, LookRow, ObservationRow, View};
use crate::refusal::{Refusal, Rule, retryable};
use crate::time::Timestamp;
use crate::verdict::{Case, Document, EvidenceName, Look, LookRecord, Looked, Policy, Verdict, agree, replay};
use crate::wire::address::SystemName;
use crate::wire::digest::Sha256;
use crate::wire::envelope::{Draft, Kind, Payload};
use crate::wire::json::{canonical, canonical_sha256};
use crate::wire::quote::OP_MEDIA;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What is to be done about a claimed row.
#[derive(Clone, Debug)]
pub enum Task {
    /// The contract is no longer this arbiter's business.
    Nothing,
    Look(Box<Contract>),
    /// A verdict was signed and kept; whether the ledger has it is not known, so it is posted again, byte for byte.
    Post(Value),
}

/// What the ledger's door answered to a posted verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posted {
    Taken,
    Refused { code: u16, reason: String },
}

/// What came of a look.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The row changed hands, or the contract moved on, while this look was made.
    Stale,
    /// Undecided; the next look is due then. `tell` says that the review is over and the operator has not heard yet.
    Undecided { due: Timestamp, reason: String, tell: bool },
    /// Decided once; the look that must agree is due then.
    Confirm { due: Timestamp },
    /// Decided, or never answered for a whole review; this signed envelope goes to the ledger's ordinary door.
    Post(Value),
}

pub fn task(house: &House, view: &dyn View, claimed: &LookRow) -> Task {
    match contract_of(house, view, claimed) {
        None => Task::Nothing,
        Some(contract) => match &claimed.posting {
            Some(envelope) => Task::Post(envelope.clone()),
            None => Task::Look(Box::new(contract)),
        },
    }
}

/// What the seller delivered, as the contract keeps it.
pub fn delivery_of(contract: &Contract) -> Delivery {
    let text = |field: &str| contract.more.get(field).and_then(Value::as_str).map(str::to_owned);
    Delivery { evidence_sha256: text("evidence_sha256"), evidence: text("evidence") }
}

/// What is kept of the verdict that ended a contract.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The evidence, with its observations by hash.
    pub document: Value,
    /// The signed verdict that names it.
    pub verdict: Value,
}

/// The evidence of the verdict that ended this contract, from what is stored for it; or why there is none.
pub fn evidence_of(
    house: &House,
    contract: &Contract,
    look: Option<&LookRow>,
    stored: Option<EvidenceRow>,
) -> Result<Kept, Refusal> {
    let none = |reason: &str| Refusal::new(Rule::NoEvidence, reason);
    let by = house.address(SystemName::Verifica);
    if contract.arbiter.as_ref() != Some(&by) {
        return Err(none("this house's arbiter does not judge this contract, so it keeps no evidence of it"));
    }
    let judged =
        contract.history.iter().rev().find(|item| {
            item.get("by").and_then(Value::as_str) == Some(by.as_str()) && item.get("veredicto").is_some()
        });
    let Some(verdict) = judged.and_then(|item| item.get("veredicto")) else {
        return Err(none(match contract.state.terminal() {
            true => "this contract ended without a verdict of the arbiter, so there is no evidence",
            false => "the arbiter has given no verdict on this contract yet, so there is no evidence",
        }));
    };
    let named = verdict.pointer("/evidence/sha256").and_then(Value::as_str);
    let Some(named) = named else { return Err(none("the verdict on this contract names no evidence")) };
    let Some(row) = stored else {
        let days = house.settings.evidence_keep_ms / DAY_MS;
        let reason = format!(
            "the evidence of this verdict was removed: this house keeps it {days} days after a contract ends, \
             and this one ended at {}",
            contract.updated
        );
        return Err(Refusal::new(Rule::EvidenceGone, reason));
    };
    let lost = || Refusal::new(Rule::StoreUnavailable, "the evidence of this verdict cannot be read");
    if row.sha256.hex() != named || Sha256::of(&row.bytes) != row.sha256 {
        return Err(lost());
    }
    let document = serde_json::from_slice(&row.bytes).map_err(|_| lost())?;
    // A verdict too long for the contract is whole in the envelope that carried it.
    let verdict = match verdict.get("signature") {
        Some(_) => verdict,
        None => {
            let posted = look.and_then(|row| row.posting.as_ref()).and_then(|p| p.pointer("/content/body/veredicto"));
            posted.ok_or_else(lost)?
        }
    };
    Ok(Kept { document, verdict: verdict.clone() })
}

/// A row about which nothing is to be done ends here.
pub fn drop_row(view: &dyn View, claimed: &LookRow) -> Decision<()> {
    match mine(view, claimed) {
        Some(row) => Decision {
            changes: vec![Change::PutLook(LookRow {
                done: true,
                lease_until: None,
                first: None,
                posting: None,
                ..row
            })],
            reply: (),
        },
        None => Decision::nothing(()),
    }
}

/// Whether what was decided comes out again when its evidence is read and judged as anybody will who replays it. A look
/// that does not replay is no ground for a verdict; the error says what differs. Work that is as long as the judging
/// was, so not for a transaction.
pub fn replays(house: &House, contract: &Contract, looked: &Looked) -> Result<(), String> {
    let record = LookRecord { look: &looked.look, seen: Some(&looked.seen) };
    let written = Judged::of(house, contract).case().to_json(&[record], &looked.look).to_string();
    let read = serde_json::from_str(&written).map_err(|fault| format!("the evidence cannot be read: {fault}"))?;
    let again = replay(&read)?;
    if again.same() { Ok(()) } else { Err(again.differences.join("; ")) }
}

/// The same look when nothing of it may be believed: every test undecided, and the fault ours.
pub fn disowned(looked: Looked) -> Looked {
    let reason = "judged again, the evidence of this look did not give the same answer; nothing was decided";
    let results = looked.look.results.into_iter().map(|result| TestResult {
        outcome: Outcome::Undecided(Cause::Ours),
        reason: reason.to_owned(),
        ..result
    });
    Looked { look: Look { results: results.collect(), ..looked.look }, ..looked }
}

/// `control` says that a page which has nothing to do with the contract answered when this look did not decide.
pub fn settle(
    house: &House,
    view: &dyn View,
    now: Timestamp,
    ids: &mut Ids,
    claimed: &LookRow,
    looked: &Looked,
    control: bool,
) -> Decision<Step> {
    let Looked { look, attestations, .. } = looked;
    let (Some(row), Some(contract)) = (mine(view, claimed), contract_of(house, view, claimed)) else {
        return Decision::nothing(Step::Stale);
    };
    let joint = look.joint();
    if joint.verdict == Verdict::Undecided {
        let unreached = silence::with_look(&row, now, silence::only_the_hosts(look, control));
        return undecided(house, LookRow { unreached, ..row }, &contract, now, ids, joint.razon, attestations);
    }
    let row = LookRow { unreached: silence::reached(&row), ..row };
    let judged = Judged::of(house, &contract);
    let Some(first) = row.first.as_ref().and_then(|first| first_look(first, &judged)) else {
        let due = now.plus(i64::try_from(house.settings.policy.confirm_after_ms).unwrap_or(i64::MAX));
        let last = told(now, joint.verdict, "decided once, to be confirmed");
        let first = Some(json!({ "judged": judged.sha256(), "look": look.to_json() }));
        let row = LookRow { first, due, lease_until: None, last, ..row };
        // What earlier looks left behind never became evidence of anything.
        let mut changes = vec![Change::ForgetEvidence { contract: contract.id.clone() }];
        changes.extend(observations(&contract, now, looked));
        changes.push(Change::PutLook(row));
        return Decision { changes, reply: Step::Confirm { due } };
    };
    let agreed = agree(&first, look);
    let joint = agreed.joint();
    if joint.verdict == Verdict::Undecided {
        return undecided(house, row, &contract, now, ids, joint.razon, attestations);
    }
    let looks = [first, look.clone()];
    let evidence = judged.evidence(&looks, &agreed);
    let kept = EvidenceRow {
        contract: contract.id.clone(),
        sha256: canonical_sha256(&evidence),
        at: now,
        bytes: canonical(&evidence).into_bytes(),
    };
    let verdict = signed_verdict(house, now, ids, &contract, &looks, &agreed, &EvidenceName::of(&evidence));
    let envelope = verdict_envelope(house, now, &contract, &row, joint.verdict, verdict);
    // The lease stays: the worker that decided posts now, and another may only after the lease has lapsed.
    let last = told(now, joint.verdict, &joint.razon);
    let row = LookRow { posting: Some(envelope.clone()), first: None, due: now, last, ..row };
    let mut changes = observations(&contract, now, looked);
    changes.push(Change::PutEvidence(kept));
    changes.push(Change::PutLook(row));
    Decision { changes, reply: Step::Post(envelope) }
}

/// What the ledger's door answered to the posted verdict. When it took it, the contract has ended and the row with it,
/// in the ledger's own transaction; a row that is still open therefore means that it did not.
pub fn posted(
    house: &House,
    view: &dyn View,
    now: Timestamp,
    ids: &mut Ids,
    claimed: &LookRow,
    answer: &Posted,
) -> Decision<()> {
    let Some(row) = mine(view, claimed) else { return Decision::nothing(()) };
    if row.done || contract_of(house, view, claimed).is_none() {
        return drop_row(view, claimed);
    }
    let attempts = row.attempts.saturating_add(1);
    let due = schedule::next_look(now, attempts, ids);
    let (again, reason) = match answer {
        Posted::Taken => (true, "the ledger took the verdict, and the contract has not ended".to_owned()),
        Posted::Refused { code, reason } => {
            (retryable(*code), format!("the ledger refused the verdict ({code}): {reason}"))
        }
    };
    let last = told(now, Verdict::Undecided, &reason);
    // A passing fault: the same bytes again. A lasting one: what was decided cannot be posted, so look afresh.
    let posting = if again { row.posting.clone() } else { None };
    let row = LookRow { posting, first: None, attempts, due, lease_until: None, last, ..row };
    Decision { changes: vec![Change::PutLook(row)], reply: () }
}

/// Nothing was looked at: the hosts have long queues. The row waits for them, not a worker, and counts no attempt.
pub fn put_off(view: &dyn View, claimed: &LookRow, due: Timestamp) -> Decision<()> {
    match mine(view, claimed) {
        Some(row) => {
            let row = LookRow { due, lease_until: None, ..row };
            Decision { changes: vec![Change::PutLook(row)], reply: () }
        }
        None => Decision::nothing(()),
    }
}

/// The same work under a later lease; `None` when the row is no longer this worker's.
pub fn renew(view: &dyn View, claimed: &LookRow, lease_until: Timestamp) -> Decision<Option<LookRow>> {
    match mine(view, claimed) {
        Some(row) => {
            let row = LookRow { lease_until: Some(lease_until), ..row };
            Decision { changes: vec![Change::PutLook(row.clone())], reply: Some(row) }
        }
        None => Decision::nothing(None),
    }
}

/// The row, if it is still the one that was claimed.
fn mine(view: &dyn View, claimed: &LookRow) -> Option<LookRow> {
    view.look(&claimed.contract).filter(|row| {
        !row.done
            && row.created == claimed.created
            && row.delivery == claimed.delivery
            && row.lease_until == claimed.lease_until
    })
}

/// The contract, if it is still to be judged, and as it was when this work began.
fn contract_of(house: &House, view: &dyn View, claimed: &LookRow) -> Option<Contract> {
    view.contract(&claimed.contract).filter(|contract| {
        contract.is_arbitrated_by(&house.domain)
            && judgeable(contract)
            && contract.history.len() as u64 == claimed.delivery
    })
}

fn undecided(
    house: &House,
    row: LookRow,
    contract: &Contract,
    now: Timestamp,
    ids: &mut Ids,
    reason: String,
    signed: &[Value],
) -> Decision<Step> {
    let attempts = row.attempts.saturating_add(1);
    let due = schedule::next_look(now, attempts, ids);
    let mut last = told(now, Verdict::Undecided, &reason);
    // What kept a job from running is signed, and shown to the parties; of the runs that took place nothing is decided.
    let refused: Vec<&Value> = signed.iter().filter(|doc| doc.pointer("/exit/refused").is_some()).take(1).collect();
    if let (Some(last), false) = (&mut last, refused.is_empty()) {
        last["attestations"] = json!(refused);
    }
    let row = LookRow { attempts, due, lease_until: None, first: None, last, ..row };
    let turn = silence::turn(house, contract, now, row.unreached);
    let step = Step::Undecided { due, reason, tell: turn == Turn::Tell };
    match turn {
        Turn::Wait => Decision { changes: vec![Change::PutLook(row)], reply: step },
        Turn::Tell => {
            let looks = row.unreached.looks;
            let data = json!({"contract": contract.id, "amount": contract.amount, "looks": looks, "last": row.last});
            let event = Change::Event { name: "review_undecided", at: now, actor: contract.seller.to_string(), data };
            let unreached = Unreached { told: true, ..row.unreached };
            Decision { changes: vec![Change::PutLook(LookRow { unreached, ..row }), event], reply: step }
        }
        Turn::Refund => {
            let note = format!(
                "what was delivered could not be looked at once during its whole review, in {} looks: {}",
                row.unreached.looks,
                row.last.as_ref().and_then(|last| last.get("reason")).and_then(Value::as_str).unwrap_or_default()
            );
            let envelope = order_envelope(house, now, contract, &row, "refund", &note, None);
            let row = LookRow { posting: Some(envelope.clone()), due: now, ..row };
            Decision { changes: vec![Change::PutLook(row)], reply: Step::Post(envelope) }
        }
    }
}

fn told(now: Timestamp, verdict: Verdict, reason: &str) -> Option<Value> {
    Some(json!({"at": now, "verdict": verdict.word(), "reason": reason}))
}

/// Only what a verdict may come to stand on is kept: what was seen, and the attestations of what was run.
fn observations(contract: &Contract, now: Timestamp, looked: &Looked) -> Vec<Change> {
    let seen = looked.seen.values().map(Observation::to_bytes);
    let signed = looked.attestations.iter().map(|doc| canonical(doc).into_bytes());
    let kept = seen.chain(signed).map(|bytes| {
        let sha256 = Sha256::of(&bytes);
        Change::PutObservation(ObservationRow { sha256, at: now, contract: contract.id.clone(), bytes })
    });
    kept.collect()
}

/// What is judged, and under which rules.
struct Judged<'a> {
    tests: String,
    delivery: Delivery,
    urls: UrlPolicy,
    policy: Policy,
    capabilities: &'a Capabilities,
}

impl Judged<'_> {
    fn of<'a>(house: &'a House, contract: &Contract) -> Judged<'a> {
        let settings = &house.settings;
        Judged {
            tests: Suite::source_of(&contract.terms),
            delivery: delivery_of(contract),
            urls: UrlPolicy { addresses: settings.addresses.clone() },
            policy: settings.policy.stated(),
            capabilities: &settings.capabilities,
        }
    }

    fn case(&self) -> Case<'_> {
        Case {
            tests: &self.tests,
            delivery: &self.delivery,
            urls: &self.urls,
            capabilities: self.capabilities,
            policy: &self.policy,
            accepted: true,
            supplied: &NOTHING_SUPPLIED,
        }
    }

    /// The same for two looks only if the same program judged the same under the same rules: a house that was started
    /// anew with other settings, or as a later version, looks twice again.
    fn sha256(&self) -> Sha256 {
        canonical_sha256(&json!({ "case": self.case().stated(), "program": env!("CARGO_PKG_VERSION") }))
    }

    fn evidence(&self, looks: &[Look], agreed: &Look) -> Value {
        let records: Vec<LookRecord<'_>> = looks.iter().map(|look| LookRecord { look, seen: None }).collect();
        self.case().to_json(&records, agreed)
    }
}

fn signed_verdict(
    house: &House,
    now: Timestamp,
    ids: &mut Ids,
    contract: &Contract,
    looks: &[Look],
    agreed: &Look,
    evidence: &EvidenceName,
) -> Value {
    let by = house.address(SystemName::Verifica);
    let policy = house.settings.policy.stated();
    let document = Document {
        id: &ids.uuid(),
        contract: &contract.id,
        house: house.domain.as_str(),
        by: by.as_str(),
        at: now,
        policy: &policy,
        evidence: Some(evidence),
        looks,
        agreed,
    };
    house.signed(document.to_json())
}

fn verdict_envelope(
    house: &House,
    now: Timestamp,
    contract: &Contract,
    row: &LookRow,
    verdict: Verdict,
    document: Value,
) -> Value {
    let op = if verdict == Verdict::Pass { "release" } else { "refund" };
    let note = document.get("razon").and_then(Value::as_str).unwrap_or_default().to_owned();
    order_envelope(house, now, contract, row, op, &note, Some(document))
}

/// The arbiter's one order about this delivery. The operation's id follows from the contract and what was delivered, so
/// no second order can stand beside it.
fn order_envelope(
    house: &House,
    now: Timestamp,
    contract: &Contract,
    row: &LookRow,
    op: &str,
    note: &str,
    verdict: Option<Value>,
) -> Value {
    let name = format!("verdict:{}:{}:{}", house.domain, contract.id, row.delivery);
    let note: String = note.chars().take(limits::NOTE_CHARS_MAX).collect();
    let mut body = json!({"op": op, "contract": contract.id, "note": note});
    if let Some(verdict) = verdict {
        body["veredicto"] = verdict;
    }
    house.letter(Draft {
        id: uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, name.as_bytes()).to_string(),
        from: house.address(SystemName::Verifica),
        to: vec![house.address(SystemName::Libro)],
        kind: Kind::Task,
        created: now,
        expires: None,
        deliver_after: None,
        thread: Some(contract.id.clone()),
        in_reply_to: None,
        payload: Payload::Clear { media: OP_MEDIA.to_owned(), body },
        more: Map::new(),
    })
}

/// The look that waits for its second, if that judges the same.
fn first_look(kept: &Value, judged: &Judged<'_>) -> Option<Look> {
    let same = kept.get("judged").and_then(Value::as_str) == Some(judged.sha256().hex().as_str());
    kept.get("look").filter(|_| same).and_then(Look::from_json)
}

const DAY_MS: i64 = 86_400_000;
/// A house takes inputs of jobs from where the contract says, and from nowhere else.
static NOTHING_SUPPLIED: BTreeMap<String, Sha256> = BTreeMap::new();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbiter::look_for;
    use crate::probe::observation::{Content, End, FetchPlan, Response, Seen};
    use crate::probe::result::Evidence;
    use crate::record::memory::MemoryView;
    use crate::record::{ContractState, Settings};
    use crate::wire::Domain;
    use crate::wire::key::SigningKey;

    struct Scene {
        house: House,
        view: MemoryView,
        ids: Ids,
        now: Timestamp,
    }

    impl Scene {
        fn new() -> Scene {
            let house = House {
                domain: Domain::parse("mar.example").expect("domain"),
                public_url: "http://127.0.0.1:1".into(),
                host: "127.0.0.1:1".into(),
                key: SigningKey::from_seed([1; 32]),
                retiring: None,
                settings: Settings::default(),
            };
            let now = Timestamp::from_millis(1_800_000_000_000);
            let contract = json!({
                "id": "contract-1", "kind": "escrow", "house": "mar.example", "seller": "leo@b.example",
                "buyer": "ana@a.example", "amount": 200, "arbiter": "verifica@mar.example", "state": "delivered",
                "terms": {"verify": [{"type": "http_status", "url": "https://seller.example/"}]},
                "created": now, "updated": now, "history": [{"op": "accept"}, {"op": "deliver"}],
            });
            let contract = Contract::from_json(contract).expect("contract");
            let mut view = MemoryView::new();
            let row = look_for(&contract, now);
            view.apply(vec![Change::InsertContract(contract), Change::PutLook(row)]).expect("applied");
            Scene { house, view, ids: Ids::from_seed([2; 32]), now }
        }

        fn claim(&mut self) -> LookRow {
            let row = self.view.look("contract-1").expect("row");
            let row = LookRow { lease_until: Some(self.now.plus(limits::LOOK_LEASE_MS)), ..row };
            self.view.apply(vec![Change::PutLook(row.clone())]).expect("applied");
            row
        }

        fn settle(&mut self, claimed: &LookRow, outcome: Outcome) -> Step {
            let looked = Looked { look: look_of(self.now, outcome), seen: BTreeMap::new(), attestations: Vec::new() };
            let decision = settle(&self.house, &self.view, self.now, &mut self.ids, claimed, &looked, false);
            self.view.commit(decision).expect("applied")
        }

        fn row(&self) -> LookRow {
            self.view.look("contract-1").expect("row")
        }
    }

    fn look_of(at: Timestamp, outcome: Outcome) -> Look {
        let result = TestResult {
            outcome,
            test_type: "http_status".into(),
            name: None,
            reason: format!("status {}", outcome.word()),
            evidence: Evidence::new(),
        };
        Look::new(at, vec![result], &BTreeMap::new())
    }

    #[test]
    fn two_looks_that_agree_become_one_signed_verdict() {
        for (outcome, op) in [(Outcome::Pass, "release"), (Outcome::Fail, "refund")] {
            let mut scene = Scene::new();
            let claimed = scene.claim();
            let due = scene.now.plus(limits::CONFIRM_AFTER_MS);
            assert_eq!(scene.settle(&claimed, outcome), Step::Confirm { due });
            assert_eq!((scene.row().due, scene.row().lease_until), (due, None));
            scene.now = due;
            let claimed = scene.claim();
            let Step::Post(envelope) = scene.settle(&claimed, outcome) else { panic!("no verdict") };
            assert!(scene.house.key.public().verify_object(&envelope, "signature"));
            let body = &envelope["content"]["body"];
            assert_eq!((body["op"].as_str(), body["contract"].as_str()), (Some(op), Some("contract-1")));
            let verdict = &body["veredicto"];
            assert!(scene.house.key.public().verify_object(verdict, "signature"));
            assert_eq!(verdict["looks"].as_array().map(Vec::len), Some(2));
            assert_eq!(verdict["pasa"], Value::Bool(outcome == Outcome::Pass));
            assert_eq!(scene.row().posting.as_ref(), Some(&envelope));
            // A crash before or after posting: the same bytes again.
            scene.now = scene.now.plus(limits::LOOK_LEASE_MS + 1);
            let again = scene.claim();
            match task(&scene.house, &scene.view, &again) {
                Task::Post(posted) => assert_eq!(posted, envelope),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_a_verdict_stands_on_is_kept_and_named_when_it_is_signed() {
        let mut scene = Scene::new();
        let claimed = scene.claim();
        scene.settle(&claimed, Outcome::Pass);
        assert_eq!(scene.view.evidence("contract-1"), None, "nothing is signed yet");
        scene.now = scene.now.plus(limits::CONFIRM_AFTER_MS);
        let claimed = scene.claim();
        let Step::Post(envelope) = scene.settle(&claimed, Outcome::Pass) else { panic!("no verdict") };
        let kept = scene.view.evidence("contract-1").expect("kept").clone();
        let document: Value = serde_json::from_slice(&kept.bytes).expect("json");
        let named = EvidenceName::of(&document);
        assert_eq!((kept.sha256, Sha256::of(&kept.bytes)), (named.sha256, named.sha256));
        assert_eq!(envelope["content"]["body"]["veredicto"]["evidence"], json!(named));
        assert_eq!(document["looks"].as_array().map(Vec::len), Some(2));
        assert_eq!(document["looks"][0]["resultados"][0]["pasa"], true);
    }

    /// V61: nothing is decided that its own evidence does not decide.
    #[test]
    fn a_look_whose_evidence_answers_otherwise_decides_nothing() {
        let scene = Scene::new();
        let contract = scene.view.contract("contract-1").expect("contract");
        let settings = &scene.house.settings;
        let urls = UrlPolicy { addresses: settings.addresses.clone() };
        let suite = Suite::from_terms(&contract.terms, &urls, &settings.capabilities).accepted();
        let unseen = |plan: FetchPlan| {
            let seen = Seen::Response(Response {
                status: 200,
                headers: Vec::new(),
                content: Content { kept: Vec::new(), bytes: 0, sha256: Sha256::of(""), end: End::NotRead },
            });
            let (started, ended) = (scene.now, scene.now);
            let observation = Observation {
                key: plan.key.clone(),
                started,
                ended,
                address: None,
                certificate_sha256: None,
                certificate_not_after: None,
                tls: None,
                seen,
            };
            (plan.key, observation)
        };
        let seen: BTreeMap<_, _> = suite.fetches(1_000).into_iter().map(unseen).collect();
        let look = Look::new(scene.now, suite.judge(&seen, &delivery_of(&contract)), &seen);
        let honest = Looked { look, seen, attestations: Vec::new() };
        assert_eq!(honest.look.joint().verdict, Verdict::Pass);
        assert_eq!(replays(&scene.house, &contract, &honest), Ok(()));

        let mut turned = honest.clone();
        turned.look.results[0].outcome = Outcome::Fail;
        let mut reworded = honest.clone();
        reworded.look.results[0].reason.push('.');
        let mut other = honest.clone();
        for observation in other.seen.values_mut() {
            if let Seen::Response(response) = &mut observation.seen {
                response.status = 404;
            }
        }
        let nothing = Looked { seen: BTreeMap::new(), ..honest.clone() };
        for wrong in [turned, reworded, other, nothing] {
            assert!(replays(&scene.house, &contract, &wrong).is_err(), "{:?}", wrong.look.results);
            let disowned = disowned(wrong);
            assert_eq!(disowned.look.joint().verdict, Verdict::Undecided);
            assert_eq!(disowned.look.results[0].outcome, Outcome::Undecided(Cause::Ours));
        }
    }

    #[test]
    fn looks_under_other_rules_do_not_confirm_each_other() {
        let changes: [fn(&mut Scene); 3] = [
            |scene| scene.house.settings.policy.timeout_ms += 1,
            |scene| scene.house.settings.capabilities = Capabilities::with_jobs(60),
            |scene| scene.house.settings.addresses.allow_private = true,
        ];
        for change in changes {
            let mut scene = Scene::new();
            let claimed = scene.claim();
            scene.settle(&claimed, Outcome::Pass);
            change(&mut scene);
            let claimed = scene.claim();
            assert!(matches!(scene.settle(&claimed, Outcome::Pass), Step::Confirm { .. }));
            let claimed = scene.claim();
            assert!(matches!(scene.settle(&claimed, Outcome::Pass), Step::Post(_)));
        }
    }

    #[test]
    fn evidence_is_given_for_a_verdict_of_this_house_or_it_is_said_why_not() {
        let mut scene = Scene::new();
        let told = |scene: &Scene, contract: &Contract, stored: Option<EvidenceRow>| {
            let row = scene.view.look("contract-1");
            evidence_of(&scene.house, contract, row.as_ref(), stored).map_err(|refusal| refusal.rule)
        };
        let open = scene.view.contract("contract-1").expect("contract");
        assert_eq!(told(&scene, &open, None), Err(Rule::NoEvidence));
        for _ in 0..2 {
            let claimed = scene.claim();
            scene.settle(&claimed, Outcome::Pass);
        }
        let stored = scene.view.evidence("contract-1").cloned();
        let verdict = scene.row().posting.expect("posting")["content"]["body"]["veredicto"].clone();
        let ended = |kept: Value| {
            let mut contract = open.clone();
            contract.state = ContractState::Released;
            contract.history.push(json!({"op": "release", "by": "verifica@mar.example", "veredicto": kept}));
            contract
        };
        let kept = told(&scene, &ended(verdict.clone()), stored.clone()).expect("kept");
        assert_eq!(kept.verdict, verdict);
        // A verdict too long for the contract is found in the envelope that carried it.
        let short = json!({"pasa": true, "omitted": "longer", "evidence": verdict["evidence"]});
        assert_eq!(told(&scene, &ended(short), stored.clone()).map(|kept| kept.verdict), Ok(verdict.clone()));
        assert_eq!(told(&scene, &ended(verdict.clone()), None), Err(Rule::EvidenceGone));
        let other = stored.clone().map(|row| EvidenceRow { bytes: b"{}".to_vec(), ..row });
        assert_eq!(told(&scene, &ended(verdict.clone()), other), Err(Rule::StoreUnavailable));
        assert_eq!(told(&scene, &ended(json!({"pasa": true})), stored.clone()), Err(Rule::NoEvidence));
        let mut by_hand = ended(Value::Null);
        by_hand.history.pop();
        assert_eq!(told(&scene, &by_hand, stored.clone()), Err(Rule::NoEvidence));
        let foreign = Contract { arbiter: scene.house.domain.system(SystemName::Libro).into(), ..ended(verdict) };
        assert_eq!(told(&scene, &foreign, stored), Err(Rule::NoEvidence));
    }

    #[test]
    fn looks_that_disagree_or_do_not_decide_move_nothing() {
        let undecided = Outcome::Undecided(Cause::Network);
        let pairs = [
            (Outcome::Pass, Outcome::Fail),
            (Outcome::Fail, Outcome::Pass),
            (Outcome::Pass, undecided),
            (Outcome::Fail, undecided),
        ];
        for (first, second) in pairs {
            let mut scene = Scene::new();
            let claimed = scene.claim();
            assert!(matches!(scene.settle(&claimed, first), Step::Confirm { .. }));
            let claimed = scene.claim();
            let Step::Undecided { due, .. } = scene.settle(&claimed, second) else { panic!("{first:?} {second:?}") };
            assert!(due > scene.now);
            let row = scene.row();
            assert_eq!((row.attempts, row.first, row.posting), (1, None, None));
            // It takes two agreeing looks from the start again.
            let claimed = scene.claim();
            assert!(matches!(scene.settle(&claimed, second), Step::Confirm { .. } | Step::Undecided { .. }));
        }
        let mut scene = Scene::new();
        let claimed = scene.claim();
        assert!(matches!(scene.settle(&claimed, undecided), Step::Undecided { .. }));
    }

    #[test]
    fn a_look_that_began_before_a_delivery_or_an_end_says_nothing() {
        let mut scene = Scene::new();
        let claimed = scene.claim();
        let mut contract = scene.view.contract("contract-1").expect("contract");
        contract.history.push(json!({"op": "deliver"}));
        let fresh = look_for(&contract, scene.now.plus(5));
        scene.view.apply(vec![Change::PutContract(contract), Change::PutLook(fresh.clone())]).expect("applied");
        assert_eq!(scene.settle(&claimed, Outcome::Pass), Step::Stale);
        assert_eq!(scene.row(), fresh);

        let mut scene = Scene::new();
        let claimed = scene.claim();
        let mut contract = scene.view.contract("contract-1").expect("contract");
        contract.state = ContractState::Released;
        scene.view.apply(vec![Change::PutContract(contract)]).expect("applied");
        assert_eq!(scene.settle(&claimed, Outcome::Pass), Step::Stale);
        assert!(matches!(task(&scene.house, &scene.view, &claimed), Task::Nothing));
        let dropped = drop_row(&scene.view, &claimed);
        scene.view.commit(dropped).expect("applied");
        assert!(scene.row().done);
    }

    #[test]
    fn a_lapsed_lease_is_nobodys_and_a_renewed_one_is_still_mine() {
        let mut scene = Scene::new();
        let lapsed = scene.claim();
        scene.now = scene.now.plus(1);
        let other = scene.claim();
        assert_eq!(scene.settle(&lapsed, Outcome::Pass), Step::Stale);
        let later = scene.now.plus(limits::LOOK_LEASE_MS * 2);
        let renewed = renew(&scene.view, &other, later);
        let renewed = scene.view.commit(renewed).expect("applied").expect("mine");
        assert_eq!(scene.settle(&other, Outcome::Pass), Step::Stale);
        assert!(matches!(scene.settle(&renewed, Outcome::Pass), Step::Confirm { .. }));
        let gone = renew(&scene.view, &lapsed, later);
        assert!(scene.view.commit(gone).expect("applied").is_none());
    }

    #[test]
    fn a_refused_verdict_is_repeated_if_that_may_help_and_looked_at_afresh_if_not() {
        for (code, kept) in [(421, true), (503, true), (403, false), (409, false)] {
            let mut scene = Scene::new();
            let claimed = scene.claim();
            scene.settle(&claimed, Outcome::Pass);
            let claimed = scene.claim();
            assert!(matches!(scene.settle(&claimed, Outcome::Pass), Step::Post(_)));
            let answer = Posted::Refused { code, reason: "no".into() };
            let decision = posted(&scene.house, &scene.view, scene.now, &mut scene.ids, &claimed, &answer);
            scene.view.commit(decision).expect("applied");
            let row = scene.row();
            assert_eq!((row.posting.is_some(), row.done, row.lease_until), (kept, false, None), "{code}");
            assert!(row.due > scene.now);
        }
    }

    #[test]
    fn a_look_survives_its_record() {
        let look = look_of(Timestamp::from_millis(5), Outcome::Undecided(Cause::Edge));
        assert_eq!(Look::from_json(&look.to_json()), Some(look));
        assert_eq!(Look::from_json(&json!({})), None);
    }
}
