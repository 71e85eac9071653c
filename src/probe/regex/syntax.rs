//! Reads a pattern: the grammar of ECMAScript 2023 without its Annex B, and the syntax rule V38.
//!
//! Promises: what this accepts has one meaning in every ECMAScript implementation; what it calls malformed is refused by
//! all of them or by the syntax rule; the rest is unsupported. Reading goes on after an unsupported construct, so a fault
//! that every reading shares is still found. The tree is a flat list, children before parents: nothing here or later
//! recurses. Deliberately absent: captures, greediness, and the group names, none of which decide whether a match exists.

use super::Fault;
use super::class;
use super::set::{Ranges, Set};
use super::unicode::{self, POINT_MAX, UNIT_MAX, line_ends};
use std::collections::BTreeMap;

pub(super) type NodeId = usize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub ignore_case: bool,
    pub multiline: bool,
    pub dot_all: bool,
    pub unicode: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Assertion {
    Start,
    End,
    Word,
    NotWord,
    /// Index into `Tree::looks`.
    Look(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// One character out of `Tree::sets`.
    Set(usize),
    Assert(Assertion),
    Concat(Vec<NodeId>),
    Alternate(Vec<NodeId>),
    Repeat {
        of: NodeId,
        min: u32,
        max: Option<u32>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub ahead: bool,
    pub negative: bool,
    pub body: NodeId,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    pub flags: Flags,
    pub nodes: Vec<Node>,
    pub sets: Vec<Set>,
    /// Inner before outer.
    pub looks: Vec<Look>,
    pub root: NodeId,
}

pub(super) fn parse(units: &[u16], flags: Flags) -> Result<Tree, Fault> {
    let mut reader = Reader {
        units,
        at: 0,
        flags,
        unsupported: None,
        pair_tail: None,
        groups: count_groups(units),
        names: Vec::new(),
        set_ids: BTreeMap::new(),
        tree: Tree { flags, ..Tree::default() },
    };
    let root = reader.pattern()?;
    reader.repeated_names()?;
    if let Some(fault) = reader.unsupported {
        return Err(fault);
    }
    reader.tree.root = root;
    Ok(reader.tree)
}

pub(super) struct Reader<'a> {
    pub(super) units: &'a [u16],
    pub(super) at: usize,
    pub(super) flags: Flags,
    unsupported: Option<Fault>,
    /// Where the second half of an escaped surrogate pair begins, once its first half has been read.
    pub(super) pair_tail: Option<usize>,
    pub(super) groups: Groups,
    names: Vec<Named>,
    set_ids: BTreeMap<Set, usize>,
    tree: Tree,
}

/// What an escape outside a class, or a member of a class, stands for.
pub(super) enum Meaning {
    Char(u32),
    Class(Set),
}

/// Capturing groups of the whole pattern, which decide what `\1` and `\k` mean.
pub(super) struct Groups {
    pub(super) count: u32,
    pub(super) named: bool,
}

struct Named {
    name: Vec<u16>,
    at: usize,
    /// The open groups around it with the alternative taken in each, outermost first.
    path: Vec<(usize, usize)>,
}

enum Kind {
    Plain,
    Look { ahead: bool, negative: bool },
}

struct Frame {
    kind: Kind,
    at: usize,
    done: Vec<NodeId>,
    row: Vec<NodeId>,
    holds: Holds,
}

#[derive(Clone, Copy, Default)]
struct Holds {
    quantifier: bool,
    alternation: bool,
}

/// What a quantifier may stand after.
#[derive(Clone, Copy)]
enum Last {
    Nothing,
    Atom,
    Group(Holds),
    Lookahead,
}

impl Reader<'_> {
    fn pattern(&mut self) -> Result<NodeId, Fault> {
        let mut open = vec![Frame::new(Kind::Plain, 0)];
        loop {
            let at = self.at;
            let Some(frame) = open.last_mut() else {
                return Err(self.malformed(at, "unmatched )"));
            };
            let Some(unit) = self.next() else {
                break;
            };
            let last = match unit {
                PIPE => {
                    let row = std::mem::take(&mut frame.row);
                    frame.holds.alternation = true;
                    let node = self.add(Node::Concat(row));
                    if let Some(frame) = open.last_mut() {
                        frame.done.push(node);
                    }
                    Last::Nothing
                }
                OPEN => {
                    let kind = self.group_start(at, &open)?;
                    open.push(Frame::new(kind, at));
                    continue;
                }
                CLOSE => {
                    if open.len() < 2 {
                        return Err(self.malformed(at, "unmatched )"));
                    }
                    self.group_end(&mut open)
                }
                _ => {
                    let (node, last) = self.term(unit, at)?;
                    if let Some(frame) = open.last_mut() {
                        frame.row.push(node);
                    }
                    last
                }
            };
            self.quantifier(last, &mut open)?;
        }
        match open.pop() {
            Some(frame) if open.is_empty() => Ok(self.finish(frame)),
            Some(frame) => Err(self.malformed(frame.at, "group without its )")),
            None => Err(self.malformed(self.at, "unmatched )")),
        }
    }

    /// One atom or simple assertion.
    fn term(&mut self, unit: u16, at: usize) -> Result<(NodeId, Last), Fault> {
        let assertion = match unit {
            CARET => Some(Assertion::Start),
            DOLLAR => Some(Assertion::End),
            BACKSLASH if self.peek() == Some(LOWER_B) => Some(Assertion::Word),
            BACKSLASH if self.peek() == Some(UPPER_B) => Some(Assertion::NotWord),
            _ => None,
        };
        if let Some(assertion) = assertion {
            self.at += usize::from(unit == BACKSLASH);
            return Ok((self.add(Node::Assert(assertion)), Last::Nothing));
        }
        let set = match unit {
            STAR | PLUS | QUESTION => return Err(self.malformed(at, "quantifier with nothing to repeat")),
            LEFT_BRACE if self.counts_at(at)?.is_some() => {
                return Err(self.malformed(at, "quantifier with nothing to repeat"));
            }
            LEFT_BRACE | RIGHT_BRACE | RIGHT_BRACKET => {
                self.lenient(at, "a bare brace or bracket")?;
                self.literal(u32::from(unit))
            }
            DOT if self.flags.dot_all => Set::certain(Ranges::default().complement(self.top())),
            DOT => Set::certain(line_ends().complement(self.top())),
            LEFT_BRACKET => class::read(self, at)?,
            BACKSLASH => match self.escape(at, false)? {
                Meaning::Char(point) => self.literal(point),
                Meaning::Class(set) => self.folded(set),
            },
            _ => {
                self.at = at;
                let point = self.point().unwrap_or_default();
                self.literal(point)
            }
        };
        let id = self.set_id(set);
        Ok((self.add(Node::Set(id)), Last::Atom))
    }

    fn group_start(&mut self, at: usize, open: &[Frame]) -> Result<Kind, Fault> {
        if !self.eat(QUESTION) {
            return Ok(Kind::Plain);
        }
        match self.next() {
            Some(COLON) => Ok(Kind::Plain),
            Some(EQUALS) => Ok(Kind::Look { ahead: true, negative: false }),
            Some(BANG) => Ok(Kind::Look { ahead: true, negative: true }),
            Some(LESS) => match self.peek() {
                Some(sign @ (EQUALS | BANG)) => {
                    self.at += 1;
                    Ok(Kind::Look { ahead: false, negative: sign == BANG })
                }
                _ => {
                    let name = self.name(at)?;
                    let path = open.iter().map(|frame| (frame.at, frame.done.len())).collect();
                    self.names.push(Named { name, at, path });
                    Ok(Kind::Plain)
                }
            },
            Some(MINUS | LOWER_I | LOWER_M | LOWER_S) => {
                self.at -= 1;
                self.modifiers(at)?;
                Ok(Kind::Plain)
            }
            _ => Err(self.malformed(at, "unknown kind of group")),
        }
    }

    /// `(?i:`, `(?-s:` and their kin: newer than the common subset when well formed.
    fn modifiers(&mut self, at: usize) -> Result<(), Fault> {
        let (mut seen, mut minus) = (Vec::new(), false);
        loop {
            match self.next() {
                Some(MINUS) if !minus => minus = true,
                Some(unit @ (LOWER_I | LOWER_M | LOWER_S)) if !seen.contains(&unit) => seen.push(unit),
                Some(COLON) if !seen.is_empty() => break,
                _ => return Err(self.malformed(at, "unknown kind of group")),
            }
        }
        self.unsupported(at, "inline modifiers");
        Ok(())
    }

    fn group_end(&mut self, open: &mut Vec<Frame>) -> Last {
        let Some(frame) = open.pop() else {
            return Last::Nothing;
        };
        let holds = frame.holds;
        let (node, last) = match frame.kind {
            Kind::Plain => (self.finish(frame), Last::Group(holds)),
            Kind::Look { ahead, negative } => {
                let body = self.finish(frame);
                self.tree.looks.push(Look { ahead, negative, body });
                let look = self.tree.looks.len() - 1;
                let last = if ahead { Last::Lookahead } else { Last::Nothing };
                (self.add(Node::Assert(Assertion::Look(look))), last)
            }
        };
        if let Some(outer) = open.last_mut() {
            outer.holds.quantifier |= holds.quantifier;
            outer.holds.alternation |= holds.alternation;
            outer.row.push(node);
        }
        last
    }

    fn finish(&mut self, mut frame: Frame) -> NodeId {
        let row = self.add(Node::Concat(frame.row));
        if frame.done.is_empty() {
            return row;
        }
        frame.done.push(row);
        self.add(Node::Alternate(frame.done))
    }

    /// The quantifier after the node that `open` ends with, if there is one.
    fn quantifier(&mut self, last: Last, open: &mut [Frame]) -> Result<(), Fault> {
        let at = self.at;
        let counts = match self.peek() {
            Some(STAR) => Some((0, None)),
            Some(PLUS) => Some((1, None)),
            Some(QUESTION) => Some((0, Some(1))),
            Some(LEFT_BRACE) => self.counts_at(at)?,
            _ => None,
        };
        let Some((min, max)) = counts else {
            return Ok(());
        };
        if self.peek() == Some(LEFT_BRACE) {
            while self.next().is_some_and(|unit| unit != RIGHT_BRACE) {}
        } else {
            self.at += 1;
        }
        self.eat(QUESTION);
        match last {
            Last::Nothing => return Err(self.malformed(at, "quantifier with nothing to repeat")),
            Last::Lookahead if self.flags.unicode => {
                return Err(self.malformed(at, "quantifier over a lookahead"));
            }
            Last::Lookahead => self.unsupported(at, "quantifier over a lookahead"),
            Last::Group(Holds { quantifier: true, .. }) => {
                return Err(self.rule(at, "quantifier over a group that contains a quantifier"));
            }
            Last::Group(Holds { alternation: true, .. }) => {
                return Err(self.rule(at, "quantifier over a group that contains an alternation"));
            }
            Last::Group(_) | Last::Atom => {}
        }
        if let Some(of) = open.last_mut().and_then(|frame| frame.row.pop()) {
            let node = self.add(Node::Repeat { of, min, max });
            if let Some(frame) = open.last_mut() {
                frame.row.push(node);
                frame.holds.quantifier = true;
            }
        }
        Ok(())
    }

    /// `{n}`, `{n,}` or `{n,m}` at `at`; nothing is consumed.
    fn counts_at(&mut self, at: usize) -> Result<Option<(u32, Option<u32>)>, Fault> {
        let mut here = at + 1;
        let Some(min) = self.number(&mut here) else {
            return Ok(None);
        };
        let max = if self.units.get(here) == Some(&COMMA) {
            here += 1;
            self.number(&mut here)
        } else {
            Some(min)
        };
        if self.units.get(here) != Some(&RIGHT_BRACE) {
            return Ok(None);
        }
        match max {
            // Beyond any real count implementations differ about which of two numbers is larger.
            Some(max) if min > COUNT_SANE && max > COUNT_SANE => self.unsupported(at, "repetition count too large"),
            Some(max) if min > max => return Err(self.malformed(at, "repetition counts out of order")),
            _ => {}
        }
        Ok(Some((saturate(min), max.map(saturate))))
    }

    pub(super) fn number(&self, at: &mut usize) -> Option<u64> {
        let from = *at;
        let mut value = 0u64;
        while let Some(digit) = self.units.get(*at).and_then(|&unit| digit(unit, 10)) {
            value = value.saturating_mul(10).saturating_add(digit.into());
            *at += 1;
        }
        (*at > from).then_some(value)
    }

    /// The name of a group, up to and with `>`.
    fn name(&mut self, at: usize) -> Result<Vec<u16>, Fault> {
        let from = self.at;
        if self.peek() == Some(GREATER) {
            return Err(self.malformed(at, "empty group name"));
        }
        while !self.eat(GREATER) {
            let start = self.at == from;
            let Some(point) = self.point_of_name() else {
                return Err(self.malformed(at, "group name without its >"));
            };
            if point == u32::from(BACKSLASH) {
                self.escape_in_name(at)?;
                self.unsupported(at, "escape in a group name");
                continue;
            }
            match unicode::identifier(point, start) {
                Some(true) => {}
                Some(false) => return Err(self.malformed(at, "character not allowed in a group name")),
                None => self.unsupported(at, "group name that versions disagree about"),
            }
        }
        Ok(self.units.get(from..self.at - 1).unwrap_or_default().to_vec())
    }

    fn escape_in_name(&mut self, at: usize) -> Result<(), Fault> {
        if self.eat(LOWER_U) {
            if self.peek() == Some(LEFT_BRACE) {
                return self.braced(at).map(|_| ());
            }
            if self.hex_digits(self.at, 4).is_some() {
                self.at += 4;
                return Ok(());
            }
        }
        Err(self.malformed(at, "character not allowed in a group name"))
    }

    /// One name in two groups: an error everywhere when both could match together, newer syntax when not.
    fn repeated_names(&mut self) -> Result<(), Fault> {
        let names = std::mem::take(&mut self.names);
        for (index, later) in names.iter().enumerate() {
            for earlier in names.iter().take(index).filter(|earlier| earlier.name == later.name) {
                let parted = earlier.path.iter().zip(&later.path).find(|(one, other)| one != other);
                if parted.is_none_or(|(one, other)| one.0 != other.0) {
                    return Err(self.malformed(later.at, "group name used twice"));
                }
                self.unsupported(later.at, "group name used in two alternatives");
            }
        }
        Ok(())
    }

    /// What Annex B allows without `u` and nothing allows with it.
    pub(super) fn lenient(&mut self, at: usize, what: &str) -> Result<(), Fault> {
        if self.flags.unicode {
            return Err(self.malformed(at, what));
        }
        self.unsupported(at, what);
        Ok(())
    }

    pub(super) fn malformed(&self, at: usize, what: &str) -> Fault {
        Fault::Malformed { at, reason: format!("the pattern is not ECMAScript: {what}") }
    }

    pub(super) fn rule(&self, at: usize, what: &str) -> Fault {
        Fault::Malformed { at, reason: format!("the syntax rule (V38) forbids a {what}") }
    }

    pub(super) fn unsupported(&mut self, at: usize, what: &str) {
        let reason = format!("outside the common subset of ECMAScript: {what}");
        self.unsupported.get_or_insert(Fault::Unsupported { at, reason });
    }

    pub(super) fn top(&self) -> u32 {
        if self.flags.unicode { POINT_MAX } else { UNIT_MAX }
    }

    pub(super) fn folded(&self, set: Set) -> Set {
        if self.flags.ignore_case { unicode::close_over_case(&set, self.flags.unicode) } else { set }
    }

    pub(super) fn inverted(&self, set: &Set) -> Set {
        set.complement(self.top(), unicode::settled)
    }

    fn literal(&self, point: u32) -> Set {
        self.folded(Set::certain(Ranges::one(point)))
    }

    fn set_id(&mut self, set: Set) -> usize {
        if let Some(&id) = self.set_ids.get(&set) {
            return id;
        }
        self.tree.sets.push(set.clone());
        let id = self.tree.sets.len() - 1;
        self.set_ids.insert(set, id);
        id
    }

    fn add(&mut self, node: Node) -> NodeId {
        self.tree.nodes.push(node);
        self.tree.nodes.len() - 1
    }

    pub(super) fn peek(&self) -> Option<u16> {
        self.units.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u16> {
        let unit = self.peek()?;
        self.at += 1;
        Some(unit)
    }

    pub(super) fn eat(&mut self, unit: u16) -> bool {
        let found = self.peek() == Some(unit);
        self.at += usize::from(found);
        found
    }

    /// The next character as the flags see it: a code point with `u`, a unit without.
    pub(super) fn point(&mut self) -> Option<u32> {
        if self.flags.unicode { self.point_of_name() } else { self.next().map(u32::from) }
    }

    fn point_of_name(&mut self) -> Option<u32> {
        let unit = self.next()?;
        match char::decode_utf16([unit].into_iter().chain(self.peek())).next()? {
            Ok(point) => {
                self.at += point.len_utf16() - 1;
                Some(point.into())
            }
            Err(_) => Some(unit.into()),
        }
    }

    pub(super) fn hex_digits(&self, at: usize, count: usize) -> Option<u32> {
        let units = self.units.get(at..at + count)?;
        units.iter().try_fold(0u32, |value, &unit| Some(value * 16 + digit(unit, 16)?))
    }
}

impl Frame {
    fn new(kind: Kind, at: usize) -> Frame {
        Frame { kind, at, done: Vec::new(), row: Vec::new(), holds: Holds::default() }
    }
}

fn count_groups(units: &[u16]) -> Groups {
    let mut groups = Groups { count: 0, named: false };
    let (mut at, mut in_class) = (0, false);
    while let Some(&unit) = units.get(at) {
        match unit {
            BACKSLASH => at += 1,
            LEFT_BRACKET => in_class = true,
            RIGHT_BRACKET => in_class = false,
            OPEN if !in_class => {
                let after = |offset: usize| units.get(at + offset).copied();
                let named =
                    after(1) == Some(QUESTION) && after(2) == Some(LESS) && !matches!(after(3), Some(EQUALS | BANG));
                groups.count += u32::from(named || after(1) != Some(QUESTION));
                groups.named |= named;
            }
            _ => {}
        }
        at += 1;
    }
    groups
}

pub(super) fn digit(unit: u16, radix: u32) -> Option<u32> {
    char::from_u32(unit.into()).and_then(|unit| unit.to_digit(radix))
}

fn saturate(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Counts up to here are compared exactly by every implementation.
const COUNT_SANE: u64 = 0x3FFF_FFFF;

const BACKSLASH: u16 = b'\\' as u16;
const BANG: u16 = b'!' as u16;
const CARET: u16 = b'^' as u16;
const CLOSE: u16 = b')' as u16;
const COLON: u16 = b':' as u16;
const COMMA: u16 = b',' as u16;
const DOLLAR: u16 = b'$' as u16;
const DOT: u16 = b'.' as u16;
const EQUALS: u16 = b'=' as u16;
const GREATER: u16 = b'>' as u16;
const LEFT_BRACE: u16 = b'{' as u16;
const LEFT_BRACKET: u16 = b'[' as u16;
const LESS: u16 = b'<' as u16;
const LOWER_B: u16 = b'b' as u16;
const LOWER_I: u16 = b'i' as u16;
const LOWER_M: u16 = b'm' as u16;
const LOWER_S: u16 = b's' as u16;
const LOWER_U: u16 = b'u' as u16;
const MINUS: u16 = b'-' as u16;
const OPEN: u16 = b'(' as u16;
const PIPE: u16 = b'|' as u16;
const PLUS: u16 = b'+' as u16;
const QUESTION: u16 = b'?' as u16;
const RIGHT_BRACE: u16 = b'}' as u16;
const RIGHT_BRACKET: u16 = b']' as u16;
const STAR: u16 = b'*' as u16;
const UPPER_B: u16 = b'B' as u16;
