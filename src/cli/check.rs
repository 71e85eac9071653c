//! `verifica check`: run the tests of a contract here and now, and say what the arbiter would say.
//!
//! The tests are planned, fetched, judged and joined by the functions that the arbiter of a house uses; this file only
//! reads the file, asks for looks and prints. It sends nothing to any house and moves nothing.

mod jobs;
mod show;
mod spec;

use super::block_on;
use super::json_source;
use super::keyfile;
use super::output::{Failure, Out, Style, clean};
use super::settings;
use crate::client::agent::SystemClock;
use crate::config::show_duration;
use crate::limits;
use crate::observe::jobs::Order;
use crate::observe::look::{Eyes, Looked, Reports, look_and_report};
use crate::observe::{Fetcher, Override};
use crate::probe::file::FileKind;
use crate::probe::plan::{Capabilities, Suite};
use crate::probe::result::TestResult;
use crate::probe::sha256::Delivery;
use crate::probe::url::UrlPolicy;
use crate::refusal::Exit;
use crate::verdict::{self, Case, Joint, Look, LookRecord, Policy, ProbePolicy, Verdict, agree, check_json, joint};
use crate::wire::digest::Sha256;
use crate::wire::json::canonical_sha256;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use spec::Spec;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  verifica check entrega.json
  verifica check quote.json --json
  verifica check tests.toml --resolve api.forja.example:443:127.0.0.1:8443 --ca own-ca.pem --allow-private
  verifica check tests.json --evidence-out seen.json && verifica replay seen.json
  verifica check tests.json --offline seen.json
  verifica check tests.json --input work.tar.gz=./work.tar.gz     (jobs of exit_0 tests)

Asks the servers that the tests name, and nobody else. With --config the addresses, roots and names of that
house's [probe] section, and its pace, hold here too.")]
pub struct Args {
    /// A test, a list of tests, terms, a quote or a contract: JSON, or TOML with [[test]]; - for stdin
    file: PathBuf,
    /// How to look: the name of a policy, or a file with one [default: the configuration's with --config, else default]
    #[arg(long, value_name = "NAME|FILE")]
    policy: Option<String>,
    /// A PEM file of roots to trust beside the compiled-in ones
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
    /// Reach a name at this address instead
    #[arg(long, value_name = "HOST:PORT:ADDR[:PORT2]", value_parser = Fetcher::parse_override)]
    resolve: Vec<Override>,
    /// What jobs of exit_0 tests may do: the name of a policy, or a file with one [default: the configuration's with
    /// --config, else default]
    #[arg(long, value_name = "NAME|FILE")]
    job_policy: Option<String>,
    /// Take an input of a job from disk and not from its URL; its hash is still checked
    #[arg(long, value_name = "PATH=FILE", value_parser = jobs::supplied, conflicts_with = "offline")]
    input: Vec<jobs::Supplied>,
    /// Permit loopback and private addresses; the arbiter does not
    #[arg(long)]
    allow_private: bool,
    /// The hash that the delivery declares
    #[arg(long, value_name = "HEX", value_parser = evidence_hash)]
    evidence_sha256: Option<Sha256>,
    /// Keep what was seen in a new file, for replay
    #[arg(long, value_name = "FILE")]
    evidence_out: Option<PathBuf>,
    /// Make one look, and one run of each job; the arbiter makes two looks that must agree
    #[arg(long, conflicts_with_all = ["repeat", "offline"])]
    once: bool,
    /// Make so many looks, and let all of them agree
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), conflicts_with = "offline")]
    repeat: Option<u32>,
    /// Write the results as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Ask nobody: judge what this evidence file holds
    #[arg(long, value_name = "FILE")]
    offline: Option<PathBuf>,
}

/// Everything that was seen, and what it came to.
struct Outcome {
    looks: Vec<Looked>,
    /// Of the last look.
    reports: Reports,
    agreed: Look,
    took: Duration,
}

