//! The rows of the federated index.
//!
//! An agent's place in the order is a row that holds from one generation up to another, so that a walk goes on in the
//! order in which it began. A search looks at a bounded number of rows, however many agents there are: a rare word is
//! answered from the list of those who have it, anything else from the order itself.

use super::rows::{Rows, bound, document, instant};
use super::{Denied, Reader, Store, StoreError, sql};
use crate::limits;
use crate::mail::index::{Cursor, IndexedAgent, IndexedHouse, Judged, Page, RANK_NULL, Score, Search, Shown, rank};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use rusqlite::{Row, params};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    generation: i64,
    floor: i64,
    houses: i64,
    agents: i64,
}

/// What is known of an agent beside its card.
struct Facts {
    judged: Judged,
    price: Option<u64>,
    ends: Option<Timestamp>,
}

impl Store {
    /// Lists a house, to be crawled by whoever asked; one that is listed already stays as it is. Answers its record and
    /// whether it is new.
    pub async fn index_register(
        &self,
        house: IndexedHouse,
        claimed_until: Timestamp,
    ) -> Result<(IndexedHouse, bool), Denied> {
        self.command(move |rows| {
            if let Some(known) = house_of(rows, &house.domain)? {
                return Ok((known, false));
            }
            rows.exec(sql::INDEX_BEGIN, [house.added.millis()])?;
            let state = state(rows)?.ok_or_else(|| StoreError::Bug("the index has no state".to_owned()))?;
            if usize::try_from(state.houses).unwrap_or(usize::MAX) >= limits::INDEX_HOUSES_MAX {
                return Err(Denied::Refused(full()));
            }
            let row = params![
                house.domain,
                house.estafeta,
                house.added.millis(),
                house.reputation.to_string(),
                claimed_until.millis()
            ];
            rows.exec(sql::INDEX_INSERT_HOUSE, row)?;
            put_state(rows, State { houses: state.houses + 1, ..state })?;
            Ok((house.clone(), true))
        })
        .await
    }

    /// Up to `n` houses whose pass is due; each is this caller's alone until the claim lapses.
    pub async fn index_claim(&self, now: Timestamp, n: usize) -> Result<Vec<String>, StoreError> {
        let until = now.plus(limits::INDEX_CRAWL_CLAIM_MS).millis();
        self.command(move |rows| {
            Ok(rows.many(sql::INDEX_CLAIM, params![now.millis(), until, bound(n)], |row| Ok(row.get(0)?))?)
        })
        .await
        .map_err(Denied::into_fault)
    }

    /// Writes down what a pass found. `agents` replaces all that the house had; `None` leaves them as they are. Without
    /// `wake` the house is dropped.
    pub async fn index_crawled(
        &self,
        house: IndexedHouse,
        agents: Option<Vec<IndexedAgent>>,
        wake: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<IndexedHouse, Denied> {
        self.command(move |rows| {
            let Some(before) = house_of(rows, &house.domain)? else { return Ok(house.clone()) };
            let Some(mut state) = state(rows)? else { return Ok(before) };
            let agents = if wake.is_none() { Some(&[][..]) } else { agents.as_deref() };
            let mut after = IndexedHouse { added: before.added, agents: before.agents, ..house.clone() };
            if let Some(agents) = agents {
                state.generation += 1;
                replace(rows, &mut state, &house.domain, agents, now)?;
                after.agents = agents.len() as u64;
            }
            prune(rows, &mut state, now)?;
            match wake {
                None => {
                    rows.exec(sql::INDEX_DELETE_HOUSE, [&house.domain])?;
                    state.houses -= 1;
                }
                Some(wake) => {
                    let last_ok = after.last_ok.map(Timestamp::millis);
                    let agents = i64::try_from(after.agents).unwrap_or(i64::MAX);
                    let reputation = after.reputation.to_string();
                    let row =
                        params![after.domain, after.estafeta, last_ok, after.fails, agents, reputation, wake.millis()];
                    rows.exec(sql::INDEX_UPDATE_HOUSE, row)?;
                }
            }
            put_state(rows, state)?;
            Ok(after)
        })
        .await
    }
}

impl Reader<'_> {
    pub fn index_house(&self, domain: &str) -> Result<Option<IndexedHouse>, StoreError> {
        house_of(self.rows(), domain)
    }

    /// By domain, after the one named.
    pub fn index_houses(&self, after: &str, limit: usize) -> Result<Vec<IndexedHouse>, StoreError> {
        self.rows().many(sql::INDEX_HOUSES, params![after, bound(limit)], read_house)
    }

