//! The JSON reader and the equality of values against Node: what `JSON.parse` accepts and reads, and whether two values
//! are equal by canonical form, as an implementation in JavaScript would answer.
//!
//! Without Node on the machine these tests say so and pass; with `VERIFICA_REQUIRE_ALL=1` they fail instead.

mod node;

use verifica::probe::decimal::Decimal;
use verifica::probe::equal::{Equality, equality};
use verifica::probe::json::{Document, Kind, Value};

const DOCUMENTS: usize = 20_000;
const PAIRS: usize = 5_000;

/// Reads a JSON array of texts on stdin; writes one line for each: `x` for a text that is not JSON, otherwise its value
/// with numbers as the bits of doubles and strings as code units.
const READ: &str = r#"
const hex = (s) => { let o = ''; for (let i = 0; i < s.length; i++) o += s.charCodeAt(i).toString(16).padStart(4, '0'); return o; };
const view = new DataView(new ArrayBuffer(8));
const bits = (n) => { view.setFloat64(0, n === 0 ? 0 : n); return view.getBigUint64(0).toString(16).padStart(16, '0'); };
const show = (v) => {
  if (v === null) return 'n';
  if (v === true) return 't';
  if (v === false) return 'f';
  if (typeof v === 'number') return '#' + bits(v);
  if (typeof v === 'string') return '"' + hex(v);
  if (Array.isArray(v)) return '[' + v.map(show).join(',') + ']';
  const keys = Object.keys(v).map((k) => [hex(k), v[k]]);
  keys.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
  return '{' + keys.map(([k, x]) => k + ':' + show(x)).join(',') + '}';
};
const texts = JSON.parse(require('fs').readFileSync(0, 'utf8'));
process.stdout.write(texts.map((t) => { try { return show(JSON.parse(t)); } catch { return 'x'; } }).join('\n'));
"#;

/// Reads pairs of texts; for each: `e` or `d`, by canonical form.
const COMPARE: &str = r#"
const canonical = (v) => {
  if (v === null || typeof v !== 'object') return JSON.stringify(v);
  if (Array.isArray(v)) return '[' + v.map(canonical).join(',') + ']';
  return '{' + Object.keys(v).sort().map((k) => JSON.stringify(k) + ':' + canonical(v[k])).join(',') + '}';
};
const pairs = JSON.parse(require('fs').readFileSync(0, 'utf8'));
process.stdout.write(pairs.map(([a, b]) => (canonical(JSON.parse(a)) === canonical(JSON.parse(b)) ? 'e' : 'd')).join('\n'));
"#;

/// The lines that Node answers, or nothing when there is no Node.
fn answers(script: &str, input: &serde_json::Value) -> Option<Vec<String>> {
    let output = node::node(&["-e", script], input.to_string(), "the JSON reader and its equality")?;
    Some(output.split('\n').map(str::to_owned).collect())
}

/// A small generator that always gives the same numbers (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

fn space(chance: &mut Chance) -> &'static str {
    chance.pick(&["", "", "", " ", "\n", "\t\r ", "  "])
}

fn string(chance: &mut Chance) -> String {
    let mut out = String::from("\"");
    for _ in 0..chance.below(5) {
        out.push_str(chance.pick(&[
            "a",
            "b",
            "0",
            "é",
            "😀",
            "\u{2028}",
            "\u{7f}",
            "\\n",
            "\\/",
            "\\\\",
            "\\\"",
            "\\u00e9",
            "\\uD83D\\uDE00",
            "\\ud800",
            "\\uDC00",
            "\\u0000",
            "__proto__",
            "constructor",
            " ",
            "\u{feff}",
            "\\b\\f\\r\\t",
        ]));
    }
    out.push('"');
    out
}

fn number(chance: &mut Chance) -> String {
    let mut out = String::from(chance.pick(&["", "", "-"]));
    out.push_str(chance.pick(&[
        "0",
        "1",
        "9",
        "10",
        "200",
        "9007199254740993",
        "123456789012345678901234567890",
        "5e-324",
        "2.5e-324",
        "1.7976931348623157e308",
        "1.7976931348623159e308",
        "0.1",
        "1.0",
        "0.30000000000000004",
        "1e400",
        "1e-400",
        "4.35",
        "1E+2",
        "1e05",
        "2.2250738585072011e-308",
        "9007199254740992.9999",
        "8.5e22",
        "1e23",
    ]));
    out
}

