//! The house as an independent witness. While the job's process waits for its word, the house reads in its own /proc and
//! in the control groups what the kernel says of that process, and compares it with what must be. Nothing that the process
//! says about itself is used here.

use super::child::{self, STATUS_LINES};
use super::group::Groups;
use super::plan::{JOB_UMASK, Mode, Plan, Refused};
use super::{restrict, sys};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What was read, field by field; all of it goes into the attestation.
#[derive(Debug, Default, Serialize)]
pub struct Witness {
    pub pid: i32,
    pub status: BTreeMap<String, String>,
    pub namespaces: BTreeMap<String, Namespace>,
    pub groups: Vec<String>,
    pub limits: BTreeMap<String, String>,
    pub uid_map: String,
    pub gid_map: String,
    pub mounts: Vec<String>,
    pub descriptors: Vec<i32>,
    pub oom_score_adj: String,
    pub memory_limit: Option<u64>,
    pub process_limit: Option<u64>,
    /// Filters of the house itself, which its jobs inherit.
    #[serde(skip)]
    pub filters_before: u64,
}

#[derive(Debug, Serialize)]
pub struct Namespace {
    pub inode: u64,
    pub differs: bool,
}

/// Reads and compares. The first thing that is not as it must be is the refusal.
pub fn look(plan: &Plan, groups: &Groups, pid: i32, launcher: (u64, u64)) -> Result<Witness, Refused> {
    let mut seen = Witness { pid, filters_before: own_filters(), ..Witness::default() };
    let read = |file: &str| {
        fs::read_to_string(format!("/proc/{pid}/{file}"))
            .map_err(|e| Refused::new("witness", format!("{file} of the job's process: {e}")))
    };
    let exe = fs::metadata(format!("/proc/{pid}/exe")).map_err(|e| Refused::new("witness", format!("exe: {e}")))?;
    must("witness", "program", &(exe.dev(), exe.ino()), &launcher)?;

    for line in read("status")?.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        if STATUS_LINES.contains(&name) || matches!(name, "NSpid" | "Cpus_allowed_list" | "Umask") {
            seen.status.insert(name.to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    status(plan, &seen)?;
    namespaces(plan, &mut seen)?;

    seen.groups = read("cgroup")?.lines().map(str::to_owned).collect();
    let joined = |path: &Path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        seen.groups.iter().filter(|line| line.ends_with(&format!("/{name}"))).count()
    };
    if let Some(tree) = &groups.tree {
        let hierarchies = 1 + groups.joins().len();
        must("processes.group", "control groups joined", &joined(tree), &hierarchies)?;
    } else if let Some(first) = groups.joins().first() {
        must("processes.group", "control groups joined", &joined(first), &groups.joins().len())?;
    }
    seen.memory_limit = groups.memory_limit();
    seen.process_limit = groups.process_limit();
    if plan.memory_by_group {
        let page = 4_096;
        let within = seen
            .memory_limit
            .is_some_and(|limit| limit <= plan.policy.memory_bytes && limit + page > plan.policy.memory_bytes);
        if !within {
            return Err(Refused::new(
                "memory.group",
                format!("the limit is {:?}, asked for {}", seen.memory_limit, plan.policy.memory_bytes),
            ));
        }
    }
    if plan.processes_by_group {
        must("processes.group", "pids.max", &seen.process_limit, &Some(plan.policy.processes + 1))?;
    }

    let limits = read("limits")?;
    for (name, title) in LIMIT_TITLES {
        if let Some(line) = limits.lines().find(|line| line.starts_with(title)) {
            let values: Vec<&str> = line.get(title.len()..).unwrap_or_default().split_whitespace().take(2).collect();
            seen.limits.insert((*name).to_owned(), values.join(" "));
        }
    }
    for (name, _, value) in child::wanted_limits(plan) {
        let want = format!("{value} {value}");
        must("limits", name, &seen.limits.get(name).map(String::as_str), &Some(want.as_str()))?;
    }

    let squeeze = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    seen.uid_map = squeeze(read("uid_map")?);
    seen.gid_map = squeeze(read("gid_map")?);
    if plan.mode == Mode::Root {
        let want = format!("0 {} 1 {} {} 1", plan.outer_root, plan.inner_id(), plan.outer_job);
        must("ids", "uid_map", &seen.uid_map, &want)?;
    }
    seen.oom_score_adj = read("oom_score_adj")?.trim().to_owned();
    must("memory", "oom_score_adj", &seen.oom_score_adj.as_str(), &"1000")?;
    seen.mounts = mounts(plan, &read("mountinfo")?)?;
    descriptors(pid, &mut seen)?;
    Ok(seen)
}

fn status(plan: &Plan, seen: &Witness) -> Result<(), Refused> {
    let line = |name: &str| seen.status.get(name).map(String::as_str).unwrap_or("missing");
    let four = |id: u32| [id.to_string(), id.to_string(), id.to_string(), id.to_string()].join(" ");
    must("ids", "Uid", &line("Uid"), &four(plan.outer_job).as_str())?;
    must("ids", "Gid", &line("Gid"), &four(plan.outer_gid).as_str())?;
    if plan.mode != Mode::User {
        must("ids", "Groups", &line("Groups"), &"")?;
    }
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        must("capabilities", set, &line(set), &"0000000000000000")?;
    }
    must("no_new_privs", "NoNewPrivs", &line("NoNewPrivs"), &"1")?;
    must("seccomp", "Seccomp", &line("Seccomp"), &"2")?;
    let filters = (seen.filters_before + restrict::FILTERS).to_string();
    must("seccomp", "Seccomp_filters", &line("Seccomp_filters"), &filters.as_str())?;
    must("namespace.pid", "pid inside", &line("NSpid").split(' ').next_back(), &Some("2"))?;
    must("determinism", "Cpus_allowed_list", &line("Cpus_allowed_list"), &plan.cpu.to_string().as_str())?;
    must("root", "Umask", &line("Umask"), &format!("{JOB_UMASK:04o}").as_str())
}

