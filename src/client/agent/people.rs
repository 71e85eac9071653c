//! What an agent decides about itself and its subagents: its card, its keys, its profile, whom it lets act for it.

use super::{AgentClient, ClientError, Identity};
use crate::wire::address::Address;
use crate::wire::card::{Delegation, Scope};
use crate::wire::key::PublicKey;
use crate::wire::seal::SealPublic;
use serde_json::{Value, json};

use crate::time::Timestamp;

/// A subagent to enrol.
#[derive(Clone, Debug)]
pub struct Subagent {
    pub address: Address,
    pub sig: PublicKey,
    pub enc: Option<SealPublic>,
    pub scope: Scope,
    pub valid_until: Option<Timestamp>,
    /// Other fields of its registration: `inbox`, `capabilities`, `visibility`, `profile`.
    pub more: serde_json::Map<String, Value>,
}

impl AgentClient {
    /// Signs for a subagent and enrols it at the house; answers its card.
    pub async fn delegate(&self, sub: &Subagent) -> Result<Value, ClientError> {
        let mut body = Value::Object(sub.more.clone());
        body["local"] = sub.address.local().into();
        body["sig"] = sub.sig.kid().into();
        if let Some(enc) = &sub.enc {
            body["enc"] = enc.text().into();
        }
        body["delegation"] = self.delegation(sub);
        self.signed(reqwest::Method::POST, "/agents", &[], Some(&body), false).await
    }

    /// The document alone, for a subagent that enrols itself.
    pub fn delegation(&self, sub: &Subagent) -> Value {
        let (own, key) = (self.address(), &self.identity.sig);
        Delegation::sign(own, key, &sub.address, &sub.sig, &sub.scope, sub.valid_until, self.clock.now())
    }

    /// The subagents of this agent, revoked ones too.
    pub async fn delegations(&self) -> Result<Vec<Value>, ClientError> {
        let path = format!("/delegations/{}", self.local());
        let answer = self.signed(reqwest::Method::GET, &path, &[], None, true).await?;
        let listed = answer.get("delegations").and_then(Value::as_array).cloned();
        listed.ok_or_else(|| self.bad("the answer has no list of delegations"))
    }

    /// Ends a subagent of this agent, or this agent where it is one.
    pub async fn revoke(&self, sub: &Address) -> Result<Value, ClientError> {
        let path = format!("/agents/{}/revoke", sub.local());
        self.signed(reqwest::Method::POST, &path, &[], Some(&json!({})), true).await
    }

    /// Sets or, with `None`, deletes the profile of this agent or of a subagent of it.
    pub async fn set_profile(&self, of: &Address, profile: Option<&Value>) -> Result<Value, ClientError> {
        let path = format!("/agents/{}/profile", of.local());
        self.signed(reqwest::Method::POST, &path, &[], Some(&json!({"profile": profile})), true).await
    }

    /// Writes the agent's card anew: what `changes` names is set, everything else stays as it is.
    pub async fn change_card(&self, changes: &serde_json::Map<String, Value>) -> Result<Value, ClientError> {
        let body = self.card_body(&self.identity, changes).await?;
        self.signed(reqwest::Method::POST, "/agents", &[], Some(&body), true).await
    }

    /// Takes the keys of `next` in place of this agent's own, which sign the request; the old one verifies for a while.
    /// A subagent needs its parent's word for the new key.
    pub async fn rotate(&self, next: &Identity, delegation: Option<&Value>) -> Result<Value, ClientError> {
        let mut changes = serde_json::Map::new();
        if let Some(delegation) = delegation {
            changes.insert("delegation".into(), delegation.clone());
        }
        let body = self.card_body(next, &changes).await?;
        self.signed(reqwest::Method::POST, "/agents", &[], Some(&body), false).await
    }

    async fn card_body(&self, keys: &Identity, changes: &serde_json::Map<String, Value>) -> Result<Value, ClientError> {
        let card = self.card(self.address()).await?;
        let mut body = json!({"local": self.local(), "sig": keys.sig.public().kid()});
        // An update replaces the card; these return to the house's defaults when they are left out.
        for field in ["capabilities", "inbox", "valid_until"] {
            if let Some(value) = card.doc().get(field).filter(|value| !value.is_null()) {
                body[field] = value.clone();
            }
        }
        if let Some(enc) = &keys.enc {
            body["enc"] = enc.0.public().text().into();
        }
        for (field, value) in changes {
            body[field] = value.clone();
        }
        Ok(body)
    }
}
