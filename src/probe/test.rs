//! A test as data: what a contract may ask, parsed once (V10, V30-V45, V74, V75).
//!
//! Parsing asks nobody anything. What an object means is settled here, in this order: not a test, unknown type, repeated
//! or unknown key (nobody can judge these), then malformed (fails).

use super::decimal::Decimal;
use super::exit_0::Exit0;
use super::fields::{Fields, Flaw};
use super::header::Header;
use super::http_status::HttpStatus;
use super::json::{Document, Kind, Value};
use super::json_path::JsonPath;
use super::observation::Cause;
use super::regex_test::RegexTest;
use super::sha256::Sha256Test;
use super::size::Size;
use super::text;
use super::url::UrlPolicy;
use crate::limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TestType {
    HttpStatus,
    Sha256,
    JsonPath,
    Regex,
    Size,
    Header,
    Exit0,
}

#[derive(Clone, Debug)]
pub struct Test {
    /// The label; a `header` test has none, its `name` is the header.
    pub name: Option<String>,
    pub claim: Claim,
}

/// What the test says about the world.
#[derive(Clone, Debug)]
pub enum Claim {
    HttpStatus(HttpStatus),
    Sha256(Sha256Test),
    JsonPath(JsonPath),
    Regex(RegexTest),
    Size(Size),
    Header(Header),
    Exit0(Exit0),
}

#[derive(Clone, Debug)]
pub enum Parsed {
    Ready(Box<Test>),
    /// Of a known type, and wrong: it fails, without a request. `rule` is the number of the rule, for example `V20`.
    Malformed {
        rule: &'static str,
        reason: String,
    },
    /// Undecided for this cause.
    Unjudgeable {
        cause: Cause,
        reason: String,
    },
}

impl TestType {
    pub const ALL: &'static [TestType] = &[
        TestType::HttpStatus,
        TestType::Sha256,
        TestType::JsonPath,
        TestType::Regex,
        TestType::Size,
        TestType::Header,
        TestType::Exit0,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            TestType::HttpStatus => "http_status",
            TestType::Sha256 => "sha256",
            TestType::JsonPath => "json_path",
            TestType::Regex => "regex",
            TestType::Size => "size",
            TestType::Header => "header",
            TestType::Exit0 => "exit_0",
        }
    }

    pub fn from_name(name: &str) -> Option<TestType> {
        TestType::ALL.iter().copied().find(|t| t.name() == name)
    }

    /// The keys that a test of this type may have.
    pub const fn keys(self) -> &'static [&'static str] {
        match self {
            TestType::HttpStatus => &["type", "name", "url", "expect", "method"],
            TestType::Sha256 => &["type", "name", "url", "expect"],
            TestType::JsonPath => &["type", "name", "url", "path", "expect", "equals", "exists"],
            TestType::Regex => &["type", "name", "url", "pattern", "flags"],
            TestType::Size => &["type", "name", "url", "max_bytes", "min_bytes"],
            TestType::Header => &["type", "name", "url", "equals"],
            TestType::Exit0 => &["type", "name", "argv", "inputs", "within"],
        }
    }
}

impl Test {
    /// A test out of a contract's terms.
    pub fn parse(test: &serde_json::Value, policy: &UrlPolicy) -> Parsed {
        match Document::from_value(test) {
            Ok(document) => Test::read(document.root(), policy),
            Err(fault) => {
                Parsed::Unjudgeable { cause: Cause::Contract, reason: format!("the test cannot be read: {fault}") }
            }
        }
    }

    /// The same from a text that was read strictly, which still has every digit of its numbers.
    pub fn read(test: Value<'_>, policy: &UrlPolicy) -> Parsed {
        match read(test, policy) {
            Ok(test) => Parsed::Ready(Box::new(test)),
            Err(Flaw::Malformed { rule, reason }) => Parsed::Malformed { rule, reason },
            Err(Flaw::Unjudgeable { cause, reason }) => Parsed::Unjudgeable { cause, reason },
        }
    }

