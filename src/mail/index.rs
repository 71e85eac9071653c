//! The federated index: which cards of other houses enter it, what is searched for, and in which order it is shown.
//!
//! A card enters when the house that it names certified it, it asked to be listed and it stands; nothing else about it is
//! believed. Scores are what its own house says, so the index is a hint: whoever acts on a result verifies the card by
//! the chain. A walk sees each agent once, in the order of the scores at its first page, whatever changes meanwhile;
//! where that order is gone it is told so (410).

use crate::limits;
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::{Address, Domain, SystemName};
use crate::wire::card::{AgentCard, DomainCard};
use crate::wire::digest::Sha256;
use crate::wire::json;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A share in ten thousandths, as histories show shares.
pub type Score = u32;

/// A house that is crawled.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexedHouse {
    pub domain: String,
    pub estafeta: String,
    pub added: Timestamp,
    pub last_ok: Option<Timestamp>,
    /// Passes that failed since the last one that did not.
    pub fails: u32,
    pub agents: u64,
    pub reputation: Value,
}

/// A card that the index shows.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexedAgent {
    pub address: String,
    /// As its house signed it.
    pub card: String,
    pub sha256: String,
    /// Words that it is found by exactly.
    pub terms: BTreeSet<String>,
    pub price: Option<u64>,
    /// After this it is shown to nobody.
    pub ends: Option<Timestamp>,
    /// `None` where its house said nothing this time: what was known stays.
    pub judged: Option<Judged>,
}

/// What a house's arbiter decided about an agent of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Nothing of nothing is no score.
    pub score: Option<Score>,
    pub jobs: u64,
}

/// How many histories were asked for in one pass, and what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reputation {
    pub asked: u64,
    pub scored: u64,
    pub without_history: u64,
    pub without_verdict: u64,
    pub failed: u64,
}

/// What `GET /index/agents` is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// A part of the card, lower case.
    pub q: Option<String>,
    /// Each must be a term of the card.
    pub terms: Vec<String>,
    pub price_max: Option<u64>,
    pub min_score: Option<f64>,
    pub limit: usize,
    pub cursor: Option<Cursor>,
}

/// Where a page ended, and as of which generation the walk is ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub rank: i64,
    pub address: String,
    pub generation: i64,
}

/// One page of a walk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    pub total: u64,
    /// There may be more matches than were counted.
    pub at_least: bool,
    pub agents: Vec<Shown>,
    pub next: Option<Cursor>,
    /// Rows that were looked at: bounded, however many agents there are.
    pub examined: usize,
}

/// One result.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub card: Value,
    pub house: String,
    pub judged: Judged,
    pub price: Option<u64>,
}

/// Place in the order: best score first, those without one last.
pub fn rank(score: Option<Score>) -> i64 {
    score.map_or(RANK_NULL, |score| -i64::from(score))
}

/// The place of those without a score.
pub const RANK_NULL: i64 = 1;

/// The cards of one house that enter, of those that its directory listed. `None` among the results of `judged` is for
/// the caller to fill in from histories.
pub fn admit(listed: &[Value], house: &DomainCard, now: Timestamp) -> BTreeMap<String, IndexedAgent> {
    let mut kept: BTreeMap<String, IndexedAgent> = BTreeMap::new();
    let mut twofold = BTreeSet::new();
    for doc in listed {
        let Some(agent) = admit_one(doc, house, now) else { continue };
        match kept.get(&agent.address) {
            // A house that says two things of one agent in one breath is believed in neither.
            Some(other) if other.sha256 != agent.sha256 => {
                twofold.insert(agent.address);
            }
            _ => {
                kept.insert(agent.address.clone(), agent);
            }
        }
    }
    kept.retain(|address, _| !twofold.contains(address));
    kept
}

/// What a house's history of one of its agents says of its arbitrated sales; `None` where it says nothing readable.
pub fn judged(history: &Value, address: &str, house: &Domain) -> Option<Judged> {
    let arbitrated = history.get("arbitrados")?;
    let arbiter = house.system(SystemName::Verifica);
    let said = |field: &str| history.get(field).and_then(Value::as_str);
    if said("address") != Some(address) || arbitrated.get("arbitro").and_then(Value::as_str) != Some(arbiter.as_str()) {
        return None;
    }
    let part = |name: &str, field: &str| {
        let n = arbitrated.get(name)?.get(field)?.as_u64()?;
        (n <= limits::SAFE_INTEGER_MAX).then_some(u128::from(n))
    };
    let won = part("liberados", "tokens")?;
    let all = won + part("devueltos", "tokens")? + part("ejecutadas", "tokens")?;
    let score = (all > 0).then(|| Score::try_from((won * SCORE_WHOLE + all / 2) / all).ok()).flatten();
    Some(Judged { score, jobs: u64::try_from(part("liberados", "n")?).ok()? })
}

