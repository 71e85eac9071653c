//! From results to a verdict: the joint answer of all tests (V2), the agreement of two looks (V5, V80), and the documents
//! that carry it (V62). Nothing here signs, stores or sends.

mod document;
mod evidence;
pub mod policy;
mod replay;

pub use document::{Document, check_json};
pub use evidence::{Case, EvidenceName, LookRecord, exported, named_by_hash};
pub use policy::ProbePolicy;
pub use replay::{Observed, Replayed, delivered, observed, replay, replay_with, supplied};

use crate::limits;
use crate::probe::exit_0::JobRun;
use crate::probe::observation::{Cause, FetchKey, Observation};
use crate::probe::result::{Outcome, TestResult};
use crate::probe::text;
use crate::time::Timestamp;
use crate::wire::Sha256;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The version of the rules that this program judges by; part of every verdict.
pub const RULES: &str = "verifica.rules/1";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    Pass,
    Fail,
    Undecided,
}

/// What all the tests of a contract say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joint {
    pub verdict: Verdict,
    pub razon: String,
}

/// All tests of a contract, run once.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// When it began.
    pub at: Timestamp,
    pub results: Vec<TestResult>,
    /// The name of every observation that the results stand on.
    pub observations: BTreeMap<FetchKey, Sha256>,
    /// The runs of each job, by the position of its test.
    pub runs: BTreeMap<usize, Vec<JobRun>>,
}

/// A look, with what it saw.
#[derive(Clone, Debug)]
pub struct Looked {
    pub look: Look,
    pub seen: BTreeMap<FetchKey, Observation>,
    /// The signed documents of its runs; the look names them by hash.
    pub attestations: Vec<Value>,
}

/// How looks are made, as far as a verdict has to say it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Policy {
    pub name: String,
    /// Between two looks.
    pub confirm_after_ms: u64,
    /// Of the policy file.
    pub sha256: Sha256,
}

impl Verdict {
    pub const fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Undecided => "undecided",
        }
    }
}

impl Look {
    pub fn new(at: Timestamp, results: Vec<TestResult>, seen: &BTreeMap<FetchKey, Observation>) -> Look {
        let observations = seen.iter().map(|(key, seen)| (key.clone(), seen.sha256())).collect();
        Look { at, results, observations, runs: BTreeMap::new() }
    }

    /// The attestations of its runs, in the order of the tests.
    pub fn attestations(&self) -> Vec<Sha256> {
        self.runs.values().flatten().filter_map(|run| run.attestation).collect()
    }

    pub fn joint(&self) -> Joint {
        joint(&self.results)
    }

    /// For the store: a look that waits for its second.
    pub fn to_json(&self) -> Value {
        json!({
            "at": self.at.to_string(),
            "resultados": document::results(&self.results),
            "observations": document::observations(&self.observations),
            "runs": self.runs,
        })
    }

    /// What [`Look::to_json`] wrote.
    pub fn from_json(value: &Value) -> Option<Look> {
        let results = value.get("resultados")?.as_array()?;
        let named = value.get("observations")?.as_array()?.iter().map(|entry| {
            let key = FetchKey::deserialize(entry).ok()?;
            Some((key, Sha256::deserialize(entry.get("sha256")?).ok()?))
        });
        Some(Look {
            at: Timestamp::deserialize(value.get("at")?).ok()?,
            results: results.iter().map(TestResult::from_json).collect::<Option<_>>()?,
            observations: named.collect::<Option<_>>()?,
            runs: Deserialize::deserialize(value.get("runs")?).ok()?,
        })
    }
}

/// Any undecided: undecided, even if another failed. Else any fail: fail. Else pass. No tests: undecided (V2).
pub fn joint(results: &[TestResult]) -> Joint {
    let count = |word: &str| results.iter().filter(|r| r.outcome.word() == word).count();
    let (undecided, failed) = (count("undecided"), count("fail"));
    let (verdict, told) = match (results.len(), undecided, failed) {
        (0, _, _) => {
            return Joint { verdict: Verdict::Undecided, razon: "there are no tests to judge".to_owned() };
        }
        (_, 1.., _) => (Verdict::Undecided, undecided),
        (_, _, 1..) => (Verdict::Fail, failed),
        (all, _, _) => (Verdict::Pass, all),
    };
    let tests = if results.len() == 1 { "test" } else { "tests" };
    let head = match verdict {
        Verdict::Pass => format!("{told} {tests} passed"),
        Verdict::Fail => format!("{told} of {} {tests} failed", results.len()),
        Verdict::Undecided => format!("{told} of {} {tests} undecided", results.len()),
    };
    let reasons: Vec<String> =
        results.iter().filter(|result| result.outcome.word() == verdict.word()).map(one_line).collect();
    let razon = text::plain(&format!("{head}: {}", reasons.join(" · ")), limits::VERDICT_REASON_CHARS_MAX - 1);
    Joint { verdict, razon }
}

/// What two looks say together (V5). Two that pass, or two that fail for whatever reasons, agree, and the later one is
/// told. If one is undecided, that is the answer. If one passes and the other fails, every test that changed its answer
/// is undecided: the server contradicts itself.
pub fn agree(first: &Look, second: &Look) -> Look {
    let asked = |look: &Look| look.results.iter().map(|r| (r.test_type.clone(), r.name.clone())).collect::<Vec<_>>();
    if asked(first) != asked(second) {
        return Look { results: second.results.iter().map(other_tests).collect(), ..second.clone() };
    }
    match (first.joint().verdict, second.joint().verdict) {
        (_, Verdict::Undecided) => second.clone(),
        (Verdict::Undecided, _) => first.clone(),
        (a, b) if a == b => second.clone(),
        _ => {
            let results =
                first.results.iter().zip(&second.results).map(|(before, after)| changed(before, after)).collect();
            Look { results, ..second.clone() }
        }
    }
}

fn other_tests(after: &TestResult) -> TestResult {
    TestResult {
        outcome: Outcome::Undecided(Cause::Ours),
        reason: "the two looks ran different tests".to_owned(),
        ..after.clone()
    }
}

fn changed(before: &TestResult, after: &TestResult) -> TestResult {
    if before.outcome == after.outcome {
        return after.clone();
    }
    TestResult {
        outcome: Outcome::Undecided(Cause::Origin),
        reason: format!(
            "two looks disagree: first {} ({}), then {} ({})",
            before.outcome.word(),
            text::plain(&before.reason, LOOK_REASON_CHARS),
            after.outcome.word(),
            text::plain(&after.reason, LOOK_REASON_CHARS)
        ),
        ..after.clone()
    }
}

fn one_line(result: &TestResult) -> String {
    let mut line = result.test_type.clone();
    if let Some(name) = &result.name {
        line = format!("{line} {}", text::quote(name, limits::TEST_NAME_CHARS_MAX));
    }
    if let Some(url) = result.evidence.get("url").and_then(Value::as_str) {
        line = format!("{line} {}", text::plain(url, LINE_URL_CHARS));
    }
    if let Some(cause) = result.outcome.cause() {
        line = format!("{line} ({})", cause.name());
    }
    format!("{line}: {}", result.reason)
}

const LINE_URL_CHARS: usize = 120;
const LOOK_REASON_CHARS: usize = 200;
