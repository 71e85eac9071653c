//! How much memory attachments take: a house of the real program, many of the largest at once, both ways.

use crate::houses::{TestAgent, nonce};
use crate::process::HouseProcess;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use verifica::limits;
use verifica::wire::{Address, SigningKey};

/// The largest amount of memory that a process had so far, in bytes.
fn peak(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("status");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib * 1_024
}

fn agent(house: &HouseProcess, name: &str, seed: u8) -> TestAgent {
    TestAgent {
        address: Address::parse(&format!("{name}@mar.example")).expect("address"),
        key: SigningKey::from_seed([seed; 32]),
        url: house.url.clone(),
        host: "mar.example".to_owned(),
    }
}

/// Sends an attachment piece by piece; its bytes are never in one place here either.
async fn upload(agent: &TestAgent, blob: &str, bytes: u64) {
    let path = format!("/blob/{blob}");
    let token = agent.token("PUT", &path, &nonce());
    let at = agent.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(at).await.expect("connect");
    let head = format!(
        "PUT {path}?to=ana0@mar.example,ana1@mar.example,ana2@mar.example HTTP/1.1\r\nhost: {at}\r\nauthorization: {token}\r\nconnection: close\r\n\
         content-length: {bytes}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("head");
    let piece = [5u8; 65_536];
    for _ in 0..bytes / 65_536 {
        stream.write_all(&piece).await.expect("piece");
    }
    stream.write_all(&piece[..(bytes % 65_536) as usize]).await.expect("rest");
    let mut said = String::new();
    stream.read_to_string(&mut said).await.expect("answer");
    assert!(said.starts_with("HTTP/1.1 201"), "{said}");
}

async fn download(agent: &TestAgent, blob: &str) -> u64 {
    let path = format!("/blob/{blob}");
    let token = agent.token("GET", &path, &nonce());
    let at = agent.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(at).await.expect("connect");
    let head = format!("GET {path} HTTP/1.1\r\nhost: {at}\r\nauthorization: {token}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("head");
    let mut piece = vec![0u8; 65_536];
    let (mut total, mut before_body) = (0u64, Vec::new());
    loop {
        let n = stream.read(&mut piece).await.expect("read");
        if n == 0 {
            return total;
        }
        if total > 0 {
            total += n as u64;
            continue;
        }
        before_body.extend_from_slice(&piece[..n]);
        if let Some(end) = before_body.windows(4).position(|four| four == b"\r\n\r\n") {
            assert!(before_body.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&before_body[..end]));
            total = (before_body.len() - end - 4) as u64;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twelve_of_the_largest_attachments_take_no_more_memory_than_a_small_one() {
    let dir = tempfile::tempdir().expect("folder");
    let folder = HouseProcess::init(dir.path(), "mar.example");
    let toml = folder.join("verifica.toml");
    let text = std::fs::read_to_string(&toml).expect("configuration").replace("mode = \"admin\"", "mode = \"open\"");
    std::fs::write(&toml, text).expect("configuration");
    let house = HouseProcess::serve(folder);
    let senders: Vec<TestAgent> = (0..3).map(|n| agent(&house, &format!("ana{n}"), 10 + n)).collect();
    for one in &senders {
        let (status, body) = one.register(json!({})).await;
        assert_eq!(status, 201, "{body}");
    }
    // Everything has been used once, in small.
    for sender in &senders {
        let blob = nonce();
        upload(sender, &blob, 1_000).await;
        assert_eq!(download(sender, &blob).await, 1_000);
    }
    let before = peak(house.id());
    let mut moving = tokio::task::JoinSet::new();
    for sender in senders.iter().flat_map(|sender| std::iter::repeat_n(sender, limits::BLOB_TRANSFERS_PER_AGENT_MAX)) {
        let (sender, blob) = (sender.clone(), nonce());
        moving.spawn(async move {
            upload(&sender, &blob, limits::ATTACHMENT_BYTES_MAX).await;
            blob
        });
    }
    let blobs = moving.join_all().await;
    assert_eq!(blobs.len(), 12);
    let mut moving = tokio::task::JoinSet::new();
    for (n, blob) in blobs.into_iter().enumerate() {
        let sender = senders[n % senders.len()].clone();
        moving.spawn(async move { (blob.clone(), download(&sender, &blob).await) });
    }
    for (blob, bytes) in moving.join_all().await {
        assert_eq!(bytes, limits::ATTACHMENT_BYTES_MAX, "{blob}");
    }
    let grown = peak(house.id()).saturating_sub(before);
    assert!(
        grown < 3 * limits::ATTACHMENT_BYTES_MAX,
        "{grown} bytes for 12 attachments of {}",
        limits::ATTACHMENT_BYTES_MAX
    );
}
