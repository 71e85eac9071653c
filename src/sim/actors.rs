//! Who does what: honest agents that keep their deals and repeat what was not answered, and hostile ones that forge,
//! replay, equivocate, and ask for what is not theirs. All of them know everything; the houses must not need them to be
//! ignorant.

use super::deal::State;
use super::house::Broken;
use super::order::{Claimed, Kind, Offer, Order, Tests};
use super::people::HOUSES;
use super::post::{Content, Post, Writing};
use super::sites::{Site, deadline};
use super::world::{Caller, Door, Event, World};
use crate::mail::{self, Authority};
use crate::refusal::retryable;
use crate::time::Timestamp;
use std::rc::Rc;

/// An envelope that a client wants taken, and what it knows of it.
pub struct Intent {
    pub post: Rc<Post>,
    pub house: usize,
    pub door: Door,
    tries: u32,
    /// The last answer, and when it came.
    told: Option<(u16, u64)>,
}

impl Intent {
    pub fn answered(&mut self, code: u16, event: u64) {
        if self.open() {
            self.told = Some((code, event));
        }
    }

    /// This is the latest try, and nobody has answered it.
    pub fn waits(&self, tries: u32) -> bool {
        self.open() && self.tries == tries
    }

    /// Nobody said yes or no yet.
    pub fn open(&self) -> bool {
        self.told.is_none_or(|(code, _)| retryable(code))
    }
}

/// Tokens for everybody at both houses.
pub fn fund(world: &mut World<'_>) {
    for house in 0..2 {
        for (home, domain) in HOUSES.into_iter().enumerate() {
            for name in ["ana", "leo", "eva", "bot.ana"] {
                issue(world, house, format!("{name}@{domain}"), if home == house { 5_000 } else { 1_000 });
            }
        }
    }
}

fn issue(world: &mut World<'_>, house: usize, to: String, amount: i64) {
    let id = world.fresh();
    world.after(1, Event::Issue { house, id, to, amount });
}

/// One idea of one actor.
pub fn think(world: &mut World<'_>) -> Result<(), Broken> {
    let hostile = world.chance.per_mille(world.swarm.hostile);
    let house = usize::from(world.chance.per_mille(250));
    match world.chance.below(20) {
        0..4 => letter(world, house, hostile),
        4 if world.chance.per_mille(200) => {
            let to = anybody(world);
            let amount = world.chance.span(1, 2_000);
            issue(world, house, to, amount);
            Ok(())
        }
        5 if world.chance.per_mille(world.swarm.replayed * 10) => {
            replay(world);
            Ok(())
        }
        _ => {
            let (from, order) = if hostile { mischief(world, house) } else { honest(world, house) };
            let to = format!("libro@{}", HOUSES[house]);
            write(world, &from, vec![to], Content::Order(order), None, hostile)
        }
    }
}

/// Writes an envelope and sends it until somebody answers.
fn write(
    world: &mut World<'_>,
    from: &str,
    to: Vec<String>,
    content: Content,
    stamp: Option<(String, i64)>,
    hostile: bool,
) -> Result<(), Broken> {
    let number = world.fresh();
    let mut id = format!("envelope-{number:08}");
    let forged = hostile && world.chance.per_mille(60);
    if hostile
        && world.chance.per_mille(60)
        && let Some(intent) = last(world, 20)
        && world.intents[intent].post.from == from
    {
        // Another body under an id that was used.
        id.clone_from(&world.intents[intent].post.id);
    }
    let home = World::house_of(from);
    let now = world.now(home);
    let expires = if world.chance.per_mille(40) { Some(now.plus(world.chance.span(-1_000, 600_000))) } else { None };
    let cast = world.cast;
    let writing = Writing { id, from, to, content, body: number, stamp, expires, forged, created: now };
    let post = Rc::new(Post::write(writing, &|who| cast.key_of(who))?);
    let elsewhere = post.to.iter().any(|to| World::house_of(to) != home);
    let through_queue = world.chance.per_mille(world.swarm.through_queue) || (elsewhere && post.to.len() > 1);
    let (house, door) = match through_queue {
        true => (home, Door::Outbound),
        false => (post.to.first().map_or(home, |to| World::house_of(to)), Door::Inbound),
    };
    let system = world.cast.people.get(from).is_some_and(|person| person.system);
    let (house, door) = if system { (World::house_of(&post.to[0]), Door::Inbound) } else { (house, door) };
    // What a house carries for an agent is found again by its signature.
    if door == Door::Outbound {
        let signature = post.envelope.doc().pointer("/signature/value").and_then(serde_json::Value::as_str);
        world.posts.insert(signature.unwrap_or_default().to_owned(), post.clone());
    }
    let intent = world.intents.len();
    world.intents.push(Intent { post: post.clone(), house, door, tries: 0, told: None });
    world.send(house, door, &post, Caller::Client(intent));
    let wait = world.chance.span(5_000, 40_000);
    world.after(wait, Event::Patience { intent, tries: 0 });
    Ok(())
}

