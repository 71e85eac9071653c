//! The hostile suite: each attack once outside as a control, where it must work, and once as a job, where it must be
//! denied. What this host denies by itself is said aloud, so that a denial always means the sandbox.

use super::support::*;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use verifica::probe::exit_0::JobEnd;
use verifica::sandbox::{Job, JobPolicy};

/// The attacker, built once from its source.
pub fn attacker() -> Option<(PathBuf, Vec<u8>)> {
    use std::sync::OnceLock;
    static BUILT: OnceLock<Option<(PathBuf, Vec<u8>)>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            if let Some(path) = std::env::var_os("VERIFICA_TEST_ATTACKER") {
                return Some((PathBuf::from(&path), std::fs::read(path).expect("attacker")));
            }
            let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/hostile/attack.c");
            let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("attack-{}", std::process::id()));
            let built = Command::new("cc").args(["-O1", "-o"]).arg(&path).arg(source).status();
            if !built.is_ok_and(|status| status.success()) {
                skip("there is no C compiler (Debian: gcc libc6-dev)");
                return None;
            }
            let bytes = std::fs::read(&path).expect("attacker");
            Some((path, bytes))
        })
        .clone()
}

pub fn attack(words: &[&str]) -> Option<Job> {
    let (_, bytes) = attacker()?;
    let mut argv = vec!["./attack"];
    argv.extend(words);
    let mut job = job(&argv);
    let mut program = input("attack", &bytes);
    program.mode = Some(0o755);
    job.inputs.push(program);
    Some(job)
}

