//! The arbiter's worker: takes looks that are due, many at once and fair across sellers, and carries each to what its
//! rule decided: again later, once more to confirm, or a signed verdict through the house's ordinary door.
//!
//! It sleeps until it is called or the next look is due. A look holds a lease, renewed while it waits its turn at a busy
//! host; a worker that dies lets it lapse and the look comes back. Nothing here decides anything.

use super::offer::offer_again;
use super::watch::Beside;
use crate::arbiter::settle::{self, Posted, Step, Task};
use crate::ids::Ids;
use crate::limits;
use crate::observe::Fetcher;
use crate::observe::jobs::{Jobs, Order};
use crate::observe::look::{Eyes, Looked, look};
use crate::probe::exit_0::JobEnd;
use crate::probe::plan::Suite;
use crate::probe::sha256::Delivery;
use crate::probe::url::UrlPolicy;
use crate::record::{Contract, Decision, LookRow};
use crate::refusal::Refusal;
use crate::server::Doors;
use crate::verdict::Verdict;
use crate::wire::Sha256;
use crate::wire::auth::Relay;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What the arbiter looks through, and how much of it at once.
#[derive(Clone)]
pub struct ArbiterOptions {
    pub fetcher: Fetcher,
    /// What runs the jobs of `exit_0` tests; whether they are offered is said by the house's settings.
    pub jobs: Option<Jobs>,
    /// One test of a page that answers whenever the network of this house works.
    pub control: Option<Arc<Suite>>,
    /// Connections that the probes may have open at once.
    pub slots: usize,
    /// How long it sleeps at most when nothing calls it.
    pub tick: Duration,
}

/// Whose ledger the contracts are of, and how a verdict gets there. Everything else is the same.
#[derive(Clone)]
pub(super) enum Ledger {
    /// This house's own, in the same store.
    Own,
    /// Another program's, behind its public doors.
    Beside(Arc<Beside>),
}

#[derive(Clone)]
pub(super) struct Arbiter {
    doors: Arc<Doors>,
    ledger: Ledger,
    eyes: Eyes,
    control: Option<Arc<Suite>>,
    slots: usize,
    tick: Duration,
    /// Held by whoever asks this host again what it can run.
    asking: Arc<tokio::sync::Mutex<()>>,
}

impl Arbiter {
    pub(super) fn new(doors: Arc<Doors>, ledger: Ledger, options: ArbiterOptions) -> Arbiter {
        let timeout_ms = doors.house().settings.policy.timeout_ms;
        Arbiter {
            doors,
            ledger,
            eyes: Eyes { fetcher: options.fetcher, jobs: options.jobs, timeout_ms },
            control: options.control,
            asking: Arc::default(),
            slots: options.slots.max(1) * limits::LOOKS_PER_SLOT,
            tick: options.tick,
        }
    }

    /// Runs until `stopping`; looks under way are given up, and come back when their lease lapses.
    pub(super) async fn run(self, stopping: CancellationToken) {
        let mut under_way: JoinSet<()> = JoinSet::new();
        while !stopping.is_cancelled() {
            while under_way.try_join_next().is_some() {}
            let free = self.slots.saturating_sub(under_way.len());
            let claimed = if free == 0 { Vec::new() } else { self.claim(free).await };
            if !claimed.is_empty() {
                for row in claimed {
                    let arbiter = self.clone();
                    under_way.spawn(async move { arbiter.attend(row).await });
                }
                continue;
            }
            let sleep = self.until_due().await;
            tokio::select! {
                () = stopping.cancelled() => {}
                () = self.doors.wakes.arbiter.notified(), if free > 0 => {}
                () = tokio::time::sleep(sleep), if free > 0 => {}
                Some(_) = under_way.join_next(), if !under_way.is_empty() => {}
            }
        }
        if let Some(jobs) = &self.eyes.jobs {
            jobs.stop();
        }
        under_way.shutdown().await;
    }