/// The same envelope again, as long as nobody has answered it.
pub fn lose_patience(world: &mut World<'_>, at: usize, tries: u32) {
    let intent = &mut world.intents[at];
    intent.tries = tries + 1;
    let (tries, house, door, post) = (intent.tries, intent.house, intent.door, intent.post.clone());
    world.send(house, door, &post, Caller::Client(at));
    let wait = world.chance.span(5_000, 30_000) << tries.min(6);
    world.after(wait, Event::Patience { intent: at, tries });
}

/// A house forgot everything since this event: whoever was answered since asks again.
pub fn forget(world: &mut World<'_>, house: usize, event: u64) {
    for at in 0..world.intents.len() {
        let intent = &mut world.intents[at];
        if intent.house == house && intent.told.is_some_and(|(_, when)| when >= event) {
            intent.told = None;
            intent.tries += 1;
            let tries = intent.tries;
            let wait = world.chance.span(60_000, 90_000);
            world.after(wait, Event::Patience { intent: at, tries });
        }
    }
}

/// Everybody who still waits asks once more.
pub fn hurry(world: &mut World<'_>) {
    for at in 0..world.intents.len() {
        if world.intents[at].open() {
            let tries = world.intents[at].tries;
            world.after(1, Event::Patience { intent: at, tries });
        }
    }
}

/// An agent's card ends for good.
pub fn revoke(world: &mut World<'_>, house: usize) -> Result<(), Broken> {
    let names = ["eva", "abi", "bot.ana", "sec"];
    let Some(name) = world.chance.pick(&names).copied() else { return Ok(()) };
    let now = world.now(house);
    let sim = &world.houses[house];
    if !sim.up {
        return Ok(());
    }
    let decided = mail::delegation::revoke(&sim.house, &sim.view, now, name, &Authority::Admin);
    let Ok(decision) = decided else { return Ok(()) };
    let swarm = super::chance::Swarm::healed();
    world.houses[house].commit(&mut world.chance, &swarm, Ok(decision))?;
    world.know_who_ended(house);
    Ok(())
}

fn last(world: &mut World<'_>, of: usize) -> Option<usize> {
    let many = world.intents.len();
    let back = world.chance.below(of.min(many) as u64) as usize;
    many.checked_sub(1 + back)
}

/// What was sent before, sent again by whoever saw it pass.
fn replay(world: &mut World<'_>) {
    let Some(at) = last(world, 200) else { return };
    let post = world.intents[at].post.clone();
    let house = post.to.first().map_or(0, |to| World::house_of(to));
    world.send(house, Door::Inbound, &post, Caller::Nobody);
}

fn letter(world: &mut World<'_>, house: usize, hostile: bool) -> Result<(), Broken> {
    let from = anybody(world);
    let mut to = Vec::new();
    for _ in 0..=world.chance.below(3) {
        let home = if world.chance.per_mille(300) { 1 - house } else { house };
        let person = world.chance.pick(&world.cast.actors[home]).cloned().unwrap_or_default();
        if !to.contains(&person) {
            to.push(person);
        }
    }
    if hostile && world.chance.per_mille(150) {
        let nobody = ["nobody", "libro", "postmaster", "verifica"];
        let name = world.chance.pick(&nobody).copied().unwrap_or("nobody");
        to.push(format!("{name}@{}", HOUSES[house]));
    }
    let stamp = world.chance.per_mille(500).then(|| {
        let home = if world.chance.per_mille(100) { 1 - house } else { house };
        (HOUSES[home].to_owned(), world.chance.span(1, 6))
    });
    write(world, &from, to, Content::Letter, stamp, hostile)
}

fn anybody(world: &mut World<'_>) -> String {
    let house = world.chance.below(2) as usize;
    world.chance.pick(&world.cast.actors[house]).cloned().unwrap_or_default()
}

/// Somebody who trades: of this house mostly.
fn trader(world: &mut World<'_>, house: usize) -> String {
    let names = ["ana", "leo", "eva", "abi", "bot.ana"];
    let name = world.chance.pick(&names).copied().unwrap_or("ana");
    let home = if world.chance.per_mille(250) { 1 - house } else { house };
    format!("{name}@{}", HOUSES[home])
}

