//! JSON and TOML that a person wrote, with the place of every value, so that a fault can be shown where it stands.
//!
//! JSON is read by the reader of the judges, so a file means here what it means to them. A document with a syntax fault,
//! a duplicate key or a text that is no Unicode is refused. One leading byte order mark is dropped. Places are JSON
//! pointers.

use super::diagnose;
use super::output::{Failure, Out};
use crate::config::{At, Diagnostic};
use crate::probe::json::{Document, Kind, Value as Read};
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// A document and where its values stand.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pub value: Value,
    /// By JSON pointer.
    pub spans: BTreeMap<String, Range<usize>>,
}

impl Source {
    /// The place of a value, or of the nearest value around it.
    pub fn span(&self, pointer: &str) -> Option<Range<usize>> {
        let mut at = pointer;
        loop {
            if let Some(span) = self.spans.get(at) {
                return Some(span.clone());
            }
            at = at.rsplit_once('/')?.0;
        }
    }
}

/// A file, or stdin for `-`. TOML by its name, JSON otherwise; faults are shown where they stand, all of them.
pub fn read_file(path: &Path, out: &Out) -> Result<Source, Failure> {
    let text = super::agent::read_text(path)?;
    read_named(path, &text, out)
}

/// The same of a text that was read already.
pub fn read_named(path: &Path, text: &str, out: &Out) -> Result<Source, Failure> {
    let toml = path.extension().is_some_and(|extension| extension == "toml");
    let read = if toml { read_toml(text) } else { read_json(text) };
    let shown = path.display().to_string();
    read.map_err(|faults| diagnose::failure("the file", &shown, text, &faults, out.colours_errors()))
}

pub fn read_json(text: &str) -> Result<Source, Vec<Diagnostic>> {
    let content = text.strip_prefix(BOM).unwrap_or(text);
    let skipped = text.len() - content.len();
    let document = Document::read(content).map_err(|fault| {
        let at = skipped + fault.at();
        let width = text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        vec![Diagnostic::error(At::Span(at..at + width), format!("not JSON: {}", fault.reason()))]
    })?;
    let shift = |span: Range<usize>| span.start + skipped..span.end + skipped;
    let mut faults = Vec::new();
    for twice in document.root().repeated_keys() {
        let at = At::Span(shift(twice.span(content)));
        let fault = Diagnostic::error(at, format!("the key {:?} stands twice in this object", twice.key));
        faults.push(fault.hint("keep one of them: readers differ on which one counts"));
    }
    let mut spans = BTreeMap::new();
    let mut keep = |pointer: &str, read: Read<'_>| {
        let span = shift(read.span(content));
        spans.insert(pointer.to_owned(), span.clone());
        span
    };
    let value = value_of(document.root(), &mut String::new(), &mut keep, &mut faults);
    if faults.is_empty() { Ok(Source { value, spans }) } else { Err(faults) }
}

pub fn read_toml(text: &str) -> Result<Source, Vec<Diagnostic>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let fault = |e: &toml::de::Error| {
        Diagnostic::error(e.span().map_or(At::Whole, At::Span), format!("not TOML: {}", e.message()))
    };
    let mut faults: Vec<Diagnostic> = errors.iter().map(fault).collect();
    let mut spans = BTreeMap::new();
    spans.insert(String::new(), table.span());
    let value = table_value(table.get_ref(), "", &mut spans, &mut faults);
    if faults.is_empty() { Ok(Source { value, spans }) } else { Err(faults) }
}

fn table_value(
    table: &DeTable<'_>,
    pointer: &str,
    spans: &mut BTreeMap<String, Range<usize>>,
    faults: &mut Vec<Diagnostic>,
) -> Value {
    let mut map = Map::new();
    for (key, value) in table.iter() {
        let inner = format!("{pointer}/{}", escaped(key.get_ref()));
        map.insert(key.get_ref().to_string(), toml_value(value, &inner, spans, faults));
    }
    Value::Object(map)
}

fn toml_value(
    value: &toml::Spanned<DeValue<'_>>,
    pointer: &str,
    spans: &mut BTreeMap<String, Range<usize>>,
    faults: &mut Vec<Diagnostic>,
) -> Value {
    spans.insert(pointer.to_owned(), value.span());
    let mut refuse = |why: &str| {
        faults.push(Diagnostic::error(At::Span(value.span()), why));
        Value::Null
    };
    match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            match i64::from_str_radix(&digits, number.radix()) {
                Ok(number) => Value::from(number),
                Err(_) => refuse("the integer is beyond 64 bits"),
            }
        }
        DeValue::Float(number) => {
            let read = number.as_str().replace('_', "").parse::<f64>().ok().and_then(Number::from_f64);
            read.map_or_else(|| refuse("the number is not one that JSON can hold"), Value::Number)
        }
        DeValue::Datetime(_) => refuse("a date is not a JSON value; write it as a text in quotes"),
        DeValue::Array(items) => {
            let each = |(i, item): (usize, &toml::Spanned<DeValue<'_>>)| {
                toml_value(item, &format!("{pointer}/{i}"), spans, faults)
            };
            items.iter().enumerate().map(each).collect()
        }
        DeValue::Table(table) => table_value(table, pointer, spans, faults),
    }
}

