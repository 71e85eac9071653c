//! What a page costs as a house grows: a mailbox, the list of conversations and one conversation, at 1,000 and at
//! 1,000,000 stored letters, all of one agent.
//!
//! `cargo bench --bench pages` fills two stores through the same transactions that the doors use, in batches, prints how
//! long each page takes at its median and the ratio of the two stores, the memory that the process holds, and then runs a
//! whole house on the larger store and prints the memory while its doors answer the same pages. `PAGES_BENCH_LETTERS`
//! changes the larger number, `PAGES_BENCH_DIR` the disk. It fails when a ratio is 1.5 or more.

#[path = "../tests/houses/mod.rs"]
mod houses;

use houses::TestHouse;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use verifica::mail::talk::Before;
use verifica::record::{Change, Decision, Job, JobStatus, MailRecord};
use verifica::store::Store;
use verifica::time::Timestamp;
use verifica::wire::{Address, Domain};

const HOUSE: &str = "mar.example";
const CONTACTS: u64 = 199;
const BATCH: u64 = 2_000;
const SMALL: u64 = 1_000;
const ROUNDS: usize = 400;
const RATIO_MAX: f64 = 1.5;

/// A question whose cost is measured.
type Page = (&'static str, fn(&Store, &tokio::runtime::Runtime, u64) -> usize);

const PAGES: &[Page] = &[
    ("mailbox, newest 50", |store, runtime, n| {
        let now = at(n);
        runtime.block_on(store.read(move |r| r.mailbox("anamar", 50, now))).expect("reads").len()
    }),
    ("conversations, first 50", |store, runtime, _| {
        runtime.block_on(store.read(|r| r.conversations("anamar", None, None, 50))).expect("reads").0.len()
    }),
    ("conversations, of a project", |store, runtime, _| {
        runtime.block_on(store.read(|r| r.conversations("anamar", Some("p1"), None, 50))).expect("reads").0.len()
    }),
    ("one conversation, newest 5", |store, runtime, _| {
        runtime.block_on(store.read(|r| r.letters("anamar", &contact(7), None, None, 5))).expect("reads").0.len()
    }),
    ("one conversation, older 2", |store, runtime, n| {
        let before = Before { at: at(n.saturating_sub(CONTACTS)), than: i64::MAX };
        let read = store.read(move |r| r.letters("anamar", &contact(7), None, Some(&before), 2));
        runtime.block_on(read).expect("reads").0.len()
    }),
];

fn main() {
    let large = std::env::var("PAGES_BENCH_LETTERS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000u64);
    let base = std::env::var_os("PAGES_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(base).expect("a folder for the stores");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let path = |n: u64| folder.path().join(format!("{n}.db"));
    let small = filled(&runtime, &path(SMALL), SMALL);
    let before = resident();
    let started = Instant::now();
    let big = filled(&runtime, &path(large), large);
    let took = started.elapsed().as_secs_f64();
    println!(
        "{large} letters stored in {took:.0} s ({:.0} a second); resident {before} MiB before, {} MiB after",
        large as f64 / took,
        resident()
    );
    let mut worst = 0.0f64;
    for (name, page) in PAGES {
        // In turns, so that whatever else this machine does meets both.
        let (mut little, mut much) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            for (store, n, times) in [(&small, SMALL, &mut little), (&big, large, &mut much)] {
                let start = Instant::now();
                assert!(page(store, &runtime, n) > 0, "{name} is empty");
                times.push(start.elapsed());
            }
        }
        let (little, much) = (median(little), median(much));
        let ratio = much.as_secs_f64() / little.as_secs_f64();
        worst = worst.max(ratio);
        println!("{name:<28} {:>8.1} us at {SMALL}, {:>8.1} us at {large}: ratio {ratio:.2}", us(little), us(much));
    }
    runtime.block_on(async {
        small.close().await.expect("closed");
        big.close().await.expect("closed");
    });
    drop((small, big));
    runtime.block_on(served(&path(large)));
    println!("worst ratio {worst:.2} (bound {RATIO_MAX})");
    assert!(worst < RATIO_MAX, "a page grows with what is stored");
}

/// A whole house on this store, its doors asked for the same pages.
async fn served(path: &Path) {
    let mut house = TestHouse::new(HOUSE, 1);
    std::fs::copy(path, house.options().store).expect("copied");
    house.start().await;
    let ana = house.agent("anamar", json!({})).await;
    let at_start = resident();
    let started = Instant::now();
    let mut asked = 0;
    while started.elapsed() < Duration::from_secs(5) {
        let (status, _) = ana.get("/mailbox/anamar?limit=50").await;
        let (listed, _) = ana.get("/conversations/anamar").await;
        assert_eq!((status, listed), (200, 200));
        let store = &house.running().doors.store;
        let page = store.read(|r| r.letters("anamar", &contact(7), None, None, 500)).await.expect("reads");
        assert!(!page.0.is_empty());
        asked += 3;
    }
    println!("served: resident {at_start} MiB at the start, {} MiB after {asked} pages", resident());
    house.stop().await;
}

fn filled(runtime: &tokio::runtime::Runtime, path: &Path, n: u64) -> Store {
    let store = Store::open(path, 2).expect("a new store");
    let card = json!({"domain": HOUSE});
    runtime.block_on(put(&store, vec![Change::PutDomainCard(card)]));
    for start in (0..n).step_by(BATCH as usize) {
        let changes = (start..n.min(start + BATCH)).map(letter).collect();
        runtime.block_on(put(&store, changes));
    }
    store
}

/// Every fourth letter is one that ana sent; one in two of the others was handled; one in three names a project.
fn letter(i: u64) -> Change {
    let with = contact(i % CONTACTS);
    let project = json!({"urn:nyx5:ext:proyecto": {"project": format!("P{}", i % 3)}});
    let extensions = if i.is_multiple_of(3) { json!({}) } else { project };
    let own = format!("anamar@{HOUSE}");
    let (from, to) = if i % 4 == 3 { (&own, &with) } else { (&with, &own) };
    let id = format!("letter-{i:012}");
    let envelope = json!({
        "nyx5": "1", "id": id, "from": from, "to": [to], "created": at(i), "expires": null, "thread": null,
        "type": "message", "content": {"media": "text/plain", "body": "x".repeat(200)}, "extensions": extensions,
        "signature": {"alg": "Ed25519", "kid": "k".repeat(43), "value": "v".repeat(86)},
    });
    if i % 4 == 3 {
        let domain = Address::parse(&with).expect("address").domain();
        return Change::PutJob(sent(id, domain, at(i), envelope));
    }
    Change::Deliver(MailRecord {
        local: "anamar".into(),
        id,
        from: with,
        received: at(i),
        acked: i.is_multiple_of(2).then(|| at(i)),
        visible_from: None,
        meta: json!({"from_verified": true, "relay_verified": true}).as_object().cloned().unwrap_or_default(),
        envelope: envelope.into(),
    })
}

fn sent(id: String, domain: Domain, at: Timestamp, envelope: Value) -> Job {
    let mut job = Job {
        job: String::new(),
        envelope_id: id,
        from_local: "anamar".into(),
        to: Vec::new(),
        status: JobStatus::Queued,
        attempts: 0,
        next_attempt: at,
        created: at,
        updated: at,
        log: Vec::new(),
        delivered: Vec::new(),
        failed: Vec::new(),
        domain,
        envelope: envelope.into(),
    };
    let place = verifica::mail::talk::sent(&job).expect("filed");
    job.job = verifica::mail::talk::job_towards(&job, &place).expect("a job");
    job.status = JobStatus::Delivered;
    job
}

async fn put(store: &Store, changes: Vec<Change>) {
    let kept = store.transact(move |_| Ok(Decision { changes: changes.clone(), reply: () }));
    kept.await.expect("durable");
}

fn contact(n: u64) -> String {
    format!("contact{n}@b{n}.example")
}

fn at(i: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + i as i64 * 1_000)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Resident memory of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") / 1_024
}
