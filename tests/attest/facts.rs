//! Facts of a job as a sandbox with everything in force reads them back, and documents signed over them.

use serde_json::{Value, json};
use verifica::attest::dsse::Envelope;
use verifica::attest::{About, Attestation, attest, statement};
use verifica::refusal::Refusal;
use verifica::time::Timestamp;
use verifica::wire::Sha256;
use verifica::wire::key::SigningKey;

pub fn key() -> SigningKey {
    SigningKey::from_seed([7; 32])
}

pub fn hash(of: &str) -> String {
    Sha256::of(of).hex()
}

pub fn about() -> About<'static> {
    About {
        job: "6f0c1a52-7f0e-4c38-9c1d-0a9f2d7b1c11",
        at: Timestamp::from_millis(1_790_000_000_123),
        house: Some("mar.example"),
        by: Some("verifica@mar.example"),
        contract: Some("c-1"),
        contract_sha256: Some(Sha256::of("contract")),
        policy_name: "default",
        policy_sha256: Sha256::of("policy"),
    }
}

/// Canaries as they come out where everything is in force: id, before, after.
const CANARIES: &[(&str, &str, &str)] = &[
    ("root.host_paths", "3 in sight", "none in sight"),
    ("root.read_only", "/usr", "EROFS"),
    ("root.read_only", "/opt", "EROFS"),
    ("root.closed", "/dev", "EROFS"),
    ("session.own", "2", "2"),
    ("session.terminal", "", "ENXIO"),
    ("determinism.hostname", "job", "job"),
    ("determinism.addresses", "", "0x40000"),
    ("limits.core", "0", "0 0"),
    ("limits.nofile", "256", "256 256"),
    ("limits.nproc", "64", "64 64"),
    ("limits.file_size", "done", "EFBIG"),
    ("limits.memory", "done", "ENOMEM"),
    ("descriptors.none", "", "none"),
    ("network.interfaces", "", "lo"),
    ("no_new_privs", "0", "1"),
    ("landlock.read", "done", "EACCES"),
    ("landlock.list", "done", "EACCES"),
    ("landlock.write", "done", "EACCES"),
    ("landlock.create", "done", "EACCES"),
    ("landlock.remove", "done", "EACCES"),
    ("landlock.truncate", "done", "EACCES"),
    ("landlock.link", "done", "EXDEV"),
    ("landlock.execute", "ENOEXEC", "EACCES"),
    ("landlock.device", "ENOTTY", "EACCES"),
    ("landlock.signal", "done", "EPERM"),
    ("landlock.abstract", "done", "EPERM"),
    ("landlock.bind", "done", "EACCES"),
    ("seccomp.io_uring", "EFAULT", "EPERM"),
    ("seccomp.bpf", "EPERM", "EPERM"),
    ("seccomp.keyctl", "EOPNOTSUPP", "EPERM"),
    ("seccomp.ptrace", "ESRCH", "EPERM"),
    ("seccomp.unshare", "done", "EPERM"),
    ("seccomp.mount", "EFAULT", "EPERM"),
    ("seccomp.tiocsti", "ENOTTY", "EPERM"),
    ("seccomp.unknown", "ENOSYS", "EPERM"),
    ("seccomp.absent", "EINVAL", "ENOSYS"),
    ("seccomp.chmod", "EBADF", "EPERM"),
    ("seccomp.x32", "ENOSYS", "EPERM"),
    ("seccomp.foreign_abi", "done", "signal 31"),
    ("seccomp.marker", "done", "ENOTUNIQ"),
    ("network.inet", "done", "EPERM"),
    ("network.udp", "done", "EPERM"),
    ("network.vsock", "EAFNOSUPPORT", "EPERM"),
    ("network.unix", "done", "EPERM"),
    ("network.pair", "done", "EPERM"),
    ("network.pair_inet", "EOPNOTSUPP", "EPERM"),
];

