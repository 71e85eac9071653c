//! The evidence file: everything that a verdict stands on, in one JSON document that can be judged again anywhere (V61).
//!
//! The tests are kept as the text they were, since a JSON value would lose digits of their numbers. Observations are
//! inline, or named by hash where the reader has them elsewhere.

use super::document::results;
use super::{Look, Policy, RULES, Verdict};
use crate::probe::exit_0::JobRun;
use crate::probe::observation::{FetchKey, Observation};
use crate::probe::plan::{Capabilities, Suite};
use crate::probe::sha256::Delivery;
use crate::probe::test::TestType;
use crate::probe::url::{AddressRule, Network, UrlPolicy};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What was judged, and under which rules.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    pub suite: &'a Suite,
    pub delivery: &'a Delivery,
    pub urls: &'a UrlPolicy,
    pub capabilities: &'a Capabilities,
    pub policy: &'a Policy,
}

/// One look with what it saw.
#[derive(Clone, Copy, Debug)]
pub struct LookRecord<'a> {
    pub look: &'a Look,
    pub seen: &'a BTreeMap<FetchKey, Observation>,
    /// Runs of each job by the position of its test.
    pub runs: &'a BTreeMap<usize, Vec<JobRun>>,
}

impl Case<'_> {
    /// The evidence file, unsigned. `inline` keeps the observations in it; otherwise only their hashes.
    pub fn to_json(&self, looks: &[LookRecord<'_>], agreed: &Look, inline: bool) -> Value {
        let answer = agreed.joint();
        let looks: Vec<Value> = looks.iter().map(|record| record.to_json(inline)).collect();
        let networks: Vec<String> = self.urls.addresses.allow.iter().map(Network::to_string).collect();
        json!({
            "schema": SCHEMA,
            "rules": RULES,
            "policy": self.policy,
            "tests": self.suite.source(),
            "delivery": self.delivery,
            "urls": { "allow_networks": networks, "allow_private": self.urls.addresses.allow_private },
            "capabilities": {
                "types": self.capabilities.names(),
                "job_wall_s": self.capabilities.job_wall_s,
                "unenforced": self.capabilities.unenforced,
            },
            "looks": looks,
            "verdict": answer.verdict.word(),
            "pasa": answer.verdict == Verdict::Pass,
            "indeciso": answer.verdict == Verdict::Undecided,
            "razon": answer.razon,
            "resultados": results(&agreed.results),
        })
    }
}

impl LookRecord<'_> {
    fn to_json(self, inline: bool) -> Value {
        let observations: Vec<Value> = self
            .seen
            .values()
            .map(|seen| {
                let hash = json!({ "sha256": seen.sha256().hex() });
                if inline { serde_json::to_value(seen).unwrap_or(hash) } else { hash }
            })
            .collect();
        json!({
            "at": self.look.at.to_string(),
            "observations": observations,
            "runs": self.runs,
            "attestations": self.look.attestations,
            "resultados": results(&self.look.results),
        })
    }
}

/// What an evidence file says about how it was judged.
pub(super) struct Stated {
    pub tests: String,
    pub delivery: Delivery,
    pub urls: UrlPolicy,
    pub capabilities: Capabilities,
}

impl Stated {
    pub(super) fn read(evidence: &Value) -> Result<Stated, String> {
        if evidence.get("schema").and_then(Value::as_str) != Some(SCHEMA) {
            return Err(format!("not an evidence file: its schema is not {SCHEMA}"));
        }
        let tests = match evidence.get("tests") {
            Some(Value::String(text)) => text.clone(),
            Some(tests @ (Value::Array(_) | Value::Object(_))) => tests.to_string(),
            _ => return Err("the evidence file has no tests".to_owned()),
        };
        let delivery = part::<Delivery>(evidence, "delivery")?;
        let urls = part::<UrlsPart>(evidence, "urls")?;
        let allow = urls.allow_networks.iter().map(|text| Network::parse(text)).collect::<Result<Vec<_>, _>>()?;
        let can = part::<CapabilitiesPart>(evidence, "capabilities")?;
        let types = can
            .types
            .iter()
            .map(|name| TestType::from_name(name).ok_or_else(|| format!("capabilities name an unknown type: {name}")))
            .collect::<Result<_, _>>()?;
        Ok(Stated {
            tests,
            delivery,
            urls: UrlPolicy { addresses: AddressRule { allow, allow_private: urls.allow_private } },
            capabilities: Capabilities { types, job_wall_s: can.job_wall_s, unenforced: can.unenforced },
        })
    }
}

/// One field of an evidence file, with its name in the error.
pub(super) fn part<T: for<'de> Deserialize<'de>>(of: &Value, key: &str) -> Result<T, String> {
    let value = of.get(key).ok_or_else(|| format!("the evidence file has no {key}"))?;
    T::deserialize(value).map_err(|why| format!("{key} of the evidence file cannot be read: {why}"))
}

#[derive(Deserialize, Serialize)]
struct UrlsPart {
    allow_networks: Vec<String>,
    allow_private: bool,
}

#[derive(Deserialize, Serialize)]
struct CapabilitiesPart {
    types: Vec<String>,
    job_wall_s: u64,
    #[serde(default)]
    unenforced: Option<String>,
}

pub(super) const SCHEMA: &str = "verifica.evidence/1";