    async fn claim(&self, n: usize) -> Vec<LookRow> {
        let doors = &self.doors;
        let per_seller = (self.slots / 16).max(1);
        match doors.store.claim_looks(doors.now(), limits::LOOK_LEASE_MS, n, per_seller).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::error!(event = "look_claim_failed", error = %error);
                Vec::new()
            }
        }
    }

    async fn until_due(&self) -> Duration {
        let now = self.doors.now();
        let due = match self.doors.store.earliest_work(now).await {
            Ok(Some(at)) => Duration::from_millis(u64::try_from(at.since(now)).unwrap_or(0)),
            Ok(None) | Err(_) => self.tick,
        };
        due.clamp(
            Duration::from_millis(limits::LOOK_RECHECK_MS),
            self.tick.max(Duration::from_millis(limits::LOOK_RECHECK_MS)),
        )
    }

    /// One claimed row, from the claim to the record of what came of it.
    async fn attend(&self, row: LookRow) {
        let contract = row.contract.clone();
        if let Err(refusal) = self.attempt(row).await {
            // The lease lapses and the look comes back; nothing was decided.
            tracing::warn!(event = "look_given_up", contract = %contract, reason = %refusal);
        }
    }

    async fn attempt(&self, row: LookRow) -> Result<(), Refusal> {
        // What a verdict is about is what the ledger holds now.
        let Some(row) = self.up_to_date(row).await? else { return Ok(()) };
        let (house, claimed) = (self.doors.house(), row.clone());
        let task = self.doors.read(move |reader| Ok(settle::task(&house, reader, &claimed))).await?;
        match task {
            Task::Nothing => self.doors.commit(move |view| Ok(settle::drop_row(view, &row))).await,
            Task::Post(envelope) => self.post(row, envelope).await,
            Task::Look(contract) => {
                let Some((row, looked)) = self.look(row, &contract).await? else { return Ok(()) };
                let looked = self.replayed(&contract, looked).await;
                self.offer_again_after(&looked).await;
                let control = self.control_answers(&looked).await;
                let Some(row) = self.up_to_date(row).await? else { return Ok(()) };
                match self.settle(&row, looked, control).await? {
                    Step::Post(envelope) => self.post(row, envelope).await,
                    Step::Undecided { due, reason, tell } => {
                        if tell {
                            let advice = "nothing moves by itself; the parties may settle by hand";
                            tracing::warn!(event = "review_undecided", contract = %row.contract, reason, advice);
                        }
                        tracing::info!(event = "look_undecided", contract = %row.contract, next = %due, reason);
                        Ok(())
                    }
                    Step::Confirm { .. } | Step::Stale => Ok(()),
                }
            }
        }
    }

    /// The row, once the ledger has said how its contract stands; `None` when it cannot be asked now, and the row was put
    /// off until it may be.
    async fn up_to_date(&self, row: LookRow) -> Result<Option<LookRow>, Refusal> {
        let Ledger::Beside(beside) = &self.ledger else { return Ok(Some(row)) };
        let Err(error) = beside.read(&row.contract).await else { return Ok(Some(row)) };
        tracing::warn!(event = "ledger_not_read", contract = %row.contract, error = %error);
        let due = self.doors.now().plus(limits::LOOK_BACKOFF_BASE_MS);
        self.doors.commit(move |view| Ok(settle::put_off(view, &row, due))).await?;
        Ok(None)
    }

    /// Looks, and keeps the lease meanwhile; `None` when the row went to somebody else, or was put off because a host has
    /// a long queue.
    async fn look(&self, mut row: LookRow, contract: &Contract) -> Result<Option<(LookRow, Looked)>, Refusal> {
        let house = self.doors.house();
        let settings = &house.settings;
        let urls = UrlPolicy { addresses: settings.addresses.clone() };
        let suite = Arc::new(Suite::from_terms(&contract.terms, &urls, &settings.capabilities).accepted());
        let (fetcher, timeout_ms) = (&self.eyes.fetcher, self.eyes.timeout_ms);
        let has_jobs = !suite.jobs().is_empty();
        let queue = self.eyes.jobs.as_ref().filter(|_| has_jobs).and_then(Jobs::crowded);
        let asked = [suite.fetches(timeout_ms), suite.input_fetches(timeout_ms)].concat();
        if let Some(wait) = queue.max(fetcher.crowded(&asked)) {
            let due = self.doors.now().plus(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
            self.doors.commit(move |view| Ok(settle::put_off(view, &row, due))).await?;
            return Ok(None);
        }
        let delivery = settle::delivery_of(contract);
        let order = Order {
            contract: Some(contract.id.clone()),
            contract_sha256: contract.more.get("quote_sha256").and_then(Value::as_str).and_then(Sha256::parse),
            ..Order::default()
        };
        let looking = look(&self.eyes, &suite, &delivery, &order, &*self.doors.clock);
        tokio::pin!(looking);
        let mut again = tokio::time::interval(Duration::from_millis(limits::JOB_RECHECK_MS));
        let half = Duration::from_millis(limits::LOOK_LEASE_MS.unsigned_abs() / 2);
        loop {
            tokio::select! {
                looked = &mut looking => return Ok(Some((row, looked))),
                // A party that settled by hand waits for no job, and the job is of no use to anybody.
                _ = again.tick(), if has_jobs => {
                    let (house, claimed) = (self.doors.house(), row.clone());
                    let task = self.doors.read(move |reader| Ok(settle::task(&house, reader, &claimed))).await?;
                    if !matches!(task, Task::Look(_)) {
                        self.doors.commit(move |view| Ok(settle::drop_row(view, &row))).await?;
                        return Ok(None);
                    }
                }
                () = tokio::time::sleep(half) => {
                    let until = self.doors.now().plus(limits::LOOK_LEASE_MS);
                    let claimed = row.clone();
                    match self.doors.commit(move |view| Ok(settle::renew(view, &claimed, until))).await? {
                        Some(renewed) => row = renewed,
                        None => return Ok(None),
                    }
                }
            }
        }
    }

    /// What a look decided counts only if its evidence, read and judged again, decides the same.
    async fn replayed(&self, contract: &Contract, looked: Looked) -> Looked {
        if looked.look.joint().verdict == Verdict::Undecided {
            return looked;
        }
        let (house, judged, looked) = (self.doors.house(), contract.clone(), Arc::new(looked));
        let again = Arc::clone(&looked);
        let same = tokio::task::spawn_blocking(move || settle::replays(&house, &judged, &again)).await;
        let looked = Arc::unwrap_or_clone(looked);
        match same.unwrap_or_else(|fault| Err(fault.to_string())) {
            Ok(()) => looked,
            Err(differences) => {
                tracing::error!(event = "look_does_not_replay", contract = %contract.id, differences);
                settle::disowned(looked)
            }
        }
    }

    /// A sandbox that refuses was there when it was offered, or this host has found it again meanwhile.
    async fn offer_again_after(&self, looked: &Looked) {
        let refused = |end: &JobEnd| matches!(end, JobEnd::Unenforced { .. });
        let Some(jobs) = &self.eyes.jobs else { return };
        if !looked.look.runs.values().flatten().any(|run| refused(&run.end)) {
            return;
        }
        let Ok(_one) = self.asking.try_lock() else { return };
        if let Err(reason) = offer_again(&self.doors, jobs, matches!(self.ledger, Ledger::Own)).await {
            tracing::error!(event = "offer_not_renewed", reason);
        }
    }

    /// Whether the house's control page answers now; asked only where an undecided look may come to count on it.
    async fn control_answers(&self, looked: &Looked) -> bool {
        let Some(control) = &self.control else { return false };
        if looked.look.joint().verdict != Verdict::Undecided {
            return false;
        }
        let eyes = Eyes { jobs: None, ..self.eyes.clone() };
        let seen = look(&eyes, control, &Delivery::default(), &Order::default(), &*self.doors.clock).await;
        seen.look.joint().verdict == Verdict::Pass
    }

    async fn settle(&self, row: &LookRow, looked: Looked, control: bool) -> Result<Step, Refusal> {
        let (house, claimed, now, seed) = (self.doors.house(), row.clone(), self.doors.now(), self.doors.seed()?);
        self.doors
            .commit(move |view| {
                let mut ids = Ids::from_seed(seed);
                Ok(settle::settle(&house, view, now, &mut ids, &claimed, &looked, control))
            })
            .await
    }

    /// Through the same door as anybody's operation: at home with the house's own relay signature.
    async fn post(&self, row: LookRow, envelope: Value) -> Result<(), Refusal> {
        let house = self.doors.house();
        let id = envelope.get("id").and_then(Value::as_str).unwrap_or_default();
        let posted = match &self.ledger {
            Ledger::Beside(beside) => beside.post(&envelope).await,
            Ledger::Own => {
                let relay = Relay::header(&house.domain, &house.key, id, &house.domain);
                let answer = self.doors.inbound(envelope.to_string().as_bytes(), Some(&relay)).await;
                let reason = answer.body.get("reason").and_then(Value::as_str).unwrap_or("no reason given");
                match answer.code {
                    200 | 202 => Posted::Taken,
                    code => Posted::Refused { code, reason: reason.to_owned() },
                }
            }
        };
        match &posted {
            Posted::Taken => tracing::info!(event = "verdict", contract = %row.contract, id),
            Posted::Refused { code, reason } => {
                tracing::error!(event = "verdict_refused", contract = %row.contract, id, code, reason);
            }
        }
        let (now, seed) = (self.doors.now(), self.doors.seed()?);
        self.doors
            .commit(move |view| -> Result<Decision<()>, Refusal> {
                Ok(settle::posted(&house, view, now, &mut Ids::from_seed(seed), &row, &posted))
            })
            .await
    }
}
