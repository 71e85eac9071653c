//! Durable ledger operations a second: many tasks at once, one writer, one flush a batch.
//!
//! `cargo bench --bench store` prints the figure with its denominators. `STORE_BENCH_SECONDS`, `STORE_BENCH_TASKS` and
//! `STORE_BENCH_DIR` change how long, how many, and on which disk.

#[path = "../tests/store_fixture/mod.rs"]
mod store_fixture;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use store_fixture::{CASA, HOUSE, accept, agent, entry, put};
use verifica::record::Change;
use verifica::store::Store;

fn main() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).filter(|n| *n > 0).unwrap_or(otherwise)
    };
    let (seconds, tasks) = (number("STORE_BENCH_SECONDS", 5), number("STORE_BENCH_TASKS", 64));
    let base = std::env::var_os("STORE_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(base).expect("a folder for the store");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = Store::open(&folder.path().join("house.db"), 2).expect("a new store");
        fund(&store, tasks).await;
        let stop = Arc::new(AtomicBool::new(false));
        let start = Instant::now();
        let workers: Vec<_> =
            (0..tasks).map(|task| tokio::spawn(work(store.clone(), task, Arc::clone(&stop)))).collect();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        stop.store(true, Ordering::Relaxed);
        let mut times = Vec::new();
        for worker in workers {
            times.extend(worker.await.expect("a worker"));
        }
        let took = start.elapsed().as_secs_f64();
        times.sort_unstable();
        let part = |per_mille: usize| times[(times.len() - 1) * per_mille / 1000].as_secs_f64() * 1000.0;
        println!(
            "{} operations in {took:.2} s with {tasks} tasks: {:.0} a second; p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
            times.len(),
            times.len() as f64 / took,
            part(500),
            part(990),
            part(1000),
        );
        store.close().await.expect("closed");
    });
}

async fn fund(store: &Store, tasks: u64) {
    for task in 0..tasks {
        let name = format!("agent{task}");
        let account = format!("{name}@{HOUSE}");
        let lines = [(CASA, -1_000_000_000), (account.as_str(), 1_000_000_000)];
        let changes = vec![
            Change::InsertAgent(agent(&name, "public", serde_json::json!({}))),
            Change::Journal(entry(task + 1, &lines)),
        ];
        put(store, changes).await.expect("funded");
    }
}

/// How long each operation took, from the call to the durable reply.
async fn work(store: Store, task: u64, stop: Arc<AtomicBool>) -> Vec<Duration> {
    let mut times = Vec::new();
    let name = format!("agent{task}");
    while !stop.load(Ordering::Relaxed) {
        let id = format!(
            "{:016x}-{task}-{}",
            (times.len() as u64 * 64 + task).wrapping_mul(0x9E37_79B9_7F4A_7C15),
            times.len()
        );
        let (name, start) = (name.clone(), Instant::now());
        store.transact(move |view| Ok(accept(view, &id, &name))).await.expect("durable");
        times.push(start.elapsed());
    }
    times
}
