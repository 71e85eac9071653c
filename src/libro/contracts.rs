//! Contracts made from quotes: accepted, delivered, released, refunded, reclaimed, expired.

use super::Op;
use super::books::Posting;
use super::doing::{Doing, Rates, Receipt, bad, referrer};
use super::mandates;
use super::money::Movement;
use super::rights::{Act, may};
use crate::arbiter;
use crate::limits;
use crate::probe::plan::{acceptable, declared};
use crate::probe::url::UrlPolicy;
use crate::record::agent::{messages_only, stands};
use crate::record::house::OnUndecided;
use crate::record::ledger::{ContractKindText, quote_key};
use crate::record::{Change, Contract, ContractState, House, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::Doc;
use crate::wire::address::{Address, SystemName};
use crate::wire::amount::Amount;
use crate::wire::card::AgentCard;
use crate::wire::digest::Sha256;
use crate::wire::json::{canonical, canonical_sha256};
use crate::wire::quote::{ContractKind, OP_MEDIA, Quote};
use serde_json::{Map, Value, json};

/// When silence pays this contract, or why it does not: it has no deadline, it is not delivered, or this house's own
/// arbiter is to judge it. A delivery asks before it leaves the order with the clock; `expire` asks again.
pub fn expiry(contract: &Contract, house: &House) -> Result<Timestamp, Refusal> {
    let deadline = contract.deadline().ok_or_else(|| no_deadline("expire"))?;
    let delivered = contract
        .delivered()
        .ok_or_else(|| Refusal::new(Rule::WrongState, "nothing was delivered, so silence accepts nothing"))?;
    if contract.is_arbitrated_by(&house.domain) && house.settings.on_undecided_at_expiry != OnUndecided::Expire {
        return Err(Refusal::new(
            Rule::WrongState,
            "this house's arbiter has not decided: silence does not pay, the parties may settle by hand",
        ));
    }
    Ok(house.review_ends(deadline, delivered))
}

/// Whether a deferred letter of this house has nothing more to do, because the contract it is about has ended: a deadline
/// notice, or the clock's order to expire it.
pub fn is_moot(view: &dyn View, letter: &Value) -> bool {
    let Some(content) = letter.get("content") else { return false };
    let says = |name: &str| content.get("body").and_then(|body| body.get(name)).and_then(Value::as_str);
    let notice = says("aviso") == Some(DEADLINE_NOTICE);
    let contract = says("contract").filter(|_| notice || is_clock_order(letter)).and_then(|id| view.contract(id));
    contract.is_some_and(|contract| contract.state.terminal())
}

/// When the clock's order to expire a contract may be done, while there is something to do. It can come too early: clocks
/// are set back, and reviews are made longer. Such an order waits; it is the only one that there will be.
pub fn order_due(house: &House, view: &dyn View, letter: &Value) -> Option<Timestamp> {
    let id = letter.pointer("/content/body/contract").and_then(Value::as_str).filter(|_| is_clock_order(letter))?;
    let contract = view.contract(id).filter(|contract| contract.state == ContractState::Delivered)?;
    expiry(&contract, house).ok()
}

fn is_clock_order(letter: &Value) -> bool {
    let says = |pointer: &str, word: &str| letter.pointer(pointer).and_then(Value::as_str) == Some(word);
    says("/content/media", OP_MEDIA)
        && says("/content/body/op", Op::Expire.as_str())
        && letter.get("from") == letter.pointer("/to/0")
}

pub(super) fn accept(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let (house, now) = (doing.ctx.house, doing.now());
    let quote = doing.body.get("quote").unwrap_or(&Value::Null);
    let quote = Quote::parse(quote, &house.domain, doing.sender(), now, house.settings.fee_bps)?;
    distinct_hands(&quote, house)?;
    if canonical(&quote.terms).len() > limits::TERMS_BYTES_MAX {
        return Err(Refusal::new(
            Rule::BadQuote,
            format!("quote.terms are longer than {} bytes", limits::TERMS_BYTES_MAX),
        ));
    }
    let seller = seller_card(doing, &quote)?;
    published(&quote, &seller)?;
    if doing.ctx.view.contract_of_quote(&quote_key(&quote.seller, &quote.id)).is_some() {
        return Err(Refusal::new(Rule::QuoteUsed, format!("the quote {} was accepted already", quote.id)));
    }
    if let Some(referrer) = &quote.referrer
        && house.is_mine(&referrer.address)
    {
        // Whom the buyer may not see is answered as nobody.
        super::pay::payee(doing, &referrer.address)?;
        super::stamps::spender(doing.ctx, &referrer.address)?;
    }
    let mut contract = from_quote(doing, &quote);
    judgeable_terms(&contract, house)?;
    doing.within_cap(quote.price)?;

    let rates = Rates::of(&contract, house.settings.fee_bps);
    let mut refs = doing.refs_of(&contract.id);
    refs.insert("quote".into(), quote.id.as_str().into());
    refs.insert("quote_sha256".into(), quote.sha256.hex().into());
    let label = format!("{} {}: {}", quote.kind.as_str(), contract.id, quote.concept);
    let mut mandate = None;
    let entry = match quote.kind {
        ContractKind::Spot => {
            let casa = house.casa();
            let (from, to) = (quote.buyer.as_str(), quote.seller.as_str());
            let movement = Movement::shared(from, to, quote.price, rates.shares(&casa, quote.referrer.as_ref()));
            Some(doing.post(Posting::of(movement, "charge", label, refs).meta("contract", contract.id.as_str()))?)
        }
        ContractKind::Escrow => {
            let movement = Movement::whole(quote.buyer.as_str(), &contract.escrow_account(), quote.price);
            Some(doing.post(Posting::of(movement, "hold", label, refs).meta("contract", contract.id.as_str()))?)
        }
        ContractKind::Metered | ContractKind::Bond => {
            mandate = Some(mandates::of_contract(doing, &quote, &contract.id)?);
            doing.control(refs)?;
            None
        }
    };
    let mut extra = Map::new();
    if let Some(entry) = &entry {
        extra.insert("asiento".into(), entry.id.as_str().into());
    }
    if let Some(mandate) = &mandate {
        contract.more.insert("mandate".into(), mandate.id.as_str().into());
        extra.insert("mandate".into(), mandate.id.as_str().into());
    }
    contract.history.push(item(doing, extra));
    doing.change(Change::InsertContract(contract.clone()));
    if arbiter::judgeable(&contract) && contract.is_arbitrated_by(&house.domain) {
        doing.change(Change::PutLook(arbiter::look_for(&contract, now)));
    }
    doing.event("first_quote", &quote.buyer, json!({"contract": contract.id, "kind": quote.kind.as_str()}));

    let mut body = json!({"contract": contract.to_json(), "cotizacion_sha256": quote.sha256});
    let mandate = mandate.map(|mandate| json!(mandate));
    put(&mut body, "mandate", mandate.clone());
    let asiento = entry.as_ref().map(|entry| entry.doc.clone());
    doing.receipt(Receipt {
        to: contract.parties(),
        thread: Some(contract.id.clone()),
        body: with_entry(body, asiento.clone()),
        entry: entry.as_ref().map(|entry| (entry, rates)),
    });
    deadline_notice(doing, &contract);
    let result = json!({"contract": contract.to_json(), "asiento": null, "mandate": mandate});
    Ok(with_entry(result, asiento))
}

fn with_entry(doc: Value, entry: Option<Doc>) -> Doc {
    match entry {
        Some(entry) => Doc::from(doc).with("asiento", entry),
        None => doc.into(),
    }
}

pub(super) fn deliver(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let (house, now) = (doing.ctx.house, doing.now());
    let mut contract = doing.contract()?;
    may(Act::Deliver, &contract, doing.sender(), house, now)?;
    let text = doing.text("evidence")?;
    if text.is_some_and(|text| text.len() > limits::EVIDENCE_BYTES_MAX) {
        return Err(bad(format!(
            "evidence is longer than {} bytes; publish it and deliver its evidence_sha256",
            limits::EVIDENCE_BYTES_MAX
        )));
    }
    let sha256 = match doing.text("evidence_sha256")? {
        None => None,
        Some(hex) => Some(Sha256::parse(hex).ok_or_else(|| bad("evidence_sha256 must be 64 hex digits"))?),
    };
    if let (Some(text), Some(sha256)) = (text, sha256)
        && Sha256::of(text) != sha256
    {
        return Err(bad("evidence_sha256 is not the SHA-256 of evidence; send one of them, or both in agreement"));
    }
    let note = doing.label("note", limits::NOTE_CHARS_MAX)?;
    contract.state = ContractState::Delivered;
    contract.updated = now;
    contract.more.insert("evidence_sha256".into(), json!(sha256));
    put_map(&mut contract.more, "evidence", text.map(Value::from));
    let extra = Map::from_iter([("evidence_sha256".to_owned(), json!(sha256)), ("note".to_owned(), json!(note))]);
    contract.history.push(item(doing, extra));
    doing.control(doing.refs_of(&contract.id))?;
    doing.change(Change::PutContract(contract.clone()));
    if contract.is_arbitrated_by(&house.domain) {
        doing.change(Change::PutLook(arbiter::look_for(&contract, now)));
    }
    doing.receipt(Receipt {
        to: contract.parties(),
        thread: Some(contract.id.clone()),
        body: json!({"contract": contract.to_json()}).into(),
        entry: None,
    });
    if let Ok(review_ends) = expiry(&contract, house) {
        let order = json!({"op": Op::Expire.as_str(), "contract": contract.id});
        doing.order(contract.id.clone(), review_ends, order);
    }
    Ok(json!({"contract": contract.to_json()}).into())
}

pub(super) fn release(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let contract = doing.contract()?;
    may(Act::Release, &contract, doing.sender(), doing.ctx.house, doing.now())?;
    if contract.kind() == ContractKind::Bond {
        let movement = whole(&contract, &contract.seller)?;
        let extra = said(doing)?;
        return end(doing, contract, Ending { movement, kind: "bond-release", state: ContractState::Released, extra });
    }
    let movement = payment(doing, &contract)?;
    let extra = said_of(doing, &contract, true)?;
    let by_arbiter = contract.arbiter.as_ref() == Some(doing.sender());
    doing.event(
        "escrow_released",
        &contract.seller,
        json!({"contract": contract.id, "amount": contract.amount, "by": doing.sender(), "arbitrado": by_arbiter}),
    );
    end(doing, contract, Ending { movement, kind: "release", state: ContractState::Released, extra })
}

pub(super) fn refund(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let contract = doing.contract()?;
    may(Act::Refund, &contract, doing.sender(), doing.ctx.house, doing.now())?;
    let extra = said_of(doing, &contract, false)?;
    let movement = whole(&contract, buyer(&contract)?)?;
    let by_arbiter = contract.arbiter.as_ref() == Some(doing.sender());
    doing.event(
        "escrow_refunded",
        buyer(&contract)?,
        json!({"contract": contract.id, "amount": contract.amount, "by": doing.sender(), "arbitrado": by_arbiter}),
    );
    end(doing, contract, Ending { movement, kind: "refund", state: ContractState::Refunded, extra })
}

pub(super) fn reclaim(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let contract = doing.contract()?;
    let house = doing.ctx.house;
    may(Act::Reclaim, &contract, doing.sender(), house, doing.now())?;
    let deadline = contract.deadline().ok_or_else(|| no_deadline("reclaim"))?;
    let from = deadline.plus(house.settings.reclaim_grace_ms);
    if doing.now() < from {
        return Err(Refusal::new(
            Rule::TooEarly,
            format!("an undelivered escrow can be reclaimed from {from}, its deadline and the house's grace"),
        ));
    }
    let mut extra = said(doing)?;
    extra.insert("deadline".into(), json!(deadline));
    let movement = whole(&contract, buyer(&contract)?)?;
    doing.event(
        "escrow_refunded",
        buyer(&contract)?,
        json!({"contract": contract.id, "amount": contract.amount, "by": doing.sender(), "reclaimed": true}),
    );
    end(doing, contract, Ending { movement, kind: "reclaim", state: ContractState::Refunded, extra })
}

pub(super) fn expire(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let house = doing.ctx.house;
    if !doing.sender().is_system(&house.domain, SystemName::Libro) {
        return Err(Refusal::new(Rule::NotAParty, "only the clock of the house may expire a contract"));
    }
    let contract = doing.contract()?;
    may(Act::Expire, &contract, doing.sender(), house, doing.now())?;
    let review_until = expiry(&contract, house)?;
    if doing.now() < review_until {
        return Err(Refusal::new(Rule::TooEarly, format!("the review of this delivery lasts until {review_until}")));
    }
    let movement = payment(doing, &contract)?;
    let extra = Map::from_iter([("review_until".to_owned(), json!(review_until))]);
    let data = json!({"contract": contract.id, "amount": contract.amount, "by": doing.sender(), "expired": true});
    doing.event("escrow_released", &contract.seller, data.clone());
    doing.event("escrow_expired", &contract.seller, data);
    end(doing, contract, Ending { movement, kind: "expire", state: ContractState::Released, extra })
}

/// How a contract ends.
pub(super) struct Ending {
    pub movement: Movement,
    /// What the entry's meta calls it.
    pub kind: &'static str,
    pub state: ContractState,
    /// What the history keeps beside the entry.
    pub extra: Map<String, Value>,
}

/// The one way in which a contract ends: one entry empties what it holds, its state becomes terminal, the arbiter's work
/// on it is over, and every party is told.
pub(super) fn end(doing: &mut Doing<'_, '_>, mut contract: Contract, ending: Ending) -> Result<Doc, Refusal> {
    let rates = Rates::of(&contract, doing.ctx.house.settings.fee_bps);
    let (verb, kind) = (doing.name.as_str(), contract.kind().as_str());
    let about = if contract.concept.is_empty() { claim(&contract) } else { contract.concept.as_str() };
    let about: String = about.chars().take(limits::CONCEPT_CHARS_MAX).collect();
    let label = format!("{verb} {kind} {}: {about}", contract.id);
    let mut posting = Posting::of(ending.movement, ending.kind, label, doing.refs_of(&contract.id));
    posting = posting.meta("contract", contract.id.as_str());
    if let Some(reason) = ending.extra.get("reason") {
        posting = posting.meta("reason", reason.clone());
    }
    let entry = doing.post(posting)?;

    // What the arbiter saw of a contract that somebody else ended supports nothing.
    let judged = ending.extra.contains_key("veredicto");
    let mut extra = ending.extra;
    extra.insert("asiento".into(), entry.id.as_str().into());
    contract.history.push(item(doing, extra));
    contract.state = ending.state;
    contract.updated = doing.now();
    doing.change(Change::PutContract(contract.clone()));
    if let Some(mut look) = doing.ctx.view.look(&contract.id) {
        look.done = true;
        doing.change(Change::PutLook(look));
        if !judged {
            doing.change(Change::ForgetEvidence { contract: contract.id.clone() });
        }
    }
    let mut body = json!({"contract": contract.to_json()});
    let result = Doc::from(body.clone()).with("asiento", entry.doc.clone());
    let silence = (doing.name == Op::Expire).then(|| {
        "the deadline and the review window passed without an objection: the delivery counts as accepted by silence"
            .into()
    });
    put(&mut body, "note", silence);
    let mut to = contract.parties();
    if contract.kind() == ContractKind::Bond {
        to = super::bonds::concerned(&contract, doing.ctx.house);
    }
    let body = Doc::from(body).with("asiento", entry.doc.clone());
    doing.receipt(Receipt { to, thread: Some(contract.id.clone()), body, entry: Some((&entry, rates)) });
    Ok(result)
}

/// Everything that a contract holds, back or forth, without a fee.
pub(super) fn whole(contract: &Contract, to: &Address) -> Result<Movement, Refusal> {
    Ok(Movement::whole(&contract.escrow_account(), to.as_str(), held(contract)?))
}

/// A history item: who did what when.
pub(super) fn item(doing: &Doing<'_, '_>, extra: Map<String, Value>) -> Value {
    let mut item = extra;
    item.insert("at".into(), json!(doing.now()));
    item.insert("op".into(), doing.name.as_str().into());
    item.insert("by".into(), doing.sender().as_str().into());
    Value::Object(item)
}

fn payment(doing: &Doing<'_, '_>, contract: &Contract) -> Result<Movement, Refusal> {
    let (casa, referrer) = (doing.ctx.house.casa(), referrer(contract));
    let rates = Rates::of(contract, doing.ctx.house.settings.fee_bps);
    let shares = rates.shares(&casa, referrer.as_ref());
    Ok(Movement::shared(&contract.escrow_account(), contract.seller.as_str(), held(contract)?, shares))
}

fn held(contract: &Contract) -> Result<Amount, Refusal> {
    Amount::new(contract.amount).ok_or_else(|| Refusal::new(Rule::BadAmount, "the contract holds nothing"))
}

fn buyer(contract: &Contract) -> Result<&Address, Refusal> {
    contract.buyer.as_ref().ok_or_else(|| Refusal::new(Rule::WrongKind, "the contract has no buyer"))
}

fn claim(contract: &Contract) -> &str {
    contract.more.get("claim").and_then(Value::as_str).unwrap_or_default()
}

/// The note that came with a decision.
fn said(doing: &Doing<'_, '_>) -> Result<Map<String, Value>, Refusal> {
    let note = doing.label("note", limits::NOTE_CHARS_MAX)?;
    Ok(note.map(|note| ("note".to_owned(), Value::from(note))).into_iter().collect())
}

/// As [`said`], and the verdict of an arbiter, for both outcomes. A verdict that says the opposite of the operation that
/// carries it, is about another contract, or was reached before this one was last changed, decides nothing.
fn said_of(doing: &mut Doing<'_, '_>, contract: &Contract, releases: bool) -> Result<Map<String, Value>, Refusal> {
    let mut extra = said(doing)?;
    let verdict = doing.body.get("veredicto").filter(|value| !value.is_null());
    let Some(verdict) = verdict.filter(|_| contract.arbiter.as_ref() == Some(doing.sender())) else {
        return Ok(extra);
    };
    let pasa = verdict.get("pasa").and_then(Value::as_bool);
    let undecided = verdict.get("indeciso").and_then(Value::as_bool) == Some(true);
    if pasa != Some(releases) || undecided {
        return Err(bad(format!("veredicto does not say pasa: {releases}, which {} needs", doing.name.as_str())));
    }
    if let Some(named) = verdict.get("contract")
        && named.as_str() != Some(contract.id.as_str())
    {
        return Err(bad("veredicto is about another contract"));
    }
    let reached = verdict.get("at").and_then(Value::as_str).and_then(Timestamp::parse);
    if reached.is_some_and(|reached| reached < contract.updated) {
        let why = format!("the contract changed at {}, after the verdict was reached: look again", contract.updated);
        return Err(Refusal::new(Rule::WrongState, why));
    }
    let kept = if canonical(verdict).len() <= limits::VERDICT_BYTES_MAX {
        verdict.clone()
    } else {
        json!({
            "pasa": releases, "sha256": canonical_sha256(verdict), "omitted": "longer than a contract keeps",
            "evidence": verdict.get("evidence"),
        })
    };
    extra.insert("veredicto".into(), kept);
    if doing.sender().is_system(&doing.ctx.house.domain, SystemName::Verifica) {
        let types: Vec<&str> = match contract.tests() {
            Some(Value::Array(tests)) => tests.iter().filter_map(|test| test.get("type")?.as_str()).collect(),
            Some(test) => test.get("type").and_then(Value::as_str).into_iter().collect(),
            None => Vec::new(),
        };
        let data = json!({"contract": contract.id, "pasa": releases, "pruebas": types, "amount": contract.amount});
        doing.event("verificado", doing.sender(), data);
    }
    Ok(extra)
}

/// A deal has two sides, and whoever decides it is neither.
fn distinct_hands(quote: &Quote, house: &House) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal::new(Rule::BadQuote, why));
    if quote.buyer == quote.seller {
        return refuse("the buyer is the seller: such a deal proves nothing and is not kept".into());
    }
    if let Some(arbiter) = &quote.arbiter
        && (arbiter == &quote.buyer || arbiter == &quote.seller)
    {
        return refuse(format!("the arbiter {arbiter} is a party: name somebody else, or null"));
    }
    if quote.referrer.as_ref().is_some_and(|referrer| referrer.address == house.casa()) {
        return Err(Refusal::new(Rule::BadReferrer, "the house takes its fee and cannot be the referrer"));
    }
    Ok(())
}

