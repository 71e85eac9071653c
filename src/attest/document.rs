//! The document itself: how it is made from facts, and how it is read from a stranger.

use super::consistency::{self, RAN};
use super::dsse::Envelope;
use super::protection::{PROTECTIONS, proved};
use super::shape::{Field, Shape, check, may, must};
use super::statement;
use crate::limits;
use crate::probe::exit_0::JobEnd;
use crate::probe::text::plain;
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::Sha256;
use crate::wire::json::{canonical, canonical_sha256, parse_object};
use crate::wire::key::{PublicKey, Signature, SigningKey};
use serde_json::{Map, Value, json};

/// What the signer knows of a job without measuring it.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    pub job: &'a str,
    pub at: Timestamp,
    /// The house and the address that ran it; neither in a dry run.
    pub house: Option<&'a str>,
    pub by: Option<&'a str>,
    pub contract: Option<&'a str>,
    /// Of what was agreed.
    pub contract_sha256: Option<Sha256>,
    pub policy_name: &'a str,
    pub policy_sha256: Sha256,
}

/// A document whose signatures hold and whose claims follow from its facts. Whose key it is, is another question.
#[derive(Clone, Debug)]
pub struct Attestation {
    doc: Value,
    end: End,
    signer: PublicKey,
}

/// How the job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Code(u8),
    Signal(u8),
    /// A limit of the policy, by name.
    Limit(String),
    /// There is no outcome: this mechanism could not be enforced, or the run was ended for a reason of the house.
    Refused {
        mechanism: String,
        reason: String,
    },
}

/// Makes and signs the document of a job. Facts that contradict each other are refused: nothing is signed then.
pub fn attest(about: &About<'_>, facts: &Value, key: &SigningKey) -> Result<Attestation, Refusal> {
    let mut doc = unsigned(about, facts)?;
    let envelope = Envelope::sign(statement::PAYLOAD_TYPE, statement::payload(&doc).into_bytes(), key);
    let Some(first) = envelope.signatures.first() else { return Err(bad("the statement could not be signed")) };
    doc.insert(DSSE.to_owned(), json!(first.text()));
    let mut doc = Value::Object(doc);
    key.sign_object(&mut doc, SIGNATURE);
    Attestation::parse(doc)
}

impl Attestation {
    /// Checks everything that can be checked without knowing whom to believe: structure, both signatures, and that each
    /// claim follows from the facts in the document.
    pub fn parse(doc: Value) -> Result<Attestation, Refusal> {
        let doc = settled(&doc)?;
        structure(&doc)?;
        let signature =
            Signature::of(&doc, SIGNATURE).ok_or_else(|| bad("signature is not {alg: \"Ed25519\", kid, value}"))?;
        let signer = PublicKey::parse(signature.kid)?;
        if !signer.verify_object(&doc, SIGNATURE) {
            return Err(Refusal::new(Rule::BadSignature, "the signature does not hold over the canonical document"));
        }
        let end = consistent(&doc)?;
        let attestation = Attestation { end, signer, doc };
        if !attestation.envelope().is_some_and(|envelope| envelope.verified_by(&signer)) {
            return Err(Refusal::new(Rule::BadSignature, "dsse is not the signature of its statement by the same key"));
        }
        Ok(attestation)
    }

    pub fn doc(&self) -> &Value {
        &self.doc
    }

    /// What verdicts and evidence name it by.
    pub fn sha256(&self) -> Sha256 {
        canonical_sha256(&self.doc)
    }

    pub fn end(&self) -> &End {
        &self.end
    }

    pub fn signer(&self) -> &PublicKey {
        &self.signer
    }

    /// Names of the protections that it claims and proves.
    pub fn claims(&self) -> Vec<&str> {
        names(&self.doc, "capability_proof", "protection")
    }

    /// What it says was not, or cannot be, shown.
    pub fn not_claimed(&self) -> Vec<&str> {
        names(&self.doc, "not_claimed", "id")
    }

    pub fn enforcement_backend(&self) -> &str {
        text(&self.doc, "enforcement_backend")
    }

