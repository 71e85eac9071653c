//! What Unicode says, from one pinned version: property classes and case folding.
//!
//! Promises that a code point about which the Unicode versions in use may disagree is never a sure member nor a sure
//! non-member. Names are matched exactly, as ECMAScript does, never loosely. Deliberately absent: locale rules, full
//! (several character) folding, string properties.

use super::set::{Ranges, Set};
use super::tables;
use regex_syntax::Parser;
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Why `\p{...}` has no set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoProperty {
    /// No version of ECMAScript 2023 knows the name.
    Unknown,
    /// Some versions know it, or the pinned tables do not carry it.
    Unsettled,
}

/// The code points about whose existence every version in use agrees: assigned by then, or never to be assigned.
pub(super) fn settled() -> &'static Ranges {
    static SETTLED: LazyLock<Ranges> = LazyLock::new(|| {
        let assigned = table(&format!("Age={}", tables::SETTLED_AGE)).unwrap_or_default();
        assigned.union(&table("Noncharacter_Code_Point").unwrap_or_default()).union(&surrogates())
    });
    &SETTLED
}

/// The set of `\p{text}`.
pub(super) fn property(text: &str) -> Result<Set, NoProperty> {
    let (members, restless) = match text.split_once('=') {
        None if known(tables::CATEGORIES, text) => (category(text)?, tables::RESTLESS_CATEGORY),
        None => return binary(text),
        Some(("General_Category" | "gc", value)) if known(tables::CATEGORIES, value) => {
            (category(value)?, tables::RESTLESS_CATEGORY)
        }
        Some(("Script" | "sc", value)) => (script("sc", value)?, &[] as &[(u32, u32)]),
        Some(("Script_Extensions" | "scx", value)) => (script("scx", value)?, tables::RESTLESS_EXTENSIONS),
        Some(_) => return Err(NoProperty::Unknown),
    };
    Ok(doubted(members, restless))
}

/// Every character that ECMAScript folds to the same as a member: simple folding by code point with `unicode`, by
/// upper-casing of UTF-16 units without.
pub(super) fn close_over_case(set: &Set, unicode: bool) -> Set {
    let fold = |ranges: &Ranges| if unicode { fold_points(ranges) } else { fold_units(ranges) };
    if set.maybe.last_point().is_none_or(|last| last < 0x80) {
        return Set { sure: fold(&set.sure), maybe: fold(&set.maybe), unsettled: set.unsettled };
    }
    let top = if unicode { POINT_MAX } else { UNIT_MAX };
    let settled = settled();
    let open = settled.complement(top);
    let sure = fold(&set.sure.intersect(settled)).intersect(settled).union(&set.sure);
    let mut maybe = fold(&set.maybe).union(&sure);
    // A letter of a later version may fold to a member, and a member of a later version may fold to a letter.
    let unsettled = set.unsettled || !open.minus(&set.sure).is_empty();
    if set.unsettled || !open.intersect(&set.maybe).is_empty() {
        maybe = maybe.union(unpaired());
    }
    Set { sure, maybe, unsettled }
}

/// May `point` continue a group name (or start it)? `None` where versions may differ.
pub(super) fn identifier(point: u32, start: bool) -> Option<bool> {
    if point < 0x80 {
        let byte = u8::try_from(point).unwrap_or(0);
        let letter = byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$');
        return Some(letter || (!start && byte.is_ascii_digit()));
    }
    if !start && matches!(point, 0x200C | 0x200D) {
        return Some(true);
    }
    let set = binary(if start { "ID_Start" } else { "ID_Continue" }).ok()?;
    let (sure, maybe) = (set.sure.contains(point), set.maybe.contains(point));
    (sure == maybe && settled().contains(point)).then_some(sure)
}

/// `\d`.
pub(super) fn digits() -> Ranges {
    Ranges::new(vec![(0x30, 0x39)])
}

/// `\w`, and the characters that `\b` looks for. `folded`: both `i` and `u` are on.
pub(super) fn word(folded: bool) -> Ranges {
    let mut pairs = vec![(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)];
    if folded {
        pairs.extend([(0x17F, 0x17F), (0x212A, 0x212A)]);
    }
    Ranges::new(pairs)
}

/// `\s`.
pub(super) fn space() -> Ranges {
    let mut pairs = vec![(0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)];
    pairs.extend([(0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)]);
    Ranges::new(pairs)
}

/// What `.` does not match and what `^` and `$` see under `m`.
pub(super) fn line_ends() -> Ranges {
    Ranges::new(vec![(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)])
}

pub(super) const POINT_MAX: u32 = 0x10_FFFF;
pub(super) const UNIT_MAX: u32 = 0xFFFF;

