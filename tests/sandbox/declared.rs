//! What a host decides about a sandbox is declared: which channels are open under which policy, whose uid a job has, and
//! that there is no user namespace.

use super::hostile::{attack, attacker};
use super::support::*;
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use verifica::probe::exit_0::JobEnd;
use verifica::sandbox::{JobPolicy, NOT_CLAIMED, Slot};

/// V83: `socketpair` by policy and never another family; locks work and are named; /proc shows the job alone.
#[test]
fn channels_that_a_policy_leaves_open_are_few_and_named() {
    let _one = alone();
    if attacker().is_none() || !able(&default_policy()) {
        return;
    }
    for name in JobPolicy::names() {
        let policy = JobPolicy::named(name).expect("policy");
        if !able(&policy) {
            continue;
        }
        // `strict` starts nothing that was delivered; its filter is the one under test.
        let mut pair = attack(&["socketpair", ""]).expect("attacker");
        pair.policy = JobPolicy { execute_scratch: true, ..policy.clone() };
        let denied = name != "toolchain";
        assert_eq!(policy.socketpair, !denied);
        assert_eq!(go(&pair).end, JobEnd::Code { code: if denied { 10 } else { 0 } }, "{name}");
        for family in ["2", "10", "16"] {
            let mut socket = attack(&["family", family]).expect("attacker");
            socket.policy = pair.policy.clone();
            assert_eq!(go(&socket).end, JobEnd::Code { code: 10 }, "{name}: family {family}");
        }
        let mut seen = shell("echo /proc/[0-9]*; flock -n /usr/bin/true echo locked");
        seen.policy = policy;
        let report = go(&seen);
        assert_eq!((code(&report), report.stdout.tail.as_str()), (0, "/proc/2\nlocked\n"), "{name}");
        let listed = report.facts["not_claimed"].as_array().expect("list").clone();
        let names = |id: &str| listed.iter().any(|item| item["id"] == id);
        assert!(names("advisory_locks") && NOT_CLAIMED.iter().all(|(id, _)| names(id)), "{listed:?}");
    }
}

/// V85: another process of this host, holding no lock of ours, gives its job another uid.
#[test]
fn jobs_of_two_processes_never_share_a_uid() {
    let _one = alone();
    let own = std::fs::read_to_string("/proc/self/status").expect("status");
    if !own.lines().any(|line| line.starts_with("Uid:\t0\t")) || !able(&default_policy()) {
        return;
    }
    let uid = |facts: &Value| facts["witness"]["status"]["Uid"].as_str().expect("uid").to_owned();
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("test.json"), r#"{"type": "exit_0", "argv": ["true"]}"#).expect("test");
    let mut uids = Vec::new();
    let held: Vec<Slot> = (0..3).map(|_| Slot::take().expect("slot")).collect();
    for slot in &held {
        uids.push(uid(&verifica::sandbox::run_blocking(&job(&["true"]), slot).facts));
    }
    for name in ["a.json", "b.json"] {
        let mut check = Command::new(env!("CARGO_BIN_EXE_verifica"));
        check.args(["check", "test.json", "--once", "--evidence-out", name]).current_dir(folder.path());
        let done = check.env_clear().env("HOME", folder.path()).output().expect("check");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let text = std::fs::read(folder.path().join(name)).expect("evidence");
        let evidence: Value = serde_json::from_slice(&text).expect("json");
        uids.push(uid(&evidence["attestations"][0]));
    }
    let own: std::collections::BTreeSet<&String> = uids.iter().take(held.len()).collect();
    assert_eq!(own.len(), held.len(), "{uids:?}");
    assert!(uids.iter().skip(held.len()).all(|other| !own.contains(other)), "{uids:?}");
}

/// V85: root without user namespaces runs jobs where every required protection still proves itself, and says so; a
/// policy that demands the namespace is refused.
#[test]
fn root_without_user_namespaces_is_declared_or_refused() {
    let _one = alone();
    let own = std::fs::read_to_string("/proc/self/status").expect("status");
    if !own.lines().any(|line| line.starts_with("Uid:\t0\t")) || !able(&default_policy()) {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("test.json"), r#"{"type": "exit_0", "argv": ["id", "-u"]}"#).expect("test");
    let source = JobPolicy::source("default").expect("source");
    let demanding = source.replace("\"namespace.pid\",", "\"namespace.user\", \"namespace.pid\",");
    assert!(JobPolicy::parse(&demanding).is_ok_and(|policy| policy.required.contains("namespace.user")));
    std::fs::write(folder.path().join("demanding.toml"), demanding).expect("policy");
    for (policy, exit) in [("default", 0), ("./demanding.toml", 4)] {
        let Some(told) = without_user_namespaces(folder.path(), policy) else {
            skip("no user namespace with all ids can be made here");
            return;
        };
        assert_eq!(told.0, exit, "{policy}: {}", told.1);
        if exit == 0 {
            let job = &told.1["jobs"][0];
            assert!(job["not_claimed"].to_string().contains("\"user_namespace\""), "{job}");
            assert!(!job["claims"].to_string().contains("namespace.user"), "{job}");
            assert!(job["claims"].to_string().contains("namespace.pid"), "{job}");
        } else {
            assert!(told.1["sandbox"]["missing"].as_str().is_some_and(|why| why.starts_with("namespace.user")));
        }
    }
    assert_eq!(left_behind(), Vec::<String>::new());
}

/// A dry run as root of a user namespace that holds every id and in which no other can be made.
fn without_user_namespaces(folder: &std::path::Path, policy: &str) -> Option<(i32, Value)> {
    let inner = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let outer = format!("read go; exec sh -c '{inner}' \"$0\" \"$@\"");
    let mut shell = Command::new("unshare");
    shell.args(["-U", "sh", "-c", &outer, env!("CARGO_BIN_EXE_verifica")]);
    shell.args(["check", "test.json", "--once", "--json", "--job-policy", policy]).current_dir(folder);
    shell.env("HOME", folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = shell.spawn().ok()?;
    let place = std::path::PathBuf::from(format!("/proc/{}", child.id()));
    let own = std::fs::read_link("/proc/self/ns/user").ok()?;
    let begun = std::time::Instant::now();
    while std::fs::read_link(place.join("ns/user")).is_ok_and(|theirs| theirs == own) {
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "no user namespace comes to be");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    for name in ["uid_map", "gid_map"] {
        let _ = std::fs::write(place.join(name), "0 0 4294967295\n");
    }
    child.stdin.take()?.write_all(b"\n").ok()?;
    let done = child.wait_with_output().ok()?;
    Some((done.status.code()?, serde_json::from_slice(&done.stdout).ok()?))
}
