//! Time of one judgement of a full window, for ordinary patterns and for the worst that are accepted.
//!
//! The worst is hunted for: patterns are put together from the pieces that cost most, the costliest on a small window are
//! changed and tried again, and the costliest of all are timed on a full one. The steps that count decide the answer, so
//! the hunt is for patterns whose steps are slow as much as for those that have many. `HUNT=1000` tries more.

use criterion::{Criterion, Throughput, criterion_group};
use std::hint::black_box;
use std::time::{Duration, Instant};
use verifica::probe::regex::{Answer, Pattern};

const WINDOW: usize = 1_048_576;

/// Words, numbers and punctuation, the same on every run.
fn prose(alphabet: &[&str]) -> Vec<u8> {
    let mut state = 1u64;
    let mut text = Vec::with_capacity(WINDOW + 4);
    while text.len() < WINDOW {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.extend_from_slice(alphabet[usize::try_from(state >> 40).unwrap() % alphabet.len()].as_bytes());
    }
    text.truncate(WINDOW);
    text
}

fn ordinary(criterion: &mut Criterion) {
    let latin =
        prose(&["the ", "build", "-", "0", "7", "status ", "OK", "\n", "error: ", "x", "{\"a\": 1}, ", "deploy "]);
    let mixed = prose(&["la señal ", "naïve ", "данные ", "測試", "OK ", "42 ", "\n", "😀", "final "]);
    let cases = [
        ("literal", "build-[0-9a-f]+ DONE", "", &latin),
        ("case", "build-[0-9a-f]+ done", "i", &latin),
        ("classes", r"\w+@\w+\.\w{2,6}", "", &latin),
        ("line", r"^status\s+FAIL$", "m", &latin),
        ("words", r"\bdeployed\b", "", &latin),
        ("lookahead", r"status (?!OK|error|deploy|build|the|status)\w+ (?=zz)", "", &latin),
        ("unicode", r"\p{Lu}\p{Ll}+ \p{Script=Greek}", "u", &mixed),
        ("units", "señal [^x]* jamás", "i", &mixed),
        ("gap", "build[^!]{0,80}!", "", &latin),
    ];
    let mut group = criterion.benchmark_group("ordinary");
    group.throughput(Throughput::Bytes(WINDOW as u64)).sample_size(20);
    for (name, pattern, flags, window) in cases {
        let pattern = Pattern::parse(pattern, flags).unwrap();
        group.bench_function(name, |bencher| bencher.iter(|| black_box(pattern.evaluate(black_box(window), true))));
    }
    group.finish();
}

fn worst(criterion: &mut Criterion) {
    let letters = prose(&["a", "b", "c", "a", "b"]);
    let optional: String = ('a'..='z').cycle().take(127).map(|letter| format!("{letter}?")).collect::<String>() + "!";
    let counted: String = (0..36).map(|_| "[ab]{0,9}").take(28).collect::<String>() + "!";
    let looks: String = (0..25).map(|count| format!("(?=.{{{count}}}[ab])")).collect::<String>() + "!";
    let asserted = r"(?:\Ba)?".repeat(28) + "!";
    let distinct: String = (0..24).map(|count| format!("(?!.{{{count}}}!)")).collect::<String>() + "!";
    let cases = [
        ("two counts", r"[^x]{200}\w{100}!", "i"),
        ("many states", "a[^c]{0,2000}b[^c]{0,2000}!", ""),
        ("exponential", "a[ab]{2000}!", ""),
        ("optional", optional.as_str(), ""),
        ("counted", counted.as_str(), ""),
        ("lookarounds", looks.as_str(), ""),
        ("different lookarounds", distinct.as_str(), ""),
        ("assertions", r"(?:\ba|\Bb)(?:\b\B|[abc])(?:^|\Bb|$)!", ""),
        ("asserted optional", asserted.as_str(), ""),
        ("asserted counts", r"a(?:\B[ab]){1800}!", ""),
        ("deep lookarounds", "(?=.*(?=.*(?=.*(?=.*(?=.*(?=.*!))))))", ""),
    ];
    let mut group = criterion.benchmark_group("worst");
    group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
    for (name, pattern, flags) in cases {
        let Ok(pattern) = Pattern::parse(pattern, flags) else {
            println!("worst/{name}: not accepted");
            continue;
        };
        println!("worst/{name}: {:?}", pattern.evaluate(&letters, true));
        group.bench_function(name, |bencher| bencher.iter(|| black_box(pattern.evaluate(black_box(&letters), true))));
    }
    group.finish();
}

