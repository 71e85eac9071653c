//! The quote: a document that the seller signs and the buyer accepts. The house sees it only then.

use crate::limits;
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::{Address, Domain};
use crate::wire::amount::Amount;
use crate::wire::digest::Sha256;
use crate::wire::json::canonical_sha256;
use crate::wire::key::{Signature, SigningKey};
use serde_json::{Map, Value, json};

pub const OP_MEDIA: &str = "application/nyx5.libro+json";
pub const QUOTE_MEDIA: &str = "application/nyx5.cotizacion+json";
pub const RECEIPT_MEDIA: &str = "application/nyx5.recibo+json";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContractKind {
    Spot,
    Escrow,
    Metered,
    Bond,
}

impl ContractKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            ContractKind::Spot => "spot",
            ContractKind::Escrow => "escrow",
            ContractKind::Metered => "metered",
            ContractKind::Bond => "bond",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [ContractKind::Spot, ContractKind::Escrow, ContractKind::Metered, ContractKind::Bond]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

/// Whoever brought the deal, and its share of the price in basis points, taken from what the seller gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referrer {
    pub address: Address,
    pub share: u64,
}

/// A quote that one buyer may accept at one house now, except for what needs the seller's card.
#[derive(Clone, Debug)]
pub struct Quote {
    pub id: String,
    pub kind: ContractKind,
    pub seller: Address,
    pub buyer: Address,
    pub price: Amount,
    pub concept: String,
    pub terms: Value,
    pub arbiter: Option<Address>,
    pub referrer: Option<Referrer>,
    pub service: Option<String>,
    pub expires: Option<Timestamp>,
    pub kid: String,
    pub sha256: Sha256,
    doc: Value,
}

impl Quote {
    /// The checks of `accept` that need no record, in the protocol's order.
    pub fn parse(doc: &Value, house: &Domain, buyer: &Address, now: Timestamp, fee_bps: u64) -> Result<Quote, Refusal> {
        let text = |field: &str| doc.get(field).and_then(Value::as_str);
        let given = |field: &str| doc.get(field).filter(|value| !value.is_null());
        if text("tipo") != Some("cotizacion") {
            return Err(bad("quote must be a document with tipo \"cotizacion\""));
        }
        let id = text("id").filter(|id| crate::wire::envelope::is_id(id));
        let id = id.ok_or_else(|| bad("quote.id must be 8 to 128 characters of A-Z a-z 0-9 . _ : -"))?.to_owned();
        let seller = text("seller").ok_or_else(|| bad("quote.seller is missing"))?;
        let seller = Address::parse(seller).map_err(|r| bad(&format!("quote.seller: {}", r.reason)))?;
        let signature = Signature::of(doc, "signature")
            .ok_or_else(|| bad("quote.signature must be {alg: \"Ed25519\", kid, value}"))?;
        if given("currency").is_some_and(|currency| currency != "tok") {
            return Err(bad("quote.currency must be \"tok\": this ledger moves nothing else"));
        }
        let kind = text("contract").and_then(ContractKind::parse).filter(|kind| *kind != ContractKind::Bond);
        let kind = kind.ok_or_else(|| bad("quote.contract must be spot, escrow or metered"))?;
        if text("house") != Some(house.as_str()) {
            let named = text("house").unwrap_or("none");
            return Err(Refusal::new(
                Rule::WrongHouse,
                format!("the quote is for the house {}, this is {house}", shown(named)),
            ));
        }
        if text("buyer") != Some(buyer.as_str()) {
            return Err(Refusal::new(
                Rule::QuoteForAnother,
                format!("the quote is for {}, not for {buyer}", shown(text("buyer").unwrap_or("nobody"))),
            ));
        }
        let expires = match given("expires") {
            None => None,
            Some(value) => Some(
                value
                    .as_str()
                    .and_then(Timestamp::parse)
                    .ok_or_else(|| bad("quote.expires must be null or an ISO 8601 instant with a zone"))?,
            ),
        };
        if let Some(at) = expires
            && at <= now
        {
            return Err(Refusal::new(Rule::QuoteExpired, format!("the quote expired at {at}")));
        }
        let arbiter = match given("arbiter") {
            None => None,
            Some(value) => Some(
                value
                    .as_str()
                    .ok_or_else(|| bad("quote.arbiter must be an address or null"))
                    .and_then(|a| Address::parse(a).map_err(|r| bad(&format!("quote.arbiter: {}", r.reason))))?,
            ),
        };
        let referrer = given("referrer").map(|value| parse_referrer(value, &seller, fee_bps)).transpose()?;
        let price = Amount::from_json(doc.get("price"), "quote.price")?;
        let terms = match given("terms") {
            None => json!({}),
            Some(terms) if terms.is_object() => terms.clone(),
            Some(_) => return Err(bad("quote.terms must be an object")),
        };
        let service = match given("service") {
            None => None,
            Some(value) => Some(value.as_str().ok_or_else(|| bad("quote.service must be a text"))?.to_owned()),
        };
        let concept = text("concept").unwrap_or_default();
        if concept.chars().count() > limits::CONCEPT_CHARS_MAX {
            return Err(bad(&format!("quote.concept is longer than {} characters", limits::CONCEPT_CHARS_MAX)));
        }
        Ok(Quote {
            id,
            kind,
            seller,
            buyer: buyer.clone(),
            price,
            concept: concept.to_owned(),
            terms,
            arbiter,
            referrer,
            service,
            expires,
            kid: signature.kid.to_owned(),
            sha256: canonical_sha256(doc),
            doc: doc.clone(),
        })
    }

