//! One simulated house: the real rules over records in memory, a disk that fails as told, and the reference ledger beside
//! it that says what every answer must be.
//!
//! The house's process dies and comes back; its records stay. What a door answers is compared with the model before it is
//! made durable, and what was made durable is compared with it afterwards.

use super::bugs::{Bug, Lens};
use super::chance::{Chance, Swarm};
use super::check;
use super::deal::{After, Chosen, Effect, Looked, Rules};
use super::model::Ledger;
use super::order::Order;
use super::people::{Cast, HOUSES, Inbox};
use super::post::{Content, Post};
use crate::ids::Ids;
use crate::libro::{self, Books, Ctx};
use crate::mail::{self, Answer, Arrival};
use crate::record::memory::{MemoryView, Rejected};
use crate::record::{Cards, Change, Decided, House, Settings, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::Address;
use crate::wire::card::AgentCard;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Something happened that must never happen: what, in words.
pub type Broken = String;

/// What becomes of one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Kept,
    /// The disk is full: refused, nothing changed, the house goes on.
    Full,
    /// The process dies before the commit.
    DiesBefore,
    /// The process dies after it, before the answer.
    DiesAfter,
    /// The disk fails: the house cannot say whether it is kept, answers 503 and dies.
    Unknown {
        kept: bool,
    },
}

/// The outcome of a command, as far as the house came.
pub enum Done<T> {
    /// Durable and answered.
    Kept(T),
    /// Refused by a rule, or by the store with 503.
    Refused(Refusal),
    /// The process died; nobody is answered.
    Died,
}

pub struct SimHouse {
    pub at: usize,
    pub house: House,
    pub view: MemoryView,
    pub up: bool,
    /// Counts starts: what an earlier life was about to do is not done.
    pub life: u32,
    pub ledger: Ledger,
    pub doors: Doors,
    /// Jobs that a worker of this life has in hand, until then.
    pub claimed: BTreeMap<String, Timestamp>,
    pub backup: Option<Box<Backup>>,
    /// Mail that a restored backup made this house forget.
    pub forgiven: BTreeSet<(String, String)>,
    pub bug: Option<Bug>,
    /// Wakes that the last commits ask for.
    pub queue_woken: bool,
    pub looks_woken: bool,
    pub commits: u64,
    fresh: BTreeSet<(String, String)>,
    turn: u64,
}

/// The model of the doors: what was seen, and what was promised.
#[derive(Clone, Default)]
pub struct Doors {
    /// Sender and id, to the body's number and who accepted it.
    pub seen: BTreeMap<(String, String), (u64, BTreeSet<String>)>,
    stamped: BTreeSet<(String, String)>,
    /// Acknowledged to somebody: sender, id, recipient.
    pub acked: BTreeSet<(String, String, String)>,
    /// Orders that were taken at the outgoing door.
    pub sent: BTreeSet<(String, String)>,
}

pub struct Backup {
    view: MemoryView,
    ledger: Ledger,
    doors: Doors,
    /// The event at which it was made.
    pub event: u64,
}

/// What the door must answer.
struct Expected {
    code: u16,
    accepted: BTreeSet<String>,
    effects: Vec<Effect>,
    stamped: bool,
    fresh: BTreeSet<String>,
}

impl SimHouse {
    pub fn new(
        at: usize,
        cast: &Cast,
        people: Rc<BTreeMap<String, super::people::Person>>,
        settings: Settings,
        bug: Option<Bug>,
    ) -> Result<SimHouse, Broken> {
        let rules = Rules {
            house: HOUSES[at].to_owned(),
            fee_bps: settings.fee_bps.cast_signed(),
            grace_ms: settings.reclaim_grace_ms,
            review_ms: settings.review_window_ms,
            silence_over_arbiter: settings.on_undecided_at_expiry == crate::record::house::OnUndecided::Expire,
        };
        let house = cast.house(at, settings).map_err(|r| r.to_string())?;
        let mut view = MemoryView::new();
        let own = mail::system_cards(&house, &view, super::people::START).map_err(|r| r.to_string())?;
        view.apply(own).and_then(|()| view.apply(cast.enrolled(at))).map_err(|r| format!("{r:?}"))?;
        Ok(SimHouse {
            at,
            house,
            view,
            up: true,
            life: 0,
            ledger: Ledger::new(rules, people),
            doors: Doors::default(),
            claimed: BTreeMap::new(),
            backup: None,
            forgiven: BTreeSet::new(),
            bug,
            queue_woken: false,
            looks_woken: false,
            commits: 0,
            fresh: BTreeSet::new(),
            turn: 0,
        })
    }

