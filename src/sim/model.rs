//! The reference ledger: a second, plain implementation of what a ledger must do, written from the protocol's facts and
//! the house's stated deviations, and not from the rules that it is to check.
//!
//! [`Ledger::judge`] says what an order must be answered and what it must move, without doing it; [`Ledger::apply`] does
//! it once the house has made it durable. Amounts, times and names are plain numbers and texts here, and nothing is
//! shared with the ledger's own code but the orders themselves.

use super::deal::{After, Chosen, Deal, Effect, Grant, Looked, NEW, Rules, State, escrow, named, parties};
use super::order::{Claimed, Kind, Offer, Order, Tests};
use super::people::{Inbox, Person};
use crate::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

#[derive(Clone)]
pub struct Ledger {
    pub rules: Rules,
    pub people: Rc<BTreeMap<String, Person>>,
    /// Agents of any house whose cards have ended, as this house must see them.
    pub ended: BTreeSet<String>,
    pub balances: BTreeMap<String, i64>,
    pub entries: u64,
    pub deals: BTreeMap<String, Deal>,
    /// Contracts in the order in which they began.
    pub order: Vec<String>,
    pub quotes: BTreeSet<String>,
    pub grants: BTreeMap<String, Grant>,
    pub grant_order: Vec<String>,
    pub seals: BTreeMap<(u8, String), String>,
    pub looks: BTreeMap<String, Vec<Looked>>,
}

const SAFE: i64 = 9_007_199_254_740_991;

type Judged = Result<Effect, u16>;

impl Ledger {
    pub fn new(rules: Rules, people: Rc<BTreeMap<String, Person>>) -> Ledger {
        Ledger {
            rules,
            people,
            ended: BTreeSet::new(),
            balances: BTreeMap::new(),
            entries: 0,
            deals: BTreeMap::new(),
            order: Vec::new(),
            quotes: BTreeSet::new(),
            grants: BTreeMap::new(),
            grant_order: Vec::new(),
            seals: BTreeMap::new(),
            looks: BTreeMap::new(),
        }
    }

    pub fn balance(&self, account: &str) -> i64 {
        self.balances.get(account).copied().unwrap_or(0)
    }

    pub fn own(&self, name: &str) -> String {
        format!("{name}@{}", self.rules.house)
    }

    /// Revoked, or below somebody of this house who is. Of another house's chains its own cards tell.
    pub fn gone(&self, who: &str) -> bool {
        let own = who.ends_with(&format!("@{}", self.rules.house));
        let parent = self.people.get(who).filter(|_| own).and_then(|person| person.parent.as_deref());
        self.ended.contains(who) || parent.is_some_and(|parent| self.ended.contains(parent))
    }

    /// What the house must answer to this order now. The sender's standing as a writer of mail was judged before.
    pub fn judge(&self, now: Timestamp, from: &str, order: &Order, seller_known: bool) -> Judged {
        if matches!(order, Order::Unknown) {
            return Err(400);
        }
        if self.people.get(from).is_some_and(|person| person.messages_only) {
            return Err(403);
        }
        match order {
            Order::Accept(offer) => self.accept(now, from, offer, seller_known),
            Order::Deliver { contract, .. } => self.deliver(from, contract),
            Order::Release { contract, verdict } => self.release(now, from, contract, verdict.as_ref()),
            Order::Refund { contract, verdict } => self.refund(from, contract, verdict.as_ref()),
            Order::Reclaim { contract } => self.reclaim(now, from, contract),
            Order::Expire { contract } => self.expire(now, from, contract),
            Order::Bond { amount, verifier, beneficiary, arbiter, vouchee, expires } => {
                let deal = Deal {
                    id: NEW.into(),
                    quote: String::new(),
                    kind: Kind::Bond,
                    state: State::Posted,
                    seller: from.into(),
                    buyer: None,
                    verifier: Some(verifier.clone()),
                    arbiter: arbiter.clone(),
                    beneficiary: Some(beneficiary.clone().unwrap_or_else(|| self.own("casa"))),
                    vouchee: vouchee.clone(),
                    amount: *amount,
                    fee_bps: 0,
                    referrer: None,
                    deadline: None,
                    expires: *expires,
                    delivered: None,
                    updated: now,
                    tests: false,
                    steps: 1,
                };
                self.bond(from, deal)
            }
            Order::Forfeit { contract } => self.forfeit(from, contract),
            Order::Mandate { grantee, cap, max, concept, expires, parent, stray } => {
                let grant = Grant {
                    id: NEW.into(),
                    grantor: from.into(),
                    grantee: grantee.clone(),
                    root: from.into(),
                    cap: *cap,
                    spent: 0,
                    max: *max,
                    concept: concept.clone(),
                    expires: *expires,
                    chain: Vec::new(),
                    active: true,
                };
                self.mandate(from, grant, parent.as_deref(), *stray)
            }
            Order::Charge { mandate, amount, concept } => self.charge(now, from, mandate, *amount, concept),
            Order::Revoke { mandate } => self.revoke(from, mandate),
            Order::Pay { to, amount } => self.pay(from, to, *amount),
            Order::Balance | Order::Statement => Ok(told([from.to_owned()])),
            Order::Contract { contract } => {
                let deal = self.deals.get(contract).ok_or(404u16)?;
                if parties(deal).iter().any(|party| party == from) { Ok(told([from.to_owned()])) } else { Err(403) }
            }
            Order::Notarize { hash } => {
                let hash = hash.ok_or(400u16)?;
                let mut effect = told([from.to_owned()]);
                if !self.seals.contains_key(&(hash, from.to_owned())) {
                    effect.after = After::Sealed(hash, from.to_owned());
                }
                Ok(effect)
            }
            Order::Unknown => Err(400),
        }
    }

