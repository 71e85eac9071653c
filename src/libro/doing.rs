//! One operation being done: its fields read with refusals that name them, its entries posted with their references, its
//! parties told.

use super::books::{Books, Posting};
use super::money::{Shares, Taken};
use super::{Ctx, Op};
use crate::ids::Ids;
use crate::limits;
use crate::record::agent::{parents, stands};
use crate::record::{Change, Contract, Entry, Letter};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::{Address, SystemName};
use crate::wire::amount::Amount;
use crate::wire::card::{AgentCard, Scope};
use crate::wire::doc::Doc;
use crate::wire::envelope::{Draft, Kind, Payload, Verified};
use crate::wire::json::type_name;
use crate::wire::quote::{OP_MEDIA, RECEIPT_MEDIA, Referrer};
use serde_json::{Map, Value, json};

pub(super) struct Doing<'c, 'v> {
    pub ctx: &'c Ctx<'c>,
    pub books: &'c mut Books<'v>,
    pub ids: &'c mut Ids,
    pub op: &'c Verified,
    pub name: Op,
    pub body: &'c Map<String, Value>,
    pub sha256: &'c str,
    pub standing: Standing,
    pub letters: Vec<Letter>,
}

/// What a receipt says beyond what every receipt says.
pub(super) struct Receipt<'a> {
    pub to: Vec<Address>,
    pub thread: Option<String>,
    pub body: Doc,
    /// The entry whose fee and commission the receipt states, with the rates that they were computed by.
    pub entry: Option<(&'a Entry, Rates)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    pub fee_bps: u64,
    pub share: u64,
}

/// Who the sender is inside the transaction, and what bounds it: its own, and those of every parent at this house, which
/// may have been drawn tighter since the subagent was made.
pub(super) struct Standing {
    pub card: AgentCard,
    scopes: Vec<Scope>,
}

impl Standing {
    pub fn of(ctx: &Ctx<'_>, signed: &Verified) -> Result<Standing, Refusal> {
        let from = &signed.envelope().from;
        let own = if ctx.house.is_mine(from) { ctx.view.agent(from.local()) } else { None };
        let Some(own) = own else {
            let card = signed.sender().clone();
            if card.ended(ctx.now) {
                let why = format!("the card of {from} is revoked or past its date");
                return Err(Refusal::new(Rule::SenderEnded, why));
            }
            let scopes = card.scope().cloned().into_iter().collect();
            return Ok(Standing { card, scopes });
        };
        stands(ctx.view, &own.card, ctx.now)?;
        let above = parents(ctx.view, &own.card);
        let scopes = std::iter::once(&own.card).chain(&above).filter_map(AgentCard::scope).cloned().collect();
        Ok(Standing { card: own.card, scopes })
    }

    pub fn messages_only(&self) -> bool {
        self.scopes.iter().any(|scope| scope.messages_only)
    }

    pub fn within_cap(&self, amount: Amount) -> Result<(), Refusal> {
        match self.scopes.iter().filter_map(|scope| scope.cap).min() {
            Some(cap) if amount.tokens() > cap => Err(Refusal::new(
                Rule::CapExceeded,
                format!("this subagent may commit at most {cap} tokens at a time, not {amount}"),
            )),
            _ => Ok(()),
        }
    }
}

