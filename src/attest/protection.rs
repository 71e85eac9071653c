//! What may be claimed, and what proves it. The table is the whole rule: a protection holds when each piece of its
//! evidence does, and is otherwise not claimed. The names are those that a policy requires.
//!
//! A canary counts when what it tried went otherwise before the step and met the expected refusal after it; a refusal
//! alone proves nothing, except where the host may deny the thing by itself, which is then on record. A read-back counts
//! when whoever read it, the job's own process or the daemon from outside, found the value, and nobody found another.

use serde_json::{Value, json};
use std::collections::BTreeSet;

/// One protection, the mechanism that gives it, and the evidence that must be there, all of it.
#[derive(Clone, Copy, Debug)]
pub struct Protection {
    pub name: &'static str,
    pub mechanism: &'static str,
    /// Canaries without which it is not shown. Others of its name must have passed too, if they were tried.
    pub canaries: &'static [&'static str],
    read_back: &'static [ReadBack],
}

/// That a protection held, and how it is known.
#[derive(Clone, Debug)]
pub struct Proof {
    pub protection: &'static Protection,
    pub canaries: Vec<String>,
    pub read_back: Vec<&'static str>,
    /// `self`, `daemon` or `both`.
    pub witness: &'static str,
}

/// When a canary has passed.
#[derive(Clone, Copy, Debug)]
pub enum Pass {
    /// One of these came after the step, and something else before it.
    Became(&'static [&'static str]),
    /// One of these after the step; before it anything, which is recorded: a kernel may not offer the thing at all.
    Refused(&'static [&'static str]),
    /// These two, exactly.
    Exactly(&'static str, &'static str),
    /// After the step what was asked for before it, once or twice over.
    AsAsked,
    /// Any error at all; there is no state in which it could have worked.
    AnyError,
    /// Something was in sight, and nothing is.
    OutOfSight,
}

#[derive(Clone, Copy, Debug)]
enum ReadBack {
    /// Landlock enforces a whole ruleset.
    Ruleset,
    /// As many filters are in force as were loaded, beside those that were there.
    Filters,
    NoNewPrivs,
    /// No capability in any set.
    NoCapabilities,
    /// One user and one group that are not root's.
    OneUser,
    NoGroups,
    /// The namespace of this type is not the host's.
    Apart(&'static str),
    /// The control group limits memory, or processes.
    Group(&'static str),
    /// What the daemon reads of a limit is what the process reads, and is finite.
    Limits,
    OneProcessor,
    /// Nobody of the tree was alive at the end.
    NoSurvivor,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Own,
    Daemon,
}

impl Protection {
    pub fn named(name: &str) -> Option<&'static Protection> {
        PROTECTIONS.iter().find(|protection| protection.name == name)
    }

    /// The proof, if the facts hold one.
    pub fn proof(&'static self, facts: &Value) -> Option<Proof> {
        let mut who = BTreeSet::new();
        let mut canaries: Vec<String> = Vec::new();
        for canary in facts.get("canaries").and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| canary.get(name).and_then(Value::as_str).unwrap_or_default();
            let id = text("id");
            if !self.owns(id) {
                continue;
            }
            // One that did not pass takes the protection with it, however often it passed elsewhere.
            canary_passed(id, text("before"), text("after")).filter(|passed| *passed)?;
            who.insert(Who::Own);
            if !canaries.iter().any(|known| known == id) {
                canaries.push(id.to_owned());
            }
        }
        let tried = |needed: &&str| canaries.iter().any(|id| id == needed);
        self.canaries.iter().all(tried).then_some(())?;
        let mut read_back = Vec::new();
        for evidence in self.read_back {
            who.append(&mut evidence.holds(facts)?);
            read_back.extend(evidence.names());
        }
        let witness = match (who.contains(&Who::Own), who.contains(&Who::Daemon)) {
            (true, true) => "both",
            (false, true) => "daemon",
            _ => "self",
        };
        Some(Proof { protection: self, canaries, read_back, witness })
    }

