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
    /// From this boundary on the possible reading has numbers of its own, before it the same ones.
    pub split: usize,
    pub others: Vec<u16>,
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
        self.block(at / BLOCK) >> (at % BLOCK) & 1 == 1
    }

    fn block(&self, index: usize) -> u64 {
        self.0.get(index).copied().unwrap_or_default()
    }
}

impl Numbered<'_> {
    /// The number of the symbol at a boundary.
    pub fn number(&self, at: usize, maybe: bool) -> u16 {
        let other = if maybe { at.checked_sub(self.split).and_then(|after| self.others.get(after)) } else { None };
        other.or_else(|| self.numbers.get(at)).copied().unwrap_or_default()
    }

    pub fn at(&self, at: usize, maybe: bool) -> Option<Symbol> {
        self.distinct.get(usize::from(self.number(at, maybe))).copied()
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
    /// Without `held` every lookaround counts as holding everywhere.
    pub fn new(automaton: &Automaton, reading: &'a Reading<'a>, held: Option<&'a [Held]>) -> Symbols<'a> {
        let alphabet = reading.alphabet;
        let kinds = (0..alphabet.edge()).map(|letter| alphabet.kind(letter));
        let doubtful = kinds.clone().map(|kind| kind.doubtful && reading.text.doubt.is_some()).collect();
        let mut looks = Vec::new();
        for (bit, (assertion, _)) in automaton.assertions.iter().enumerate() {
            if let Assertion::Look(index) = *assertion
                && let Some(held) = held.and_then(|held| held.get(index))
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
            simple: [false, true].map(|maybe| simple(automaton, reading, held.is_none(), maybe)),
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
        let boundaries = self.reading.boundaries();
        let edge = self.reading.alphabet.edge();
        let mut book = Book::new(self.looks.len(), usize::from(edge) + 1);
        let mut numbers: Vec<u16> = Vec::with_capacity(boundaries);
        let (mut split, mut others) = (boundaries, Vec::new());
        let may_doubt = self.reading.text.doubt.is_some();
        let (mut held, mut possible) = (vec![0; self.looks.len()], vec![0; self.looks.len()]);
        for from in (0..boundaries).step_by(BLOCK) {
            let mut differ = 0;
            for ((look, held), possible) in self.looks.iter().zip(&mut held).zip(&mut possible) {
                (*held, *possible) = (look.block(from, false), look.block(from, true));
                differ |= *held ^ *possible;
            }
            let upto = (from + BLOCK).min(boundaries);
            let pairs = letters.get(from..=upto).unwrap_or_default().windows(2);
            let plain = differ == 0 && !may_doubt && upto < boundaries && split > from;
            for ((place, pair), at) in (0u32..).zip(pairs).zip(from..) {
                let &[before, after] = pair else { continue };
                let (near, letter) =
                    if self.backward { (self.near(after), before) } else { (self.near(before), after) };
                let Some(number) = self.noted(&mut book, (near, letter, gather(&held, place)), at, false, meter)?
                else {
                    return Ok(None);
                };
                numbers.push(number);
                if plain {
                    continue;
                }
                let end = self.reading.open_end && after == edge;
                let mut other = number;
                if end || differ >> place & 1 == 1 || (may_doubt && self.is_doubtful(letter)) {
                    meter.charge(LOOK_UP_COST)?;
                    match self.noted(&mut book, (near, letter, gather(&possible, place)), at, true, meter)? {
                        Some(found) => other = found,
                        None => return Ok(None),
                    }
                }
                if at >= split {
                    others.push(other);
                } else if other != number {
                    (split, others) = (at, Vec::with_capacity(boundaries - at));
                    others.push(other);
                }
            }
        }
        Ok(Some(Numbered { numbers: Cow::Owned(numbers), distinct: book.distinct, split, others }))
    }

    /// The number of the symbol at a boundary, which is known by what stands there. The first time costs a look-up.
    #[inline]
    fn noted(
        &self,
        book: &mut Book,
        key: Key,
        at: usize,
        maybe: bool,
        meter: &mut Meter,
    ) -> Result<Option<u16>, Spent> {
        let slot = book.slot(key);
        match book.recall(slot, key, maybe) {
            Some(number) => Ok(Some(number)),
            None => self.looked_up(book, slot, key, (at, maybe), meter),
        }
    }

    #[cold]
    fn looked_up(
        &self,
        book: &mut Book,
        slot: usize,
        key: Key,
        (at, maybe): (usize, bool),
        meter: &mut Meter,
    ) -> Result<Option<u16>, Spent> {
        if !maybe {
            meter.charge(LOOK_UP_COST)?;
        }
        let number = book.number(self.at(at, maybe));
        if let Some(number) = number {
            book.remember(slot, key, maybe, number);
        }
        Ok(number)
    }

    /// Without assertions a symbol is a letter, and its number is the letter's.
    fn by_letter(&self) -> Numbered<'a> {
        let letters = &self.reading.text.letters;
        let edge = self.reading.alphabet.edge();
        let passed = if self.backward { letters.get(..self.reading.boundaries()) } else { letters.get(1..) };
        let passed = passed.unwrap_or_default();
        let mut distinct: Vec<Symbol> = (0..=edge).map(|letter| Symbol { letter, ..Symbol::default() }).collect();
        let mut others = Vec::new();
        let mut split = passed.len();
        if self.reading.text.doubt.is_some() {
            let mut twins: Vec<u16> = (0..=edge).collect();
            for (letter, twin) in (0..edge).zip(&mut twins).filter(|(letter, _)| self.is_doubtful(*letter)) {
                distinct.push(Symbol { letter, maybe: true, holds: 0 });
                *twin = u16::try_from(distinct.len() - 1).unwrap_or_default();
            }
            split = passed.iter().position(|&letter| self.is_doubtful(letter)).unwrap_or(split);
            let twin = |&letter: &Letter| twins.get(usize::from(letter)).copied().unwrap_or_default();
            others = passed.get(split..).unwrap_or_default().iter().map(twin).collect();
        }
        Numbered { numbers: Cow::Borrowed(passed), distinct, split, others }
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
        let (split, others) =
            if numbers.last() == Some(&other) { (numbers.len(), Vec::new()) } else { (last, vec![other]) };
        Some(Numbered { numbers: Cow::Owned(numbers), distinct: book.distinct, split, others })
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
        u64::from(self.bits(maybe).get(boundary) != self.held.negative)
    }

    /// The same for a block of boundaries, the lowest bit for the first.
    fn block(&self, from: usize, maybe: bool) -> u64 {
        let block = self.bits(maybe).block(from / BLOCK);
        if self.held.negative { !block } else { block }
    }

    fn bits(&self, maybe: bool) -> &Bits {
        // What a negative lookaround surely is, its body may not even possibly be.
        match &self.held.maybe {
            Some(possible) if maybe != self.held.negative => possible,
            _ => &self.held.sure,
        }
    }
}

type Key = (usize, Letter, u64);

/// Numbers symbols, and recalls what was found last time for the same neighbours and lookarounds.
struct Book {
    looks: usize,
    width: usize,
    /// By slot, for either reading.
    recent: [Vec<u16>; 2],
    /// Whose number a slot holds. Empty when there is a slot for everything that can come.
    keys: [Vec<Key>; 2],
    known: BTreeMap<Symbol, u16>,
    distinct: Vec<Symbol>,
}

impl Book {
    fn new(looks: usize, width: usize) -> Book {
        let slots = width.checked_mul(4 << looks.min(16)).filter(|&slots| slots <= DENSE_MAX);
        let keys = if slots.is_some() { Vec::new() } else { vec![(0, 0, 0); SHARED] };
        let recent = vec![NO_NUMBER; slots.unwrap_or(SHARED)];
        Book {
            looks,
            width,
            recent: [recent.clone(), recent],
            keys: [keys.clone(), keys],
            known: BTreeMap::new(),
            distinct: Vec::new(),
        }
    }

    #[inline]
    fn slot(&self, (near, letter, held): Key) -> usize {
        if self.keys[0].is_empty() {
            let pair = near.wrapping_mul(self.width).wrapping_add(usize::from(letter));
            pair << self.looks | usize::try_from(held).unwrap_or_default()
        } else {
            let pair = u64::try_from(near << 16 | usize::from(letter)).unwrap_or_default();
            let mixed = (held.rotate_left(32) ^ pair).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
            usize::try_from(mixed).unwrap_or_default() % SHARED
        }
    }

    #[inline]
    fn recall(&self, slot: usize, key: Key, maybe: bool) -> Option<u16> {
        let reading = usize::from(maybe);
        let number = self.recent.get(reading)?.get(slot).copied().filter(|&number| number != NO_NUMBER)?;
        let keys = self.keys.get(reading)?;
        (keys.is_empty() || keys.get(slot) == Some(&key)).then_some(number)
    }

    fn remember(&mut self, slot: usize, key: Key, maybe: bool, number: u16) {
        let reading = usize::from(maybe);
        if let Some(entry) = self.recent.get_mut(reading).and_then(|recent| recent.get_mut(slot)) {
            *entry = number;
        }
        if let Some(entry) = self.keys.get_mut(reading).and_then(|keys| keys.get_mut(slot)) {
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

/// What holds at one boundary of a block, a bit for each lookaround.
#[inline]
fn gather(blocks: &[u64], place: u32) -> u64 {
    match *blocks {
        [one] => one >> place & 1,
        [one, two] => (one >> place & 1) << 1 | two >> place & 1,
        _ => blocks.iter().fold(0, |held, block| held << 1 | (block >> place & 1)),
    }
}

fn simple(automaton: &Automaton, reading: &Reading<'_>, assumed: bool, maybe: bool) -> [u64; 16] {
    const ALL: [Neighbour; 4] = [Neighbour::Plain, Neighbour::Word, Neighbour::LineEnd, Neighbour::Edge];
    let mut table = [0; 16];
    let pairs = ALL.iter().flat_map(|&before| ALL.iter().map(move |&after| (before, after)));
    for (entry, (before, after)) in table.iter_mut().zip(pairs) {
        for (bit, (assertion, _)) in automaton.assertions.iter().enumerate() {
            let held = match assertion {
                Assertion::Look(_) => assumed,
                simple => holds(*simple, before, after, reading, maybe),
            };
            *entry |= u64::from(held) << bit;
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

/// Boundaries of one word.
const BLOCK: usize = 64;
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
        assert!(!book.keys[0].is_empty());
        let keys = (0..4).flat_map(|near| (0..3_000u16).map(move |letter| (near, letter, u64::from(letter) << 7)));
        for (near, letter, held) in keys {
            let key = (near, letter, held);
            let slot = book.slot(key);
            for (maybe, number) in [(false, letter % 999), (true, letter % 998)] {
                assert_eq!(book.recall(slot, key, maybe), None);
                book.remember(slot, key, maybe, number);
                assert_eq!(book.recall(slot, key, maybe), Some(number));
            }
        }
    }
}