    /// How many houses are listed.
    pub fn index_size(&self) -> Result<usize, StoreError> {
        Ok(state(self.rows())?.map_or(0, |state| usize::try_from(state.houses).unwrap_or(0)))
    }

    /// When the next pass is due.
    pub fn index_next(&self) -> Result<Option<Timestamp>, StoreError> {
        self.rows().one(sql::INDEX_NEXT, [i64::MIN], |row| instant(row, 0))
    }

    /// One page of a walk, or why it cannot go on.
    pub fn index_search(&self, search: &Search, now: Timestamp) -> Result<Result<Page, Refusal>, StoreError> {
        let rows = self.rows();
        let state = state(rows)?.unwrap_or(State { generation: 0, floor: 0, houses: 0, agents: 0 });
        if let Some(cursor) = &search.cursor
            && let Err(refusal) = cursor.usable(state.generation, state.floor)
        {
            return Ok(Err(refusal));
        }
        let generation = search.cursor.as_ref().map_or(state.generation, |cursor| cursor.generation);
        let walk = Walk { rows, search, generation, fresh: generation == state.generation, now };
        let mut least: Option<Vec<String>> = None;
        for term in &search.terms {
            let most = limits::INDEX_EXAMINED_MAX;
            let having: Vec<String> =
                rows.many(sql::INDEX_TERM, params![term, bound(most + 1)], |row| Ok(row.get(0)?))?;
            if having.len() <= most && least.as_ref().is_none_or(|least| having.len() < least.len()) {
                least = Some(having);
            }
        }
        let page = match least {
            Some(having) => walk.among(&having)?,
            None => walk.along(u64::try_from(state.agents).unwrap_or(0))?,
        };
        Ok(Ok(page))
    }
}

struct Walk<'a, 'c> {
    rows: &'a Rows<'c>,
    search: &'a Search,
    generation: i64,
    fresh: bool,
    now: Timestamp,
}

/// A place in the order.
type Place = (i64, String);

impl Walk<'_, '_> {
    /// Over the few who have a word.
    fn among(&self, having: &[String]) -> Result<Page, StoreError> {
        let mut bytes = 0;
        let mut matches: BTreeMap<Place, Facts> = BTreeMap::new();
        let mut at_least = false;
        for address in having {
            if bytes > limits::INDEX_READ_BYTES_MAX {
                at_least = true;
                break;
            }
            let Some(facts) = self.matching(address, &mut bytes)? else { continue };
            let at = params![address, self.generation];
            let Some(rank) = self.rows.integer(sql::INDEX_RANK_AT, at)? else { continue };
            matches.insert((rank, address.clone()), facts);
        }
        let total = matches.len() as u64;
        let after = self.search.cursor.as_ref().map(|cursor| (cursor.rank, cursor.address.clone()));
        let rest = matches.into_iter().filter(|(place, _)| after.as_ref().is_none_or(|after| place > after));
        let mut page = Page { total, at_least, examined: having.len(), ..Page::default() };
        let mut shown_bytes = 0;
        let mut last = None;
        for (place, facts) in rest {
            if page.agents.len() >= self.search.limit || shown_bytes > limits::INDEX_PAGE_BYTES_MAX {
                page.next = last.map(|place| self.cursor(place));
                return Ok(page);
            }
            page.agents.extend(self.shown(&place.1, facts, &mut shown_bytes)?);
            last = Some(place);
        }
        Ok(page)
    }

    /// Down the order itself.
    fn along(&self, agents: u64) -> Result<Page, StoreError> {
        let start = self.search.cursor.as_ref().map_or((i64::MIN, String::new()), |c| (c.rank, c.address.clone()));
        let (matches, end, mut examined) = self.stretch(&start, self.search.limit)?;
        let mut page = Page::default();
        let (mut shown_bytes, mut last) = (0, None);
        let mut cut = false;
        for (place, facts) in matches {
            if shown_bytes > limits::INDEX_PAGE_BYTES_MAX {
                cut = true;
                break;
            }
            page.agents.extend(self.shown(&place.1, facts, &mut shown_bytes)?);
            last = Some(place);
        }
        page.next = if cut { last } else { end }.map(|place| self.cursor(place));
        if !self.search.filters() {
            page.total = agents;
        } else {
            let (all, more, looked) = self.stretch(&(i64::MIN, String::new()), usize::MAX)?;
            (page.total, page.at_least) = (all.len() as u64, more.is_some());
            examined += looked;
        }
        page.examined = examined;
        Ok(page)
    }