/// The seller's card as certified now, once the quote's signature verifies with one of its keys. Of a name of this house
/// nothing is told before that, so that a forged quote does not find out who exists.
fn seller_card(doing: &Doing<'_, '_>, quote: &Quote) -> Result<AgentCard, Refusal> {
    let (house, seller, now) = (doing.ctx.house, &quote.seller, doing.now());
    let mine = house.is_mine(seller);
    let resolved = match doing.ctx.cards.get(seller) {
        Some(Ok(card)) => Some(card.clone()),
        Some(Err(refusal)) if refusal.transient() => {
            let why = format!("the card of the seller {seller}: {}", refusal.reason);
            return Err(Refusal::new(Rule::SenderUnreachable, why));
        }
        Some(Err(_)) if mine => None,
        Some(Err(refusal)) => {
            let why = format!("the card of the seller {seller}: {}", refusal.reason);
            return Err(Refusal::new(Rule::BadQuoteSignature, why));
        }
        None => {
            let why = format!("the card of the seller {seller} was not resolved");
            return Err(Refusal::new(Rule::SenderUnreachable, why));
        }
    };
    // Of this house's own agents the record inside the transaction is newer than anything resolved before it.
    let card = if mine { doing.ctx.view.agent(seller.local()).map(|record| record.card) } else { resolved.clone() };
    let signed = |card: &AgentCard| {
        card.accepted_key(&quote.kid, now).is_some_and(|key| key.verify_object(quote.doc(), "signature"))
    };
    let Some(card) = card.filter(signed) else {
        let why = format!("the quote is not signed by a current key of the seller {seller}");
        return Err(Refusal::new(Rule::BadQuoteSignature, why));
    };
    if resolved.is_none() || card.ended(now) || (mine && stands(doing.ctx.view, &card, now).is_err()) {
        let why = format!("the card of the seller {seller} is revoked or past its date");
        return Err(Refusal::new(Rule::BadQuoteSignature, why));
    }
    if card.messages_only() || (mine && messages_only(doing.ctx.view, &card)) {
        return Err(Refusal::new(Rule::OutOfScope, format!("the seller {seller} is a messages-only address")));
    }
    Ok(card)
}

