//! Runs an automaton over a text: one pass, every state at once.
//!
//! The set of active nodes is the state; a step is a few word operations for each word of it. Sets that recur are kept in a
//! table, so an ordinary pattern costs one look-up for each character; when the table does not pay, the pass goes on
//! without it. Promises that the work is counted and that the count depends on nothing but pattern and text.
//! Deliberately absent: where the match lies.

use super::automaton::Automaton;
use super::syntax::Assertion;
use super::text::{Alphabet, Kind, Letter, Text};
use crate::limits::REGEX_SYMBOLS_MAX;
use std::collections::BTreeMap;

/// The counted budget ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spent;

/// Work that is left, in word operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meter(pub u64);

impl Meter {
    fn charge(&mut self, cost: usize) -> Result<(), Spent> {
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        self.0 = self.0.checked_sub(cost).ok_or(Spent)?;
        Ok(())
    }
}

/// One bit for each boundary of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub fn new(boundaries: usize) -> Bits {
        Bits(vec![0; boundaries / 64 + 1])
    }

    fn set(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    fn get(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}

/// Where a lookaround holds. `sure` and `maybe` differ only where the end of the window or a character is in doubt.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub negative: bool,
    pub sure: Bits,
    pub maybe: Option<Bits>,
}

impl Held {
    fn at(&self, boundary: usize, maybe: bool) -> bool {
        // What a negative lookaround surely is, its body may not even possibly be.
        let bits = match &self.maybe {
            Some(possible) if maybe != self.negative => possible,
            _ => &self.sure,
        };
        bits.get(boundary) != self.negative
    }
}

/// The reading under which a text is judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a> {
    pub alphabet: &'a Alphabet,
    pub text: &'a Text,
    pub multiline: bool,
    /// Doubts count as matches.
    pub maybe: bool,
    /// The text may go on beyond its end.
    pub open_end: bool,
    /// Steps kept for reuse; `REGEX_TABLE_MAX`, or fewer to test what happens then.
    pub table_max: usize,
}

/// Does the automaton accept anywhere?
pub(super) fn exists(
    automaton: &Automaton,
    reading: &Reading<'_>,
    held: &[Held],
    meter: &mut Meter,
) -> Result<bool, Spent> {
    let mut found = false;
    Runner::new(automaton, reading, held).run(meter, |_| {
        found = true;
        true
    })?;
    Ok(found)
}

/// The boundaries at which the automaton accepts.
pub(super) fn places(
    automaton: &Automaton,
    reading: &Reading<'_>,
    held: &[Held],
    meter: &mut Meter,
) -> Result<Bits, Spent> {
    let mut bits = Bits::new(reading.boundaries());
    Runner::new(automaton, reading, held).run(meter, |at| {
        bits.set(at);
        false
    })?;
    Ok(bits)
}

impl Reading<'_> {
    fn boundaries(&self) -> usize {
        self.text.letters.len().saturating_sub(1)
    }

    fn letter(&self, index: usize) -> Letter {
        self.text.letters.get(index).copied().unwrap_or_default()
    }
}

struct Runner<'a> {
    automaton: &'a Automaton,
    reading: &'a Reading<'a>,
    /// The lookarounds inside this automaton, and all before them.
    held: &'a [Held],
    /// For each letter, the nodes that pass it.
    masks: Vec<u64>,
    /// For each pair of neighbours, by their `Neighbour` numbers, which of the simple assertions hold between them.
    simple: [u64; 16],
    neighbours: Vec<Neighbour>,
    scratch: Scratch,
}

/// What a boundary may have on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbour {
    Plain,
    Word,
    LineEnd,
    Edge,
}

struct Scratch {
    next: Vec<u64>,
    fresh: Vec<u64>,
    done: Vec<u64>,
}

/// What a step depends on besides the state: which assertions hold (one bit for each in use) and the letter to pass.
type Symbol = (u64, Letter);

/// Recurring states. A row holds, for each symbol, the next state and whether this step accepts.
struct Table {
    max: usize,
    stride: usize,
    rows: Vec<u32>,
    states: Vec<Vec<u64>>,
    ids: BTreeMap<Vec<u64>, u32>,
    /// Boundaries passed since the table was last emptied.
    since: usize,
}

