//! JSON as the protocol signs it: a strict reader for strangers' bytes and the canonical text.
//!
//! The canonical text is what JavaScript writes for the parsed document with its keys in order of UTF-16 code units and
//! no white space. Verification always works on the canonical text of the parsed document, never on the bytes received,
//! so spacing and key order on the wire are free. Of duplicate keys the last wins.
//!
//! A signed document may only hold numbers that every implementation reads alike: safe integers. `1.0` and `1e0` are
//! such integers; `1.5` and 2^53 are refused at the door.

use crate::limits;
use crate::refusal::{Refusal, Rule};
use crate::wire::digest::Sha256;
use serde_json::{Map, Number, Value};

/// Reads a stranger's document: UTF-8, one JSON value, bounded depth, safe integers only.
pub fn parse(bytes: &[u8]) -> Result<Value, Refusal> {
    let mut value: Value = serde_json::from_slice(bytes).map_err(|e| not_json(&e))?;
    settle(&mut value, 0)?;
    Ok(value)
}

/// As [`parse`], and the document is an object.
pub fn parse_object(bytes: &[u8]) -> Result<Value, Refusal> {
    let value = parse(bytes)?;
    if !value.is_object() {
        return Err(Refusal::new(Rule::NotAnObject, format!("expected a JSON object, got {}", type_name(&value))));
    }
    Ok(value)
}

/// The canonical text of a document.
pub fn canonical(value: &Value) -> String {
    let mut out = String::with_capacity(256);
    write_value(value, &mut out);
    out
}

/// The canonical text of an object without one of its own fields: what a signature covers.
pub fn canonical_without(object: &Map<String, Value>, field: &str) -> String {
    canonical_split(object, field).0
}

/// As [`canonical_without`], with the place in the text where the field would stand.
pub fn canonical_split(object: &Map<String, Value>, field: &str) -> (String, usize) {
    let mut out = String::with_capacity(512);
    let at = write_object(object, Some(field), &mut out);
    (out, at)
}

/// The canonical text of an object from that of its other fields: see [`canonical_split`].
pub fn join(rest: &str, at: usize, field: &str, value: &str) -> String {
    let (before, after) = rest.split_at_checked(at).unwrap_or((rest, ""));
    let mut out = String::with_capacity(rest.len() + field.len() + value.len() + 5);
    out.push_str(before);
    if before.len() > 1 {
        out.push(',');
    }
    write_string(field, &mut out);
    out.push(':');
    out.push_str(value);
    if before.len() == 1 && after.len() > 1 {
        out.push(',');
    }
    out.push_str(after);
    out
}

pub fn canonical_sha256(value: &Value) -> Sha256 {
    Sha256::of(canonical(value))
}

/// The first number of a value that no signed document may carry: its JSON pointer, and the refusal that every door would
/// give. For whoever is about to sign.
pub fn unsignable(value: &Value) -> Option<(String, Refusal)> {
    match value {
        Value::Number(number) => safe_integer(number).err().map(|refusal| (String::new(), refusal)),
        Value::Array(items) => items.iter().enumerate().find_map(|(n, item)| below(&n.to_string(), item)),
        Value::Object(fields) => fields.iter().find_map(|(name, item)| below(name, item)),
        _ => None,
    }
}

pub const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A number as JavaScript prints the double it reads.
pub fn number_text(number: &Number) -> String {
    let mut out = String::new();
    write_number(number, &mut out);
    out
}

/// Only the characters that JSON demands are escaped, as JavaScript does it.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut plain_from = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[plain_from..at]);
        plain_from = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            other => {
                out.push_str("\\u00");
                for nibble in [other >> 4, other & 15] {
                    out.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
                }
            }
        }
    }
    out.push_str(&text[plain_from..]);
    out.push('"');
}

fn not_json(error: &serde_json::Error) -> Refusal {
    let text = error.to_string();
    if text.starts_with("recursion limit") {
        return too_deep();
    }
    Refusal::new(Rule::NotJson, format!("not a JSON document: {text}"))
}

