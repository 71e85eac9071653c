//! `exit_0`: a command ends with status 0 in the sandbox (V44, V45, V82). Here it is parsed, and the runs that the
//! sandbox reports are judged; nothing here starts a process.

use super::content::{self, Decision, Need, ViewEnd};
use super::fields::{self, Fields, Flaw, VALUE_CHARS};
use super::json::{Kind, Value};
use super::observation::{Cause, End, FetchKey, Method, Observation, Seen};
use super::plan::ACCEPT_ANY;
use super::result::{Evidence, Outcome, UNENFORCED};
use super::sha256::Delivery;
use super::text;
use super::url::{Target, UrlPolicy};
use crate::limits;
use crate::wire::Sha256;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub struct Exit0 {
    pub argv: Vec<String>,
    pub inputs: Vec<Input>,
    /// Seconds that the parties agreed on.
    pub within_s: Option<u64>,
}

/// A file, or an archive, that is placed in the job's directory before the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Relative and clean.
    pub path: String,
    pub target: Target,
    pub sha256: InputHash,
    pub unpack: Option<Unpack>,
    /// Permission bits, at most 0777.
    pub mode: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputHash {
    Fixed(Sha256),
    /// The hash that the delivery declared.
    Evidence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unpack {
    #[serde(rename = "tar")]
    Tar,
    #[serde(rename = "tar.gz")]
    TarGz,
    #[serde(rename = "zip")]
    Zip,
}

/// What became of the inputs of a look.
#[derive(Clone, Copy, Debug)]
pub struct Came<'a> {
    pub seen: &'a BTreeMap<FetchKey, Observation>,
    pub delivery: &'a Delivery,
    /// Inputs that somebody supplied from disk, by path; nobody was asked for them.
    pub supplied: &'a BTreeMap<String, Sha256>,
}

/// One run of the job, as the sandbox reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRun {
    pub end: JobEnd,
    /// SHA-256 of the attestation of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestation: Option<Sha256>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum JobEnd {
    Code {
        code: i32,
    },
    /// A signal that the job brought on itself.
    Signal {
        signal: i32,
    },
    /// A counted limit of the policy: memory, output, processes, file size.
    Limit {
        limit: String,
    },
    /// The time that the test itself agreed on.
    Within {
        seconds: u64,
    },
    /// A time limit of the policy; how fast the host is, is not the seller's doing.
    Time {
        limit: String,
    },
    /// The program is not there, or cannot be executed.
    NotExecutable {
        reason: String,
    },
    /// An archive was refused while it was unpacked; its hash is what was delivered.
    ArchiveRefused {
        path: String,
        reason: String,
    },
    /// The sandbox that the policy demands cannot be enforced; `mechanism` is what is missing.
    Unenforced {
        mechanism: String,
        reason: String,
    },
    /// The run did not take place, or its end is not the job's: an input that did not come, a fault of ours.
    Unavailable {
        cause: Cause,
        reason: String,
    },
}

impl Exit0 {
    pub(super) fn read(fields: &Fields<'_>, policy: &UrlPolicy) -> Result<Exit0, Flaw> {
        // Unknown keys beat malformed fields, wherever they stand.
        for item in fields.get("inputs").iter().flat_map(|list| list.items()).filter(|i| i.kind() == Kind::Object) {
            Fields::of(item).only(INPUT_KEYS, "an input")?;
        }
        let argv = argv(fields.get("argv"))?;
        let inputs = match fields.get("inputs") {
            None => Vec::new(),
            Some(list) => inputs(list, policy)?,
        };
        let within_s = fields.integer("V44", "within", 1, limits::SAFE_INTEGER_MAX)?;
        Ok(Exit0 { argv, inputs, within_s })
    }

    /// The hash of every input, once all of them are what was agreed. An input that did not come, or came otherwise, is
    /// nobody's failure: the decision is undecided (V44).
    pub fn inputs_ready(&self, came: Came<'_>) -> Result<Vec<Sha256>, Decision> {
        self.inputs.iter().map(|input| input.ready(came)).collect()
    }

