//! Who is behind an address: the domain's card against its anchor, the agent's card against the domain, a subagent's
//! card against every parent above it.
//!
//! Order of discovery: the operator's `[hosts]`, the TXT record, the well-known document. The anchor is the key that the
//! operator or DNS names; without one, the key pinned on first use, kept in the store, first wins. Only the certain
//! absence of a TXT record falls through; any other trouble in DNS is transient and anchors nothing.
//!
//! A refusal says whether trying again may help: [`Rule::SenderUnreachable`] when nothing certain is known,
//! [`Rule::SenderUnknown`] when the answer is a certain no. The house's own agents are read from the store, without
//! network, and go through the same verification.

use crate::client::cache::Cache;
use crate::client::dns::{self, TxtAnswer, TxtLookup};
use crate::client::peer::{Base, PeerFault, Peers};
use crate::limits;
use crate::record::{Change, Decision, House, Pin, View};
use crate::refusal::{Refusal, Rule};
use crate::store::Store;
use crate::time::{Clock, Timestamp};
use crate::wire::address::{Address, Domain};
use crate::wire::auth::OnBehalf;
use crate::wire::card::{AgentCard, DomainCard};
use crate::wire::envelope::not_a_key_of;
use crate::wire::json;
use crate::wire::key::{PublicKey, Signature};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where the operator says a house is, and with which key when the operator knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOverride {
    pub url: String,
    pub sig: Option<PublicKey>,
}

/// A foreign house: its verified card and where it is reached.
#[derive(Debug)]
pub struct Peer {
    pub card: DomainCard,
    pub base: Base,
}

pub struct Resolver {
    house: Arc<House>,
    store: Store,
    clock: Arc<dyn Clock>,
    peers: Peers,
    dns: Arc<dyn TxtLookup>,
    hosts: BTreeMap<Domain, Base>,
    listed_keys: BTreeMap<Domain, PublicKey>,
    domains: Mutex<Cache<Domain, Arc<Peer>>>,
    cards: Mutex<Cache<CardKey, Arc<AgentCard>>>,
    failures: Mutex<Cache<Domain, Refusal>>,
    /// Certified cards of this house whose certification was checked already.
    own: Mutex<Cache<String, Arc<AgentCard>>>,
    flights: Mutex<HashMap<Domain, Arc<tokio::sync::Mutex<()>>>>,
    /// Questions asked to each domain in the current minute.
    asked: Mutex<Cache<Domain, u32>>,
}

/// A secret card is kept only for whom it was asked.
type CardKey = (Address, Option<Address>);

/// Where a domain's card is fetched from, and what it must be signed with.
struct Place {
    base: Base,
    anchor: Option<PublicKey>,
    by_operator: bool,
}

impl Resolver {
    pub fn new(
        house: Arc<House>,
        store: Store,
        clock: Arc<dyn Clock>,
        peers: Peers,
        dns: Arc<dyn TxtLookup>,
        hosts: BTreeMap<Domain, HostOverride>,
    ) -> Result<Resolver, String> {
        let mut bases = BTreeMap::new();
        let mut listed_keys = BTreeMap::new();
        for (domain, host) in hosts {
            let base = Base::listed(&host.url).map_err(|fault| format!("hosts.\"{domain}\".url: {}", fault.0))?;
            if let Some(key) = host.sig {
                listed_keys.insert(domain.clone(), key);
            }
            bases.insert(domain, base);
        }
        let cache_rows = limits::CARD_CACHE_ENTRIES_MAX;
        let cache_bytes = limits::CARD_CACHE_BYTES_MAX;
        Ok(Resolver {
            house,
            store,
            clock,
            peers,
            dns,
            hosts: bases,
            listed_keys,
            domains: Mutex::new(Cache::new(cache_rows, cache_bytes)),
            cards: Mutex::new(Cache::new(cache_rows, cache_bytes)),
            failures: Mutex::new(Cache::new(cache_rows, cache_bytes)),
            own: Mutex::new(Cache::new(cache_rows, cache_bytes)),
            flights: Mutex::new(HashMap::new()),
            asked: Mutex::new(Cache::new(cache_rows, cache_bytes)),
        })
    }

    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// The card of any domain; this house's own comes from the store.
    pub async fn domain_card(&self, domain: &Domain) -> Result<DomainCard, Refusal> {
        if *domain == self.house.domain {
            return self.own_domain_card().await;
        }
        Ok(self.domain(domain).await?.card.clone())
    }

