//! Addresses: a refused one never sees a packet. The spy is a listener that counts who knocks.

use crate::hostile::dns::{A, AAAA, Answer, Dns};
use crate::hostile::pki::self_signed;
use crate::hostile::server::{Server, Stage, Step, Tls, send};
use crate::hostile::*;
use std::net::IpAddr;
use std::time::Duration;

fn answer() -> Vec<Step> {
    vec![send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), Step::Notify]
}

async fn spy() -> Server {
    Server::start(identity(), answer()).await
}

async fn nobody_knocked(spy: &Server) {
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(spy.connections(), 0);
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().expect("an address")).collect()
}

/// A fetcher that asks this name server.
fn asking(dns: &Dns, allow: AddressRule) -> Fetcher {
    Fetcher::new(FetcherConfig { name_servers: vec![dns.address], allow, ..config() }).expect("a fetcher")
}

#[tokio::test]
async fn the_spy_sees_those_who_may_come() {
    let spy = spy().await;
    assert_eq!(summary(&see(&spy, 10).await), "200 complete 5");
    assert_eq!(spy.connections(), 1);
}

#[tokio::test]
async fn literals_in_every_spelling_are_refused_before_anything_is_sent() {
    let spy = spy().await;
    let port = spy.address.port();
    let config = FetcherConfig { allow: AddressRule::default(), ..config() };
    let fetcher = Fetcher::new(config).expect("a fetcher");
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "１２７.0.0.1",
        "%3127.0.0.1",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[2001:0:7f00:1::]",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.8",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "[fe80::1]",
        "[fc00::1]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[64:ff9b::a9fe:a9fe]",
        "localhost",
        "a.localhost",
        "seller",
        "seller.local",
        "seller.internal",
        "seller.example.",
        "u@seller.example",
        "seller.example:443@127.0.0.1",
        "127.0.0.1:1\\@seller.example",
    ] {
        let seen = fetcher.fetch(&plan(&format!("https://{host}:{port}/"), 10)).await;
        let (phase, cause, reason) = nothing(&seen);
        assert_eq!((phase, cause, seen.address), (Phase::Dns, Cause::Contract, None), "{host}: {reason}");
    }
    for url in [
        "http://127.0.0.1/",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "https:127.0.0.1",
        "https://",
        "",
        "https://[::1",
        "https://seller.example:22/",
    ] {
        assert_eq!(summary(&fetcher.fetch(&plan(url, 10)).await), "nothing dns contract", "{url}");
    }
    nobody_knocked(&spy).await;
}

#[tokio::test]
async fn an_override_does_not_make_an_address_allowed() {
    let spy = spy().await;
    let port = spy.address.port();
    for to in [
        "127.0.0.1",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "::1",
        "64:ff9b::127.0.0.1",
        "10.0.0.1",
        "0.0.0.0",
        "169.254.169.254",
    ] {
        let to: IpAddr = to.parse().expect("an address");
        let config = FetcherConfig { allow: AddressRule::default(), resolve: vec![at((to, port).into())], ..config() };
        let seen = Fetcher::new(config).expect("a fetcher").fetch(&host_plan(10)).await;
        assert_eq!(summary(&seen), "nothing dns origin", "{to}");
        assert!(nothing(&seen).2.contains("not allowed"), "{seen:?}");
    }
    nobody_knocked(&spy).await;
}

#[tokio::test]
async fn allowing_a_network_does_not_allow_the_forms_that_hide_it() {
    let spy = spy().await;
    for to in ["::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::"] {
        let to: IpAddr = to.parse().expect("an address");
        let config = FetcherConfig { resolve: vec![at((to, spy.address.port()).into())], ..config() };
        let seen = Fetcher::new(config).expect("a fetcher").fetch(&host_plan(10)).await;
        assert_eq!(summary(&seen), "nothing dns origin", "{to}");
    }
    nobody_knocked(&spy).await;
}

#[tokio::test]
async fn names_that_lead_to_addresses_that_are_not_public() {
    let spy = spy().await;
    let url = format!("https://{HOST}:{}/", spy.address.port());
    for bad in [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "10.1.2.3",
        "fe80::1",
        "fd00::1",
        "0.0.0.0",
        "2002:7f00:1::",
    ] {
        let addresses = ips(&[bad]);
        let dns = Dns::start(move |_, _, _| Answer::Addresses(addresses.clone())).await;
        let seen = asking(&dns, AddressRule::default()).fetch(&plan(&url, 10)).await;
        assert_eq!(summary(&seen), "nothing dns origin", "{bad}");
    }
    let dns =
        Dns::start(|_, _, _| Answer::Alias("inside.example".into(), "127.0.0.1".parse().expect("an address"))).await;
    let seen = asking(&dns, AddressRule::default()).fetch(&plan(&url, 10)).await;
    assert_eq!(summary(&seen), "nothing dns origin", "an alias");
    nobody_knocked(&spy).await;
}

#[tokio::test]
async fn one_bad_address_refuses_the_whole_answer() {
    let spy = spy().await;
    let url = format!("https://{HOST}:{}/", spy.address.port());
    for answer in [
        ["127.0.0.1", "10.0.0.1"],
        ["10.0.0.1", "127.0.0.1"],
        ["127.0.0.1", "fd00::1"],
        ["127.0.0.1", "::ffff:127.0.0.1"],
    ] {
        let addresses = ips(&answer);
        let dns = Dns::start(move |_, _, _| Answer::Addresses(addresses.clone())).await;
        let seen = asking(&dns, loopback()).fetch(&plan(&url, 10)).await;
        assert_eq!(summary(&seen), "nothing dns origin", "{answer:?}");
    }
    nobody_knocked(&spy).await;
}