    /// Judges all runs of one look, once the inputs are there. The runs must agree (V5).
    pub(super) fn judge(&self, runs: &[JobRun], came: Came<'_>, evidence: &mut Evidence) -> Decision {
        if !self.inputs.is_empty() {
            evidence.insert("inputs".to_owned(), self.inputs.iter().map(|input| input.stated(came)).collect());
        }
        if let Err(decision) = self.inputs_ready(came) {
            return decision;
        }
        let attestations: Vec<serde_json::Value> =
            runs.iter().filter_map(|run| run.attestation).map(|hash| serde_json::Value::from(hash.hex())).collect();
        if !attestations.is_empty() {
            evidence.insert("attestations".to_owned(), serde_json::Value::Array(attestations));
        }
        evidence.insert("runs".to_owned(), serde_json::Value::from(runs.len()));
        for run in runs {
            if let JobEnd::Unenforced { mechanism, .. } = &run.end {
                evidence.insert(UNENFORCED.to_owned(), serde_json::Value::from(text::plain(mechanism, REASON_CHARS)));
            }
        }
        let mut decisions = runs.iter().map(|run| judge_run(&run.end));
        let Some(first) = decisions.next() else {
            return (Outcome::Undecided(Cause::Host), "the command was not run".to_owned());
        };
        let mut last = first.clone();
        for next in decisions {
            let undecided = |decision: &Decision| matches!(decision.0, Outcome::Undecided(_));
            if undecided(&last) {
                break;
            }
            if undecided(&next) {
                return next;
            }
            if next.0 != last.0 {
                return (
                    Outcome::Undecided(Cause::Origin),
                    format!("the runs disagree: first {}, then {}", last.1, next.1),
                );
            }
            last = next;
        }
        last
    }
}

impl Input {
    /// The request that brings it.
    pub fn key(&self) -> FetchKey {
        self.target.key(Method::Get, ACCEPT_ANY)
    }

    fn ready(&self, came: Came<'_>) -> Result<Sha256, Decision> {
        let about =
            |(outcome, why): Decision| (outcome, format!("the input {}: {why}", text::quote(&self.path, VALUE_CHARS)));
        let expected = self.expected(came.delivery).map_err(about)?;
        let other = |seen: Sha256| {
            (Outcome::Undecided(Cause::Origin), format!("it has the sha256 {seen}, expected {expected}"))
        };
        if let Some(seen) = came.supplied.get(&self.path) {
            return if *seen == expected { Ok(expected) } else { Err(about(other(*seen))) };
        }
        let Some(observation) = came.seen.get(&self.key()) else {
            return Err(about((Outcome::Undecided(Cause::Ours), "it was not fetched".to_owned())));
        };
        let cut = |bytes: u64| {
            (Outcome::Undecided(Cause::Host), format!("it has more than the {bytes} bytes that this host gives to it"))
        };
        if let Seen::Response(response) = &observation.seen
            && response.content.end == End::Cut
        {
            return Err(about(cut(response.content.bytes.saturating_sub(1))));
        }
        let most = limits::JOB_INPUT_BYTES_MAX;
        match content::body(observation, Need { read: most + 1, keep: 0 }) {
            // Nothing to read there is no fault of the job's.
            Err((Outcome::Fail, why)) => Err(about((Outcome::Undecided(Cause::Origin), why))),
            Err(decision) => Err(about(decision)),
            Ok(view) if view.end == ViewEnd::Cut => Err(about(cut(most))),
            Ok(view) if view.content.sha256 == expected => Ok(expected),
            Ok(view) => Err(about(other(view.content.sha256))),
        }
    }

    fn expected(&self, delivery: &Delivery) -> Result<Sha256, Decision> {
        let contract = |why: String| (Outcome::Undecided(Cause::Contract), why);
        match (self.sha256, delivery.evidence_sha256.as_deref()) {
            (InputHash::Fixed(hash), _) => Ok(hash),
            (InputHash::Evidence, None | Some("")) => Err(contract(
                "its hash is the one that the delivery declares, and the delivery declares none".to_owned(),
            )),
            (InputHash::Evidence, Some(declared)) => Sha256::parse(declared).ok_or_else(|| {
                let shown = text::quote(declared, VALUE_CHARS);
                contract(format!("its hash is the one that the delivery declares, and {shown} is not a sha256"))
            }),
        }
    }

