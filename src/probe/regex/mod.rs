//! The regular expressions of the `regex` test: a subset of ECMAScript 2023, matched in linear time (V37 to V41, V72).
//!
//! Promises:
//! - a pattern that is accepted means what it means in every ECMAScript implementation, or the answer is not a verdict;
//! - only the existence of a match is answered, by state sets, never by backtracking; the work is counted, so the same
//!   pattern and window give the same answer on a fast and on a slow machine;
//! - the window is what is judged. With `more` to come, a match that stands on what follows the window (`$`, `\b`, `\B`, a
//!   lookahead) is `Unknown`, and characters beyond it are never consumed: a match that would need them is no match.
//!
//! A window that is cut within a character has two readings when there is more: the decoder's U+FFFD for the torn
//! character, or a text that ends before it, unknown from there on. `Match` is answered only if the second reading surely
//! matches (then every completion of the character does), `NoMatch` only if neither can.
//!
//! The answer is about this window and no other. Whoever holds a window that is shorter than the limit because the transfer
//! is unfinished must not fail on `NoMatch`: the rest of the window is still to come (V71). A `Match` stands.
//!
//! With `u`, some implementations also try to start between the two UTF-16 units of one character, where nothing but an
//! empty match can be; where only that one is found, the answer is `Unknown`.
//!
//! Deliberately absent: captures, positions, replacing, the v flag, backreferences, Annex B.

mod automaton;
mod class;
mod escape;
mod run;
mod set;
mod symbols;
mod syntax;
mod tables;
mod text;
mod unicode;

use crate::limits::{
    REGEX_FIRST_TRY_STEPS, REGEX_LOOKAROUNDS_MAX, REGEX_PATTERN_UNITS_MAX, REGEX_STEPS_MAX, REGEX_TABLE_MAX,
    REGEX_WINDOW,
};
use automaton::{Automaton, Room};
use run::{Meter, Spent};
use std::fmt;
use symbols::{Held, Reading};
use syntax::{Assertion, Flags, Node, Tree};
use text::{Alphabet, Text};

/// Why a pattern is not judged. `at` counts UTF-16 units of the pattern, or of the flags when they are at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not ECMAScript, or against the syntax rule, or over the length: the test fails.
    Malformed { at: usize, reason: String },
    /// ECMAScript, but outside the common subset or over the size: undecided, by the contract.
    Unsupported { at: usize, reason: String },
}

/// A pattern that can be judged.
#[derive(Clone, Debug)]
pub struct Pattern {
    main: Automaton,
    looks: Vec<LookAround>,
    alphabet: Alphabet,
    multiline: bool,
    /// Some assertion looks at what follows.
    looks_ahead: bool,
    /// Whether an implementation that also starts between the two units of one character finds an empty match there.
    between_units: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Match,
    NoMatch,
    /// What follows the window, the Unicode version, or a liberty of implementations decides.
    Unknown {
        reason: String,
    },
    /// The counted work exceeded its bound: undecided, by the contract.
    OverBudget,
}

impl Pattern {
    /// `flags` is a set of `i`, `m`, `s` and `u`.
    pub fn parse(pattern: &str, flags: &str) -> Result<Pattern, Fault> {
        let units: Vec<u16> = pattern.encode_utf16().collect();
        if units.len() > REGEX_PATTERN_UNITS_MAX {
            let reason = format!("the pattern is longer than {REGEX_PATTERN_UNITS_MAX} UTF-16 units (V37)");
            return Err(Fault::Malformed { at: REGEX_PATTERN_UNITS_MAX, reason });
        }
        let flags = parse_flags(flags)?;
        let tree = syntax::parse(&units, flags)?;
        if tree.looks.len() > REGEX_LOOKAROUNDS_MAX {
            let reason = format!("the pattern has more than {REGEX_LOOKAROUNDS_MAX} lookarounds (V40)");
            return Err(Fault::Unsupported { at: 0, reason });
        }
        compile(&tree).map_err(|automaton::TooLarge| Fault::Unsupported {
            at: 0,
            reason: "the pattern is too large once its repetition counts are written out (V40)".to_owned(),
        })
    }