fn too_deep() -> Refusal {
    Refusal::new(Rule::TooDeep, format!("nested deeper than {} levels", limits::JSON_DEPTH_MAX))
}

fn below(name: &str, item: &Value) -> Option<(String, Refusal)> {
    let (pointer, refusal) = unsignable(item)?;
    Some((format!("/{}{pointer}", name.replace('~', "~0").replace('/', "~1")), refusal))
}

/// Walks the document once: depth within bounds, every number a safe integer written as one.
fn settle(value: &mut Value, depth: usize) -> Result<(), Refusal> {
    match value {
        Value::Number(number) => {
            if let Some(settled) = safe_integer(number)? {
                *number = settled;
            }
            Ok(())
        }
        Value::Array(items) => {
            within(depth)?;
            items.iter_mut().try_for_each(|item| settle(item, depth + 1))
        }
        Value::Object(fields) => {
            within(depth)?;
            fields.values_mut().try_for_each(|item| settle(item, depth + 1))
        }
        _ => Ok(()),
    }
}

fn within(depth: usize) -> Result<(), Refusal> {
    if depth >= limits::JSON_DEPTH_MAX { Err(too_deep()) } else { Ok(()) }
}

fn safe_integer(number: &Number) -> Result<Option<Number>, Refusal> {
    const MAX: i64 = limits::SAFE_INTEGER_MAX as i64;
    let refused = || {
        let text = number.to_string();
        Refusal::new(
            Rule::UnsafeNumber,
            format!("the number {text} is not an integer between -(2^53-1) and 2^53-1; write it as a string"),
        )
    };
    if let Some(integer) = number.as_i64() {
        return if (-MAX..=MAX).contains(&integer) { Ok(None) } else { Err(refused()) };
    }
    if number.is_u64() {
        return Err(refused());
    }
    match number.as_f64() {
        Some(double) if double.fract() == 0.0 && double.abs() <= MAX as f64 => Ok(Some(Number::from(double as i64))),
        _ => Err(refused()),
    }
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            write_object(fields, None, out);
        }
    }
}

/// Answers where in the text the field that is left out would stand, behind what comes before it. A field that is left
/// out has an ASCII name, which has the same place in byte order as in UTF-16 order.
fn write_object(fields: &Map<String, Value>, without: Option<&str>, out: &mut String) -> usize {
    out.push('{');
    let mut first = true;
    let mut place = None;
    let mut write = |key: &str, value: &Value| {
        if Some(key) == without {
            return;
        }
        if place.is_none() && without.is_some_and(|without| without < key) {
            place = Some(out.len());
        }
        if !first {
            out.push(',');
        }
        first = false;
        write_string(key, out);
        out.push(':');
        write_value(value, out);
    };
    // Byte order and UTF-16 order differ only where a key holds something at or above U+E000.
    if fields.keys().all(|key| key.bytes().all(|byte| byte < 0xee)) {
        let mut sorted = true;
        let mut last: Option<&str> = None;
        for key in fields.keys() {
            sorted &= last.is_none_or(|before| before < key.as_str());
            last = Some(key);
        }
        if sorted {
            fields.iter().for_each(|(key, value)| write(key, value));
        } else {
            let mut entries: Vec<_> = fields.iter().collect();
            entries.sort_unstable_by(|a, b| a.0.cmp(b.0));
            entries.into_iter().for_each(|(key, value)| write(key, value));
        }
    } else {
        let mut entries: Vec<_> = fields.iter().collect();
        entries.sort_by(|a, b| a.0.encode_utf16().cmp(b.0.encode_utf16()));
        entries.into_iter().for_each(|(key, value)| write(key, value));
    }
    let end = out.len();
    out.push('}');
    place.unwrap_or(end)
}

