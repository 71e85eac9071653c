//! What a step of the engine depends on, besides the state: the letter to pass and the assertions that hold before it.
//!
//! Promises both readings of every boundary: what surely holds, and what may hold when the end of the window or a character
//! is in doubt. The two are the same nearly everywhere, so the second is kept as exceptions to the first. Deliberately
//! absent: states.

use super::automaton::Automaton;
use super::run::{Meter, Spent};
use super::syntax::Assertion;
use super::text::{Alphabet, Kind, Letter, Text};
use crate::limits::REGEX_SYMBOLS_MAX;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// One bit for each boundary of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits(Vec<u64>);

/// Where the body of a lookaround matches: surely, and possibly where that is not the same.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub negative: bool,
    pub sure: Bits,
    pub maybe: Option<Bits>,
}

/// How a text is to be judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a> {
    pub alphabet: &'a Alphabet,
    pub text: &'a Text,
    pub multiline: bool,
    /// The text may go on beyond its end.
    pub open_end: bool,
    /// Steps kept for reuse; `REGEX_TABLE_MAX`, or fewer to test what happens then.
    pub table_max: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Symbol {
    /// For each assertion of the automaton, in order, whether it holds.
    pub holds: u64,
    pub letter: Letter,
    /// Sets that may or may not hold the letter count as holding it.
    pub maybe: bool,
}

/// The symbols of one text for one automaton.
pub(super) struct Symbols<'a> {
    reading: &'a Reading<'a>,
    backward: bool,
    plain: bool,
    neighbours: Vec<Neighbour>,
    doubtful: Vec<bool>,
    /// By the numbers of two neighbours, which of the simple assertions hold between them: surely, and possibly.
    simple: [[u64; 16]; 2],
    looks: Vec<LookBits<'a>>,
}

/// The number of the symbol at every boundary, and the symbols by number.
pub(super) struct Numbered<'a> {
    pub numbers: Cow<'a, [u16]>,
    pub distinct: Vec<Symbol>,
    /// The boundaries, ascending, where the possible reading has another symbol.
    pub others: Vec<(usize, u16)>,
}

impl Bits {
    pub fn new(boundaries: usize) -> Bits {
        Bits(vec![0; boundaries / 64 + 1])
    }

