//! The model that every store is compared with: the records of a house in ordered maps, and the [`Change`]s applied to
//! them one by one under the same invariants that a durable store keeps.
//!
//! It promises what [`View`] and [`Change`] say and nothing about durability: all changes of a decision or none, a
//! conflict where the contract of a change says so, a journal whose entries follow each other, sum to zero and leave
//! nobody but the house below zero. Rules are tested against it, the simulator runs on it, and a store that differs from
//! it is wrong.

use crate::limits;
use crate::record::{
    AccountPage, AgentRecord, BlobRecord, Change, Contract, Decision, Entry, EvidenceRow, Invitation, Job, LookRow,
    MailRecord, Mandate, MandateState, ObservationRow, OperationRecord, Pin, Push, SealRecord, SeenRecord, View,
};
use crate::time::Timestamp;
use crate::wire::address::Address;
use crate::wire::digest::Sha256;
use serde_json::Value;
use std::collections::BTreeMap;

/// A house's records in memory.
#[derive(Clone, Default)]
pub struct MemoryView {
    agents: BTreeMap<String, AgentRecord>,
    invitations: BTreeMap<String, Invitation>,
    mailboxes: BTreeMap<(String, String, String), (u64, MailRecord)>,
    seen: BTreeMap<(Address, String), SeenRecord>,
    jobs: BTreeMap<String, Job>,
    pushes: BTreeMap<(String, String, String), Push>,
    seen_in: BTreeMap<String, Timestamp>,
    rates: BTreeMap<(String, i64), u32>,
    nonces: BTreeMap<String, Timestamp>,
    journal: BTreeMap<u64, Entry>,
    balances: BTreeMap<String, i64>,
    contracts: BTreeMap<String, Contract>,
    contract_order: BTreeMap<String, u64>,
    quotes: BTreeMap<String, String>,
    mandates: BTreeMap<String, Mandate>,
    mandate_order: BTreeMap<String, u64>,
    seals: BTreeMap<(String, Address), SealRecord>,
    operations: BTreeMap<(Address, String), OperationRecord>,
    looks: BTreeMap<String, LookRow>,
    observations: BTreeMap<(String, [u8; 32]), ObservationRow>,
    evidence: BTreeMap<String, EvidenceRow>,
    pins: BTreeMap<String, Pin>,
    domain_card: BTreeMap<(), Value>,
    blobs: BTreeMap<String, BlobRecord>,
    blob_days: BTreeMap<(Address, i64), u64>,
    events: BTreeMap<u64, (&'static str, Timestamp, String, Value)>,
    counter: u64,
}

/// A change that the records do not admit; nothing of its decision was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// Somebody else was first: the sender may retry.
    Conflict(String),
    /// A rule asked for what no rule may ask for.
    Broken(String),
}

impl MemoryView {
    pub fn new() -> Self {
        MemoryView::default()
    }

    /// Applies all changes of a decision in order, or none of them.
    pub fn apply(&mut self, changes: Vec<Change>) -> Result<(), Rejected> {
        let mut undo = Undo::default();
        for change in changes {
            if let Err(rejected) = self.change(change, &mut undo) {
                for step in undo.0.into_iter().rev() {
                    step(self);
                }
                return Err(rejected);
            }
        }
        Ok(())
    }

    /// [`MemoryView::apply`] for a whole decision; gives back its reply.
    pub fn commit<T>(&mut self, decision: Decision<T>) -> Result<T, Rejected> {
        self.apply(decision.changes).map(|()| decision.reply)
    }

    pub fn journal(&self) -> impl Iterator<Item = &Entry> {
        self.journal.values()
    }

    /// Every account that ever had an entry.
    pub fn balances(&self) -> &BTreeMap<String, i64> {
        &self.balances
    }

    pub fn contracts(&self) -> impl Iterator<Item = &Contract> {
        self.contracts.values()
    }

    pub fn agents(&self) -> impl Iterator<Item = &AgentRecord> {
        self.agents.values()
    }

    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    pub fn pushes(&self) -> impl Iterator<Item = &Push> {
        self.pushes.values()
    }