/// A generator that gives the same numbers each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }

    fn piece(&mut self) -> String {
        let (unit, other) = (self.pick(UNITS), self.pick(UNITS));
        let (few, many) = (1 + self.roll(30), 1 + self.roll(2_000));
        match self.roll(12) {
            0 => format!("{unit}{{{few}}}"),
            1 => format!("{unit}{{0,{many}}}"),
            2 => format!("{unit}{{{many}}}"),
            3 => format!("{unit}*"),
            4 => format!("{unit}?").repeat(few),
            5 => format!("(?:{unit}{other}){{0,{many}}}"),
            6 => format!("(?:{unit}|{other}|)").repeat(1 + few / 4),
            7 => format!("(?=.{{{few}}}{unit})"),
            8 => format!("(?!.*{unit}{{{few}}}{other}!)"),
            9 => format!("(?<=[^!]{{{few}}}{unit}.*)"),
            10 => self.pick(&["\\b", "\\B", "^", "$", "(?:^|\\B|$)"]).to_owned(),
            _ => unit.to_owned(),
        }
    }

    fn pieces(&mut self) -> Vec<String> {
        (0..1 + self.roll(9)).map(|_| self.piece()).collect()
    }

    /// One piece more, fewer, other, or twice.
    fn changed(&mut self, pieces: &[String]) -> Vec<String> {
        let mut pieces = pieces.to_vec();
        let at = self.roll(pieces.len());
        match self.roll(4) {
            0 => pieces.insert(at, self.piece()),
            1 if pieces.len() > 1 => drop(pieces.remove(at)),
            2 => pieces.insert(at, pieces[at].clone()),
            _ => pieces[at] = self.piece(),
        }
        pieces
    }
}

struct Found {
    pieces: Vec<String>,
    flags: &'static str,
    text: usize,
    took: Duration,
}

impl Found {
    fn pattern(&self) -> String {
        format!("{}!", self.pieces.concat())
    }

    /// How long it takes on so much of its text; nothing for a pattern that is not accepted.
    fn timed(mut self, texts: &[Vec<u8>], length: usize, compile: &mut Duration) -> Option<Found> {
        let began = Instant::now();
        let parsed = Pattern::parse(&self.pattern(), self.flags);
        *compile = (*compile).max(began.elapsed());
        let pattern = parsed.ok()?;
        let began = Instant::now();
        black_box(pattern.evaluate(&texts[self.text][..length], true));
        self.took = began.elapsed();
        Some(self)
    }
}

fn hunt() {
    let rounds: usize = std::env::var("HUNT").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    let texts = [
        prose(&["a", "b", "c", "a", "b"]),
        prose(&["a"]),
        prose(&["ab", "a b", "\n", "_", "é"]),
        prose(&["a", "\u{2028}", "😀", "ſ", "b", "\n"]),
    ];
    let mut dice = Dice(20_261_130);
    let mut compile = Duration::ZERO;
    let mut best: Vec<Found> = Vec::new();
    let mut tried = 0;
    for round in 0..rounds {
        for _ in 0..8 {
            let (flags, text) = (FLAGS[dice.roll(FLAGS.len())], dice.roll(texts.len()));
            let pieces = match best.len() {
                0 => dice.pieces(),
                _ if round % 3 == 0 => dice.pieces(),
                known => {
                    let parent = best[dice.roll(known)].pieces.clone();
                    dice.changed(&parent)
                }
            };
            let found = Found { pieces, flags, text, took: Duration::ZERO };
            tried += 1;
            best.extend(found.timed(&texts, SAMPLE, &mut compile));
        }
        best.sort_by_key(|found| std::cmp::Reverse(found.took));
        best.dedup_by(|one, other| one.pattern() == other.pattern() && one.flags == other.flags);
        best.truncate(24);
    }
    let mut full: Vec<Found> = best.into_iter().filter_map(|found| found.timed(&texts, WINDOW, &mut compile)).collect();
    full.sort_by_key(|found| std::cmp::Reverse(found.took));
    println!("hunt: {tried} patterns tried; slowest to compile {compile:.1?}; the slowest on a full window:");
    for found in full.iter().take(5) {
        let (pattern, flags) = (found.pattern(), found.flags);
        let (answer, steps) = Pattern::parse(&pattern, flags).unwrap().evaluate_counted(&texts[found.text], true);
        let answer = if answer == Answer::OverBudget { "over budget" } else { "decided" };
        println!("  {:>8.1?} {answer}, {steps} steps, /{pattern}/{flags} on text {}", found.took, found.text);
    }
    let worst = full.first().map_or(Duration::ZERO, |found| found.took);
    println!("hunt: worst {worst:.1?} (2 s are allowed), compile {compile:.1?}");
}

const UNITS: &[&str] =
    &["a", "[ab]", "[^c]", ".", "\\w", "\\W", "[^!]", "\\s", "[a-z]", "(?:ab)", "(?:a\\Bb)", "\\b", "[^\\n\\u00e9]"];
const FLAGS: &[&str] = &["", "i", "m", "s", "u", "iu", "imsu", "is"];
const SAMPLE: usize = 32_768;

criterion_group!(benches, ordinary, worst);

fn main() {
    if std::env::args().any(|arg| arg == "--bench") {
        hunt();
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
