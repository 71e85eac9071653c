//! The tests of a contract together: what to fetch for them, and how they are judged on what was seen (V2, V6, V10-V12,
//! V75, V76).
//!
//! A suite is built from the contract alone, so that every house that can run its tests plans the same requests and
//! judges the same observations to the same bytes.

use super::content;
use super::exit_0::{Came, Exit0, JobRun};
use super::json::{Document, Fault, Kind, Value};
use super::observation::{Cause, FetchKey, FetchPlan, Method, Observation};
use super::result::{Evidence, Outcome, TestResult, UNENFORCED};
use super::sha256::Delivery;
pub use super::test::TestType;
use super::test::{Claim, Parsed, Test, described};
use super::text;
use super::url::{Target, UrlPolicy};
use crate::limits;
use crate::wire::Sha256;
use std::collections::{BTreeMap, BTreeSet};

/// What this host can run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub types: BTreeSet<TestType>,
    /// The wall limit of the job policy, seconds: a test may not ask for more (V44).
    pub job_wall_s: u64,
    /// Why the sandbox cannot be enforced, where that is why `exit_0` is not among the types (V81).
    pub unenforced: Option<String>,
    /// What jobs are run under.
    pub jobs: Option<JobRules>,
}

/// The policy of jobs as evidence names it: two looks under different ones do not confirm each other.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct JobRules {
    pub policy: String,
    /// Of the values in force.
    pub sha256: Sha256,
    /// How many runs of one look must agree.
    pub runs: u32,
}

/// The tests of one contract.
#[derive(Clone, Debug, Default)]
pub struct Suite {
    tests: Vec<Planned>,
    /// Why the suite as a whole cannot be judged (V75); then no test of it is run.
    refused: Option<String>,
    /// The tests as text, for evidence.
    source: String,
    /// Inputs of jobs that were supplied from disk, by path.
    supplied: BTreeMap<String, Sha256>,
}

/// One test as it will be judged.
#[derive(Clone, Debug)]
pub struct Planned {
    pub test_type: String,
    pub name: Option<String>,
    pub parsed: Parsed,
    /// This host would run it, could it enforce the sandbox (V81).
    pub unenforced: bool,
}

/// Why a suite was not accepted (V11).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Objection {
    /// Position from one, as people count.
    test: Option<usize>,
    rule: &'static str,
    reason: String,
}

impl Capabilities {
    /// Everything but jobs.
    pub fn network() -> Capabilities {
        let types = TestType::ALL.iter().copied().filter(|t| *t != TestType::Exit0).collect();
        Capabilities { types, ..Capabilities::default() }
    }

    /// Everything, with jobs that may take up to `job_wall_s` seconds.
    pub fn with_jobs(job_wall_s: u64) -> Capabilities {
        Capabilities { types: TestType::ALL.iter().copied().collect(), job_wall_s, ..Capabilities::default() }
    }

    /// The types by name, in a stable order: what the card of the arbiter declares.
    pub fn names(&self) -> Vec<&'static str> {
        self.types.iter().map(|t| t.name()).collect()
    }
}

/// Whether terms declare tests at all: `verify`, or its old name (V12). `null` is absent.
pub fn declared(terms: &serde_json::Value) -> Option<&serde_json::Value> {
    ["verify", "pruebas"].iter().find_map(|key| terms.get(*key).filter(|tests| !tests.is_null()))
}

/// Whether a house may lock money behind the tests of these terms (V11). Terms without tests are accepted: nobody will
/// judge them. The error names the test and the rule, and is the reason of a refusal 400.
pub fn acceptable(terms: &serde_json::Value, policy: &UrlPolicy, capabilities: &Capabilities) -> Result<(), String> {
    let Some(tests) = declared(terms) else { return Ok(()) };
    Suite::from_tests(tests, policy, capabilities).acceptable()
}

impl Suite {
    /// The tests of a contract's terms; a suite without tests where there are none.
    pub fn from_terms(terms: &serde_json::Value, policy: &UrlPolicy, capabilities: &Capabilities) -> Suite {
        match declared(terms) {
            Some(tests) => Suite::from_tests(tests, policy, capabilities),
            None => Suite { source: NO_TESTS.to_owned(), ..Suite::default() },
        }
    }

    /// The text that [`Suite::from_terms`] judges, without reading it.
    pub fn source_of(terms: &serde_json::Value) -> String {
        declared(terms).map_or_else(|| NO_TESTS.to_owned(), serde_json::Value::to_string)
    }

