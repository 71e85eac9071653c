//! The URL of a test (V20, V79): read by the WHATWG rules, as a browser or Node reads it, then refused unless it names a
//! public host over https. Nothing is resolved here; what a name resolves to is judged by the same [`AddressRule`].

pub use super::address::{AddressRule, Network, admissible};
use super::observation::{FetchKey, Method};
use super::text;
use crate::limits;
use std::net::IpAddr;
use url::{Host, Url};

/// What the URLs of tests may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrlPolicy {
    pub addresses: AddressRule,
}

/// A URL that may be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As the test wrote it.
    text: String,
    /// As it is requested: normalized, without the fragment.
    url: Url,
}

impl Target {
    /// The error says what is wrong, without naming the test.
    pub fn parse(text: &str, policy: &UrlPolicy) -> Result<Target, String> {
        if text.len() > limits::URL_BYTES_MAX {
            return Err(format!("the url has {} bytes; at most {} are allowed", text.len(), limits::URL_BYTES_MAX));
        }
        let Some(rest) = text.strip_prefix("https://") else {
            return Err(format!("the url {} does not start with https://", quoted(text)));
        };
        let mut url = Url::parse(text).map_err(|why| format!("the url {} cannot be read: {why}", quoted(text)))?;
        if url.scheme() != "https" {
            return Err(format!("the url {} is not https", quoted(text)));
        }
        let authority = raw_authority(rest);
        if authority.contains('@') || !url.username().is_empty() || url.password().is_some() {
            return Err(format!("the url {} carries a user name or password", quoted(text)));
        }
        judge_host(&url, &authority, policy).map_err(|why| format!("the url {} {why}", quoted(text)))?;
        match url.port_or_known_default() {
            Some(0) => return Err(format!("the url {} names port 0", quoted(text))),
            Some(port) if PORTS_BLOCKED.binary_search(&port).is_ok() => {
                return Err(format!(
                    "the url {} names port {port}, which belongs to another protocol and which clients block",
                    quoted(text)
                ));
            }
            _ => {}
        }
        url.set_fragment(None);
        Ok(Target { text: text.to_owned(), url })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn url(&self) -> &Url {
        &self.url
    }

    pub fn key(&self, method: Method, accept: &str) -> FetchKey {
        FetchKey { url: self.url.as_str().to_owned(), method, accept: accept.to_owned() }
    }
}

fn judge_host(url: &Url, authority: &str, policy: &UrlPolicy) -> Result<(), String> {
    match url.host() {
        None => Err("has no host".to_owned()),
        Some(Host::Ipv4(ip)) => {
            if ends_in_dot(authority) {
                return Err("has a host that ends in a dot".to_owned());
            }
            policy.addresses.judge(IpAddr::V4(ip)).map_err(|why| format!("names an address: {why}"))
        }
        Some(Host::Ipv6(ip)) => {
            policy.addresses.judge(IpAddr::V6(ip)).map_err(|why| format!("names an address: {why}"))
        }
        Some(Host::Domain(name)) => judge_name(name, policy),
    }
}

/// `name` as WHATWG leaves it: lower case, punycode, percent decoding done.
fn judge_name(name: &str, policy: &UrlPolicy) -> Result<(), String> {
    if name.ends_with('.') {
        return Err("has a host that ends in a dot".to_owned());
    }
    if name.split('.').any(str::is_empty) {
        return Err("has a host with an empty label".to_owned());
    }
    if name == "localhost" || name.ends_with(".localhost") {
        return if policy.addresses.allow_private { Ok(()) } else { Err("names this machine (localhost)".to_owned()) };
    }
    if let Some(zone) = ZONES_REFUSED
        .iter()
        .find(|zone| name == **zone || name.strip_suffix(**zone).is_some_and(|rest| rest.ends_with('.')))
    {
        return Err(format!("names a host under .{zone}, which is not on the public internet"));
    }
    if !name.contains('.') {
        return Err("has a host of a single label, which only a local network can resolve".to_owned());
    }
    if name.len() > limits::DOMAIN_BYTES_MAX || name.split('.').any(|label| label.len() > DNS_LABEL_MAX) {
        return Err(format!(
            "has a host that no name server can hold: at most {} bytes, {DNS_LABEL_MAX} in a label",
            limits::DOMAIN_BYTES_MAX
        ));
    }
    Ok(())
}

/// The authority as it stands in the text after `https://`, found as WHATWG finds it: tabs and line ends do not count,
/// a backslash is a slash, more slashes than two are skipped, and what trails is trimmed.
fn raw_authority(rest: &str) -> String {
    let rest = rest.trim_end_matches(|c| c <= ' ');
    let kept: String = rest.chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect();
    let start = kept.trim_start_matches(['/', '\\']);
    start.split(['/', '\\', '?', '#']).next().unwrap_or_default().to_owned()
}

/// Whether the host part ends in a dot in any spelling; WHATWG drops it from an IPv4 address.
fn ends_in_dot(authority: &str) -> bool {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    host.ends_with(['.', '\u{3002}', '\u{ff0e}', '\u{ff61}'])
        || ["%2e", "%e3%80%82", "%ef%bc%8e", "%ef%bd%a1"].iter().any(|dot| host.to_ascii_lowercase().ends_with(dot))
}

fn quoted(text: &str) -> String {
    text::quote(text, URL_QUOTED_CHARS)
}

/// How much of a URL a reason shows.
pub(crate) const URL_QUOTED_CHARS: usize = 200;
const DNS_LABEL_MAX: usize = 63;
const ZONES_REFUSED: &[&str] = &["local", "internal", "home.arpa", "onion", "invalid"];

/// The ports that the WHATWG fetch standard blocks, in order.
const PORTS_BLOCKED: &[u16] = &[
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
    110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531,
    532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060,
    5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> String {
        Target::parse(text, &UrlPolicy::default()).map(|t| format!("accepted as {}", t.url())).unwrap_or_else(|why| why)
    }

    fn as_requested(text: &str) -> String {
        Target::parse(text, &UrlPolicy::default()).map(|t| t.key(Method::Get, "*/*").url).unwrap_or_else(|why| why)
    }

    #[test]
    fn public_urls_are_requested_as_whatwg_writes_them() {
        for (text, requested) in [
            ("https://seller.example", "https://seller.example/"),
            ("https://Seller.EXAMPLE:443/a?b=c#frag", "https://seller.example/a?b=c"),
            ("https://seller.example:8443/a/../b", "https://seller.example:8443/b"),
            ("https://bücher.example/ñ", "https://xn--bcher-kva.example/%C3%B1"),
            ("https://8.8.8.8/", "https://8.8.8.8/"),
            ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
            ("https://seller.example\\x", "https://seller.example/x"),
            ("https:///seller.example/x", "https://seller.example/x"),
            ("https://seller.example/@x", "https://seller.example/@x"),
            (
                "https://mylocal/",
                "the url \"https://mylocal/\" has a host of a single label, which only a local network can resolve",
            ),
            ("https://notlocal.example/", "https://notlocal.example/"),
        ] {
            assert_eq!(as_requested(text), requested, "{text:?}");
        }
    }

    #[test]
    fn what_is_not_https_to_a_public_name_is_malformed() {
        for (text, part) in [
            ("http://seller.example/", "does not start with https://"),
            ("HTTPS://seller.example/", "does not start with https://"),
            (" https://seller.example/", "does not start with https://"),
            ("https:seller.example", "does not start with https://"),
            ("https:\\\\seller.example", "does not start with https://"),
            ("", "does not start with https://"),
            ("https://", "cannot be read"),
            ("https://exa mple.com/", "cannot be read"),
            ("https://seller.example:99999/", "cannot be read"),
            ("https://[::1/", "cannot be read"),
            ("https://u@seller.example/", "user name"),
            ("https://u:p@seller.example/", "user name"),
            ("https://@seller.example/", "user name"),
            ("https://:@seller.example/", "user name"),
            ("https://\t@seller.example/", "user name"),
            ("https:////@seller.example/", "user name"),
            ("https://seller.example:443@8.8.8.8/", "user name"),
            ("https://localhost/", "this machine"),
            ("https://LOCALHOST:8443/", "this machine"),
            ("https://a.localhost/", "this machine"),
            ("https://localhost./", "ends in a dot"),
            ("https://seller.example./", "ends in a dot"),
            ("https://8.8.8.8./", "ends in a dot"),
            ("https://8.8.8.8.:8443/", "ends in a dot"),
            ("https://8.8.8.8. ", "ends in a dot"),
            ("https://8.8.8.8%2E/", "ends in a dot"),
            ("https://8.8.8.8\u{3002}/", "ends in a dot"),
            ("https://seller..example/", "empty label"),
            ("https://.seller.example/", "empty label"),
            ("https://intranet/", "single label"),
            ("https://printer.local/", "under .local"),
            ("https://a.internal/", "under .internal"),
            ("https://home.arpa/", "under .home.arpa"),
            ("https://x.home.arpa/", "under .home.arpa"),
            ("https://x.onion/", "under .onion"),
            ("https://x.invalid/", "under .invalid"),
            ("https://seller.example:0/", "port 0"),
            ("https://seller.example:22/", "port 22"),
            ("https://seller.example:10080/", "port 10080"),
            ("https://127.0.0.1/", "loopback"),
            ("https://2130706433/", "loopback"),
            ("https://0x7f.1/", "loopback"),
            ("https://017700000001/", "loopback"),
            ("https://127.1/", "loopback"),
            ("https://127%2e0%2e0%2e1/", "loopback"),
            ("https://１２７.0.0.1/", "loopback"),
            ("https://0/", "this network"),
            ("https://10.0.0.1/", "private"),
            ("https://169.254.169.254/", "link-local"),
            ("https://224.0.0.1/", "multicast"),
            ("https://[::1]/", "loopback"),
            ("https://[::ffff:127.0.0.1]/", "loopback"),
            ("https://[::ffff:8.8.8.8]/", "mapped"),
            ("https://[64:ff9b::a9fe:a9fe]/", "link-local"),
            ("https://[2002:7f00:1::]/", "loopback"),
            ("https://[fec0::1]/", "site-local"),
            ("https://[4000::1]/", "outside 2000::/3"),
        ] {
            assert!(why(text).contains(part), "{text:?}: {}", why(text));
        }
    }

    #[test]
    fn the_length_bound_counts_bytes() {
        let at = format!("https://seller.example/{}", "a".repeat(limits::URL_BYTES_MAX - 23));
        assert_eq!(at.len(), limits::URL_BYTES_MAX);
        assert_eq!(as_requested(&at), at);
        assert!(why(&format!("{at}a")).contains("2049 bytes"));
        let long = format!("https://{}.example/", "a".repeat(63));
        assert_eq!(as_requested(&long), long);
        assert!(why(&format!("https://{}.example/", "a".repeat(64))).contains("no name server"));
    }

    #[test]
    fn lists_and_dry_runs_admit_what_they_say() {
        let listed = UrlPolicy {
            addresses: AddressRule {
                allow: vec![Network::parse("127.0.0.0/8").expect("network")],
                allow_private: false,
            },
        };
        assert!(Target::parse("https://127.0.0.1:8443/", &listed).is_ok());
        assert!(Target::parse("https://localhost/", &listed).is_err());
        assert!(Target::parse("https://10.0.0.1/", &listed).is_err());
        let own = UrlPolicy { addresses: AddressRule { allow: vec![], allow_private: true } };
        for open in ["https://127.0.0.1:8443/", "https://localhost:8443/", "https://[::1]/", "https://192.168.1.1/"] {
            assert!(Target::parse(open, &own).is_ok(), "{open}");
        }
        for shut in ["https://169.254.169.254/", "https://intranet/", "https://x.local/", "https://u@localhost/"] {
            assert!(Target::parse(shut, &own).is_err(), "{shut}");
        }
    }

    #[test]
    fn blocked_ports_are_sorted() {
        assert!(PORTS_BLOCKED.windows(2).all(|w| w[0] < w[1]));
    }
}
