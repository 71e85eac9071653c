//! The structure of a document as data: which fields there are, which must be there, and what each may hold.

use crate::limits;
use crate::wire::Sha256;
use serde_json::Value;

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// 64 lower-case hexadecimal digits.
    Hash,
    /// Text without control characters, not empty.
    Text,
    /// Text without control characters; may be empty.
    Said,
    /// Lower-case letters, digits, `_` and `.`.
    Word,
    /// A whole number from zero on.
    Count,
    /// The same, or `"unlimited"`.
    Limit,
    Flag,
    List(&'static Shape),
    /// Names that are not fixed, each with a value of this shape.
    Map(&'static Shape),
    Object(&'static [Field]),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub name: &'static str,
    pub required: bool,
    pub shape: Shape,
}

pub(super) const fn must(name: &'static str, shape: Shape) -> Field {
    Field { name, required: true, shape }
}

pub(super) const fn may(name: &'static str, shape: Shape) -> Field {
    Field { name, required: false, shape }
}

/// Says where the value is not of this shape. Unknown fields of objects are let through; null stands for an absent one.
pub(super) fn check(value: &Value, shape: &Shape, at: &str) -> Result<(), String> {
    let wrong = |expected: &str| Err(format!("{at} is not {expected}"));
    match shape {
        Shape::Hash if !value.as_str().is_some_and(is_hash) => wrong("a SHA-256 in 64 lower-case hexadecimal digits"),
        Shape::Text if !value.as_str().is_some_and(is_text) => {
            wrong(&format!("text of 1 to {} characters without control characters", limits::ATTESTATION_TEXT_MAX))
        }
        Shape::Said if !value.as_str().is_some_and(|text| text.is_empty() || is_text(text)) => {
            wrong(&format!("text of up to {} characters without control characters", limits::ATTESTATION_TEXT_MAX))
        }
        Shape::Word if !value.as_str().is_some_and(is_word) => wrong("a word of lower-case letters, digits, _ and ."),
        Shape::Count if !is_count(value) => wrong("a whole number from zero on"),
        Shape::Limit if !is_count(value) && value.as_str() != Some("unlimited") => {
            wrong("a whole number from zero on, or \"unlimited\"")
        }
        Shape::Flag if !value.is_boolean() => wrong("true or false"),
        Shape::List(of) => {
            let Some(list) = value.as_array() else { return wrong("a list") };
            within(list.len(), at)?;
            list.iter().enumerate().try_for_each(|(i, item)| check(item, of, &format!("{at}[{i}]")))
        }
        Shape::Map(of) => {
            let Some(fields) = value.as_object() else { return wrong("an object") };
            within(fields.len(), at)?;
            fields.iter().try_for_each(|(name, item)| {
                if !is_word(&name.to_ascii_lowercase()) {
                    return Err(format!("{at} has a name that is not a word of letters, digits, _ and ."));
                }
                check(item, of, &format!("{at}.{name}"))
            })
        }
        Shape::Object(known) => {
            if !value.is_object() {
                return wrong("an object");
            }
            known.iter().try_for_each(|field| match value.get(field.name) {
                Some(Value::Null) if !field.required => Ok(()),
                Some(item) => check(item, &field.shape, &join(at, field.name)),
                None if field.required => Err(format!("{} is missing", join(at, field.name))),
                None => Ok(()),
            })
        }
        _ => Ok(()),
    }
}

pub(super) fn is_word(text: &str) -> bool {
    let fits = (1..=limits::ATTESTATION_WORD_MAX).contains(&text.len());
    fits && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'.')
}

pub(super) fn is_text(text: &str) -> bool {
    let fits = !text.is_empty() && text.chars().count() <= limits::ATTESTATION_TEXT_MAX;
    fits && !text.chars().any(char::is_control)
}

fn join(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

fn within(count: usize, at: &str) -> Result<(), String> {
    let most = limits::ATTESTATION_LIST_MAX;
    if count > most { Err(format!("{at} has more than {most} entries")) } else { Ok(()) }
}

fn is_hash(text: &str) -> bool {
    Sha256::parse(text).is_some_and(|hash| hash.hex() == text)
}

fn is_count(value: &Value) -> bool {
    value.as_u64().is_some_and(|n| n <= limits::SAFE_INTEGER_MAX)
}
