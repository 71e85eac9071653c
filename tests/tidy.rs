//! The shape of the house, as tests over its own source: pure rooms stay pure, arrows run one way, `unsafe` stays in
//! the sandbox, files stay readable, nothing lies dead. Each failure names the place and what to do instead.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms without IO, clock, chance or async.
const PURE: &[&str] = &[
    "limits", "refusal", "time", "ids", "wire", "probe", "verdict", "attest", "record", "mail", "libro", "arbiter",
    "sim",
];

/// Lower ranks know nothing of higher ones. Rooms of one rank may know each other only where `ALLOWED_ACROSS` says so.
const RANKS: &[(&str, u8)] = &[
    ("limits", 0),
    ("refusal", 0),
    ("time", 0),
    ("ids", 0),
    ("wire", 1),
    ("probe", 2),
    ("verdict", 3),
    ("attest", 3),
    ("record", 4),
    ("arbiter", 5),
    ("libro", 6),
    ("mail", 7),
    ("store", 8),
    ("sandbox", 8),
    ("objects", 8),
    ("observe", 9),
    ("client", 9),
    ("server", 10),
    ("daemon", 11),
    ("config", 12),
    ("cli", 13),
    ("sim", 14),
];

/// What a pure room may not name, and what to use instead.
const IMPURE: &[(&str, &str)] = &[
    ("tokio", "return an effect and let a worker act"),
    ("std::fs", "take the bytes as an argument"),
    ("std::thread", "return an effect and let a worker act"),
    ("std::time", "take a time::Timestamp"),
    ("SystemTime", "take a time::Timestamp"),
    ("Instant", "take a time::Timestamp"),
    ("std::process", "return an effect and let a worker act"),
    ("std::env", "take the value as an argument"),
    ("std::io", "take the bytes as an argument"),
    ("TcpStream", "take an observation"),
    ("UdpSocket", "take an observation"),
    ("getrandom", "take ids::Ids"),
    ("OsRng", "take ids::Ids"),
    ("HashMap", "use BTreeMap: the order of a HashMap differs from run to run"),
    ("HashSet", "use BTreeSet: the order of a HashSet differs from run to run"),
    ("async fn", "return an effect and let a worker act"),
    (".await", "return an effect and let a worker act"),
    ("reqwest", "take an observation"),
    ("rusqlite", "take a record::View"),
    ("println!", "return the text"),
    ("tracing", "return the fact"),
    ("::now()", "take a time::Timestamp"),
    ("new_v4", "take ids::Ids"),
    ("now_v7", "take ids::Ids"),
];

const FILE_LINES_MAX: usize = 800;

/// The numbered rules of verification that every build must prove, first and last of each run of numbers.
const RULES: &[(u8, u8)] = &[(1, 8), (10, 12), (20, 27), (30, 45), (60, 63), (70, 86)];

struct Source {
    path: PathBuf,
    room: String,
    text: String,
    /// Comments and literals blanked, lines kept.
    code: String,
}

