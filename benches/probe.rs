//! Fresh probes in a second beside blackbox_exporter and hurl, and memory over many of them.
//!
//! Every probe is new TCP, new TLS, one request, then status and a regular expression over the body. The server is another
//! process on loopback: TLS 1.3, a P-256 certificate, 981 bytes of JSON. Where there are two cores and `taskset`, whoever
//! probes has core 1 alone, and the server and whoever asks blackbox_exporter share core 0. CPU time is the prober's.
//!
//! `cargo bench --bench probe` prints the table; `SECONDS=10` measures longer. `-- --memory` watches the memory of this
//! process over 10,000 probes and while 64 endless bodies stream; `-- --memory --long` over 100,000.

#[path = "probe/hurl.rs"]
mod hurl;
#[path = "probe/peer.rs"]
mod peer;

#[path = "../tests/hostile/mod.rs"]
#[allow(dead_code, unused_imports)]
mod hostile;

use hostile::server::{Server, Step, send};
use hostile::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use verifica::client::agent::SystemClock;
use verifica::observe::jobs::Order;
use verifica::observe::look::{Eyes, look};
use verifica::probe::url::UrlPolicy;
use verifica::probe::{Capabilities, Delivery, Suite};
use verifica::verdict::Verdict;
use verifica::wire::Sha256;

/// How one prober did.
pub struct Run {
    /// How long each probe took, in order of length.
    pub times: Vec<Duration>,
    /// Probes that did not pass.
    pub bad: usize,
    pub elapsed: Duration,
    pub cpu: Duration,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| args.iter().any(|arg| arg == word);
    match args.first().map(String::as_str) {
        Some(SERVE) => serve(vec![send(answer()), Step::Notify]),
        Some(ENDLESS) => serve(vec![
            send("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n"),
            Step::Endless(vec![b'a'; 65_536]),
        ]),
        Some(peer::ASK) => peer::ask(&args),
        _ if std::env::var_os(PINNED).is_none() && cores() > 1 && peer::taskset() => return pinned(&args),
        _ if has("--memory") => return memory(if has("--long") { 100_000 } else { 10_000 }),
        _ => return speed(),
    }
    ExitCode::SUCCESS
}

