//! The facts of a run, for its attestation. A field is here only if it was read back from the kernel or shown by a canary;
//! what was merely asked for is named under `requested` by the hash of its policy and nowhere else. Which protections they
//! prove is not said here: [`crate::attest::proved`] derives it, for the self-test as for the attestation.

use super::group::Backend;
use super::plan::{Mode, Plan};
use super::run::Run;
use super::{Job, sys};
use crate::attest;
use crate::wire::Sha256;
use crate::wire::json::canonical_sha256;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What no run here can fix, and no attestation claims, by the name that attestations use; those that every sandbox of
/// this kind has in common stand there ([`crate::attest::document::FIXED`]).
pub const NOT_CLAIMED: &[(&str, &str)] = &[
    ("readable_trees", "the content of the readable trees beyond the programs that were hashed"),
    (
        "host_resources",
        "that the host always had processes, memory, open files and a sound disk to spare: what the kernel counts of that is told and decides nothing, a single call that failed for want of it is not told",
    ),
    (
        "outside_signals",
        "that nobody with power over the host sent a process of the job a signal: one to the whole tree is told and decides nothing, one to a single process looks like the job's own",
    ),
    ("agreed_time", "that the host was as quick as the parties took it to be when they agreed on a time"),
];

pub fn state(run: &Run<'_>) -> Value {
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| {
        out.insert(name.to_owned(), value);
    };
    let (release, machine) = sys::kernel();
    put("schema", json!("verifica.sandbox-facts/1"));
    put("requested", requested(run.job));
    put("kernel", json!({"release": release, "machine": machine, "boot_id": boot_id()}));
    if let Some(sha256) = run.launcher {
        put("launcher_sha256", json!(sha256));
    }
    put("started", json!(run.started));
    put("exit", attest::exit_of(&run.report.end));
    put("survivors", json!(run.survivors));
    put("not_claimed", json!(not_claimed(run.plan, run.backend)));
    if let Some(proof) = run.proof {
        put("executable_sha256", json!(proof.executed.last().map(|e| e.sha256)));
        put("executed", json!(proof.executed));
        put("inputs", json!(proof.inputs));
        put("landlock", json!(proof.landlock));
        put("seccomp", json!(proof.seccomp));
        put("canaries", json!(proof.canaries));
        put("status", json!(pairs(&proof.status)));
        put(
            "rlimits",
            json!(proof.limits.iter().map(|(name, value)| (name.clone(), limit(*value))).collect::<BTreeMap<_, _>>()),
        );
        put(
            "determinism",
            json!({"hostname": proof.hostname, "umask": format!("{:04o}", proof.umask), "fixed_addresses": proof.personality & libc::ADDR_NO_RANDOMIZE as u32 != 0, "processors": proof.processors}),
        );
        put("interfaces", json!(proof.interfaces));
    }
    if let Some(witness) = run.witness {
        put("seccomp_filters_before", json!(witness.filters_before));
        put("rootfs_sha256", json!(canonical_sha256(&json!(witness.mounts))));
        put("witness", json!(witness));
    }
    if run.backend != Backend::None {
        put(
            "cgroup",
            json!({"backend": run.backend, "memory_limit": run.witness.and_then(|w| w.memory_limit), "process_limit": run.witness.and_then(|w| w.process_limit), "memory_peak": run.usage.memory_peak, "oom_kill": run.usage.oom_kills, "pids_max_hits": run.usage.processes_refused}),
        );
    }
    if !run.missing.is_empty() {
        put("cgroup_missing", json!(run.missing));
    }
    if run.started {
        put("wall_ms", json!(run.report.wall_ms));
        if let Some(cpu) = run.report.cpu_ms {
            put("cpu_ms", json!(cpu));
        }
        put("stdout", run.report.stdout.fact());
        put("stderr", run.report.stderr.fact());
    }
    if let Value::Object(map) = &mut json!(out) {
        map.retain(|_, value| !value.is_null());
        return Value::Object(std::mem::take(map));
    }
    Value::Null
}

/// What was asked for, by hash: a document of a run names its job by it, and claims nothing with it.
pub fn requested(job: &Job) -> Value {
    json!({
        "policy": job.policy.name, "policy_sha256": job.policy.sha256(),
        "argv_sha256": canonical_sha256(&json!(job.argv)),
        "environment_sha256": canonical_sha256(&json!(job.policy.environment)), "stdin_sha256": Sha256::of(b""),
    })
}

/// Everything that is never claimed.
pub fn never_claimed() -> Vec<Value> {
    let all = attest::document::FIXED.iter().chain(NOT_CLAIMED);
    all.map(|(id, reason)| json!({"id": id, "reason": reason})).collect()
}

fn not_claimed(plan: &Plan, backend: Backend) -> Vec<Value> {
    let mut out = never_claimed();
    let mut add = |id: &str, reason: &str| out.push(json!({"id": id, "reason": reason}));
    match plan.mode {
        Mode::Root => {}
        Mode::RootWithoutUserNamespace => add("user_namespace", "a user namespace: this host gives none"),
        Mode::User => {
            add("own_uid", "a uid of the job's own: outside it has the uid of the house");
            add("groups_dropped", "an ordinary user may not drop supplementary groups in a user namespace");
        }
    }
    if backend == Backend::None {
        add("tree_memory", "a memory bound for the whole tree: each process is bounded, and their number");
    }
    if !plan.policy.fixed_addresses {
        add("fixed_addresses", "addresses differ from run to run");
    }
    out
}

fn pairs(lines: &[(String, String)]) -> BTreeMap<&str, &str> {
    lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// "Unlimited" is not a number that a document may carry.
fn limit(value: u64) -> Value {
    if value > crate::limits::SAFE_INTEGER_MAX { json!("unlimited") } else { json!(value) }
}

fn boot_id() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}