    pub fn looks(&self) -> impl Iterator<Item = &LookRow> {
        self.looks.values()
    }

    pub fn observation(&self, contract: &str, sha256: &Sha256) -> Option<&ObservationRow> {
        self.observations.get(&(contract.to_owned(), sha256.0))
    }

    pub fn evidence(&self, contract: &str) -> Option<&EvidenceRow> {
        self.evidence.get(contract)
    }

    pub fn domain_card(&self) -> Option<&Value> {
        self.domain_card.get(&())
    }

    /// `(name, at, actor, data)` in the order in which they happened.
    pub fn events(&self) -> impl Iterator<Item = &(&'static str, Timestamp, String, Value)> {
        self.events.values()
    }

    /// Everything that lies or lay in a mailbox, in order of arrival.
    pub fn mailbox(&self, local: &str) -> Vec<&MailRecord> {
        let mut mail: Vec<_> = self.mailboxes.values().filter(|(_, mail)| mail.local == local).collect();
        mail.sort_by_key(|(arrived, _)| *arrived);
        mail.into_iter().map(|(_, mail)| mail).collect()
    }

    fn change(&mut self, change: Change, undo: &mut Undo) -> Result<(), Rejected> {
        match change {
            Change::InsertAgent(agent) => {
                let name = agent.local.as_str().to_owned();
                vacant(&self.agents, &name, || format!("the name {name} is taken"))?;
                self.put(undo, |m| &mut m.agents, name, agent);
            }
            Change::PutAgent(agent) => self.put(undo, |m| &mut m.agents, agent.local.as_str().to_owned(), agent),
            Change::InsertInvitation(invitation) => {
                let code = invitation.code.clone();
                vacant(&self.invitations, &code, || "the invitation is known".to_owned())?;
                self.put(undo, |m| &mut m.invitations, code, invitation);
            }
            Change::UseInvitation { code, at } => {
                let lasts = |i: &&Invitation| i.used < i.uses && i.expires.is_none_or(|expires| expires > at);
                let known = self.invitations.get(&code).filter(lasts);
                let mut invitation =
                    known.cloned().ok_or_else(|| Rejected::Conflict("the invitation is used up or expired".into()))?;
                invitation.used += 1;
                invitation.last_used = Some(at);
                self.put(undo, |m| &mut m.invitations, code, invitation);
            }
            Change::Deliver(mail) => {
                let key = (mail.local.clone(), mail.from.clone(), mail.id.clone());
                if !self.mailboxes.contains_key(&key) {
                    let arrived = self.next();
                    self.put(undo, |m| &mut m.mailboxes, key, (arrived, mail));
                }
            }
            Change::Acknowledge { local, id, at } => {
                let pending = |(_, mail): &&(u64, MailRecord)| {
                    let visible = mail.visible_from.is_none_or(|from| from <= at);
                    mail.local == local && mail.id == id && mail.acked.is_none() && visible
                };
                let found: Vec<(u64, MailRecord)> = self.mailboxes.values().filter(pending).cloned().collect();
                for (arrived, mut mail) in found {
                    mail.acked = Some(at);
                    let key = (mail.local.clone(), mail.from.clone(), mail.id.clone());
                    self.put(undo, |m| &mut m.mailboxes, key, (arrived, mail));
                }
            }
            // Conversations are the store's own filing; here they are counted from what is kept.
            Change::FileDeferred { .. } => {}
            Change::InsertPush(push) => {
                let key = (push.local.clone(), push.from.clone(), push.id.clone());
                if !self.pushes.contains_key(&key) {
                    self.put(undo, |m| &mut m.pushes, key, push);
                }
            }
            Change::PutPush(push) => {
                let key = (push.local.clone(), push.from.clone(), push.id.clone());
                if self.pushes.contains_key(&key) {
                    self.put(undo, |m| &mut m.pushes, key, push);
                }
            }
            Change::EndPush { local, from, id } => self.take(undo, |m| &mut m.pushes, (local, from, id)),
            Change::SeenIn { local, hour } => self.put(undo, |m| &mut m.seen_in, local, hour),
            Change::PutSeen(seen) => {
                let key = (seen.from.clone(), seen.id.clone());
                if self.seen.get(&key).is_some_and(|before| before.sha256 != seen.sha256) {
                    return Err(Rejected::Conflict(format!("envelope {} was seen with another body", seen.id)));
                }
                self.put(undo, |m| &mut m.seen, key, seen);
            }
            Change::PutJob(job) => self.put(undo, |m| &mut m.jobs, job.job.clone(), job),
            Change::CountRate { key, at, hits } => {
                let counted = self.rate(&key, at).saturating_add(hits);
                self.put(undo, |m| &mut m.rates, (key, at.minute()), counted);
            }
            Change::BurnNonce { key, at } => {
                vacant(&self.nonces, &key, || "the nonce was used".to_owned())?;
                self.put(undo, |m| &mut m.nonces, key, at);
            }
            Change::Journal(entry) => self.enter(entry, undo)?,
            Change::InsertContract(contract) => {
                let id = contract.id.clone();
                vacant(&self.contracts, &id, || format!("the contract {id} is known"))?;
                if let Some(quote) = contract.quote_key() {
                    vacant(&self.quotes, &quote, || format!("the quote {quote} was accepted"))?;
                    self.put(undo, |m| &mut m.quotes, quote, id.clone());
                }
                let order = self.next();
                self.put(undo, |m| &mut m.contract_order, id.clone(), order);
                self.put(undo, |m| &mut m.contracts, id, contract);
            }
            Change::PutContract(contract) => {
                let before = self.contracts.get(&contract.id);
                let before = before.ok_or_else(|| Rejected::Conflict(format!("no contract {}", contract.id)))?;
                if before.state.terminal() && before.state != contract.state {
                    return Err(Rejected::Broken(format!("the contract {} has ended", contract.id)));
                }
                self.put(undo, |m| &mut m.contracts, contract.id.clone(), contract);
            }
            Change::InsertMandate(mandate) => {
                let id = mandate.id.clone();
                vacant(&self.mandates, &id, || format!("the mandate {id} is known"))?;
                let order = self.next();
                self.put(undo, |m| &mut m.mandate_order, id.clone(), order);
                self.put(undo, |m| &mut m.mandates, id, mandate);
            }
            Change::PutMandate(mandate) => {
                if !self.mandates.contains_key(&mandate.id) {
                    return Err(Rejected::Conflict(format!("no mandate {}", mandate.id)));
                }
                self.put(undo, |m| &mut m.mandates, mandate.id.clone(), mandate);
            }
            Change::InsertSeal(seal) => {
                let key = (seal.sha256.clone(), seal.by.clone());
                vacant(&self.seals, &key, || "the hash is sealed".to_owned())?;
                self.put(undo, |m| &mut m.seals, key, seal);
            }
            Change::InsertOperation(operation) => {
                let key = (operation.from.clone(), operation.id.clone());
                vacant(&self.operations, &key, || format!("the operation {} is known", operation.id))?;
                self.put(undo, |m| &mut m.operations, key, operation);
            }
            Change::PutLook(look) => self.put(undo, |m| &mut m.looks, look.contract.clone(), look),
            Change::PutObservation(row) => {
                self.put(undo, |m| &mut m.observations, (row.contract.clone(), row.sha256.0), row);
            }
            Change::PutEvidence(row) => self.put(undo, |m| &mut m.evidence, row.contract.clone(), row),
            Change::ForgetEvidence { contract } => {
                let seen: Vec<_> = self.observations.keys().filter(|(of, _)| *of == contract).cloned().collect();
                seen.into_iter().for_each(|key| self.take(undo, |m| &mut m.observations, key));
                self.take(undo, |m| &mut m.evidence, contract);
            }
            Change::InsertPin { domain, key, at } => {
                if !self.pins.contains_key(&domain) {
                    self.put(undo, |m| &mut m.pins, domain.clone(), Pin { domain, key, at, next: None });
                }
            }
            Change::PutPin(pin) => self.put(undo, |m| &mut m.pins, pin.domain.clone(), pin),
            Change::PutDomainCard(card) => self.put(undo, |m| &mut m.domain_card, (), card),
            Change::PutBlob(row) => self.put(undo, |m| &mut m.blobs, row.blob.clone(), row),
            Change::DropBlob { blob } => self.take(undo, |m| &mut m.blobs, blob),
            Change::CountBlobs { sender, day, bytes } => {
                let counted = self.blob_day(&sender, day).saturating_add_signed(bytes);
                self.put(undo, |m| &mut m.blob_days, (sender, day), counted);
            }
            Change::Event { name, at, actor, data } => {
                let order = self.next();
                self.put(undo, |m| &mut m.events, order, (name, at, actor, data));
            }
        }
        Ok(())
    }