/// A quote that names a service says exactly what the seller's catalogue says today.
fn published(quote: &Quote, seller: &AgentCard) -> Result<(), Refusal> {
    let Some(id) = &quote.service else { return Ok(()) };
    let refuse = |why: String| Err(Refusal::new(Rule::BadQuote, why));
    let services = seller.doc().get("profile").and_then(|p| p.get("services")).and_then(Value::as_array);
    let entry = services.into_iter().flatten().find(|s| s.get("id").and_then(Value::as_str) == Some(id));
    let shown: String = id.chars().take(80).flat_map(char::escape_debug).collect();
    let Some(entry) = entry else {
        return refuse(format!("the profile of {} publishes no service {shown}", quote.seller));
    };
    let price = entry.get("price").and_then(|price| price.get("tokens")).and_then(Value::as_u64);
    let kind = entry.get("contract").and_then(Value::as_str);
    if price != Some(quote.price.tokens()) || kind != Some(quote.kind.as_str()) {
        return refuse(format!(
            "the service {shown} is published at {} tok as {}; the quote says {} as {}",
            price.map_or("no".to_owned(), |p| p.to_string()),
            kind.unwrap_or("nothing"),
            quote.price,
            quote.kind.as_str()
        ));
    }
    Ok(())
}

/// No deal of any kind is made over a test that this house's arbiter could not decide: a spot or metered deal holds no
/// money for a verdict, but its parties may still point at the test they agreed on.
fn judgeable_terms(contract: &Contract, house: &House) -> Result<(), Refusal> {
    let arbiter = contract.arbiter.as_ref();
    let ours = arbiter.is_some_and(|arbiter| arbiter.is_system(&house.domain, SystemName::Verifica));
    if !ours {
        return Ok(());
    }
    if declared(&contract.terms).is_none() {
        // Held tokens that nobody would ever judge; another kind of contract holds none.
        let why = "terms.verify declares no tests, so verifica@ of this house would never decide; declare them or name no arbiter";
        return if contract.kind() == ContractKind::Escrow { Err(Refusal::new(Rule::BadTests, why)) } else { Ok(()) };
    }
    if !house.settings.arbiter {
        let why = "this house runs no arbiter; name another one or leave out terms.verify";
        return Err(Refusal::new(Rule::BadTests, why));
    }
    let policy = UrlPolicy { addresses: house.settings.addresses.clone() };
    acceptable(&contract.terms, &policy, &house.settings.capabilities).map_err(|why| Refusal::new(Rule::BadTests, why))
}

