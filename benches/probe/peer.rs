//! blackbox_exporter, started here on loopback and asked by another process of this program.

use super::{PATTERN, Run, cpu};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub struct Peer {
    child: Child,
    address: SocketAddr,
    target: SocketAddr,
    /// Its configuration and the root it trusts.
    _folder: tempfile::TempDir,
}

impl Peer {
    /// The error says why there is none.
    pub fn start(target: SocketAddr, ca: &[u8]) -> Result<Peer, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let (root, config) = (folder.path().join("ca.pem"), folder.path().join("blackbox.yml"));
        let write = |path, bytes: &[u8]| std::fs::write(path, bytes).map_err(|error| error.to_string());
        write(&root, ca)?;
        write(&config, configuration(&root.display().to_string()).as_bytes())?;
        let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map_err(|e| e.to_string())?;
        let mut command = on_core("1", PROGRAM);
        command.arg(format!("--config.file={}", config.display())).arg(format!("--web.listen-address={address}"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if !known(PROGRAM) {
            return Err(format!("{PROGRAM} is not installed"));
        }
        let child = command.spawn().map_err(|error| format!("{PROGRAM} does not start: {error}"))?;
        let mut peer = Peer { child, address, target, _folder: folder };
        for _ in 0..100 {
            if TcpStream::connect(address).is_ok() {
                return Ok(peer);
            }
            if let Ok(Some(status)) = peer.child.try_wait() {
                return Err(format!("{PROGRAM} ended at once: {status}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(format!("{PROGRAM} does not listen at {address}"))
    }

    pub fn probe(&mut self, at_once: usize, time: Duration) -> Run {
        self.asked(at_once, Duration::from_millis(300));
        let process = self.child.id().to_string();
        let before = cpu(&process);
        let mut run = self.asked(at_once, time);
        run.cpu = cpu(&process) - before;
        run
    }

    /// The asker has a core with the server, so that the prober has its own.
    fn asked(&self, at_once: usize, time: Duration) -> Run {
        let words = [
            ASK.to_owned(),
            self.address.to_string(),
            self.target.to_string(),
            at_once.to_string(),
            time.as_millis().to_string(),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = own(&words, "0").stderr(Stdio::inherit()).output().expect("an asker");
        let text = String::from_utf8(output.stdout).expect("text");
        let mut figures = text.split_whitespace().map(|word| word.parse::<u64>().expect("a figure"));
        let elapsed = Duration::from_micros(figures.next().expect("how long it took"));
        let bad = figures.next().expect("how many were bad") as usize;
        Run { elapsed, bad, times: figures.map(Duration::from_micros).collect(), cpu: Duration::ZERO }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks for probes and prints how long it took, how many were bad, and how long each took, in microseconds.
pub fn ask(args: &[String]) {
    let [_, address, target, at_once, millis] = args else { panic!("{ASK} ADDRESS TARGET AT_ONCE MILLIS") };
    let address: SocketAddr = address.parse().expect("an address");
    let (at_once, millis): (usize, u64) = (at_once.parse().expect("a number"), millis.parse().expect("a number"));
    let path = format!("/probe?module=status_and_pattern&target=https://{target}/");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (mut times, bad, elapsed) = runtime.block_on(async {
        let began = Instant::now();
        let end = began + Duration::from_millis(millis);
        let mut set = JoinSet::new();
        for _ in 0..at_once {
            set.spawn(asker(address, path.clone(), end));
        }
        let mut all = (Vec::new(), 0, Duration::ZERO);
        for (times, bad) in set.join_all().await {
            all.0.extend(times);
            all.1 += bad;
        }
        all.2 = began.elapsed();
        all
    });
    times.sort();
    let told: Vec<String> = times.iter().map(|time| time.as_micros().to_string()).collect();
    println!("{} {bad} {}", elapsed.as_micros(), told.join(" "));
}

/// One connection to the exporter that is kept.
async fn asker(address: SocketAddr, path: String, end: Instant) -> (Vec<Duration>, usize) {
    let stream = tokio::net::TcpStream::connect(address).await.expect("the exporter");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("the exporter speaks http");
    tokio::spawn(connection);
    let (mut times, mut bad) = (Vec::new(), 0);
    while Instant::now() < end {
        let began = Instant::now();
        let request = http::Request::get(&path).header("host", address.to_string()).body(Empty::<Bytes>::new());
        let answer = sender.send_request(request.expect("a request")).await.expect("an answer");
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        times.push(began.elapsed());
        bad += usize::from(!body.windows(SUCCESS.len()).any(|part| part == SUCCESS));
        sender.ready().await.expect("a kept connection");
    }
    (times, bad)
}

/// The same question that our side answers.
fn configuration(root: &str) -> String {
    format!(
        "modules:
  status_and_pattern:
    prober: http
    timeout: 20s
    http:
      method: GET
      valid_status_codes: [200]
      follow_redirects: false
      enable_http2: false
      fail_if_not_ssl: true
      fail_if_body_not_matches_regexp: ['{PATTERN}']
      preferred_ip_protocol: ip4
      tls_config:
        ca_file: {root}
"
    )
}

/// This program with these words, on a core if it was told to use them.
pub fn own(words: &[&str], core: &str) -> Command {
    let program = std::env::current_exe().expect("a program");
    let mut command = on_core(core, &program.display().to_string());
    command.args(words);
    command
}

pub fn on_core(core: &str, program: &str) -> Command {
    if std::env::var_os(super::PINNED).is_none() {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", core, program]);
    command
}

pub fn taskset() -> bool {
    known("taskset")
}

pub fn known(program: &str) -> bool {
    let quiet = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// What the figures were taken on, in one line.
pub fn machine(pinned: bool) -> String {
    let about = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = about.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown processor");
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown").to_owned();
    let how = if pinned { "prober on core 1, the rest on core 0" } else { "NOT pinned: figures are not for one core" };
    format!("{}; load before {load}; {how}", model.trim_start_matches(['\t', ' ', ':']))
}

pub const ASK: &str = "ask-the-exporter";
const PROGRAM: &str = "prometheus-blackbox-exporter";
const SUCCESS: &[u8] = b"probe_success 1";
