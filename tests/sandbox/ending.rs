//! What ends a run, and that nothing is left of it.

use super::hostile::{attack, attacker};
use super::support::*;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use verifica::probe::exit_0::JobEnd;
use verifica::sandbox::{Slot, run};

#[test]
fn exit_status_and_output_come_back() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    let report = go(&shell("echo out; echo err >&2; exit 7"));
    assert_eq!(code(&report), 7);
    assert_eq!((report.stdout.tail.as_str(), report.stderr.tail.as_str()), ("out\n", "err\n"));
    let report = go(&shell("kill -SEGV $$"));
    assert_eq!(report.end, JobEnd::Signal { signal: 11 });
}

#[test]
fn a_program_that_is_not_there_or_is_none_fails() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    let mut text = job(&["./text"]);
    text.inputs.push(input("text", b"plain text\n"));
    assert!(matches!(go(&text).end, JobEnd::NotExecutable { .. }));
    text.inputs[0].mode = Some(0o755);
    assert!(matches!(go(&text).end, JobEnd::NotExecutable { .. }));
    for name in ["no-such-program", "./none", "/usr", "/proc/self/exe", "/dev/null", "/etc/passwd", "/.canary/exec"] {
        let report = go(&job(&[name]));
        assert!(matches!(report.end, JobEnd::NotExecutable { .. }), "{name}: {:?}", report.end);
        assert!(!report.started);
    }
}

#[test]
fn a_script_runs_through_its_interpreter_and_both_are_hashed() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    let mut script = job(&["./run", "a b"]);
    script.inputs.push(input("run", b"#!/bin/sh -e\necho \"$0:$1\"\n"));
    script.inputs[0].mode = Some(0o755);
    let report = go(&script);
    assert_eq!(code(&report), 0);
    assert_eq!(report.stdout.tail, "/work/run:a b\n");
    assert_eq!(report.facts["executed"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_wall_limit_is_the_hosts_and_an_agreed_time_is_the_sellers() {
    let _one = alone();
    if attacker().is_none() || !able(&default_policy()) {
        return;
    }
    let wall = JobEnd::Time { limit: "wall".to_owned() };
    for words in [&["deaf"][..], &["spin"], &["bomb"]] {
        let mut job = attack(words).expect("attacker");
        job.policy.wall_s = 1;
        let begun = Instant::now();
        assert_eq!(go(&job).end, wall, "{words:?}");
        assert!(begun.elapsed() < Duration::from_secs(6), "{words:?}: {:?}", begun.elapsed());
    }
    let mut slow = shell("exec sleep 300");
    slow.within_s = Some(1);
    assert_eq!(go(&slow).end, JobEnd::Within { seconds: 1 });
    let mut busy = attack(&["spin"]).expect("attacker");
    busy.policy.cpu_s = 1;
    assert_eq!(go(&busy).end, JobEnd::Time { limit: "cpu".to_owned() });
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
fn whoever_is_left_ends_with_the_job() {
    let _one = alone();
    if attacker().is_none() || !able(&default_policy()) {
        return;
    }
    // A grandchild in a session of its own, after a clean end.
    let report = go(&attack(&["daemon", "verifica-survivor"]).expect("attacker"));
    assert_eq!(code(&report), 0);
    assert_eq!(processes_with("verifica-survivor"), Vec::<i32>::new());
    // A grandchild that keeps the output open.
    let begun = Instant::now();
    let report = go(&shell("sleep 300 & echo done"));
    assert_eq!((code(&report), report.stdout.tail.as_str()), (0, "done\n"));
    assert!(begun.elapsed() < Duration::from_secs(3));
    let report = go(&attack(&["orphans", "2000"]).expect("attacker"));
    assert_eq!(code(&report), 0);
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
fn a_cancelled_run_and_a_dropped_one_leave_nothing() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let slot = Slot::take().expect("slot");
    let job = job(&["sleep", "300.25"]);
    runtime.block_on(async {
        let cancel = CancellationToken::new();
        let later = cancel.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            later.cancel();
        });
        let report = run(&job, &slot, cancel).await;
        assert!(matches!(report.end, JobEnd::Unavailable { .. }), "{:?}", report.end);
        let dropped =
            tokio::time::timeout(Duration::from_millis(500), run(&job, &slot, CancellationToken::new())).await;
        assert!(dropped.is_err());
    });
    drop(runtime);
    assert_eq!(processes_with("300.25"), Vec::<i32>::new());
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
fn a_killed_launcher_takes_its_tree_along() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    let killer = std::thread::spawn(|| {
        for _ in 0..400 {
            std::thread::sleep(Duration::from_millis(10));
            if processes_with("300.75").is_empty() {
                continue;
            }
            let own = std::process::id();
            for task in std::fs::read_dir(format!("/proc/{own}/task")).expect("tasks").flatten() {
                let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
                for pid in children.split_whitespace() {
                    let _ = std::process::Command::new("kill").args(["-9", pid]).status();
                }
            }
            return;
        }
    });
    let report = go(&job(&["sleep", "300.75"]));
    killer.join().expect("killer");
    assert!(matches!(report.end, JobEnd::Unavailable { .. }), "{:?}", report.end);
    assert_eq!(processes_with("300.75"), Vec::<i32>::new());
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
fn many_runs_leave_no_descriptor_open_and_run_side_by_side() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    // More of them by hand: VERIFICA_SANDBOX_JOBS=10000.
    let wanted = std::env::var("VERIFICA_SANDBOX_JOBS").ok().and_then(|n| n.parse::<usize>().ok()).unwrap_or(40);
    let at_once = if wanted > 40 { 64 } else { 8 };
    let before = descriptors();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                for _ in 0..wanted.div_ceil(at_once) {
                    assert_eq!(code(&go(&job(&["true"]))), 0);
                }
            });
        }
    });
    assert_eq!(descriptors(), before);
    assert_eq!(left_behind(), Vec::<String>::new());
}