    pub const fn test_type(&self) -> TestType {
        match self.claim {
            Claim::HttpStatus(_) => TestType::HttpStatus,
            Claim::Sha256(_) => TestType::Sha256,
            Claim::JsonPath(_) => TestType::JsonPath,
            Claim::Regex(_) => TestType::Regex,
            Claim::Size(_) => TestType::Size,
            Claim::Header(_) => TestType::Header,
            Claim::Exit0(_) => TestType::Exit0,
        }
    }
}

/// The type and the label of a test as far as they can be told, for results about tests that are not tests.
pub fn described(test: Value<'_>) -> (String, Option<String>) {
    let fields = Fields::of(test);
    let word = |key: &str| match fields.get(key)?.kind() {
        Kind::Text(units) => Some(String::from_utf16_lossy(units)),
        _ => None,
    };
    let kind = word("type");
    let name = word("name").filter(|_| kind.as_deref() != Some(TestType::Header.name()));
    (
        kind.map_or_else(|| "unknown".to_owned(), |kind| text::plain(&kind, TYPE_CHARS)),
        name.map(|name| text::plain(&name, limits::TEST_NAME_CHARS_MAX)),
    )
}

fn read(test: Value<'_>, policy: &UrlPolicy) -> Result<Test, Flaw> {
    if test.kind() != Kind::Object {
        return Err(Flaw::contract(format!("a test is an object; this is {}", test.kind().type_name())));
    }
    if let Some(key) = test.repeats_a_key() {
        return Err(Flaw::contract(format!("the key {} stands twice in one object", text::quote(&key, TYPE_CHARS))));
    }
    let fields = Fields::of(test);
    let Some(Kind::Text(units)) = fields.given("type").map(|value| value.kind()) else {
        return Err(Flaw::contract("the test has no type; type is a string"));
    };
    let Some(test_type) = TestType::from_name(&String::from_utf16_lossy(units)) else {
        let known: Vec<&str> = TestType::ALL.iter().map(|t| t.name()).collect();
        let shown = text::quote_units(units.iter().copied(), TYPE_CHARS);
        return Err(Flaw::contract(format!("there is no test of type {shown}; there are {}", known.join(", "))));
    };
    fields.only(test_type.keys(), &format!("a test of type {}", test_type.name()))?;
    if let Some(number) = test.numbers().find(|digits| Decimal::parse(digits).overflows()) {
        let shown = text::plain(number, TYPE_CHARS);
        return Err(Flaw::malformed("V74", format!("the number {shown} is larger than any double")));
    }
    let name = label(&fields)?;
    let claim = match test_type {
        TestType::HttpStatus => Claim::HttpStatus(HttpStatus::read(&fields, policy)?),
        TestType::Sha256 => Claim::Sha256(Sha256Test::read(&fields, policy)?),
        TestType::JsonPath => Claim::JsonPath(JsonPath::read(&fields, policy)?),
        TestType::Regex => Claim::Regex(RegexTest::read(&fields, policy)?),
        TestType::Size => Claim::Size(Size::read(&fields, policy)?),
        TestType::Header => Claim::Header(Header::read(&fields, policy)?),
        TestType::Exit0 => Claim::Exit0(Exit0::read(&fields, policy)?),
    };
    Ok(Test { name: name.filter(|_| test_type != TestType::Header), claim })
}

/// `name`: up to 80 characters. A label that has more code units than characters around that bound is counted
/// differently by different readers.
fn label(fields: &Fields<'_>) -> Result<Option<String>, Flaw> {
    let Some(name) = fields.text("V75", "name")? else { return Ok(None) };
    let (characters, units) = (name.chars().count(), name.encode_utf16().count());
    if characters > limits::TEST_NAME_CHARS_MAX {
        return Err(Flaw::malformed(
            "V75",
            format!("name has {characters} characters; at most {} are allowed", limits::TEST_NAME_CHARS_MAX),
        ));
    }
    if units > limits::TEST_NAME_CHARS_MAX {
        return Err(Flaw::contract(format!(
            "name has {characters} characters and {units} code units; readers count it differently against the bound of {}",
            limits::TEST_NAME_CHARS_MAX
        )));
    }
    Ok(Some(name))
}

const TYPE_CHARS: usize = 40;
