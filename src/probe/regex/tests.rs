//! The engine as a whole: what is refused, what is in doubt, and random patterns against a slow matcher and another engine.
//! The differential against Node is in `tests/regex_node.rs`.

use super::*;
use proptest::prelude::*;

const END_DECIDES: &str = "what follows the end of the window decides (V41)";

fn parsed(pattern: &str, flags: &str) -> Pattern {
    Pattern::parse(pattern, flags).unwrap_or_else(|fault| panic!("/{pattern}/{flags}: {fault}"))
}

fn answer(pattern: &str, flags: &str, window: &str, more: bool) -> Answer {
    parsed(pattern, flags).evaluate(window.as_bytes(), more)
}

fn unknown(answer: &Answer) -> bool {
    matches!(answer, Answer::Unknown { .. })
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Good,
    /// Not ECMAScript.
    Bad,
    /// Against V38.
    Ruled,
    Unsupported,
}

fn kind(pattern: &str, flags: &str) -> Kind {
    match Pattern::parse(pattern, flags) {
        Ok(_) => Kind::Good,
        Err(Fault::Malformed { reason, .. }) if reason.contains("V38") => Kind::Ruled,
        Err(Fault::Malformed { .. }) => Kind::Bad,
        Err(Fault::Unsupported { .. }) => Kind::Unsupported,
    }
}