    /// The journal's own rules, checked whatever a rule of the ledger asked for.
    fn enter(&mut self, entry: Entry, undo: &mut Undo) -> Result<(), Rejected> {
        let broken = |why: String| Err(Rejected::Broken(why));
        if entry.n != self.journal_last() + 1 {
            return Err(Rejected::Conflict(format!("entry {} does not follow {}", entry.n, self.journal_last())));
        }
        if entry.at < self.journal_last_at() {
            return broken(format!("entry {} lies before the one it follows", entry.n));
        }
        if entry.lines.iter().map(|line| i128::from(line.delta)).sum::<i128>() != 0 {
            return broken(format!("entry {} does not sum to zero", entry.n));
        }
        let house = entry.doc.get("house").and_then(Value::as_str).unwrap_or_default();
        let casa = format!("casa@{house}");
        let mut moved: BTreeMap<&str, i64> = BTreeMap::new();
        for line in &entry.lines {
            let before = moved.get(line.account.as_str()).copied().unwrap_or_else(|| self.balance(&line.account));
            let after = before.checked_add(line.delta).filter(|b| b.unsigned_abs() <= limits::SAFE_INTEGER_MAX);
            let Some(after) = after else { return broken(format!("entry {} overflows {}", entry.n, line.account)) };
            moved.insert(&line.account, after);
        }
        for (account, balance) in moved {
            if balance < 0 && account != casa {
                return broken(format!("entry {} overdraws {account}", entry.n));
            }
            self.put(undo, |m| &mut m.balances, account.to_owned(), balance);
        }
        self.put(undo, |m| &mut m.journal, entry.n, entry);
        Ok(())
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn put<K: Ord + Clone + 'static, V: 'static>(
        &mut self,
        undo: &mut Undo,
        map: fn(&mut MemoryView) -> &mut BTreeMap<K, V>,
        key: K,
        value: V,
    ) {
        let before = map(self).insert(key.clone(), value);
        undo.0.push(Box::new(move |m| {
            match before {
                Some(before) => map(m).insert(key, before),
                None => map(m).remove(&key),
            };
        }));
    }

    fn take<K: Ord + Clone + 'static, V: 'static>(
        &mut self,
        undo: &mut Undo,
        map: fn(&mut MemoryView) -> &mut BTreeMap<K, V>,
        key: K,
    ) {
        if let Some(before) = map(self).remove(&key) {
            undo.0.push(Box::new(move |m| {
                map(m).insert(key, before);
            }));
        }
    }

    fn newest<T: Clone>(&self, records: Vec<&T>, order: impl Fn(&T) -> u64, limit: usize) -> Vec<T> {
        let mut records = records;
        records.sort_by_key(|record| std::cmp::Reverse(order(record)));
        records.into_iter().take(limit).cloned().collect()
    }
}

impl View for MemoryView {
    fn agent(&self, local: &str) -> Option<AgentRecord> {
        self.agents.get(local).cloned()
    }

