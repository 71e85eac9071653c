//! Doors of the operator about the keys that other houses are known by: which are pinned, what a house presents now, and
//! the confirmation of a key that changed without the old one's word.

use super::http::Reply;
use super::routes::{App, Call};
use crate::limits;
use crate::mail::pins;
use crate::refusal::{Refusal, Rule};
use crate::wire::address::Domain;
use serde_json::json;

/// `GET /pins?after=<domain>`: by domain, page by page.
pub async fn listing(app: &App, call: Call) -> Result<Reply, Refusal> {
    let after = call.query("after").unwrap_or_default().to_owned();
    let known = app.doors.read(move |reader| reader.pins(&after, limits::PINS_PAGE_MAX)).await?;
    Ok(Reply::ok(pins::listing(&known)))
}

/// `GET /pins/:domain`: the pinned key beside the one that the house signs with now.
pub async fn shown(app: &App, call: Call) -> Result<Reply, Refusal> {
    let domain = named(&call)?;
    let name = domain.to_string();
    let pinned = app.doors.read(move |reader| reader.pinned(&name)).await?;
    let presented = app.doors.resolver.presented(&domain).await;
    let fault = presented.as_ref().err().map(|refusal| refusal.reason.clone());
    Ok(Reply::ok(json!({
        "domain": domain, "pinned": pinned.as_ref().map(pins::entry),
        "presented": presented.ok().map(|key| key.kid()), "fault": fault,
    })))
}

/// `POST /pins/:domain {"key"}`: from now on the domain is known by this key, and by no other.
pub async fn confirm(app: &App, call: Call) -> Result<Reply, Refusal> {
    let (domain, now, body) = (named(&call)?, app.doors.now(), call.json()?);
    let (house, name) = (app.doors.house(), domain.clone());
    let answer = app.doors.commit(move |view| pins::confirm(&house, view, now, &name, &body)).await?;
    app.doors.resolver.distrust(&domain);
    Ok(super::mail::answered(answer))
}

fn named(call: &Call) -> Result<Domain, Refusal> {
    Domain::parse(call.param("domain")).map_err(|refusal| Refusal::new(Rule::BadParameter, refusal.reason))
}
