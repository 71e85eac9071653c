//! The tests of a quote's terms that this house's arbiter would have to judge.

use crate::limits;
use crate::probe::plan::TestType;
use crate::record::Settings;
use crate::wire::json::canonical;
use serde_json::Value;

/// Whether the tests are a list that the arbiter of this house can run; the error names the test.
pub(super) fn acceptable(terms: &Value, settings: &Settings) -> Result<(), String> {
    let tests = ["verify", "pruebas"].iter().find_map(|field| terms.get(*field).filter(|tests| !tests.is_null()));
    let Some(tests) = tests else { return Ok(()) };
    let list = tests.as_array().map_or_else(|| std::slice::from_ref(tests), Vec::as_slice);
    if list.is_empty() || list.len() > limits::TESTS_MAX {
        return Err(format!("terms.verify must hold 1 to {} tests, it holds {}", limits::TESTS_MAX, list.len()));
    }
    if canonical(tests).len() > limits::TESTS_DOC_BYTES_MAX {
        return Err(format!("terms.verify is longer than {} bytes", limits::TESTS_DOC_BYTES_MAX));
    }
    for (i, test) in list.iter().enumerate() {
        let named = test.get("type").and_then(Value::as_str).and_then(|name| {
            [
                ("http_status", TestType::HttpStatus),
                ("sha256", TestType::Sha256),
                ("json_path", TestType::JsonPath),
                ("regex", TestType::Regex),
                ("size", TestType::Size),
                ("header", TestType::Header),
                ("exit_0", TestType::Exit0),
            ]
            .into_iter()
            .find(|(known, _)| *known == name)
        });
        match named {
            Some((_, kind)) if settings.capabilities.types.contains(&kind) => {}
            Some((name, _)) => return Err(format!("terms.verify[{i}]: this house cannot run {name} tests")),
            None => return Err(format!("terms.verify[{i}]: no test type that this house knows")),
        }
    }
    Ok(())
}