    /// The in-toto statement that follows from it, in its envelope; needs no key, since the signature is in the document.
    pub fn envelope(&self) -> Option<Envelope> {
        let payload = statement::payload(self.doc.as_object()?).into_bytes();
        Envelope::with_signature(statement::PAYLOAD_TYPE, payload, &self.signer, text(&self.doc, DSSE))
    }
}

impl End {
    fn read(exit: &Value) -> Result<End, String> {
        let wrong = || "exit is not one of {code}, {signal}, {limit}, {refused, reason}".to_owned();
        let fields = exit.as_object().ok_or_else(wrong)?;
        let mut kinds = fields.iter().filter(|(name, _)| name.as_str() != "reason");
        let (Some((kind, value)), None) = (kinds.next(), kinds.next()) else { return Err(wrong()) };
        if fields.contains_key("reason") != (kind == "refused") {
            return Err(wrong());
        }
        let number = |from: u64, to: u64| value.as_u64().filter(|n| (from..=to).contains(n));
        match kind.as_str() {
            "code" => number(0, 255).and_then(|n| u8::try_from(n).ok()).map(End::Code).ok_or_else(wrong),
            "signal" => number(1, 64).and_then(|n| u8::try_from(n).ok()).map(End::Signal).ok_or_else(wrong),
            "limit" => {
                check(value, &Shape::Text, "exit.limit")?;
                Ok(End::Limit(value.as_str().unwrap_or_default().to_owned()))
            }
            "refused" => {
                check(exit, &REFUSED, "exit")?;
                let (mechanism, reason) = (text(exit, "refused").to_owned(), text(exit, "reason").to_owned());
                Ok(End::Refused { mechanism, reason })
            }
            _ => Err(wrong()),
        }
    }
}

/// How a run ended, as a document writes it: one of code, signal, limit, refused (V84). Whatever a stranger could put
/// into a reason, it is text of bounded length here.
pub fn exit_of(end: &JobEnd) -> Value {
    let said = |reason: &str| match plain(reason, REASON_CHARS) {
        text if text.is_empty() => "no reason was given".to_owned(),
        text => text,
    };
    match end {
        JobEnd::Code { code } => json!({"code": code}),
        JobEnd::Signal { signal } => json!({"signal": signal}),
        JobEnd::Limit { limit } | JobEnd::Time { limit } => json!({"limit": limit}),
        JobEnd::Within { .. } => json!({"limit": "within"}),
        JobEnd::Unenforced { mechanism, reason } => json!({"refused": mechanism, "reason": said(reason)}),
        JobEnd::NotExecutable { reason } => json!({"refused": "exec", "reason": said(reason)}),
        JobEnd::ArchiveRefused { path, reason } => {
            json!({"refused": "inputs", "reason": said(&format!("{path}: {reason}"))})
        }
        JobEnd::Unavailable { reason, .. } => json!({"refused": "run", "reason": said(reason)}),
    }
}

/// What ran: the mechanisms behind what is proved, in the order of the table.
pub(super) fn backend(started: bool, mechanisms: impl Iterator<Item = &'static str>) -> String {
    let mut named: Vec<&str> = Vec::new();
    mechanisms.filter(|_| started).for_each(|mechanism| {
        if !named.contains(&mechanism) {
            named.push(mechanism);
        }
    });
    if named.is_empty() { "none".to_owned() } else { format!("linux/{}", named.join("+")) }
}

/// The predicate of a statement is a document without its signatures; the same rules hold for it.
pub(super) fn check_predicate(predicate: &Value) -> Result<End, Refusal> {
    let predicate = settled(predicate)?;
    let mut whole = predicate.as_object().cloned().ok_or_else(|| bad("the predicate is not an object"))?;
    if whole.contains_key(SIGNATURE) || whole.contains_key(DSSE) {
        return Err(bad("the predicate holds a signature: it is signed by the envelope"));
    }
    whole.insert(SIGNATURE.to_owned(), json!({}));
    whole.insert(DSSE.to_owned(), json!("none"));
    let doc = Value::Object(whole);
    structure(&doc)?;
    consistent(&doc)
}

