//! What actors ask for, as values: the reference model reads these, the house reads the JSON made of them.

use crate::time::Timestamp;
use crate::wire::key::SigningKey;
use serde_json::{Map, Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Spot,
    Escrow,
    Metered,
    Bond,
}

/// The tests that a quote declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tests {
    None,
    /// One that looks at the site of this quote.
    Site,
    Malformed,
}

#[derive(Clone, Debug)]
pub struct Offer {
    pub id: String,
    pub house: String,
    pub seller: String,
    pub buyer: String,
    pub kind: Kind,
    pub price: i64,
    pub deadline: Option<Timestamp>,
    pub tests: Tests,
    pub arbiter: Option<String>,
    pub referrer: Option<(String, u64)>,
    pub expires: Option<Timestamp>,
    pub max_per_charge: Option<i64>,
    /// Signed by somebody who is not the seller.
    pub forged: bool,
}

/// A verdict that somebody attaches to a decision.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub pasa: bool,
    pub contract: String,
    pub at: Timestamp,
}

#[derive(Clone, Debug)]
pub enum Order {
    Accept(Box<Offer>),
    Deliver {
        contract: String,
        evidence: bool,
    },
    Release {
        contract: String,
        verdict: Option<Claimed>,
    },
    Refund {
        contract: String,
        verdict: Option<Claimed>,
    },
    Reclaim {
        contract: String,
    },
    Expire {
        contract: String,
    },
    Bond {
        amount: i64,
        verifier: String,
        beneficiary: Option<String>,
        arbiter: Option<String>,
        vouchee: Option<String>,
        expires: Option<Timestamp>,
    },
    Forfeit {
        contract: String,
    },
    Mandate {
        grantee: String,
        cap: i64,
        max: Option<i64>,
        concept: Option<String>,
        expires: Option<Timestamp>,
        parent: Option<String>,
        /// A restriction that no ledger enforces.
        stray: bool,
    },
    Charge {
        mandate: String,
        amount: i64,
        concept: String,
    },
    Revoke {
        mandate: String,
    },
    Pay {
        to: String,
        amount: i64,
    },
    Balance,
    Statement,
    Contract {
        contract: String,
    },
    Notarize {
        /// Which hash; `None` is no hash at all.
        hash: Option<u8>,
    },
    Unknown,
}

impl Order {
    pub fn body(&self, key_of: &dyn Fn(&str) -> SigningKey) -> Value {
        match self {
            Order::Accept(offer) => json!({"op": "accept", "quote": offer.quote(key_of)}),
            Order::Deliver { contract, evidence } => {
                let mut body = json!({"op": "deliver", "contract": contract});
                if *evidence {
                    body["evidence"] = "done as agreed".into();
                }
                body
            }
            Order::Release { contract, verdict } => decision("release", contract, verdict.as_ref()),
            Order::Refund { contract, verdict } => decision("refund", contract, verdict.as_ref()),
            Order::Reclaim { contract } => json!({"op": "reclaim", "contract": contract}),
            Order::Expire { contract } => json!({"op": "expire", "contract": contract}),
            Order::Forfeit { contract } => json!({"op": "forfeit", "contract": contract, "reason": "it did not hold"}),
            Order::Bond { amount, verifier, beneficiary, arbiter, vouchee, expires } => json!({
                "op": "bond", "amount": amount, "claim": "it holds", "verifier": verifier, "beneficiary": beneficiary,
                "arbiter": arbiter, "vouchee": vouchee, "expires": expires,
            }),
            Order::Mandate { grantee, cap, max, concept, expires, parent, stray } => {
                let mut scope = Map::new();
                if let Some(max) = max {
                    scope.insert("max_per_charge".into(), (*max).into());
                }
                if let Some(concept) = concept {
                    scope.insert("concepts".into(), json!([concept]));
                }
                if *stray {
                    scope.insert("per_day".into(), 1.into());
                }
                json!({"op": "mandate", "grantee": grantee, "cap": cap, "scope": scope, "expires": expires,
                    "parent": parent})
            }
            Order::Charge { mandate, amount, concept } => {
                json!({"op": "charge", "mandate": mandate, "amount": amount, "concept": concept})
            }
            Order::Revoke { mandate } => json!({"op": "revoke", "mandate": mandate}),
            Order::Pay { to, amount } => json!({"op": "pay", "to": to, "amount": amount}),
            Order::Balance => json!({"op": "balance"}),
            Order::Statement => json!({"op": "statement"}),
            Order::Contract { contract } => json!({"op": "contract", "contract": contract}),
            Order::Notarize { hash } => match hash {
                Some(hash) => json!({"op": "notarize", "sha256": format!("{hash:02x}").repeat(32)}),
                None => json!({"op": "notarize", "sha256": "none"}),
            },
            Order::Unknown => json!({"op": "mint"}),
        }
    }

