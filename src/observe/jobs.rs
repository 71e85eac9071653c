//! The jobs of one look: inputs fetched, checked and placed, the program run as often as its policy says, and every run
//! attested. The daemon's arbiter and a seller's dry run go through here, so they run the same.
//!
//! So many looks with jobs are under way at once as there are places, and each holds no more of its inputs than a job
//! may have scratch, so what the house needs does not grow with what it is asked. Running happens on threads of its own.
//! A look that is given up ends its run with everything that it started.
//!
//! Deliberately absent: a run without its signed document. If the facts of a run cannot be attested, the run decides
//! nothing, and the fault is ours.

use super::Fetcher;
use crate::attest::{self, About, Attestation};
use crate::limits;
use crate::probe::content::Decision;
use crate::probe::exit_0::{Exit0, JobEnd, JobRun};
use crate::probe::observation::{Cause, FetchKey, Observation, Seen};
use crate::probe::plan::{Capabilities, JobRules, Suite};
use crate::probe::sha256::Delivery;
use crate::sandbox::{self, Job, JobPolicy, JobReport, PlacedInput, Slot, Source};
use crate::time::Clock;
use crate::wire::Sha256;
use crate::wire::key::SigningKey;
use bytes::Bytes;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

/// Runs jobs under one policy. Cheap to clone; clones share the places.
#[derive(Clone)]
pub struct Jobs {
    inner: Arc<Inner>,
}

/// Who runs jobs, and under which policy.
pub struct JobsConfig {
    pub policy: JobPolicy,
    /// Looks with jobs that are under way at once. At least one.
    pub at_once: usize,
    /// Signs the attestations.
    pub key: SigningKey,
    /// The house and the address that runs them; neither in a dry run.
    pub house: Option<String>,
    pub by: Option<String>,
}

/// For whom a look is made, as far as its jobs have to know.
#[derive(Clone, Debug, Default)]
pub struct Order {
    pub contract: Option<String>,
    /// Of what was agreed.
    pub contract_sha256: Option<Sha256>,
    /// Inputs at hand, by path; nobody is asked for them.
    pub supplied: BTreeMap<String, Bytes>,
    /// One run of each job, whatever the policy says (V82).
    pub once: bool,
}

/// What the jobs of one look came to.
#[derive(Debug, Default)]
pub struct Ran {
    pub runs: BTreeMap<usize, Vec<JobRun>>,
    pub attestations: Vec<Value>,
    /// What was seen of the inputs, without what was kept of them for the jobs alone.
    pub seen: BTreeMap<FetchKey, Observation>,
    /// The last run of each job, for a person.
    pub last: BTreeMap<usize, JobReport>,
}

struct Inner {
    config: JobsConfig,
    places: Semaphore,
    waiting: AtomicUsize,
    stopping: CancellationToken,
}

/// What the inputs of a look are, and how much more of them a host would take.
struct Inputs {
    seen: BTreeMap<FetchKey, Observation>,
    content: BTreeMap<FetchKey, Bytes>,
}

impl Jobs {
    pub fn new(config: JobsConfig) -> Jobs {
        let places = Semaphore::new(config.at_once.clamp(1, limits::JOB_PLACES_MAX));
        let (waiting, stopping) = (AtomicUsize::new(0), CancellationToken::new());
        Jobs { inner: Arc::new(Inner { config, places, waiting, stopping }) }
    }

    pub fn policy(&self) -> &JobPolicy {
        &self.inner.config.policy
    }

    /// What this host can run now: jobs only if the self-test holds under the policy that they would run under. One
    /// answer for what a card offers, what is refused at `accept`, what a look runs and what a dry run says. It runs the
    /// whole proof, and blocks for some milliseconds.
    pub fn offered_here(policy: &JobPolicy) -> Capabilities {
        let jobs = Some(rules(policy));
        let test = sandbox::self_test(policy);
        if test.holds() {
            return Capabilities { jobs, ..Capabilities::with_jobs(policy.wall_s()) };
        }
        let (item, why) = test.missing.unwrap_or_else(|| ("run".to_owned(), "the self-test does not hold".to_owned()));
        Capabilities { unenforced: Some(format!("{item}: {why}")), jobs, ..Capabilities::network() }
    }

