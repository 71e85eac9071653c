//! What the program says and where: data to stdout, everything else to stderr, words before colour.
//!
//! Promises: a reader that goes away is not a failure; a disk that cannot take the output is. With `--json` the answer
//! of a command, a failure included, is one document on stdout. Text from others is printed with its control
//! characters escaped, so that no peer can move the cursor of a terminal.

use crate::refusal::{Exit, Refusal};
use crate::wire::invisible::misleads;
use serde_json::{Value, json};
use std::cell::Cell;
use std::fmt::{self, Display};
use std::io::{self, ErrorKind, IsTerminal, Write};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    #[default]
    Auto,
    Always,
    Never,
}

/// The two streams of the program, and how it was asked to use them.
pub struct Out {
    pub json: bool,
    pub quiet: bool,
    colour_out: bool,
    colour_err: bool,
    disk: Cell<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Good,
    Bad,
    Doubt,
    Strong,
    Faint,
}

/// Why a command did not do what was asked: what, where, why, and how to mend it.
#[derive(Clone, Debug)]
pub struct Failure {
    pub exit: Exit,
    pub what: String,
    /// A file, a variable, a URL.
    pub at: Option<String>,
    pub why: Option<String>,
    pub hint: Option<String>,
    /// The number of the rule that refused.
    pub rule: Option<u16>,
    /// The protocol's code, when a house answered.
    pub code: Option<u16>,
    pub faults: Option<Box<Faults>>,
}

/// What is wrong in a file.
#[derive(Clone, Debug)]
pub struct Faults {
    /// With source lines, ready to print after the message.
    pub shown: String,
    pub data: Vec<Value>,
}

impl Failure {
    pub fn new(exit: Exit, what: impl Into<String>) -> Self {
        Failure { exit, what: what.into(), at: None, why: None, hint: None, rule: None, code: None, faults: None }
    }

    pub fn usage(what: impl Into<String>) -> Self {
        Failure::new(Exit::Usage, what)
    }

    pub fn at(mut self, place: impl Display) -> Self {
        self.at = Some(place.to_string());
        self
    }

    pub fn why(mut self, why: impl Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    pub fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    fn to_json(&self) -> Value {
        json!({
            "schema": "verifica.error/1", "exit": self.exit.code(), "what": self.what, "where": self.at, "why": self.why,
            "hint": self.hint, "rule": self.rule, "code": self.code, "diagnostics": self.faults.as_ref().map(|faults| faults.data.as_slice()).unwrap_or_default(),
        })
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let mut failure = Failure::new(Exit::from(&refusal), refusal.reason.clone());
        failure.rule = Some(refusal.rule.number());
        failure.code = Some(refusal.code());
        if let Some(seconds) = refusal.retry_after {
            failure.hint = Some(format!("try again in {seconds} s"));
        }
        failure
    }
}

impl Out {
    pub fn new(json: bool, quiet: bool, colour: When) -> Self {
        Out {
            json,
            quiet,
            colour_out: wants_colour(colour, io::stdout().is_terminal()),
            colour_err: wants_colour(colour, io::stderr().is_terminal()),
            disk: Cell::new(false),
        }
    }

    /// A line of data.
    pub fn line(&self, text: impl Display) {
        self.raw(format!("{text}\n").as_bytes());
    }

    /// Bytes of data as they are.
    pub fn raw(&self, bytes: &[u8]) {
        let mut stdout = io::stdout().lock();
        if let Err(error) = stdout.write_all(bytes).and_then(|()| stdout.flush())
            && error.kind() != ErrorKind::BrokenPipe
        {
            self.disk.set(true);
        }
    }

    /// A document of data: one line in a pipe, indented for eyes. What could move a terminal is escaped as JSON does it.
    pub fn doc(&self, doc: &Value) {
        let text =
            if io::stdout().is_terminal() { serde_json::to_string_pretty(doc) } else { serde_json::to_string(doc) };
        self.line(escaped(&text.unwrap_or_default()));
    }

    /// Prose: nothing a script would read.
    pub fn say(&self, text: impl Display) {
        if !self.quiet {
            self.err(text);
        }
    }

    /// A line on stderr, whatever was asked.
    pub fn err(&self, text: impl Display) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    pub fn paint(&self, style: Style, text: impl Display) -> String {
        paint(self.colour_out, style, text)
    }

    pub fn paint_err(&self, style: Style, text: impl Display) -> String {
        paint(self.colour_err, style, text)
    }

    pub fn colours_errors(&self) -> bool {
        self.colour_err
    }

    pub fn colours_data(&self) -> bool {
        self.colour_out
    }

    /// Whether a line may be drawn over while work goes on.
    pub fn shows_progress(&self) -> bool {
        !self.quiet && !self.json && io::stderr().is_terminal()
    }

