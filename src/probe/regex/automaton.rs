//! Turns a part of the tree into an automaton without empty steps, laid out for word-parallel stepping.
//!
//! A node is one occurrence of a character set or of an assertion; bit 0 is the start, the last bit the acceptance. Being
//! at a node means having just passed it. Most nodes lead to the next bit, so those steps are one shift; what else a node
//! leads to is a jump, and nodes with the same jumps share one entry. Promises that the size is bounded by the named
//! limits, however the counts of the pattern multiply. An automaton may read backwards, for lookaheads: then it finds the
//! places where its body begins. Deliberately absent: empty loops, which never decide whether a match exists.

use super::syntax::{Assertion, Node, NodeId, Tree};
use crate::limits::{REGEX_EDGES_MAX, REGEX_NODES_MAX};
use std::collections::BTreeMap;

/// The pattern is bigger than the limits allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Automaton {
    pub backward: bool,
    /// Words of one state.
    pub words: usize,
    /// The nodes that lead to the bit after theirs.
    pub shift: Vec<u64>,
    pub jumps: Vec<Jump>,
    pub accept: usize,
    /// The nodes that pass a character.
    pub consuming: Vec<u64>,
    /// Node and the set it takes, an index into `Tree::sets`.
    pub sets: Vec<(usize, usize)>,
    /// For each assertion in use, its nodes.
    pub assertions: Vec<(Assertion, Vec<u64>)>,
    /// Every way from the start goes over the assertion of the start, and none leads back to it.
    pub anchored: bool,
    /// Nodes of which an earlier one in the text's order can do all that the later ones can: the same place in the copies
    /// of a repetition that may end after any of them. As lists of a word's index and its bits, ascending.
    pub ladders: Vec<Vec<(usize, u64)>>,
}

/// Every node in `from` leads to every node in `to`. Both are lists of a word's index and its bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Jump {
    pub from: Vec<(usize, u64)>,
    pub to: Vec<(usize, u64)>,
}

impl Automaton {
    /// Drops from a state the nodes that add nothing to what a lower one can do. What is accepted later, and where, stays
    /// the same; far fewer states are told apart.
    pub fn keep_the_least(&self, state: &mut [u64]) {
        for ladder in &self.ladders {
            let mut found = false;
            for &(index, mask) in ladder {
                let Some(word) = state.get_mut(index) else { continue };
                let here = *word & mask;
                if here != 0 {
                    let least = if found { 0 } else { here & here.wrapping_neg() };
                    *word = *word & !mask | least;
                    found = true;
                }
            }
        }
    }
}

/// How much of the limits is left; shared by all the automata of a pattern.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub nodes: usize,
    pub edges: usize,
}

impl Default for Room {
    fn default() -> Room {
        Room { nodes: REGEX_NODES_MAX, edges: REGEX_EDGES_MAX }
    }
}

/// `looks` says, for each lookaround of the tree that may occur below `root`, which one stands for it.
pub(super) fn build(
    tree: &Tree,
    root: NodeId,
    backward: bool,
    looks: &[usize],
    room: &mut Room,
) -> Result<Automaton, TooLarge> {
    let mut builder = Builder { tree, looks, room, passes: vec![Pass::Ends], edges: Vec::new(), ladders: Vec::new() };
    let mut built: BTreeMap<NodeId, Piece> = BTreeMap::new();
    for id in below(tree, root) {
        let piece = match tree.nodes.get(id) {
            Some(Node::Concat(row)) => {
                let mut whole = Piece::empty();
                for child in row {
                    let next = built.remove(child).unwrap_or_else(Piece::empty);
                    whole = builder.then(whole, next)?;
                }
                whole
            }
            Some(Node::Alternate(rows)) => {
                let mut whole = Piece { empty: false, ..Piece::empty() };
                for child in rows {
                    let next = built.remove(child).unwrap_or_else(Piece::empty);
                    whole.first.extend(next.first);
                    whole.last.extend(next.last);
                    whole.empty |= next.empty;
                }
                whole
            }
            Some(&Node::Repeat { of, min, max }) => builder.repeat(&straight(tree, of), min, max)?,
            Some(&Node::Set(set)) => builder.node(Pass::Set(set))?,
            Some(&Node::Assert(assertion)) => builder.assertion(assertion)?,
            None => Piece::empty(),
        };
        built.insert(id, piece);
    }
    let whole = built.remove(&root).unwrap_or_else(Piece::empty);
    builder.finish(whole, backward)
}

enum Pass {
    Ends,
    Set(usize),
    Assert(Assertion),
}

/// A run of nodes: where it may begin, where it may end, and whether it may be passed without any of them.
struct Piece {
    first: Vec<usize>,
    last: Vec<usize>,
    empty: bool,
}

impl Piece {
    fn empty() -> Piece {
        Piece { first: Vec::new(), last: Vec::new(), empty: true }
    }
}

