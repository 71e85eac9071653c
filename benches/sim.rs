//! Long simulations: many seeds, as many threads as are given, and what came of them in numbers.
//!
//! `cargo bench --bench sim -- --seeds 1000 --events 1000 --from 0 --threads 1`. Ends with 1 at the first violation, after
//! printing its seed, what it was and what happened before it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use verifica::sim::{Counts, Plan, Simulator};

fn main() {
    let given = |name: &str, default: u64| {
        let mut words = std::env::args().skip_while(|word| word != name);
        words.nth(1).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} takes a number")))
    };
    let (seeds, events, from) = (given("--seeds", 1_000), given("--events", 1_000), given("--from", 0));
    let threads = given("--threads", 1);
    let seconds = given("--seconds", u64::MAX);
    let next = Arc::new(AtomicU64::new(from));
    let total = Arc::new(Mutex::new((0u64, Counts::default(), Duration::ZERO)));
    let begun = Instant::now();
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (next, total) = (next.clone(), total.clone());
            std::thread::spawn(move || {
                let simulator = Simulator::new().expect("a simulator");
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from.saturating_add(seeds) || begun.elapsed().as_secs() >= seconds {
                        return;
                    }
                    let plan = Plan { seed, events, bug: None };
                    let started = Instant::now();
                    match simulator.run(plan) {
                        Ok(counts) => {
                            let mut total = total.lock().expect("counts");
                            total.0 += 1;
                            total.1 += counts;
                            total.2 += started.elapsed();
                        }
                        Err(found) => fail(&simulator, plan, &found.what),
                    }
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().expect("a worker"));
    let (runs, counts, busy) = *total.lock().expect("counts");
    let per_second = counts.events as f64 / busy.as_secs_f64().max(1e-9);
    println!("seeds {from}..{} : {runs} runs in {:.1?}", from + runs, begun.elapsed());
    println!("{counts:?}");
    println!("{per_second:.0} events a second and thread; no violation");
}

fn fail(simulator: &Simulator, plan: Plan, what: &str) -> ! {
    println!("VIOLATION at seed {}: {what}", plan.seed);
    if let Err(again) = simulator.replay(plan) {
        let last = again.log.len().saturating_sub(60);
        again.log[last..].iter().for_each(|line| println!("  {}", line.chars().take(400).collect::<String>()));
        println!("event {} of seed {}: {}", again.event, plan.seed, again.what);
    }
    std::process::exit(1);
}
