//! The simulated world: two houses, their agents, the network between them, one clock for everything, and the order in
//! which things happen.

use super::actors::{self, Intent};
use super::bugs::Bug;
use super::chance::{Chance, Swarm};
use super::check;
use super::house::{Broken, SimHouse};
use super::people::{Cast, HOUSES, START};
use super::post::{Content, Post};
use super::sites::Site;
use super::workers;
use crate::mail::queue::Outcome;
use crate::record::house::OnUndecided;
use crate::record::{LookRow, Settings};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::verdict::Looked;
use crate::wire::card::AgentCard;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

/// Who waits for an answer.
#[derive(Clone, Debug)]
pub enum Caller {
    Nobody,
    Client(usize),
    Worker { house: usize, life: u32, job: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Inbound,
    Outbound,
}

#[derive(Clone, Debug)]
pub enum Event {
    /// An actor has an idea.
    Think,
    /// A request reaches a door.
    Request {
        house: usize,
        door: Door,
        post: Rc<Post>,
        caller: Caller,
    },
    /// An answer reaches who asked.
    Answer {
        intent: usize,
        code: u16,
    },
    /// A client has waited long enough.
    Patience {
        intent: usize,
        tries: u32,
    },
    /// A worker learns what became of a delivery.
    Delivered {
        house: usize,
        life: u32,
        job: String,
        outcome: Outcome,
    },
    Queue {
        house: usize,
    },
    Looks {
        house: usize,
    },
    /// A look ends.
    Looked {
        house: usize,
        life: u32,
        row: Box<LookRow>,
        looked: Box<Looked>,
        truth: Option<bool>,
    },
    Restart {
        house: usize,
    },
    Fault,
    Issue {
        house: usize,
        id: u64,
        to: String,
        amount: i64,
    },
}

/// What happened in a run, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub events: u64,
    pub orders: u64,
    pub taken: u64,
    pub refused: u64,
    pub repeated: u64,
    pub letters: u64,
    pub deaths: u64,
    pub restores: u64,
    pub jumps: u64,
    pub looks: u64,
    pub verdicts: u64,
    pub entries: u64,
    pub commits: u64,
    pub lost: u64,
}

pub struct World<'a> {
    pub cast: &'a Cast,
    pub chance: Chance,
    pub swarm: Swarm,
    pub houses: [SimHouse; 2],
    pub intents: Vec<Intent>,
    pub sites: BTreeMap<String, Site>,
    /// By their signatures.
    pub posts: BTreeMap<String, Rc<Post>>,
    pub counts: Counts,
    pub healing: bool,
    pub drawn: u64,
    /// What happened last, when somebody wants to read it.
    pub log: Option<Vec<String>>,
    time: i64,
    offsets: [i64; 2],
    apart_until: i64,
    order: u64,
    heap: BinaryHeap<Reverse<Due>>,
    queue_due: [Option<i64>; 2],
    looks_due: [Option<i64>; 2],
}

struct Due {
    at: i64,
    order: u64,
    event: Event,
}

