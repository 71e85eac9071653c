//! The alphabet of a pattern, and a window written in it.
//!
//! Characters that no set of the pattern tells apart are one letter, so the engine works on small numbers whatever the
//! script. Promises the decoding of V37: UTF-8 as the WHATWG decoder reads it, one byte order mark dropped. Deliberately
//! absent: the characters themselves, once they are letters.

use super::set::{Ranges, Set};
use super::unicode::{POINT_MAX, UNIT_MAX};
use std::collections::BTreeMap;

pub(super) type Letter = u16;

#[derive(Clone, Debug)]
pub(super) struct Alphabet {
    unicode: bool,
    /// First code point of each run, and its letter; ascending.
    starts: Vec<u32>,
    letters: Vec<Letter>,
    low: Vec<Letter>,
    /// For each letter, what it is.
    kinds: Vec<Kind>,
    /// For each letter and set: sure and possible membership.
    sure: Vec<Vec<usize>>,
    maybe: Vec<Vec<usize>>,
}

/// What the simple assertions want to know about the neighbour of a boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kind {
    pub word: bool,
    pub line_end: bool,
    /// Some set of the pattern may or may not hold it, depending on the Unicode version.
    pub doubtful: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Text {
    /// The letters, with `edge` before the first and after the last.
    pub letters: Vec<Letter>,
    /// The first character whose membership in a set is in doubt.
    pub doubt: Option<u32>,
    /// Some letter is a character of two UTF-16 units.
    pub astral: bool,
}

/// A window, split where the cut of the transport may have gone through a character.
pub(super) struct Decoded {
    pub text: Text,
    /// The window ends within a character: `text` has U+FFFD for it, and as many units without it.
    pub cut: bool,
}

impl Alphabet {
    /// `word` and `line_ends` are told apart even where no set does; `settled` only matters if some set asks.
    pub fn new(
        sets: &[Set],
        word: &Ranges,
        line_ends: &Ranges,
        settled: fn() -> &'static Ranges,
        unicode: bool,
    ) -> Alphabet {
        let top = if unicode { POINT_MAX } else { UNIT_MAX };
        let unsettled =
            if sets.iter().any(|set| set.unsettled) { settled().complement(top) } else { Ranges::default() };
        // Planes: word, line ends, unsettled, then two for each set.
        let mut planes: Vec<&Ranges> = vec![word, line_ends, &unsettled];
        planes.extend(sets.iter().flat_map(|set| [&set.sure, &set.maybe]));
        let mut turns: Vec<(u32, usize)> = Vec::new();
        for (plane, ranges) in planes.iter().enumerate() {
            for (first, last) in ranges.iter().filter(|range| range.0 <= top) {
                turns.push((first, plane));
                turns.push((last.saturating_add(1), plane));
            }
        }
        turns.sort_unstable();
        let mut alphabet = Alphabet {
            unicode,
            starts: Vec::new(),
            letters: Vec::new(),
            low: Vec::new(),
            kinds: Vec::new(),
            sure: Vec::new(),
            maybe: Vec::new(),
        };
        let mut known: BTreeMap<Vec<u64>, Letter> = BTreeMap::new();
        let mut signature = vec![0u64; planes.len() / 64 + 1];
        let (mut next, mut start) = (0, 0u32);
        while start <= top {
            while let Some(&(_, plane)) = turns.get(next).filter(|turn| turn.0 == start) {
                if let Some(word) = signature.get_mut(plane / 64) {
                    *word ^= 1 << (plane % 64);
                }
                next += 1;
            }
            let letter = match known.get(&signature) {
                Some(&letter) => letter,
                None => {
                    let letter = alphabet.define(&signature, sets);
                    known.insert(signature.clone(), letter);
                    letter
                }
            };
            alphabet.starts.push(start);
            alphabet.letters.push(letter);
            start = turns.get(next).map_or(top.saturating_add(1), |turn| turn.0);
        }
        let ends = alphabet.starts.iter().skip(1).copied().chain([LOW]);
        for ((&start, end), &letter) in alphabet.starts.iter().zip(ends).zip(&alphabet.letters) {
            let count = end.min(LOW).saturating_sub(start);
            alphabet.low.extend(std::iter::repeat_n(letter, usize::try_from(count).unwrap_or_default()));
        }
        alphabet
    }

    /// The letter that stands before and after every text.
    pub fn edge(&self) -> Letter {
        Letter::try_from(self.kinds.len()).unwrap_or(Letter::MAX)
    }

    pub fn kind(&self, letter: Letter) -> Kind {
        self.kinds.get(usize::from(letter)).copied().unwrap_or_default()
    }

    /// The sets that hold the letter: those that may, or only those that surely do.
    pub fn members(&self, letter: Letter, maybe: bool) -> &[usize] {
        let table = if maybe { &self.maybe } else { &self.sure };
        table.get(usize::from(letter)).map_or(&[], Vec::as_slice)
    }