/// A deal of this ledger that began lately.
fn recent(world: &mut World<'_>, house: usize) -> Option<super::deal::Deal> {
    let many = world.houses[house].ledger.order.len();
    for more in 0..4 {
        let back = world.chance.below(many.min(16) as u64) as usize;
        let ledger = &world.houses[house].ledger;
        let deal = ledger.order.get(many.checked_sub(1 + back)?).and_then(|id| ledger.deals.get(id))?;
        if !deal.state.over() || more == 3 || back == 0 {
            return Some(deal.clone());
        }
    }
    None
}

fn grant(world: &mut World<'_>, house: usize) -> Option<super::deal::Grant> {
    let many = world.houses[house].ledger.grant_order.len();
    let back = world.chance.below(many.min(8) as u64) as usize;
    let ledger = &world.houses[house].ledger;
    let id = ledger.grant_order.get(many.checked_sub(1 + back)?)?;
    ledger.grants.get(id).cloned()
}

/// What its parties would do next.
fn honest(world: &mut World<'_>, house: usize) -> (String, Order) {
    let now = world.now(house);
    match world.chance.below(10) {
        0..2 => {
            let offer = offer(world, house);
            (offer.buyer.clone(), Order::Accept(Box::new(offer)))
        }
        2..7 => match recent(world, house) {
            Some(deal) => next(world, house, &deal, now),
            None => {
                let offer = offer(world, house);
                (offer.buyer.clone(), Order::Accept(Box::new(offer)))
            }
        },
        7 => match grant(world, house) {
            Some(grant) if world.chance.per_mille(800) => {
                let most = grant.max.unwrap_or(grant.cap).min(grant.cap - grant.spent).max(1);
                let amount = world.chance.span(1, most);
                let concept = grant.concept.clone().unwrap_or_else(|| "hosting".into());
                if world.chance.per_mille(250) {
                    let to = trader(world, house);
                    let cap = world.chance.span(1, most);
                    let order = mandate(world, to, cap, Some(grant.id));
                    return (grant.grantee, order);
                }
                (grant.grantee, Order::Charge { mandate: grant.id, amount, concept })
            }
            _ => {
                let (from, to) = (trader(world, house), trader(world, house));
                let cap = world.chance.span(1, 400);
                (from, mandate(world, to, cap, None))
            }
        },
        8 => {
            let (from, to) = (trader(world, house), trader(world, house));
            (from, Order::Pay { to, amount: world.chance.span(1, 60) })
        }
        _ => {
            let from = trader(world, house);
            let order = match world.chance.below(12) {
                0 => Order::Balance,
                1..3 => Order::Statement,
                3..6 => Order::Notarize { hash: Some(world.chance.below(6) as u8) },
                6..8 => return bond(world, house),
                _ => match recent(world, house) {
                    Some(deal) => Order::Contract { contract: deal.id },
                    None => Order::Statement,
                },
            };
            (from, order)
        }
    }
}

fn next(world: &mut World<'_>, house: usize, deal: &super::deal::Deal, now: Timestamp) -> (String, Order) {
    let (contract, buyer) = (deal.id.clone(), deal.buyer.clone().unwrap_or_else(|| deal.seller.clone()));
    let verifica = world.houses[house].ledger.own("verifica");
    let passed = deal.deadline.is_some_and(|deadline| deadline <= now);
    match deal.state {
        State::Held if passed && world.chance.per_mille(400) => (buyer, Order::Reclaim { contract }),
        State::Held => match world.chance.below(if deal.tests { 16 } else { 8 }) {
            0 => (buyer, Order::Refund { contract, verdict: None }),
            1 => (buyer, Order::Reclaim { contract }),
            2 => (buyer, Order::Release { contract, verdict: None }),
            _ => (deal.seller.clone(), Order::Deliver { contract, evidence: world.chance.per_mille(500) }),
        },
        State::Delivered => {
            let judge = deal.arbiter.clone().filter(|arbiter| *arbiter != verifica);
            match (world.chance.below(6), judge) {
                (0, _) => (deal.seller.clone(), Order::Refund { contract, verdict: None }),
                (1..4, Some(judge)) => {
                    let passes = world.chance.per_mille(500);
                    let claim = Claimed { pasa: passes, contract: contract.clone(), at: now };
                    let verdict = world.chance.per_mille(500).then_some(claim);
                    match passes {
                        true => (judge, Order::Release { contract, verdict }),
                        false => (judge, Order::Refund { contract, verdict }),
                    }
                }
                (1..5, None) if deal.tests => honest(world, house),
                _ => (buyer, Order::Release { contract, verdict: None }),
            }
        }
        State::Posted => {
            let judge = deal.verifier.clone().unwrap_or_else(|| deal.seller.clone());
            match world.chance.below(3) {
                0 => (judge, Order::Forfeit { contract }),
                1 => (judge, Order::Release { contract, verdict: None }),
                _ => (deal.seller.clone(), Order::Release { contract, verdict: None }),
            }
        }
        _ if world.chance.per_mille(150) => (deal.seller.clone(), Order::Contract { contract }),
        _ => {
            let offer = offer(world, house);
            (offer.buyer.clone(), Order::Accept(Box::new(offer)))
        }
    }
}