fn value(chance: &mut Chance, depth: usize) -> String {
    match chance.below(if depth == 0 { 5 } else { 9 }) {
        0 => number(chance),
        1 | 2 => string(chance),
        3 => chance.pick(&["true", "false", "null"]).to_owned(),
        4 => number(chance),
        5 | 6 => {
            let items: Vec<String> = (0..chance.below(4))
                .map(|_| format!("{}{}{}", space(chance), value(chance, depth - 1), space(chance)))
                .collect();
            format!("[{}{}]", space(chance), items.join(","))
        }
        _ => {
            let members: Vec<String> = (0..chance.below(4))
                .map(|_| {
                    let key = if chance.below(2) == 0 {
                        chance.pick(&["\"a\"", "\"b\"", "\"1\""]).to_owned()
                    } else {
                        string(chance)
                    };
                    format!("{}{}{}:{}{}", space(chance), key, space(chance), space(chance), value(chance, depth - 1))
                })
                .collect();
            format!("{{{}{}}}", space(chance), members.join(","))
        }
    }
}

/// Breaks a text in one or two places; sometimes what comes out is JSON again.
fn broken(chance: &mut Chance, text: &str) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..1 + chance.below(2) {
        let at = chance.below(chars.len() + 1);
        match chance.below(4) {
            0 if at < chars.len() => {
                chars.remove(at);
            }
            1 => chars.truncate(at),
            2 if at < chars.len() => {
                let other = chance.below(chars.len());
                chars.swap(at, other);
            }
            _ => {
                let piece = chance.pick(&[
                    ",", ":", "\"", "{", "}", "[", "]", "\\", "0", "-", "+", ".", "e", "E", "\u{0}", "\u{1f}",
                    "\u{a0}", "\u{feff}", "/", "'", "u", "NaN", "Infinity", "tru", "//", "\n", "x",
                ]);
                chars.splice(at..at, piece.chars());
            }
        }
    }
    chars.into_iter().collect()
}

