//! Probe policies: data with a reason on each rule, compiled in or read from a file. A verdict names the policy that it
//! was reached under, by name and by the hash of the values in force.

use super::Policy;
use crate::limits;
use crate::wire::json::canonical_sha256;
use serde::Deserialize;
use serde_json::json;

const SCHEMA: &str = "verifica.policy/1";
const BUILT_IN: &[(&str, &str)] = &[("default", include_str!("../../policies/default.toml"))];

/// How looks are made. A configuration may set single values; the stated hash is of what is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePolicy {
    pub name: String,
    pub confirm_after_ms: u64,
    pub timeout_ms: u64,
    pub per_host_per_minute: u32,
}

impl ProbePolicy {
    /// A policy that ships with the program.
    pub fn named(name: &str) -> Option<ProbePolicy> {
        let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        ProbePolicy::parse(text).ok()
    }

    pub fn names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }

    pub fn parse(text: &str) -> Result<ProbePolicy, String> {
        let file: File = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        if file.schema != SCHEMA {
            return Err(format!("schema is \"{}\"; this program reads {SCHEMA}", file.schema));
        }
        if file.name.is_empty() || file.name.chars().count() > 40 {
            return Err("name must have 1 to 40 characters".to_owned());
        }
        let reasons = [&file.confirm_after.why, &file.timeout.why, &file.per_host_per_minute.why];
        if reasons.iter().any(|why| why.trim().is_empty()) {
            return Err("every rule needs a why that is not empty".to_owned());
        }
        let timeout_ms = duration_ms(&file.timeout.value)?;
        if !(100..=60_000).contains(&timeout_ms) {
            return Err("timeout must be between 100ms and 60s".to_owned());
        }
        let confirm_after_ms = duration_ms(&file.confirm_after.value)?;
        if confirm_after_ms > 3_600_000 {
            return Err("confirm_after must be at most 1h".to_owned());
        }
        if !(1..=6_000).contains(&file.per_host_per_minute.value) {
            return Err("per_host_per_minute must be between 1 and 6000".to_owned());
        }
        Ok(ProbePolicy {
            name: file.name,
            confirm_after_ms,
            timeout_ms,
            per_host_per_minute: file.per_host_per_minute.value,
        })
    }

    /// As a verdict states it.
    pub fn stated(&self) -> Policy {
        let values = json!({
            "name": self.name, "confirm_after_ms": self.confirm_after_ms, "timeout_ms": self.timeout_ms,
            "per_host_per_minute": self.per_host_per_minute,
        });
        Policy { name: self.name.clone(), confirm_after_ms: self.confirm_after_ms, sha256: canonical_sha256(&values) }
    }
}

impl Default for ProbePolicy {
    /// The policy named `default`, value for value; a test compares it with the file.
    fn default() -> Self {
        ProbePolicy {
            name: "default".to_owned(),
            confirm_after_ms: limits::CONFIRM_AFTER_MS.unsigned_abs(),
            timeout_ms: limits::PROBE_MS_DEFAULT,
            per_host_per_minute: limits::PER_HOST_PER_MINUTE,
        }
    }
}

/// An integer with `ms`, `s`, `m`, `h` or `d`.
pub fn duration_ms(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("\"{text}\" is not a duration: write an integer with ms, s, m, h or d, such as 10s")),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(scale))
        .filter(|ms| *ms <= crate::limits::SAFE_INTEGER_MAX)
        .ok_or_else(|| format!("\"{text}\" is not a duration this program can count"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    name: String,
    confirm_after: Rule<String>,
    timeout: Rule<String>,
    per_host_per_minute: Rule<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule<T> {
    value: T,
    why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ships_parses_and_its_hash_follows_its_values() {
        for name in ProbePolicy::names() {
            assert_eq!(ProbePolicy::named(name).map(|p| p.name), Some(name.to_owned()));
        }
        let default = ProbePolicy::named("default").expect("ships");
        assert_eq!(default, ProbePolicy::default());
        let slower = ProbePolicy { confirm_after_ms: 3000, ..default.clone() };
        assert_ne!(default.stated().sha256, slower.stated().sha256);
    }

    #[test]
    fn a_rule_without_a_reason_or_with_a_strange_value_is_refused() {
        let (_, text) = BUILT_IN[0];
        for (from, to) in [
            ("why = \"a whole", "why = \"\" # \"a whole"),
            ("value = 60", "value = 0"),
            ("\"10s\"", "\"10\""),
            ("\"10s\"", "\"61s\""),
            ("name = \"default\"", "name = \"\""),
            ("[timeout]", "[time_out]"),
            ("policy/1", "policy/2"),
        ] {
            assert!(text.contains(from));
            assert!(ProbePolicy::parse(&text.replacen(from, to, 1)).is_err(), "{to}");
        }
    }

    #[test]
    fn durations_are_integers_with_a_unit() {
        for (text, ms) in [("250ms", 250), ("2s", 2_000), ("3m", 180_000), ("24h", 86_400_000), ("3d", 259_200_000)] {
            assert_eq!(duration_ms(text), Ok(ms));
        }
        for bad in ["", "2", "s", "-2s", "2.5s", "2 s", "2w", "99999999999999999999s"] {
            assert!(duration_ms(bad).is_err(), "{bad}");
        }
    }
}
