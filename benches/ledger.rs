//! Durable ledger operations a second through the house's own door, with 64 clients, against what their signatures alone
//! would allow on the same cores: one verification and the entry's and receipts' signatures for each. Prints the ratio;
//! fails below half.

use serde_json::json;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use verifica::daemon::{Listen, ServeOptions, serve};
use verifica::record::{House, Registration, Settings};
use verifica::time::{Clock, Timestamp};
use verifica::wire::auth::host_of;
use verifica::wire::envelope::{Draft, Kind, Payload};
use verifica::wire::quote::OP_MEDIA;
use verifica::wire::{Domain, SigningKey};

const CLIENTS: usize = 64;
const RATIO_BOUND: f64 = 0.5;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime");
    let (done, took) = runtime.block_on(house());
    let ours = done as f64 / took.as_secs_f64();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bare = signatures(cores);
    let ratio = ours / bare;
    println!(
        "{ours:.0} durable operations/s with {CLIENTS} clients; their signatures alone allow {bare:.0}/s on {cores} cores; \
         ratio {ratio:.2} (at least {RATIO_BOUND})"
    );
    assert!(ratio >= RATIO_BOUND, "ratio {ratio:.2} is below {RATIO_BOUND}");
}

async fn house() -> (u64, Duration) {
    let socket = TcpListener::bind("127.0.0.1:0").expect("port");
    let url = format!("http://{}", socket.local_addr().expect("address"));
    let key = SigningKey::from_seed([1; 32]);
    let settings = Settings {
        registration: Registration::Open,
        registrations_per_minute: u32::MAX,
        mail_per_minute: u32::MAX,
        welcome: 1_000_000_000,
        ..Settings::default()
    };
    let house = House {
        domain: Domain::parse("mar.example").expect("domain"),
        host: host_of(&url).expect("host"),
        public_url: url,
        key: key.clone(),
        retiring: None,
        settings,
    };
    let folder = tempfile::tempdir().expect("folder");
    let options = ServeOptions::new(house, Listen::Bound(socket), folder.path().join("store.db"));
    let running = serve(options).await.expect("house");
    let doors = running.doors.clone();
    let mut agents = Vec::new();
    for n in 0..CLIENTS {
        let (local, key) = (format!("client{n}"), SigningKey::from_seed([n as u8 + 2; 32]));
        let body = json!({"local": local, "sig": key.public().kid()});
        let (house, now, seed) = (doors.house(), doors.now(), doors.seed().expect("seed"));
        let answer = doors
            .commit(move |view| {
                let mut ids = verifica::ids::Ids::from_seed(seed);
                let by = verifica::mail::Authority::Admin;
                verifica::mail::register(&house, view, now, &mut ids, &body, &by, "bench")
            })
            .await
            .expect("registered");
        assert_eq!(answer.code, 201, "{}", answer.body);
        agents.push((local, key));
    }
    let agents = Arc::new(agents);
    let done = Arc::new(AtomicU64::new(0));
    let rounds = 60;
    // Clients sign before the clock starts: they are other machines.
    let prepared: Vec<Vec<Vec<u8>>> = (0..CLIENTS)
        .map(|me| (0..rounds).map(|n| payment(&agents, me, n, verifica::client::agent::SystemClock.now())).collect())
        .collect();
    let start = Instant::now();
    let clients: Vec<_> = prepared
        .into_iter()
        .map(|envelopes| {
            let (doors, done) = (doors.clone(), done.clone());
            tokio::spawn(async move {
                for envelope in envelopes {
                    let answer = doors.inbound(&envelope, None).await;
                    assert_eq!(answer.code, 202, "{}", answer.body);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("client");
    }
    let took = start.elapsed();
    running.shutdown().await;
    (done.load(Ordering::Relaxed), took)
}

fn payment(agents: &[(String, SigningKey)], me: usize, n: usize, now: Timestamp) -> Vec<u8> {
    let domain = Domain::parse("mar.example").expect("domain");
    let address = |at: usize| format!("{}@{domain}", agents[at % agents.len()].0);
    let draft = Draft {
        id: format!("payment-{me}-{n}"),
        from: address(me).parse().expect("address"),
        to: vec!["libro@mar.example".parse().expect("address")],
        kind: Kind::Task,
        created: now,
        expires: None,
        deliver_after: None,
        thread: None,
        in_reply_to: None,
        payload: Payload::Clear {
            media: OP_MEDIA.to_owned(),
            body: json!({"op": "pay", "to": address(me + 1), "amount": 1, "concept": "bench"}),
        },
        more: serde_json::Map::new(),
    };
    let mut doc = draft.into_doc();
    agents[me].1.sign_object(&mut doc, "signature");
    doc.to_string().into_bytes()
}

/// What one payment costs in signatures alone: the envelope verified, the entry and two receipts signed.
fn signatures(cores: usize) -> f64 {
    let key = SigningKey::from_seed([7; 32]);
    let message = vec![b'x'; 600];
    let signature = key.sign(&message);
    let rounds = 3_000;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                for _ in 0..rounds {
                    assert!(key.public().verify(&message, &signature));
                    for _ in 0..3 {
                        std::hint::black_box(key.sign(&message));
                    }
                }
            });
        }
    });
    (rounds * cores) as f64 / start.elapsed().as_secs_f64()
}