pub fn run(args: &Args, config: Option<&Path>, out: &Out) -> Result<Exit, Failure> {
    let bytes = super::agent::read_bytes(&args.file)?;
    let mut spec = Spec::read(&args.file, &bytes, out)?;
    if let Some(declared) = args.evidence_sha256 {
        spec.file.delivery.evidence_sha256 = Some(declared.hex());
    }
    let house = config.map(|path| settings::load(Some(path), out)).transpose()?;
    let policy = match (&args.policy, &house) {
        (Some(name), _) => settings::probe_policy(name)?,
        (None, Some(house)) => house.policy(),
        (None, None) => settings::probe_policy("default")?,
    };
    let (fetching, urls) = match &house {
        Some(house) => settings::fetching_of(house)?,
        None => settings::public_fetching(),
    };
    let urls = UrlPolicy {
        addresses: crate::probe::address::AddressRule { allow_private: args.allow_private, ..urls.addresses },
    };
    let job_policy = match (&args.job_policy, &house) {
        (Some(name), _) => settings::job_policy(name)?,
        (None, Some(house)) => settings::job_policy(&house.arbiter.job_policy)?,
        (None, None) => settings::job_policy("default")?,
    };
    let wanted = jobs::any(&Suite::from_part(spec.file.tests.root(), &urls, &Capabilities::network()));
    let here = match &args.offline {
        None => jobs::here(job_policy, wanted)?,
        // Nothing is run: what was run is judged, wherever that was.
        Some(_) => {
            jobs::Here { capabilities: Capabilities::with_jobs(job_policy.wall_s()), jobs: None, policy: job_policy }
        }
    };
    let capabilities = &here.capabilities;
    let suite = Suite::from_part(spec.file.tests.root(), &urls, capabilities);
    let suite = if spec.accepted { suite.accepted() } else { suite };
    let order = Order { supplied: jobs::read(&args.input, &suite)?, once: args.once, ..Order::default() };
    let mut supplied = jobs::hashes(&order);
    let started = Instant::now();
    let (looks, reports, suite) = match &args.offline {
        Some(path) => {
            let evidence = json_source::read_file(path, out)?.value;
            supplied = verdict::supplied(&evidence).map_err(|why| unfit(path, why))?;
            let suite = Arc::new(suite.supplied(supplied.clone()));
            (offline(path, &evidence, &suite, &mut spec)?, Reports::new(), suite)
        }
        None => {
            let mut fetching = fetching;
            fetching.allow = urls.addresses.clone();
            fetching.per_host_per_minute = policy.per_host_per_minute;
            fetching.resolve.splice(0..0, args.resolve.iter().cloned());
            for path in &args.ca {
                let pem =
                    std::fs::read(path).map_err(|error| keyfile::cannot(&error, "the roots cannot be read", path))?;
                settings::certificates(&pem, "the roots cannot be used", path)?;
                fetching.extra_ca_pem.push(pem);
            }
            let fetcher = Fetcher::new(fetching).map_err(|error| Failure::usage(error.to_string()))?;
            let eyes = Eyes { fetcher, jobs: here.jobs.clone(), timeout_ms: policy.timeout_ms };
            let suite = Arc::new(suite.supplied(supplied.clone()));
            let (looks, reports) = block_on(looks(&eyes, &suite, &spec, &order, &policy, args, out))?;
            (looks, reports, suite)
        }
    };
    let agreed = looks.iter().map(|looked| looked.look.clone()).reduce(|first, second| agree(&first, &second));
    let agreed = agreed.ok_or_else(|| Failure::usage("the evidence holds no look"))?;
    let outcome = Outcome { looks, reports, agreed, took: started.elapsed() };
    let case = Case {
        tests: suite.source(),
        delivery: &spec.file.delivery,
        urls: &urls,
        capabilities,
        policy: &policy.stated(),
        accepted: spec.accepted,
        supplied: &supplied,
    };
    let evidence = keep_evidence(args, &case, &outcome)?;
    let seen = outcome.looks.last().map(|looked| looked.seen.clone()).unwrap_or_default();
    let rows = show::rows(&spec, &outcome.agreed.results, &seen, &outcome.reports);
    let joint = outcome.agreed.joint();
    let sandbox = wanted.then(|| jobs::sandbox(&here));
    let report =
        Report { args, policy: &policy.stated(), spec: &spec, outcome: &outcome, joint, rows, evidence, sandbox };
    if let Some(path) = &args.junit {
        let text = show::junit(&report.rows, &spec, &report.joint.razon);
        std::fs::write(path, text)
            .map_err(|error| keyfile::cannot(&error, "the JUnit file cannot be written", path))?;
    }
    if out.json {
        out.doc(&report.to_json());
    } else if out.quiet {
        out.line(report.joint.verdict.word());
    } else {
        report.print(out);
    }
    Ok(exit(&outcome.agreed.results))
}

