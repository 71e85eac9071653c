//! The path of a `json_path` test (V33, V34, V73): names joined by dots, `[n]` the same as `.n`, no wildcards and no
//! expressions. It finds only what the document itself has.

use super::json::{Kind, Value};
use super::text;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    segments: Vec<Vec<u16>>,
    text: Vec<u16>,
}

#[derive(Debug)]
pub enum Found<'a> {
    Value(Value<'a>),
    /// Nothing is there; the text says where the path ends.
    Missing(String),
    /// A key on the path is repeated.
    Repeated(String),
    /// An array is asked for something that is not an index.
    NotAnIndex(String),
}

impl Path {
    /// The error says what is wrong with the path.
    pub fn parse(text: &[u16]) -> Result<Path, String> {
        let mut segments = Vec::new();
        let mut rest = text;
        loop {
            // a name, unless the path or a bracket begins here
            if segments.is_empty() && rest.first() == Some(&OPEN) {
                rest = bracketed(rest, &mut segments)?;
            } else {
                let end = rest.iter().position(|unit| matches!(*unit, DOT | OPEN | CLOSE)).unwrap_or(rest.len());
                let (name, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
                if name.is_empty() {
                    return Err("the path has an empty segment".to_owned());
                }
                segments.push(name.to_vec());
                rest = after;
            }
            while rest.first() == Some(&OPEN) {
                rest = bracketed(rest, &mut segments)?;
            }
            match rest.split_first() {
                None => return Ok(Path { segments, text: text.to_vec() }),
                Some((&DOT, after)) => rest = after,
                Some((&CLOSE, _)) => return Err("the path has a ] without its [".to_owned()),
                Some(_) => return Err("after ] the path goes on with a dot or with [".to_owned()),
            }
        }
    }

    /// For reasons: quoted and cut.
    pub fn shown(&self) -> String {
        text::quote_units(self.text.iter().copied(), PATH_CHARS)
    }

    /// For evidence.
    pub fn text(&self) -> String {
        String::from_utf16_lossy(&self.text)
    }

    pub fn find<'a>(&self, root: Value<'a>) -> Found<'a> {
        let mut here = root;
        for (depth, segment) in self.segments.iter().enumerate() {
            match here.kind() {
                Kind::Object => {
                    let mut matching = here.members().filter(|(key, _)| *key == segment.as_slice());
                    let first = matching.next();
                    if matching.next().is_some() {
                        return Found::Repeated(text::quote_units(segment.iter().copied(), PATH_CHARS));
                    }
                    match first {
                        Some((_, value)) => here = value,
                        None => return Found::Missing(self.at(depth)),
                    }
                }
                Kind::Array => {
                    let Some(index) = index(segment) else {
                        return Found::NotAnIndex(text::quote_units(segment.iter().copied(), PATH_CHARS));
                    };
                    match index.and_then(|n| here.items().nth(n)) {
                        Some(value) => here = value,
                        None => return Found::Missing(self.at(depth)),
                    }
                }
                _ => return Found::Missing(self.at(depth)),
            }
        }
        Found::Value(here)
    }

    fn at(&self, depth: usize) -> String {
        match self.segments.get(depth) {
            Some(segment) if self.segments.len() > 1 => text::quote_units(segment.iter().copied(), PATH_CHARS),
            _ => self.shown(),
        }
    }
}

/// Reads `[n]`; what follows it.
fn bracketed<'t>(text: &'t [u16], segments: &mut Vec<Vec<u16>>) -> Result<&'t [u16], String> {
    let inside = text.get(1..).unwrap_or_default();
    let end = inside.iter().position(|unit| *unit == CLOSE).ok_or("the path has a [ without its ]")?;
    let (segment, after) = inside.split_at_checked(end).unwrap_or((inside, &[]));
    if index(segment).is_none() {
        return Err("between brackets the path takes 0 or a number without leading zeros".to_owned());
    }
    segments.push(segment.to_vec());
    Ok(after.get(1..).unwrap_or_default())
}

/// `None` when it is not a canonical index; `Some(None)` when it is one that no array has.
fn index(segment: &[u16]) -> Option<Option<usize>> {
    let digits: String = char::decode_utf16(segment.iter().copied()).map(|c| c.unwrap_or('x')).collect();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) || (digits.len() > 1 && digits.starts_with('0'))
    {
        return None;
    }
    Some(digits.parse().ok())
}