/// V7 with it: what judges has no clock to ask.
#[test]
fn pure_rooms_are_pure() {
    let mut faults = Vec::new();
    for source in sources().iter().filter(|s| PURE.contains(&s.room.as_str())) {
        for (at, line) in without_tests(&source.code).lines().enumerate() {
            for (name, instead) in IMPURE {
                if mentions(line, name) {
                    faults.push(format!("{}:{}: `{name}` in a pure room: {instead}", source.path.display(), at + 1));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn arrows_run_one_way() {
    let ranks: BTreeMap<&str, u8> = RANKS.iter().copied().collect();
    let mut faults = Vec::new();
    for source in sources().iter().filter(|s| s.room != "lib" && s.room != "main") {
        let Some(own) = ranks.get(source.room.as_str()) else {
            faults.push(format!("{}: the room `{}` has no rank in tests/tidy.rs", source.path.display(), source.room));
            continue;
        };
        for (at, line) in without_tests(&source.code).lines().enumerate() {
            for target in rooms_named(line) {
                let Some(rank) = ranks.get(target.as_str()) else { continue };
                if rank > own || (rank == own && target != source.room && *own > 0) {
                    faults.push(format!(
                        "{}:{}: {} (rank {own}) may not know {target} (rank {rank})",
                        source.path.display(),
                        at + 1,
                        source.room
                    ));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn unsafe_stays_in_the_sandbox() {
    let mut faults = Vec::new();
    for source in sources().iter().filter(|s| s.room != "sandbox") {
        for (at, line) in source.code.lines().enumerate() {
            let lint = line.contains("unsafe_code");
            if mentions(line, "unsafe") && !lint {
                faults.push(format!("{}:{}", source.path.display(), at + 1));
            }
            if line.contains("allow(unsafe_code)") {
                faults.push(format!("{}:{}: allows unsafe code", source.path.display(), at + 1));
            }
        }
    }
    assert!(faults.is_empty(), "unsafe outside sandbox/:\n{}", faults.join("\n"));
}

/// A key whose secret two signatures betray guards nothing, so nothing but the simulator may make one.
#[test]
fn throwaway_keys_stay_in_the_simulator() {
    let outside = sources().into_iter().filter(|s| s.room != "sim" && s.room != "wire");
    let makers: Vec<String> =
        outside.filter(|s| mentions(&s.code, "throwaway")).map(|s| s.path.display().to_string()).collect();
    assert!(makers.is_empty(), "throwaway keys outside the simulator: {makers:?}");
}

#[test]
fn files_stay_readable() {
    let long: Vec<String> = sources()
        .iter()
        .map(|s| (s.path.display().to_string(), s.text.lines().count()))
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect();
    assert!(long.is_empty(), "over {FILE_LINES_MAX} lines, split by subject:\n{}", long.join("\n"));
}

#[test]
fn every_file_opens_by_saying_what_it_promises() {
    let silent: Vec<String> = sources()
        .iter()
        .filter(|s| !s.text.trim_start().starts_with("//!"))
        .map(|s| s.path.display().to_string())
        .collect();
    assert!(silent.is_empty(), "no module doc:\n{}", silent.join("\n"));
}

#[test]
fn no_file_lies_dead_and_no_placeholder_is_left() {
    let sources = sources();
    let paths: BTreeSet<PathBuf> = sources.iter().map(|s| s.path.clone()).collect();
    let mut reached = BTreeSet::from([root().join("src/lib.rs"), root().join("src/main.rs")]);
    for source in &sources {
        let stem = source.path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        let folder = source.path.parent().unwrap_or(Path::new(""));
        let inside = if matches!(stem, "mod" | "lib" | "main") { folder.to_owned() } else { folder.join(stem) };
        for name in declared_modules(&source.code) {
            for candidate in [inside.join(format!("{name}.rs")), inside.join(&name).join("mod.rs")] {
                if paths.contains(&candidate) {
                    reached.insert(candidate);
                }
            }
        }
    }
    let dead: Vec<_> = paths.difference(&reached).map(|p| p.display().to_string()).collect();
    assert!(dead.is_empty(), "not part of any module:\n{}", dead.join("\n"));

    let mut left = Vec::new();
    for source in &sources {
        for (at, line) in source.text.lines().enumerate() {
            let word = |w: &str| line.contains(w);
            if ["todo!(", "unimplemented!(", "FIXME", "XXX", "TODO"].iter().any(|w| word(w)) {
                left.push(format!("{}:{}", source.path.display(), at + 1));
            }
        }
    }
    assert!(left.is_empty(), "placeholders:\n{}", left.join("\n"));
}

#[test]
fn every_limit_is_used_and_every_room_is_on_the_map() {
    let sources = sources();
    let find = |name: &str| sources.iter().find(|s| s.path.ends_with(name)).expect("source");
    let limits = find("src/limits.rs");
    let unused: Vec<&str> = limits
        .code
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub const ")?.split(':').next())
        .filter(|name| !sources.iter().any(|s| !s.path.ends_with("src/limits.rs") && mentions(&s.code, name)))
        .collect();
    assert!(unused.is_empty(), "limits that bound nothing:\n{}", unused.join("\n"));

    let map = find("src/lib.rs");
    let rooms: BTreeSet<&str> =
        sources.iter().map(|s| s.room.as_str()).filter(|r| *r != "lib" && *r != "main").collect();
    let unmapped: Vec<_> = rooms.iter().filter(|room| !map.text.contains(&format!("[`{room}`]"))).collect();
    assert!(unmapped.is_empty(), "rooms that src/lib.rs does not describe: {unmapped:?}");
}

/// A rule that no test names is a promise that nobody keeps.
#[test]
fn every_rule_of_verification_is_cited_by_a_test() {
    let mut cited: BTreeMap<u8, PathBuf> = BTreeMap::new();
    let mut cite = |text: &str, path: &Path| {
        for rule in rules_named(text) {
            cited.entry(rule).or_insert_with(|| path.to_owned());
        }
    };
    for path in files_under(&root().join("tests"), "rs") {
        cite(&comments_of(&fs::read_to_string(&path).expect("readable test")), &path);
    }
    for path in files_under(&root().join("fixtures/tests"), "json") {
        let cases = fs::read_to_string(&path).expect("readable cases");
        let cases: Vec<serde_json::Value> = serde_json::from_str(&cases).expect("a list of cases");
        cases.iter().filter_map(|case| case["rule"].as_str()).for_each(|rule| cite(rule, &path));
    }
    for source in sources() {
        let whole = source.path.file_name().is_some_and(|name| name.to_string_lossy().ends_with("tests.rs"));
        let from = if whole { Some(0) } else { source.text.find("#[cfg(test)]\nmod tests {") };
        if let Some(tests) = from.and_then(|from| source.text.get(from..)) {
            cite(&comments_of(tests), &source.path);
        }
    }
    let missing: Vec<String> = RULES
        .iter()
        .flat_map(|(first, last)| *first..=*last)
        .filter(|rule| !cited.contains_key(rule))
        .map(|rule| format!("V{rule}"))
        .collect();
    assert!(
        missing.is_empty(),
        "no test names these rules; write one that fails without the rule, and cite it: {missing:?}"
    );
}

#[test]
fn the_strippers_see_what_they_should() {
    assert_eq!(rules_named("V1, (V20 to V22) V9x xV4 IpAddr::V6 V100 V"), [1, 20, 21, 22]);
    assert_eq!(rules_named(&comments_of("let a = V1; // V2\n/// V3: why\nlet b = \"V4\";")), [2, 3]);
    let code = strip(
        "let a = \"unsafe // no\"; // unsafe\nlet b = r#\"unsafe\"#; /* unsafe /* x */ */ let c = '\"'; fn f<'a>() {}",
    );
    assert!(!code.contains("unsafe"));
    assert!(code.contains("let c =") && code.contains("fn f<'a>() {}"));
    assert_eq!(rooms_named("use crate::{wire::Sha256, mail};"), ["wire", "mail"]);
    assert_eq!(rooms_named("crate::libro::operate(crate::time::now)"), ["libro", "time"]);
    assert!(mentions("a unsafe b", "unsafe") && !mentions("a unsafely b", "unsafe"));
}

/// The rules that a text names; `V20 to V22` names three.
fn rules_named(text: &str) -> Vec<u8> {
    let words: Vec<&str> =
        text.split(|c: char| !(c.is_alphanumeric() || c == ':' || c == '_')).filter(|w| !w.is_empty()).collect();
    let rule = |word: &str| word.trim_end_matches(':').strip_prefix('V')?.parse::<u8>().ok().filter(|rule| *rule < 100);
    let mut named = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let Some(first) = rule(word) else { continue };
        let last = match words.get(at + 1..at + 3) {
            Some(["to", last]) => rule(last).unwrap_or(first),
            _ => first,
        };
        named.extend(first..=last.max(first));
    }
    named.dedup();
    named
}

/// The comments of a source, which is where tests cite.
fn comments_of(text: &str) -> String {
    text.lines().filter_map(|line| line.find("//").map(|at| &line[at..])).collect::<Vec<_>>().join("\n")
}

fn files_under(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable folder") {
            let path = entry.expect("entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|found| found == extension) => files.push(path),
                false => {}
            }
        }
    }
    files.sort();
    files
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let mut out = Vec::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable folder") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("readable source");
                let inside = path.strip_prefix(root().join("src")).expect("inside src");
                let first = inside.components().next().expect("a name").as_os_str().to_string_lossy();
                let room = first.trim_end_matches(".rs").to_owned();
                out.push(Source { code: strip(&text), path, room, text });
            }
        }
    }
    out.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(out.len() > 10, "the walk found too little");
    out
}

/// Code up to the test module at the end of the file.
fn without_tests(code: &str) -> &str {
    match code.find("#[cfg(test)]") {
        Some(at) if code[at..].contains("mod tests") => &code[..at],
        _ => code,
    }
}

fn mentions(line: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut from = 0;
    while let Some(at) = line[from..].find(name).map(|at| at + from) {
        let before = line[..at].chars().next_back();
        let after = line[at + name.len()..].chars().next();
        let starts = name.starts_with(|c: char| !word(c)) || !before.is_some_and(word);
        let ends = name.ends_with(|c: char| !word(c)) || !after.is_some_and(word);
        if starts && ends {
            return true;
        }
        from = at + name.len();
    }
    false
}

fn rooms_named(line: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for (at, _) in line.match_indices("crate::") {
        let rest = &line[at + "crate::".len()..];
        let word = |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut start = 0;
            for (i, c) in group.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => {
                        rooms.push(word(group[start..i].trim()));
                        break;
                    }
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        rooms.push(word(group[start..i].trim()));
                        start = i + 1;
                    }
                    _ => {}
                }
            }
        } else {
            rooms.push(word(rest));
        }
    }
    rooms.retain(|room| !room.is_empty());
    rooms
}

