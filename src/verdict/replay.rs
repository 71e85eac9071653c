//! Judging stored observations again, offline (V61). The recorded results must come out again to the byte; what does not
//! is told, one line for each difference.

use super::document::results;
use super::evidence::{Stated, part};
use super::{Joint, Look, RULES, Verdict, agree};
use crate::probe::exit_0::JobRun;
use crate::probe::observation::{FetchKey, Observation, Seen};
use crate::probe::plan::Suite;
use crate::probe::result::TestResult;
use crate::time::Timestamp;
use crate::wire::Sha256;
use serde_json::Value;
use std::collections::BTreeMap;

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    pub joint: Joint,
    pub results: Vec<TestResult>,
    /// The rules that the evidence was judged by; the recomputed results are by [`RULES`].
    pub rules: String,
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
    let recorded = evidence.get("looks").and_then(Value::as_array).ok_or("the evidence file has no looks")?;
    let mut differences = Vec::new();
    let mut agreed: Option<Look> = None;
    for (n, record) in recorded.iter().enumerate() {
        let look = judge_look(&suite, &stated, record, load).map_err(|why| format!("look {}: {why}", n + 1))?;
        differ(&mut differences, &format!("look {}", n + 1), record.get("resultados"), &look.results);
        agreed = Some(match agreed {
            None => look,
            Some(before) => agree(&before, &look),
        });
    }
    let agreed = agreed.ok_or("the evidence file has no looks")?;
    let joint = agreed.joint();
    differ(&mut differences, "the verdict", evidence.get("resultados"), &agreed.results);
    let answer = [
        ("verdict", Value::from(joint.verdict.word())),
        ("pasa", Value::Bool(joint.verdict == Verdict::Pass)),
        ("indeciso", Value::Bool(joint.verdict == Verdict::Undecided)),
        ("razon", Value::from(joint.razon.as_str())),
    ];
    for (key, now) in answer {
        let then = evidence.get(key).unwrap_or(&Value::Null);
        if *then != now {
            differences.push(format!("{key}: recorded {then}, now {now}"));
        }
    }
    if !differences.is_empty() && rules != RULES {
        differences.push(format!("the evidence was judged by {rules:?}, and this program judges by {RULES:?}"));
    }
    Ok(Replayed { joint, results: agreed.results, rules, differences })
}

fn judge_look(
    suite: &Suite,
    stated: &Stated,
    record: &Value,
    load: &dyn Fn(&Sha256) -> Option<Vec<u8>>,
) -> Result<Look, String> {
    let at: Timestamp = part(record, "at")?;
    let runs: BTreeMap<usize, Vec<JobRun>> = match record.get("runs") {
        None => BTreeMap::new(),
        Some(_) => part(record, "runs")?,
    };
    let list = record.get("observations").and_then(Value::as_array).ok_or("there are no observations")?;
    let mut seen: BTreeMap<FetchKey, Observation> = BTreeMap::new();
    for entry in list {
        let observation = observation(entry, load)?;
        if let Some(twice) = seen.insert(observation.key.clone(), observation) {
            return Err(format!("{} {} was observed twice", twice.key.method.name(), twice.key.url));
        }
    }
    let mut look = Look::new(at, suite.judge_with_jobs(&seen, &runs, &stated.delivery), &seen);
    look.attestations = runs.values().flatten().filter_map(|run| run.attestation).collect();
    Ok(look)
}

/// One observation, inline or by hash, whose content is what its own hash says as far as it was kept.
fn observation(entry: &Value, load: &dyn Fn(&Sha256) -> Option<Vec<u8>>) -> Result<Observation, String> {
    let observation = match entry.get("sha256") {
        None => serde_json::from_value::<Observation>(entry.clone())
            .map_err(|why| format!("an observation cannot be read: {why}"))?,
        Some(_) => {
            let hash: Sha256 = part(entry, "sha256")?;
            let bytes =
                load(&hash).ok_or_else(|| format!("the observation {hash} is not in the file and not at hand"))?;
            if Sha256::of(&bytes) != hash {
                return Err(format!("the observation {hash} has other bytes than its name says"));
            }
            Observation::from_bytes(&bytes).ok_or_else(|| format!("the observation {hash} cannot be read"))?
        }
    };
    if let Seen::Response(response) = &observation.seen {
        let content = &response.content;
        let kept = content.kept.len() as u64;
        if kept > content.bytes || (kept == content.bytes && Sha256::of(&content.kept) != content.sha256) {
            return Err(format!("the content of {} is not what its hash says", observation.key.url));
        }
    }
    Ok(observation)
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
    for (n, (then, now)) in then.iter().zip(now).enumerate().filter(|(_, (then, now))| then != now) {
        differences.push(format!("{what}, test {}: recorded {then}, now {now}", n + 1));
    }
}