impl Search {
    /// From the query; every violation is a 400 with its reason, but a bad `limit` is the default.
    pub fn read(query: &[(String, String)]) -> Result<Search, Refusal> {
        let field = |name: &str| query.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
        let given = |name: &str| field(name).filter(|value| !value.is_empty());
        if field("offset").is_some() {
            return Err(bad("the index has no offset: follow next_cursor"));
        }
        let short = |name: &str| match given(name) {
            Some(text) if text.chars().count() > limits::INDEX_TEXT_CHARS_MAX => {
                Err(bad(format!("{name} must have at most {} characters", limits::INDEX_TEXT_CHARS_MAX)))
            }
            text => Ok(text),
        };
        let of_form = |name: &str, form: fn(&str) -> bool, what: &str| match given(name) {
            Some(text) if !form(text) => Err(bad(format!("{name} must be {what}"))),
            text => Ok(text),
        };
        let mut terms = Vec::new();
        if let Some(house) = short("house")? {
            terms.push(term(HOUSE, &house.to_lowercase()));
        }
        if let Some(capability) = of_form("capability", is_capability, "1 to 64 of a-z 0-9 _ -")? {
            terms.push(term(CAPABILITY, capability));
        }
        if let Some(media) = short("accepts")? {
            terms.push(term(ACCEPTS, media));
        }
        if let Some(tag) = of_form("tag", is_tag, "1 to 32 of a-z 0-9 -")? {
            terms.push(term(TAG, tag));
        }
        let lang = given("lang").map(str::to_lowercase);
        if let Some(lang) = lang {
            if !is_language(&lang) {
                return Err(bad("lang must be a language tag, such as es or es-cl"));
            }
            terms.push(term(LANGUAGE, &lang));
        }
        let price_max = match given("price_max") {
            None => None,
            Some(text) => Some(whole(text).ok_or_else(|| bad("price_max must be a whole number of tokens"))?),
        };
        let min_score = match given("min_score") {
            None => None,
            Some(text) => Some(share(text).ok_or_else(|| bad("min_score must be a number from 0 to 1"))?),
        };
        let limit = given("limit").and_then(whole).filter(|n| *n > 0);
        let limit = limit.map_or(limits::INDEX_PAGE_DEFAULT, |n| {
            usize::try_from(n).unwrap_or(usize::MAX).min(limits::INDEX_PAGE_MAX)
        });
        let cursor = given("cursor").map(Cursor::parse).transpose()?;
        Ok(Search { q: short("q")?.map(str::to_lowercase), terms, price_max, min_score, limit, cursor })
    }

    /// Whether anything but the order is asked for.
    pub fn filters(&self) -> bool {
        self.q.is_some() || !self.terms.is_empty() || self.price_max.is_some() || self.min_score.is_some()
    }

    /// Whether a row of today passes, its terms left aside; `card` is asked for its text only where that matters.
    pub fn admits<E>(
        &self,
        judged: Judged,
        price: Option<u64>,
        card: impl FnOnce() -> Result<String, E>,
    ) -> Result<bool, E> {
        let cheap = self.price_max.is_none_or(|most| price.is_some_and(|price| price <= most));
        let scored = self.min_score.is_none_or(|least| judged.score.is_some_and(|score| shown_score(score) >= least));
        if !cheap || !scored {
            return Ok(false);
        }
        match &self.q {
            None => Ok(true),
            Some(q) => Ok(card()?.to_lowercase().contains(q.as_str())),
        }
    }
}

