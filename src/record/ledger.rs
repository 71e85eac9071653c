//! Records of the ledger: entries, contracts and the outcomes of operations.

use crate::time::Timestamp;
use crate::wire::address::{Address, Domain, SystemName};
use crate::wire::doc::Doc;
use crate::wire::quote::ContractKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A journal entry as signed by the house, with what the store needs to find it by.
#[derive(Clone, Debug)]
pub struct Entry {
    pub n: u64,
    pub id: String,
    pub at: Timestamp,
    pub lines: Vec<Line>,
    /// The whole signed document.
    pub doc: Doc,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub account: String,
    pub delta: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContractState {
    Held,
    Delivered,
    Released,
    Refunded,
    Settled,
    Posted,
    Forfeited,
    Active,
}

impl ContractState {
    pub const fn as_str(self) -> &'static str {
        match self {
            ContractState::Held => "held",
            ContractState::Delivered => "delivered",
            ContractState::Released => "released",
            ContractState::Refunded => "refunded",
            ContractState::Settled => "settled",
            ContractState::Posted => "posted",
            ContractState::Forfeited => "forfeited",
            ContractState::Active => "active",
        }
    }

    /// No operation leaves a terminal state.
    pub const fn terminal(self) -> bool {
        use ContractState::{Forfeited, Refunded, Released, Settled};
        matches!(self, Released | Refunded | Settled | Forfeited)
    }
}

/// A contract as parties see it. Field names are the protocol's; `more` keeps what a later version adds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contract {
    pub id: String,
    pub kind: ContractKindText,
    pub house: Domain,
    pub seller: Address,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buyer: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verifier: Option<Address>,
    pub amount: u64,
    #[serde(default)]
    pub concept: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub terms: Value,
    pub arbiter: Option<Address>,
    #[serde(default)]
    pub referrer: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote_id: Option<String>,
    pub state: ContractState,
    pub created: Timestamp,
    pub updated: Timestamp,
    /// `{at, op, by, ...}` in order.
    pub history: Vec<Value>,
    /// `quote_sha256`, `accept_sha256`, `service`, `evidence_sha256` and `evidence` after a delivery, `mandate`, and the
    /// fields of a bond.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A seller's quote by its id. Ids are the seller's to give: whoever sees one and quotes under it first takes nothing
/// from the seller who gave it.
pub fn quote_key(seller: &Address, id: &str) -> String {
    format!("{seller} {id}")
}

/// [`ContractKind`] as a field of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContractKindText(pub ContractKind);

impl Serialize for ContractKindText {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.0.as_str())
    }
}

impl<'de> Deserialize<'de> for ContractKindText {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        ContractKind::parse(&text)
            .map(ContractKindText)
            .ok_or_else(|| serde::de::Error::custom("unknown contract kind"))
    }
}

impl Contract {
    /// The quote that it was made from, as [`quote_key`] names it.
    pub fn quote_key(&self) -> Option<String> {
        self.quote_id.as_deref().map(|id| quote_key(&self.seller, id))
    }

    pub fn kind(&self) -> ContractKind {
        self.kind.0
    }

    /// The distinct parties: seller, buyer, verifier, arbiter.
    pub fn parties(&self) -> Vec<Address> {
        let mut parties: Vec<Address> = Vec::with_capacity(4);
        for party in [Some(&self.seller), self.buyer.as_ref(), self.verifier.as_ref(), self.arbiter.as_ref()] {
            if let Some(party) = party
                && !parties.contains(party)
            {
                parties.push(party.clone());
            }
        }
        parties
    }

    /// The account that holds this contract's tokens.
    pub fn escrow_account(&self) -> String {
        format!("escrow:{}", self.id)
    }

    /// `terms.verify`, or its old name `terms.pruebas`.
    pub fn tests(&self) -> Option<&Value> {
        let given = |field: &str| self.terms.get(field).filter(|value| !value.is_null());
        given("verify").or_else(|| given("pruebas"))
    }

    /// Whether the house's own arbiter is to judge this contract.
    pub fn is_arbitrated_by(&self, house: &Domain) -> bool {
        self.kind() == ContractKind::Escrow
            && self.arbiter.as_ref().is_some_and(|arbiter| arbiter.is_system(house, SystemName::Verifica))
            && self.tests().is_some()
    }

    /// `terms.verify_on: "accept"`: look while held, without waiting for a delivery.
    pub fn looks_while_held(&self) -> bool {
        self.terms.get("verify_on").and_then(Value::as_str) == Some("accept")
    }

    pub fn deadline(&self) -> Option<Timestamp> {
        self.terms.get("deadline").and_then(Value::as_str).and_then(Timestamp::parse)
    }

    /// When the work was delivered last.
    pub fn delivered(&self) -> Option<Timestamp> {
        let said = |item: &Value, name: &str| item.get(name).and_then(Value::as_str).map(str::to_owned);
        let delivery = self.history.iter().rev().find(|item| said(item, "op").as_deref() == Some("deliver"))?;
        said(delivery, "at").as_deref().and_then(Timestamp::parse)
    }

    /// When a bond may be taken back by who posted it.
    pub fn expires(&self) -> Option<Timestamp> {
        self.more.get("expires").and_then(Value::as_str).and_then(Timestamp::parse)
    }

    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    pub fn from_json(doc: Value) -> Option<Contract> {
        serde_json::from_value(doc).ok()
    }
}

/// What an operation answered, kept so that its repetition answers the same and does nothing.
#[derive(Clone, Debug)]
pub struct OperationRecord {
    pub from: Address,
    pub id: String,
    /// Of the canonical envelope: the same id with another body is not a repetition.
    pub sha256: String,
    pub result: Doc,
    pub at: Timestamp,
}

/// Part of an account's history, as a statement needs it.
#[derive(Clone, Debug)]
pub struct AccountPage {
    /// The account's balance before the first of `entries`; with none, before `since`, or zero without one.
    pub opening: i64,
    /// In the order of the journal.
    pub entries: Vec<Entry>,
    /// How many lie in the range, those beyond the limit included.
    pub total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MandateState {
    Active,
    Revoked,
}

/// Spending authority: the grantee may have the root grantor pay, up to a cap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mandate {
    pub id: String,
    pub house: Domain,
    pub grantor: Address,
    pub grantee: Address,
    pub cap: u64,
    pub spent: u64,
    pub scope: Value,
    pub expires: Option<Timestamp>,
    pub parent: Option<String>,
    /// Who pays: the grantor of the first mandate of the chain.
    pub root: Address,
    /// From the first mandate to this one.
    pub chain: Vec<String>,
    pub state: MandateState,
    pub created: Timestamp,
    pub op_sha256: String,
    /// The metered contract that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract: Option<String>,
    /// `{at, by}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Value>,
}

/// A notary seal, in the version that names its declarant and the one that does not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SealRecord {
    pub id: String,
    /// Lower-case hex.
    pub sha256: String,
    pub by: Address,
    pub at: Timestamp,
    /// Whether the declarant was secret when it was sealed.
    pub secret: bool,
    pub sello: Value,
    pub anonimo: Value,
}
