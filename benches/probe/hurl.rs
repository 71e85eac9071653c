//! hurl: one process that runs one file many times, many at once. Each run is a new client with a new connection.

use super::peer::{known, on_core};
use super::{PATTERN, Run};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

pub struct Hurl {
    program: String,
    target: SocketAddr,
    /// The file that is run and the root that it trusts.
    folder: tempfile::TempDir,
}

impl Hurl {
    /// `HURL` names the program, else it is looked for as `hurl`. The error says why there is none.
    pub fn find(target: SocketAddr, ca: &[u8]) -> Result<Hurl, String> {
        let program = std::env::var("HURL").unwrap_or_else(|_| "hurl".to_owned());
        if !known(&program) {
            return Err(format!("{program} is not installed"));
        }
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).map_err(|error| error.to_string())
        };
        write("ca.pem", ca)?;
        let text = format!("GET https://{target}/\nHTTP 200\n[Asserts]\nbody matches /{PATTERN}/\n");
        write("probe.hurl", text.as_bytes())?;
        Ok(Hurl { program, target, folder })
    }

    /// As many runs as fit into about so much time; how long each took is not told.
    pub fn probe(&self, at_once: usize, time: Duration) -> Run {
        let first = self.repeated(at_once, 200);
        let fit = first.times.len() as f64 / first.elapsed.as_secs_f64() * time.as_secs_f64();
        self.repeated(at_once, (fit as usize).max(200))
    }

    fn repeated(&self, at_once: usize, count: usize) -> Run {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let (before, began) = (children(), Instant::now());
        let mut command = on_core("1", &self.program);
        command.args(["--test", "--parallel", "--jobs", &at_once.to_string(), "--repeat", &count.to_string()]);
        command.args(["--cacert", &path("ca.pem"), &path("probe.hurl")]);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let passed = status.is_ok_and(|status| status.success());
        if !passed {
            println!("!! hurl does not pass against {}", self.target);
        }
        let elapsed = began.elapsed();
        let bad = if passed { 0 } else { count };
        Run { times: vec![Duration::ZERO; count], bad, elapsed, cpu: children() - before }
    }
}

/// CPU time of the processes that were waited for.
fn children() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after = stat.rsplit_once(')').map(|(_, rest)| rest).expect("a stat line");
    let ticks: u64 = after.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
