//! Attestations: what is claimed follows from what was read back, and nothing that was changed, forged or contradictory
//! passes, whoever signed it.

#[path = "attest/facts.rs"]
mod facts;

use facts::{about, facts, forged, hash, key, reason, refused, signed, whole};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use verifica::attest::dsse::Envelope;
use verifica::attest::protection::{Before, CANARIES};
use verifica::attest::statement::{self, Statement};
use verifica::attest::{Attestation, End, PROTECTIONS, Protection, attest, proved};
use verifica::limits;
use verifica::refusal::Rule;
use verifica::wire::json::{canonical, parse};

#[test]
fn a_whole_run_claims_everything_and_says_what_it_cannot() {
    let attestation = whole();
    let all: Vec<&str> = PROTECTIONS.iter().map(|p| p.name).collect();
    assert_eq!(attestation.claims(), all);
    assert_eq!(attestation.end(), &End::Code(0));
    assert_eq!(attestation.signer(), &key().public());
    assert_eq!(
        attestation.enforcement_backend(),
        "linux/landlock+seccomp+namespaces+credentials+descriptors+rlimits+cgroup+kill"
    );
    for fixed in ["clock", "cpuid", "random_bytes", "advisory_locks"] {
        assert!(attestation.not_claimed().contains(&fixed), "{fixed}");
    }
    let network = &attestation.doc()["capability_proof"][7];
    assert_eq!(
        network,
        &json!({"protection": "network", "mechanism": "seccomp", "canaries": ["socket_inet"],
                "read_back": ["namespaces"], "witness": "both"})
    );
    let again = Attestation::parse(parse(canonical(attestation.doc()).as_bytes()).expect("json")).expect("parsed");
    assert_eq!(again.sha256(), attestation.sha256());
}

#[test]
fn the_tables_fit_each_other() {
    let names: BTreeSet<&str> = PROTECTIONS.iter().map(|p| p.name).collect();
    assert_eq!(names.len(), PROTECTIONS.len());
    let ids: BTreeSet<&str> = CANARIES.iter().map(|c| c.id).collect();
    assert_eq!(ids.len(), CANARIES.len());
    let used: BTreeSet<&str> = proved(&facts()).iter().flat_map(|proof| proof.canaries.clone()).collect();
    assert_eq!(used, ids, "each canary proves something, and each proof has its canary");
}

#[test]
fn no_canary_counts_unless_it_could_have_succeeded_and_met_the_expected_refusal() {
    for (at, canary) in CANARIES.iter().enumerate() {
        let claimed = |before: &str, after: &str| {
            let mut facts = facts();
            facts["canaries"][at]["before"] = json!(before);
            facts["canaries"][at]["after"] = json!(after);
            proved(&facts).iter().any(|proof| proof.canaries.contains(&canary.id))
        };
        let natural = canary.before != Before::Succeeded;
        assert!(claimed("ok", canary.after), "{}", canary.id);
        assert_eq!(claimed("ENODEV", canary.after), natural, "{}", canary.id);
        assert_eq!(claimed("none", canary.after), canary.before == Before::Nothing, "{}", canary.id);
        for after in ["ok", "none", "EIO"] {
            assert!(!claimed("ok", after), "{} {after}", canary.id);
        }
        let mut twice = facts();
        let copy = twice["canaries"][at].clone();
        twice["canaries"].as_array_mut().expect("list").push(copy);
        assert!(!proved(&twice).iter().any(|proof| proof.canaries.contains(&canary.id)), "{} twice", canary.id);
        assert!(attest(&about(), &twice, &key()).is_err());
    }
}

