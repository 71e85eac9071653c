//! Doors of attachments. Who asks is established before anything is looked for, and a stranger's answer is the same
//! whether there is such an attachment or not.
//!
//! An upload goes on when its caller has gone, to the point where it gives back what it had reserved: nothing depends on
//! whether a connection was cut at a good moment.

use super::doors::{Caller, Doors, lock};
use super::http::{Payload, Reply, declared_length, linger};
use super::routes::{App, Call};
use super::transfers::{self, Transfer};
use crate::limits;
use crate::mail::blobs::{self, Handed, Taking};
use crate::objects::{Incoming, ObjectFault, Objects};
use crate::record::{Decision, View};
use crate::refusal::{Refusal, Rule};
use crate::wire::digest::Hashing;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// `PUT /blob/:blob?to=…`: the sealed bytes, as they are to be stored.
pub async fn upload(app: &App, call: Call) -> Result<Reply, Refusal> {
    let body = lock(&call.raw).take().unwrap_or_default();
    let headers = call.headers.clone();
    match begin(app, &call).await {
        Ok((ticket, objects)) => {
            let doors = app.doors.clone();
            let taken = tokio::spawn(async move { ticket.receive(&doors, &objects, &headers, body).await });
            let (code, answer) = taken.await.unwrap_or_else(|_| Err(cannot_write()))?;
            Ok(Reply::json(code, answer))
        }
        Err(refusal) => {
            linger(&headers, body);
            Err(refusal)
        }
    }
}

/// `GET /blob/:blob`.
pub async fn download(app: &App, call: Call) -> Result<Reply, Refusal> {
    let caller = call.caller()?;
    let (house, now) = (app.doors.house(), app.doors.now());
    let (by, blob) = (caller.card.address.clone(), call.param("blob").to_owned());
    let found =
        app.doors.commit_as(caller, move |view| blobs::fetch(&house, view, now, &by, &blob).map(Decision::nothing));
    let row = found.await?;
    let objects = app.objects()?;
    let place = app.transfers.enter(&caller.card.address)?;
    let reading = objects.read(&row.blob).await.map_err(cannot_read)?;
    let Some(reading) = reading.filter(|reading| reading.bytes == row.bytes) else {
        tracing::error!(event = "attachment_lost", blob = %row.blob);
        return Err(Refusal::new(Rule::StoreUnavailable, "the house cannot read this attachment now"));
    };
    let (doors, by, blob) = (app.doors.clone(), caller.card.address.clone(), row.blob.clone());
    let had = async move {
        let now = doors.now();
        let noted = doors.commit(move |view| blobs::fetched(view, now, &by, &blob)).await;
        if let Err(refusal) = noted {
            tracing::info!(event = "fetch_not_noted", reason = %refusal.reason);
        }
    };
    let sending = transfers::send(reading, row.sha256.unwrap_or_default(), place, had);
    let reply =
        Reply { body: Payload::Stream { bytes: row.bytes, body: Body::new(sending) }, ..Reply::ok(Value::Null) };
    Ok(reply.private())
}

/// `DELETE /blob/:blob`.
pub async fn remove(app: &App, call: Call) -> Result<Reply, Refusal> {
    let caller = call.caller()?;
    let (house, now) = (app.doors.house(), app.doors.now());
    let (by, blob) = (caller.card.address.clone(), call.param("blob").to_owned());
    let marked = app.doors.commit_as(caller, move |view| blobs::remove(&house, view, now, &by, &blob)).await?;
    // What fails here is the clock's to do again: for everybody the attachment is gone already.
    if let Err(fault) = discard(&app.doors, &*app.objects()?, &marked).await {
        tracing::warn!(event = "attachment_not_removed", blob = %marked, error = %fault);
    }
    Ok(Reply::ok(json!({"ok": true, "blob": marked})))
}

/// Removes the object of an attachment that is marked as going, and its row after it.
pub async fn discard(doors: &Doors, objects: &Objects, blob: &str) -> Result<(), String> {
    objects.remove(blob).await.map_err(|fault| fault.to_string())?;
    let name = blob.to_owned();
    doors.commit(move |view| blobs::gone(view, &name)).await.map_err(|refusal| refusal.reason)
}

/// An upload that may go on.
struct Ticket {
    caller: Caller,
    handed: Handed,
    taking: Taking,
    upload: String,
    _place: Transfer,
}

/// All that is decided before the body is read; the token is spent whatever comes of it.
async fn begin(app: &App, call: &Call) -> Result<(Ticket, Arc<Objects>), Refusal> {
    let caller = call.caller()?.clone();
    let handed = handed(call);
    let place = app.transfers.enter(&caller.card.address);
    let upload = app.doors.ids()?.uuid();
    let (house, now, card, token) = (app.doors.house(), app.doors.now(), caller.card.clone(), upload.clone());
    let (asked, refused) = (handed.clone(), place.as_ref().err().cloned());
    let taking = app.doors.commit_as(&caller, move |view| {
        let handed = asked.as_ref().map_err(Clone::clone)?;
        match &refused {
            Some(refusal) => Err(refusal.clone()),
            None => blobs::reserve(&house, view, now, &card, handed, &token),
        }
    });
    let taking = taking.await?;
    let ticket = Ticket { caller, handed: handed?, taking, upload, _place: place? };
    match app.objects() {
        Ok(objects) => Ok((ticket, objects)),
        Err(refusal) => {
            ticket.give_back(&app.doors).await;
            Err(refusal)
        }
    }
}

