//! What a judge may take from an observation: the head, and as much of the content as its test asks for.
//!
//! A judge sees the same bytes whatever else the contract asks of that URL (V6): if the snapshot read further than this
//! test needed, the test sees a content that was cut where its own reading would have stopped, and nothing of what
//! happened later. Rules about the response that hold for every test of content are applied here, before a judge sees it.

use super::observation::{Cause, Content, End, Observation, Response, Seen};
use super::result::{Evidence, Outcome};
use super::text;
use serde_json::Value;

/// An outcome that was reached, and why.
pub type Decision = (Outcome, String);

/// A content as one test sees it.
#[derive(Debug)]
pub struct View<'a> {
    /// The first bytes, all that the test asked to keep.
    pub kept: &'a [u8],
    /// How many bytes there are in view; never more than the test needed.
    pub bytes: u64,
    pub end: ViewEnd,
    pub content: &'a Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewEnd {
    /// The content is complete.
    Complete,
    /// Perhaps complete: the connection closed without saying so (V71).
    Unconfirmed,
    /// There are at least as many bytes as the test needed; what follows was not looked at.
    Cut,
}

/// How far a test reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Bytes after which the test looks no further.
    pub read: u64,
    /// Bytes of which it looks at the value.
    pub keep: u64,
}

/// The head of the answer, unless there was none or an intermediary gave it (V27).
pub fn head(observation: &Observation) -> Result<&Response, Decision> {
    let response = match &observation.seen {
        Seen::Nothing { cause, reason, .. } => {
            return Err((Outcome::Undecided(*cause), text::plain(reason, REASON_CHARS)));
        }
        Seen::Response(response) => response,
    };
    let status = response.status;
    if (520..=529).contains(&status) {
        return Err((
            Outcome::Undecided(Cause::Edge),
            format!("answered {status}: an edge in front of the server could not reach it"),
        ));
    }
    if matches!(status, 403 | 429 | 503)
        && let Some(marker) = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case("cf-mitigated"))
    {
        return Err((
            Outcome::Undecided(Cause::Edge),
            format!(
                "answered {status} with cf-mitigated: {}: an edge in front of the server refused to ask it",
                text::quote_bytes(&marker.value, MARKER_CHARS)
            ),
        ));
    }
    if !(200..=599).contains(&status) {
        return Err((Outcome::Undecided(Cause::Origin), format!("answered {status}, which is not a final status")));
    }
    Ok(response)
}

/// The content of a 2xx answer (V24, V26, V77).
pub fn body(observation: &Observation, need: Need) -> Result<View<'_>, Decision> {
    let response = head(observation)?;
    let origin = |why: String| (Outcome::Undecided(Cause::Origin), why);
    match response.status {
        206 => return Err(origin("answered 206, a part of the content, and no part was asked for".to_owned())),
        200..=299 => {}
        status @ 300..=399 => {
            return Err((Outcome::Fail, format!("answered {status}: redirects are not followed, nothing to read")));
        }
        status => return Err((Outcome::Fail, format!("answered {status}: nothing to read"))),
    }
    if let Some(coding) = content_coding(response) {
        return Err(origin(format!(
            "answered with content-encoding {}, and identity was asked for",
            text::quote_bytes(&coding, MARKER_CHARS)
        )));
    }
    let content = &response.content;
    if matches!(response.status, 204 | 205) && content.bytes > 0 {
        return Err(origin(format!("answered {}, which has no content, with content", response.status)));
    }
    let (bytes, end) = if content.bytes >= need.read {
        (need.read, ViewEnd::Cut)
    } else {
        let end = match &content.end {
            End::Complete => ViewEnd::Complete,
            End::Unconfirmed => ViewEnd::Unconfirmed,
            End::Broken { cause, reason } => {
                return Err((
                    Outcome::Undecided(*cause),
                    format!(
                        "the content broke off after {} bytes: {}",
                        content.bytes,
                        text::plain(reason, REASON_CHARS)
                    ),
                ));
            }
            End::Cut | End::NotRead => {
                return Err((
                    Outcome::Undecided(Cause::Ours),
                    format!("only {} bytes were read, and the test needs more", content.bytes),
                ));
            }
        };
        (content.bytes, end)
    };
    let wanted = need.keep.min(bytes);
    match usize::try_from(wanted).ok().and_then(|n| content.kept.get(..n)) {
        Some(kept) => Ok(View { kept, bytes, end, content }),
        None => Err((
            Outcome::Undecided(Cause::Ours),
            format!("only {} bytes were kept, and the test looks at {wanted}", content.kept.len()),
        )),
    }
}

/// What every network test tells about its observation (V60). `hash` is the observation's own.
pub fn evidence(observation: &Observation, hash: &str) -> Evidence {
    let mut evidence = Evidence::new();
    let mut put = |key: &str, value: Value| {
        evidence.insert(key.to_owned(), value);
    };
    put("observation", Value::from(hash));
    put("started", Value::from(observation.started.to_string()));
    put("ended", Value::from(observation.ended.to_string()));
    if let Some(address) = observation.address {
        put("address", Value::from(address.to_string()));
    }
    if let Some(certificate) = observation.certificate_sha256 {
        put("certificate_sha256", Value::from(certificate.hex()));
    }
    if let Some(tls) = &observation.tls {
        put("tls", Value::from(tls.as_str()));
    }
    if let Seen::Response(response) = &observation.seen {
        put("status", Value::from(response.status));
    }
    evidence
}

/// What a test of content tells about it.
pub fn add_content(evidence: &mut Evidence, observation: &Observation) {
    if let Seen::Response(response) = &observation.seen
        && response.content.end != End::NotRead
    {
        evidence.insert("bytes_read".to_owned(), Value::from(response.content.bytes));
        evidence.insert("sha256".to_owned(), Value::from(response.content.sha256.hex()));
    }
}

/// The content-encoding lines, joined, if they name anything but identity.
fn content_coding(response: &Response) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> = response
        .headers
        .iter()
        .filter(|h| h.name.eq_ignore_ascii_case("content-encoding"))
        .map(|h| h.value.as_slice())
        .collect();
    let joined = lines.join(&b", "[..]);
    let other = joined
        .split(|b| *b == b',')
        .map(<[u8]>::trim_ascii)
        .any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"));
    other.then_some(joined)
}

const REASON_CHARS: usize = 300;
const MARKER_CHARS: usize = 60;
