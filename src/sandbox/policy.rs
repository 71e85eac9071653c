//! Job policies: what a job may use, as data with a reason on each rule. Three ship with the program; more are read from
//! files. Narrowing is the only change: an override that would grant more is an error, never a wider policy.
//!
//! Deliberately absent: any switch for network, for other users' files, or for running with less than what is required.

use crate::limits;
use crate::wire::Sha256;
use crate::wire::json::canonical_sha256;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The values in force for a job. They can be had from the parser and by narrowing only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPolicy {
    pub name: String,
    pub wall_s: u64,
    pub cpu_s: u64,
    pub memory_bytes: u64,
    pub processes: u64,
    pub open_files: u64,
    pub file_bytes: u64,
    pub scratch_bytes: u64,
    pub scratch_files: u64,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub readable: Vec<String>,
    pub execute_scratch: bool,
    pub set_modes: bool,
    pub socketpair: bool,
    pub fixed_addresses: bool,
    pub runs: u32,
    pub environment: BTreeMap<String, String>,
    pub required: BTreeSet<String>,
}

/// What an agent's or a category's own policy sets; every field may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Narrowing {
    pub wall_s: Option<u64>,
    pub cpu_s: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
    pub open_files: Option<u64>,
    pub file_bytes: Option<u64>,
    pub scratch_bytes: Option<u64>,
    pub scratch_files: Option<u64>,
    pub stdout_bytes: Option<u64>,
    pub stderr_bytes: Option<u64>,
    pub readable: Option<Vec<String>>,
    pub execute_scratch: Option<bool>,
    pub set_modes: Option<bool>,
    pub socketpair: Option<bool>,
    pub runs: Option<u32>,
    pub environment: Option<BTreeMap<String, String>>,
    pub required: Option<BTreeSet<String>>,
}

impl JobPolicy {
    /// A policy that ships with the program.
    pub fn named(name: &str) -> Option<JobPolicy> {
        JobPolicy::parse(JobPolicy::source(name)?).ok()
    }