    /// Tokens that the operator issues.
    pub fn issue(&self, to: &str, amount: i64) -> Judged {
        if to == self.own("casa") {
            return Err(400);
        }
        if to.ends_with(&format!("@{}", self.rules.house)) {
            let person = self.people.get(to).filter(|_| !self.gone(to)).ok_or(404u16)?;
            if person.messages_only {
                return Err(400);
            }
        }
        let lines = self.post(vec![(self.own("casa"), -amount), (to.to_owned(), amount)])?;
        Ok(Effect { entry: Some(("topup", lines)), receipts: BTreeSet::new(), after: After::Nothing })
    }

    /// The price of a letter to a mailbox that charges.
    pub fn stamp(&self, from: &str, to: &str, price: i64) -> Judged {
        if self.people.get(from).is_some_and(|person| person.messages_only) {
            return Err(403);
        }
        self.within(from, price)?;
        let lines = self.post(self.split(from, to, price, self.rules.fee_bps, None))?;
        Ok(Effect { entry: Some(("stamp", lines)), receipts: BTreeSet::new(), after: After::Nothing })
    }

    /// Does what was judged, now that it is durable.
    pub fn apply(&mut self, now: Timestamp, effect: &Effect, chosen: &Chosen) {
        let contract = chosen.contract.clone().unwrap_or_default();
        if let Some((_, lines)) = &effect.entry {
            self.entries += 1;
            for (account, delta) in named(lines, &contract) {
                *self.balances.entry(account).or_default() += delta;
            }
        }
        match &effect.after {
            After::Nothing => {}
            After::Begun(deal) => self.begin(deal, contract),
            After::Metered(deal, grant) => {
                self.begin(deal, contract);
                self.grant(grant, chosen);
            }
            After::Delivered(id) => {
                if let Some(deal) = self.deals.get_mut(id) {
                    deal.state = State::Delivered;
                    deal.delivered = Some(now);
                    deal.updated = now;
                    deal.steps += 1;
                }
            }
            After::Ended(id, state) => {
                if let Some(deal) = self.deals.get_mut(id) {
                    deal.state = *state;
                    deal.updated = now;
                    deal.steps += 1;
                }
            }
            After::Granted(grant) => self.grant(grant, chosen),
            After::Charged(links, amount) => {
                for link in links {
                    if let Some(grant) = self.grants.get_mut(link) {
                        grant.spent += amount;
                    }
                }
            }
            After::Revoked(ids) => {
                for id in ids {
                    if let Some(grant) = self.grants.get_mut(id) {
                        grant.active = false;
                    }
                }
            }
            After::Sealed(hash, by) => {
                self.seals.insert((*hash, by.clone()), chosen.seal.clone().unwrap_or_default());
            }
        }
    }

    fn begin(&mut self, deal: &Deal, id: String) {
        if !deal.quote.is_empty() {
            self.quotes.insert(deal.quote.clone());
        }
        self.order.push(id.clone());
        self.deals.insert(id.clone(), Deal { id, ..deal.clone() });
    }