    fn pin(&self, domain: &str) -> Option<Pin> {
        self.pins.get(domain).cloned()
    }

    fn blob(&self, blob: &str) -> Option<BlobRecord> {
        self.blobs.get(blob).cloned()
    }

    fn blob_bytes(&self) -> u64 {
        self.blobs.values().map(|row| row.bytes).sum()
    }

    fn blob_day(&self, sender: &Address, day: i64) -> u64 {
        self.blob_days.get(&(sender.clone(), day)).copied().unwrap_or(0)
    }

    fn invitation(&self, code: &str) -> Option<Invitation> {
        self.invitations.get(code).cloned()
    }

    fn seen(&self, from: &Address, id: &str) -> Option<SeenRecord> {
        self.seen.get(&(from.clone(), id.to_owned())).cloned()
    }

    fn pending(&self, local: &str, id: &str) -> Vec<MailRecord> {
        self.mailbox(local).into_iter().filter(|mail| mail.id == id && mail.acked.is_none()).cloned().collect()
    }

    fn job(&self, id: &str) -> Option<Job> {
        self.jobs.get(id).cloned()
    }

    fn last_seen(&self, local: &str) -> Option<Timestamp> {
        self.seen_in.get(local).copied()
    }
    fn rate(&self, key: &str, at: Timestamp) -> u32 {
        self.rates.get(&(key.to_owned(), at.minute())).copied().unwrap_or(0)
    }