fn declared_modules(code: &str) -> Vec<String> {
    code.lines()
        .filter_map(|line| {
            let line = line.trim();
            let line = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
            Some(line.strip_prefix("mod ")?.strip_suffix(';')?.trim().to_owned())
        })
        .collect()
}

/// Blanks comments, texts and characters, so that only code is searched.
fn strip(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    let keep_lines = |out: &mut String, taken: &[char]| out.extend(taken.iter().filter(|c| **c == '\n'));
    while i < bytes.len() {
        let rest = &bytes[i..];
        let word_before = i > 0 && (bytes[i - 1].is_alphanumeric() || bytes[i - 1] == '_');
        let end = if rest.starts_with(&['/', '/']) {
            rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())
        } else if rest.starts_with(&['/', '*']) {
            block_comment(rest)
        } else if rest[0] == '"' {
            quoted(rest, 1)
        } else if !word_before && rest.starts_with(&['b', '"']) {
            quoted(rest, 2)
        } else if !word_before && (rest[0] == 'r' || rest.starts_with(&['b', 'r'])) && raw(rest).is_some() {
            raw(rest).unwrap_or(1)
        } else if rest[0] == '\'' {
            character(rest)
        } else {
            out.push(rest[0]);
            i += 1;
            continue;
        };
        if end == 1 && rest[0] == '\'' {
            out.push('\'');
        } else {
            keep_lines(&mut out, &rest[..end]);
            out.push(' ');
        }
        i += end;
    }
    out
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut i) = (0, 0);
    while i < rest.len() {
        if rest[i..].starts_with(&['/', '*']) {
            depth += 1;
            i += 2;
        } else if rest[i..].starts_with(&['*', '/']) {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &[char], open: usize) -> usize {
    let mut i = open;
    while i < rest.len() {
        match rest[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

fn raw(rest: &[char]) -> Option<usize> {
    let start = if rest[0] == 'b' { 2 } else { 1 };
    let hashes = rest.iter().skip(start).take_while(|c| **c == '#').count();
    if rest.get(start + hashes) != Some(&'"') {
        return None;
    }
    let mut close = vec!['"'];
    close.resize(hashes + 1, '#');
    let body = start + hashes + 1;
    let at = rest[body..].windows(close.len()).position(|w| w == close.as_slice())?;
    Some(body + at + close.len())
}

/// A character literal's length, or one for the tick of a lifetime.
fn character(rest: &[char]) -> usize {
    if rest.get(1) == Some(&'\\') {
        return rest.iter().skip(3).position(|c| *c == '\'').map_or(1, |at| at + 4);
    }
    if rest.get(2) == Some(&'\'') { 3 } else { 1 }
}
