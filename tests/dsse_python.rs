//! Envelopes and statements against independent implementations from PyPI: theirs accept ours, ours accepts theirs, and
//! both refuse what the other refuses.
//!
//! The packages are looked for in `VERIFICA_PYTHON`, then in the virtual environment `target/python`, then in `python3`.
//! Without them this test says so and passes; with `VERIFICA_REQUIRE_ALL=1` it fails instead.

#[path = "attest/facts.rs"]
#[allow(dead_code)]
mod facts;

use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use verifica::attest::dsse::{self, Envelope};
use verifica::attest::statement::{self, Statement};
use verifica::wire::digest::from_base64url;

const SEED: [u8; 32] = [7; 32];
const IMPORTS: &str = "import securesystemslib.dsse, in_toto_attestation.v1.statement, cryptography";

fn python() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = std::env::var_os("VERIFICA_PYTHON").map(PathBuf::from);
    let candidates = [named, Some(root.join("target/python/bin/python")), Some(PathBuf::from("python3"))];
    let works = |python: &PathBuf| {
        let tried = Command::new(python).args(["-c", IMPORTS]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let found = candidates.into_iter().flatten().find(works);
    if found.is_none() {
        let missing = "no python with securesystemslib, cryptography and in-toto-attestation (see .ci/run)";
        assert!(std::env::var("VERIFICA_REQUIRE_ALL").as_deref() != Ok("1"), "required: {missing}");
        eprintln!("SKIPPED: {missing}; DSSE and in-toto were not compared with other implementations");
    }
    found
}

fn ask(python: &Path, request: &Value) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/dsse.py");
    let mut child =
        Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python starts");
    let mut stdin = child.stdin.take().expect("stdin");
    let text = request.to_string();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("python ends");
    writer.join().expect("writer").expect("written");
    assert!(output.status.success(), "the script failed");
    serde_json::from_slice(&output.stdout).expect("an answer")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn verify(python: &Path, envelope: &Value) -> Value {
    let kid = facts::key().public().kid();
    let public = hex(&from_base64url(&kid).expect("key"));
    ask(python, &json!({"do": "verify", "envelope": envelope, "public": public, "keyid": kid}))
}

#[test]
fn another_implementation_accepts_our_envelope_and_statement() {
    let Some(python) = python() else { return };
    let attestation = facts::whole();
    let envelope = attestation.envelope().expect("envelope");
    let answer = verify(&python, &envelope.to_json());
    assert_eq!(answer["ok"], true, "{answer}");
    assert_eq!(answer["statement"]["predicateType"], statement::PREDICATE_TYPE);
    assert_eq!(answer["statement"]["subject"][0]["digest"]["sha256"], facts::hash("program"));
    let predicate = &answer["statement"]["predicate"];
    assert_eq!(predicate["enforcement_backend"], attestation.enforcement_backend());
    assert_eq!(predicate["capability_proof"].as_array().map(Vec::len), Some(attestation.claims().len()));

    let refusal = verifica::attest::attest(&facts::about(), &facts::refused("landlock"), &facts::key()).expect("made");
    let refusal = verify(&python, &refusal.envelope().expect("envelope").to_json());
    assert_eq!(refusal["ok"], true, "{refusal}");
    assert_eq!(refusal["statement"]["predicate"]["exit"]["refused"], "landlock");
}

#[test]
fn both_refuse_what_was_changed() {
    let Some(python) = python() else { return };
    let envelope = facts::whole().envelope().expect("envelope");
    let payload = String::from_utf8(envelope.payload.clone()).expect("text");
    let other = payload.replace("\"code\":0", "\"code\":1");
    assert_ne!(other, payload);
    let mut other_signature = envelope.signatures.clone();
    other_signature[0].sig[10] ^= 1;
    let cases = [
        ("payload", Envelope { payload: other.into_bytes(), ..envelope.clone() }),
        ("type", Envelope { payload_type: "application/vnd.in-toto+jsom".into(), ..envelope.clone() }),
        ("signature", Envelope { signatures: other_signature, ..envelope.clone() }),
    ];
    for (what, changed) in cases {
        assert!(!changed.verified_by(&facts::key().public()), "{what}");
        assert_eq!(verify(&python, &changed.to_json())["ok"], false, "{what}");
    }
    // Rightly signed, and no statement: the layer above refuses it on both sides.
    let subjectless = payload.replace("\"subject\":[", "\"subject\":[],\"others\":[");
    for bytes in [subjectless.into_bytes(), b"{}".to_vec(), b"[]".to_vec(), b"\xff".to_vec()] {
        let envelope = Envelope::sign(statement::PAYLOAD_TYPE, bytes, &facts::key());
        assert!(statement::read(&envelope).is_err());
        assert_eq!(verify(&python, &envelope.to_json())["ok"], false);
    }
}

#[test]
fn we_accept_what_another_implementation_signed() {
    let Some(python) = python() else { return };
    let attestation = facts::whole();
    let ours = attestation.envelope().expect("envelope");
    let document: Value = serde_json::from_slice(&ours.payload).expect("json");
    let subjects: Vec<Value> = document["subject"]
        .as_array()
        .expect("list")
        .iter()
        .map(|subject| json!([subject["name"], subject["digest"]["sha256"]]))
        .collect();
    let mut request = json!({
        "do": "make", "seed": hex(&SEED), "keyid": facts::key().public().kid(), "subjects": subjects,
        "predicate_type": statement::PREDICATE_TYPE, "predicate": document["predicate"],
    });
    let made = ask(&python, &request);
    let theirs = Envelope::parse(&made["envelope"]).expect("read");
    assert_eq!(hex(&dsse::pae(&theirs.payload_type, &theirs.payload)), made["pae"].as_str().expect("pae"));
    assert!(theirs.verified_by(&facts::key().public()));
    assert_eq!(theirs.self_named_signer(), Some(facts::key().public()));
    let Ok(Statement::Attestation { end, .. }) = statement::read(&theirs) else { panic!("not a statement of ours") };
    assert_eq!(&end, attestation.end());

    // A claim without its proof is refused however well it is signed.
    request["predicate"]["canaries"] = json!([]);
    let made = ask(&python, &request);
    let theirs = Envelope::parse(&made["envelope"]).expect("read");
    assert!(theirs.verified_by(&facts::key().public()));
    assert!(statement::read(&theirs).is_err());

    // A keyid that is no key of ours is a hint that does not help, and does no harm.
    request["keyid"] = json!("somebody");
    let made = ask(&python, &request);
    let theirs = Envelope::parse(&made["envelope"]).expect("read");
    assert!(theirs.verified_by(&facts::key().public()));
    assert_eq!(theirs.self_named_signer(), None);
}
