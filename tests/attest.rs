//! Attestations: what is claimed follows from what was read back, and nothing that was changed, forged or contradictory
//! passes, whoever signed it (V63).

#[path = "attest/facts.rs"]
mod facts;

use facts::{about, facts, forged, hash, key, reason, refused, signed, whole};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use verifica::attest::dsse::Envelope;
use verifica::attest::protection::canary_passed;
use verifica::attest::statement::{self, Statement};
use verifica::attest::{Attestation, End, PROTECTIONS, Protection, attest, proved};
use verifica::limits;
use verifica::refusal::Rule;
use verifica::wire::json::{canonical, parse};

/// Every name that can be claimed, once.
fn names() -> Vec<&'static str> {
    let mut out: Vec<&str> = Vec::new();
    for protection in PROTECTIONS {
        if !out.contains(&protection.name) {
            out.push(protection.name);
        }
    }
    out
}

#[test]
fn a_whole_run_claims_everything_and_says_what_it_cannot() {
    let attestation = whole();
    assert_eq!(attestation.claims(), names());
    assert_eq!(attestation.end(), &End::Code(0));
    assert_eq!(attestation.signer(), &key().public());
    assert_eq!(
        attestation.enforcement_backend(),
        "linux/landlock+seccomp+prctl+credentials+namespaces+descriptors+session+rlimits+cgroup+affinity+kill"
    );
    for fixed in ["clock", "cpuid", "random_bytes", "advisory_locks"] {
        assert!(attestation.not_claimed().contains(&fixed), "{fixed}");
    }
    let claims = attestation.doc()["capability_proof"].as_array().expect("list");
    let descriptors = claims.iter().find(|claim| claim["protection"] == "descriptors");
    let expected = json!({"protection": "descriptors", "mechanism": "descriptors", "canaries": ["descriptors.none"],
                          "read_back": [], "witness": "self"});
    assert_eq!(descriptors, Some(&expected));
    let network = claims.iter().find(|claim| claim["protection"] == "network").expect("claimed");
    assert_eq!(network["witness"], "both");
    assert_eq!(attestation.doc()["rlimits"]["as"], "unlimited");
    let again = Attestation::parse(parse(canonical(attestation.doc()).as_bytes()).expect("json")).expect("parsed");
    assert_eq!(again.sha256(), attestation.sha256());
}

#[test]
fn a_limit_is_had_from_a_group_or_from_the_kernels_limits_a_process_and_said_to_be() {
    let mut facts = facts();
    facts["cgroup"] = json!({"backend": "none"});
    facts["witness"]["memory_limit"] = Value::Null;
    facts["witness"]["process_limit"] = Value::Null;
    let attestation = attest(&about(), &facts, &key()).expect("attested");
    let claims = attestation.doc()["capability_proof"].as_array().expect("list");
    for (name, canary) in [("memory", "limits.memory"), ("processes", "limits.nproc")] {
        let claim = claims.iter().find(|claim| claim["protection"] == name).expect(name);
        assert_eq!((&claim["mechanism"], &claim["canaries"]), (&json!("rlimits"), &json!([canary])));
    }
    assert!(attestation.not_claimed().contains(&"memory.group"));
    assert!(!attestation.enforcement_backend().contains("cgroup"));
}