    fn nonce_used(&self, key: &str) -> bool {
        self.nonces.contains_key(key)
    }

    fn journal_last(&self) -> u64 {
        self.journal.last_key_value().map_or(0, |(n, _)| *n)
    }

    fn journal_last_at(&self) -> Timestamp {
        self.journal.last_key_value().map_or(Timestamp::default(), |(_, entry)| entry.at)
    }

    fn balance(&self, account: &str) -> i64 {
        self.balances.get(account).copied().unwrap_or(0)
    }

    fn account_page(
        &self,
        account: &str,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        limit: usize,
    ) -> AccountPage {
        let delta = |entry: &Entry| -> i64 {
            entry.lines.iter().filter(|line| line.account == account).map(|line| line.delta).sum()
        };
        let concerns = |entry: &&Entry| entry.lines.iter().any(|line| line.account == account);
        let within = |entry: &&Entry| since.is_none_or(|s| s <= entry.at) && until.is_none_or(|u| entry.at < u);
        let listed: Vec<&Entry> = self.journal.values().filter(concerns).filter(within).collect();
        let total = listed.len() as u64;
        let entries: Vec<Entry> = listed.iter().skip(listed.len().saturating_sub(limit)).copied().cloned().collect();
        let earlier = |entry: &&Entry| match (entries.first(), since) {
            (Some(first), _) => entry.n < first.n,
            (None, Some(since)) => entry.at < since,
            (None, None) => false,
        };
        let opening = self.journal.values().filter(earlier).map(delta).sum();
        AccountPage { opening, entries, total }
    }

    fn contract(&self, id: &str) -> Option<Contract> {
        self.contracts.get(id).cloned()
    }

    fn contract_of_quote(&self, quote: &str) -> Option<String> {
        self.quotes.get(quote).cloned()
    }

    fn contracts_of(&self, account: &str, limit: usize) -> Vec<Contract> {
        let party = |contract: &&Contract| contract.parties().iter().any(|party| party.as_str() == account);
        let found = self.contracts.values().filter(party).collect();
        self.newest(found, |contract| self.contract_order.get(&contract.id).copied().unwrap_or(0), limit)
    }

    fn mandate(&self, id: &str) -> Option<Mandate> {
        self.mandates.get(id).cloned()
    }

    fn mandates_under(&self, id: &str) -> Vec<Mandate> {
        let under = |m: &&Mandate| m.state == MandateState::Active && m.chain.iter().any(|link| link == id);
        self.mandates.values().filter(under).cloned().collect()
    }

    fn mandates_of(&self, account: &str, limit: usize) -> Vec<Mandate> {
        let concerns = |m: &&Mandate| m.grantor.as_str() == account || m.grantee.as_str() == account;
        let found = self.mandates.values().filter(concerns).collect();
        self.newest(found, |mandate| self.mandate_order.get(&mandate.id).copied().unwrap_or(0), limit)
    }

    fn seal(&self, sha256: &str, by: &Address) -> Option<SealRecord> {
        self.seals.get(&(sha256.to_owned(), by.clone())).cloned()
    }

