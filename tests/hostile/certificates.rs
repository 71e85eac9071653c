//! TLS: nothing is asked of a server that did not prove that it is the host of the URL.

use crate::hostile::pki::{Ca, Identity, self_signed};
use crate::hostile::server::{Server, Stage, Step, Tls, send};
use crate::hostile::*;
use rcgen::{ExtendedKeyUsagePurpose, date_time_ymd};
use verifica::time::Timestamp;
use verifica::wire::Sha256;

fn answer() -> Vec<Step> {
    vec![send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), Step::Notify]
}

#[tokio::test]
async fn certificates_that_prove_nothing() {
    let other = Ca::new("not trusted here");
    let middle = ca().intermediate("middle");
    // What anybody can copy from the real server, without its key.
    let stolen = Identity { chain: identity().chain, ..other.leaf(&[HOST]) };
    let mut not_a_ca = ca().leaf(&[HOST]);
    let mut under_it = other.leaf(&[HOST]);
    under_it.chain.append(&mut not_a_ca.chain);
    let rows = [
        ("expired", ca().leaf_with(&[HOST], |p| p.not_after = date_time_ymd(2020, 1, 1)), "has expired"),
        ("not yet valid", ca().leaf_with(&[HOST], |p| p.not_before = date_time_ymd(3000, 1, 1)), "not valid yet"),
        ("another host", ca().leaf(&["other.example"]), "another name"),
        ("a host below", ca().leaf(&["a.seller.example"]), "another name"),
        ("a wildcard for below", ca().leaf(&["*.seller.example"]), "another name"),
        ("no name at all", ca().leaf(&[]), "another name"),
        ("only an address", ca().leaf(&["127.0.0.1"]), "another name"),
        ("another's", stolen, "signature"),
        ("its own issuer", self_signed(&[HOST]), "trusted root"),
        ("an authority nobody trusts", other.leaf(&[HOST]), "trusted root"),
        ("intermediate not sent", middle.leaf(&[HOST]), "trusted root"),
        ("issuer that is no authority", under_it, "trusted root"),
        (
            "for clients",
            ca().leaf_with(&[HOST], |p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
            "not for servers",
        ),
    ];
    for tls in [Tls::V12, Tls::V13] {
        for (name, identity, words) in rows.iter().map(|(n, i, w)| (n, i.clone(), w)) {
            let server = Server::scripted("127.0.0.1:0", identity, tls, |_| (Stage::Request, answer())).await;
            let seen = see(&server, 10).await;
            let (phase, cause, reason) = nothing(&seen);
            assert_eq!((phase, cause), (Phase::Tls, Cause::Origin), "{name}: {reason}");
            assert!(reason.contains(words), "{name}: {reason}");
            assert!(server.requests().is_empty(), "{name}: a request was sent");
            assert_eq!(seen.address, Some(server.address));
            // The same words in another look: nothing of the moment is in them.
            assert_eq!(nothing(&see(&server, 10).await).2, reason, "{name}");
        }
    }
}

#[tokio::test]
async fn certificates_that_prove_it_are_recorded() {
    let middle = ca().intermediate("middle");
    let mut chained = middle.leaf(&[HOST]);
    chained.chain.push(middle.certificate());
    let dated = ca().leaf_with(&["*.example", HOST], |p| p.not_after = date_time_ymd(2999, 12, 31));
    for (tls, version) in [(Tls::V12, "TLSv1.2"), (Tls::V13, "TLSv1.3")] {
        for identity in [chained.clone(), dated.clone()] {
            let leaf = Sha256::of(&identity.chain[0]);
            let server = Server::scripted("127.0.0.1:0", identity, tls, |_| (Stage::Request, answer())).await;
            let seen = see(&server, 10).await;
            assert_eq!(summary(&seen), "200 complete 5");
            assert_eq!(seen.certificate_sha256, Some(leaf));
            assert_eq!(seen.tls.as_deref(), Some(version));
            assert_eq!(server.server_names(), [Some(HOST.to_string())]);
        }
    }
    let server = Server::start(dated, answer()).await;
    let seen = see(&server, 10).await;
    assert_eq!(seen.certificate_not_after, Timestamp::parse("2999-12-31T00:00:00Z"));
}

#[tokio::test]
async fn an_address_as_host_is_checked_against_the_addresses_of_the_certificate() {
    let fetcher = Fetcher::new(config()).expect("a fetcher");
    let right = Server::start(ca().leaf(&["127.0.0.1"]), answer()).await;
    let url = |server: &Server| format!("https://{}/", server.address);
    assert_eq!(summary(&fetcher.fetch(&plan(&url(&right), 10)).await), "200 complete 5");
    assert_eq!(right.server_names(), [None], "an address is no server name");
    assert!(right.requests()[0].contains(&format!("\r\nHost: {}\r\n", right.address)));
    for names in [["127.0.0.2"], [HOST]] {
        let wrong = Server::start(ca().leaf(&names), answer()).await;
        let seen = fetcher.fetch(&plan(&url(&wrong), 10)).await;
        assert!(nothing(&seen).2.contains("another name"), "{names:?}");
    }
}

#[tokio::test]
async fn without_the_extra_authority_nothing_here_is_trusted() {
    let server = Server::start(identity(), answer()).await;
    let config = FetcherConfig { extra_ca_pem: Vec::new(), resolve: vec![at(server.address)], ..config() };
    let seen = Fetcher::new(config).expect("a fetcher").fetch(&host_plan(10)).await;
    assert_eq!(summary(&seen), "nothing tls origin");
}

#[tokio::test]
async fn every_connection_is_a_full_handshake() {
    for tls in [Tls::V12, Tls::V13] {
        let server = Server::scripted("127.0.0.1:0", identity(), tls, |_| (Stage::Request, answer())).await;
        let fetcher = fetcher_to(server.address);
        for _ in 0..3 {
            assert_eq!(summary(&fetcher.fetch(&host_plan(10)).await), "200 complete 5");
        }
        assert_eq!((server.connections(), server.resumed()), (3, 0));
    }
}

#[tokio::test]
async fn ports_that_do_not_speak_tls_or_http_1_1() {
    let plain = send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    for (name, stage, tls, steps) in [
        ("plain HTTP", Stage::Tcp, Tls::V13, vec![plain, Step::Wait(50)]),
        ("noise", Stage::Tcp, Tls::V13, vec![send(vec![0x16; 600]), Step::Wait(50)]),
        ("endless noise", Stage::Tcp, Tls::V13, vec![Step::Endless(vec![0x16, 3, 3, 0, 4, 0, 0, 0, 0])]),
        ("closed at once", Stage::Tcp, Tls::V13, vec![Step::Fin]),
        ("reset at once", Stage::Tcp, Tls::V13, vec![Step::Reset]),
        ("h2 only", Stage::Request, Tls::OnlyH2, answer()),
    ] {
        let server = Server::scripted("127.0.0.1:0", identity(), tls, move |_| (stage, steps.clone())).await;
        assert_eq!(summary(&see(&server, 10).await), "nothing tls origin", "{name}");
    }
}

#[tokio::test]
async fn a_server_that_breaks_off_after_the_handshake() {
    for (steps, expect) in [
        (vec![Step::Notify], "nothing head origin"),
        (vec![Step::Fin], "nothing head"),
        (vec![Step::Reset], "nothing head network"),
    ] {
        let server =
            Server::scripted("127.0.0.1:0", identity(), Tls::V13, move |_| (Stage::Handshake, steps.clone())).await;
        let seen = summary(&see(&server, 10).await);
        assert!(seen.starts_with(expect), "{expect}: {seen}");
    }
}

#[tokio::test]
async fn an_answer_given_before_the_request_was_read_is_an_answer() {
    let server = Server::scripted("127.0.0.1:0", identity(), Tls::V13, |_| {
        let early = send("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
        (Stage::Handshake, vec![early, Step::Wait(200), Step::Notify])
    })
    .await;
    assert_eq!(summary(&see(&server, 10).await), "503 complete 0");
}
