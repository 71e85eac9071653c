//! One pass over a house for the federated index: its card verified afresh, its directory page by page, the histories of
//! those it lists. Every question goes through the guard that all houses are reached by; sizes, counts and the time of
//! the whole pass are bounded, so that a house that lies, floods or dawdles costs a bounded amount and enters nothing
//! that it did not certify.

use crate::client::peer::{Base, PeerAnswer};
use crate::client::resolver::{Peer, Resolver};
use crate::limits;
use crate::mail::index::{self, IndexedAgent, Reputation};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::Domain;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What a pass found.
#[derive(Clone, Debug)]
pub struct Found {
    pub estafeta: String,
    pub agents: Vec<IndexedAgent>,
    pub reputation: Reputation,
}

/// Reads a foreign house. A refusal that is not transient says that the house is not what it was: nothing of it stands.
pub async fn read(resolver: &Resolver, domain: &Domain, now: Timestamp) -> Result<Found, Refusal> {
    resolver.forget(domain);
    let peer = resolver.domain(domain).await?;
    let pass = Pass { resolver, domain, peer };
    match tokio::time::timeout(Duration::from_millis(limits::INDEX_CRAWL_MS), pass.read(now)).await {
        Ok(found) => found,
        Err(_) => Err(unreadable(format!("{domain} was not read within {} ms", limits::INDEX_CRAWL_MS))),
    }
}

struct Pass<'a> {
    resolver: &'a Resolver,
    domain: &'a Domain,
    peer: Arc<Peer>,
}

impl Pass<'_> {
    async fn read(&self, now: Timestamp) -> Result<Found, Refusal> {
        let listed = self.listing().await?;
        let mut agents = index::admit(&listed, &self.peer.card, now);
        let reputation = self.judge(&mut agents).await;
        let agents = agents.into_values().collect();
        Ok(Found { estafeta: self.peer.card.estafeta.clone(), agents, reputation })
    }

    /// Everything that the directory lists. Pages whose cards are too large are asked for in smaller ones.
    async fn listing(&self) -> Result<Vec<Value>, Refusal> {
        let mut listed = Vec::new();
        let mut limit = limits::INDEX_PAGE_MAX;
        while listed.len() < limits::INDEX_AGENTS_PER_HOUSE_MAX {
            let path = format!("/agents?limit={limit}&offset={}", listed.len());
            let answer = match self.get(&path, limits::INDEX_LISTING_BYTES_MAX).await {
                Ok(answer) => answer,
                Err(fault) if limit <= limits::INDEX_LISTING_MIN || !fault.too_large => {
                    return Err(unreadable(format!("the directory of {}: {}", self.domain, fault.why)));
                }
                Err(_) => {
                    limit /= 2;
                    continue;
                }
            };
            if answer.status != 200 {
                return Err(unreadable(format!("the directory of {} answered {}", self.domain, answer.status)));
            }
            let page = loose(&answer.body)
                .ok_or_else(|| unreadable(format!("the directory of {} is not JSON", self.domain)))?;
            let cards = page.get("agents").and_then(Value::as_array).cloned();
            let cards =
                cards.ok_or_else(|| unreadable(format!("the directory of {} has no list of agents", self.domain)))?;
            let n = cards.len();
            // A house that shows more than it was asked for is not asked for the same again.
            listed.extend(cards.into_iter().take(limit));
            if n < limit {
                break;
            }
        }
        listed.truncate(limits::INDEX_AGENTS_PER_HOUSE_MAX);
        Ok(listed)
    }

    /// Asks for the histories of those who entered. What is not answered leaves their scores as they were.
    async fn judge(&self, agents: &mut BTreeMap<String, IndexedAgent>) -> Reputation {
        let mut counted = Reputation { asked: agents.len() as u64, ..Reputation::default() };
        let addresses: Vec<String> = agents.keys().cloned().collect();
        let mut batches = true;
        let mut singles = 0;
        for chunk in addresses.chunks(limits::INDEX_HISTORIES_AT_ONCE) {
            let mut histories: Option<BTreeMap<String, Value>> = None;
            if batches {
                match self.histories(chunk).await {
                    Ok(found) => histories = Some(found),
                    Err(Absent::NoRoute) => batches = false,
                    Err(Absent::Failed) => {
                        counted.failed += chunk.len() as u64;
                        continue;
                    }
                }
            }
            for address in chunk {
                let history = match &mut histories {
                    Some(histories) => Ok(histories.remove(address)),
                    None if singles >= limits::INDEX_SINGLE_HISTORIES_MAX => Err(()),
                    None => {
                        singles += 1;
                        self.history(address).await
                    }
                };
                let Some(agent) = agents.get_mut(address) else { continue };
                match history {
                    Err(()) => counted.failed += 1,
                    Ok(history) => tally(&mut counted, agent, history.as_ref(), self.domain),
                }
            }
        }
        counted
    }

    async fn histories(&self, addresses: &[String]) -> Result<BTreeMap<String, Value>, Absent> {
        let path = format!("/agents/historial?addresses={}", addresses.join(","));
        let answer = self.get(&path, limits::INDEX_HISTORY_BYTES_MAX).await.map_err(|_| Absent::Failed)?;
        match answer.status {
            200 => {}
            404 => return Err(Absent::NoRoute),
            _ => return Err(Absent::Failed),
        }
        let doc = loose(&answer.body).ok_or(Absent::Failed)?;
        let found = doc.get("historiales").and_then(Value::as_object).ok_or(Absent::Failed)?;
        Ok(found.iter().filter(|(_, doc)| !doc.is_null()).map(|(name, doc)| (name.clone(), doc.clone())).collect())
    }

    async fn history(&self, address: &str) -> Result<Option<Value>, ()> {
        let local = address.split('@').next().unwrap_or_default();
        let path = format!("/agents/{local}/historial");
        let answer = self.get(&path, limits::CARD_BYTES_MAX).await.map_err(|_| ())?;
        match answer.status {
            200 => loose(&answer.body).map(Some).ok_or(()),
            404 => Ok(None),
            _ => Err(()),
        }
    }

    async fn get(&self, path: &str, body_max: usize) -> Result<PeerAnswer, Fault> {
        let base: &Base = &self.peer.base;
        self.resolver
            .peers()
            .get(base, path, None, body_max)
            .await
            .map_err(|fault| Fault { too_large: fault.0.starts_with("the answer is larger than"), why: fault.0 })
    }
}

/// Counts what came of one history, and lets it decide the agent's score.
pub fn tally(counted: &mut Reputation, agent: &mut IndexedAgent, history: Option<&Value>, house: &Domain) {
    let judged = history.and_then(|history| index::judged(history, &agent.address, house));
    match judged {
        None => counted.without_history += 1,
        Some(judged) if judged.score.is_none() => counted.without_verdict += 1,
        Some(_) => counted.scored += 1,
    }
    agent.judged = Some(judged.unwrap_or_default());
}

struct Fault {
    too_large: bool,
    why: String,
}

enum Absent {
    /// A house of a version without the route.
    NoRoute,
    Failed,
}

/// What nobody signed as a whole: histories hold shares, and one card that cannot be signed must not hide the others.
fn loose(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice(bytes).ok()
}

fn unreadable(why: String) -> Refusal {
    Refusal::new(Rule::SenderUnreachable, why)
}
