//! Tokens: whole, positive, within the integers that every implementation counts alike.

use crate::limits::SAFE_INTEGER_MAX;
use crate::refusal::{Refusal, Rule};
use serde_json::Value;
use std::fmt;

/// A positive safe integer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(u64);

impl Amount {
    pub fn new(tokens: u64) -> Option<Self> {
        (1..=SAFE_INTEGER_MAX).contains(&tokens).then_some(Amount(tokens))
    }

    /// Reads a field; the refusal names it and says what was there.
    pub fn from_json(value: Option<&Value>, field: &str) -> Result<Self, Refusal> {
        let tokens = value.and_then(Value::as_u64).and_then(Amount::new);
        tokens.ok_or_else(|| {
            let seen = match value {
                None => "nothing".to_owned(),
                Some(Value::Number(n)) => n.to_string(),
                Some(other) => super::json::type_name(other).to_owned(),
            };
            Refusal::new(Rule::BadAmount, format!("{field} must be a whole number of tokens above zero, got {seen}"))
        })
    }

    pub const fn tokens(self) -> u64 {
        self.0
    }

    /// As a ledger line; fits because amounts are safe integers.
    pub const fn delta(self) -> i64 {
        self.0 as i64
    }

    /// `floor(amount * bps / 10000)`, exact.
    pub const fn share(self, bps: u64) -> u64 {
        ((self.0 as u128 * bps as u128) / crate::limits::BPS_WHOLE as u128) as u64
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_positive_safe_integers() {
        for good in [json!(1), json!(SAFE_INTEGER_MAX)] {
            assert!(Amount::from_json(Some(&good), "price").is_ok(), "{good}");
        }
        for bad in [json!(0), json!(-1), json!(SAFE_INTEGER_MAX + 1), json!("5"), json!(1.5), json!(null), json!([1])] {
            assert_eq!(Amount::from_json(Some(&bad), "price").map_err(|r| r.rule), Err(Rule::BadAmount), "{bad}");
        }
    }

    #[test]
    fn shares_are_floored_and_never_overflow() {
        assert_eq!(Amount::new(200).map(|a| a.share(1000)), Some(20));
        assert_eq!(Amount::new(19).map(|a| a.share(1000)), Some(1));
        assert_eq!(Amount::new(SAFE_INTEGER_MAX).map(|a| a.share(10_000)), Some(SAFE_INTEGER_MAX));
    }
}
