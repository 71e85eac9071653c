//! What the host does to a run is never the seller's failure: where the kernel tells it, the run decides nothing.

use super::hostile::{attack, attacker};
use super::support::*;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use verifica::probe::exit_0::JobEnd;
use verifica::probe::observation::Cause;
use verifica::sandbox::NOT_CLAIMED;

/// A group above all groups of a dry run, with a limit that is lower than the job's own.
struct Narrow(PathBuf);

impl Narrow {
    fn make(controller: &str, limits: &[(&str, &str)]) -> Option<Narrow> {
        let path = own_group(controller)?.join(format!("verifica-narrow-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        let group = Narrow(path);
        let written = limits.iter().any(|(file, value)| std::fs::write(group.0.join(file), value).is_ok());
        written.then_some(group)
    }

    /// A dry run of one test inside.
    fn check(&self, folder: &Path, test: &Value) -> (Option<i32>, Value) {
        std::fs::write(folder.join("test.json"), test.to_string()).expect("test");
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs"));
        shell.arg(env!("CARGO_BIN_EXE_verifica")).args(["check", "test.json", "--once", "--json"]);
        let done = shell.env("HOME", folder).current_dir(folder).output().expect("check");
        let told = serde_json::from_slice(&done.stdout);
        (done.status.code(), told.unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&done.stderr))))
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        let begun = Instant::now();
        while std::fs::remove_dir(&self.0).is_err() && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_fork_that_the_host_refuses_fails_nobody() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    let Some(narrow) = Narrow::make("pids", &[("pids.max", "48")]) else {
        skip("no group with a limit of processes can be made here");
        return;
    };
    let folder = tempfile::tempdir().expect("folder");
    let forks = "i=0; while [ $i -lt 50 ]; do sleep 20 & i=$((i+1)); done; exit 0";
    let test = serde_json::json!({"type": "exit_0", "argv": ["/bin/sh", "-c", forks]});
    let (code, told) = narrow.check(folder.path(), &test);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.to_string().contains("had no room for another process"), "{told}");
}

#[test]
fn a_process_that_the_host_ends_for_want_of_memory_fails_nobody() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    let limits = [("memory.limit_in_bytes", "200000000"), ("memory.max", "200000000")];
    let Some(narrow) = Narrow::make("memory", &limits) else {
        skip("no group with a limit of memory can be made here");
        return;
    };
    let folder = tempfile::tempdir().expect("folder");
    let test =
        serde_json::json!({"type": "exit_0", "argv": ["dd", "if=/dev/zero", "of=/dev/null", "bs=400M", "count=1"]});
    let (code, told) = narrow.check(folder.path(), &test);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.to_string().contains("was short of memory"), "{told}");
}

#[test]
fn a_signal_to_the_whole_tree_fails_nobody_and_one_that_a_job_sends_itself_fails() {
    let _one = alone();
    if attacker().is_none() || !able(&default_policy()) {
        return;
    }
    for (signal, script) in [("TERM", "exec sleep 301.25"), ("INT", "sleep 301.25; exit 1"), ("KILL", "sleep 301.25")] {
        let everybody = std::thread::spawn(move || {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(30) {
                std::thread::sleep(Duration::from_millis(10));
                // The job sleeps already; its init comes before it.
                if processes_with("301.25").is_empty() {
                    continue;
                }
                let groups = left_behind().into_iter().filter(|path| path.starts_with("/sys/fs/cgroup"));
                let pids: Vec<String> = groups
                    .filter_map(|path| std::fs::read_to_string(Path::new(&path).join("cgroup.procs")).ok())
                    .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
                    .collect();
                if !pids.is_empty() {
                    let sent = Command::new("kill").arg(format!("-{signal}")).args(pids).status();
                    return sent.is_ok();
                }
            }
            false
        });
        let report = go(&shell(script));
        if !everybody.join().expect("signals") {
            skip("there is no group to find the tree by");
            return;
        }
        let undecided = matches!(report.end, JobEnd::Unavailable { cause: Cause::Host | Cause::Ours, .. });
        assert!(undecided, "{signal}: {:?}", report.end);
    }
    for (signal, number) in [("TERM", 15), ("INT", 2), ("KILL", 9), ("SEGV", 11)] {
        assert_eq!(go(&shell(&format!("kill -{signal} $$"))).end, JobEnd::Signal { signal: number });
    }
    let ended = go(&attack(&["daemon", "verifica-host"]).expect("attacker"));
    assert_eq!(ended.end, JobEnd::Code { code: 0 });
    assert_eq!(left_behind(), Vec::<String>::new());
}

/// A house that was killed leaves its launcher and its job behind for a moment, or for longer where they are stopped: until
/// the last of them is gone nobody else gets the job's user.
#[test]
fn a_slot_is_taken_until_the_last_process_of_a_killed_house_is_gone() {
    let _one = alone();
    let own = std::fs::read_to_string("/proc/self/status").expect("status");
    if !own.lines().any(|line| line.starts_with("Uid:\t0\t")) || !able(&default_policy()) {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("test.json"), r#"{"type": "exit_0", "argv": ["sleep", "302.5"]}"#).expect("test");
    let mut house = Command::new(env!("CARGO_BIN_EXE_verifica"));
    house.args(["check", "test.json", "--once"]).env("HOME", folder.path()).current_dir(folder.path());
    let mut house = house.stdout(std::process::Stdio::null()).spawn().expect("house");
    let begun = Instant::now();
    let job = loop {
        if let [job, ..] = processes_with("302.5")[..] {
            break job;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the job does not start");
        std::thread::sleep(Duration::from_millis(10));
    };
    let status = |pid: i32, name: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
        let line = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        line.expect("line").split_whitespace().next().expect("word").to_owned()
    };
    let parent = |pid: i32| status(pid, "PPid:").parse::<i32>().expect("pid");
    let (init, launcher) = (parent(job), parent(parent(job)));
    let theirs = status(job, "Uid:");
    let signal = |signal: &str, pids: &[i32]| {
        let sent = Command::new("kill").arg(signal).args(pids.iter().map(i32::to_string)).status();
        assert!(sent.expect("kill").success());
    };
    signal("-STOP", &[launcher, init]);
    house.kill().expect("kill");
    house.wait().expect("wait");
    assert_eq!(processes_with("302.5"), [job], "nobody is there to end it");
    let report = go(&super::support::job(&["true"]));
    assert_eq!(report.end, JobEnd::Code { code: 0 });
    let ours = report.facts["witness"]["status"]["Uid"].as_str().expect("uid").to_owned();
    assert_ne!(ours.split(' ').next(), Some(theirs.as_str()), "two jobs with one user");
    signal("-CONT", &[launcher]);
    let begun = Instant::now();
    while !processes_with("302.5").is_empty() || Path::new(&format!("/proc/{launcher}")).exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the tree outlives its house");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What the kernel does not tell is never claimed.
#[test]
fn what_the_host_can_do_untold_is_named() {
    for id in ["host_resources", "outside_signals", "agreed_time"] {
        assert!(NOT_CLAIMED.iter().any(|(known, why)| *known == id && !why.is_empty()), "{id}");
    }
}