const DOT: u16 = b'.' as u16;
const OPEN: u16 = b'[' as u16;
const CLOSE: u16 = b']' as u16;
const PATH_CHARS: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::json::Document;

    fn segments(path: &str) -> Result<Vec<String>, String> {
        let units: Vec<u16> = path.encode_utf16().collect();
        Path::parse(&units).map(|p| p.segments.iter().map(|s| String::from_utf16_lossy(s)).collect())
    }

    fn find(document: &str, path: &str) -> String {
        let units: Vec<u16> = path.encode_utf16().collect();
        let document = Document::read(document).expect("json");
        match Path::parse(&units).expect("a path").find(document.root()) {
            Found::Value(value) => value.to_text(),
            Found::Missing(at) => format!("missing {at}"),
            Found::Repeated(key) => format!("repeated {key}"),
            Found::NotAnIndex(segment) => format!("not an index {segment}"),
        }
    }

    #[test]
    fn paths_split_into_segments() {
        for (path, expected) in [
            ("a", &["a"][..]),
            ("a.b.0.c", &["a", "b", "0", "c"]),
            ("a.b[0].c", &["a", "b", "0", "c"]),
            ("[0]", &["0"]),
            ("[0][10].x", &["0", "10", "x"]),
            ("a[0][1]", &["a", "0", "1"]),
            ("0", &["0"]),
            ("00", &["00"]),
            (" ", &[" "]),
            ("a b.-1.1e0.*.$", &["a b", "-1", "1e0", "*", "$"]),
            ("__proto__.constructor.length", &["__proto__", "constructor", "length"]),
            ("ñ.😀", &["ñ", "😀"]),
            ("[99999999999999999999999]", &["99999999999999999999999"]),
        ] {
            assert_eq!(
                segments(path).as_deref().map(<[String]>::to_vec),
                Ok(expected.iter().map(|s| (*s).to_owned()).collect()),
                "{path}"
            );
        }
        for bad in [
            "", ".", ".a", "a.", "a..b", "[", "]", "a[", "a]", "a[0", "a[]", "a[00]", "a[01]", "a[-1]", "a[1e0]",
            "a[ 0]", "a[x]", "a[0]b", "a.[0]", "[0].", "[0]]", "a[0].", "a[[0]]", "a[+1]", "a[0.1]", "a[٣]",
        ] {
            assert!(segments(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_finds_only_what_the_document_has() {
        let document = r#"{"a":{"b":[{"c":null},2]},"0":"zero","00":"dz","list":[[1,2],[3]],"__proto__":{"x":1},"s":"text","":1,"n":null,"e":[]}"#;
        for (path, found) in [
            ("a.b.0.c", "null"),
            ("a.b[0].c", "null"),
            ("a.b[1]", "2"),
            ("0", "\"zero\""),
            ("[0]", "\"zero\""),
            ("00", "\"dz\""),
            ("list[1].0", "3"),
            ("__proto__.x", "1"),
            ("constructor", "missing \"constructor\""),
            ("a.toString", "missing \"toString\""),
            ("s.length", "missing \"length\""),
            ("s.0", "missing \"0\""),
            ("n.x", "missing \"x\""),
            ("list.length", "not an index \"length\""),
            ("list.00", "not an index \"00\""),
            ("list.-1", "not an index \"-1\""),
            ("e.x", "not an index \"x\""),
            ("list[2]", "missing \"2\""),
            ("list.99999999999999999999999", "missing \"99999999999999999999999\""),
            ("a.b.2.c", "missing \"2\""),
            ("A", "missing \"A\""),
        ] {
            assert_eq!(find(document, path), found, "{path}");
        }
        assert_eq!(find("[1,[2]]", "[1][0]"), "2");
        assert_eq!(find("7", "a"), "missing \"a\"");
    }

    #[test]
    fn a_repeated_key_on_the_path_is_reported_and_elsewhere_ignored() {
        assert_eq!(find(r#"{"a":1,"a":1}"#, "a"), "repeated \"a\"");
        assert_eq!(find(r#"{"a":{"b":1},"a":2}"#, "a.b"), "repeated \"a\"");
        assert_eq!(find(r#"{"x":1,"x":2,"a":3}"#, "a"), "3");
        assert_eq!(find(r#"{"a":1,"\u0061":2}"#, "a"), "repeated \"a\"");
    }
}