    fn owns(&self, id: &str) -> bool {
        let listed = self.canaries.contains(&id);
        let elsewhere = || PROTECTIONS.iter().any(|other| other.canaries.contains(&id));
        let family = || id.strip_prefix(self.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        listed || (family() && !elsewhere())
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

/// Everything that the facts prove, in the order of the table. What a policy demands is compared with this before a job
/// may start, and the document claims exactly this afterwards. Where a thing is had in two ways, the first that is
/// proved stands.
pub fn proved(facts: &Value) -> Vec<Proof> {
    let mut out: Vec<Proof> = Vec::new();
    for protection in PROTECTIONS {
        if out.iter().all(|known| known.protection.name != protection.name) {
            out.extend(protection.proof(facts));
        }
    }
    out
}

/// Whether a canary of this outcome shows its protection at work; `None` for a canary that this version does not know.
pub fn canary_passed(id: &str, before: &str, after: &str) -> Option<bool> {
    let exact = CANARIES.iter().find(|(name, _)| *name == id);
    let family = || FAMILIES.iter().find(|(name, _)| id.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')));
    let (_, pass) = exact.or_else(family)?;
    Some(match pass {
        Pass::Became(wanted) => wanted.contains(&after) && !before.is_empty() && !wanted.contains(&before),
        Pass::Refused(wanted) => wanted.contains(&after) && !before.is_empty(),
        Pass::Exactly(first, then) => before == *first && after == *then,
        Pass::AsAsked => !before.is_empty() && (after == before || after == format!("{before} {before}")),
        Pass::AnyError => after.starts_with('E') || after.starts_with("errno "),
        Pass::OutOfSight => before.ends_with(" in sight") && !before.starts_with("0 ") && after == "none in sight",
    })
}

/// Where the job's own process and the daemon read different values for one thing.
pub(super) fn disagreements(facts: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let names = |section: &str| facts.get(section).and_then(Value::as_object).into_iter().flatten();
    for (name, own) in names("status").filter(|(name, _)| !PRIVATE_VIEW.contains(&name.as_str())) {
        if witness(facts, "status", name).is_some_and(|seen| seen != own) {
            out.push(format!("status.{name}"));
        }
    }
    for (name, own) in names("rlimits") {
        if witness(facts, "limits", name).is_some_and(|seen| !same_limit(own, seen)) {
            out.push(format!("rlimits.{name}"));
        }
    }
    for (kind, own) in names("namespaces") {
        if witness(facts, "namespaces", kind).is_some_and(|seen| seen != own) {
            out.push(format!("namespaces.{kind}"));
        }
    }
    out
}

impl ReadBack {
    /// Who saw it, if it was seen and nobody saw anything else.
    fn holds(&self, facts: &Value) -> Option<BTreeSet<Who>> {
        let mut who = BTreeSet::new();
        match self {
            ReadBack::Ruleset => {
                let landlock = facts.get("landlock")?;
                let whole = landlock.get("status")? == "fully_enforced" && landlock.get("abi")?.as_u64()? > 0;
                whole.then_some(())?;
                who.insert(Who::Own);
            }
            ReadBack::Filters => {
                status(facts, "Seccomp", &mut who, |mode| mode == "2")?;
                let loaded = facts.get("seccomp")?.as_array()?.len();
                let loaded = u64::try_from(loaded).ok().filter(|loaded| *loaded > 0)?;
                let before = facts.get("seccomp_filters_before").and_then(Value::as_u64);
                status(facts, "Seccomp_filters", &mut who, |count| {
                    let Ok(count) = count.parse::<u64>() else { return false };
                    before.map_or(count >= loaded, |before| before.checked_add(loaded) == Some(count))
                })?;
            }
            ReadBack::NoNewPrivs => status(facts, "NoNewPrivs", &mut who, |flag| flag == "1")?,
            ReadBack::NoCapabilities => {
                for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                    status(facts, set, &mut who, |mask| !mask.is_empty() && mask.bytes().all(|b| b == b'0'))?;
                }
            }
            ReadBack::OneUser => {
                // Identities differ between the two views: each is judged for itself.
                for name in ["Uid", "Gid"] {
                    status(facts, name, &mut who, one_identity)?;
                }
            }
            ReadBack::NoGroups => status(facts, "Groups", &mut who, str::is_empty)?,
            ReadBack::Apart(kind) => {
                let own = facts.get("namespaces").and_then(|list| list.get(*kind));
                let seen = witness(facts, "namespaces", kind);
                either(own, seen, &mut who, |found| {
                    found.get("differs") == Some(&Value::Bool(true)) && found.get("inode").is_some_and(Value::is_u64)
                })?;
                (own.is_none() || seen.is_none() || own == seen).then_some(())?;
            }
            ReadBack::Group(limit) => {
                let backend = facts.pointer("/cgroup/backend")?.as_str()?;
                (backend != "none").then_some(())?;
                let own = facts.get("cgroup").and_then(|group| group.get(*limit)).filter(|limit| !limit.is_null());
                let seen = facts.get("witness").and_then(|seen| seen.get(*limit)).filter(|limit| !limit.is_null());
                either(own, seen, &mut who, |limit| limit.as_u64().is_some_and(|limit| limit > 0))?;
                (own.is_none() || seen.is_none() || own == seen).then_some(())?;
            }
            ReadBack::Limits => {
                for name in ["core", "nofile", "fsize", "cpu"] {
                    let own = facts.get("rlimits").and_then(|list| list.get(name));
                    let seen = witness(facts, "limits", name);
                    let finite = |limit: &Value| {
                        limit.is_u64() || limit.as_str().is_some_and(|text| text.split(' ').all(is_number))
                    };
                    either(own, seen, &mut who, finite)?;
                    if let (Some(own), Some(seen)) = (own, seen) {
                        same_limit(own, seen).then_some(())?;
                    }
                }
            }
            ReadBack::OneProcessor => {
                (facts.pointer("/determinism/processors")? == 1).then_some(())?;
                who.insert(Who::Own);
                if let Some(seen) = witness(facts, "status", "Cpus_allowed_list") {
                    seen.as_str().is_some_and(is_number).then_some(())?;
                    who.insert(Who::Daemon);
                }
            }
            ReadBack::NoSurvivor => {
                (facts.get("survivors")? == 0).then_some(())?;
                who.insert(Who::Daemon);
            }
        }
        Some(who)
    }

    /// The fields that a proof by this evidence points to.
    const fn names(&self) -> &'static [&'static str] {
        match self {
            ReadBack::Ruleset => &["landlock.status", "landlock.abi"],
            ReadBack::Filters => &["seccomp", "status.Seccomp", "status.Seccomp_filters"],
            ReadBack::NoNewPrivs => &["status.NoNewPrivs"],
            ReadBack::NoCapabilities => {
                &["status.CapInh", "status.CapPrm", "status.CapEff", "status.CapBnd", "status.CapAmb"]
            }
            ReadBack::OneUser => &["status.Uid", "status.Gid"],
            ReadBack::NoGroups => &["status.Groups"],
            ReadBack::Apart(_) => &["namespaces"],
            ReadBack::Group(_) => &["cgroup"],
            ReadBack::Limits => &["rlimits"],
            ReadBack::OneProcessor => &["determinism.processors"],
            ReadBack::NoSurvivor => &["survivors"],
        }
    }
}

/// A line of the process's status, by its own reading or the daemon's; both must be right, and alike unless the line is
/// one that a namespace shows otherwise.
fn status(facts: &Value, name: &str, who: &mut BTreeSet<Who>, right: impl Fn(&str) -> bool) -> Option<()> {
    let own = facts.get("status").and_then(|lines| lines.get(name));
    let seen = witness(facts, "status", name);
    either(own, seen, who, |line| line.as_str().is_some_and(&right))?;
    (own.is_none() || seen.is_none() || own == seen || PRIVATE_VIEW.contains(&name)).then_some(())
}

fn either(
    own: Option<&Value>,
    seen: Option<&Value>,
    who: &mut BTreeSet<Who>,
    right: impl Fn(&Value) -> bool,
) -> Option<()> {
    own.or(seen)?;
    own.into_iter().chain(seen).all(right).then_some(())?;
    who.extend(own.map(|_| Who::Own).into_iter().chain(seen.map(|_| Who::Daemon)));
    Some(())
}

fn witness<'a>(facts: &'a Value, section: &str, name: &str) -> Option<&'a Value> {
    facts.get("witness")?.get(section)?.get(name)
}

