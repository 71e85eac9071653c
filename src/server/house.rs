//! Doors about the house itself: its card, its health, what happened in it.

use super::http::Reply;
use super::mail::page;
use super::routes::{App, Call};
use crate::limits;
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub async fn domain_card(app: &App, _call: Call) -> Result<Reply, Refusal> {
    let card = app.doors.read(|reader| reader.domain_card()).await?;
    card.map(Reply::ok).ok_or_else(|| Refusal::new(Rule::Draining, "the house is starting"))
}

pub async fn health(app: &App, _call: Call) -> Result<Reply, Refusal> {
    let counts = app.doors.read(|reader| reader.counts()).await?;
    Ok(Reply::ok(json!({
        "ok": true, "domain": app.doors.house().domain, "agents": counts.agents, "queue": counts.queue,
    })))
}

/// The process answers.
pub async fn live(_app: &App, _call: Call) -> Result<Reply, Refusal> {
    Ok(Reply::ok(json!({"ok": true})))
}

/// The house takes work: started, not draining, its disk sound. Otherwise every reason, by name.
pub async fn ready(app: &App, _call: Call) -> Result<Reply, Refusal> {
    let reasons: Vec<&str> = [
        (!app.is_started(), "starting"),
        (app.stopping.is_cancelled(), "draining"),
        (app.doors.store.is_poisoned(), "store failed"),
    ]
    .into_iter()
    .filter_map(|(failing, name)| failing.then_some(name))
    .collect();
    let code = if reasons.is_empty() { 200 } else { 503 };
    let mut reply = Reply::json(code, json!({"ok": reasons.is_empty(), "failing": reasons}));
    if code == 503 {
        reply.retry_after = Some(1);
    }
    Ok(reply)
}

/// `GET /eventos`: the newest first, and how many there were of each name.
pub async fn events(app: &App, call: Call) -> Result<Reply, Refusal> {
    let bad = |why: &str| Refusal::new(Rule::BadParameter, why);
    let name = call.query("name").map(str::to_owned);
    if name.as_ref().is_some_and(|name| name.len() > limits::EVENT_NAME_BYTES_MAX) {
        return Err(bad("name is longer than the name of any event"));
    }
    let since = match call.query("since") {
        None => None,
        Some(text) => Some(Timestamp::parse(text).ok_or_else(|| bad("since must be an ISO 8601 instant with a zone"))?),
    };
    let limit = page(call.query("limit"), limits::EVENTS_PAGE_DEFAULT, limits::EVENTS_PAGE_MAX);
    app.doors
        .list(move |reader| {
            let counts = reader.event_counts(name.as_deref(), since)?;
            let from = since.unwrap_or(Timestamp::from_millis(i64::MIN));
            let log = reader.event_log(name.as_deref(), from, limit)?;
            let events: Vec<Value> = log
                .into_iter()
                .map(|(id, event)| {
                    json!({"id": id, "name": event.name, "ts": event.at, "actor": event.actor, "data": event.data})
                })
                .collect();
            Ok(json!({"conteo": counts.into_iter().collect::<BTreeMap<_, _>>(), "eventos": events}))
        })
        .await
}