    fn grant(&mut self, grant: &Grant, chosen: &Chosen) {
        let id = chosen.mandate.clone().unwrap_or_default();
        let mut grant = Grant { id: id.clone(), ..grant.clone() };
        grant.chain.push(id.clone());
        self.grant_order.push(id.clone());
        self.grants.insert(id, grant);
    }

    fn accept(&self, now: Timestamp, from: &str, offer: &Offer, seller_known: bool) -> Judged {
        if offer.kind == Kind::Bond || offer.house != self.rules.house {
            return Err(400);
        }
        if offer.buyer != from {
            return Err(403);
        }
        if offer.expires.is_some_and(|at| at <= now) {
            return Err(410);
        }
        if let Some((address, share)) = &offer.referrer {
            let share = i64::try_from(*share).map_err(|_| 400u16)?;
            if share == 0 || share + self.rules.fee_bps > 10_000 || address == &offer.seller {
                return Err(400);
            }
        }
        if offer.price < 1 || offer.price > SAFE {
            return Err(400);
        }
        let arbiter = offer.arbiter.as_deref();
        let casa = self.own("casa");
        if offer.buyer == offer.seller
            || arbiter == Some(offer.buyer.as_str())
            || arbiter == Some(offer.seller.as_str())
            || offer.referrer.as_ref().is_some_and(|(address, _)| *address == casa)
        {
            return Err(400);
        }
        if !seller_known {
            return Err(421);
        }
        if self.gone(&offer.seller) || offer.forged {
            return Err(403);
        }
        if self.people.get(&offer.seller).is_some_and(|person| person.messages_only) {
            return Err(403);
        }
        if self.quotes.contains(&offer.id) {
            return Err(409);
        }
        if let Some((address, _)) = &offer.referrer
            && address.ends_with(&format!("@{}", self.rules.house))
        {
            let person = self.seen(from, address)?;
            if person.messages_only {
                return Err(400);
            }
        }
        let judged_here = arbiter == Some(self.own("verifica").as_str());
        match offer.tests {
            Tests::None if judged_here && offer.kind == Kind::Escrow => return Err(400),
            Tests::Malformed if judged_here => return Err(400),
            _ => {}
        }
        self.within(from, offer.price)?;
        let mut deal = Deal {
            id: NEW.into(),
            quote: offer.id.clone(),
            kind: offer.kind,
            state: State::Held,
            seller: offer.seller.clone(),
            buyer: Some(offer.buyer.clone()),
            verifier: None,
            arbiter: offer.arbiter.clone(),
            beneficiary: None,
            vouchee: None,
            amount: offer.price,
            fee_bps: self.rules.fee_bps,
            referrer: offer.referrer.clone().map(|(address, share)| (address, share.cast_signed())),
            deadline: offer.deadline,
            expires: None,
            delivered: None,
            updated: now,
            tests: offer.tests != Tests::None,
            steps: 1,
        };
        let receipts: BTreeSet<String> = parties(&deal).into_iter().collect();
        match offer.kind {
            Kind::Spot | Kind::Bond => {
                deal.state = State::Settled;
                let lines = self.split(from, &offer.seller, offer.price, deal.fee_bps, deal.referrer.as_ref());
                let lines = self.post(lines)?;
                Ok(Effect { entry: Some(("charge", lines)), receipts, after: After::Begun(Box::new(deal)) })
            }
            Kind::Escrow => {
                let lines = vec![(from.to_owned(), -offer.price), (escrow(NEW), offer.price)];
                let lines = self.post(lines)?;
                Ok(Effect { entry: Some(("hold", lines)), receipts, after: After::Begun(Box::new(deal)) })
            }
            Kind::Metered => {
                deal.state = State::Active;
                if offer.max_per_charge.is_some_and(|max| max < 1 || max > offer.price) {
                    return Err(400);
                }
                let grant = Grant {
                    id: NEW.into(),
                    grantor: from.to_owned(),
                    grantee: offer.seller.clone(),
                    root: from.to_owned(),
                    cap: offer.price,
                    spent: 0,
                    max: offer.max_per_charge,
                    concept: None,
                    expires: offer.expires,
                    chain: Vec::new(),
                    active: true,
                };
                let after = After::Metered(Box::new(deal), Box::new(grant));
                Ok(Effect { entry: Some(("control", Vec::new())), receipts, after })
            }
        }
    }