    /// A foreign house, from the cache or fetched and verified.
    pub async fn domain(&self, domain: &Domain) -> Result<Arc<Peer>, Refusal> {
        if let Some(known) = self.known(domain) {
            return known;
        }
        let flight = self.flight(domain);
        let _alone = flight.lock().await;
        match self.known(domain) {
            Some(known) => known,
            None => self.fetch_domain(domain).await,
        }
    }

    /// The keys of a domain; looked up afresh, once, when `kid` is not among the known ones.
    pub async fn domain_keys(&self, domain: &Domain, kid: &str) -> Result<Vec<PublicKey>, Refusal> {
        let card = self.domain_card(domain).await?;
        if *domain == self.house.domain || card.keys.iter().any(|key| key.is_kid(kid)) {
            return Ok(card.keys);
        }
        Ok(self.refreshed_domain(domain, &card).await?.card.keys.clone())
    }

    /// The card of an agent, its whole chain verified. `asker` is the agent of this house on whose behalf a foreign
    /// house is asked; it may see a card that is secret to others.
    pub async fn agent(&self, address: &Address, asker: Option<&Address>) -> Result<AgentCard, Refusal> {
        if self.house.is_mine(address) {
            return self.own_agent(address).await;
        }
        if let Some(card) = self.cached_card(address, asker) {
            return Ok(AgentCard::clone(&card));
        }
        self.fetch_agent(address, asker).await
    }

    /// The card of an envelope's sender, if it is known here and has the key that signed.
    ///
    /// For an agent of this house, known is enough: the transaction that takes the envelope looks at the card in force.
    pub fn known_sender(&self, from: &Address, kid: &str, asker: Option<&Address>) -> Option<AgentCard> {
        let now = self.clock.now();
        let known = match self.house.is_mine(from) {
            true => lock(&self.own).get(&from.local().to_owned(), now).filter(|card| card.delegation.is_none()),
            false => self.cached_card(from, asker),
        };
        known.filter(|card| card.accepted_key(kid, now).is_some()).map(|card| AgentCard::clone(&card))
    }

    /// As [`Resolver::known_sender`]; a key that the known card does not have is looked for once more at its house.
    pub async fn sender(&self, from: &Address, kid: &str, asker: Option<&Address>) -> Result<AgentCard, Refusal> {
        match self.known_sender(from, kid, asker) {
            Some(card) => Ok(card),
            None if self.house.is_mine(from) => self.own_sender(from, kid).await,
            None => self.fetch_agent(from, asker).await,
        }
    }

    /// Drops what is known of a domain, so that the next question asks its house.
    pub fn forget(&self, domain: &Domain) {
        lock(&self.domains).remove(domain);
        lock(&self.failures).remove(domain);
    }

    /// As [`Resolver::forget`], with every card that the domain certified: its key is not what it was.
    pub fn distrust(&self, domain: &Domain) {
        self.forget(domain);
        lock(&self.cards).retain(|(address, _)| !address.is_of(domain));
    }

    /// The key that a foreign house signs its card with now, whatever is pinned: for the operator to compare.
    pub async fn presented(&self, domain: &Domain) -> Result<PublicKey, Refusal> {
        self.count_question(domain)?;
        let place = self.place(domain).await?;
        let doc = self.domain_doc(domain, &place).await?;
        Ok(*DomainCard::verify(doc, domain, place.anchor.as_ref())?.signer())
    }

