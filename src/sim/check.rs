//! What must hold: of one answer, of what it left, and of a house as a whole.

use super::deal::{After, Chosen, Effect, escrow, named};
use super::house::{Broken, SimHouse, text};
use super::model::Ledger;
use super::order::{Claimed, Order};
use super::post::Post;
use crate::mail::Answer;
use crate::record::{Change, JobStatus, View};
use crate::wire::address::Address;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The answer names exactly those who have it.
pub fn accepted(answer: &Answer, expected: &BTreeSet<String>) -> Result<(), Broken> {
    let listed = answer.body.get("accepted").and_then(Value::as_array);
    let told: BTreeSet<String> = listed.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    if &told == expected { Ok(()) } else { Err(format!("accepted by {told:?}, and it must be {expected:?}")) }
}

/// A refusal leaves nothing but what was counted.
pub fn nothing_moves(changes: &[Change]) -> Result<(), Broken> {
    match changes.iter().find(|change| !matches!(change, Change::CountRate { .. })) {
        None => Ok(()),
        Some(change) => Err(format!("a refusal leaves {change:?}")),
    }
}

/// The result of an operation against what it must be; answers the ids that the house chose.
pub fn result(house: &SimHouse, order: &Order, from: &str, result: &Value, effect: &Effect) -> Result<Chosen, Broken> {
    let id_of =
        |field: &str| result.get(field).and_then(|doc| doc.get("id")).and_then(Value::as_str).map(str::to_owned);
    let chosen = Chosen { contract: id_of("contract"), mandate: id_of("mandate"), seal: id_of("seal") };
    if let Some((kind, lines)) = effect.entry.as_ref().filter(|(_, lines)| !lines.is_empty()) {
        let entry = result.get("asiento").filter(|entry| entry.is_object()).ok_or("the result shows no entry")?;
        let lines = named(lines, chosen.contract.as_deref().unwrap_or_default());
        same_lines(entry, &lines)?;
        let meta = entry.get("meta").map(|meta| text(meta, "kind")).unwrap_or_default();
        if meta != *kind {
            return Err(format!("the entry is a {meta}, and it must be a {kind}"));
        }
        if entry.get("n").and_then(Value::as_u64) != Some(house.ledger.entries + 1) {
            return Err(format!("the entry has the number {:?} after {}", entry.get("n"), house.ledger.entries));
        }
    }
    let shown = |field: &str| result.get(field).and_then(Value::as_i64);
    match order {
        Order::Balance if shown("balance") != Some(house.ledger.balance(from)) => {
            Err(format!("the balance is told as {:?} and is {}", shown("balance"), house.ledger.balance(from)))
        }
        Order::Statement => {
            let totals = |field: &str| result.pointer(&format!("/totals/{field}")).and_then(Value::as_i64).unwrap_or(0);
            let opening = shown("opening_balance").unwrap_or(i64::MIN);
            let closing = shown("closing_balance").unwrap_or(i64::MAX);
            let adds = opening.checked_add(totals("in")).and_then(|sum| sum.checked_sub(totals("out")));
            let whole = adds == Some(closing) && closing == house.ledger.balance(from);
            let reconciled = result.get("reconciled").and_then(Value::as_bool) == Some(true);
            if whole && reconciled { Ok(chosen) } else { Err(format!("the statement does not reconcile: {result}")) }
        }
        Order::Contract { contract } => {
            let state = result.get("contract").map(|doc| text(doc, "state")).unwrap_or_default();
            let known = house.ledger.deals.get(contract).map_or("", |deal| deal.state.word());
            if state == known { Ok(chosen) } else { Err(format!("the contract is shown as {state} and is {known}")) }
        }
        Order::Notarize { hash: Some(hash) } => {
            let before = house.ledger.seals.get(&(*hash, from.to_owned()));
            let existing = result.get("existing").and_then(Value::as_bool);
            let same = before.is_none_or(|seal| chosen.seal.as_ref() == Some(seal));
            if same && existing == Some(before.is_some()) { Ok(chosen) } else { Err(format!("sealed anew: {result}")) }
        }
        _ => Ok(chosen),
    }
}