fn bond(world: &mut World<'_>, house: usize) -> (String, Order) {
    let (from, verifier) = (trader(world, house), trader(world, house));
    let maybe = |world: &mut World<'_>, of: u64| {
        let who = trader(world, house);
        world.chance.per_mille(of).then_some(who)
    };
    let (beneficiary, arbiter, vouchee) = (maybe(world, 500), maybe(world, 300), maybe(world, 200));
    let now = world.now(house);
    let expires = world.chance.per_mille(400).then(|| deadline(&mut world.chance, now));
    let amount = world.chance.span(1, 80);
    (from, Order::Bond { amount, verifier, beneficiary, arbiter, vouchee, expires })
}

fn mandate(world: &mut World<'_>, grantee: String, cap: i64, parent: Option<String>) -> Order {
    let now = world.now(0);
    Order::Mandate {
        grantee,
        cap,
        max: world.chance.per_mille(500).then(|| world.chance.span(1, cap)),
        concept: world.chance.per_mille(300).then(|| "hosting".to_owned()),
        expires: world.chance.per_mille(300).then(|| deadline(&mut world.chance, now)),
        parent,
        stray: false,
    }
}

fn offer(world: &mut World<'_>, house: usize) -> Offer {
    let number = world.fresh();
    let (buyer, seller) = (trader(world, house), trader(world, house));
    let kind = match world.chance.below(10) {
        0..2 => Kind::Spot,
        2 => Kind::Metered,
        _ => Kind::Escrow,
    };
    let judged = kind == Kind::Escrow && world.chance.per_mille(450);
    let arbiter = match judged {
        true => Some(world.houses[house].ledger.own("verifica")),
        false if world.chance.per_mille(300) => Some(format!("abi@{}", HOUSES[house])),
        false => None,
    };
    let now = world.now(house);
    let price = world.chance.span(1, 300);
    let id = format!("quote-{number:08}");
    let referrer = world.chance.per_mille(150).then(|| (trader(world, house), world.chance.span(1, 2_000) as u64));
    let offer = Offer {
        id,
        house: HOUSES[house].to_owned(),
        seller,
        buyer,
        kind,
        price,
        deadline: world.chance.per_mille(600).then(|| deadline(&mut world.chance, now)),
        tests: if judged { Tests::Site } else { Tests::None },
        arbiter,
        referrer,
        expires: world.chance.per_mille(100).then(|| deadline(&mut world.chance, now)),
        max_per_charge: (kind == Kind::Metered && world.chance.per_mille(500)).then(|| world.chance.span(1, price)),
        forged: false,
    };
    let site = Site::draw(&mut world.chance);
    world.sites.insert(offer.site(), site);
    offer
}