fn structure(doc: &Value) -> Result<(), Refusal> {
    check(doc, &DOCUMENT, "").map_err(bad)?;
    for (name, value) in [("nyx5", "1"), ("tipo", TIPO), ("schema", SCHEMA)] {
        if text(doc, name) != value {
            return Err(bad(format!("{name} is not \"{value}\"")));
        }
    }
    if Timestamp::parse(text(doc, "at")).is_none_or(|at| at.to_string() != text(doc, "at")) {
        return Err(bad("at is not an instant in ISO 8601 with milliseconds and Z"));
    }
    Ok(())
}

fn consistent(doc: &Value) -> Result<End, Refusal> {
    let end = doc.get("exit").map_or(Err("exit is missing".to_owned()), End::read).map_err(bad)?;
    consistency::check(doc, &end).map_err(bad)?;
    Ok(end)
}

fn unsigned(about: &About<'_>, facts: &Value) -> Result<Map<String, Value>, Refusal> {
    let mut facts = facts.clone();
    unlimited(&mut facts);
    let facts = settled(&facts)?;
    let mut doc = facts.as_object().cloned().ok_or_else(|| bad("the facts of a job are an object"))?;
    if let Some(name) = FOREIGN.iter().find(|name| doc.contains_key(**name)) {
        return Err(bad(format!("the facts of a job hold {name}, which is not theirs to say")));
    }
    let started = doc.get("started") == Some(&Value::Bool(true));
    if !started {
        // Zeros that nobody counted are not facts.
        RAN.iter().chain(["cpu_ms"].iter()).for_each(|name| {
            doc.remove(*name);
        });
    }
    let facts = Value::Object(doc.clone());
    let proofs = proved(&facts);
    let shown = |name: &str| proofs.iter().any(|proof| proof.protection.name == name);
    let mut not_claimed: Vec<Value> = Vec::new();
    let mut add = |id: &str, reason: &str| {
        if !not_claimed.iter().any(|item| item.get("id").is_some_and(|known| known == id)) {
            not_claimed.push(json!({"id": id, "reason": reason}));
        }
    };
    let unshown = PROTECTIONS.iter().filter(|protection| !shown(protection.name));
    for item in facts.get("not_claimed").and_then(Value::as_array).into_iter().flatten() {
        let (id, reason) = match item {
            Value::String(words) => (slug(words), words.as_str()),
            other => (text(other, "id").to_owned(), text(other, "reason")),
        };
        if shown(&id) {
            return Err(bad(format!("the facts say that {id} is not claimed, and prove it")));
        }
        add(&id, reason);
    }
    FIXED.iter().for_each(|(id, reason)| add(id, reason));
    unshown.for_each(|protection| add(protection.name, NOT_SHOWN));

    let said = [
        ("house", about.house.map(Value::from)),
        ("by", about.by.map(Value::from)),
        ("contract", about.contract.map(Value::from)),
        ("contract_sha256", about.contract_sha256.map(|hash| hash.hex().into())),
        ("nyx5", Some("1".into())),
        ("tipo", Some(TIPO.into())),
        ("schema", Some(SCHEMA.into())),
        ("job", Some(about.job.into())),
        ("at", Some(about.at.to_string().into())),
        ("policy", Some(json!({"name": about.policy_name, "sha256": about.policy_sha256.hex()}))),
        ("enforcement_backend", Some(backend(started, proofs.iter().map(|p| p.protection.mechanism)).into())),
        ("capability_proof", Some(proofs.iter().map(super::Proof::to_json).collect())),
        ("not_claimed", Some(not_claimed.into())),
    ];
    for (name, value) in said {
        if let Some(value) = value {
            doc.insert(name.to_owned(), value);
        }
    }
    Ok(doc)
}

