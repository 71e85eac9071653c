//! How a configuration text becomes values: one tree of the file and the environment, read section by section.
//!
//! Promises: every fault is kept, none stops the reading; each names its place; a key that nobody asked for is a fault
//! with the nearest known name. Deliberately absent: what the keys mean.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use toml::de::{DeTable, DeValue};

/// One thing to say about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub level: Level,
    /// What is wrong. Lower case, no full stop.
    pub message: String,
    pub at: At,
    /// How to mend it.
    pub hint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Error,
    Warning,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// Bytes of the text.
    Span(Range<usize>),
    /// A variable of the environment.
    Env(String),
    /// The text as a whole: something is missing from it.
    Whole,
}

impl Diagnostic {
    pub fn error(at: At, message: impl Into<String>) -> Self {
        Diagnostic { level: Level::Error, message: message.into(), at, hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Line and column, both from one, of a byte of the text; columns count characters.
pub fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte.min(text.len())).unwrap_or(text);
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
    (line, column)
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub value: Val,
    pub at: At,
}

#[derive(Clone, Debug)]
pub(super) enum Val {
    Text(String),
    Integer(i64),
    Boolean(bool),
    List(Vec<Node>),
    Table(Entries),
    /// From the environment: what it is depends on who reads it.
    Env(String),
    /// A kind that no key takes, by its name.
    Other(&'static str),
}

pub(super) type Entries = BTreeMap<String, (At, Node)>;

/// The names that belong to the program and not to the file.
const PROGRAM_VARIABLES: [&str; 5] =
    ["VERIFICA_CONFIG", "VERIFICA_AGENT", "VERIFICA_HOUSE", "VERIFICA_LOG", "VERIFICA_COLOR"];
const PREFIX: &str = "VERIFICA_";

/// Reads the text and lays the environment over it.
pub(super) fn tree(text: &str, env: &BTreeMap<String, String>, known: &[&str]) -> (Entries, Vec<Diagnostic>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut faults: Vec<Diagnostic> = errors
        .iter()
        .map(|e| Diagnostic::error(e.span().map_or(At::Whole, At::Span), format!("not TOML: {}", e.message())))
        .collect();
    let mut entries = entries_of(table.get_ref());
    for (name, value) in env {
        let Some(path) = name.strip_prefix(PREFIX).filter(|_| !PROGRAM_VARIABLES.contains(&name.as_str())) else {
            continue;
        };
        let path: Vec<String> = path.split("__").map(str::to_ascii_lowercase).collect();
        let first = path.first().map(String::as_str).unwrap_or_default();
        if path.len() == 1 && !known.contains(&first) {
            // Container platforms set such names for a service called verifica; they are not the operator's words.
            let hint = nearest(first, known).map(|near| format!("did you mean {PREFIX}{}", near.to_uppercase()));
            faults.push(Diagnostic {
                level: Level::Warning,
                message: format!("no key is set by the variable {name}; it is ignored"),
                at: At::Env(name.clone()),
                hint,
            });
            continue;
        }
        if let Err(fault) = lay_over(&mut entries, &path, name, value) {
            faults.push(fault);
        }
    }
    (entries, faults)
}

fn lay_over(entries: &mut Entries, path: &[String], name: &str, value: &str) -> Result<(), Diagnostic> {
    let at = At::Env(name.to_owned());
    let Some((key, rest)) = path.split_first() else { return Ok(()) };
    if rest.is_empty() {
        entries.insert(key.clone(), (at.clone(), Node { value: Val::Env(value.to_owned()), at }));
        return Ok(());
    }
    let empty = Node { value: Val::Table(Entries::new()), at: at.clone() };
    let (_, node) = entries.entry(key.clone()).or_insert_with(|| (at.clone(), empty));
    match &mut node.value {
        Val::Table(inner) => lay_over(inner, rest, name, value),
        _ => Err(Diagnostic::error(at, format!("{key} is not a section, so {name} sets nothing"))),
    }
}

fn entries_of(table: &DeTable<'_>) -> Entries {
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let key: &toml::Spanned<std::borrow::Cow<'_, str>> = key;
        (key.get_ref().to_string(), (At::Span(key.span()), node_of(value)))
    };
    table.iter().map(entry).collect()
}

fn node_of(value: &toml::Spanned<DeValue<'_>>) -> Node {
    let inner = match value.get_ref() {
        DeValue::String(text) => Val::Text(text.to_string()),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            i64::from_str_radix(&digits, number.radix()).map_or(Val::Other("an integer beyond 64 bits"), Val::Integer)
        }
        DeValue::Boolean(flag) => Val::Boolean(*flag),
        DeValue::Array(items) => Val::List(items.iter().map(node_of).collect()),
        DeValue::Table(table) => Val::Table(entries_of(table)),
        DeValue::Float(_) => Val::Other("a number with a fraction"),
        DeValue::Datetime(_) => Val::Other("a date"),
    };
    Node { value: inner, at: At::Span(value.span()) }
}

