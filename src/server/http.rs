//! HTTP at the doors: bodies read within bounds, answers with the headers that every answer carries.
//!
//! A body is JSON or nothing, but for the sealed bytes of an attachment. Every refusal is `{reason, rule}`, where `rule` is the stable number of the rule that said
//! no. Nothing a stranger sends makes a 500.

use crate::limits;
use crate::refusal::{Refusal, Rule};
use crate::wire::digest::Sha256;
use axum::body::Body;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long an answer may be kept by whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    No,
    Seconds(u32),
}

/// A door's answer.
#[derive(Debug)]
pub struct Reply {
    pub code: u16,
    pub body: Payload,
    pub retry_after: Option<u64>,
    /// The door knows better than its row in the table: an answer made for one asker is kept by nobody.
    pub private: bool,
    /// The name under which the answer is saved.
    pub file_name: Option<String>,
}

#[derive(Debug)]
pub enum Payload {
    Json(Value),
    Text {
        media: &'static str,
        text: String,
    },
    /// Bytes that nobody here can read, as they come.
    Stream {
        bytes: u64,
        body: Body,
    },
}

impl Reply {
    pub fn json(code: u16, body: Value) -> Reply {
        Reply { code, body: Payload::Json(body), retry_after: None, private: false, file_name: None }
    }

    pub fn ok(body: Value) -> Reply {
        Reply::json(200, body)
    }

    pub fn text(media: &'static str, text: String) -> Reply {
        Reply { body: Payload::Text { media, text }, ..Reply::ok(Value::Null) }
    }

    pub fn private(mut self) -> Reply {
        self.private = true;
        self
    }
}

impl From<&Refusal> for Reply {
    fn from(refusal: &Refusal) -> Reply {
        let mut body = json!({"reason": refusal.reason, "rule": refusal.rule.number()});
        if let Some(bits) = refusal.pow_bits {
            body["pow_bits"] = bits.into();
        }
        let retry_after = match (refusal.retry_after, refusal.code()) {
            (Some(seconds), _) => Some(seconds.max(1)),
            (None, 429 | 503) => Some(1),
            (None, _) => None,
        };
        Reply { code: refusal.code(), body: Payload::Json(body), retry_after, private: true, file_name: None }
    }
}

/// The bytes of request bodies that the process holds, counted as they arrive and given back with the body.
pub struct Held(AtomicUsize);

/// A body, counted among those that are held.
pub struct HeldBody {
    pub bytes: Bytes,
    held: Option<(Arc<Held>, usize)>,
}

impl Held {
    pub fn new() -> Arc<Held> {
        Arc::new(Held(AtomicUsize::new(0)))
    }
}

impl HeldBody {
    pub fn none() -> HeldBody {
        HeldBody { bytes: Bytes::new(), held: None }
    }

    fn take(&mut self, more: usize) -> Result<(), Refusal> {
        let Some((held, own)) = &mut self.held else { return Ok(()) };
        *own += more;
        if held.0.fetch_add(more, Ordering::AcqRel) + more > limits::BODIES_HELD_MAX {
            return Err(Refusal::new(
                Rule::Overloaded,
                "the house is reading as much as it can; try again in a moment",
            ));
        }
        Ok(())
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        if let Some((held, own)) = &self.held {
            held.0.fetch_sub(*own, Ordering::AcqRel);
        }
    }
}