#[test]
fn no_canary_counts_unless_something_else_happened_before_and_the_expected_refusal_after() {
    type Case = (&'static str, &'static str, &'static str, Option<bool>);
    let cases: &[Case] = &[
        ("landlock.read", "done", "EACCES", Some(true)),
        ("landlock.read", "EACCES", "EACCES", Some(false)),
        ("landlock.read", "", "EACCES", Some(false)),
        ("landlock.read", "done", "done", Some(false)),
        ("landlock.read", "done", "ENOENT", Some(false)),
        ("landlock.read", "done", "EPERM", Some(false)),
        ("landlock.link", "done", "EXDEV", Some(true)),
        ("landlock.link", "EACCES", "EXDEV", Some(false)),
        ("landlock.signal", "done", "EPERM", Some(true)),
        ("landlock.signal", "done", "ESRCH", Some(false)),
        ("landlock.of_a_later_version", "done", "EACCES", Some(true)),
        ("seccomp.bpf", "EPERM", "EPERM", Some(true)),
        ("seccomp.bpf", "EPERM", "EFAULT", Some(false)),
        ("seccomp.bpf", "", "EPERM", Some(false)),
        ("seccomp.marker", "done", "ENOTUNIQ", Some(true)),
        ("seccomp.marker", "ENOTUNIQ", "ENOTUNIQ", Some(false)),
        ("seccomp.marker", "done", "EPERM", Some(false)),
        ("seccomp.absent", "EINVAL", "ENOSYS", Some(true)),
        ("seccomp.absent", "ENOSYS", "ENOSYS", Some(false)),
        ("seccomp.foreign_abi", "done", "signal 31", Some(true)),
        ("seccomp.foreign_abi", "signal 31", "signal 31", Some(false)),
        ("seccomp.foreign_abi", "done", "done", Some(false)),
        ("network.inet", "EPERM", "EPERM", Some(false)),
        ("network.vsock", "EPERM", "EPERM", Some(true)),
        ("network.vsock", "done", "done", Some(false)),
        ("network.interfaces", "", "lo", Some(true)),
        ("network.interfaces", "", "lo eth0", Some(false)),
        ("root.host_paths", "0 in sight", "none in sight", Some(false)),
        ("root.host_paths", "2 in sight", "/etc", Some(false)),
        ("root.read_only", "/usr", "EROFS", Some(true)),
        ("root.read_only", "/usr", "EACCES", Some(false)),
        ("session.own", "2", "2", Some(true)),
        ("session.own", "2", "1", Some(false)),
        ("session.own", "", "", Some(false)),
        ("session.terminal", "", "ENXIO", Some(true)),
        ("session.terminal", "", "done", Some(false)),
        ("limits.nofile", "256", "256 256", Some(true)),
        ("limits.nofile", "256", "256 1024", Some(false)),
        ("limits.file_size", "EFBIG", "EFBIG", Some(false)),
        ("limits.memory", "done", "done", Some(false)),
        ("descriptors.none", "", "7", Some(false)),
        ("no_new_privs", "0", "0", Some(false)),
        ("determinism.addresses", "", "0x0", Some(false)),
        ("determinism.hostname", "job", "host", Some(false)),
        ("no_new_privs", "1", "1", Some(false)),
        ("landlocked", "done", "EACCES", None),
        ("of_a_later_version.x", "done", "EPERM", None),
    ];
    for (id, before, after, expected) in cases {
        assert_eq!(canary_passed(id, before, after), *expected, "{id}: {before:?} then {after:?}");
    }
}

#[test]
fn one_canary_that_did_not_pass_takes_its_protection_along() {
    let whole = facts();
    let all = whole["canaries"].as_array().expect("list").len();
    let mut taken = BTreeSet::new();
    for at in 0..all {
        let id = whole["canaries"][at]["id"].as_str().expect("id").to_owned();
        let owner = proved(&whole).into_iter().find(|proof| proof.canaries.contains(&id));
        let mut broken = whole.clone();
        broken["canaries"][at]["after"] = json!("what nobody expects");
        let left: Vec<&str> = proved(&broken).iter().map(|proof| proof.protection.name).collect();
        let lost: Vec<&str> = names().into_iter().filter(|name| !left.contains(name)).collect();
        // Where a control group holds the limit, the kernel's limit a process is not what the claim stands on.
        match owner {
            Some(owner) => assert_eq!(lost, [owner.protection.name], "{id}"),
            None => assert!(matches!(id.as_str(), "limits.memory" | "limits.nproc") && lost.is_empty(), "{id}"),
        }
        taken.extend(lost);

        // Passing elsewhere does not help.
        let mut twice = broken.clone();
        let copy = whole["canaries"][at].clone();
        twice["canaries"].as_array_mut().expect("list").push(copy);
        assert_eq!(proved(&twice).len(), proved(&broken).len(), "{id} twice");
    }
    let shown_by_canaries = [
        "landlock",
        "seccomp",
        "no_new_privs",
        "namespace.uts",
        "root",
        "descriptors",
        "session",
        "limits",
        "network",
        "determinism",
    ];
    assert_eq!(taken, BTreeSet::from(shown_by_canaries));
    for protection in PROTECTIONS {
        for needed in protection.canaries {
            let mut without = whole.clone();
            without["canaries"].as_array_mut().expect("list").retain(|canary| canary["id"] != *needed);
            assert!(protection.proof(&without).is_none(), "{} without {needed}", protection.name);
            assert!(protection.proof(&whole).is_some(), "{}", protection.name);
        }
    }
}

/// One fact taken away or turned, and the protections that must then not be claimed.
fn turned() -> Vec<(&'static str, Value, &'static [&'static str])> {
    let unlike = "0000000000000001";
    vec![
        ("/landlock/status", json!("partially_enforced"), &["landlock"]),
        ("/landlock", Value::Null, &["landlock"]),
        ("/landlock/abi", json!(0), &["landlock"]),
        ("/seccomp", json!([]), &["seccomp", "network"]),
        ("/seccomp_filters_before", json!(2), &["seccomp", "network"]),
        ("/status/Seccomp_filters", json!("2"), &["seccomp", "network"]),
        ("/witness/status/Seccomp_filters", json!("4"), &["seccomp", "network"]),
        ("/witness/status/Seccomp", json!("0"), &["seccomp", "network"]),
        ("/status/Seccomp", json!("1"), &["seccomp", "network"]),
        ("/status/NoNewPrivs", json!("0"), &["no_new_privs"]),
        ("/witness/status/NoNewPrivs", json!("0"), &["no_new_privs"]),
        ("/status/CapEff", json!(unlike), &["capabilities"]),
        ("/status/CapBnd", json!("000001ffffffffff"), &["capabilities"]),
        ("/witness/status/CapAmb", json!(unlike), &["capabilities"]),
        ("/witness/status/CapInh", json!(""), &["capabilities"]),
        ("/status/Uid", json!("0 0 0 0"), &["ids"]),
        ("/status/Uid", json!("1000 1000 0 1000"), &["ids"]),
        ("/status/Gid", json!("1000 5 1000 1000"), &["ids"]),
        ("/status/Gid", json!("1000"), &["ids"]),
        ("/witness/status/Uid", json!("0 0 0 0"), &["ids"]),
        ("/status/Groups", json!("27"), &["groups"]),
        ("/witness/status/Groups", json!("27"), &["groups"]),
        ("/witness/namespaces/net/differs", json!(false), &["namespace.net", "network"]),
        ("/witness/namespaces/net", Value::Null, &["namespace.net", "network"]),
        ("/witness/namespaces/mnt/differs", json!(false), &["namespace.mnt", "root"]),
        ("/witness/namespaces/pid/differs", json!(false), &["namespace.pid"]),
        ("/witness/namespaces/ipc/differs", json!(false), &["namespace.ipc"]),
        ("/witness/namespaces/uts/differs", json!(false), &["namespace.uts"]),
        ("/witness/namespaces/user/differs", json!(false), &["namespace.user"]),
        ("/witness/namespaces/cgroup/differs", json!(false), &["namespace.cgroup"]),
        ("/rlimits/fsize", json!("unlimited"), &["limits"]),
        ("/rlimits/nofile", json!(257), &["limits"]),
        ("/witness/limits/core", json!("0 unlimited"), &["limits"]),
        ("/witness/limits/cpu", json!("61 62"), &["limits"]),
        ("/witness/memory_limit", json!(1), &["memory.group"]),
        ("/cgroup/memory_limit", json!("unlimited"), &["memory.group"]),
        ("/cgroup/process_limit", json!(0), &["processes.group"]),
        ("/cgroup/backend", json!("none"), &["processes.group", "memory.group"]),
        ("/cgroup", Value::Null, &["processes.group", "memory.group"]),
        ("/determinism/processors", json!(2), &["determinism"]),
        ("/witness/status/Cpus_allowed_list", json!("0-1"), &["determinism"]),
        ("/survivors", json!(1), &["no_survivors"]),
    ]
}

/// Replaces the value at a place; null takes it away.
fn put(doc: &mut Value, at: &str, value: &Value) {
    let (parent, name) = at.rsplit_once('/').expect("pointer");
    let parent = doc.pointer_mut(parent).expect(at).as_object_mut().expect(at);
    if value.is_null() {
        parent.remove(name)
    } else {
        parent.insert(name.to_owned(), value.clone())
    };
}

#[test]
fn what_is_not_shown_is_not_claimed_and_claiming_it_all_the_same_is_invalid() {
    let mut covered = BTreeSet::new();
    for (at, value, lost) in turned() {
        let mut facts = facts();
        put(&mut facts, at, &value);
        let left: BTreeSet<&str> = proved(&facts).iter().map(|proof| proof.protection.name).collect();
        let expected: BTreeSet<&str> = names().into_iter().filter(|name| !lost.contains(name)).collect();
        assert_eq!(left, expected, "{at} {value}");
        covered.extend(lost);

        let refused = reason(forged(|doc| put(doc, at, &value)));
        assert!(refused.starts_with("not a valid attestation: "), "{at} {value}: {refused}");
    }
    let whole = facts();
    for proof in proved(&whole) {
        for id in &proof.canaries {
            let refused = reason(forged(|doc| {
                let list = doc["canaries"].as_array_mut().expect("list");
                list.iter_mut().filter(|canary| canary["id"] == *id).for_each(|canary| canary["after"] = json!("done"));
            }));
            assert!(refused.contains("do not prove it"), "{id}: {refused}");
            let refused = reason(forged(|doc| {
                doc["canaries"].as_array_mut().expect("list").retain(|canary| canary["id"] != *id);
            }));
            assert!(
                refused.contains("is not what the document proves") || refused.contains("do not prove it"),
                "{id}: {refused}"
            );
            covered.insert(proof.protection.name);
        }
    }
    covered.extend(["processes", "memory"].iter().filter(|name| {
        let mut facts = facts();
        facts["cgroup"]["backend"] = json!("none");
        facts["canaries"]
            .as_array_mut()
            .expect("list")
            .retain(|canary| canary["id"] != "limits.memory" && canary["id"] != "limits.nproc");
        proved(&facts).iter().all(|proof| proof.protection.name != **name)
    }));
    assert_eq!(covered, names().into_iter().collect(), "every protection was taken its proof from");
}

#[test]
fn what_was_shown_may_be_left_unclaimed() {
    let less = forged(|doc| {
        let list = doc["capability_proof"].as_array_mut().expect("list");
        list.retain(|claim| claim["protection"] != "groups");
    });
    assert!(!less.expect("valid").claims().contains(&"groups"));
}

#[test]
fn statements_that_contradict_each_other_are_invalid() {
    let turn = |at: &'static str, value: Value| reason(forged(move |doc| put(doc, at, &value)));
    let claim = json!({"protection": "time_travel", "mechanism": "seccomp", "canaries": [], "read_back": [], "witness": "self"});
    let cases = [
        (turn("/started", json!(false)), "exit says otherwise"),
        (turn("/exit", json!({"refused": "run", "reason": "the run was cancelled"})), "accepted"),
        (turn("/requested/policy_sha256", json!(hash("other"))), "not the policy of the document"),
        (turn("/stdout", Value::Null), "stdout is missing"),
        (turn("/wall_ms", Value::Null), "wall_ms is missing"),
        (turn("/executed", json!([])), "hash of what was executed is missing"),
        (turn("/exit", json!({"limit": "memory"})), "nothing that was counted shows it"),
        (turn("/exit", json!({"limit": "processes"})), "nothing that was counted shows it"),
        (turn("/exit", json!({"limit": "output"})), "nothing that was counted shows it"),
        (turn("/enforcement_backend", json!("docker")), "enforcement_backend is docker"),
        (turn("/enforcement_backend", json!("none")), "enforcement_backend is none"),
        (turn("/not_claimed", json!([])), "clock cannot be fixed"),
        (turn("/status/Seccomp", json!("2")), "accepted"),
        (turn("/witness/limits/as", json!("1 1")), "reading of rlimits.as and"),
        (turn("/rlimits/as", json!(1)), "reading of rlimits.as and"),
        (turn("/witness/status/Seccomp_filters", json!("9")), "seccomp is claimed"),
        (
            reason(forged(|doc| doc["not_claimed"].as_array_mut().expect("list").retain(|item| item["id"] != "clock"))),
            "clock cannot be fixed",
        ),
        (
            reason(forged(|doc| {
                let list = doc["not_claimed"].as_array_mut().expect("list");
                list.push(json!({"id": "network", "reason": "never"}));
            })),
            "network is both claimed and not claimed",
        ),
        (
            reason(forged(|doc| {
                let list = doc["not_claimed"].as_array_mut().expect("list");
                list.push(json!({"id": "clock", "reason": "again"}));
            })),
            "not_claimed speaks of clock twice",
        ),
        (
            reason(forged(|doc| doc["capability_proof"].as_array_mut().expect("list").push(claim))),
            "this version knows no proof of it",
        ),
        (
            reason(forged(|doc| {
                let list = doc["capability_proof"].as_array_mut().expect("list");
                list.push(list[0].clone());
            })),
            "capability_proof speaks of landlock twice",
        ),
        (
            reason(forged(|doc| doc["capability_proof"][0]["canaries"] = json!(["landlock.write"]))),
            "the canaries of the claim landlock",
        ),
        (
            reason(forged(|doc| doc["capability_proof"][0]["witness"] = json!("both"))),
            "the witness of the claim landlock",
        ),
        (
            reason(forged(|doc| doc["capability_proof"][0]["mechanism"] = json!("seccomp"))),
            "the mechanism of the claim landlock",
        ),
        (
            reason(forged(|doc| {
                doc["capability_proof"] = json!([]);
                doc["enforcement_backend"] = json!("none");
            })),
            "no protection was in force",
        ),
        (
            reason(forged(|doc| doc["inputs"][1]["path"] = json!("delivery/a.txt"))),
            "inputs speaks of delivery/a.txt twice",
        ),
    ];
    for (found, expected) in cases {
        assert!(found.contains(expected), "expected: {expected}\nfound: {found}");
    }
}

#[test]
fn limits_that_left_their_mark_are_believed() {
    for (limit, at, value) in [
        ("memory", "/cgroup/oom_kill", json!(1)),
        ("processes", "/cgroup/pids_max_hits", json!(40)),
        ("output", "/stderr/truncated", json!(true)),
        ("wall", "/wall_ms", json!(30_000)),
    ] {
        let mut facts = facts();
        put(&mut facts, at, &value);
        facts["exit"] = json!({"limit": limit});
        let attestation = attest(&about(), &facts, &key()).expect(limit);
        assert_eq!(attestation.end(), &End::Limit(limit.to_owned()));
    }
}

#[test]
fn a_refusal_is_signed_names_the_mechanism_and_claims_no_run() {
    let attestation = attest(&about(), &refused("landlock"), &key()).expect("attested");
    let expected = End::Refused { mechanism: "landlock".into(), reason: "the kernel does not offer it".into() };
    assert_eq!(attestation.end(), &expected);
    assert_eq!(attestation.enforcement_backend(), "none");
    assert!(attestation.claims().is_empty());
    assert!(attestation.not_claimed().contains(&"landlock"));

    // The canaries that passed before another did not are facts too; that nothing ran stays said.
    let mut facts = facts();
    facts["started"] = json!(false);
    facts["exit"] = json!({"refused": "seccomp", "reason": "the canary seccomp.marker objects"});
    let marker = facts["canaries"].as_array_mut().expect("list").iter_mut().find(|c| c["id"] == "seccomp.marker");
    marker.expect("marker")["after"] = json!("done");
    facts["witness"]["status"]["NoNewPrivs"] = json!("0");
    let attestation = attest(&about(), &facts, &key()).expect("attested");
    assert_eq!(attestation.enforcement_backend(), "none");
    assert!(!attestation.claims().contains(&"seccomp") && !attestation.claims().contains(&"no_survivors"));
    assert!(attestation.doc().get("stdout").is_none() && attestation.doc().get("wall_ms").is_none());

    let bare = attest(&verifica::attest::About { contract_sha256: None, ..about() }, &refused("userns"), &key());
    let envelope = bare.expect("attested").envelope().expect("envelope");
    let payload: Value = serde_json::from_slice(&envelope.payload).expect("json");
    assert_eq!(payload["subject"][0]["name"], "policy");
    assert!(statement::read(&envelope).is_ok());
}

#[test]
fn facts_say_only_what_is_theirs_to_say() {
    for name in ["signature", "dsse", "policy", "by", "tipo", "job", "house"] {
        let mut facts = facts();
        facts[name] = json!("x");
        let refused = attest(&about(), &facts, &key()).expect_err(name);
        assert!(refused.reason.contains("not theirs to say"), "{}", refused.reason);
    }
    let mut facts = facts();
    facts["not_claimed"] = json!([{"id": "uid_uniqueness", "reason": "an ordinary user has one identity"}]);
    let attestation = attest(&about(), &facts, &key()).expect("attested");
    assert_eq!(attestation.not_claimed()[0], "uid_uniqueness");
    facts["not_claimed"] = json!([{"id": "network", "reason": "no"}]);
    assert!(attest(&about(), &facts, &key()).is_err());
    facts["not_claimed"] = json!([]);
    facts["wall_ms"] = json!(1.5);
    assert!(attest(&about(), &facts, &key()).is_err_and(|r| r.rule == Rule::UnsafeNumber));
}

#[test]
fn the_structure_is_checked_whoever_signed() {
    let cases = [
        ("/nyx5", json!("2"), "nyx5 is not"),
        ("/tipo", json!("veredicto"), "tipo is not"),
        ("/schema", json!("verifica.attestation/2"), "schema is not"),
        ("/at", json!("2026-11-30"), "at is not an instant"),
        ("/at", json!("2026-11-30T10:00:00Z"), "at is not an instant"),
        ("/job", json!(7), "job is not text"),
        ("/job", json!("a\nb"), "job is not text"),
        ("/policy/sha256", json!("AB"), "policy.sha256 is not a SHA-256"),
        ("/policy/sha256", json!(hash("x").to_uppercase()), "policy.sha256 is not a SHA-256"),
        ("/policy/name", Value::Null, "policy.name is missing"),
        ("/exit", json!({}), "exit is not one of"),
        ("/exit", json!({"code": 256}), "exit is not one of"),
        ("/exit", json!({"code": 0, "signal": 9}), "exit is not one of"),
        ("/exit", json!({"signal": 0}), "exit is not one of"),
        ("/exit", json!({"timeout": true}), "exit is not one of"),
        ("/exit", json!({"limit": ""}), "exit.limit is not text"),
        ("/exit", json!({"code": 0, "reason": "x"}), "exit is not one of"),
        ("/exit", json!({"refused": "landlock"}), "exit is not one of"),
        ("/exit", json!({"refused": "a b", "reason": "x"}), "exit.refused is not a word"),
        ("/wall_ms", json!(-1), "wall_ms is not a whole number"),
        ("/status", json!([["Uid", "0"]]), "status is not an object"),
        ("/rlimits/core", json!("infinite"), "rlimits.core is not a whole number"),
        ("/witness/namespaces/net/differs", json!(1), "witness.namespaces.net.differs is not true or false"),
        ("/witness/namespaces", json!({"a b": {"inode": 1, "differs": true}}), "witness.namespaces has a name"),
        ("/canaries", json!({}), "canaries is not a list"),
        ("/canaries/0/after", json!("a\u{7}"), "canaries[0].after is not text"),
        ("/canaries/0/id", json!("Landlock.read"), "canaries[0].id is not a word"),
        ("/seccomp/0/sha256", json!("f"), "seccomp[0].sha256 is not"),
        ("/signature/alg", json!("none"), "signature is not"),
    ];
    for (at, value, expected) in cases {
        let mut doc = whole().doc().clone();
        if at != "/signature/alg" {
            put_anywhere(&mut doc, at, &value);
            doc = signed(doc);
        } else {
            put_anywhere(&mut doc, at, &value);
        }
        let found = reason(Attestation::parse(doc));
        assert!(found.contains(expected), "{at}: expected: {expected}\nfound: {found}");
    }
    for not_a_document in [json!(null), json!([]), json!("x"), json!({}), json!(1)] {
        assert!(Attestation::parse(not_a_document).is_err());
    }
}

/// As `put`, also inside lists.
fn put_anywhere(doc: &mut Value, at: &str, value: &Value) {
    if value.is_null() { put(doc, at, value) } else { *doc.pointer_mut(at).expect(at) = value.clone() }
}

#[test]
fn sizes_at_the_limit_and_one_beyond() {
    let with = |name: &str, value: Value| {
        let mut facts = facts();
        facts[name] = value;
        attest(&about(), &facts, &key()).map(|_| ()).map_err(|refusal| refusal.reason)
    };
    let canaries = |count: usize| {
        (0..count).map(|i| json!({"id": format!("own_{i}"), "before": "done", "after": "EIO"})).collect::<Vec<_>>()
    };
    assert_eq!(with("canaries", json!(canaries(limits::ATTESTATION_LIST_MAX))), Ok(()));
    assert!(with("canaries", json!(canaries(limits::ATTESTATION_LIST_MAX + 1))).is_err_and(|r| r.contains("entries")));
    let boot = |chars: usize| json!({"release": "é".repeat(chars)});
    assert_eq!(with("kernel", boot(limits::ATTESTATION_TEXT_MAX)), Ok(()));
    assert!(with("kernel", boot(limits::ATTESTATION_TEXT_MAX + 1)).is_err_and(|r| r.contains("kernel.release")));
    let word = |chars: usize| json!([{"id": "w".repeat(chars), "before": "ok", "after": "ok"}]);
    assert_eq!(with("canaries", word(limits::ATTESTATION_WORD_MAX)), Ok(()));
    assert!(with("canaries", word(limits::ATTESTATION_WORD_MAX + 1)).is_err_and(|r| r.contains("canaries[0].id")));

    let mut facts = facts();
    facts["padding"] = json!("");
    let base = canonical(attest(&about(), &facts, &key()).expect("small").doc()).len();
    let room = limits::ATTESTATION_BYTES_MAX - base;
    facts["padding"] = json!("x".repeat(room));
    let full = attest(&about(), &facts, &key()).expect("at the limit");
    assert_eq!(canonical(full.doc()).len(), limits::ATTESTATION_BYTES_MAX);
    assert!(statement::read(&full.envelope().expect("envelope")).is_ok(), "a full document fits an envelope");
    facts["padding"] = json!("x".repeat(room + 1));
    assert!(attest(&about(), &facts, &key()).is_err_and(|r| r.reason.contains("longer than")));
}

#[test]
fn unknown_fields_survive_and_are_signed() {
    let mut facts = facts();
    facts["future"] = json!({"deep": [1, {"x": "y"}], "é": null});
    facts["landlock"]["domain"] = json!("0x1");
    facts["canaries"][0]["note"] = json!("kept");
    let attestation = attest(&about(), &facts, &key()).expect("attested");
    let again = Attestation::parse(parse(canonical(attestation.doc()).as_bytes()).expect("json")).expect("parsed");
    assert_eq!(again.doc()["future"], facts["future"]);
    assert_eq!(again.doc()["landlock"]["domain"], "0x1");
    assert_eq!(again.doc()["canaries"][0]["note"], "kept");
    assert_eq!(again.claims(), whole().claims(), "they prove nothing and take nothing away");
    let envelope = again.envelope().expect("envelope");
    let Ok(Statement::Attestation { predicate, .. }) = statement::read(&envelope) else { panic!("statement") };
    assert_eq!(predicate["future"], facts["future"]);
    let mut without = again.doc().clone();
    without.as_object_mut().expect("object").remove("future");
    assert!(Attestation::parse(without).is_err_and(|r| r.rule == Rule::BadSignature));
}

#[test]
fn both_signatures_must_be_of_one_key() {
    let other = verifica::wire::key::SigningKey::from_seed([8; 32]);
    let mut doc = whole().doc().clone();
    other.sign_object(&mut doc, "signature");
    assert!(Attestation::parse(doc).is_err_and(|r| r.reason.contains("dsse is not the signature")));
    let mut doc = whole().doc().clone();
    doc["dsse"] = json!("AA");
    key().sign_object(&mut doc, "signature");
    assert!(Attestation::parse(doc).is_err_and(|r| r.rule == Rule::BadSignature));
}

#[test]
fn an_envelope_holds_the_same_claims_to_the_same_rules() {
    let envelope = whole().envelope().expect("envelope");
    assert!(envelope.verified_by(&key().public()));
    let Ok(Statement::Attestation { predicate, end }) = statement::read(&envelope) else { panic!("statement") };
    assert_eq!(end, End::Code(0));
    assert_eq!(predicate["exit"], json!({"code": 0}));
    let payload: Value = serde_json::from_slice(&envelope.payload).expect("json");
    let names: Vec<&Value> = payload["subject"].as_array().expect("list").iter().map(|s| &s["name"]).collect();
    assert_eq!(names, ["executed:/usr/bin/test", "input:delivery/a.txt", "input:b", "contract"]);

    let read = |change: fn(&mut Value)| {
        let mut payload = payload.clone();
        change(&mut payload);
        let envelope = Envelope::sign(statement::PAYLOAD_TYPE, payload.to_string().into_bytes(), &key());
        statement::read(&envelope).map(|_| ()).map_err(|refusal| refusal.reason)
    };
    assert_eq!(read(|_| ()), Ok(()));
    assert_eq!(read(|p| p["unknown"] = json!(1)), Ok(()));
    assert_eq!(read(|p| p["subject"][0]["annotations"] = json!({"a": 1})), Ok(()));
    type Case = (fn(&mut Value), &'static str);
    let cases: [Case; 12] = [
        (|p| p["_type"] = json!("https://in-toto.io/Statement/v0.1"), "_type"),
        (|p| p["subject"] = json!([]), "no subject"),
        (|p| p["subject"][0]["digest"] = json!({}), "no digest"),
        (|p| p["subject"][0]["digest"]["sha256"] = json!(hash("other")), "not what its predicate is about"),
        (|p| p["subject"][0]["name"] = json!("other"), "not what its predicate is about"),
        (|p| p["subject"].as_array_mut().expect("list").reverse(), "not what its predicate is about"),
        (|p| p["predicateType"] = json!(""), "no predicateType"),
        (|p| p["predicate"] = json!("x"), "object"),
        (|p| p["predicate"]["signature"] = json!({}), "holds a signature"),
        (|p| p["predicate"]["canaries"] = json!([]), "do not prove it"),
        (|p| p["predicate"]["started"] = json!(false), "exit says otherwise"),
        (|p| p["predicate"]["wall_ms"] = json!(1.5), "not an integer"),
    ];
    for (change, expected) in cases {
        let found = read(change).expect_err(expected);
        assert!(found.contains(expected), "expected: {expected}\nfound: {found}");
    }
    let other = json!({"_type": statement::TYPE, "subject": payload["subject"], "predicateType": "https://slsa.dev/provenance/v1", "predicate": {}});
    let other = Envelope::sign(statement::PAYLOAD_TYPE, other.to_string().into_bytes(), &key());
    assert!(matches!(statement::read(&other), Ok(Statement::Other { .. })));
    let text = Envelope::sign("text/plain", b"{}".to_vec(), &key());
    assert!(statement::read(&text).is_err());
}

#[test]
fn every_protection_is_found_by_its_name() {
    for name in names() {
        assert_eq!(Protection::named(name).map(|p| p.name), Some(name));
    }
    assert!(Protection::named("everything").is_none());
}

fn paths(value: &Value, at: &str, out: &mut Vec<String>) {
    if !at.is_empty() {
        out.push(at.to_owned());
    }
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, item)| paths(item, &format!("{at}/{name}"), out)),
        Value::Array(items) => items.iter().enumerate().for_each(|(i, item)| paths(item, &format!("{at}/{i}"), out)),
        _ => {}
    }
}

