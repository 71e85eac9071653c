//! Judging stored observations again, offline (V61). The recorded results must come out again to the byte, and where
//! the file holds the signed verdict, it must be the verdict on exactly this evidence. What does not hold is told, one
//! line for each difference, and so is every check that was made.
//!
//! Deliberately absent: who holds the key that signed. That takes a card, and is what `verifica verify` is for.

use super::document::{look as stated_look, results};
use super::evidence::{EvidenceName, Stated, VERDICT, part};
use super::{Joint, Look, RULES, Verdict, agree};
use crate::probe::exit_0::JobRun;
use crate::probe::observation::{FetchKey, Observation, Seen};
use crate::probe::plan::Suite;
use crate::probe::result::TestResult;
use crate::probe::sha256::Delivery;
use crate::probe::text;
use crate::time::Timestamp;
use crate::wire::Sha256;
use crate::wire::key::{PublicKey, Signature};
use serde_json::Value;
use std::collections::BTreeMap;

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    pub joint: Joint,
    pub results: Vec<TestResult>,
    /// The rules that the evidence was judged by; the recomputed results are by [`RULES`].
    pub rules: String,
    /// What was checked, whatever came of it.
    pub checks: Vec<String>,
    /// Empty when everything recorded came out again.
    pub differences: Vec<String>,
}

impl Replayed {
    pub fn same(&self) -> bool {
        self.differences.is_empty()
    }
}

/// Judges an evidence file that holds its observations.
pub fn replay(evidence: &Value) -> Result<Replayed, String> {
    replay_with(evidence, &|_| None)
}

/// The same; observations that are only named by hash come from `load`. The error says why the file cannot be judged.
pub fn replay_with(evidence: &Value, load: &dyn Fn(&Sha256) -> Option<Vec<u8>>) -> Result<Replayed, String> {
    let stated = Stated::read(evidence)?;
    let rules: String = part(evidence, "rules")?;
    let suite = Suite::from_text(&stated.tests, &stated.urls, &stated.capabilities)
        .map_err(|fault| format!("the tests of the evidence file cannot be read: {fault}"))?;
    let suite = if stated.accepted { suite.accepted() } else { suite }.supplied(stated.supplied.clone());
    let recorded = evidence.get("looks").and_then(Value::as_array).ok_or("the evidence file has no looks")?;
    let mut differences = Vec::new();
    let mut looks: Vec<Look> = Vec::new();
    let mut observed = 0;
    for (n, record) in recorded.iter().enumerate() {
        let what = format!("look {}", n + 1);
        let look = judge_look(&suite, &stated, record, load, &what, &mut differences)
            .map_err(|why| format!("{what}: {why}"))?;
        differ(&mut differences, &what, record.get("resultados"), &look.results);
        observed += look.observations.len();
        looks.push(look);
    }
    let agreed = looks.iter().cloned().reduce(|before, look| agree(&before, &look));
    let agreed = agreed.ok_or("the evidence file has no looks")?;
    let joint = agreed.joint();
    let mut checks = vec![
        format!("the content of each of {observed} observations is what its own hash says, as far as it was kept"),
        format!("{} tests were judged again on each of {} looks, offline", suite.tests().len(), looks.len()),
        "every outcome and every reason was compared to the byte, of each look and of both together".to_owned(),
    ];
    differ(&mut differences, "the evidence", evidence.get("resultados"), &agreed.results);
    let answer = [("verdict", Value::from(joint.verdict.word()))].into_iter().chain(answer(&joint));
    compare(&mut differences, "the evidence", evidence, answer);
    match evidence.get(VERDICT) {
        Some(verdict) => against(evidence, verdict, &looks, &agreed, &mut checks, &mut differences),
        None => checks.push("the file holds no signed verdict, so none was compared".to_owned()),
    }
    if !differences.is_empty() && rules != RULES {
        differences.push(format!("the evidence was judged by {rules:?}, and this program judges by {RULES:?}"));
    }
    Ok(Replayed { joint, results: agreed.results, rules, checks, differences })
}

