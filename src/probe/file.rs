//! A file that somebody wants checked: a test, a list of tests, the terms of a quote, a quote, or a contract (V76).
//!
//! Unlike a stranger's message, a file gets all its diagnostics at once. What the tests in it mean is not judged here.

use super::json::{Document, Kind, Value};
use super::sha256::Delivery;
use super::text;
use std::fmt;

/// The tests of a file, and what its contract says was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestFile {
    pub kind: FileKind,
    /// One test object or a list, as in `terms.verify`.
    pub tests: Document,
    pub delivery: Delivery,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Test,
    List,
    Terms,
    /// A quote or a contract: something that has terms.
    Agreement,
}

/// Something that has to be mended before the file can be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Byte offset in the file.
    pub at: usize,
    /// From one; characters, as an editor counts.
    pub line: usize,
    pub column: usize,
    pub reason: String,
}

impl TestFile {
    /// One byte order mark at the start is dropped.
    pub fn read(bytes: &[u8]) -> Result<TestFile, Vec<Diagnostic>> {
        let skipped = if bytes.starts_with(BOM) { BOM.len() } else { 0 };
        let rest = bytes.get(skipped..).unwrap_or_default();
        let locate = |at: usize, reason: String| Diagnostic::new(bytes, at + skipped, reason);
        let content = std::str::from_utf8(rest)
            .map_err(|why| vec![locate(why.valid_up_to(), "the file is not utf-8".to_owned())])?;
        let document = Document::read(content)
            .map_err(|fault| vec![locate(fault.at(), format!("the file is not json: {}", fault.reason()))])?;
        let root = document.root();
        let mut faults: Vec<Diagnostic> = root
            .repeated_keys()
            .into_iter()
            .map(|twice| {
                locate(twice.at, format!("the key {} stands twice in one object", text::quote(&twice.key, KEY_CHARS)))
            })
            .collect();
        if !matches!(root.kind(), Kind::Array | Kind::Object) {
            let reason = format!(
                "the file holds {}; it holds a test, a list of tests, terms, a quote or a contract",
                root.kind().type_name()
            );
            faults.push(locate(0, reason));
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(TestFile::of(root))
    }

    fn of(root: Value<'_>) -> TestFile {
        let (kind, tests) = match root.kind() {
            Kind::Array => (FileKind::List, Some(root)),
            _ => match (declared(root), member(root, "terms").filter(|terms| terms.kind() == Kind::Object)) {
                (Some(tests), _) => (FileKind::Terms, Some(tests)),
                (None, Some(terms)) => (FileKind::Agreement, declared(terms)),
                (None, None) => (FileKind::Test, Some(root)),
            },
        };
        let tests = tests.map_or_else(empty, |tests| tests.to_document());
        let delivery = match kind {
            FileKind::Agreement => {
                Delivery { evidence_sha256: word(root, "evidence_sha256"), evidence: word(root, "evidence") }
            }
            _ => Delivery::default(),
        };
        TestFile { kind, tests, delivery }
    }
}

impl Diagnostic {
    fn new(bytes: &[u8], at: usize, reason: String) -> Diagnostic {
        let before = String::from_utf8_lossy(bytes.get(..at).unwrap_or(bytes));
        let line = before.rsplit('\n').next().unwrap_or_default();
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        Diagnostic { at, line: 1 + before.matches('\n').count(), column: 1 + line.chars().count(), reason }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.reason)
    }
}

/// `verify`, or its old name; `null` is absent (V12).
fn declared<'a>(terms: Value<'a>) -> Option<Value<'a>> {
    member(terms, "verify").or_else(|| member(terms, "pruebas"))
}

fn member<'a>(object: Value<'a>, name: &str) -> Option<Value<'a>> {
    let named = |(key, _): &(&[u16], Value<'a>)| key.iter().copied().eq(name.encode_utf16());
    object.members().find(named).map(|(_, value)| value).filter(|value| !value.is_null())
}

fn word(object: Value<'_>, name: &str) -> Option<String> {
    match member(object, name)?.kind() {
        Kind::Text(units) => String::from_utf16(units).ok(),
        _ => None,
    }
}

/// Terms without tests have no tests.
fn empty() -> Document {
    Document::list()
}

const BOM: &[u8] = b"\xef\xbb\xbf";
const KEY_CHARS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match TestFile::read(text.as_bytes()) {
            Ok(file) => format!("{:?} {}", file.kind, file.tests.root().to_text()),
            Err(faults) => faults.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join("; "),
        }
    }

    #[test]
    fn tests_are_found_where_a_file_may_have_them() {
        for (text, found) in [
            (r#"{"type":"size"}"#, r#"Test {"type":"size"}"#),
            (r#"{}"#, r#"Test {}"#),
            (r#"[1,{"type":"size"}]"#, r#"List [1,{"type":"size"}]"#),
            ("\u{feff}[]", "List []"),
            (r#"{"verify":{"a":1},"pruebas":2}"#, r#"Terms {"a":1}"#),
            (r#"{"verify":null,"pruebas":[2]}"#, "Terms [2]"),
            (r#"{"verify":[],"pruebas":[2]}"#, "Terms []"),
            (r#"{"tipo":"cotizacion","terms":{"verify":[1.50]}}"#, "Agreement [1.50]"),
            (r#"{"terms":{"deadline":"x"}}"#, "Agreement []"),
        ] {
            assert_eq!(read(text), found, "{text}");
        }
        let contract =
            TestFile::read(br#"{"terms":{"verify":[]},"evidence_sha256":"ab","evidence":"text"}"#).expect("a file");
        let delivery = Delivery { evidence_sha256: Some("ab".to_owned()), evidence: Some("text".to_owned()) };
        assert_eq!(contract.delivery, delivery);
    }

    #[test]
    fn every_diagnostic_is_told_with_its_place() {
        for (text, told) in [
            ("7", "1:1: the file holds a number; it holds a test, a list of tests, terms, a quote or a contract"),
            ("[\n  1,\n  é]", "3:3: the file is not json: a value was expected"),
            ("\u{feff}\u{feff}[]", "1:1: the file is not json: a value was expected"),
            (
                "{\n \"é\": 1, \"b\": 2, \"é\": 3,\n \"b\": {\"c\": 1, \"c\": 1}}",
                "2:18: the key \"é\" stands twice in one object; 3:2: the key \"b\" stands twice in one object; 3:16: the key \"c\" stands twice in one object",
            ),
            ("", "1:1: the file is not json: the text ends where a value was expected"),
        ] {
            assert_eq!(read(text), told, "{text}");
        }
        let faults = TestFile::read(b"[\n\"\xff\"]").expect_err("not utf-8");
        assert_eq!((faults[0].line, faults[0].column, faults[0].at), (2, 2, 3));
    }
}