/// One fact taken away or turned, and the protections that must then not be claimed.
fn turned() -> Vec<(&'static str, Value, &'static [&'static str])> {
    let landlock: &[&str] = &[
        "filesystem_read",
        "filesystem_write",
        "filesystem_truncate",
        "filesystem_refer",
        "signal_scope",
        "abstract_socket_scope",
    ];
    vec![
        ("/landlock/status", json!("partially_enforced"), landlock),
        ("/landlock/status", Value::Null, landlock),
        ("/landlock/abi", json!(0), landlock),
        ("/seccomp/after", json!(2), &["syscall_filter"]),
        ("/seccomp/after", json!(4), &["syscall_filter"]),
        ("/seccomp/filters", json!([]), &["syscall_filter"]),
        ("/witness/status/seccomp_filters", json!(2), &["syscall_filter"]),
        ("/witness/status/seccomp", json!(0), &["syscall_filter"]),
        ("/status/seccomp", json!(1), &["syscall_filter"]),
        ("/status/no_new_privs", json!(0), &["no_privileges"]),
        ("/witness/status/no_new_privs", json!(0), &["no_privileges"]),
        ("/caps/effective", json!("0000000000000001"), &["no_privileges"]),
        ("/caps/bounding", json!("000001ffffffffff"), &["no_privileges"]),
        ("/witness/caps/ambient", json!("1"), &["no_privileges"]),
        ("/ids/uid", json!([0, 0, 0, 0]), &["no_privileges"]),
        ("/ids/uid", json!([1000, 1000, 0, 1000]), &["no_privileges"]),
        ("/ids/gid", json!([1000, 5, 1000, 1000]), &["no_privileges"]),
        ("/ids/groups", json!([27]), &["no_privileges"]),
        ("/ids", Value::Null, &["no_privileges"]),
        ("/witness/ids/uid", json!([0, 0, 0, 0]), &["no_privileges"]),
        ("/witness/ids/groups", json!([27]), &["no_privileges"]),
        ("/namespaces/net/differs", json!(false), &["network"]),
        ("/witness/namespaces/net/inode", json!(1), &["network"]),
        ("/namespaces/mnt/differs", json!(false), &["private_root"]),
        ("/namespaces/pid/differs", json!(false), &["private_processes"]),
        ("/namespaces/ipc/differs", json!(false), &["private_ipc"]),
        ("/namespaces/uts/differs", json!(false), &["private_hostname"]),
        ("/namespaces/user/differs", json!(false), &["private_users"]),
        ("/namespaces/cgroup/differs", json!(false), &["private_cgroups"]),
        ("/rlimits/fsize/hard", json!("unlimited"), &["file_size_limit"]),
        ("/rlimits/nofile/hard", json!("unlimited"), &["open_files_limit"]),
        ("/rlimits/cpu/hard", json!("unlimited"), &["cpu_time_limit"]),
        ("/rlimits/core/hard", json!(1), &["no_core_dumps"]),
        ("/witness/rlimits/core/hard", json!(1), &["no_core_dumps"]),
        ("/cgroup/backend", Value::Null, &["memory_limit", "process_limit"]),
        ("/cgroup/limits/memory_bytes", json!(0), &["memory_limit"]),
        ("/witness/cgroup/limits/memory_bytes", json!(1), &["memory_limit"]),
        ("/cgroup/limits/pids", json!(0), &["process_limit"]),
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
        let expected: BTreeSet<&str> = PROTECTIONS.iter().map(|p| p.name).filter(|name| !lost.contains(name)).collect();
        assert_eq!(left, expected, "{at} {value}");
        covered.extend(lost);

        let refused = reason(forged(|doc| put(doc, at, &value)));
        assert!(refused.starts_with("not a valid attestation: "), "{at} {value}: {refused}");
    }
    for (at, canary) in CANARIES.iter().enumerate() {
        let refused = reason(forged(|doc| doc["canaries"][at]["after"] = json!("ok")));
        assert!(refused.contains("no canary and no read-back in the document proves it"), "{}: {refused}", canary.id);
        let refused = reason(forged(|doc| {
            doc["canaries"].as_array_mut().expect("list").remove(at);
        }));
        assert!(refused.contains("proves it"), "{}: {refused}", canary.id);
        covered.extend(
            PROTECTIONS
                .iter()
                .filter(|p| p.proof(&facts()).expect("proved").canaries.contains(&canary.id))
                .map(|p| p.name),
        );
    }
    assert_eq!(covered.len(), PROTECTIONS.len(), "every protection was taken its proof from");
}

#[test]
fn what_was_shown_may_be_left_unclaimed() {
    let less = forged(|doc| {
        let list = doc["capability_proof"].as_array_mut().expect("list");
        list.retain(|claim| claim["protection"] != "keyrings");
    });
    assert!(!less.expect("valid").claims().contains(&"keyrings"));
}

#[test]
fn statements_that_contradict_each_other_are_invalid() {
    let turn = |at: &'static str, value: Value| reason(forged(move |doc| put(doc, at, &value)));
    let claim = json!({"protection": "time_travel", "mechanism": "seccomp", "canaries": [], "read_back": [], "witness": "self"});
    let cases = [
        (turn("/started", json!(false)), "exit says otherwise"),
        (turn("/exit", json!({"refused": {"mechanism": "landlock", "reason": "x"}})), "exit says otherwise"),
        (turn("/stdout", Value::Null), "stdout is missing"),
        (turn("/wall_ms", Value::Null), "wall_ms is missing"),
        (turn("/executable", Value::Null), "hash of its executable is missing"),
        (turn("/exit", json!({"limit": "memory"})), "nothing that was counted shows it"),
        (turn("/exit", json!({"limit": "processes"})), "nothing that was counted shows it"),
        (turn("/exit", json!({"limit": "output"})), "nothing that was counted shows it"),
        (turn("/enforcement_backend", json!("docker")), "enforcement_backend is docker"),
        (turn("/enforcement_backend", json!("none")), "enforcement_backend is none"),
        (turn("/not_claimed", json!([])), "clock cannot be fixed"),
        (turn("/status/seccomp", json!(2)), "accepted"),
        (turn("/witness/rlimits/stack", json!({"soft": 1, "hard": 1})), "rlimits.stack.hard"),
        (turn("/witness/namespaces/pid/inode", json!(9)), "private_processes is claimed"),
        (reason(forged(|doc| doc["not_claimed"][0]["id"] = json!("clock2"))), "clock cannot be fixed"),
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
            "capability_proof speaks of filesystem_read twice",
        ),
        (
            reason(forged(|doc| doc["capability_proof"][0]["canaries"] = json!(["landlock_write"]))),
            "the canaries of the claim filesystem_read",
        ),
        (
            reason(forged(|doc| doc["capability_proof"][0]["witness"] = json!("both"))),
            "the witness of the claim filesystem_read",
        ),
        (
            reason(forged(|doc| doc["capability_proof"][0]["mechanism"] = json!("seccomp"))),
            "the mechanism of the claim filesystem_read",
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
    assert!(attestation.not_claimed().contains(&"filesystem_read"));

    // The canaries that passed before another did not are facts too; that nothing ran stays said.
    let mut facts = facts();
    facts["started"] = json!(false);
    facts["exit"] = json!({"refused": {"mechanism": "seccomp", "reason": "seccomp_live answered ok"}});
    facts["canaries"][6]["after"] = json!("ok");
    facts["witness"]["namespaces"]["pid"]["inode"] = json!(1);
    let attestation = attest(&about(), &facts, &key()).expect("attested");
    assert_eq!(attestation.enforcement_backend(), "none");
    assert!(!attestation.claims().contains(&"syscall_filter") && !attestation.claims().contains(&"no_survivors"));
    assert!(attestation.doc().get("stdout").is_none() && attestation.doc().get("wall_ms").is_none());

    let bare = attest(&verifica::attest::About { contract_sha256: None, ..about() }, &refused("userns"), &key());
    let envelope = bare.expect("attested").envelope().expect("envelope");
    let payload: Value = serde_json::from_slice(&envelope.payload).expect("json");
    assert_eq!(payload["subject"][0]["name"], "policy");
    assert!(statement::read(&envelope).is_ok());
}

#[test]
fn facts_say_only_what_is_theirs_to_say() {
    for name in ["capability_proof", "enforcement_backend", "signature", "dsse", "policy", "by", "tipo", "job"] {
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
        ("/exit", json!({"limit": "Memory"}), "exit.limit is not a word"),
        ("/exit", json!({"refused": "landlock"}), "exit.refused is not an object"),
        ("/wall_ms", json!(-1), "wall_ms is not a whole number"),
        ("/ids/uid", json!([1000]), "ids.uid is not a list of four"),
        ("/rlimits/core/hard", json!("infinite"), "rlimits.core.hard is not a whole number"),
        ("/namespaces/net/differs", json!(1), "namespaces.net.differs is not true or false"),
        ("/namespaces", json!({"Net": {"inode": 1, "differs": true}}), "namespaces has a name"),
        ("/canaries", json!({}), "canaries is not a list"),
        ("/canaries/0/after", json!("denied"), "canaries[0].after is not the name"),
        ("/seccomp/filters/0/sha256", json!("f"), "seccomp.filters[0].sha256 is not"),
        ("/caps/effective", json!("0x0"), "caps.effective is not lower-case"),
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
        (0..count).map(|i| json!({"id": format!("own_{i}"), "before": "ok", "after": "EIO"})).collect::<Vec<_>>()
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
    assert_eq!(names, ["executable", "input/delivery/a.txt", "input/b", "contract"]);

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
        (|p| p["predicate"]["canaries"] = json!([]), "proves it"),
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
    for protection in PROTECTIONS {
        assert_eq!(Protection::named(protection.name).map(|p| p.mechanism), Some(protection.mechanism));
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
