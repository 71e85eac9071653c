//! Durable ledger operations a second through the house's own door, with 64 clients, against what their signatures alone
//! would allow on the same cores. Both sides take turns within one run, so that whatever else the machine does burdens
//! both, and the medians make the ratio. Fails below half.
//!
//! The signatures of one payment, each counted once, over texts as long as the real ones: its envelope verified, its
//! entry signed, and the one receipt signed that goes to both parties. Nothing else is signed on the way: the clients'
//! cards were certified and checked before, and no relay vouches for mail that comes in by this door.

use serde_json::{Value, json};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use verifica::daemon::{Listen, Running, ServeOptions, serve};
use verifica::record::{House, Registration, Settings};
use verifica::server::Doors;
use verifica::store::Reader;
use verifica::time::{Clock, Timestamp};
use verifica::wire::auth::host_of;
use verifica::wire::envelope::{Draft, Kind, Payload};
use verifica::wire::json::canonical_without;
use verifica::wire::quote::OP_MEDIA;
use verifica::wire::{Domain, SigningKey};

const CLIENTS: usize = 64;
const ROUNDS: usize = 7;
const PAYMENTS_EACH: usize = 40;
const RATIO_BOUND: f64 = 0.5;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let house = runtime.block_on(Bench::start());
    let texts = runtime.block_on(house.warm());
    let mut ours = Vec::new();
    let mut bare = Vec::new();
    for round in 0..ROUNDS {
        ours.push(runtime.block_on(house.payments(round)));
        bare.push(signatures(cores, &texts));
    }
    runtime.block_on(house.running.shutdown());
    let ratio = median(ours.iter().zip(&bare).map(|(ours, bare)| ours.rate / bare.rate));
    let (rate, cpu) = (median(ours.iter().map(|side| side.rate)), median(ours.iter().map(|side| side.cpu)));
    let (bare_rate, bare_cpu) = (median(bare.iter().map(|side| side.rate)), median(bare.iter().map(|side| side.cpu)));
    println!(
        "{rate:.0} durable operations/s with {CLIENTS} clients ({cpu:.0} us of processor each); their signatures alone \
         allow {bare_rate:.0}/s on {cores} cores ({bare_cpu:.0} us each); ratio {ratio:.2} (at least {RATIO_BOUND})"
    );
    assert!(ratio >= RATIO_BOUND, "ratio {ratio:.2} is below {RATIO_BOUND}");
}

/// One side of one round.
struct Side {
    /// Operations a second.
    rate: f64,
    /// Microseconds of processor time for each.
    cpu: f64,
}

impl Side {
    fn of(operations: usize, start: Instant, cpu: Duration) -> Side {
        let operations = operations as f64;
        Side {
            rate: operations / start.elapsed().as_secs_f64(),
            cpu: (processor_time() - cpu).as_secs_f64() * 1e6 / operations,
        }
    }
}

/// What was signed for one payment.
struct Texts {
    envelope: String,
    entry: String,
    receipt: String,
}

struct Bench {
    running: Running,
    doors: Arc<Doors>,
    agents: Vec<(String, SigningKey)>,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn start() -> Bench {
        let socket = TcpListener::bind("127.0.0.1:0").expect("port");
        let url = format!("http://{}", socket.local_addr().expect("address"));
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
            key: SigningKey::from_seed([1; 32]),
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
        Bench { running, doors, agents, _folder: folder }
    }

    /// One payment by each client, unmeasured; answers what was signed for one of them.
    async fn warm(&self) -> Texts {
        let mut texts = None;
        for me in 0..CLIENTS {
            let envelope = payment(&self.agents, me, "warm", verifica::client::agent::SystemClock.now());
            let answer = self.doors.inbound(envelope.as_bytes(), None).await;
            assert_eq!(answer.code, 202, "{}", answer.body);
            let payer = self.agents[me].0.clone();
            let read = move |reader: &Reader| reader.mailbox(&payer, 1, Timestamp::from_millis(i64::MAX));
            let mail = self.doors.read(read).await.expect("mailbox");
            let receipt = mail.first().expect("a receipt").envelope.clone();
            let to = receipt["to"].as_array().map_or(0, Vec::len);
            assert_eq!(to, 2, "one receipt for both: {receipt}");
            let signed = |doc: &Value| canonical_without(doc.as_object().expect("object"), "signature");
            texts = Some(Texts {
                envelope: signed(&serde_json::from_str(&envelope).expect("json")),
                entry: signed(&receipt["content"]["body"]["asiento"]),
                receipt: signed(&receipt),
            });
        }
        texts.expect("clients")
    }

    async fn payments(&self, round: usize) -> Side {
        // Clients sign before the clock starts: they are other machines.
        let now = verifica::client::agent::SystemClock.now();
        let prepared: Vec<Vec<String>> = (0..CLIENTS)
            .map(|me| (0..PAYMENTS_EACH).map(|n| payment(&self.agents, me, &format!("{round}-{n}"), now)).collect())
            .collect();
        let (start, cpu) = (Instant::now(), processor_time());
        let clients: Vec<_> = prepared
            .into_iter()
            .map(|envelopes| {
                let doors = self.doors.clone();
                tokio::spawn(async move {
                    for envelope in envelopes {
                        let answer = doors.inbound(envelope.as_bytes(), None).await;
                        assert_eq!(answer.code, 202, "{}", answer.body);
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.expect("client");
        }
        Side::of(CLIENTS * PAYMENTS_EACH, start, cpu)
    }
}

fn payment(agents: &[(String, SigningKey)], me: usize, n: &str, now: Timestamp) -> String {
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
    doc.to_string()
}

/// The signatures of as many payments as a round has, on every core.
fn signatures(cores: usize, texts: &Texts) -> Side {
    let key = SigningKey::from_seed([7; 32]);
    let signature = key.sign(texts.envelope.as_bytes());
    let rounds = CLIENTS * PAYMENTS_EACH / cores;
    let (start, cpu) = (Instant::now(), processor_time());
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                for _ in 0..rounds {
                    assert!(key.public().verify(texts.envelope.as_bytes(), &signature));
                    std::hint::black_box(key.sign(texts.entry.as_bytes()));
                    std::hint::black_box(key.sign(texts.receipt.as_bytes()));
                }
            });
        }
    });
    Side::of(rounds * cores, start, cpu)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What the threads of this process have run so far, those that ended included.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("proc");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 10)
}