/// Who is told by the letters among these changes, that an entry was made for each effect that makes one, and that no
/// contract ends in them that had ended.
pub fn receipts(house: &SimHouse, post: &Post, changes: &[Change], effects: &[Effect]) -> Result<(), Broken> {
    let mut told: BTreeSet<String> = BTreeSet::new();
    let mut entries: Vec<&crate::record::Entry> = Vec::new();
    for change in changes {
        match change {
            Change::Deliver(mail) if is_receipt(&mail.envelope, &post.id) => {
                let to = format!("{}@{}", mail.local, house.domain());
                if !told.insert(to.clone()) {
                    return Err(format!("{to} is told twice"));
                }
            }
            Change::PutJob(job) if is_receipt(&job.envelope, &post.id) => {
                told.extend(job.to.iter().map(ToString::to_string));
            }
            Change::Journal(entry) => entries.push(entry),
            _ => {}
        }
    }
    let known = |who: &String| !house.is_mine(who) || house.view.agent(local(who)).is_some();
    let expected: BTreeSet<String> =
        effects.iter().flat_map(|effect| effect.receipts.iter().filter(|who| known(who)).cloned()).collect();
    if told != expected {
        return Err(format!("receipts go to {told:?}, and must go to {expected:?}"));
    }
    let wanted = effects.iter().filter(|effect| effect.entry.is_some()).count();
    if entries.len() != wanted {
        return Err(format!("{} entries are made, and there must be {wanted}", entries.len()));
    }
    for entry in entries {
        let refs = entry.doc.get("refs");
        if refs.map(|refs| text(refs, "op")) != Some(post.id.as_str()) {
            return Err(format!("the entry {} does not name its cause", entry.n));
        }
        if entry.lines.iter().map(|line| i128::from(line.delta)).sum::<i128>() != 0 {
            return Err(format!("the entry {} does not sum to zero", entry.n));
        }
    }
    Ok(())
}

/// A verdict of the house's arbiter stands on two recorded looks at the contract as it is, which agree with it.
pub fn verdict(ledger: &Ledger, from: &str, order: &Order) -> Result<(), Broken> {
    let (contract, passed, claimed): (&str, bool, Option<&Claimed>) = match order {
        Order::Release { contract, verdict } => (contract, true, verdict.as_ref()),
        Order::Refund { contract, verdict } => (contract, false, verdict.as_ref()),
        _ => return Ok(()),
    };
    if from != ledger.own("verifica") {
        return Ok(());
    }
    let steps = ledger.deals.get(contract).map_or(0, |deal| deal.steps);
    let looks: Vec<_> = ledger.looks.get(contract).into_iter().flatten().filter(|look| look.steps == steps).collect();
    let agree = looks.len() >= 2 && looks.iter().rev().take(2).all(|look| look.passed == Some(passed));
    if agree && claimed.is_some() {
        return Ok(());
    }
    Err(format!("the arbiter decides {contract} ({passed}) on the looks {looks:?}"))
}

/// What an effect left is what the model says: the accounts that it touched, the contract, the mandates.
pub fn effect(house: &SimHouse, effect: &Effect, chosen: &Chosen) -> Result<(), Broken> {
    let contract = chosen.contract.as_deref().unwrap_or_default();
    if let Some((_, lines)) = &effect.entry {
        for (account, _) in named(lines, contract) {
            same_balance(house, &account)?;
        }
        if house.view.journal_last() != house.ledger.entries {
            return Err(format!(
                "the journal ends at {} and not at {}",
                house.view.journal_last(),
                house.ledger.entries
            ));
        }
    }
    match &effect.after {
        After::Begun(_) | After::Metered(..) => same_deal(house, contract),
        After::Delivered(id) | After::Ended(id, _) => same_deal(house, id),
        After::Charged(ids, _) | After::Revoked(ids) => ids.iter().try_for_each(|id| same_grant(house, id)),
        After::Granted(_) => same_grant(house, chosen.mandate.as_deref().unwrap_or_default()),
        After::Nothing | After::Sealed(..) => Ok(()),
    }
}

/// Everything that was acknowledged is there.
pub fn promises(house: &SimHouse) -> Result<(), Broken> {
    let mut boxes: BTreeMap<&str, BTreeSet<(String, String)>> = BTreeMap::new();
    for (from, id, to) in &house.doors.acked {
        let sender = Address::parse(from).map_err(|r| r.to_string())?;
        let seen = house.view.seen(&sender, id);
        if !seen.is_some_and(|seen| seen.accepted.iter().any(|has| has.as_str() == to)) {
            return Err(format!("{} acknowledged {id} of {from} for {to} and does not know it", house.domain()));
        }
        if to.starts_with("libro@") {
            if house.view.operation(&sender, id).is_none() {
                return Err(format!("{} acknowledged the order {id} of {from} and does not know it", house.domain()));
            }
            continue;
        }
        let lying = boxes.entry(to).or_insert_with(|| {
            house.view.mailbox(local(to)).into_iter().map(|mail| (mail.from.clone(), mail.id.clone())).collect()
        });
        if !lying.contains(&(from.clone(), id.clone())) {
            return Err(format!("{to} does not have {id} of {from}, which was acknowledged"));
        }
    }
    for (from, id) in &house.doors.sent {
        let sender = Address::parse(from).map_err(|r| r.to_string())?;
        if house.view.seen(&sender, id).is_none() {
            return Err(format!("{} took {id} of {from} to send and does not know it", house.domain()));
        }
    }
    Ok(())
}