/// Pass 0, fail 1, undecided 3; 4 when a test is undecided for want of a sandbox (V81).
pub fn exit(results: &[TestResult]) -> Exit {
    if results.iter().any(TestResult::unenforced) {
        return Exit::Unenforced;
    }
    match joint(results).verdict {
        Verdict::Pass => Exit::Ok,
        Verdict::Fail => Exit::Fail,
        Verdict::Undecided => Exit::Undecided,
    }
}

async fn looks(
    eyes: &Eyes,
    suite: &Arc<Suite>,
    spec: &Spec,
    order: &Order,
    policy: &ProbePolicy,
    args: &Args,
    out: &Out,
) -> Result<(Vec<Looked>, Reports), Failure> {
    let bar = if out.shows_progress() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    bar.enable_steady_tick(Duration::from_millis(120));
    let requests = suite.fetches(eyes.timeout_ms).len() + suite.input_fetches(eyes.timeout_ms).len();
    let commands = suite.jobs().len();
    let count = if args.once { 1 } else { args.repeat.unwrap_or(2) };
    let pause = show_duration(i64::try_from(policy.confirm_after_ms).unwrap_or(i64::MAX));
    let mut made: Vec<Looked> = Vec::new();
    let mut last = Reports::new();
    for n in 1..=count {
        if n > 1 {
            bar.set_message(format!("look {} of {count} is done; waiting {pause} before the next", n - 1));
            tokio::time::sleep(Duration::from_millis(policy.confirm_after_ms)).await;
        }
        let doing = match commands {
            0 => many(requests, "request"),
            _ => format!("{}, {}", many(requests, "request"), many(commands, "command")),
        };
        bar.set_message(format!("look {n} of {count}: {} in {doing}", many(suite.tests().len(), "test")));
        let (looked, reports) = look_and_report(eyes, suite, &spec.file.delivery, order, &SystemClock).await;
        last = reports;
        let undecided = looked.look.joint().verdict == Verdict::Undecided;
        made.push(looked);
        // Nobody was asked: asking again changes nothing. And an undecided look is not confirmed by another.
        if requests + commands == 0 || (undecided && args.repeat.is_none()) {
            break;
        }
    }
    bar.finish_and_clear();
    Ok((made, last))
}

fn many(n: usize, what: &str) -> String {
    if n == 1 { format!("{n} {what}") } else { format!("{n} {what}s") }
}

/// The looks of an evidence file, judged by the tests of this file. What was delivered is what this file says, and where
/// it speaks of no delivery, what the evidence says.
fn offline(path: &Path, evidence: &Value, suite: &Suite, spec: &mut Spec) -> Result<Vec<Looked>, Failure> {
    let unfit = |why: String| unfit(path, why);
    if spec.file.kind != FileKind::Agreement && spec.file.delivery == Delivery::default() {
        spec.file.delivery = verdict::delivered(evidence).map_err(unfit)?;
    }
    let recorded = evidence.get("looks").and_then(Value::as_array).ok_or_else(|| unfit("it has no looks".into()))?;
    let mut looks = Vec::new();
    for (n, record) in recorded.iter().enumerate() {
        let observed = verdict::observed(record, &|_| None).map_err(|why| unfit(format!("look {}: {why}", n + 1)))?;
        if let Some(key) = observed.lying.first() {
            return Err(unfit(format!("look {}: the content of {} is not what its hash says", n + 1, key.url)));
        }
        let results = suite.judge_with_jobs(&observed.seen, &observed.runs, &spec.file.delivery);
        let look = Look { runs: observed.runs, ..Look::new(observed.at, results, &observed.seen) };
        let names = look.attestations();
        let documents = evidence.get("attestations").and_then(Value::as_array).into_iter().flatten();
        let attestations = documents.filter(|doc| names.contains(&canonical_sha256(doc))).cloned().collect();
        looks.push(Looked { look, seen: observed.seen, attestations });
    }
    Ok(looks)
}

fn unfit(path: &Path, why: String) -> Failure {
    Failure::usage("this is not an evidence file with observations in it").at(path.display()).why(why)
}

struct Kept {
    path: String,
    sha256: Sha256,
}