/// The process reads one number, the daemon the soft and the hard one as text.
fn same_limit(own: &Value, seen: &Value) -> bool {
    let own = match own {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    seen.as_str().is_some_and(|text| text.split(' ').all(|limit| limit == own))
}

fn one_identity(line: &str) -> bool {
    let ids: Vec<&str> = line.split(' ').collect();
    ids.len() == 4 && ids.iter().all(|id| Some(id) == ids.first() && is_number(id) && *id != "0")
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 20 && text.bytes().all(|b| b.is_ascii_digit())
}

const fn held(
    name: &'static str,
    mechanism: &'static str,
    canaries: &'static [&'static str],
    read_back: &'static [ReadBack],
) -> Protection {
    Protection { name, mechanism, canaries, read_back }
}

use ReadBack::{
    Apart, Filters, Group, Limits, NoCapabilities, NoGroups, NoNewPrivs, NoSurvivor, OneProcessor, OneUser, Ruleset,
};

/// Everything that can be claimed. "No network" rests on the filter and an empty namespace, never on Landlock's rules
/// for TCP, which other ways of opening a connection pass by. A name that stands twice is had in either way.
pub const PROTECTIONS: &[Protection] = &[
    held(
        "landlock",
        "landlock",
        &[
            "landlock.read",
            "landlock.list",
            "landlock.write",
            "landlock.create",
            "landlock.remove",
            "landlock.truncate",
            "landlock.link",
            "landlock.execute",
            "landlock.device",
            "landlock.signal",
            "landlock.abstract",
        ],
        &[Ruleset],
    ),
    held(
        "seccomp",
        "seccomp",
        &[
            "seccomp.marker",
            "seccomp.absent",
            "seccomp.unknown",
            "seccomp.unshare",
            "seccomp.mount",
            "seccomp.ptrace",
            "seccomp.io_uring",
            "seccomp.bpf",
            "seccomp.keyctl",
            "seccomp.tiocsti",
        ],
        &[Filters],
    ),
    held("no_new_privs", "prctl", &[], &[NoNewPrivs]),
    held("capabilities", "credentials", &[], &[NoCapabilities]),
    held("ids", "credentials", &[], &[OneUser]),
    held("groups", "credentials", &[], &[NoGroups]),
    held("namespace.user", "namespaces", &[], &[Apart("user")]),
    held("namespace.pid", "namespaces", &[], &[Apart("pid")]),
    held("namespace.mnt", "namespaces", &[], &[Apart("mnt")]),
    held("namespace.net", "namespaces", &[], &[Apart("net")]),
    held("namespace.ipc", "namespaces", &[], &[Apart("ipc")]),
    held("namespace.uts", "namespaces", &["determinism.hostname"], &[Apart("uts")]),
    held("namespace.cgroup", "namespaces", &[], &[Apart("cgroup")]),
    held("root", "namespaces", &["root.host_paths", "root.read_only", "root.closed"], &[Apart("mnt")]),
    held("descriptors", "descriptors", &["descriptors.none"], &[]),
    held("session", "session", &["session.own", "session.terminal"], &[]),
    held("limits", "rlimits", &["limits.file_size"], &[Limits]),
    held(
        "network",
        "seccomp",
        &["network.inet", "network.udp", "network.unix", "network.interfaces"],
        &[Apart("net"), Filters],
    ),
    held("processes", "cgroup", &[], &[Group("process_limit")]),
    held("processes", "rlimits", &["limits.nproc"], &[]),
    held("memory", "cgroup", &[], &[Group("memory_limit")]),
    held("memory", "rlimits", &["limits.memory"], &[]),
    held("processes.group", "cgroup", &[], &[Group("process_limit")]),
    held("memory.group", "cgroup", &[], &[Group("memory_limit")]),
    held("determinism", "affinity", &[], &[OneProcessor]),
    held("no_survivors", "kill", &[], &[NoSurvivor]),
];

