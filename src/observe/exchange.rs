//! One request over one new connection, phase by phase, each within its deadline.
//!
//! Promise: whatever the peer does, this ends within the plan's time and keeps no more than the plan asked for; what was
//! established before a fault (address, certificate, head) is in the observation.
//!
//! Deliberately absent: redirects, retries, cookies, ranges, reuse of a connection, proxies.

use super::body::{BodyReader, Closed, Framing, framing};
use super::connect::{Peer, dial, handshake, server_name, tls_fault};
use super::head::{Head, HeadReader};
use super::target::Target;
use super::{Failure, Inner, now};
use crate::limits::TIMEOUT_MS_MAX;
use crate::probe::observation::{Cause, Content, End, FetchPlan, Method, Observation, Phase, Response, Seen};
use crate::time::Timestamp;
use crate::wire::Sha256;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::client::TlsStream;

type Stream = TlsStream<TcpStream>;

/// Fetches what the plan asks for, from a target that was already found admissible.
pub(super) async fn observe(inner: &Inner, plan: &FetchPlan, target: &Target) -> Observation {
    let started = now();
    let mut peer = Peer::default();
    let seen = match response(inner, plan, target, &mut peer).await {
        Ok(response) => Seen::Response(response),
        Err(failure) => failure.seen(),
    };
    observation(plan, started, peer, seen)
}

/// What is seen when nothing was asked.
pub(super) fn unasked(plan: &FetchPlan, failure: Failure) -> Observation {
    observation(plan, now(), Peer::default(), failure.seen())
}

fn observation(plan: &FetchPlan, started: Timestamp, peer: Peer, seen: Seen) -> Observation {
    Observation {
        key: plan.key.clone(),
        started,
        ended: now().max(started),
        address: peer.address,
        certificate_sha256: peer.certificate_sha256,
        certificate_not_after: peer.certificate_not_after,
        tls: peer.tls,
        seen,
    }
}

async fn response(inner: &Inner, plan: &FetchPlan, target: &Target, peer: &mut Peer) -> Result<Response, Failure> {
    let deadlines = &inner.deadlines;
    let whole = Whole::new(plan.timeout_ms);
    let name = server_name(&target.host).ok_or_else(|| {
        Failure::new(Phase::Dns, Cause::Contract, "the host is not a name that a certificate can have")
    })?;
    let addresses =
        whole.phase(Phase::Dns, deadlines.dns_ms, inner.names.addresses(&target.host, target.port)).await??;

    let mut last = Failure::new(Phase::Connect, Cause::Network, "no address to dial");
    let mut stream = None;
    for address in addresses {
        match whole.phase(Phase::Connect, deadlines.connect_ms, dial(address)).await.and_then(|done| done) {
            Ok(connected) => {
                peer.address = Some(address);
                stream = Some(connected);
                break;
            }
            Err(failure) => last = failure,
        }
    }
    let stream = stream.ok_or(last)?;
    let mut stream = whole.phase(Phase::Tls, deadlines.tls_ms, handshake(&inner.tls, name, stream, peer)).await??;

    let first_byte = whole.by(Phase::Head, deadlines.first_byte_ms);
    first_byte.within(send(&mut stream, plan, target)).await??;
    let mut reader = Reader::new();
    let (head, by) = read_head(&mut stream, &mut reader, first_byte, &whole, deadlines.body_ms).await?;
    let origin = |reason| Failure::new(Phase::Head, Cause::Origin, reason);
    let framing = framing(&head, plan.key.method).map_err(origin)?;
    let content =
        read_content(&mut stream, &mut reader, plan, framing, by, &whole, deadlines.no_content_grace_ms).await;
    // Goodbye, so that a careful server does not log an attack; nothing depends on it.
    let _ = timeout_at(Instant::now() + GOODBYE, stream.shutdown()).await;
    Ok(Response { status: head.status, headers: head.headers, content })
}

async fn send(stream: &mut Stream, plan: &FetchPlan, target: &Target) -> Result<(), Failure> {
    let request = target.request(plan.key.method, &plan.key.accept);
    let sent = async {
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await
    };
    // A server may answer and close before it has read the request: what it said is still there to be read.
    match sent.await {
        Err(error) if tls_fault(&error).is_some() => {
            Err(Failure::new(Phase::Head, Cause::Origin, format!("the TLS stream broke: {error}")))
        }
        _ => Ok(()),
    }
}

/// The final head, and by when the content must be over.
async fn read_head(
    stream: &mut Stream,
    reader: &mut Reader,
    first_byte: By,
    whole: &Whole,
    body_ms: u64,
) -> Result<(Head, By), Failure> {
    let mut heads = HeadReader::new();
    let mut by = first_byte;
    loop {
        let mut input = match by.within(reader.read(stream)).await? {
            Ok(bytes) => bytes,
            Err(closed) => return Err(without_head(closed, heads.started())),
        };
        if !heads.started() {
            by = whole.by(Phase::Body, body_ms);
        }
        let found = heads.feed(&mut input).map_err(|why| Failure::new(Phase::Head, Cause::Origin, why))?;
        let left = input.len();
        reader.keep_last(left);
        if let Some(head) = found {
            return Ok((head, by));
        }
    }
}

fn without_head(closed: Closed, started: bool) -> Failure {
    let what = if started { "in the middle of the head" } else { "without an answer" };
    match closed {
        Closed::Broken { cause, reason } => Failure::new(Phase::Head, cause, format!("{reason} {what}")),
        Closed::Notified | Closed::Silent => {
            Failure::new(Phase::Head, Cause::Origin, format!("the server closed the connection {what}"))
        }
    }
}

