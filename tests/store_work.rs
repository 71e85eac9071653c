//! Due work and its turns, the plans of every statement, and the store beside the model in memory.

mod store_fixture;

use proptest::prelude::*;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use store_fixture::{
    CASA, Place, address, agent, at, contract, entry, evidence, invitation, job, look, mail, mandate, observation,
    operation, put, seal, seen,
};
use verifica::limits;
use verifica::record::memory::{MemoryView, Rejected};
use verifica::record::{Change, ContractState, JobStatus, MandateState, View};
use verifica::store::{Denied, Store, StoreError, sql};
use verifica::time::Timestamp;
use verifica::wire::digest::Sha256;

// ---- due work ----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_claimed_job_is_one_workers_until_its_claim_lapses() {
    let place = Place::new();
    place
        .put(vec![Change::PutJob(job("j1", "a.example", 0)), Change::PutJob(job("j2", "a.example", 50))])
        .await
        .expect("queued");
    assert_eq!(place.store.earliest_work(at(-5)).await, Ok(Some(at(0))));
    let claim = async |now| {
        let jobs = place.store.claim_jobs(at(now), 10, |_| usize::MAX).await.expect("claims");
        jobs.into_iter().map(|job| job.job).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(claim(-1).await, "");
    assert_eq!(claim(0).await, "j1");
    assert_eq!(claim(0).await, "", "it is somebody's");
    assert_eq!(place.store.earliest_work(at(0)).await, Ok(Some(at(50))));
    assert_eq!(claim(limits::QUEUE_CLAIM_MS - 1).await, "j2");
    assert_eq!(claim(limits::QUEUE_CLAIM_MS).await, "j1", "a lapsed claim comes back");

    let mut retried = job("j1", "a.example", limits::QUEUE_CLAIM_MS + 7);
    (retried.status, retried.attempts) = (JobStatus::Retrying, 1);
    place.put(vec![Change::PutJob(retried)]).await.expect("put off");
    assert_eq!(claim(limits::QUEUE_CLAIM_MS + 6).await, "");
    assert_eq!(claim(limits::QUEUE_CLAIM_MS + 7).await, "j1", "settling a job ends its claim");
    let mut done = job("j1", "a.example", 0);
    done.status = JobStatus::Delivered;
    place.put(vec![Change::PutJob(done)]).await.expect("delivered");
    assert_eq!(place.store.read(|r| r.counts()).await.expect("counts").queue, 1);
    let outbox = place.store.read(|r| r.outbox("ana", 10)).await.expect("reads");
    assert_eq!(
        outbox.iter().map(|job| (job.job.as_str(), job.status)).collect::<Vec<_>>(),
        [("j2", JobStatus::Queued), ("j1", JobStatus::Delivered)]
    );
    assert_eq!(
        place.store.read(|r| Ok(r.job("j2").map(|j| j.envelope))).await,
        Ok(Some(job("j2", "a.example", 0).envelope))
    );
}

#[tokio::test]
async fn what_a_dead_process_had_claimed_is_due_when_the_store_opens_again() {
    let place = Place::new();
    let queued = Change::PutJob(job("j1", "a.example", 0));
    place.put(vec![queued, Change::PutLook(look("c1", "sol@otra.example", 0))]).await.expect("due");
    let claims = async |store: &Store| {
        let jobs = store.claim_jobs(at(1), 10, |_| usize::MAX).await.expect("claims");
        let looks = store.claim_looks(at(1), 100_000, 10, 10).await.expect("claims");
        (jobs.len(), looks.len())
    };
    assert_eq!(claims(&place.store).await, (1, 1));
    assert_eq!(claims(&place.store).await, (0, 0), "they are somebody's");
    let path = place.path();
    let Place { store, .. } = &place;
    let folder = tempfile::tempdir().expect("folder");
    let copy = folder.path().join("copy.db");
    Connection::open(&path).expect("opens").execute("VACUUM INTO ?1", [copy.to_str()]).expect("copied");
    assert_eq!(claims(store).await, (0, 0));
    let reopened = Store::open(&copy, 1).expect("opens");
    assert_eq!(claims(&reopened).await, (1, 1), "nobody works on a store that has just been opened");
}