impl<'c> Doing<'c, '_> {
    pub fn sender(&self) -> &'c Address {
        &self.op.envelope().from
    }

    pub fn now(&self) -> Timestamp {
        self.ctx.now
    }

    /// What every entry refers to.
    pub fn refs(&self) -> Map<String, Value> {
        Map::from_iter([
            ("op".to_owned(), Value::from(self.op.envelope().id.as_str())),
            ("op_sha256".to_owned(), Value::from(self.sha256)),
        ])
    }

    pub fn refs_of(&self, contract: &str) -> Map<String, Value> {
        let mut refs = self.refs();
        refs.insert("contract".into(), contract.into());
        refs
    }

    fn given(&self, field: &str) -> Option<&'c Value> {
        self.body.get(field).filter(|value| !value.is_null())
    }

    pub fn text(&self, field: &str) -> Result<Option<&'c str>, Refusal> {
        let Some(value) = self.given(field) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| bad(format!("{field} must be a text, got {}", type_name(value))))
    }

    /// A label for people: white space trimmed, cut at its bound. An overlong label never stops an operation.
    pub fn label(&self, field: &str, chars: usize) -> Result<Option<String>, Refusal> {
        let text = self.text(field)?.map(str::trim).filter(|text| !text.is_empty());
        Ok(text.map(|text| text.chars().take(chars).collect()))
    }

    pub fn required_text(&self, field: &str) -> Result<&'c str, Refusal> {
        self.text(field)?.filter(|text| !text.is_empty()).ok_or_else(|| bad(format!("{field} is missing")))
    }

    pub fn address(&self, field: &str) -> Result<Option<Address>, Refusal> {
        let Some(text) = self.text(field)? else { return Ok(None) };
        Address::parse(text).map(Some).map_err(|r| bad(format!("{field}: {}", r.reason)))
    }

    pub fn required_address(&self, field: &str) -> Result<Address, Refusal> {
        self.address(field)?.ok_or_else(|| bad(format!("{field} must be an address")))
    }

    pub fn amount(&self, field: &str) -> Result<Amount, Refusal> {
        Amount::from_json(self.body.get(field), field)
    }

    pub fn instant(&self, field: &str) -> Result<Option<Timestamp>, Refusal> {
        let Some(text) = self.text(field)? else { return Ok(None) };
        Timestamp::parse(text).map(Some).ok_or_else(|| {
            bad(format!("{field} must be a date or an instant with a zone, such as 2026-09-15T10:00:00Z"))
        })
    }

    /// The bound that a parent put on what a subagent may commit in one operation.
    pub fn within_cap(&self, amount: Amount) -> Result<(), Refusal> {
        self.standing.within_cap(amount)
    }

    /// The contract that the operation names.
    pub fn contract(&self) -> Result<Contract, Refusal> {
        let id = self.required_text("contract")?;
        self.ctx
            .view
            .contract(id)
            .ok_or_else(|| Refusal::new(Rule::NoSuchContract, "this house has no contract of that id"))
    }

    pub fn post(&mut self, posting: Posting) -> Result<Entry, Refusal> {
        let own = self.sender();
        self.books.post(self.ctx.house, self.ctx.now, self.ids, posting.own(own))
    }

    pub fn control(&mut self, refs: Map<String, Value>) -> Result<Entry, Refusal> {
        self.post(Posting::control(self.name.as_str(), refs))
    }

    pub fn change(&mut self, change: Change) {
        self.books.change(change);
    }

    pub fn event(&mut self, name: &'static str, actor: &Address, data: Value) {
        let (at, actor) = (self.ctx.now, actor.to_string());
        self.books.change(Change::Event { name, at, actor, data });
    }

    /// One signed letter to all recipients together; more than an envelope carries take several.
    pub fn receipt(&mut self, receipt: Receipt<'_>) {
        let envelope = self.op.envelope();
        let said = [
            ("of", envelope.id.as_str()),
            ("op", self.name.as_str()),
            ("op_sha256", self.sha256),
            ("from", envelope.from.as_str()),
        ];
        let mut said = Map::from_iter(said.map(|(field, text)| (field.to_owned(), Value::from(text))));
        if let Some((entry, rates)) = receipt.entry {
            said.extend(slip(entry, rates, &self.ctx.house.casa()));
        }
        let told = receipt.body;
        let body = Doc::later(move || {
            let mut body = told.into_value();
            if let Some(body) = body.as_object_mut() {
                body.extend(said);
            }
            body
        });
        let thread = receipt.thread.or_else(|| envelope.thread.clone());
        let in_reply_to = Some(envelope.id.clone());
        for to in receipt.to.chunks(limits::RECIPIENTS_MAX) {
            self.letter(to.to_vec(), thread.clone(), in_reply_to.clone(), None, body.clone());
        }
    }

    /// What the ledger orders itself to do later. It waits in the sending queue and comes in by the door that every
    /// operation comes in by, which checks it like any other.
    pub fn order(&mut self, thread: String, after: Timestamp, body: Value) {
        let libro = self.ctx.house.address(SystemName::Libro);
        let id = self.ids.uuid();
        let draft = Draft {
            id: id.clone(),
            from: libro.clone(),
            to: vec![libro.clone()],
            kind: Kind::Task,
            created: self.ctx.now,
            expires: None,
            deliver_after: Some(after),
            thread: Some(thread),
            in_reply_to: None,
            payload: Payload::Clear { media: OP_MEDIA.into(), body },
            more: Map::new(),
        };
        let doc = self.ctx.house.signed_later(move || draft.into_doc());
        let deliver_after = Some(after);
        self.letters.push(Letter { id, doc, to: vec![libro], via: "libro", deliver_after, order: true });
    }

    pub fn letter(
        &mut self,
        to: Vec<Address>,
        thread: Option<String>,
        in_reply_to: Option<String>,
        deliver_after: Option<Timestamp>,
        body: Doc,
    ) {
        let id = self.ids.uuid();
        let from = self.ctx.house.address(SystemName::Libro);
        let (stated, recipients, created) = (id.clone(), to.clone(), self.ctx.now);
        let doc = self.ctx.house.signed_later(move || {
            let draft = Draft {
                id: stated,
                from,
                to: recipients,
                kind: Kind::Receipt,
                created,
                expires: None,
                deliver_after,
                thread,
                in_reply_to,
                payload: Payload::Clear { media: RECEIPT_MEDIA.into(), body: body.into_value() },
                more: Map::new(),
            };
            draft.into_doc()
        });
        self.letters.push(Letter { id, doc, to, via: "libro", deliver_after, order: false });
    }
}

