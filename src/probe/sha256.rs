//! `sha256`: the content of a URL, or what was delivered, has the agreed hash (V31).

use super::content::{self, Decision, Need, ViewEnd};
use super::fields::{self, Fields, Flaw};
use super::observation::{Cause, Observation};
use super::result::{Evidence, Outcome};
use super::text;
use super::url::{Target, UrlPolicy};
use crate::limits;
use crate::wire::Sha256;
use serde_json::Value;

#[derive(Clone, Debug)]
pub struct Sha256Test {
    pub expect: Sha256,
    /// Without one, the delivery is judged.
    pub target: Option<Target>,
}

/// What the seller delivered, as far as the contract keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Delivery {
    /// The hash that the delivery declared; anything the seller wrote there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_sha256: Option<String>,
    /// The text that was delivered inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

impl Sha256Test {
    pub(super) fn read(fields: &Fields<'_>, policy: &UrlPolicy) -> Result<Sha256Test, Flaw> {
        let expect = fields::sha256(RULE, "expect", &fields.required_text(RULE, "expect")?)?;
        Ok(Sha256Test { expect, target: fields.target(policy)? })
    }

    pub(super) const fn need(&self) -> Need {
        Need { read: limits::SHA256_BODY_MAX + 1, keep: 0 }
    }

    pub(super) fn judge(&self, observation: &Observation, evidence: &mut Evidence) -> Decision {
        self.expected(evidence);
        content::add_content(evidence, observation);
        let view = match content::body(observation, self.need()) {
            Ok(view) => view,
            Err(decision) => return decision,
        };
        let seen = view.content.sha256;
        let bytes = view.bytes;
        evidence.insert("truncated".to_owned(), Value::Bool(view.end == ViewEnd::Cut));
        match view.end {
            ViewEnd::Cut => {
                evidence.remove("sha256");
                let most = limits::SHA256_BODY_MAX;
                (
                    Outcome::Undecided(Cause::Origin),
                    format!("the content is longer than the {most} bytes that are hashed"),
                )
            }
            ViewEnd::Complete | ViewEnd::Unconfirmed if seen == self.expect => {
                (Outcome::Pass, format!("the {bytes} bytes of content have the sha256 {seen}"))
            }
            ViewEnd::Complete => (
                Outcome::Fail,
                format!("the {bytes} bytes of content have the sha256 {seen}, expected {}", self.expect),
            ),
            ViewEnd::Unconfirmed => (
                Outcome::Undecided(Cause::Origin),
                format!(
                    "the connection closed after {bytes} bytes without saying that this was all; they have the sha256 {seen}, expected {}",
                    self.expect
                ),
            ),
        }
    }

    pub(super) fn judge_delivery(&self, delivery: &Delivery, evidence: &mut Evidence) -> Decision {
        self.expected(evidence);
        let (seen, what) = match (&delivery.evidence, delivery.evidence_sha256.as_deref()) {
            (Some(inline), _) => (Some(Sha256::of(inline)), "the delivered text has".to_owned()),
            (None, None | Some("")) => {
                return (
                    Outcome::Undecided(Cause::Contract),
                    "there is nothing to hash: the delivery has neither text nor evidence_sha256".to_owned(),
                );
            }
            (None, Some(declared)) => match Sha256::parse(declared) {
                Some(seen) => (Some(seen), "the delivery declares".to_owned()),
                None => {
                    (None, format!("the delivery declares {}, which is not", text::quote(declared, DECLARED_CHARS)))
                }
            },
        };
        match seen {
            None => (Outcome::Fail, format!("{what} a sha256; expected {}", self.expect)),
            Some(seen) => {
                evidence.insert("seen".to_owned(), Value::from(seen.hex()));
                if seen == self.expect {
                    (Outcome::Pass, format!("{what} the sha256 {seen}"))
                } else {
                    (Outcome::Fail, format!("{what} the sha256 {seen}, expected {}", self.expect))
                }
            }
        }
    }

    fn expected(&self, evidence: &mut Evidence) {
        evidence.insert("expect".to_owned(), Value::from(self.expect.hex()));
    }
}

const RULE: &str = "V31";
const DECLARED_CHARS: usize = 80;
