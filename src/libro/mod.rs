//! The ledger's rules (*libro*): what each operation checks, in the protocol's order, which entries it makes and whom it
//! tells.
//!
//! An operation is a signed envelope to `libro@` of this house. [`operate`] answers it: the outcome of an earlier
//! delivery of the same envelope, or a refusal, which is not stored and may be retried, or changes in the open
//! [`Books`], the letters that tell the parties, and a result. All of it is committed by the caller in one transaction
//! with whatever else the envelope caused, so a receipt is never lost and money never moves twice.
//!
//! Where this ledger is stricter than the protocol asks, because the loose rule has cost money elsewhere:
//!
//! - A quote whose buyer is its seller, or whose arbiter is one of them, is refused: such a deal proves nothing, can be
//!   decided by one hand, and would only paint a record. So is a bond that its own poster judges or would receive.
//! - A quote that names this house's arbiter must carry tests that the arbiter can run; no money is locked behind a test
//!   that cannot decide.
//! - Silence does not pay while this house's own arbiter is to judge and has not (`expire`): a seller who takes the
//!   judged server down would be paid for it. The parties may still settle by hand.
//! - The fee is the one that applied when the contract was accepted; a later tariff does not reach into it.
//! - Every party is told of a contract when it begins, the arbiter too.
//! - A mandate dies with the card of a grantor of this house.
//!
//! A buyer's own cancellation of an escrow that nobody has delivered on stays allowed, as the protocol says; its history
//! shows who did it.

mod bonds;
mod books;
mod contracts;
mod doing;
mod mandates;
mod money;
mod notary;
mod pay;
mod reads;
mod rights;
mod stamps;
pub mod statement;
pub mod views;

pub use books::Books;
pub use contracts::{expiry, is_moot, order_due};
pub use money::{Movement, Shares, Taken};
pub use rights::{Act, may};
pub use stamps::{Issue, Issued, issue, stamp, topup};

use crate::ids::Ids;
use crate::record::{Cards, Change, House, Letter, OperationRecord, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::Address;
use crate::wire::doc::Doc;
use crate::wire::envelope::{Envelope, Verified};
use crate::wire::quote::OP_MEDIA;
use doing::{Doing, Standing};
use serde_json::Value;

/// What a ledger rule looks at.
pub struct Ctx<'a> {
    pub house: &'a House,
    pub view: &'a dyn View,
    pub now: Timestamp,
    pub cards: &'a Cards,
}

/// An operation that was applied now, or had been before.
#[derive(Clone, Debug)]
pub struct Operated {
    pub result: Doc,
    /// Receipts and notices; none for a repetition, whose letters were committed with its first delivery.
    pub letters: Vec<Letter>,
    pub duplicate: bool,
}

/// The operations, in the order in which the ledger's card lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Accept,
    Deliver,
    Release,
    Refund,
    Reclaim,
    Expire,
    Bond,
    Forfeit,
    Mandate,
    Charge,
    Revoke,
    Pay,
    Balance,
    Statement,
    Contract,
    Notarize,
}

impl Op {
    pub const ALL: [Op; 16] = [
        Op::Accept,
        Op::Deliver,
        Op::Release,
        Op::Refund,
        Op::Reclaim,
        Op::Expire,
        Op::Bond,
        Op::Forfeit,
        Op::Mandate,
        Op::Charge,
        Op::Revoke,
        Op::Pay,
        Op::Balance,
        Op::Statement,
        Op::Contract,
        Op::Notarize,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Op::Accept => "accept",
            Op::Deliver => "deliver",
            Op::Release => "release",
            Op::Refund => "refund",
            Op::Reclaim => "reclaim",
            Op::Expire => "expire",
            Op::Bond => "bond",
            Op::Forfeit => "forfeit",
            Op::Mandate => "mandate",
            Op::Charge => "charge",
            Op::Revoke => "revoke",
            Op::Pay => "pay",
            Op::Balance => "balance",
            Op::Statement => "statement",
            Op::Contract => "contract",
            Op::Notarize => "notarize",
        }
    }

    pub fn parse(text: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.as_str() == text)
    }
}

