//! What a house's operator asks of it over HTTP, with the operator's token.

use super::{Call, ClientError, HouseClient, bearer, public};
use crate::limits;
use crate::wire::address::{Address, Domain};
use crate::wire::key::PublicKey;
use reqwest::Method;
use serde_json::{Value, json};

/// A house and the token of its operator.
pub struct Operator {
    house: HouseClient,
    bearer: String,
}

impl Operator {
    pub fn new(house: HouseClient, token: &str) -> Result<Operator, ClientError> {
        let bearer = bearer(&house, token)?;
        Ok(Operator { house, bearer })
    }

    /// The keys that foreign domains are known by, after the one named: `{pins, after}`.
    pub async fn pins(&self, after: Option<&str>) -> Result<Value, ClientError> {
        let query: Vec<(&str, String)> = after.map(|after| ("after", after.to_owned())).into_iter().collect();
        self.ask(Method::GET, "/pins", &query, None).await
    }

    /// The key that a domain is known by, beside the one that it presents now.
    pub async fn pin(&self, domain: &Domain) -> Result<Value, ClientError> {
        self.ask(Method::GET, &format!("/pins/{domain}"), &[], None).await
    }

    /// From now on the domain is known by this key.
    pub async fn confirm_pin(&self, domain: &Domain, key: &PublicKey) -> Result<Value, ClientError> {
        self.ask(Method::POST, &format!("/pins/{domain}"), &[], Some(&json!({"key": key.kid()}))).await
    }

    /// A new code by which agents enter.
    pub async fn invite(&self, invitation: &Value) -> Result<Value, ClientError> {
        self.ask(Method::POST, "/invitations", &[], Some(invitation)).await
    }

    pub async fn invitations(&self) -> Result<Value, ClientError> {
        self.ask(Method::GET, "/invitations", &[], None).await
    }

    /// Ends a subagent of this house.
    pub async fn revoke(&self, sub: &Address) -> Result<Value, ClientError> {
        self.ask(Method::POST, &format!("/agents/{}/revoke", sub.local()), &[], Some(&json!({}))).await
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        // Each of these asked twice leaves what it leaves asked once, but an invitation, which would be two.
        let repeatable = path != "/invitations" || method == Method::GET;
        let authorize = || Ok(Some(self.bearer.clone()));
        let call =
            Call { method, path, query, body, authorize: &authorize, repeatable, timeout_ms: limits::AGENT_CALL_MS };
        self.house.json(call).await
    }
}

/// The books, with the operator's authority: `{balances, journal, last, next}` from this entry number on.
pub async fn journal(house: &HouseClient, admin_token: &str, from: u64) -> Result<Value, ClientError> {
    let bearer = bearer(house, admin_token)?;
    let authorize = || Ok(Some(bearer.clone()));
    let query = [("from", from.to_string())];
    let mut call = public("/libro/diario", &query);
    call.authorize = &authorize;
    house.json(call).await
}

/// Issues tokens, with the operator's authority. The id names this one issue, however often it is asked for: a lost answer
/// is repeated here, and may be repeated by the caller with the same id.
pub async fn topup(
    house: &HouseClient,
    admin_token: &str,
    id: &str,
    account: &Address,
    amount: u64,
    concept: Option<&str>,
) -> Result<Value, ClientError> {
    let body = json!({"id": id, "account": account, "amount": amount, "concept": concept});
    let bearer = bearer(house, admin_token)?;
    let authorize = || Ok(Some(bearer.clone()));
    let call = Call {
        method: Method::POST,
        path: "/libro/topup",
        query: &[],
        body: Some(&body),
        authorize: &authorize,
        repeatable: true,
        timeout_ms: limits::AGENT_CALL_MS,
    };
    house.json(call).await
}