    pub fn set(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    fn get(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}

impl Reading<'_> {
    pub fn boundaries(&self) -> usize {
        self.text.letters.len().saturating_sub(1)
    }

    /// May the two readings differ at all?
    pub fn doubts(&self) -> bool {
        self.open_end || self.text.doubt.is_some()
    }

    fn letter(&self, index: usize) -> Letter {
        self.text.letters.get(index).copied().unwrap_or_default()
    }
}

impl<'a> Symbols<'a> {
    pub fn new(automaton: &Automaton, reading: &'a Reading<'a>, held: &'a [Held]) -> Symbols<'a> {
        let alphabet = reading.alphabet;
        let kinds = (0..alphabet.edge()).map(|letter| alphabet.kind(letter));
        let doubtful = kinds.clone().map(|kind| kind.doubtful && reading.text.doubt.is_some()).collect();
        let mut looks = Vec::new();
        for (bit, (assertion, _)) in automaton.assertions.iter().enumerate() {
            if let Assertion::Look(index) = *assertion
                && let Some(held) = held.get(index)
            {
                looks.push(LookBits { held, bit });
            }
        }
        Symbols {
            reading,
            backward: automaton.backward,
            plain: automaton.assertions.is_empty(),
            neighbours: kinds.map(Neighbour::from).chain([Neighbour::Edge]).collect(),
            doubtful,
            simple: [false, true].map(|maybe| simple(automaton, reading, maybe)),
            looks,
        }
    }

    pub fn at(&self, boundary: usize, maybe: bool) -> Symbol {
        let (before, after) = (self.reading.letter(boundary), self.reading.letter(boundary + 1));
        let near = self.near(before) * 4 + self.near(after);
        let mut holds =
            self.simple.get(usize::from(maybe)).and_then(|table| table.get(near)).copied().unwrap_or_default();
        for look in &self.looks {
            holds |= look.at(boundary, maybe) << look.bit;
        }
        let letter = if self.backward { before } else { after };
        Symbol { holds, letter, maybe: maybe && self.is_doubtful(letter) }
    }

    /// Nothing if there are too many different symbols to number.
    pub fn numbered(&self, meter: &mut Meter) -> Result<Option<Numbered<'a>>, Spent> {
        if self.plain {
            return Ok(Some(self.by_letter()));
        }
        if self.looks.is_empty() && self.reading.text.doubt.is_none() {
            return Ok(self.by_neighbours());
        }
        let letters = &self.reading.text.letters;
        let edge = self.reading.alphabet.edge();
        let mut book = Book::new(self.looks.len(), usize::from(edge) + 1);
        let mut numbers: Vec<u16> = Vec::with_capacity(letters.len());
        let mut others: Vec<(usize, u16)> = Vec::new();
        let split = self.looks.iter().any(|look| look.held.maybe.is_some());
        for (at, pair) in letters.windows(2).enumerate() {
            let &[before, after] = pair else { continue };
            let (near, letter) = if self.backward { (self.near(after), before) } else { (self.near(before), after) };
            let gather = |maybe| self.looks.iter().fold(0, |held, look| held << 1 | look.at(at, maybe));
            let held = gather(false);
            let slot = book.slot(near, letter, held);
            let number = match book.recall(slot, (near, letter, held)) {
                Some(number) => number,
                None => {
                    meter.charge(LOOK_UP_COST)?;
                    let Some(number) = book.number(self.at(at, false)) else {
                        return Ok(None);
                    };
                    book.remember(slot, (near, letter, held), number);
                    number
                }
            };
            numbers.push(number);
            let doubt = (self.reading.open_end && after == edge) || self.is_doubtful(letter);
            if doubt || (split && gather(true) != held) {
                meter.charge(LOOK_UP_COST)?;
                match book.number(self.at(at, true)) {
                    Some(other) if other == number => {}
                    Some(other) => others.push((at, other)),
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(Numbered { numbers: Cow::Owned(numbers), distinct: book.distinct, others }))
    }

    /// Without assertions a symbol is a letter, and its number is the letter's.
    fn by_letter(&self) -> Numbered<'a> {
        let letters = &self.reading.text.letters;
        let edge = self.reading.alphabet.edge();
        let passed = if self.backward { letters.get(..self.reading.boundaries()) } else { letters.get(1..) };
        let passed = passed.unwrap_or_default();
        let mut distinct: Vec<Symbol> = (0..=edge).map(|letter| Symbol { letter, ..Symbol::default() }).collect();
        let mut others = Vec::new();
        if self.reading.text.doubt.is_some() {
            let mut twins: BTreeMap<Letter, u16> = BTreeMap::new();
            for (at, &letter) in passed.iter().enumerate().filter(|(_, letter)| self.is_doubtful(**letter)) {
                let twin = *twins.entry(letter).or_insert_with(|| {
                    distinct.push(Symbol { letter, maybe: true, holds: 0 });
                    u16::try_from(distinct.len() - 1).unwrap_or_default()
                });
                others.push((at, twin));
            }
        }
        Numbered { numbers: Cow::Borrowed(passed), distinct, others }
    }

    /// Without lookarounds and doubtful characters a symbol is a letter and the kind of its other neighbour.
    fn by_neighbours(&self) -> Option<Numbered<'a>> {
        let letters = &self.reading.text.letters;
        let edge = self.reading.alphabet.edge();
        let width = usize::from(edge) + 1;
        let mut book = Book::new(0, 0);
        let mut table: Vec<u16> = Vec::with_capacity(4 * width);
        for near in 0..4 {
            for letter in 0..=edge {
                let kind = self.near(letter);
                let pair = if self.backward { kind * 4 + near } else { near * 4 + kind };
                let holds = self.simple[0].get(pair).copied().unwrap_or_default();
                table.push(book.number(Symbol { holds, letter, maybe: false })?);
            }
        }
        let rows: Vec<usize> = (0..=edge).map(|letter| self.near(letter) * width).collect();
        let number = |pair: &[Letter]| {
            let &[before, after] = pair else { return 0 };
            let (letter, beside) = if self.backward { (before, after) } else { (after, before) };
            let row = rows.get(usize::from(beside)).copied().unwrap_or_default();
            table.get(row + usize::from(letter)).copied().unwrap_or_default()
        };
        let numbers: Vec<u16> = letters.windows(2).map(number).collect();
        let last = self.reading.boundaries().saturating_sub(1);
        let other = book.number(self.at(last, true))?;
        let others = if numbers.last() == Some(&other) { Vec::new() } else { vec![(last, other)] };
        Some(Numbered { numbers: Cow::Owned(numbers), distinct: book.distinct, others })
    }

    fn near(&self, letter: Letter) -> usize {
        self.neighbours.get(usize::from(letter)).map_or(0, |&near| near as usize)
    }

    fn is_doubtful(&self, letter: Letter) -> bool {
        self.doubtful.get(usize::from(letter)).copied().unwrap_or(false)
    }
}

/// What a boundary may have on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbour {
    Plain,
    Word,
    LineEnd,
    Edge,
}

impl From<Kind> for Neighbour {
    fn from(kind: Kind) -> Neighbour {
        match kind {
            Kind { word: true, .. } => Neighbour::Word,
            Kind { line_end: true, .. } => Neighbour::LineEnd,
            _ => Neighbour::Plain,
        }
    }
}

/// A lookaround, and the bit of a symbol that says whether it holds.
struct LookBits<'a> {
    held: &'a Held,
    bit: usize,
}

impl LookBits<'_> {
    fn at(&self, boundary: usize, maybe: bool) -> u64 {
        let negative = self.held.negative;
        // What a negative lookaround surely is, its body may not even possibly be.
        let bits = match &self.held.maybe {
            Some(possible) if maybe != negative => possible,
            _ => &self.held.sure,
        };
        u64::from(bits.get(boundary) != negative)
    }
}