#[tokio::test]
async fn a_look_is_leased_comes_back_and_ends() {
    let place = Place::new();
    place.put(vec![Change::PutLook(look("c1", "sol@otra.example", 10))]).await.expect("due");
    assert_eq!(place.store.earliest_work(at(99)).await, Ok(Some(at(99))), "what is overdue is due now");
    let claim = async |now| place.store.claim_looks(at(now), 100, 10, 10).await.expect("claims");
    assert!(claim(9).await.is_empty());
    let first = claim(10).await;
    assert_eq!((first.len(), first[0].lease_until, first[0].due), (1, Some(at(110)), at(10)));
    assert!(claim(109).await.is_empty());
    assert_eq!(
        place.store.read(|r| Ok(r.look("c1"))).await.expect("reads"),
        Some(first[0].clone()),
        "a rule sees the lease"
    );
    assert_eq!(claim(110).await[0].lease_until, Some(at(210)), "a lapsed lease comes back");
    let mut later = look("c1", "sol@otra.example", 500);
    later.attempts = 3;
    place.put(vec![Change::PutLook(later.clone())]).await.expect("undecided");
    assert!(claim(499).await.is_empty());
    assert_eq!(place.store.read(|r| r.looks(5)).await.expect("reads"), [later.clone()]);
    assert_eq!(claim(500).await[0].attempts, 3);
    later.done = true;
    place.put(vec![Change::PutLook(later.clone())]).await.expect("ended");
    assert!(claim(1_000_000).await.is_empty());
    assert_eq!(place.store.earliest_work(at(0)).await, Ok(None));
    assert_eq!(place.store.read(|r| Ok(r.look("c1"))).await.expect("reads"), Some(later));
    assert!(place.store.read(|r| r.looks(5)).await.expect("reads").is_empty());
}

#[tokio::test]
async fn a_seller_with_a_thousand_due_looks_takes_its_turn_like_the_others() {
    let place = Place::new();
    let mut rows: Vec<Change> =
        (0..1_000).map(|i| Change::PutLook(look(&format!("hog-{i:04}"), "mmm@hog.example", i))).collect();
    for seller in ["aaa", "nnn", "zzz"] {
        rows.extend(
            (0..3).map(|i| Change::PutLook(look(&format!("{seller}-{i}"), &format!("{seller}@x.example"), 5_000 + i))),
        );
    }
    // Sellers with nothing due yet stand between them and are passed over.
    rows.extend(
        (0..50).map(|i| Change::PutLook(look(&format!("idle-{i}"), &format!("n{i:02}@idle.example"), 1_000_000))),
    );
    place.put(rows).await.expect("due");
    let mut served: BTreeMap<String, usize> = BTreeMap::new();
    let mut first_hog = Vec::new();
    for _ in 0..6 {
        for row in place.store.claim_looks(at(9_000), 60_000, 2, 100).await.expect("claims") {
            if row.contract.starts_with("hog") {
                first_hog.push(row.contract.clone());
            }
            *served.entry(row.seller).or_default() += 1;
        }
    }
    let three = |name: &str| (format!("{name}@{}.example", if name == "mmm" { "hog" } else { "x" }), 3);
    assert_eq!(
        served,
        BTreeMap::from([three("aaa"), three("mmm"), three("nnn"), three("zzz")]),
        "twelve turns, four sellers"
    );
    assert_eq!(first_hog, ["hog-0000", "hog-0001", "hog-0002"], "of one seller the oldest first");
}

