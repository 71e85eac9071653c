//! The jobs of a dry run: inputs from disk, the key that signs their attestations, and what is told of each: how it
//! ended, what it used, its last words, and what the sandbox had in force.

use crate::attest::{Attestation, exit_of};
use crate::cli::keyfile;
use crate::cli::output::{Failure, Out, Style, clean, fit};
use crate::cli::settings;
use crate::limits;
use crate::observe::jobs::{Jobs, JobsConfig, Order};
use crate::observe::look::{Looked, Reports};
use crate::probe::plan::{Capabilities, Suite, TestType};
use crate::sandbox::{JobPolicy, JobReport};
use crate::wire::digest::Sha256;
use crate::wire::key::SigningKey;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// `PATH=FILE` of the command line.
#[derive(Clone, Debug)]
pub struct Supplied {
    path: String,
    file: PathBuf,
}

/// What jobs a file asks for can be run here.
pub struct Here {
    pub capabilities: Capabilities,
    pub jobs: Option<Jobs>,
    pub policy: JobPolicy,
}

pub fn supplied(text: &str) -> Result<Supplied, String> {
    match text.split_once('=') {
        Some((path, file)) if !path.is_empty() && !file.is_empty() => {
            Ok(Supplied { path: path.to_owned(), file: PathBuf::from(file) })
        }
        _ => Err("PATH=FILE, where PATH is the path of an input of a job".to_owned()),
    }
}

/// Whether a suite has jobs, whatever this host can run.
pub fn any(suite: &Suite) -> bool {
    suite.tests().iter().any(|test| test.test_type == TestType::Exit0.name())
}

/// The self-test is run, and a key made, only where there is a job to run.
pub fn here(policy: JobPolicy, wanted: bool) -> Result<Here, Failure> {
    if !wanted {
        return Ok(Here { capabilities: Capabilities::network(), jobs: None, policy });
    }
    let capabilities = Jobs::offered_here(&policy);
    let key = local_key()?;
    let jobs = Jobs::new(JobsConfig { policy: policy.clone(), at_once: 1, key, house: None, by: None });
    Ok(Here { capabilities, jobs: Some(jobs), policy })
}

/// The inputs from disk; each must be one that a test names.
pub fn read(supplied: &[Supplied], suite: &Suite) -> Result<BTreeMap<String, Bytes>, Failure> {
    let mut out = BTreeMap::new();
    let jobs = suite.jobs();
    for one in supplied {
        let known: Vec<&str> = jobs.iter().flat_map(|(_, job)| &job.inputs).map(|input| input.path.as_str()).collect();
        if !jobs.is_empty() && !known.contains(&one.path.as_str()) {
            let failure = Failure::usage(format!("no test has an input {:?}", one.path)).at("--input");
            return Err(failure.hint(match known.len() {
                0 => "no test has inputs".to_owned(),
                _ => format!("inputs are {}", known.join(", ")),
            }));
        }
        let cannot = |error| keyfile::cannot(&error, "the input cannot be read", &one.file);
        let bytes = std::fs::metadata(&one.file).map_err(cannot)?.len();
        if bytes > limits::JOB_INPUT_BYTES_MAX {
            let most = limits::JOB_INPUT_BYTES_MAX;
            return Err(
                Failure::usage(format!("the input has {bytes} bytes; at most {most} are taken")).at(one.file.display())
            );
        }
        out.insert(one.path.clone(), Bytes::from(std::fs::read(&one.file).map_err(cannot)?));
    }
    Ok(out)
}

pub fn hashes(order: &Order) -> BTreeMap<String, Sha256> {
    order.supplied.iter().map(|(path, bytes)| (path.clone(), Sha256::of(bytes))).collect()
}

/// What is told of one job.
pub fn line(n: usize, reports: &Reports, looks: &[Looked], out: &Out) {
    let Some(report) = reports.get(&n) else { return };
    let indent = format!("{:>36}", "");
    let runs: usize = looks.iter().filter_map(|looked| looked.look.runs.get(&n)).map(Vec::len).sum();
    let mut used = vec![super::many(runs, "run"), format!("wall {} ms", report.wall_ms)];
    used.extend(report.cpu_ms.map(|ms| format!("cpu {ms} ms")));
    used.extend(report.peak_memory.map(|bytes| format!("peak memory {}", mebibytes(bytes))));
    out.line(format!("{indent}{}", out.paint(Style::Faint, used.join(", "))));
    if let Some(document) = document(n, looks) {
        let claims = document.claims().len();
        let told = match document.enforcement_backend() {
            "none" => "nothing was started".to_owned(),
            backend => format!("sandbox {backend}, {claims} protections proved"),
        };
        out.line(format!("{indent}{}", out.paint(Style::Faint, told)));
    }
    for (name, stream) in [("out", &report.stdout), ("err", &report.stderr)] {
        let lines: Vec<&str> = stream.tail.lines().collect();
        for text in lines.iter().skip(lines.len().saturating_sub(TAIL_LINES)) {
            out.line(format!("{indent}{name} | {}", fit(&clean(text), TAIL_CHARS)));
        }
        if stream.truncated {
            out.line(format!("{indent}{name} | (cut after {} bytes)", stream.bytes));
        }
    }
}