/// Whose cards an operation needs beside its sender's: the seller's, whose signature the quote carries.
pub fn cards_needed(_house: &House, envelope: &Envelope) -> Vec<Address> {
    let body = envelope.body().filter(|_| envelope.media() == Some(OP_MEDIA));
    let accepts = body.filter(|body| body.get("op").and_then(Value::as_str) == Some(Op::Accept.as_str()));
    let seller = accepts.and_then(|body| body.get("quote")?.get("seller")?.as_str());
    seller.and_then(|seller| Address::parse(seller).ok()).into_iter().collect()
}

/// Applies one operation to the open books. A refusal leaves them as they were.
pub fn operate(ctx: &Ctx<'_>, books: &mut Books<'_>, ids: &mut Ids, op: &Verified) -> Result<Operated, Refusal> {
    let envelope = op.envelope();
    let sha256 = envelope.sha256().hex();
    if let Some(known) = ctx.view.operation(&envelope.from, &envelope.id) {
        if known.sha256 != sha256 {
            return Err(Refusal::new(
                Rule::IdReused,
                format!("{} sent another operation under the id {}; use a new id", envelope.from, envelope.id),
            ));
        }
        return Ok(Operated { result: known.result, letters: Vec::new(), duplicate: true });
    }
    if envelope.is_sealed() || envelope.media() != Some(OP_MEDIA) {
        return Err(Refusal::new(
            Rule::BadEnvelope,
            format!("an operation is clear content of the media type {OP_MEDIA}: the house must read it"),
        ));
    }
    let body = envelope.body().and_then(Value::as_object);
    let body = body.ok_or_else(|| Refusal::new(Rule::NotAnObject, "the body of an operation is an object"))?;
    let name = body.get("op").and_then(Value::as_str).and_then(Op::parse).ok_or_else(|| {
        let known: Vec<&str> = Op::ALL.iter().map(|op| op.as_str()).collect();
        Refusal::new(Rule::UnknownOperation, format!("body.op must be one of {}", known.join(", ")))
    })?;
    let standing = Standing::of(ctx, op)?;
    if standing.messages_only() {
        return Err(Refusal::new(Rule::OutOfScope, "a messages-only address may not operate a ledger"));
    }
    let mut trial = books.clone();
    let mut doing =
        Doing { ctx, books: &mut trial, ids, op, name, body, sha256: &sha256, standing, letters: Vec::new() };
    let result = match name {
        Op::Accept => contracts::accept(&mut doing),
        Op::Deliver => contracts::deliver(&mut doing),
        Op::Release => contracts::release(&mut doing),
        Op::Refund => contracts::refund(&mut doing),
        Op::Reclaim => contracts::reclaim(&mut doing),
        Op::Expire => contracts::expire(&mut doing),
        Op::Bond => bonds::bond(&mut doing),
        Op::Forfeit => bonds::forfeit(&mut doing),
        Op::Mandate => mandates::mandate(&mut doing),
        Op::Charge => mandates::charge(&mut doing),
        Op::Revoke => mandates::revoke(&mut doing),
        Op::Pay => pay::pay(&mut doing),
        Op::Balance => reads::balance(&mut doing),
        Op::Statement => reads::statement(&mut doing),
        Op::Contract => reads::contract(&mut doing),
        Op::Notarize => notary::notarize(&mut doing),
    }?;
    let letters = doing.letters;
    trial.change(Change::InsertOperation(OperationRecord {
        from: envelope.from.clone(),
        id: envelope.id.clone(),
        sha256,
        result: result.clone(),
        at: ctx.now,
    }));
    *books = trial;
    Ok(Operated { result, letters, duplicate: false })
}
