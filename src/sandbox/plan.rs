//! What the house and its launcher say to each other: one plan, then notes. The plan is what was asked for; nothing of it
//! is ever a fact of an attestation. Notes are what was read back.

use super::canary::Canary;
use super::policy::JobPolicy;
use crate::probe::exit_0::Unpack;
use crate::wire::Sha256;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// By which right the launcher builds the sandbox. What differs is declared in every attestation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// As root, in a user namespace: the job's uid exists nowhere else.
    Root,
    /// As root where the kernel gives no user namespace.
    RootWithoutUserNamespace,
    /// As an ordinary user, in a user namespace: the job's uid is the house's own outside.
    User,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub mode: Mode,
    pub policy: JobPolicy,
    pub argv: Vec<String>,
    pub inputs: Vec<PlannedInput>,
    /// Outside ids: of the launcher's root inside, and of the job.
    pub outer_root: u32,
    pub outer_job: u32,
    pub outer_gid: u32,
    /// The group of version 2 that the tree is born in.
    pub born_in: Option<PathBuf>,
    /// Groups of version 1 that it is moved into.
    pub joins: Vec<PathBuf>,
    pub memory_by_group: bool,
    pub processes_by_group: bool,
    pub cpu: usize,
    /// A step that a rehearsal leaves out, to see that its canary objects.
    pub without: Option<Step>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedInput {
    pub path: String,
    pub sha256: Sha256,
    pub unpack: Option<Unpack>,
    pub mode: Option<u32>,
}

/// Every step that can be left out in a rehearsal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    UserNamespace,
    PidNamespace,
    MountNamespace,
    NetNamespace,
    IpcNamespace,
    UtsNamespace,
    CgroupNamespace,
    JoinGroups,
    MemoryLimit,
    ProcessLimit,
    ReadOnlyTrees,
    ReadOnlyRoot,
    RestrictedProc,
    ScratchLimit,
    PivotRoot,
    HostName,
    Session,
    Umask,
    Limits,
    Affinity,
    FixedAddresses,
    OomScore,
    CloseDescriptors,
    DropUser,
    DropCapabilities,
    NoNewPrivs,
    Landlock,
    LandlockFiles,
    LandlockNet,
    LandlockScopes,
    SeccompAllowList,
    SeccompAbsent,
    SeccompMarker,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// A step failed or a canary objected; nothing runs.
    Refused(Refused),
    /// An input is not what it should be.
    Input {
        path: String,
        reason: String,
    },
    Archive {
        path: String,
        reason: String,
    },
    NotExecutable {
        reason: String,
    },
    /// From the job's process, restricted and waiting.
    Proof(Box<Proof>),
    /// From the init: how the job's first process ended.
    Ended {
        status: i32,
        cpu_ms: u64,
        peak_kib: u64,
        /// A signal that somebody outside sent to the whole tree.
        outside: Option<i32>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The protection, or the canary, by name.
    pub item: String,
    pub reason: String,
}

impl Refused {
    pub fn new(item: impl Into<String>, reason: impl Into<String>) -> Refused {
        Refused { item: item.into(), reason: reason.into() }
    }

    pub fn io(item: &str, what: &str) -> impl FnOnce(io::Error) -> Refused {
        move |error| Refused::new(item, format!("{what}: {error}"))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.item, self.reason)
    }
}

/// What the job's process read back of itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct Proof {
    /// The program, and the interpreters that its first line names.
    pub executed: Vec<Executed>,
    pub canaries: Vec<Canary>,
    pub landlock: LandlockFacts,
    /// In the order in which they were loaded.
    pub seccomp: Vec<FilterFacts>,
    /// Lines of /proc/self/status after everything.
    pub status: Vec<(String, String)>,
    pub limits: Vec<(String, u64)>,
    pub hostname: String,
    pub umask: u32,
    pub personality: u32,
    pub processors: usize,
    pub interfaces: Vec<String>,
    pub inputs: Vec<InputFacts>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Executed {
    pub path: String,
    pub sha256: Sha256,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct LandlockFacts {
    pub abi: i32,
    pub errata: u32,
    pub status: String,
    pub handled_fs: u64,
    pub handled_net: u64,
    pub scopes: u64,
    pub rules_sha256: Sha256,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct FilterFacts {
    pub sha256: Sha256,
    pub instructions: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InputFacts {
    pub path: String,
    pub sha256: Sha256,
    pub bytes: u64,
    pub entries: u64,
}

impl Plan {
    pub fn keeps(&self, step: Step) -> bool {
        self.without != Some(step)
    }

    /// The job's uid and gid as it sees them.
    pub fn inner_id(&self) -> u32 {
        match self.mode {
            Mode::RootWithoutUserNamespace => self.outer_job,
            Mode::Root | Mode::User => JOB_ID,
        }
    }
}

/// Inside, the same on every host.
pub const JOB_ID: u32 = 1_000;
pub const HOST_NAME: &str = "job";
pub const JOB_UMASK: u32 = 0o077;
/// The descriptor on which the job's process reports and waits.
pub const REPORT_FD: i32 = 3;