/// From what was read to a value of serde_json. Recurses no deeper than a document may be nested.
fn value_of(
    read: Read<'_>,
    pointer: &mut String,
    keep: &mut dyn FnMut(&str, Read<'_>) -> Range<usize>,
    faults: &mut Vec<Diagnostic>,
) -> Value {
    let span = keep(pointer, read);
    let mut words = |units: &[u16]| {
        String::from_utf16(units).unwrap_or_else(|_| {
            faults.push(Diagnostic::error(At::Span(span.clone()), "half of a surrogate pair, which is no character"));
            String::new()
        })
    };
    let mut below = |name: &str, value: Read<'_>, pointer: &mut String, faults: &mut Vec<Diagnostic>| {
        let before = pointer.len();
        pointer.push('/');
        pointer.push_str(name);
        let value = value_of(value, pointer, keep, faults);
        pointer.truncate(before);
        value
    };
    match read.kind() {
        Kind::Null => Value::Null,
        Kind::Bool(is) => Value::Bool(is),
        Kind::Number(digits) => number(digits),
        Kind::Text(units) => Value::String(words(units)),
        Kind::Array => {
            let items = read.items().enumerate();
            items.map(|(n, item)| below(&n.to_string(), item, pointer, faults)).collect()
        }
        Kind::Object => {
            let members: Vec<(String, Read<'_>)> = read.members().map(|(key, value)| (words(key), value)).collect();
            let each = |(key, value): (String, Read<'_>)| {
                let value = below(&escaped(&key), value, pointer, faults);
                (key, value)
            };
            Value::Object(members.into_iter().map(each).collect())
        }
    }
}

/// A number beyond what a double holds becomes the last one; what it means is for those who read the text of the file.
fn number(digits: &str) -> Value {
    let most = if digits.starts_with('-') { f64::MIN } else { f64::MAX };
    let number = serde_json::from_str::<Number>(digits).ok().or_else(|| Number::from_f64(most));
    number.map_or(Value::Null, Value::Number)
}

const BOM: char = '\u{feff}';

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PROBE_JSON_DEPTH_MAX;
    use serde_json::json;

    #[test]
    fn values_and_places_of_a_document() {
        let text = "\u{feff}{\"a/b\": [1, {\"c\": \"x\\u00e9\"}], \"d\": -1.5e3}\n";
        let source = read_json(text).expect("source");
        assert_eq!(source.value, json!({"a/b": [1, {"c": "xé"}], "d": -1500.0}));
        let at = |p: &str| source.span(p).and_then(|span| text.get(span)).map(str::to_owned);
        assert_eq!(at("/a~1b/1/c").as_deref(), Some("\"x\\u00e9\""));
        assert_eq!(at("/d").as_deref(), Some("-1.5e3"));
        assert_eq!(at("/a~1b/0/absent").as_deref(), Some("1"));
    }

    #[test]
    fn every_duplicate_is_reported_and_a_syntax_fault_by_itself() {
        let text = "{\"a\":1,\"a\":2,\"b\":{\"c\":1,\"c\":2}}";
        let faults = read_json(text).expect_err("faults");
        let at: Vec<_> = faults.iter().map(|f| (f.at.clone(), f.message.clone())).collect();
        assert_eq!(at.len(), 2, "{at:?}");
        assert_eq!((&at[0].0, &at[1].0), (&At::Span(7..10), &At::Span(24..27)));
        let faults = read_json("{\"a\":1,}").expect_err("faults");
        assert_eq!(faults[0].at, At::Span(7..8));
    }

    #[test]
    fn garbage_is_refused_and_never_panics() {
        let deep = "[".repeat(PROBE_JSON_DEPTH_MAX + 2);
        for bad in [
            "",
            "{",
            "[1,]",
            "[1 2]",
            "tru",
            "{\"a\" 1}",
            "\"a",
            "\"\\",
            "\"\u{1}\"",
            "01",
            "1.",
            "+1",
            "nul",
            "{} {}",
            "'a'",
            "\"\\ud800\"",
            "{1:2}",
            "é",
            "\"\\u12",
            deep.as_str(),
        ] {
            assert!(read_json(bad).is_err(), "{bad:.20}");
        }
        let nested = format!("{}{}", "[".repeat(PROBE_JSON_DEPTH_MAX), "]".repeat(PROBE_JSON_DEPTH_MAX));
        assert!(read_json(&nested).is_ok());
        assert_eq!(read_json("[1e400]").map(|s| s.value), Ok(json!([f64::MAX])));
    }

    #[test]
    fn toml_becomes_the_same_values_with_places() {
        let text = "[[test]]\ntype = \"http_status\"\nexpect = 200\n";
        let source = read_toml(text).expect("source");
        assert_eq!(source.value, json!({"test": [{"type": "http_status", "expect": 200}]}));
        assert_eq!(source.span("/test/0/expect").and_then(|s| text.get(s)), Some("200"));
        assert!(read_toml("a = 2026-01-01\nb = nan\n").is_err_and(|faults| faults.len() == 2));
        assert!(read_toml("a = 1\na = 2\n").is_err());
    }
}
