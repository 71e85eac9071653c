//! Money that moves without an operation: the stamp of a mailbox that charges, and tokens that the house issues.

use super::Ctx;
use super::books::{Books, Posting};
use super::doing::Standing;
use super::money::{Movement, Shares};
use crate::ids::Ids;
use crate::limits;
use crate::record::agent::{messages_only, stands};
use crate::record::{Change, OperationRecord};
use crate::refusal::{Refusal, Rule};
use crate::wire::Doc;
use crate::wire::address::{Address, SystemName};
use crate::wire::amount::Amount;
use crate::wire::envelope::Verified;
use crate::wire::json::canonical_sha256;
use serde_json::{Map, Value, json};

/// Charges a letter's stamp: the mailbox's price, which the sender's declared amount must reach and is never exceeded.
/// Gives the id of the entry. To be committed together with the delivery that it pays.
pub fn stamp(
    ctx: &Ctx<'_>,
    books: &mut Books<'_>,
    ids: &mut Ids,
    mail: &Verified,
    to: &Address,
    price: u64,
) -> Result<String, Refusal> {
    let envelope = mail.envelope();
    let missing = |why: String| Refusal::new(Rule::StampMissing, why);
    let price =
        Amount::new(price).ok_or_else(|| missing(format!("the mailbox of {to} has no price that can be paid")))?;
    let wanted = format!("needed: stamp {{house: {}, amount: {price}}}", ctx.house.domain);
    let stamp = envelope.field("stamp").ok_or_else(|| missing(format!("{to} charges to receive; {wanted}")))?;
    if stamp.get("house").and_then(Value::as_str) != Some(ctx.house.domain.as_str()) {
        return Err(missing(format!("the stamp is of another house; {wanted}")));
    }
    let declared = stamp.get("amount").and_then(Value::as_u64).and_then(Amount::new);
    let declared = declared.filter(|declared| *declared >= price);
    declared.ok_or_else(|| missing(format!("the stamp does not reach the price; {wanted}")))?;
    let standing = Standing::of(ctx, mail)?;
    if standing.messages_only() {
        return Err(Refusal::new(Rule::OutOfScope, "a messages-only address may not pay a stamp"));
    }
    standing.within_cap(price)?;
    let casa = ctx.house.casa();
    let shares = Shares { casa: &casa, fee_bps: ctx.house.settings.fee_bps, referrer: None };
    let movement = Movement::shared(envelope.from.as_str(), to.as_str(), price, shares);
    let refs = Map::from_iter([
        ("envelope".to_owned(), Value::from(envelope.id.as_str())),
        ("envelope_sha256".to_owned(), json!(envelope.sha256())),
    ]);
    let label = format!("stamp of a letter to {to}");
    let posting = Posting::of(movement, "stamp", label, refs).own(&envelope.from);
    Ok(books.post(ctx.house, ctx.now, ids, posting)?.id)
}

/// Issues tokens: the house's account goes down by what the other gets. Gives the signed entry.
pub fn topup(
    ctx: &Ctx<'_>,
    books: &mut Books<'_>,
    ids: &mut Ids,
    account: &Address,
    amount: Amount,
    concept: Option<&str>,
    meta: Map<String, Value>,
) -> Result<Doc, Refusal> {
    let casa = ctx.house.casa();
    if account == &casa {
        return Err(Refusal::new(Rule::CannotPayTo, "the house's own account is where tokens come from"));
    }
    let concept = concept.map(str::trim).filter(|concept| !concept.is_empty()).unwrap_or(TOPUP);
    let concept = concept.chars().take(limits::CONCEPT_CHARS_MAX).collect();
    let movement = Movement::whole(casa.as_str(), account.as_str(), amount);
    let mut posting = Posting::of(movement, "topup", concept, Map::new());
    posting.meta.extend(meta.into_iter().filter(|(field, _)| field != "kind"));
    Ok(books.post(ctx.house, ctx.now, ids, posting)?.doc)
}

/// What the operator asks for.
#[derive(Clone, Debug)]
pub struct Issue {
    /// Names this one issue, so that asking again is not issuing again.
    pub id: Option<String>,
    pub account: Address,
    pub amount: Amount,
    pub concept: Option<String>,
}

/// The signed entry of an issue, made now or by the same request before.
#[derive(Clone, Debug)]
pub struct Issued {
    pub entry: Doc,
    pub duplicate: bool,
}

/// The operator's hand: tokens for somebody who can spend them, once for each id.
pub fn issue(ctx: &Ctx<'_>, books: &mut Books<'_>, ids: &mut Ids, issue: &Issue) -> Result<Issued, Refusal> {
    let casa = ctx.house.casa();
    let asked = json!({"account": issue.account, "amount": issue.amount.tokens(), "concept": issue.concept});
    let sha256 = canonical_sha256(&asked).hex();
    if let Some(id) = &issue.id
        && let Some(known) = ctx.view.operation(&casa, id)
    {
        if known.sha256 == sha256 {
            return Ok(Issued { entry: known.result, duplicate: true });
        }
        return Err(Refusal::new(Rule::IdReused, format!("{id} names another issue; use a new id")));
    }
    if ctx.house.is_mine(&issue.account) && issue.account != casa {
        spender(ctx, &issue.account)?;
    }
    let entry = topup(ctx, books, ids, &issue.account, issue.amount, issue.concept.as_deref(), Map::new())?;
    if let Some(id) = &issue.id {
        let (id, result, at) = (id.clone(), entry.clone(), ctx.now);
        books.change(Change::InsertOperation(OperationRecord { from: casa, id, sha256, result, at }));
    }
    Ok(Issued { entry, duplicate: false })
}

/// Whoever is to hold tokens of this house under one of its names must be there, and be able to spend them.
///
/// One rule for all that credits an account by name: a payment, an issue, a commission, a bond that is forfeited.
pub(super) fn spender(ctx: &Ctx<'_>, account: &Address) -> Result<(), Refusal> {
    let record = ctx.view.agent(account.local()).filter(|record| stands(ctx.view, &record.card, ctx.now).is_ok());
    let record = record.ok_or_else(|| Refusal::new(Rule::PayeeUnknown, format!("no agent {account} in this house")))?;
    let refuse = |why: String| Err(Refusal::new(Rule::CannotPayTo, why));
    // Of the house's own names tareas@ alone buys anything.
    if record.system && !account.is_system(&ctx.house.domain, SystemName::Tareas) {
        return refuse(format!("{account} is one of the house's own names, and nothing that it holds is ever spent"));
    }
    if messages_only(ctx.view, &record.card) {
        let owner = record.card.delegation.as_ref().map_or_else(|| "its owner".to_owned(), |d| d.by.to_string());
        return refuse(format!("{account} is a messages-only address and could never spend it: name {owner}"));
    }
    Ok(())
}

const TOPUP: &str = "carga";