fn from_quote(doing: &mut Doing<'_, '_>, quote: &Quote) -> Contract {
    let mut more = Map::from_iter([
        ("quote_sha256".to_owned(), json!(quote.sha256)),
        ("accept_sha256".to_owned(), Value::from(doing.sha256)),
        ("fee_bps".to_owned(), doing.ctx.house.settings.fee_bps.into()),
    ]);
    put_map(&mut more, "service", quote.service.clone().map(Value::from));
    Contract {
        id: doing.ids.uuid(),
        kind: ContractKindText(quote.kind),
        house: doing.ctx.house.domain.clone(),
        seller: quote.seller.clone(),
        buyer: Some(quote.buyer.clone()),
        verifier: None,
        amount: quote.price.tokens(),
        concept: quote.concept.clone(),
        terms: quote.terms.clone(),
        arbiter: quote.arbiter.clone(),
        referrer: quote.referrer.as_ref().map(|r| json!({"address": r.address, "share": r.share})),
        quote_id: Some(quote.id.clone()),
        state: match quote.kind {
            ContractKind::Spot => ContractState::Settled,
            ContractKind::Escrow => ContractState::Held,
            ContractKind::Metered | ContractKind::Bond => ContractState::Active,
        },
        created: doing.now(),
        updated: doing.now(),
        history: Vec::new(),
        more,
    }
}

