//! A federated index as its users see it. Its answers are signed by the house that runs it, and what they say of other
//! houses' agents is a hint: [`AgentClient::confirm`] asks for the card by the chain.

use super::{AgentClient, Call, ClientError, HouseClient, public, well_known};
use crate::limits;
use crate::mail::index::{address_of, stripped};
use crate::wire::address::{Address, Domain};
use crate::wire::card::DomainCard;
use crate::wire::key::PublicKey;
use serde_json::{Value, json};

/// One page of `GET /index/agents`, its signature checked against the card of the house that runs the index; with an
/// anchor, against exactly the house of that key.
pub async fn search(
    index: &HouseClient,
    anchor: Option<&PublicKey>,
    query: &[(&str, String)],
) -> Result<Value, ClientError> {
    let bad = |why: &str| ClientError::BadAnswer { url: index.url().to_owned(), why: why.to_owned() };
    let page = index.json(public("/index/agents", query)).await?;
    let card = well_known(index).await?;
    let named = card.get("domain").and_then(Value::as_str).unwrap_or_default();
    let domain = Domain::parse(named).map_err(|_| bad("its domain card names no domain"))?;
    let card = DomainCard::verify(card, &domain, anchor).map_err(|refusal| bad(&refusal.reason))?;
    if page.get("index").and_then(Value::as_str) != Some(domain.as_str()) {
        return Err(bad("the answer is of another index"));
    }
    if !card.keys.iter().any(|key| key.verify_object(&page, "signature")) {
        return Err(bad("the signature of the index does not verify"));
    }
    let results =
        page.get("agents").and_then(Value::as_array).ok_or_else(|| bad("the answer has no list of agents"))?;
    for result in results {
        let house = result.get("_house").and_then(Value::as_str).unwrap_or_default();
        address_of(result, house).ok_or_else(|| bad("a result is not of the house that it is said to be of"))?;
    }
    Ok(page)
}

/// The houses on an index: `{total, houses}`.
pub async fn houses(index: &HouseClient) -> Result<Value, ClientError> {
    index.json(public("/index/houses", &[])).await
}

/// Lists a house on an index; answers its record there.
pub async fn list_house(index: &HouseClient, domain: &Domain) -> Result<Value, ClientError> {
    let body = json!({"domain": domain});
    let call = Call {
        method: reqwest::Method::POST,
        path: "/index/houses",
        query: &[],
        body: Some(&body),
        authorize: &|| Ok(None),
        repeatable: true,
        timeout_ms: limits::AGENT_CALL_MS,
    };
    index.json(call).await
}

impl AgentClient {
    /// Whether the chain gives the same card as this result of an index.
    pub async fn confirm(&self, result: &Value) -> Result<bool, ClientError> {
        let house = result.get("_house").and_then(Value::as_str).unwrap_or_default();
        let Some(address) = address_of(result, house) else { return Ok(false) };
        let known = self.card(&Address::clone(&address)).await?;
        let certified = |doc: &Value| stripped(doc).get("certification").cloned();
        Ok(known.doc().get("certification").is_some() && certified(known.doc()) == certified(result))
    }
}