    /// Is there a match in the window? `window` is the start of the content, at most 1 MiB of it; `more` says that the
    /// content goes on, or may go on, beyond it.
    pub fn evaluate(&self, window: &[u8], more: bool) -> Answer {
        self.evaluate_within(window, more, REGEX_STEPS_MAX, REGEX_TABLE_MAX)
    }

    /// The same, with the work that it took: word operations of the matcher, the same on every machine.
    pub fn evaluate_counted(&self, window: &[u8], more: bool) -> (Answer, u64) {
        let mut meter = Meter(REGEX_STEPS_MAX);
        let answer = self.evaluate_metered(window, more, REGEX_TABLE_MAX, &mut meter);
        (answer, REGEX_STEPS_MAX - meter.0)
    }

    /// The version of the tables behind `\p{...}` and `i`, for the evidence.
    pub fn unicode_version() -> &'static str {
        tables::UNICODE_VERSION
    }

    fn evaluate_within(&self, window: &[u8], more: bool, steps: u64, table_max: usize) -> Answer {
        self.evaluate_metered(window, more, table_max, &mut Meter(steps))
    }

    fn evaluate_metered(&self, window: &[u8], more: bool, table_max: usize, meter: &mut Meter) -> Answer {
        let limit = usize::try_from(REGEX_WINDOW).unwrap_or(usize::MAX);
        let (window, more) = match window.get(..limit) {
            Some(head) if window.len() > limit => (head, true),
            _ => (window, more),
        };
        self.judge(window, more, table_max, meter).unwrap_or(Answer::OverBudget)
    }

    fn judge(&self, window: &[u8], more: bool, table_max: usize, meter: &mut Meter) -> Result<Answer, Spent> {
        let decoded = self.alphabet.read(window);
        let torn = decoded.cut && more;
        let (whole, replaced) = match torn {
            true => (decoded.text.shortened(self.alphabet.edge()), Some(decoded.text)),
            false => (decoded.text, None),
        };
        let open_end = more && self.looks_ahead;
        let (sure, mut possible) = self.bracket(&whole, open_end, table_max, meter)?;
        if sure {
            return Ok(Answer::Match);
        }
        if let Some(replaced) = replaced.filter(|_| !possible) {
            possible = self.bracket(&replaced, open_end, table_max, meter)?.1;
        }
        let between_units = self.between_units && whole.astral;
        if !possible && !between_units {
            return Ok(Answer::NoMatch);
        }
        let mut reasons = Vec::new();
        if between_units {
            reasons.push("implementations differ about an empty match inside a character of two units".to_owned());
        }
        if let Some(point) = whole.doubt {
            reasons.push(format!("Unicode versions may disagree about U+{point:04X}"));
        }
        if open_end || torn {
            reasons.push("what follows the end of the window decides (V41)".to_owned());
        }
        Ok(Answer::Unknown { reason: reasons.join("; ") })
    }

    /// Does the pattern surely match, and may it? Both are the same unless something is in doubt.
    fn bracket(&self, text: &Text, open_end: bool, table_max: usize, meter: &mut Meter) -> Result<(bool, bool), Spent> {
        let reading = Reading { alphabet: &self.alphabet, text, multiline: self.multiline, open_end, table_max };
        // Mostly the rest of the pattern is not there, and no lookaround needs to be judged to know it. A try that does not
        // settle the matter is bounded by itself and costs the judgement nothing.
        if !self.looks.is_empty() {
            let mut tried = Meter(meter.0.min(REGEX_FIRST_TRY_STEPS));
            let allowed = tried.0;
            if run::accepts_nowhere(&self.main, &reading, &mut tried) == Ok(true) {
                meter.0 = meter.0.saturating_sub(allowed - tried.0);
                return Ok((false, false));
            }
        }
        let mut held: Vec<Held> = Vec::with_capacity(self.looks.len());
        for look in &self.looks {
            let (sure, maybe) = run::places(&look.body, &reading, &held, meter)?;
            held.push(Held { negative: look.negative, sure, maybe });
        }
        run::exists(&self.main, &reading, &held, meter)
    }
}

