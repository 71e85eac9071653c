//! `json_path`: a field of a JSON document equals a value, or exists (V32-V36, V73, V77).

use super::content::{self, Decision, Need, ViewEnd};
use super::equal::{Equality, equality};
use super::fields::{Fields, Flaw, VALUE_CHARS};
use super::json::{Document, Fault, Kind, Value};
use super::observation::{Cause, Observation};
use super::path::{Found, Path};
use super::result::{Evidence, Outcome};
use super::url::{Target, UrlPolicy};
use crate::limits;

#[derive(Clone, Debug)]
pub struct JsonPath {
    pub target: Target,
    pub path: Path,
    pub claim: FieldClaim,
}

#[derive(Clone, Debug)]
pub enum FieldClaim {
    Equals(Document),
    Exists(bool),
}

impl JsonPath {
    pub(super) fn read(fields: &Fields<'_>, policy: &UrlPolicy) -> Result<JsonPath, Flaw> {
        let target = fields.required_target(policy)?;
        let path = match fields.get("path").map(|value| value.kind()) {
            Some(Kind::Text(units)) => Path::parse(units).map_err(|why| Flaw::malformed("V33", why))?,
            Some(other) => {
                return Err(Flaw::malformed("V33", format!("path is {}; it is a string", other.type_name())));
            }
            None => return Err(Flaw::malformed("V33", "path is missing; write for example status or data[0].id")),
        };
        // null is a value to compare with as `expect`. As `equals` it is absent by the rule for optional fields and a value
        // by that of the alias, so nobody is paid or punished for either.
        if fields.given("equals").is_some_and(|value| value.is_null()) {
            return Err(Flaw::contract(
                "equals is null, which readers take as absent or as a value; write expect: null",
            ));
        }
        let claim = match (fields.given("expect"), fields.given("equals"), fields.get("exists")) {
            (Some(value), None, None) | (None, Some(value), None) => FieldClaim::Equals(value.to_document()),
            (None, None, Some(exists)) => match exists.kind() {
                Kind::Bool(exists) => FieldClaim::Exists(exists),
                other => {
                    return Err(Flaw::malformed(
                        "V32",
                        format!("exists is {}; it is true or false", other.type_name()),
                    ));
                }
            },
            (None, None, None) => {
                return Err(Flaw::malformed("V32", "there is nothing to compare with; give expect, equals or exists"));
            }
            _ => return Err(Flaw::malformed("V10", "only one of expect, equals and exists may be given")),
        };
        Ok(JsonPath { target, path, claim })
    }

    pub(super) const fn need(&self) -> Need {
        Need { read: limits::JSON_BODY_MAX + 1, keep: limits::JSON_BODY_MAX + 1 }
    }

    pub(super) fn judge(&self, observation: &Observation, evidence: &mut Evidence) -> Decision {
        evidence
            .insert("path".to_owned(), serde_json::Value::from(super::text::plain(&self.path.text(), EVIDENCE_CHARS)));
        if let FieldClaim::Equals(expected) = &self.claim {
            evidence.insert("expect".to_owned(), expected.root().evidence(EVIDENCE_CHARS));
        }
        content::add_content(evidence, observation);
        let view = match content::body(observation, self.need()) {
            Ok(view) => view,
            Err(decision) => return decision,
        };
        let origin = |why: String| (Outcome::Undecided(Cause::Origin), why);
        evidence.insert("truncated".to_owned(), serde_json::Value::Bool(view.end == ViewEnd::Cut));
        match view.end {
            ViewEnd::Complete => {}
            ViewEnd::Cut => {
                return origin(format!(
                    "the content is longer than the {} bytes that are read as json",
                    limits::JSON_BODY_MAX
                ));
            }
            ViewEnd::Unconfirmed => {
                return origin(format!(
                    "the connection closed after {} bytes without saying that this was all",
                    view.bytes
                ));
            }
        }
        let bytes = view.kept.strip_prefix(BOM).unwrap_or(view.kept);
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(why) => return origin(format!("the content is not utf-8 at byte {}", why.valid_up_to())),
        };
        let document = match Document::read(text) {
            Ok(document) => document,
            Err(fault @ Fault::NotJson { .. }) => return (Outcome::Fail, format!("the content is not json: {fault}")),
            Err(fault @ Fault::TooDeep { .. }) => return origin(format!("the content is json {fault}")),
        };
        self.judge_document(document.root(), evidence)
    }

    fn judge_document(&self, root: Value<'_>, evidence: &mut Evidence) -> Decision {
        let path = self.path.shown();
        let found = match self.path.find(root) {
            Found::Value(value) => Some(value),
            Found::Missing(at) => {
                if let FieldClaim::Equals(expected) = &self.claim {
                    return (Outcome::Fail, missing(&path, &at, &format!(", expected {}", in_words(expected.root()))));
                }
                None
            }
            Found::Repeated(key) => {
                return (
                    Outcome::Undecided(Cause::Origin),
                    format!("the key {key} on the path {path} stands twice in one object"),
                );
            }
            Found::NotAnIndex(segment) => {
                return (
                    Outcome::Undecided(Cause::Contract),
                    format!("the path {path} asks an array for {segment}, which is not an index"),
                );
            }
        };
        if let Some(value) = found {
            evidence.insert("seen".to_owned(), value.evidence(EVIDENCE_CHARS));
        }
        match (&self.claim, found) {
            (FieldClaim::Exists(true), Some(value)) => (Outcome::Pass, format!("{path} exists: {}", in_words(value))),
            (FieldClaim::Exists(true), None) => (Outcome::Fail, format!("{path} is missing, expected to exist")),
            (FieldClaim::Exists(false), Some(value)) => {
                (Outcome::Fail, format!("{path} exists: {}, expected to be missing", in_words(value)))
            }
            (FieldClaim::Exists(false), None) => (Outcome::Pass, format!("{path} is missing, as expected")),
            (FieldClaim::Equals(expected), Some(value)) => compare(&path, value, expected.root()),
            (FieldClaim::Equals(_), None) => (Outcome::Fail, missing(&path, &path, "")),
        }
    }
}

fn compare(path: &str, value: Value<'_>, expected: Value<'_>) -> Decision {
    if let Some(key) = value.repeats_a_key() {
        let key = super::text::quote(&key, VALUE_CHARS);
        return (Outcome::Undecided(Cause::Origin), format!("the key {key} stands twice in one object inside {path}"));
    }
    match equality(value, expected) {
        Equality::Equal => (Outcome::Pass, format!("{path} is {}", in_words(value))),
        Equality::Different => {
            (Outcome::Fail, format!("{path} is {}, expected {}", in_words(value), in_words(expected)))
        }
        Equality::Doubt(why) => (
            Outcome::Undecided(Cause::Origin),
            format!("{path} is {}, expected {}: readers disagree, {why}", in_words(value), in_words(expected)),
        ),
    }
}

fn missing(path: &str, at: &str, expected: &str) -> String {
    if path == at { format!("{path} is missing{expected}") } else { format!("{path} is missing at {at}{expected}") }
}

/// The type and the value, cut; `null`, `true` and `false` say their own type.
fn in_words(value: Value<'_>) -> String {
    let shown = value.show(VALUE_CHARS);
    match value.kind() {
        Kind::Null | Kind::Bool(_) => shown,
        Kind::Number(_) => format!("number {shown}"),
        Kind::Text(_) => format!("string {shown}"),
        Kind::Array => format!("array {shown}"),
        Kind::Object => format!("object {shown}"),
    }
}

const BOM: &[u8] = b"\xef\xbb\xbf";
const EVIDENCE_CHARS: usize = 400;
