//! Equality of JSON values (V36, V77): objects by key set, arrays by order, strings by UTF-16 units, types strict,
//! numbers as [`super::decimal`] compares them.
//!
//! A clear difference anywhere decides; short of one, a number that two readings compare differently leaves a doubt.

use super::decimal::{Compared, compare};
use super::json::{Kind, Value};
use super::text;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Equality {
    Equal,
    Different,
    /// Readings disagree; the text says over what.
    Doubt(String),
}

/// Compares two values that repeat no key. Iterative: depth costs memory, not stack.
pub fn equality(seen: Value<'_>, expected: Value<'_>) -> Equality {
    let mut pairs = vec![(seen, expected)];
    let mut doubt = None;
    while let Some((a, b)) = pairs.pop() {
        match scalars(a, b) {
            Step::Equal => {}
            Step::Different => return Equality::Different,
            // A later pair of the stack is an earlier one of the text: keep the last doubt found.
            Step::Doubt(why) => doubt = Some(why),
            Step::Arrays => {
                let (a, b): (Vec<_>, Vec<_>) = (a.items().collect(), b.items().collect());
                if a.len() != b.len() {
                    return Equality::Different;
                }
                pairs.extend(a.into_iter().zip(b));
            }
            Step::Objects => {
                let (mut a, mut b): (Vec<_>, Vec<_>) = (a.members().collect(), b.members().collect());
                a.sort_by_key(|(key, _)| *key);
                b.sort_by_key(|(key, _)| *key);
                if a.len() != b.len() || a.iter().zip(&b).any(|((x, _), (y, _))| x != y) {
                    return Equality::Different;
                }
                pairs.extend(a.into_iter().zip(b).map(|((_, x), (_, y))| (x, y)));
            }
        }
    }
    doubt.map_or(Equality::Equal, Equality::Doubt)
}

enum Step {
    Equal,
    Different,
    Doubt(String),
    Arrays,
    Objects,
}

fn scalars(a: Value<'_>, b: Value<'_>) -> Step {
    let same = |equal: bool| if equal { Step::Equal } else { Step::Different };
    match (a.kind(), b.kind()) {
        (Kind::Null, Kind::Null) => Step::Equal,
        (Kind::Bool(x), Kind::Bool(y)) => same(x == y),
        (Kind::Text(x), Kind::Text(y)) => same(x == y),
        (Kind::Number(x), Kind::Number(y)) => match compare(x, y) {
            Compared::Equal => Step::Equal,
            Compared::Different => Step::Different,
            Compared::SameDouble => Step::Doubt(format!(
                "{} and {} are different decimals and the same double",
                text::plain(x, NUMBER_CHARS),
                text::plain(y, NUMBER_CHARS)
            )),
            Compared::Overflow => overflow(if compare(x, "0") == Compared::Overflow { x } else { y }),
        },
        // A reader that turns numbers into doubles writes an overflow as null.
        (Kind::Number(x), Kind::Null) | (Kind::Null, Kind::Number(x)) => {
            if compare(x, "0") == Compared::Overflow {
                overflow(x)
            } else {
                Step::Different
            }
        }
        (Kind::Array, Kind::Array) => Step::Arrays,
        (Kind::Object, Kind::Object) => Step::Objects,
        _ => Step::Different,
    }
}

fn overflow(number: &str) -> Step {
    Step::Doubt(format!("{} is larger than any double", text::plain(number, NUMBER_CHARS)))
}

const NUMBER_CHARS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::json::Document;

    fn equal(a: &str, b: &str) -> Equality {
        let (a, b) = (Document::read(a).expect("json"), Document::read(b).expect("json"));
        let forth = equality(a.root(), b.root());
        let back = equality(b.root(), a.root());
        assert_eq!(std::mem::discriminant(&forth), std::mem::discriminant(&back));
        forth
    }

    #[test]
    fn equality_is_by_value_and_type() {
        for (a, b) in [
            ("{\"a\":1,\"b\":[true,null]}", "{\"b\":[true,null],\"a\":1.0}"),
            ("\"\\u00e9\"", "\"é\""),
            ("\"\\ud83d\\ude00\"", "\"😀\""),
            ("\"\\ud800\"", "\"\\uD800\""),
            ("-0", "0"),
            ("{\"__proto__\":1}", "{\"__proto__\":1}"),
            ("[]", "[ ]"),
        ] {
            assert_eq!(equal(a, b), Equality::Equal, "{a} {b}");
        }
        for (a, b) in [
            ("1", "\"1\""),
            ("0", "false"),
            ("null", "false"),
            ("0", "null"),
            ("\"\"", "null"),
            ("[]", "{}"),
            ("[1,2]", "[2,1]"),
            ("[1]", "[1,1]"),
            ("{\"a\":1}", "{\"a\":1,\"b\":1}"),
            ("{\"a\":1}", "{\"A\":1}"),
            ("\"é\"", "\"e\u{301}\""),
            ("\"1e400\"", "1e400"),
            ("true", "1e400"),
        ] {
            assert_eq!(equal(a, b), Equality::Different, "{a} {b}");
        }
    }

    #[test]
    fn a_doubt_yields_to_a_clear_difference_and_to_nothing_else() {
        assert!(matches!(equal("[1e400,1]", "[1e400,1]"), Equality::Doubt(_)));
        assert_eq!(equal("[1e400,1]", "[1e400,2]"), Equality::Different);
        assert_eq!(equal("[2,1e400]", "[1,1e400]"), Equality::Different);
        assert!(matches!(equal("{\"a\":9007199254740993}", "{\"a\":9007199254740992}"), Equality::Doubt(_)));
        assert!(matches!(equal("1e400", "null"), Equality::Doubt(_)));
        let first = equal("[1e400,[9007199254740993]]", "[0,[9007199254740992]]");
        assert_eq!(first, Equality::Doubt("1e400 is larger than any double".to_owned()));
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
        let (a, b) =
            (Document::read_within(&deep, 200_000).expect("a"), Document::read_within(&deep, 200_000).expect("b"));
        assert_eq!(equality(a.root(), b.root()), Equality::Equal);
    }
}