    fn operation(&self, from: &Address, id: &str) -> Option<OperationRecord> {
        self.operations.get(&(from.clone(), id.to_owned())).cloned()
    }

    fn look(&self, contract: &str) -> Option<LookRow> {
        self.looks.get(contract).cloned()
    }
}

/// How to take back what was applied, newest last.
#[derive(Default)]
struct Undo(Vec<Inverse>);

type Inverse = Box<dyn FnOnce(&mut MemoryView)>;

fn vacant<K: Ord, V>(map: &BTreeMap<K, V>, key: &K, why: impl FnOnce() -> String) -> Result<(), Rejected> {
    if map.contains_key(key) { Err(Rejected::Conflict(why())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Line;
    use serde_json::json;

    fn entry(n: u64, at: i64, lines: &[(&str, i64)]) -> Change {
        let lines = lines.iter().map(|(account, delta)| Line { account: (*account).into(), delta: *delta }).collect();
        let doc = json!({"house": "a.example"});
        Change::Journal(Entry { n, id: format!("e{n}"), at: Timestamp::from_millis(at), lines, doc: doc.into() })
    }

    #[test]
    fn a_decision_is_applied_whole_or_not_at_all() {
        let mut view = MemoryView::new();
        let fund = entry(1, 10, &[("casa@a.example", -5), ("ana@a.example", 5)]);
        view.apply(vec![fund]).expect("funded");
        let nonce = || Change::BurnNonce { key: "k".into(), at: Timestamp::from_millis(1) };
        let spend = entry(2, 10, &[("ana@a.example", -4), ("leo@a.example", 4)]);
        let rejected = view.apply(vec![spend.clone(), nonce(), nonce()]);
        assert!(matches!(rejected, Err(Rejected::Conflict(_))));
        assert_eq!((view.balance("ana@a.example"), view.journal_last(), view.nonce_used("k")), (5, 1, false));
        view.apply(vec![spend, nonce()]).expect("once");
        assert_eq!((view.balance("ana@a.example"), view.balance("leo@a.example")), (1, 4));
    }

    #[test]
    fn the_journal_admits_only_what_follows_sums_to_zero_and_is_covered() {
        let mut view = MemoryView::new();
        view.apply(vec![entry(1, 10, &[("casa@a.example", -5), ("ana@a.example", 5)])]).expect("funded");
        for broken in [
            entry(2, 9, &[]),
            entry(2, 10, &[("ana@a.example", -1)]),
            entry(2, 10, &[("ana@a.example", -6), ("leo@a.example", 6)]),
            entry(2, 10, &[("casa@b.example", -1), ("leo@a.example", 1)]),
            entry(2, 10, &[("casa@a.example", i64::MIN + 1), ("leo@a.example", i64::MAX)]),
        ] {
            assert!(matches!(view.apply(vec![broken.clone()]), Err(Rejected::Broken(_))), "{broken:?}");
        }
        assert!(matches!(view.apply(vec![entry(3, 10, &[])]), Err(Rejected::Conflict(_))));
        assert_eq!(view.journal_last(), 1);
    }

    #[test]
    fn a_page_opens_with_the_balance_before_it() {
        let mut view = MemoryView::new();
        for n in 1..=5u64 {
            view.apply(vec![entry(n, n as i64, &[("casa@a.example", -1), ("ana@a.example", 1)])]).expect("entry");
        }
        let at = |ms| Some(Timestamp::from_millis(ms));
        let page = view.account_page("ana@a.example", None, None, 2);
        assert_eq!((page.opening, page.entries.len(), page.total), (3, 2, 5));
        let page = view.account_page("ana@a.example", at(2), at(4), 10);
        assert_eq!((page.opening, page.entries.len(), page.total), (1, 2, 2));
        let page = view.account_page("ana@a.example", at(9), None, 10);
        assert_eq!((page.opening, page.entries.len(), page.total), (5, 0, 0));
        assert_eq!(view.account_page("leo@a.example", None, None, 10).opening, 0);
    }
}