/// Small letters that could still be given a capital by a later version.
fn unpaired() -> &'static Ranges {
    static UNPAIRED: LazyLock<Ranges> = LazyLock::new(|| {
        let small = table("gc=Lowercase_Letter").unwrap_or_default().intersect(settled());
        let moved = Ranges::new(tables::RESTLESS_BINARY.to_vec());
        small.minus(&table("Changes_When_Casemapped").unwrap_or_default()).union(&moved.intersect(&small))
    });
    &UNPAIRED
}

fn surrogates() -> Ranges {
    Ranges::new(vec![(0xD800, 0xDFFF)])
}

fn binary(text: &str) -> Result<Set, NoProperty> {
    let line = tables::BINARY.iter().find(|line| line.split(' ').any(|name| name == text));
    let name = line.and_then(|line| line.split(' ').next()).ok_or(NoProperty::Unknown)?;
    match name {
        "Any" => Ok(Set::certain(Ranges::new(vec![(0, POINT_MAX)]))),
        "ASCII" => Ok(Set::certain(Ranges::new(vec![(0, 0x7F)]))),
        // Fixed for ever by the stability policy.
        "ASCII_Hex_Digit" | "Noncharacter_Code_Point" | "Pattern_Syntax" | "Pattern_White_Space" => {
            table(name).map(Set::certain).ok_or(NoProperty::Unsettled)
        }
        "Assigned" => {
            let gone = table("gc=Unassigned").ok_or(NoProperty::Unsettled)?.minus(&surrogates());
            Ok(doubted(gone.complement(POINT_MAX), &[]))
        }
        "Extended_Pictographic" => {
            let members = table(name).ok_or(NoProperty::Unsettled)?;
            Ok(doubted(members, tables::RESTLESS_PICTOGRAPHIC))
        }
        _ => Ok(doubted(table(name).ok_or(NoProperty::Unsettled)?, tables::RESTLESS_BINARY)),
    }
}

fn known(lines: &[&str], name: &str) -> bool {
    lines.iter().any(|line| line.split(' ').any(|known| known == name))
}

fn doubted(members: Ranges, restless: &[(u32, u32)]) -> Set {
    let restless = Ranges::new(restless.to_vec());
    Set { sure: members.minus(&restless).intersect(settled()), maybe: members.union(&restless), unsettled: true }
}

fn category(name: &str) -> Result<Ranges, NoProperty> {
    let line = tables::CATEGORIES.iter().find(|line| line.split(' ').any(|known| known == name));
    match line.and_then(|line| line.split(' ').next()) {
        None => Err(NoProperty::Unknown),
        Some("Surrogate") => Ok(surrogates()),
        Some("Other") => table("gc=Other").map(|set| set.union(&surrogates())).ok_or(NoProperty::Unsettled),
        Some(long @ "Unassigned") => {
            table(&format!("gc={long}")).map(|set| set.minus(&surrogates())).ok_or(NoProperty::Unsettled)
        }
        Some(long) => table(&format!("gc={long}")).ok_or(NoProperty::Unsettled),
    }
}

fn script(property: &str, name: &str) -> Result<Ranges, NoProperty> {
    if known(&[tables::SCRIPTS], name) {
        table(&format!("{property}={name}")).ok_or(NoProperty::Unsettled)
    } else if known(&[tables::NEWER_SCRIPTS], name) {
        Err(NoProperty::Unsettled)
    } else {
        Err(NoProperty::Unknown)
    }
}

/// One table of the property crate, by a name that is known to be exact.
fn table(name: &str) -> Option<Ranges> {
    let hir = Parser::new().parse(&format!("\\p{{{name}}}")).ok()?;
    match hir.kind() {
        HirKind::Class(Class::Unicode(class)) => Some(from_class(class)),
        HirKind::Class(Class::Bytes(class)) => {
            Some(Ranges::new(class.iter().map(|range| (range.start().into(), range.end().into())).collect()))
        }
        HirKind::Literal(literal) => {
            let mut text = std::str::from_utf8(&literal.0).ok()?.chars();
            text.next().filter(|_| text.next().is_none()).map(|only| Ranges::one(only.into()))
        }
        _ => None,
    }
}

fn from_class(class: &ClassUnicode) -> Ranges {
    Ranges::new(class.iter().map(|range| (range.start().into(), range.end().into())).collect())
}

fn fold_points(ranges: &Ranges) -> Ranges {
    let scalars = ranges.minus(&surrogates());
    let pairs = scalars.iter().filter_map(|(first, last)| {
        Some(ClassUnicodeRange::new(char::from_u32(first)?, char::from_u32(last.min(POINT_MAX))?))
    });
    let mut class = ClassUnicode::new(pairs);
    class.case_fold_simple();
    from_class(&class).union(ranges)
}