type Key = (usize, Letter, u64);

/// Numbers symbols, and recalls what was found last time for the same neighbours and lookarounds.
struct Book {
    looks: usize,
    width: usize,
    recent: Vec<u16>,
    /// Whose number a slot holds. Empty when there is a slot for everything that can come.
    keys: Vec<Key>,
    known: BTreeMap<Symbol, u16>,
    distinct: Vec<Symbol>,
}

impl Book {
    fn new(looks: usize, width: usize) -> Book {
        let slots = width.checked_mul(4 << looks.min(16)).filter(|&slots| slots <= DENSE_MAX);
        let keys = if slots.is_some() { Vec::new() } else { vec![(0, 0, 0); SHARED] };
        let recent = vec![NO_NUMBER; slots.unwrap_or(SHARED)];
        Book { looks, width, recent, keys, known: BTreeMap::new(), distinct: Vec::new() }
    }

    fn slot(&self, near: usize, letter: Letter, held: u64) -> usize {
        if self.keys.is_empty() {
            let pair = near * self.width + usize::from(letter);
            pair << self.looks | usize::try_from(held).unwrap_or_default()
        } else {
            let pair = u64::try_from(near << 16 | usize::from(letter)).unwrap_or_default();
            let mixed = (held.rotate_left(32) ^ pair).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
            usize::try_from(mixed).unwrap_or_default() % SHARED
        }
    }

    fn recall(&self, slot: usize, key: Key) -> Option<u16> {
        let number = self.recent.get(slot).copied().filter(|&number| number != NO_NUMBER)?;
        (self.keys.is_empty() || self.keys.get(slot) == Some(&key)).then_some(number)
    }

    fn remember(&mut self, slot: usize, key: Key, number: u16) {
        if let Some(entry) = self.recent.get_mut(slot) {
            *entry = number;
        }
        if let Some(entry) = self.keys.get_mut(slot) {
            *entry = key;
        }
    }

    fn number(&mut self, symbol: Symbol) -> Option<u16> {
        if let Some(&number) = self.known.get(&symbol) {
            return Some(number);
        }
        let number = u16::try_from(self.distinct.len()).ok().filter(|_| self.distinct.len() < REGEX_SYMBOLS_MAX)?;
        self.distinct.push(symbol);
        self.known.insert(symbol, number);
        Some(number)
    }
}

fn simple(automaton: &Automaton, reading: &Reading<'_>, maybe: bool) -> [u64; 16] {
    const ALL: [Neighbour; 4] = [Neighbour::Plain, Neighbour::Word, Neighbour::LineEnd, Neighbour::Edge];
    let mut table = [0; 16];
    let pairs = ALL.iter().flat_map(|&before| ALL.iter().map(move |&after| (before, after)));
    for (entry, (before, after)) in table.iter_mut().zip(pairs) {
        for (bit, (assertion, _)) in automaton.assertions.iter().enumerate() {
            *entry |= u64::from(holds(*assertion, before, after, reading, maybe)) << bit;
        }
    }
    table
}

fn holds(assertion: Assertion, before: Neighbour, after: Neighbour, reading: &Reading<'_>, maybe: bool) -> bool {
    let line_end = |near: Neighbour| near == Neighbour::Edge || (reading.multiline && near == Neighbour::LineEnd);
    let word = |near: Neighbour| near == Neighbour::Word;
    let unknown = reading.open_end && after == Neighbour::Edge;
    match assertion {
        Assertion::Start => line_end(before),
        Assertion::End | Assertion::Word | Assertion::NotWord if unknown => maybe,
        Assertion::End => line_end(after),
        Assertion::Word => word(before) != word(after),
        Assertion::NotWord => word(before) == word(after),
        Assertion::Look(_) => false,
    }
}

const LOOK_UP_COST: usize = 32;
const NO_NUMBER: u16 = u16::MAX;
const DENSE_MAX: usize = 65_536;
const SHARED: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_numbered_up_to_the_limit() {
        let mut book = Book::new(0, 1);
        let symbol = |holds: usize| Symbol { holds: u64::try_from(holds).unwrap(), ..Symbol::default() };
        for holds in 0..REGEX_SYMBOLS_MAX {
            assert_eq!(book.number(symbol(holds)), u16::try_from(holds).ok());
        }
        assert_eq!(book.number(symbol(REGEX_SYMBOLS_MAX)), None);
        assert_eq!(book.number(symbol(7)), Some(7));
    }

    #[test]
    fn shared_slots_never_answer_for_another() {
        let mut book = Book::new(20, 60_000);
        assert!(!book.keys.is_empty());
        let keys = (0..4).flat_map(|near| (0..3_000u16).map(move |letter| (near, letter, u64::from(letter) << 7)));
        for (near, letter, held) in keys {
            let slot = book.slot(near, letter, held);
            assert_eq!(book.recall(slot, (near, letter, held)), None);
            book.remember(slot, (near, letter, held), letter % 999);
            assert_eq!(book.recall(slot, (near, letter, held)), Some(letter % 999));
        }
    }
}
