//! A server that does with TLS, HTTP and DNS whatever a test tells it to, on loopback.

pub mod dns;
pub mod pki;
pub mod server;

use pki::{Ca, Identity};
use server::Server;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::OnceLock;
pub use verifica::observe::{Deadlines, Fetcher, FetcherConfig, Override};
pub use verifica::probe::address::{AddressRule, Network};
pub use verifica::probe::observation::{Cause, End, FetchKey, FetchPlan, Method, Observation, Phase, Response, Seen};

pub const HOST: &str = "seller.example";

/// The authority that the fetchers of these tests trust.
pub fn ca() -> &'static Ca {
    static CA: OnceLock<Ca> = OnceLock::new();
    CA.get_or_init(|| Ca::new("trusted here"))
}

/// A certificate for [`HOST`] and 127.0.0.1.
pub fn identity() -> Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| ca().leaf(&[HOST, "127.0.0.1"])).clone()
}

/// Long enough for a busy machine: for tests that do not wait for a deadline.
pub const PATIENT: Deadlines = Deadlines {
    dns_ms: 20_000,
    connect_ms: 20_000,
    tls_ms: 20_000,
    first_byte_ms: 20_000,
    body_ms: 20_000,
    no_content_grace_ms: 300,
};

pub fn loopback() -> AddressRule {
    AddressRule { allow: vec![Network::parse("127.0.0.0/8").expect("a network")], allow_private: false }
}

pub fn config() -> FetcherConfig {
    FetcherConfig {
        allow: loopback(),
        extra_ca_pem: vec![ca().pem().into_bytes()],
        per_host_per_minute: 100_000,
        deadlines: PATIENT,
        ..FetcherConfig::default()
    }
}

/// A fetcher for which [`HOST`] is at that address.
pub fn fetcher_to(to: SocketAddr) -> Fetcher {
    Fetcher::new(FetcherConfig { resolve: vec![at(to)], ..config() }).expect("a fetcher")
}

pub fn at(to: SocketAddr) -> Override {
    Override::new(HOST, 443, to).expect("an override")
}

pub fn plan(url: &str, read: u64) -> FetchPlan {
    let key = FetchKey { url: url.into(), method: Method::Get, accept: "*/*".into() };
    FetchPlan { key, read, keep: read, timeout_ms: 30_000 }
}

pub fn host_plan(read: u64) -> FetchPlan {
    plan(&format!("https://{HOST}/"), read)
}

/// What a patient fetcher sees of a server.
pub async fn see(server: &Server, read: u64) -> Observation {
    fetcher_to(server.address).fetch(&host_plan(read)).await
}

pub fn response(seen: &Observation) -> &Response {
    match &seen.seen {
        Seen::Response(response) => response,
        Seen::Nothing { .. } => panic!("no answer was seen: {seen:?}"),
    }
}

/// `phase/cause`, and the reason, of an observation that has no head.
pub fn nothing(seen: &Observation) -> (Phase, Cause, &str) {
    match &seen.seen {
        Seen::Nothing { phase, cause, reason } => (*phase, *cause, reason),
        Seen::Response(_) => panic!("an answer was seen: {seen:?}"),
    }
}

/// One word for what was seen, for tables: `200 complete 5`, `200 broken origin 3`, `nothing head origin`.
pub fn summary(seen: &Observation) -> String {
    match &seen.seen {
        Seen::Nothing { phase, cause, .. } => format!("nothing {phase:?} {}", cause.name()).to_lowercase(),
        Seen::Response(Response { status, content, .. }) => {
            let end = match &content.end {
                End::Complete => "complete".to_string(),
                End::Unconfirmed => "unconfirmed".to_string(),
                End::Cut => "cut".to_string(),
                End::NotRead => "not read".to_string(),
                End::Broken { cause, .. } => format!("broken {}", cause.name()),
            };
            format!("{status} {end} {}", content.bytes)
        }
    }
}

pub fn headers(response: &Response) -> BTreeMap<&str, Vec<&[u8]>> {
    let mut by_name: BTreeMap<&str, Vec<&[u8]>> = BTreeMap::new();
    for header in &response.headers {
        by_name.entry(&header.name).or_default().push(&header.value);
    }
    by_name
}