pub fn facts() -> Value {
    let canary = |(id, before, after): &(&str, &str, &str)| {
        let protection = id.split('.').next().unwrap_or_default();
        json!({"id": id, "protection": protection, "before": before, "after": after, "ok": true})
    };
    let canaries: Vec<Value> = CANARIES.iter().map(canary).collect();
    let namespace = |inode: u64| json!({"inode": inode, "differs": true});
    let none = "0000000000000000";
    let status = |id: &str| {
        let ids = [id; 4].join(" ");
        json!({
            "Uid": ids, "Gid": ids, "Groups": "", "CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none,
            "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "3",
        })
    };
    let mut seen = status("200000");
    seen["Cpus_allowed_list"] = json!("1");
    json!({
        "schema": "verifica.sandbox-facts/1", "enforcement_backend": "landlock+seccomp+namespaces+cgroup2+cgroup1",
        "requested": {
            "policy": "default", "policy_sha256": hash("policy"), "argv_sha256": hash("argv"),
            "environment_sha256": hash("env"), "stdin_sha256": hash(""),
        },
        "executable_sha256": hash("program"),
        "executed": [{"path": "/usr/bin/test", "sha256": hash("program")}],
        "capability_proof": {"everything": {"applied": true}},
        "not_claimed": ["the vsyscall page (time only)", "a uid of the job's own: outside it has the uid of the house"],
        "inputs": [
            {"path": "delivery/a.txt", "sha256": hash("a"), "bytes": 1, "entries": 1},
            {"path": "b", "sha256": hash("b"), "bytes": 1, "entries": 1},
        ],
        "rootfs_sha256": hash("root"), "launcher_sha256": hash("launcher"),
        "kernel": {"release": "6.18.44", "machine": "x86_64", "boot_id": "b0", "config_sha256": hash("config")},
        "landlock": {
            "abi": 7, "errata": 7, "status": "fully_enforced", "handled_fs": 65_535, "handled_net": 3, "scopes": 3,
            "rules_sha256": hash("rules"),
        },
        "seccomp": [{"sha256": hash("f1"), "instructions": 118}, {"sha256": hash("f2"), "instructions": 9}],
        "seccomp_filters_before": 1,
        "status": status("1000"),
        "rlimits": {"core": 0, "nofile": 256, "fsize": 67_108_864, "cpu": 61, "nproc": 64, "as": u64::MAX},
        "determinism": {"hostname": "job", "umask": "0077", "fixed_addresses": true, "processors": 1}, "interfaces": ["lo"],
        "cgroup": {
            "backend": "hybrid", "memory_limit": 536_870_912, "process_limit": 65, "memory_peak": 1_404_928, "oom_kill": 0,
            "pids_max_hits": 0,
        },
        "canaries": canaries,
        "witness": {
            "pid": 4711, "status": seen,
            "namespaces": {
                "user": namespace(4_026_532_101), "pid": namespace(4_026_532_102), "mnt": namespace(4_026_532_103),
                "net": namespace(4_026_532_104), "ipc": namespace(4_026_532_105), "uts": namespace(4_026_532_106),
                "cgroup": namespace(4_026_532_107),
            },
            "groups": ["5:pids:/verifica-1"], "uid_map": "0 100000 1 1000 200000 1", "gid_map": "1000 200000 1",
            "limits": {
                "core": "0 0", "nofile": "256 256", "fsize": "67108864 67108864", "cpu": "61 61",
                "as": "unlimited unlimited",
            },
            "mounts": ["/ tmpfs ro,nosuid,nodev"], "descriptors": [0, 1, 2, 3, 4], "oom_score_adj": "1000",
            "memory_limit": 536_870_912, "process_limit": 65,
        },
        "started": true, "exit": {"code": 0}, "wall_ms": 12, "cpu_ms": 3,
        "stdout": {"bytes": 3, "truncated": false, "sha256": hash("ok\n")},
        "stderr": {"bytes": 0, "truncated": false, "sha256": hash("")},
        "survivors": 0,
    })
}

pub fn refused(mechanism: &str) -> Value {
    json!({
        "kernel": {"release": "5.10.0"}, "started": false,
        "survivors": 0, "exit": {"refused": mechanism, "reason": "the kernel does not offer it"},
    })
}

pub fn whole() -> Attestation {
    attest(&about(), &facts(), &key()).expect("attested")
}

/// What a signer that lies would make: any document, with both signatures right.
pub fn signed(mut doc: Value) -> Value {
    let object = doc.as_object_mut().expect("object");
    object.remove("signature");
    object.remove("dsse");
    let payload = statement::payload(object).into_bytes();
    let envelope = Envelope::sign(statement::PAYLOAD_TYPE, payload, &key());
    doc["dsse"] = json!(envelope.signatures[0].text());
    key().sign_object(&mut doc, "signature");
    doc
}

/// The document of a whole run, changed and signed again.
pub fn forged(change: impl FnOnce(&mut Value)) -> Result<Attestation, Refusal> {
    let mut doc = whole().doc().clone();
    change(&mut doc);
    Attestation::parse(signed(doc))
}

pub fn reason(of: Result<Attestation, Refusal>) -> String {
    of.map(|a| format!("accepted, claims {:?}", a.claims())).unwrap_or_else(|refusal| refusal.reason)
}