    /// One test object or a list of them.
    pub fn from_tests(tests: &serde_json::Value, policy: &UrlPolicy, capabilities: &Capabilities) -> Suite {
        let source = tests.to_string();
        match Document::read(&source) {
            Ok(document) => Suite::from_value(document.root(), source, policy, capabilities),
            Err(fault) => Suite { refused: Some(unreadable(&fault)), source, ..Suite::default() },
        }
    }

    /// The same from a text that keeps every digit of its numbers: what `replay` reads, and what a test file holds.
    pub fn from_text(text: &str, policy: &UrlPolicy, capabilities: &Capabilities) -> Result<Suite, Fault> {
        let document = Document::read(text)?;
        Ok(Suite::from_value(document.root(), text.to_owned(), policy, capabilities))
    }

    /// Tests inside a larger document, for example the terms inside a quote in a file.
    pub fn from_part(tests: Value<'_>, policy: &UrlPolicy, capabilities: &Capabilities) -> Suite {
        Suite::from_value(tests, tests.to_text(), policy, capabilities)
    }

    fn from_value(tests: Value<'_>, source: String, policy: &UrlPolicy, capabilities: &Capabilities) -> Suite {
        let list: Vec<Value<'_>> = match tests.kind() {
            Kind::Array => tests.items().collect(),
            _ => vec![tests],
        };
        let refused = if source.len() > limits::TESTS_DOC_BYTES_MAX {
            let most = limits::TESTS_DOC_BYTES_MAX;
            Some(format!("the tests have {} bytes and at most {most} are accepted", source.len()))
        } else if list.len() > limits::TESTS_MAX {
            Some(format!("there are {} tests and at most {} are accepted", list.len(), limits::TESTS_MAX))
        } else {
            None
        };
        let tests = match refused {
            Some(_) => Vec::new(),
            None => list.into_iter().map(|test| plan(test, policy, capabilities)).collect(),
        };
        Suite { tests, refused, source, supplied: BTreeMap::new() }
    }

    /// The same tests as those of a contract that a house accepted. A house refuses malformed tests (V11), so what is
    /// malformed here was well formed under the rules and the policy of that day: this host cannot judge it today, and
    /// nobody fails for that.
    pub fn accepted(mut self) -> Suite {
        for planned in &mut self.tests {
            if let Parsed::Malformed { rule, reason } = &planned.parsed {
                planned.parsed = Parsed::Unjudgeable {
                    cause: Cause::Host,
                    reason: format!(
                        "accepted under other rules or another policy; today rule {rule} refuses it: {reason}"
                    ),
                };
            }
        }
        self
    }

    /// The same suite in a dry run that has these inputs of jobs at hand, by path, and asks nobody for them.
    pub fn supplied(mut self, inputs: BTreeMap<String, Sha256>) -> Suite {
        self.supplied = inputs;
        self
    }

    pub fn tests(&self) -> &[Planned] {
        &self.tests
    }

    /// The tests as they were given, as JSON text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Why the suite is refused as a whole, if it is.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Whether a house may lock money behind these tests (V11).
    pub fn acceptable(&self) -> Result<(), String> {
        match self.objection() {
            None => Ok(()),
            Some(Objection { test: Some(n), rule, reason }) => {
                Err(format!("test {n} is refused by rule {rule}: {reason}"))
            }
            Some(Objection { test: None, rule, reason }) => {
                Err(format!("the tests are refused by rule {rule}: {reason}"))
            }
        }
    }

    /// One request per URL, method and Accept, reading as far as the tests that share it need (V6). `timeout_ms` is the
    /// deadline of each (V25). What a job takes in is not among them: see [`Suite::input_fetches`].
    pub fn fetches(&self, timeout_ms: u64) -> Vec<FetchPlan> {
        let inputs = self.input_keys();
        self.needs(timeout_ms).into_iter().filter(|plan| !inputs.contains(&plan.key)).collect()
    }

    /// The requests for the inputs of jobs, each once, in the order of the tests. They say what the other tests need of
    /// that URL; how much of it is read for the job is a matter of the host that places it.
    pub fn input_fetches(&self, timeout_ms: u64) -> Vec<FetchPlan> {
        let needs = self.needs(timeout_ms);
        let plan = |key: FetchKey| match needs.iter().find(|plan| plan.key == key) {
            Some(shared) => shared.clone(),
            None => FetchPlan { key, read: 0, keep: 0, timeout_ms },
        };
        self.input_keys().into_iter().map(plan).collect()
    }

    fn needs(&self, timeout_ms: u64) -> Vec<FetchPlan> {
        let mut needs: BTreeMap<FetchKey, (u64, u64)> = BTreeMap::new();
        for test in self.ready() {
            let Some((key, read, keep)) = fetch(&test.claim) else { continue };
            let need = needs.entry(key).or_default();
            *need = (need.0.max(read), need.1.max(keep));
        }
        needs.into_iter().map(|(key, (read, keep))| FetchPlan { key, read, keep, timeout_ms }).collect()
    }

    fn input_keys(&self) -> Vec<FetchKey> {
        let mut keys = Vec::new();
        for input in self.jobs().iter().flat_map(|(_, job)| &job.inputs) {
            let key = input.key();
            if !self.supplied.contains_key(&input.path) && !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// What the inputs of a job are judged on.
    pub fn came<'a>(&'a self, seen: &'a BTreeMap<FetchKey, Observation>, delivery: &'a Delivery) -> Came<'a> {
        Came { seen, delivery, supplied: &self.supplied }
    }

    /// The jobs that this host is to run, by the position of their test.
    pub fn jobs(&self) -> Vec<(usize, &Exit0)> {
        let jobs = self.tests.iter().enumerate().filter_map(|(n, planned)| match &planned.parsed {
            Parsed::Ready(test) => match &test.claim {
                Claim::Exit0(job) => Some((n, job)),
                _ => None,
            },
            _ => None,
        });
        jobs.collect()
    }

    /// Judges every test on what was seen. Suites without jobs need nothing else.
    pub fn judge(&self, seen: &BTreeMap<FetchKey, Observation>, delivery: &Delivery) -> Vec<TestResult> {
        self.judge_with_jobs(seen, &BTreeMap::new(), delivery)
    }

    /// The same, with the runs of each job by the position of its test.
    pub fn judge_with_jobs(
        &self,
        seen: &BTreeMap<FetchKey, Observation>,
        runs: &BTreeMap<usize, Vec<JobRun>>,
        delivery: &Delivery,
    ) -> Vec<TestResult> {
        if let Some(reason) = &self.refused {
            return vec![TestResult {
                outcome: Outcome::Undecided(Cause::Contract),
                test_type: "verify".to_owned(),
                name: None,
                reason: format!("{reason}; no house accepts this contract"),
                evidence: Evidence::new(),
            }];
        }
        let hashes: BTreeMap<&FetchKey, String> = seen.iter().map(|(key, seen)| (key, seen.sha256().hex())).collect();
        let judge = |(n, planned): (usize, &Planned)| {
            let mut evidence = Evidence::new();
            let (outcome, reason) = match &planned.parsed {
                Parsed::Malformed { rule, reason } => {
                    evidence.insert("rule".to_owned(), serde_json::Value::from(*rule));
                    (Outcome::Fail, format!("malformed, rule {rule}: {reason}"))
                }
                Parsed::Unjudgeable { cause, reason } => (Outcome::Undecided(*cause), reason.clone()),
                Parsed::Ready(test) => {
                    let observed = fetch(&test.claim).map(|(key, _, _)| (seen.get(&key), hashes.get(&key)));
                    let runs = runs.get(&n).map_or(&[][..], Vec::as_slice);
                    judge_claim(&test.claim, observed, runs, self.came(seen, delivery), &mut evidence)
                }
            };
            if planned.unenforced {
                evidence.insert(UNENFORCED.to_owned(), serde_json::Value::Bool(true));
            }
            TestResult { outcome, test_type: planned.test_type.clone(), name: planned.name.clone(), reason, evidence }
        };
        self.tests.iter().enumerate().map(judge).collect()
    }

    fn ready(&self) -> impl Iterator<Item = &Test> {
        self.tests.iter().filter_map(|planned| match &planned.parsed {
            Parsed::Ready(test) => Some(test.as_ref()),
            _ => None,
        })
    }

    fn objection(&self) -> Option<Objection> {
        if let Some(reason) = &self.refused {
            return Some(Objection { test: None, rule: "V11", reason: reason.clone() });
        }
        if self.tests.is_empty() {
            return Some(Objection { test: None, rule: "V2", reason: "the list of tests is empty".to_owned() });
        }
        self.tests.iter().enumerate().find_map(|(n, planned)| {
            let (rule, reason) = match &planned.parsed {
                Parsed::Ready(_) => return None,
                Parsed::Malformed { rule, reason } => (*rule, reason),
                Parsed::Unjudgeable { reason, .. } => ("V11", reason),
            };
            Some(Objection { test: Some(n + 1), rule, reason: format!("{}: {reason}", planned.test_type) })
        })
    }
}

