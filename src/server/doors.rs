//! The house behind its doors: who is asking, and the one way into the store.
//!
//! Routes, the sending queue and the arbiter call the same methods; none of them has a rule of its own. A credential is
//! judged before anything is looked for, and its nonce is burned in the transaction of what it asks for, also when the
//! rule says no: a token is good for one answer.

use super::http::{JSON, Reply};
use crate::client::resolver::Resolver;
use crate::ids::Ids;
use crate::limits;
use crate::mail;
use crate::probe::plan::Capabilities;
use crate::record::{Change, Decided, Decision, House, View};
use crate::refusal::{Refusal, Rule};
use crate::store::{Denied, Reader, Store, StoreError};
use crate::time::{Clock, Timestamp};
use crate::wire::address::Address;
use crate::wire::auth::{OnBehalf, Request, Token};
use crate::wire::card::AgentCard;
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

pub struct Doors {
    house: RwLock<Arc<House>>,
    pub store: Store,
    pub resolver: Arc<Resolver>,
    pub clock: Arc<dyn Clock>,
    pub wakes: Wakes,
    /// Hash of the operator's token; comparing hashes says nothing about the token's bytes.
    admin: Option<crate::wire::Sha256>,
    lists: Semaphore,
    /// Passes of the index that whoever lists a house began.
    pub(super) index_places: Semaphore,
}

/// Who sleeps until something is due.
#[derive(Default)]
pub struct Wakes {
    /// The sending queue has new work.
    pub queue: Notify,
    /// The arbiter has new work.
    pub arbiter: Notify,
    /// An agent is to be called.
    pub push: Notify,
    /// The index has a house to read.
    pub index: Notify,
    mailboxes: Mutex<HashMap<String, Readers>>,
    waits: AtomicU64,
}

/// Who waits at one mailbox, oldest first.
#[derive(Default)]
struct Readers {
    bell: Arc<Notify>,
    places: VecDeque<(u64, CancellationToken)>,
}

/// A place in front of a mailbox, as long as it lives.
pub struct Waiting<'a> {
    /// Rings when something comes into the mailbox.
    pub bell: Arc<Notify>,
    /// A newer reader took this place.
    pub displaced: CancellationToken,
    wakes: &'a Wakes,
    local: String,
    number: u64,
}

/// An agent whose token was checked in everything but its nonce.
#[derive(Clone, Debug)]
pub struct Caller {
    pub card: AgentCard,
    nonce: String,
    at: Timestamp,
}

/// On whose behalf a public question is asked.
#[derive(Clone, Debug)]
pub enum Asking {
    Nobody,
    Address(Address),
    Agent(Box<AgentCard>),
}

