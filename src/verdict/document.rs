//! The verdict document (V62) and the answer of `check`. Both are unsigned here.

use super::{EvidenceName, Joint, Look, Policy, RULES, Verdict, joint};
use crate::probe::observation::FetchKey;
use crate::probe::result::TestResult;
use crate::time::Timestamp;
use crate::wire::Sha256;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a verdict document says. It is the `veredicto` of the ledger operation once it is signed.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    pub id: &'a str,
    pub contract: &'a str,
    pub house: &'a str,
    /// The address that decided, and whose key signs.
    pub by: &'a str,
    pub at: Timestamp,
    pub policy: &'a Policy,
    /// What it stands on, where that is kept.
    pub evidence: Option<&'a EvidenceName>,
    /// Every look that the verdict stands on, oldest first.
    pub looks: &'a [Look],
    /// What they say together.
    pub agreed: &'a Look,
}

impl Document<'_> {
    /// Without its signature. Every number in it is a safe integer.
    pub fn to_json(&self) -> Value {
        let answer = self.agreed.joint();
        let looks: Vec<Value> = self.looks.iter().map(look).collect();
        let mut document = json!({
            "nyx5": "1",
            "tipo": "veredicto",
            "id": self.id,
            "contract": self.contract,
            "house": self.house,
            "by": self.by,
            "at": self.at.to_string(),
            "rules": RULES,
            "policy": { "name": self.policy.name, "sha256": self.policy.sha256.hex() },
            "looks": looks,
            "pasa": answer.verdict == Verdict::Pass,
            "indeciso": answer.verdict == Verdict::Undecided,
            "razon": answer.razon,
            "resultados": results(&self.agreed.results),
        });
        if let Some(name) = self.evidence {
            document["evidence"] = json!(name);
        }
        document
    }
}

/// The answer of `check`, as the protocol carries a joint verdict.
pub fn check_json(tests: &[TestResult]) -> Value {
    let Joint { verdict, razon } = joint(tests);
    json!({
        "schema": "verifica.check/1",
        "verdict": verdict.word(),
        "pasa": verdict == Verdict::Pass,
        "indeciso": verdict == Verdict::Undecided,
        "razon": razon,
        "resultados": results(tests),
    })
}

pub(super) fn results(tests: &[TestResult]) -> Value {
    Value::Array(tests.iter().map(TestResult::to_json).collect())
}

pub(super) fn observations(named: &BTreeMap<FetchKey, Sha256>) -> Value {
    let entry = |(key, hash): (&FetchKey, &Sha256)| json!({ "url": key.url, "method": key.method.name(), "accept": key.accept, "sha256": hash.hex() });
    Value::Array(named.iter().map(entry).collect())
}

pub(super) fn look(look: &Look) -> Value {
    let answer = look.joint();
    let mut out = json!({
        "at": look.at.to_string(),
        "verdict": answer.verdict.word(),
        "razon": answer.razon,
        "observations": observations(&look.observations),
    });
    let attestations = look.attestations();
    if !attestations.is_empty() {
        out["attestations"] = json!(attestations);
    }
    out
}
