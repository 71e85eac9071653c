//! JSON values as text: whole, cut to a length for reasons, and as evidence in signed documents.

use super::decimal::Decimal;
use super::json::{Kind, Node, Value};
use super::text;

impl Value<'_> {
    /// Compact JSON, numbers as written, hidden characters escaped.
    pub fn to_text(&self) -> String {
        self.write(usize::MAX).0
    }

    /// The same, at most about `cap` characters of it, then `…`.
    pub fn show(&self, cap: usize) -> String {
        let (mut text, whole) = self.write(cap);
        if !whole {
            text.push('…');
        }
        text
    }

    /// This value as evidence, which is part of signed documents: as itself when it is short and every number is a safe
    /// integer, otherwise `{"json": "<its text, cut>"}`.
    pub fn evidence(&self, cap: usize) -> serde_json::Value {
        let (text, whole) = self.write(cap);
        if let Kind::Number(digits) = self.kind()
            && let Some(integer) = Decimal::parse(digits).safe_integer()
        {
            return serde_json::Value::from(integer);
        }
        let plain = whole
            && self.numbers().all(|n| Decimal::parse(n).safe_integer().is_some_and(|i| i.to_string() == n))
            && self.repeats_a_key().is_none();
        match plain.then(|| serde_json::from_str(&text)) {
            Some(Ok(value)) => value,
            _ => serde_json::json!({ "json": if whole { text } else { text + "…" } }),
        }
    }

    /// Compact JSON up to about `cap` characters, and whether that is all of it. Linear, without recursion.
    fn write(&self, cap: usize) -> (String, bool) {
        let document = self.document;
        let mut out = String::new();
        // end of each open container, and how it closes
        let mut open: Vec<(usize, char)> = Vec::new();
        let mut fresh = true;
        let mut at = self.at;
        let end = document.after(self.at);
        loop {
            while let Some((stop, close)) = open.last().copied()
                && at >= stop
            {
                out.push(close);
                open.pop();
                fresh = false;
            }
            if at >= end {
                return (out, true);
            }
            if out.len() > cap {
                return (out, false);
            }
            let node = document.node(at);
            if !fresh {
                out.push(',');
            }
            fresh = false;
            match node {
                Node::Null { .. } => out.push_str("null"),
                Node::Bool { is, .. } => out.push_str(if is { "true" } else { "false" }),
                Node::Number { start, end, .. } => {
                    let digits = document.digits.get(start as usize..end as usize).unwrap_or_default();
                    match digits.get(..cap) {
                        Some(part) if part.len() < digits.len() => {
                            out.push_str(part);
                            return (out, false);
                        }
                        _ => out.push_str(digits),
                    }
                }
                Node::Text { start, end, .. } => {
                    if !write_text(&mut out, document.text(start, end), cap) {
                        return (out, false);
                    }
                }
                Node::Key { start, end, .. } => {
                    if !write_text(&mut out, document.text(start, end), cap) {
                        return (out, false);
                    }
                    out.push(':');
                    fresh = true;
                }
                Node::Array { end, .. } => {
                    out.push('[');
                    open.push((end as usize, ']'));
                    fresh = true;
                }
                Node::Object { end, .. } => {
                    out.push('{');
                    open.push((end as usize, '}'));
                    fresh = true;
                }
            }
            at += 1;
        }
    }
}

/// A JSON string; false when it was cut at about `cap` characters.
fn write_text(out: &mut String, units: &[u16], cap: usize) -> bool {
    out.push('"');
    for (n, c) in char::decode_utf16(units.iter().copied()).enumerate() {
        if n >= cap {
            return false;
        }
        match c {
            Ok(c) => text::push_escaped(out, c),
            Err(lone) => text::push_unit(out, lone.unpaired_surrogate()),
        }
    }
    out.push('"');
    true
}

#[cfg(test)]
mod tests {
    use crate::probe::json::Document;

    #[test]
    fn shows_a_bounded_part() {
        let document = Document::read("[1,2,3,4,5,6,7,8,9]").expect("json");
        assert_eq!(document.root().show(100), "[1,2,3,4,5,6,7,8,9]");
        assert_eq!(document.root().show(4), "[1,2,3…");
        assert_eq!(Document::read("\"abcdef\"").expect("json").root().show(3), "\"abc…");
        assert_eq!(Document::read("123456").expect("json").root().show(3), "123…");
    }

    #[test]
    fn evidence_holds_only_what_a_signed_document_may_hold() {
        for (text, evidence) in [
            ("1", "1"),
            ("1.0", "1"),
            ("0.5", r#"{"json":"0.5"}"#),
            ("9007199254740991", "9007199254740991"),
            ("9007199254740992", r#"{"json":"9007199254740992"}"#),
            ("[1,\"a\",null]", "[1,\"a\",null]"),
            ("[1.0]", r#"{"json":"[1.0]"}"#),
            ("{\"a\":1,\"a\":1}", r#"{"json":"{\"a\":1,\"a\":1}"}"#),
            (r#""\ud800""#, r#"{"json":"\"\\ud800\""}"#),
            (
                "\"0123456789012345678901234567890123456789x\"",
                r#"{"json":"\"0123456789012345678901234567890123456789…"}"#,
            ),
        ] {
            assert_eq!(Document::read(text).expect("json").root().evidence(40).to_string(), evidence, "{text}");
        }
    }
}
