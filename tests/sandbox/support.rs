//! What the tests of the sandbox share: the launcher's program, jobs, and the check that nothing is left behind.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once};
use verifica::probe::exit_0::JobEnd;
use verifica::sandbox::{Job, JobPolicy, JobReport, PlacedInput, Slot, Source, run_blocking, self_test, set_launcher};
use verifica::wire::Sha256;

/// Jobs run one at a time here, so that what is left behind can be counted.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    static READY: Once = Once::new();
    READY.call_once(|| {
        let path = std::env::var_os("VERIFICA_TEST_LAUNCHER").unwrap_or_else(|| env!("CARGO_BIN_EXE_verifica").into());
        set_launcher(PathBuf::from(path));
    });
    ONE.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// Whether this host can run jobs under a policy at all.
pub fn able(policy: &JobPolicy) -> bool {
    let test = self_test(policy);
    if test.holds() {
        return true;
    }
    let why = format!("{:?}", test.missing);
    skip(&format!("the policy {} cannot be enforced here: {why}", policy.name))
}

/// Says aloud that a test does not take place.
pub fn skip(why: &str) -> bool {
    assert!(std::env::var_os("VERIFICA_REQUIRE_ALL").is_none(), "nothing may be skipped: {why}");
    eprintln!("SKIPPED: {why}");
    false
}

pub fn default_policy() -> JobPolicy {
    JobPolicy::named("default").expect("default")
}

pub fn job(argv: &[&str]) -> Job {
    Job {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        inputs: Vec::new(),
        policy: default_policy(),
        within_s: None,
    }
}

pub fn shell(script: &str) -> Job {
    job(&["/bin/sh", "-c", script])
}

pub fn input(path: &str, bytes: &[u8]) -> PlacedInput {
    PlacedInput {
        path: path.to_owned(),
        source: Source::Bytes(bytes.to_vec().into()),
        sha256: Sha256::of(bytes),
        unpack: None,
        mode: None,
    }
}

pub fn go(job: &Job) -> JobReport {
    let slot = Slot::take().expect("slot");
    let report = run_blocking(job, &slot);
    assert_eq!(report.survivors, 0);
    report
}

pub fn code(report: &JobReport) -> i32 {
    match &report.end {
        JobEnd::Code { code } => *code,
        other => panic!("{other:?}\nstdout: {}\nstderr: {}", report.stdout.tail, report.stderr.tail),
    }
}

/// Processes with a word in their arguments, anywhere on the host.
pub fn processes_with(word: &str) -> Vec<i32> {
    let own = std::process::id().to_string();
    let mut out = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("proc").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(pid) = name.parse::<i32>() else { continue };
        let text = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if name != own && String::from_utf8_lossy(&text).contains(word) {
            out.push(pid);
        }
    }
    out
}

/// Groups and mounts that jobs of this process have left; children too.
pub fn left_behind() -> Vec<String> {
    let mut out = Vec::new();
    let mark = format!("verifica-job-{}-", std::process::id());
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with(&mark) {
                    out.push(entry.path().display().to_string());
                }
                folders.push(entry.path());
            }
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    out.extend(mounts.lines().filter(|line| line.contains("canary") || line.contains("scratch")).map(str::to_owned));
    for path in ["/tmp/.canary", "/tmp/work"] {
        if Path::new(path).exists() {
            out.push(path.to_owned());
        }
    }
    let own = std::process::id();
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    out.extend(children.split_whitespace().map(|pid| format!("child {pid}")));
    out
}

pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// This process and its children in the hierarchy of one controller of version 1, or in that of version 2.
pub fn own_group(controller: &str) -> Option<PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let line = |names: &dyn Fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (found, path) = (parts.next()?, parts.next()?);
            names(found).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let first = line(&|names| names.split(',').any(|name| name == controller))
        .map(|path| Path::new("/sys/fs/cgroup").join(controller).join(path));
    first.or_else(|| line(&str::is_empty).map(|path| Path::new("/sys/fs/cgroup").join(path))).filter(|at| at.is_dir())
}
