//! Doors of the federated index: listing houses, and searching what their passes found. A house that runs no index
//! answers as if the routes were not there.

use super::Doors;
use super::http::Reply;
use super::routes::{App, Call};
use crate::client::crawl::{self, Found};
use crate::limits;
use crate::mail::index::{self, IndexedAgent, IndexedHouse, Reputation, Search};
use crate::record::House;
use crate::refusal::{Refusal, Rule};
use crate::store::{Denied, DirectoryQuery};
use crate::time::Timestamp;
use crate::wire::address::Domain;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// `POST /index/houses {"domain"}`: verified, listed, and read once before the answer where that is soon done.
pub async fn register(app: &App, call: Call) -> Result<Reply, Refusal> {
    let house = enabled(app)?;
    let body = call.json()?;
    let domain = body.get("domain").and_then(Value::as_str).ok_or_else(|| bad("domain is missing"))?;
    let domain = Domain::parse(&domain.to_lowercase()).map_err(|refusal| bad(&refusal.reason))?;
    let (name, size) = (domain.to_string(), limits::INDEX_HOUSES_MAX);
    let known = app.doors.read(move |reader| Ok((reader.index_house(&name)?, reader.index_size()?))).await?;
    let record = match known {
        (Some(known), _) => known,
        // Whoever is not let in costs no question to another house.
        (None, listed) if listed >= size => {
            return Err(Refusal::new(Rule::IndexFull, format!("this index lists {size} houses, and no more")));
        }
        (None, _) => enter(&app.doors, &house, domain).await?,
    };
    Ok(Reply::json(201, record.record()))
}

/// `GET /index/houses`.
pub async fn houses(app: &App, _call: Call) -> Result<Reply, Refusal> {
    enabled(app)?;
    let listed = app.doors.read(|reader| reader.index_houses("", limits::INDEX_HOUSES_MAX)).await?;
    let entries: Vec<Value> = listed.iter().map(IndexedHouse::entry).collect();
    Ok(Reply::ok(json!({"total": entries.len(), "houses": entries})))
}

/// `GET /index/agents`: one page, signed.
pub async fn agents(app: &App, call: Call) -> Result<Reply, Refusal> {
    let house = enabled(app)?;
    let (search, now) = (Search::read(&call.query)?, app.doors.now());
    let page = app.doors.read(move |reader| reader.index_search(&search, now)).await??;
    Ok(Reply::ok(house.signed(page.answer(&house.domain, now))))
}

/// One pass over a listed house that the caller has claimed. Answers its record as it is after it.
pub async fn pass(doors: &Doors, domain: &Domain) -> Result<Option<IndexedHouse>, Refusal> {
    let name = domain.to_string();
    let Some(before) = doors.read(move |reader| reader.index_house(&name)).await? else { return Ok(None) };
    let house = doors.house();
    let found = match *domain == house.domain {
        true => own(doors, &house).await,
        false => crawl::read(&doors.resolver, domain, doors.now()).await,
    };
    let now = doors.now();
    let every = house.settings.index_every_ms;
    let (after, agents) = match found {
        Ok(Found { estafeta, agents, reputation }) => {
            let (last_ok, reputation) = (Some(now), reputation.to_json());
            (IndexedHouse { estafeta, last_ok, fails: 0, reputation, ..before }, Some(agents))
        }
        Err(refusal) => {
            tracing::info!(event = "index_pass_failed", domain = %domain, reason = %refusal.reason);
            // What a house that no longer verifies certified is certified by nobody.
            let agents = (!refusal.transient()).then(Vec::new);
            (IndexedHouse { fails: before.fails.saturating_add(1), ..before }, agents)
        }
    };
    let wake = after.next(now, every);
    doors.store.index_crawled(after, agents, wake, now).await.map(Some).map_err(Denied::into_refusal)
}

async fn enter(doors: &Arc<Doors>, house: &Arc<House>, domain: Domain) -> Result<IndexedHouse, Refusal> {
    let card = doors.resolver.domain_card(&domain).await.map_err(|refusal| {
        let why = format!("{domain} does not verify as a house: {}", refusal.reason);
        Refusal::new(Rule::HouseNotVerified, why)
    })?;
    let now = doors.now();
    let listed = IndexedHouse {
        domain: domain.to_string(),
        estafeta: card.estafeta,
        added: now,
        last_ok: None,
        fails: 0,
        agents: 0,
        reputation: Reputation::default().to_json(),
    };
    let until = now.plus(limits::INDEX_CRAWL_CLAIM_MS);
    let (listed, new) = doors.store.index_register(listed, until).await.map_err(Denied::into_refusal)?;
    if !new {
        return Ok(listed);
    }
    tracing::info!(event = "index_house_listed", domain = %domain, index = %house.domain);
    // The pass goes on by itself; a slow house keeps nobody waiting.
    let (doors, wait) = (doors.clone(), Duration::from_millis(limits::INDEX_FIRST_CRAWL_MS));
    let first = tokio::spawn(async move {
        let place = doors.index_places.acquire().await;
        let outcome = pass(&doors, &domain).await;
        drop(place);
        outcome
    });
    match tokio::time::timeout(wait, first).await {
        Ok(Ok(Ok(Some(record)))) => Ok(record),
        _ => Ok(listed),
    }
}

/// This house's own directory, without a detour over the network.
async fn own(doors: &Doors, house: &House) -> Result<Found, Refusal> {
    let card = doors.resolver.domain_card(&house.domain).await?;
    let query = DirectoryQuery { limit: limits::INDEX_AGENTS_PER_HOUSE_MAX, ..DirectoryQuery::default() };
    let (_, listed) = doors.read(move |reader| reader.directory(&query)).await?;
    let agents: Vec<IndexedAgent> = index::admit(&listed, &card, doors.now()).into_values().collect();
    let reputation = Reputation { asked: agents.len() as u64, failed: agents.len() as u64, ..Reputation::default() };
    Ok(Found { estafeta: house.public_url.clone(), agents, reputation })
}

/// When the clock of the index has something to do next.
pub async fn next(doors: &Doors) -> Result<Option<Timestamp>, Refusal> {
    doors.read(|reader| reader.index_next()).await
}

fn enabled(app: &App) -> Result<Arc<House>, Refusal> {
    let house = app.doors.house();
    match house.settings.index {
        true => Ok(house),
        false => Err(super::routes::unknown_route()),
    }
}

fn bad(why: &str) -> Refusal {
    Refusal::new(Rule::BadParameter, why)
}
