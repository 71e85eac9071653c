//! Walks over an index whose scores and agents change between pages, against a model; and what a page costs.

use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use verifica::limits;
use verifica::mail::index::{Cursor, IndexedAgent, IndexedHouse, Judged, Page, Reputation, Search};
use verifica::refusal::Rule;
use verifica::store::Store;
use verifica::time::Timestamp;

struct Index {
    store: Store,
    now: Timestamp,
    _dir: tempfile::TempDir,
}

const EVERY: Timestamp = Timestamp::from_millis(4_000_000_000_000);

impl Index {
    async fn new(house: &str) -> Index {
        let dir = tempfile::tempdir().expect("folder");
        let store = Store::open(&dir.path().join("store.db"), 2).expect("store");
        let now = Timestamp::from_millis(1_800_000_000_000);
        let index = Index { store, now, _dir: dir };
        index.store.index_register(index.house(house), EVERY).await.expect("listed");
        index
    }

    fn house(&self, domain: &str) -> IndexedHouse {
        IndexedHouse {
            domain: domain.to_owned(),
            estafeta: format!("https://{domain}"),
            added: self.now,
            last_ok: Some(self.now),
            fails: 0,
            agents: 0,
            reputation: Reputation::default().to_json(),
        }
    }

    /// One pass that finds these agents with these scores.
    async fn crawled(&self, house: &str, agents: &BTreeMap<String, Option<u32>>) {
        let rows = agents.iter().map(|(address, score)| agent(house, address, *score)).collect();
        self.store.index_crawled(self.house(house), Some(rows), Some(EVERY), self.now).await.expect("kept");
    }

    async fn page(&self, search: &Search) -> Result<Page, Rule> {
        let (search, now) = (search.clone(), self.now);
        let page = self.store.read(move |reader| reader.index_search(&search, now)).await.expect("read");
        page.map_err(|refusal| refusal.rule)
    }
}

fn agent(house: &str, address: &str, score: Option<u32>) -> IndexedAgent {
    let card = json!({"address": address, "text": format!("words of {address}")}).to_string();
    let mut terms = BTreeSet::from([format!("h:{house}"), "t:all".to_owned()]);
    if address.starts_with("rare") {
        terms.insert("t:rare".to_owned());
    }
    IndexedAgent {
        address: address.to_owned(),
        sha256: card.len().to_string(),
        card,
        terms,
        price: None,
        ends: None,
        judged: Some(Judged { score, jobs: 1 }),
    }
}

fn query(text: &[(&str, &str)]) -> Search {
    let query: Vec<(String, String)> = text.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    Search::read(&query).expect("a search")
}