fn show(value: Value<'_>) -> String {
    let hex = |units: &[u16]| units.iter().map(|u| format!("{u:04x}")).collect::<String>();
    match value.kind() {
        Kind::Null => "n".to_owned(),
        Kind::Bool(true) => "t".to_owned(),
        Kind::Bool(false) => "f".to_owned(),
        Kind::Number(digits) => {
            let nearest = Decimal::parse(digits).nearest();
            format!("#{:016x}", if nearest == 0.0 { 0 } else { nearest.to_bits() })
        }
        Kind::Text(units) => format!("\"{}", hex(units)),
        Kind::Array => format!("[{}]", value.items().map(show).collect::<Vec<_>>().join(",")),
        Kind::Object => {
            // of repeated keys, Node keeps the last
            let members: std::collections::BTreeMap<String, Value<'_>> =
                value.members().map(|(key, value)| (hex(key), value)).collect();
            let members: Vec<String> = members.into_iter().map(|(k, v)| format!("{k}:{}", show(v))).collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

#[test]
fn the_reader_accepts_and_reads_what_node_does() {
    let mut chance = Chance(node::seed(0x9e37_79b9_7f4a_7c15));
    let texts: Vec<String> = (0..DOCUMENTS)
        .map(|n| {
            let text = format!("{}{}{}", space(&mut chance), value(&mut chance, 5), space(&mut chance));
            if n % 2 == 0 { text } else { broken(&mut chance, &text) }
        })
        .collect();
    let Some(answers) = answers(READ, &serde_json::json!(texts)) else { return };
    assert_eq!(answers.len(), texts.len());
    let mut refused = 0;
    for (text, answer) in texts.iter().zip(&answers) {
        let ours = Document::read(text).map_or_else(|_| "x".to_owned(), |document| show(document.root()));
        assert_eq!(&ours, answer, "{text:?}");
        refused += usize::from(answer == "x");
    }
    // both kinds must be there, or the comparison says nothing
    assert!(refused > DOCUMENTS / 5 && refused < DOCUMENTS / 2, "{refused} of {DOCUMENTS} were not JSON");
}

/// A value whose exact meaning is known by construction: numbers are an integer times a power of ten.
#[derive(Clone, Debug, PartialEq)]
enum Model {
    Null,
    Bool(bool),
    /// No trailing zeros in the integer.
    Number(i128, i32),
    Text(&'static str),
    Array(Vec<Model>),
    Object(Vec<(&'static str, Model)>),
}

fn model(chance: &mut Chance, depth: usize) -> Model {
    match chance.below(if depth == 0 { 6 } else { 9 }) {
        0 => Model::Null,
        1 => Model::Bool(chance.below(2) == 0),
        2..=4 => {
            let mantissas: [i128; 12] = [
                0,
                1,
                -1,
                2,
                9_007_199_254_740_992,
                9_007_199_254_740_993,
                9_007_199_254_740_994,
                1_000_000_000_000_000_000_001,
                123,
                -45,
                30_000_000_000_000_004,
                3,
            ];
            exact(mantissas[chance.below(mantissas.len())], [-17, -3, -1, 0, 0, 0, 2, 21][chance.below(8)])
        }
        5 => Model::Text(chance.pick(&["", "a", "é", "e\u{301}", "😀", "1", "null"])),
        6 | 7 => Model::Array((0..chance.below(3)).map(|_| model(chance, depth - 1)).collect()),
        _ => {
            let keys = ["a", "b", "__proto__", "10", "9"];
            let from = chance.below(keys.len());
            Model::Object(
                (0..chance.below(3)).map(|n| (keys[(from + n) % keys.len()], model(chance, depth - 1))).collect(),
            )
        }
    }
}

fn exact(mut mantissa: i128, mut exponent: i32) -> Model {
    while mantissa != 0 && mantissa % 10 == 0 {
        mantissa /= 10;
        exponent += 1;
    }
    Model::Number(mantissa, if mantissa == 0 { 0 } else { exponent })
}

/// A near relative: the same value, or one that differs in one place.
fn relative(chance: &mut Chance, of: &Model) -> Model {
    if chance.below(3) == 0 {
        return of.clone();
    }
    match of {
        Model::Array(items) if !items.is_empty() => {
            let mut items = items.clone();
            let at = chance.below(items.len());
            items[at] = relative(chance, &items[at].clone());
            Model::Array(items)
        }
        Model::Object(members) if !members.is_empty() => {
            let mut members = members.clone();
            let at = chance.below(members.len());
            members[at].1 = relative(chance, &members[at].1.clone());
            members.reverse();
            Model::Object(members)
        }
        Model::Number(mantissa, exponent) => {
            let by: [i128; 4] = [0, 1, -1, 7];
            exact(mantissa + by[chance.below(4)], *exponent)
        }
        _ => model(chance, 1),
    }
}

fn spelled(chance: &mut Chance, of: &Model) -> String {
    match of {
        Model::Null => "null".to_owned(),
        Model::Bool(b) => b.to_string(),
        Model::Number(0, _) => chance.pick(&["0", "-0", "0.0", "0e9"]).to_owned(),
        Model::Number(mantissa, exponent) => match chance.below(3) {
            0 => format!("{mantissa}e{exponent}"),
            1 => format!("{mantissa}00E{}", exponent - 2),
            _ => format!("{mantissa}.0e+0").replace("e+0", &format!("e{exponent}")),
        },
        Model::Text(text) => serde_json::Value::from(*text).to_string(),
        Model::Array(items) => format!("[{}]", items.iter().map(|i| spelled(chance, i)).collect::<Vec<_>>().join(",")),
        Model::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(key, value)| format!("{}:{}", serde_json::Value::from(*key), spelled(chance, value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

/// The strict reading: exact decimals, objects by key set.
fn same(a: &Model, b: &Model) -> bool {
    match (a, b) {
        (Model::Array(a), Model::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Model::Object(a), Model::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, value)| b.iter().any(|(other, it)| key == other && same(value, it)))
        }
        _ => a == b,
    }
}

#[test]
fn equality_decides_where_both_readings_agree_and_nowhere_else() {
    let mut chance = Chance(node::seed(0x1234_5678_9abc_def1));
    let pairs: Vec<(Model, Model)> = (0..PAIRS)
        .map(|_| {
            let a = model(&mut chance, 3);
            let b = relative(&mut chance, &a);
            (a, b)
        })
        .collect();
    let texts: Vec<(String, String)> =
        pairs.iter().map(|(a, b)| (spelled(&mut chance, a), spelled(&mut chance, b))).collect();
    let Some(answers) = answers(COMPARE, &serde_json::json!(texts)) else { return };
    assert_eq!(answers.len(), texts.len());
    let mut counts = [0usize; 3];
    for (((a, b), (left, right)), answer) in pairs.iter().zip(&texts).zip(&answers) {
        let (left, right) = (Document::read(left).expect("json"), Document::read(right).expect("json"));
        let ours = equality(left.root(), right.root());
        let at = match (same(a, b), answer.as_str()) {
            (true, "e") => {
                assert_eq!(ours, Equality::Equal, "{left:?} {right:?}");
                0
            }
            (false, "d") => {
                assert_eq!(ours, Equality::Different, "{left:?} {right:?}");
                1
            }
            (strict, js) => {
                assert!(
                    matches!(ours, Equality::Doubt(_)),
                    "strict {strict}, js {js}: {ours:?} for {left:?} {right:?}"
                );
                2
            }
        };
        counts[at] += 1;
    }
    assert!(counts.iter().all(|n| *n > 50), "equal, different, in doubt: {counts:?}");
}