    fn known(&self, domain: &Domain) -> Option<Result<Arc<Peer>, Refusal>> {
        let now = self.clock.now();
        if let Some(peer) = lock(&self.domains).get(domain, now) {
            return Some(Ok(peer));
        }
        lock(&self.failures).get(domain, now).map(Err)
    }

    fn flight(&self, domain: &Domain) -> Arc<tokio::sync::Mutex<()>> {
        let mut flights = lock(&self.flights);
        if flights.len() >= limits::RESOLVE_FLIGHTS_KEPT {
            flights.retain(|_, flight| Arc::strong_count(flight) > 1);
        }
        flights.entry(domain.clone()).or_default().clone()
    }

    async fn refreshed_domain(&self, domain: &Domain, stale: &DomainCard) -> Result<Arc<Peer>, Refusal> {
        let flight = self.flight(domain);
        let _alone = flight.lock().await;
        // Somebody else may have refreshed it while this one waited.
        match lock(&self.domains).get(domain, self.clock.now()) {
            Some(peer) if peer.card.doc() != stale.doc() => return Ok(peer),
            _ => {}
        }
        self.fetch_domain(domain).await
    }

    async fn fetch_domain(&self, domain: &Domain) -> Result<Arc<Peer>, Refusal> {
        let fetched = self.fetch_domain_once(domain).await;
        let now = self.clock.now();
        match &fetched {
            Ok(peer) => {
                let bytes = json::canonical(peer.card.doc()).len();
                let until = now.plus(limits::CARD_CACHE_MS);
                lock(&self.domains).put(domain.clone(), peer.clone(), bytes, now, until);
                lock(&self.failures).remove(domain);
            }
            Err(refusal) => {
                let until = now.plus(limits::FAILURE_CACHE_MS);
                lock(&self.failures).put(domain.clone(), refusal.clone(), refusal.reason.len(), now, until);
            }
        }
        fetched
    }

    async fn fetch_domain_once(&self, domain: &Domain) -> Result<Arc<Peer>, Refusal> {
        self.count_question(domain)?;
        let place = self.place(domain).await?;
        let pinned = if place.anchor.is_some() { None } else { self.pin(domain).await? };
        let doc = self.domain_doc(domain, &place).await?;
        let signer = Signature::of(&doc, "signature").map(|signature| signature.kid.to_owned()).unwrap_or_default();
        // The key that a card of the pinned key announced is believed once it signs.
        let followed = pinned.as_ref().and_then(|pin| pin.next).filter(|next| next.is_kid(&signer));
        let anchor = place.anchor.or(followed).or(pinned.as_ref().map(|pin| pin.key));
        let card = DomainCard::verify(doc, domain, anchor.as_ref()).map_err(|refusal| match &pinned {
            Some(pin) if !pin.key.is_kid(&signer) && followed.is_none() => unknown(format!(
                "the key of {domain} changed: it signs with {} and {} is pinned here; the operator must confirm it",
                shown(if signer.is_empty() { "no key" } else { &signer }),
                pin.key,
            )),
            _ => unknown(refusal.reason),
        })?;
        match &pinned {
            None if anchor.is_none() => self.learn_pin(domain, &card, &signer).await?,
            None => {}
            Some(pin) => self.follow_pin(pin, &card).await?,
        }
        let base = if place.by_operator {
            place.base
        } else {
            Base::judged(&card.estafeta).map_err(|fault| unknown(format!("the card of {domain}: {}", fault.0)))?
        };
        Ok(Arc::new(Peer { card, base }))
    }

