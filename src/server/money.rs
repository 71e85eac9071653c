//! Doors of the ledger: reading it, and the operator's hand on it. Operations come by mail, through the inbound door.

use super::doors::Doors;
use super::http::Reply;
use super::mail::{answered, page};
use super::routes::{App, Call};
use crate::arbiter::settle;
use crate::ids::Ids;
use crate::libro::statement::{Range, Statement};
use crate::libro::{self, Books, Ctx, Issue, Issued, views};
use crate::limits;
use crate::mail::Answer;
use crate::record::{Cards, Change, Contract, Decision, View};
use crate::refusal::{Refusal, Rule};
use crate::verdict::exported;
use crate::wire::address::Address;
use crate::wire::doc::Doc;
use crate::wire::envelope::is_id;
use crate::wire::{Amount, Sha256};
use serde_json::{Map, Value, json};

pub async fn account(app: &App, call: Call) -> Result<Reply, Refusal> {
    let caller = call.caller()?;
    app.doors.spend(caller).await?;
    own_account(call.param("address"), &caller.card.address)?;
    let name = caller.card.address.to_string();
    let view = app.doors.list(move |reader| {
        let contracts = View::contracts_of(reader, &name, limits::ACCOUNT_CONTRACTS_MAX);
        let mandates = reader.mandates_of(&name, limits::ACCOUNT_MANDATES_MAX);
        let balance = reader.balance(&name);
        Ok(views::account(&name, balance, &contracts, &mandates, limits::ACCOUNT_VIEW_BYTES_MAX))
    });
    view.await
}

pub async fn contract(app: &App, call: Call) -> Result<Reply, Refusal> {
    let contract = own_contract(app, &call).await?;
    let id = contract.id.clone();
    let look = app.doors.read(move |reader| Ok(reader.look(&id))).await?;
    Ok(Reply::ok(views::watched(&contract, look.as_ref())))
}

