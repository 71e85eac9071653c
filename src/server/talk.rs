//! Doors about conversations.
//!
//! The caller is the owner before anything of the question is looked at, so that whoever asks about another's learns
//! nothing from what is refused.

use super::http::Reply;
use super::mail::{answered, page};
use super::routes::{App, Call};
use crate::limits;
use crate::mail::{groups, talk};
use crate::record::{Change, Decision};
use crate::refusal::{Refusal, Rule};

/// `GET /conversations/:local`: the contacts, or with `with` the letters exchanged with one.
pub async fn conversations(app: &App, call: Call) -> Result<Reply, Refusal> {
    let (local, now) = (call.param("local").to_owned(), app.doors.now());
    let file = Change::FileDeferred { local: local.clone(), at: now };
    let filed = app.doors.commit_as(call.caller()?, move |_| Ok(Decision { changes: vec![file.clone()], reply: () }));
    filed.await?;
    let project = talk::project_filter(call.query("project"))?;
    let Some(with) = call.query("with").map(str::to_lowercase) else {
        let before = talk::before::<String>(call.query("before"))?;
        let limit = page(call.query("limit"), limits::CONVERSATION_PAGE_MAX, limits::CONVERSATION_PAGE_MAX);
        return app
            .doors
            .list(move |reader| {
                let (list, full) = reader.conversations(&local, project.as_deref(), before.as_ref(), limit)?;
                Ok(talk::listing(&list, project.as_deref(), full))
            })
            .await;
    };
    if with.len() > limits::CONTACT_BYTES_MAX {
        let reason = format!("with is an address of at most {} bytes", limits::CONTACT_BYTES_MAX);
        return Err(Refusal::new(Rule::BadParameter, reason));
    }
    let before = talk::before::<i64>(call.query("before"))?;
    let limit = page(call.query("limit"), limits::CONVERSATION_PAGE_DEFAULT, limits::CONVERSATION_PAGE_MAX);
    app.doors
        .list(move |reader| {
            let (letters, full) = reader.letters(&local, &with, project.as_deref(), before.as_ref(), limit)?;
            Ok(talk::history(&with, letters, full))
        })
        .await
}

/// `POST /groups`.
pub async fn create_group(app: &App, call: Call) -> Result<Reply, Refusal> {
    let (house, now, caller) = (app.doors.house(), app.doors.now(), call.caller()?);
    let (card, body) = (caller.card.clone(), call.json());
    let made = app.doors.commit_as(caller, move |view| {
        let body = body.as_ref().map_err(Refusal::clone)?;
        groups::create(&house, view, now, &card, body)
    });
    Ok(answered(made.await??))
}

/// `GET /groups/:g/members`.
pub async fn group_members(app: &App, call: Call) -> Result<Reply, Refusal> {
    let (house, caller) = (app.doors.house(), call.caller()?);
    app.doors.spend(caller).await?;
    let (card, local) = (caller.card.clone(), call.param("local").to_owned());
    let found = app.doors.read(move |reader| Ok(groups::members(&house, reader, &card, &local)));
    Ok(Reply::ok(found.await??))
}

/// `POST /groups/:g/members`.
pub async fn edit_group(app: &App, call: Call) -> Result<Reply, Refusal> {
    let (house, now, caller) = (app.doors.house(), app.doors.now(), call.caller()?);
    let (card, body, local) = (caller.card.clone(), call.json(), call.param("local").to_owned());
    let made = app.doors.commit_as(caller, move |view| {
        let body = body.as_ref().map_err(Refusal::clone)?;
        groups::edit(&house, view, now, &card, &local, body)
    });
    Ok(answered(made.await??))
}