/// Two units fold together when their upper cases are equal.
fn fold_units(ranges: &Ranges) -> Ranges {
    static FAMILIES: LazyLock<Families> = LazyLock::new(Families::new);
    let mut pairs: Vec<(u32, u32)> = Vec::new();
    for (first, last) in ranges.iter() {
        let from = FAMILIES.of_unit.partition_point(|entry| entry.0 < first);
        let members = FAMILIES.of_unit.iter().skip(from).take_while(|entry| entry.0 <= last);
        for family in members.filter_map(|&(_, upper)| FAMILIES.of_upper.get(&upper)) {
            pairs.extend(family.iter().map(|&unit| (unit, unit)));
        }
    }
    Ranges::new(pairs).union(ranges)
}

/// The units that share an upper case with another unit.
struct Families {
    /// Unit and upper case, ascending.
    of_unit: Vec<(u32, u32)>,
    of_upper: BTreeMap<u32, Vec<u32>>,
}

impl Families {
    fn new() -> Families {
        let mut of_upper: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for &(first, last, step, delta) in tables::UPPER {
            for unit in (first..=last).step_by(step.into()).map(u32::from) {
                let upper = unit.saturating_add_signed(delta);
                of_upper.entry(upper).or_insert_with(|| vec![upper]).push(unit);
            }
        }
        let mut of_unit: Vec<(u32, u32)> =
            of_upper.iter().flat_map(|(&upper, family)| family.iter().map(move |&unit| (unit, upper))).collect();
        of_unit.sort_unstable();
        Families { of_unit, of_upper }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upper(unit: u32) -> u32 {
        let moved = tables::UPPER.iter().find(|&&(first, last, step, _)| {
            let (first, last) = (u32::from(first), u32::from(last));
            (first..=last).contains(&unit) && (unit - first).is_multiple_of(step.into())
        });
        moved.map_or(unit, |&(_, _, _, delta)| unit.saturating_add_signed(delta))
    }

    #[test]
    fn the_crates_tables_are_the_pinned_version() {
        let (now, next) = (tables::UNICODE_VERSION.trim_end_matches(".0"), "17");
        assert!(table(&format!("Age={now}.0")).is_some());
        assert_eq!(table(&format!("Age={next}.0")), None);
    }

    #[test]
    fn every_listed_name_has_a_table_or_is_unsettled() {
        for name in tables::CATEGORIES.iter().chain(tables::BINARY).flat_map(|line| line.split(' ')) {
            let missing = matches!(name, "Changes_When_NFKC_Casefolded" | "CWKCF");
            assert_eq!(property(name).is_err(), missing, "{name}");
        }
        for name in tables::SCRIPTS.split(' ') {
            for kind in ["Script", "sc", "scx", "Script_Extensions"] {
                assert!(property(&format!("{kind}={name}")).is_ok(), "{name}");
            }
        }
        for name in tables::NEWER_SCRIPTS.split(' ') {
            assert_eq!(property(&format!("sc={name}")), Err(NoProperty::Unsettled));
        }
    }

    #[test]
    fn names_are_exact() {
        for name in [
            "lu",
            "LU",
            " Lu",
            "greek",
            "Greek",
            "Script=greek",
            "Lu=",
            "gc=",
            "=Lu",
            "L&",
            "Age=15.0",
            "",
            "ASCII=Yes",
        ] {
            assert_eq!(property(name), Err(NoProperty::Unknown), "{name}");
        }
    }

    #[test]
    fn unit_folding_is_upper_casing() {
        let uppers: Vec<u32> = (0..=UNIT_MAX).map(upper).collect();
        assert!(uppers.iter().all(|&target| uppers[target as usize] == target));
        for unit in (0..0x600).chain(0x1E00..0x2200).step_by(5) {
            let expected = (0..=UNIT_MAX).filter(|&other| uppers[other as usize] == uppers[unit as usize]);
            assert_eq!(fold_units(&Ranges::one(unit)), Ranges::new(expected.map(|other| (other, other)).collect()));
        }
    }

    #[test]
    fn units_never_fold_into_ascii() {
        for unit in 0x80..=UNIT_MAX {
            assert!(upper(unit) >= 0x80);
        }
        assert_eq!(fold_units(&Ranges::one(u32::from('k'))), Ranges::new(vec![(0x4B, 0x4B), (0x6B, 0x6B)]));
        assert!(fold_points(&Ranges::one(u32::from('k'))).contains(0x212A));
    }

    #[test]
    fn later_code_points_are_in_doubt() {
        let letters = property("L").unwrap();
        assert!(letters.unsettled && !settled().contains(0xA7DC) && settled().contains(0xFFFF));
        let barred_lambda = close_over_case(&Set::certain(Ranges::new(vec![(0xA700, 0xA7FF)])), false);
        assert!(!barred_lambda.sure.contains(0x19B) && barred_lambda.maybe.contains(0x19B));
    }
}