/// `GET /libro/contrato/{id}/evidencia`: what the verdict on a contract stands on, observations included, and the verdict.
pub async fn evidence(app: &App, call: Call) -> Result<Reply, Refusal> {
    let contract = own_contract(app, &call).await?;
    let house = app.doors.house();
    let found = app.doors.read(move |reader| {
        let (kept, look) = (reader.evidence(&contract.id)?, reader.look(&contract.id));
        let kept = match settle::evidence_of(&house, &contract, look.as_ref(), kept) {
            Ok(kept) => kept,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let load = |sha256: &Sha256| reader.observation(&contract.id, sha256).ok().flatten().map(|row| row.bytes);
        Ok(exported(&kept.document, &kept.verdict, &load).map_err(|name| {
            tracing::error!(event = "observation_lost", contract = %contract.id, sha256 = %name);
            Refusal::new(
                Rule::StoreUnavailable,
                "an observation of this verdict cannot be read; the operator's log has it",
            )
        }))
    });
    Ok(Reply::ok(found.await??))
}

pub async fn statement(app: &App, call: Call) -> Result<Reply, Refusal> {
    let caller = call.caller()?;
    app.doors.spend(caller).await?;
    if let Some(asked) = call.query("account") {
        own_account(asked, &caller.card.address)?;
    }
    let csv = match call.query("formato") {
        None | Some("json") => false,
        Some("csv") => true,
        Some(_) => return Err(Refusal::new(Rule::BadParameter, "formato must be json or csv")),
    };
    let limit = call.query("limit").and_then(|text| text.parse().ok());
    let range = Range::parse(call.query("desde"), call.query("hasta"), limit, limits::STATEMENT_ROWS_HTTP_MAX)?;
    let (name, house) = (caller.card.address.to_string(), app.doors.house());
    let made = app.doors.read(move |reader| {
        let page = reader.account_page(&name, range.since, range.until, range.limit);
        Ok(Statement::of(&name, &house, &page, &range, reader.balance(&name)))
    });
    let statement = made.await?;
    if statement.reconciled == Some(false) {
        tracing::error!(event = "ledger_divergence", account = %caller.card.address);
        divergence(&app.doors, &caller.card.address).await?;
    }
    if !csv {
        return Ok(Reply::ok(statement.to_json()));
    }
    let mut reply = Reply::text("text/csv; charset=utf-8", statement.to_csv());
    reply.file_name = Some(statement.csv_name(app.doors.now()));
    Ok(reply)
}

/// `GET /libro/diario`: a page of the journal by entry number, and a page of balances by account.
pub async fn journal(app: &App, call: Call) -> Result<Reply, Refusal> {
    let from = call.query("from").and_then(|text| text.parse().ok()).unwrap_or(1);
    let limit = page(call.query("limit"), limits::JOURNAL_PAGE_MAX, limits::JOURNAL_PAGE_MAX);
    let after = call.query("after").unwrap_or_default().to_owned();
    let read = app
        .doors
        .read(move |reader| Ok((reader.balances(&after, limit)?, reader.journal(from, limit)?, reader.journal_last())));
    let (balances, entries, last) = read.await?;
    let next = entries.last().map(|entry| entry.n + 1).filter(|next| *next <= last);
    let next_account = (balances.len() == limit).then(|| balances.last().map(|(name, _)| name.clone())).flatten();
    let balances: Map<String, Value> = balances.into_iter().map(|(name, sum)| (name, sum.into())).collect();
    let journal: Vec<Doc> = entries.into_iter().map(|entry| entry.doc).collect();
    Ok(Reply::ok(json!({
        "balances": balances, "journal": journal, "last": last, "next": next, "next_account": next_account,
    })))
}

/// `POST /libro/topup {account, amount, concept?, id?}`. The same id with the same request is answered with the first
/// entry and `duplicate: true`, which is beside the entry and not under its signature.
pub async fn topup(app: &App, call: Call) -> Result<Reply, Refusal> {
    let body = call.json()?;
    let account = body.get("account").and_then(Value::as_str).unwrap_or_default();
    let account = Address::parse(account)
        .map_err(|refusal| Refusal::new(Rule::BadAddress, format!("account: {}", refusal.reason)))?;
    let amount = Amount::from_json(body.get("amount"), "amount")?;
    let concept = match body.get("concept") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) if text.chars().count() <= limits::CONCEPT_CHARS_MAX => Some(text.clone()),
        Some(_) => {
            let reason = format!("concept must be a text of at most {} characters", limits::CONCEPT_CHARS_MAX);
            return Err(Refusal::new(Rule::BadField, reason));
        }
    };
    let id = match body.get("id") {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) if is_id(id) => Some(id.clone()),
        Some(_) => {
            let reason = "id must be 8 to 128 characters of A-Z a-z 0-9 . _ : -";
            return Err(Refusal::new(Rule::BadField, reason));
        }
    };
    let asked = Issue { id, account, amount, concept };
    let (house, now, seed) = (app.doors.house(), app.doors.now(), app.doors.seed()?);
    let cards = Cards::new();
    let issued = app.doors.commit(move |view| {
        let ctx = Ctx { house: &house, view, now, cards: &cards };
        let mut books = Books::open(view);
        let issued = libro::issue(&ctx, &mut books, &mut Ids::from_seed(seed), &asked)?;
        Ok(Decision { changes: books.into_changes(), reply: issued })
    });
    let Issued { entry, duplicate } = issued.await?;
    Ok(answered(match duplicate {
        true => Answer::new(200, entry.with("duplicate", Value::from(true).into())),
        false => Answer::new(201, entry),
    }))
}

/// The contract of the path, for its parties alone.
async fn own_contract(app: &App, call: &Call) -> Result<Contract, Refusal> {
    let caller = call.caller()?;
    app.doors.spend(caller).await?;
    let id = call.param("id").to_owned();
    let found = app.doors.read(move |reader| Ok(reader.contract(&id))).await?;
    let contract = found.ok_or_else(|| Refusal::new(Rule::NoSuchContract, "no such contract"))?;
    if !contract.parties().contains(&caller.card.address) {
        return Err(Refusal::new(Rule::NotAParty, "only its parties may read a contract"));
    }
    Ok(contract)
}

fn own_account(asked: &str, own: &Address) -> Result<(), Refusal> {
    if asked == own.as_str() {
        return Ok(());
    }
    Err(Refusal::new(Rule::NotYours, format!("{own} may only read its own account")))
}

/// For the operator: the books and a statement made from them disagree.
async fn divergence(doors: &Doors, account: &Address) -> Result<(), Refusal> {
    let (at, actor) = (doors.now(), account.to_string());
    let note = doors.commit(move |_| {
        let event = Change::Event { name: "ledger_divergence", at, actor: actor.clone(), data: json!({}) };
        Ok(Decision { changes: vec![event], reply: () })
    });
    note.await
}