#[test]
fn the_syntax_rule_is_enforced_at_any_depth() {
    for pattern in [
        "(a*)*",
        "(a+)+",
        "(?:a?)?",
        "(?<n>a{2})+",
        "((a*))+",
        "(?:x(?:y(z*)))?",
        "(a|b)*",
        "(?:|)*",
        "((a|b)c)+",
        "(a|)?",
        "(?:(?=a|b)c)*",
        "(?:(?<!a*)c)+",
        "(a{1})*",
        "(?:a??b)*",
        r"(a)\1",
        r"\1(a)",
        r"(?<n>a)\k<n>",
        r"\k<n>(?<n>a)",
        r"(a)(b)\2",
        r"(?:\8|(a|b)*)",
    ] {
        assert_eq!(kind(pattern, ""), Kind::Ruled, "{pattern}");
    }
    for pattern in
        ["(abc)*", "[a*+?|()]*", r"(?:\*\|)+", "a*b+c?", "a*|b*", "(a*)b", "(a|b)c*", "(?:a(?=b)c)*", "a*a*b", "(?:)*"]
    {
        assert_eq!(kind(pattern, ""), Kind::Good, "{pattern}");
    }
    match Pattern::parse("ab(c|d)*", "") {
        Err(Fault::Malformed { at: 7, reason }) => assert!(reason.contains("alternation"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_ecmascript_refuses_is_malformed() {
    for pattern in [
        "(",
        ")",
        "a)",
        "(?",
        "(?:",
        "(?<n",
        "(?<>a)",
        "(?<1>a)",
        "(?P<n>a)",
        "(?>a)",
        "(?#a)",
        "(?i)a",
        "(?x:a)",
        "(?-:a)",
        "(?ii:a)",
        "[",
        "[a",
        "[b-a]",
        r"\",
        "*",
        "a|*",
        "(*)",
        "^*",
        "$+",
        r"\b?",
        "a**",
        "a{2}{3}",
        "{1}",
        "a{2,1}",
        "x{1}{1}",
        "(?<=a)*",
        "(?<!a)+",
        "(?<n>a)(?<n>b)",
        r"(?<n>a)\k",
        "[a--b]",
        "(?<n-m>a)",
        r"(?<\n>a)",
    ] {
        assert_eq!(kind(pattern, ""), Kind::Bad, "{pattern}");
    }
    for pattern in [
        "]",
        "{",
        "}",
        "a{",
        "a{1",
        "a{,1}",
        r"\a",
        r"\-",
        r"\_",
        r"\8",
        r"\00",
        r"\c",
        r"\x1",
        r"\u",
        r"\u{110000}",
        r"\u{}",
        r"\u{g}",
        r"\p",
        r"\pL",
        r"\p{",
        r"\p{}",
        r"\p{Foo}",
        r"\p{lu}",
        r"\p{Script=Foo}",
        r"\p{gc=Foo}",
        r"[\d-x]",
        r"[a-\w]",
        r"[\B]",
        r"\k",
        r"\k<n>",
        r"[\1]",
        r"(?=a)*",
        "[[:alpha:]]",
        r"\2(a)",
        r"[\c]",
    ] {
        let expected = if pattern == r"\k<n>" { Kind::Ruled } else { Kind::Bad };
        assert_eq!(kind(pattern, "u"), expected, "{pattern}");
    }
    for flags in ["g", "y", "d", "v", "ii", "umu", "I", " ", "é"] {
        assert_eq!(kind("a", flags), Kind::Bad, "{flags}");
    }
}

#[test]
fn what_only_some_implementations_read_alike_is_unsupported() {
    for pattern in [
        "]",
        "{",
        "}",
        "a{",
        "a{1",
        "a{,1}",
        "{a}",
        r"\a",
        r"\_",
        r"\8",
        r"\1",
        r"\00",
        r"\07",
        r"\c",
        r"\c1",
        r"\x1",
        r"\u",
        r"\u12",
        r"\u{3}",
        r"\p",
        r"\p{L}",
        r"[\d-x]",
        r"[a-\w]",
        r"[\B]",
        r"\k",
        r"\k<n>",
        r"[\1]",
        r"(?=a)*",
        r"(?!a){2}",
        "[[:alpha:]]",
        r"[\c]",
        r"[\c_]",
        r"\ud83d",
        r"\ude00",
        r"\ude00\ud83d",
        r"[\ud83d\ude00]",
        r"\ud83d\u0061",
        "(?i:a)",
        "(?-s:a)",
        "(?im-s:a)",
        "(?<n>a)|(?<n>b)",
        r"(?<\u0061>a)",
        r"\é",
        r"(?=a*|b)*",
        "a{99999999999,88888888888}",
    ] {
        assert_eq!(kind(pattern, ""), Kind::Unsupported, "{pattern}");
    }
    for pattern in [r"\ud83d", r"\u{d83d}", r"\p{Script=Garay}", r"\p{scx=Sidetic}", r"\p{CWKCF}", "(?s:a)"] {
        assert_eq!(kind(pattern, "u"), Kind::Unsupported, "{pattern}");
    }
    assert_eq!(kind(r"\p{Script=Greek}\P{gc=Lu}\p{Emoji}", "u"), Kind::Good);
}

#[test]
fn a_fault_that_all_share_is_found_behind_one_that_some_share() {
    assert_eq!(kind(r"\8(a|b)*", ""), Kind::Ruled);
    assert_eq!(kind("(?i:a)b)", ""), Kind::Bad);
    assert_eq!(kind("(?<n>a)|(?<n>b)(", ""), Kind::Bad);
}

#[test]
fn sizes_are_bounded() {
    use crate::limits::{REGEX_NODES_MAX, REGEX_PATTERN_UNITS_MAX};
    assert_eq!(kind(&"a".repeat(REGEX_PATTERN_UNITS_MAX), ""), Kind::Good);
    assert_eq!(kind(&"a".repeat(REGEX_PATTERN_UNITS_MAX + 1), ""), Kind::Bad);
    assert_eq!(kind(&"😀".repeat(REGEX_PATTERN_UNITS_MAX / 2), "u"), Kind::Good);
    assert_eq!(kind(&format!("{}a", "😀".repeat(REGEX_PATTERN_UNITS_MAX / 2)), "u"), Kind::Bad);
    assert_eq!(kind(&format!("a{{{REGEX_NODES_MAX}}}"), ""), Kind::Good);
    assert_eq!(kind(&format!("a{{{}}}", REGEX_NODES_MAX + 1), ""), Kind::Unsupported);
    assert_eq!(kind(&format!("a{{{}}}(?=b)", REGEX_NODES_MAX - 1), ""), Kind::Unsupported);
    assert_eq!(kind(&"(?=)".repeat(REGEX_LOOKAROUNDS_MAX), ""), Kind::Good);
    assert_eq!(kind(&"(?=)".repeat(REGEX_LOOKAROUNDS_MAX + 1), ""), Kind::Unsupported);
}

#[test]
fn depth_is_no_danger() {
    let half = 128;
    assert_eq!(answer(&("(".repeat(half) + &")".repeat(half)), "", "", false), Answer::Match);
    assert_eq!(kind(&"(".repeat(256), ""), Kind::Bad);
    let nested = "(?!".repeat(50) + "a" + &")".repeat(50);
    assert_eq!(answer(&format!("^{nested}"), "", "a", false), Answer::Match);
    let nested = "(?!".repeat(51) + "a" + &")".repeat(51);
    assert_eq!(answer(&format!("^{nested}"), "", "a", false), Answer::NoMatch);
}

#[test]
fn only_what_looks_at_the_end_is_in_doubt_there() {
    for (pattern, text) in [
        ("o$", "foo"),
        (r"foo\b", "foo"),
        (r"foo\B", "foo"),
        ("foo(?=b)", "foo"),
        ("foo(?!b)", "foo"),
        ("foo(?=ba)", "foob"),
        ("(?=foo)", "xfo"),
        ("^(?!.*bar)", "foo"),
        ("foo(?=$)", "foo"),
        (r"-\b", "a-"),
        (r"-\B", "a-"),
        ("(?<=oo(?!b))", "foo"),
        ("$", ""),
        (r"\b", ""),
        ("(?!.)$", "foo"),
        (r"\B", ""),
    ] {
        assert!(unknown(&answer(pattern, "", text, true)), "{pattern} on {text}");
    }
    for (pattern, text) in [
        ("foo", "foo"),
        ("foo$|f", "foo"),
        (r"o\B", "foo"),
        ("(?!b)f", "foo"),
        (r"(?=fo)", "foo"),
        ("(?<=foo)", "foo"),
        ("", ""),
        ("^", ""),
    ] {
        assert_eq!(answer(pattern, "", text, true), Answer::Match, "{pattern} on {text}");
    }
    for (pattern, text) in [
        ("foobar", "foo"),
        ("fo{3,}", "foo"),
        ("^b", "foo"),
        ("x$", "foo"),
        (r"x\b", "foo"),
        ("f(?=f)", "foo"),
        ("(?!f)f", "foo"),
        ("a(?=b)", ""),
    ] {
        assert_eq!(answer(pattern, "", text, true), Answer::NoMatch, "{pattern} on {text}");
    }
    // Under m the end of a line inside the window is certain.
    assert_eq!(answer("foo$", "m", "foo\nbar", true), Answer::Match);
    assert!(unknown(&answer("bar$", "m", "foo\nbar", true)));
}

#[test]
fn a_torn_character_is_in_doubt() {
    let torn = |pattern: &str, window: &[u8]| parsed(pattern, "").evaluate(window, true);
    assert!(unknown(&torn("foo\u{fffd}", b"foo\xE2\x82")));
    assert!(unknown(&torn("foo.", b"foo\xE2\x82")));
    assert_eq!(torn("foo", b"foo\xE2\x82"), Answer::Match);
    assert_eq!(torn("bar", b"foo\xE2\x82"), Answer::NoMatch);
    assert!(unknown(&torn(r"foo\b", b"foo\xE2\x82")));
    assert!(unknown(&torn("foo(?=\u{20ac})", b"foo\xE2\x82")));
    assert_eq!(
        torn("^$", b"\xEF\xBB"),
        Answer::Unknown { reason: "what follows the end of the window decides (V41)".to_owned() }
    );
    assert_eq!(parsed("foo\u{fffd}$", "").evaluate(b"foo\xE2\x82", false), Answer::Match);
}

#[test]
fn what_unicode_versions_disagree_about_is_unknown() {
    for (pattern, flags, text) in [
        (r"\p{L}", "u", "\u{a7dc}"),
        (r"\P{L}", "u", "\u{378}"),
        (r"[^\p{L}]", "u", "\u{378}"),
        (r"\p{Ll}", "u", "\u{295}"),
        (r"(?!\p{L})", "u", "\u{a7dc}"),
        ("[\u{a7d0}-\u{a7ff}]", "i", "\u{19b}"),
        ("\u{a7dc}", "i", "\u{19b}"),
        ("\u{19b}", "iu", "\u{a7dc}"),
    ] {
        let said = answer(&format!("^{pattern}$"), flags, text, false);
        if pattern.starts_with("(?!") {
            assert_eq!(said, Answer::NoMatch);
            assert!(unknown(&answer(&format!("^{pattern}"), flags, text, false)));
        } else {
            assert!(unknown(&said), "{pattern} {said:?}");
        }
    }
    assert_eq!(answer("^.$", "iu", "\u{a7dc}", false), Answer::Match);
    assert_eq!(answer("^[^x]$", "i", "\u{a7dc}", false), Answer::Match);
    assert_eq!(answer("x", "i", "\u{a7dc}", false), Answer::NoMatch);
    assert_eq!(answer("^\u{a7dc}$", "i", "\u{a7dc}", false), Answer::Match);
    assert_eq!(answer(r"\p{L}|\P{L}", "u", "\u{a7dc}a", false), Answer::Match);
}

#[test]
fn an_empty_match_inside_a_character_is_unknown() {
    for pattern in ["", r"\B", "(?=.*)", r"(?=\B)", "x*(?!b)", "(?<!.)", "(?![^])", "(?=(?!a)\\B)|x"] {
        assert!(unknown(&answer(&format!("(?!^)(?!$)(?:{pattern})"), "u", "😀", false)), "{pattern}");
    }
    assert!(unknown(&answer(r"\B", "u", "b😀k", false)));
    for pattern in [r"\b", "(?=.)", "(?<=.)", "(?<=[^])", "x", "(?!.*)", "(?=[^])(?!^)", "(?!(?!.))"] {
        assert_eq!(answer(&format!("(?!^)(?!$){pattern}"), "u", "😀", false), Answer::NoMatch, "{pattern}");
    }
    assert_eq!(answer(r"\B", "u", "bk", false), Answer::Match);
    assert_eq!(answer(r"b\B", "u", "b😀k", false), Answer::NoMatch);
    assert_eq!(answer(r"\B", "", "b😀k", false), Answer::Match);
}

#[test]
fn the_window_is_one_mebibyte() {
    let limit = usize::try_from(REGEX_WINDOW).unwrap();
    let mut window = vec![b'a'; limit];
    window.push(b'b');
    let ends = |pattern: &str, length: usize| parsed(pattern, "").evaluate(&window[..length], false);
    assert_eq!(ends("b", limit + 1), Answer::NoMatch);
    assert_eq!(ends("a$", limit), Answer::Match);
    assert!(unknown(&ends("a$", limit + 1)));
}

#[test]
fn work_is_counted_and_bounded() {
    let pattern = parsed(r"[^x]{200}\w{100}!", "");
    let window = "a".repeat(4_000);
    let spent = |steps: u64| pattern.evaluate_within(window.as_bytes(), false, steps, 0);
    let (mut low, mut high) = (0, REGEX_STEPS_MAX);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if spent(middle) == Answer::OverBudget { low = middle } else { high = middle }
    }
    assert_eq!(spent(high), Answer::NoMatch);
    assert_eq!(spent(high - 1), Answer::OverBudget);
    assert!(high > 4_000 * 15, "{high}");
}

/// The least budget that suffices, found by doubling and halving.
fn steps(pattern: &str, window: &str) -> u64 {
    let pattern = parsed(pattern, "");
    let spent = |steps: u64| pattern.evaluate_within(window.as_bytes(), false, steps, 0) == Answer::OverBudget;
    let mut high = 1;
    while spent(high) {
        high *= 2;
    }
    let mut low = high / 2;
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if spent(middle) { low = middle } else { high = middle }
    }
    high
}

/// V40: twice the text is twice the work, and twice the pattern is twice the work, whatever the pattern; no vicious
/// pattern of a backtracking engine is one here.
#[test]
fn work_grows_with_the_text_and_with_the_pattern_and_no_faster() {
    for (unit, tail) in [
        ("a*", "!"),
        ("a?", "a!"),
        ("[^x]*y", "!"),
        (r"\w{5}", "!"),
        ("(?=a*!)", "b"),
        ("(?<=a*)a", "b"),
        ("(?:ab|a)", "!"),
        (r"\ba*", r"\B!"),
        ("(?!a*b)a", "!"),
    ] {
        let pattern = |times: usize| format!("{}{tail}", unit.repeat(times));
        let (short, long) = ("a".repeat(300), "a".repeat(600));
        let (one, two) = (steps(&pattern(4), &short), steps(&pattern(4), &long));
        assert!(two <= 2 * one + 1_000, "{unit}: {one} steps, then {two} for twice the text");
        let wide = steps(&pattern(8), &short);
        assert!(wide <= 3 * one + 1_000, "{unit}: {one} steps, then {wide} for twice the pattern");
    }
}

#[test]
fn the_start_of_a_bounded_gap_is_not_told_apart_from_those_before_it() {
    let window: String = (0..40_000u32).map(|at| if at.wrapping_mul(at) % 7 < 3 { 'x' } else { 'a' }).collect();
    for (pattern, flags) in [
        ("x[^!]{0,80}!", ""),
        ("x[^!]{1,200}!", "i"),
        ("x.{0,80}y", "s"),
        ("x(?:\\B[ax]){0,50}!", ""),
        ("(?<=x[^!]{0,80})!", ""),
        ("(?=.{0,80}!)x", ""),
    ] {
        let (said, steps) = parsed(pattern, flags).evaluate_counted(window.as_bytes(), false);
        assert_eq!(said, Answer::NoMatch);
        assert!(steps < 40_000 * 20, "/{pattern}/: {steps} steps");
    }
}

#[test]
fn a_first_try_that_settles_nothing_costs_nothing() {
    // With its lookarounds the pattern is not there; without them it is, and only at the end.
    let window = format!("{}xy", "a".repeat(3_000));
    let plain = steps("xy", &window);
    let (said, looked) = parsed("x(?!y)y", "").evaluate_counted(window.as_bytes(), false);
    assert_eq!(said, Answer::NoMatch);
    // The body of the lookaround and the pattern, each once.
    assert!(looked < 3 * plain, "{looked} steps, {plain} for the pattern without its lookaround");
    let (said, settled) = parsed("x(?!y)z", "").evaluate_counted(window.as_bytes(), false);
    assert_eq!(said, Answer::NoMatch);
    assert!(settled < looked, "{settled} steps without judging the lookaround, {looked} with it");
}

#[test]
fn an_anchored_pattern_ends_with_its_last_chance() {
    let far = |head: &str| format!("{head}{}!", "a".repeat(5_000));
    for (pattern, text, expected) in [
        ("^a*!", far(""), Answer::Match),
        ("^b*!", far("bbb"), Answer::NoMatch),
        ("^(?=.*!)b", far("b"), Answer::Match),
        ("^(?=.*!)a{9}b", far(""), Answer::NoMatch),
        ("^(?:a|b)", far("c"), Answer::NoMatch),
        ("^a|!$", far("c"), Answer::Match),
        ("^|!", far(""), Answer::Match),
        ("(?:^a|c!)", format!("{}c!", far("b")), Answer::Match),
        ("^.{70}!", format!("{}!", "a".repeat(70)), Answer::Match),
        ("^.{70}!", format!("{}!", "a".repeat(71)), Answer::NoMatch),
    ] {
        assert_eq!(answer(pattern, "", &text, false), expected, "/{pattern}/");
    }
    assert_eq!(answer("^!", "m", "a\n!", false), Answer::Match);
    assert_eq!(answer("^a$", "", "a", true), Answer::Unknown { reason: END_DECIDES.to_owned() });
}

#[test]
fn the_version_is_named() {
    assert_eq!(Pattern::unicode_version(), "16.0.0");
}

/// A slow matcher for tests: explores every way through a tiny language, which is also what the strategies below write.
mod slow {
    use super::*;

    #[derive(Clone, Debug)]
    pub enum Part {
        Set(&'static str),
        Assert(&'static str),
        Repeat(Box<Part>, usize, Option<usize>),
        Row(Vec<Part>),
        Choice(Vec<Part>),
        Look { ahead: bool, negative: bool, body: Box<Part> },
    }

    impl Part {
        pub fn written(&self) -> String {
            match self {
                Part::Set(text) | Part::Assert(text) => (*text).to_owned(),
                Part::Repeat(part, min, max) => {
                    let max = max.map_or_else(String::new, |max| max.to_string());
                    let inner = part.written();
                    let inner = if let Part::Row(_) = **part { format!("(?:{inner})") } else { inner };
                    format!("{inner}{{{min},{max}}}")
                }
                Part::Row(parts) => parts.iter().map(Part::written).collect(),
                Part::Choice(parts) => {
                    let rows: Vec<String> = parts.iter().map(Part::written).collect();
                    format!("(?:{})", rows.join("|"))
                }
                Part::Look { ahead, negative, body } => {
                    let sign = if *negative { '!' } else { '=' };
                    format!("(?{}{sign}{})", if *ahead { "" } else { "<" }, body.written())
                }
            }
        }

        /// Where a match that begins at `from` may end.
        pub fn ends(&self, text: &[char], from: usize) -> Vec<usize> {
            let mut out = match self {
                Part::Set(set) => match text.get(from) {
                    Some(&letter) if takes(set, letter) => vec![from + 1],
                    _ => vec![],
                },
                Part::Assert(assertion) => {
                    if holds(assertion, text, from) {
                        vec![from]
                    } else {
                        vec![]
                    }
                }
                Part::Repeat(part, min, max) => {
                    let mut all = Vec::new();
                    let mut here = vec![from];
                    for count in 0..=max.unwrap_or(min + text.len() + 1) {
                        if count >= *min {
                            all.extend(&here);
                        }
                        here = here.iter().flat_map(|&at| part.ends(text, at)).collect();
                        here.sort_unstable();
                        here.dedup();
                    }
                    all
                }
                Part::Row(parts) => parts
                    .iter()
                    .fold(vec![from], |here, part| here.iter().flat_map(|&at| part.ends(text, at)).collect()),
                Part::Choice(parts) => parts.iter().flat_map(|part| part.ends(text, from)).collect(),
                Part::Look { ahead: true, negative, body } => {
                    if body.ends(text, from).is_empty() == *negative {
                        vec![from]
                    } else {
                        vec![]
                    }
                }
                Part::Look { ahead: false, negative, body } => {
                    let found = (0..=from).any(|start| body.ends(text, start).contains(&from));
                    if found != *negative { vec![from] } else { vec![] }
                }
            };
            out.sort_unstable();
            out.dedup();
            out
        }

        pub fn exists(&self, text: &[char]) -> bool {
            (0..=text.len()).any(|from| !self.ends(text, from).is_empty())
        }
    }

    fn takes(set: &str, letter: char) -> bool {
        match set {
            "." => letter != '\n',
            "[ab]" => matches!(letter, 'a' | 'b'),
            "[^a]" => letter != 'a',
            only => only.starts_with(letter),
        }
    }

    fn holds(assertion: &str, text: &[char], at: usize) -> bool {
        let word = |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(char::is_ascii_alphanumeric);
        let boundary = word(at.checked_sub(1)) != word(Some(at));
        match assertion {
            "^" => at == 0,
            "$" => at == text.len(),
            r"\b" => boundary,
            _ => !boundary,
        }
    }

    fn atom() -> impl Strategy<Value = Part> {
        prop_oneof![
            6 => prop::sample::select(vec!["a", "b", "-", ".", "[ab]", "[^a]"]).prop_map(Part::Set),
            1 => prop::sample::select(vec!["^", "$", r"\b", r"\B"]).prop_map(Part::Assert),
        ]
    }

    fn counted() -> impl Strategy<Value = Part> {
        let set = prop::sample::select(vec!["a", "b", ".", "[ab]", "[^a]"]).prop_map(Part::Set);
        let operand = prop_oneof![set, prop::collection::vec(atom(), 1..4).prop_map(Part::Row)];
        (operand, 0usize..3, prop::option::of(0usize..3))
            .prop_map(|(part, min, more)| Part::Repeat(Box::new(part), min, more.map(|more| min + more)))
    }

    pub fn part() -> impl Strategy<Value = Part> {
        let leaf = prop_oneof![3 => atom(), 1 => counted()];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                3 => prop::collection::vec(inner.clone(), 0..5).prop_map(Part::Row),
                1 => prop::collection::vec(inner.clone(), 2..4).prop_map(Part::Choice),
                1 => (any::<bool>(), any::<bool>(), inner)
                    .prop_map(|(ahead, negative, body)| Part::Look { ahead, negative, body: Box::new(body) }),
            ]
        })
    }

    pub fn text() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!['a', 'b', '-', '\n']), 0..9)
            .prop_map(|letters| letters.into_iter().collect())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_way_of_running_agrees_with_exploring(part in slow::part(), text in slow::text()) {
        let pattern = part.written();
        prop_assume!(pattern.len() <= 200);
        let parsed = parsed(&pattern, "");
        let letters: Vec<char> = text.chars().collect();
        let expected = if part.exists(&letters) { Answer::Match } else { Answer::NoMatch };
        for table_max in [0, 12, 40, REGEX_TABLE_MAX] {
            let said = parsed.evaluate_within(text.as_bytes(), false, REGEX_STEPS_MAX, table_max);
            prop_assert_eq!(&said, &expected, "/{}/ on {:?}, table {}", pattern, text, table_max);
        }
    }

    /// V41: what is answered about a window holds for the window alone and for every way it can go on, in the sense that
    /// a match is certain, and no match means that none lies within the window.
    #[test]
    fn answers_about_a_cut_window_hold_for_every_continuation(
        part in slow::part(), window in slow::text(), rests in prop::collection::vec(slow::text(), 1..6)
    ) {
        let pattern = part.written();
        prop_assume!(pattern.len() <= 200);
        let parsed = parsed(&pattern, "");
        let said = parsed.evaluate(window.as_bytes(), true);
        let inside = |rest: &str| {
            let whole: Vec<char> = format!("{window}{rest}").chars().collect();
            let length = window.chars().count();
            (0..=length).any(|from| part.ends(&whole, from).iter().any(|&end| end <= length))
        };
        let seen: Vec<bool> = rests.iter().map(String::as_str).chain([""]).map(inside).collect();
        match said {
            Answer::Match => prop_assert!(seen.iter().all(|&found| found), "/{}/ on {:?} {:?}", pattern, window, rests),
            Answer::NoMatch => prop_assert!(!seen.iter().any(|&found| found), "/{}/ on {:?} {:?}", pattern, window, rests),
            _ => {}
        }
        if !pattern.contains(['$', '\\']) && !pattern.contains("(?=") && !pattern.contains("(?!") {
            prop_assert_eq!(said, parsed.evaluate(window.as_bytes(), false));
        }
    }

    #[test]
    fn any_cut_of_the_bytes_is_safe(pattern in prop::sample::select(vec!["é", ".$", "é\\B", "(?=€)", "[^a]€", "^.{3}$", "a(?!€)", "😀", "\u{fffd}"]),
        unicode in any::<bool>(), text in "[aé€😀]{0,6}", cut in 0usize..24)
    {
        let flags = if unicode { "u" } else { "" };
        let parsed = parsed(pattern, flags);
        let bytes = text.as_bytes();
        let cut = cut.min(bytes.len());
        // The longest text of whole characters before the cut is what any reading has to agree about.
        let whole = (0..=cut).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        match parsed.evaluate(&bytes[..cut], true) {
            Answer::Match => {
                prop_assert_eq!(parsed.evaluate(bytes, false), Answer::Match);
                prop_assert_eq!(parsed.evaluate(&bytes[..cut], false), Answer::Match);
                prop_assert_eq!(parsed.evaluate(&bytes[..whole], false), Answer::Match);
            }
            Answer::NoMatch => {
                prop_assert_eq!(parsed.evaluate(&bytes[..cut], false), Answer::NoMatch);
                prop_assert_eq!(parsed.evaluate(&bytes[..whole], false), Answer::NoMatch);
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// On long texts, where the table fills and is emptied, against another engine.
    #[test]
    fn long_texts_agree_with_another_engine(
        pattern in prop::sample::select(vec![
            "a[^c]{1,9}b[ab-]{0,40}ccc", "(?:a[^-]){1,30}-c-a", "a[ab]{12}c", "[^c]{20}[ab]{9}-", "(?:ab){3,}c", "b[ab-]{0,30}cc", "a.{9}b.{9}c.{9}-$", "^[ab]*-", "(?:a|b-|c[ab]*)--a", "^[abc-]*--a", "^[^x]{40}[^-]*-b", "^a.{3,90}cc",
        ]),
        seed in any::<u64>(), length in 0usize..20_000)
    {
        let mut state = seed;
        let text: String = (0..length).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ['a', 'b', 'c', '-', 'a', 'b', 'b', 'a'][usize::try_from(state >> 61).unwrap()]
        }).collect();
        let other = regex_automata::meta::Regex::new(&pattern.replace('$', r"\z")).unwrap();
        let expected = if other.is_match(&text) { Answer::Match } else { Answer::NoMatch };
        for table_max in [0, 300, 3_000, REGEX_TABLE_MAX] {
            prop_assert_eq!(parsed(pattern, "").evaluate_within(text.as_bytes(), false, REGEX_STEPS_MAX, table_max), expected.clone());
        }
    }
}