struct Builder<'a> {
    tree: &'a Tree,
    looks: &'a [usize],
    room: &'a mut Room,
    passes: Vec<Pass>,
    edges: Vec<(usize, usize)>,
    ladders: Vec<Vec<usize>>,
}

impl Builder<'_> {
    fn node(&mut self, pass: Pass) -> Result<Piece, TooLarge> {
        self.room.nodes = self.room.nodes.checked_sub(1).ok_or(TooLarge)?;
        self.passes.push(pass);
        let node = self.passes.len() - 1;
        Ok(Piece { first: vec![node], last: vec![node], empty: false })
    }

    fn assertion(&mut self, assertion: Assertion) -> Result<Piece, TooLarge> {
        let same = match assertion {
            Assertion::Look(index) => Assertion::Look(self.looks.get(index).copied().unwrap_or(index)),
            simple => simple,
        };
        self.node(Pass::Assert(same))
    }

    fn link(&mut self, from: &[usize], to: &[usize]) -> Result<(), TooLarge> {
        let count = from.len().saturating_mul(to.len());
        self.room.edges = self.room.edges.checked_sub(count).ok_or(TooLarge)?;
        self.edges.extend(from.iter().flat_map(|&one| to.iter().map(move |&other| (one, other))));
        Ok(())
    }

    fn then(&mut self, mut whole: Piece, next: Piece) -> Result<Piece, TooLarge> {
        self.link(&whole.last, &next.first)?;
        if whole.empty {
            whole.first.extend(&next.first);
        }
        if next.empty {
            whole.last.extend(next.last);
        } else {
            whole.last = next.last;
        }
        whole.empty &= next.empty;
        Ok(whole)
    }

    /// The operand of a quantifier is a straight row: the syntax rule leaves nothing else.
    fn repeat(&mut self, row: &[NodeId], min: u32, max: Option<u32>) -> Result<Piece, TooLarge> {
        let consumes = row.iter().any(|&id| matches!(self.tree.nodes.get(id), Some(Node::Set(_))));
        let (min, max) = match (row.is_empty(), consumes) {
            (true, _) => return Ok(Piece::empty()),
            // An assertion holds once or as often as asked.
            (_, false) if min == 0 => return Ok(Piece::empty()),
            (_, false) => (1, Some(1)),
            (_, true) => (min, max),
        };
        let copies = max.unwrap_or(min.max(1));
        let mut whole = Piece::empty();
        let mut ends: Vec<usize> = Vec::new();
        let mut last_copy = Piece::empty();
        let mut rungs: Vec<Vec<usize>> = vec![Vec::new(); row.len()];
        for copy in 1..=copies {
            last_copy = Piece::empty();
            for (&id, rungs) in row.iter().zip(&mut rungs) {
                let next = match self.tree.nodes.get(id) {
                    Some(&Node::Set(set)) => self.node(Pass::Set(set))?,
                    Some(&Node::Assert(assertion)) => self.assertion(assertion)?,
                    _ => Piece::empty(),
                };
                // From here on every copy may be the last, so the earlier one has all the later one's ways and more.
                if copy >= min {
                    rungs.extend(&next.first);
                }
                last_copy = self.then(last_copy, next)?;
            }
            self.link(&whole.last, &last_copy.first)?;
            if copy == 1 {
                whole.first.clone_from(&last_copy.first);
            }
            whole.last.clone_from(&last_copy.last);
            if copy >= min {
                ends.extend(&last_copy.last);
            }
        }
        if max.is_none() {
            self.link(&last_copy.last, &last_copy.first)?;
        }
        self.ladders.extend(rungs.into_iter().filter(|rungs| rungs.len() > 1));
        Ok(Piece { first: whole.first, last: ends, empty: min == 0 })
    }

    fn is_start(&self, node: usize) -> bool {
        matches!(self.passes.get(node), Some(Pass::Assert(Assertion::Start)))
    }

    fn finish(mut self, whole: Piece, backward: bool) -> Result<Automaton, TooLarge> {
        let accept = self.passes.len();
        self.link(&[START], &whole.first)?;
        self.link(&whole.last, &[accept])?;
        if whole.empty {
            self.link(&[START], &[accept])?;
        }
        let place = |node: usize| if backward { accept - node } else { node };
        let words = accept / 64 + 1;
        let mut automaton = Automaton {
            backward,
            words,
            shift: vec![0; words],
            jumps: Vec::new(),
            accept,
            consuming: vec![0; words],
            sets: Vec::new(),
            assertions: Vec::new(),
            anchored: !backward && !whole.empty && whole.first.iter().all(|&node| self.is_start(node)),
            ladders: Vec::new(),
        };
        // Read backwards, a repetition begins at any of its copies and has a fixed number to go: none can stand for another.
        if !backward {
            automaton.ladders = self.ladders.iter().map(|rungs| by_word(rungs)).collect();
        }
        let mut jumps: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (from, to) in self.edges {
            let (from, to) = if backward { (place(to), place(from)) } else { (from, to) };
            if to == from + 1 {
                set_bit(&mut automaton.shift, from);
            } else {
                jumps.entry(from).or_default().push(to);
            }
        }
        let mut shared: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
        for (from, mut to) in jumps {
            to.sort_unstable();
            to.dedup();
            shared.entry(to).or_default().push(from);
        }
        automaton.jumps = shared.iter().map(|(to, from)| Jump { from: by_word(from), to: by_word(to) }).collect();
        let mut assertions: BTreeMap<Assertion, Vec<u64>> = BTreeMap::new();
        for (node, pass) in self.passes.iter().enumerate() {
            match *pass {
                Pass::Ends => {}
                Pass::Set(set) => {
                    set_bit(&mut automaton.consuming, place(node));
                    automaton.sets.push((place(node), set));
                }
                Pass::Assert(assertion) => {
                    set_bit(assertions.entry(assertion).or_insert_with(|| vec![0; words]), place(node));
                }
            }
        }
        automaton.assertions = assertions.into_iter().collect();
        Ok(automaton)
    }
}

