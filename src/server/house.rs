//! Doors about the house itself: its card, its health.

use super::http::Reply;
use super::routes::{App, Call};
use crate::refusal::{Refusal, Rule};
use serde_json::json;

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
