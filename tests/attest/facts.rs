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

pub fn facts() -> Value {
    let namespace = |inode: u64| json!({"inode": inode, "differs": true});
    let namespaces = json!({
        "user": namespace(4_026_532_101), "pid": namespace(4_026_532_102), "mnt": namespace(4_026_532_103),
        "net": namespace(4_026_532_104), "ipc": namespace(4_026_532_105), "uts": namespace(4_026_532_106),
        "cgroup": namespace(4_026_532_107),
    });
    let none = "0000000000000000";
    let caps = json!({"inheritable": none, "permitted": none, "effective": none, "bounding": none, "ambient": none});
    let limit = |n: u64| json!({"soft": n, "hard": n});
    let rlimits = json!({
        "core": limit(0), "nofile": limit(64), "fsize": limit(67_108_864), "cpu": limit(31),
        "stack": {"soft": 8_388_608, "hard": "unlimited"},
    });
    let cgroup_limits = json!({"memory_bytes": 268_435_456, "pids": 64});
    json!({
        "executable": {"sha256": hash("program")},
        "argv_sha256": hash("argv"), "env_sha256": hash("env"), "stdin_sha256": hash(""),
        "inputs": [{"path": "delivery/a.txt", "sha256": hash("a")}, {"path": "b", "sha256": hash("b")}],
        "rootfs": {"sha256": hash("root")}, "launcher": {"sha256": hash("launcher")},
        "kernel": {"release": "6.18.44", "machine": "x86_64", "boot_id": "b0", "config_sha256": hash("config")},
        "landlock": {
            "abi": 7, "handled_fs": "ffff", "handled_net": "3", "scopes": "3", "rules_sha256": hash("rules"),
            "errata": 7, "status": "fully_enforced",
        },
        "seccomp": {
            "filters": [{"sha256": hash("f1"), "insns": 118}, {"sha256": hash("f2"), "insns": 9}],
            "before": 1, "after": 3,
        },
        "status": {"no_new_privs": 1, "seccomp": 2},
        "namespaces": namespaces, "caps": caps, "rlimits": rlimits,
        "ids": {"uid": [1000, 1000, 1000, 1000], "gid": [1000, 1000, 1000, 1000], "groups": []},
        "cgroup": {
            "backend": "hybrid", "limits": cgroup_limits, "peak_bytes": 1_404_928, "oom_kill": 0, "pids_max_hits": 0,
        },
        "canaries": verifica::attest::protection::CANARIES.iter().map(|canary| json!({
            "id": canary.id,
            "before": match canary.before {
                verifica::attest::protection::Before::Nothing => "none",
                _ => "ok",
            },
            "after": canary.after,
        })).collect::<Vec<_>>(),
        "witness": {
            "status": {"no_new_privs": 1, "seccomp": 2, "seccomp_filters": 3},
            "ids": {"uid": [200_000, 200_000, 200_000, 200_000], "gid": [200_000, 200_000, 200_000, 200_000], "groups": []},
            "caps": caps, "namespaces": namespaces, "rlimits": rlimits,
            "cgroup": {"limits": cgroup_limits, "member": true},
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
        "exit": {"refused": {"mechanism": mechanism, "reason": "the kernel does not offer it", "errno": "ENOSYS"}},
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
    of.map(|a| format!("accepted: {}", a.doc())).unwrap_or_else(|refusal| refusal.reason)
}