/// A reminder for all parties at the deadline, later, or at once where it has passed. A contract that is over already
/// has no deadline left to keep.
fn deadline_notice(doing: &mut Doing<'_, '_>, contract: &Contract) {
    let Some(deadline) = contract.deadline().filter(|_| !contract.state.terminal()) else { return };
    let kind = contract.kind().as_str();
    let message = format!(
        "the deadline of the {kind} {} is {deadline}; when this was written the contract was {}",
        contract.id,
        contract.state.as_str()
    );
    let body = json!({
        "aviso": DEADLINE_NOTICE, "contract": contract.id, "kind": kind, "deadline": deadline, "message": message,
    });
    let after = (deadline > doing.now()).then_some(deadline);
    doing.letter(contract.parties(), Some(contract.id.clone()), None, after, body.into());
}

fn no_deadline(act: &str) -> Refusal {
    Refusal::new(Rule::NoDeadline, format!("the terms have no deadline, so there is no time from which to {act}"))
}

fn put(body: &mut Value, field: &str, value: Option<Value>) {
    if let (Some(body), Some(value)) = (body.as_object_mut(), value) {
        body.insert(field.to_owned(), value);
    }
}

fn put_map(map: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    if let Some(value) = value {
        map.insert(field.to_owned(), value);
    }
}

/// `aviso` of a deadline notice.
const DEADLINE_NOTICE: &str = "plazo";
