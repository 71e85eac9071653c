//! What a file gives to check: the tests in it, where they stand, and what the contract around them says.

use crate::cli::diagnose;
use crate::cli::json_source::{Source, read_json, read_toml};
use crate::cli::output::{Failure, Out};
use crate::config::{At, Diagnostic};
use crate::probe::file::{FileKind, TestFile};
use crate::record::ContractState;
use crate::wire::digest::Sha256;
use crate::wire::json::unsignable;
use serde_json::{Value, json};
use std::path::Path;

/// The tests of a file, and where they stand in it.
pub struct Spec {
    pub path: String,
    pub text: String,
    /// For places and for showing; what is judged is `file`.
    pub source: Source,
    pub file: TestFile,
    /// JSON pointer of the test, or of the list of tests; `None` where the file declares none.
    pub pointer: Option<String>,
    /// Of the bytes of the file.
    pub sha256: Sha256,
    /// The quote or contract around the tests.
    pub deal: Option<Value>,
    /// The file is a contract: a house has accepted its tests.
    pub accepted: bool,
}

impl Spec {
    pub fn read(path: &Path, bytes: &[u8], out: &Out) -> Result<Spec, Failure> {
        let toml = path.extension().is_some_and(|extension| extension == "toml");
        let shown = if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
        let text = String::from_utf8_lossy(bytes).into_owned();
        let refuse =
            |faults: Vec<Diagnostic>| diagnose::failure("the file", &shown, &text, &faults, out.colours_errors());
        let (source, file, below) =
            if toml { from_toml(&text, bytes) } else { from_json(&text, bytes) }.map_err(refuse)?;
        if source.value.get("schema").and_then(Value::as_str).is_some_and(|name| name.starts_with(EVIDENCE)) {
            return Err(Failure::usage("this file is evidence, not a test")
                .at(&shown)
                .hint(format!("use replay: `verifica replay {shown}` judges it again")));
        }
        let pointer = match file.kind {
            FileKind::Test | FileKind::List => Some(below),
            FileKind::Terms => declared(Some(&source.value), ""),
            FileKind::Agreement => declared(source.value.get("terms"), "/terms"),
        };
        let deal = (file.kind == FileKind::Agreement).then(|| source.value.clone());
        let accepted = deal.as_ref().is_some_and(|deal| deal.get("history").is_some_and(Value::is_array));
        Ok(Spec { path: shown, sha256: Sha256::of(bytes), text, source, file, pointer, deal, accepted })
    }

    /// The tests as values, one or many.
    pub fn list(&self) -> Vec<&Value> {
        match self.pointer.as_ref().and_then(|pointer| self.source.value.pointer(pointer)) {
            Some(Value::Array(tests)) => tests.iter().collect(),
            Some(test) => vec![test],
            None => Vec::new(),
        }
    }

    /// Where the tests, or the terms around them, hold a number that no signed document may carry, and why.
    pub fn unsignable(&self) -> Option<(String, String)> {
        let below = if self.deal.is_some() { "/terms" } else { "" };
        let (pointer, refusal) = unsignable(self.source.value.pointer(below)?)?;
        Some((format!("{below}{pointer}"), refusal.reason))
    }

    /// The pointer of the test at a position.
    pub fn test_pointer(&self, n: usize) -> Option<String> {
        let pointer = self.pointer.as_ref()?;
        let many = self.source.value.pointer(pointer).is_some_and(Value::is_array);
        Some(if many { format!("{pointer}/{n}") } else { pointer.clone() })
    }
}

/// The file as JSON, as strict as a contract is read. Places come from a second reading, which may know less.
fn from_json(text: &str, bytes: &[u8]) -> Result<(Source, TestFile, String), Vec<Diagnostic>> {
    let file = TestFile::read(bytes).map_err(|faults| faults.into_iter().map(located).collect::<Vec<_>>())?;
    Ok((read_json(text).unwrap_or_default(), file, String::new()))
}

/// TOML is turned into the JSON that a contract would carry; `[[test]]` is a list of tests.
fn from_toml(text: &str, bytes: &[u8]) -> Result<(Source, TestFile, String), Vec<Diagnostic>> {
    if let Err(error) = std::str::from_utf8(bytes) {
        let at = At::Span(error.valid_up_to()..error.valid_up_to());
        return Err(vec![Diagnostic::error(at, "the file is not utf-8")]);
    }
    let source = read_toml(text)?;
    let tests = source.value.get("test").filter(|tests| tests.is_array() && source.value.get("type").is_none());
    let below = if tests.is_some() { "/test" } else { "" };
    let json = tests.unwrap_or(&source.value).to_string();
    let file = TestFile::read(json.as_bytes()).map_err(|faults| {
        faults.into_iter().map(|fault| Diagnostic::error(At::Whole, fault.reason)).collect::<Vec<_>>()
    })?;
    Ok((source, file, below.to_owned()))
}

fn located(fault: crate::probe::file::Diagnostic) -> Diagnostic {
    let diagnostic = Diagnostic::error(At::Span(fault.at..fault.at + 1), fault.reason);
    if diagnostic.message.contains("twice") {
        return diagnostic.hint("keep one of them: readers differ on which one counts");
    }
    diagnostic
}

