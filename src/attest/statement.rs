//! The in-toto statement, version 1: what an attestation is about, by hash, and what it says of it.
//!
//! The predicate is the document without its two signatures. The subjects follow from it, and are checked against it:
//! what was executed and its inputs, what was agreed, and, when none of them was reached, the policy.

use super::document::{DSSE, End, SIGNATURE, bad, check_predicate};
use super::dsse::Envelope;
use crate::refusal::Refusal;
use crate::wire::json::{canonical, parse_object};
use serde_json::{Map, Value, json};

/// A statement that was read from an envelope. That its signature holds is not known from here.
#[derive(Clone, Debug)]
pub enum Statement {
    /// An attestation whose claims follow from its facts.
    Attestation { predicate: Value, end: End },
    /// Well formed, of a type that is not ours.
    Other { predicate_type: String },
}

/// The bytes of the statement of a document, signed or not.
pub fn payload(doc: &Map<String, Value>) -> String {
    let mut predicate = doc.clone();
    predicate.remove(SIGNATURE);
    predicate.remove(DSSE);
    let subject = subjects(&predicate);
    canonical(&json!({
        "_type": TYPE, "subject": subject, "predicateType": PREDICATE_TYPE, "predicate": predicate,
    }))
}

/// Reads what an envelope carries. The layers' own rules hold: unknown fields are ignored, subjects have a digest.
pub fn read(envelope: &Envelope) -> Result<Statement, Refusal> {
    if envelope.payload_type != PAYLOAD_TYPE {
        return Err(bad(format!("the envelope does not carry {PAYLOAD_TYPE}")));
    }
    let doc = parse_object(&envelope.payload)?;
    if doc.get("_type").is_none_or(|kind| kind != TYPE) {
        return Err(bad(format!("the statement's _type is not {TYPE}")));
    }
    let Some(predicate_type) = doc.get("predicateType").and_then(Value::as_str).filter(|text| !text.is_empty()) else {
        return Err(bad("the statement has no predicateType"));
    };
    let subject = doc.get("subject").and_then(Value::as_array).filter(|list| !list.is_empty());
    let subject = subject.ok_or_else(|| bad("the statement has no subject"))?;
    let digested = |item: &Value| {
        let digest = item.get("digest").and_then(Value::as_object).filter(|digest| !digest.is_empty());
        digest.is_some_and(|digest| digest.values().all(|value| value.as_str().is_some_and(|text| !text.is_empty())))
    };
    if !subject.iter().all(digested) {
        return Err(bad("a subject of the statement has no digest"));
    }
    if predicate_type != PREDICATE_TYPE {
        return Ok(Statement::Other { predicate_type: predicate_type.to_owned() });
    }
    let predicate = doc.get("predicate").ok_or_else(|| bad("the statement has no predicate"))?;
    let end = check_predicate(predicate)?;
    let expected = predicate.as_object().map(subjects).unwrap_or_default();
    let known = |item: &Value| {
        let name = item.get("name").cloned().unwrap_or_default();
        let sha256 = item.pointer("/digest/sha256").cloned().unwrap_or_default();
        json!({"name": name, "digest": {"sha256": sha256}})
    };
    if subject.iter().map(known).collect::<Vec<_>>() != expected {
        return Err(bad("the subjects of the statement are not what its predicate is about"));
    }
    Ok(Statement::Attestation { predicate: predicate.clone(), end })
}

fn subjects(predicate: &Map<String, Value>) -> Vec<Value> {
    let mut out = Vec::new();
    let mut add = |name: &str, sha256: Option<&Value>| {
        if let Some(sha256) = sha256.and_then(Value::as_str) {
            out.push(json!({"name": name, "digest": {"sha256": sha256}}));
        }
    };
    for (list, kind) in [("executed", "executed"), ("inputs", "input")] {
        for item in predicate.get(list).and_then(Value::as_array).into_iter().flatten() {
            let path = item.get("path").and_then(Value::as_str).unwrap_or_default();
            add(&format!("{kind}:{path}"), item.get("sha256"));
        }
    }
    add("contract", predicate.get("contract_sha256"));
    if out.is_empty() {
        let sha256 = predicate.get("policy").and_then(|policy| policy.get("sha256")).cloned();
        out.push(json!({"name": "policy", "digest": {"sha256": sha256}}));
    }
    out
}

pub const TYPE: &str = "https://in-toto.io/Statement/v1";
pub const PREDICATE_TYPE: &str = "urn:nyx5:ext:atestacion:1";
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