impl<'a> World<'a> {
    pub fn new(
        cast: &'a Cast,
        people: Rc<BTreeMap<String, super::people::Person>>,
        seed: u64,
        bug: Option<Bug>,
    ) -> Result<World<'a>, Broken> {
        let mut chance = Chance::of(seed);
        let swarm = Swarm::draw(&mut chance);
        let fees = [0, 50, 333, 1_000, 2_000];
        let settings = Settings {
            mail_per_minute: 1_000_000,
            fee_bps: chance.pick(&fees).copied().unwrap_or(1_000),
            reclaim_grace_ms: chance.span(1, 3_600_000),
            review_window_ms: chance.span(1, 7_200_000),
            give_up_ms: chance.span(600_000, 3 * 86_400_000),
            on_undecided_at_expiry: if chance.per_mille(300) { OnUndecided::Expire } else { OnUndecided::Hold },
            ..Settings::default()
        };
        let house = |at| SimHouse::new(at, cast, people.clone(), settings.clone(), bug);
        let houses = [house(0)?, house(1)?];
        let mut world = World {
            cast,
            chance,
            swarm,
            houses,
            intents: Vec::new(),
            sites: BTreeMap::new(),
            posts: BTreeMap::new(),
            counts: Counts::default(),
            healing: false,
            drawn: 0,
            log: None,
            time: START.millis(),
            offsets: [0, 0],
            apart_until: 0,
            order: 0,
            heap: BinaryHeap::new(),
            queue_due: [None, None],
            looks_due: [None, None],
        };
        actors::fund(&mut world);
        world.after(10, Event::Think);
        world.after(500, Event::Fault);
        Ok(world)
    }

    /// The house's own clock.
    pub fn now(&self, house: usize) -> Timestamp {
        Timestamp::from_millis(self.time + self.offsets[house & 1])
    }

    pub fn after(&mut self, wait: i64, event: Event) {
        self.order += 1;
        self.heap.push(Reverse(Due { at: self.time + wait.max(0), order: self.order, event }));
    }

    /// A number that was never drawn before in this run.
    pub fn fresh(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    pub fn house_of(address: &str) -> usize {
        usize::from(address.ends_with(HOUSES[1]))
    }

    /// Makes the next thing happen; `false` when nothing will.
    pub fn step(&mut self) -> Result<bool, Broken> {
        let due = loop {
            let Some(Reverse(due)) = self.heap.pop() else { return Ok(false) };
            if self.matters(&due) {
                break due;
            }
        };
        self.time = self.time.max(due.at);
        self.counts.events += 1;
        if let Some(log) = &mut self.log {
            let line = format!("{} +{} {}", self.counts.events, self.time - START.millis(), due.event);
            log.push(line);
        }
        self.happen(due.event)?;
        for house in 0..2 {
            self.wake(house);
        }
        if self.counts.events.is_multiple_of(512) {
            self.houses.iter().try_for_each(check::sweep)?;
        }
        Ok(true)
    }

    /// What was overtaken by something else is no event.
    fn matters(&self, due: &Due) -> bool {
        match &due.event {
            Event::Patience { intent, tries } => self.intents[*intent].waits(*tries),
            Event::Queue { house } => self.queue_due[*house] == Some(due.at),
            Event::Looks { house } => self.looks_due[*house] == Some(due.at),
            Event::Restart { house } => !self.houses[*house].up,
            Event::Think | Event::Fault => !self.healing,
            _ => true,
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::Think => {
                actors::think(self)?;
                let wait = self.chance.span(100, 3_000);
                self.after(wait, Event::Think);
                Ok(())
            }
            Event::Request { house, door, post, caller } => self.request(house, door, &post, caller),
            Event::Answer { intent, code } => {
                self.intents[intent].answered(code, self.counts.events);
                Ok(())
            }
            Event::Patience { intent, tries } => {
                actors::lose_patience(self, intent, tries);
                Ok(())
            }
            Event::Delivered { house, life, job, outcome } => workers::delivered(self, house, life, &job, &outcome),
            Event::Queue { house } => {
                self.queue_due[house & 1] = None;
                workers::queue(self, house)
            }
            Event::Looks { house } => {
                self.looks_due[house & 1] = None;
                workers::looks(self, house)
            }
            Event::Looked { house, life, row, looked, truth } => {
                workers::looked(self, house, life, &row, &looked, truth)
            }
            Event::Restart { house } => {
                let now = self.now(house);
                self.houses[house].start(now)
            }
            Event::Fault => self.fault(),
            Event::Issue { house, id, to, amount } => self.issue(house, id, to, amount),
        }
    }

    /// Posts by nobody in the simulator are read from their document.
    pub fn post_of(&mut self, doc: &Value) -> Result<Rc<Post>, Broken> {
        let key = doc.pointer("/signature/value").and_then(Value::as_str).unwrap_or_default();
        if let Some(post) = self.posts.get(key) {
            return Ok(post.clone());
        }
        let post = Rc::new(Post::of_house(doc)?);
        self.posts.insert(key.to_owned(), post.clone());
        Ok(post)
    }

    /// Sends a request over the network: it may be slow, doubled or lost.
    pub fn send(&mut self, house: usize, door: Door, post: &Rc<Post>, caller: Caller) {
        if self.chance.per_mille(self.swarm.doubled) {
            let wait = self.delay();
            self.after(wait, Event::Request { house, door, post: post.clone(), caller: Caller::Nobody });
        }
        if self.chance.per_mille(self.swarm.lost) {
            self.counts.lost += 1;
            return self.unanswered(caller);
        }
        let wait = self.delay();
        self.after(wait, Event::Request { house, door, post: post.clone(), caller });
    }

    fn delay(&mut self) -> i64 {
        if self.chance.per_mille(self.swarm.slow) { self.chance.span(1_000, 120_000) } else { self.chance.span(1, 80) }
    }

    /// A worker learns after a time that nobody answers; a client loses patience by itself.
    fn unanswered(&mut self, caller: Caller) {
        if let Caller::Worker { house, life, job } = caller {
            let outcome = Outcome::Failed { code: 0, reason: "no answer".into() };
            self.after(10_000, Event::Delivered { house, life, job, outcome });
        }
    }

    fn request(&mut self, at: usize, door: Door, post: &Rc<Post>, caller: Caller) -> Result<(), Broken> {
        let apart = self.time < self.apart_until && matches!(caller, Caller::Worker { house, .. } if house != at);
        if !self.houses[at].up || apart {
            self.unanswered(caller);
            return Ok(());
        }
        let answer = match door {
            Door::Inbound => self.inbound(at, post)?,
            Door::Outbound => {
                let now = self.now(at);
                self.houses[at].outbound(&mut self.chance, &self.swarm, now, post)?
            }
        };
        let Some(answer) = answer else {
            self.died(at);
            self.unanswered(caller);
            return Ok(());
        };
        if !self.houses[at].up {
            self.died(at);
        }
        if self.chance.per_mille(self.swarm.lost) {
            self.counts.lost += 1;
            self.unanswered(caller);
            return Ok(());
        }
        let wait = self.delay();
        match caller {
            Caller::Nobody => {}
            Caller::Client(intent) => self.after(wait, Event::Answer { intent, code: answer.code }),
            Caller::Worker { house, life, job } => {
                let outcome = crate::mail::queue::judge_answer(answer.code, &answer.body);
                self.after(wait, Event::Delivered { house, life, job, outcome });
            }
        }
        Ok(())
    }

    /// An envelope at the incoming door of a house that is up.
    pub fn inbound(&mut self, at: usize, post: &Rc<Post>) -> Result<Option<crate::mail::Answer>, Broken> {
        let now = self.now(at);
        let Some(sender) = self.houses[Self::house_of(&post.from)].card(&post.from) else {
            return Err(format!("{} has no card", post.from));
        };
        let mut known: BTreeMap<String, Result<AgentCard, Refusal>> = BTreeMap::new();
        if let Content::Order(super::order::Order::Accept(offer)) = &post.content {
            let home = Self::house_of(&offer.seller);
            let reached = home == at || (self.houses[home].up && self.time >= self.apart_until);
            let card = self.houses[home].card(&offer.seller).filter(|_| reached);
            let unreachable = || Refusal::new(Rule::SenderUnreachable, "its house does not answer");
            known.insert(offer.seller.clone(), card.ok_or_else(unreachable));
        }
        let resolve = |who: &str| {
            let nobody = || Err(Refusal::new(Rule::SenderUnreachable, "nobody was asked"));
            known.get(who).cloned().unwrap_or_else(nobody)
        };
        if let Content::Order(_) = post.content {
            self.counts.orders += 1;
        } else {
            self.counts.letters += 1;
        }
        let houses = &mut self.houses;
        let answer = houses[at].inbound(self.cast, &mut self.chance, &self.swarm, now, post, &sender, &resolve)?;
        match answer.as_ref().map(|answer| answer.code) {
            Some(202) => self.counts.taken += 1,
            Some(200) => self.counts.repeated += 1,
            Some(_) => self.counts.refused += 1,
            None => {}
        }
        Ok(answer)
    }

    /// A house that has just died comes up again.
    pub fn died(&mut self, house: usize) {
        self.counts.deaths += 1;
        let wait = self.chance.span(100, 60_000);
        self.after(wait, Event::Restart { house });
    }

    /// Whose cards of this house have ended, as both ledgers must see it.
    pub fn know_who_ended(&mut self, house: usize) {
        let now = self.now(house);
        for address in self.cast.actors[house].iter() {
            let ended = self.houses[house].card(address).is_some_and(|card| card.ended(now));
            for sim in &mut self.houses {
                match ended {
                    true => sim.ledger.ended.insert(address.clone()),
                    false => sim.ledger.ended.remove(address),
                };
            }
        }
    }

    fn issue(&mut self, house: usize, id: u64, to: String, amount: i64) -> Result<(), Broken> {
        if self.houses[house].up {
            let now = self.now(house);
            let name = format!("issue-{id:08}");
            self.houses[house].issue(&mut self.chance, &self.swarm, now, &name, &to, amount)?;
            if !self.houses[house].up {
                self.died(house);
            }
        }
        // The operator's hand asks again, whatever came of it.
        if self.chance.per_mille(300) && !self.healing {
            let wait = self.chance.span(1_000, 20_000);
            self.after(wait, Event::Issue { house, id, to, amount });
        }
        Ok(())
    }

    /// What nobody ordered: deaths, clocks that jump, houses that do not see each other, old backups.
    fn fault(&mut self) -> Result<(), Broken> {
        let house = self.chance.below(2) as usize;
        let rate = |of: u64| of * 10;
        if self.chance.per_mille(rate(self.swarm.crash)) && self.houses[house].up {
            self.houses[house].die();
            self.died(house);
        }
        if self.chance.per_mille(rate(self.swarm.jump)) {
            self.counts.jumps += 1;
            let by = match self.chance.below(4) {
                0 => -self.chance.span(1, 3_600_000),
                1 => self.chance.span(1, 60_000),
                2 => self.chance.span(60_000, 14_400_000),
                _ => self.chance.span(1, 10 * 86_400_000),
            };
            self.offsets[house] += by;
        }
        if self.chance.per_mille(rate(self.swarm.partition)) {
            self.apart_until = self.time + self.chance.span(1_000, 600_000);
        }
        if self.houses[house].up && self.swarm.restore > 0 && self.chance.per_mille(300) {
            self.houses[house].back_up(self.counts.events);
        }
        if self.chance.per_mille(rate(self.swarm.restore))
            && let Some(event) = self.houses[house].restore()
        {
            self.counts.restores += 1;
            self.died(house);
            actors::forget(self, house, event);
            // The backup's ledger may not know of an end at either house.
            (0..2).for_each(|of| self.know_who_ended(of));
        }
        if self.chance.per_mille(self.swarm.revoke) {
            actors::revoke(self, house)?;
        }
        let wait = self.chance.span(1_000, 20_000);
        self.after(wait, Event::Fault);
        Ok(())
    }

    /// Workers sleep until something is due.
    fn wake(&mut self, house: usize) {
        let now = self.now(house);
        let sim = &mut self.houses[house];
        if !sim.up {
            return;
        }
        let (queue, looks) = (sim.queue_woken, sim.looks_woken);
        sim.queue_woken = false;
        sim.looks_woken = false;
        if queue {
            let due = workers::next_job(sim, now);
            self.schedule(house, due, now, true);
        }
        if looks {
            let due = workers::next_look(&self.houses[house]);
            self.schedule(house, due, now, false);
        }
    }

    fn schedule(&mut self, house: usize, due: Option<Timestamp>, now: Timestamp, queue: bool) {
        let Some(due) = due else { return };
        let at = self.time + due.since(now).max(1);
        let slot = if queue { &mut self.queue_due[house] } else { &mut self.looks_due[house] };
        if slot.is_some_and(|planned| planned <= at) {
            return;
        }
        *slot = Some(at);
        let wait = at - self.time;
        self.after(wait, if queue { Event::Queue { house } } else { Event::Looks { house } });
    }

    /// Nothing goes wrong any more: every house is up, its clock runs with the latest, everybody sees everybody, and what
    /// is looked at stays as it is.
    pub fn heal(&mut self) -> Result<(), Broken> {
        self.healing = true;
        self.swarm = Swarm::healed();
        self.apart_until = 0;
        let latest = self.offsets.iter().copied().max().unwrap_or(0);
        self.offsets = [latest, latest];
        self.sites.values_mut().for_each(Site::settle);
        for house in 0..2 {
            let now = self.now(house);
            if !self.houses[house].up {
                self.houses[house].start(now)?;
            }
            self.houses[house].queue_woken = true;
            self.houses[house].looks_woken = true;
            self.wake(house);
        }
        actors::hurry(self);
        Ok(())
    }

    /// After healing: everything is settled, and both houses agree on what passed between them.
    pub fn conclude(&self) -> Result<(), Broken> {
        for house in &self.houses {
            check::promises(house)?;
            check::sweep(house)?;
            check::settled(house)?;
        }
        let [one, other] = &self.houses;
        check::delivered(one, other)?;
        check::delivered(other, one)?;
        match self.intents.iter().find(|intent| intent.open()) {
            None => Ok(()),
            Some(intent) => Err(format!("nobody ever answers {}", intent.post)),
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.events += more.events;
        self.orders += more.orders;
        self.taken += more.taken;
        self.refused += more.refused;
        self.repeated += more.repeated;
        self.letters += more.letters;
        self.deaths += more.deaths;
        self.restores += more.restores;
        self.jumps += more.jumps;
        self.looks += more.looks;
        self.verdicts += more.verdicts;
        self.entries += more.entries;
        self.commits += more.commits;
        self.lost += more.lost;
    }
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Event::Request { house, door, post, .. } => write!(f, "{} {door:?}: {post}", HOUSES[*house & 1]),
            Event::Looked { house, row, truth, .. } => {
                write!(f, "{} looked at {}: {truth:?}", HOUSES[*house & 1], row.contract)
            }
            other => write!(f, "{other:?}"),
        }
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}
