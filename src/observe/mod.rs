//! Makes observations: the guarded fetch (V20 to V27).
//!
//! Promise: a plan goes in, an [`Observation`] comes out, always, within the plan's time. No packet goes to an address
//! that the rule does not admit; an answer is reported as complete only if every careful reader would find it complete;
//! whatever goes wrong has a cause, and a panic of ours is one. Nothing is judged here.
//!
//! The head and the framing of the content are read by our own strict readers and not by an HTTP library: a library
//! hides what decides here (which lines there were, whether a line ended in CRLF, what followed a chunk size, whether
//! TLS said goodbye), and a second reading beside it would be one more thing to disagree with. hyper serves as the
//! second opinion in the tests.
//!
//! Deliberately absent: redirects, content decoding, connection reuse, caches, proxies, and HTTP/2.

mod body;
mod connect;
mod exchange;
mod head;
pub mod jobs;
pub mod look;
mod pace;
mod resolve;
#[cfg(test)]
mod second_opinion;
mod target;

use crate::limits;
use crate::probe::address::AddressRule;
use crate::probe::observation::{Cause, FetchKey, FetchPlan, Observation, Phase, Seen};
use crate::probe::url::UrlPolicy;
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// Fetches. Cheap to clone; clones share rates, slots and roots.
#[derive(Clone)]
pub struct Fetcher {
    inner: Arc<Inner>,
}

pub struct FetcherConfig {
    pub allow: AddressRule,
    /// PEM files, trusted beside the compiled-in roots.
    pub extra_ca_pem: Vec<Vec<u8>>,
    pub resolve: Vec<Override>,
    /// Name servers to ask; those of the system when empty.
    pub name_servers: Vec<SocketAddr>,
    /// Requests to one host that may begin within any minute. At least one.
    pub per_host_per_minute: u32,
    /// Connections to one host at once, whichever contracts they are for. At least one.
    pub per_host_at_once: usize,
    /// Connections at once. At least one.
    pub slots: usize,
    pub deadlines: Deadlines,
}

/// How long each phase may take (V25), milliseconds. The plan's timeout is over all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    pub dns_ms: u64,
    /// For each address.
    pub connect_ms: u64,
    pub tls_ms: u64,
    /// From the request to the first byte of the answer.
    pub first_byte_ms: u64,
    /// From there to the end of what is read.
    pub body_ms: u64,
    /// How long to look for content after an answer that has none by rule.
    pub no_content_grace_ms: u64,
}

/// "This host and port is at that address." The address is still judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Lower case, as in a parsed URL; a literal without brackets.
    pub host: String,
    pub port: u16,
    pub to: SocketAddr,
}

#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    #[error("extra_ca number {} cannot be used: {reason}", index + 1)]
    ExtraCa { index: usize, reason: String },
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    #[error("tls cannot be set up: {0}")]
    Tls(String),
}

/// What the user agent line says.
pub const USER_AGENT: &str = concat!("verifica/", env!("CARGO_PKG_VERSION"));

impl Fetcher {
    pub fn new(config: FetcherConfig) -> Result<Self, ObserveError> {
        if config.slots == 0 {
            return Err(ObserveError::Zero("probe_slots"));
        }
        if config.per_host_per_minute == 0 {
            return Err(ObserveError::Zero("per_host_per_minute"));
        }
        if config.per_host_at_once == 0 {
            return Err(ObserveError::Zero("per_host_at_once"));
        }
        let inner = Inner {
            tls: connect::connector(&config.extra_ca_pem)?,
            policy: UrlPolicy { addresses: config.allow.clone() },
            names: resolve::Names::new(config.allow, &config.resolve, &config.name_servers, &config.deadlines),
            pace: pace::Pace::new(config.per_host_per_minute, config.per_host_at_once, config.slots, MINUTE),
            deadlines: config.deadlines,
        };
        Ok(Fetcher { inner: Arc::new(inner) })
    }

    /// `HOST:PORT:ADDR[:PORT2]`, as curl's `--resolve`.
    pub fn parse_override(text: &str) -> Result<Override, String> {
        Override::parse(text)
    }

    /// One request, when its turn has come. The plan's time begins then.
    pub async fn fetch(&self, plan: &FetchPlan) -> Observation {
        let refused = |reason: String| Failure::new(Phase::Dns, Cause::Contract, reason);
        let target = match target::Target::parse(&plan.key.url, &self.inner.policy) {
            Ok(target) => target,
            Err(why) => return exchange::unasked(plan, refused(format!("the url cannot be fetched: {why}"))),
        };
        if !target::acceptable(&plan.key.accept) {
            return exchange::unasked(plan, refused("the accept value cannot be sent".into()));
        }
        let host = target.pace_key();
        let Some(turn) = self.inner.pace.turn(&host).await else {
            return exchange::unasked(plan, Failure::new(Phase::Dns, Cause::Ours, "the probes are shut down"));
        };
        let (inner, task_plan) = (Arc::clone(&self.inner), plan.clone());
        let work = async move {
            let observation = exchange::observe(&inner, &task_plan, &target).await;
            drop(turn);
            observation
        };
        let seen = guarded(work).await.unwrap_or_else(|failure| exchange::unasked(plan, failure));
        log(&host, &seen);
        seen
    }