    /// Ends every run that is under way; none begins after it.
    pub fn stop(&self) {
        self.inner.stopping.cancel();
    }

    /// How long to stay away when the queue is long already; `None` when there is room.
    pub fn crowded(&self) -> Option<Duration> {
        let waiting = self.inner.waiting.load(Ordering::Relaxed);
        let places = self.inner.config.at_once.max(1);
        (waiting >= places * limits::JOB_QUEUE_PER_PLACE).then(|| Duration::from_secs(self.policy().wall_s()))
    }

    /// Fetches what the jobs of a suite take in, and runs them in the order of the tests.
    pub(super) async fn run(
        &self,
        fetcher: &Fetcher,
        suite: &Suite,
        delivery: &Delivery,
        timeout_ms: u64,
        order: &Order,
        clock: &dyn Clock,
    ) -> Ran {
        let jobs = suite.jobs();
        let mut ran = Ran::default();
        if jobs.is_empty() {
            return ran;
        }
        let Some(_place) = self.place().await else { return ran };
        let inputs = self.fetch(fetcher, suite, timeout_ms).await;
        for (n, job) in jobs {
            if job.inputs_ready(suite.came(&inputs.seen, delivery)).is_err() {
                continue;
            }
            let mut runs = Vec::new();
            let wanted = if order.once { 1 } else { self.policy().runs() };
            let placed = self.placed(job, suite, delivery, &inputs, order);
            while runs.len() < wanted as usize && runs.last().is_none_or(decides) {
                let (report, attestation) = match &placed {
                    Ok(placed) => self.attested(job, placed.clone(), order, clock).await,
                    Err(why) => (None, Err(why.clone())),
                };
                let run = match (&report, attestation) {
                    (Some(report), Ok(document)) => {
                        let run = JobRun { end: report.end.clone(), attestation: Some(document.sha256()) };
                        ran.attestations.push(document.doc().clone());
                        run
                    }
                    (_, Err((cause, reason))) => unavailable(cause, reason),
                    (None, Ok(_)) => unavailable(Cause::Ours, "the run left no report".to_owned()),
                };
                runs.push(run);
                if let Some(report) = report {
                    ran.last.insert(n, report);
                }
            }
            ran.runs.insert(n, runs);
        }
        ran.seen = inputs.seen;
        ran
    }

