//! Looks: one snapshot for each key, bounded rates and connections, and patience with a server that asks for some.

use crate::hostile::server::{Server, Stage, Step, Tls, send};
use crate::hostile::*;
use std::time::{Duration, Instant};

fn ok() -> (Stage, Vec<Step>) {
    (Stage::Request, vec![send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), Step::Notify])
}

fn busy(status: u16, wait: &str) -> (Stage, Vec<Step>) {
    let text = format!("HTTP/1.1 {status} Busy\r\nRetry-After: {wait}\r\nContent-Length: 0\r\n\r\n");
    (Stage::Request, vec![send(text), Step::Notify])
}

async fn scripted(script: impl Fn(usize) -> (Stage, Vec<Step>) + Send + Sync + 'static) -> Server {
    Server::scripted("127.0.0.1:0", identity(), Tls::V13, script).await
}

#[tokio::test]
async fn a_look_makes_one_snapshot_for_each_key() {
    let server = scripted(|_| ok()).await;
    let mut head = host_plan(0);
    head.key.method = Method::Head;
    let mut json = host_plan(10);
    json.key.accept = "application/json".into();
    let other = plan("https://127.0.0.1:1/", 10);
    let plans = [host_plan(3), host_plan(10), head.clone(), json.clone(), host_plan(0), other.clone()];
    let seen = fetcher_to(server.address).look(&plans).await;
    assert_eq!(seen.len(), 4);
    assert_eq!(server.connections(), 3);
    assert_eq!(summary(&seen[&plans[0].key]), "200 complete 5", "as much as the most demanding test needs");
    assert_eq!(summary(&seen[&head.key]), "200 not read 0");
    assert_eq!(summary(&seen[&json.key]), "200 complete 5");
    assert!(summary(&seen[&other.key]).starts_with("nothing"), "and what failed is there too");
    assert!(seen.iter().all(|(key, observation)| *key == observation.key));
    assert!(fetcher_to(server.address).look(&[]).await.is_empty());
}

#[tokio::test]
async fn a_busy_server_that_says_when_is_asked_once_more() {
    for status in [429, 503] {
        let server = scripted(move |n| if n == 0 { busy(status, "1") } else { ok() }).await;
        let began = Instant::now();
        let seen = fetcher_to(server.address).look(&[host_plan(10)]).await;
        assert_eq!(summary(&seen[&host_plan(10).key]), "200 complete 5");
        assert!(began.elapsed() >= Duration::from_millis(900));
        assert_eq!(server.connections(), 2);
    }
}

#[tokio::test]
async fn a_busy_server_is_not_waited_for_without_end() {
    for (script, connections) in [("0", 2), ("11", 1), ("soon", 1)] {
        let server = scripted(move |_| busy(503, script)).await;
        let seen = fetcher_to(server.address).look(&[host_plan(10)]).await;
        assert_eq!(summary(&seen[&host_plan(10).key]), "503 complete 0", "{script}");
        assert_eq!(server.connections(), connections, "{script}");
    }
    let server = scripted(|_| busy(503, "0")).await;
    assert_eq!(summary(&fetcher_to(server.address).fetch(&host_plan(10)).await), "503 complete 0");
    assert_eq!(server.connections(), 1, "a single fetch does not wait");
}

#[tokio::test]
async fn connections_at_once_are_bounded_over_all_clones() {
    let slow =
        || (Stage::Request, vec![Step::Wait(60), send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), Step::Hang]);
    let server = scripted(move |_| slow()).await;
    let config = FetcherConfig { resolve: vec![at(server.address)], slots: 2, ..config() };
    let fetcher = Fetcher::new(config).expect("a fetcher");
    let plans: Vec<_> = (0..8).map(|n| plan(&format!("https://{HOST}/{n}"), 10)).collect();
    let (first, second) = plans.split_at(4);
    let other = fetcher.clone();
    let (a, b) = tokio::join!(fetcher.look(first), other.look(second));
    assert!(a.values().chain(b.values()).all(|seen| summary(seen) == "200 complete 0"));
    assert_eq!(server.connections(), 8);
    assert!(server.most_open() <= 3, "{} were open", server.most_open());
}

#[tokio::test]
async fn waiting_for_a_turn_takes_nothing_from_the_time_of_a_plan() {
    let slow = || (Stage::Request, vec![Step::Wait(400), send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")]);
    let server = scripted(move |_| slow()).await;
    let config = FetcherConfig { resolve: vec![at(server.address)], slots: 1, ..config() };
    let fetcher = Fetcher::new(config).expect("a fetcher");
    let plans: Vec<_> =
        (0..6).map(|n| FetchPlan { timeout_ms: 2_000, ..plan(&format!("https://{HOST}/{n}"), 10) }).collect();
    let seen = fetcher.look(&plans).await;
    assert!(seen.values().all(|seen| summary(seen) == "200 complete 0"), "{seen:#?}");
}