fn write_number(number: &Number, out: &mut String) {
    const MAX: i64 = limits::SAFE_INTEGER_MAX as i64;
    if let Some(integer) = number.as_i64()
        && (-MAX..=MAX).contains(&integer)
    {
        use std::fmt::Write;
        let _ = write!(out, "{integer}");
        return;
    }
    let double = number.as_f64().unwrap_or(f64::NAN);
    if double == 0.0 {
        out.push('0');
    } else {
        out.push_str(ryu_js::Buffer::new().format(double));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn canonical_text_is_javascripts() {
        let cases = [
            (r#"{"b":1,"a":[true,null,"x\ny"]}"#, r#"{"a":[true,null,"x\ny"],"b":1}"#),
            (r#"{"a":1.0,"b":-0,"c":1e3}"#, r#"{"a":1,"b":0,"c":1000}"#),
            ("\"\\u007f\\u2028/\\u001f\\b\\f\"", "\"\u{7f}\u{2028}/\\u001f\\b\\f\""),
            (r#"{"\ud83d\ude00":1,"\uffee":2,"a":3}"#, "{\"a\":3,\"😀\":1,\"\u{ffee}\":2}"),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        ];
        for (input, expected) in cases {
            assert_eq!(canonical(&parse(input.as_bytes()).expect(input)), expected);
        }
    }

    #[test]
    fn doubles_print_as_ecmascript_even_where_the_door_refuses_them() {
        for (value, text) in [
            (json!(1.5), "1.5"),
            (json!(1e21), "1e+21"),
            (json!(1e-7), "1e-7"),
            (json!(18446744073709551615u64), "18446744073709552000"),
            (json!(-0.0), "0"),
        ] {
            assert_eq!(canonical(&value), text);
        }
    }

    #[test]
    fn numbers_at_the_edge() {
        assert!(parse(b"9007199254740991").is_ok());
        assert!(parse(b"-9007199254740991").is_ok());
        for bad in ["9007199254740992", "-9007199254740992", "1.5", "1e16", "18446744073709551615", "1e400"] {
            let refusal = parse(bad.as_bytes()).expect_err(bad);
            assert!(matches!(refusal.rule, Rule::UnsafeNumber | Rule::NotJson), "{bad}");
        }
    }

    #[test]
    fn depth_at_the_limit_and_one_beyond() {
        let nested = |n: usize| [vec![b'['; n], vec![b']'; n]].concat();
        assert!(parse(&nested(limits::JSON_DEPTH_MAX)).is_ok());
        assert_eq!(parse(&nested(limits::JSON_DEPTH_MAX + 1)).map_err(|r| r.rule), Err(Rule::TooDeep));
        assert_eq!(parse(&nested(100_000)).map_err(|r| r.rule), Err(Rule::TooDeep));
    }

    #[test]
    fn what_cannot_be_represented_is_refused() {
        for bad in [&b"\"\\ud800\""[..], b"\"\xff\"", b"{\"a\":1", b"", b"1 2", b"\xef\xbb\xbf{}"] {
            assert_eq!(parse(bad).map_err(|r| r.rule), Err(Rule::NotJson));
        }
    }

    #[test]
    fn a_signature_covers_all_but_itself() {
        let value = json!({"z": 1, "signature": {"a": 2}, "a": {"signature": 3}});
        assert_eq!(
            canonical_without(value.as_object().expect("object"), "signature"),
            r#"{"a":{"signature":3},"z":1}"#
        );
    }

    #[test]
    fn decimals_are_read_to_the_nearest_double() {
        // One third of such texts come out one unit off where a reader takes the short way.
        let mut state: u64 = 7;
        for _ in 0..2_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let text = format!("{}.{}e{}", state >> 44, state % 1_000_000_007, (state >> 20) % 40);
            let nearest: f64 = text.parse().expect("a number");
            assert_eq!(serde_json::from_str::<f64>(&text).map(f64::to_bits).ok(), Some(nearest.to_bits()), "{text}");
            assert_eq!(serde_json::from_str::<Value>(&text).ok().and_then(|v| v.as_f64()), Some(nearest), "{text}");
        }
    }
}