#[tokio::test]
async fn a_name_that_changes_its_mind_is_asked_and_judged_each_time() {
    let spy = spy().await;
    let url = format!("https://{HOST}:{}/", spy.address.port());
    let dns =
        Dns::start(|_, _, number| Answer::Addresses(ips(if number < 2 { &["127.0.0.1"] } else { &["10.0.0.1"] })))
            .await;
    let fetcher = asking(&dns, loopback());
    assert_eq!(summary(&fetcher.fetch(&plan(&url, 10)).await), "200 complete 5");
    assert_eq!(summary(&fetcher.fetch(&plan(&url, 10)).await), "nothing dns origin");
    assert_eq!(spy.connections(), 1);
    assert_eq!(dns.queries(), 4, "both kinds, twice: nothing is remembered");
    assert!(dns.names().iter().all(|name| name.eq_ignore_ascii_case("seller.example.")), "{:?}", dns.names());
}

#[tokio::test]
async fn answers_of_a_name_server_that_lead_nowhere() {
    let words = [
        (Answer::Code(3), "does not exist"),
        (Answer::Empty, "has no address"),
        (Answer::Code(2), "Server Failure"),
        (Answer::Code(5), "Refused"),
    ];
    for (answer, words) in words {
        let seen_by = answer.clone();
        let dns = Dns::start(move |_, _, _| seen_by.clone()).await;
        let seen = asking(&dns, loopback()).fetch(&host_plan(10)).await;
        let (phase, cause, reason) = nothing(&seen);
        assert_eq!((phase, cause), (Phase::Dns, Cause::Network), "{answer:?}");
        assert!(reason.to_lowercase().contains(&words.to_lowercase()), "{answer:?}: {reason}");
    }
}

#[tokio::test]
async fn one_kind_of_address_is_enough() {
    let spy = spy().await;
    let url = format!("https://{HOST}:{}/", spy.address.port());
    for other in [Answer::Empty, Answer::Code(2), Answer::Code(3)] {
        let named = format!("{other:?}");
        let dns = Dns::start(move |_, kind, _| match kind {
            A => Answer::Addresses(ips(&["127.0.0.1"])),
            AAAA => other.clone(),
            _ => Answer::Silence,
        })
        .await;
        assert_eq!(summary(&asking(&dns, loopback()).fetch(&plan(&url, 10)).await), "200 complete 5", "{named}");
    }
}

#[tokio::test]
async fn a_silent_name_server_is_out_of_time() {
    let dns = Dns::start(|_, _, _| Answer::Silence).await;
    let deadlines = Deadlines { dns_ms: 300, ..PATIENT };
    let config = FetcherConfig { name_servers: vec![dns.address], deadlines, ..config() };
    let seen = Fetcher::new(config).expect("a fetcher").fetch(&host_plan(10)).await;
    assert_eq!(summary(&seen), "nothing dns network");
    assert!(dns.queries() >= 2);
}

#[tokio::test]
async fn the_next_address_is_tried_only_when_connecting_fails() {
    let good = spy().await;
    let port = good.address.port();
    let url = format!("https://{HOST}:{port}/");
    let at = |addresses: &'static [&'static str]| Dns::start(move |_, _, _| Answer::Addresses(ips(addresses)));

    let dns = at(&["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.1"]).await;
    let seen = asking(&dns, loopback()).fetch(&plan(&url, 10)).await;
    assert_eq!((summary(&seen).as_str(), seen.address), ("200 complete 5", Some(good.address)));

    let dns = at(&["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.1"]).await;
    let seen = asking(&dns, loopback()).fetch(&plan(&url, 10)).await;
    assert_eq!((summary(&seen).as_str(), seen.address), ("nothing connect network", None));
    assert!(nothing(&seen).2.contains("refused"), "{seen:?}");

    let bad = format!("127.0.0.6:{port}");
    let bad = Server::scripted(&bad, self_signed(&[HOST]), Tls::V13, |_| (Stage::Request, answer())).await;
    let dns = at(&["127.0.0.6", "127.0.0.1"]).await;
    let seen = asking(&dns, loopback()).fetch(&plan(&url, 10)).await;
    assert_eq!((summary(&seen).as_str(), seen.address), ("nothing tls origin", Some(bad.address)));
    assert_eq!(good.connections(), 1);
}

#[tokio::test]
async fn an_override_is_for_its_host_and_port_alone() {
    let spy = spy().await;
    let dns = Dns::start(|_, _, _| Answer::Code(3)).await;
    let to =
        Fetcher::parse_override(&format!("Seller.Example:8443:127.0.0.1:{}", spy.address.port())).expect("an override");
    let config = FetcherConfig { resolve: vec![to], name_servers: vec![dns.address], ..config() };
    let fetcher = Fetcher::new(config).expect("a fetcher");
    assert_eq!(summary(&fetcher.fetch(&plan("https://seller.example:8443/", 10)).await), "200 complete 5");
    assert_eq!(summary(&fetcher.fetch(&plan("https://seller.example/", 10)).await), "nothing dns network");
    assert_eq!(summary(&fetcher.fetch(&plan("https://a.seller.example:8443/", 10)).await), "nothing dns network");
    assert_eq!(spy.connections(), 1);
}

#[tokio::test]
async fn for_a_dry_run_private_addresses_and_localhost_may_be_allowed() {
    let server = Server::start(ca().leaf(&["localhost", "127.0.0.1"]), answer()).await;
    let allow = AddressRule { allow: Vec::new(), allow_private: true };
    let fetcher = Fetcher::new(FetcherConfig { allow, ..config() }).expect("a fetcher");
    for host in ["localhost", "127.0.0.1"] {
        let seen = fetcher.fetch(&plan(&format!("https://{host}:{}/", server.address.port()), 10)).await;
        assert_eq!(summary(&seen), "200 complete 5", "{host}");
    }
}
