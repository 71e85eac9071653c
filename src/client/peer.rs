//! HTTP calls to other houses, bounded in bytes and time, without redirects, proxies or cookies.
//!
//! A place that a stranger named (a domain, a discovery record, a card) is reached over HTTPS only, and each address
//! that its name resolves to is judged before it is dialled: the dialled address is the judged one. A place that the
//! operator listed is reached where the operator said; over plain HTTP only inside the operator's own networks.

use crate::limits;
use crate::probe::address::{AddressRule, admissible};
use bytes::{Bytes, BytesMut};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use url::{Host, Url};

/// The base URL of a house, and why it may be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    url: Url,
    reach: Reach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Named by strangers: HTTPS, and addresses that the rule admits.
    Judged,
    /// Named by the operator, over HTTPS: any address.
    Listed,
    /// Named by the operator, over plain HTTP: loopback and private addresses only.
    ListedPlain,
}

/// What a peer answered.
#[derive(Clone, Debug)]
pub struct PeerAnswer {
    pub status: u16,
    pub body: Bytes,
}

/// Why there is no answer, in words for a log and a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFault(pub String);

pub struct Peers {
    judged: reqwest::Client,
    listed: reqwest::Client,
    plain: reqwest::Client,
    rule: AddressRule,
}

impl Base {
    /// A place that strangers named.
    pub fn judged(text: &str) -> Result<Base, PeerFault> {
        let url = base_url(text)?;
        if url.scheme() != "https" {
            return Err(PeerFault(format!("{text} is not an https address")));
        }
        Ok(Base { url, reach: Reach::Judged })
    }

    /// A place that the operator listed.
    pub fn listed(text: &str) -> Result<Base, PeerFault> {
        let url = base_url(text)?;
        let reach = if url.scheme() == "https" { Reach::Listed } else { Reach::ListedPlain };
        let base = Base { url, reach };
        if let Some(ip) = base.literal() {
            base.judge(ip, &AddressRule::default()).map_err(PeerFault)?;
        }
        Ok(base)
    }

    pub fn as_str(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    fn literal(&self) -> Option<IpAddr> {
        match self.url.host()? {
            Host::Ipv4(ip) => Some(IpAddr::V4(ip)),
            Host::Ipv6(ip) => Some(IpAddr::V6(ip)),
            Host::Domain(_) => None,
        }
    }

    fn judge(&self, ip: IpAddr, rule: &AddressRule) -> Result<(), String> {
        self.reach.judge(ip, rule)
    }

    /// `path` starts with a slash.
    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.as_str())
    }
}

impl Reach {
    fn judge(self, ip: IpAddr, rule: &AddressRule) -> Result<(), String> {
        match self {
            Reach::Judged => rule.judge(ip),
            Reach::Listed => Ok(()),
            Reach::ListedPlain if admissible(ip).is_err() => Ok(()),
            Reach::ListedPlain => Err(format!("{ip} is public: plain http is for loopback and private networks")),
        }
    }
}

impl Peers {
    pub fn new(tls: &rustls::ClientConfig, rule: AddressRule) -> Result<Peers, String> {
        let client = |reach: Reach| {
            reqwest::Client::builder()
                .tls_backend_preconfigured(tls.clone())
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .http1_only()
                .connect_timeout(Duration::from_millis(limits::CONNECT_MS))
                .pool_idle_timeout(Duration::from_millis(limits::PEER_IDLE_MS))
                .pool_max_idle_per_host(limits::PEER_IDLE_PER_HOST_MAX)
                .dns_resolver(Arc::new(JudgedDns { reach, rule: rule.clone() }))
                .user_agent(concat!("verifica/", env!("CARGO_PKG_VERSION")))
                .build()
                .map_err(|e| format!("the client for other houses cannot be made: {e}"))
        };
        Ok(Peers {
            judged: client(Reach::Judged)?,
            listed: client(Reach::Listed)?,
            plain: client(Reach::ListedPlain)?,
            rule,
        })
    }

