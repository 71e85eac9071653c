//! Doors about agents: the directory, cards, registration, invitations, subagents.
//!
//! A name that is absent, malformed or secret to whoever asks is answered with the same bytes, after the same work.

use super::doors::{Asking, Doors};
use super::http::Reply;
use super::mail::{answered, page};
use super::routes::{App, Call, Who};
use crate::ids::Ids;
use crate::limits;
use crate::mail::{self, Asker, Authority};
use crate::record::{Decided, View};
use crate::refusal::{Refusal, Rule};
use crate::store::DirectoryQuery;
use crate::time::Timestamp;
use crate::wire::address::Address;
use serde_json::{Value, json};

pub async fn directory(app: &App, call: Call) -> Result<Reply, Refusal> {
    let offset = call.query("offset").and_then(|text| text.parse().ok()).unwrap_or(0);
    let query = DirectoryQuery {
        capability: call.query("capability").map(str::to_owned),
        accepts: call.query("accepts").map(str::to_owned),
        q: call.query("q").map(str::to_owned),
        limit: page(call.query("limit"), limits::DIRECTORY_PAGE_DEFAULT, limits::DIRECTORY_PAGE_MAX),
        offset,
    };
    let (total, agents) = app.doors.read(move |reader| reader.directory(&query)).await?;
    Ok(Reply::ok(json!({"total": total, "offset": offset, "agents": agents})))
}

pub async fn card(app: &App, call: Call) -> Result<Reply, Refusal> {
    let asking = asking(&call);
    let (doc, _) = own_card(&app.doors, call.param("local"), &asking).await?;
    let reply = Reply::ok(doc);
    Ok(if matches!(asking, Asking::Nobody) { reply } else { reply.private() })
}

pub async fn register(app: &App, call: Call) -> Result<Reply, Refusal> {
    let ip = call.ip.to_string();
    let (house, now, seed) = (app.doors.house(), app.doors.now(), app.doors.seed()?);
    let authority = authority(&call.who);
    let answer = decide(&app.doors, &call, move |view, body| {
        mail::register(&house, view, now, &mut Ids::from_seed(seed), body, &authority, &ip)
    });
    Ok(answered(answer.await?))
}

pub async fn revoke(app: &App, call: Call) -> Result<Reply, Refusal> {
    let (house, now, local) = (app.doors.house(), app.doors.now(), call.param("local").to_owned());
    let authority = authority(&call.who);
    let answer =
        decide(&app.doors, &call, move |view, _| mail::delegation::revoke(&house, view, now, &local, &authority));
    Ok(answered(answer.await?))
}

/// `POST /agents/:local/profile`: the profile alone.
pub async fn profile(app: &App, call: Call) -> Result<Reply, Refusal> {
    let (house, now, local) = (app.doors.house(), app.doors.now(), call.param("local").to_owned());
    let caller = call.caller()?.card.clone();
    let answer = decide(&app.doors, &call, move |view, body| {
        mail::registration::set_profile(&house, view, now, &local, body, &caller)
    });
    Ok(answered(answer.await?))
}

/// `GET /delegations/:local`: the subagents of the caller, those that it revoked too.
pub async fn delegations(app: &App, call: Call) -> Result<Reply, Refusal> {
    let caller = call.caller()?;
    app.doors.spend(caller).await?;
    let parent = caller.card.clone();
    let query = move |reader: &crate::store::Reader| {
        let known = reader.subagents(&parent.address, "", limits::DELEGATIONS_SHOWN_MAX)?;
        let entries: Vec<Value> = known.iter().map(|sub| mail::cards::delegation_entry(&sub.card, &parent)).collect();
        Ok(json!({"delegations": entries}))
    };
    app.doors.list(query).await
}

pub async fn invite(app: &App, call: Call) -> Result<Reply, Refusal> {
    let (now, seed) = (app.doors.now(), app.doors.seed()?);
    let answer =
        decide(&app.doors, &call, move |_, body| mail::invitations::create(now, &mut Ids::from_seed(seed), body));
    Ok(answered(answer.await?))
}