/// One table while it is read. What was not asked for by the end is unknown.
pub(super) struct Section {
    path: String,
    at: At,
    entries: Entries,
    known: Vec<&'static str>,
    faults: Faults,
}

pub(super) type Faults = Rc<RefCell<Vec<Diagnostic>>>;

impl Section {
    pub fn new(path: String, at: At, entries: Entries, faults: &Faults) -> Self {
        Section { path, at, entries, known: Vec::new(), faults: faults.clone() }
    }

    /// A fault of the section as a whole, at its heading.
    pub fn fault_here(&self, message: impl Into<String>, hint: &str) {
        self.fault(Diagnostic::error(self.at.clone(), message).hint(hint));
    }

    /// Whether the key stands there, readable or not.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    pub fn fault(&self, fault: Diagnostic) {
        self.faults.borrow_mut().push(fault);
    }

    pub fn faults_any(&self, test: impl Fn(&Diagnostic) -> bool) -> bool {
        self.faults.borrow().iter().any(test)
    }

    /// A table that was reached by a key which is data.
    pub fn child(&self, path: String, at: At, entries: Entries) -> Section {
        Section::new(path, at, entries, &self.faults)
    }

    /// The value of a key, if it is there and can be read.
    pub fn maybe<T>(&mut self, key: &'static str, read: impl FnOnce(&Val) -> Result<T, String>) -> Option<(T, At)> {
        self.known.push(key);
        let (_, node) = self.entries.remove(key)?;
        match read(&node.value) {
            Ok(value) => Some((value, node.at)),
            Err(why) => {
                self.fault(Diagnostic::error(node.at, format!("{}: {why}", self.name(key))));
                None
            }
        }
    }

    pub fn get<T>(&mut self, key: &'static str, default: T, read: impl FnOnce(&Val) -> Result<T, String>) -> T {
        self.maybe(key, read).map_or(default, |(value, _)| value)
    }

    /// A sub-table; an absent one is empty.
    pub fn section(&mut self, key: &'static str) -> Section {
        self.optional_section(key)
            .unwrap_or_else(|| Section::new(self.name(key), At::Whole, Entries::new(), &self.faults))
    }

    pub fn optional_section(&mut self, key: &'static str) -> Option<Section> {
        let at = self.entries.get(key).map_or(At::Whole, |(at, _)| at.clone());
        let (entries, _) = self.maybe(key, table)?;
        Some(Section::new(self.name(key), at, entries, &self.faults))
    }

    /// The entries of a table whose keys are data.
    pub fn each(&mut self, key: &'static str) -> Vec<(String, At, Node)> {
        let entries = self.maybe(key, table).map(|(entries, _)| entries).unwrap_or_default();
        entries.into_iter().map(|(name, (at, node))| (name, at, node)).collect()
    }

    pub fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Reports what nobody asked for.
    pub fn finish(self) {
        for (key, (at, _)) in &self.entries {
            let fault = Diagnostic::error(at.clone(), format!("unknown key {}", self.name(key)));
            let fault = match nearest(key, &self.known) {
                Some(near) => fault.hint(format!("did you mean {}", self.name(near))),
                None => fault.hint(format!("known here: {}", self.known.join(", "))),
            };
            self.fault(fault);
        }
    }
}

pub(super) fn table(value: &Val) -> Result<Entries, String> {
    match value {
        Val::Table(entries) => Ok(entries.clone()),
        Val::Env(text) => match from_env(text) {
            Some(Val::Table(entries)) => Ok(entries),
            _ => Err("expected an inline table such as { name = \"value\" }".into()),
        },
        other => Err(format!("expected a table, got {}", kind(other))),
    }
}

pub(super) fn text(value: &Val) -> Result<String, String> {
    match value {
        Val::Text(text) | Val::Env(text) => Ok(text.clone()),
        other => Err(format!("expected a text in quotes, got {}", kind(other))),
    }
}

pub(super) fn boolean(value: &Val) -> Result<bool, String> {
    match value {
        Val::Boolean(flag) => Ok(*flag),
        Val::Env(text) if text == "true" => Ok(true),
        Val::Env(text) if text == "false" => Ok(false),
        other => Err(format!("expected true or false, got {}", kind(other))),
    }
}

/// A whole number within bounds, both included.
pub(super) fn integer(min: u64, max: u64) -> impl Fn(&Val) -> Result<u64, String> {
    move |value| {
        let number = match value {
            Val::Integer(number) => Some(*number),
            Val::Env(text) => text.parse().ok(),
            _ => None,
        };
        let Some(number) = number else { return Err(format!("expected a whole number, got {}", kind(value))) };
        u64::try_from(number)
            .ok()
            .filter(|n| (min..=max).contains(n))
            .ok_or_else(|| format!("{number} is out of range; allowed: {min} to {max}"))
    }
}

