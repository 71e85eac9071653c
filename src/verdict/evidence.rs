//! The evidence file: everything that a verdict stands on, in one JSON document that can be judged again anywhere (V61).
//!
//! The tests are kept as the text they were, since a JSON value would lose digits of their numbers. Observations are
//! inline, or named by hash where the reader has them elsewhere. A verdict names its evidence as it is with all of them
//! by hash, so both forms have one name.

use super::document::results;
use super::{Look, Policy, RULES, Verdict};
use crate::probe::observation::{FetchKey, Observation};
use crate::probe::plan::{Capabilities, JobRules};
use crate::probe::sha256::Delivery;
use crate::probe::test::TestType;
use crate::probe::url::{AddressRule, Network, UrlPolicy};
use crate::wire::Sha256;
use crate::wire::json::canonical_sha256;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What was judged, and under which rules.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The tests as JSON text.
    pub tests: &'a str,
    pub delivery: &'a Delivery,
    pub urls: &'a UrlPolicy,
    pub capabilities: &'a Capabilities,
    pub policy: &'a Policy,
    /// A house had accepted these tests: what is malformed today fails nobody (see [`Suite::accepted`]).
    ///
    /// [`Suite::accepted`]: crate::probe::plan::Suite::accepted
    pub accepted: bool,
    /// Inputs of jobs that a dry run took from disk, by path.
    pub supplied: &'a BTreeMap<String, Sha256>,
}

/// One look with what it saw.
#[derive(Clone, Copy, Debug)]
pub struct LookRecord<'a> {
    pub look: &'a Look,
    /// What its observations are, where they are at hand; otherwise they are named by hash.
    pub seen: Option<&'a BTreeMap<FetchKey, Observation>>,
}

/// How a verdict names its evidence: as a whole, and by their own hashes the parts that nothing else in the verdict
/// speaks of, so that what was changed can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceName {
    /// Of the canonical evidence file with its observations by hash.
    pub sha256: Sha256,
    /// Of the text of the tests.
    pub tests: Sha256,
    /// Of the canonical delivery.
    pub delivery: Sha256,
}

impl EvidenceName {
    /// The name of an evidence file in either form, with or without its verdict.
    pub fn of(evidence: &Value) -> EvidenceName {
        let bare = named_by_hash(evidence);
        let of = |field: &str| bare.get(field).unwrap_or(&Value::Null);
        EvidenceName {
            sha256: canonical_sha256(&bare),
            tests: Sha256::of(of("tests").as_str().unwrap_or_default()),
            delivery: canonical_sha256(of("delivery")),
        }
    }
}

/// The evidence file without its verdict and with every observation and attestation by its hash: what the house keeps.
pub fn named_by_hash(evidence: &Value) -> Value {
    let each_look = |look: &Value| {
        with_observations(look, |entry| match serde_json::from_value::<Observation>(entry.clone()) {
            // An entry that says more than an observation does is not the one that was hashed.
            Ok(seen) if json!(seen) == *entry => json!({ "sha256": seen.sha256() }),
            _ => entry.clone(),
        })
    };
    let mut bare: Map<String, Value> = Map::new();
    for (field, value) in evidence.as_object().into_iter().flatten() {
        match (field.as_str(), value) {
            (VERDICT | ATTESTATIONS, _) => {}
            ("looks", Value::Array(looks)) => {
                bare.insert(field.clone(), looks.iter().map(each_look).collect());
            }
            _ => {
                bare.insert(field.clone(), value.clone());
            }
        }
    }
    Value::Object(bare)
}

/// The evidence file as it leaves the house: with the observations and attestations that `load` finds, and the signed
/// verdict. The error is the name of one that cannot be found or read.
pub fn exported(kept: &Value, verdict: &Value, load: &dyn Fn(&Sha256) -> Option<Vec<u8>>) -> Result<Value, String> {
    let mut missing = None;
    let mut whole = kept.clone();
    for look in whole.get_mut("looks").and_then(Value::as_array_mut).into_iter().flatten() {
        *look = with_observations(look, |entry| {
            let name = entry.get("sha256").and_then(Value::as_str).unwrap_or_default();
            let found = Sha256::parse(name).and_then(|hash| load(&hash).filter(|bytes| Sha256::of(bytes) == hash));
            let found = found.and_then(|bytes| serde_json::from_slice(&bytes).ok());
            found.unwrap_or_else(|| {
                missing = Some(name.to_owned());
                Value::Null
            })
        });
    }
    if let Some(name) = missing {
        return Err(name);
    }
    let mut attestations: Vec<Value> = Vec::new();
    for name in named_attestations(&whole) {
        let found = Sha256::parse(&name).and_then(|hash| load(&hash).filter(|bytes| Sha256::of(bytes) == hash));
        attestations.push(found.and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or(name)?);
    }
    if !attestations.is_empty() {
        whole[ATTESTATIONS] = attestations.into();
    }
    whole[VERDICT] = verdict.clone();
    Ok(whole)
}