pub async fn invitations(app: &App, _call: Call) -> Result<Reply, Refusal> {
    let known = app.doors.read(|reader| reader.invitations(limits::INVITATIONS_SHOWN_MAX)).await?;
    Ok(Reply::ok(mail::invitations::listing(&known)))
}

/// `GET /resolve/:address`: any address, through this house's own verification.
pub async fn resolve(app: &App, call: Call) -> Result<Reply, Refusal> {
    let asking = asking(&call);
    let address = Address::parse(call.param("address"))?;
    let (mut doc, last_seen) = if app.doors.house().is_mine(&address) {
        own_card(&app.doors, address.local(), &asking).await?
    } else {
        let asker = match &asking {
            Asking::Agent(card) => Some(&card.address),
            Asking::Nobody | Asking::Address(_) => None,
        };
        let card = app.doors.resolver.agent(&address, asker).await.map_err(|refusal| match refusal.transient() {
            true => Refusal::new(Rule::PeerUnreachable, refusal.reason),
            false => Refusal::new(Rule::NoSuchAgent, "no such agent"),
        })?;
        (card.doc().clone(), None)
    };
    if let Some(fields) = doc.as_object_mut() {
        fields.insert("presence".into(), json!({"last_seen": last_seen}));
    }
    Ok(Reply::ok(doc).private())
}

/// `GET /agents/:local/presence`.
pub async fn presence(app: &App, call: Call) -> Result<Reply, Refusal> {
    let (asking, house, now) = (asking(&call), app.doors.house(), app.doors.now());
    let local = call.param("local").to_owned();
    let found = app.doors.read(move |reader| Ok(mail::presence::answer(&house, reader, now, &local, asker(&asking))));
    Ok(Reply::ok(found.await??).private())
}

/// Runs a rule over the JSON body, spending the token of an agent whatever comes of it.
async fn decide<F>(doors: &Doors, call: &Call, rule: F) -> Result<mail::Answer, Refusal>
where
    F: Fn(&dyn View, &Value) -> Decided<mail::Answer> + Send + Sync + 'static,
{
    let body = call.json();
    match &call.who {
        Who::Agent(caller) => {
            doors
                .commit_as(caller, move |view| match &body {
                    Ok(body) => rule(view, body),
                    Err(refusal) => Err(refusal.clone()),
                })
                .await
        }
        _ => {
            let body = body?;
            doors.commit(move |view| rule(view, &body)).await
        }
    }
}

async fn own_card(doors: &Doors, local: &str, asking: &Asking) -> Result<(Value, Option<Timestamp>), Refusal> {
    let (local, asking, now) = (local.to_owned(), asking.clone(), doors.now());
    let house = doors.house();
    let found = doors.read(move |reader| {
        let asker = asker(&asking);
        let seen = mail::cards::seen_by(reader, &local, asker, now);
        let at = mail::presence::last_seen(reader, seen.as_ref(), now);
        Ok(seen.map(|record| mail::groups::card_for(&house, &record, asker).map(|doc| (doc, at))).transpose())
    });
    found.await??.ok_or_else(|| Refusal::new(Rule::NoSuchAgent, "no such agent"))
}

fn asker(asking: &Asking) -> Asker<'_> {
    match asking {
        Asking::Nobody => Asker::Nobody,
        Asking::Address(address) => Asker::Address(address),
        Asking::Agent(card) => Asker::Card(card),
    }
}

fn asking(call: &Call) -> Asking {
    match &call.who {
        Who::Asking(asking) => asking.clone(),
        _ => Asking::Nobody,
    }
}

fn authority(who: &Who) -> Authority {
    match who {
        Who::House => Authority::Admin,
        Who::Agent(caller) => Authority::Agent(Box::new(caller.card.clone())),
        Who::Nobody | Who::Asking(_) => Authority::Nobody,
    }
}