impl Rates {
    /// The rates that a contract was accepted under.
    pub fn of(contract: &Contract, house_bps: u64) -> Rates {
        Rates {
            fee_bps: contract.more.get("fee_bps").and_then(Value::as_u64).unwrap_or(house_bps),
            share: referrer(contract).map_or(0, |r| r.share),
        }
    }

    pub fn shares<'a>(&self, casa: &'a Address, referrer: Option<&'a Referrer>) -> Shares<'a> {
        Shares { casa, fee_bps: self.fee_bps, referrer }
    }
}

/// The referrer that a contract keeps from its quote.
pub(super) fn referrer(contract: &Contract) -> Option<Referrer> {
    let kept = contract.referrer.as_ref()?;
    let address = Address::parse(kept.get("address")?.as_str()?).ok()?;
    Some(Referrer { address, share: kept.get("share")?.as_u64()? })
}

pub(super) fn bad(why: impl Into<String>) -> Refusal {
    Refusal::new(Rule::BadField, why)
}

/// Distinct addresses, in order.
pub(super) fn distinct(addresses: impl IntoIterator<Item = Address>) -> Vec<Address> {
    let mut out: Vec<Address> = Vec::new();
    for address in addresses {
        if !out.contains(&address) {
            out.push(address);
        }
    }
    out
}

/// `fee` and `commission` as a receipt states them.
fn slip(entry: &Entry, rates: Rates, casa: &Address) -> Map<String, Value> {
    let taken = Taken::of(entry, casa);
    let mut slip = Map::new();
    if let Some(amount) = taken.fee {
        slip.insert("fee".into(), json!({"account": casa, "amount": amount, "bps": rates.fee_bps}));
    }
    if let Some((account, amount)) = taken.commission {
        slip.insert("commission".into(), json!({"account": account, "amount": amount, "bps": rates.share}));
    }
    slip
}