fn names(page: &Page) -> Vec<String> {
    page.agents.iter().map(|shown| shown.card["address"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The same numbers every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn ordered(agents: &BTreeMap<String, Option<u32>>) -> Vec<String> {
    let mut all: Vec<_> = agents.iter().map(|(a, score)| (score.map_or(1, |s| -i64::from(s)), a.clone())).collect();
    all.sort();
    all.into_iter().map(|(_, address)| address).collect()
}

#[tokio::test]
async fn a_walk_sees_each_agent_once_in_the_order_of_its_first_page() {
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let index = Index::new("mar.example").await;
        let mut agents: BTreeMap<String, Option<u32>> = BTreeMap::new();
        for n in 0..40 {
            let score = (dice.roll(3) > 0).then(|| dice.roll(10_001) as u32);
            agents.insert(format!("a{n:02}@mar.example"), score);
        }
        index.crawled("mar.example", &agents).await;
        let expected = ordered(&agents);
        for query_of in [&[("limit", "7")][..], &[("limit", "7"), ("tag", "all")], &[("limit", "7"), ("q", "WORDS")]] {
            let mut search = query(query_of);
            let mut stays: BTreeSet<String> = agents.keys().cloned().collect();
            let before = ordered(&agents);
            let mut joined = BTreeSet::new();
            let mut seen = Vec::new();
            loop {
                let page = index.page(&search).await.expect("a page");
                assert_eq!(page.total, agents.len() as u64);
                seen.extend(names(&page));
                let Some(cursor) = page.next else { break };
                // What travels is the text.
                search.cursor = Some(Cursor::parse(&cursor.text()).expect("round trip"));
                // Between pages: scores change, some leave, some leave and come back, some join.
                for _ in 0..5 {
                    let n = dice.roll(45);
                    let address = format!("a{n:02}@mar.example");
                    match dice.roll(4) {
                        0 => {
                            agents.remove(&address);
                            stays.remove(&address);
                        }
                        _ => {
                            let score = (dice.roll(4) > 0).then(|| dice.roll(10_001) as u32);
                            if agents.insert(address.clone(), score).is_none() {
                                joined.insert(address);
                            }
                        }
                    }
                }
                index.crawled("mar.example", &agents).await;
            }
            let once: BTreeSet<&String> = seen.iter().collect();
            assert_eq!(once.len(), seen.len(), "seed {seed}: twice in {seen:?}");
            for address in &stays {
                assert!(once.contains(address), "seed {seed}: {address} was never seen");
            }
            let old: Vec<&String> = seen.iter().filter(|a| !joined.contains(*a)).collect();
            let order: Vec<&String> = before.iter().filter(|a| old.contains(a)).collect();
            assert_eq!(old, order, "seed {seed}: the order of the first page");
        }
        assert_ne!(expected, ordered(&agents));
    }
}

#[tokio::test]
async fn a_walk_whose_order_is_gone_is_told_so() {
    let index = Index::new("mar.example").await;
    let agents = |score: u32| {
        let still = (0..5).map(|n| (format!("s{n}@mar.example"), Some(n * 10)));
        still.chain([("wild@mar.example".to_owned(), Some(score))]).collect::<BTreeMap<_, _>>()
    };
    index.crawled("mar.example", &agents(100)).await;
    let mut search = query(&[("limit", "2")]);
    search.cursor = index.page(&search).await.expect("first").next;
    let kept = limits::INDEX_PLACES_KEPT as u32;
    for n in 1..kept {
        index.crawled("mar.example", &agents(100 + n)).await;
    }
    let second = index.page(&search).await.expect("fifteen changes are remembered");
    assert_eq!(names(&second), ["s3@mar.example", "s2@mar.example"]);
    index.crawled("mar.example", &agents(100 + kept)).await;
    assert_eq!(index.page(&search).await, Err(Rule::CursorGone), "the sixteenth is one too many");
    search.cursor = None;
    let fresh = index.page(&search).await.expect("a walk that begins again");
    assert_eq!(names(&fresh)[0], "wild@mar.example");
    // Of an index that was made anew, an old cursor is not believed either.
    let later = Index::new("mar.example").await;
    search.cursor = Some(Cursor { rank: 0, address: String::new(), generation: 5 });
    assert_eq!(later.page(&search).await, Err(Rule::CursorGone));
    search.cursor = Some(Cursor { rank: 0, address: String::new(), generation: later.now.millis() + 9 });
    assert_eq!(later.page(&search).await, Err(Rule::BadParameter));
}

#[tokio::test]
async fn who_left_long_ago_is_forgotten_and_walks_from_then_end() {
    let mut index = Index::new("mar.example").await;
    let two: BTreeMap<_, _> = [("a@mar.example".to_owned(), Some(5)), ("b@mar.example".to_owned(), None)].into();
    index.crawled("mar.example", &two).await;
    let mut search = query(&[("limit", "1")]);
    search.cursor = index.page(&search).await.expect("first").next;
    let one: BTreeMap<_, _> = [("b@mar.example".to_owned(), None)].into();
    index.crawled("mar.example", &one).await;
    index.now = index.now.plus(limits::INDEX_GONE_KEEP_MS);
    index.crawled("mar.example", &one).await;
    assert_eq!(names(&index.page(&search).await.expect("remembered")), ["b@mar.example"]);
    index.now = index.now.plus(1);
    index.crawled("mar.example", &one).await;
    assert_eq!(index.page(&search).await, Err(Rule::CursorGone));
}

#[tokio::test]
async fn a_page_costs_the_same_however_many_agents_there_are() {
    let mut cost: Vec<BTreeMap<&str, usize>> = Vec::new();
    for houses in [2, 20] {
        let index = Index::new("h00.example").await;
        for h in 0..houses {
            let house = format!("h{h:02}.example");
            index.store.index_register(index.house(&house), EVERY).await.expect("listed");
            let name = |n: usize| match (h, n) {
                (1, 0..30) => format!("rare{n:04}@{house}"),
                _ => format!("a{n:04}@{house}"),
            };
            let agents = (0..1_000).map(|n| (name(n), (n % 3 > 0).then_some((n * 7 % 10_000) as u32)));
            index.crawled(&house, &agents.collect()).await;
        }
        let mut looked = BTreeMap::new();
        for (what, query_of) in [
            ("first page", &[][..]),
            ("rare word", &[("tag", "rare")]),
            ("common word", &[("tag", "all")]),
            ("text", &[("q", "words of a0001@h00")]),
            ("house", &[("house", "h01.example")]),
        ] {
            let search = query(query_of);
            let page = index.page(&search).await.expect("a page");
            looked.insert(what, page.examined);
            match what {
                "first page" => assert_eq!((page.total, page.at_least), (houses * 1_000, false)),
                "rare word" => assert_eq!((page.total, page.at_least, page.agents.len()), (30, false, 30)),
                "house" => assert_eq!((page.total, page.at_least, page.agents.len()), (1_000, false, 50)),
                _ => assert!(page.at_least == (houses > 2) || page.total <= 2_000, "{page:?}"),
            }
            // A later page of a walk costs what the first one does.
            let next = Search { cursor: page.next, ..search };
            if next.cursor.is_some() {
                assert!(index.page(&next).await.expect("a page").examined <= 2 * limits::INDEX_EXAMINED_MAX);
            }
        }
        cost.push(looked);
    }
    let most = 2 * limits::INDEX_EXAMINED_MAX;
    for (what, few) in &cost[0] {
        let many = cost[1][what];
        assert!(many <= (*few).max(most) && many <= most, "{what}: {few} rows of 2,000 agents, {many} of 20,000");
    }
    assert_eq!(cost[0]["rare word"], cost[1]["rare word"]);
    assert_eq!(cost[0]["first page"], cost[1]["first page"]);
}

#[tokio::test]
async fn an_index_is_full_at_its_bound_and_drops_who_is_lost() {
    let mut index = Index::new("h0.example").await;
    for n in 1..limits::INDEX_HOUSES_MAX {
        let house = index.house(&format!("h{n}.example"));
        index.store.index_register(house, EVERY).await.expect("listed");
    }
    let one_more = index.house("more.example");
    let refused = index.store.index_register(one_more.clone(), EVERY).await.expect_err("full");
    assert_eq!(refused.into_refusal().rule.code(), 507);
    let again = index.store.index_register(index.house("h1.example"), EVERY).await.expect("listed already");
    assert!(!again.1);
    let all: BTreeMap<_, _> = [("a@h0.example".to_owned(), Some(5))].into();
    index.crawled("h0.example", &all).await;

    let start = index.now;
    let mut house = IndexedHouse { fails: 1, ..index.house("h0.example") };
    let every = limits::INDEX_EVERY_MS;
    assert_eq!(house.next(start, every), Some(start.plus(2 * every)), "asked less and less often");
    house.fails = 60;
    assert_eq!(house.next(start, every), Some(start.plus(limits::INDEX_WAIT_MS_MAX)));
    index.now = start.plus(limits::INDEX_LOST_MS);
    assert!(house.next(index.now, every).is_some(), "at the bound it is still asked");
    index.now = index.now.plus(1);
    assert_eq!(house.next(index.now, every), None);
    index.store.index_crawled(house, None, None, index.now).await.expect("dropped");
    assert!(index.page(&query(&[])).await.expect("a page").agents.is_empty());
    index.store.index_register(one_more, EVERY).await.expect("there is room again");
}
