//! The regular expression engine against Node 20: where both decide, they agree.
//!
//! Thousands of generated patterns are put to one Node process. Ours may be undecided; it may never be the opposite.
//! Without Node the test says so loudly, and fails when `VERIFICA_REQUIRE_ALL=1`.

#[path = "regex_node/traps.rs"]
mod traps;

mod node;

use std::collections::BTreeMap;
use verifica::probe::regex::{Answer, Fault, Pattern};

/// What Node says: the pattern is an error, or whether it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Error,
    Yes,
    No,
}

struct Case {
    pattern: String,
    flags: &'static str,
    window: Vec<u8>,
}

#[test]
fn generated_patterns_agree_with_node() {
    let seed = node::seed(20_260_817);
    let count = node::number("VERIFICA_CASES").unwrap_or(24_000);
    let mut dice = Dice(seed);
    let cases: Vec<Case> = (0..count).map(|_| dice.case()).collect();
    let Some(said) = ask_node(&cases) else {
        return;
    };
    let mut tally: BTreeMap<&str, u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (case, said) in cases.iter().zip(said) {
        match compare(case, said) {
            Ok(kind) => *tally.entry(kind).or_default() += 1,
            Err(why) => wrong.push(format!("{why}: /{}/{} on {}", case.pattern, case.flags, show(&case.window))),
        }
    }
    eprintln!("seed {seed}: {tally:?}");
    assert!(wrong.is_empty(), "{} of {count} disagree with node:\n{}", wrong.len(), wrong.join("\n"));
    let of = |kind: &str| tally.get(kind).copied().unwrap_or_default();
    let decided = of("match") + of("no match");
    assert!(decided * 10 > count * 4, "too few cases reach a verdict: {tally:?}");
    assert!(of("match") * 5 > decided && of("no match") * 5 > decided, "the verdicts are lopsided: {tally:?}");
    assert!(of("undecided on the text") * 50 < decided, "too often undecided where node decides: {tally:?}");
}