impl Cursor {
    pub fn parse(text: &str) -> Result<Cursor, Refusal> {
        let malformed = || bad("the cursor is not one that this index gave");
        if text.len() > limits::INDEX_CURSOR_CHARS_MAX {
            return Err(malformed());
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed())?;
        // Scores are shares, which documents that agents sign never hold.
        let doc: Value = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
        let fields = doc.as_object().filter(|fields| fields.len() == 3).ok_or_else(malformed)?;
        let rank = match fields.get("s").ok_or_else(malformed)? {
            Value::Null => RANK_NULL,
            Value::Number(score) => {
                let score = score.as_f64().filter(|score| (0.0..=1.0).contains(score)).ok_or_else(malformed)?;
                // A score is shown in ten thousandths, so this is exact for every score that was shown.
                rank(Some((score * SCORE_WHOLE as f64).round() as Score))
            }
            _ => return Err(malformed()),
        };
        let address =
            fields.get("a").and_then(Value::as_str).filter(|a| a.len() <= limits::INDEX_CURSOR_ADDRESS_BYTES_MAX);
        let generation = fields.get("g").and_then(Value::as_i64).filter(|g| *g >= 0).ok_or_else(malformed)?;
        Ok(Cursor { rank, address: address.ok_or_else(malformed)?.to_owned(), generation })
    }

    pub fn text(&self) -> String {
        let score = match u32::try_from(-self.rank) {
            Ok(score) => json!(shown_score(score)),
            Err(_) => Value::Null,
        };
        let doc = json!({"s": score, "a": self.address, "g": self.generation});
        URL_SAFE_NO_PAD.encode(json::canonical(&doc))
    }

    /// Whether an index that stands at `generation`, and can reproduce orders since `floor`, can go on from here.
    pub fn usable(&self, generation: i64, floor: i64) -> Result<(), Refusal> {
        if self.generation > generation {
            return Err(bad("the cursor is of a later index than this one"));
        }
        if self.generation < floor {
            return Err(Refusal::new(Rule::CursorGone, "the order of this walk is gone: begin again without a cursor"));
        }
        Ok(())
    }
}

impl Page {
    /// The answer before it is signed.
    pub fn answer(self, index: &Domain, now: Timestamp) -> Value {
        let agents: Vec<Value> = self.agents.into_iter().map(Shown::annotated).collect();
        let next = self.next.map(|cursor| cursor.text());
        let mut doc = json!({
            "nyx5": "1", "index": index, "issued": now, "total": self.total, "agents": agents, "next_cursor": next,
        });
        if self.at_least {
            doc["total_at_least"] = true.into();
        }
        doc
    }
}

impl Shown {
    fn annotated(self) -> Value {
        let mut card = self.card;
        if let Some(fields) = card.as_object_mut() {
            fields.insert("_house".into(), self.house.into());
            fields.insert("_score".into(), self.judged.score.map_or(Value::Null, |score| json!(shown_score(score))));
            fields.insert("_jobs_done".into(), self.judged.jobs.into());
            fields.insert("_price_min".into(), self.price.into());
        }
        card
    }
}

/// A result without what the index wrote on it: the card as its house certified it.
pub fn stripped(card: &Value) -> Value {
    let fields: Map<String, Value> =
        card.as_object().into_iter().flatten().filter(|(name, _)| !name.starts_with('_')).map(own).collect();
    Value::Object(fields)
}

impl IndexedHouse {
    /// As `GET /index/houses` lists it.
    pub fn entry(&self) -> Value {
        json!({"domain": self.domain, "estafeta": self.estafeta, "last_ok": self.last_ok, "agents": self.agents})
    }

    /// As its registration is answered.
    pub fn record(&self) -> Value {
        json!({
            "domain": self.domain, "estafeta": self.estafeta, "added": self.added, "last_ok": self.last_ok,
            "fails": self.fails, "agents": self.agents, "reputacion": self.reputation,
        })
    }

    /// When the next pass is due after this one, and whether the house is dropped instead.
    pub fn next(&self, now: Timestamp, every_ms: i64) -> Option<Timestamp> {
        let since = self.last_ok.unwrap_or(self.added);
        if self.fails > 0 && now.since(since) > limits::INDEX_LOST_MS {
            return None;
        }
        let doubled = every_ms.saturating_mul(1 << self.fails.min(8));
        Some(now.plus(doubled.min(limits::INDEX_WAIT_MS_MAX.max(every_ms))))
    }
}

impl Reputation {
    pub fn to_json(self) -> Value {
        json!({
            "pedidas": self.asked, "con_puntaje": self.scored, "sin_historial": self.without_history,
            "sin_arbitrados": self.without_verdict, "fallidas": self.failed,
        })
    }
}