    /// One snapshot for each key, all at once. A server that answers 429 or 503 and says in `Retry-After` that a few
    /// seconds help is asked once more after them; the second answer is the one that counts.
    pub async fn look(&self, plans: &[FetchPlan]) -> BTreeMap<FetchKey, Observation> {
        let mut set = JoinSet::new();
        for plan in merged(plans) {
            let fetcher = self.clone();
            set.spawn(async move { fetcher.patiently(&plan).await });
        }
        let mut seen = BTreeMap::new();
        while let Some(done) = set.join_next().await {
            if let Ok(observation) = done {
                seen.insert(observation.key.clone(), observation);
            }
        }
        for plan in plans {
            seen.entry(plan.key.clone())
                .or_insert_with(|| exchange::unasked(plan, Failure::new(Phase::Dns, Cause::Ours, PANICKED)));
        }
        seen
    }

    /// How long to stay away when the hosts of these plans have long queues already; `None` when there is room.
    pub fn crowded(&self, plans: &[FetchPlan]) -> Option<Duration> {
        let hosts = plans.iter().filter_map(|plan| {
            target::Target::parse(&plan.key.url, &self.inner.policy).ok().map(|target| target.pace_key())
        });
        hosts.filter_map(|host| self.inner.pace.crowded(&host)).max()
    }

    async fn patiently(&self, plan: &FetchPlan) -> Observation {
        let first = self.fetch(plan).await;
        match retry_after_ms(&first) {
            Some(wait) => {
                tokio::time::sleep(Duration::from_millis(wait)).await;
                self.fetch(plan).await
            }
            None => first,
        }
    }
}

impl Default for FetcherConfig {
    fn default() -> Self {
        FetcherConfig {
            allow: AddressRule::default(),
            extra_ca_pem: Vec::new(),
            resolve: Vec::new(),
            name_servers: Vec::new(),
            per_host_per_minute: limits::PER_HOST_PER_MINUTE,
            per_host_at_once: limits::PER_HOST_CONNECTIONS_MAX,
            slots: limits::PROBE_SLOTS_DEFAULT,
            deadlines: Deadlines::default(),
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines {
            dns_ms: limits::DNS_MS,
            connect_ms: limits::CONNECT_MS,
            tls_ms: limits::TLS_MS,
            first_byte_ms: limits::FIRST_BYTE_MS,
            body_ms: limits::BODY_MS,
            no_content_grace_ms: limits::NO_CONTENT_GRACE_MS,
        }
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("deadlines", &self.inner.deadlines).finish_non_exhaustive()
    }
}

struct Inner {
    tls: TlsConnector,
    policy: UrlPolicy,
    names: resolve::Names,
    pace: pace::Pace,
    deadlines: Deadlines,
}

/// Why there is no head.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    phase: Phase,
    cause: Cause,
    reason: String,
}

impl Failure {
    fn new(phase: Phase, cause: Cause, reason: impl Into<String>) -> Self {
        Failure { phase, cause, reason: reason.into() }
    }

    fn seen(self) -> Seen {
        Seen::Nothing { phase: self.phase, cause: self.cause, reason: self.reason }
    }
}

/// Runs work that may panic; when the caller goes away, so does the work.
async fn guarded<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T, Failure> {
    let mut set = JoinSet::new();
    set.spawn(work);
    match set.join_next().await {
        Some(Ok(done)) => Ok(done),
        _ => Err(Failure::new(Phase::Dns, Cause::Ours, PANICKED)),
    }
}

/// The host alone: the path of a URL may be somebody's secret.
fn log(host: &str, seen: &Observation) {
    let ms = seen.ended.since(seen.started);
    match &seen.seen {
        Seen::Response(answer) => {
            tracing::debug!(host, ms, status = answer.status, bytes = answer.content.bytes, "probed")
        }
        Seen::Nothing { cause, reason, .. } => {
            tracing::debug!(host, ms, cause = cause.name(), reason, "probed in vain")
        }
    }
}

/// One plan for each key that is enough for all of its tests.
fn merged(plans: &[FetchPlan]) -> Vec<FetchPlan> {
    let mut by_key: BTreeMap<&FetchKey, FetchPlan> = BTreeMap::new();
    for plan in plans {
        let all = by_key.entry(&plan.key).or_insert_with(|| plan.clone());
        all.read = all.read.max(plan.read);
        all.keep = all.keep.max(plan.keep);
        all.timeout_ms = all.timeout_ms.max(plan.timeout_ms);
    }
    by_key.into_values().collect()
}