    pub async fn get(
        &self,
        base: &Base,
        path: &str,
        header: Option<(&'static str, String)>,
        body_max: usize,
    ) -> Result<PeerAnswer, PeerFault> {
        self.fetch(base, path, header, body_max, limits::CARD_FETCH_MS).await
    }

    /// As [`Peers::get`], with so much time for the whole of it.
    pub async fn fetch(
        &self,
        base: &Base,
        path: &str,
        header: Option<(&'static str, String)>,
        body_max: usize,
        bound_ms: u64,
    ) -> Result<PeerAnswer, PeerFault> {
        let mut request = self.client(base)?.get(base.at(path)).header("accept", "application/json");
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        self.exchange(request, bound_ms, body_max).await
    }

    pub async fn post(
        &self,
        base: &Base,
        path: &str,
        header: (&'static str, String),
        body: Bytes,
    ) -> Result<PeerAnswer, PeerFault> {
        let request = self.client(base)?.post(base.at(path));
        let request = request.header("content-type", "application/json").header(header.0, header.1).body(body);
        self.exchange(request, limits::RELAY_MS, limits::PEER_ANSWER_BYTES_MAX).await
    }

    /// Posts to a place that a stranger named, whole URL and all; answers the status. The answer is not read.
    pub async fn call(
        &self,
        url: &str,
        header: (&'static str, String),
        body: Bytes,
        bound_ms: u64,
    ) -> Result<u16, PeerFault> {
        let url = Url::parse(url).map_err(|e| PeerFault(format!("{} is not a URL: {e}", shown(url))))?;
        if url.scheme() != "https" {
            return Err(PeerFault(format!("{} is not an https address", shown(url.as_str()))));
        }
        let base = Base { url, reach: Reach::Judged };
        let request = self.client(&base)?.post(base.url.clone());
        let request = request.header("content-type", "application/json").header(header.0, header.1).body(body);
        let sent = tokio::time::timeout(Duration::from_millis(bound_ms), request.send());
        match sent.await {
            Ok(Ok(response)) => Ok(response.status().as_u16()),
            Ok(Err(error)) => Err(PeerFault(chain(&error))),
            Err(_) => Err(PeerFault(format!("no answer within {bound_ms} ms"))),
        }
    }

    /// The HTTP library dials a literal without asking its resolver, so literals are judged here.
    fn client(&self, base: &Base) -> Result<&reqwest::Client, PeerFault> {
        if let Some(ip) = base.literal() {
            base.judge(ip, &self.rule).map_err(PeerFault)?;
        }
        Ok(match base.reach {
            Reach::Judged => &self.judged,
            Reach::Listed => &self.listed,
            Reach::ListedPlain => &self.plain,
        })
    }

    async fn exchange(
        &self,
        request: reqwest::RequestBuilder,
        bound_ms: u64,
        body_max: usize,
    ) -> Result<PeerAnswer, PeerFault> {
        let whole = async {
            let mut response = request.send().await.map_err(|e| PeerFault(chain(&e)))?;
            let status = response.status().as_u16();
            let mut body = BytesMut::new();
            while let Some(piece) = response.chunk().await.map_err(|e| PeerFault(chain(&e)))? {
                if body.len() + piece.len() > body_max {
                    return Err(PeerFault(format!("the answer is larger than {body_max} bytes")));
                }
                body.extend_from_slice(&piece);
            }
            Ok(PeerAnswer { status, body: body.freeze() })
        };
        tokio::time::timeout(Duration::from_millis(bound_ms), whole)
            .await
            .unwrap_or_else(|_| Err(PeerFault(format!("no whole answer within {bound_ms} ms"))))
    }
}

struct JudgedDns {
    reach: Reach,
    rule: AddressRule,
}

impl Resolve for JudgedDns {
    fn resolve(&self, name: Name) -> Resolving {
        let (reach, rule) = (self.reach, self.rule.clone());
        Box::pin(async move {
            let bound = Duration::from_millis(limits::DNS_MS);
            let found = tokio::time::timeout(bound, tokio::net::lookup_host((name.as_str(), 0)))
                .await
                .map_err(|_| format!("{} did not resolve within {} ms", name.as_str(), limits::DNS_MS))??;
            let mut refused = None;
            let mut admitted: Vec<SocketAddr> = Vec::new();
            for address in found {
                match reach.judge(address.ip(), &rule) {
                    Ok(()) if admitted.len() < limits::ADDRESSES_TRIED_MAX => admitted.push(address),
                    Ok(()) => {}
                    Err(why) => refused = Some(why),
                }
            }
            match refused {
                // A name with one inadmissible address is somebody probing; none of its addresses is dialled. Where it
                // leads is for the log: who asks must not learn what names mean inside this network.
                Some(why) => {
                    tracing::info!(event = "name_leads_inside", name = name.as_str(), why);
                    Err(format!("{} leads to an address that is not dialled from here", name.as_str()).into())
                }
                None if admitted.is_empty() => Err(format!("{} has no address", name.as_str()).into()),
                None => Ok(Box::new(admitted.into_iter()) as Addrs),
            }
        })
    }
}

fn base_url(text: &str) -> Result<Url, PeerFault> {
    let url = Url::parse(text).map_err(|e| PeerFault(format!("{} is not a URL: {e}", shown(text))))?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
        && url.host().is_some()
        && text.len() <= limits::URL_BYTES_MAX;
    if plain {
        Ok(url)
    } else {
        Err(PeerFault(format!("{} is not a plain http or https address of a house", shown(text))))
    }
}

fn shown(text: &str) -> String {
    crate::probe::text::quote(text, 120)
}

/// What happened, in the innermost cause's words: the layers around it are for the operator's log.
fn chain(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    let mut whole = cause.to_string();
    while let Some(inner) = cause.source() {
        cause = inner;
        whole = format!("{whole}: {cause}");
    }
    tracing::debug!(event = "peer_fault", error = %whole);
    let short = if error.is_timeout() { "no answer in time".to_owned() } else { cause.to_string() };
    crate::probe::text::plain(&short, SHOWN_CHARS)
}

const SHOWN_CHARS: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_places_are_https_and_nothing_else() {
        assert!(Base::judged("https://mail.mar.example").is_ok());
        for bad in [
            "http://mail.mar.example",
            "ftp://a.example",
            "https://u:p@a.example",
            "https://u@a.example",
            "https://a.example/?x=1",
            "https://a.example/#x",
            "file:///etc/passwd",
            "mail.mar.example",
        ] {
            assert!(Base::judged(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn plain_http_stays_inside_the_operators_networks() {
        assert!(Base::listed("http://127.0.0.1:4002").is_ok());
        assert!(Base::listed("http://[::1]:4002").is_ok());
        assert!(Base::listed("http://10.0.0.7").is_ok());
        assert!(Base::listed("https://8.8.8.8").is_ok());
        assert!(Base::listed("http://8.8.8.8").is_err());
    }

    #[tokio::test]
    async fn a_literal_in_a_strangers_card_is_judged_before_it_is_dialled() {
        let tls = crate::client::tls::client_config(&[]).expect("tls");
        let peers = Peers::new(&tls, AddressRule::default()).expect("peers");
        for inside in ["https://127.0.0.1:1", "https://[::1]:1", "https://169.254.169.254", "https://[::ffff:10.0.0.1]"]
        {
            let base = Base::judged(inside).expect("base");
            let fault = peers.get(&base, "/x", None, 10).await.expect_err(inside);
            assert!(fault.0.contains("not public") || fault.0.contains("IPv4"), "{inside}: {}", fault.0);
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_inside_is_not_dialled() {
        let tls = crate::client::tls::client_config(&[]).expect("tls");
        let peers = Peers::new(&tls, AddressRule::default()).expect("peers");
        let base = Base::judged("https://localhost:1").expect("base");
        let fault = peers.get(&base, "/x", None, 10).await.expect_err("localhost");
        assert!(fault.0.contains("not dialled") && !fault.0.contains("127.0.0.1"), "{}", fault.0);
    }
}
