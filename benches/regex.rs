//! Time of one judgement of a full window, for ordinary patterns and for the worst that are accepted.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;
use verifica::probe::regex::Pattern;

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

criterion_group!(benches, ordinary, worst);
criterion_main!(benches);