fn admit_one(doc: &Value, house: &DomainCard, now: Timestamp) -> Option<IndexedAgent> {
    let fields = doc.as_object()?;
    // Such fields are the index's to write.
    if fields.keys().any(|name| name.starts_with('_')) {
        return None;
    }
    if json::unsignable(doc).is_some() {
        return None;
    }
    let text = json::canonical(doc);
    if text.len() > limits::INDEX_CARD_BYTES_MAX {
        return None;
    }
    let card = AgentCard::parse(doc.clone()).ok()?;
    if !card.listed() || card.ended(now) || card.certified_by(house).is_err() {
        return None;
    }
    let terms = terms(&card, house);
    if terms.len() > limits::INDEX_TERMS_MAX {
        return None;
    }
    let ends = [card.valid_until, card.delegation.as_ref().and_then(|delegation| delegation.valid_until)];
    Some(IndexedAgent {
        address: card.address.as_str().to_owned(),
        sha256: Sha256::of(&text).hex(),
        card: text,
        terms,
        price: cheapest(doc),
        ends: ends.into_iter().flatten().min(),
        judged: None,
    })
}

fn terms(card: &AgentCard, house: &DomainCard) -> BTreeSet<String> {
    let doc = card.doc();
    let mut terms = BTreeSet::from([term(HOUSE, house.domain.as_str())]);
    let texts = |path: &str| {
        let list = doc.pointer(path).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_str).collect::<Vec<_>>()
    };
    let capabilities = doc.get("capabilities").and_then(Value::as_object).into_iter().flatten();
    let claimed = capabilities.filter(|(name, value)| is_capability(name) && says_yes(value));
    terms.extend(claimed.map(|(name, _)| term(CAPABILITY, name)));
    let media = texts("/capabilities/accepts");
    let short = media.iter().filter(|media| media.chars().count() <= limits::INDEX_TEXT_CHARS_MAX);
    terms.extend(short.map(|media| term(ACCEPTS, media)));
    terms.extend(texts("/profile/tags").iter().filter(|tag| is_tag(tag)).map(|tag| term(TAG, tag)));
    for language in texts("/profile/languages") {
        let language = language.to_lowercase();
        if !is_language(&language) {
            continue;
        }
        // A language is found by itself and by whatever it is a variety of.
        let parts: Vec<&str> = language.split('-').collect();
        terms.extend((1..=parts.len()).map(|n| term(LANGUAGE, &parts[..n].join("-"))));
    }
    terms
}

fn cheapest(doc: &Value) -> Option<u64> {
    let services = doc.pointer("/profile/services").and_then(Value::as_array).into_iter().flatten();
    let prices = services.filter_map(|service| service.pointer("/price/tokens").and_then(Value::as_u64));
    prices.filter(|price| *price <= limits::SAFE_INTEGER_MAX).min()
}

/// Whether a capability's value claims it.
pub fn says_yes(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(yes) => *yes,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

fn term(kind: char, name: &str) -> String {
    format!("{kind}:{name}")
}

fn own((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

fn shown_score(score: Score) -> f64 {
    f64::from(score) / SCORE_WHOLE as f64
}

fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|n| digits && *n <= limits::SAFE_INTEGER_MAX)
}

fn share(text: &str) -> Option<f64> {
    let plain = text.len() <= limits::INDEX_SHARE_CHARS_MAX && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse::<f64>().ok().filter(|share| plain && (0.0..=1.0).contains(share))
}

fn is_capability(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

fn is_tag(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

/// Lower case.
fn is_language(text: &str) -> bool {
    let mut parts = text.split('-');
    let first = parts.next().unwrap_or_default();
    let plain = |part: &str| part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (2..=3).contains(&first.len())
        && first.bytes().all(|b| b.is_ascii_lowercase())
        && parts.all(|part| (2..=8).contains(&part.len()) && plain(part))
        && text.len() <= limits::INDEX_TEXT_CHARS_MAX
}

fn bad(why: impl Into<String>) -> Refusal {
    Refusal::new(Rule::BadParameter, why)
}

const HOUSE: char = 'h';
const CAPABILITY: char = 'c';
const ACCEPTS: char = 'a';
const TAG: char = 't';
const LANGUAGE: char = 'l';
const SCORE_WHOLE: u128 = 10_000;

/// The address of a result, if it is one of its house's own.
pub fn address_of(card: &Value, house: &str) -> Option<Address> {
    let address = Address::parse(card.get("address")?.as_str()?).ok()?;
    (address.domain().as_str() == house).then_some(address)
}
