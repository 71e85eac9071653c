//! One look: every fetch that the tests of a contract need, then one judgement of what was seen. The daemon's arbiter
//! and a seller's dry run call this same function.
//!
//! Judging is pure, and runs where its cost delays no connection. Should it panic, the look is undecided and the fault
//! is ours: never a pass, never a fail.

use super::Fetcher;
use crate::probe::observation::{Cause, FetchKey, Observation};
use crate::probe::plan::Suite;
use crate::probe::result::{Evidence, Outcome, TestResult};
use crate::probe::sha256::Delivery;
use crate::time::Clock;
use crate::verdict::Look;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A look, with what it saw.
#[derive(Clone, Debug)]
pub struct Looked {
    pub look: Look,
    pub seen: BTreeMap<FetchKey, Observation>,
}

/// Looks once, with new names and new connections. `timeout_ms` is the deadline of each request.
pub async fn look(
    fetcher: &Fetcher,
    suite: &Arc<Suite>,
    delivery: &Delivery,
    timeout_ms: u64,
    clock: &dyn Clock,
) -> Looked {
    let at = clock.now();
    let seen = Arc::new(fetcher.look(&suite.fetches(timeout_ms)).await);
    let (judged, judging, delivery) = (suite.clone(), seen.clone(), delivery.clone());
    let results = results(suite, move || judged.judge(&judging, &delivery)).await;
    let look = Look::new(at, results, &seen);
    Looked { look, seen: Arc::unwrap_or_clone(seen) }
}

/// What `judge` answers, or that it failed, for every test of the suite.
async fn results(suite: &Suite, judge: impl FnOnce() -> Vec<TestResult> + Send + 'static) -> Vec<TestResult> {
    tokio::task::spawn_blocking(judge).await.unwrap_or_else(|fault| {
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
        let told = results(&suite, || panic!("on purpose")).await;
        assert_eq!(told.len(), 2);
        assert!(told.iter().all(|result| result.outcome == Outcome::Undecided(Cause::Ours)), "{told:?}");
        assert_eq!(told.first().and_then(|result| result.name.as_deref()), Some("up"));
        assert_eq!(joint(&told).verdict, Verdict::Undecided);
    }
}
