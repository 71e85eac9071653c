//! How a test ended (V1) and what travels about it (V8, V60).

use super::observation::Cause;
use serde_json::{Map, Value};

pub type Evidence = Map<String, Value>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Pass,
    Fail,
    Undecided(Cause),
}

/// The result of one test of a contract in one look.
#[derive(Clone, Debug, PartialEq)]
pub struct TestResult {
    pub outcome: Outcome,
    /// The `type` of the test as it was written, or what stands in its place when there was none.
    pub test_type: String,
    /// The label of the test, if it has one.
    pub name: Option<String>,
    /// What was seen and what was expected; lower case, no full stop.
    pub reason: String,
    pub evidence: Evidence,
}

impl Outcome {
    pub const fn word(self) -> &'static str {
        match self {
            Outcome::Pass => "pass",
            Outcome::Fail => "fail",
            Outcome::Undecided(_) => "undecided",
        }
    }

    pub const fn cause(self) -> Option<Cause> {
        match self {
            Outcome::Undecided(cause) => Some(cause),
            Outcome::Pass | Outcome::Fail => None,
        }
    }
}

impl TestResult {
    /// As the protocol carries it: `{"pasa", "prueba", "razon", "evidencia", "indeciso"?, "name"?}`. The cause of an
    /// undecided test is `evidencia.cause`.
    pub fn to_json(&self) -> Value {
        let mut evidence = self.evidence.clone();
        let mut out = Map::new();
        out.insert("pasa".to_owned(), Value::Bool(self.outcome == Outcome::Pass));
        out.insert("prueba".to_owned(), Value::String(self.test_type.clone()));
        out.insert("razon".to_owned(), Value::String(self.reason.clone()));
        if let Outcome::Undecided(cause) = self.outcome {
            evidence.insert("cause".to_owned(), Value::String(cause.name().to_owned()));
            out.insert("indeciso".to_owned(), Value::Bool(true));
        }
        out.insert("evidencia".to_owned(), Value::Object(evidence));
        if let Some(name) = &self.name {
            out.insert("name".to_owned(), Value::String(name.clone()));
        }
        Value::Object(out)
    }

    /// What [`TestResult::to_json`] wrote.
    pub fn from_json(value: &Value) -> Option<TestResult> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let mut evidence = value.get("evidencia")?.as_object()?.clone();
        let undecided = value.get("indeciso").is_some_and(|v| v.as_bool() == Some(true));
        let outcome = match (value.get("pasa")?.as_bool()?, undecided) {
            (true, false) => Outcome::Pass,
            (false, false) => Outcome::Fail,
            (false, true) => Outcome::Undecided(serde_json::from_value(evidence.remove("cause")?).ok()?),
            (true, true) => return None,
        };
        Some(TestResult { outcome, test_type: text("prueba")?, name: text("name"), reason: text("razon")?, evidence })
    }

    /// Whether the sandbox that the test needs cannot be enforced here (V81).
    pub fn unenforced(&self) -> bool {
        matches!(self.outcome, Outcome::Undecided(_)) && self.evidence.contains_key(UNENFORCED)
    }
}

/// Evidence field that names the mechanism of the sandbox that is missing.
pub const UNENFORCED: &str = "unenforced";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_travel_as_the_protocol_writes_them() {
        for (outcome, json) in [
            (Outcome::Pass, r#"{"evidencia":{"status":200},"pasa":true,"prueba":"http_status","razon":"why"}"#),
            (Outcome::Fail, r#"{"evidencia":{"status":200},"pasa":false,"prueba":"http_status","razon":"why"}"#),
            (
                Outcome::Undecided(Cause::Edge),
                r#"{"evidencia":{"cause":"edge","status":200},"indeciso":true,"pasa":false,"prueba":"http_status","razon":"why"}"#,
            ),
        ] {
            let mut evidence = Evidence::new();
            evidence.insert("status".to_owned(), Value::from(200));
            let result = TestResult {
                outcome,
                test_type: "http_status".to_owned(),
                name: None,
                reason: "why".to_owned(),
                evidence,
            };
            assert_eq!(result.to_json().to_string(), json);
            assert_eq!(TestResult::from_json(&result.to_json()), Some(result.clone()));
            let named = TestResult { name: Some("up".to_owned()), ..result };
            assert_eq!(TestResult::from_json(&named.to_json()), Some(named));
        }
        assert_eq!(
            TestResult::from_json(
                &serde_json::json!({"pasa": true, "indeciso": true, "prueba": "x", "razon": "", "evidencia": {}})
            ),
            None
        );
    }
}
