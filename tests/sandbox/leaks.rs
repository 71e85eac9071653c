//! Many jobs at once, ended in every way there is: afterwards the host is as it was.

use super::support::*;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use verifica::probe::exit_0::JobEnd;
use verifica::sandbox::{Job, Slot, run_blocking, sweep};

/// Everything that jobs could leave, counted.
#[derive(Debug, PartialEq, Eq)]
pub struct Host {
    /// Children of this process, zombies with them, and launchers anywhere.
    pub processes: Vec<i32>,
    pub mounts: usize,
    pub groups: Vec<String>,
    pub files: Vec<String>,
    pub descriptors: usize,
    pub threads: usize,
}

impl Host {
    pub fn now() -> Host {
        let own = std::process::id();
        let lines = |path: &str| std::fs::read_to_string(path).map_or(0, |text| text.lines().count());
        let mut processes = Vec::new();
        for entry in std::fs::read_dir("/proc").expect("proc").flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent =
                stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
            if parent == Some(own) {
                processes.push(pid);
            }
        }
        let mut files = Vec::new();
        for folder in ["/tmp", "/dev/shm", "/run", "/var/tmp"] {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if [".canary", "work", "scratch", "verifica-job"].iter().any(|ours| name.starts_with(ours)) {
                    files.push(format!("{folder}/{name}"));
                }
            }
        }
        let groups = left_behind().into_iter().filter(|line| line.contains("verifica-job")).collect();
        let count = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
        Host {
            processes,
            mounts: lines("/proc/self/mountinfo"),
            groups,
            files,
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
        }
    }
}

/// What came of many jobs.
pub struct Many {
    pub ends: BTreeMap<String, usize>,
    pub seconds: f64,
    pub before: Host,
    pub after: Host,
}

/// Runs so many jobs of every kind, `at_once` together.
pub fn many(jobs: usize, at_once: usize) -> Many {
    sweep();
    // What is opened once, the launcher's program, is open before.
    go(&job(&["true"]));
    let before = Host::now();
    let begun = Instant::now();
    let (next, ends) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= jobs {
                        return;
                    }
                    let slot = Slot::take().expect("slot");
                    let report = run_blocking(&kind(n), &slot);
                    assert_eq!(report.survivors, 0, "{:?}", report.end);
                    let end = match report.end {
                        JobEnd::NotExecutable { .. } => "not executable".to_owned(),
                        other => format!("{other:?}"),
                    };
                    *ends.lock().expect("ends").entry(end).or_insert(0) += 1;
                }
            });
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    Many { ends: ends.into_inner().expect("ends"), seconds, after: settled(&before), before }
}

/// The host as it stays: a thread whose work is done is listed for a moment longer, what leaked is there for ever.
fn settled(before: &Host) -> Host {
    let begun = Instant::now();
    loop {
        let now = Host::now();
        if now == *before || begun.elapsed() > Duration::from_secs(10) {
            return now;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends well, ends badly, is not there, leaves children that left the session, floods, takes inputs, is stopped.
fn kind(n: usize) -> Job {
    match n % 8 {
        0 | 1 => job(&["true"]),
        2 => shell("exit 3"),
        3 => job(&["/usr/bin/no-such-program"]),
        4 => shell("setsid sleep 100 & setsid sh -c 'sleep 100 & sleep 100' & exit 0"),
        5 => {
            let mut flood = job(&["yes"]);
            flood.policy.stdout_bytes = 4_096;
            flood
        }
        6 => {
            let mut reader = shell("cat a/b >/dev/null && echo written > c && mkdir d");
            reader.inputs.push(input("a/b", &[7; 10_000]));
            reader
        }
        _ => shell("kill -KILL $$"),
    }
}

#[test]
fn many_jobs_at_once_leave_nothing() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    let many = many(320, 64);
    println!("{:?} in {:.1} s", many.ends, many.seconds);
    assert_eq!(many.ends.values().sum::<usize>(), 320);
    assert_eq!(many.ends.len(), 5, "every kind ended as it must, whatever ran beside it: {:?}", many.ends);
    assert_eq!(many.ends["Code { code: 0 }"], 160);
    assert_eq!(many.after, many.before);
    assert_eq!(many.after.processes, Vec::<i32>::new());
    assert_eq!(many.after.groups, Vec::<String>::new());
}
