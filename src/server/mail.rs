//! Doors of the mail: taking in, sending, reading, acknowledging, waiting.

use super::doors::{Caller, Doors};
use super::http::{JSON, Reply};
use super::routes::{App, Call};
use crate::ids::Ids;
use crate::libro;
use crate::limits;
use crate::mail::{self, Answer, Arrival};
use crate::record::{Cards, MailRecord};
use crate::refusal::{Refusal, Rule};
use crate::store::MailFilter;
use crate::time::Timestamp;
use crate::wire::address::Address;
use crate::wire::auth::Relay;
use crate::wire::envelope::Envelope;
use crate::wire::json;
use serde_json::{Value, json};
use std::time::Duration;

impl Doors {
    /// An envelope arrives, from another house, from this house's queue or from its arbiter: one door for all of them.
    ///
    /// Nothing is answered before all that the arrival causes is durable.
    pub async fn inbound(&self, bytes: &[u8], relay: Option<&str>) -> Answer {
        match self.arrive(bytes, relay).await {
            Ok(answer) => answer,
            Err(refusal) => Answer::refused(&refusal),
        }
    }

    async fn arrive(&self, bytes: &[u8], relay: Option<&str>) -> Result<Answer, Refusal> {
        let mut envelope = self.envelope(bytes)?;
        mail::precheck(&self.house(), self.now(), &envelope)?;
        let asker = envelope.to.iter().find(|to| self.house().is_mine(to)).cloned();
        let (id, from, kid) = (envelope.id.clone(), envelope.from.clone(), envelope.kid.clone());
        let sender = match self.resolver.known_sender(&from, &kid, asker.as_ref()) {
            Some(card) => card,
            None => {
                // A document in memory can be many times its bytes; whoever makes this house wait for a card does not
                // make it hold the document meanwhile.
                drop(envelope);
                let card = self.resolver.sender(&from, &kid, asker.as_ref()).await?;
                envelope = self.envelope(bytes)?;
                card
            }
        };
        let verified = envelope.verify(sender, self.now())?;
        let relay_verified = self.relayed(relay, &from, &id).await;
        let sender_promises_sealed = match self.house().is_mine(&from) {
            true => false,
            false => self.resolver.domain_card(&from.domain()).await?.outbound_sealed,
        };
        let cards = self.cards_for(verified.envelope()).await;
        let arrival = Arrival { verified, relay_verified, sender_promises_sealed };
        let (house, now, seed) = (self.house(), self.now(), self.seed()?);
        let answer = self
            .commit(move |view| mail::inbound(&house, view, now, &mut Ids::from_seed(seed), &cards, &arrival))
            .await?;
        tracing::info!(event = "inbound", id = %id, from = %from, code = answer.code, relay_verified);
        Ok(answer)
    }

    fn envelope(&self, bytes: &[u8]) -> Result<Envelope, Refusal> {
        Envelope::parse(json::parse_object(bytes)?, self.house().settings.max_bytes)
    }

    /// Whether the sender's own house vouches for having relayed this envelope. Doubt is no.
    async fn relayed(&self, header: Option<&str>, from: &Address, id: &str) -> bool {
        let Some(relay) = header.and_then(Relay::parse) else { return false };
        if !from.is_of(&relay.domain) {
            return false;
        }
        match self.resolver.domain_keys(&relay.domain, relay.kid()).await {
            Ok(keys) => relay.verifies(&keys, id, &self.house().domain),
            Err(_) => false,
        }
    }

    /// The cards that the ledger must see before it decides about this envelope, each resolved or refused.
    async fn cards_for(&self, envelope: &Envelope) -> Cards {
        let mut cards = Cards::new();
        for address in libro::cards_needed(&self.house(), envelope) {
            let card = self.resolver.agent(&address, Some(&envelope.from)).await;
            cards.insert(address, card);
        }
        cards
    }

    /// An agent of this house hands in an envelope to send.
    pub async fn outbound(&self, caller: &Caller, bytes: &[u8]) -> Result<Answer, Refusal> {
        let envelope = match self.envelope(bytes) {
            Ok(envelope) => envelope,
            Err(refusal) => {
                self.spend(caller).await?;
                return Err(refusal);
            }
        };
        let (house, now, card) = (self.house(), self.now(), caller.card.clone());
        let id = envelope.id.clone();
        let answer = self.commit_as(caller, move |view| mail::outbound(&house, view, now, &card, &envelope)).await?;
        tracing::info!(event = "outbound", id = %id, from = %caller.card.address, code = answer.code);
        Ok(answer)
    }

