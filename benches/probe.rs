//! Fresh probes in a second: new TCP, new TLS, one request, content read and hashed; 1, 8 and 64 at once.
//!
//! The server is another process of the same program on loopback, TLS 1.3 with a P-256 certificate, 981 bytes of JSON.
//! The CPU time printed is that of the prober alone. On one machine the two share the cores: for a figure for one core
//! pin them apart, as `SERVER_CPU=0 taskset -c 1 cargo bench --bench probe` does.

#[path = "../tests/hostile/mod.rs"]
#[allow(dead_code, unused_imports)]
mod hostile;

use hostile::server::{Server, Step, send};
use hostile::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

fn main() {
    if std::env::args().any(|arg| arg == SERVE) {
        return serve();
    }
    let seconds = std::env::var("SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let (mut child, address, ca) = server();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    println!("{:>8} {:>10} {:>14} {:>9} {:>9} {:>6}", "at once", "probes/s", "CPU ms/probe", "p50 ms", "p99 ms", "bad");
    for at_once in [1, 8, 64] {
        let config = FetcherConfig {
            resolve: vec![at(address)],
            extra_ca_pem: vec![ca.clone()],
            per_host_per_minute: 10_000_000,
            ..config()
        };
        let fetcher = Fetcher::new(config).expect("a fetcher");
        runtime.block_on(run(&fetcher, at_once, Duration::from_millis(300)));
        let (before, began) = (cpu(), Instant::now());
        let (mut times, bad) = runtime.block_on(run(&fetcher, at_once, Duration::from_secs(seconds)));
        let (elapsed, spent) = (began.elapsed(), cpu() - before);
        times.sort();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        println!(
            "{at_once:>8} {:>10.0} {:>14.3} {:>9.2} {:>9.2} {bad:>6}",
            times.len() as f64 / elapsed.as_secs_f64(),
            spent.as_secs_f64() * 1e3 / times.len() as f64,
            at(0.5),
            at(0.99),
        );
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// How long each probe took, and how many saw anything but the whole answer.
async fn run(fetcher: &Fetcher, at_once: usize, time: Duration) -> (Vec<Duration>, usize) {
    let end = Instant::now() + time;
    let mut set = JoinSet::new();
    for _ in 0..at_once {
        let fetcher = fetcher.clone();
        set.spawn(async move {
            let (mut times, mut bad) = (Vec::new(), 0);
            while Instant::now() < end {
                let began = Instant::now();
                let seen = fetcher.fetch(&host_plan(1_048_577)).await;
                times.push(began.elapsed());
                bad += usize::from(summary(&seen) != format!("200 complete {BODY}"));
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

/// Prints where it listens and whom to trust, and serves until standard input closes.
fn serve() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let body = format!("{{\"build\":\"{}\"}}", "a".repeat(BODY - 12));
        let answer =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {BODY}\r\n\r\n{body}");
        let server = Server::start(identity(), vec![send(answer), Step::Notify]).await;
        println!("{}\n{}", server.address, ca().pem());
        println!("{END}");
        std::io::stdout().flush().expect("a reader");
        let stdin = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        let _ = stdin.await;
    });
}

fn server() -> (Child, SocketAddr, Vec<u8>) {
    let program = std::env::current_exe().expect("a program");
    let mut command = match std::env::var("SERVER_CPU") {
        Ok(cpu) => {
            let mut pinned = Command::new("taskset");
            pinned.args(["-c", &cpu]).arg(program);
            pinned
        }
        Err(_) => Command::new(program),
    };
    let mut child = command.arg(SERVE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a server");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    let address = lines.next().and_then(|line| line.parse().ok()).expect("an address");
    let pem: String = lines.take_while(|line| line != END).map(|line| line + "\n").collect();
    (child, address, pem.into_bytes())
}

/// CPU time of this process so far, in ticks of a hundredth of a second.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after = stat.rsplit_once(')').map(|(_, rest)| rest).expect("a stat line");
    let ticks: u64 = after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

const SERVE: &str = "serve-for-the-bench";
const END: &str = "end of the list";
const BODY: usize = 981;