    /// For the evidence: where it is from and which observation it is.
    fn stated(&self, came: Came<'_>) -> serde_json::Value {
        let mut out = json!({"path": self.path, "url": self.target.text()});
        match (came.supplied.get(&self.path), came.seen.get(&self.key())) {
            (Some(seen), _) => out["supplied"] = json!(seen),
            (None, Some(observation)) => out["observation"] = json!(observation.sha256()),
            (None, None) => {}
        }
        if let Ok(expected) = self.expected(came.delivery) {
            out["sha256"] = json!(expected);
        }
        out
    }
}

fn judge_run(end: &JobEnd) -> Decision {
    let plain = |reason: &str| text::plain(reason, REASON_CHARS);
    match end {
        JobEnd::Code { code: 0 } => (Outcome::Pass, "the command ended with status 0".to_owned()),
        JobEnd::Code { code } => (Outcome::Fail, format!("the command ended with status {code}, expected 0")),
        JobEnd::Signal { signal } => {
            (Outcome::Fail, format!("the command ended by signal {signal}, expected status 0"))
        }
        JobEnd::Limit { limit } => (Outcome::Fail, format!("the command ran into the {} limit", plain(limit))),
        JobEnd::Within { seconds } => (Outcome::Fail, format!("the command took more than the agreed {seconds} s")),
        JobEnd::Time { limit } => (
            Outcome::Undecided(Cause::Host),
            format!("the command ran into the {} time limit of this host", plain(limit)),
        ),
        JobEnd::NotExecutable { reason } => {
            (Outcome::Fail, format!("the program cannot be executed: {}", plain(reason)))
        }
        JobEnd::ArchiveRefused { path, reason } => {
            (Outcome::Fail, format!("the archive {} was refused: {}", text::quote(path, VALUE_CHARS), plain(reason)))
        }
        JobEnd::Unenforced { mechanism, reason } => (
            Outcome::Undecided(Cause::Host),
            format!("the sandbox cannot be enforced here ({}): {}", plain(mechanism), plain(reason)),
        ),
        JobEnd::Unavailable { cause, reason } => (Outcome::Undecided(*cause), plain(reason)),
    }
}

fn argv(value: Option<Value<'_>>) -> Result<Vec<String>, Flaw> {
    let Some(list) = value else {
        return Err(Flaw::malformed("V44", "argv is missing; it is a list of strings"));
    };
    match list.kind() {
        Kind::Array => {}
        Kind::Text(_) => {
            return Err(Flaw::malformed("V44", "argv is a string; a shell line is never run, write a list of strings"));
        }
        other => return Err(Flaw::malformed("V44", format!("argv is {}; it is a list of strings", other.type_name()))),
    }
    let words =
        list.items().map(|word| fields::string("V44", "a word of argv", word)).collect::<Result<Vec<_>, _>>()?;
    if words.is_empty() || words.len() > limits::ARGV_WORDS_MAX {
        let most = limits::ARGV_WORDS_MAX;
        return Err(Flaw::malformed("V44", format!("argv has {} words; it has 1 to {most}", words.len())));
    }
    if words.iter().any(|word| word.contains('\0')) {
        return Err(Flaw::malformed("V44", "argv has a NUL, which no argument can hold"));
    }
    let bytes: usize = words.iter().map(String::len).sum();
    if bytes > limits::ARGV_BYTES_MAX {
        let most = limits::ARGV_BYTES_MAX;
        return Err(Flaw::malformed("V44", format!("argv has {bytes} bytes; at most {most} are allowed")));
    }
    Ok(words)
}

fn inputs(list: Value<'_>, policy: &UrlPolicy) -> Result<Vec<Input>, Flaw> {
    if list.kind() != Kind::Array {
        return Err(Flaw::malformed("V45", format!("inputs is {}; it is a list", list.kind().type_name())));
    }
    let read = list.items().map(|item| input(item, policy)).collect::<Result<Vec<_>, _>>()?;
    if read.len() > limits::INPUTS_MAX {
        let most = limits::INPUTS_MAX;
        return Err(Flaw::malformed("V45", format!("there are {} inputs; at most {most} are allowed", read.len())));
    }
    let mut paths: Vec<&Input> = read.iter().collect();
    paths.sort_by(|a, b| a.path.split('/').cmp(b.path.split('/')));
    for pair in paths.windows(2) {
        let [first, second] = pair else { continue };
        let shown = text::quote(&first.path, VALUE_CHARS);
        if first.path == second.path {
            return Err(Flaw::malformed("V45", format!("two inputs have the path {shown}")));
        }
        let inside = second.path.strip_prefix(&first.path).is_some_and(|rest| rest.starts_with('/'));
        if inside && first.unpack.is_none() {
            return Err(Flaw::malformed(
                "V45",
                format!("the input {shown} is a file, and another input lies inside it"),
            ));
        }
    }
    Ok(read)
}

