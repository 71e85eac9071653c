//! What was seen of one URL in one look: everything a judge may look at, and nothing else.
//!
//! An observation is a value. It can be stored, hashed and judged again on another machine, with the same answer.

use crate::time::Timestamp;
use crate::wire::Sha256;
use crate::wire::digest::{base64url, from_base64url};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Method {
    #[serde(rename = "GET")]
    Get,
    #[serde(rename = "HEAD")]
    Head,
}

impl Method {
    pub const fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
        }
    }
}

/// One snapshot per key in a look (V6). `url` is the text of the test without its fragment, as WHATWG serializes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FetchKey {
    pub url: String,
    pub method: Method,
    pub accept: String,
}

/// What to fetch, and how much of it the tests of the contract need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPlan {
    pub key: FetchKey,
    /// Stop after this many content bytes have been seen; zero when no test looks at the content.
    pub read: u64,
    /// Keep this many of the first content bytes.
    pub keep: u64,
    /// Deadline of the whole request, milliseconds (V25).
    pub timeout_ms: u64,
}

/// Why a test is undecided (V1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// No verifier could judge this test.
    Contract,
    /// This host cannot run it.
    Host,
    /// Names, connections, time.
    Network,
    /// An intermediary answered.
    Edge,
    /// The checked server broke a protocol or contradicted itself.
    Origin,
    /// Our own fault.
    Ours,
}

impl Cause {
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Contract => "contract",
            Cause::Host => "host",
            Cause::Network => "network",
            Cause::Edge => "edge",
            Cause::Origin => "origin",
            Cause::Ours => "ours",
        }
    }
}

/// How far a request got before it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Dns,
    Connect,
    Tls,
    Head,
    Body,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    pub key: FetchKey,
    pub started: Timestamp,
    pub ended: Timestamp,
    /// The address that was dialled and that the peer confirmed.
    pub address: Option<SocketAddr>,
    /// SHA-256 of the peer's end-entity certificate, DER.
    pub certificate_sha256: Option<Sha256>,
    pub certificate_not_after: Option<Timestamp>,
    /// `TLSv1.2` or `TLSv1.3`.
    pub tls: Option<String>,
    pub seen: Seen,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Seen {
    /// No complete, well-framed head arrived. Every test of this URL is undecided with this cause.
    Nothing { phase: Phase, cause: Cause, reason: String },
    /// A complete, well-framed head (V26 holds for it), and what became of the content.
    Response(Response),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    pub status: u16,
    /// Names lower case, values as received (bytes as base64url), in order of arrival.
    pub headers: Vec<Header>,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub name: String,
    #[serde(with = "bytes_text")]
    pub value: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The first bytes, up to what the plan kept.
    #[serde(with = "bytes_text")]
    pub kept: Vec<u8>,
    /// Content bytes that were read, transfer coding removed.
    pub bytes: u64,
    /// SHA-256 of exactly those bytes.
    pub sha256: Sha256,
    pub end: End,
}

/// How the content ended (V4, V26, V71).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum End {
    /// All of it arrived: Content-Length exact, last chunk and final CRLF, no content by rule, or close_notify.
    Complete,
    /// Close-delimited, and the connection closed without close_notify: perhaps all, perhaps not.
    Unconfirmed,
    /// Reading stopped at the plan's bound; there is more, or there may be.
    Cut,
    /// The transfer broke; nothing may be decided on its content, except what was already beyond a bound.
    Broken { cause: Cause, reason: String },
    /// No test asked for the content.
    NotRead,
}

impl Observation {
    /// The bytes that the store keeps; their hash is the name of the observation.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub fn sha256(&self) -> Sha256 {
        Sha256::of(self.to_bytes())
    }
}

mod bytes_text {
    use super::{base64url, from_base64url};
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&base64url(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        from_base64url(&text).ok_or_else(|| de::Error::custom("not base64url"))
    }
}