    pub fn domain(&self) -> &'static str {
        HOUSES[self.at]
    }

    pub fn is_mine(&self, address: &str) -> bool {
        address.split_once('@').is_some_and(|(_, domain)| domain == self.domain())
    }

    pub fn card(&self, address: &str) -> Option<AgentCard> {
        let (local, _) = address.split_once('@')?;
        self.view.agent(local).map(|record| record.card)
    }

    /// Runs a rule and makes durable what it decided, as the disk lets it.
    pub fn commit<T>(
        &mut self,
        chance: &mut Chance,
        swarm: &Swarm,
        decided: Decided<T>,
    ) -> Result<(Done<T>, bool), Broken> {
        let decision = match decided {
            Ok(decision) => decision,
            Err(refusal) => return Ok((Done::Refused(refusal), false)),
        };
        self.turn += 1;
        let fate = fate(chance, swarm);
        let kept = matches!(fate, Fate::Kept | Fate::DiesAfter | Fate::Unknown { kept: true });
        if kept {
            self.keep(decision.changes)?;
        }
        let early = self.bug == Some(Bug::AckBeforeCommit) && fate == Fate::DiesBefore;
        if !matches!(fate, Fate::Kept | Fate::Full) {
            self.die();
        }
        let done = match fate {
            Fate::Kept => Done::Kept(decision.reply),
            Fate::DiesBefore if early => Done::Kept(decision.reply),
            Fate::Full | Fate::Unknown { .. } => {
                Done::Refused(Refusal::new(Rule::StoreUnavailable, "the disk does not take it"))
            }
            Fate::DiesBefore | Fate::DiesAfter => Done::Died,
        };
        Ok((done, kept))
    }

    fn keep(&mut self, changes: Vec<Change>) -> Result<(), Broken> {
        self.commits += 1;
        for change in &changes {
            match change {
                Change::PutJob(job) => self.queue_woken |= job.status.open(),
                Change::PutLook(row) => self.looks_woken |= !row.done,
                Change::PutSeen(seen) => {
                    self.fresh.insert((seen.from.to_string(), seen.id.clone()));
                }
                _ => {}
            }
        }
        self.view.apply(changes).map_err(|rejected| match rejected {
            Rejected::Conflict(what) => {
                format!("{}: a decision conflicts with what it looked at: {what}", self.domain())
            }
            Rejected::Broken(what) => format!("{}: a rule asked for what must not be: {what}", self.domain()),
        })
    }

    pub fn die(&mut self) {
        self.up = false;
        self.life += 1;
        self.claimed.clear();
        self.fresh.clear();
        if self.bug == Some(Bug::QueueForgotten) {
            let tried: Vec<_> = self.view.jobs().filter(|j| j.status.open() && j.attempts > 0).cloned().collect();
            let dropped = tried.into_iter().map(|job| crate::record::Job {
                to: Vec::new(),
                status: crate::record::JobStatus::Failed,
                ..job
            });
            let dropped = dropped.map(Change::PutJob).collect();
            // Never in conflict with anything: a job is put as it is.
            let _ = self.view.apply(dropped);
        }
    }

    /// Comes up again: what an earlier life had claimed is due, and everything that was promised is there.
    pub fn start(&mut self, now: Timestamp) -> Result<(), Broken> {
        self.up = true;
        let claimed: Vec<_> = self.view.looks().filter(|row| !row.done && row.lease_until.is_some()).cloned().collect();
        let released = claimed.into_iter().map(|mut row| {
            row.lease_until = None;
            row.due = row.due.min(now);
            Change::PutLook(row)
        });
        let released: Vec<Change> = released.collect();
        self.view.apply(released).map_err(|rejected| format!("{rejected:?}"))?;
        self.queue_woken = true;
        self.looks_woken = true;
        check::promises(self)
    }

    pub fn back_up(&mut self, event: u64) {
        let (view, ledger, doors) = (self.view.clone(), self.ledger.clone(), self.doors.clone());
        self.backup = Some(Box::new(Backup { view, ledger, doors, event }));
    }

    /// An old backup takes the place of the records. Answers the event from which on everything is forgotten.
    pub fn restore(&mut self) -> Option<u64> {
        let backup = self.backup.take()?;
        self.die();
        for (key, (_, accepted)) in &self.doors.seen {
            let before = backup.doors.seen.get(key);
            if before.is_none_or(|(_, before)| before.len() < accepted.len()) {
                self.forgiven.insert(key.clone());
            }
        }
        self.view = backup.view;
        self.ledger = backup.ledger;
        self.doors = backup.doors;
        Some(backup.event)
    }

    /// `POST /inbound`: what the house answers, or nothing if it died.
    #[allow(clippy::too_many_arguments, reason = "a door sees all of the world that a door sees")]
    pub fn inbound(
        &mut self,
        cast: &Cast,
        chance: &mut Chance,
        swarm: &Swarm,
        now: Timestamp,
        post: &Post,
        sender: &AgentCard,
        sellers: &dyn Fn(&str) -> Result<AgentCard, Refusal>,
    ) -> Result<Option<Answer>, Broken> {
        let expected = self.expect(now, post, sender.ended(now), sellers);
        let mut decided = self.decide(cast, chance, now, post, sender, sellers);
        if let (Some(bug), Ok(decision)) = (self.bug, &mut decided) {
            bug.keeps(&mut decision.changes, &self.view, self.turn);
        }
        let code = match &decided {
            Ok(decision) => decision.reply.code,
            Err(refusal) => refusal.code(),
        };
        if code != expected.code {
            let said = match &decided {
                Ok(decision) => decision.reply.body.to_string(),
                Err(refusal) => refusal.to_string(),
            };
            return Err(format!(
                "{} answers {code} to {post}, and it must be {}: {said}",
                self.domain(),
                expected.code
            ));
        }
        let mut chosen = Chosen::default();
        if let Ok(decision) = &decided {
            check::accepted(&decision.reply, &expected.accepted).map_err(|why| format!("{post}: {why}"))?;
            if expected.fresh.is_empty() && expected.code >= 300 {
                check::nothing_moves(&decision.changes)?;
            }
            let libro = self.ledger.own("libro");
            if let (Content::Order(order), Some(result), Some(effect)) = (
                &post.content,
                decision.reply.body.get("results").and_then(|results| results.get(&libro)),
                expected.effects.first(),
            ) {
                chosen =
                    check::result(self, order, &post.from, result, effect).map_err(|why| format!("{post}: {why}"))?;
            }
            if let Content::Order(order) = &post.content
                && !expected.effects.is_empty()
            {
                check::verdict(&self.ledger, &post.from, order)?;
                check::receipts(self, post, &decision.changes, &expected.effects)
                    .map_err(|why| format!("{post}: {why}"))?;
            }
        }
        let (done, kept) = self.commit(chance, swarm, decided)?;
        if kept {
            self.remember(now, post, &expected, &chosen)?;
        }
        let answer = match done {
            Done::Kept(answer) => answer,
            Done::Refused(refusal) => Answer::refused(&refusal),
            Done::Died => return Ok(None),
        };
        if answer.ok() {
            for to in &expected.accepted {
                self.doors.acked.insert((post.from.clone(), post.id.clone(), to.clone()));
            }
        }
        Ok(Some(answer))
    }

    /// `POST /outbound` of an agent of this house.
    pub fn outbound(
        &mut self,
        chance: &mut Chance,
        swarm: &Swarm,
        now: Timestamp,
        post: &Post,
    ) -> Result<Option<Answer>, Broken> {
        let Some(card) = self.card(&post.from) else { return Err(format!("{} has no card", post.from)) };
        let key = (post.from.clone(), post.id.clone());
        let expected = if card.ended(now) {
            401
        } else if post.forged || self.ledger.gone(&post.from) || self.bounded(post) {
            403
        } else if post.expires.is_some_and(|at| at <= now) {
            410
        } else if self.doors.seen.get(&key).is_some_and(|(body, _)| *body != post.body) {
            409
        } else {
            202
        };
        let lens = Lens { view: &self.view, bug: self.bug, fresh: &self.fresh };
        let decided = mail::outbound(&self.house, &lens, now, &card, &post.envelope);
        let code = decided.as_ref().map_or_else(|refusal| refusal.code(), |decision| decision.reply.code);
        if code != expected {
            return Err(format!("{} takes out {post} with {code}, and it must be {expected}", self.domain()));
        }
        let (done, kept) = self.commit(chance, swarm, decided)?;
        if kept && expected == 202 {
            self.doors.seen.entry(key.clone()).or_insert_with(|| (post.body, BTreeSet::new()));
        }
        Ok(match done {
            Done::Kept(answer) => {
                if answer.ok() {
                    self.doors.sent.insert(key);
                }
                Some(answer)
            }
            Done::Refused(refusal) => Some(Answer::refused(&refusal)),
            Done::Died => None,
        })
    }

    /// The operator issues tokens.
    pub fn issue(
        &mut self,
        chance: &mut Chance,
        swarm: &Swarm,
        now: Timestamp,
        id: &str,
        to: &str,
        amount: i64,
    ) -> Result<(), Broken> {
        let casa = self.ledger.own("casa");
        let again = self.doors.stamped.contains(&(casa.clone(), id.to_owned()));
        let expected = self.ledger.issue(to, amount);
        let account = Address::parse(to).map_err(|r| r.to_string())?;
        let amount = crate::wire::Amount::new(amount.unsigned_abs()).ok_or("the operator issues nothing")?;
        let issue = libro::Issue { id: Some(id.to_owned()), account, amount, concept: None };
        let cards = Cards::new();
        let mut ids = Ids::from_seed(chance.bytes());
        let lens = Lens { view: &self.view, bug: self.bug, fresh: &self.fresh };
        let ctx = Ctx { house: &self.house, view: &lens, now, cards: &cards };
        let mut books = Books::open(&lens);
        let issued = libro::issue(&ctx, &mut books, &mut ids, &issue);
        let decided = issued.map(|issued| crate::record::Decision { changes: books.into_changes(), reply: issued });
        match (&decided, &expected) {
            (Ok(decision), _) if decision.reply.duplicate != again => {
                return Err(format!("{}: the issue {id} is a repetition: {again}", self.domain()));
            }
            (Ok(_), Ok(_)) => {}
            (Ok(_), Err(_)) if again => {}
            (Err(refusal), Err(code)) if refusal.code() == *code => {}
            (told, _) => {
                let told = told.as_ref().map(|_| ()).map_err(ToString::to_string);
                return Err(format!("{}: issuing to {to} is answered {told:?}", self.domain()));
            }
        }
        let (_, kept) = self.commit(chance, swarm, decided)?;
        if let (true, false, Ok(effect)) = (kept, again, &expected) {
            self.doors.stamped.insert((casa, id.to_owned()));
            self.ledger.apply(now, effect, &Chosen::default());
            check::effect(self, effect, &Chosen::default())?;
        }
        Ok(())
    }

    /// A look was recorded.
    pub fn looked(&mut self, contract: &str, looked: Looked) {
        self.ledger.looks.entry(contract.to_owned()).or_default().push(looked);
    }

    /// The records as the rules see them.
    pub fn lens(&self) -> Lens<'_> {
        Lens { view: &self.view, bug: self.bug, fresh: &self.fresh }
    }

    fn decide(
        &self,
        cast: &Cast,
        chance: &mut Chance,
        now: Timestamp,
        post: &Post,
        sender: &AgentCard,
        sellers: &dyn Fn(&str) -> Result<AgentCard, Refusal>,
    ) -> Decided<Answer> {
        mail::precheck(&self.house, now, &post.envelope)?;
        let verified = post.envelope.clone().verify_by(&cast.key_of(&post.from), sender.clone(), now)?;
        let mut cards = Cards::new();
        for address in libro::cards_needed(&self.house, verified.envelope()) {
            let card = sellers(address.as_str());
            cards.insert(address, card);
        }
        let arrival = Arrival { verified, relay_verified: true, sender_promises_sealed: false };
        let mut ids = Ids::from_seed(chance.bytes());
        let wrong = Bug::house(self.bug, &self.house);
        mail::inbound(wrong.as_ref().unwrap_or(&self.house), &self.lens(), now, &mut ids, &cards, &arrival)
    }

    /// What a subagent that only writes messages may not send.
    fn bounded(&self, post: &Post) -> bool {
        let messages_only = self.ledger.people.get(&post.from).is_some_and(|person| person.messages_only);
        let order = matches!(post.content, Content::Order(_));
        messages_only && (order || post.stamp.is_some() || post.to.iter().any(|to| to.starts_with("libro@")))
    }

    fn expect(
        &self,
        now: Timestamp,
        post: &Post,
        sender_ended: bool,
        sellers: &dyn Fn(&str) -> Result<AgentCard, Refusal>,
    ) -> Expected {
        let answer = |code: u16| Expected {
            code,
            accepted: BTreeSet::new(),
            effects: Vec::new(),
            stamped: false,
            fresh: BTreeSet::new(),
        };
        if post.expires.is_some_and(|at| at <= now) {
            return answer(410);
        }
        if !post.to.iter().any(|to| self.is_mine(to)) {
            return answer(404);
        }
        if post.forged {
            return answer(403);
        }
        let key = (post.from.clone(), post.id.clone());
        let before = self.doors.seen.get(&key);
        if before.is_some_and(|(body, _)| *body != post.body) {
            return answer(409);
        }
        let mut accepted = before.map(|(_, accepted)| accepted.clone()).unwrap_or_default();
        let waiting: Vec<&String> = post.to.iter().filter(|to| self.is_mine(to) && !accepted.contains(*to)).collect();
        if waiting.is_empty() {
            return Expected { accepted, ..answer(200) };
        }
        let mine = self.is_mine(&post.from);
        if sender_ended || (mine && self.ledger.gone(&post.from)) || self.bounded(post) {
            return answer(403);
        }
        let mut expected = answer(202);
        let mut refused = None;
        for to in waiting {
            match self.taken(now, post, to, &expected, sellers) {
                Ok(effect) => {
                    accepted.insert(to.clone());
                    expected.fresh.insert(to.clone());
                    expected.stamped |=
                        effect.as_ref().is_some_and(|e| e.entry.as_ref().is_some_and(|e| e.0 == "stamp"));
                    expected.effects.extend(effect);
                }
                Err(code) => refused = refused.or(Some(code)),
            }
        }
        expected.code = if accepted.is_empty() { refused.unwrap_or(404) } else { 202 };
        expected.accepted = accepted;
        expected
    }

    /// Whether one recipient takes it, and what that moves.
    fn taken(
        &self,
        now: Timestamp,
        post: &Post,
        to: &str,
        so_far: &Expected,
        sellers: &dyn Fn(&str) -> Result<AgentCard, Refusal>,
    ) -> Result<Option<Effect>, u16> {
        let ledger = &self.ledger;
        let person = ledger.people.get(to).filter(|_| !ledger.ended.contains(to)).ok_or(404u16)?;
        let voice = self.is_mine(&post.from) && ledger.people.get(&post.from).is_some_and(|person| person.system);
        if !voice && !ledger.visible(&post.from, person) {
            return Err(404);
        }
        if to.starts_with("libro@") {
            let Content::Order(order) = &post.content else { return Err(400) };
            let known = match order {
                Order::Accept(offer) => sellers(&offer.seller).is_ok(),
                _ => true,
            };
            return ledger.judge(now, &post.from, order, known).map(Some);
        }
        if voice || post.from == to || person.lists(&post.from) {
            return Ok(None);
        }
        match &person.inbox {
            Inbox::Open => Ok(None),
            Inbox::List(_) => Err(403),
            Inbox::Stamp { price, .. } => {
                let stamped = self.doors.stamped.contains(&(post.from.clone(), post.id.clone()));
                let paid = post.stamp.as_ref().is_some_and(|(house, amount)| house == self.domain() && amount >= price);
                if !paid || stamped || so_far.stamped {
                    return Err(402);
                }
                ledger.stamp(&post.from, to, *price).map(Some)
            }
        }
    }

    /// The model follows what was made durable, and what is durable is compared with it.
    fn remember(&mut self, now: Timestamp, post: &Post, expected: &Expected, chosen: &Chosen) -> Result<(), Broken> {
        if expected.fresh.is_empty() {
            return Ok(());
        }
        let key = (post.from.clone(), post.id.clone());
        let seen = self.doors.seen.entry(key.clone()).or_insert_with(|| (post.body, BTreeSet::new()));
        seen.1.extend(expected.fresh.iter().cloned());
        if expected.stamped {
            self.doors.stamped.insert(key);
        }
        for effect in &expected.effects {
            self.ledger.apply(now, effect, chosen);
            check::effect(self, effect, chosen).map_err(|why| format!("{post}: {why}"))?;
            if let After::Ended(..) | After::Begun(_) | After::Delivered(_) = effect.after {
                self.looks_woken = true;
            }
        }
        Ok(())
    }
}

fn fate(chance: &mut Chance, swarm: &Swarm) -> Fate {
    let drawn = chance.below(1_000);
    let mut bound = swarm.crash_before;
    if drawn < bound {
        return Fate::DiesBefore;
    }
    bound += swarm.crash_after;
    if drawn < bound {
        return Fate::DiesAfter;
    }
    bound += swarm.unknown;
    if drawn < bound {
        return Fate::Unknown { kept: drawn.is_multiple_of(2) };
    }
    if drawn < bound + swarm.full { Fate::Full } else { Fate::Kept }
}

/// The text of a field, or nothing.
pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
