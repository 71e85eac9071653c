//! Operations that read: the answer goes to who asks, and nothing moves.

use super::doing::{Doing, Receipt};
use super::statement::{Range, Statement};
use super::views;
use crate::limits;
use crate::refusal::{Refusal, Rule};
use crate::wire::Doc;
use serde_json::{Value, json};

pub(super) fn balance(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let account = doing.sender().clone();
    let contracts = doing.ctx.view.contracts_of(account.as_str(), limits::ACCOUNT_CONTRACTS_OP_MAX);
    let mandates = doing.ctx.view.mandates_of(account.as_str(), limits::ACCOUNT_MANDATES_MAX);
    let balance = doing.books.balance(account.as_str());
    let view = views::account(account.as_str(), balance, &contracts, &mandates, limits::ACCOUNT_VIEW_BYTES_MAX);
    let body =
        json!({"account": account, "balance": balance, "contracts": contracts.len(), "mandates": mandates.len()});
    doing.receipt(Receipt { to: vec![account], thread: None, body: body.into(), entry: None });
    Ok(view.into())
}

pub(super) fn statement(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let account = doing.sender().clone();
    let limit = doing.body.get("limit").and_then(Value::as_u64);
    let range = Range::parse(doing.text("since")?, doing.text("until")?, limit, limits::STATEMENT_ROWS_OP_MAX)?;
    let page = doing.ctx.view.account_page(account.as_str(), range.since, range.until, range.limit);
    let balance = doing.books.balance(account.as_str());
    let statement = Statement::of(account.as_str(), doing.ctx.house, &page, &range, balance);
    if statement.reconciled == Some(false) {
        let data = json!({"closing": statement.closing, "ledger": balance});
        doing.event("ledger_divergence", &account, data);
    }
    let body = Doc::from(statement.to_json());
    doing.receipt(Receipt { to: vec![account], thread: None, body: body.clone(), entry: None });
    Ok(body)
}

pub(super) fn contract(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let contract = doing.contract()?;
    if !contract.parties().contains(doing.sender()) {
        return Err(Refusal::new(Rule::NotAParty, "only its parties may read a contract"));
    }
    let body = Doc::from(json!({"contract": contract.to_json()}));
    let (to, thread) = (vec![doing.sender().clone()], Some(contract.id));
    doing.receipt(Receipt { to, thread, body: body.clone(), entry: None });
    Ok(body)
}
