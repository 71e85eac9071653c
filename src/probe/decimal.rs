//! Numbers of JSON compared two ways: as exact decimals and as the nearest doubles (V36). Work is linear in the text,
//! whatever the exponent says.

/// A decimal number: `digits` times ten to the `exponent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    negative: bool,
    /// No zeros at either end; empty for zero.
    digits: Vec<u8>,
    exponent: Exponent,
}

/// How two numbers stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    Equal,
    Different,
    /// The decimals differ and the nearest doubles do not.
    SameDouble,
    /// One of them is larger than any double.
    Overflow,
}

/// Compares two numbers of JSON, given as they are written.
pub fn compare(left: &str, right: &str) -> Compared {
    let (a, b) = (Decimal::parse(left), Decimal::parse(right));
    let (near_a, near_b) = (a.nearest(), b.nearest());
    if near_a.is_infinite() || near_b.is_infinite() {
        return Compared::Overflow;
    }
    if left == right || a.equals(&b) {
        Compared::Equal
    } else if near_a != near_b {
        Compared::Different
    } else {
        Compared::SameDouble
    }
}

impl Decimal {
    /// `text` is a number by the grammar of JSON.
    pub fn parse(text: &str) -> Decimal {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all: Vec<u8> = whole.bytes().chain(fraction.bytes()).skip_while(|b| *b == b'0').collect();
        let significant = all.iter().rposition(|b| *b != b'0').map_or(0, |last| last + 1);
        if significant == 0 {
            return Decimal { negative: false, digits: Vec::new(), exponent: Exponent::Known(0) };
        }
        let shift = (all.len() - significant) as i128 - fraction.len() as i128;
        let exponent = match Exponent::parse(exponent) {
            Exponent::Known(n) => Exponent::Known(n + shift),
            beyond => beyond,
        };
        let mut digits = all;
        digits.truncate(significant);
        Decimal { negative, digits, exponent }
    }

    /// The double that is nearest, ties to even; infinite when there is none.
    pub fn nearest(&self) -> f64 {
        let sign = if self.negative { -1.0 } else { 1.0 };
        let exponent = match self.exponent {
            Exponent::Known(n) => n,
            Exponent::Huge => return sign * f64::INFINITY,
            Exponent::Tiny => return 0.0,
        };
        if self.digits.is_empty() {
            return 0.0;
        }
        // A double is decided by its first 767 digits and by whether anything follows.
        let kept = self.digits.len().min(DIGITS_DECIDING);
        let mut text: String = self.digits.iter().take(kept).map(|b| char::from(*b)).collect();
        let mut exponent = exponent + (self.digits.len() - kept) as i128;
        if kept < self.digits.len() {
            text.push('1');
            exponent -= 1;
        }
        let exponent = exponent.clamp(-EXPONENT_DECIDING, EXPONENT_DECIDING);
        sign * format!("{text}e{exponent}").parse::<f64>().unwrap_or(f64::INFINITY)
    }

    pub fn overflows(&self) -> bool {
        self.nearest().is_infinite()
    }

    /// The value, if it is an integer that a double holds together with both neighbours. `200.0` is one.
    pub fn safe_integer(&self) -> Option<i64> {
        let Exponent::Known(exponent) = self.exponent else { return None };
        if !(0..16).contains(&exponent) || self.digits.len() > 16 {
            return None;
        }
        let mut value: u64 = 0;
        for digit in self.digits.iter().copied().chain(std::iter::repeat_n(b'0', exponent as usize)) {
            value = value.checked_mul(10)?.checked_add(u64::from(digit.checked_sub(b'0')?))?;
        }
        let value = i64::try_from(value).ok().filter(|n| n.unsigned_abs() <= crate::limits::SAFE_INTEGER_MAX)?;
        Some(if self.negative { -value } else { value })
    }

    fn equals(&self, other: &Decimal) -> bool {
        matches!((self.exponent, other.exponent), (Exponent::Known(a), Exponent::Known(b)) if a == b)
            && self.negative == other.negative
            && self.digits == other.digits
    }
}

/// A power of ten. Beyond thirty digits only its sign is known: no mantissa is long enough to bring it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exponent {
    Known(i128),
    Huge,
    Tiny,
}

impl Exponent {
    fn parse(text: &str) -> Exponent {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let digits = digits.trim_start_matches('0');
        if digits.len() > EXPONENT_DIGITS_KNOWN {
            return if negative { Exponent::Tiny } else { Exponent::Huge };
        }
        let value = digits.bytes().fold(0i128, |n, b| n * 10 + i128::from(b.saturating_sub(b'0')));
        Exponent::Known(if negative { -value } else { value })
    }
}