    fn deliver(&self, from: &str, id: &str) -> Judged {
        let deal = self.deals.get(id).ok_or(404u16)?;
        if deal.kind != Kind::Escrow {
            return Err(409);
        }
        if deal.seller != from {
            return Err(403);
        }
        if deal.state != State::Held {
            return Err(409);
        }
        let receipts = parties(deal).into_iter().collect();
        Ok(Effect { entry: Some(("control", Vec::new())), receipts, after: After::Delivered(id.to_owned()) })
    }

    fn release(&self, now: Timestamp, from: &str, id: &str, verdict: Option<&Claimed>) -> Judged {
        let deal = self.deals.get(id).ok_or(404u16)?;
        let arbiter = deal.arbiter.as_deref() == Some(from);
        match deal.kind {
            Kind::Escrow => {
                if !arbiter && deal.buyer.as_deref() != Some(from) {
                    return Err(403);
                }
                if !matches!(deal.state, State::Held | State::Delivered) {
                    return Err(409);
                }
                if arbiter {
                    bears(deal, verdict, true)?;
                }
                self.pays(deal, "release")
            }
            Kind::Bond => {
                let due = deal.seller == from && deal.expires.is_some_and(|at| at <= now);
                if !arbiter && deal.verifier.as_deref() != Some(from) && !due {
                    return Err(403);
                }
                if deal.state != State::Posted {
                    return Err(409);
                }
                self.returns(deal, &deal.seller, "bond-release", State::Released)
            }
            Kind::Spot | Kind::Metered => Err(409),
        }
    }

    fn refund(&self, from: &str, id: &str, verdict: Option<&Claimed>) -> Judged {
        let deal = self.deals.get(id).ok_or(404u16)?;
        let arbiter = deal.arbiter.as_deref() == Some(from);
        if deal.kind != Kind::Escrow {
            return Err(409);
        }
        if arbiter || deal.seller == from {
            if !matches!(deal.state, State::Held | State::Delivered) {
                return Err(409);
            }
        } else if deal.buyer.as_deref() != Some(from) || deal.state != State::Held {
            return Err(403);
        }
        if arbiter {
            bears(deal, verdict, false)?;
        }
        self.returns(deal, deal.buyer.as_deref().unwrap_or_default(), "refund", State::Refunded)
    }

    fn reclaim(&self, now: Timestamp, from: &str, id: &str) -> Judged {
        let deal = self.deals.get(id).ok_or(404u16)?;
        if deal.kind != Kind::Escrow {
            return Err(409);
        }
        if deal.buyer.as_deref() != Some(from) {
            return Err(403);
        }
        if deal.state != State::Held {
            return Err(409);
        }
        match deal.deadline {
            Some(deadline) if now.millis() >= deadline.millis() + self.rules.grace_ms => {
                self.returns(deal, from, "reclaim", State::Refunded)
            }
            _ => Err(409),
        }
    }

    fn expire(&self, now: Timestamp, from: &str, id: &str) -> Judged {
        if from != self.own("libro") {
            return Err(403);
        }
        let deal = self.deals.get(id).ok_or(404u16)?;
        if deal.kind != Kind::Escrow || deal.state != State::Delivered {
            return Err(409);
        }
        match self.silence(deal) {
            Some(at) if now >= at => self.pays(deal, "expire"),
            _ => Err(409),
        }
    }

    /// When silence pays this delivered escrow.
    pub fn silence(&self, deal: &Deal) -> Option<Timestamp> {
        let (deadline, delivered) = (deal.deadline?, deal.delivered?);
        let waits = deal.tests
            && deal.arbiter.as_deref() == Some(self.own("verifica").as_str())
            && !self.rules.silence_over_arbiter;
        (!waits).then(|| Timestamp::from_millis(deadline.millis().max(delivered.millis()) + self.rules.review_ms))
    }

    fn bond(&self, from: &str, deal: Deal) -> Judged {
        let stake = [&deal.verifier, &deal.arbiter, &deal.beneficiary];
        if stake.iter().any(|named| named.as_deref() == Some(from)) || deal.amount < 1 || deal.amount > SAFE {
            return Err(400);
        }
        self.within(from, deal.amount)?;
        let lines = self.post(vec![(from.to_owned(), -deal.amount), (escrow(NEW), deal.amount)])?;
        let receipts = self.concerned(&deal);
        Ok(Effect { entry: Some(("bond", lines)), receipts, after: After::Begun(Box::new(deal)) })
    }