    pub fn read(&self, window: &[u8]) -> Decoded {
        let window = window.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(window);
        let mut letters = Vec::with_capacity(window.len() + 2);
        letters.push(self.edge());
        let (mut first_doubt, mut cut, mut astral) = (None, false, false);
        let mut doubt = |point: u32, letter: Letter| {
            if self.kind(letter).doubtful {
                first_doubt.get_or_insert(point);
            }
        };
        for chunk in window.utf8_chunks() {
            cut = false;
            let mut rest = chunk.valid();
            while !rest.is_empty() {
                let ascii = rest.bytes().position(|byte| byte >= 0x80).unwrap_or(rest.len());
                let (plain, other) = rest.split_at(ascii);
                letters.extend(plain.bytes().map(|byte| self.low.get(usize::from(byte)).copied().unwrap_or_default()));
                let mut chars = other.chars();
                while let Some(point) = chars.clone().next().filter(|point| !point.is_ascii()) {
                    chars.next();
                    let point = u32::from(point);
                    if !self.unicode && point > UNIT_MAX {
                        let offset = point - 0x1_0000;
                        letters.push(self.letter(0xD800 + (offset >> 10)));
                        letters.push(self.letter(0xDC00 + (offset & 0x3FF)));
                    } else {
                        let letter = self.letter(point);
                        astral |= point > UNIT_MAX;
                        doubt(point, letter);
                        letters.push(letter);
                    }
                }
                rest = chars.as_str();
            }
            if !chunk.invalid().is_empty() {
                let letter = self.letter(REPLACEMENT);
                letters.push(letter);
                cut = std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none());
            }
        }
        letters.push(self.edge());
        Decoded { text: Text { letters, doubt: first_doubt, astral }, cut }
    }

    fn define(&mut self, signature: &[u64], sets: &[Set]) -> Letter {
        let has = |plane: usize| signature.get(plane / 64).is_some_and(|word| word >> (plane % 64) & 1 == 1);
        let (mut sure, mut maybe, mut doubtful) = (Vec::new(), Vec::new(), false);
        for (index, set) in sets.iter().enumerate() {
            let open = set.unsettled && has(2);
            let certain = has(3 + 2 * index);
            if certain {
                sure.push(index);
            }
            let possible = certain || open || has(4 + 2 * index);
            if possible {
                maybe.push(index);
            }
            doubtful |= certain != possible;
        }
        self.kinds.push(Kind { word: has(0), line_end: has(1), doubtful });
        self.sure.push(sure);
        self.maybe.push(maybe);
        Letter::try_from(self.kinds.len() - 1).unwrap_or(Letter::MAX)
    }

    fn letter(&self, point: u32) -> Letter {
        usize::try_from(point).ok().and_then(|point| self.low.get(point)).copied().unwrap_or_else(|| self.search(point))
    }

    fn search(&self, point: u32) -> Letter {
        let after = self.starts.partition_point(|&start| start <= point);
        self.letters.get(after.saturating_sub(1)).copied().unwrap_or_default()
    }
}

impl Text {
    /// The text without its last letter.
    pub fn shortened(&self, edge: Letter) -> Text {
        let mut letters = self.letters.clone();
        letters.pop();
        letters.pop();
        letters.push(edge);
        Text { letters, doubt: self.doubt, astral: self.astral }
    }
}

/// Code points below this are looked up, not searched.
const LOW: u32 = 0x800;
const REPLACEMENT: u32 = 0xFFFD;

#[cfg(test)]
mod tests {
    use super::super::unicode::settled;
    use super::*;

    /// Letters for `a`, U+FFFD, U+FEFF, the two halves of U+1F600, and everything else.
    fn spelled(window: &[u8], unicode: bool) -> (String, bool) {
        let points = [0x61, 0xFFFD, 0xFEFF, 0xD83D, 0xDE00, 0x1F600];
        let sets: Vec<Set> = points.iter().map(|&point| Set::certain(Ranges::one(point))).collect();
        let alphabet = Alphabet::new(&sets, &Ranges::default(), &Ranges::default(), settled, unicode);
        let decoded = alphabet.read(window);
        let name = |&letter: &Letter| match alphabet.members(letter, false) {
            [index] => ['a', '?', 'B', 'h', 'l', 'S'].get(*index).copied().unwrap_or('!'),
            _ => '.',
        };
        let inner = decoded.text.letters.len() - 1;
        (decoded.text.letters.get(1..inner).unwrap().iter().map(name).collect(), decoded.cut)
    }

    #[test]
    fn utf8_is_read_as_whatwg_does() {
        for (window, text, cut) in [
            (&b"aba"[..], "a.a", false),
            (b"\xEF\xBB\xBFa", "a", false),
            (b"\xEF\xBB\xBF\xEF\xBB\xBFa", "Ba", false),
            (b"a\xEF\xBB\xBF", "aB", false),
            (b"a\xFFa\xC0\x80a", "a?a??a", false),
            (b"\xED\xA0\x80", "???", false),
            (b"\xF0\x9F\x98\x80", "S", false),
            (b"\xF0\x9F\x98", "?", true),
            (b"\xF0\x9F\x98a", "?a", false),
            (b"\xF0\x9F", "?", true),
            (b"\xEF\xBB", "?", true),
            (b"\xF5", "?", false),
            (b"\xE2\x82\xE2\x82", "??", true),
            (b"\xF4\x90\x80\x80", "????", false),
            (b"\xC3\xA9\xC3", ".?", true),
        ] {
            assert_eq!(spelled(window, true), (text.to_owned(), cut), "{window:x?}");
        }
        assert_eq!(spelled(b"\xF0\x9F\x98\x80", false).0, "hl");
    }

    #[test]
    fn characters_that_no_set_parts_are_one_letter() {
        let sets = [Set::certain(Ranges::new(vec![(0x61, 0x7A)])), Set::certain(Ranges::new(vec![(0x30, 0x39)]))];
        let alphabet = Alphabet::new(&sets, &Ranges::default(), &Ranges::default(), settled, true);
        assert_eq!(alphabet.edge(), 3);
    }
}
