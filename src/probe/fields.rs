//! The fields of a test object, taken out one by one: strings, whole numbers and URLs, with `null` as absent (V74).

use super::decimal::Decimal;
use super::json::{Kind, Value};
use super::observation::Cause;
use super::text;
use super::url::{Target, UrlPolicy};
use crate::wire::Sha256;

/// Why a test object is not a test (V10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Of a known type, and wrong: it fails, without a request. `rule` is the number of the rule.
    Malformed { rule: &'static str, reason: String },
    /// Nobody could tell what it means, or this host cannot run it.
    Unjudgeable { cause: Cause, reason: String },
}

impl Flaw {
    pub fn malformed(rule: &'static str, reason: impl Into<String>) -> Flaw {
        Flaw::Malformed { rule, reason: reason.into() }
    }

    pub fn contract(reason: impl Into<String>) -> Flaw {
        Flaw::Unjudgeable { cause: Cause::Contract, reason: reason.into() }
    }
}

/// The members of one object, whose keys are known not to repeat.
pub struct Fields<'a> {
    object: Value<'a>,
}

impl<'a> Fields<'a> {
    pub fn of(object: Value<'a>) -> Fields<'a> {
        Fields { object }
    }

    /// Refuses keys outside `known`; an unknown key makes the whole object unjudgeable.
    pub fn only(&self, known: &[&str], what: &str) -> Result<(), Flaw> {
        for (key, _) in self.object.members() {
            if !known.iter().any(|name| same(key, name)) {
                let shown = text::quote_units(key.iter().copied(), KEY_CHARS);
                return Err(Flaw::contract(format!(
                    "{what} has an unknown key {shown}; it may have {}",
                    known.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// The value of a key, `null` included.
    pub fn given(&self, key: &str) -> Option<Value<'a>> {
        self.object.members().find(|(name, _)| same(name, key)).map(|(_, value)| value)
    }

    /// The value of a key; `null` is absent.
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.given(key).filter(|value| !value.is_null())
    }

    pub fn text(&self, rule: &'static str, key: &str) -> Result<Option<String>, Flaw> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => string(rule, key, value).map(Some),
        }
    }

    pub fn required_text(&self, rule: &'static str, key: &str) -> Result<String, Flaw> {
        self.text(rule, key)?.ok_or_else(|| Flaw::malformed(rule, format!("{key} is missing; it is a string")))
    }

    /// A whole number from `least` to `most`; `200.0` is one.
    pub fn integer(&self, rule: &'static str, key: &str, least: u64, most: u64) -> Result<Option<u64>, Flaw> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = match value.kind() {
            Kind::Number(digits) => Decimal::parse(digits).safe_integer().and_then(|n| u64::try_from(n).ok()),
            _ => None,
        };
        match number.filter(|n| (least..=most).contains(n)) {
            Some(n) => Ok(Some(n)),
            None => Err(Flaw::malformed(
                rule,
                format!("{key} is {}; it is a whole number from {least} to {most}", value.show(VALUE_CHARS)),
            )),
        }
    }

    pub fn target(&self, policy: &UrlPolicy) -> Result<Option<Target>, Flaw> {
        let Some(text) = self.text(RULE_URL, "url")? else { return Ok(None) };
        Target::parse(&text, policy).map(Some).map_err(|why| Flaw::malformed(RULE_URL, why))
    }

    pub fn required_target(&self, policy: &UrlPolicy) -> Result<Target, Flaw> {
        self.target(policy)?.ok_or_else(|| Flaw::malformed(RULE_URL, "url is missing; it starts with https://"))
    }
}

/// The string in `value`; a lone surrogate has no bytes, so readers would not agree on it.
pub fn string(rule: &'static str, key: &str, value: Value<'_>) -> Result<String, Flaw> {
    match value.kind() {
        Kind::Text(units) => String::from_utf16(units)
            .map_err(|_| Flaw::contract(format!("{key} has half of a surrogate pair, which is not a character"))),
        other => Err(Flaw::malformed(rule, format!("{key} is {}; it is a string", other.type_name()))),
    }
}

/// 64 hex digits, in any case.
pub fn sha256(rule: &'static str, key: &str, text: &str) -> Result<Sha256, Flaw> {
    Sha256::parse(text).ok_or_else(|| {
        Flaw::malformed(rule, format!("{key} is {}; it is 64 hex digits", text::quote(text, VALUE_CHARS)))
    })
}

fn same(units: &[u16], name: &str) -> bool {
    units.iter().copied().eq(name.encode_utf16())
}

const RULE_URL: &str = "V20";
const KEY_CHARS: usize = 60;
pub(crate) const VALUE_CHARS: usize = 80;