    pub fn names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }

    /// The text of a policy that ships, with its reasons.
    pub fn source(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    pub fn parse(text: &str) -> Result<JobPolicy, String> {
        let file: File = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        if file.schema != SCHEMA {
            return Err(format!("schema is \"{}\"; this program reads {SCHEMA}", file.schema));
        }
        file.policy()?.checked()
    }

    /// The same policy with less. What would grant more is an error that names the field.
    pub fn narrowed_by(&self, by: &Narrowing) -> Result<JobPolicy, String> {
        let mut out = self.clone();
        less("wall_s", &mut out.wall_s, by.wall_s)?;
        less("cpu_s", &mut out.cpu_s, by.cpu_s)?;
        less("memory_bytes", &mut out.memory_bytes, by.memory_bytes)?;
        less("processes", &mut out.processes, by.processes)?;
        less("open_files", &mut out.open_files, by.open_files)?;
        less("file_bytes", &mut out.file_bytes, by.file_bytes)?;
        less("scratch_bytes", &mut out.scratch_bytes, by.scratch_bytes)?;
        less("scratch_files", &mut out.scratch_files, by.scratch_files)?;
        less("stdout_bytes", &mut out.stdout_bytes, by.stdout_bytes)?;
        less("stderr_bytes", &mut out.stderr_bytes, by.stderr_bytes)?;
        off("execute_scratch", &mut out.execute_scratch, by.execute_scratch)?;
        off("set_modes", &mut out.set_modes, by.set_modes)?;
        off("socketpair", &mut out.socketpair, by.socketpair)?;
        if let Some(readable) = &by.readable {
            if let Some(wider) = readable.iter().find(|path| !self.readable.contains(path)) {
                return Err(format!("readable names {wider}, which the policy {} does not grant", self.name));
            }
            out.readable = readable.clone();
        }
        if let Some(environment) = &by.environment {
            if let Some((name, _)) = environment.iter().find(|(name, value)| self.environment.get(*name) != Some(value))
            {
                return Err(format!(
                    "environment sets {name} otherwise than the policy {}; it can only drop it",
                    self.name
                ));
            }
            out.environment = environment.clone();
        }
        if let Some(runs) = by.runs {
            if runs < self.runs {
                return Err(format!(
                    "runs is {runs}; the policy {} asks for {}, and only more is narrower",
                    self.name, self.runs
                ));
            }
            out.runs = runs;
        }
        if let Some(required) = &by.required {
            if let Some(dropped) = self.required.iter().find(|item| !required.contains(*item)) {
                return Err(format!("required leaves out {dropped}, which the policy {} demands", self.name));
            }
            out.required = required.clone();
        }
        out.checked()
    }

    /// Agent over category over default, field by field, each only narrower.
    pub fn resolve(&self, category: Option<&Narrowing>, agent: Option<&Narrowing>) -> Result<JobPolicy, String> {
        [category, agent].into_iter().flatten().try_fold(self.clone(), |policy, by| policy.narrowed_by(by))
    }

    /// Of the values in force, not of the file.
    pub fn sha256(&self) -> Sha256 {
        canonical_sha256(&serde_json::to_value(self).unwrap_or_default())
    }

    pub fn wall_s(&self) -> u64 {
        self.wall_s
    }

    pub fn runs(&self) -> u32 {
        self.runs
    }

    fn checked(self) -> Result<JobPolicy, String> {
        let between = |name: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(format!("{name} is {value}; it must be between {low} and {high}"))
        };
        if self.name.is_empty() || self.name.chars().count() > limits::POLICY_NAME_CHARS_MAX {
            return Err(format!("name must have 1 to {} characters", limits::POLICY_NAME_CHARS_MAX));
        }
        between("wall_s", self.wall_s, 1, limits::JOB_WALL_S_MAX)?;
        between("cpu_s", self.cpu_s, 1, limits::JOB_WALL_S_MAX + 1)?;
        between("memory_bytes", self.memory_bytes, limits::JOB_MEMORY_BYTES_MIN, limits::SAFE_INTEGER_MAX)?;
        between("processes", self.processes, limits::JOB_PROCESSES_MIN, limits::JOB_PROCESSES_MAX)?;
        between("open_files", self.open_files, limits::JOB_OPEN_FILES_MIN, limits::JOB_OPEN_FILES_MAX)?;
        between("file_bytes", self.file_bytes, 1, limits::SAFE_INTEGER_MAX)?;
        between("scratch_bytes", self.scratch_bytes, limits::JOB_SCRATCH_BYTES_MIN, limits::SAFE_INTEGER_MAX)?;
        between("scratch_files", self.scratch_files, limits::JOB_SCRATCH_FILES_MIN, limits::JOB_SCRATCH_FILES_MAX)?;
        between("stdout_bytes", self.stdout_bytes, 0, limits::JOB_OUTPUT_BYTES_MAX)?;
        between("stderr_bytes", self.stderr_bytes, 0, limits::JOB_OUTPUT_BYTES_MAX)?;
        between("runs", u64::from(self.runs), 1, limits::JOB_RUNS_MAX)?;
        if self.readable.is_empty() || self.readable.len() > limits::JOB_READABLE_MAX {
            return Err(format!("readable must name 1 to {} trees", limits::JOB_READABLE_MAX));
        }
        for path in &self.readable {
            let clean = path.starts_with('/')
                && path.len() > 1
                && !path.contains(['\0', ','])
                && path.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
            let taken = TAKEN.iter().find(|own| path == *own || path.starts_with(&format!("{own}/")));
            if !clean {
                return Err(format!("readable names {path}; it must be an absolute, clean path"));
            }
            if let Some(own) = taken {
                return Err(format!("readable names {path}, but a job has its own {own}"));
            }
        }
        let word = |text: &str| !text.is_empty() && !text.contains(['=', '\0']);
        if let Some((name, _)) = self.environment.iter().find(|(name, value)| !word(name) || value.contains('\0')) {
            return Err(format!("environment has the name \"{name}\" or a value that no environment can hold"));
        }
        if let Some(name) = self.environment.keys().find(|name| name.starts_with("LD_")) {
            return Err(format!("environment sets {name}, which changes what is loaded into every program"));
        }
        if let Some(unknown) = self.required.iter().find(|item| !PROTECTIONS.iter().any(|(name, _)| name == item)) {
            let known: Vec<&str> = PROTECTIONS.iter().map(|(name, _)| *name).collect();
            return Err(format!("required names {unknown}; known are {}", known.join(", ")));
        }
        Ok(self)
    }
}