    /// The oldest pending envelope that passes the filter, waiting for one as long as `within` and until `stopping`.
    pub async fn wait(
        &self,
        local: &str,
        filter: &MailFilter,
        within: Duration,
        stopping: &tokio_util::sync::CancellationToken,
    ) -> Result<Option<MailRecord>, Refusal> {
        let place = self.wakes.wait_at(local);
        let deadline = tokio::time::Instant::now() + within;
        loop {
            // Listening starts before looking: what arrives in between rings.
            let ring = place.bell.notified();
            tokio::pin!(ring);
            ring.as_mut().enable();
            if let Some(found) = self.first_pending(local, filter).await? {
                return Ok(Some(found));
            }
            if tokio::time::Instant::now() >= deadline {
                return Ok(None);
            }
            // Mail for later becomes visible without a ring.
            let again = tokio::time::Instant::now() + Duration::from_millis(limits::WAIT_RECHECK_MS);
            tokio::select! {
                () = ring => {}
                () = tokio::time::sleep_until(again.min(deadline)) => {}
                () = stopping.cancelled() => return Ok(None),
                () = place.displaced.cancelled() => return Ok(None),
            }
        }
    }

    async fn first_pending(&self, local: &str, filter: &MailFilter) -> Result<Option<MailRecord>, Refusal> {
        let (name, filter, now) = (local.to_owned(), filter.clone(), self.now());
        self.read(move |reader| reader.first_pending(&name, &filter, now)).await
    }
}

pub async fn inbound(app: &App, call: Call) -> Result<Reply, Refusal> {
    Ok(answered(app.doors.inbound(&call.body.bytes, call.header("x-nyx5-relay")).await))
}

pub async fn outbound(app: &App, call: Call) -> Result<Reply, Refusal> {
    Ok(answered(app.doors.outbound(call.caller()?, &call.body.bytes).await?))
}

pub async fn mailbox(app: &App, call: Call) -> Result<Reply, Refusal> {
    app.doors.spend(call.caller()?).await?;
    let limit = page(call.query("limit"), limits::MAILBOX_PAGE_DEFAULT, limits::MAILBOX_PAGE_MAX);
    let (local, now) = (call.param("local").to_owned(), app.doors.now());
    app.doors.list(move |reader| Ok(mail::mailbox::messages(&reader.mailbox(&local, limit, now)?))).await
}

pub async fn acknowledge(app: &App, call: Call) -> Result<Reply, Refusal> {
    let caller = call.caller()?;
    let body = match call.json() {
        Ok(body) => body,
        Err(refusal) => {
            app.doors.spend(caller).await?;
            return Err(refusal);
        }
    };
    let (house, now, seed) = (app.doors.house(), app.doors.now(), app.doors.seed()?);
    let owner = caller.card.clone();
    let answer = app.doors.commit_as(caller, move |view| {
        mail::mailbox::acknowledge(&house, view, now, &mut Ids::from_seed(seed), &owner, &body)
    });
    Ok(answered(answer.await?))
}

pub async fn wait(app: &App, call: Call) -> Result<Reply, Refusal> {
    app.doors.spend(call.caller()?).await?;
    let since = match call.query("since") {
        None => None,
        Some(text) => Some(Timestamp::parse(text).ok_or_else(|| {
            Refusal::new(Rule::BadParameter, "since must be an ISO 8601 instant with a zone, as `received` shows it")
        })?),
    };
    let filter = MailFilter {
        from: call.query("from").map(str::to_owned),
        thread: call.query("thread").map(str::to_owned),
        since,
        project: mail::talk::project_filter(call.query("project"))?,
    };
    let seconds = call.query("timeout").and_then(|text| text.parse::<u64>().ok());
    let seconds = seconds.unwrap_or(limits::WAIT_SECONDS_DEFAULT).min(limits::WAIT_SECONDS_MAX);
    let within = Duration::from_secs(seconds);
    let found = app.doors.wait(call.param("local"), &filter, within, &app.stopping).await?;
    Ok(Reply::ok(json!({"message": found.map_or(Value::Null, |mail| mail.to_json())})))
}

pub async fn outbox(app: &App, call: Call) -> Result<Reply, Refusal> {
    app.doors.spend(call.caller()?).await?;
    let limit = page(call.query("limit"), limits::OUTBOX_PAGE_MAX, limits::OUTBOX_PAGE_MAX);
    let local = call.param("local").to_owned();
    app.doors.list(move |reader| Ok(mail::mailbox::sent(&reader.outbox(&local, limit)?))).await
}

/// A page size as a stranger wrote it; what is no size is the default.
pub fn page(given: Option<&str>, default: usize, max: usize) -> usize {
    given.and_then(|text| text.parse::<usize>().ok()).filter(|n| *n > 0).unwrap_or(default).min(max)
}

pub fn answered(answer: Answer) -> Reply {
    let mut reply = Reply { code: answer.code, ..Reply::text(JSON, answer.body.text().to_owned()) };
    reply.retry_after = match (answer.retry_after, answer.code) {
        (Some(seconds), _) => Some(seconds.max(1)),
        (None, 429 | 503) => Some(1),
        (None, _) => None,
    };
    reply
}
