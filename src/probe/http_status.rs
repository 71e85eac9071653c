//! `http_status`: the code that a URL answers (V30). Judged on a complete head; the content does not matter (V70).

use super::content::{self, Decision};
use super::fields::{Fields, Flaw};
use super::observation::{Method, Observation};
use super::result::{Evidence, Outcome};
use super::text;
use super::url::{Target, UrlPolicy};
use serde_json::Value;

#[derive(Clone, Debug)]
pub struct HttpStatus {
    pub target: Target,
    pub expect: u16,
    pub method: Method,
}

impl HttpStatus {
    pub(super) fn read(fields: &Fields<'_>, policy: &UrlPolicy) -> Result<HttpStatus, Flaw> {
        let target = fields.required_target(policy)?;
        let expect = match fields.integer(RULE, "expect", 100, 599)? {
            None => 200,
            Some(code @ 100..=199) => {
                return Err(Flaw::malformed(RULE, format!("expect is {code}, which is never a final answer")));
            }
            Some(code @ 520..=529) => {
                return Err(Flaw::malformed(
                    RULE,
                    format!("expect is {code}, which an edge answers and not the server"),
                ));
            }
            Some(code) => code as u16,
        };
        let method = match fields.text(RULE, "method")?.as_deref() {
            None | Some("GET") => Method::Get,
            Some("HEAD") => Method::Head,
            Some(other) => {
                return Err(Flaw::malformed(
                    RULE,
                    format!("method is {}; it is GET or HEAD", text::quote(other, METHOD_CHARS)),
                ));
            }
        };
        Ok(HttpStatus { target, expect, method })
    }

    pub(super) fn judge(&self, observation: &Observation, evidence: &mut Evidence) -> Decision {
        evidence.insert("expect".to_owned(), Value::from(self.expect));
        let response = match content::head(observation) {
            Ok(response) => response,
            Err(decision) => return decision,
        };
        evidence.insert("seen".to_owned(), Value::from(response.status));
        let (method, status) = (self.method.name(), response.status);
        if status == self.expect {
            (Outcome::Pass, format!("{method} answered {status}"))
        } else if (300..=399).contains(&status) {
            (Outcome::Fail, format!("{method} answered {status}, expected {}; redirects are not followed", self.expect))
        } else {
            (Outcome::Fail, format!("{method} answered {status}, expected {}", self.expect))
        }
    }
}

const RULE: &str = "V30";
const METHOD_CHARS: usize = 20;