/// Reads a JSON body's bytes: media type, declared size, counted size, time. An absent body is empty bytes.
pub async fn read_body(
    headers: &HeaderMap,
    body: Body,
    max: usize,
    deadline: Duration,
    held: &Arc<Held>,
) -> Result<HeldBody, Refusal> {
    let declared = declared_length(headers)?;
    if declared != Some(0) && !is_json(headers) {
        linger(headers, body);
        return Err(Refusal::new(
            Rule::UnsupportedMedia,
            "the body must be application/json, neither compressed nor encoded",
        ));
    }
    let too_large =
        || Refusal::new(Rule::BodyTooLarge, format!("the body is larger than {max} bytes, the most this route takes"));
    if declared.is_some_and(|length| length > max as u64) {
        linger(headers, body);
        return Err(too_large());
    }
    let mut body = body;
    let mut read = BytesMut::new();
    let mut counted = HeldBody { bytes: Bytes::new(), held: Some((held.clone(), 0)) };
    let whole = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| {
                Refusal::new(Rule::BodyTruncated, "the body ended before its declared length, or its framing is broken")
            })?;
            let Ok(piece) = frame.into_data() else { continue };
            if read.len() + piece.len() > max {
                return Err(too_large());
            }
            counted.take(piece.len())?;
            read.extend_from_slice(&piece);
        }
        Ok(())
    };
    match tokio::time::timeout(deadline, whole).await {
        Ok(Ok(())) => {
            counted.bytes = read.freeze();
            Ok(counted)
        }
        Ok(Err(refusal)) => {
            linger(headers, body);
            Err(refusal)
        }
        Err(_) => Err(Refusal::new(Rule::BodyTooSlow, format!("the body did not arrive within {deadline:?}"))),
    }
}

