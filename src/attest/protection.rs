//! What may be claimed, and what proves it. The table is the whole rule: a protection holds when each piece of its
//! evidence does, and is otherwise not claimed.
//!
//! A canary counts when it did the forbidden thing before the step and met the expected refusal after it; a refusal
//! alone proves nothing, except where the table says that there is nothing to try before. A read-back counts when
//! whoever read it, the job's own process or the daemon from outside, found the value, and nobody found another.

use super::shape::is_word;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// One protection, the mechanism that gives it, and the evidence that must be there, all of it.
#[derive(Clone, Copy, Debug)]
pub struct Protection {
    pub name: &'static str,
    pub mechanism: &'static str,
    evidence: &'static [Evidence],
}

/// That a protection held, and how it is known.
#[derive(Clone, Debug)]
pub struct Proof {
    pub protection: &'static Protection,
    pub canaries: Vec<&'static str>,
    pub read_back: Vec<&'static str>,
    /// `self`, `daemon` or `both`.
    pub witness: &'static str,
}

/// Something that a canary tries, and the refusal that shows the protection at work.
#[derive(Clone, Copy, Debug)]
pub struct Canary {
    pub id: &'static str,
    pub after: &'static str,
    pub before: Before,
}

/// What must have happened before the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// It succeeded.
    Succeeded,
    /// It was tried; a kernel may be built or set not to offer it, and that denial is recorded as it was.
    Tried,
    /// There is no state in which it could have been tried.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