impl<'a> Runner<'a> {
    fn new(automaton: &'a Automaton, reading: &'a Reading<'a>, held: &'a [Held]) -> Runner<'a> {
        let alphabet = reading.alphabet;
        let words = automaton.words;
        let letters = usize::from(alphabet.edge()) + 1;
        let mut by_set: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &(node, set) in &automaton.sets {
            by_set.entry(set).or_default().push(node);
        }
        let mut masks = vec![0u64; letters * words];
        for letter in 0..alphabet.edge() {
            for set in alphabet.members(letter, reading.maybe) {
                for &node in by_set.get(set).map_or(&[][..], Vec::as_slice) {
                    if let Some(word) = masks.get_mut(usize::from(letter) * words + node / 64) {
                        *word |= 1 << (node % 64);
                    }
                }
            }
        }
        let mut neighbours: Vec<Neighbour> = (0..alphabet.edge()).map(|letter| alphabet.kind(letter).into()).collect();
        neighbours.push(Neighbour::Edge);
        let blank = || vec![0; words];
        let scratch = Scratch { next: blank(), fresh: blank(), done: blank() };
        Runner { automaton, reading, held, masks, simple: simple(automaton, reading), neighbours, scratch }
    }

    fn run(mut self, meter: &mut Meter, mut accept: impl FnMut(usize) -> bool) -> Result<(), Spent> {
        let boundaries = self.reading.boundaries();
        meter.charge(boundaries * (1 + self.automaton.assertions.len()))?;
        let mut state = self.first_state();
        let mut passed = 0;
        if let Some((symbols, distinct)) = self.symbols() {
            let mut table = Table::new(self.reading.table_max, distinct.len());
            let mut current = table.add(&state);
            while passed < boundaries {
                let symbol = symbols.get(passed).copied().unwrap_or_default();
                let mut step = table.look(current, symbol);
                if step == UNKNOWN {
                    let Some(&(holds, letter)) = distinct.get(usize::try_from(symbol).unwrap_or_default()) else {
                        break;
                    };
                    state.clone_from(table.state(current));
                    let mut after = state.clone();
                    let accepts = self.step(&state, holds, letter, &mut after, meter)?;
                    if table.full() {
                        if passed.saturating_sub(table.since) < table.states.len() * PAYS {
                            break;
                        }
                        table = Table::new(self.reading.table_max, distinct.len());
                        table.since = passed;
                        current = table.add(&state);
                    }
                    meter.charge(NEW_STATE_COST)?;
                    step = table.add(&after) | if accepts { ACCEPTS } else { 0 };
                    table.learn(current, symbol, step);
                }
                if step & ACCEPTS != 0 && accept(self.boundary(passed)) {
                    return Ok(());
                }
                current = step & !ACCEPTS;
                passed += 1;
            }
            state.clone_from(table.state(current));
        }
        let mut after = state.clone();
        while passed < boundaries {
            let at = self.boundary(passed);
            let (holds, letter) = self.symbol(at);
            if self.step(&state, holds, letter, &mut after, meter)? && accept(at) {
                return Ok(());
            }
            std::mem::swap(&mut state, &mut after);
            passed += 1;
        }
        Ok(())
    }

    /// The boundary that is reached after so many steps.
    fn boundary(&self, passed: usize) -> usize {
        if self.automaton.backward { self.reading.boundaries() - 1 - passed } else { passed }
    }

    fn first_state(&self) -> Vec<u64> {
        let open = self.automaton.backward && self.reading.open_end && self.reading.maybe;
        // Whatever lies beyond an open end, the rest of the body may have matched there.
        let mut state = if open { self.automaton.consuming.clone() } else { vec![0; self.automaton.words] };
        if let Some(word) = state.first_mut() {
            *word |= 1;
        }
        state
    }

    /// What holds at a boundary, and the letter to pass from it.
    fn symbol(&self, at: usize) -> Symbol {
        let (before, after) = (self.reading.letter(at), self.reading.letter(at + 1));
        let near = |letter: Letter| self.neighbours.get(usize::from(letter)).map_or(0, |&near| near as usize);
        let mut holds = self.simple.get(near(before) * 4 + near(after)).copied().unwrap_or_default();
        for (bit, (assertion, _)) in self.automaton.assertions.iter().enumerate() {
            if let Assertion::Look(index) = assertion {
                let held = self.held.get(*index).is_some_and(|held| held.at(at, self.reading.maybe));
                holds |= u64::from(held) << bit;
            }
        }
        (holds, if self.automaton.backward { before } else { after })
    }

    /// The symbol of every step, numbered, unless there are too many different ones.
    fn symbols(&self) -> Option<(Vec<u32>, Vec<Symbol>)> {
        let boundaries = self.reading.boundaries();
        let mut numbers = Vec::with_capacity(boundaries);
        if self.automaton.assertions.is_empty() {
            let letters = self.reading.text.letters.iter().map(|&letter| u32::from(letter));
            if self.automaton.backward {
                numbers.extend(letters.take(boundaries).rev());
            } else {
                numbers.extend(letters.skip(1));
            }
            return Some((numbers, (0..=self.reading.alphabet.edge()).map(|letter| (0, letter)).collect()));
        }
        let mut distinct: Vec<Symbol> = Vec::new();
        let mut known: BTreeMap<Symbol, u32> = BTreeMap::new();
        let mut recent: Vec<(Symbol, u32)> = vec![((0, 0), UNKNOWN); RECENT];
        for passed in 0..boundaries {
            let symbol = self.symbol(self.boundary(passed));
            let slot = recent_slot(symbol);
            let number = match recent.get(slot) {
                Some(&(same, number)) if same == symbol && number != UNKNOWN => number,
                _ => match known.get(&symbol) {
                    Some(&number) => number,
                    None if distinct.len() >= REGEX_SYMBOLS_MAX => return None,
                    None => {
                        let number = u32::try_from(distinct.len()).unwrap_or_default();
                        distinct.push(symbol);
                        known.insert(symbol, number);
                        number
                    }
                },
            };
            if let Some(entry) = recent.get_mut(slot) {
                *entry = (symbol, number);
            }
            numbers.push(number);
        }
        Some((numbers, distinct))
    }

    /// From the nodes in `from`, over the assertions that hold, past `letter`, into `to`. Says whether it accepts before
    /// the letter.
    fn step(
        &mut self,
        from: &[u64],
        holds: u64,
        letter: Letter,
        to: &mut [u64],
        meter: &mut Meter,
    ) -> Result<bool, Spent> {
        let words = self.automaton.words;
        let Scratch { next, fresh, done } = &mut self.scratch;
        next.fill(0);
        let mut cost = 3 * words + follow(self.automaton, from, next);
        if !self.automaton.assertions.is_empty() {
            done.fill(0);
            loop {
                fresh.fill(0);
                let mut any = 0;
                for (bit, (_, nodes)) in self.automaton.assertions.iter().enumerate() {
                    if holds >> bit & 1 == 0 {
                        continue;
                    }
                    cost += words;
                    for (((node, next), done), fresh) in nodes.iter().zip(&*next).zip(&*done).zip(fresh.iter_mut()) {
                        let found = node & next & !done;
                        *fresh |= found;
                        any |= found;
                    }
                }
                if any == 0 {
                    break;
                }
                for (done, fresh) in done.iter_mut().zip(&*fresh) {
                    *done |= fresh;
                }
                cost += words + follow(self.automaton, fresh, next);
            }
        }
        meter.charge(cost)?;
        let accept = self.automaton.accept;
        let accepts = next.get(accept / 64).is_some_and(|word| word >> (accept % 64) & 1 == 1);
        let start = usize::from(letter) * words;
        let mask = self.masks.get(start..start + words).unwrap_or_default();
        for ((to, next), mask) in to.iter_mut().zip(&*next).zip(mask) {
            *to = next & mask;
        }
        if let Some(word) = to.first_mut() {
            *word |= 1;
        }
        Ok(accepts)
    }
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