/// The bytes of an answer: security headers on all of them, caching only where the table allows it, a weak tag that lets
/// an unchanged answer be 304.
pub fn respond(reply: Reply, method: &Method, asked: &HeaderMap, keep: Keep) -> Response {
    let mut stream = None;
    let (media, bytes) = match reply.body {
        Payload::Json(value) => (JSON, value.to_string().into_bytes()),
        Payload::Text { media, text } => (media, text.into_bytes()),
        Payload::Stream { bytes, body } => {
            stream = Some((bytes, body));
            (BYTES, Vec::new())
        }
    };
    let mut status = StatusCode::from_u16(reply.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut headers = HeaderMap::new();
    for (name, value) in FIXED_HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    let cached = match keep {
        Keep::Seconds(seconds) if status == StatusCode::OK && !reply.private => Some(seconds),
        _ => None,
    };
    let mut unchanged = false;
    match cached {
        Some(seconds) => {
            put(&mut headers, header::CACHE_CONTROL, &format!("public, max-age={seconds}"));
            headers.insert(header::VARY, HeaderValue::from_static("authorization, x-nyx5-for"));
            let tag = format!("W/\"{}\"", &Sha256::of(&bytes).hex()[..32]);
            unchanged = names_tag(asked, &tag);
            put(&mut headers, header::ETAG, &tag);
        }
        None => {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
    }
    if let Some(name) = reply.file_name {
        put(&mut headers, header::CONTENT_DISPOSITION, &format!("attachment; filename=\"{name}\""));
    }
    if let Some(seconds) = reply.retry_after {
        put(&mut headers, header::RETRY_AFTER, &seconds.to_string());
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Nyx5"));
    }
    if status == StatusCode::REQUEST_TIMEOUT {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let body = if unchanged {
        status = StatusCode::NOT_MODIFIED;
        headers.remove(header::CONTENT_TYPE);
        Body::empty()
    } else if method == Method::HEAD {
        let length = stream.map_or(bytes.len() as u64, |(length, _)| length);
        put(&mut headers, header::CONTENT_LENGTH, &length.to_string());
        Body::empty()
    } else {
        stream.map_or_else(|| Body::from(bytes), |(_, body)| body)
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

pub fn declared_length(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let Some(value) = headers.get(header::CONTENT_LENGTH) else {
        return Ok(if headers.contains_key(header::TRANSFER_ENCODING) { None } else { Some(0) });
    };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| Refusal::new(Rule::BadParameter, "content-length is not a number"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let encoded = headers.get(header::CONTENT_ENCODING).is_some_and(|value| value.as_bytes() != b"identity");
    let media = match headers.get(header::CONTENT_TYPE) {
        None => return !encoded,
        Some(value) => value.to_str().unwrap_or_default(),
    };
    let essence = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let json = essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"));
    json && !encoded
}

/// Goes on reading for a while in the background: a connection closed on unread bytes resets, and the refusal is lost.
pub fn linger(headers: &HeaderMap, mut body: Body) {
    if headers.contains_key(header::EXPECT) {
        return;
    }
    tokio::spawn(async move {
        let mut left = limits::LINGER_BYTES_MAX;
        let drain = async {
            while let Some(Ok(frame)) = body.frame().await {
                left = left.saturating_sub(frame.data_ref().map_or(1, Bytes::len));
                if left == 0 {
                    break;
                }
            }
        };
        // Whichever comes first; there is nothing to report.
        drop(tokio::time::timeout(Duration::from_millis(limits::LINGER_MS), drain).await);
    });
}

fn names_tag(asked: &HeaderMap, tag: &str) -> bool {
    let plain = tag.trim_start_matches("W/");
    asked
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|given| given == "*" || given.trim_start_matches("W/") == plain)
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

pub const JSON: &str = "application/json; charset=utf-8";
const BYTES: &str = "application/octet-stream";

const FIXED_HEADERS: [(&str, &str); 5] = [
    ("strict-transport-security", "max-age=31536000; includeSubDomains"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn json_and_nothing_else() {
        for good in ["application/json", "application/JSON; charset=utf-8", "application/nyx5.libro+json"] {
            assert!(is_json(&asked(&[(header::CONTENT_TYPE, good)])), "{good}");
        }
        assert!(is_json(&HeaderMap::new()));
        for bad in ["text/plain", "text/json", "application/x-www-form-urlencoded", "", "jsonapplication/json"] {
            assert!(!is_json(&asked(&[(header::CONTENT_TYPE, bad)])), "{bad}");
        }
        assert!(!is_json(&asked(&[(header::CONTENT_ENCODING, "gzip")])));
    }

    #[tokio::test]
    async fn bodies_stop_at_their_bound_and_are_counted_while_they_are_held() {
        let held = Held::new();
        let chunked = asked(&[(header::TRANSFER_ENCODING, "chunked")]);
        let declared = asked(&[(header::CONTENT_LENGTH, "101")]);
        let read = async |headers: &HeaderMap, body: Body| {
            read_body(headers, body, 100, Duration::from_secs(5), &held).await.map_err(|refusal| refusal.code())
        };
        let at = read(&chunked, Body::from(vec![b'1'; 100])).await;
        assert_eq!(at.as_ref().map(|body| body.bytes.len()), Ok(100));
        assert_eq!(held.0.load(Ordering::Acquire), 100);
        drop(at);
        assert_eq!(held.0.load(Ordering::Acquire), 0);
        assert_eq!(read(&chunked, Body::from(vec![b'1'; 101])).await.err(), Some(413));
        assert_eq!(read(&declared, Body::empty()).await.err(), Some(413));
        assert_eq!(read(&HeaderMap::new(), Body::empty()).await.map(|body| body.bytes.len()), Ok(0));
        held.0.store(limits::BODIES_HELD_MAX - 10, Ordering::Release);
        assert!(read(&chunked, Body::from(vec![b'1'; 10])).await.is_ok());
        assert_eq!(read(&chunked, Body::from(vec![b'1'; 11])).await.err(), Some(503));
        assert_eq!(held.0.load(Ordering::Acquire), limits::BODIES_HELD_MAX - 10);
    }

    #[test]
    fn answers_carry_their_headers_and_unchanged_ones_no_body() {
        let reply = || Reply::ok(json!({"a": 1}));
        let first = respond(reply(), &Method::GET, &HeaderMap::new(), Keep::Seconds(60));
        assert_eq!(first.headers()[header::CACHE_CONTROL], "public, max-age=60");
        let tag = first.headers()[header::ETAG].clone();
        let mut again = HeaderMap::new();
        again.insert(header::IF_NONE_MATCH, tag);
        let second = respond(reply(), &Method::GET, &again, Keep::Seconds(60));
        assert_eq!(second.status(), StatusCode::NOT_MODIFIED);
        let private = respond(reply().private(), &Method::GET, &again, Keep::Seconds(60));
        assert_eq!(private.status(), StatusCode::OK);
        assert_eq!(private.headers()[header::CACHE_CONTROL], "no-store");
        let refused = Refusal::new(Rule::RateLimited, "slow down");
        let refused = respond(Reply::from(&refused), &Method::GET, &again, Keep::Seconds(60));
        assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
        for (name, _) in FIXED_HEADERS {
            assert!(refused.headers().contains_key(name));
        }
    }
}