    fn forfeit(&self, from: &str, id: &str) -> Judged {
        let deal = self.deals.get(id).ok_or(404u16)?;
        if deal.kind != Kind::Bond {
            return Err(409);
        }
        if deal.arbiter.as_deref() != Some(from) && deal.verifier.as_deref() != Some(from) {
            return Err(403);
        }
        if deal.state != State::Posted {
            return Err(409);
        }
        self.returns(deal, deal.beneficiary.as_deref().unwrap_or_default(), "forfeit", State::Forfeited)
    }

    fn mandate(&self, from: &str, mut grant: Grant, parent: Option<&str>, stray: bool) -> Judged {
        if grant.grantee == from || grant.cap < 1 || grant.cap > SAFE || stray {
            return Err(400);
        }
        if grant.max.is_some_and(|max| max < 1 || max > grant.cap) {
            return Err(400);
        }
        self.within(from, grant.cap)?;
        if let Some(parent) = parent {
            let parent = self.grants.get(parent).ok_or(404u16)?;
            if !parent.active {
                return Err(409);
            }
            if parent.grantee != from || grant.cap > parent.cap - parent.spent {
                return Err(403);
            }
            if let (Some(until), Some(asked)) = (parent.expires, grant.expires)
                && asked > until
            {
                return Err(403);
            }
            if parent.chain.len() >= 16 {
                return Err(409);
            }
            grant.root = parent.root.clone();
            grant.chain = parent.chain.clone();
            grant.expires = grant.expires.or(parent.expires);
        }
        let receipts = BTreeSet::from([grant.grantor.clone(), grant.grantee.clone()]);
        Ok(Effect { entry: Some(("control", Vec::new())), receipts, after: After::Granted(Box::new(grant)) })
    }

    fn charge(&self, now: Timestamp, from: &str, id: &str, amount: i64, concept: &str) -> Judged {
        let leaf = self.grants.get(id).ok_or(404u16)?;
        if leaf.grantee != from {
            return Err(403);
        }
        if !(1..=SAFE).contains(&amount) {
            return Err(400);
        }
        self.within(from, amount)?;
        let mut receipts = BTreeSet::new();
        for link in leaf.chain.iter().rev() {
            let link = self.grants.get(link).ok_or(404u16)?;
            if !link.active {
                return Err(409);
            }
            if link.expires.is_some_and(|at| at <= now) {
                return Err(410);
            }
            if link.cap - link.spent < amount {
                return Err(402);
            }
            if link.concept.as_deref().is_some_and(|only| only != concept)
                || link.max.is_some_and(|max| amount > max)
                || (link.grantor.ends_with(&format!("@{}", self.rules.house)) && self.gone(&link.grantor))
            {
                return Err(403);
            }
            receipts.extend([link.grantor.clone(), link.grantee.clone()]);
        }
        let lines = self.post(self.split(&leaf.root, from, amount, self.rules.fee_bps, None))?;
        let after = After::Charged(leaf.chain.clone(), amount);
        Ok(Effect { entry: Some(("charge", lines)), receipts, after })
    }

    fn revoke(&self, from: &str, id: &str) -> Judged {
        let grant = self.grants.get(id).ok_or(404u16)?;
        if !grant.chain.iter().filter_map(|link| self.grants.get(link)).any(|link| link.grantor == from) {
            return Err(403);
        }
        let under = |grant: &&Grant| grant.active && grant.chain.iter().any(|link| link == id);
        let affected: Vec<&Grant> = self.grants.values().filter(under).collect();
        let receipts = affected.iter().flat_map(|g| [g.grantor.clone(), g.grantee.clone()]).collect();
        let entry = (!affected.is_empty()).then(|| ("control", Vec::new()));
        let after = After::Revoked(affected.iter().map(|grant| grant.id.clone()).collect());
        Ok(Effect { entry, receipts, after })
    }

    fn pay(&self, from: &str, to: &str, amount: i64) -> Judged {
        if !to.ends_with(&format!("@{}", self.rules.house)) || to == from || !(1..=SAFE).contains(&amount) {
            return Err(400);
        }
        self.within(from, amount)?;
        let payee = self.seen(from, to)?;
        if payee.system || payee.messages_only {
            return Err(400);
        }
        let lines = self.post(vec![(from.to_owned(), -amount), (to.to_owned(), amount)])?;
        let notified = match &payee.inbox {
            Inbox::Open => true,
            Inbox::Stamp { price, .. } => payee.lists(from) || amount >= *price,
            Inbox::List(_) => payee.lists(from),
        };
        let receipts = std::iter::once(from.to_owned()).chain(notified.then(|| to.to_owned())).collect();
        Ok(Effect { entry: Some(("pay", lines)), receipts, after: After::Nothing })
    }

