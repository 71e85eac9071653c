//! From the host of a URL to the addresses that may be dialled.
//!
//! Promise: every address that comes out was judged by the rule, and if one address of an answer is refused, all are. The
//! answer is new each time: no cache, no hosts file, no search list; the absolute name is asked for, A and AAAA both.
//!
//! Deliberately absent: a second resolution. What is judged here is what is dialled.

use super::{Deadlines, Failure, Override};
use crate::limits::ADDRESSES_TRIED_MAX;
use crate::probe::address::AddressRule;
use crate::probe::observation::{Cause, Phase};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub(super) struct Names {
    rule: AddressRule,
    overrides: BTreeMap<(String, u16), SocketAddr>,
    resolver: Result<TokioResolver, String>,
}

/// The host of a URL, as WHATWG parsed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Name(String),
    Literal(IpAddr),
}

impl Names {
    pub fn new(rule: AddressRule, overrides: &[Override], servers: &[SocketAddr], deadlines: &Deadlines) -> Self {
        let overrides = overrides.iter().map(|o| ((o.host.clone(), o.port), o.to)).collect();
        Names { rule, overrides, resolver: resolver(servers, deadlines) }
    }

    /// The judged addresses, in the order of dialling.
    pub async fn addresses(&self, host: &Host, port: u16) -> Result<Vec<SocketAddr>, Failure> {
        let name = match host {
            Host::Name(name) => name.clone(),
            Host::Literal(ip) => ip.to_string(),
        };
        let found = match (self.overrides.get(&(name.clone(), port)), host) {
            (Some(to), _) => vec![*to],
            (None, Host::Literal(ip)) => vec![SocketAddr::new(*ip, port)],
            (None, Host::Name(name)) => self.ask(name).await?.into_iter().map(|ip| SocketAddr::new(ip, port)).collect(),
        };
        for address in &found {
            self.rule.judge(address.ip()).map_err(|why| {
                Failure::new(
                    Phase::Dns,
                    Cause::Origin,
                    format!("{name} points at an address that is not allowed: {why}"),
                )
            })?;
        }
        Ok(in_order(found))
    }

    async fn ask(&self, host: &str) -> Result<Vec<IpAddr>, Failure> {
        let fail = |cause, reason: String| Failure::new(Phase::Dns, cause, reason);
        let resolver = self.resolver.as_ref().map_err(|why| fail(Cause::Host, why.clone()))?;
        let mut name = Name::from_ascii(host)
            .map_err(|_| fail(Cause::Contract, format!("{host} is not a name that can be looked up")))?;
        name.set_fqdn(true);
        let (v4, v6) =
            tokio::join!(resolver.lookup(name.clone(), RecordType::A), resolver.lookup(name, RecordType::AAAA));
        let mut found = Vec::new();
        let mut faults = Vec::new();
        for answer in [v4, v6] {
            match answer {
                Ok(lookup) => found.extend(lookup.answers().iter().filter_map(|record| match &record.data {
                    RData::A(a) => Some(IpAddr::V4(a.0)),
                    RData::AAAA(aaaa) => Some(IpAddr::V6(aaaa.0)),
                    _ => None,
                })),
                Err(error) => faults.push(fault(host, &error)),
            }
        }
        if found.is_empty() {
            // Worse than "no address of this kind" is what explains the silence.
            faults.sort_by_key(|fault| fault.0);
            let reason = faults.pop().map_or_else(|| format!("{host} has no address"), |(_, reason)| reason);
            return Err(fail(Cause::Network, reason));
        }
        Ok(found)
    }
}

impl Override {
    /// `HOST:PORT:ADDR` or `HOST:PORT:ADDR:PORT2`, as curl's `--resolve`; an IPv6 address in brackets.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let usage = || format!("not HOST:PORT:ADDR or HOST:PORT:ADDR:PORT2: {text}");
        let (host, rest) = split_host(text).ok_or_else(usage)?;
        let (port, rest) = rest.split_once(':').ok_or_else(usage)?;
        let port = port_number(port).ok_or_else(usage)?;
        // An IPv6 address without brackets is taken whole: it cannot be told from one with a port.
        let to = match (split_host(rest), rest.parse::<IpAddr>()) {
            (_, Ok(ip)) => SocketAddr::new(ip, port),
            (Some((ip, to_port)), _) => {
                SocketAddr::new(ip.parse().map_err(|_| usage())?, port_number(to_port).ok_or_else(usage)?)
            }
            (None, _) => {
                let ip = rest.strip_prefix('[').and_then(|r| r.strip_suffix(']')).ok_or_else(usage)?;
                SocketAddr::new(ip.parse().map_err(|_| usage())?, port)
            }
        };
        Override::new(host, port, to)
    }

    /// The host is written as in a URL.
    pub fn new(host: &str, port: u16, to: SocketAddr) -> Result<Self, String> {
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
        let host = match url::Host::parse(&bracketed) {
            Ok(url::Host::Domain(name)) => name,
            Ok(url::Host::Ipv4(ip)) => ip.to_string(),
            Ok(url::Host::Ipv6(ip)) => ip.to_string(),
            Err(_) => return Err(format!("not a host name: {host}")),
        };
        Ok(Override { host, port, to })
    }
}

/// The part before the first colon, or between brackets, and what follows the colon.
fn split_host(text: &str) -> Option<(&str, &str)> {
    match text.strip_prefix('[') {
        Some(rest) => rest.split_once("]:"),
        None => text.split_once(':'),
    }
}

