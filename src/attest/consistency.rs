//! Claims that contradict each other, or that nothing in the document bears out.

use super::document::{End, FIXED, backend};
use super::protection::{Protection, disagreements, proved};
use serde_json::Value;
use std::collections::BTreeSet;

/// Says which two statements of the document do not go together. Its structure was checked before.
pub(super) fn check(doc: &Value, end: &End) -> Result<(), String> {
    start_and_end(doc, end)?;
    measured(doc, end)?;
    once(doc, "capability_proof", "protection")?;
    once(doc, "not_claimed", "id")?;
    once(doc, "inputs", "path")?;
    claims(doc)?;
    if doc.get("started") != Some(&Value::Bool(true)) {
        return Ok(());
    }
    if let Some(at) = disagreements(doc).first() {
        return Err(format!("the job's own reading of {at} and the daemon's differ, and the job was started"));
    }
    Ok(())
}

fn start_and_end(doc: &Value, end: &End) -> Result<(), String> {
    let started = doc.get("started") == Some(&Value::Bool(true));
    // A job that started and has no outcome was ended by the house; without a start there is nothing but a refusal.
    if !started && !matches!(end, End::Refused { .. }) {
        return Err("started says that the job did not start, and exit says otherwise".to_owned());
    }
    for name in RAN {
        match (started, doc.get(*name).filter(|value| !value.is_null())) {
            (true, None) => return Err(format!("the job started, and {name} is missing")),
            (false, Some(_)) => return Err(format!("the job did not start, and there is a {name}")),
            _ => {}
        }
    }
    if started && doc.get("executed").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return Err("the job started, and the hash of what was executed is missing".to_owned());
    }
    Ok(())
}

/// A limit that ended a job leaves its mark in what was counted.
fn measured(doc: &Value, end: &End) -> Result<(), String> {
    let count = |at: &str| doc.pointer(at).and_then(Value::as_u64);
    let truncated = |of: &str| doc.pointer(&format!("/{of}/truncated")) == Some(&Value::Bool(true));
    let grouped = doc.pointer("/cgroup/backend").is_some_and(|backend| backend != "none");
    if let End::Limit(limit) = end {
        let contradicted = match limit.as_str() {
            "memory" => grouped && count("/cgroup/oom_kill") == Some(0),
            "processes" => grouped && count("/cgroup/pids_max_hits") == Some(0),
            "output" => !truncated("stdout") && !truncated("stderr"),
            _ => false,
        };
        if contradicted {
            return Err(format!("exit names the {limit} limit, and nothing that was counted shows it"));
        }
    }
    let requested = doc.pointer("/requested/policy_sha256");
    if requested.is_some() && requested != doc.pointer("/policy/sha256") {
        return Err("the policy that was requested is not the policy of the document".to_owned());
    }
    if doc.pointer("/landlock/status").is_some_and(|status| status == "fully_enforced")
        && count("/landlock/abi") == Some(0)
    {
        return Err("landlock is fully enforced at no abi".to_owned());
    }
    Ok(())
}

fn once(doc: &Value, list: &str, name: &str) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for item in doc.get(list).and_then(Value::as_array).into_iter().flatten() {
        let key = item.get(name).and_then(Value::as_str).unwrap_or_default();
        if !seen.insert(key) {
            return Err(format!("{list} speaks of {key} twice"));
        }
    }
    Ok(())
}

fn claims(doc: &Value) -> Result<(), String> {
    let list = |name: &str| doc.get(name).and_then(Value::as_array).into_iter().flatten();
    let text = |item: &Value, name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let not_claimed: BTreeSet<String> = list("not_claimed").map(|item| text(item, "id")).collect();
    let proofs = proved(doc);
    let mut claimed: Vec<&'static str> = Vec::new();
    for claim in list("capability_proof") {
        let name = text(claim, "protection");
        let Some(protection) = Protection::named(&name) else {
            return Err(format!("{name} is claimed, and this version knows no proof of it"));
        };
        let Some(proof) = proofs.iter().find(|proof| proof.protection.name == protection.name) else {
            return Err(format!("{name} is claimed, and the canaries and read-backs in the document do not prove it"));
        };
        let proof = proof.to_json();
        for field in ["mechanism", "canaries", "read_back", "witness"] {
            if claim.get(field) != proof.get(field) {
                return Err(format!("the {field} of the claim {name} is not what the document proves"));
            }
        }
        if not_claimed.contains(&name) {
            return Err(format!("{name} is both claimed and not claimed"));
        }
        claimed.push(protection.name);
    }
    let started = doc.get("started") == Some(&Value::Bool(true));
    if started && claimed.is_empty() {
        return Err("the job started, and no protection was in force".to_owned());
    }
    // Whatever the order of the claims, the name follows the order of the table.
    let ordered = proofs.iter().filter(|proof| claimed.contains(&proof.protection.name));
    let named = doc.get("enforcement_backend").and_then(Value::as_str).unwrap_or_default();
    let ran = backend(started, ordered.map(|proof| proof.protection.mechanism));
    if named != ran {
        return Err(format!("enforcement_backend is {named}, and what is proved is {ran}"));
    }
    if let Some((missing, _)) = FIXED.iter().find(|(id, _)| !not_claimed.contains(*id)) {
        return Err(format!("{missing} cannot be fixed, and not_claimed does not say so"));
    }
    Ok(())
}

/// What only a job that ran has.
pub(super) const RAN: &[&str] = &["wall_ms", "stdout", "stderr", "survivors"];
