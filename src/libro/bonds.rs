//! Bonds (*fianzas*): tokens that somebody deposits beside an assertion, and that a verifier gives back or forfeits.

use super::books::Posting;
use super::contracts::{Ending, end, item, whole};
use super::doing::{Doing, Receipt, bad, distinct};
use super::money::Movement;
use super::pay::payee;
use super::rights::{Act, may};
use super::stamps::spender;
use crate::limits;
use crate::record::ledger::ContractKindText;
use crate::record::{Change, Contract, ContractState, House};
use crate::refusal::Refusal;
use crate::wire::Doc;
use crate::wire::address::Address;
use crate::wire::digest::Sha256;
use crate::wire::quote::ContractKind;
use serde_json::{Map, Value, json};

pub(super) fn bond(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let (house, now, poster) = (doing.ctx.house, doing.now(), doing.sender().clone());
    let claim = doing.required_text("claim")?;
    if claim.chars().count() > limits::CLAIM_CHARS_MAX {
        return Err(bad(format!("claim is longer than {} characters", limits::CLAIM_CHARS_MAX)));
    }
    let verifier = doing.required_address("verifier")?;
    let beneficiary = doing.address("beneficiary")?.unwrap_or_else(|| house.casa());
    let arbiter = doing.address("arbiter")?;
    let vouchee = doing.address("vouchee")?;
    for (field, address) in
        [("verifier", Some(&verifier)), ("arbiter", arbiter.as_ref()), ("beneficiary", Some(&beneficiary))]
    {
        if address == Some(&poster) {
            return Err(bad(format!("{field} is who posts the bond: nothing would be at stake")));
        }
    }
    let evidence = match doing.text("evidence_sha256")? {
        None => None,
        Some(hex) => Some(Sha256::parse(hex).ok_or_else(|| bad("evidence_sha256 must be 64 hex digits"))?),
    };
    let expires = doing.instant("expires")?;
    let amount = doing.amount("amount")?;
    doing.within_cap(amount)?;
    // Whom the poster may not see is answered as nobody.
    if house.is_mine(&beneficiary) && beneficiary != house.casa() {
        payee(doing, &beneficiary)?;
        spender(doing.ctx, &beneficiary)?;
    }
    if house.is_mine(&verifier) {
        let theirs = payee(doing, &verifier)?;
        if theirs.system && expires.is_none() {
            return Err(bad(format!("{verifier} judges no bonds, and without expires this one would never come back")));
        }
    }

    let mut contract = Contract {
        id: doing.ids.uuid(),
        kind: ContractKindText(ContractKind::Bond),
        house: house.domain.clone(),
        seller: poster,
        buyer: None,
        verifier: Some(verifier),
        amount: amount.tokens(),
        concept: String::new(),
        terms: Value::Null,
        arbiter,
        referrer: None,
        quote_id: None,
        state: ContractState::Posted,
        created: now,
        updated: now,
        history: Vec::new(),
        more: Map::from_iter([
            ("claim".to_owned(), Value::from(claim)),
            ("claim_sha256".to_owned(), Value::from(doing.sha256)),
            ("beneficiary".to_owned(), json!(beneficiary)),
            ("vouchee".to_owned(), json!(vouchee)),
            ("evidence_sha256".to_owned(), json!(evidence)),
            ("expires".to_owned(), json!(expires)),
        ]),
    };
    let about: String = claim.chars().take(limits::CONCEPT_CHARS_MAX).collect();
    let label = format!("bond {}: {about}", contract.id);
    let movement = Movement::whole(contract.seller.as_str(), &contract.escrow_account(), amount);
    let posting = Posting::of(movement, "bond", label, doing.refs_of(&contract.id));
    let entry = doing.post(posting.meta("contract", contract.id.as_str()))?;
    let extra = Map::from_iter([("asiento".to_owned(), Value::from(entry.id.as_str()))]);
    contract.history.push(item(doing, extra));
    doing.change(Change::InsertContract(contract.clone()));
    let body = Doc::from(json!({"contract": contract.to_json()})).with("asiento", entry.doc);
    doing.receipt(Receipt {
        to: concerned(&contract, house),
        thread: Some(contract.id.clone()),
        body: body.clone(),
        entry: None,
    });
    Ok(body)
}

pub(super) fn forfeit(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let contract = doing.contract()?;
    may(Act::Forfeit, &contract, doing.sender(), doing.ctx.house, doing.now())?;
    let reason = doing.label("reason", limits::NOTE_CHARS_MAX)?;
    let movement = whole(&contract, &beneficiary(&contract, doing.ctx.house))?;
    let extra = Map::from_iter([("reason".to_owned(), json!(reason))]);
    let data = json!({"contract": contract.id, "amount": contract.amount, "by": doing.sender()});
    doing.event("bond_forfeited", &contract.seller, data);
    end(doing, contract, Ending { movement, kind: "forfeit", state: ContractState::Forfeited, extra })
}

/// Everybody whom a bond is about, who may not all be parties. The house itself needs no letter.
pub(super) fn concerned(contract: &Contract, house: &House) -> Vec<Address> {
    let named = |field: &str| contract.more.get(field).and_then(Value::as_str).and_then(|a| Address::parse(a).ok());
    let others = [named("beneficiary"), named("vouchee")].into_iter().flatten();
    let casa = house.casa();
    distinct(contract.parties().into_iter().chain(others)).into_iter().filter(|address| address != &casa).collect()
}

fn beneficiary(contract: &Contract, house: &House) -> Address {
    let named = contract.more.get("beneficiary").and_then(Value::as_str);
    named.and_then(|a| Address::parse(a).ok()).unwrap_or_else(|| house.casa())
}
