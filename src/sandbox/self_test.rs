//! The self-test: a program that does nothing, run under a policy with the whole proof, and what came of each protection.
//! What a card offers and what `doctor` shows come from here, from nothing else.

use super::policy::PROTECTIONS;
use super::run::run_here;
use super::{Job, JobPolicy, JobReport, Slot, sys};
use crate::attest;
use crate::probe::exit_0::JobEnd;
use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Debug, Serialize)]
pub struct SelfTest {
    pub policy: String,
    pub items: Vec<Item>,
    /// The whole proof held, and the program ran and ended as it must.
    pub holds: bool,
    /// Where it does not hold: the protection that is missing, and what was seen.
    pub missing: Option<(String, String)>,
    pub facts: Value,
}

/// One protection: required or not, there or not, what was measured, and how it can be had.
#[derive(Clone, Debug, Serialize)]
pub struct Item {
    pub name: String,
    pub required: bool,
    pub ok: bool,
    pub seen: String,
    /// Empty where nothing is to be mended.
    pub mend: String,
}

impl SelfTest {
    pub fn holds(&self) -> bool {
        self.holds
    }
}

/// Runs the whole proof. It blocks for some milliseconds.
pub fn self_test(policy: &JobPolicy) -> SelfTest {
    super::group::sweep();
    let job = Job { argv: vec!["true".to_owned()], inputs: Vec::new(), policy: policy.clone(), within_s: None };
    let report = match Slot::take() {
        Ok(slot) => run_here(&job, &slot, None, None),
        Err(e) => JobReport::refused(&super::plan::Refused::new("ids", format!("no slot: {e}")), &job),
    };
    judge(policy, report)
}

fn judge(policy: &JobPolicy, report: JobReport) -> SelfTest {
    let proofs = attest::proved(&report.facts);
    let missing = match &report.end {
        JobEnd::Code { code: 0 } => None,
        JobEnd::Unenforced { mechanism, reason } => Some((mechanism.clone(), reason.clone())),
        other => Some(("run".to_owned(), format!("the program ended otherwise than it must: {other:?}"))),
    };
    let items: Vec<Item> = PROTECTIONS
        .iter()
        .map(|(name, mend)| {
            let found = proofs.iter().find(|proof| proof.protection.name == *name);
            let blamed = missing.as_ref().filter(|(item, _)| item == name);
            let ok = found.is_some() && blamed.is_none();
            let seen = match (found, blamed) {
                (_, Some((_, reason))) => reason.clone(),
                (Some(found), None) => shown(found),
                (None, None) if report.started => "not in force here".to_owned(),
                (None, None) => "not reached".to_owned(),
            };
            let mend = if ok { String::new() } else { (*mend).to_owned() };
            Item { name: (*name).to_owned(), required: policy.required.contains(*name), ok, seen, mend }
        })
        .collect();
    let missing = missing.or_else(|| {
        let item = items.iter().find(|item| item.required && !item.ok)?;
        Some((item.name.clone(), item.seen.clone()))
    });
    let holds = missing.is_none() && report.survivors == 0;
    SelfTest { policy: policy.name.clone(), items, holds, missing, facts: report.facts }
}

fn shown(found: &attest::Proof) -> String {
    let mut parts = Vec::new();
    match found.canaries.len() {
        0 => {}
        1 => parts.push("1 canary".to_owned()),
        count => parts.push(format!("{count} canaries")),
    }
    if !found.read_back.is_empty() {
        parts.push(format!("{} read back", found.read_back.join(" ")));
    }
    format!("{} by {} (seen by {})", found.protection.mechanism, parts.join(", "), found.witness)
}

/// Kernel and Landlock version, for a person.
pub fn host() -> String {
    let (release, machine) = sys::kernel();
    let (abi, errata) = sys::landlock_kernel();
    format!("kernel {release} {machine}, landlock {abi} (errata mended {errata:#b})")
}