/// Every protection by name, and how it is had where it is missing.
pub const PROTECTIONS: &[(&str, &str)] = &[
    ("landlock", "boot a kernel 6.12 or newer with landlock among its security modules (lsm=landlock,...)"),
    ("seccomp", "use a kernel with CONFIG_SECCOMP_FILTER; in a container, allow seccomp(2)"),
    ("no_new_privs", "use a kernel that has prctl(PR_SET_NO_NEW_PRIVS)"),
    ("capabilities", "run as root, or as a user who may create user namespaces"),
    ("ids", "run as root for a uid of its own for each job; as an ordinary user the job has the uid of the house"),
    ("namespace.user", "set user.max_user_namespaces above 0 and let the security module allow user namespaces"),
    ("namespace.pid", "allow pid namespaces (user.max_pid_namespaces)"),
    ("namespace.mnt", "allow mount namespaces (user.max_mnt_namespaces)"),
    ("namespace.net", "allow network namespaces (user.max_net_namespaces)"),
    ("namespace.ipc", "allow ipc namespaces (user.max_ipc_namespaces)"),
    ("namespace.uts", "allow uts namespaces (user.max_uts_namespaces)"),
    ("namespace.cgroup", "allow cgroup namespaces (user.max_cgroup_namespaces)"),
    ("root", "let the launcher mount tmpfs, proc and bind mounts in its own namespace; /proc must not be masked"),
    ("descriptors", "use a kernel with close_range(2), 5.9 or newer"),
    ("session", "nothing is needed but setsid(2)"),
    ("limits", "raise the hard limits of the house above those of the policy (ulimit -H)"),
    ("network", "allow network namespaces and seccomp"),
    ("processes", "let the house create control groups, or allow RLIMIT_NPROC"),
    ("memory", "let the house create control groups, or allow RLIMIT_AS"),
    (
        "processes.group",
        "run as root or with a delegated control group that has the pids controller (systemd: Delegate=yes)",
    ),
    (
        "memory.group",
        "run as root or with a delegated control group that has the memory controller (systemd: Delegate=yes)",
    ),
    ("determinism", "allow sched_setaffinity(2) and personality(2)"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule<T> {
    value: T,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    name: String,
    wall_s: Rule<u64>,
    cpu_s: Rule<u64>,
    memory_bytes: Rule<u64>,
    processes: Rule<u64>,
    open_files: Rule<u64>,
    file_bytes: Rule<u64>,
    scratch_bytes: Rule<u64>,
    scratch_files: Rule<u64>,
    stdout_bytes: Rule<u64>,
    stderr_bytes: Rule<u64>,
    readable: Rule<Vec<String>>,
    execute_scratch: Rule<bool>,
    set_modes: Rule<bool>,
    socketpair: Rule<bool>,
    fixed_addresses: Rule<bool>,
    runs: Rule<u32>,
    environment: Rule<BTreeMap<String, String>>,
    required: Rule<BTreeSet<String>>,
}

impl<T> Rule<T> {
    fn reasoned(self, name: &str) -> Result<T, String> {
        if self.why.trim().is_empty() {
            return Err(format!("{name} has no reason; every rule needs a why that is not empty"));
        }
        Ok(self.value)
    }
}

impl File {
    fn policy(self) -> Result<JobPolicy, String> {
        Ok(JobPolicy {
            name: self.name,
            wall_s: self.wall_s.reasoned("wall_s")?,
            cpu_s: self.cpu_s.reasoned("cpu_s")?,
            memory_bytes: self.memory_bytes.reasoned("memory_bytes")?,
            processes: self.processes.reasoned("processes")?,
            open_files: self.open_files.reasoned("open_files")?,
            file_bytes: self.file_bytes.reasoned("file_bytes")?,
            scratch_bytes: self.scratch_bytes.reasoned("scratch_bytes")?,
            scratch_files: self.scratch_files.reasoned("scratch_files")?,
            stdout_bytes: self.stdout_bytes.reasoned("stdout_bytes")?,
            stderr_bytes: self.stderr_bytes.reasoned("stderr_bytes")?,
            readable: self.readable.reasoned("readable")?,
            execute_scratch: self.execute_scratch.reasoned("execute_scratch")?,
            set_modes: self.set_modes.reasoned("set_modes")?,
            socketpair: self.socketpair.reasoned("socketpair")?,
            fixed_addresses: self.fixed_addresses.reasoned("fixed_addresses")?,
            runs: self.runs.reasoned("runs")?,
            environment: self.environment.reasoned("environment")?,
            required: self.required.reasoned("required")?,
        })
    }
}

fn less(name: &str, value: &mut u64, by: Option<u64>) -> Result<(), String> {
    match by {
        Some(by) if by > *value => {
            Err(format!("{name} is {by}; an override may only lower it, and {value} is in force"))
        }
        Some(by) => {
            *value = by;
            Ok(())
        }
        None => Ok(()),
    }
}

fn off(name: &str, value: &mut bool, by: Option<bool>) -> Result<(), String> {
    match by {
        Some(true) if !*value => Err(format!("{name} is true; an override may only take it away")),
        Some(by) => {
            *value = by;
            Ok(())
        }
        None => Ok(()),
    }
}

const SCHEMA: &str = "verifica.job-policy/1";
const BUILT_IN: &[(&str, &str)] = &[
    ("default", include_str!("../../policies/jobs/default.toml")),
    ("strict", include_str!("../../policies/jobs/strict.toml")),
    ("toolchain", include_str!("../../policies/jobs/toolchain.toml")),
];
/// What a job has of its own; no tree of the host may lie over it.
const TAKEN: &[&str] = &["/work", "/tmp", "/proc", "/dev", "/.canary", "/sys"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policies_that_ship_are_whole_and_differ_in_what_they_say() {
        for name in JobPolicy::names() {
            let policy = JobPolicy::parse(JobPolicy::source(name).expect("source")).expect(name);
            assert_eq!(policy.name, name);
            assert_eq!(JobPolicy::named(name), Some(policy));
        }
        let (default, strict) =
            (JobPolicy::named("default").expect("default"), JobPolicy::named("strict").expect("strict"));
        assert_ne!(default.sha256(), strict.sha256());
        assert!(default.execute_scratch && !strict.execute_scratch);
        assert!(strict.required.is_superset(&default.required));
        assert_eq!(strict.runs(), 2);
        assert!(JobPolicy::named("toolchain").expect("toolchain").socketpair && !default.socketpair);
        assert_eq!(JobPolicy::named("none"), None);
    }

    #[test]
    fn an_override_only_narrows_field_by_field() {
        let base = JobPolicy::named("toolchain").expect("toolchain");
        let by = |text: &str| toml::from_str::<Narrowing>(text).expect("narrowing");
        let category = by("wall_s = 100\nsocketpair = false");
        let agent = by("wall_s = 50\nreadable = [\"/usr\"]");
        let both = base.resolve(Some(&category), Some(&agent)).expect("narrower");
        assert_eq!((both.wall_s, both.socketpair, both.readable.len()), (50, false, 1));
        assert_eq!(both.memory_bytes, base.memory_bytes);
        for (text, word) in [
            ("wall_s = 301", "wall_s"),
            ("memory_bytes = 9007199254740991", "memory_bytes"),
            ("runs = 1", "runs"),
            ("readable = [\"/home\"]", "readable"),
            ("required = []", "required"),
            ("environment = { PATH = \"/work\" }", "environment"),
        ] {
            assert!(base.narrowed_by(&by(text)).expect_err(text).contains(word), "{text}");
        }
        // A category that took something away binds the agent.
        assert!(base.resolve(Some(&category), Some(&by("socketpair = true"))).is_err());
        assert!(base.resolve(Some(&category), Some(&by("wall_s = 101"))).is_err());
        assert!(toml::from_str::<Narrowing>("fixed_addresses = false").is_err());
    }

    #[test]
    fn every_bound_holds_at_the_limit_and_one_past_it() {
        let text = JobPolicy::source("default").expect("source");
        let with = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            JobPolicy::parse(&text.replacen(from, to, 1))
        };
        let number = |name: &str, value: u64| {
            let at = text.find(&format!("[{name}]")).expect("rule");
            let line = text[at..].lines().nth(1).expect("value");
            JobPolicy::parse(&text.replace(&format!("[{name}]\n{line}"), &format!("[{name}]\nvalue = {value}")))
        };
        for (name, low, high) in [
            ("wall_s", 1, limits::JOB_WALL_S_MAX),
            ("memory_bytes", limits::JOB_MEMORY_BYTES_MIN, limits::SAFE_INTEGER_MAX),
            ("processes", limits::JOB_PROCESSES_MIN, limits::JOB_PROCESSES_MAX),
            ("open_files", limits::JOB_OPEN_FILES_MIN, limits::JOB_OPEN_FILES_MAX),
            ("scratch_bytes", limits::JOB_SCRATCH_BYTES_MIN, limits::SAFE_INTEGER_MAX),
            ("scratch_files", limits::JOB_SCRATCH_FILES_MIN, limits::JOB_SCRATCH_FILES_MAX),
            ("stdout_bytes", 0, limits::JOB_OUTPUT_BYTES_MAX),
            ("runs", 1, limits::JOB_RUNS_MAX),
        ] {
            assert!(number(name, low).is_ok() && number(name, high).is_ok(), "{name}");
            assert!(number(name, high + 1).expect_err(name).contains(name));
            assert!(low == 0 || number(name, low - 1).is_err(), "{name}");
        }
        for bad in ["usr", "/usr/", "/usr/../etc", "/", "/proc", "/work/x", "/a,b"] {
            assert!(with("[\"/usr\"]", &format!("[\"{bad}\"]")).is_err(), "{bad}");
        }
        assert!(with("TZ = \"UTC\"", "LD_PRELOAD = \"x\"").is_err());
        assert!(with("\"landlock\", ", "\"landlok\", ").expect_err("unknown").contains("landlok"));
        assert!(with("verifica.job-policy/1", "verifica.policy/1").is_err());
        assert!(with("[wall_s]\n", "[wall_s]\nmore = 1\n").is_err());
    }
}
