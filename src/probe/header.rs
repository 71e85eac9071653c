//! `header`: one response header has exactly the agreed value, whatever the status (V43, V70, V78).

use super::content::{self, Decision};
use super::fields::{Fields, Flaw, VALUE_CHARS};
use super::observation::{Cause, Observation, Response};
use super::result::{Evidence, Outcome};
use super::text;
use super::url::{Target, UrlPolicy};
use serde_json::Value;

#[derive(Clone, Debug)]
pub struct Header {
    pub target: Target,
    /// Lower case.
    pub name: String,
    pub equals: String,
}

impl Header {
    pub(super) fn read(fields: &Fields<'_>, policy: &UrlPolicy) -> Result<Header, Flaw> {
        let target = fields.required_target(policy)?;
        let name = fields.required_text(RULE, "name")?;
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(Flaw::malformed(
                RULE,
                format!("name is {}, which is not the name of a header", text::quote(&name, VALUE_CHARS)),
            ));
        }
        let name = name.to_ascii_lowercase();
        if HOP_BY_HOP.contains(&name.as_str()) {
            return Err(Flaw::malformed(
                RULE,
                format!("name is {name}, which belongs to one connection and not to the answer"),
            ));
        }
        let equals = fields.required_text(RULE, "equals")?;
        if equals.bytes().any(|b| (b < 0x20 && b != b'\t') || b == 0x7f) {
            return Err(Flaw::malformed(RULE, "equals has a control byte, which no header can have"));
        }
        Ok(Header { target, name, equals })
    }

    pub(super) fn judge(&self, observation: &Observation, evidence: &mut Evidence) -> Decision {
        evidence.insert("name".to_owned(), Value::from(self.name.as_str()));
        evidence.insert("expect".to_owned(), Value::from(cut(&self.equals)));
        let response = match content::head(observation) {
            Ok(response) => response,
            Err(decision) => return decision,
        };
        let (name, expected) = (&self.name, text::quote(&self.equals, VALUE_CHARS));
        let Some(seen) = value(response, name) else {
            return (
                Outcome::Fail,
                format!("the answer {} has no header {name}, expected {expected}", response.status),
            );
        };
        let latin: String = seen.iter().map(|b| char::from(*b)).collect();
        evidence.insert("seen".to_owned(), Value::from(cut(&latin)));
        let by_latin = latin == self.equals;
        let by_utf8 = std::str::from_utf8(&seen).map(|text| text == self.equals);
        let shown = text::quote(&latin, VALUE_CHARS);
        if by_utf8.is_ok_and(|equal| equal != by_latin) {
            return (
                Outcome::Undecided(Cause::Origin),
                format!("{name} is {shown} as latin-1 and differs as utf-8, expected {expected}: readers disagree"),
            );
        }
        if by_latin {
            (Outcome::Pass, format!("{name} is {shown}"))
        } else {
            (Outcome::Fail, format!("{name} is {shown}, expected {expected}"))
        }
    }
}

/// All lines of the header, trimmed and joined with a comma and a space.
fn value(response: &Response, name: &str) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> =
        response.headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name)).map(|h| trimmed(&h.value)).collect();
    (!lines.is_empty()).then(|| lines.join(&b", "[..]))
}

/// Without the optional whitespace of HTTP around it: spaces and tabs.
fn trimmed(value: &[u8]) -> &[u8] {
    let white = |b: &u8| matches!(b, b' ' | b'\t');
    let start = value.iter().position(|b| !white(b)).unwrap_or(value.len());
    let end = value.iter().rposition(|b| !white(b)).map_or(start, |last| last + 1);
    value.get(start..end).unwrap_or_default()
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

fn cut(value: &str) -> String {
    text::plain(value, EVIDENCE_CHARS)
}

const RULE: &str = "V43";
const EVIDENCE_CHARS: usize = 400;
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