/// Whether the signed verdict is the one on this evidence.
fn against(
    evidence: &Value,
    verdict: &Value,
    looks: &[Look],
    agreed: &Look,
    checks: &mut Vec<String>,
    differences: &mut Vec<String>,
) {
    const WHAT: &str = "the signed verdict";
    let signed = verdict.get("looks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if signed.len() != looks.len() {
        differences.push(format!("{WHAT} stands on {} looks, and the evidence holds {}", signed.len(), looks.len()));
    }
    for (n, (signed, look)) in signed.iter().zip(looks).enumerate() {
        let what = format!("{WHAT}, look {}", n + 1);
        let now = stated_look(look);
        observations_differ(differences, &what, signed, &now);
        let fields = ["at", "verdict", "razon", "attestations"].map(|field| (field, now.get(field).cloned()));
        compare(differences, &what, signed, fields.map(|(field, now)| (field, now.unwrap_or_default())));
    }
    checks.push(format!("the hash of every observation is the one that {WHAT} names for its look"));
    differ(differences, WHAT, verdict.get("resultados"), &agreed.results);
    let policy = |of: &Value| ["name", "sha256"].map(|field| of.pointer(&format!("/policy/{field}")).cloned());
    compare(differences, WHAT, verdict, answer(&agreed.joint()));
    compare(differences, WHAT, verdict, [("rules", evidence.get("rules").cloned().unwrap_or_default())]);
    if policy(verdict) != policy(evidence) {
        differences.push(format!("{WHAT} was reached under another policy than the evidence states"));
    }
    checks.push(format!("answer, results, rules and policy of {WHAT} are those of the evidence"));
    named(evidence, verdict, checks, differences);
    let key = Signature::of(verdict, "signature").and_then(|signature| PublicKey::parse(signature.kid).ok());
    match key.filter(|key| key.verify_object(verdict, "signature")) {
        Some(key) => checks.push(format!(
            "the signature holds over the verdict, key {key}; whose key that is was not checked (verifica verify)"
        )),
        None => {
            differences.push(format!("the signature does not hold over {WHAT}: it was changed after it was signed"))
        }
    }
}

/// Whether the evidence is the one that the verdict names, and if not, what of it was changed.
fn named(evidence: &Value, verdict: &Value, checks: &mut Vec<String>, differences: &mut Vec<String>) {
    let then: EvidenceName = match verdict.get("evidence").map(|name| serde_json::from_value(name.clone())) {
        Some(Ok(name)) => name,
        _ => {
            differences.push("the signed verdict names no evidence".to_owned());
            return;
        }
    };
    let now = EvidenceName::of(evidence);
    let untold = differences.is_empty();
    for (what, then, now) in [("tests", then.tests, now.tests), ("delivery", then.delivery, now.delivery)] {
        if then != now {
            differences.push(format!("{what}: not what the verdict was reached on: signed {then}, now {now}"));
        }
    }
    if then.sha256 != now.sha256 {
        let what = if untold && differences.is_empty() {
            " (its urls, capabilities or runs were changed, or a field was added)"
        } else {
            ""
        };
        let (then, now) = (then.sha256, now.sha256);
        differences.push(format!("the evidence is not the one that the verdict names{what}: signed {then}, now {now}"));
    }
    checks.push(format!("tests, delivery and the evidence as a whole are what the verdict names: {}", then.sha256));
}