/// The attestations that the looks of an evidence file name, each once.
fn named_attestations(evidence: &Value) -> Vec<String> {
    let looks = evidence.get("looks").and_then(Value::as_array).into_iter().flatten();
    let names = looks.flat_map(|look| look.get(ATTESTATIONS).and_then(Value::as_array).into_iter().flatten());
    let mut out: Vec<String> = Vec::new();
    for name in names.filter_map(Value::as_str) {
        if !out.iter().any(|known| known == name) {
            out.push(name.to_owned());
        }
    }
    out
}

/// A look of an evidence file with other observations.
fn with_observations(look: &Value, mut each: impl FnMut(&Value) -> Value) -> Value {
    let mut changed: Map<String, Value> = Map::new();
    for (field, value) in look.as_object().into_iter().flatten() {
        let value = match value.as_array().filter(|_| field == "observations") {
            Some(entries) => entries.iter().map(&mut each).collect(),
            None => value.clone(),
        };
        changed.insert(field.clone(), value);
    }
    Value::Object(changed)
}

impl Case<'_> {
    /// What is judged and under which rules, without anything that was seen. Two looks belong together only if this is
    /// the same for both.
    pub fn stated(&self) -> Value {
        let networks: Vec<String> = self.urls.addresses.allow.iter().map(Network::to_string).collect();
        let mut out = json!({
            "schema": SCHEMA,
            "rules": RULES,
            "policy": self.policy,
            "tests": self.tests,
            "accepted": self.accepted,
            "delivery": self.delivery,
            "urls": { "allow_networks": networks, "allow_private": self.urls.addresses.allow_private },
            "capabilities": {
                "types": self.capabilities.names(),
                "job_wall_s": self.capabilities.job_wall_s,
                "unenforced": self.capabilities.unenforced,
            },
        });
        if let Some(jobs) = &self.capabilities.jobs {
            out["capabilities"]["jobs"] = json!(jobs);
        }
        if !self.supplied.is_empty() {
            out["supplied"] = json!(self.supplied);
        }
        out
    }

    /// The evidence file, unsigned.
    pub fn to_json(&self, looks: &[LookRecord<'_>], agreed: &Look) -> Value {
        let answer = agreed.joint();
        let mut file = self.stated();
        file["looks"] = looks.iter().map(|record| record.to_json()).collect();
        file["verdict"] = answer.verdict.word().into();
        file["pasa"] = (answer.verdict == Verdict::Pass).into();
        file["indeciso"] = (answer.verdict == Verdict::Undecided).into();
        file["razon"] = answer.razon.into();
        file["resultados"] = results(&agreed.results);
        file
    }
}

impl LookRecord<'_> {
    fn to_json(self) -> Value {
        let by_hash = |hash: &Sha256| json!({ "sha256": hash });
        let observations: Vec<Value> = match self.seen {
            Some(seen) => {
                let whole = |seen: &Observation| serde_json::to_value(seen).unwrap_or_else(|_| by_hash(&seen.sha256()));
                seen.values().map(whole).collect()
            }
            None => self.look.observations.values().map(by_hash).collect(),
        };
        json!({
            "at": self.look.at,
            "observations": observations,
            "runs": self.look.runs,
            "attestations": self.look.attestations(),
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
    pub accepted: bool,
    pub supplied: BTreeMap<String, Sha256>,
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
        let supplied = super::supplied(evidence)?;
        Ok(Stated {
            supplied,
            accepted: evidence.get("accepted").and_then(Value::as_bool).unwrap_or(false),
            tests,
            delivery,
            urls: UrlPolicy { addresses: AddressRule { allow, allow_private: urls.allow_private } },
            capabilities: Capabilities {
                types,
                job_wall_s: can.job_wall_s,
                unenforced: can.unenforced,
                jobs: can.jobs,
            },
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
    #[serde(default)]
    jobs: Option<JobRules>,
}

pub(super) const SCHEMA: &str = "verifica.evidence/1";
/// The signed verdict, in an evidence file that a house gave out.
pub(super) const VERDICT: &str = "veredicto";
/// The documents of the runs, whole at the top of a file that goes out, by hash in each look.
const ATTESTATIONS: &str = "attestations";