impl Table {
    fn new(max: usize, stride: usize) -> Table {
        Table { max, stride, rows: Vec::new(), states: Vec::new(), ids: BTreeMap::new(), since: 0 }
    }

    fn full(&self) -> bool {
        self.rows.len() + self.stride > self.max
    }

    fn add(&mut self, state: &[u64]) -> u32 {
        if let Some(&id) = self.ids.get(state) {
            return id;
        }
        let id = u32::try_from(self.states.len()).unwrap_or_default();
        self.rows.resize(self.rows.len() + self.stride, UNKNOWN);
        self.states.push(state.to_vec());
        self.ids.insert(state.to_vec(), id);
        id
    }

    fn state(&self, id: u32) -> &Vec<u64> {
        static NONE: Vec<u64> = Vec::new();
        self.states.get(id as usize).unwrap_or(&NONE)
    }

    #[inline]
    fn look(&self, id: u32, symbol: u32) -> u32 {
        self.rows.get(id as usize * self.stride + symbol as usize).copied().unwrap_or(UNKNOWN)
    }

    fn learn(&mut self, id: u32, symbol: u32, step: u32) {
        if let Some(entry) = self.rows.get_mut(id as usize * self.stride + symbol as usize) {
            *entry = step;
        }
    }
}

/// Adds to `to` what the nodes in `from` lead to; says what that cost.
fn follow(automaton: &Automaton, from: &[u64], to: &mut [u64]) -> usize {
    let mut carry = 0;
    for ((from, shift), to) in from.iter().zip(&automaton.shift).zip(to.iter_mut()) {
        let moving = from & shift;
        *to |= moving << 1 | carry;
        carry = moving >> 63;
    }
    let mut cost = from.len();
    for jump in &automaton.jumps {
        cost += jump.from.len();
        if jump.from.iter().any(|&(index, mask)| from.get(index).is_some_and(|word| word & mask != 0)) {
            cost += jump.to.len();
            for &(index, mask) in &jump.to {
                if let Some(word) = to.get_mut(index) {
                    *word |= mask;
                }
            }
        }
    }
    cost
}