/// The whole house: sums, signs, every account, contract and mandate, one ending each.
pub fn sweep(house: &SimHouse) -> Result<(), Broken> {
    let casa = house.ledger.own("casa");
    let balances = house.view.balances();
    let total: i128 = balances.values().map(|balance| i128::from(*balance)).sum();
    if total != 0 {
        return Err(format!("all accounts of {} sum to {total}", house.domain()));
    }
    for (account, balance) in balances {
        if *balance < 0 && *account != casa {
            return Err(format!("{account} is below zero: {balance}"));
        }
        if *balance != house.ledger.balance(account) {
            return Err(format!("{account} has {balance} and must have {}", house.ledger.balance(account)));
        }
    }
    for deal in house.ledger.deals.values() {
        same_deal(house, &deal.id)?;
        let held = house.view.balance(&escrow(&deal.id));
        let must = match deal.kind {
            super::order::Kind::Escrow | super::order::Kind::Bond if !deal.state.over() => deal.amount,
            _ => 0,
        };
        if held != must {
            return Err(format!("{} of the contract {} holds {held} and must hold {must}", deal.state.word(), deal.id));
        }
    }
    if house.view.contracts().count() != house.ledger.deals.len() {
        return Err(format!("{} has contracts that nobody made", house.domain()));
    }
    house.ledger.grants.keys().try_for_each(|id| same_grant(house, id))?;
    let mut endings: BTreeSet<&str> = BTreeSet::new();
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for (at, entry) in house.view.journal().enumerate() {
        if entry.n != at as u64 + 1 {
            return Err(format!("the journal has {} at the place {}", entry.n, at + 1));
        }
        for line in &entry.lines {
            *sums.entry(&line.account).or_default() += line.delta;
        }
        let Some(meta) = entry.doc.get("meta") else { continue };
        let ends =
            matches!(text(meta, "kind"), "release" | "refund" | "reclaim" | "expire" | "forfeit" | "bond-release");
        if ends && !endings.insert(text(meta, "contract")) {
            return Err(format!("the contract {} ends twice", text(meta, "contract")));
        }
    }
    match balances.iter().find(|(account, balance)| sums.get(account.as_str()).copied().unwrap_or(0) != **balance) {
        None => Ok(()),
        Some((account, balance)) => {
            Err(format!("{account} has {balance}, and its entries say {:?}", sums.get(account.as_str())))
        }
    }
}

/// Nothing is left to do: the queue is empty, what can be judged is judged, and whoever sent knows what became of it.
pub fn settled(house: &SimHouse) -> Result<(), Broken> {
    if let Some(job) = house.view.jobs().find(|job| job.status.open()) {
        return Err(format!("the letter {} to {} is never delivered and never returned", job.envelope_id, job.domain));
    }
    if let Some(row) = house.view.looks().find(|row| !row.done) {
        return Err(format!("the contract {} is never judged: {:?}", row.contract, row.last));
    }
    let mut bounces: BTreeMap<(String, String), u32> = BTreeMap::new();
    for agent in house.view.agents().filter(|agent| !agent.system) {
        for mail in house.view.mailbox(agent.local.as_str()) {
            let body = mail.envelope.pointer("/content/body");
            if mail.from.starts_with("postmaster@")
                && let Some(body) = body.filter(|body| text(body, "status") == "failed")
            {
                let key = (format!("{} {}", agent.local.as_str(), text(body, "of")), text(body, "to").to_owned());
                *bounces.entry(key).or_default() += 1;
            }
        }
    }
    for job in house.view.jobs() {
        let fates: BTreeSet<&Address> = job.delivered.iter().chain(&job.failed).collect();
        if fates.len() != job.delivered.len() + job.failed.len() || !job.to.is_empty() || fates.is_empty() {
            return Err(format!("the letter {} to {} has two fates or none: {job:?}", job.envelope_id, job.domain));
        }
        if job.status == JobStatus::Failed && !job.delivered.is_empty() {
            return Err(format!("the letter {} is delivered and failed", job.envelope_id));
        }
        let from_agent = house.view.agent(&job.from_local).is_some_and(|agent| !agent.system);
        for to in job.failed.iter().filter(|_| from_agent) {
            let key = (format!("{} {}", job.from_local, job.envelope_id), to.to_string());
            let told = bounces.get(&key).copied().unwrap_or(0);
            if told != 1 {
                return Err(format!(
                    "{} is told {told} times that {} did not reach {to}",
                    job.from_local, job.envelope_id
                ));
            }
        }
    }
    let now = house.view.journal_last_at();
    let due = |deal: &&super::deal::Deal| {
        deal.state == super::deal::State::Delivered && house.ledger.silence(deal).is_some_and(|at| at <= now)
    };
    match house.ledger.deals.values().find(due) {
        None => Ok(()),
        Some(deal) => Err(format!("silence should have paid {}", deal.id)),
    }
}

