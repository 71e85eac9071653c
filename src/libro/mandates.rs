//! Mandates: authority to spend somebody else's tokens, up to a cap, in chains that can only narrow.
//!
//! A mandate's scope is a closed vocabulary and fails closed: a restriction that this ledger cannot enforce is refused
//! when it is given, and again when it is charged against. Caps and ceilings are checked at every link.

use super::books::Posting;
use super::doing::{Doing, Rates, Receipt, bad, distinct};
use super::money::Movement;
use crate::limits;
use crate::record::agent::stands;
use crate::record::{Change, Mandate, MandateState};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::Doc;
use crate::wire::address::Address;
use crate::wire::amount::Amount;
use crate::wire::quote::Quote;
use serde_json::{Map, Value, json};

pub(super) fn mandate(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let grantor = doing.sender().clone();
    let grantee = doing.required_address("grantee")?;
    if grantee == grantor {
        return Err(bad("the grantee is the grantor: no authority is needed to spend one's own tokens"));
    }
    let cap = doing.amount("cap")?;
    let scope = scope(doing.body.get("scope"), cap)?;
    let expires = doing.instant("expires")?;
    doing.within_cap(cap)?;
    let parent = match doing.text("parent")? {
        None => None,
        Some(id) => Some(narrower(doing, id, cap, expires)?),
    };
    let id = doing.ids.uuid();
    let mut chain = parent.as_ref().map_or_else(Vec::new, |parent| parent.chain.clone());
    chain.push(id.clone());
    let mandate = Mandate {
        id,
        house: doing.ctx.house.domain.clone(),
        root: parent.as_ref().map_or_else(|| grantor.clone(), |parent| parent.root.clone()),
        grantor,
        grantee,
        cap: cap.tokens(),
        spent: 0,
        scope,
        expires: expires.or(parent.as_ref().and_then(|parent| parent.expires)),
        parent: parent.map(|parent| parent.id),
        chain,
        state: MandateState::Active,
        created: doing.now(),
        op_sha256: doing.sha256.to_owned(),
        contract: None,
        revoked: None,
    };
    doing.control(doing.refs())?;
    doing.change(Change::InsertMandate(mandate.clone()));
    doing.event("mandate_created", &mandate.grantor, json!({"mandate": mandate.id, "cap": mandate.cap}));
    doing.receipt(Receipt {
        to: vec![mandate.grantor.clone(), mandate.grantee.clone()],
        thread: mandate.chain.first().cloned(),
        body: json!({"mandate": mandate}).into(),
        entry: None,
    });
    Ok(json!({"mandate": mandate}).into())
}

/// The mandate of a metered contract: the buyer lets the seller charge up to the price.
pub(super) fn of_contract(doing: &mut Doing<'_, '_>, quote: &Quote, contract: &str) -> Result<Mandate, Refusal> {
    let refuse = |r: Refusal| Refusal::new(Rule::BadQuote, format!("quote.terms: {}", r.reason));
    let scope = scope(quote.terms.get("scope"), quote.price).map_err(refuse)?;
    let expires = match quote.terms.get("expires").filter(|value| !value.is_null()) {
        None => quote.expires,
        Some(value) => {
            let at = value.as_str().and_then(Timestamp::parse);
            Some(at.ok_or_else(|| refuse(bad("expires must be a date or an instant with a zone")))?)
        }
    };
    let id = doing.ids.uuid();
    let mandate = Mandate {
        chain: vec![id.clone()],
        id,
        house: doing.ctx.house.domain.clone(),
        grantor: quote.buyer.clone(),
        grantee: quote.seller.clone(),
        root: quote.buyer.clone(),
        cap: quote.price.tokens(),
        spent: 0,
        scope,
        expires,
        parent: None,
        state: MandateState::Active,
        created: doing.now(),
        op_sha256: doing.sha256.to_owned(),
        contract: Some(contract.to_owned()),
        revoked: None,
    };
    doing.change(Change::InsertMandate(mandate.clone()));
    doing.event("mandate_created", &mandate.grantor, json!({"mandate": mandate.id, "cap": mandate.cap}));
    Ok(mandate)
}

