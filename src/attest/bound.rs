//! Whether the attestations of an evidence file are the ones of the runs that it was judged on. A result says how a run
//! ended; the document that the run is named by must say the same, of the same program, inputs, policy and contract, and
//! the same key must have signed it as signed the verdict.
//!
//! Deliberately absent: whose key that is, and what the runs come to; that is what `verify` and `replay` are for.

use super::document::{Attestation, exit_of};
use crate::probe::exit_0::{JobEnd, JobRun};
use crate::wire::Sha256;
use crate::wire::json::{canonical_sha256, parse};
use crate::wire::key::Signature;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Checks and differences, one line each. A file without runs of jobs has neither.
pub fn bound(evidence: &Value) -> (Vec<String>, Vec<String>) {
    let mut differences = Vec::new();
    let documents = documents(evidence, &mut differences);
    let tests: Value = match evidence.get("tests") {
        Some(Value::String(text)) => parse(text.as_bytes()).unwrap_or_default(),
        other => other.cloned().unwrap_or_default(),
    };
    let mut named = BTreeSet::new();
    for (n, look) in list(evidence, "looks").enumerate() {
        let runs: BTreeMap<usize, Vec<JobRun>> = match look.get("runs") {
            None => continue,
            Some(runs) => match serde_json::from_value(runs.clone()) {
                Ok(runs) => runs,
                Err(why) => {
                    differences.push(format!("look {}: its runs cannot be read: {why}", n + 1));
                    continue;
                }
            },
        };
        for (position, runs) in &runs {
            let test = if tests.is_array() { tests.get(*position) } else { Some(&tests) };
            let inputs = look.pointer(&format!("/resultados/{position}/evidencia/inputs"));
            for (at, run) in runs.iter().enumerate() {
                let what = format!("look {}, test {}, run {}", n + 1, position + 1, at + 1);
                // What kept a run from taking place at all is no run, decides nothing, and has no document.
                if run.attestation.is_none() && matches!(run.end, JobEnd::Unavailable { .. }) {
                    continue;
                }
                let found = run.attestation.and_then(|hash| documents.get(&hash));
                named.extend(run.attestation);
                let Some(document) = found else {
                    differences.push(format!("{what}: its attestation is not in the file"));
                    continue;
                };
                differences.extend(one(document, run, test, inputs, evidence).map(|why| format!("{what}: {why}")));
            }
        }
    }
    for hash in documents.keys().filter(|hash| !named.contains(*hash)) {
        differences.push(format!("the attestation {hash} is of no run in this file"));
    }
    let mut checks = Vec::new();
    if !named.is_empty() {
        checks.push(format!(
            "each of {} runs has its attestation in the file: signed, its claims follow from its facts, and it says what \
             the run came to, of which program, inputs, policy and contract",
            named.len()
        ));
    }
    (checks, differences)
}

fn documents(evidence: &Value, differences: &mut Vec<String>) -> BTreeMap<Sha256, Attestation> {
    let mut out = BTreeMap::new();
    for (n, doc) in list(evidence, "attestations").enumerate() {
        match Attestation::parse(doc.clone()) {
            Ok(attestation) => {
                // Its name is of all of it, so nothing can stand in the file that the reader left out.
                out.insert(canonical_sha256(doc), attestation);
            }
            Err(refusal) => differences.push(format!("attestation {}: {}", n + 1, refusal.reason)),
        }
    }
    out
}

fn one<'a>(
    document: &Attestation,
    run: &JobRun,
    test: Option<&Value>,
    inputs: Option<&Value>,
    evidence: &Value,
) -> impl Iterator<Item = String> + 'a {
    let doc = document.doc();
    let mut wrong = Vec::new();
    let mut must = |what: &str, seen: Option<&Value>, expected: &Value| {
        let seen = seen.unwrap_or(&Value::Null);
        if seen != expected {
            wrong.push(format!("its attestation says of the {what} {seen}, expected {expected}"));
        }
    };
    must("end", doc.get("exit"), &exit_of(&run.end));
    let argv = test.and_then(|test| test.get("argv")).cloned().unwrap_or_default();
    must("command", doc.pointer("/requested/argv_sha256"), &json!(canonical_sha256(&argv)));
    if let Some(policy) = evidence.pointer("/capabilities/jobs/sha256") {
        must("policy", doc.pointer("/policy/sha256"), policy);
    }
    if let Some(placed) = doc.get("inputs") {
        let pair = |item: &Value| json!([item.get("path"), item.get("sha256")]);
        let of = |list: Option<&Value>| -> Value {
            list.and_then(Value::as_array).map(|items| items.iter().map(pair).collect()).unwrap_or_else(|| json!([]))
        };
        must("inputs", Some(&of(Some(placed))), &of(inputs));
    }
    if let Some(verdict) = evidence.get("veredicto") {
        for field in ["contract", "house", "by"] {
            must(field, doc.get(field), verdict.get(field).unwrap_or(&Value::Null));
        }
        let signer = Signature::of(verdict, "signature").map(|signature| signature.kid.to_owned());
        must("signer", Some(&json!(document.signer().kid())), &json!(signer));
    }
    wrong.into_iter()
}

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of.get(name).and_then(Value::as_array).into_iter().flatten()
}