/// The same as data, for every job that ran.
pub fn to_json(reports: &Reports, looks: &[Looked]) -> Value {
    let stream = |stream: &crate::sandbox::Stream| json!({"bytes": stream.bytes, "truncated": stream.truncated, "sha256": stream.sha256, "tail": clean(&stream.tail)});
    let one = |(n, report): (&usize, &JobReport)| {
        let runs = looks.iter().filter_map(|looked| looked.look.runs.get(n)).flatten();
        let runs: Vec<Value> =
            runs.map(|run| json!({"exit": exit_of(&run.end), "attestation": run.attestation})).collect();
        let document = document(*n, looks);
        json!({
            "test": n + 1, "runs": runs, "wall_ms": report.wall_ms, "cpu_ms": report.cpu_ms,
            "peak_memory": report.peak_memory, "stdout": stream(&report.stdout), "stderr": stream(&report.stderr),
            "sandbox": document.as_ref().map(Attestation::enforcement_backend),
            "claims": document.as_ref().map(Attestation::claims),
            "not_claimed": document.as_ref().map(Attestation::not_claimed),
        })
    };
    reports.iter().map(one).collect()
}

/// What the sandbox of this host is, for a file that has jobs.
pub fn sandbox(here: &Here) -> Value {
    let held = here.capabilities.unenforced.is_none();
    json!({
        "enforced": held, "missing": here.capabilities.unenforced,
        "policy": {"name": here.policy.name, "sha256": here.policy.sha256()},
    })
}

/// The attestation of the last run of a job.
fn document(n: usize, looks: &[Looked]) -> Option<Attestation> {
    let looked = looks.last()?;
    let name = looked.look.runs.get(&n)?.last()?.attestation?;
    let documents = looked.attestations.iter().filter_map(|doc| Attestation::parse(doc.clone()).ok());
    documents.into_iter().find(|document| document.sha256() == name)
}

/// Signs what is run on this machine in dry runs; made at first use, for its owner only (V84).
fn local_key() -> Result<SigningKey, Failure> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let Some(folder) = state.or_else(|| home.map(|home| home.join(".local/state"))) else {
        return Err(Failure::usage("there is no place for the key that signs attestations")
            .why("neither XDG_STATE_HOME nor HOME is set")
            .hint("set HOME to a folder of yours"));
    };
    key_in(&folder.join("verifica"))
}

fn key_in(folder: &Path) -> Result<SigningKey, Failure> {
    let path = folder.join("check.key");
    if !path.exists() {
        settings::make_folder(folder, 0o700)?;
        let text = format!("{}\n", SigningKey::from_seed(keyfile::random::<32>()?).secret_text().as_str());
        match keyfile::write_new(&path, text.as_bytes(), 0o600) {
            // Another dry run was first.
            Err(_) if path.exists() => {}
            other => other?,
        }
    }
    let text = keyfile::read_secret(&path, "the key that signs attestations of dry runs")?;
    SigningKey::parse(&text).ok_or_else(|| {
        Failure::usage("the key that signs attestations of dry runs is not the base64url text of 32 bytes")
            .at(path.display())
            .hint("remove the file; the next dry run makes another key")
    })
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
}

const TAIL_LINES: usize = 12;
const TAIL_CHARS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// V84: a local key, made at first use, for its owner only.
    #[test]
    fn the_key_of_dry_runs_is_made_once_and_for_its_owner_only() {
        let folder = tempfile::tempdir().expect("folder");
        let place = folder.path().join("verifica");
        let first = key_in(&place).expect("made");
        assert_eq!(key_in(&place).expect("read").public(), first.public());
        let meta = std::fs::metadata(place.join("check.key")).expect("meta");
        assert_eq!(meta.mode() & 0o777, 0o600);
    }

    #[test]
    fn an_input_is_a_path_and_a_file() {
        assert!(supplied("a/b=c.tar=x").is_ok_and(|one| one.path == "a/b" && one.file == Path::new("c.tar=x")));
        for bad in ["", "a", "=b", "a="] {
            assert!(supplied(bad).is_err(), "{bad}");
        }
    }
}
