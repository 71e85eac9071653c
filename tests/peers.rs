//! Peers that mean harm, over real sockets: what they hold is bounded, and honest traffic goes on.

mod houses;

use houses::TestHouse;
use serde_json::json;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use verifica::limits;

/// Lets this process hold so many descriptors; false where the host forbids it.
fn raise_descriptors(n: usize) -> bool {
    let pid = std::process::id().to_string();
    let raised = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={n}:")]).status();
    let said = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let soft =
        said.lines().find(|line| line.starts_with("Max open files")).and_then(|line| line.split_whitespace().nth(3));
    let enough = soft.is_some_and(|soft| soft == "unlimited" || soft.parse().is_ok_and(|soft: usize| soft >= n));
    if !enough {
        eprintln!("SKIPPED: this host allows no {n} open files here ({raised:?})");
    }
    enough
}

/// Half of a head, and nothing after it.
async fn half_open(house: &TestHouse, n: usize) -> Vec<TcpStream> {
    let mut held = Vec::with_capacity(n);
    for _ in 0..n {
        let Ok(mut stream) = TcpStream::connect(house.address()).await else { continue };
        drop(stream.write_all(b"GET /live HTTP/1.1\r\nhost: x\r\n").await);
        held.push(stream);
    }
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_who_ask_nothing_make_room_for_one_who_asks() {
    let flood = 10_000;
    if !raise_descriptors(flood + 2 * limits::CONNECTIONS_MAX) {
        return;
    }
    let mut house = TestHouse::started("mar.example", 1).await;
    let ana = house.agent("anna", json!({})).await;
    let begun = Instant::now();
    let mut held = half_open(&house, flood).await;
    // An honest agent's whole round, with a new connection for each step.
    ana.send("anna@mar.example", "through the crowd").await;
    assert!(!ana.wait("from=anna@mar.example").await.is_null());
    assert_eq!(house.get("/live").await.0, 200);
    let took = begun.elapsed();
    let mut open = 0;
    for stream in &mut held {
        let mut piece = [0u8; 1];
        open += usize::from(tokio::time::timeout(Duration::from_millis(1), stream.read(&mut piece)).await.is_err());
    }
    assert!(open <= limits::CONNECTIONS_MAX + 1, "{open} are held");
    // Unless all of it took so long that the bound on heads had ended the crowd, it was the crowd that made room.
    if begun.elapsed() < Duration::from_millis(limits::HEAD_READ_MS) {
        assert!(open > limits::CONNECTIONS_MAX / 2, "{open} are held after {took:?}");
    }
    drop(held);
    house.stop().await;
}