fn plan(test: Value<'_>, policy: &UrlPolicy, capabilities: &Capabilities) -> Planned {
    let (test_type, name) = described(test);
    let parsed = match Test::read(test, policy) {
        Parsed::Ready(test) => runnable(test, capabilities),
        flawed => flawed,
    };
    let missing = matches!(parsed, Parsed::Unjudgeable { cause: Cause::Host, .. });
    let unenforced = missing && test_type == TestType::Exit0.name() && capabilities.unenforced.is_some();
    Planned { test_type, name, parsed, unenforced }
}

fn runnable(test: Box<Test>, capabilities: &Capabilities) -> Parsed {
    let test_type = test.test_type();
    let host = |reason: String| Parsed::Unjudgeable { cause: Cause::Host, reason };
    if !capabilities.types.contains(&test_type) {
        return host(match &capabilities.unenforced {
            Some(why) if test_type == TestType::Exit0 => {
                format!("the sandbox cannot be enforced here: {}", text::plain(why, UNENFORCED_CHARS))
            }
            _ => format!("this host does not run tests of type {}", test_type.name()),
        });
    }
    if let Claim::Exit0(Exit0 { within_s: Some(within), .. }) = &test.claim
        && *within > capabilities.job_wall_s
    {
        let most = capabilities.job_wall_s;
        return host(format!("within is {within} s, and this host gives a command at most {most} s"));
    }
    Parsed::Ready(test)
}