pub(super) fn charge(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let leaf = named(doing)?;
    if &leaf.grantee != doing.sender() {
        return Err(Refusal::new(Rule::NotAParty, "only its grantee may charge a mandate"));
    }
    let amount = doing.amount("amount")?;
    let concept = doing.text("concept")?.unwrap_or_default();
    doing.within_cap(amount)?;
    let mut links = Vec::with_capacity(leaf.chain.len());
    for id in leaf.chain.iter().rev() {
        let link =
            doing.ctx.view.mandate(id).ok_or_else(|| no_mandate("a mandate of the chain is not in this ledger"))?;
        chargeable(doing, &link, amount, concept)?;
        links.push(link);
    }
    let house = doing.ctx.house;
    let (casa, rates) = (house.casa(), Rates { fee_bps: house.settings.fee_bps, share: 0 });
    let movement = Movement::shared(leaf.root.as_str(), leaf.grantee.as_str(), amount, rates.shares(&casa, None));
    let ids: Vec<String> = links.iter().map(|link| link.id.clone()).collect();
    let about: String = concept.chars().take(limits::CONCEPT_CHARS_MAX).collect();
    let label = if about.is_empty() { format!("charge {}", leaf.id) } else { format!("charge {}: {about}", leaf.id) };
    let posting = Posting::of(movement, "charge", label, doing.refs());
    let entry = doing.post(posting.meta("mandate", leaf.id.as_str()).meta("chain", ids))?;
    for link in &mut links {
        link.spent = link.spent.saturating_add(amount.tokens());
        doing.change(Change::PutMandate(link.clone()));
    }
    let chain: Vec<Value> = links
        .iter()
        .map(|m| json!({"id": m.id, "grantor": m.grantor, "grantee": m.grantee, "cap": m.cap, "spent": m.spent}))
        .collect();
    let leaf = links.first().cloned().unwrap_or(leaf);
    doing.receipt(Receipt {
        to: distinct(links.iter().flat_map(|m| [m.grantor.clone(), m.grantee.clone()])),
        thread: leaf.chain.first().cloned(),
        body: Doc::from(json!({"mandate": leaf, "chain": chain})).with("asiento", entry.doc.clone()),
        entry: Some((&entry, rates)),
    });
    Ok(Doc::from(json!({"mandate": leaf})).with("asiento", entry.doc))
}

pub(super) fn revoke(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let named = named(doing)?;
    let sender = doing.sender().clone();
    let above = named.chain.iter().filter_map(|id| doing.ctx.view.mandate(id));
    if !above.chain([named.clone()]).any(|mandate| mandate.grantor == sender) {
        return Err(Refusal::new(Rule::NotAParty, "only a grantor of this mandate, or of one above it, may revoke it"));
    }
    let mut affected = doing.ctx.view.mandates_under(&named.id);
    for mandate in &mut affected {
        mandate.state = MandateState::Revoked;
        mandate.revoked = Some(json!({"at": doing.now(), "by": sender}));
        doing.change(Change::PutMandate(mandate.clone()));
    }
    if !affected.is_empty() {
        doing.control(doing.refs())?;
    }
    let revoked: Vec<&str> = affected.iter().map(|mandate| mandate.id.as_str()).collect();
    let body = Doc::from(json!({"revoked": revoked, "by": sender}));
    doing.receipt(Receipt {
        to: distinct(affected.iter().flat_map(|m| [m.grantor.clone(), m.grantee.clone()])),
        thread: named.chain.first().cloned(),
        body: body.clone(),
        entry: None,
    });
    Ok(body)
}

/// The parent of a new mandate, if the new one is within it in every respect.
fn narrower(doing: &Doing<'_, '_>, id: &str, cap: Amount, expires: Option<Timestamp>) -> Result<Mandate, Refusal> {
    let parent = doing.ctx.view.mandate(id).ok_or_else(|| no_mandate("this house has no parent mandate of that id"))?;
    if parent.state != MandateState::Active {
        return Err(Refusal::new(Rule::WrongState, "the parent mandate was revoked"));
    }
    if &parent.grantee != doing.sender() {
        return Err(Refusal::new(Rule::NotAParty, "only its grantee may pass a mandate on"));
    }
    let left = parent.cap.saturating_sub(parent.spent);
    if cap.tokens() > left {
        return Err(Refusal::new(Rule::CapExceeded, format!("the parent mandate has {left} tokens left, not {cap}")));
    }
    if let (Some(until), Some(asked)) = (parent.expires, expires)
        && asked > until
    {
        return Err(Refusal::new(Rule::CapExceeded, format!("the parent mandate ends at {until}, before {asked}")));
    }
    if parent.chain.len() >= limits::MANDATE_CHAIN_MAX {
        let why = format!("a chain of mandates has at most {} links", limits::MANDATE_CHAIN_MAX);
        return Err(Refusal::new(Rule::WrongState, why));
    }
    let root = parent.chain.first().unwrap_or(&parent.id);
    if doing.ctx.view.mandates_under(root).len() >= limits::MANDATES_UNDER_MAX {
        let why = format!("a mandate has at most {} active ones below it", limits::MANDATES_UNDER_MAX);
        return Err(Refusal::new(Rule::WrongState, why));
    }
    Ok(parent)
}