fn keep_evidence(args: &Args, case: &Case<'_>, outcome: &Outcome) -> Result<Option<Kept>, Failure> {
    let Some(path) = &args.evidence_out else { return Ok(None) };
    let records: Vec<LookRecord<'_>> =
        outcome.looks.iter().map(|looked| LookRecord { look: &looked.look, seen: Some(&looked.seen) }).collect();
    let mut file = case.to_json(&records, &outcome.agreed);
    let attestations: Vec<&Value> = outcome.looks.iter().flat_map(|looked| &looked.attestations).collect();
    if !attestations.is_empty() {
        file["attestations"] = json!(attestations);
    }
    let text = format!("{file}\n");
    keyfile::write_new(path, text.as_bytes(), 0o644)?;
    Ok(Some(Kept { path: path.display().to_string(), sha256: Sha256::of(&text) }))
}

fn counts(results: &[TestResult]) -> (usize, usize, usize) {
    let count = |word: &str| results.iter().filter(|result| result.outcome.word() == word).count();
    (count("pass"), count("fail"), count("undecided"))
}

fn passes(verdict: Verdict) -> Option<bool> {
    match verdict {
        Verdict::Pass => Some(true),
        Verdict::Fail => Some(false),
        Verdict::Undecided => None,
    }
}

/// The answer, ready to be told.
struct Report<'a> {
    args: &'a Args,
    policy: &'a Policy,
    spec: &'a Spec,
    outcome: &'a Outcome,
    joint: Joint,
    rows: Vec<show::Row<'a>>,
    evidence: Option<Kept>,
    /// Where the file has jobs.
    sandbox: Option<Value>,
}

impl Report<'_> {
    fn would_settle(&self) -> Option<Value> {
        spec::would_settle(self.spec.deal.as_ref(), passes(self.joint.verdict))
    }

    fn to_json(&self) -> Value {
        let results = &self.outcome.agreed.results;
        let mut doc = check_json(results);
        let (passed, failed, undecided) = counts(results);
        let look = |looked: &Looked| json!({"at": looked.look.at, "verdict": looked.look.joint().verdict.word()});
        doc["spec"] = json!({"path": self.spec.path, "sha256": self.spec.sha256});
        doc["policy"] = json!({"name": self.policy.name, "sha256": self.policy.sha256});
        doc["tests"] = self.rows.iter().map(|row| show::data(row, self.spec)).collect();
        doc["looks"] = self.outcome.looks.iter().map(look).collect();
        doc["counts"] = json!({"tests": results.len(), "passed": passed, "failed": failed, "undecided": undecided});
        doc["duration_ms"] =
            u64::try_from(self.outcome.took.as_millis()).unwrap_or(u64::MAX).min(limits::SAFE_INTEGER_MAX).into();
        let unsignable = self.spec.unsignable();
        doc["no_house_accepts"] = unsignable.map(|(at, why)| json!({"at": at, "reason": why})).unwrap_or_default();
        doc["would_settle"] = self.would_settle().unwrap_or_default();
        let kept = |kept: &Kept| json!({"path": kept.path, "sha256": kept.sha256, "signed": false});
        if let Some(sandbox) = &self.sandbox {
            doc["sandbox"] = sandbox.clone();
            doc["jobs"] = jobs::to_json(&self.outcome.reports, &self.outcome.looks);
        }
        doc["evidence"] = self.evidence.as_ref().map(kept).unwrap_or_default();
        doc
    }

    fn print(&self, out: &Out) {
        let (spec, results) = (self.spec, &self.outcome.agreed.results);
        let tests = many(results.len(), "test");
        out.say(format!(
            "verifica {}   {} (sha256:{}, {tests})   policy {}\n",
            env!("CARGO_PKG_VERSION"),
            spec.path,
            spec.sha256.hex().get(..8).unwrap_or_default(),
            self.policy.name
        ));
        for row in &self.rows {
            show::line(row, self.args.allow_private, out);
            jobs::line(row.n, &self.outcome.reports, &self.outcome.looks, out);
        }
        for row in self.rows.iter().filter(|row| row.result.outcome != crate::probe::result::Outcome::Pass) {
            out.line("");
            out.line(show::block(row, spec, out));
        }
        if results.is_empty() {
            out.line(clean(&self.joint.razon));
        }
        let (passed, failed, undecided) = counts(results);
        let (style, word) = match self.joint.verdict {
            Verdict::Pass => (Style::Good, "PASS"),
            Verdict::Fail => (Style::Bad, "FAIL"),
            Verdict::Undecided => (Style::Doubt, "UNDECIDED"),
        };
        out.line("");
        out.line(format!(
            "verdict {}   {tests}: {passed} passed, {failed} failed, {undecided} undecided   {:.2}s",
            out.paint(style, word),
            self.outcome.took.as_secs_f64()
        ));
        if spec.deal.is_some() {
            out.line(format!("would settle  {}", self.told_settlement()));
        }
        if let Some((at, why)) = spec.unsignable() {
            let told = format!("no house accepts this: {}: {}", clean(&at), clean(&why));
            out.line(out.paint(Style::Doubt, told));
        }
        if let Some(kept) = &self.evidence {
            out.line(format!("evidence      {}  sha256:{}   unsigned", kept.path, kept.sha256));
        }
        let how = match (&self.args.offline, self.outcome.looks.len()) {
            (Some(path), _) => format!("judged what {} holds; nobody was asked", path.display()),
            (None, 1) if self.joint.verdict == Verdict::Undecided => {
                "every test was looked at once; nothing would be decided by a second look now".to_owned()
            }
            (None, 1) => "every test was looked at once; the arbiter looks twice".to_owned(),
            (None, n) => {
                format!(
                    "every test was looked at {n} times, with new names and new connections, and the looks were joined"
                )
            }
        };
        out.say(format!("\nchecks made\n  - {how}"));
        if let Some(sandbox) = &self.sandbox {
            let policy = sandbox.pointer("/policy/name").and_then(Value::as_str).unwrap_or_default();
            match sandbox.get("missing").and_then(Value::as_str) {
                Some(missing) => out.say(format!("  - the sandbox cannot be enforced here: {}", clean(missing))),
                None if self.args.offline.is_some() => {}
                None => out.say(format!(
                    "  - jobs ran under the policy {policy}; the sandbox was proved before each of them (verifica doctor)"
                )),
            }
        }
    }

    fn told_settlement(&self) -> String {
        if let Some(state) = spec::ended(self.spec.deal.as_ref()) {
            return format!("nothing: the contract has ended, it is {}", state.as_str());
        }
        let Some(op) = self.would_settle() else { return "nothing".to_owned() };
        let to = super::output::brief(op["to"].as_str().unwrap_or("the other party"), 100);
        let fee = if op["op"] == json!("release") { "less the fee of the house" } else { "no fee" };
        format!("{} {} tok to {to}, {fee}   (nothing was sent)", op["op"].as_str().unwrap_or_default(), op["amount"])
    }
}

