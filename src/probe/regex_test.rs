//! `regex`: the first megabyte of the content matches a bounded pattern (V37-V41, V71, V72).

use super::content::{self, Decision, Need, ViewEnd};
use super::fields::{Fields, Flaw, VALUE_CHARS};
use super::observation::{Cause, Observation};
use super::regex::{Answer, Fault, Pattern};
use super::result::{Evidence, Outcome};
use super::text;
use super::url::{Target, UrlPolicy};
use crate::limits;
use serde_json::Value;

#[derive(Clone, Debug)]
pub struct RegexTest {
    pub target: Target,
    pub pattern: Box<Pattern>,
    /// As the test wrote it.
    pub source: String,
    pub flags: String,
}

impl RegexTest {
    pub(super) fn read(fields: &Fields<'_>, policy: &UrlPolicy) -> Result<RegexTest, Flaw> {
        let target = fields.required_target(policy)?;
        let source = fields.required_text("V37", "pattern")?;
        let units = source.encode_utf16().count();
        if units > limits::REGEX_PATTERN_UNITS_MAX {
            return Err(Flaw::malformed(
                "V37",
                format!("pattern has {units} code units; at most {} are allowed", limits::REGEX_PATTERN_UNITS_MAX),
            ));
        }
        let flags = fields.text("V37", "flags")?.unwrap_or_default();
        for (n, flag) in flags.char_indices() {
            if !"imsu".contains(flag) {
                let shown = text::quote(&flags, VALUE_CHARS);
                return Err(Flaw::malformed("V72", format!("flags is {shown}; it is made of i, m, s and u")));
            }
            if flags.get(..n).unwrap_or_default().contains(flag) {
                return Err(Flaw::malformed("V37", format!("flags has {flag} twice")));
            }
        }
        let pattern = Pattern::parse(&source, &flags).map_err(|fault| match fault {
            Fault::Malformed { at, reason } => Flaw::malformed(
                "V38",
                format!("pattern is refused at character {at}: {}", text::plain(&reason, REASON_CHARS)),
            ),
            Fault::Unsupported { at, reason } => Flaw::contract(format!(
                "pattern is outside the common subset at character {at}: {}",
                text::plain(&reason, REASON_CHARS)
            )),
        })?;
        Ok(RegexTest { target, pattern: Box::new(pattern), source, flags })
    }

    pub(super) const fn need(&self) -> Need {
        Need { read: limits::REGEX_WINDOW + 1, keep: limits::REGEX_WINDOW + 1 }
    }

    pub(super) fn judge(&self, observation: &Observation, evidence: &mut Evidence) -> Decision {
        evidence.insert("expect".to_owned(), Value::from(self.shown(limits::REGEX_PATTERN_UNITS_MAX)));
        evidence.insert("unicode".to_owned(), Value::from(Pattern::unicode_version()));
        content::add_content(evidence, observation);
        let view = match content::body(observation, self.need()) {
            Ok(view) => view,
            Err(decision) => return decision,
        };
        let truncated = view.end == ViewEnd::Cut;
        evidence.insert("truncated".to_owned(), Value::Bool(truncated));
        let most = usize::try_from(limits::REGEX_WINDOW).unwrap_or(usize::MAX);
        let window = view.kept.get(..most).unwrap_or(view.kept);
        let more = view.end != ViewEnd::Complete;
        // The end of the content is not known, and there is room in the window for what may be missing.
        let open = view.end == ViewEnd::Unconfirmed && window.len() < most;
        let (pattern, read) = (self.shown(PATTERN_CHARS), read(window.len(), truncated));
        match self.pattern.evaluate(window, more) {
            Answer::Match => (Outcome::Pass, format!("{pattern} matches in {read}")),
            Answer::NoMatch if open => (
                Outcome::Undecided(Cause::Origin),
                format!(
                    "{pattern} does not match in {read}, and the connection closed without saying that this was all"
                ),
            ),
            Answer::NoMatch => (Outcome::Fail, format!("{pattern} does not match in {read}")),
            Answer::Unknown { reason } => {
                let cause = if view.end == ViewEnd::Unconfirmed { Cause::Origin } else { Cause::Contract };
                let why = text::plain(&reason, REASON_CHARS);
                (Outcome::Undecided(cause), format!("{pattern} cannot be decided on {read}: {why}"))
            }
            Answer::OverBudget => (
                Outcome::Undecided(Cause::Contract),
                format!("{pattern} takes more steps on {read} than any test may take"),
            ),
        }
    }

    fn shown(&self, cap: usize) -> String {
        format!("/{}/{}", text::plain(&self.source, cap), self.flags)
    }
}

fn read(bytes: usize, truncated: bool) -> String {
    if truncated { format!("the first {bytes} bytes, truncated") } else { format!("{bytes} bytes") }
}

const REASON_CHARS: usize = 200;
const PATTERN_CHARS: usize = 100;
