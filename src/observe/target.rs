//! What a URL asks for: where to connect, and the bytes of the request.
//!
//! Promise: nothing of the URL can end the request line or a header early, and the request is the same bytes each time.
//! The rule for hosts and ports is that of the tests (`probe::url`); it is applied again here, because a plan is only text.

use super::USER_AGENT;
use super::resolve::Host;
use crate::probe::observation::Method;
use crate::probe::url::{self as rule, UrlPolicy};
use std::net::IpAddr;
use url::Url;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub host: Host,
    pub port: u16,
    /// As the `Host` line has it.
    authority: String,
    /// Path and query.
    path: String,
}

impl Target {
    pub fn parse(text: &str, policy: &UrlPolicy) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| format!("not a url: {error}"))?;
        if !text.starts_with("https://") {
            return Err("it does not start with https://".into());
        }
        // The text of a plan is normalized and may be longer than that of a test; its beginning is what the rule is about.
        let mut origin = url.clone();
        origin.set_path("/");
        origin.set_query(None);
        origin.set_fragment(None);
        rule::Target::parse(origin.as_str(), policy)?;
        let host = match url.host() {
            Some(url::Host::Domain(name)) => Host::Name(name.to_string()),
            Some(url::Host::Ipv4(ip)) => Host::Literal(IpAddr::V4(ip)),
            Some(url::Host::Ipv6(ip)) => Host::Literal(IpAddr::V6(ip)),
            None => return Err("it has no host".into()),
        };
        let port = url.port_or_known_default().filter(|port| *port != 0).ok_or("its port is 0")?;
        let authority = match url.port() {
            Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
            None => url.host_str().unwrap_or_default().to_string(),
        };
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_string(),
        };
        if !path.starts_with('/') || ![&path, &authority].iter().all(|t| t.bytes().all(|b| b.is_ascii_graphic())) {
            return Err("it holds characters that cannot be sent".into());
        }
        Ok(Target { host, port, authority, path })
    }

    /// The key of the rate: one host is one host, whatever the port.
    pub fn pace_key(&self) -> String {
        match &self.host {
            Host::Name(name) => name.clone(),
            Host::Literal(ip) => ip.to_string(),
        }
    }

    pub fn request(&self, method: Method, accept: &str) -> String {
        format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: {USER_AGENT}\r\nAccept: {accept}\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n",
            method.name(),
            self.path,
            self.authority,
        )
    }
}

/// Whether a value can stand in the `Accept` line.
pub(super) fn acceptable(accept: &str) -> bool {
    !accept.is_empty() && accept.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Target, String> {
        Target::parse(text, &UrlPolicy::default())
    }

    #[test]
    fn the_request_is_fixed_to_the_byte() {
        let target = parse("https://Seller.Example:8443/a%0d%0ab?x=1 2#fragment").unwrap();
        let expect = format!(
            "GET /a%0d%0ab?x=1%202 HTTP/1.1\r\nHost: seller.example:8443\r\nUser-Agent: verifica/{}\r\nAccept: */*\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(target.request(Method::Get, "*/*"), expect);
        let plain = parse("https://seller.example").unwrap();
        assert!(plain.request(Method::Head, "*/*").starts_with("HEAD / HTTP/1.1\r\nHost: seller.example\r\n"));
        let v6 = parse("https://[2606:4700::1]/").unwrap();
        assert!(v6.request(Method::Get, "*/*").contains("\r\nHost: [2606:4700::1]\r\n"));
    }

    #[test]
    fn texts_that_are_not_targets() {
        for text in [
            "",
            "seller.example",
            "http://seller.example/",
            "https:seller.example",
            "https:/seller.example",
            "HTTPS//x",
            "https://u@seller.example/",
            "https://u:p@seller.example/",
            "https://seller.example./",
            "https://seller.example:0/",
            "https:///",
            "ftp://seller.example/",
            "https://[::1/",
            "https://a b/",
            " https://seller.example/",
            "https://localhost/",
            "https://127.0.0.1/",
            "https://0x7f.1/",
            "https://2130706433/",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://[64:ff9b::7f00:1]/",
            "https://seller.example:25/",
            "https://single/",
            "https://a.internal/",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let long = format!("https://seller.example/{}", "é".repeat(1_000));
        assert!(parse(&long).is_ok(), "normalizing lengthens, and is no fault");
        for accept in ["", "a\r\nb", "a\0", "é", "a\t"] {
            assert!(!acceptable(accept), "{accept:?}");
        }
        assert!(acceptable("application/json, */*;q=0.1"));
    }
}
