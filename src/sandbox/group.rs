//! Control groups of one job: made fresh, never used again, removed when the tree is gone. Version 2 is used for what it
//! has (membership from birth, killing at once), version 1 for the controllers that are bound to it; a host may have
//! either or both. Without a group nothing is pretended: the limits of a process take over, and the attestation says so.

use super::policy::JobPolicy;
use crate::limits;
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What counts and kills a tree here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    V2,
    /// Version 2 for membership and killing, version 1 for limits.
    Hybrid,
    V1,
    None,
}

/// The groups of one job.
#[derive(Debug)]
pub struct Groups {
    pub tree: Option<PathBuf>,
    pub memory: Option<PathBuf>,
    pub processes: Option<PathBuf>,
    /// Why a group could not be made, by controller.
    pub missing: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Usage {
    pub memory_peak: Option<u64>,
    pub oom_kills: u64,
    pub processes_refused: u64,
    pub cpu_ms: Option<u64>,
    /// It was the job's own limit that was met, and nothing else can have been; the kernel counts in a group also what
    /// another's limit, or the host's want, did to it.
    pub memory_own: bool,
    pub processes_own: bool,
}

/// How often an allocation of any process had to wait for memory to be freed, over the whole host, up to one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls(Option<u64>);

/// Where this process stands in the hierarchies of the host.
struct Standing {
    unified: Option<PathBuf>,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
}

impl Groups {
    /// Makes what this host lets us make, limits written.
    pub fn create(policy: &JobPolicy, set_memory: bool, set_processes: bool) -> Groups {
        let standing = Standing::find();
        let name = format!("{PREFIX}{}-{}", own_mark(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut groups = Groups { tree: None, memory: None, processes: None, missing: Vec::new() };
        let mut make = |parent: &Option<PathBuf>, what: &str| -> Option<PathBuf> {
            let made = match parent {
                None => Err("not mounted".to_owned()),
                Some(parent) => {
                    let path = parent.join(&name);
                    fs::create_dir(&path).map(|()| path).map_err(|e| format!("{}: {e}", parent.display()))
                }
            };
            made.map_err(|why| groups.missing.push(format!("{what}: {why}"))).ok()
        };
        let tree = make(&standing.unified, "version 2");
        let unified = tree.as_ref().filter(|path| has(path, "memory") && has(path, "pids")).cloned();
        let (memory, processes) = match &unified {
            Some(path) => (Some(path.clone()), Some(path.clone())),
            None => (make(&standing.memory, "memory"), make(&standing.pids, "pids")),
        };
        groups.tree = tree;
        groups.memory = memory;
        groups.processes = processes;
        if let Err(e) = groups.limit(policy, set_memory, set_processes) {
            groups.missing.push(e);
        }
        groups
    }

    pub fn backend(&self) -> Backend {
        match (&self.tree, &self.memory) {
            (Some(tree), Some(memory)) if tree == memory => Backend::V2,
            (Some(_), Some(_)) => Backend::Hybrid,
            (None, Some(_)) => Backend::V1,
            _ => Backend::None,
        }
    }

    /// Groups of version 1, which a process is moved into.
    pub fn joins(&self) -> Vec<PathBuf> {
        self.all().into_iter().filter(|path| Some(*path) != self.tree.as_ref()).cloned().collect()
    }

    /// The memory limit in force, as the kernel states it.
    pub fn memory_limit(&self) -> Option<u64> {
        let path = self.memory.as_ref()?;
        number(path, "memory.max").or_else(|| number(path, "memory.limit_in_bytes"))
    }

    pub fn process_limit(&self) -> Option<u64> {
        number(self.processes.as_ref()?, "pids.max")
    }

    pub fn usage(&self, before: Stalls) -> Usage {
        let memory = self.memory.as_deref();
        let peak =
            memory.and_then(|path| number(path, "memory.peak").or_else(|| number(path, "memory.max_usage_in_bytes")));
        let oom = memory.and_then(|path| {
            line(path, "memory.events", "oom_kill").or_else(|| line(path, "memory.oom_control", "oom_kill"))
        });
        let refused = self.processes.as_deref().and_then(|path| line(path, "pids.events", "max"));
        let cpu = self.tree.as_deref().and_then(|path| line(path, "cpu.stat", "usage_usec"));
        let (oom, refused) = (oom.unwrap_or(0), refused.unwrap_or(0));
        Usage {
            memory_own: oom > 0 && self.memory_own(before, peak),
            processes_own: refused > 0 && self.processes_own(),
            memory_peak: peak,
            oom_kills: oom,
            processes_refused: refused,
            cpu_ms: cpu.map(|us| us / 1_000),
        }
    }

    /// Whether a process was killed for this group's own limit of memory.
    fn memory_own(&self, before: Stalls, peak: Option<u64>) -> bool {
        let Some(path) = &self.memory else { return false };
        if let Some(met) = line(path, "memory.events.local", "oom") {
            return met > 0;
        }
        // Version 1 does not say whose limit a process was killed for: the group met its own, and nobody was short of
        // memory who could have met another.
        let (Some(limit), Some(peak)) = (number(path, "memory.limit_in_bytes"), peak) else { return false };
        let roomy = |path: &PathBuf| {
            let Some(limit) = number(path, "memory.limit_in_bytes") else { return true };
            let used = number(path, "memory.usage_in_bytes").unwrap_or(limit);
            let cached = ["total_inactive_file", "total_active_file"];
            let cached: u64 = cached.iter().filter_map(|name| line(path, "memory.stat", name)).sum();
            limit.saturating_sub(used).saturating_add(cached) > peak
        };
        peak.saturating_add(CHARGED_AT_ONCE) >= limit
            && before.0.is_some()
            && Stalls::now() == before
            && above(path).iter().all(roomy)
    }

    /// Whether the group was full, and no group above it ever was.
    fn processes_own(&self) -> bool {
        let Some(path) = &self.processes else { return false };
        let full = |path: &Path| {
            let limit = number(path, "pids.max")?;
            let most = number(path, "pids.peak").or_else(|| number(path, "pids.current"));
            Some(most.is_none_or(|most| most >= limit))
        };
        // An own peak that the kernel does not state says nothing against a refusal that it counts.
        let own = number(path, "pids.peak").is_none() || full(path) == Some(true);
        own && above(path).iter().all(|path| full(path) != Some(true))
    }

    /// Ends every process of the tree at once.
    pub fn kill(&self) {
        match &self.tree {
            Some(tree) => {
                let _ = fs::write(tree.join("cgroup.kill"), "1");
            }
            None => {
                for pid in self.members() {
                    // SAFETY: a signal to a process of a group that this job alone is in.
                    unsafe {
                        libc::kill(pid, libc::SIGKILL);
                    }
                }
            }
        }
    }

    /// Waits until nobody is left and removes the groups. Gives the number of processes that would not go.
    pub fn end(&mut self) -> usize {
        let until = Instant::now() + Duration::from_millis(limits::JOB_END_MS);
        let mut pause = Duration::from_micros(100);
        loop {
            let left = self.members().len();
            if left == 0 && self.remove() {
                return 0;
            }
            if Instant::now() > until {
                return left;
            }
            self.kill();
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    fn limit(&self, policy: &JobPolicy, set_memory: bool, set_processes: bool) -> Result<(), String> {
        let write = |path: &Path, file: &str, value: u64| {
            fs::write(path.join(file), value.to_string()).map_err(|e| format!("{file}: {e}"))
        };
        if let Some(path) = self.memory.as_ref().filter(|_| set_memory) {
            if path.join("memory.max").exists() {
                write(path, "memory.max", policy.memory_bytes)?;
                // Where swap is not counted there is nothing to bound.
                let _ = write(path, "memory.swap.max", 0);
            } else {
                write(path, "memory.limit_in_bytes", policy.memory_bytes)?;
                // After the other: the kernel refuses it the other way round.
                let _ = write(path, "memory.memsw.limit_in_bytes", policy.memory_bytes);
            }
        }
        if let Some(path) = self.processes.as_ref().filter(|_| set_processes) {
            // The init is counted too.
            write(path, "pids.max", policy.processes + 1)?;
        }
        Ok(())
    }

    fn all(&self) -> Vec<&PathBuf> {
        let mut out: Vec<&PathBuf> = Vec::new();
        for path in [&self.tree, &self.memory, &self.processes].into_iter().flatten() {
            if !out.contains(&path) {
                out.push(path);
            }
        }
        out
    }

    fn members(&self) -> Vec<i32> {
        let mut out: Vec<i32> = self
            .all()
            .iter()
            .filter_map(|path| fs::read_to_string(path.join("cgroup.procs")).ok())
            .flat_map(|text| text.lines().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
            .collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    fn remove(&self) -> bool {
        self.all().into_iter().all(|path| match fs::remove_dir(path) {
            Ok(()) => true,
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        })
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        if self.all().iter().any(|path| path.exists()) {
            self.end();
        }
    }
}

/// Removes what houses that are no more have left behind. Gives how many groups went.
pub fn sweep() -> usize {
    let standing = Standing::find();
    let mut gone = 0;
    for parent in [standing.unified, standing.memory, standing.pids].into_iter().flatten() {
        let Ok(entries) = fs::read_dir(&parent) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(rest) = name.strip_prefix(PREFIX) else { continue };
            let mut parts = rest.split('-');
            let (Some(pid), Some(start)) = (parts.next(), parts.next()) else { continue };
            if pid.parse().ok().and_then(started).is_some_and(|now| now.to_string() == start) {
                continue;
            }
            let path = entry.path();
            let _ = fs::write(path.join("cgroup.kill"), "1");
            let until = Instant::now() + Duration::from_millis(200);
            while fs::remove_dir(&path).is_err() && path.exists() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            gone += usize::from(!path.exists());
        }
    }
    gone
}

impl Stalls {
    pub fn now() -> Stalls {
        let counts = fs::read_to_string("/proc/vmstat").ok().map(|text| {
            let counts = text.lines().filter_map(|line| line.strip_prefix("allocstall_")?.split_once(' '));
            counts.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
        });
        Stalls(counts)
    }
}

impl Standing {
    fn find() -> Standing {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let place = |controller: Option<&str>| -> Option<PathBuf> {
            let path = own.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':');
                let (_, names, path) = (parts.next()?, parts.next()?, parts.next()?);
                let here = controller.map_or(names.is_empty(), |c| names.split(',').any(|name| name == c));
                here.then(|| path.to_owned())
            })?;
            mounts.lines().find_map(|line| {
                let (left, right) = line.split_once(" - ")?;
                let mut left = left.split(' ').skip(3);
                let (root, point) = (left.next()?, left.next()?);
                let mut right = right.split(' ');
                let (kind, options) = (right.next()?, right.nth(1)?);
                let here = match controller {
                    None => kind == "cgroup2",
                    Some(c) => kind == "cgroup" && options.split(',').any(|option| option == c),
                };
                let inside = if root == "/" { path.as_str() } else { path.strip_prefix(root)? };
                here.then(|| Path::new(point).join(inside.trim_start_matches('/')))
            })
        };
        let unified = place(None);
        if let Some(path) = &unified {
            delegate(path);
        }
        Standing { unified, memory: place(Some("memory")), pids: place(Some("pids")) }
    }
}

/// Hands the controllers of a version 2 group to its children. A group with processes of its own cannot do that: where it
/// was delegated to us, we move into a leaf of it first.
fn delegate(path: &Path) {
    let has_all = |file: &str| {
        let text = fs::read_to_string(path.join(file)).unwrap_or_default();
        ["memory", "pids"].iter().all(|c| text.split_whitespace().any(|name| name == *c))
    };
    if !has_all("cgroup.controllers") || has_all("cgroup.subtree_control") {
        return;
    }
    let give = || fs::write(path.join("cgroup.subtree_control"), "+memory +pids");
    if give().is_ok() {
        return;
    }
    let leaf = path.join("verifica");
    let _ = fs::create_dir(&leaf);
    for pid in fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default().lines() {
        let _ = fs::write(leaf.join("cgroup.procs"), pid);
    }
    let _ = give();
}

/// Pid and start time: the same pair never names two processes of one boot.
fn own_mark() -> String {
    let pid = std::process::id();
    format!("{pid}-{}", i32::try_from(pid).ok().and_then(started).unwrap_or(0))
}

fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The groups above one, up to the top of its hierarchy.
fn above(path: &Path) -> Vec<PathBuf> {
    let groups = path.ancestors().skip(1);
    groups.take_while(|path| path.join("cgroup.procs").exists()).map(Path::to_owned).collect()
}

fn has(path: &Path, controller: &str) -> bool {
    let file = if controller == "memory" { "memory.max" } else { "pids.max" };
    path.join(file).exists()
}

fn number(path: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(path.join(file)).ok()?.trim().parse().ok()
}

fn line(path: &Path, file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path.join(file)).ok()?;
    text.lines().find_map(|line| line.split_once(' ').filter(|(n, _)| *n == name))?.1.trim().parse().ok()
}

/// The kernel takes memory for a group in pieces of this size at most, before it falls back to single pages.
const CHARGED_AT_ONCE: u64 = 2 * 1_048_576;
const PREFIX: &str = "verifica-job-";
static NEXT: AtomicU64 = AtomicU64::new(0);
