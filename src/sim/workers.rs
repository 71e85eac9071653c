//! The workers behind the doors, as the daemon runs them: the sending queue and the arbiter, each step through the same
//! pure rules, with deaths between any two.

use super::bugs::Bug;
use super::deal;
use super::house::{Broken, Done, SimHouse};
use super::post::{Content, Post};
use super::world::{Caller, Door, Event, World};
use crate::arbiter::settle::{self, Posted, Step, Task};
use crate::ids::Ids;
use crate::libro;
use crate::limits;
use crate::mail::queue::{self, Attempt, Outcome};
use crate::probe::plan::Suite;
use crate::probe::url::UrlPolicy;
use crate::record::{Change, Contract, Decision, LookRow};
use crate::time::Timestamp;
use crate::verdict::{Look, Looked, Verdict};
use std::collections::BTreeMap;
use std::rc::Rc;

/// When the queue's worker has something to do.
pub fn next_job(house: &mut SimHouse, now: Timestamp) -> Option<Timestamp> {
    house.claimed.retain(|_, until| *until > now);
    let claimed = &house.claimed;
    let due = house.view.jobs().filter(|job| job.status.open());
    due.map(|job| claimed.get(&job.job).map_or(job.next_attempt, |until| job.next_attempt.max(*until))).min()
}

/// When the arbiter has something to do.
pub fn next_look(house: &SimHouse) -> Option<Timestamp> {
    let open = house.view.looks().filter(|row| !row.done);
    open.map(|row| row.lease_until.map_or(row.due, |until| row.due.max(until))).min()
}

/// Takes what is due from the sending queue and sends it.
pub fn queue(world: &mut World<'_>, at: usize) -> Result<(), Broken> {
    let now = world.now(at);
    let house = &mut world.houses[at];
    if !house.up {
        return Ok(());
    }
    house.queue_woken = true;
    house.claimed.retain(|_, until| *until > now);
    let due = house
        .view
        .jobs()
        .filter(|job| job.status.open() && job.next_attempt <= now && !house.claimed.contains_key(&job.job));
    let due: Vec<_> = due.take(4).cloned().collect();
    for job in due {
        world.houses[at].claimed.insert(job.job.clone(), now.plus(limits::QUEUE_CLAIM_MS));
        let life = world.houses[at].life;
        let told = |outcome| Event::Delivered { house: at, life, job: job.job.clone(), outcome };
        match queue::plan_attempt(&job, now) {
            Attempt::Nothing => {}
            Attempt::Expired => world.after(1, told(Outcome::Expired)),
            Attempt::Send if job.from_local == "libro" && libro::is_moot(&world.houses[at].view, &job.envelope) => {
                world.after(1, told(Outcome::Moot));
            }
            Attempt::Send => {
                let post = world.post_of(&job.envelope)?;
                let to = usize::from(job.domain.as_str() == super::people::HOUSES[1]);
                let caller = Caller::Worker { house: at, life, job: job.job.clone() };
                if to == at {
                    let wait = world.chance.span(1, 50);
                    world.after(wait, Event::Request { house: at, door: Door::Inbound, post, caller });
                } else {
                    world.send(to, Door::Inbound, &post, caller);
                }
            }
        }
    }
    Ok(())
}

/// Writes down what became of a delivery.
pub fn delivered(world: &mut World<'_>, at: usize, life: u32, job: &str, outcome: &Outcome) -> Result<(), Broken> {
    let now = world.now(at);
    let house = &mut world.houses[at];
    if !house.up || house.life != life {
        return Ok(());
    }
    house.claimed.remove(job);
    house.queue_woken = true;
    let mut ids = Ids::from_seed(world.chance.bytes());
    let decided = queue::settle(&house.house, &house.lens(), now, &mut ids, job, outcome);
    house.commit(&mut world.chance, &world.swarm, decided)?;
    if !world.houses[at].up {
        world.died(at);
    }
    Ok(())
}

/// Claims looks that are due and makes them.
pub fn looks(world: &mut World<'_>, at: usize) -> Result<(), Broken> {
    let now = world.now(at);
    let house = &mut world.houses[at];
    if !house.up {
        return Ok(());
    }
    house.looks_woken = true;
    let due = house
        .view
        .looks()
        .filter(|row| !row.done && row.due <= now && row.lease_until.is_none_or(|until| until <= now));
    let due: Vec<LookRow> = due.take(2).cloned().collect();
    for mut row in due {
        row.lease_until = Some(now.plus(limits::LOOK_LEASE_MS));
        let claim = Decision { changes: vec![Change::PutLook(row.clone())], reply: () };
        let Some(()) = done(world, at, claim)? else { return Ok(()) };
        let house = &world.houses[at];
        match settle::task(&house.house, &house.lens(), &row) {
            Task::Nothing => {
                let decision = settle::drop_row(&house.lens(), &row);
                done(world, at, decision)?;
            }
            Task::Post(envelope) => post(world, at, &row, &envelope)?,
            Task::Look(contract) => look(world, at, row, &contract),
        }
        if !world.houses[at].up {
            return Ok(());
        }
    }
    Ok(())
}