#[test]
fn every_attack_works_outside_and_is_denied_inside() {
    let _one = alone();
    let Some((program, _)) = attacker() else { return };
    if !able(&default_policy()) {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("victim");
    std::fs::write(&file, "victim\n").expect("victim");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).expect("mode");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("mode");
    let file = file.to_string_lossy().into_owned();
    let fresh = folder.path().join("fresh").to_string_lossy().into_owned();
    let tcp = TcpListener::bind("127.0.0.1:0").expect("tcp");
    let tcp_port = tcp.local_addr().expect("address").port().to_string();
    let udp = UdpSocket::bind("127.0.0.1:0").expect("udp");
    let udp_port = udp.local_addr().expect("address").port().to_string();
    let unix = folder.path().join("socket");
    let _unix = UnixListener::bind(&unix).expect("unix");
    std::fs::set_permissions(&unix, std::fs::Permissions::from_mode(0o777)).expect("mode");
    let unix = unix.to_string_lossy().into_owned();
    let hidden = format!("verifica-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&hidden).expect("name");
    let _hidden = UnixListener::bind_addr(&address).expect("abstract");
    let mut victim = Command::new("sleep").arg("300").spawn().expect("victim");
    let pid = victim.id().to_string();

    let attacks: &[(&str, &str)] = &[
        ("descriptors", ""),
        ("environment", ""),
        ("init_environment", &pid),
        ("init_exe", &pid),
        ("read", &file),
        ("write", &fresh),
        ("truncate", &file),
        ("stat", &file),
        ("chmod", &file),
        ("utime", &file),
        ("xattr", &file),
        ("link", &file),
        ("inotify", &file),
        ("shm_file", ""),
        ("every_mount", ""),
        ("core_pattern", ""),
        ("cgroup", ""),
        ("tcp", &tcp_port),
        ("fastopen", &tcp_port),
        ("mptcp", &tcp_port),
        ("udp", &udp_port),
        ("unix", &unix),
        ("abstract", &hidden),
        ("netlink", ""),
        ("packet", ""),
        ("socketpair", ""),
        ("kill", &pid),
        ("memory_of", &pid),
        ("limits_of", &pid),
        ("ptrace", &pid),
        ("affinity", ""),
        ("io_uring", ""),
        ("userfaultfd", ""),
        ("add_key", ""),
        ("keyctl", ""),
        ("new_user", ""),
        ("new_user_mount", ""),
        ("int80", ""),
        ("handle", ""),
        ("shm", ""),
        ("memfd", ""),
        ("root", ""),
        ("chroot", ""),
        ("hostname", ""),
        ("nice", ""),
        ("device", ""),
        ("grow", ""),
        ("files", ""),
    ];
    let mut wrong = Vec::new();
    let mut by_itself = Vec::new();
    for (name, argument) in attacks {
        // One descriptor too many, and a secret, as a careless parent would hand on.
        let control = Command::new("sh")
            .args(["-c", "exec 7</dev/null; exec \"$0\" \"$@\""])
            .arg(&program)
            .args([*name, *argument])
            .env("VERIFICA_SECRET", "x")
            .stdout(Stdio::piped())
            .output()
            .expect("control");
        if control.status.code() != Some(0) {
            by_itself.push(format!("{name}: {}", String::from_utf8_lossy(&control.stdout).trim()));
        }
        std::fs::write(&file, "victim\n").expect("victim");
        let _ = std::fs::remove_file(&fresh);
        let report = go(&attack(&[name, argument]).expect("attacker"));
        let denied = report.end == JobEnd::Code { code: 10 };
        println!("{name}: outside {:?}, inside {:?} {}", control.status.code(), report.end, report.stdout.tail.trim());
        let untouched = std::fs::read_to_string(&file).is_ok_and(|text| text == "victim\n");
        if !denied || !untouched || std::path::Path::new(&fresh).exists() {
            wrong.push(format!("{name}: {:?} {}", report.end, report.stdout.tail));
        }
    }
    victim.kill().expect("kill");
    victim.wait().expect("wait");
    for line in &by_itself {
        eprintln!("the host denies by itself: {line}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(by_itself.len() <= attacks.len() / 4, "too many controls that did not work: {by_itself:?}");
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
fn no_socket_family_opens() {
    let _one = alone();
    if attacker().is_none() || !able(&default_policy()) {
        return;
    }
    for family in ["0", "1", "2", "10", "16", "17", "38", "40", "44", "45"] {
        let report = go(&attack(&["family", family]).expect("attacker"));
        assert_eq!(code(&report), 10, "family {family}: {}", report.stdout.tail);
        assert!(report.stdout.tail.contains("errno 1 "), "family {family}: {}", report.stdout.tail);
    }
}

#[test]
fn counted_limits_end_a_job_and_are_named() {
    let _one = alone();
    if attacker().is_none() || !able(&default_policy()) {
        return;
    }
    let limit = |name: &str| JobEnd::Limit { limit: name.to_owned() };
    // Twice: a second run has nothing of the first.
    for _ in 0..2 {
        let mut hog = attack(&["hog", "200"]).expect("attacker");
        assert_eq!(go(&hog).end, JobEnd::Code { code: 0 });
        hog.policy.memory_bytes = 64 << 20;
        // A host that was short of memory at that moment decides nothing, and is asked again.
        let mut report = go(&hog);
        for _ in 0..20 {
            if matches!(report.end, JobEnd::Unavailable { .. }) {
                report = go(&hog);
            }
        }
        if report.facts.get("cgroup").is_some() {
            assert_eq!(report.end, limit("memory"));
            assert!(report.peak_memory.is_some_and(|peak| peak <= 64 << 20));
        } else {
            assert_eq!(code(&report), 10);
        }
    }
    let mut forks = attack(&["forks", "300"]).expect("attacker");
    forks.policy.processes = 40;
    let report = go(&forks);
    assert_eq!(report.end, limit("processes"), "{}", report.stdout.tail);
    assert!(report.stdout.tail.contains("forks 39"), "{}", report.stdout.tail);

    let mut flood = job(&["yes"]);
    flood.policy.stdout_bytes = 1_000;
    let report = go(&flood);
    assert_eq!(report.end, limit("output"));
    assert!(report.stdout.truncated && report.stdout.bytes == 1_000);
    // A program that prints one byte too many and ends well has overflowed all the same; one that does not, has not.
    let mut exact = shell("printf 1234567890");
    exact.policy.stdout_bytes = 9;
    assert_eq!(go(&exact).end, limit("output"));
    exact.policy.stdout_bytes = 10;
    assert_eq!(go(&exact).end, JobEnd::Code { code: 0 });
    let mut large = shell("exec dd if=/dev/zero of=/tmp/large bs=1M count=3 2>/dev/null");
    large.policy.file_bytes = 1 << 20;
    assert_eq!(go(&large).end, limit("file size"));
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
fn a_job_that_writes_notes_itself_decides_nothing() {
    let _one = alone();
    if attacker().is_none() || !able(&default_policy()) {
        return;
    }
    let report = go(&attack(&["forge"]).expect("attacker"));
    assert_eq!(report.end, JobEnd::Code { code: 1 });
}

#[test]
fn a_strict_policy_starts_nothing_that_was_delivered_or_written() {
    let _one = alone();
    let strict = JobPolicy::named("strict").expect("strict");
    if attacker().is_none() || !able(&strict) {
        return;
    }
    let mut delivered = attack(&["affinity"]).expect("attacker");
    delivered.policy = strict.clone();
    assert!(matches!(go(&delivered).end, JobEnd::NotExecutable { .. }));
    let mut written = shell("cp /usr/bin/true /tmp/x && /tmp/x");
    written.policy = strict;
    assert_eq!(code(&go(&written)), 126);
}