    async fn domain_doc(&self, domain: &Domain, place: &Place) -> Result<Value, Refusal> {
        let answer = self.peers.get(&place.base, "/.well-known/nyx5.json", None, limits::CARD_BYTES_MAX).await;
        let answer = answer.map_err(|fault| unreachable(domain, &fault))?;
        match answer.status {
            200 => json_answer(domain, "the domain card", &answer.body),
            404 | 410 => Err(unknown(format!("{domain} publishes no domain card ({})", answer.status))),
            other => Err(transient(format!("{domain} answered {other} when asked for its domain card"))),
        }
    }

    /// Letters that only pretend to come from a domain must not make this house flood it with questions.
    fn count_question(&self, domain: &Domain) -> Result<(), Refusal> {
        let now = self.clock.now();
        let mut asked = lock(&self.asked);
        let before = asked.get(domain, now).unwrap_or(0);
        if before >= limits::CARD_FETCHES_PER_MINUTE {
            return Err(transient(format!("{domain} was asked for too many cards in this minute")));
        }
        let until = Timestamp::from_millis((now.minute() + 1).saturating_mul(60_000));
        asked.put(domain.clone(), before + 1, domain.as_str().len(), now, until);
        Ok(())
    }

    async fn place(&self, domain: &Domain) -> Result<Place, Refusal> {
        if let Some(base) = self.hosts.get(domain) {
            let anchor = self.listed_keys.get(domain).copied();
            return Ok(Place { base: base.clone(), anchor, by_operator: true });
        }
        let top = domain.as_str().rsplit('.').next().unwrap_or_default();
        if top.bytes().all(|b| b.is_ascii_digit()) {
            return Err(unknown(format!("{domain} is not a name in DNS")));
        }
        let judged = |url: &str| Base::judged(url).map_err(|fault| unknown(format!("{domain}: {}", fault.0)));
        let well_known = || judged(&format!("https://{domain}"));
        match self.dns.txt(&dns::record_name(domain)).await {
            TxtAnswer::Absent => Ok(Place { base: well_known()?, anchor: None, by_operator: false }),
            TxtAnswer::Failed(why) => Err(transient(format!("the discovery record of {domain}: {why}"))),
            TxtAnswer::Records(records) => match dns::read(&records) {
                Err(why) => Err(transient(format!("{domain}: {why}"))),
                Ok(None) => Ok(Place { base: well_known()?, anchor: None, by_operator: false }),
                Ok(Some(found)) => Ok(Place { base: judged(&found.url)?, anchor: found.sig, by_operator: false }),
            },
        }
    }

    async fn pin(&self, domain: &Domain) -> Result<Option<Pin>, Refusal> {
        let name = domain.clone();
        self.store.read(move |reader| reader.pinned(name.as_str())).await.map_err(store_trouble)
    }

    /// First use: keeps the key, and believes the card only if the kept key is its signer's.
    async fn learn_pin(&self, domain: &Domain, card: &DomainCard, signer: &str) -> Result<(), Refusal> {
        let Some(key) = card.keys.iter().find(|key| key.is_kid(signer)).copied() else {
            return Err(unknown(format!("the card of {domain} is not signed by one of its keys")));
        };
        let (name, at) = (domain.to_string(), self.clock.now());
        let learned = self.store.transact(move |_| {
            let change = Change::InsertPin { domain: name.clone(), key, at };
            Ok(Decision { changes: vec![change], reply: () })
        });
        if let Err(denied) = learned.await {
            let refusal = denied.into_refusal();
            if refusal.rule != Rule::Conflict {
                return Err(refusal);
            }
        }
        match self.pin(domain).await? {
            Some(pin) if pin.key == key => {
                tracing::info!(event = "pin_learned", domain = %domain, key = %key);
                Ok(())
            }
            _ => Err(transient(format!("another key of {domain} was pinned at the same time"))),
        }
    }

