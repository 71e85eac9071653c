//! Time: every phase ends, and what had been seen by then is kept.

use crate::hostile::server::{Server, Stage, Step, Tls, send};
use crate::hostile::*;
use std::time::{Duration, Instant};
use tokio::net::{TcpSocket, TcpStream};

/// A fetcher with one short deadline, and the time within which it must be done on a busy machine.
fn hurried(server: &Server, deadlines: Deadlines) -> Fetcher {
    let config = FetcherConfig { resolve: vec![at(server.address)], deadlines, ..config() };
    Fetcher::new(config).expect("a fetcher")
}

async fn staged(stage: Stage, steps: Vec<Step>) -> Server {
    Server::scripted("127.0.0.1:0", identity(), Tls::V13, move |_| (stage, steps.clone())).await
}

const SHORT: u64 = 300;
const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_server_that_never_speaks_in_each_phase() {
    let head = send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
    let half = send("HTTP/1.1 200 OK\r\nX: a\r\n");
    for (stage, steps, deadlines, expect, words) in [
        (Stage::Tcp, vec![Step::Hang], Deadlines { tls_ms: SHORT, ..PATIENT }, "nothing tls network", "TLS handshake"),
        (
            Stage::Request,
            vec![Step::Hang],
            Deadlines { first_byte_ms: SHORT, ..PATIENT },
            "nothing head network",
            "first byte",
        ),
        (
            Stage::Handshake,
            vec![Step::Hang],
            Deadlines { first_byte_ms: SHORT, ..PATIENT },
            "nothing head network",
            "first byte",
        ),
        (
            Stage::Request,
            vec![half, Step::Hang],
            Deadlines { body_ms: SHORT, ..PATIENT },
            "nothing head network",
            "the answer",
        ),
        (
            Stage::Request,
            vec![head, Step::Hang],
            Deadlines { body_ms: SHORT, ..PATIENT },
            "200 broken network 3",
            "the answer",
        ),
    ] {
        let server = staged(stage, steps).await;
        let began = Instant::now();
        let seen = hurried(&server, deadlines).fetch(&host_plan(10)).await;
        assert_eq!(summary(&seen), expect);
        assert!(began.elapsed() < SOON, "{expect}");
        let reason = match &seen.seen {
            Seen::Nothing { reason, .. } => reason.clone(),
            Seen::Response(answer) => match &answer.content.end {
                End::Broken { reason, .. } => reason.clone(),
                other => panic!("{other:?}"),
            },
        };
        assert!(reason.contains(words) && reason.contains("300 ms"), "{reason}");
        assert_eq!(seen.address, Some(server.address));
    }
}

#[tokio::test]
async fn a_server_that_drips_is_out_of_time_all_the_same() {
    let drip = |text: &str| Step::Drip(text.repeat(1_000).into_bytes(), 20);
    let head = send("HTTP/1.1 200 OK\r\n\r\n");
    for (steps, expect) in [
        (
            vec![Step::Drip(b"HTTP/1.1 200 OK\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".to_vec(), 20)],
            "nothing head network",
        ),
        (vec![drip("HTTP/1.1 103 E\r\n\r\n")], "nothing head"),
        (vec![head, drip("x")], "200 broken network"),
    ] {
        let server = staged(Stage::Request, steps).await;
        let began = Instant::now();
        let seen = hurried(&server, Deadlines { body_ms: SHORT, ..PATIENT }).fetch(&host_plan(100_000)).await;
        assert!(summary(&seen).starts_with(expect), "{expect}: {}", summary(&seen));
        assert!(began.elapsed() < SOON);
    }
}

#[tokio::test]
async fn the_timeout_of_the_plan_is_over_all_phases() {
    let body = send("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello");
    for (stage, steps, expect) in [
        (Stage::Tcp, vec![Step::Hang], "nothing tls network"),
        (Stage::Request, vec![Step::Hang], "nothing head network"),
        (Stage::Request, vec![body, Step::Hang], "200 broken network 5"),
    ] {
        let server = staged(stage, steps).await;
        let mut plan = host_plan(100);
        plan.timeout_ms = 1_200;
        let began = Instant::now();
        let seen = fetcher_to(server.address).fetch(&plan).await;
        assert_eq!(summary(&seen), expect);
        assert!(began.elapsed() >= Duration::from_millis(1_100) && began.elapsed() < SOON);
    }
    let server = staged(Stage::Request, vec![Step::Hang]).await;
    let mut none = host_plan(10);
    none.timeout_ms = 0;
    let seen = fetcher_to(server.address).fetch(&none).await;
    assert!(matches!(nothing(&seen), (_, Cause::Network, reason) if reason.contains("out of time")));
}

#[tokio::test]
async fn a_head_that_came_in_time_counts_when_the_content_does_not() {
    let answer = send("HTTP/1.1 404 Not Found\r\nX-T: a\r\nContent-Length: 5\r\n\r\n");
    let server = staged(Stage::Request, vec![answer, Step::Hang]).await;
    let seen = hurried(&server, Deadlines { body_ms: SHORT, ..PATIENT }).fetch(&host_plan(10)).await;
    assert_eq!(summary(&seen), "404 broken network 0");
    assert_eq!(headers(response(&seen))["x-t"], [b"a"]);
}

#[tokio::test]
async fn an_answer_without_content_is_not_waited_on_when_it_is_left_open() {
    let server = staged(Stage::Request, vec![send("HTTP/1.1 204 No Content\r\n\r\n"), Step::Hang]).await;
    let began = Instant::now();
    assert_eq!(summary(&see(&server, 10).await), "204 complete 0");
    assert!(began.elapsed() < SOON);
}

#[tokio::test]
async fn a_connection_that_is_never_accepted() {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
    let listener = socket.listen(1).expect("listening");
    let address = listener.local_addr().expect("an address");
    // Fills the queue until the kernel stops answering.
    let mut waiting = Vec::new();
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        waiting.push(stream.expect("connected"));
        assert!(waiting.len() < 64, "the queue does not fill");
    }
    let deadlines = Deadlines { connect_ms: SHORT, ..PATIENT };
    let config = FetcherConfig { resolve: vec![at(address)], deadlines, ..config() };
    let seen = Fetcher::new(config).expect("a fetcher").fetch(&host_plan(10)).await;
    assert_eq!(summary(&seen), "nothing connect network");
    assert!(nothing(&seen).2.contains("connecting took longer than 300 ms"), "{seen:?}");
}

#[tokio::test]
async fn nobody_listens() {
    let server = staged(Stage::Request, vec![Step::Hang]).await;
    let address = server.address;
    drop(server);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let seen = fetcher_to(address).fetch(&host_plan(10)).await;
    assert_eq!(summary(&seen), "nothing connect network");
    assert!(nothing(&seen).2.contains("connection refused"), "{seen:?}");
}
