//! One look: every fetch that the tests of a contract need, every job of theirs, then one judgement of what was seen. The
//! daemon's arbiter and a seller's dry run call this same function.
//!
//! Judging is pure, and runs where its cost delays no connection: beside them, unless there is so little to judge that
//! handing it over would cost more. Should it panic, the look is undecided and the fault is ours: never a pass, never a
//! fail.

use super::Fetcher;
use super::jobs::{Jobs, Order, Ran};
use crate::limits;
use crate::probe::observation::{Cause, Observation, Seen};
use crate::probe::plan::Suite;
use crate::probe::result::{Evidence, Outcome, TestResult};
use crate::probe::sha256::Delivery;
use crate::sandbox::JobReport;
use crate::time::Clock;
use crate::verdict::Look;
pub use crate::verdict::Looked;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What a look is made with. Cheap to clone.
#[derive(Clone)]
pub struct Eyes {
    pub fetcher: Fetcher,
    /// Where no jobs are run, a suite with jobs is not judgeable (see [`Suite`]), and none is run here either.
    pub jobs: Option<Jobs>,
    /// The deadline of each request.
    pub timeout_ms: u64,
}

/// Looks once, with new names and new connections.
pub async fn look(eyes: &Eyes, suite: &Arc<Suite>, delivery: &Delivery, order: &Order, clock: &dyn Clock) -> Looked {
    look_and_report(eyes, suite, delivery, order, clock).await.0
}

/// The same, with the last report of each job for a person.
pub async fn look_and_report(
    eyes: &Eyes,
    suite: &Arc<Suite>,
    delivery: &Delivery,
    order: &Order,
    clock: &dyn Clock,
) -> (Looked, Reports) {
    let at = clock.now();
    let fetches = suite.fetches(eyes.timeout_ms);
    let run = async {
        match &eyes.jobs {
            Some(jobs) => jobs.run(&eyes.fetcher, suite, delivery, eyes.timeout_ms, order, clock).await,
            None => Ran::default(),
        }
    };
    let (mut seen, ran) = tokio::join!(eyes.fetcher.look(&fetches), run);
    seen.extend(ran.seen);
    let seen = Arc::new(seen);
    let (judged, judging, delivery, runs) = (suite.clone(), seen.clone(), delivery.clone(), ran.runs.clone());
    let here = seen.values().map(kept).sum::<usize>() <= limits::JUDGED_AT_ONCE_BYTES_MAX;
    let results = results(suite, here, move || judged.judge_with_jobs(&judging, &runs, &delivery)).await;
    let look = Look { runs: ran.runs, ..Look::new(at, results, &seen) };
    (Looked { look, seen: Arc::unwrap_or_clone(seen), attestations: ran.attestations }, ran.last)
}

/// Reports of jobs, by the position of their test.
pub type Reports = BTreeMap<usize, JobReport>;

/// Bytes of content that a judge may look at.
fn kept(observation: &Observation) -> usize {
    match &observation.seen {
        Seen::Response(response) => response.content.kept.len(),
        Seen::Nothing { .. } => 0,
    }
}

/// What `judge` answers, or that it failed, for every test of the suite.
async fn results(
    suite: &Suite,
    here: bool,
    judge: impl FnOnce() -> Vec<TestResult> + Send + 'static,
) -> Vec<TestResult> {
    let told = match here {
        true => catch_unwind(AssertUnwindSafe(judge)).map_err(|_| "it panicked".to_owned()),
        false => tokio::task::spawn_blocking(judge).await.map_err(|fault| fault.to_string()),
    };
    told.unwrap_or_else(|fault| {
        tracing::error!(event = "judge_failed", error = %fault);
        suite.tests().iter().map(|test| not_judged(test.test_type.clone(), test.name.clone())).collect()
    })
}

fn not_judged(test_type: String, name: Option<String>) -> TestResult {
    TestResult {
        outcome: Outcome::Undecided(Cause::Ours),
        test_type,
        name,
        reason: "a fault of this program kept it from judging; nothing was decided".to_owned(),
        evidence: Evidence::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::plan::Capabilities;
    use crate::probe::url::UrlPolicy;
    use crate::verdict::{Verdict, joint};

    /// V1: a judge that panics decides nothing, and says that the fault is ours.
    #[tokio::test]
    async fn a_panic_while_judging_is_our_fault() {
        let tests = serde_json::json!([
            {"type": "http_status", "url": "https://s.example/", "name": "up"},
            {"type": "http_status", "url": "http://s.example/"},
        ]);
        let suite = Suite::from_tests(&tests, &UrlPolicy::default(), &Capabilities::network());
        for here in [true, false] {
            let told = results(&suite, here, || panic!("on purpose")).await;
            assert_eq!(told.len(), 2);
            assert!(told.iter().all(|result| result.outcome == Outcome::Undecided(Cause::Ours)), "{told:?}");
            assert_eq!(told.first().and_then(|result| result.name.as_deref()), Some("up"));
            assert_eq!(joint(&told).verdict, Verdict::Undecided);
        }
    }
}