fn declared(terms: Option<&Value>, below: &str) -> Option<String> {
    let terms = terms?;
    let name = ["verify", "pruebas"].iter().find(|name| terms.get(**name).is_some_and(|tests| !tests.is_null()))?;
    Some(format!("{below}/{name}"))
}

/// How the contract around the tests ended, if it did: then no verdict moves anything.
pub fn ended(deal: Option<&Value>) -> Option<ContractState> {
    let state = deal?.get("state")?.clone();
    serde_json::from_value::<ContractState>(state).ok().filter(|state| state.terminal())
}

/// What the verdict would move, as far as the file says it.
pub fn would_settle(deal: Option<&Value>, passes: Option<bool>) -> Option<Value> {
    let deal = deal.filter(|_| ended(deal).is_none())?;
    let amount = deal.get("amount").or_else(|| deal.get("price"))?.as_u64()?;
    let party = |name: &str| deal.get(name).and_then(Value::as_str).map(str::to_owned);
    let op = match passes? {
        true => json!({"op": "release", "amount": amount, "to": party("seller")}),
        false => json!({"op": "refund", "amount": amount, "to": party("buyer")}),
    };
    Some(op)
}

const EVIDENCE: &str = "verifica.evidence/";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> Result<Spec, Failure> {
        let out = Out::new(false, true, crate::cli::output::When::Never);
        Spec::read(Path::new(name), text.as_bytes(), &out)
    }

    #[test]
    fn tests_are_found_in_every_kind_of_file() {
        let test = json!({"type": "http_status", "url": "https://a.b/"});
        for (value, pointer, tests, deal) in [
            (test.clone(), Some(""), 1, false),
            (json!([test, test]), Some(""), 2, false),
            (json!({"verify": test}), Some("/verify"), 1, false),
            (json!({"pruebas": [test]}), Some("/pruebas"), 1, false),
            (json!({"verify": null, "pruebas": [test]}), Some("/pruebas"), 1, false),
            (json!({"tipo": "cotizacion", "terms": {"verify": [test]}}), Some("/terms/verify"), 1, true),
            (json!({"terms": {}}), None, 0, true),
        ] {
            let spec = read("a.json", &value.to_string()).expect("spec");
            assert_eq!(
                (spec.pointer.as_deref(), spec.list().len(), spec.deal.is_some()),
                (pointer, tests, deal),
                "{value}"
            );
        }
    }

    #[test]
    fn what_nobody_could_sign_is_found_in_tests_and_terms() {
        let test = json!([{"type": "json_path", "url": "https://a.b/", "path": "$.a", "expect": {"a/b": [1, 0.5]}}]);
        let at = |value: &Value| read("a.json", &value.to_string()).expect("spec").unsignable().map(|(at, _)| at);
        assert_eq!(at(&test).as_deref(), Some("/0/expect/a~1b/1"));
        assert_eq!(at(&json!({"terms": {"verify": test}})).as_deref(), Some("/terms/verify/0/expect/a~1b/1"));
        assert_eq!(
            at(&json!({"terms": {"verify": [], "weight": 9_007_199_254_740_992u64}})).as_deref(),
            Some("/terms/weight")
        );
        assert_eq!(at(&json!([{"type": "size", "max_bytes": 1.0}])), None);
    }

    #[test]
    fn evidence_is_for_replay() {
        let failure = read("seen.json", r#"{"schema": "verifica.evidence/1", "looks": []}"#).err().expect("refused");
        assert!(failure.hint.is_some_and(|hint| hint.contains("verifica replay seen.json")));
    }

    #[test]
    fn toml_tests_keep_their_places() {
        let text = "[[test]]\ntype = \"size\"\n[[test]]\ntype = \"header\"\n";
        let spec = read("a.toml", text).expect("spec");
        assert_eq!((spec.list().len(), spec.test_pointer(1).as_deref()), (2, Some("/test/1")));
        assert_eq!(spec.source.span("/test/1/type").and_then(|span| text.get(span)), Some("\"header\""));
    }

    #[test]
    fn files_that_are_no_tests_are_refused_with_all_faults() {
        for (name, text) in
            [("a.json", "3"), ("a.json", "{\"a\":1,\"a\":2}"), ("a.json", "{"), ("a.toml", "a = "), ("a.json", "")]
        {
            assert_eq!(read(name, text).err().map(|failure| failure.exit), Some(crate::refusal::Exit::Usage), "{text}");
        }
        let failure = read("a.json", "{\"a\":1,\"a\":2,\"b\":1,\"b\":2}").err().expect("refused");
        assert_eq!(failure.faults.map(|faults| faults.data.len()), Some(2));
    }

    #[test]
    fn what_would_move_is_said_only_when_it_is_known() {
        let deal = json!({"amount": 200, "seller": "s@a.b", "buyer": "b@a.b"});
        assert_eq!(would_settle(Some(&deal), Some(true)), Some(json!({"op": "release", "amount": 200, "to": "s@a.b"})));
        assert_eq!(would_settle(Some(&deal), Some(false)), Some(json!({"op": "refund", "amount": 200, "to": "b@a.b"})));
        assert_eq!(would_settle(Some(&deal), None), None);
        assert_eq!(would_settle(None, Some(true)), None);
        let ended = json!({"amount": 200, "seller": "s@a.b", "buyer": "b@a.b", "state": "refunded"});
        assert_eq!(would_settle(Some(&ended), Some(true)), None);
    }
}