/// What somebody would do who wants what is not his.
fn mischief(world: &mut World<'_>, house: usize) -> (String, Order) {
    let who = anybody(world);
    let now = world.now(house);
    match world.chance.below(14) {
        0..3 => {
            let mut offer = offer(world, house);
            let other = anybody(world);
            match world.chance.below(12) {
                0 => {
                    offer.price = *world.chance.pick(&[0, -5, i64::MAX, 9_007_199_254_740_991, 1_000_000]).unwrap_or(&0)
                }
                1 => offer.house = HOUSES[1 - house].to_owned(),
                2 => offer.forged = true,
                3 => offer.seller.clone_from(&offer.buyer),
                4 => offer.arbiter = Some(offer.buyer.clone()),
                5 => offer.arbiter = Some(offer.seller.clone()),
                6 => offer.referrer = Some((other, *world.chance.pick(&[0, 9_999, 10_001]).unwrap_or(&0))),
                7 => offer.referrer = Some((offer.seller.clone(), 100)),
                8 => {
                    offer.tests = Tests::Malformed;
                    offer.arbiter = Some(world.houses[house].ledger.own("verifica"));
                }
                9 => {
                    offer.tests = Tests::None;
                    offer.arbiter = Some(world.houses[house].ledger.own("verifica"));
                }
                10 => offer.kind = Kind::Bond,
                _ => return (who, Order::Accept(Box::new(offer))),
            }
            (offer.buyer.clone(), Order::Accept(Box::new(offer)))
        }
        // The same quote, accepted again.
        3..5 => match last_offer(world, house) {
            Some(offer) => (offer.buyer.clone(), Order::Accept(Box::new(offer))),
            None => (who, Order::Unknown),
        },
        5..9 => {
            let Some(deal) = recent(world, house) else { return (who, Order::Unknown) };
            let contract = if world.chance.per_mille(40) { "no-such-contract".to_owned() } else { deal.id.clone() };
            let parties = super::deal::parties(&deal);
            let insider = world.chance.pick(&parties).cloned().unwrap_or_default();
            let who = if world.chance.per_mille(700) { insider } else { who };
            // The house's own names do not act by an actor's hand.
            let who = if who.starts_with("verifica@") { deal.seller.clone() } else { who };
            let claim = Claimed {
                pasa: world.chance.per_mille(500),
                contract: if world.chance.per_mille(200) { "another".into() } else { contract.clone() },
                at: now.plus(world.chance.span(-3_600_000, 1_000)),
            };
            let verdict = world.chance.per_mille(400).then_some(claim);
            let order = match world.chance.below(7) {
                0 => Order::Deliver { contract, evidence: false },
                1 => Order::Release { contract, verdict },
                2 => Order::Refund { contract, verdict },
                3 => Order::Reclaim { contract },
                4 => Order::Expire { contract },
                5 => Order::Forfeit { contract },
                _ => Order::Contract { contract },
            };
            (who, order)
        }
        9..11 => {
            let Some(grant) = grant(world, house) else { return (who, Order::Unknown) };
            let who = if world.chance.per_mille(700) { grant.grantee.clone() } else { who };
            let over = [grant.cap, grant.cap + 1, grant.max.unwrap_or(0) + 1, 0, -1, 1];
            let amount = world.chance.pick(&over).copied().unwrap_or(1);
            match world.chance.below(5) {
                0 => (grant.grantor.clone(), Order::Revoke { mandate: grant.id }),
                1 => (who, Order::Revoke { mandate: grant.id }),
                2 => {
                    let to = trader(world, house);
                    let order = Order::Mandate {
                        grantee: to,
                        cap: amount,
                        max: None,
                        concept: None,
                        expires: Some(now.plus(86_400_000)),
                        parent: Some(grant.id),
                        stray: world.chance.per_mille(200),
                    };
                    (who, order)
                }
                _ => {
                    let concept = if world.chance.per_mille(300) { "luxury" } else { "hosting" };
                    (who, Order::Charge { mandate: grant.id, amount, concept: concept.into() })
                }
            }
        }
        11 => {
            let (from, to) = (trader(world, house), anybody(world));
            let names = ["casa", "libro", "nobody"];
            let to = match world.chance.below(3) {
                0 => format!("{}@{}", world.chance.pick(&names).copied().unwrap_or("casa"), HOUSES[house]),
                1 => from.clone(),
                _ => to,
            };
            let amount = *world.chance.pick(&[0, -1, 1, 2, 100_000, i64::MAX]).unwrap_or(&0);
            (from, Order::Pay { to, amount })
        }
        12 => {
            let (from, order) = bond(world, house);
            let Order::Bond { verifier, arbiter, vouchee, expires, .. } = order else { return (from, order) };
            let amount = *world.chance.pick(&[0, -1, 500_000, 1]).unwrap_or(&0);
            let verifier = if world.chance.per_mille(500) { from.clone() } else { verifier };
            (from.clone(), Order::Bond { amount, verifier, beneficiary: Some(from), arbiter, vouchee, expires })
        }
        _ => match world.chance.below(3) {
            0 => (who, Order::Notarize { hash: None }),
            1 => (who, Order::Unknown),
            _ => (who, Order::Contract { contract: "no-such-contract".into() }),
        },
    }
}

/// An offer that was sent lately to this house.
fn last_offer(world: &mut World<'_>, house: usize) -> Option<Offer> {
    let from = last(world, 40)?;
    world.intents[..=from].iter().rev().take(40).find_map(|intent| match &intent.post.content {
        Content::Order(Order::Accept(offer)) if offer.house == HOUSES[house] => Some((**offer).clone()),
        _ => None,
    })
}