    /// Keeps what a verified card says about its key: the next one that it announces, or that the next one now signs.
    async fn follow_pin(&self, pin: &Pin, card: &DomainCard) -> Result<(), Refusal> {
        let kept = Pin { key: *card.signer(), next: card.announced().copied(), at: self.clock.now(), ..pin.clone() };
        if (kept.key, kept.next) == (pin.key, pin.next) {
            return Ok(());
        }
        let (before, change) = (pin.clone(), kept.clone());
        let followed = self.store.transact(move |_| {
            let changes = vec![Change::PutPin(change.clone())];
            Ok(Decision { changes, reply: () })
        });
        followed.await.map_err(crate::store::Denied::into_refusal)?;
        tracing::info!(
            event = "pin_followed", domain = %kept.domain, before = %before.key, key = %kept.key, next = ?kept.next.map(|key| key.kid())
        );
        Ok(())
    }

    fn cached_card(&self, address: &Address, asker: Option<&Address>) -> Option<Arc<AgentCard>> {
        let now = self.clock.now();
        let cards = lock(&self.cards);
        cards.get(&(address.clone(), None), now).or_else(|| cards.get(&(address.clone(), asker.cloned()), now))
    }

    async fn fetch_agent(&self, address: &Address, asker: Option<&Address>) -> Result<AgentCard, Refusal> {
        let card = self.fetch_card(address, asker).await?;
        self.verify_chain(&card, asker).await?;
        let now = self.clock.now();
        let secret = card.visibility == crate::wire::card::Visibility::Secret;
        let key = (address.clone(), if secret { asker.cloned() } else { None });
        let bytes = json::canonical(card.doc()).len();
        let kept = Arc::new(card.clone());
        lock(&self.cards).put(key, kept, bytes, now, now.plus(limits::CARD_CACHE_MS));
        Ok(card)
    }

    /// One card, certified by its domain; its delegation is not followed here.
    async fn fetch_card(&self, address: &Address, asker: Option<&Address>) -> Result<AgentCard, Refusal> {
        let domain = address.domain();
        let peer = self.domain(&domain).await?;
        self.count_question(&domain)?;
        let header = asker.filter(|asker| self.house.is_mine(asker)).map(|asker| {
            let value = OnBehalf::header(&self.house.domain, &self.house.key, asker, &domain, self.clock.now());
            ("x-nyx5-for", value)
        });
        let path = format!("/agents/{}", address.local());
        let answer = self.peers.get(&peer.base, &path, header, limits::CARD_BYTES_MAX).await;
        let answer = answer.map_err(|fault| {
            self.forget(&domain);
            unreachable(&domain, &fault)
        })?;
        let doc = match answer.status {
            200 => json_answer(&domain, &format!("the card of {address}"), &answer.body)?,
            404 | 410 => return Err(unknown(format!("{domain} knows no agent {address}"))),
            other => return Err(transient(format!("{domain} answered {other} when asked for the card of {address}"))),
        };
        let card = AgentCard::parse(doc).map_err(|r| unknown(format!("the card of {address}: {}", r.reason)))?;
        if card.address != *address {
            return Err(unknown(format!("{domain} answered with the card of another agent than {address}")));
        }
        if card.certified_by(&peer.card).is_err() {
            let fresh = self.refreshed_domain(&domain, &peer.card).await?;
            card.certified_by(&fresh.card).map_err(|refusal| unknown(refusal.reason))?;
        }
        Ok(card)
    }

    /// Follows delegations upwards. Every parent must be alive and must itself be certified.
    async fn verify_chain(&self, card: &AgentCard, asker: Option<&Address>) -> Result<(), Refusal> {
        let now = self.clock.now();
        let mut child = card.clone();
        for _ in 0..limits::DELEGATION_DEPTH_MAX {
            let Some(delegation) = &child.delegation else { return Ok(()) };
            if delegation.by.domain() != child.address.domain() {
                return Err(unknown(format!("{} is delegated by an agent of another house", child.address)));
            }
            let by = delegation.by.clone();
            let parent = match self.house.is_mine(&by) {
                true => self.own_card(&by).await?,
                false => match self.cached_card(&by, asker) {
                    Some(known) => AgentCard::clone(&known),
                    None => self.fetch_card(&by, asker).await?,
                },
            };
            child.delegated_by(&parent, now).map_err(|refusal| unknown(refusal.reason))?;
            if parent.ended(now) {
                return Err(unknown(format!("{by}, who delegated {}, has ended", child.address)));
            }
            child = parent;
        }
        match child.delegation {
            None => Ok(()),
            Some(_) => Err(unknown(format!(
                "{} stands under more than {} delegations",
                card.address,
                limits::DELEGATION_DEPTH_MAX
            ))),
        }
    }