fn look(world: &mut World<'_>, at: usize, row: LookRow, contract: &Contract) {
    world.counts.looks += 1;
    let now = world.now(at);
    let settings = &world.houses[at].house.settings;
    let urls = UrlPolicy { addresses: settings.addresses.clone() };
    let suite = Suite::from_terms(&contract.terms, &urls, &settings.capabilities).accepted();
    let mut seen = BTreeMap::new();
    let mut truth = Some(true);
    for plan in suite.fetches(settings.policy.timeout_ms) {
        let site = world.sites.entry(plan.key.url.clone()).or_insert(super::sites::Site::Down);
        let (observation, proves) = site.answer(&mut world.chance, &plan.key, now);
        truth = truth.zip(proves).map(|(so_far, proves)| so_far && proves);
        seen.insert(plan.key, observation);
    }
    let results = suite.judge(&seen, &settle::delivery_of(contract));
    let looked = Box::new(Looked { look: Look::new(now, results, &seen), seen, attestations: Vec::new() });
    let life = world.houses[at].life;
    let wait = if world.chance.per_mille(20) { 150_000 } else { world.chance.span(1, 3_000) };
    world.after(wait, Event::Looked { house: at, life, row: Box::new(row), looked, truth });
}

/// Settles a look that was made.
pub fn looked(
    world: &mut World<'_>,
    at: usize,
    life: u32,
    row: &LookRow,
    looked: &Looked,
    truth: Option<bool>,
) -> Result<(), Broken> {
    let told = match looked.look.joint().verdict {
        Verdict::Pass => Some(true),
        Verdict::Fail => Some(false),
        Verdict::Undecided => None,
    };
    if told != truth {
        return Err(format!("a look at {} is judged {told:?}, and what was seen proves {truth:?}", row.contract));
    }
    let times = if world.houses[at].bug == Some(Bug::OneLook) { 2 } else { 1 };
    for time in 0..times {
        let now = world.now(at);
        let house = &world.houses[at];
        if !house.up || house.life != life {
            return Ok(());
        }
        let mut ids = Ids::from_seed(world.chance.bytes());
        let claimed = if time == 0 { row.clone() } else { LookRow { lease_until: None, ..row.clone() } };
        let decision = settle::settle(&house.house, &house.lens(), now, &mut ids, &claimed, looked, true);
        let stale = matches!(decision.reply, Step::Stale);
        let (done, kept) = world.houses[at].commit(&mut world.chance, &world.swarm, Ok(decision))?;
        if kept && !stale && time == 0 {
            world.houses[at].looked(&row.contract, deal::Looked { steps: row.delivery, passed: told });
        }
        if !world.houses[at].up {
            world.died(at);
        }
        match done {
            Done::Kept(Step::Post(envelope)) => return post(world, at, &claimed, &envelope),
            Done::Kept(Step::Confirm { .. }) => {}
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// Posts a verdict through the ordinary door and writes down what the ledger answered.
fn post(world: &mut World<'_>, at: usize, row: &LookRow, envelope: &serde_json::Value) -> Result<(), Broken> {
    if !world.houses[at].up {
        return Ok(());
    }
    let post: Rc<Post> = Rc::new(Post::of_house(envelope)?);
    if !matches!(post.content, Content::Order(_)) {
        return Err(format!("the verdict on {} is no order", row.contract));
    }
    let Some(answer) = world.inbound(at, &post)? else {
        world.died(at);
        return Ok(());
    };
    if !world.houses[at].up {
        world.died(at);
        return Ok(());
    }
    let answer = match answer.code {
        200 | 202 => {
            world.counts.verdicts += 1;
            Posted::Taken
        }
        code => Posted::Refused { code, reason: "refused".into() },
    };
    let now = world.now(at);
    let mut ids = Ids::from_seed(world.chance.bytes());
    let house = &world.houses[at];
    let decision = settle::posted(&house.house, &house.lens(), now, &mut ids, row, &answer);
    done(world, at, decision)?;
    Ok(())
}

/// Commits; `None` when it was not kept, or the house died over it.
fn done<T>(world: &mut World<'_>, at: usize, decision: Decision<T>) -> Result<Option<T>, Broken> {
    let (done, _) = world.houses[at].commit(&mut world.chance, &world.swarm, Ok(decision))?;
    if !world.houses[at].up {
        world.died(at);
    }
    Ok(match done {
        Done::Kept(reply) => Some(reply),
        Done::Refused(_) | Done::Died => None,
    })
}
