//! What a job costs: `true` with the whole proof, beside a plain start of the same program and beside bubblewrap, where it
//! is installed. Measured once more from a process with a gigabyte in use: the launcher must not care.
//!
//! With `-- leaks [JOBS]` it runs 10,000 jobs, 64 at a time, and counts what they leave.

#[path = "../tests/sandbox/leaks.rs"]
#[allow(dead_code)]
mod leaks;
#[path = "../tests/sandbox/support.rs"]
#[allow(dead_code)]
mod support;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use verifica::probe::exit_0::JobEnd;
use verifica::sandbox::{Job, JobPolicy, Slot, run_blocking, set_launcher};

fn main() {
    let words: Vec<String> = std::env::args().filter(|word| word != "--bench").collect();
    if words.get(1).is_some_and(|word| word == "leaks") {
        return leak(words.get(2).and_then(|n| n.parse().ok()).unwrap_or(10_000));
    }
    set_launcher(PathBuf::from(env!("CARGO_BIN_EXE_verifica")));
    let policy = JobPolicy::named("default").expect("default");
    let job = Job { argv: vec!["/usr/bin/true".to_owned()], inputs: Vec::new(), policy, within_s: None };
    let slot = Slot::take().expect("slot");
    let first = run_blocking(&job, &slot);
    if first.end != (JobEnd::Code { code: 0 }) {
        println!("this host cannot run jobs: {:?}", first.end);
        return;
    }
    let plain = || {
        let done = Command::new("/usr/bin/true").stdin(Stdio::null()).stdout(Stdio::null()).status();
        assert!(done.is_ok_and(|status| status.success()));
    };
    let wrapped = || {
        let done = Command::new("bwrap").args(BWRAP).arg("/usr/bin/true").stdin(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    let sandboxed = || assert_eq!(run_blocking(&job, &slot).end, JobEnd::Code { code: 0 });
    let compared = wrapped();
    // Taken in turns, so that a busy moment of the host falls on all of them.
    let rounds = || {
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            times[0].push(timed(plain));
            if compared {
                times[1].push(timed(|| assert!(wrapped())));
            }
            times[2].push(timed(sandboxed));
        }
        times
    };
    show("house small", rounds());
    let weight = vec![1u8; 1 << 30];
    show("house with 1 GiB in use", rounds());
    std::hint::black_box(&weight);
}

fn leak(jobs: usize) {
    let _one = support::alone();
    let many = leaks::many(jobs, 64);
    println!("{jobs} jobs, 64 at a time, in {:.1} s ({:.0} a second)", many.seconds, jobs as f64 / many.seconds);
    many.ends.iter().for_each(|(end, n)| println!("  {n:>6}  {end}"));
    println!("before {:?}\nafter  {:?}", many.before, many.after);
    assert_eq!(many.after, many.before, "something was left behind");
}

fn timed(act: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    act();
    begun.elapsed()
}

fn show(title: &str, times: [Vec<Duration>; 3]) {
    println!("{title}");
    for (name, mut times) in ["plain", "bwrap", "sandbox"].into_iter().zip(times) {
        times.sort_unstable();
        if let (Some(low), Some(middle), Some(high)) =
            (times.get(times.len() / 10), times.get(times.len() / 2), times.get(times.len() * 95 / 100))
        {
            println!("  {name:8} p10 {low:>10.2?}  median {middle:>10.2?}  p95 {high:>10.2?}");
        }
    }
}

const ROUNDS: usize = 150;
const BWRAP: &[&str] = &[
    "--unshare-all",
    "--new-session",
    "--die-with-parent",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "--tmpfs",
    "/work",
    "--chdir",
    "/work",
];
