//! Runs an automaton over a text: one pass, every state at once.
//!
//! The set of active nodes is the state; a step is a few word operations for each word of it. States that recur are kept in
//! a table, so an ordinary pattern costs one look-up for each character; when the table does not pay, the pass goes on
//! without it. The sure and the possible reading run side by side and cost one step for as long as they are the same.
//! Promises that the work is counted and that the count depends on nothing but pattern and text. Deliberately absent:
//! where the match lies.

use super::automaton::Automaton;
use super::symbols::{Bits, Held, Numbered, Reading, Symbol, Symbols};
use super::syntax::Assertion;
use std::collections::BTreeMap;

/// The counted budget ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spent;

/// Work that is left, in word operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meter(pub u64);

impl Meter {
    pub fn charge(&mut self, cost: usize) -> Result<(), Spent> {
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        self.0 = self.0.checked_sub(cost).ok_or(Spent)?;
        Ok(())
    }
}

/// Does the automaton surely accept somewhere, and may it?
pub(super) fn exists(
    automaton: &Automaton,
    reading: &Reading<'_>,
    held: &[Held],
    meter: &mut Meter,
) -> Result<(bool, bool), Spent> {
    let (mut sure, mut maybe) = (false, false);
    Runner::new(automaton, reading, Some(held)).run(meter, |_, surely| {
        sure |= surely;
        maybe = true;
        surely
    })?;
    Ok((sure, maybe))
}

/// Does the automaton accept nowhere, even if every lookaround held everywhere? Nothing if that takes more than `meter`.
pub(super) fn accepts_nowhere(automaton: &Automaton, reading: &Reading<'_>, meter: &mut Meter) -> Result<bool, Spent> {
    let mut nowhere = true;
    Runner::new(automaton, reading, None).run(meter, |_, _| {
        nowhere = false;
        true
    })?;
    Ok(nowhere)
}

/// The boundaries at which the automaton surely accepts, and those at which it may if they are not the same.
pub(super) fn places(
    automaton: &Automaton,
    reading: &Reading<'_>,
    held: &[Held],
    meter: &mut Meter,
) -> Result<(Bits, Option<Bits>), Spent> {
    let mut sure = Bits::new(reading.boundaries());
    let mut maybe = Bits::new(if reading.doubts() { reading.boundaries() } else { 0 });
    let mut same = true;
    Runner::new(automaton, reading, Some(held)).run(meter, |at, surely| {
        if surely {
            sure.set(at);
        }
        same &= surely;
        maybe.set(at);
        false
    })?;
    Ok((sure, (!same).then_some(maybe)))
}

/// Does the automaton accept on the spot, passing nothing, where just these assertions hold?
pub(super) fn accepts_on_the_spot(automaton: &Automaton, holds: impl Fn(Assertion) -> bool) -> bool {
    let mut from = vec![0; automaton.words];
    if let Some(word) = from.first_mut() {
        *word |= 1;
    }
    let mut reached = vec![0; automaton.words];
    loop {
        follow(automaton, &from, &mut reached);
        let mut grown = from.clone();
        for (_, nodes) in automaton.assertions.iter().filter(|(assertion, _)| holds(*assertion)) {
            for ((grown, nodes), reached) in grown.iter_mut().zip(nodes).zip(&reached) {
                *grown |= nodes & reached;
            }
        }
        if grown == from {
            let accept = automaton.accept;
            return reached.get(accept / 64).is_some_and(|word| word >> (accept % 64) & 1 == 1);
        }
        from = grown;
    }
}

struct Runner<'a> {
    automaton: &'a Automaton,
    reading: &'a Reading<'a>,
    symbols: Symbols<'a>,
    /// For each letter, the nodes that pass it: surely, and possibly if that may be more.
    masks: [Vec<u64>; 2],
    next: Vec<u64>,
    fresh: Vec<u64>,
    done: Vec<u64>,
}

/// The state of each reading.
#[derive(Clone)]
struct States {
    sure: Vec<u64>,
    maybe: Vec<u64>,
}

/// Recurring states. A row holds, for each symbol, the place of the next state's row and whether this step accepts.
struct Table {
    max: usize,
    stride: usize,
    rows: Vec<u32>,
    states: Vec<Vec<u64>>,
    places: BTreeMap<Vec<u64>, u32>,
    /// Boundaries passed when the table was last emptied.
    since: usize,
}