    pub const fn name(&self) -> &'static str {
        match self {
            Order::Accept(_) => "accept",
            Order::Deliver { .. } => "deliver",
            Order::Release { .. } => "release",
            Order::Refund { .. } => "refund",
            Order::Reclaim { .. } => "reclaim",
            Order::Expire { .. } => "expire",
            Order::Bond { .. } => "bond",
            Order::Forfeit { .. } => "forfeit",
            Order::Mandate { .. } => "mandate",
            Order::Charge { .. } => "charge",
            Order::Revoke { .. } => "revoke",
            Order::Pay { .. } => "pay",
            Order::Balance => "balance",
            Order::Statement => "statement",
            Order::Contract { .. } => "contract",
            Order::Notarize { .. } => "notarize",
            Order::Unknown => "unknown",
        }
    }
}

impl Offer {
    /// The URL that the tests of this quote look at.
    pub fn site(&self) -> String {
        format!("https://seller.example/{}", self.id)
    }

    fn quote(&self, key_of: &dyn Fn(&str) -> SigningKey) -> Value {
        let mut terms = Map::new();
        if let Some(deadline) = self.deadline {
            terms.insert("deadline".into(), json!(deadline));
        }
        if let Some(max) = self.max_per_charge {
            terms.insert("scope".into(), json!({"max_per_charge": max}));
        }
        match self.tests {
            Tests::None => {}
            Tests::Site => {
                terms.insert("verify".into(), json!([{"type": "http_status", "url": self.site()}]));
            }
            Tests::Malformed => {
                terms.insert("verify".into(), json!([{"type": "http_status", "url": "http://127.0.0.1/"}]));
            }
        }
        let kind = match self.kind {
            Kind::Spot => "spot",
            Kind::Escrow => "escrow",
            Kind::Metered => "metered",
            Kind::Bond => "bond",
        };
        let mut quote = json!({
            "tipo": "cotizacion", "id": self.id, "house": self.house, "seller": self.seller, "buyer": self.buyer,
            "contract": kind, "price": self.price, "currency": "tok", "concept": "work", "terms": terms,
            "arbiter": self.arbiter, "issued": "2026-09-15T10:00:00.000Z", "expires": self.expires,
        });
        if let Some((address, share)) = &self.referrer {
            quote["referrer"] = json!({"address": address, "share": share});
        }
        let signer = if self.forged { &self.buyer } else { &self.seller };
        key_of(signer).sign_object(&mut quote, "signature");
        quote
    }
}

fn decision(op: &str, contract: &str, verdict: Option<&Claimed>) -> Value {
    let mut body = json!({"op": op, "contract": contract});
    if let Some(claimed) = verdict {
        body["veredicto"] = json!({
            "tipo": "veredicto", "pasa": claimed.pasa, "contract": claimed.contract, "at": claimed.at,
            "razon": "so it is said", "resultados": [],
        });
    }
    body
}