const DIGITS_DECIDING: usize = 1_100;
/// With at most 1,101 digits, everything beyond is zero or infinite.
const EXPONENT_DECIDING: i128 = 5_000;
const EXPONENT_DIGITS_KNOWN: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_number_has_many_spellings() {
        for group in [
            &[
                "1",
                "1.0",
                "1e0",
                "1E+0",
                "10e-1",
                "0.1e1",
                "0.00001e5",
                "1000e-3",
                "1.000000000000000000000000000000000",
            ][..],
            &[
                "0",
                "-0",
                "0.0",
                "0e5",
                "-0.00e-999999999999999999999999999999999999",
                "0e999999999999999999999999999999999999",
            ],
            &["-12.5", "-125e-1", "-0.125e2"],
            &["9007199254740993", "9007199254740993.0", "90071992547409930e-1"],
            &["1e-400", "10e-401", "0.1e-399"],
            &["1e-99999999999999999999999999", "10e-100000000000000000000000000"],
        ] {
            for a in group {
                for b in group {
                    assert_eq!(compare(a, b), Compared::Equal, "{a} {b}");
                }
            }
        }
    }

    #[test]
    fn different_doubles_differ_and_one_double_for_two_decimals_is_in_doubt() {
        for (a, b, expected) in [
            ("1", "2", Compared::Different),
            ("1", "-1", Compared::Different),
            ("0.1", "0.2", Compared::Different),
            ("9007199254740992", "9007199254740994", Compared::Different),
            ("9007199254740992", "9007199254740993", Compared::SameDouble),
            ("0.1", "0.1000000000000000055511151231257827", Compared::SameDouble),
            ("1", "1.00000000000000000001", Compared::SameDouble),
            ("0", "1e-400", Compared::SameDouble),
            ("-1e-400", "1e-400", Compared::SameDouble),
            (
                "1e-9999999999999999999999999999999999999",
                "2e-9999999999999999999999999999999999999",
                Compared::SameDouble,
            ),
            ("1e400", "1", Compared::Overflow),
            ("1", "-1e400", Compared::Overflow),
            ("1e400", "1e400", Compared::Overflow),
            ("1e999999999", "1e999999999", Compared::Overflow),
            ("1e99999999999999999999999999999999999999999", "0", Compared::Overflow),
            ("1.7976931348623157e308", "1.7976931348623158e308", Compared::SameDouble),
            ("1.7976931348623159e308", "1", Compared::Overflow),
            ("1.79769313486231580e308", "1", Compared::Different),
            ("5e-324", "4.9e-324", Compared::SameDouble),
            ("5e-324", "1e-323", Compared::Different),
        ] {
            assert_eq!(compare(a, b), expected, "{a} {b}");
            assert_eq!(compare(b, a), expected, "{b} {a}");
        }
        let same = "1e-9999999999999999999999999999999999999";
        assert_eq!(compare(same, same), Compared::Equal);
    }

    #[test]
    fn a_long_mantissa_and_a_long_exponent_cancel() {
        let tiny = format!("0.{}1e1000001", "0".repeat(1_000_000));
        assert_eq!(compare(&tiny, "1"), Compared::Equal);
        let large = format!("1{}e-1000000", "0".repeat(1_000_000));
        assert_eq!(compare(&large, "1.0"), Compared::Equal);
        let near = format!("1.{}1", "0".repeat(1_000_000));
        assert_eq!(compare(&near, "1"), Compared::SameDouble);
        // exactly halfway between two doubles, and a trifle more far beyond the digits that are looked at
        let more = format!("9007199254740993.{}1", "0".repeat(5_000));
        assert_eq!(compare("9007199254740993", "9007199254740992"), Compared::SameDouble);
        assert_eq!(compare(&more, "9007199254740992"), Compared::Different);
    }

    #[test]
    fn safe_integers() {
        for (text, value) in [
            ("200", Some(200)),
            ("200.0", Some(200)),
            ("2e2", Some(200)),
            ("20000e-2", Some(200)),
            ("-0", Some(0)),
            ("0.0", Some(0)),
            ("-7", Some(-7)),
            ("1e15", Some(1_000_000_000_000_000)),
            ("9007199254740991", Some(9_007_199_254_740_991)),
            ("9007199254740992", None),
            ("-9007199254740992", None),
            ("1e16", None),
            ("200.5", None),
            ("1e-1", None),
            ("1e999999999", None),
            ("123456789012345678901234567890", None),
        ] {
            assert_eq!(Decimal::parse(text).safe_integer(), value, "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_nearest_double_is_what_the_standard_library_reads(text in "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?") {
            prop_assert_eq!(Decimal::parse(&text).nearest(), text.parse::<f64>().expect("a number"));
        }

        #[test]
        fn moving_the_point_changes_nothing(digits in "[1-9][0-9]{0,30}", exponent in -300i64..200, by in 0i64..40) {
            let plain = format!("{digits}e{exponent}");
            let moved = format!("{digits}{}e{}", "0".repeat(by as usize), exponent - by);
            prop_assert_eq!(compare(&plain, &moved), Compared::Equal);
        }
    }
}