/// Canaries with a rule of their own.
pub const CANARIES: &[(&str, Pass)] = &[
    ("landlock.link", Pass::Became(&["EACCES", "EXDEV"])),
    ("landlock.signal", Pass::Became(&["EPERM"])),
    ("landlock.abstract", Pass::Became(&["EPERM"])),
    ("seccomp.marker", Pass::Became(&["ENOTUNIQ"])),
    ("seccomp.absent", Pass::Became(&["ENOSYS"])),
    ("seccomp.chmod", Pass::Became(&["EPERM"])),
    ("seccomp.x32", Pass::Became(&["EPERM"])),
    ("seccomp.foreign_abi", Pass::Exactly("done", "signal 31")),
    ("network.inet", Pass::Became(&["EPERM"])),
    ("network.udp", Pass::Became(&["EPERM"])),
    ("network.unix", Pass::Became(&["EPERM"])),
    ("network.pair", Pass::Became(&["EPERM"])),
    ("network.pair_inet", Pass::Became(&["EPERM"])),
    ("network.interfaces", Pass::Exactly("", "lo")),
    ("root.host_paths", Pass::OutOfSight),
    ("session.own", Pass::AsAsked),
    ("session.terminal", Pass::AnyError),
    ("limits.file_size", Pass::Exactly("done", "EFBIG")),
    ("limits.memory", Pass::Exactly("done", "ENOMEM")),
    ("descriptors.none", Pass::Exactly("", "none")),
    ("ids.alone", Pass::Exactly("EAGAIN", "done")),
    ("no_new_privs", Pass::Exactly("0", "1")),
    ("determinism.hostname", Pass::AsAsked),
    ("determinism.addresses", Pass::Exactly("", "0x40000")),
];

/// The rule of every other canary whose id begins so.
pub const FAMILIES: &[(&str, Pass)] = &[
    ("landlock", Pass::Became(&["EACCES"])),
    ("seccomp", Pass::Refused(&["EPERM"])),
    ("network", Pass::Refused(&["EPERM"])),
    ("root", Pass::Refused(&["EROFS"])),
    ("limits", Pass::AsAsked),
];

/// Lines that a user namespace shows differently inside and outside.
const PRIVATE_VIEW: &[&str] = &["Uid", "Gid", "Groups"];
