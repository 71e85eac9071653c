//! A name server over UDP that answers what a test tells it to.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

#[derive(Clone, Debug)]
pub enum Answer {
    /// The addresses of the kind that was asked for; the others are left out.
    Addresses(Vec<IpAddr>),
    /// No error, no record.
    Empty,
    /// A response code: 2 SERVFAIL, 3 NXDOMAIN, 5 REFUSED.
    Code(u8),
    /// An alias to another name, with the address of that one.
    Alias(String, IpAddr),
    Silence,
}

pub struct Dns {
    pub address: SocketAddr,
    queries: Arc<AtomicUsize>,
    names: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

pub const A: u16 = 1;
pub const AAAA: u16 = 28;

impl Dns {
    /// `answer` gets the name, the kind of record and the number of the query, from 0.
    pub async fn start(answer: impl Fn(&str, u16, usize) -> Answer + Send + Sync + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a loopback address");
        let address = socket.local_addr().expect("an address");
        let queries = Arc::new(AtomicUsize::new(0));
        let names = Arc::new(Mutex::new(Vec::new()));
        let (count, seen) = (Arc::clone(&queries), Arc::clone(&names));
        let task = tokio::spawn(async move {
            let mut buffer = [0; 1_500];
            while let Ok((size, from)) = socket.recv_from(&mut buffer).await {
                let Some((name, kind, question)) = parse(&buffer[..size]) else { continue };
                let number = count.fetch_add(1, Ordering::SeqCst);
                seen.lock().expect("no panic").push(name.clone());
                if let Some(reply) = reply(&buffer[..size], question, kind, answer(&name, kind, number)) {
                    let _ = socket.send_to(&reply, from).await;
                }
            }
        });
        Dns { address, queries, names, task }
    }

    pub fn queries(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }

    pub fn names(&self) -> Vec<String> {
        self.names.lock().expect("no panic").clone()
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The name with its final dot, the kind, and where the question ends.
fn parse(query: &[u8]) -> Option<(String, u16, usize)> {
    let mut at = 12;
    let mut name = String::new();
    loop {
        let size = usize::from(*query.get(at)?);
        at += 1;
        if size == 0 {
            break;
        }
        name.push_str(&String::from_utf8_lossy(query.get(at..at + size)?));
        name.push('.');
        at += size;
    }
    let kind = u16::from_be_bytes([*query.get(at)?, *query.get(at + 1)?]);
    Some((name, kind, at + 4))
}

fn reply(query: &[u8], question: usize, kind: u16, answer: Answer) -> Option<Vec<u8>> {
    let address = |ip: &IpAddr| -> (u16, Vec<u8>) {
        match ip {
            IpAddr::V4(ip) => (A, ip.octets().to_vec()),
            IpAddr::V6(ip) => (AAAA, ip.octets().to_vec()),
        }
    };
    let question_name = [0xC0, 12].to_vec();
    let mut records: Vec<(Vec<u8>, u16, Vec<u8>)> = Vec::new();
    let mut code = 0;
    match answer {
        Answer::Silence => return None,
        Answer::Empty => {}
        Answer::Code(c) => code = c,
        Answer::Addresses(all) => {
            for ip in all {
                let (of, data) = address(&ip);
                if of == kind {
                    records.push((question_name.clone(), of, data));
                }
            }
        }
        Answer::Alias(to, ip) => {
            let encoded: Vec<u8> = to
                .split('.')
                .filter(|label| !label.is_empty())
                .flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat())
                .chain([0])
                .collect();
            records.push((question_name, 5, encoded.clone()));
            let (of, data) = address(&ip);
            if of == kind {
                records.push((encoded, of, data));
            }
        }
    }
    let mut out = query.get(..2)?.to_vec();
    out.extend([0x81, 0x80 | code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
    out.extend(query.get(12..question)?);
    for (name, of, data) in records {
        out.extend(name);
        out.extend(of.to_be_bytes());
        // Class IN, an hour to live: a cache would keep it.
        out.extend([0, 1, 0, 0, 0x0E, 0x10]);
        out.extend((data.len() as u16).to_be_bytes());
        out.extend(data);
    }
    Some(out)
}