    async fn place(&self) -> Option<SemaphorePermit<'_>> {
        struct Counted<'a>(&'a AtomicUsize);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.inner.waiting.fetch_add(1, Ordering::Relaxed);
        let _counted = Counted(&self.inner.waiting);
        self.inner.places.acquire().await.ok()
    }

    /// One input after another, so that together they are never more than the scratch of a job.
    async fn fetch(&self, fetcher: &Fetcher, suite: &Suite, timeout_ms: u64) -> Inputs {
        let mut inputs = Inputs { seen: BTreeMap::new(), content: BTreeMap::new() };
        let mut room = self.policy().scratch_bytes;
        for plan in suite.input_fetches(timeout_ms) {
            let most = room.min(limits::JOB_INPUT_BYTES_MAX) + 1;
            let mut more = plan.clone();
            (more.read, more.keep) = (plan.read.max(most), plan.keep.max(most));
            for (key, mut seen) in fetcher.look(&[more]).await {
                if let Seen::Response(response) = &mut seen.seen {
                    room = room.saturating_sub(response.content.bytes);
                    let kept = std::mem::take(&mut response.content.kept);
                    let ours = usize::try_from(plan.keep).unwrap_or(usize::MAX).min(kept.len());
                    response.content.kept = kept.get(..ours).unwrap_or_default().to_vec();
                    inputs.content.insert(key.clone(), Bytes::from(kept));
                }
                inputs.seen.insert(key, seen);
            }
        }
        inputs
    }

    fn placed(
        &self,
        job: &Exit0,
        suite: &Suite,
        delivery: &Delivery,
        inputs: &Inputs,
        order: &Order,
    ) -> Result<Vec<PlacedInput>, (Cause, String)> {
        let hashes = job.inputs_ready(suite.came(&inputs.seen, delivery)).map_err(lost)?;
        let mut placed = Vec::new();
        for (input, sha256) in job.inputs.iter().zip(hashes) {
            let bytes = order.supplied.get(&input.path).or_else(|| inputs.content.get(&input.key()));
            let bytes = bytes.filter(|bytes| Sha256::of(bytes) == sha256);
            let Some(bytes) = bytes else {
                let most = self.policy().scratch_bytes;
                let reason =
                    format!("the inputs of this job are more than the {most} bytes that this host gives to them");
                return Err((Cause::Host, reason));
            };
            placed.push(PlacedInput {
                path: input.path.clone(),
                source: Source::Bytes(bytes.clone()),
                sha256,
                unpack: input.unpack,
                mode: input.mode,
            });
        }
        Ok(placed)
    }

    async fn attested(
        &self,
        job: &Exit0,
        inputs: Vec<PlacedInput>,
        order: &Order,
        clock: &dyn Clock,
    ) -> (Option<JobReport>, Result<Attestation, (Cause, String)>) {
        let config = &self.inner.config;
        let slot = match tokio::task::spawn_blocking(Slot::take).await {
            Ok(Ok(slot)) => slot,
            Ok(Err(e)) => return (None, Err((Cause::Host, format!("this host has no room for another job: {e}")))),
            Err(e) => return (None, Err((Cause::Ours, format!("the slot was lost: {e}")))),
        };
        let wanted = Job { argv: job.argv.clone(), inputs, policy: config.policy.clone(), within_s: job.within_s };
        let at = clock.now();
        let report = sandbox::run(&wanted, &slot, self.inner.stopping.child_token()).await;
        if report.survivors > 0 {
            tracing::error!(event = "job_survivors", survivors = report.survivors, contract = order.contract);
        }
        let name = uuid::Uuid::new_v4().to_string();
        let about = About {
            job: &name,
            at,
            house: config.house.as_deref(),
            by: config.by.as_deref(),
            contract: order.contract.as_deref(),
            contract_sha256: order.contract_sha256,
            policy_name: &config.policy.name,
            policy_sha256: config.policy.sha256(),
        };
        let document = attest::attest(&about, &report.facts, &config.key).map_err(|refusal| {
            tracing::error!(event = "run_not_attested", reason = %refusal.reason);
            (Cause::Ours, format!("what was measured of the run cannot be attested: {}", refusal.reason))
        });
        tracing::info!(
            event = "job", contract = order.contract, end = %attest::exit_of(&report.end),
            wall_ms = report.wall_ms, peak_memory = report.peak_memory
        );
        (Some(report), document)
    }
}

fn rules(policy: &JobPolicy) -> JobRules {
    JobRules { policy: policy.name.clone(), sha256: policy.sha256(), runs: policy.runs() }
}

/// Whether another run can add anything: a run that decides nothing makes the look undecided by itself.
fn decides(run: &JobRun) -> bool {
    !matches!(run.end, JobEnd::Unenforced { .. } | JobEnd::Unavailable { .. } | JobEnd::Time { .. })
}

fn unavailable(cause: Cause, reason: String) -> JobRun {
    JobRun { end: JobEnd::Unavailable { cause, reason }, attestation: None }
}

fn lost((outcome, reason): Decision) -> (Cause, String) {
    (outcome.cause().unwrap_or(Cause::Ours), reason)
}
