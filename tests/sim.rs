//! The simulator in CI: fresh seeds for a bounded time, every seed that ever failed, the same run twice, and faults put in
//! on purpose, each of which must be found.

use std::time::{Duration, Instant};
use verifica::sim::{Bug, Counts, Plan, Simulator};

/// Seeds that failed once, for whatever reason. They stay.
const FAILED_ONCE: &[u64] = &[9_359];

const EVENTS: u64 = 1_000;

fn plan(seed: u64) -> Plan {
    Plan { seed, events: EVENTS, bug: None }
}

/// Runs one seed, or fails with all that led to the violation.
fn run(simulator: &Simulator, plan: Plan) -> Counts {
    simulator.run(plan).unwrap_or_else(|found| {
        let again = simulator.replay(plan).expect_err("a run is a function of its seed");
        let last = again.log.len().saturating_sub(40);
        panic!("seed {}, event {}: {}\n{}", plan.seed, found.event, found.what, again.log[last..].join("\n"))
    })
}

#[test]
fn nothing_that_must_never_be_is_found_in_fresh_seeds() {
    let seconds = std::env::var("VERIFICA_SIM_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let from = std::env::var("VERIFICA_SIM_FROM").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let simulator = Simulator::new().expect("a simulator");
    let (begun, mut total, mut seeds) = (Instant::now(), Counts::default(), 0u64);
    while begun.elapsed() < Duration::from_secs(seconds) {
        total += run(&simulator, plan(from + seeds));
        seeds += 1;
    }
    println!("{seeds} seeds from {from} in {:.1?}: {total:?}", begun.elapsed());
    assert!(total.taken * 4 > total.orders, "hardly anything that is asked for is taken: {total:?}");
    assert!(total.entries > 0 && total.verdicts > 0 && total.deaths > 0 && total.repeated > 0, "{total:?}");
}

#[test]
fn every_seed_that_failed_once_holds() {
    let simulator = Simulator::new().expect("a simulator");
    for seed in FAILED_ONCE {
        run(&simulator, plan(*seed));
    }
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let (one, other) = (Simulator::new().expect("a simulator"), Simulator::new().expect("a simulator"));
    for seed in [3, 5] {
        assert_eq!(run(&one, plan(seed)), run(&other, plan(seed)));
    }
    assert_ne!(run(&one, plan(3)), run(&one, plan(4)));
}

/// The table of faults that were put in, and how many seeds it took to find each.
#[test]
fn every_fault_that_is_put_in_is_found() {
    let simulator = Simulator::new().expect("a simulator");
    let mut missed = Vec::new();
    println!("{:<20} {:>5} {:>6}  found as", "fault", "seeds", "event");
    for bug in Bug::ALL {
        let found = (1..=BUG_SEEDS).find_map(|seed| {
            let found = simulator.run(Plan { seed, events: EVENTS, bug: Some(bug) }).err()?;
            Some((seed, found))
        });
        match found {
            Some((seeds, found)) => {
                let what: String = found.what.chars().take(150).collect();
                println!("{:<20} {seeds:>5} {:>6}  {what}", format!("{bug:?}"), found.event);
            }
            None => missed.push(bug.words()),
        }
    }
    assert!(missed.is_empty(), "not found in {BUG_SEEDS} seeds: {missed:?}");
}

const BUG_SEEDS: u64 = 60;