fn handed(call: &Call) -> Result<Handed, Refusal> {
    let encoded = call.headers.get(header::CONTENT_ENCODING).is_some_and(|value| value.as_bytes() != b"identity");
    if encoded {
        return Err(Refusal::new(Rule::UnsupportedMedia, "an attachment is sent as it is stored, not encoded"));
    }
    let to = call.query.iter().filter(|(name, _)| name == "to").map(|(_, value)| value.as_str());
    Handed::parse(call.param("blob"), to, declared_length(&call.headers)?)
}

impl Ticket {
    /// Takes the bytes in, and keeps them. What fails before they lie anywhere gives back what was reserved; what fails
    /// later is the clock's, which finds by the reservation what may lie there.
    async fn receive(
        self,
        doors: &Doors,
        objects: &Objects,
        headers: &HeaderMap,
        mut body: Body,
    ) -> Result<(u16, Value), Refusal> {
        let most = Duration::from_millis(limits::BLOB_TRANSFER_MS);
        let taken = match objects.incoming().await.map_err(cannot_keep) {
            Ok(incoming) => tokio::time::timeout(most, take(incoming, &mut body)).await.unwrap_or_else(|_| Err(slow())),
            Err(refusal) => Err(refusal),
        };
        match taken {
            Ok((incoming, sha256)) if self.taking == Taking::Again => self.compare(doors, incoming, sha256).await,
            Ok((incoming, sha256)) => self.store(doors, objects, incoming, sha256).await,
            Err(refusal) => {
                linger(headers, body);
                self.give_back(doors).await;
                Err(refusal)
            }
        }
    }

    /// The bytes are to be those that are there.
    async fn compare(&self, doors: &Doors, incoming: Incoming, sha256: String) -> Result<(u16, Value), Refusal> {
        drop(incoming);
        let (handed, by, now) = (self.handed.clone(), self.caller.card.address.clone(), doors.now());
        let known = doors.commit(move |view| blobs::repeat(view, now, &by, &handed, &sha256)).await?;
        Ok((200, known))
    }

    async fn store(
        &self,
        doors: &Doors,
        objects: &Objects,
        incoming: Incoming,
        sha256: String,
    ) -> Result<(u16, Value), Refusal> {
        let (blob, upload, bytes) = (self.handed.blob.clone(), self.upload.clone(), incoming.bytes);
        if let Err(fault) = objects.keep(incoming, &blob).await {
            // Whether it lies there is not known; once it certainly does not, the room is free.
            if objects.remove(&blob).await.is_ok() {
                self.give_back(doors).await;
            }
            return Err(cannot_keep(fault));
        }
        let now = doors.now();
        let kept = doors.commit(move |view| blobs::keep(view, now, &blob, &upload, bytes, &sha256)).await;
        if kept.as_ref().is_err_and(|refusal| refusal.rule == Rule::Conflict) {
            self.clear(doors, objects).await;
        }
        kept.map(|answer| (201, answer))
    }

    /// The reservation ended before the bytes were kept: they are nobody's, unless the name was taken anew.
    async fn clear(&self, doors: &Doors, objects: &Objects) {
        let blob = self.handed.blob.clone();
        let vacant = doors.read(move |reader| Ok(reader.blob(&blob).is_none())).await;
        if matches!(vacant, Ok(true))
            && let Err(fault) = objects.remove(&self.handed.blob).await
        {
            tracing::warn!(event = "attachment_not_removed", blob = %self.handed.blob, error = %fault);
        }
    }

    async fn give_back(&self, doors: &Doors) {
        if self.taking == Taking::Again {
            return;
        }
        let (blob, upload) = (self.handed.blob.clone(), self.upload.clone());
        if let Err(refusal) = doors.commit(move |view| blobs::release(view, &blob, &upload)).await {
            // The reservation ends by itself.
            tracing::info!(event = "reservation_left", reason = %refusal.reason);
        }
    }
}

async fn take(mut incoming: Incoming, body: &mut Body) -> Result<(Incoming, String), Refusal> {
    let mut digest = Hashing::default();
    loop {
        let frame = tokio::time::timeout(Duration::from_millis(limits::BLOB_STALL_MS), body.frame()).await;
        let Some(frame) = frame.map_err(|_| slow())? else { break };
        let frame = frame.map_err(|_| {
            Refusal::new(Rule::BodyTruncated, "the body ended before its declared length, or its framing is broken")
        })?;
        let Ok(piece) = frame.into_data() else { continue };
        if incoming.bytes + piece.len() as u64 > limits::ATTACHMENT_BYTES_MAX {
            return Err(blobs::too_large());
        }
        digest.update(&piece);
        incoming.write(&piece).await.map_err(cannot_keep)?;
    }
    if incoming.bytes == 0 {
        return Err(Refusal::new(Rule::BadParameter, "the body is empty; it is the sealed file"));
    }
    Ok((incoming, digest.finish().hex()))
}

fn slow() -> Refusal {
    Refusal::new(Rule::BodyTooSlow, "the body did not arrive in time")
}

fn cannot_keep(fault: ObjectFault) -> Refusal {
    tracing::error!(event = "attachment_not_kept", error = %fault);
    cannot_write()
}

fn cannot_write() -> Refusal {
    Refusal::new(Rule::StoreUnavailable, "the house cannot keep attachments now; send the same again later")
        .retry_after(limits::STORE_RETRY_AFTER_SECONDS)
}

fn cannot_read(fault: ObjectFault) -> Refusal {
    tracing::error!(event = "attachment_unreadable", error = %fault);
    Refusal::new(Rule::StoreUnavailable, "the house cannot read this attachment now; ask again later")
        .retry_after(limits::STORE_RETRY_AFTER_SECONDS)
}