fn input(item: Value<'_>, policy: &UrlPolicy) -> Result<Input, Flaw> {
    if item.kind() != Kind::Object {
        return Err(Flaw::malformed("V45", format!("an input is {}; it is an object", item.kind().type_name())));
    }
    let fields = Fields::of(item);
    let path = fields.required_text("V45", "path")?;
    clean(&path)?;
    let target = fields.required_target(policy)?;
    let sha256 = match fields.required_text("V45", "sha256")?.as_str() {
        "evidence" => InputHash::Evidence,
        digits => match Sha256::parse(digits) {
            Some(hash) => InputHash::Fixed(hash),
            None => {
                let shown = text::quote(digits, VALUE_CHARS);
                return Err(Flaw::malformed(
                    "V45",
                    format!("sha256 is {shown}; it is 64 hex digits or the word evidence"),
                ));
            }
        },
    };
    let unpack = match fields.text("V45", "unpack")?.as_deref() {
        None => None,
        Some("tar") => Some(Unpack::Tar),
        Some("tar.gz") => Some(Unpack::TarGz),
        Some("zip") => Some(Unpack::Zip),
        Some(other) => {
            let shown = text::quote(other, VALUE_CHARS);
            return Err(Flaw::malformed("V45", format!("unpack is {shown}; it is tar, tar.gz or zip")));
        }
    };
    Ok(Input { path, target, sha256, unpack, mode: mode(&fields)? })
}

/// Permission bits: octal digits in a string, as `chmod` takes them. A number is the bits themselves, unless its digits
/// could be meant as octal: then readers disagree.
fn mode(fields: &Fields<'_>) -> Result<Option<u32>, Flaw> {
    let Some(value) = fields.get("mode") else { return Ok(None) };
    let bits = match value.kind() {
        Kind::Text(units) => {
            let digits = String::from_utf16_lossy(units);
            let octal = (1..=4).contains(&digits.len()) && digits.bytes().all(|b| (b'0'..=b'7').contains(&b));
            octal.then(|| u32::from_str_radix(&digits, 8).ok()).flatten()
        }
        Kind::Number(_) => {
            let bits = fields.integer("V82", "mode", 0, u64::from(MODE_MAX))?.map(|bits| bits as u32);
            if let Some(bits) = bits.filter(|bits| *bits > 7 && !bits.to_string().contains(['8', '9'])) {
                return Err(Flaw::contract(format!(
                    "mode is the number {bits}, decimal or octal; write octal digits in a string"
                )));
            }
            bits
        }
        _ => None,
    };
    match bits.filter(|bits| *bits <= MODE_MAX) {
        Some(bits) => Ok(Some(bits)),
        None => Err(Flaw::malformed(
            "V82",
            format!("mode is {}; it is octal digits in a string, at most \"0777\"", value.show(VALUE_CHARS)),
        )),
    }
}

/// Relative, and the only way to write it: no empty, `.` or `..` segment, nothing that hides.
fn clean(path: &str) -> Result<(), Flaw> {
    let dirty = path.is_empty()
        || path.len() > limits::INPUT_PATH_BYTES_MAX
        || path.contains(['\\', '\u{7f}'])
        || path.chars().any(|c| c < ' ')
        || path.split('/').any(|segment| matches!(segment, "" | "." | "..") || segment.len() > SEGMENT_BYTES_MAX);
    if dirty {
        let shown = text::quote(path, VALUE_CHARS);
        return Err(Flaw::malformed("V82", format!("the path {shown} is not relative and clean")));
    }
    Ok(())
}

const INPUT_KEYS: &[&str] = &["path", "url", "sha256", "unpack", "mode"];
const MODE_MAX: u32 = 0o777;
/// What a file name may have on the file systems that jobs run on.
const SEGMENT_BYTES_MAX: usize = 255;
const REASON_CHARS: usize = 300;
