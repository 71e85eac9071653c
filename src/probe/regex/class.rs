//! Reads `[...]`.
//!
//! Promises the union of its members, closed over case under `i` and only then inverted by `^`, as ECMAScript orders it.
//! Deliberately absent: set operations and nested classes, which belong to the v flag.

use super::Fault;
use super::set::{Ranges, Set};
use super::syntax::{Meaning, Reader};

/// The class whose `[` at `at` has been read.
pub(super) fn read(reader: &mut Reader<'_>, at: usize) -> Result<Set, Fault> {
    let inverted = reader.eat(CARET);
    let mut points: Vec<(u32, u32)> = Vec::new();
    let mut set = Set::default();
    loop {
        let first_at = reader.at;
        let Some(first) = member(reader, at)? else {
            break;
        };
        let ranged = reader.peek() == Some(MINUS);
        let range_at = reader.at;
        if ranged {
            reader.at += 1;
            if reader.peek() != Some(RIGHT_BRACKET) {
                let last = member(reader, at)?;
                match (&first, &last) {
                    (Meaning::Char(low), Some(Meaning::Char(high))) => {
                        if low > high {
                            return Err(reader.malformed(first_at, "range out of order"));
                        }
                        points.push((*low, *high));
                    }
                    _ => {
                        reader.lenient(first_at, "class escape as the end of a range")?;
                        points.push((u32::from(MINUS), u32::from(MINUS)));
                        add(first, &mut points, &mut set);
                        if let Some(last) = last {
                            add(last, &mut points, &mut set);
                        }
                    }
                }
                continue;
            }
            reader.at = range_at;
        }
        add(first, &mut points, &mut set);
    }
    let members = set.union(&Set::certain(Ranges::new(points)));
    let folded = reader.folded(members);
    Ok(if inverted { reader.inverted(&folded) } else { folded })
}

/// The next member, or nothing when the class ended.
fn member(reader: &mut Reader<'_>, at: usize) -> Result<Option<Meaning>, Fault> {
    let start = reader.at;
    match reader.point() {
        None => Err(reader.malformed(at, "class without its ]")),
        Some(RIGHT_BRACKET_POINT) => Ok(None),
        Some(BACKSLASH_POINT) => reader.escape(start, true).map(Some),
        Some(point) => Ok(Some(Meaning::Char(point))),
    }
}

fn add(meaning: Meaning, points: &mut Vec<(u32, u32)>, set: &mut Set) {
    match meaning {
        Meaning::Char(point) => points.push((point, point)),
        Meaning::Class(class) => *set = set.union(&class),
    }
}

const CARET: u16 = b'^' as u16;
const MINUS: u16 = b'-' as u16;
const RIGHT_BRACKET: u16 = b']' as u16;
const RIGHT_BRACKET_POINT: u32 = b']' as u32;
const BACKSLASH_POINT: u32 = b'\\' as u32;
