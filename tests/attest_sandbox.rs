//! Attestations of real runs on this host: what the sandbox read back is enough for each claim that it and its policies
//! make, however the run ended, and a run that was refused claims no run.
//!
//! Where this host lacks a mechanism a test says so aloud and ends; with `VERIFICA_REQUIRE_ALL` set it fails instead.

#[path = "sandbox/support.rs"]
#[allow(dead_code)]
mod support;

use serde_json::Value;
use support::{able, alone, default_policy, input, job, shell};
use verifica::attest::protection::canary_passed;
use verifica::attest::{About, Attestation, End, attest, statement};
use verifica::sandbox::{Job, JobPolicy, JobReport, Slot, Step, rehearse, run_blocking};
use verifica::time::Timestamp;
use verifica::wire::json::{canonical, parse};
use verifica::wire::key::SigningKey;

fn attested(job: &Job, report: &JobReport) -> Attestation {
    let about = About {
        job: "6f0c1a52-7f0e-4c38-9c1d-0a9f2d7b1c11",
        at: Timestamp::from_millis(1_790_000_000_123),
        house: None,
        by: None,
        contract: None,
        contract_sha256: None,
        policy_name: &job.policy.name,
        policy_sha256: job.policy.sha256(),
    };
    let key = SigningKey::from_seed([7; 32]);
    let made = attest(&about, &report.facts, &key).unwrap_or_else(|refusal| panic!("{refusal}\n{}", report.facts));
    let text = canonical(made.doc());
    let read = Attestation::parse(parse(text.as_bytes()).expect("json")).expect("its own reader accepts it");
    assert_eq!(read.sha256(), made.sha256());
    assert!(statement::read(&read.envelope().expect("envelope")).is_ok());
    read
}

fn run(job: &Job) -> Attestation {
    let slot = Slot::take().expect("slot");
    attested(job, &run_blocking(job, &slot))
}

#[test]
fn what_a_policy_requires_and_the_sandbox_claims_is_proved_by_the_facts() {
    let _one = alone();
    for name in JobPolicy::names() {
        let policy = JobPolicy::named(name).expect("policy");
        if !able(&policy) {
            continue;
        }
        let job = Job { argv: vec!["true".to_owned()], inputs: vec![input("a", b"b")], policy, within_s: None };
        let slot = Slot::take().expect("slot");
        let report = run_blocking(&job, &slot);
        let attestation = attested(&job, &report);
        let claims = attestation.claims();
        println!("{name}: {} bytes, {claims:?}", canonical(attestation.doc()).len());
        assert_eq!(attestation.end(), &End::Code(0));
        for required in &job.policy.required {
            assert!(claims.contains(&required.as_str()), "{name} requires {required}: {}", report.facts);
        }
        for canary in report.facts["canaries"].as_array().expect("canaries") {
            let text = |name: &str| canary[name].as_str().expect("text");
            let passed = canary_passed(text("id"), text("before"), text("after"));
            assert_eq!(passed, canary["ok"].as_bool(), "{name}: {canary}");
        }
        assert!(report.facts.get("capability_proof").is_none(), "claims are derived, never stated");
        let names: Vec<&Value> =
            attestation.doc()["inputs"].as_array().expect("inputs").iter().map(|i| &i["path"]).collect();
        assert_eq!(names, ["a"]);
    }
}

#[test]
fn however_a_run_ends_there_is_a_document_of_it() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    assert_eq!(run(&shell("exit 3")).end(), &End::Code(3));
    assert_eq!(run(&shell("kill -TERM $$")).end(), &End::Signal(15));
    assert_eq!(run(&shell("while :; do echo yes; done")).end(), &End::Limit("output".to_owned()));
    assert_eq!(run(&Job { within_s: Some(1), ..shell("sleep 20") }).end(), &End::Limit("within".to_owned()));
    let missing = run(&job(&["./no-such-program"]));
    let End::Refused { mechanism, .. } = missing.end() else { panic!("{:?}", missing.end()) };
    assert_eq!((mechanism.as_str(), missing.enforcement_backend()), ("exec", "none"));
    assert!(missing.doc().get("stdout").is_none());
}

#[test]
fn a_run_with_a_step_left_out_is_attested_as_refused_by_name() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    let slot = Slot::take().expect("slot");
    for (step, item) in [
        (Step::Landlock, "landlock"),
        (Step::SeccompMarker, "seccomp"),
        (Step::NoNewPrivs, "no_new_privs"),
        (Step::DropCapabilities, "capabilities"),
        (Step::CloseDescriptors, "descriptors"),
        (Step::IpcNamespace, "namespace.ipc"),
    ] {
        let job = shell("echo ran");
        let attestation = attested(&job, &rehearse(&job, &slot, step));
        let End::Refused { mechanism, reason } = attestation.end() else { panic!("{:?}", attestation.end()) };
        assert_eq!(mechanism, item, "{reason}");
        assert_eq!(attestation.enforcement_backend(), "none");
        assert!(!attestation.claims().contains(&item), "{step:?}");
        assert!(attestation.not_claimed().contains(&item), "{step:?}");
    }
}