impl Fault {
    pub fn reason(&self) -> &str {
        match self {
            Fault::Malformed { reason, .. } | Fault::Unsupported { reason, .. } => reason,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Malformed { at, reason } | Fault::Unsupported { at, reason } => write!(f, "{reason} (at unit {at})"),
        }
    }
}

impl std::error::Error for Fault {}

#[derive(Clone, Debug, PartialEq, Eq)]
struct LookAround {
    negative: bool,
    body: Automaton,
}

fn parse_flags(text: &str) -> Result<Flags, Fault> {
    let mut flags = Flags::default();
    for (at, letter) in text.encode_utf16().enumerate() {
        let flag = match char::from_u32(letter.into()) {
            Some('i') => &mut flags.ignore_case,
            Some('m') => &mut flags.multiline,
            Some('s') => &mut flags.dot_all,
            Some('u') => &mut flags.unicode,
            _ => return Err(Fault::Malformed { at, reason: "the flags are a set of i, m, s and u (V37)".to_owned() }),
        };
        if std::mem::replace(flag, true) {
            return Err(Fault::Malformed { at, reason: "a flag is given twice (V37)".to_owned() });
        }
    }
    Ok(flags)
}

fn compile(tree: &Tree) -> Result<Pattern, automaton::TooLarge> {
    let mut room = Room::default();
    // Lookarounds that are written several times are judged once.
    let (mut looks, mut stands): (Vec<LookAround>, Vec<usize>) = (Vec::new(), Vec::new());
    for look in &tree.looks {
        let body = automaton::build(tree, look.body, look.ahead, &stands, &mut room)?;
        let written = LookAround { negative: look.negative, body };
        let known = looks.iter().position(|known| *known == written);
        stands.push(known.unwrap_or(looks.len()));
        if known.is_none() {
            looks.push(written);
        }
    }
    let main = automaton::build(tree, tree.root, false, &stands, &mut room)?;
    let ahead = |node: &Node| match node {
        Node::Assert(Assertion::End | Assertion::Word | Assertion::NotWord) => true,
        Node::Assert(Assertion::Look(index)) => tree.looks.get(*index).is_some_and(|look| look.ahead),
        _ => false,
    };
    let flags = tree.flags;
    let word = unicode::word(flags.unicode && flags.ignore_case);
    let between_units = flags.unicode && matches_between_units(&main, &looks);
    Ok(Pattern {
        main,
        looks,
        alphabet: Alphabet::new(&tree.sets, &word, &unicode::line_ends(), unicode::settled, flags.unicode),
        multiline: flags.multiline,
        looks_ahead: tree.nodes.iter().any(ahead),
        between_units,
    })
}

/// Between the units of one character no set matches, forward or backward, and of the simple assertions only `\B` holds.
fn matches_between_units(main: &Automaton, looks: &[LookAround]) -> bool {
    let mut held: Vec<bool> = Vec::with_capacity(looks.len());
    let on_the_spot = |body: &Automaton, held: &[bool]| {
        run::accepts_on_the_spot(body, |assertion| match assertion {
            Assertion::NotWord => true,
            Assertion::Look(index) => held.get(index).copied().unwrap_or(false),
            Assertion::Start | Assertion::End | Assertion::Word => false,
        })
    };
    for look in looks {
        let holds = on_the_spot(&look.body, &held) != look.negative;
        held.push(holds);
    }
    on_the_spot(main, &held)
}

#[cfg(test)]
mod tests;