#[tokio::test]
async fn no_seller_has_more_looks_under_way_than_its_share() {
    let place = Place::new();
    let rows =
        (0..5).flat_map(|i| [look(&format!("a{i}"), "a@x.example", i), look(&format!("b{i}"), "b@x.example", i)]);
    place.put(rows.map(Change::PutLook).collect()).await.expect("due");
    let claim = async |now, n| {
        let rows = place.store.claim_looks(at(now), 100, n, 2).await.expect("claims");
        rows.into_iter().map(|row| row.contract).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(claim(10, 3).await, "a0 b0 a1");
    assert_eq!(claim(10, 9).await, "b1", "both have two");
    assert_eq!(claim(10, 9).await, "");
    place.put(vec![Change::PutLook(look("a0", "a@x.example", 9_000))]).await.expect("settled");
    assert_eq!(claim(20, 9).await, "a2", "a place came free");
    assert_eq!(claim(110, 9).await, "b2 a3 b3", "lapsed leases free their places, and a2 holds one");
    assert_eq!(claim(220, 9).await, "a4 b4 a1 b0", "what lapsed waits behind what was due before");
}

#[tokio::test]
async fn a_dead_domain_does_not_hold_up_the_letters_to_others() {
    let place = Place::new();
    let mut rows: Vec<Change> = (0..limits::STORE_DUE_SCAN as i64 + 200)
        .map(|i| Change::PutJob(job(&format!("dead-{i}"), "dead.example", i)))
        .collect();
    rows.extend((0..10).map(|i| Change::PutJob(job(&format!("live-{i}"), &format!("live{i}.example"), 9_000))));
    place.put(rows).await.expect("queued");
    let mut domains = BTreeSet::new();
    for _ in 0..3 {
        let jobs = place.store.claim_jobs(at(10_000), 4, |_| usize::MAX).await.expect("claims");
        domains.extend(jobs.into_iter().map(|job| job.domain.to_string()));
    }
    assert_eq!(domains.len(), 11, "eleven domains, twelve turns: {domains:?}");
}

#[tokio::test]
async fn a_domain_gets_no_more_than_the_room_that_its_worker_has_for_it() {
    let place = Place::new();
    let of =
        |domain: &str| (0..20).map(|i| Change::PutJob(job(&format!("{domain}-{i}"), domain, i))).collect::<Vec<_>>();
    place.put([of("slow.example"), of("quick.example")].concat()).await.expect("queued");
    let room = |domain: &str| if domain == "slow.example" { 3 } else { usize::MAX };
    let jobs = place.store.claim_jobs(at(10_000), 40, room).await.expect("claims");
    let slow = jobs.iter().filter(|job| job.domain.as_str() == "slow.example").count();
    assert_eq!((slow, jobs.len()), (3, 23));
    assert!(place.store.claim_jobs(at(10_000), 40, |_| 0).await.expect("claims").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_that_claim_at_once_never_share_work() {
    let place = Place::new();
    place
        .put((0..200).map(|i| Change::PutJob(job(&format!("j{i}"), &format!("d{}.example", i % 7), 0))).collect())
        .await
        .expect("queued");
    let claims = (0..40).map(|_| {
        let store = place.store.clone();
        tokio::spawn(async move { store.claim_jobs(at(1), 7, |_| usize::MAX).await.expect("claims") })
    });
    let mut claimed = Vec::new();
    for claim in claims.collect::<Vec<_>>() {
        claimed.extend(claim.await.expect("a worker").into_iter().map(|job| job.job));
    }
    let distinct: BTreeSet<_> = claimed.iter().collect();
    assert_eq!((claimed.len(), distinct.len()), (200, 200));
}

// ---- evidence -----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn evidence_goes_a_given_time_after_its_contract_ended_and_never_before() {
    let place = Place::new();
    let keep = limits::EVIDENCE_KEEP_MS;
    let many = limits::EVIDENCE_PRUNE_CONTRACTS * 2 + 1;
    let made = |i: usize| {
        let id = format!("c{i}");
        // Two contracts may have seen the very same thing; each keeps it for its own time.
        let kept = [Change::PutObservation(observation(&id, "same")), Change::PutEvidence(evidence(&id, &id))];
        [vec![Change::InsertContract(contract(&id, ContractState::Delivered))], kept.into()].concat()
    };
    place.put((0..=many).flat_map(made).collect()).await.expect("made");
    let end = async |i: usize, ms: i64| {
        let mut ended = contract(&format!("c{i}"), ContractState::Released);
        ended.updated = at(ms);
        place.put(vec![Change::PutContract(ended)]).await.expect("ended");
    };
    let left = async |now: Timestamp| {
        place.store.housekeeping(now, keep).await.expect("swept");
        let mut left = 0;
        for i in 0..=many {
            let of = format!("c{i}");
            let (doc, seen) = place
                .store
                .read(move |r| Ok((r.evidence(&of)?, r.observation(&of, &Sha256::of("same"))?)))
                .await
                .expect("reads");
            assert_eq!(doc.is_some(), seen.is_some(), "both or neither, c{i}");
            left += usize::from(doc.is_some());
        }
        left
    };
    assert_eq!(left(at(keep * 20)).await, many + 1, "an open contract keeps its evidence for ever");
    for i in 0..many {
        end(i, i64::from(i == 0)).await;
    }
    assert_eq!(left(at(keep)).await, many + 1, "at the limit it is still there");
    assert_eq!(
        left(at(keep + 1)).await,
        2,
        "all that lapsed, in more than one piece; the later end and the open one stay"
    );
    assert_eq!(left(at(keep + 2)).await, 1);
    // An end is an end: a later change of an ended contract does not begin the time anew.
    end(many, 5).await;
    end(many, 900).await;
    assert_eq!((left(at(keep + 5)).await, left(at(keep + 6)).await), (1, 0));
}

// ---- plans -------------------------------------------------------------------------------------------------------

/// Index walks that are bounded by what is pending now, not by history.
const PENDING: &[(&str, &str)] = &[
    ("QUEUE_LENGTH", "job_"),
    ("LOOKS_OPEN", "look_wake"),
    ("BLOBS_COMING", "blob_coming"),
    ("DIRECTORY", "agent_listed"),
    ("DIRECTORY_TOTAL", "agent_listed"),
    // Entry numbers from the newest on: stops at the first.
    ("JOURNAL_LAST", "SCAN entry"),
];

/// Sorts of a bounded number of rows.
const SORTS: &[&str] = &["ENTRIES_OF"];

#[tokio::test]
async fn no_statement_walks_a_table_that_grows_with_history() {
    let place = Place::new();
    let conn = Connection::open(place.path()).expect("opens");
    let mut faults = Vec::new();
    let mut explained = 0;
    for (name, text) in sql::ALL {
        let verb = text.split_whitespace().next().unwrap_or_default();
        if !matches!(verb, "SELECT" | "INSERT" | "UPDATE" | "DELETE") {
            continue;
        }
        explained += 1;
        let mut statement =
            conn.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().expect("a plan") {
            let step: String = row.get(3).expect("a step");
            let walks = step.starts_with("SCAN") && !step.contains("CONSTANT ROW");
            let pending = PENDING.iter().any(|(of, index)| of == name && step.contains(index));
            let sorts = step.contains("TEMP B-TREE") && !SORTS.contains(name);
            if (walks && !pending) || sorts {
                faults.push(format!("{name}: {step}"));
            }
        }
    }
    assert!(explained > 60, "the list was read");
    assert!(faults.is_empty(), "these walk or sort history:\n{}", faults.join("\n"));
    // The check can fail: the same question without its index is a walk.
    let walk: String = conn
        .query_row("EXPLAIN QUERY PLAN SELECT doc FROM contract WHERE updated > 1", [], |row| row.get(3))
        .expect("a plan");
    assert!(walk.starts_with("SCAN contract"));
}

// ---- beside the model --------------------------------------------------------------------------------------------

const NAMES: [&str; 4] = ["ana", "leo", "eva", "rui"];

fn account(i: usize) -> String {
    match i {
        4 => CASA.to_owned(),
        5 => "escrow:c0".to_owned(),
        i => format!("{}@mar.example", NAMES[i % 4]),
    }
}

/// A change of any kind over few ids, so that they meet. Numbers of entries are made to follow, mostly.
fn change() -> impl Strategy<Value = Step> {
    let moves = proptest::collection::vec((0..6_usize, 0..6_usize, 0..40_i64), 0..3);
    prop_oneof![
        1 => (moves, 0..10_u8).prop_map(|(moves, gap)| Step::Entry { moves, gap }),
        2 => (0..17_u8, 0..4_usize, 0..4_usize, 0..60_i64, state()).prop_map(|(kind, i, j, ms, state)| {
            Step::Other(Box::new(other(kind, i, j, ms, state)))
        }),
    ]
}

fn other(kind: u8, i: usize, j: usize, ms: i64, state: ContractState) -> Change {
    let key = || NAMES[i].to_owned();
    let contract = || contract(&format!("c{i}"), state);
    let mandate = |state| {
        let (id, parent) = (format!("m{i}"), format!("m{}", i / 2));
        let chain: Vec<&str> = if i == 0 { vec![&id] } else { vec![&parent, &id] };
        mandate(&id, &chain, state)
    };
    match kind {
        0 => Change::InsertAgent(agent(NAMES[i], "public", serde_json::json!({}))),
        1 => Change::PutAgent(agent(NAMES[i], "secret", serde_json::json!({"n": ms}))),
        2 => Change::InsertInvitation(invitation(NAMES[i], j as u64)),
        3 => Change::UseInvitation { code: key(), at: at(ms * 20) },
        4 | 5 => {
            let mut mail = mail(NAMES[i], &account(j), &format!("id-{}", ms % 3), 10);
            mail.visible_from = (kind == 5).then(|| at(ms));
            Change::Deliver(mail)
        }
        6 => Change::Acknowledge { local: key(), id: format!("id-{j}"), at: at(ms) },
        7 => Change::PutSeen(seen(&account(i), "e", &format!("{}", j % 2))),
        8 => Change::BurnNonce { key: key(), at: at(0) },
        9 => Change::CountRate { key: key(), at: at(ms * 2_000), hits: j as u32 },
        10 => Change::InsertOperation(operation(&account(i), "op")),
        11 => Change::InsertContract(contract()),
        12 => Change::PutContract(contract()),
        13 if j == 0 => Change::PutMandate(mandate(MandateState::Revoked)),
        13 => Change::InsertMandate(mandate(MandateState::Active)),
        14 => Change::InsertSeal(seal(&format!("s{i}{j}"), &format!("{i}"), &account(j), 1)),
        15 => match j {
            0 => Change::PutObservation(observation(&format!("c{i}"), "seen")),
            1 => Change::PutEvidence(evidence(&format!("c{i}"), "found")),
            _ => Change::ForgetEvidence { contract: format!("c{i}") },
        },
        _ if j == 0 => Change::PutJob(job(NAMES[i], "a.example", ms)),
        _ => {
            let mut look = look(&format!("c{i}"), "sol@otra.example", ms);
            look.done = j == 1;
            Change::PutLook(look)
        }
    }
}

fn state() -> impl Strategy<Value = ContractState> {
    use ContractState::{Delivered, Held, Refunded, Released};
    prop_oneof![Just(Held), Just(Delivered), Just(Released), Just(Refunded)]
}

#[derive(Clone, Debug)]
enum Step {
    Entry { moves: Vec<(usize, usize, i64)>, gap: u8 },
    Other(Box<Change>),
}

/// The changes of one decision, with the entries numbered after what the model holds.
fn decision(model: &MemoryView, steps: &[Step]) -> Vec<Change> {
    let mut n = model.journal_last();
    steps
        .iter()
        .map(|step| match step {
            Step::Other(change) => (**change).clone(),
            Step::Entry { moves, gap } => {
                n += if *gap == 0 { 2 } else { 1 };
                let named: Vec<(String, i64)> = moves
                    .iter()
                    .flat_map(|(from, to, amount)| [(account(*from), -amount), (account(*to), *amount)])
                    .collect();
                let lines: Vec<(&str, i64)> = named.iter().map(|(account, delta)| (account.as_str(), *delta)).collect();
                Change::Journal(entry(n, &lines))
            }
        })
        .collect()
}

/// Everything that a rule can see, as text.
fn seen_by_a_rule(view: &dyn View) -> String {
    let mut out = vec![format!("{:?} {:?}", view.journal_last(), view.journal_last_at())];
    for i in 0..6 {
        let account = account(i);
        let page = view.account_page(&account, Some(at(2)), Some(at(9)), 3);
        let numbers: Vec<u64> = page.entries.iter().map(|e| e.n).collect();
        let all = view.account_page(&account, None, None, 2);
        let newest: Vec<_> = all.entries.iter().map(|e| e.doc.to_string()).collect();
        out.push(format!(
            "{account} {} {} {numbers:?} {} {} {newest:?} {}",
            view.balance(&account),
            page.opening,
            page.total,
            all.opening,
            all.total
        ));
        let mandates: Vec<_> = view.mandates_of(&account, 3).into_iter().map(|m| (m.id, m.state)).collect();
        let contracts: Vec<_> = view.contracts_of(&account, 3).into_iter().map(|c| c.id).collect();
        out.push(format!("{mandates:?} {contracts:?}"));
    }
    for (i, name) in NAMES.iter().enumerate() {
        let who = address(&account(i));
        out.push(format!("{:?}", view.agent(name).map(|a| (a.card.doc().to_string(), a.registered_via))));
        out.push(format!(
            "{:?} {:?} {:?}",
            view.invitation(name),
            view.seen(&who, "e"),
            view.operation(&who, "op").map(|o| o.result)
        ));
        out.push(format!("{} {} {:?}", view.rate(name, at(0)), view.rate(name, at(60_000)), view.nonce_used(name)));
        out.push(format!("{:?} {:?}", view.job(name), view.look(&format!("c{i}"))));
        out.push(format!(
            "{:?} {:?}",
            view.contract(&format!("c{i}")).map(|c| c.to_json()),
            view.contract_of_quote(&format!("sol@otra.example quote-c{i}"))
        ));
        let under: Vec<_> = view.mandates_under(&format!("m{i}")).into_iter().map(|m| m.id).collect();
        out.push(format!(
            "{:?} {under:?} {:?}",
            view.mandate(&format!("m{i}")),
            (0..4).map(|by| view.seal(&format!("{i}"), &address(&account(by)))).collect::<Vec<_>>()
        ));
        for id in 0..3 {
            let mut pending: Vec<_> = view
                .pending(name, &format!("id-{id}"))
                .into_iter()
                .map(|m| (m.from, m.received, m.visible_from))
                .collect();
            pending.sort();
            out.push(format!("{pending:?}"));
        }
    }
    out.join("\n")
}

fn books_balance(conn: &Connection) {
    let number = |sql: &str| -> i64 { conn.query_row(sql, [], |row| row.get(0)).expect("counts") };
    assert_eq!(number("SELECT coalesce(sum(balance), 0) FROM account"), 0);
    assert_eq!(number("SELECT count(*) FROM account WHERE balance < 0 AND name <> 'casa@mar.example'"), 0);
    let differ = "SELECT count(*) FROM account a WHERE balance <> (SELECT sum(delta) FROM line WHERE account = a.name)
        OR entries <> (SELECT count(DISTINCT n) FROM line WHERE account = a.name)";
    assert_eq!(number(differ), 0, "a balance is the sum of its lines");
    assert_eq!(number("SELECT count(DISTINCT account) FROM line"), number("SELECT count(*) FROM account"));
    assert_eq!(number("SELECT count(*) FROM entry"), number("SELECT coalesce(max(n), 0) FROM entry"), "no gap");
}

async fn compare(decisions: Vec<Vec<Step>>) {
    let place = Place::new();
    let mut model = MemoryView::new();
    for steps in decisions {
        let changes = decision(&model, &steps);
        let expected = model.apply(changes.clone());
        let found = place.put(changes.clone()).await;
        let alike = matches!(
            (&expected, &found),
            (Ok(()), Ok(()))
                | (Err(Rejected::Conflict(_)), Err(Denied::Store(StoreError::Conflict(_))))
                | (Err(Rejected::Broken(_)), Err(Denied::Store(StoreError::Bug(_))))
        );
        assert!(alike, "the model says {expected:?}, the store {found:?}, of {changes:#?}");
        let view = place.store.read(|r| Ok(seen_by_a_rule(r))).await.expect("reads");
        assert_eq!(view, seen_by_a_rule(&model));
        for i in 0..4 {
            let (id, name) = (format!("c{i}"), Sha256::of("seen"));
            let kept = (model.evidence(&id).cloned(), model.observation(&id, &name).cloned());
            let found = place.store.read(move |r| Ok((r.evidence(&id)?, r.observation(&id, &name)?))).await;
            assert_eq!(found, Ok(kept));
        }
    }
    books_balance(&Connection::open(place.path()).expect("opens"));
    let path = place.path();
    place.store.close().await.expect("closed");
    let again = Store::open(&path, 1).expect("opens again");
    assert_eq!(again.read(|r| Ok(seen_by_a_rule(r))).await.expect("reads"), seen_by_a_rule(&model));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_does_and_its_books_balance(
        decisions in proptest::collection::vec(proptest::collection::vec(change(), 1..5), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(compare(decisions));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_books_balance_after_many_at_once() {
    let place = Place::new();
    let fund = [
        (CASA, -4_000),
        ("ana@mar.example", 1_000),
        ("leo@mar.example", 1_000),
        ("eva@mar.example", 1_000),
        ("rui@mar.example", 1_000),
    ];
    place.put(vec![Change::Journal(entry(1, &fund))]).await.expect("funded");
    let tasks: Vec<_> = (0..16_usize)
        .map(|task| {
            let store = place.store.clone();
            tokio::spawn(async move {
                for i in 0..40_usize {
                    let (from, to) = (account((task + i) % 4), account((task * 3 + i * 7 + 1) % 4));
                    let amount = (task * 41 + i * 13) as i64 % 90 + 1;
                    let paid = store.transact(move |view| {
                        if view.balance(&from) < amount || from == to {
                            return Err(verifica::refusal::Refusal::new(verifica::refusal::Rule::NotEnough, "no"));
                        }
                        let next = entry(view.journal_last() + 1, &[(&from, -amount), (&to, amount)]);
                        Ok(verifica::record::Decision { changes: vec![Change::Journal(next)], reply: () })
                    });
                    assert!(matches!(paid.await, Ok(()) | Err(Denied::Refused(_))));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a payer");
    }
    put(&place.store, vec![Change::CountRate { key: "k".into(), at: at(0), hits: 1 }]).await.expect("goes on");
    let (last, balances) = place.store.read(|r| Ok((r.journal_last(), r.balances("", 9)?))).await.expect("reads");
    assert!(last > 100, "most were paid: {last}");
    assert_eq!(balances.iter().map(|(_, balance)| balance).sum::<i64>(), 0);
    books_balance(&Connection::open(place.path()).expect("opens"));
}