    /// Nothing is said about a name of this house to whoever does not hold its key, not even whether there is one.
    async fn own_sender(&self, from: &Address, kid: &str) -> Result<AgentCard, Refusal> {
        match self.own_card(from).await {
            Ok(card) if card.accepted_key(kid, self.clock.now()).is_some() => self.own_agent(from).await,
            Err(refusal) if refusal.rule != Rule::SenderUnknown => Err(refusal),
            Ok(_) | Err(_) => Err(not_a_key_of(kid, from)),
        }
    }

    async fn own_agent(&self, address: &Address) -> Result<AgentCard, Refusal> {
        let card = self.own_card(address).await?;
        if card.delegation.is_some() {
            Box::pin(self.verify_chain(&card, None)).await?;
        }
        Ok(card)
    }

    async fn own_card(&self, address: &Address) -> Result<AgentCard, Refusal> {
        let local = address.local().to_owned();
        let record = self.store.read(move |reader| Ok(reader.agent(&local))).await.map_err(store_trouble)?;
        let card = record.map(|record| record.card).filter(|card| card.address == *address);
        let card = card.ok_or_else(|| unknown(format!("{address} does not exist at this house")))?;
        let now = self.clock.now();
        let key = address.local().to_owned();
        let checked = lock(&self.own).get(&key, now).is_some_and(|known| known.doc() == card.doc());
        if !checked {
            let domain = self.own_domain_card().await?;
            card.certified_by(&domain).map_err(|refusal| unknown(refusal.reason))?;
            let bytes = json::canonical(card.doc()).len();
            lock(&self.own).put(key, Arc::new(card.clone()), bytes, now, now.plus(limits::CARD_CACHE_MS));
        }
        Ok(card)
    }

    async fn own_domain_card(&self) -> Result<DomainCard, Refusal> {
        let doc = self.store.read(|reader| reader.domain_card()).await.map_err(store_trouble)?;
        let doc = doc.ok_or_else(|| Refusal::new(Rule::StoreUnavailable, "this house has no domain card yet"))?;
        DomainCard::verify(doc, &self.house.domain, Some(&self.house.card_key().public()))
            .map_err(|refusal| unknown(format!("this house's own card: {}", refusal.reason)))
    }
}

fn json_answer(domain: &Domain, what: &str, body: &[u8]) -> Result<Value, Refusal> {
    json::parse_object(body).map_err(|refusal| match refusal.rule {
        // A page of an intermediary, not a word of the house.
        Rule::NotJson => transient(format!("{domain} answered something else than {what}: {}", refusal.reason)),
        _ => unknown(format!("{what}: {}", refusal.reason)),
    })
}

fn store_trouble(error: crate::store::StoreError) -> Refusal {
    crate::store::Denied::Store(error).into_refusal()
}

fn unreachable(domain: &Domain, fault: &PeerFault) -> Refusal {
    transient(format!("{domain} cannot be reached: {}", fault.0))
}

fn transient(why: String) -> Refusal {
    Refusal::new(Rule::SenderUnreachable, why)
}

fn unknown(why: String) -> Refusal {
    Refusal::new(Rule::SenderUnknown, why)
}

fn shown(text: &str) -> String {
    crate::probe::text::quote(text, 80)
}

/// A panic while holding one of these locks leaves a table that is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