/// This program again, on core 1 alone.
fn pinned(args: &[String]) -> ExitCode {
    let program = std::env::current_exe().expect("a program");
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).arg(program).args(args).env(PINNED, "1");
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn speed() -> ExitCode {
    let time = Duration::from_secs(std::env::var("SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4));
    let (mut child, address, ca) = server(SERVE);
    println!("{}", peer::machine(std::env::var_os(PINNED).is_some()));
    println!(
        "{:<18} {:>8} {:>9} {:>13} {:>9} {:>9} {:>6} {:>5}",
        "", "at once", "probes/s", "CPU ms/probe", "p50 ms", "p99 ms", "core", "bad"
    );
    let mut ours = Vec::new();
    for at_once in AT_ONCE {
        let run = probe(address, &ca, at_once, time);
        show("verifica", at_once, &run);
        ours.push(run);
    }
    let mut bad: usize = ours.iter().map(|run| run.bad).sum();
    let mut beside = |who: &str, theirs: Vec<Run>| {
        AT_ONCE.iter().zip(&theirs).for_each(|(at_once, run)| show(who, *at_once, run));
        bad += theirs.iter().map(|run| run.bad).sum::<usize>();
        let (ours, theirs) = (ours.last().expect("a run"), theirs.last().expect("a run"));
        format!(
            "at 64 at once verifica makes {:.1} times the probes of {who} for {:.2} of its CPU a probe",
            rate(ours) / rate(theirs),
            cost(ours) / cost(theirs)
        )
    };
    let mut told = Vec::new();
    match peer::Peer::start(address, &ca) {
        Ok(mut peer) => {
            let theirs = AT_ONCE.iter().map(|at_once| peer.probe(*at_once, time)).collect();
            told.push(beside("blackbox_exporter", theirs) + " (at least 3 are wanted, for at most 0.33)");
        }
        Err(why) => told.push(format!(
            "!! NO COMPARISON with blackbox_exporter: {why}; on Debian: apt-get install prometheus-blackbox-exporter"
        )),
    }
    match hurl::Hurl::find(address, &ca) {
        Ok(hurl) => told.push(beside("hurl", AT_ONCE.iter().map(|at_once| hurl.probe(*at_once, time)).collect())),
        Err(why) => told.push(format!("!! NO COMPARISON with hurl: {why}; cargo install hurl, or HURL=PROGRAM")),
    }
    told.iter().for_each(|line| println!("{line}"));
    let _ = child.kill();
    let _ = child.wait();
    if bad > 0 {
        println!("!! {bad} probes did not pass; the figures mean nothing");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn rate(run: &Run) -> f64 {
    run.times.len() as f64 / run.elapsed.as_secs_f64()
}

/// Milliseconds of CPU for one probe.
fn cost(run: &Run) -> f64 {
    run.cpu.as_secs_f64() * 1e3 / run.times.len().max(1) as f64
}

fn show(who: &str, at_once: usize, run: &Run) {
    let last = run.times.len().saturating_sub(1) as f64;
    // No probe takes no time: such a one was not timed.
    let timed = |share: f64| run.times.get((last * share) as usize).filter(|time| !time.is_zero());
    let at = |share: f64| timed(share).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3);
    println!(
        "{who:<18} {at_once:>8} {:>9.0} {:>13.3} {:>9.2} {:>9.2} {:>5.0}% {:>5}",
        rate(run),
        cost(run),
        at(0.5),
        at(0.99),
        run.cpu.as_secs_f64() / run.elapsed.as_secs_f64() * 100.0,
        run.bad
    );
}

fn fetcher(address: SocketAddr, ca: &[u8]) -> Fetcher {
    let config = FetcherConfig {
        resolve: vec![at(address)],
        extra_ca_pem: vec![ca.to_vec()],
        per_host_per_minute: 10_000_000,
        per_host_at_once: 64,
        ..config()
    };
    Fetcher::new(config).expect("a fetcher")
}

/// What both probers are asked: the status, and a pattern over the body.
fn suite(tests: &serde_json::Value) -> Arc<Suite> {
    let urls = UrlPolicy { addresses: loopback() };
    let suite = Suite::from_tests(tests, &urls, &Capabilities::network());
    assert_eq!(suite.acceptable(), Ok(()));
    Arc::new(suite)
}

fn status_and_pattern() -> Arc<Suite> {
    let url = format!("https://{HOST}/");
    suite(&serde_json::json!([
        {"type": "http_status", "url": url, "expect": 200},
        {"type": "regex", "url": url, "pattern": PATTERN},
    ]))
}

/// Looks as the arbiter makes them, and judges them.
fn probe(address: SocketAddr, ca: &[u8], at_once: usize, time: Duration) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let fetcher = fetcher(address, ca);
    runtime.block_on(looks(&fetcher, at_once, Duration::from_millis(300)));
    let (before, began) = (cpu("self"), Instant::now());
    let (mut times, bad) = runtime.block_on(looks(&fetcher, at_once, time));
    let (elapsed, cpu) = (began.elapsed(), cpu("self") - before);
    times.sort();
    Run { times, bad, elapsed, cpu }
}

async fn looks(fetcher: &Fetcher, at_once: usize, time: Duration) -> (Vec<Duration>, usize) {
    let (end, suite) = (Instant::now() + time, status_and_pattern());
    let mut set = JoinSet::new();
    for _ in 0..at_once {
        let (fetcher, suite) = (fetcher.clone(), Arc::clone(&suite));
        set.spawn(async move {
            let (mut times, mut bad) = (Vec::new(), 0);
            while Instant::now() < end {
                let began = Instant::now();
                bad += usize::from(!passes(&fetcher, &suite).await);
                times.push(began.elapsed());
            }
            (times, bad)
        });
    }
    let mut all = (Vec::new(), 0);
    for (times, bad) in set.join_all().await {
        all.0.extend(times);
        all.1 += bad;
    }
    all
}

async fn passes(fetcher: &Fetcher, suite: &Arc<Suite>) -> bool {
    look(&eyes(fetcher, 20_000), suite, &Delivery::default(), &Order::default(), &SystemClock)
        .await
        .look
        .joint()
        .verdict
        == Verdict::Pass
}

/// Memory after a tenth of the probes, at their end, and while endless bodies stream.
fn memory(probes: usize) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    println!("{}", peer::machine(std::env::var_os(PINNED).is_some()));
    let (mut child, address, ca) = server(SERVE);
    let (fetcher, suite) = (fetcher(address, &ca), status_and_pattern());
    let (done, bad) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut marks = Vec::new();
    for tenth in 1..=10 {
        let until = probes * tenth / 10;
        runtime.block_on(async {
            let mut set = JoinSet::new();
            for _ in 0..64 {
                let (fetcher, suite, done, bad) = (fetcher.clone(), suite.clone(), done.clone(), bad.clone());
                set.spawn(async move {
                    while done.fetch_add(1, Ordering::Relaxed) < until {
                        bad.fetch_add(usize::from(!passes(&fetcher, &suite).await), Ordering::Relaxed);
                    }
                    done.fetch_sub(1, Ordering::Relaxed);
                });
            }
            set.join_all().await;
        });
        marks.push(resident());
        println!("{until:>8} probes {:>7.1} MiB", mib(resident()));
    }
    let _ = child.kill();
    let _ = child.wait();
    let grown = marks[9].saturating_sub(marks[0]);
    // The pace remembers when the requests of the last minute began, 16 bytes each: at this rate that shows.
    let flat = grown <= 4 * MIB && bad.load(Ordering::Relaxed) == 0;
    println!(
        "grown by {:.1} MiB from the first tenth to the last; {} did not pass",
        mib(grown),
        bad.load(Ordering::Relaxed)
    );

    let (mut child, address, ca) = server(ENDLESS);
    let url = format!("https://{HOST}/");
    let hash = suite_of(&url, &serde_json::json!({"type": "sha256", "url": url, "expect": Sha256::of("x").hex()}));
    let pattern = suite_of(&url, &serde_json::json!({"type": "regex", "url": url, "pattern": "^b"}));
    let mut bounded = true;
    // What may be held: nothing of a body that is hashed, the window of one that is matched.
    for (what, suite, bound) in [("hashed", hash, 24 * MIB), ("matched", pattern, 64 * 4 * MIB)] {
        let before = resident();
        let most = runtime.block_on(async {
            let streaming = Arc::new(AtomicBool::new(true));
            let watcher = tokio::spawn(watch(streaming.clone()));
            let mut set = JoinSet::new();
            for _ in 0..64 {
                let (fetcher, suite) = (crate::fetcher(address, &ca), suite.clone());
                set.spawn(async move {
                    look(&eyes(&fetcher, 60_000), &suite, &Delivery::default(), &Order::default(), &SystemClock).await
                });
            }
            let read: u64 = set.join_all().await.iter().flat_map(|looked| looked.seen.values()).map(read_of).sum();
            streaming.store(false, Ordering::Relaxed);
            println!("64 endless bodies, {what}: {} MiB came", read / MIB);
            watcher.await.expect("no panic")
        });
        let grown = most.saturating_sub(before);
        println!("64 endless bodies, {what}: {:.1} MiB more at most ({} are allowed)", mib(grown), bound / MIB);
        bounded &= grown <= bound;
    }
    let _ = child.kill();
    let _ = child.wait();
    if flat && bounded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn suite_of(url: &str, test: &serde_json::Value) -> Arc<Suite> {
    assert_eq!(test["url"], url);
    suite(test)
}

fn read_of(seen: &Observation) -> u64 {
    match &seen.seen {
        Seen::Response(response) => response.content.bytes,
        Seen::Nothing { .. } => 0,
    }
}

/// The most that was resident while this holds.
async fn watch(streaming: Arc<AtomicBool>) -> u64 {
    let mut most = resident();
    while streaming.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        most = most.max(resident());
    }
    most
}

fn answer() -> String {
    let body = format!("{{\"build\":\"{}\"}}", "a".repeat(BODY - 12));
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {BODY}\r\n\r\n{body}")
}

/// Prints where it listens and whom to trust, and serves until standard input closes.
fn serve(steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let server = Server::start(identity(), steps).await;
        println!("{}\n{}", server.address, ca().pem());
        println!("{END}");
        std::io::stdout().flush().expect("a reader");
        let stdin = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        let _ = stdin.await;
    });
}

fn server(kind: &str) -> (Child, SocketAddr, Vec<u8>) {
    let mut child = peer::own(&[kind], "0").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a server");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    let address = lines.next().and_then(|line| line.parse().ok()).expect("an address");
    let pem: String = lines.take_while(|line| line != END).map(|line| line + "\n").collect();
    (child, address, pem.into_bytes())
}

/// CPU time of a process so far, in ticks of a hundredth of a second.
pub fn cpu(process: &str) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("Linux");
    let after = stat.rsplit_once(')').map(|(_, rest)| rest).expect("a stat line");
    let ticks: u64 = after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a figure");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") * 1_024
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

const AT_ONCE: [usize; 3] = [1, 8, 64];
const PATTERN: &str = "\"build\":\"a+\"";
const MIB: u64 = 1_048_576;
const PINNED: &str = "PROBE_BENCH_PINNED";
const SERVE: &str = "serve-for-the-bench";
const ENDLESS: &str = "serve-endless-bodies";
const END: &str = "end of the list";
const BODY: usize = 981;

fn eyes(fetcher: &Fetcher, timeout_ms: u64) -> Eyes {
    Eyes { fetcher: fetcher.clone(), jobs: None, timeout_ms }
}