    /// Matches after a place, up to `most` of them, and where the looking ended if there is more to look at.
    #[allow(clippy::type_complexity)]
    fn stretch(&self, start: &Place, most: usize) -> Result<(Vec<(Place, Facts)>, Option<Place>, usize), StoreError> {
        let limit = limits::INDEX_EXAMINED_MAX;
        let (statement, row) = match self.fresh {
            true => (sql::INDEX_WALK_NOW, params![start.0, start.1, bound(limit)]),
            false => (sql::INDEX_WALK, params![start.0, start.1, bound(limit)]),
        };
        let mut places: Vec<(Place, i64, i64)> =
            self.rows.many(statement, row, |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?, row.get(3)?)))?;
        let examined = places.len();
        let cut = examined == limit;
        if cut && let Some((last, ..)) = places.last().cloned() {
            // What else there may be at this place is looked at with the next page.
            places.retain(|(place, ..)| *place != last);
        }
        let mut end = None;
        let mut bytes = 0;
        let mut matches = Vec::new();
        for (place, since, until) in places {
            if matches.len() >= most || bytes > limits::INDEX_READ_BYTES_MAX {
                return Ok((matches, end, examined));
            }
            if since <= self.generation
                && self.generation < until
                && let Some(facts) = self.matching(&place.1, &mut bytes)?
            {
                matches.push((place.clone(), facts));
            }
            end = Some(place);
        }
        Ok((matches, end.filter(|_| cut), examined))
    }

    /// What is known of an agent that passes every filter today.
    fn matching(&self, address: &str, bytes: &mut usize) -> Result<Option<Facts>, StoreError> {
        let Some(facts) = self.rows.one(sql::INDEX_FACTS, [address], facts)? else { return Ok(None) };
        if facts.ends.is_some_and(|ends| ends <= self.now) {
            return Ok(None);
        }
        for term in &self.search.terms {
            if self.rows.integer(sql::INDEX_HAS_TERM, params![term, address])?.is_none() {
                return Ok(None);
            }
        }
        let admitted = self.search.admits(facts.judged, facts.price, || {
            let card = self.rows.text(sql::INDEX_CARD, [address])?.unwrap_or_default();
            *bytes += card.len();
            Ok::<String, StoreError>(card)
        })?;
        Ok(admitted.then_some(facts))
    }

    fn shown(&self, address: &str, facts: Facts, bytes: &mut usize) -> Result<Option<Shown>, StoreError> {
        let found = self.rows.one(sql::INDEX_CARD, [address], |row| {
            let length: String = row.get(0)?;
            Ok((length.len(), document(row, 0)?, row.get(1)?))
        })?;
        Ok(found.map(|(length, card, house)| {
            *bytes += length;
            Shown { card, house, judged: facts.judged, price: facts.price }
        }))
    }

    fn cursor(&self, (rank, address): Place) -> Cursor {
        Cursor { rank, address, generation: self.generation }
    }
}

/// Puts a house's cards in the place of those that it had. Only what differs is written.
fn replace(
    rows: &Rows<'_>,
    state: &mut State,
    house: &str,
    agents: &[IndexedAgent],
    now: Timestamp,
) -> Result<(), StoreError> {
    let known: Vec<(String, String, Judged)> = rows.many(sql::INDEX_OF_HOUSE, [house], |row| {
        Ok((row.get(0)?, row.get(1)?, Judged { score: score(row, 2)?, jobs: row.get::<_, i64>(3)?.cast_unsigned() }))
    })?;
    let stays: BTreeSet<&str> = agents.iter().map(|agent| agent.address.as_str()).collect();
    for (address, ..) in known.iter().filter(|(address, ..)| !stays.contains(address.as_str())) {
        rows.exec(sql::INDEX_DELETE_AGENT, [address])?;
        rows.exec(sql::INDEX_DELETE_TERMS, [address])?;
        rows.exec(sql::INDEX_CLOSE_RANK, params![address, state.generation])?;
        rows.exec(sql::INDEX_GONE, params![address, state.generation, now.millis()])?;
        state.agents -= 1;
    }
    let known: BTreeMap<String, (String, Judged)> =
        known.into_iter().map(|(address, sha256, judged)| (address, (sha256, judged))).collect();
    for agent in agents {
        let before = known.get(&agent.address);
        let judged = agent.judged.unwrap_or(before.map(|(_, judged)| *judged).unwrap_or_default());
        let same_card = before.is_some_and(|(sha256, _)| *sha256 == agent.sha256);
        if same_card && before.is_some_and(|(_, known)| *known == judged) {
            continue;
        }
        let row = params![
            agent.address,
            house,
            agent.sha256,
            agent.card,
            judged.score,
            integer(judged.jobs),
            agent.price.map(integer),
            agent.ends.map(Timestamp::millis),
        ];
        rows.exec(sql::INDEX_PUT_AGENT, row)?;
        if !same_card {
            rows.exec(sql::INDEX_DELETE_TERMS, [&agent.address])?;
            for term in &agent.terms {
                rows.exec(sql::INDEX_INSERT_TERM, params![term, agent.address])?;
            }
        }
        state.agents += i64::from(before.is_none());
        place(rows, state, &agent.address, rank(judged.score), before.is_none())?;
    }
    Ok(())
}