    /// Says why a command failed, and with which code the program ends.
    pub fn fail(&self, failure: &Failure) -> Exit {
        if self.json {
            self.doc(&failure.to_json());
            return failure.exit;
        }
        let label = if failure.exit == Exit::Refused { "refused" } else { "error" };
        let number = failure.rule.map(|rule| format!("[VER-{rule:04}]")).unwrap_or_default();
        self.err(format!("{}: {}", self.paint_err(Style::Bad, format!("{label}{number}")), clean(&failure.what)));
        for (name, value) in [("-->", &failure.at), (" = why:", &failure.why)] {
            if let Some(value) = value {
                self.err(format!("  {name} {}", clean(value)));
            }
        }
        if let Some(faults) = &failure.faults {
            self.err(faults.shown.trim_end());
        }
        if let Some(hint) = &failure.hint {
            self.err(format!("{}: {}", self.paint_err(Style::Strong, "hint"), clean(hint)));
        }
        failure.exit
    }

    /// The code to end with, once everything was said.
    pub fn settle(&self, exit: Exit) -> Exit {
        if self.disk.get() {
            self.err("error: the output could not be written: the disk or the device refused it");
            return Exit::Disk;
        }
        exit
    }
}

/// Text from somebody else, safe for a terminal: control and direction-changing characters are escaped, length capped.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().take(SHOWN_CHARS_MAX) {
        match c {
            '\n' => out.push_str("\n    "),
            '\t' => out.push(' '),
            c if misleads(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    if text.chars().count() > SHOWN_CHARS_MAX {
        out.push('…');
    }
    out
}

/// A JSON text that says the same and moves no terminal.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !misleads(c) {
            out.push(c);
            continue;
        }
        let mut units = [0u16; 2];
        c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
    }
    out
}

/// The text of a file as it can be shown, of the same length in bytes, so that places in it stay where they are.
pub fn visible_source(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match (c, c.len_utf8()) {
            ('\n' | '\t', _) => out.push(c),
            ('\r', _) => out.push(' '),
            _ if !misleads(c) => out.push(c),
            (_, 1) => out.push('?'),
            (_, 2) => out.push_str("??"),
            (_, 3) => out.push('\u{fffd}'),
            (_, _) => out.push_str("\u{fffd}?"),
        }
    }
    out
}

/// As [`clean`], on one line, with single spaces, and at most `width` characters.
pub fn brief(text: &str, width: usize) -> String {
    fit(&clean(text).split_whitespace().collect::<Vec<_>>().join(" "), width)
}

/// At most `width` characters of a text that is clean already.
pub fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let cut: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{cut}…")
}

fn paint(colour: bool, style: Style, text: impl Display) -> String {
    let code = match style {
        Style::Good => "32",
        Style::Bad => "1;31",
        Style::Doubt => "33",
        Style::Strong => "1",
        Style::Faint => "2",
    };
    if colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_string() }
}

/// `NO_COLOR` and `TERM=dumb` switch it off, `CLICOLOR_FORCE` on, the flag decides before all of them.
fn wants_colour(when: When, terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto if set("NO_COLOR") => false,
        When::Auto if set("CLICOLOR_FORCE") => true,
        When::Auto => terminal && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

const SHOWN_CHARS_MAX: usize = 4_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_sources_move_no_terminal_and_stay_what_they_are() {
        let said = json!({"a\u{9b}": "\u{7f}\u{202e}\u{e0041}\u{1b}ñ", "b": [1, "\n"]});
        for text in [said.to_string(), serde_json::to_string_pretty(&said).unwrap_or_default()] {
            let shown = escaped(&text);
            assert!(!shown.chars().any(|c| c != '\n' && misleads(c)), "{shown}");
            assert_eq!(serde_json::from_str::<Value>(&shown).ok().as_ref(), Some(&said));
        }
        let source = "a\u{1b}\u{9b}\u{2028}\u{e0041}ñ\r\n\tb";
        assert_eq!(visible_source(source), "a???\u{fffd}\u{fffd}?ñ \n\tb");
        assert_eq!(visible_source(source).len(), source.len());
    }

    #[test]
    fn nothing_of_a_stranger_moves_the_cursor() {
        assert_eq!(clean("a\u{1b}[2Jb\u{202e}c\u{7}"), "a\\u{1b}[2Jb\\u{202e}c\\u{7}");
        assert_eq!(clean("a\u{9b}31m\u{61c}\u{2028}\u{ad}"), "a\\u{9b}31m\\u{61c}\\u{2028}\\u{ad}");
        assert_eq!(brief("one\n two\tthree", 80), "one two three");
        assert_eq!(brief("abcdef", 4), "abc…");
        assert!(clean(&"x".repeat(SHOWN_CHARS_MAX + 1)).ends_with('…'));
        assert_eq!(clean(&"x".repeat(SHOWN_CHARS_MAX)).len(), SHOWN_CHARS_MAX);
    }

    #[test]
    fn colour_repeats_words_and_is_absent_when_off() {
        assert_eq!(paint(false, Style::Bad, "FAIL"), "FAIL");
        assert_eq!(paint(true, Style::Bad, "FAIL"), "\u{1b}[1;31mFAIL\u{1b}[0m");
        assert!(wants_colour(When::Always, false));
        assert!(!wants_colour(When::Never, true));
    }
}