fn simple(automaton: &Automaton, reading: &Reading<'_>) -> [u64; 16] {
    const ALL: [Neighbour; 4] = [Neighbour::Plain, Neighbour::Word, Neighbour::LineEnd, Neighbour::Edge];
    let mut table = [0; 16];
    let pairs = ALL.iter().flat_map(|&before| ALL.iter().map(move |&after| (before, after)));
    for (entry, (before, after)) in table.iter_mut().zip(pairs) {
        for (bit, (assertion, _)) in automaton.assertions.iter().enumerate() {
            *entry |= u64::from(holds(*assertion, before, after, reading)) << bit;
        }
    }
    table
}

fn holds(assertion: Assertion, before: Neighbour, after: Neighbour, reading: &Reading<'_>) -> bool {
    let line_end = |near: Neighbour| near == Neighbour::Edge || (reading.multiline && near == Neighbour::LineEnd);
    let word = |near: Neighbour| near == Neighbour::Word;
    match assertion {
        Assertion::Start => line_end(before),
        Assertion::End | Assertion::Word | Assertion::NotWord if reading.open_end && after == Neighbour::Edge => {
            reading.maybe
        }
        Assertion::End => line_end(after),
        Assertion::Word => word(before) != word(after),
        Assertion::NotWord => word(before) == word(after),
        Assertion::Look(_) => false,
    }
}

fn recent_slot((holds, letter): Symbol) -> usize {
    let mixed = (holds ^ u64::from(letter) << 48).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    usize::try_from(mixed >> 52).unwrap_or_default() % RECENT
}

/// A step that has not been worked out.
const UNKNOWN: u32 = u32::MAX;
const ACCEPTS: u32 = 1 << 31;
/// A full table is worth starting again when each of its states was used for so many characters.
const PAYS: usize = 16;
/// What a new state costs besides the step.
const NEW_STATE_COST: usize = 64;
const RECENT: usize = 4_096;
