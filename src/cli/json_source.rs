//! JSON and TOML that a person wrote, with the place of every value, so that a fault can be shown where it stands.
//!
//! A document with a duplicate key, a syntax fault or a value that JSON cannot hold is refused with all its faults. One
//! leading byte order mark is dropped. Places are JSON pointers.

use super::diagnose;
use super::output::{Failure, Out};
use crate::config::{At, Diagnostic};
use crate::limits::PROBE_JSON_DEPTH_MAX;
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
    let mut reader = Reader { text, at: 0, faults: Vec::new(), spans: BTreeMap::new() };
    if text.starts_with('\u{feff}') {
        reader.at = '\u{feff}'.len_utf8();
    }
    let value = reader.value(&mut String::new(), 0).and_then(|value| {
        reader.space();
        if reader.at < text.len() { Err(reader.fault("something follows the document")) } else { Ok(value) }
    });
    match value {
        Ok(value) if reader.faults.is_empty() => Ok(Source { value, spans: reader.spans }),
        Ok(_) => Err(reader.faults),
        Err(fault) => {
            reader.faults.push(fault);
            Err(reader.faults)
        }
    }
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

/// A strict reader of RFC 8259 that keeps places. It goes on after a duplicate key and stops at a syntax fault, because
/// what stands after one means nothing certain.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    faults: Vec<Diagnostic>,
    spans: BTreeMap<String, Range<usize>>,
}

impl Reader<'_> {
    fn fault(&self, message: impl Into<String>) -> Diagnostic {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let width = rest.chars().next().map_or(0, char::len_utf8);
        Diagnostic::error(At::Span(self.at..self.at + width), message)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, pointer: &mut String, depth: usize) -> Result<Value, Diagnostic> {
        if depth > PROBE_JSON_DEPTH_MAX {
            return Err(self.fault(format!("nested more than {PROBE_JSON_DEPTH_MAX} deep")));
        }
        self.space();
        let start = self.at;
        let value = match self.peek() {
            Some(b'{') => self.object(pointer, depth)?,
            Some(b'[') => self.array(pointer, depth)?,
            Some(b'"') => Value::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Value::Bool(true))?,
            Some(b'f') => self.word("false", Value::Bool(false))?,
            Some(b'n') => self.word("null", Value::Null)?,
            Some(_) => return Err(self.fault("expected a value")),
            None => return Err(self.fault("the document ends where a value is expected")),
        };
        self.spans.insert(pointer.clone(), start..self.at);
        Ok(value)
    }

    fn object(&mut self, pointer: &mut String, depth: usize) -> Result<Value, Diagnostic> {
        self.at += 1;
        let mut map = Map::new();
        self.space();
        if self.eat(b'}') {
            return Ok(Value::Object(map));
        }
        loop {
            self.space();
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.fault("expected a key in double quotes"));
            }
            let key = self.string()?;
            if map.contains_key(&key) {
                let fault =
                    Diagnostic::error(At::Span(start..self.at), format!("the key {key:?} stands twice in this object"));
                self.faults.push(fault.hint("keep one of them: readers differ on which one counts"));
            }
            self.space();
            if !self.eat(b':') {
                return Err(self.fault("expected : after the key"));
            }
            let before = pointer.len();
            pointer.push('/');
            pointer.push_str(&escaped(&key));
            let value = self.value(pointer, depth + 1);
            pointer.truncate(before);
            map.insert(key, value?);
            self.space();
            if self.eat(b'}') {
                return Ok(Value::Object(map));
            }
            if !self.eat(b',') {
                return Err(self.fault("expected , or }"));
            }
        }
    }

    fn array(&mut self, pointer: &mut String, depth: usize) -> Result<Value, Diagnostic> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.eat(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            let before = pointer.len();
            pointer.push_str(&format!("/{}", items.len()));
            let value = self.value(pointer, depth + 1);
            pointer.truncate(before);
            items.push(value?);
            self.space();
            if self.eat(b']') {
                return Ok(Value::Array(items));
            }
            if !self.eat(b',') {
                return Err(self.fault("expected , or ]"));
            }
        }
    }

    /// The bytes of a string are found here; what they mean is serde_json's to say.
    fn string(&mut self) -> Result<String, Diagnostic> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    let raw = self.text.get(start..self.at).unwrap_or_default();
                    return serde_json::from_str(raw).map_err(|e| {
                        Diagnostic::error(At::Span(start..self.at), format!("not a JSON text: {}", plain(&e)))
                    });
                }
                Some(b'\\') => self.at += 2,
                Some(byte) if byte < 0x20 => {
                    return Err(self.fault("a control character stands inside a text; write it as \\n or \\u00XX"));
                }
                Some(_) => self.at += 1,
                None => {
                    return Err(Diagnostic::error(At::Span(start..self.text.len()), "the text has no closing quote"));
                }
            }
        }
    }

    fn number(&mut self) -> Result<Value, Diagnostic> {
        let start = self.at;
        while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
            self.at += 1;
        }
        let raw = self.text.get(start..self.at).unwrap_or_default();
        match serde_json::from_str::<Number>(raw) {
            Ok(number) => Ok(Value::Number(number)),
            // A number of JSON beyond what a double holds. What it means is for those who read the text of the file.
            Err(error) if error.to_string().starts_with("number out of range") => {
                let most = if raw.starts_with('-') { f64::MIN } else { f64::MAX };
                Ok(Number::from_f64(most).map_or(Value::Null, Value::Number))
            }
            Err(error) => {
                let why = format!("{raw} is not a number of JSON: {}", plain(&error));
                Err(Diagnostic::error(At::Span(start..self.at), why))
            }
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Diagnostic> {
        if self.text.get(self.at..).unwrap_or_default().starts_with(word) {
            self.at += word.len();
            return Ok(value);
        }
        Err(self.fault(format!("expected {word}")))
    }
}

/// serde_json's message without its own position, which counts from the piece.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn every_duplicate_is_reported_and_then_the_syntax_fault() {
        let text = "{\"a\":1,\"a\":2,\"b\":{\"c\":1,\"c\":2},}";
        let faults = read_json(text).expect_err("faults");
        let at: Vec<_> = faults.iter().map(|f| (f.at.clone(), f.message.clone())).collect();
        assert_eq!(faults.len(), 3, "{at:?}");
        assert_eq!(at[0].0, At::Span(7..10));
        assert_eq!(at[2].1, "expected a key in double quotes");
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
