//! Whose turn it is: how often one host is asked, and how many connections there are at once.
//!
//! Promise: no host sees more than `per_minute` requests begin in any window of one minute, nor more than `at_once`
//! connections; requests wait, first come first served for each host, and are never turned away. One busy host holds at
//! most one place in the queue for a connection, and one that answers slowly holds no more than its own connections, so
//! it does not delay the others. A request that is dropped while it waits leaves no trace.

use crate::limits;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

pub(super) struct Pace {
    per_minute: usize,
    at_once: usize,
    window: Duration,
    slots: Arc<Semaphore>,
    hosts: Mutex<BTreeMap<String, Arc<Gate>>>,
}

/// The right to one connection, until it is dropped.
pub(super) struct Turn {
    _slot: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

/// When the last requests to one host began, and how many more connections it may have. The lock is a queue: it is
/// given out in the order of asking.
struct Gate {
    begun: tokio::sync::Mutex<VecDeque<Instant>>,
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// One request in a gate's queue; leaving it, by whatever way, is counted.
struct Queued<'a>(&'a AtomicUsize);

impl<'a> Queued<'a> {
    fn at(gate: &'a Gate) -> Queued<'a> {
        gate.waiting.fetch_add(1, Ordering::Relaxed);
        Queued(&gate.waiting)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pace {
    pub fn new(per_minute: u32, at_once: usize, slots: usize, window: Duration) -> Self {
        Pace {
            per_minute: usize::try_from(per_minute).unwrap_or(usize::MAX),
            at_once: at_once.min(Semaphore::MAX_PERMITS),
            window,
            slots: Arc::new(Semaphore::new(slots.min(Semaphore::MAX_PERMITS))),
            hosts: Mutex::default(),
        }
    }

    /// Waits until a request to `host` may begin. `None` when the slots are gone, which happens only at shutdown.
    pub async fn turn(&self, host: &str) -> Option<Turn> {
        let gate = self.gate(host);
        let _queued = Queued::at(&gate);
        let mut begun = gate.begun.lock().await;
        if begun.len() >= self.per_minute
            && let Some(&oldest) = begun.front()
        {
            tokio::time::sleep_until(oldest + self.window).await;
        }
        let place = Arc::clone(&gate.places).acquire_owned().await.ok()?;
        let slot = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        let now = Instant::now();
        while begun.front().is_some_and(|&oldest| oldest + self.window <= now) {
            begun.pop_front();
        }
        begun.push_back(now);
        Some(Turn { _slot: slot, _place: place })
    }

    /// How long a newcomer would wait at this host, when that is long enough to come back later rather than to queue.
    pub fn crowded(&self, host: &str) -> Option<Duration> {
        let waiting = u32::try_from(self.gate(host).waiting.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let per_window = u32::try_from(self.per_minute.max(1)).unwrap_or(u32::MAX);
        let wait = self.window.saturating_mul(waiting) / per_window;
        (wait > Duration::from_millis(limits::PACE_WAIT_MAX_MS)).then_some(wait.min(self.window * 60))
    }

    fn gate(&self, host: &str) -> Arc<Gate> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= HOSTS_BEFORE_SWEEP {
            let now = Instant::now();
            hosts.retain(|_, gate| {
                let quiet = |begun: &VecDeque<Instant>| begun.back().is_none_or(|&last| last + self.window <= now);
                Arc::strong_count(gate) > 1
                    || gate.places.available_permits() < self.at_once
                    || !gate.begun.try_lock().is_ok_and(|begun| quiet(&begun))
            });
        }
        let gate = || {
            let places = Arc::new(Semaphore::new(self.at_once));
            Arc::new(Gate { begun: tokio::sync::Mutex::default(), places, waiting: AtomicUsize::new(0) })
        };
        Arc::clone(hosts.entry(host.to_string()).or_insert_with(gate))
    }
}

/// Hosts remembered before those that were quiet for a whole window are forgotten.
const HOSTS_BEFORE_SWEEP: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn a_host_never_sees_more_than_its_rate_in_any_window() {
        let window = Duration::from_millis(200);
        let pace = Arc::new(Pace::new(3, 64, 64, window));
        let mut set = JoinSet::new();
        for _ in 0..8 {
            let pace = Arc::clone(&pace);
            set.spawn(async move {
                let turn = pace.turn("a").await;
                (turn.is_some(), Instant::now())
            });
        }
        let mut begun: Vec<Instant> = set.join_all().await.into_iter().map(|(ok, at)| (assert!(ok), at).1).collect();
        begun.sort();
        for four in begun.windows(4) {
            assert!(four[3] - four[0] >= window - Duration::from_millis(2), "four within a window");
        }
    }

    #[tokio::test]
    async fn turns_are_taken_in_the_order_of_asking_and_hosts_do_not_wait_for_each_other() {
        let pace = Arc::new(Pace::new(1, 64, 64, Duration::from_millis(100)));
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut set = JoinSet::new();
        for n in 0..4 {
            let (pace, order) = (Arc::clone(&pace), Arc::clone(&order));
            set.spawn(async move {
                pace.turn("a").await;
                order.lock().unwrap().push(n);
            });
            tokio::task::yield_now().await;
        }
        assert!(pace.turn("b").await.is_some());
        assert!(order.lock().unwrap().len() < 4, "another host had to wait for all of them");
        set.join_all().await;
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
    }

    #[tokio::test]
    async fn slots_bound_what_is_open_and_a_busy_host_does_not_take_the_queue() {
        let pace = Arc::new(Pace::new(1_000, 64, 1, Duration::from_secs(60)));
        let first = pace.turn("busy").await;
        let waiting: Vec<_> = (0..5)
            .map(|_| {
                let pace = Arc::clone(&pace);
                tokio::spawn(async move { drop(pace.turn("busy").await) })
            })
            .collect();
        tokio::task::yield_now().await;
        let other = {
            let pace = Arc::clone(&pace);
            tokio::spawn(async move { pace.turn("other").await })
        };
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!other.is_finished(), "one slot, taken");
        drop(first);
        let other = other.await.unwrap();
        assert!(other.is_some());
        assert!(waiting.iter().filter(|w| w.is_finished()).count() <= 1, "one of the busy host went before");
        drop(other);
        for task in waiting {
            task.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_slow_host_holds_its_own_connections_and_no_more() {
        let pace = Arc::new(Pace::new(1_000, 2, 4, Duration::from_secs(60)));
        let held = (pace.turn("slow").await, pace.turn("slow").await);
        let third = {
            let pace = Arc::clone(&pace);
            tokio::spawn(async move { pace.turn("slow").await })
        };
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!third.is_finished(), "two at once");
        let others = tokio::join!(pace.turn("a"), pace.turn("b"));
        assert!(others.0.is_some() && others.1.is_some(), "the slots that the slow host does not hold are free");
        drop((held, others));
        assert!(third.await.unwrap().is_some());
    }

    #[tokio::test]
    async fn giving_up_while_waiting_takes_nothing_from_those_behind() {
        let pace = Pace::new(1, 64, 1, Duration::from_millis(300));
        drop(pace.turn("a").await);
        let impatient = tokio::time::timeout(Duration::from_millis(10), pace.turn("a")).await;
        assert!(impatient.is_err());
        let started = Instant::now();
        assert!(pace.turn("a").await.is_some());
        assert!(started.elapsed() < Duration::from_millis(580));
    }

    #[tokio::test]
    async fn a_host_with_a_long_queue_says_when_to_come_back_and_others_do_not() {
        let pace = Arc::new(Pace::new(1, 64, 64, Duration::from_secs(60)));
        assert!(pace.turn("busy").await.is_some());
        assert_eq!(pace.crowded("busy"), None);
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let pace = Arc::clone(&pace);
                tokio::spawn(async move { drop(pace.turn("busy").await) })
            })
            .collect();
        while pace.gate("busy").waiting.load(Ordering::Relaxed) < 3 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pace.crowded("busy"), Some(Duration::from_secs(180)));
        assert_eq!(pace.crowded("quiet"), None);
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        for task in waiting {
            let _ = task.await;
        }
        assert_eq!(pace.crowded("busy"), None, "who gave up is counted no more");
    }

    #[tokio::test]
    async fn only_the_last_window_is_remembered() {
        let pace = Pace::new(1_000_000, 64, 4, Duration::from_millis(1));
        for _ in 0..3 {
            drop(pace.turn("a").await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(pace.gate("a").begun.lock().await.len(), 1);
    }

    #[tokio::test]
    async fn quiet_hosts_are_forgotten() {
        let pace = Pace::new(5, 64, 4, Duration::from_millis(1));
        for n in 0..HOSTS_BEFORE_SWEEP {
            drop(pace.turn(&n.to_string()).await);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        drop(pace.turn("one more").await);
        assert!(pace.hosts.lock().unwrap().len() <= 2);
    }
}
