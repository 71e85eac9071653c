//! Reads what follows a backslash.
//!
//! Promises the main grammar of ECMAScript 2023; what Annex B adds is handed to `lenient`, with the meaning that lets the
//! reader go on in step. Deliberately absent: `\b` and `\B` outside a class, which are assertions.

use super::Fault;
use super::set::{Ranges, Set};
use super::syntax::{Meaning, Reader, digit};
use super::unicode::{self, NoProperty, POINT_MAX, digits, space, word};

impl Reader<'_> {
    /// What follows a backslash, which has been read. `\b` and `\B` outside a class are not for here.
    pub(super) fn escape(&mut self, at: usize, in_class: bool) -> Result<Meaning, Fault> {
        let start = self.at;
        let Some(point) = self.point() else {
            return Err(self.malformed(at, "backslash at the end"));
        };
        let known = char::from_u32(point).filter(char::is_ascii).unwrap_or('\u{FFFD}');
        let meaning = match known {
            'd' => Meaning::Class(Set::certain(digits())),
            'D' => Meaning::Class(Set::certain(digits().complement(self.top()))),
            's' => Meaning::Class(Set::certain(space())),
            'S' => Meaning::Class(Set::certain(space().complement(self.top()))),
            'w' => Meaning::Class(Set::certain(self.word())),
            'W' => Meaning::Class(Set::certain(self.word().complement(self.top()))),
            'p' | 'P' if self.flags.unicode => Meaning::Class(self.property(at, known == 'P')?),
            't' => Meaning::Char(0x09),
            'n' => Meaning::Char(0x0A),
            'v' => Meaning::Char(0x0B),
            'f' => Meaning::Char(0x0C),
            'r' => Meaning::Char(0x0D),
            'b' if in_class => Meaning::Char(0x08),
            'c' => Meaning::Char(self.control(at, in_class)?),
            'x' => Meaning::Char(self.hex(at)?),
            'u' => Meaning::Char(self.unicode_escape(at, in_class)?),
            '0' if self.peek().and_then(|unit| digit(unit, 10)).is_none() => Meaning::Char(0),
            '0'..='9' => Meaning::Char(self.decimal(at, start, in_class)?),
            'k' => Meaning::Char(self.named_reference(at, in_class)?),
            '^' | '$' | '\\' | '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '/' => {
                Meaning::Char(point)
            }
            '-' if in_class => Meaning::Char(point),
            _ => {
                if self.flags.unicode {
                    return Err(self.malformed(at, "escape of an ordinary character under u"));
                }
                if unicode::identifier(point, false) != Some(false) {
                    self.unsupported(at, "escape of a letter that has no meaning");
                }
                Meaning::Char(point)
            }
        };
        Ok(meaning)
    }

    fn control(&mut self, at: usize, in_class: bool) -> Result<u32, Fault> {
        match self.peek().and_then(|unit| u8::try_from(unit).ok()) {
            Some(letter) if letter.is_ascii_alphabetic() => {
                self.at += 1;
                Ok(u32::from(letter) % 32)
            }
            Some(other) if in_class && (other.is_ascii_digit() || other == b'_') => {
                self.lenient(at, "\\c without a letter")?;
                self.at += 1;
                Ok(u32::from(other) % 32)
            }
            _ => {
                self.lenient(at, "\\c without a letter")?;
                self.at -= 1;
                Ok(u32::from(BACKSLASH))
            }
        }
    }

    fn hex(&mut self, at: usize) -> Result<u32, Fault> {
        if let Some(value) = self.hex_digits(self.at, 2) {
            self.at += 2;
            return Ok(value);
        }
        self.lenient(at, "\\x without two hexadecimal digits")?;
        Ok(u32::from(b'x'))
    }

    fn unicode_escape(&mut self, at: usize, in_class: bool) -> Result<u32, Fault> {
        if self.flags.unicode && self.peek() == Some(LEFT_BRACE) {
            let point = self.braced(at)?;
            if is_surrogate(point) {
                self.unsupported(at, "escape of half a surrogate pair");
            }
            return Ok(point);
        }
        let Some(value) = self.hex_digits(self.at, 4) else {
            self.lenient(at, "\\u without four hexadecimal digits")?;
            return Ok(u32::from(b'u'));
        };
        self.at += 4;
        if !is_surrogate(value) {
            return Ok(value);
        }
        let escaped = self.units.get(self.at..self.at + 2) == Some(&[BACKSLASH, LOWER_U]);
        let tail = if escaped { self.hex_digits(self.at + 2, 4) } else { None };
        let tail = tail.filter(|tail| (0xDC00..0xE000).contains(tail) && value < 0xDC00);
        match tail {
            Some(tail) if self.flags.unicode => {
                self.at += 6;
                Ok(0x1_0000 + ((value - 0xD800) << 10) + (tail - 0xDC00))
            }
            Some(_) if !in_class => {
                self.pair_tail = Some(self.at);
                Ok(value)
            }
            _ => {
                if in_class || self.pair_tail != Some(at) {
                    self.unsupported(at, "escape of half a surrogate pair");
                }
                Ok(value)
            }
        }
    }

    pub(super) fn braced(&mut self, at: usize) -> Result<u32, Fault> {
        self.at += 1;
        let (from, mut value) = (self.at, 0u32);
        while let Some(digit) = self.peek().and_then(|unit| digit(unit, 16)) {
            value = value.saturating_mul(16).saturating_add(digit);
            self.at += 1;
        }
        if self.at == from || value > POINT_MAX || !self.eat(RIGHT_BRACE) {
            return Err(self.malformed(at, "\\u{...} that is not a code point"));
        }
        Ok(value)
    }

    /// `\1` and up, and `\0` before a digit.
    fn decimal(&mut self, at: usize, start: usize, in_class: bool) -> Result<u32, Fault> {
        let mut end = start;
        let value = self.number(&mut end).unwrap_or_default();
        let first = self.units.get(start).copied().unwrap_or_default();
        let reference = !in_class && first != ZERO && value <= u64::from(self.groups.count);
        if reference {
            return Err(self.rule(at, "backreference"));
        }
        self.lenient(at, "octal or digit escape")?;
        Ok(u32::from(first))
    }

    fn named_reference(&mut self, at: usize, in_class: bool) -> Result<u32, Fault> {
        if self.flags.unicode || self.groups.named {
            return match self.peek() {
                Some(LESS) if !in_class => Err(self.rule(at, "backreference")),
                _ => Err(self.malformed(at, "\\k that is not a reference")),
            };
        }
        self.unsupported(at, "\\k without a named group");
        Ok(u32::from(b'k'))
    }

    fn property(&mut self, at: usize, negated: bool) -> Result<Set, Fault> {
        let from = self.at + 1;
        let length = self.units.get(from..).and_then(|rest| rest.iter().position(|&unit| unit == RIGHT_BRACE));
        let Some(length) = length.filter(|_| self.peek() == Some(LEFT_BRACE)) else {
            return Err(self.malformed(at, "\\p without {...}"));
        };
        let name = String::from_utf16_lossy(self.units.get(from..from + length).unwrap_or_default());
        self.at = from + length + 1;
        match unicode::property(&name) {
            Ok(set) if negated => Ok(self.inverted(&set)),
            Ok(set) => Ok(set),
            Err(NoProperty::Unknown) => Err(self.malformed(at, "unknown Unicode property")),
            Err(NoProperty::Unsettled) => {
                self.unsupported(at, "Unicode property that versions disagree about");
                Ok(Set::default())
            }
        }
    }

    fn word(&self) -> Ranges {
        word(self.flags.unicode && self.flags.ignore_case)
    }
}

fn is_surrogate(point: u32) -> bool {
    (0xD800..0xE000).contains(&point)
}

const BACKSLASH: u16 = b'\\' as u16;
const LEFT_BRACE: u16 = b'{' as u16;
const LESS: u16 = b'<' as u16;
const LOWER_U: u16 = b'u' as u16;
const RIGHT_BRACE: u16 = b'}' as u16;
const ZERO: u16 = b'0' as u16;
