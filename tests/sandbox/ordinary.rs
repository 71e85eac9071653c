//! The sandbox of a house that runs as an ordinary user. Started as root, the test runs itself again as somebody else.

use super::hostile::{attack, attacker};
use super::support::*;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use verifica::probe::exit_0::JobEnd;
use verifica::sandbox::{JobPolicy, Slot, Step, rehearse, self_test};

#[test]
fn an_ordinary_user_has_a_sandbox_too_and_is_told_what_differs() {
    let _one = alone();
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    if attacker().is_none() {
        return;
    }
    let own = std::fs::read_to_string("/proc/self/status").expect("status");
    if !own.lines().any(|line| line.starts_with("Uid:\t0\t")) {
        return inside();
    }
    let folder = tempfile::tempdir().expect("folder");
    let place = |from: &std::path::Path, name: &str| {
        let to = folder.path().join(name);
        std::fs::copy(from, &to).expect("copy");
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).expect("mode");
        to
    };
    let launcher = place(std::path::Path::new(env!("CARGO_BIN_EXE_verifica")), "verifica");
    let program = place(&attacker().expect("attacker").0, "attack");
    let test = place(&std::env::current_exe().expect("test"), "test");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("mode");
    let name = "ordinary::an_ordinary_user_has_a_sandbox_too_and_is_told_what_differs";
    let ran = Command::new(test)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .env("VERIFICA_TEST_LAUNCHER", launcher)
        .env("VERIFICA_TEST_ATTACKER", program)
        .current_dir("/")
        .uid(ORDINARY)
        .gid(ORDINARY)
        .status()
        .expect("test as somebody else");
    assert!(ran.success());
    assert_eq!(left_behind(), Vec::<String>::new());
}

fn inside() {
    if !able(&default_policy()) {
        return;
    }
    let report = go(&job(&["id", "-u"]));
    assert_eq!((code(&report), report.stdout.tail.as_str()), (0, "1000\n"));
    let not_claimed = report.facts["not_claimed"].to_string();
    assert!(not_claimed.contains("uid of the house"), "{not_claimed}");

    let test = self_test(&JobPolicy::named("strict").expect("strict"));
    let groups = report.facts.get("cgroup").is_some();
    assert_eq!(test.holds(), groups, "{:?}", test.missing);
    if !groups {
        assert!(not_claimed.contains("memory bound for the whole tree"));
        assert!(test.missing.is_some_and(|(item, _)| item == "memory.group"));
        let hog = attack(&["hog", "700"]).expect("attacker");
        assert_eq!(code(&go(&hog)), 10);
        let forks = attack(&["forks", "300"]).expect("attacker");
        assert_eq!(code(&go(&forks)), 10);
    }
    let own = std::process::id().to_string();
    for words in [
        ["read", "/etc/hostname"],
        ["stat", "/var"],
        ["tcp", "9"],
        ["unix", "/run/x"],
        ["kill", &own],
        ["ptrace", &own],
        ["memory_of", &own],
        ["init_environment", "1"],
        ["new_user", ""],
        ["every_mount", ""],
        ["root", ""],
    ] {
        let report = go(&attack(&words).expect("attacker"));
        assert_eq!(code(&report), 10, "{words:?}: {}", report.stdout.tail);
    }
    // Read-only holds although the owner is the job's own uid.
    let mut write = shell("chmod 777 data; echo more >> data; rm -f data; cat data");
    write.inputs.push(input("data", b"data\n"));
    let report = go(&write);
    assert_eq!((code(&report), report.stdout.tail.as_str()), (0, "data\n"));

    let mut slow = shell("setsid sleep 300.5 & sleep 300.5");
    slow.policy.wall_s = 1;
    assert_eq!(go(&slow).end, JobEnd::Time { limit: "wall".to_owned() });
    assert_eq!(processes_with("300.5"), Vec::<i32>::new());

    let slot = Slot::take().expect("slot");
    for step in [Step::NetNamespace, Step::PivotRoot, Step::Landlock, Step::SeccompAllowList, Step::Limits] {
        let report = rehearse(&shell("echo ran"), &slot, step);
        assert!(matches!(report.end, JobEnd::Unenforced { .. }) && !report.started, "{step:?}: {:?}", report.end);
    }
}

const INSIDE: &str = "VERIFICA_TEST_ORDINARY";
const ORDINARY: u32 = 54_321;