/// Gives an agent its place from this generation on. Walks that began before it was here find it among those without a
/// score.
fn place(rows: &Rows<'_>, state: &mut State, address: &str, rank: i64, joins: bool) -> Result<(), StoreError> {
    let places: Vec<(i64, i64, i64)> =
        rows.many(sql::INDEX_RANKS, [address], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let generation = state.generation;
    if joins {
        rows.exec(sql::INDEX_BACK, [address])?;
        let absent_since = places.last().map_or(0, |(_, _, until)| *until);
        if absent_since < generation {
            rows.exec(sql::INDEX_INSERT_RANK, params![RANK_NULL, address, absent_since, generation])?;
        }
    } else if places.last().is_some_and(|(held, _, until)| *until == i64::MAX && *held == rank) {
        return Ok(());
    } else {
        rows.exec(sql::INDEX_CLOSE_RANK, params![address, generation])?;
    }
    rows.exec(sql::INDEX_INSERT_RANK, params![rank, address, generation, i64::MAX])?;
    let places: Vec<(i64, i64)> = rows.many(sql::INDEX_RANKS, [address], |row| Ok((row.get(1)?, row.get(2)?)))?;
    let over = places.len().saturating_sub(limits::INDEX_PLACES_KEPT);
    for (since, until) in places.into_iter().take(over) {
        rows.exec(sql::INDEX_DELETE_RANK, params![address, since])?;
        state.floor = state.floor.max(until);
    }
    Ok(())
}

/// Forgets where those stood who left long ago; walks that began while they were here cannot go on.
fn prune(rows: &Rows<'_>, state: &mut State, now: Timestamp) -> Result<(), StoreError> {
    let before = now.plus(-limits::INDEX_GONE_KEEP_MS).millis();
    let most = bound(limits::INDEX_GONE_PRUNED_AT_ONCE);
    let gone: Vec<(String, i64)> =
        rows.many(sql::INDEX_GONE_BEFORE, params![before, most], |row| Ok((row.get(0)?, row.get(1)?)))?;
    for (address, generation) in gone {
        rows.exec(sql::INDEX_DELETE_RANKS, [&address])?;
        rows.exec(sql::INDEX_BACK, [&address])?;
        state.floor = state.floor.max(generation);
    }
    Ok(())
}

fn state(rows: &Rows<'_>) -> Result<Option<State>, StoreError> {
    rows.one(sql::INDEX_STATE, [], |row| {
        Ok(State { generation: row.get(0)?, floor: row.get(1)?, houses: row.get(2)?, agents: row.get(3)? })
    })
}

fn put_state(rows: &Rows<'_>, state: State) -> Result<(), StoreError> {
    let row = params![state.generation, state.floor, state.houses, state.agents];
    rows.exec(sql::PUT_INDEX_STATE, row).map(drop)
}

fn house_of(rows: &Rows<'_>, domain: &str) -> Result<Option<IndexedHouse>, StoreError> {
    rows.one(sql::INDEX_HOUSE, [domain], read_house)
}

fn read_house(row: &Row<'_>) -> Result<IndexedHouse, StoreError> {
    Ok(IndexedHouse {
        domain: row.get(0)?,
        estafeta: row.get(1)?,
        added: instant(row, 2)?,
        last_ok: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_millis),
        fails: row.get(4)?,
        agents: row.get::<_, i64>(5)?.cast_unsigned(),
        reputation: document(row, 6)?,
    })
}

fn facts(row: &Row<'_>) -> Result<Facts, StoreError> {
    Ok(Facts {
        judged: Judged { score: score(row, 0)?, jobs: row.get::<_, i64>(1)?.cast_unsigned() },
        price: row.get::<_, Option<i64>>(2)?.map(i64::cast_unsigned),
        ends: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_millis),
    })
}

fn score(row: &Row<'_>, column: usize) -> Result<Option<Score>, StoreError> {
    Ok(row.get(column)?)
}

fn integer(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn full() -> Refusal {
    Refusal::new(Rule::IndexFull, format!("this index lists {} houses, and no more", limits::INDEX_HOUSES_MAX))
}