/// The snapshot that a claim is judged on, how much of it is read, and how much of that is kept.
fn fetch(claim: &Claim) -> Option<(FetchKey, u64, u64)> {
    let get =
        |target: &Target, accept: &str, need: content::Need| (target.key(Method::Get, accept), need.read, need.keep);
    match claim {
        Claim::HttpStatus(test) => Some((test.target.key(test.method, ACCEPT_ANY), 0, 0)),
        Claim::Header(test) => Some((test.target.key(Method::Get, ACCEPT_ANY), 0, 0)),
        Claim::Sha256(test) => test.target.as_ref().map(|target| get(target, ACCEPT_ANY, test.need())),
        Claim::JsonPath(test) => Some(get(&test.target, ACCEPT_JSON, test.need())),
        Claim::Regex(test) => Some(get(&test.target, ACCEPT_ANY, test.need())),
        Claim::Size(test) => Some(get(&test.target, ACCEPT_ANY, test.need())),
        Claim::Exit0(_) => None,
    }
}

fn judge_claim(
    claim: &Claim,
    observed: Option<(Option<&Observation>, Option<&String>)>,
    runs: &[JobRun],
    came: Came<'_>,
    evidence: &mut Evidence,
) -> content::Decision {
    let unseen = || (Outcome::Undecided(Cause::Ours), "the url was not observed".to_owned());
    let seen = match observed {
        None => None,
        Some((Some(observation), hash)) => {
            *evidence = content::evidence(observation, hash.map_or("", String::as_str));
            Some(observation)
        }
        Some((None, _)) => None,
    };
    if let Some(target) = target(claim) {
        evidence.insert("url".to_owned(), serde_json::Value::from(target.text()));
    }
    match (claim, seen) {
        (Claim::Sha256(test), _) if test.target.is_none() => test.judge_delivery(came.delivery, evidence),
        (Claim::Exit0(test), _) => test.judge(runs, came, evidence),
        (_, None) => unseen(),
        (Claim::HttpStatus(test), Some(seen)) => test.judge(seen, evidence),
        (Claim::Header(test), Some(seen)) => test.judge(seen, evidence),
        (Claim::Sha256(test), Some(seen)) => test.judge(seen, evidence),
        (Claim::JsonPath(test), Some(seen)) => test.judge(seen, evidence),
        (Claim::Regex(test), Some(seen)) => test.judge(seen, evidence),
        (Claim::Size(test), Some(seen)) => test.judge(seen, evidence),
    }
}

fn target(claim: &Claim) -> Option<&Target> {
    match claim {
        Claim::HttpStatus(test) => Some(&test.target),
        Claim::Sha256(test) => test.target.as_ref(),
        Claim::JsonPath(test) => Some(&test.target),
        Claim::Regex(test) => Some(&test.target),
        Claim::Size(test) => Some(&test.target),
        Claim::Header(test) => Some(&test.target),
        Claim::Exit0(_) => None,
    }
}

fn unreadable(fault: &Fault) -> String {
    format!("the tests cannot be read: {fault}")
}

const NO_TESTS: &str = "[]";
pub const ACCEPT_ANY: &str = "*/*";
pub const ACCEPT_JSON: &str = "application/json";
const UNENFORCED_CHARS: usize = 200;