async fn read_content(
    stream: &mut Stream,
    reader: &mut Reader,
    plan: &FetchPlan,
    framing: Framing,
    by: By,
    whole: &Whole,
    grace_ms: u64,
) -> Content {
    let nothing = |end| Content { kept: Vec::new(), bytes: 0, sha256: Sha256::of(b""), end };
    if plan.read == 0 {
        return nothing(End::NotRead);
    }
    if plan.key.method == Method::Head {
        return nothing(End::Complete);
    }
    let by = if framing == Framing::Nothing { by.sooner(whole.by(Phase::Body, grace_ms)) } else { by };
    let mut body = BodyReader::new(framing, plan.read, plan.keep);
    let mut end = body.feed(reader.kept());
    while end.is_none() {
        end = match by.within(reader.read(stream)).await {
            Ok(Ok(bytes)) => body.feed(bytes),
            Ok(Err(closed)) => Some(body.closed(closed)),
            Err(late) => Some(body.closed(Closed::Broken { cause: late.cause, reason: late.reason })),
        };
    }
    body.into_content(end.unwrap_or(End::Cut))
}

/// The bytes that were read last, and those of them that are still to be used.
struct Reader {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

impl Reader {
    fn new() -> Self {
        Reader { buffer: vec![0; READ_BYTES], from: 0, to: 0 }
    }

    async fn read(&mut self, stream: &mut Stream) -> Result<&[u8], Closed> {
        (self.from, self.to) = (0, 0);
        match stream.read(&mut self.buffer).await {
            Ok(0) => Err(Closed::Notified),
            Ok(size) => {
                self.to = size;
                Ok(self.kept())
            }
            Err(error) => Err(closed_by(&error)),
        }
    }

    fn keep_last(&mut self, size: usize) {
        self.from = self.to.saturating_sub(size);
    }

    fn kept(&self) -> &[u8] {
        self.buffer.get(self.from..self.to).unwrap_or_default()
    }
}

fn closed_by(error: &io::Error) -> Closed {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Closed::Silent;
    }
    match tls_fault(error) {
        Some(rustls::Error::AlertReceived(alert)) => {
            Closed::Broken { cause: Cause::Origin, reason: format!("the server broke the TLS stream off ({alert:?})") }
        }
        Some(_) => Closed::Broken { cause: Cause::Origin, reason: "the TLS stream was damaged".into() },
        None => Closed::Broken { cause: Cause::Network, reason: format!("the connection broke ({})", error.kind()) },
    }
}

/// The time of the whole request.
struct Whole {
    end: Instant,
    ms: u64,
}

/// A moment by which a phase must be over, and how to say that it was not.
#[derive(Clone, Copy)]
struct By {
    at: Instant,
    phase: Phase,
    ms: u64,
    whole: bool,
}

impl Whole {
    fn new(timeout_ms: u64) -> Self {
        let ms = timeout_ms.min(TIMEOUT_MS_MAX);
        Whole { end: Instant::now() + Duration::from_millis(ms), ms }
    }

    fn by(&self, phase: Phase, ms: u64) -> By {
        let at = Instant::now() + Duration::from_millis(ms.min(TIMEOUT_MS_MAX));
        if at < self.end {
            By { at, phase, ms, whole: false }
        } else {
            By { at: self.end, phase, ms: self.ms, whole: true }
        }
    }

    async fn phase<F: Future>(&self, phase: Phase, ms: u64, work: F) -> Result<F::Output, Failure> {
        self.by(phase, ms).within(work).await
    }
}

impl By {
    async fn within<F: Future>(&self, work: F) -> Result<F::Output, Failure> {
        timeout_at(self.at, work).await.map_err(|_| {
            let Self { phase, ms, whole, .. } = *self;
            let what = match phase {
                Phase::Dns => "looking the name up",
                Phase::Connect => "connecting",
                Phase::Tls => "the TLS handshake",
                Phase::Head => "waiting for the first byte",
                Phase::Body => "the answer",
            };
            let reason = if whole {
                format!("out of time: {what} was not over {ms} ms after the request began")
            } else {
                format!("out of time: {what} took longer than {ms} ms")
            };
            // Late content is the content's matter; everything else means that there is no head.
            let phase = if phase == Phase::Body { Phase::Head } else { phase };
            Failure::new(phase, Cause::Network, reason)
        })
    }

    fn sooner(self, other: By) -> By {
        if other.at < self.at { other } else { self }
    }
}

const READ_BYTES: usize = 16_384;
const GOODBYE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_time_of_a_plan_is_bounded_and_the_sooner_deadline_speaks() {
        for (asked, given) in
            [(0, 0), (TIMEOUT_MS_MAX, TIMEOUT_MS_MAX), (TIMEOUT_MS_MAX + 1, TIMEOUT_MS_MAX), (u64::MAX, TIMEOUT_MS_MAX)]
        {
            assert_eq!(Whole::new(asked).ms, given);
        }
        let whole = Whole::new(1_000);
        assert!(!whole.by(Phase::Tls, 10).whole);
        assert!(whole.by(Phase::Tls, u64::MAX).whole);
        let late = Whole::new(u64::MAX).phase(Phase::Tls, 1, std::future::pending::<()>()).await.unwrap_err();
        assert_eq!((late.phase, late.cause), (Phase::Tls, Cause::Network));
        assert_eq!(late.reason, "out of time: the TLS handshake took longer than 1 ms");
        let late = Whole::new(1).phase(Phase::Body, 50, std::future::pending::<()>()).await.unwrap_err();
        assert_eq!(late.reason, "out of time: the answer was not over 1 ms after the request began");
    }
}