fn port_number(text: &str) -> Option<u16> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten().filter(|port| *port > 0)
}

/// IPv4 and IPv6 by turns, in the order of the answer: one family that is black-holed does not hide the other.
fn in_order(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let (v4, v6): (Vec<_>, Vec<_>) = found.into_iter().partition(SocketAddr::is_ipv4);
    let mut order: Vec<SocketAddr> = Vec::new();
    for i in 0..v4.len().max(v6.len()) {
        for address in [v4.get(i), v6.get(i)].into_iter().flatten() {
            if !order.contains(address) && order.len() < ADDRESSES_TRIED_MAX {
                order.push(*address);
            }
        }
    }
    order
}

/// How telling an error is, and what it says.
fn fault(host: &str, error: &NetError) -> (u8, String) {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NXDomain => {
            (1, format!("the name {host} does not exist (NXDOMAIN)"))
        }
        NetError::Dns(DnsError::NoRecordsFound(_)) => (0, format!("the name {host} has no address")),
        NetError::Dns(DnsError::ResponseCode(code)) => (2, format!("the name server answered {code} for {host}")),
        NetError::Timeout => (3, format!("no name server answered for {host} in time")),
        other => (3, format!("{host} could not be looked up: {other}")),
    }
}

fn resolver(servers: &[SocketAddr], deadlines: &Deadlines) -> Result<TokioResolver, String> {
    let provider = TokioRuntimeProvider::default();
    let mut builder = if servers.is_empty() {
        TokioResolver::builder(provider).map_err(|error| format!("this host has no usable name server: {error}"))?
    } else {
        let with_port = |server: &SocketAddr| {
            let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
                connection.port = server.port();
                connection
            });
            NameServerConfig::new(server.ip(), true, connections.into())
        };
        let config = ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(with_port).collect());
        TokioResolver::builder_with_config(config, provider)
    };
    let options = builder.options_mut();
    options.use_hosts_file = ResolveHosts::Never;
    options.cache_size = 0;
    options.positive_max_ttl = Some(Duration::ZERO);
    options.negative_max_ttl = Some(Duration::ZERO);
    // Two tries within the deadline of the phase, so that one silent kind of record does not hide the other.
    options.timeout = Duration::from_millis(deadlines.dns_ms.saturating_mul(2) / 5);
    options.attempts = 1;
    builder.build().map_err(|error| format!("this host has no usable name server: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_as_curl_writes_them() {
        for (text, host, port, to) in [
            ("seller.example:443:127.0.0.1", "seller.example", 443, "127.0.0.1:443"),
            ("Seller.Example:443:127.0.0.1:8443", "seller.example", 443, "127.0.0.1:8443"),
            ("s.example:443:[::1]", "s.example", 443, "[::1]:443"),
            ("s.example:443:::1", "s.example", 443, "[::1]:443"),
            ("s.example:443:[::1]:8443", "s.example", 443, "[::1]:8443"),
            ("[2001:db8::1]:443:127.0.0.1:1", "2001:db8::1", 443, "127.0.0.1:1"),
            ("bücher.example:443:127.0.0.1", "xn--bcher-kva.example", 443, "127.0.0.1:443"),
        ] {
            let to = to.parse().unwrap();
            assert_eq!(Override::parse(text), Ok(Override { host: host.into(), port, to }), "{text}");
        }
        for bad in [
            "",
            "a",
            "a:443",
            "a:443:",
            "a:443:b",
            "a:0:127.0.0.1",
            "a:443:127.0.0.1:0",
            "a:443:127.0.0.1:",
            "a:65536:127.0.0.1",
            "a:+443:127.0.0.1",
            ":443:127.0.0.1",
            "a b:443:127.0.0.1",
            "a:443:127.0.0.1:80:1",
            "a:443:[::1",
            "a:443:::1]",
            "a:443:[::1]:",
        ] {
            assert!(Override::parse(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_host_without_name_servers_says_so() {
        let names = Names {
            rule: AddressRule::default(),
            overrides: BTreeMap::new(),
            resolver: Err("this host has no usable name server: none".into()),
        };
        let failure = names.addresses(&Host::Name("seller.example".into()), 443).await.unwrap_err();
        assert_eq!((failure.phase, failure.cause), (Phase::Dns, Cause::Host));
        let literal = names.addresses(&Host::Literal("8.8.8.8".parse().unwrap()), 443).await;
        assert_eq!(literal, Ok(vec!["8.8.8.8:443".parse().unwrap()]));
        let private = names.addresses(&Host::Literal("10.0.0.1".parse().unwrap()), 443).await.unwrap_err();
        assert_eq!((private.phase, private.cause), (Phase::Dns, Cause::Origin));
    }

    #[test]
    fn the_order_of_dialling_alternates_and_is_bounded() {
        let at = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let found = at(&["[2606::1]:1", "9.9.9.9:1", "8.8.8.8:1", "9.9.9.9:1", "7.7.7.7:1", "[2606::2]:1"]);
        assert_eq!(in_order(found), at(&["9.9.9.9:1", "[2606::1]:1", "8.8.8.8:1", "[2606::2]:1"]));
        assert_eq!(in_order(at(&["[2606::1]:1"])), at(&["[2606::1]:1"]));
        assert_eq!(in_order(Vec::new()), Vec::new());
        let five = at(&["1.0.0.1:1", "1.0.0.2:1", "1.0.0.3:1", "1.0.0.4:1", "1.0.0.5:1"]);
        assert_eq!(in_order(five.clone()), five[..ADDRESSES_TRIED_MAX]);
    }
}
