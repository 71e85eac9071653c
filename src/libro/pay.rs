//! `pay`: tokens from one agent to another of this house, without a fee, a quote or a contract.

use super::books::Posting;
use super::doing::{Doing, Receipt};
use super::money::Movement;
use super::stamps::spender;
use crate::limits;
use crate::record::AgentRecord;
use crate::record::agent::{Asker, stands, visible_to};
use crate::refusal::{Refusal, Rule};
use crate::wire::address::Address;
use crate::wire::amount::Amount;
use crate::wire::card::{AgentCard, InboxPolicy};
use crate::wire::doc::Doc;
use serde_json::json;

pub(super) fn pay(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let (house, from) = (doing.ctx.house, doing.sender().clone());
    let to = doing.required_address("to")?;
    let refuse = |why: String| Err(Refusal::new(Rule::CannotPayTo, why));
    if !house.is_mine(&to) {
        return refuse(format!("{to} is of another house: tokens of {} do not leave it", house.domain));
    }
    if to == from {
        return refuse("to is the payer".into());
    }
    let amount = doing.amount("amount")?;
    doing.within_cap(amount)?;
    let payee = payee(doing, &to)?;
    spender(doing.ctx, &to)?;
    let concept = doing.label("concept", limits::CONCEPT_CHARS_MAX)?;
    let concept = concept.unwrap_or_else(|| format!("payment from {from}"));
    let mut movement = Movement::whole(from.as_str(), to.as_str(), amount);
    movement.fee = Some(0);
    let posting = Posting::of(movement, "pay", concept.clone(), doing.refs());
    let entry = doing.post(posting.meta("to", to.as_str()))?;
    let notified = takes_receipt(&payee.card, &from, amount);
    let mut recipients = vec![from.clone()];
    if notified {
        recipients.push(to.clone());
    }
    let mut body = json!({"pay": {"from": from, "to": to, "amount": amount.tokens(), "concept": concept}});
    let told = Doc::from(body.clone()).with("asiento", entry.doc.clone());
    doing.receipt(Receipt { to: recipients, thread: None, body: told, entry: None });
    body["notified"] = notified.into();
    Ok(Doc::from(body).with("asiento", entry.doc))
}

/// A secret agent does not exist for those who may not see it.
pub(super) fn payee(doing: &Doing<'_, '_>, to: &Address) -> Result<AgentRecord, Refusal> {
    let (view, now) = (doing.ctx.view, doing.now());
    let record = view.agent(to.local()).filter(|record| {
        visible_to(&record.card, Asker::Card(&doing.standing.card), now) && stands(view, &record.card, now).is_ok()
    });
    record.ok_or_else(|| Refusal::new(Rule::PayeeUnknown, format!("no agent {to} in this house")))
}

/// A free payment of one token must not carry a letter past the price of a mailbox, or past any other policy.
fn takes_receipt(card: &AgentCard, payer: &Address, amount: Amount) -> bool {
    if card.inbox.blocks(payer) {
        return false;
    }
    match &card.inbox.policy {
        InboxPolicy::Open => true,
        InboxPolicy::Stamp { price, .. } => card.inbox.lists(payer) || amount.tokens() >= *price,
        InboxPolicy::Allowlist | InboxPolicy::Pow { .. } => card.inbox.lists(payer),
        InboxPolicy::Unknown(_) => false,
    }
}
