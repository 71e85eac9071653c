//! A run with its whole proof, and the steps left out one at a time.

use super::support::*;
use verifica::attest::{About, attest};
use verifica::probe::exit_0::JobEnd;
use verifica::sandbox::{JobPolicy, JobReport, Slot, Step, rehearse, self_test};
use verifica::time::Timestamp;
use verifica::wire::key::SigningKey;

#[test]
fn a_program_that_does_nothing_runs_under_everything() {
    let _one = alone();
    let report = go(&job(&["true"]));
    if let JobEnd::Unenforced { mechanism, reason } = &report.end {
        skip(&format!("{mechanism}: {reason}"));
        return;
    }
    assert_eq!(code(&report), 0);
    assert!(report.started);
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
fn the_self_test_says_of_each_protection_what_was_measured() {
    let _one = alone();
    for name in JobPolicy::names() {
        let test = self_test(&JobPolicy::named(name).expect("policy"));
        for item in &test.items {
            println!("{name} {} required={} ok={} {}", item.name, item.required, item.ok, item.seen);
            assert!(!item.seen.is_empty() && (item.ok == item.mend.is_empty()), "{item:?}");
        }
        assert_eq!(test.holds(), test.missing.is_none(), "{:?}", test.missing);
        println!("{name}: {:?}", test.missing);
    }
}

#[test]
fn every_step_left_out_is_objected_to_by_name() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    let slot = Slot::take().expect("slot");
    for (step, objector) in STEPS {
        let report = rehearse(&shell("echo ran"), &slot, *step);
        match &report.end {
            JobEnd::Unenforced { mechanism, reason } => {
                println!("{step:?} -> {mechanism}: {reason}");
                assert!(!report.started, "{step:?}: the job ran");
                assert_eq!(mechanism, objector, "{step:?}: {reason}");
            }
            other => panic!("{step:?} was left out and nobody objected: {other:?}"),
        }
        assert_eq!(report.stdout.bytes, 0);
    }
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
fn what_a_run_states_can_be_signed_and_claims_every_protection_required() {
    let _one = alone();
    let policy = default_policy();
    if !able(&policy) {
        return;
    }
    let attested = |report: &JobReport| {
        let about = About {
            job: "6f0c1a52-7f0e-4c38-9c1d-0a9f2d7b1c11",
            at: Timestamp::from_millis(1_790_000_000_123),
            house: None,
            by: None,
            contract: None,
            contract_sha256: None,
            policy_name: &policy.name,
            policy_sha256: policy.sha256(),
        };
        attest(&about, &report.facts, &SigningKey::from_seed([7; 32])).expect("attested")
    };
    let whole = attested(&go(&job(&["true"])));
    for required in &policy.required {
        assert!(whole.claims().contains(&required.as_str()), "{required} is not claimed");
    }
    let mut loud = job(&["yes"]);
    loud.policy = policy.clone();
    let ends = [
        go(&loud),
        go(&shell("exit 3")),
        go(&shell("kill -9 $$")),
        go(&job(&["no-such-program"])),
        rehearse(&job(&["true"]), &Slot::take().expect("slot"), Step::Landlock),
    ];
    for report in &ends {
        let attestation = attested(report);
        assert_eq!(attestation.claims().is_empty(), report.facts.get("witness").is_none(), "{:?}", report.end);
    }
    let mut late = job(&["sleep", "9"]);
    late.within_s = Some(1);
    attested(&go(&late));
}

const STEPS: &[(Step, &str)] = &[
    (Step::UserNamespace, "ids"),
    (Step::PidNamespace, "namespace.pid"),
    (Step::MountNamespace, "namespace.mnt"),
    (Step::NetNamespace, "network"),
    (Step::IpcNamespace, "namespace.ipc"),
    (Step::UtsNamespace, "namespace.uts"),
    (Step::CgroupNamespace, "namespace.cgroup"),
    (Step::JoinGroups, "processes.group"),
    (Step::MemoryLimit, "memory.group"),
    (Step::ProcessLimit, "processes.group"),
    (Step::ReadOnlyTrees, "root"),
    (Step::ReadOnlyRoot, "root"),
    (Step::RestrictedProc, "root"),
    (Step::ScratchLimit, "root"),
    (Step::PivotRoot, "root"),
    (Step::HostName, "namespace.uts"),
    (Step::Session, "session"),
    (Step::Umask, "root"),
    (Step::Limits, "limits"),
    (Step::Affinity, "determinism"),
    (Step::FixedAddresses, "determinism"),
    (Step::OomScore, "memory"),
    (Step::CloseDescriptors, "descriptors"),
    (Step::DropUser, "ids"),
    (Step::DropCapabilities, "capabilities"),
    (Step::NoNewPrivs, "no_new_privs"),
    (Step::Landlock, "landlock"),
    (Step::LandlockFiles, "landlock"),
    (Step::LandlockNet, "landlock"),
    (Step::LandlockScopes, "landlock"),
    (Step::SeccompAllowList, "seccomp"),
    (Step::SeccompAbsent, "seccomp"),
    (Step::SeccompMarker, "seccomp"),
];