#[test]
fn hand_made_traps_agree_with_node() {
    let case = |&(pattern, flags, text): &(&str, &'static str, &str)| Case {
        pattern: pattern.to_owned(),
        flags,
        window: text.as_bytes().to_vec(),
    };
    let cases: Vec<Case> = traps::TRAPS.iter().map(case).collect();
    let Some(said) = ask_node(&cases) else {
        return;
    };
    let mut wrong = Vec::new();
    for (case, said) in cases.iter().zip(said) {
        let kind = compare(case, said);
        if !matches!(kind, Ok("match" | "no match")) {
            wrong.push(format!(
                "{kind:?}, node says {said:?}: /{}/{} on {}",
                case.pattern,
                case.flags,
                show(&case.window)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_character_is_in_the_classes_that_node_puts_it_in() {
    let low = (0..0x3000u32).step_by(7);
    let points = low.chain((0x3000..0x1_0000).step_by(97)).chain((0x1_0000..0x11_0000).step_by(911));
    let cases: Vec<Case> = points
        .filter_map(char::from_u32)
        .flat_map(|point| CLASSES.iter().map(move |class| (point, class)))
        .map(|(point, &(pattern, flags))| Case {
            pattern: pattern.to_owned(),
            flags,
            window: point.to_string().into_bytes(),
        })
        .collect();
    let Some(said) = ask_node(&cases) else {
        return;
    };
    let patterns: Vec<Pattern> =
        CLASSES.iter().map(|&(pattern, flags)| Pattern::parse(pattern, flags).unwrap()).collect();
    let (mut undecided, mut wrong) = (0, Vec::new());
    for ((case, said), pattern) in cases.iter().zip(said).zip(patterns.iter().cycle()) {
        match (pattern.evaluate(&case.window, false), said) {
            (Answer::Match, Said::Yes) | (Answer::NoMatch, Said::No) => {}
            (Answer::Unknown { .. }, Said::Yes | Said::No) => undecided += 1,
            (ours, _) => {
                wrong.push(format!("{ours:?}, node {said:?}: /{}/{} {}", case.pattern, case.flags, show(&case.window)));
            }
        }
    }
    eprintln!("{undecided} of {} undecided", cases.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A word for the tally when the two agree as they must, else what is wrong.
fn compare(case: &Case, said: Said) -> Result<&'static str, String> {
    let pattern = match Pattern::parse(&case.pattern, case.flags) {
        Ok(pattern) => pattern,
        Err(Fault::Malformed { reason, .. }) if reason.contains("V38") => return Ok("syntax rule"),
        Err(Fault::Malformed { reason, .. }) => {
            return if said == Said::Error { Ok("malformed") } else { Err(format!("ours malformed ({reason})")) };
        }
        Err(Fault::Unsupported { reason, .. }) => {
            let newer = ["(?i:", "(?-s:"].iter().any(|start| case.pattern.contains(start))
                || ["(?<n>", "(?<m>"].iter().any(|name| case.pattern.matches(name).count() > 1);
            return match said {
                Said::Error if newer => Ok("newer syntax"),
                Said::Error => Err(format!("node refuses, ours unsupported ({reason})")),
                _ => Ok("unsupported"),
            };
        }
    };
    match (pattern.evaluate(&case.window, false), said) {
        (Answer::Match, Said::Yes) => Ok("match"),
        (Answer::NoMatch, Said::No) => Ok("no match"),
        (Answer::Unknown { .. } | Answer::OverBudget, Said::Yes | Said::No) => Ok("undecided on the text"),
        (ours, said) => Err(format!("ours {ours:?}, node {said:?}")),
    }
}

fn ask_node(cases: &[Case]) -> Option<Vec<Said>> {
    let line = |case: &Case| {
        let hex: String = case.window.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}\n", serde_json::json!([case.pattern, case.flags, hex]))
    };
    let output = node::node(&["-e", ORACLE], cases.iter().map(line).collect(), "the regular expressions")?;
    let said: Vec<Said> = output
        .lines()
        .map(|line| match line {
            "E" => Said::Error,
            "1" => Said::Yes,
            "0" => Said::No,
            other => panic!("node said {other:?}"),
        })
        .collect();
    assert_eq!(said.len(), cases.len());
    Some(said)
}

fn show(window: &[u8]) -> String {
    String::from_utf8_lossy(window).escape_unicode().to_string()
}

/// A small generator of numbers: the cases must be the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ mixed >> 31) >> 11).unwrap() % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }

    fn case(&mut self) -> Case {
        let flags = self.pick(&FLAGS);
        let mut pattern = String::new();
        let mode = self.roll(12);
        if mode < 2 {
            for _ in 0..self.roll(7) + 1 {
                pattern.push_str(self.pick(&SOUP));
            }
        } else {
            let mut writer = Writer { dice: self, out: String::new(), unicode: flags.contains('u'), quantifiers: 4 };
            match mode {
                2 => writer.assertions(0),
                _ => writer.disjunction(0, true),
            }
            pattern = writer.out;
        }
        let mut window = Vec::new();
        if self.roll(40) == 0 {
            window.extend(b"\xEF\xBB\xBF");
        }
        // A small alphabet makes long matches likely.
        let few: Vec<&str> = (0..3).map(|_| self.pick(&TEXT)).collect();
        let small = self.roll(3) == 0;
        for _ in 0..self.roll(14) {
            let piece = if small { self.pick(&few) } else { self.pick(&TEXT) };
            window.extend(piece.as_bytes());
        }
        if self.roll(20) == 0 {
            let at = self.roll(window.len() + 1);
            window.insert(at, self.pick(&[0xFF, 0xC3, 0xE2, 0xF0, 0x80, 0xED]));
        }
        Case { pattern, flags, window }
    }
}

/// Writes patterns that are mostly inside the subset, and sometimes just outside.
struct Writer<'a> {
    dice: &'a mut Dice,
    out: String,
    unicode: bool,
    quantifiers: usize,
}

impl Writer<'_> {
    fn put(&mut self, from: &[&str]) {
        let text = self.dice.pick(from);
        self.out.push_str(text);
    }

    /// `free`: quantifiers and alternations are allowed here; inside a quantified group they are not.
    fn disjunction(&mut self, depth: usize, free: bool) {
        let rows = if free && self.dice.roll(4) == 0 { 2 + self.dice.roll(2) } else { 1 };
        for row in 0..rows {
            if row > 0 {
                self.out.push('|');
            }
            for _ in 0..self.dice.roll(4) + usize::from(depth == 0) {
                self.term(depth, free);
            }
        }
    }

    /// What matches without passing anything, mostly.
    fn assertions(&mut self, depth: usize) {
        for _ in 0..1 + self.dice.roll(3) {
            match self.dice.roll(8) {
                0..4 if depth < 3 => {
                    self.put(&["(?=", "(?!", "(?!", "(?<=", "(?<!", "(?<!"]);
                    match self.dice.roll(3) {
                        0 => self.disjunction(depth + 1, true),
                        _ => self.assertions(depth + 1),
                    }
                    self.out.push(')');
                }
                4 => self.put(&["a*", "b?", "(?:ab){0,2}", ".*", "[^]*?", "|"]),
                5 => self.put(&[".", "a", "😀", r"\W"]),
                _ => self.put(&["^", "$", r"\b", r"\B", r"\B"]),
            }
        }
    }

    fn term(&mut self, depth: usize, free: bool) {
        let quantify = free && self.quantifiers > 0 && self.dice.roll(3) == 0;
        let mut quantifiable = true;
        match self.dice.roll(16) {
            0 | 1 if depth < 3 => {
                let inner = free && (!quantify || self.dice.roll(30) == 0);
                self.put(&["(", "(?:", "(?:", "(?:", "(?<n>"]);
                self.disjunction(depth + 1, inner);
                self.out.push(')');
            }
            2 if depth < 3 => {
                self.put(&["(?=", "(?!", "(?<=", "(?<!"]);
                self.disjunction(depth + 1, free);
                self.out.push(')');
                quantifiable = self.dice.roll(40) == 0;
            }
            3 => {
                self.put(&["^", "$", r"\b", r"\B"]);
                quantifiable = self.dice.roll(60) == 0;
            }
            4 | 5 => self.class(),
            6 => self.put(&[r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", ".", "."]),
            7 => self.escape(),
            8 if self.unicode => self.put(&PROPERTIES),
            _ => self.put(&LITERALS),
        }
        if quantify && quantifiable {
            self.quantifiers = self.quantifiers.saturating_sub(1);
            self.put(&["*", "+", "?", "{2}", "{1,}", "{0,2}", "{0}", "{1,3}", "*?", "+?", "??", "{2,3}?"]);
        }
    }

    fn class(&mut self) {
        self.put(&["[", "[", "[^"]);
        for _ in 0..self.dice.roll(4) {
            match self.dice.roll(8) {
                0 | 1 => self.put(&[r"\d", r"\w", r"\W", r"\s", r"\S", r"\D", r"\b"]),
                2 if self.unicode => self.put(&PROPERTIES),
                3 | 4 => self.put(&["a-z", "A-Z", "0-9", "a-f", "à-ÿ", "α-ω", "\u{1}-\u{7f}", "K-z", "é-\u{212a}"]),
                5 => self.escape(),
                _ => self.put(&CLASS_LITERALS),
            }
        }
        self.out.push(']');
    }

    fn escape(&mut self) {
        if self.unicode {
            self.put(&[r"\u{1F600}", r"\ud83d\ude00", r"\u0061", r"\x41", r"\n", r"\0", r"\cJ", r"\u{e9}", r"\/"]);
        } else {
            self.put(&[r"\ud83d\ude00", r"\u0061", r"\x41", r"\n", r"\0", r"\cJ", r"\u00e9", r"\-", r"\/", r"\u017f"]);
        }
    }
}

const ORACLE: &str = r"
const lines = require('readline').createInterface({ input: process.stdin, crlfDelay: Infinity });
const decoder = new TextDecoder();
let out = [];
lines.on('line', line => {
  const [pattern, flags, hex] = JSON.parse(line);
  let said;
  try {
    said = new RegExp(pattern, flags).test(decoder.decode(Buffer.from(hex, 'hex'))) ? '1' : '0';
  } catch (error) {
    said = error instanceof SyntaxError ? 'E' : String(error);
  }
  out.push(said);
  if (out.length >= 1000) { process.stdout.write(out.join('\n') + '\n'); out = []; }
});
lines.on('close', () => { if (out.length) process.stdout.write(out.join('\n') + '\n'); });
";

const FLAGS: [&str; 12] = ["", "", "i", "m", "s", "u", "u", "iu", "mu", "su", "im", "imsu"];

const LITERALS: [&str; 30] = [
    "a",
    "a",
    "b",
    "b",
    "c",
    "k",
    "K",
    "s",
    "S",
    "x",
    "1",
    "_",
    " ",
    "-",
    "é",
    "É",
    "ſ",
    "\u{212a}",
    "ß",
    "ẞ",
    "µ",
    "μ",
    "Ω",
    "ω",
    "σ",
    "ς",
    "😀",
    "\u{10400}",
    "\u{fffd}",
    "\u{2028}",
];

const CLASS_LITERALS: [&str; 24] = [
    "a",
    "b",
    "k",
    "K",
    "s",
    "S",
    "-",
    "^",
    "[",
    "(",
    "|",
    "&&",
    "--",
    "~~",
    ":",
    "é",
    "ſ",
    "\u{212a}",
    "ß",
    "ς",
    "😀",
    "\u{10428}",
    "\u{a7dc}",
    ".",
];

const PROPERTIES: [&str; 16] = [
    r"\p{L}",
    r"\p{Lu}",
    r"\p{Ll}",
    r"\P{Lu}",
    r"\P{L}",
    r"\p{Script=Greek}",
    r"\p{sc=Latin}",
    r"\p{scx=Cyrl}",
    r"\p{N}",
    r"\p{Emoji}",
    r"\p{Alphabetic}",
    r"\p{ASCII}",
    r"\p{Any}",
    r"\P{White_Space}",
    r"\p{Uppercase}",
    r"\p{gc=Cased_Letter}",
];

const TEXT: [&str; 52] = [
    "a",
    "a",
    "b",
    "b",
    "c",
    "k",
    "K",
    "s",
    "S",
    "x",
    "X",
    "1",
    "0",
    "_",
    " ",
    "-",
    "\n",
    "\r",
    "\r\n",
    "\t",
    "\u{2028}",
    "\u{2029}",
    "\u{85}",
    "\u{a0}",
    "\u{feff}",
    "\u{180e}",
    "\u{3000}",
    "é",
    "É",
    "å",
    "\u{212b}",
    "ſ",
    "\u{212a}",
    "ß",
    "ẞ",
    "µ",
    "μ",
    "Ω",
    "\u{2126}",
    "ω",
    "σ",
    "ς",
    "Σ",
    "ı",
    "İ",
    "i",
    "I",
    "😀",
    "\u{10400}",
    "\u{10428}",
    "\u{a7dc}",
    "ƛ",
];

/// Pieces that meet in any order: most of it is malformed, and it must be malformed for Node too.
const SOUP: [&str; 92] = [
    "a",
    "b",
    "1",
    "-",
    ",",
    "(",
    ")",
    "(?:",
    "(?=",
    "(?!",
    "(?<=",
    "(?<!",
    "(?<n>",
    "(?<m>",
    "(?<n",
    "(?i:",
    "(?-s:",
    "(?i)",
    "(?-:",
    "(?P<n>",
    "(?>",
    "(?#",
    ")",
    ")",
    ")",
    "[",
    "]",
    "[^",
    "[]",
    "[^]",
    "[a-z]",
    "[z-a]",
    r"[\d-x]",
    r"[a-\w]",
    "[-a]",
    "[a-]",
    "[[:alpha:]]",
    "{",
    "}",
    "{1}",
    "{1,}",
    "{1,2}",
    "{2,1}",
    "{,1}",
    "{1",
    "*",
    "+",
    "?",
    "??",
    "|",
    "^",
    "$",
    ".",
    r"\b",
    r"\B",
    r"\d",
    r"\D",
    r"\1",
    r"\2",
    r"\0",
    r"\00",
    r"\8",
    r"\k",
    r"\k<n>",
    r"\c",
    r"\cA",
    r"\c1",
    r"[\c1]",
    r"[\c]",
    r"\x",
    r"\x4",
    r"\x41",
    r"\u",
    r"\u00",
    r"\u0041",
    r"\u{41}",
    r"\u{110000}",
    r"\u{",
    r"\ud83d",
    r"\ude00",
    r"\p",
    r"\p{L}",
    r"\p{Foo}",
    r"\P{sc=Greek}",
    r"\a",
    r"\_",
    r"\-",
    r"[\-]",
    r"[\b]",
    r"[\B]",
    "/",
    "\\",
];

const CLASSES: [(&str, &str); 16] = [
    (r"^\p{L}$", "u"),
    (r"^\p{Lu}$", "iu"),
    (r"^\P{Lowercase}$", "iu"),
    (r"^[^\p{Alphabetic}]$", "u"),
    (r"^\p{Script=Latin}$", "u"),
    (r"^\p{scx=Grek}$", "u"),
    (r"^\p{Emoji}$", "u"),
    (r"^\p{Assigned}$", "u"),
    (r"^\w$", "iu"),
    (r"^\W$", "iu"),
    (r"^[\w]$", "i"),
    (r"^\s$", ""),
    (r"^\S.?$", ""),
    (r"^.$", ""),
    ("^[à-ÿα-ωа-я]$", "i"),
    ("^[à-ÿα-ωа-я]$", "iu"),
];