    /// An agent of this house that stands, as the asker may see it.
    fn seen(&self, asker: &str, address: &str) -> Result<&Person, u16> {
        let person = self.people.get(address).filter(|_| !self.gone(address)).ok_or(404u16)?;
        if self.visible(asker, person) { Ok(person) } else { Err(404) }
    }

    pub fn visible(&self, asker: &str, person: &Person) -> bool {
        person.secret_to.as_ref().is_none_or(|list| person.address == asker || list.iter().any(|a| a == asker))
    }

    /// The bound of a subagent, and of whoever it is below.
    fn within(&self, who: &str, amount: i64) -> Result<(), u16> {
        let person = self.people.get(who);
        let parent = person.and_then(|person| person.parent.as_ref()).and_then(|parent| self.people.get(parent));
        let over = |person: Option<&Person>| person.and_then(|person| person.cap).is_some_and(|cap| amount > cap);
        if over(person) || over(parent) { Err(403) } else { Ok(()) }
    }

    /// The lines of one entry, if no account falls below zero on the way.
    fn post(&self, lines: Vec<(String, i64)>) -> Result<Vec<(String, i64)>, u16> {
        let casa = self.own("casa");
        let mut running: BTreeMap<&str, i64> = BTreeMap::new();
        for (account, delta) in &lines {
            let balance = running.entry(account).or_insert_with(|| self.balance(account));
            *balance += delta;
            if *balance < 0 && *account != casa {
                return Err(402);
            }
        }
        Ok(lines)
    }

    fn split(
        &self,
        from: &str,
        to: &str,
        amount: i64,
        fee_bps: i64,
        referrer: Option<&(String, i64)>,
    ) -> Vec<(String, i64)> {
        let part = |bps: i64| (i128::from(amount) * i128::from(bps) / 10_000) as i64;
        let fee = part(fee_bps);
        let commission = referrer.map_or(0, |(_, share)| part(*share));
        let mut lines = vec![(from.to_owned(), -amount), (to.to_owned(), amount - fee - commission)];
        if fee > 0 {
            lines.push((self.own("casa"), fee));
        }
        if let Some((address, _)) = referrer.filter(|_| commission > 0) {
            lines.push((address.clone(), commission));
        }
        lines
    }

    /// The seller gets what is held, less the shares.
    fn pays(&self, deal: &Deal, kind: &'static str) -> Judged {
        let from = escrow(&deal.id);
        let lines = self.split(&from, &deal.seller, deal.amount, deal.fee_bps, deal.referrer.as_ref());
        let lines = self.post(lines)?;
        let after = After::Ended(deal.id.clone(), State::Released);
        Ok(Effect { entry: Some((kind, lines)), receipts: self.concerned(deal), after })
    }

    /// All that is held goes to one.
    fn returns(&self, deal: &Deal, to: &str, kind: &'static str, state: State) -> Judged {
        let lines = self.post(vec![(escrow(&deal.id), -deal.amount), (to.to_owned(), deal.amount)])?;
        let after = After::Ended(deal.id.clone(), state);
        Ok(Effect { entry: Some((kind, lines)), receipts: self.concerned(deal), after })
    }

    fn concerned(&self, deal: &Deal) -> BTreeSet<String> {
        let others = [deal.beneficiary.clone(), deal.vouchee.clone()].into_iter().flatten();
        let casa = self.own("casa");
        parties(deal).into_iter().chain(others).filter(|address| *address != casa).collect()
    }
}

fn told(who: impl IntoIterator<Item = String>) -> Effect {
    Effect { entry: None, receipts: who.into_iter().collect(), after: After::Nothing }
}

/// A verdict that the arbiter attaches must say what the operation does, of this contract as it is now.
fn bears(deal: &Deal, verdict: Option<&Claimed>, releases: bool) -> Result<(), u16> {
    let Some(verdict) = verdict else { return Ok(()) };
    if verdict.pasa != releases || verdict.contract != deal.id {
        return Err(400);
    }
    if verdict.at < deal.updated { Err(409) } else { Ok(()) }
}