fn junk() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!([])),
        any::<bool>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        Just(json!("ok")),
        Just(json!("0")),
        Just(json!("unlimited")),
        "[a-zA-Z0-9_]{0,8}".prop_map(Value::from),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_changed_byte_of_a_document_breaks_it(at in any::<prop::sample::Index>(), flip in 1u8..=255) {
        let mut bytes = canonical(whole_once().doc()).into_bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(doc) = parse(&bytes) {
            prop_assert!(Attestation::parse(doc).is_err(), "byte {at}");
        }
    }

    #[test]
    fn any_changed_byte_of_an_envelope_breaks_it_or_changes_nothing_signed(at in any::<prop::sample::Index>(), flip in 1u8..=255) {
        let envelope = whole_once().envelope().expect("envelope");
        let mut bytes = canonical(&envelope.to_json()).into_bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let read = parse(&bytes).and_then(|doc| Envelope::parse(&doc));
        if let Ok(read) = read && read.verified_by(&key().public()) {
            prop_assert_eq!(&read.payload, &envelope.payload);
            prop_assert_eq!(&read.payload_type, &envelope.payload_type);
            prop_assert_eq!(&read.signatures[0].sig, &envelope.signatures[0].sig);
        }
    }

    /// Whatever a signer changes in a valid document, the claims that are accepted are proved by what is left.
    #[test]
    fn no_accepted_document_claims_more_than_its_facts_prove(
        changes in prop::collection::vec((any::<prop::sample::Index>(), junk(), any::<bool>()), 1..4),
    ) {
        let mut doc = whole_once().doc().clone();
        for (at, value, remove) in changes {
            let mut all = Vec::new();
            paths(&doc, "", &mut all);
            let at = &all[at.index(all.len())];
            let (parent, name) = at.rsplit_once('/').expect("pointer");
            match doc.pointer_mut(parent).expect("parent") {
                Value::Object(fields) if remove => { fields.remove(name); }
                Value::Array(items) if remove => { items.remove(name.parse().expect("index")); }
                _ => *doc.pointer_mut(at).expect("place") = value,
            }
        }
        if let Ok(attestation) = Attestation::parse(signed(doc)) {
            let proofs = proved(attestation.doc());
            let proved: Vec<&str> = proofs.iter().map(|proof| proof.protection.name).collect();
            prop_assert!(attestation.claims().iter().all(|claim| proved.contains(claim)));
            prop_assert!(attestation.claims().iter().all(|claim| !attestation.not_claimed().contains(claim)));
            let envelope = attestation.envelope().expect("envelope");
            prop_assert!(statement::read(&envelope).is_ok());
        }
    }

    /// Facts of any kind are refused or make a document that its own reader accepts; nothing panics.
    #[test]
    fn facts_make_a_valid_document_or_none(
        changes in prop::collection::vec((any::<prop::sample::Index>(), junk()), 0..6),
        starts in any::<bool>(),
    ) {
        let mut facts = if starts { facts() } else { refused("landlock") };
        for (at, value) in changes {
            let mut all = Vec::new();
            paths(&facts, "", &mut all);
            *facts.pointer_mut(&all[at.index(all.len())]).expect("place") = value;
        }
        if let Ok(attestation) = attest(&about(), &facts, &key()) {
            prop_assert!(Attestation::parse(attestation.doc().clone()).is_ok());
            for protection in PROTECTIONS {
                let claimed = attestation.claims().contains(&protection.name);
                prop_assert!(claimed != attestation.not_claimed().contains(&protection.name));
            }
        }
    }
}

fn whole_once() -> &'static Attestation {
    static WHOLE: std::sync::OnceLock<Attestation> = std::sync::OnceLock::new();
    WHOLE.get_or_init(whole)
}