impl<'a> Runner<'a> {
    fn new(automaton: &'a Automaton, reading: &'a Reading<'a>, held: Option<&'a [Held]>) -> Runner<'a> {
        let blank = || vec![0; automaton.words];
        let possible = if reading.text.doubt.is_some() { masks(automaton, reading, true) } else { Vec::new() };
        Runner {
            automaton,
            reading,
            symbols: Symbols::new(automaton, reading, held),
            masks: [masks(automaton, reading, false), possible],
            next: blank(),
            fresh: blank(),
            done: blank(),
        }
    }

    /// Tells `accept` each boundary at which some reading accepts, and whether surely; until it answers true.
    fn run(mut self, meter: &mut Meter, mut accept: impl FnMut(usize, bool) -> bool) -> Result<(), Spent> {
        let boundaries = self.reading.boundaries();
        meter.charge(boundaries.saturating_mul(PASS_COST + self.automaton.assertions.len()))?;
        let mut states = self.first_states();
        let mut passed = 0;
        if self.anchored() {
            let few = boundaries.min(FEW);
            match self.without_table(passed, few, None, &mut states, meter, &mut accept)? {
                Some(reached) => passed = reached,
                None => return Ok(()),
            }
        }
        let numbered = self.symbols.numbered(meter)?;
        if let Some(numbered) = &numbered {
            match self.with_table(passed, numbered, &mut states, meter, &mut accept)? {
                Some(reached) => passed = reached,
                None => return Ok(()),
            }
        }
        self.without_table(passed, boundaries, numbered.as_ref(), &mut states, meter, &mut accept).map(|_| ())
    }

    /// Works every step out, up to some boundary: says how many were passed, or nothing when the run is over.
    fn without_table(
        &mut self,
        mut passed: usize,
        upto: usize,
        numbered: Option<&Numbered<'_>>,
        states: &mut States,
        meter: &mut Meter,
        accept: &mut impl FnMut(usize, bool) -> bool,
    ) -> Result<Option<usize>, Spent> {
        let doubts = self.reading.doubts();
        let anchored = self.anchored();
        let mut same = states.sure == states.maybe;
        let mut after = states.clone();
        while passed < upto {
            let at = self.boundary(passed);
            let read = |maybe| numbered.and_then(|numbered| numbered.at(at, maybe));
            let symbol = read(false).unwrap_or_else(|| self.symbols.at(at, false));
            let other = match doubts {
                true => read(true).unwrap_or_else(|| self.symbols.at(at, true)),
                false => symbol,
            };
            let surely = self.step(&states.sure, symbol, &mut after.sure, meter)?;
            let mut possibly = surely;
            if same && symbol == other {
                after.maybe.clone_from(&after.sure);
            } else {
                possibly = self.step(&states.maybe, other, &mut after.maybe, meter)?;
                same = after.sure == after.maybe;
            }
            if possibly && accept(at, surely) {
                return Ok(None);
            }
            std::mem::swap(states, &mut after);
            passed += 1;
            if anchored && idle(&states.sure) && idle(&states.maybe) {
                return Ok(None);
            }
        }
        Ok(Some(passed))
    }

    /// Runs as long as the table pays: says how many boundaries were passed, or nothing when the run is over.
    fn with_table(
        &mut self,
        mut passed: usize,
        numbered: &Numbered<'_>,
        states: &mut States,
        meter: &mut Meter,
        accept: &mut impl FnMut(usize, bool) -> bool,
    ) -> Result<Option<usize>, Spent> {
        let boundaries = self.reading.boundaries();
        let distinct = &numbered.distinct;
        let mut table = Table::new(self.reading.table_max, distinct.len(), passed);
        let (mut sure, mut maybe) = (table.add(&states.sure), table.add(&states.maybe));
        while passed < boundaries {
            let Some(glided) = self.glide(passed, &table, numbered, (sure, maybe), accept) else {
                return Ok(None);
            };
            (passed, sure, maybe) = glided;
            if passed >= boundaries {
                break;
            }
            let at = self.boundary(passed);
            let (number, other) = (numbered.number(at, false), numbered.number(at, true));
            if table.full() {
                states.sure.clone_from(table.state(sure));
                states.maybe.clone_from(table.state(maybe));
                if passed.saturating_sub(table.since) < table.states.len() * PAYS {
                    return Ok(Some(passed));
                }
                table = Table::new(self.reading.table_max, distinct.len(), passed);
                (sure, maybe) = (table.add(&states.sure), table.add(&states.maybe));
            }
            let step = self.learned(&mut table, sure, number, distinct, meter)?;
            let same = sure == maybe && number == other;
            let possible = if same { step } else { self.learned(&mut table, maybe, other, distinct, meter)? };
            if possible & ACCEPTS != 0 && accept(at, step & ACCEPTS != 0) {
                return Ok(None);
            }
            (sure, maybe) = (step & !ACCEPTS, possible & !ACCEPTS);
            passed += 1;
        }
        Ok(None)
    }

    /// Takes steps that are known: says how many boundaries are passed then and the rows of the states, or nothing when the
    /// run is over.
    fn glide(
        &self,
        passed: usize,
        table: &Table,
        numbered: &Numbered<'_>,
        rows: (u32, u32),
        accept: &mut impl FnMut(usize, bool) -> bool,
    ) -> Option<(usize, u32, u32)> {
        let at = self.boundary(passed);
        let (numbers, split) = (&*numbered.numbers, numbered.split);
        let equal = at < split;
        let (from, upto) = match (self.automaton.backward, equal) {
            (false, true) => (at, split.min(numbers.len())),
            (false, false) => (at, numbers.len()),
            (true, true) => (0, at + 1),
            (true, false) => (split, at + 1),
        };
        let one = numbers.get(from..upto).unwrap_or_default();
        let two = match equal {
            true => one,
            false => numbered.others.get(from - split..upto - split).unwrap_or_default(),
        };
        let single = equal && rows.0 == rows.1;
        let places = from..upto;
        let glided = match (self.automaton.backward, single) {
            (false, true) => table.glide_one(rows.0, places.zip(one), accept),
            (true, true) => table.glide_one(rows.0, places.zip(one).rev(), accept),
            (false, false) => table.glide_both(rows, places.zip(one.iter().zip(two)), accept),
            (true, false) => table.glide_both(rows, places.zip(one.iter().zip(two)).rev(), accept),
        };
        glided.map(|(count, sure, maybe)| (passed + count, sure, maybe))
    }

    fn learned(
        &mut self,
        table: &mut Table,
        row: u32,
        number: u16,
        distinct: &[Symbol],
        meter: &mut Meter,
    ) -> Result<u32, Spent> {
        let known = table.look(row, number);
        if known != UNKNOWN {
            return Ok(known);
        }
        meter.charge(NEW_STATE_COST)?;
        let symbol = distinct.get(usize::from(number)).copied().unwrap_or_default();
        let mut after = vec![0; self.automaton.words];
        let accepts = self.step(table.state(row), symbol, &mut after, meter)?;
        self.automaton.keep_the_least(&mut after);
        let step = table.add(&after) | if accepts { ACCEPTS } else { 0 };
        table.learn(row, number, step);
        Ok(step)
    }

    /// The boundary that is reached after so many steps.
    fn boundary(&self, passed: usize) -> usize {
        if self.automaton.backward { self.reading.boundaries() - 1 - passed } else { passed }
    }

    /// Can a match begin at the start of the text only? Then nothing is left to find once no match is under way.
    fn anchored(&self) -> bool {
        self.automaton.anchored && !self.reading.multiline
    }

    fn first_states(&self) -> States {
        let mut sure = vec![0; self.automaton.words];
        if let Some(word) = sure.first_mut() {
            *word |= 1;
        }
        let mut maybe = sure.clone();
        if self.automaton.backward && self.reading.open_end {
            // Whatever lies beyond an open end, the rest of the body may have matched there.
            for (word, consuming) in maybe.iter_mut().zip(&self.automaton.consuming) {
                *word |= consuming;
            }
        }
        States { sure, maybe }
    }

    /// From the nodes in `from`, over the assertions that hold, past the letter, into `to`. Says whether it accepts before
    /// the letter.
    fn step(&mut self, from: &[u64], symbol: Symbol, to: &mut [u64], meter: &mut Meter) -> Result<bool, Spent> {
        let words = self.automaton.words;
        let Runner { next, fresh, done, .. } = self;
        next.fill(0);
        let mut cost = 3 * words + follow(self.automaton, from, next);
        if !self.automaton.assertions.is_empty() {
            done.fill(0);
            loop {
                fresh.fill(0);
                let mut any = 0;
                for (bit, (_, nodes)) in self.automaton.assertions.iter().enumerate() {
                    if symbol.holds >> bit & 1 == 0 {
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
        let start = usize::from(symbol.letter) * words;
        let masks = self.masks.get(usize::from(symbol.maybe));
        let mask = masks.and_then(|masks| masks.get(start..start + words)).unwrap_or_default();
        to.fill(0);
        for ((to, next), mask) in to.iter_mut().zip(&*next).zip(mask) {
            *to = next & mask;
        }
        if let Some(word) = to.first_mut() {
            *word |= 1;
        }
        Ok(accepts)
    }
}

impl Table {
    fn new(max: usize, stride: usize, since: usize) -> Table {
        Table { max, stride, rows: Vec::new(), states: Vec::new(), places: BTreeMap::new(), since }
    }

    fn full(&self) -> bool {
        self.rows.len() + 2 * self.stride > self.max || self.states.len() >= STATES_MAX
    }

    /// The place of the state's row, which is made if it is new.
    fn add(&mut self, state: &[u64]) -> u32 {
        if let Some(&row) = self.places.get(state) {
            return row;
        }
        let row = u32::try_from(self.rows.len()).unwrap_or_default();
        self.rows.resize(self.rows.len() + self.stride, UNKNOWN);
        self.states.push(state.to_vec());
        self.places.insert(state.to_vec(), row);
        row
    }

    fn state(&self, row: u32) -> &Vec<u64> {
        static NONE: Vec<u64> = Vec::new();
        self.states.get(row as usize / self.stride.max(1)).unwrap_or(&NONE)
    }

    fn look(&self, row: u32, number: u16) -> u32 {
        self.rows.get(row as usize + usize::from(number)).copied().unwrap_or(UNKNOWN)
    }

    /// Takes known steps while both readings are one.
    fn glide_one<'n>(
        &self,
        mut row: u32,
        numbers: impl Iterator<Item = (usize, &'n u16)>,
        accept: &mut impl FnMut(usize, bool) -> bool,
    ) -> Option<(usize, u32, u32)> {
        let rows = self.rows.as_slice();
        let mut count = 0;
        for (at, &number) in numbers {
            let step = rows.get((row as usize).wrapping_add(number.into())).copied().unwrap_or(UNKNOWN);
            if step >= ACCEPTS {
                if step == UNKNOWN {
                    break;
                }
                if accept(at, true) {
                    return None;
                }
            }
            row = step & !ACCEPTS;
            count += 1;
        }
        Some((count, row, row))
    }

    /// Takes known steps of both readings.
    fn glide_both<'n>(
        &self,
        (mut sure, mut maybe): (u32, u32),
        numbers: impl Iterator<Item = (usize, (&'n u16, &'n u16))>,
        accept: &mut impl FnMut(usize, bool) -> bool,
    ) -> Option<(usize, u32, u32)> {
        let rows = self.rows.as_slice();
        let look =
            |row: u32, number: u16| rows.get((row as usize).wrapping_add(number.into())).copied().unwrap_or(UNKNOWN);
        let mut count = 0;
        for (at, (&number, &other)) in numbers {
            let (step, possible) = (look(sure, number), look(maybe, other));
            if step == UNKNOWN || possible == UNKNOWN {
                break;
            }
            if possible & ACCEPTS != 0 && accept(at, step & ACCEPTS != 0) {
                return None;
            }
            (sure, maybe) = (step & !ACCEPTS, possible & !ACCEPTS);
            count += 1;
        }
        Some((count, sure, maybe))
    }

    fn learn(&mut self, row: u32, number: u16, step: u32) {
        if let Some(entry) = self.rows.get_mut(row as usize + usize::from(number)) {
            *entry = step;
        }
    }
}

/// Is no match under way?
fn idle(state: &[u64]) -> bool {
    state.iter().enumerate().all(|(index, &word)| word == u64::from(index == 0))
}

fn masks(automaton: &Automaton, reading: &Reading<'_>, maybe: bool) -> Vec<u64> {
    let (alphabet, words) = (reading.alphabet, automaton.words);
    let mut by_set: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &(node, set) in &automaton.sets {
        by_set.entry(set).or_default().push(node);
    }
    let mut masks = vec![0u64; (usize::from(alphabet.edge()) + 1) * words];
    for (mask, letter) in masks.chunks_mut(words).zip(0..alphabet.edge()) {
        for set in alphabet.members(letter, maybe) {
            for &node in by_set.get(set).map_or(&[][..], Vec::as_slice) {
                if let Some(word) = mask.get_mut(node / 64) {
                    *word |= 1 << (node % 64);
                }
            }
        }
    }
    masks
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
        cost += JUMP_COST * jump.from.len();
        if jump.from.iter().any(|&(index, mask)| from.get(index).is_some_and(|word| word & mask != 0)) {
            cost += JUMP_COST * jump.to.len();
            for &(index, mask) in &jump.to {
                if let Some(word) = to.get_mut(index) {
                    *word |= mask;
                }
            }
        }
    }
    cost
}

/// A step that has not been worked out.
const UNKNOWN: u32 = u32::MAX;
const ACCEPTS: u32 = 1 << 31;
/// A full table is worth starting again when each of its states was used for so many characters.
const PAYS: usize = 16;
/// So many states are kept: making them must not cost more than stepping without them.
const STATES_MAX: usize = 4_096;
/// What a new state costs besides the step.
const NEW_STATE_COST: usize = 512;
/// An anchored pattern mostly ends within so many characters: its table is not begun before.
const FEW: usize = 8;
/// What a boundary costs besides the step.
const PASS_COST: usize = 8;
/// A word of a jump costs as much as some words in a row.
const JUMP_COST: usize = 3;