fn evidence_hash(text: &str) -> Result<Sha256, String> {
    Sha256::parse(text).ok_or_else(|| "64 hex digits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::observation::Cause;
    use crate::probe::result::{Evidence, Outcome as End, UNENFORCED};

    /// V81: a sandbox that cannot be enforced is told before any other doubt, and before a failure; it is no code for a
    /// test that was decided.
    #[test]
    fn a_missing_sandbox_beats_every_other_code() {
        let result = |outcome, unenforced: bool| {
            let mut evidence = Evidence::new();
            if unenforced {
                evidence.insert(UNENFORCED.to_owned(), Value::Bool(true));
            }
            TestResult { outcome, test_type: "exit_0".to_owned(), name: None, reason: "why".to_owned(), evidence }
        };
        let (pass, fail) = (result(End::Pass, false), result(End::Fail, false));
        let doubt = |cause| result(End::Undecided(cause), false);
        let missing = result(End::Undecided(Cause::Host), true);
        for others in [vec![], vec![pass.clone()], vec![fail.clone()], vec![doubt(Cause::Edge), doubt(Cause::Ours)]] {
            let first: Vec<TestResult> = std::iter::once(missing.clone()).chain(others.clone()).collect();
            let last: Vec<TestResult> = others.into_iter().chain([missing.clone()]).collect();
            assert_eq!((exit(&first), exit(&last)), (Exit::Unenforced, Exit::Unenforced), "{first:?}");
        }
        assert_eq!(exit(&[doubt(Cause::Host), fail.clone()]), Exit::Undecided);
        assert_eq!(exit(&[fail, pass.clone()]), Exit::Fail);
        assert_eq!(exit(&[pass]), Exit::Ok);
        assert_eq!(exit(&[]), Exit::Undecided);
        assert_eq!(exit(&[result(End::Fail, true)]), Exit::Fail);
    }
}