/// How long a server that is busy asks to wait, when it is short enough to wait for.
fn retry_after_ms(observation: &Observation) -> Option<u64> {
    let Seen::Response(response) = &observation.seen else { return None };
    if !matches!(response.status, 429 | 503) {
        return None;
    }
    let mut lines = response.headers.iter().filter(|header| header.name == "retry-after");
    let (Some(line), None) = (lines.next(), lines.next()) else { return None };
    let text = std::str::from_utf8(&line.value).ok()?;
    let wait = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse::<u64>().ok()?.checked_mul(1_000)?
    } else {
        let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond();
        u64::try_from(at.saturating_sub(observation.ended.millis()).max(0)).ok()?
    };
    (wait <= limits::RETRY_AFTER_MS_MAX).then_some(wait)
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

const MINUTE: Duration = Duration::from_secs(60);
const PANICKED: &str = "the probe failed by a fault of this program";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::observation::{Content, End, Header, Method, Response};
    use crate::wire::Sha256;

    fn plan(url: &str, read: u64, keep: u64) -> FetchPlan {
        let key = FetchKey { url: url.into(), method: Method::Get, accept: "*/*".into() };
        FetchPlan { key, read, keep, timeout_ms: 10 + read }
    }

    #[test]
    fn one_plan_for_each_key_reads_enough_for_all() {
        let plans =
            [plan("https://a.example/", 5, 1), plan("https://b.example/", 1, 1), plan("https://a.example/", 2, 9)];
        let merged = merged(&plans);
        assert_eq!(merged.len(), 2);
        assert_eq!((merged[0].read, merged[0].keep, merged[0].timeout_ms), (5, 9, 15));
    }

    #[test]
    fn only_a_short_wait_that_a_busy_server_asks_for_is_waited() {
        let ended = Timestamp::parse("2026-09-15T12:00:00Z").unwrap();
        let with = |status, values: &[&str]| {
            let headers =
                values.iter().map(|v| Header { name: "retry-after".into(), value: v.as_bytes().to_vec() }).collect();
            let content = Content { kept: vec![], bytes: 0, sha256: Sha256::of(b""), end: End::NotRead };
            let seen = Seen::Response(Response { status, headers, content });
            let plan = plan("https://a.example/", 0, 0);
            Observation { ended, ..exchange::unasked(&plan, Failure::new(Phase::Dns, Cause::Ours, "")) }.seeing(seen)
        };
        let wait = |status, values: &[&str]| retry_after_ms(&with(status, values));
        assert_eq!(wait(429, &["0"]), Some(0));
        assert_eq!(wait(503, &["10"]), Some(limits::RETRY_AFTER_MS_MAX));
        assert_eq!(wait(503, &["11"]), None);
        assert_eq!(wait(429, &["Tue, 15 Sep 2026 12:00:03 GMT"]), Some(3_000));
        assert_eq!(wait(429, &["Tue, 15 Sep 2026 11:00:00 GMT"]), Some(0));
        assert_eq!(wait(429, &["Tue, 15 Sep 2026 13:00:00 GMT"]), None);
        for bad in ["", "-1", "+1", "1.5", "soon", "99999999999999999999"] {
            assert_eq!(wait(429, &[bad]), None, "{bad}");
        }
        assert_eq!(wait(429, &[]), None);
        assert_eq!(wait(429, &["1", "1"]), None);
        assert_eq!(wait(200, &["1"]), None);
        assert_eq!(wait(502, &["1"]), None);
    }

    impl Observation {
        fn seeing(self, seen: Seen) -> Self {
            Observation { seen, ..self }
        }
    }

    #[tokio::test]
    async fn a_panic_is_our_fault_and_nobody_elses() {
        let failure = guarded(async { panic!("a fault of ours") }).await.map(|(): ()| ()).unwrap_err();
        assert_eq!(failure.cause, Cause::Ours);
        assert_eq!(guarded(async { 7 }).await, Ok(7));
    }

    #[tokio::test]
    async fn a_configuration_that_could_never_fetch_is_refused() {
        let zero_slots = FetcherConfig { slots: 0, ..FetcherConfig::default() };
        assert!(matches!(Fetcher::new(zero_slots), Err(ObserveError::Zero("probe_slots"))));
        let zero_rate = FetcherConfig { per_host_per_minute: 0, ..FetcherConfig::default() };
        assert!(matches!(Fetcher::new(zero_rate), Err(ObserveError::Zero(_))));
        let zero_at_once = FetcherConfig { per_host_at_once: 0, ..FetcherConfig::default() };
        assert!(matches!(Fetcher::new(zero_at_once), Err(ObserveError::Zero("per_host_at_once"))));
        for pem in ["", "no pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let bad = FetcherConfig { extra_ca_pem: vec![pem.into()], ..FetcherConfig::default() };
            assert!(matches!(Fetcher::new(bad), Err(ObserveError::ExtraCa { index: 0, .. })), "{pem}");
        }
        assert!(Fetcher::new(FetcherConfig::default()).is_ok());
    }
}