impl Doors {
    pub fn new(
        house: Arc<House>,
        store: Store,
        resolver: Arc<Resolver>,
        clock: Arc<dyn Clock>,
        admin_token: Option<&str>,
    ) -> Doors {
        let admin = admin_token.map(str::trim).filter(|token| !token.is_empty()).map(crate::wire::Sha256::of);
        let lists = Semaphore::new(limits::LISTS_MADE_MAX);
        let index_places = Semaphore::new(limits::INDEX_CRAWLS_AT_ONCE);
        Doors { house: RwLock::new(house), store, resolver, clock, wakes: Wakes::default(), admin, lists, index_places }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The house as it is now. One command asks once, so that it is decided under one set of settings.
    pub fn house(&self) -> Arc<House> {
        self.house.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on this host can run these tests, and no others. Answers whether that is news.
    pub fn offer(&self, capabilities: Capabilities) -> bool {
        let mut house = self.house.write().unwrap_or_else(PoisonError::into_inner);
        if house.settings.capabilities == capabilities {
            return false;
        }
        Arc::make_mut(&mut house).settings.capabilities = capabilities;
        true
    }

    /// One seed for one command; what the command needs is derived from it, so that it can be run again.
    pub fn seed(&self) -> Result<[u8; 32], Refusal> {
        let mut seed = [0u8; 32];
        getrandom::fill(&mut seed)
            .map_err(|e| Refusal::new(Rule::Overloaded, format!("the system gives no random bytes: {e}")))?;
        Ok(seed)
    }

    /// Runs a rule in one durable transaction, then wakes whoever its changes concern.
    pub async fn commit<T, F>(&self, rule: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Fn(&dyn View) -> Decided<T> + Send + Sync + 'static,
    {
        let decided = self.store.transact(move |view: &dyn View| {
            let decision = rule(view)?;
            let touched = Touched::by(&decision.changes);
            Ok(decision.map(|reply| (reply, touched)))
        });
        let (reply, touched) = decided.await.map_err(logged)?;
        self.wakes.touch(touched);
        Ok(reply)
    }

    /// As [`Doors::commit`], spending the caller's token whatever the rule says.
    pub async fn commit_as<T, F>(&self, caller: &Caller, rule: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Fn(&dyn View) -> Decided<T> + Send + Sync + 'static,
    {
        let (key, at) = (caller.nonce.clone(), caller.at);
        let (house, card) = (self.house(), caller.card.clone());
        let outcome = self.commit(move |view| {
            if view.nonce_used(&key) {
                return Err(Refusal::new(Rule::Unauthenticated, "the nonce was used before; sign each request afresh"));
            }
            let mut changes = vec![Change::BurnNonce { key: key.clone(), at }];
            changes.extend(mail::presence::note(&house, view, at, &card));
            Ok(match rule(view) {
                Ok(decision) => {
                    changes.extend(decision.changes);
                    Decision { changes, reply: Ok(decision.reply) }
                }
                Err(refusal) => Decision { changes, reply: Err(refusal) },
            })
        });
        outcome.await?
    }

    /// Spends the token for a door that only reads.
    pub async fn spend(&self, caller: &Caller) -> Result<(), Refusal> {
        self.commit_as(caller, |_| Ok(Decision::nothing(()))).await
    }

    pub async fn read<T, F>(&self, query: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    {
        self.store.read(query).await.map_err(|error| logged(Denied::Store(error)))
    }

    /// An answer that is a list of whole documents: only so many are made at once, and each is text before the next
    /// begins.
    pub async fn list<F>(&self, query: F) -> Result<Reply, Refusal>
    where
        F: FnOnce(&Reader) -> Result<Value, StoreError> + Send + 'static,
    {
        let _place = self.lists.acquire().await;
        let text = self.read(move |reader| Ok(query(reader)?.to_string())).await?;
        Ok(Reply::text(JSON, text))
    }

    /// The checks of a signed token in the protocol's order. Every failure is 401; only the nonce is left to spend.
    pub async fn authenticate(
        &self,
        header: Option<&str>,
        request: Request<'_>,
        foreign: bool,
    ) -> Result<Caller, Refusal> {
        let denied = |why: String| Refusal::new(Rule::Unauthenticated, why);
        let header = header.ok_or_else(|| denied("this route needs an Authorization header of scheme Nyx5".into()))?;
        let token = Token::parse(header)?;
        if !foreign && !self.house().is_mine(&token.address) {
            return Err(denied(format!("{} does not belong to this house", token.address)));
        }
        let now = self.now();
        let card = match self.resolver.agent(&token.address, None).await {
            Ok(card) => card,
            // Not the caller's fault, and not to be taken for a wrong credential.
            Err(refusal) if refusal.rule == Rule::StoreUnavailable => return Err(refusal),
            Err(refusal) if !self.house().is_mine(&token.address) => return Err(denied(refusal.reason)),
            Err(refusal) => {
                // A name that is not here is denied as a key that is not its own, after the same checks: whoever tries
                // names with keys of its own does not learn which of them exist.
                let nobodys = self.house().key.public();
                return Err(token.check(&nobodys, request, now).err().unwrap_or_else(|| denied(refusal.reason)));
            }
        };
        token.check(&card.sig, request, now)?;
        if card.ended(now) {
            return Err(denied(format!("{} was revoked or has expired", token.address)));
        }
        Ok(Caller { card, nonce: token.nonce_key(), at: now })
    }

    /// Whether the header is the operator's token. No token configured means nobody is the operator.
    pub fn is_house(&self, header: Option<&str>) -> bool {
        let given = header.and_then(|header| header.trim().strip_prefix("Bearer ")).map(str::trim);
        match (&self.admin, given) {
            (Some(admin), Some(given)) => {
                let given = crate::wire::Sha256::of(given);
                admin.0.iter().zip(given.0).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
            }
            _ => false,
        }
    }

    /// Who asks a public question. A credential that does not hold asks as nobody, and is never an error.
    pub async fn asking(&self, authorization: Option<&str>, on_behalf: Option<&str>, request: Request<'_>) -> Asking {
        if authorization.is_some() {
            let Ok(caller) = self.authenticate(authorization, request, false).await else { return Asking::Nobody };
            return match self.spend(&caller).await {
                Ok(()) => Asking::Agent(Box::new(caller.card)),
                Err(_) => Asking::Nobody,
            };
        }
        let Some(asked) = on_behalf.and_then(OnBehalf::parse) else { return Asking::Nobody };
        let keys = self.resolver.domain_keys(&asked.domain, asked.kid()).await.unwrap_or_default();
        if asked.verifies(&keys, &self.house().domain, self.now()) {
            Asking::Address(asked.agent)
        } else {
            Asking::Nobody
        }
    }

    /// Counts one hit of an address in a bucket, and refuses when the minute's hits are spent.
    pub async fn count_ip(&self, bucket: &'static str, ip: IpAddr, limit: u32) -> Result<(), Refusal> {
        let (key, now) = (format!("{bucket}:{}", network_of(ip)), self.now());
        self.commit(move |view| {
            if view.rate(&key, now) >= limit {
                let refusal = Refusal::new(Rule::RateLimited, format!("more than {limit} requests in this minute"));
                return Err(refusal.retry_after(now.seconds_to_next_minute()));
            }
            let count = Change::CountRate { key: key.clone(), at: now, hits: 1 };
            Ok(Decision { changes: vec![count], reply: () })
        })
        .await
    }

    pub fn ids(&self) -> Result<Ids, Refusal> {
        self.seed().map(Ids::from_seed)
    }
}

impl Caller {
    pub fn owns(&self, local: &str) -> bool {
        self.card.address.local() == local
    }
}

impl Wakes {
    /// A place for one more reader of this mailbox. Beyond the bound the oldest gives up its place: it is most likely
    /// one whose connection has gone.
    pub fn wait_at(&self, local: &str) -> Waiting<'_> {
        let displaced = CancellationToken::new();
        let number = self.waits.fetch_add(1, Ordering::Relaxed);
        let mut mailboxes = lock(&self.mailboxes);
        let readers = mailboxes.entry(local.to_owned()).or_default();
        readers.places.push_back((number, displaced.clone()));
        while readers.places.len() > limits::WAITS_PER_AGENT_MAX {
            if let Some((_, oldest)) = readers.places.pop_front() {
                oldest.cancel();
            }
        }
        Waiting { bell: readers.bell.clone(), displaced, wakes: self, local: local.to_owned(), number }
    }

    /// How many readers wait at this mailbox.
    pub fn waiting(&self, local: &str) -> usize {
        lock(&self.mailboxes).get(local).map_or(0, |readers| readers.places.len())
    }

    /// Everybody who waits looks again.
    pub fn everybody(&self) {
        self.queue.notify_one();
        self.arbiter.notify_one();
        self.push.notify_one();
        lock(&self.mailboxes).values().for_each(|readers| readers.bell.notify_waiters());
    }

    fn touch(&self, touched: Touched) {
        if touched.queue {
            self.queue.notify_one();
        }
        if touched.arbiter {
            self.arbiter.notify_one();
        }
        if touched.push {
            self.push.notify_one();
        }
        if touched.mailboxes.is_empty() {
            return;
        }
        let mailboxes = lock(&self.mailboxes);
        for local in touched.mailboxes {
            if let Some(readers) = mailboxes.get(&local) {
                readers.bell.notify_waiters();
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut mailboxes = lock(&self.wakes.mailboxes);
        let Some(readers) = mailboxes.get_mut(&self.local) else { return };
        readers.places.retain(|(number, _)| *number != self.number);
        if readers.places.is_empty() {
            mailboxes.remove(&self.local);
        }
    }
}

/// A panic while holding one of these locks leaves a table that is still whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whom a committed decision concerns.
#[derive(Default)]
struct Touched {
    queue: bool,
    arbiter: bool,
    push: bool,
    mailboxes: Vec<String>,
}

impl Touched {
    fn by(changes: &[Change]) -> Touched {
        let mut touched = Touched::default();
        for change in changes {
            match change {
                Change::PutJob(job) => touched.queue |= job.status.open(),
                Change::PutLook(look) => touched.arbiter |= !look.done,
                Change::InsertPush(_) => touched.push = true,
                Change::Deliver(mail) => touched.mailboxes.push(mail.local.clone()),
                _ => {}
            }
        }
        touched
    }
}

/// What the store's own trouble was is for the operator; a stranger learns only whether to try again.
fn logged(denied: Denied) -> Refusal {
    match &denied {
        Denied::Store(StoreError::Conflict(what)) => tracing::info!(event = "conflict", what = %what),
        Denied::Store(error) => tracing::error!(event = "store_trouble", error = %error),
        Denied::Refused(_) => {}
    }
    denied.into_refusal()
}

/// Who shares a bucket: one IPv4 address, or the /64 that one subscriber has of IPv6.
fn network_of(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_subscriber_shares_a_bucket() {
        let of = |text: &str| network_of(text.parse().expect("ip"));
        assert_eq!(of("192.0.2.7"), "192.0.2.7");
        assert_eq!(of("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2::ffff"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    }

    #[test]
    fn beyond_the_bound_the_oldest_reader_gives_up_its_place() {
        let wakes = Wakes::default();
        let mut all: Vec<Waiting<'_>> = (0..limits::WAITS_PER_AGENT_MAX).map(|_| wakes.wait_at("ana")).collect();
        assert!(all.iter().all(|one| !one.displaced.is_cancelled()));
        all.push(wakes.wait_at("ana"));
        let displaced: Vec<bool> = all.iter().map(|one| one.displaced.is_cancelled()).collect();
        assert_eq!(displaced.iter().filter(|gone| **gone).count(), 1);
        assert!(displaced[0]);
        assert_eq!(wakes.waiting("ana"), limits::WAITS_PER_AGENT_MAX);
        drop(wakes.wait_at("eva"));
        all.clear();
        assert_eq!(wakes.waiting("ana"), 0);
        assert!(lock(&wakes.mailboxes).is_empty());
    }
}