/// What this house delivered elsewhere lies there, except where the other house was put back to an old backup.
pub fn delivered(house: &SimHouse, other: &SimHouse) -> Result<(), Broken> {
    for job in house.view.jobs().filter(|job| job.domain.as_str() == other.domain()) {
        let from = text(&job.envelope, "from");
        let key = (from.to_owned(), job.envelope_id.clone());
        if other.forgiven.contains(&key) {
            continue;
        }
        let sender = Address::parse(from).map_err(|r| r.to_string())?;
        let seen = other.view.seen(&sender, &job.envelope_id).map(|seen| seen.accepted).unwrap_or_default();
        if let Some(to) = job.delivered.iter().find(|to| !seen.contains(to)) {
            return Err(format!(
                "{} counts {} as delivered to {to}, who does not have it",
                house.domain(),
                job.envelope_id
            ));
        }
    }
    Ok(())
}

fn same_balance(house: &SimHouse, account: &str) -> Result<(), Broken> {
    let (has, must) = (house.view.balance(account), house.ledger.balance(account));
    if has != must {
        return Err(format!("{account} has {has} and must have {must}"));
    }
    if has < 0 && account != house.ledger.own("casa") {
        return Err(format!("{account} is below zero: {has}"));
    }
    Ok(())
}

fn same_deal(house: &SimHouse, id: &str) -> Result<(), Broken> {
    let known = house.ledger.deals.get(id);
    let kept = house.view.contract(id);
    let (Some(known), Some(kept)) = (known, kept) else { return Err(format!("the contract {id} is not there")) };
    let steps = kept.history.len() as u64;
    if kept.state.as_str() != known.state.word() || steps != known.steps || kept.amount.cast_signed() != known.amount {
        return Err(format!(
            "the contract {id} is {} after {steps} operations, and must be {} after {}",
            kept.state.as_str(),
            known.state.word(),
            known.steps
        ));
    }
    Ok(())
}

fn same_grant(house: &SimHouse, id: &str) -> Result<(), Broken> {
    let (Some(known), Some(kept)) = (house.ledger.grants.get(id), house.view.mandate(id)) else {
        return Err(format!("the mandate {id} is not there"));
    };
    let active = kept.state == crate::record::MandateState::Active;
    if kept.spent.cast_signed() != known.spent || active != known.active || kept.cap.cast_signed() != known.cap {
        return Err(format!(
            "the mandate {id} has spent {} (active: {active}), and must have {}",
            kept.spent, known.spent
        ));
    }
    if known.spent > known.cap {
        return Err(format!("the mandate {id} has spent more than its cap"));
    }
    Ok(())
}

fn same_lines(entry: &Value, lines: &[(String, i64)]) -> Result<(), Broken> {
    let listed = entry.get("lines").and_then(Value::as_array);
    let made: Vec<(String, i64)> = listed
        .into_iter()
        .flatten()
        .map(|line| (text(line, "account").to_owned(), line.get("delta").and_then(Value::as_i64).unwrap_or(0)))
        .collect();
    if made == lines { Ok(()) } else { Err(format!("the entry moves {made:?}, and must move {lines:?}")) }
}

/// A receipt of the ledger for this operation.
fn is_receipt(envelope: &Value, op: &str) -> bool {
    let body = envelope.pointer("/content/body");
    text(envelope, "from").starts_with("libro@") && body.is_some_and(|body| text(body, "of") == op)
}

fn local(address: &str) -> &str {
    address.split_once('@').map_or(address, |(local, _)| local)
}
