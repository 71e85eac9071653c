//! A house under everything that can go wrong, in one thread, out of one seed.
//!
//! The rules are the real ones, over the records that every store is compared with ([`crate::record::memory`]). Around
//! them everything is simulated: the clock, which jumps; the network, which loses, repeats, delays, reorders and parts;
//! the disk, which dies before and after a commit, is full, or cannot say whether it kept anything; the probes, which
//! find sites that flap and lie; backups that are put back; and agents, honest and hostile.
//!
//! After every event it is checked that what was answered and what it left is what a separate, plain reference ledger
//! ([`model`]) says; that every entry sums to zero and no account but the house's falls below zero; that no contract ends
//! twice; that whoever must be told is told; and, whenever a house starts, that nothing is missing that it acknowledged. A
//! verdict stands on two looks that agree. In the end everything heals, and then every letter must have arrived or come
//! back, every contract that can be judged be judged, and both houses agree on what passed between them.
//!
//! A run is a function of its seed: what fails once can be watched again ([`replay`]).
//!
//! Deliberately absent: sockets, SQLite and processes. Those are put to the test as they are (`tests/crash*.rs`).

mod actors;
mod bugs;
mod chance;
mod check;
mod deal;
mod house;
pub mod model;
mod order;
mod people;
mod post;
mod sites;
mod workers;
mod world;

pub use bugs::Bug;
pub use world::Counts;

use people::{Cast, Person};
use std::collections::BTreeMap;
use std::rc::Rc;
use world::World;

/// What to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    /// How many events before everything heals.
    pub events: u64,
    /// A fault that is put into the houses.
    pub bug: Option<Bug>,
}

/// What must never be, and was.
#[derive(Clone, Debug)]
pub struct Violation {
    pub plan: Plan,
    pub event: u64,
    pub what: String,
    /// What happened before it, if it was asked for.
    pub log: Vec<String>,
}

/// Runs simulations, one after the other.
pub struct Simulator {
    cast: Cast,
    people: Rc<BTreeMap<String, Person>>,
}

impl Simulator {
    pub fn new() -> Result<Simulator, String> {
        let cast = Cast::new().map_err(|refusal| refusal.to_string())?;
        let people = Rc::new(cast.people.clone());
        Ok(Simulator { cast, people })
    }

    pub fn run(&self, plan: Plan) -> Result<Counts, Box<Violation>> {
        self.simulate(plan, false)
    }

    /// The same run once more, with everything that happens in it written down.
    pub fn replay(&self, plan: Plan) -> Result<Counts, Box<Violation>> {
        self.simulate(plan, true)
    }

    fn simulate(&self, plan: Plan, logged: bool) -> Result<Counts, Box<Violation>> {
        let violation = |event: u64, what: String, log: Vec<String>| Box::new(Violation { plan, event, what, log });
        let world = World::new(&self.cast, self.people.clone(), plan.seed, plan.bug);
        let mut world = world.map_err(|what| violation(0, what, Vec::new()))?;
        world.log = logged.then(Vec::new);
        match course(&mut world, plan) {
            Ok(()) => {
                let mut counts = world.counts;
                counts.entries = world.houses.iter().map(|house| house.ledger.entries).sum();
                counts.commits = world.houses.iter().map(|house| house.commits).sum();
                Ok(counts)
            }
            Err(what) => Err(violation(world.counts.events, what, world.log.unwrap_or_default())),
        }
    }
}

fn course(world: &mut World<'_>, plan: Plan) -> Result<(), String> {
    while world.counts.events < plan.events && world.step()? {}
    world.heal()?;
    let bound = world.counts.events + HEALING_EVENTS_MAX + plan.events * 4;
    while world.step()? {
        if world.counts.events > bound {
            return Err("it does not come to rest although everything is healed".to_owned());
        }
    }
    world.conclude()
}

const HEALING_EVENTS_MAX: u64 = 20_000;