/// An integer with `ms`, `s`, `m`, `h` or `d`, within bounds in milliseconds.
pub(super) fn duration(min_ms: i64, max_ms: i64) -> impl Fn(&Val) -> Result<i64, String> {
    move |value| {
        let shown = text(value).map_err(|_| format!("expected a duration such as \"10s\", got {}", kind(value)))?;
        let ms = parse_duration(&shown)?;
        if (min_ms..=max_ms).contains(&ms) {
            return Ok(ms);
        }
        Err(format!("{shown} is out of range; allowed: {} to {}", show_duration(min_ms), show_duration(max_ms)))
    }
}

pub fn parse_duration(shown: &str) -> Result<i64, String> {
    let digits = shown.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = shown.split_at(digits);
    let unit_ms: i64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("{shown:?} is not a duration; write an integer with ms, s, m, h or d, such as 10s")),
    };
    let number: i64 =
        number.parse().map_err(|_| format!("{shown:?} is not a duration; the number is missing or too long"))?;
    number.checked_mul(unit_ms).ok_or_else(|| format!("{shown} is too long"))
}

/// In the largest unit that divides it.
pub fn show_duration(ms: i64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let fits = units.iter().find(|(size, _)| ms != 0 && ms % size == 0);
    fits.map_or_else(|| format!("{ms}ms"), |(size, unit)| format!("{}{unit}", ms / size))
}

/// A text that a type can be parsed from.
pub(super) fn parsed<T: std::str::FromStr>(value: &Val) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    let shown = text(value)?;
    shown.parse().map_err(|e: T::Err| format!("{shown:?}: {e}"))
}

pub(super) fn one_of<T: Copy>(choices: &[(&'static str, T)]) -> impl Fn(&Val) -> Result<T, String> {
    move |value| {
        let shown = text(value)?;
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        choices.iter().find(|(name, _)| *name == shown).map(|(_, choice)| *choice).ok_or_else(|| {
            let near = nearest(&shown, &names).map(|near| format!("; did you mean {near:?}")).unwrap_or_default();
            format!("{shown:?} is none of {}{near}", names.join(", "))
        })
    }
}

/// A list; from the environment a TOML list, or items between commas.
pub(super) fn list<T>(item: impl Fn(&Val) -> Result<T, String>) -> impl Fn(&Val) -> Result<Vec<T>, String> {
    move |value| {
        let read = |nodes: &[Node]| nodes.iter().map(|node| item(&node.value)).collect();
        match value {
            Val::List(nodes) => read(nodes),
            Val::Env(text) if text.trim_start().starts_with('[') => match from_env(text) {
                Some(Val::List(nodes)) => read(&nodes),
                _ => Err("expected a list such as [\"a\", \"b\"]".into()),
            },
            Val::Env(text) => {
                let items = text.split(',').map(str::trim).filter(|piece| !piece.is_empty());
                items.map(|piece| item(&Val::Env(piece.to_owned()))).collect()
            }
            other => Err(format!("expected a list such as [\"a\", \"b\"], got {}", kind(other))),
        }
    }
}

fn from_env(text: &str) -> Option<Val> {
    let whole = format!("value = {text}");
    let table = DeTable::parse(&whole).ok()?;
    let (_, node) = entries_of(table.get_ref()).remove("value")?;
    Some(node.value)
}

fn kind(value: &Val) -> String {
    match value {
        Val::Text(_) => "a text".into(),
        Val::Integer(number) => format!("the number {number}"),
        Val::Boolean(flag) => flag.to_string(),
        Val::List(_) => "a list".into(),
        Val::Table(_) => "a table".into(),
        Val::Env(text) => format!("{text:?}"),
        Val::Other(name) => (*name).into(),
    }
}

/// The known name that a typing error most likely meant: at most a third of it differs.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let scored = known.iter().map(|name| (distance(word, name), *name));
    scored
        .filter(|(far, name)| *far <= name.chars().count().max(3) / 3)
        .min_by_key(|(far, _)| *far)
        .map(|(_, name)| name)
}

/// Edits (insert, delete, replace, swap of neighbours) between two short words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_an_integer_and_a_unit() {
        for (text, ms) in
            [("0ms", 0), ("250ms", 250), ("10s", 10_000), ("5m", 300_000), ("72h", 259_200_000), ("3d", 259_200_000)]
        {
            assert_eq!(parse_duration(text), Ok(ms), "{text}");
        }
        for bad in ["", "10", "s", "1.5s", "-1s", "10 s", "10S", "1w", "99999999999999999999s", "9223372036854775807d"]
        {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(show_duration(259_200_000), "3d");
        assert_eq!(show_duration(1_500), "1500ms");
        assert_eq!(show_duration(0), "0ms");
    }

    #[test]
    fn suggestions_are_near_or_absent() {
        let known = ["registration", "mail", "libro", "public_url"];
        assert_eq!(nearest("registraton", &known), Some("registration"));
        assert_eq!(nearest("mial", &known), Some("mail"));
        assert_eq!(nearest("publicurl", &known), Some("public_url"));
        assert_eq!(nearest("quorum", &known), None);
    }

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        assert_eq!(position("a\nñb", 0), (1, 1));
        assert_eq!(position("a\nñb", 4), (2, 2));
        assert_eq!(position("a", 99), (1, 2));
    }
}