/// The nodes that `root` is made of, children before parents, without the operands of quantifiers.
fn below(tree: &Tree, root: NodeId) -> Vec<NodeId> {
    let (mut pending, mut out) = (vec![root], Vec::new());
    while let Some(id) = pending.pop() {
        out.push(id);
        if let Some(Node::Concat(children) | Node::Alternate(children)) = tree.nodes.get(id) {
            pending.extend(children);
        }
    }
    // Ids grow from child to parent and from left to right: in this order neighbours get neighbouring bits.
    out.sort_unstable();
    out
}

/// The sets and assertions of a row without choices, in order.
fn straight(tree: &Tree, of: NodeId) -> Vec<NodeId> {
    let (mut pending, mut out) = (vec![of], Vec::new());
    while let Some(id) = pending.pop() {
        match tree.nodes.get(id) {
            Some(Node::Concat(row)) => pending.extend(row.iter().rev()),
            Some(_) => out.push(id),
            None => {}
        }
    }
    out
}

fn set_bit(words: &mut [u64], bit: usize) {
    if let Some(word) = words.get_mut(bit / 64) {
        *word |= 1 << (bit % 64);
    }
}

fn by_word(bits: &[usize]) -> Vec<(usize, u64)> {
    let mut out: Vec<(usize, u64)> = Vec::new();
    for &bit in bits {
        let (index, mask) = (bit / 64, 1u64 << (bit % 64));
        match out.last_mut() {
            Some(last) if last.0 == index => last.1 |= mask,
            _ => out.push((index, mask)),
        }
    }
    out
}

const START: usize = 0;

#[cfg(test)]
mod tests {
    use super::super::syntax::{Flags, parse};
    use super::*;

    fn size(pattern: &str) -> Result<usize, TooLarge> {
        let units: Vec<u16> = pattern.encode_utf16().collect();
        let tree = parse(&units, Flags::default()).unwrap();
        build(&tree, tree.root, false, &[], &mut Room::default()).map(|automaton| automaton.accept - 1)
    }

    #[test]
    fn counts_multiply_up_to_the_limit() {
        assert_eq!(size("ab"), Ok(2));
        assert_eq!(size("a{3,5}"), Ok(5));
        assert_eq!(size("(?:ab){2,}"), Ok(4));
        assert_eq!(size(&format!("a{{{REGEX_NODES_MAX}}}")), Ok(REGEX_NODES_MAX));
        assert_eq!(size(&format!("a{{{}}}", REGEX_NODES_MAX + 1)), Err(TooLarge));
        assert_eq!(size("a{0,1000000000}"), Err(TooLarge));
        assert_eq!(size("(?:){1000000000}(?:\\b){1000000000}"), Ok(1));
    }

    #[test]
    fn edges_are_bounded() {
        assert_eq!(size("a{0,4000}b?c?d?").map(|_| ()), Ok(()));
        let room = &mut Room { edges: 10, ..Room::default() };
        let units: Vec<u16> = "a?b?c?".encode_utf16().collect();
        let tree = parse(&units, Flags::default()).unwrap();
        // start to 3, three to each other, three to the acceptance, and the empty way through
        assert!(build(&tree, tree.root, false, &[], room).is_ok());
        assert_eq!(room.edges, 0);
        let room = &mut Room { edges: 9, ..Room::default() };
        assert_eq!(build(&tree, tree.root, false, &[], room).map(|_| ()), Err(TooLarge));
    }

    #[test]
    fn equal_jumps_share_one_entry() {
        let units: Vec<u16> = "a{0,200}b".encode_utf16().collect();
        let tree = parse(&units, Flags::default()).unwrap();
        let automaton = build(&tree, tree.root, false, &[], &mut Room::default()).unwrap();
        assert_eq!(automaton.jumps.len(), 1);
    }
}
