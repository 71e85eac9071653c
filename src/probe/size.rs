//! `size`: how many bytes the content of a URL has (V42). Bytes are counted as they arrive; what the server says about
//! its length is never believed, and reading stops at the bound that decides.

use super::content::{self, Decision, Need, ViewEnd};
use super::fields::{Fields, Flaw};
use super::observation::{Cause, Observation};
use super::result::{Evidence, Outcome};
use super::url::{Target, UrlPolicy};
use crate::limits;
use serde_json::Value;

#[derive(Clone, Debug)]
pub struct Size {
    pub target: Target,
    pub max_bytes: Option<u64>,
    pub min_bytes: Option<u64>,
}

impl Size {
    pub(super) fn read(fields: &Fields<'_>, policy: &UrlPolicy) -> Result<Size, Flaw> {
        let target = fields.required_target(policy)?;
        let max_bytes = fields.integer(RULE, "max_bytes", 0, limits::SIZE_BOUND_MAX)?;
        let min_bytes = fields.integer(RULE, "min_bytes", 0, limits::SIZE_BOUND_MAX)?;
        match (min_bytes, max_bytes) {
            (None, None) => Err(Flaw::malformed(RULE, "there is no bound; give max_bytes, min_bytes or both")),
            (Some(min), Some(max)) if min > max => {
                Err(Flaw::malformed(RULE, format!("min_bytes is {min} and max_bytes is {max}; nothing can be both")))
            }
            _ => Ok(Size { target, max_bytes, min_bytes }),
        }
    }

    /// One past the maximum; with a minimum alone, the minimum. Always at least one byte, since a 204 that has content
    /// contradicts itself.
    pub(super) fn need(&self) -> Need {
        let read = match (self.max_bytes, self.min_bytes) {
            (Some(max), _) => max + 1,
            (None, min) => min.unwrap_or_default().max(1),
        };
        Need { read, keep: 0 }
    }

    pub(super) fn judge(&self, observation: &Observation, evidence: &mut Evidence) -> Decision {
        evidence.insert("expect".to_owned(), self.expected());
        content::add_content(evidence, observation);
        let need = self.need();
        let view = match content::body(observation, need) {
            Ok(view) => view,
            Err(decision) => return decision,
        };
        evidence.insert("bytes".to_owned(), Value::from(view.bytes));
        evidence.insert("truncated".to_owned(), Value::Bool(view.end == ViewEnd::Cut));
        let bytes = view.bytes;
        let wanted = match (self.min_bytes, self.max_bytes) {
            (Some(min), Some(max)) => format!("from {min} to {max}"),
            (Some(min), None) => format!("at least {min}"),
            (None, Some(max)) => format!("at most {max}"),
            (None, None) => "any number".to_owned(),
        };
        if self.max_bytes.is_some_and(|max| bytes > max) {
            return (Outcome::Fail, format!("the content has more than {} bytes, expected {wanted}", need.read - 1));
        }
        let reached = bytes >= self.min_bytes.unwrap_or_default();
        match view.end {
            _ if self.max_bytes.is_none() && reached => {
                (Outcome::Pass, format!("the content has at least {} bytes", self.min_bytes.unwrap_or_default()))
            }
            ViewEnd::Complete if reached => (Outcome::Pass, format!("the content has {bytes} bytes, {wanted} agreed")),
            ViewEnd::Complete => (Outcome::Fail, format!("the content has {bytes} bytes, expected {wanted}")),
            ViewEnd::Unconfirmed => (
                Outcome::Undecided(Cause::Origin),
                format!(
                    "the connection closed after {bytes} bytes without saying that this was all, expected {wanted}"
                ),
            ),
            ViewEnd::Cut => (
                Outcome::Undecided(Cause::Ours),
                format!("reading stopped after {bytes} bytes, which decides nothing, expected {wanted}"),
            ),
        }
    }

    fn expected(&self) -> Value {
        let mut bounds = serde_json::Map::new();
        for (key, bound) in [("max_bytes", self.max_bytes), ("min_bytes", self.min_bytes)] {
            if let Some(bound) = bound {
                bounds.insert(key.to_owned(), Value::from(bound));
            }
        }
        Value::Object(bounds)
    }
}

const RULE: &str = "V42";