fn answer(joint: &Joint) -> [(&'static str, Value); 3] {
    [
        ("pasa", Value::Bool(joint.verdict == Verdict::Pass)),
        ("indeciso", Value::Bool(joint.verdict == Verdict::Undecided)),
        ("razon", Value::from(joint.razon.as_str())),
    ]
}

fn compare(
    differences: &mut Vec<String>,
    what: &str,
    recorded: &Value,
    now: impl IntoIterator<Item = (&'static str, Value)>,
) {
    for (field, now) in now {
        let then = recorded.get(field).unwrap_or(&Value::Null);
        if *then != now {
            differences.push(format!("{what}, {field}: recorded {}, now {}", shown(then), shown(&now)));
        }
    }
}

/// Each observation by its request; one that is only on one side is told too.
fn observations_differ(differences: &mut Vec<String>, what: &str, signed: &Value, now: &Value) {
    let listed = |of: &Value| -> BTreeMap<String, Value> {
        let entries = of.get("observations").and_then(Value::as_array).into_iter().flatten();
        let field = |entry: &Value, name: &str| entry.get(name).and_then(Value::as_str).unwrap_or("?").to_owned();
        let request = |entry: &Value| {
            format!(
                "{} {} ({})",
                field(entry, "method"),
                text::plain(&field(entry, "url"), SHOWN_CHARS),
                field(entry, "accept")
            )
        };
        entries.map(|entry| (request(entry), entry.get("sha256").cloned().unwrap_or_default())).collect()
    };
    let (signed, now) = (listed(signed), listed(now));
    for request in signed.keys().chain(now.keys().filter(|request| !signed.contains_key(*request))) {
        let (then, now) = (signed.get(request), now.get(request));
        if then != now {
            let none = Value::from("none");
            let (then, now) = (then.unwrap_or(&none), now.unwrap_or(&none));
            differences.push(format!("{what}, the observation of {request}: signed {then}, in the file {now}"));
        }
    }
}

fn shown(value: &Value) -> String {
    text::plain(&value.to_string(), SHOWN_CHARS)
}

fn judge_look(
    suite: &Suite,
    stated: &Stated,
    record: &Value,
    load: &dyn Fn(&Sha256) -> Option<Vec<u8>>,
    what: &str,
    differences: &mut Vec<String>,
) -> Result<Look, String> {
    let Observed { at, seen, lying, runs } = observed(record, load)?;
    let lies = |key: &FetchKey| {
        let url = text::plain(&key.url, SHOWN_CHARS);
        format!("{what}, the observation of {} {url}: its content is not what its hash says", key.method.name())
    };
    differences.extend(lying.iter().map(lies));
    let mut look = Look::new(at, suite.judge_with_jobs(&seen, &runs, &stated.delivery), &seen);
    look.runs = runs;
    Ok(look)
}

/// What one look of an evidence file saw.
#[derive(Clone, Debug)]
pub struct Observed {
    pub at: Timestamp,
    pub seen: BTreeMap<FetchKey, Observation>,
    /// Observations whose content is not what its own hash says.
    pub lying: Vec<FetchKey>,
    /// What the runs of its jobs came to, by the position of their test.
    pub runs: BTreeMap<usize, Vec<JobRun>>,
}

/// Reads one look of an evidence file; observations that are only named by hash come from `load`.
pub fn observed(record: &Value, load: &dyn Fn(&Sha256) -> Option<Vec<u8>>) -> Result<Observed, String> {
    let runs = match record.get("runs") {
        None => BTreeMap::new(),
        Some(_) => part(record, "runs")?,
    };
    let mut observed = Observed { at: part(record, "at")?, seen: BTreeMap::new(), lying: Vec::new(), runs };
    let list = record.get("observations").and_then(Value::as_array).ok_or("there are no observations")?;
    for entry in list {
        let observation = observation(entry, load)?;
        if !holds(&observation) {
            observed.lying.push(observation.key.clone());
        }
        if let Some(twice) = observed.seen.insert(observation.key.clone(), observation) {
            return Err(format!("{} {} was observed twice", twice.key.method.name(), twice.key.url));
        }
    }
    Ok(observed)
}

/// Inputs of jobs that were taken from disk, as an evidence file says it.
pub fn supplied(evidence: &Value) -> Result<BTreeMap<String, Sha256>, String> {
    match evidence.get("supplied") {
        Some(_) => part(evidence, "supplied"),
        None => Ok(BTreeMap::new()),
    }
}

/// What was delivered, as an evidence file says it.
pub fn delivered(evidence: &Value) -> Result<Delivery, String> {
    part(evidence, "delivery")
}

/// One observation, inline or by hash. What is inline must be all that an observation has and nothing else, or part of
/// it would stand in the file unjudged.
fn observation(entry: &Value, load: &dyn Fn(&Sha256) -> Option<Vec<u8>>) -> Result<Observation, String> {
    match entry.get("sha256") {
        None => {
            let observation: Observation =
                serde_json::from_value(entry.clone()).map_err(|why| format!("an observation cannot be read: {why}"))?;
            if serde_json::to_value(&observation).ok().as_ref() != Some(entry) {
                let url = text::plain(&observation.key.url, SHOWN_CHARS);
                return Err(format!("the observation of {url} has fields that no observation has"));
            }
            Ok(observation)
        }
        Some(_) => {
            let hash: Sha256 = part(entry, "sha256")?;
            let bytes =
                load(&hash).ok_or_else(|| format!("the observation {hash} is not in the file and not at hand"))?;
            if Sha256::of(&bytes) != hash {
                return Err(format!("the observation {hash} has other bytes than its name says"));
            }
            Observation::from_bytes(&bytes).ok_or_else(|| format!("the observation {hash} cannot be read"))
        }
    }
}

/// Whether the content is what its own hash says, as far as it was kept.
fn holds(observation: &Observation) -> bool {
    let Seen::Response(response) = &observation.seen else { return true };
    let content = &response.content;
    let kept = content.kept.len() as u64;
    kept < content.bytes || (kept == content.bytes && Sha256::of(&content.kept) == content.sha256)
}

fn differ(differences: &mut Vec<String>, what: &str, recorded: Option<&Value>, now: &[TestResult]) {
    let now = results(now);
    let recorded = recorded.unwrap_or(&Value::Null);
    if *recorded == now {
        return;
    }
    let (then, now) = (recorded.as_array().map(Vec::as_slice).unwrap_or_default(), now);
    let now = now.as_array().map(Vec::as_slice).unwrap_or_default();
    if then.len() != now.len() {
        differences.push(format!("{what}: recorded {} results, now {}", then.len(), now.len()));
        return;
    }
    for (n, (then, now)) in then.iter().zip(now).enumerate() {
        changed_fields(differences, &format!("{what}, test {}", n + 1), then, now);
    }
}

/// The fields in which two results differ, those of their evidence one by one.
fn changed_fields(differences: &mut Vec<String>, what: &str, then: &Value, now: &Value) {
    let (Some(before), Some(after)) = (then.as_object(), now.as_object()) else {
        if then != now {
            differences.push(format!("{what}: recorded {}, now {}", shown(then), shown(now)));
        }
        return;
    };
    for field in before.keys().chain(after.keys().filter(|field| !before.contains_key(*field))) {
        match (before.get(field), after.get(field)) {
            (then, now) if then == now => {}
            (Some(then @ Value::Object(_)), Some(now @ Value::Object(_))) if field == "evidencia" => {
                changed_fields(differences, &format!("{what}, {field}"), then, now);
            }
            (then, now) => {
                let said = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), shown);
                differences.push(format!("{what}, {field}: recorded {}, now {}", said(then), said(now)));
            }
        }
    }
}

const SHOWN_CHARS: usize = 300;