/// Whether one link of a chain admits this charge.
fn chargeable(doing: &Doing<'_, '_>, link: &Mandate, amount: Amount, concept: &str) -> Result<(), Refusal> {
    if link.state != MandateState::Active {
        return Err(Refusal::new(Rule::WrongState, format!("the mandate {} was revoked", link.id)));
    }
    if let Some(until) = link.expires
        && until <= doing.now()
    {
        return Err(Refusal::new(Rule::MandateExpired, format!("the mandate {} expired at {until}", link.id)));
    }
    let left = link.cap.saturating_sub(link.spent);
    if amount.tokens() > left {
        return Err(Refusal::new(Rule::NotEnough, format!("the mandate {} has {left} tokens left", link.id)));
    }
    let scope = Scope::read(&link.scope)
        .map_err(|why| Refusal::new(Rule::OutOfScope, format!("the mandate {}: {}", link.id, why.reason)))?;
    if !scope.concepts.is_empty() && !scope.concepts.iter().any(|allowed| allowed == concept) {
        return Err(Refusal::new(Rule::OutOfScope, format!("the mandate {} does not cover this concept", link.id)));
    }
    if let Some(most) = scope.max_per_charge
        && amount.tokens() > most
    {
        return Err(Refusal::new(
            Rule::OutOfScope,
            format!("the mandate {} allows at most {most} tokens a charge", link.id),
        ));
    }
    if grantor_ended(doing, &link.grantor) {
        return Err(Refusal::new(
            Rule::SenderEnded,
            format!("the grantor of the mandate {} is no longer active", link.id),
        ));
    }
    Ok(())
}

/// Authority ends with the card of who gave it. Of another house's agents this house cannot know inside a transaction.
fn grantor_ended(doing: &Doing<'_, '_>, grantor: &Address) -> bool {
    let view = doing.ctx.view;
    doing.ctx.house.is_mine(grantor)
        && view.agent(grantor.local()).is_some_and(|record| stands(view, &record.card, doing.now()).is_err())
}

fn named(doing: &Doing<'_, '_>) -> Result<Mandate, Refusal> {
    let id = doing.required_text("mandate")?;
    doing.ctx.view.mandate(id).ok_or_else(|| no_mandate("this house has no mandate of that id"))
}

fn no_mandate(why: &str) -> Refusal {
    Refusal::new(Rule::NoSuchMandate, why)
}

/// The scope of a new mandate, in its stored form.
fn scope(value: Option<&Value>, cap: Amount) -> Result<Value, Refusal> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(json!({})) };
    let read = Scope::read(value)?;
    if read.max_per_charge.is_some_and(|most| most > cap.tokens()) {
        return Err(bad("scope.max_per_charge is above the cap"));
    }
    let mut stored = value.as_object().cloned().unwrap_or_default();
    stored.retain(|_, value| !value.is_null());
    Ok(Value::Object(stored))
}

/// What a mandate restricts beside its cap.
struct Scope {
    concepts: Vec<String>,
    max_per_charge: Option<u64>,
}

impl Scope {
    fn read(value: &Value) -> Result<Scope, Refusal> {
        let empty = Map::new();
        let object = match value {
            Value::Null => &empty,
            Value::Object(object) => object,
            _ => return Err(bad("scope must be an object")),
        };
        if let Some(key) = object.keys().find(|key| !matches!(key.as_str(), "concepts" | "max_per_charge")) {
            let shown: String = key.chars().take(64).flat_map(char::escape_debug).collect();
            return Err(bad(format!(
                "scope.{shown} cannot be enforced by this ledger; it enforces concepts and max_per_charge"
            )));
        }
        let concepts = match object.get("concepts") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) if items.len() <= limits::MANDATE_CONCEPTS_MAX => {
                let texts: Option<Vec<String>> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
                let short = |texts: &Vec<String>| texts.iter().all(|t| t.chars().count() <= limits::CONCEPT_CHARS_MAX);
                texts.filter(short).ok_or_else(concepts_rule)?
            }
            Some(_) => return Err(concepts_rule()),
        };
        let max_per_charge = match object.get("max_per_charge") {
            None | Some(Value::Null) => None,
            Some(value) => Some(Amount::from_json(Some(value), "scope.max_per_charge")?.tokens()),
        };
        Ok(Scope { concepts, max_per_charge })
    }
}

fn concepts_rule() -> Refusal {
    bad(format!(
        "scope.concepts must list at most {} texts of up to {} characters",
        limits::MANDATE_CONCEPTS_MAX,
        limits::CONCEPT_CHARS_MAX
    ))
}