/// A number beyond what a signed document may hold is, from a kernel, the absence of a limit.
fn unlimited(facts: &mut Value) {
    match facts {
        Value::Number(number) if number.as_u64().is_some_and(|n| n > limits::SAFE_INTEGER_MAX) => {
            *facts = json!("unlimited");
        }
        Value::Array(items) => items.iter_mut().for_each(unlimited),
        Value::Object(fields) => fields.values_mut().for_each(unlimited),
        _ => {}
    }
}

/// A word made of what stands before the colon, for a statement that has no name.
fn slug(words: &str) -> String {
    let head = words.split(':').next().unwrap_or_default().to_lowercase();
    let parts = head.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    let mut out = parts.collect::<Vec<_>>().join("_");
    out.truncate(limits::ATTESTATION_WORD_MAX);
    out
}

/// The document as every reader of JSON would read it: bounded, numbers safe integers.
fn settled(doc: &Value) -> Result<Value, Refusal> {
    let text = canonical(doc);
    if text.len() > limits::ATTESTATION_BYTES_MAX {
        return Err(bad(format!("it is longer than {} bytes", limits::ATTESTATION_BYTES_MAX)));
    }
    parse_object(text.as_bytes())
}

fn text<'a>(doc: &'a Value, name: &str) -> &'a str {
    doc.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn names<'a>(doc: &'a Value, list: &str, name: &str) -> Vec<&'a str> {
    let list = doc.get(list).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|item| item.get(name).and_then(Value::as_str)).collect()
}

pub(super) fn bad(reason: impl Into<String>) -> Refusal {
    Refusal::new(Rule::BadDocument, format!("not a valid attestation: {}", reason.into()))
}

pub const TIPO: &str = "atestacion";
pub const SCHEMA: &str = "verifica.attestation/1";
pub(super) const SIGNATURE: &str = "signature";
pub(super) const DSSE: &str = "dsse";

/// Fields that facts may not bring along. What they claim and what they call themselves is not taken over either: it
/// is derived, or said by the signer.
const FOREIGN: &[&str] =
    &["nyx5", "tipo", "job", "at", "house", "by", "contract", "contract_sha256", "policy", SIGNATURE, DSSE];

const REASON_CHARS: usize = 600;
const NOT_SHOWN: &str = "no canary and no read-back showed it in this run";

/// What no sandbox of this kind can hold still or shut.
pub const FIXED: &[(&str, &str)] = &[
    ("clock", "the wall clock is the host's and is read without entering the kernel"),
    ("cpuid", "the processor's identity and its cycle counter can be read"),
    ("random_bytes", "random bytes, those given at start included, differ from run to run"),
    ("kernel_release", "the kernel's release and its behaviour are the host's"),
    ("scheduling", "when and for how long the job was interrupted is the host's doing"),
    ("advisory_locks", "advisory locks on shared read-only files can carry a signal between jobs"),
    ("vsyscall", "calls to the vsyscall page are not seen by the filter"),
    ("generated_code", "a program may make and run code of its own in memory"),
    ("side_channels", "caches, timing and load are shared with the host"),
];

const NAMESPACE: Shape = Shape::Object(&[must("inode", Shape::Count), must("differs", Shape::Flag)]);
const OUTPUT: Shape =
    Shape::Object(&[must("bytes", Shape::Count), must("truncated", Shape::Flag), must("sha256", Shape::Hash)]);
const REFUSED: Shape = Shape::Object(&[must("refused", Shape::Word), must("reason", Shape::Text)]);
const STATUS: Field = may("status", Shape::Map(&Shape::Said));
const NAMESPACES: Field = may("namespaces", Shape::Map(&NAMESPACE));
const FILE: &[Field] =
    &[must("path", Shape::Text), must("sha256", Shape::Hash), may("bytes", Shape::Count), may("entries", Shape::Count)];