    pub fn doc(&self) -> &Value {
        &self.doc
    }
}

/// What a seller offers; [`Offer::sign`] makes the quote.
#[derive(Clone, Debug)]
pub struct Offer {
    pub id: String,
    pub house: Domain,
    pub seller: Address,
    pub buyer: Address,
    pub kind: ContractKind,
    pub price: Amount,
    pub concept: String,
    pub terms: Value,
    pub arbiter: Option<Address>,
    pub referrer: Option<Referrer>,
    pub service: Option<String>,
    pub issued: Timestamp,
    pub expires: Option<Timestamp>,
}

impl Offer {
    pub fn sign(self, key: &SigningKey) -> Value {
        let mut doc = Map::new();
        let mut put = |name: &str, value: Value| {
            doc.insert(name.to_owned(), value);
        };
        put("tipo", "cotizacion".into());
        put("id", self.id.into());
        put("house", self.house.to_string().into());
        put("seller", self.seller.to_string().into());
        put("buyer", self.buyer.to_string().into());
        put("contract", self.kind.as_str().into());
        put("price", self.price.tokens().into());
        put("currency", "tok".into());
        put("concept", self.concept.into());
        put("terms", self.terms);
        put("arbiter", self.arbiter.map(|a| a.to_string()).into());
        if let Some(referrer) = self.referrer {
            put("referrer", json!({"address": referrer.address, "share": referrer.share}));
        }
        if let Some(service) = self.service {
            put("service", service.into());
        }
        put("issued", self.issued.to_string().into());
        put("expires", self.expires.map(|at| at.to_string()).into());
        let mut doc = Value::Object(doc);
        key.sign_object(&mut doc, "signature");
        doc
    }
}

fn parse_referrer(value: &Value, seller: &Address, fee_bps: u64) -> Result<Referrer, Refusal> {
    let refuse = |why: String| Refusal::new(Rule::BadReferrer, why);
    let address = value.get("address").and_then(Value::as_str).unwrap_or_default();
    let address = Address::parse(address).map_err(|r| refuse(format!("quote.referrer.address: {}", r.reason)))?;
    let share = value.get("share").and_then(Value::as_u64).filter(|share| *share > 0);
    let share =
        share.ok_or_else(|| refuse("quote.referrer.share must be a whole number of basis points above 0".into()))?;
    if share.saturating_add(fee_bps) > limits::BPS_WHOLE {
        return Err(refuse(format!(
            "the house fee of {fee_bps} and the referrer's {share} basis points exceed {}",
            limits::BPS_WHOLE
        )));
    }
    if &address == seller {
        return Err(refuse("the referrer is the seller".into()));
    }
    Ok(Referrer { address, share })
}

fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

fn bad(why: &str) -> Refusal {
    Refusal::new(Rule::BadQuote, why)
}
