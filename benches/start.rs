//! How long the daemon takes to be ready on an empty store, against a bare start of the same program, and what it holds
//! in memory when idle. Prints the ratio and both figures; fails above their bounds.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const READY_MS_BOUND: f64 = 100.0;
const IDLE_MB_BOUND: f64 = 40.0;
const ROUNDS: usize = 9;

fn main() {
    let program = env!("CARGO_BIN_EXE_verifica");
    let mut bare = Vec::new();
    let mut ready = Vec::new();
    let mut idle = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let status = Command::new(program).arg("version").stdout(Stdio::null()).status().expect("version");
        assert!(status.success());
        bare.push(start.elapsed().as_secs_f64() * 1e3);

        let folder = tempfile::tempdir().expect("folder");
        let house = folder.path().join("house");
        let init = Command::new(program)
            .args(["init", "--domain", "mar.example", "--dir"])
            .arg(&house)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("init");
        assert!(init.success());
        let start = Instant::now();
        let mut daemon = serve(program, &house);
        let mut lines = BufReader::new(daemon.stderr.take().expect("stderr")).lines();
        let line =
            lines.find(|line| line.as_ref().is_ok_and(|l| l.starts_with("ready "))).expect("ready").expect("text");
        ready.push(start.elapsed().as_secs_f64() * 1e3);
        assert!(line.contains("mar.example"));
        std::thread::sleep(Duration::from_millis(700));
        idle.push(resident_mb(daemon.id()));
        daemon.kill().expect("stopped");
        daemon.wait().expect("ended");
    }
    let (bare, ready, idle) = (median(bare), median(ready), median(idle));
    println!(
        "ready after {ready:.1} ms (bound {READY_MS_BOUND}), bare start {bare:.1} ms, ratio {:.2}; idle {idle:.1} MB resident (bound {IDLE_MB_BOUND})",
        ready / bare
    );
    assert!(ready <= READY_MS_BOUND && idle <= IDLE_MB_BOUND, "above its bound");
}

fn serve(program: &str, house: &Path) -> Child {
    Command::new(program)
        .arg("serve")
        .arg("--config")
        .arg(house.join("verifica.toml"))
        .env("VERIFICA_LISTEN", "127.0.0.1:0")
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("serve")
}

fn resident_mb(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    let kb: f64 = line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("kB");
    kb / 1024.0
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