/// Every field that this version knows.
const DOCUMENT: Shape = Shape::Object(&[
    must("nyx5", Shape::Text),
    must("tipo", Shape::Text),
    must("schema", Shape::Text),
    must("job", Shape::Text),
    must("at", Shape::Text),
    may("house", Shape::Text),
    may("by", Shape::Text),
    may("contract", Shape::Text),
    may("contract_sha256", Shape::Hash),
    must("policy", Shape::Object(&[must("name", Shape::Text), must("sha256", Shape::Hash)])),
    must("enforcement_backend", Shape::Text),
    may(
        "requested",
        Shape::Object(&[
            may("policy", Shape::Text),
            may("policy_sha256", Shape::Hash),
            may("argv_sha256", Shape::Hash),
            may("environment_sha256", Shape::Hash),
            may("stdin_sha256", Shape::Hash),
        ]),
    ),
    may("executable_sha256", Shape::Hash),
    may("executed", Shape::List(&Shape::Object(FILE))),
    may("inputs", Shape::List(&Shape::Object(FILE))),
    may("rootfs_sha256", Shape::Hash),
    may("launcher_sha256", Shape::Hash),
    may(
        "kernel",
        Shape::Object(&[
            must("release", Shape::Text),
            may("machine", Shape::Text),
            may("boot_id", Shape::Text),
            may("config_sha256", Shape::Hash),
        ]),
    ),
    may(
        "landlock",
        Shape::Object(&[
            must("abi", Shape::Count),
            must("status", Shape::Word),
            may("errata", Shape::Count),
            may("handled_fs", Shape::Count),
            may("handled_net", Shape::Count),
            may("scopes", Shape::Count),
            may("rules_sha256", Shape::Hash),
        ]),
    ),
    may("seccomp", Shape::List(&Shape::Object(&[must("sha256", Shape::Hash), must("instructions", Shape::Count)]))),
    may("seccomp_filters_before", Shape::Count),
    may("cgroup_missing", Shape::List(&Shape::Text)),
    STATUS,
    NAMESPACES,
    may("rlimits", Shape::Map(&Shape::Limit)),
    may(
        "determinism",
        Shape::Object(&[
            may("hostname", Shape::Said),
            may("umask", Shape::Said),
            may("fixed_addresses", Shape::Flag),
            may("processors", Shape::Count),
        ]),
    ),
    may("interfaces", Shape::List(&Shape::Text)),
    may(
        "cgroup",
        Shape::Object(&[
            must("backend", Shape::Word),
            may("memory_limit", Shape::Limit),
            may("process_limit", Shape::Limit),
            may("memory_peak", Shape::Count),
            may("oom_kill", Shape::Count),
            may("pids_max_hits", Shape::Count),
        ]),
    ),
    may(
        "canaries",
        Shape::List(&Shape::Object(&[
            must("id", Shape::Word),
            must("before", Shape::Said),
            must("after", Shape::Said),
        ])),
    ),
    may(
        "witness",
        Shape::Object(&[
            may("pid", Shape::Count),
            STATUS,
            NAMESPACES,
            may("limits", Shape::Map(&Shape::Said)),
            may("groups", Shape::List(&Shape::Said)),
            may("uid_map", Shape::Said),
            may("gid_map", Shape::Said),
            may("mounts", Shape::List(&Shape::Said)),
            may("descriptors", Shape::List(&Shape::Count)),
            may("oom_score_adj", Shape::Said),
            may("memory_limit", Shape::Limit),
            may("process_limit", Shape::Limit),
        ]),
    ),
    must("started", Shape::Flag),
    must("exit", Shape::Object(&[])),
    may("wall_ms", Shape::Count),
    may("cpu_ms", Shape::Count),
    may("stdout", OUTPUT),
    may("stderr", OUTPUT),
    may("survivors", Shape::Count),
    must("not_claimed", Shape::List(&Shape::Object(&[must("id", Shape::Word), must("reason", Shape::Text)]))),
    must(
        "capability_proof",
        Shape::List(&Shape::Object(&[
            must("protection", Shape::Word),
            must("mechanism", Shape::Word),
            must("canaries", Shape::List(&Shape::Word)),
            must("read_back", Shape::List(&Shape::Text)),
            must("witness", Shape::Word),
        ])),
    ),
    must(DSSE, Shape::Text),
    must(SIGNATURE, Shape::Object(&[])),
]);
