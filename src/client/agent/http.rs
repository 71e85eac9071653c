//! One house over HTTP: bounded in bytes and time, without redirects, proxies or cookies.
//!
//! A request is repeated only when that cannot do a thing twice: any request that never left, and those that the caller
//! calls repeatable.

use super::ClientError;
use crate::client::tls;
use crate::limits;
use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use std::time::Duration;
use url::Url;

/// A house, reached at one URL.
#[derive(Clone)]
pub struct HouseClient {
    http: reqwest::Client,
    base: Url,
}

/// One call. `authorize` is asked for each attempt, because a credential is good for one.
pub struct Call<'a> {
    pub method: reqwest::Method,
    /// Starts with a slash; no query.
    pub path: &'a str,
    pub query: &'a [(&'a str, String)],
    pub body: Option<&'a Value>,
    pub authorize: &'a (dyn Fn() -> Result<Option<String>, ClientError> + Sync),
    pub repeatable: bool,
    pub timeout_ms: u64,
}

impl HouseClient {
    pub fn new(url: &str, extra_roots: &[CertificateDer<'static>]) -> Result<HouseClient, ClientError> {
        let local = |why: String| ClientError::Setup(why);
        let base = Url::parse(url).map_err(|e| local(format!("{url:?} is not a URL: {e}")))?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(local(format!("{url:?} is not an http or https URL")));
        }
        let tls = tls::client_config(extra_roots).map_err(local)?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_millis(limits::CONNECT_MS))
            .user_agent(concat!("verifica/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| local(format!("the HTTP client cannot be made: {e}")))?;
        Ok(HouseClient { http, base })
    }

    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Whether a secret may travel to this house: over TLS, or to an address of this machine or a private network.
    pub fn keeps_secrets(&self) -> bool {
        let private = match self.base.host() {
            Some(url::Host::Ipv4(ip)) => ip.is_loopback() || ip.is_private(),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unique_local(),
            _ => false,
        };
        self.base.scheme() == "https" || private || self.is_loopback()
    }

    /// Whether the house is on this machine, by its literal address.
    pub fn is_loopback(&self) -> bool {
        match self.base.host() {
            Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
            Some(url::Host::Domain(name)) => name == "localhost",
            None => false,
        }
    }

    /// The answer of a success, as JSON.
    pub async fn json(&self, call: Call<'_>) -> Result<Value, ClientError> {
        let url = format!("{}{}", self.url(), call.path);
        let bytes = self.bytes(call).await?;
        serde_json::from_slice(&bytes).map_err(|_| ClientError::BadAnswer { url, why: "the answer is not JSON".into() })
    }

    /// The bytes of a success; anything else is a [`ClientError`].
    pub async fn bytes(&self, call: Call<'_>) -> Result<Vec<u8>, ClientError> {
        self.repeated(call, None).await
    }

    /// Sends bytes that are not JSON; the answer of a success.
    pub async fn put(&self, call: Call<'_>, bytes: Bytes) -> Result<Vec<u8>, ClientError> {
        self.repeated(call, Some(bytes)).await
    }

    async fn repeated(&self, call: Call<'_>, raw: Option<Bytes>) -> Result<Vec<u8>, ClientError> {
        let mut wait_ms = FIRST_WAIT_MS;
        for attempt in 1.. {
            let error = match self.attempt(&call, raw.clone()).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error,
            };
            let pause = match &error {
                Attempt::NeverLeft(_) => Some(wait_ms),
                Attempt::Other(error) if call.repeatable => error.pause_ms(wait_ms),
                Attempt::Other(_) => None,
            };
            match pause {
                Some(pause) if attempt < ATTEMPTS_MAX => tokio::time::sleep(Duration::from_millis(pause)).await,
                _ => return Err(error.into_error()),
            }
            wait_ms = wait_ms.saturating_mul(2);
        }
        Err(ClientError::Setup("no attempt was made".into()))
    }

    async fn attempt(&self, call: &Call<'_>, raw: Option<Bytes>) -> Result<Vec<u8>, Attempt> {
        let mut url = self.base.clone();
        url.set_path(call.path);
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(call.query.iter().map(|(k, v)| (*k, v.as_str())));
        }
        let shown = format!("{}{}", self.url(), call.path);
        let mut request = self.http.request(call.method.clone(), url).timeout(Duration::from_millis(call.timeout_ms));
        if let Some(header) = (call.authorize)().map_err(Attempt::Other)? {
            request = request.header(reqwest::header::AUTHORIZATION, header);
        }
        if let Some(body) = call.body {
            request = request.header(reqwest::header::CONTENT_TYPE, "application/json").body(body.to_string());
        }
        if let Some(raw) = raw {
            request = request.header(reqwest::header::CONTENT_TYPE, "application/octet-stream").body(raw);
        }
        let lost = |error: reqwest::Error| ClientError::Unreachable { url: shown.clone(), why: chain(&error) };
        let mut response = request.send().await.map_err(|error| {
            if error.is_connect() { Attempt::NeverLeft(lost(error)) } else { Attempt::Other(lost(error)) }
        })?;
        let status = response.status().as_u16();
        let header = response.headers().get(reqwest::header::RETRY_AFTER);
        let retry_after = header.and_then(|value| value.to_str().ok()).and_then(|text| text.trim().parse().ok());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| Attempt::Other(lost(error)))? {
            if bytes.len() + chunk.len() > limits::AGENT_ANSWER_BYTES_MAX {
                let why = format!("the answer is longer than {} bytes", limits::AGENT_ANSWER_BYTES_MAX);
                return Err(Attempt::Other(ClientError::BadAnswer { url: shown, why }));
            }
            bytes.extend_from_slice(&chunk);
        }
        if (200..300).contains(&status) {
            return Ok(bytes);
        }
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let reason = body.get("reason").and_then(Value::as_str).map(str::to_owned);
        let rule = body.get("rule").and_then(Value::as_u64).and_then(|rule| u16::try_from(rule).ok());
        let reason = reason.unwrap_or_else(|| format!("the house answered {status} without a reason"));
        Err(Attempt::Other(ClientError::Refused { status, reason, rule, retry_after, body }))
    }
}

enum Attempt {
    NeverLeft(ClientError),
    Other(ClientError),
}

impl Attempt {
    fn into_error(self) -> ClientError {
        match self {
            Attempt::NeverLeft(error) | Attempt::Other(error) => error,
        }
    }
}

/// The innermost cause says what happened: "connection refused" rather than "error sending request".
fn chain(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".into();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

const ATTEMPTS_MAX: u32 = 4;
const FIRST_WAIT_MS: u64 = 150;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_travel_over_tls_or_stay_near() {
        let keeps = |url: &str| HouseClient::new(url, &[]).map(|house| house.keeps_secrets()).unwrap_or_default();
        for near in
            ["https://mar.example", "http://127.0.0.1:4040", "http://10.0.0.7", "http://[::1]:1", "http://localhost:1"]
        {
            assert!(keeps(near), "{near}");
        }
        for far in ["http://mar.example", "http://203.0.113.7", "http://[2001:db8::1]", "ftp://127.0.0.1"] {
            assert!(!keeps(far), "{far}");
        }
    }
}