enum Evidence {
    Canary(&'static str),
    /// Landlock enforces a whole ruleset.
    Ruleset,
    /// As many more filters are in force as were loaded.
    Filters,
    /// No new privileges, no capability in any set, no group beside its own, one user that is not root.
    Unprivileged,
    /// The namespace of this type is not the host's.
    Apart(&'static str),
    /// A limit of the control group.
    Group(&'static str),
    /// A resource limit that is finite.
    Finite(&'static str),
    /// A resource limit that is zero.
    Zero(&'static str),
    /// Nobody of the tree was alive at the end.
    NoSurvivor,
}

impl Protection {
    pub fn named(name: &str) -> Option<&'static Protection> {
        PROTECTIONS.iter().find(|protection| protection.name == name)
    }

    /// The proof, if the facts hold one.
    pub fn proof(&'static self, facts: &Value) -> Option<Proof> {
        let mut proof = Proof { protection: self, canaries: Vec::new(), read_back: Vec::new(), witness: "self" };
        let mut who = BTreeSet::new();
        for evidence in self.evidence {
            who.append(&mut evidence.holds(facts)?);
            match evidence {
                Evidence::Canary(id) => proof.canaries.push(*id),
                other => proof.read_back.extend(other.names()),
            }
        }
        proof.witness = match (who.contains(&Who::Own), who.contains(&Who::Daemon)) {
            (true, true) => "both",
            (false, true) => "daemon",
            _ => "self",
        };
        Some(proof)
    }
}

impl Proof {
    pub fn to_json(&self) -> Value {
        json!({
            "protection": self.protection.name, "mechanism": self.protection.mechanism, "canaries": self.canaries,
            "read_back": self.read_back, "witness": self.witness,
        })
    }
}

/// Everything that the facts prove, in the order of the table. What a policy demands is compared with this before a job may
/// start, and the document claims exactly this afterwards.
pub fn proved(facts: &Value) -> Vec<Proof> {
    PROTECTIONS.iter().filter_map(|protection| protection.proof(facts)).collect()
}

/// Whether a canary of this outcome shows its protection at work; `None` for a canary that this version does not know.
pub fn canary_passed(id: &str, before: &str, after: &str) -> Option<bool> {
    let canary = CANARIES.iter().find(|canary| canary.id == id)?;
    let first = match canary.before {
        Before::Succeeded => before == "ok",
        Before::Tried => before != "none",
        Before::Nothing => true,
    };
    Some(first && after == canary.after)
}

/// Where the job's own process and the daemon read different values for one thing.
pub(super) fn disagreements(facts: &Value) -> Vec<String> {
    let Some(witness) = facts.get("witness") else { return Vec::new() };
    let mut out = Vec::new();
    for section in ["status", "caps", "rlimits", "cgroup", "namespaces"] {
        if let (Some(own), Some(seen)) = (facts.get(section), witness.get(section)) {
            differences(own, seen, section, &mut out);
        }
    }
    let filters = (facts.pointer("/seccomp/after"), witness.pointer("/status/seccomp_filters"));
    if let (Some(own), Some(seen)) = filters
        && own != seen
    {
        out.push("seccomp.after".to_owned());
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Own,
    Daemon,
}

impl Evidence {
    /// Who saw it, if it was seen and nobody saw anything else.
    fn holds(&self, facts: &Value) -> Option<BTreeSet<Who>> {
        let mut who = BTreeSet::new();
        match self {
            Evidence::Canary(id) => {
                canary(facts, id).then_some(())?;
                who.insert(Who::Own);
            }
            Evidence::Ruleset => {
                let landlock = facts.get("landlock")?;
                let whole = landlock.get("status")? == "fully_enforced" && landlock.get("abi")?.as_u64()? > 0;
                whole.then_some(())?;
                who.insert(Who::Own);
            }
            Evidence::Filters => {
                read(facts, "/status/seccomp", &mut who, |mode| mode == 2)?;
                let seccomp = facts.get("seccomp")?;
                let loaded = u64::try_from(seccomp.get("filters")?.as_array()?.len()).ok()?;
                let before = seccomp.get("before")?.as_u64()?;
                let more = |count: &Value| loaded > 0 && count.as_u64() == before.checked_add(loaded);
                more(seccomp.get("after")?).then_some(())?;
                if let Some(seen) = facts.pointer("/witness/status/seccomp_filters") {
                    more(seen).then_some(())?;
                    who.insert(Who::Daemon);
                }
            }
            Evidence::Unprivileged => {
                read(facts, "/status/no_new_privs", &mut who, |flag| flag == 1)?;
                for set in ["inheritable", "permitted", "effective", "bounding", "ambient"] {
                    read(facts, &format!("/caps/{set}"), &mut who, is_zero_mask)?;
                }
                // Identities differ between the two views: each is judged for itself.
                for view in ["", "/witness"] {
                    let of = |name: &str| facts.pointer(&format!("{view}/ids/{name}"));
                    match (of("uid"), of("gid"), of("groups")) {
                        (None, None, None) if view == "/witness" => {}
                        (Some(uid), Some(gid), Some(groups)) => {
                            let plain = one_identity(uid) && one_identity(gid);
                            (plain && groups.as_array().is_some_and(Vec::is_empty)).then_some(())?;
                        }
                        _ => return None,
                    }
                }
            }
            Evidence::Apart(kind) => {
                read(facts, &format!("/namespaces/{kind}/differs"), &mut who, |flag| flag == true)?;
                read(facts, &format!("/namespaces/{kind}/inode"), &mut who, Value::is_u64)?;
            }
            Evidence::Group(limit) => {
                facts.pointer("/cgroup/backend").or_else(|| facts.pointer("/witness/cgroup/backend"))?;
                read(facts, &format!("/cgroup/limits/{limit}"), &mut who, |n| n.as_u64().is_some_and(|n| n > 0))?;
            }
            Evidence::Finite(limit) => {
                read(facts, &format!("/rlimits/{limit}/hard"), &mut who, Value::is_u64)?;
            }
            Evidence::Zero(limit) => {
                read(facts, &format!("/rlimits/{limit}/hard"), &mut who, |n| n == 0)?;
            }
            Evidence::NoSurvivor => {
                (facts.get("survivors")? == 0).then_some(())?;
                who.insert(Who::Daemon);
            }
        }
        Some(who)
    }

    /// The fields that a proof by this evidence points to.
    const fn names(&self) -> &'static [&'static str] {
        match self {
            Evidence::Canary(_) => &[],
            Evidence::Ruleset => &["landlock.status", "landlock.abi"],
            Evidence::Filters => &["status.seccomp", "seccomp.filters", "seccomp.after"],
            Evidence::Unprivileged => &["status.no_new_privs", "caps", "ids"],
            Evidence::Apart(_) => &["namespaces"],
            Evidence::Group(_) => &["cgroup.limits"],
            Evidence::Finite(_) | Evidence::Zero(_) => &["rlimits"],
            Evidence::NoSurvivor => &["survivors"],
        }
    }
}

/// The value at a place, by the job's own reading or the daemon's; both, when both read it, must be right and alike.
fn read(facts: &Value, at: &str, who: &mut BTreeSet<Who>, right: impl Fn(&Value) -> bool) -> Option<()> {
    let own = facts.pointer(at);
    let seen = facts.get("witness").and_then(|witness| witness.pointer(at));
    if let (Some(own), Some(seen)) = (own, seen) {
        (own == seen).then_some(())?;
    }
    right(own.or(seen)?).then_some(())?;
    who.extend(own.map(|_| Who::Own).into_iter().chain(seen.map(|_| Who::Daemon)));
    Some(())
}

fn canary(facts: &Value, id: &str) -> bool {
    let list = facts.get("canaries").and_then(Value::as_array).into_iter().flatten();
    let mut found = list.filter(|canary| canary.get("id").is_some_and(|name| name == id));
    let (Some(canary), None) = (found.next(), found.next()) else { return false };
    let text = |name: &str| canary.get(name).and_then(Value::as_str).unwrap_or("none");
    canary_passed(id, text("before"), text("after")) == Some(true)
}

fn is_zero_mask(mask: &Value) -> bool {
    mask.as_str().is_some_and(|text| !text.is_empty() && text.bytes().all(|b| b == b'0'))
}

fn one_identity(list: &Value) -> bool {
    let Some(list) = list.as_array() else { return false };
    let Some(first) = list.first().and_then(Value::as_u64) else { return false };
    first != 0 && list.iter().all(|id| id.as_u64() == Some(first))
}

/// Names every value that both sides have and that is not the same.
fn differences(own: &Value, seen: &Value, at: &str, out: &mut Vec<String>) {
    match (own.as_object(), seen.as_object()) {
        (Some(own), Some(seen)) => {
            for (name, value) in own.iter().filter(|(name, _)| is_word(name)) {
                if let Some(other) = seen.get(name) {
                    differences(value, other, &format!("{at}.{name}"), out);
                }
            }
        }
        _ if own != seen => out.push(at.to_owned()),
        _ => {}
    }
}

const fn protection(name: &'static str, mechanism: &'static str, evidence: &'static [Evidence]) -> Protection {
    Protection { name, mechanism, evidence }
}

const fn canary_of(id: &'static str, before: Before, after: &'static str) -> Canary {
    Canary { id, after, before }
}

use Evidence::{Apart, Canary as By, Filters, Finite, Group, NoSurvivor, Ruleset, Unprivileged, Zero};

/// Everything that can be claimed. "No network" rests on the filter and an empty namespace, never on Landlock's rules
/// for TCP, which other ways of opening a connection pass by.
pub const PROTECTIONS: &[Protection] = &[
    protection("filesystem_read", "landlock", &[By("landlock_read"), Ruleset]),
    protection("filesystem_write", "landlock", &[By("landlock_write"), Ruleset]),
    protection("filesystem_truncate", "landlock", &[By("landlock_truncate"), Ruleset]),
    protection("filesystem_refer", "landlock", &[By("landlock_refer"), Ruleset]),
    protection("signal_scope", "landlock", &[By("landlock_signal"), Ruleset]),
    protection("abstract_socket_scope", "landlock", &[By("landlock_unix"), Ruleset]),
    protection("syscall_filter", "seccomp", &[By("seccomp_live"), Filters]),
    protection("network", "seccomp", &[By("socket_inet"), Apart("net")]),
    protection("unix_sockets", "seccomp", &[By("socket_unix")]),
    protection("socket_pairs", "seccomp", &[By("socketpair")]),
    protection("io_uring", "seccomp", &[By("io_uring")]),
    protection("userfaultfd", "seccomp", &[By("userfaultfd")]),
    protection("perf_events", "seccomp", &[By("perf_event")]),
    protection("keyrings", "seccomp", &[By("add_key")]),
    protection("new_namespaces", "seccomp", &[By("unshare_user"), By("clone3")]),
    protection("foreign_abi", "seccomp", &[By("foreign_abi")]),
    protection("terminal_injection", "seccomp", &[By("tiocsti"), By("controlling_tty")]),
    protection("private_root", "namespaces", &[By("host_root"), Apart("mnt")]),
    protection("read_only_trees", "namespaces", &[By("mount_write")]),
    protection("private_processes", "namespaces", &[Apart("pid")]),
    protection("private_ipc", "namespaces", &[Apart("ipc")]),
    protection("private_hostname", "namespaces", &[Apart("uts")]),
    protection("private_users", "namespaces", &[Apart("user")]),
    protection("private_cgroups", "namespaces", &[Apart("cgroup")]),
    protection("no_privileges", "credentials", &[Unprivileged]),
    protection("no_descriptors", "descriptors", &[By("fds")]),
    protection("file_size_limit", "rlimits", &[By("fsize"), Finite("fsize")]),
    protection("open_files_limit", "rlimits", &[Finite("nofile")]),
    protection("cpu_time_limit", "rlimits", &[Finite("cpu")]),
    protection("no_core_dumps", "rlimits", &[Zero("core")]),
    protection("memory_limit", "cgroup", &[Group("memory_bytes")]),
    protection("process_limit", "cgroup", &[Group("pids")]),
    protection("no_survivors", "kill", &[NoSurvivor]),
];

/// Every canary that proves something.
pub const CANARIES: &[Canary] = &[
    canary_of("landlock_read", Before::Succeeded, "EACCES"),
    canary_of("landlock_write", Before::Succeeded, "EACCES"),
    canary_of("landlock_truncate", Before::Succeeded, "EACCES"),
    canary_of("landlock_refer", Before::Succeeded, "EXDEV"),
    canary_of("landlock_signal", Before::Succeeded, "EPERM"),
    canary_of("landlock_unix", Before::Succeeded, "EPERM"),
    canary_of("seccomp_live", Before::Succeeded, "ENOTUNIQ"),
    canary_of("socket_inet", Before::Succeeded, "EPERM"),
    canary_of("socket_unix", Before::Succeeded, "EPERM"),
    canary_of("socketpair", Before::Succeeded, "EPERM"),
    canary_of("io_uring", Before::Tried, "EPERM"),
    canary_of("userfaultfd", Before::Tried, "EPERM"),
    canary_of("perf_event", Before::Tried, "EPERM"),
    canary_of("add_key", Before::Tried, "EPERM"),
    canary_of("unshare_user", Before::Succeeded, "EPERM"),
    canary_of("clone3", Before::Succeeded, "ENOSYS"),
    canary_of("foreign_abi", Before::Succeeded, "SIGSYS"),
    canary_of("tiocsti", Before::Nothing, "EPERM"),
    canary_of("controlling_tty", Before::Nothing, "ENXIO"),
    canary_of("host_root", Before::Succeeded, "ENOENT"),
    canary_of("mount_write", Before::Nothing, "EROFS"),
    canary_of("fds", Before::Nothing, "EBADF"),
    canary_of("fsize", Before::Nothing, "EFBIG"),
];