fn namespaces(plan: &Plan, seen: &mut Witness) -> Result<(), Refused> {
    for (name, _) in sys::NAMESPACES {
        let inode = |of: &str| fs::metadata(format!("/proc/{of}/ns/{name}")).map(|found| found.ino());
        let fault = |e: std::io::Error| Refused::new(format!("namespace.{name}"), format!("cannot be read: {e}"));
        let (theirs, ours) = (inode(&seen.pid.to_string()).map_err(fault)?, inode("self").map_err(fault)?);
        let differs = theirs != ours;
        let spared = *name == "user" && plan.mode == Mode::RootWithoutUserNamespace;
        if !differs && !spared {
            return Err(Refused::new(format!("namespace.{name}"), "the job's process shares it with the house"));
        }
        seen.namespaces.insert((*name).to_owned(), Namespace { inode: theirs, differs });
    }
    Ok(())
}

/// Every mount of the job: where it is, of which kind, with which options. Only the scratch may be written.
fn mounts(plan: &Plan, text: &str) -> Result<Vec<String>, Refused> {
    let mut out = Vec::new();
    let bad = |at: &str, why: &str| Err(Refused::new("root", format!("the mount {at} {why}")));
    for line in text.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let mut left = left.split(' ').skip(4);
        let (Some(at), Some(options)) = (left.next(), left.next()) else { continue };
        let kind = right.split(' ').next().unwrap_or_default();
        let set: BTreeSet<&str> = options.split(',').collect();
        let writable = matches!(at, "/work" | "/tmp" | "/.canary" | "/proc");
        if !set.contains("ro") && !writable {
            return bad(at, "can be written");
        }
        if !set.contains("nosuid") {
            return bad(at, "lets programs change their user");
        }
        if !set.contains("nodev") && !at.starts_with("/dev/") {
            return bad(at, "lets device files work");
        }
        if matches!(at, "/work" | "/tmp") && !plan.policy.execute_scratch && !set.contains("noexec") {
            return bad(at, "lets programs start");
        }
        if matches!(at, "/work" | "/tmp") && !(right.contains("size=") && right.contains("nr_inodes=")) {
            return bad(at, "has no bound");
        }
        if at == "/proc" && !(right.contains("subset=pid") && right.contains("hidepid=invisible")) {
            return bad(at, "shows more than the job");
        }
        out.push(format!("{at} {kind} {options}"));
    }
    for needed in ["/", "/work", "/tmp", "/proc", "/dev/null"] {
        if !out.iter().any(|line| line.split(' ').next() == Some(needed)) {
            return bad(needed, "is missing");
        }
    }
    Ok(out)
}

/// Standard input, output and error are pipes; the report; the program; and the status file that the process reads.
fn descriptors(pid: i32, seen: &mut Witness) -> Result<(), Refused> {
    let fault = |e: std::io::Error| Refused::new("descriptors", e.to_string());
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        if let Ok(number) = entry.file_name().to_string_lossy().parse::<i32>() {
            let target = fs::read_link(entry.path()).map_err(fault)?;
            let pipe = target.to_string_lossy().starts_with("pipe:");
            if number <= 2 && !pipe {
                return Err(Refused::new("descriptors", format!("descriptor {number} is no pipe")));
            }
            seen.descriptors.push(number);
        }
    }
    seen.descriptors.sort_unstable();
    match seen.descriptors.iter().find(|number| **number > HIGHEST) {
        Some(number) => Err(Refused::new("descriptors", format!("descriptor {number} is open"))),
        None => Ok(()),
    }
}

fn own_filters() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("Seccomp_filters:")).and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

fn must<T: PartialEq + std::fmt::Debug>(item: &str, what: &str, seen: &T, want: &T) -> Result<(), Refused> {
    if seen == want {
        return Ok(());
    }
    Err(Refused::new(item, format!("{what} is {seen:?}, expected {want:?}")))
}

/// The report, the program and the status file follow the three standard descriptors.
const HIGHEST: i32 = 5;
const LIMIT_TITLES: &[(&str, &str)] = &[
    ("cpu", "Max cpu time"),
    ("fsize", "Max file size"),
    ("stack", "Max stack size"),
    ("core", "Max core file size"),
    ("nproc", "Max processes"),
    ("nofile", "Max open files"),
    ("memlock", "Max locked memory"),
    ("as", "Max address space"),
    ("sigpending", "Max pending signals"),
    ("msgqueue", "Max msgqueue size"),
    ("nice", "Max nice priority"),
    ("rtprio", "Max realtime priority"),
];
