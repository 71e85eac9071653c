//! The answer of `check` for eyes, and as JUnit for the machinery that reads it.

use super::spec::Spec;
use crate::cli::output::{Out, Style, brief, clean, fit, visible_source};
use crate::observe::look::Reports;
use crate::probe::address::admissible;
use crate::probe::observation::{Cause, End, FetchKey, Observation, Seen};
use crate::probe::result::{Outcome, TestResult};
use crate::probe::url::{Target, UrlPolicy};
use annotate_snippets::renderer::Renderer;
use annotate_snippets::{AnnotationKind, Level, Snippet};
use serde_json::Value;
use std::collections::BTreeMap;

/// One result with the test that it is of and what was seen for it.
pub struct Row<'a> {
    pub n: usize,
    pub test: Option<&'a Value>,
    pub result: &'a TestResult,
    pub seen: Option<&'a Observation>,
    /// How long the last run of its job took.
    pub job_ms: Option<u64>,
}

impl Row<'_> {
    pub fn seconds(&self) -> f64 {
        if let Some(ms) = self.job_ms {
            return ms as f64 / 1_000.0;
        }
        self.seen.map_or(0.0, |seen| seen.ended.since(seen.started).max(0) as f64 / 1_000.0)
    }
}

/// The results beside their tests and observations.
pub fn rows<'a>(
    spec: &'a Spec,
    results: &'a [TestResult],
    seen: &'a BTreeMap<FetchKey, Observation>,
    reports: &Reports,
) -> Vec<Row<'a>> {
    let tests = spec.list();
    let by_name: BTreeMap<String, &Observation> = seen.values().map(|o| (o.sha256().hex(), o)).collect();
    let of = |result: &TestResult| {
        result.evidence.get("observation").and_then(Value::as_str).and_then(|name| by_name.get(name).copied())
    };
    // A suite that is refused as a whole has one result that is of no single test.
    let paired = tests.len() == results.len();
    let row = |(n, result): (usize, &'a TestResult)| Row {
        n,
        test: if paired { tests.get(n).copied() } else { None },
        result,
        seen: of(result),
        job_ms: reports.get(&n).map(|report| report.wall_ms),
    };
    results.iter().enumerate().map(row).collect()
}

/// The line of one test, and a second one about what was fetched.
pub fn line(row: &Row<'_>, private: bool, out: &Out) {
    let (style, word) = match row.result.outcome {
        Outcome::Pass => (Style::Good, "PASS"),
        Outcome::Fail => (Style::Bad, "FAIL"),
        Outcome::Undecided(_) => (Style::Doubt, "UNDECIDED"),
    };
    let status = out.paint(style, format!("{word:>10}"));
    let name = row.result.name.clone().unwrap_or_else(|| format!("#{}", row.n + 1));
    let claim = row.test.map(claim).unwrap_or_default();
    out.line(format!(
        "{status} [{:>7.3}s] {:<12} {:<16} {}",
        row.seconds(),
        brief(&row.result.test_type, 12),
        brief(&name, 24),
        fit(&claim, 160)
    ));
    if let Some(seen) = row.seen {
        out.line(out.paint(Style::Faint, format!("{:>36}{}", "", fetched(seen))));
    }
    if private && let Some(note) = arbiter_would(row) {
        out.line(format!("{:>36}{}", "", out.paint(Style::Doubt, note)));
    }
}

/// What the arbiter of a house would say of an address that only `--allow-private` permits.
fn arbiter_would(row: &Row<'_>) -> Option<String> {
    let url = row.test?.get("url")?.as_str()?;
    if let Err(why) = Target::parse(url, &UrlPolicy::default()) {
        return Some(format!("the arbiter would fail this test: {}", brief(&why, 200)));
    }
    let ip = row.seen?.address?.ip();
    admissible(ip).err().map(|why| format!("the arbiter would not reach this server: {}", brief(&why, 200)))
}

/// What one test asks, in one line.
fn claim(test: &Value) -> String {
    let text = |name: &str| match test.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(brief(text, 100)),
        Some(other) => Some(brief(&other.to_string(), 100)),
    };
    let or = |name: &str, other: &str| text(name).unwrap_or_else(|| other.to_owned());
    let url = brief(&or("url", "-").replacen("https://", "", 1), 70);
    match text("type").as_deref() {
        Some("http_status") => format!("{} {url} → {}", or("method", "GET"), or("expect", "200")),
        Some("json_path") => {
            let value = test.get("expect").or_else(|| test.get("equals"));
            let claim =
                value.map(|value| format!("= {value}")).unwrap_or_else(|| format!("exists: {}", or("exists", "-")));
            format!("{url}  {} {claim}", or("path", "-"))
        }
        Some("regex") => format!("{url}  /{}/{}", or("pattern", ""), or("flags", "")),
        Some("sha256") if test.get("url").is_some_and(Value::is_string) => {
            format!("{url} = {}", short(&or("expect", "-")))
        }
        Some("sha256") => format!("the delivery = {}", short(&or("expect", "-"))),
        Some("size") => match (text("min_bytes"), text("max_bytes")) {
            (Some(min), Some(max)) => format!("{url}  {min} to {max} bytes"),
            (None, Some(max)) => format!("{url}  at most {max} bytes"),
            (min, None) => format!("{url}  at least {} bytes", min.unwrap_or_default()),
        },
        Some("header") => format!("{url}  {}: {}", or("name", "-"), or("equals", "-")),
        Some("exit_0") => or("argv", "-"),
        _ => brief(&test.to_string(), 100),
    }
}

fn short(hash: &str) -> String {
    match (hash.get(..6), hash.get(hash.len().saturating_sub(4)..)) {
        (Some(head), Some(tail)) if hash.len() == 64 => format!("{head}…{tail}"),
        _ => brief(hash, 40),
    }
}

fn fetched(seen: &Observation) -> String {
    let mut parts = Vec::new();
    parts.extend(seen.address.map(|address| address.to_string()));
    parts.extend(seen.tls.clone());
    parts.extend(
        seen.certificate_not_after
            .map(|at| format!("certificate until {}", at.to_string().get(..10).unwrap_or_default())),
    );
    match &seen.seen {
        Seen::Response(response) => {
            parts.push(format!("status {}", response.status));
            if response.content.end != End::NotRead {
                let cut = if response.content.end == End::Complete { "" } else { ", not to the end" };
                parts.push(format!("{} bytes read{cut}", response.content.bytes));
            }
        }
        Seen::Nothing { phase, .. } => parts.push(format!("ended in phase {}", format!("{phase:?}").to_lowercase())),
    }
    brief(&parts.join(", "), 160)
}

/// The same as [`line`], as data: what was asked, how long it took, what was fetched, and where the test stands.
pub fn data(row: &Row<'_>, spec: &Spec) -> Value {
    let at = place(row, spec).map(|span| crate::config::position(&spec.text, span.start));
    let (bytes, complete) = match row.seen.map(|seen| &seen.seen) {
        Some(Seen::Response(response)) if response.content.end != End::NotRead => {
            (Some(response.content.bytes), Some(response.content.end == End::Complete))
        }
        _ => (None, None),
    };
    serde_json::json!({
        "n": row.n + 1,
        "status": row.result.outcome.word(),
        "claim": row.test.map(claim),
        "duration_ms": row.seen.map(|seen| seen.ended.since(seen.started).max(0)),
        "address": row.seen.and_then(|seen| seen.address).map(|address| address.to_string()),
        "tls": row.seen.and_then(|seen| seen.tls.clone()),
        "certificate_not_after": row.seen.and_then(|seen| seen.certificate_not_after),
        "bytes": bytes,
        "complete": complete,
        "line": at.map(|at| at.0),
        "column": at.map(|at| at.1),
    })
}

/// What is wrong, or in doubt, about one test: where it stands, what was expected, what was seen, what it means.
pub fn block(row: &Row<'_>, spec: &Spec, out: &Out) -> String {
    let renderer = if out.colours_data() { Renderer::styled() } else { Renderer::plain() };
    let (level, name) = match row.result.outcome {
        Outcome::Undecided(cause) => (Level::WARNING, format!("undecided({})", cause.name())),
        _ => (Level::ERROR, "fail".to_owned()),
    };
    let reason = clean(&row.result.reason);
    let mut notes = Vec::new();
    for (field, what) in [("expect", "expected"), ("seen", "seen")] {
        if let Some(value) = row.result.evidence.get(field) {
            notes.push(format!("{what}: {}", typed(value)));
        }
    }
    let hint = hint(row);
    let (source, path) = (visible_source(&spec.text), clean(&spec.path));
    let mut group =
        level.with_name(name).primary_title(reason.as_str()).elements(Vec::<annotate_snippets::Element<'_>>::new());
    if let Some(span) = place(row, spec) {
        let snippet = Snippet::source(source.as_str()).path(path.as_str());
        let snippet = snippet.annotation(AnnotationKind::Primary.span(span));
        group = group.element(snippet);
    } else {
        group = group.element(annotate_snippets::Origin::path(path.as_str()));
    }
    for note in &notes {
        group = group.element(Level::NOTE.message(note.as_str()));
    }
    if let Some(hint) = &hint {
        group = group.element(Level::HELP.message(hint.as_str()));
    }
    renderer.render(&[group]).trim_end().to_owned()
}

/// Value and type, since `"2"` and `2` look alike.
fn typed(value: &Value) -> String {
    let kind = crate::wire::json::type_name(value);
    let shown = value.as_str().map_or_else(|| value.to_string(), |text| format!("{text:?}"));
    format!("{}   ({kind})", brief(&shown, 300))
}

/// The field that the reason is about: one that it names, else the one that the type turns on.
fn place(row: &Row<'_>, spec: &Spec) -> Option<std::ops::Range<usize>> {
    let pointer = spec.test_pointer(row.n)?;
    let test = row.test?.as_object()?;
    let named = test.keys().find(|key| {
        let mut words = row.result.reason.split(|c: char| !c.is_alphanumeric() && c != '_');
        key.as_str() != "type" && words.any(|word| word == key.as_str())
    });
    let usual = ["expect", "equals", "exists", "pattern", "max_bytes", "min_bytes", "argv", "url", "type"];
    let usual = usual.into_iter().find(|key| test.contains_key(*key));
    let network = matches!(row.result.outcome, Outcome::Undecided(Cause::Network | Cause::Edge | Cause::Origin));
    let key = match (network && test.contains_key("url"), named) {
        (true, _) => Some("url"),
        (false, Some(key)) => Some(key.as_str()),
        (false, None) => usual,
    };
    let span = spec.source.span(&key.map_or(pointer.clone(), |key| format!("{pointer}/{key}")))?;
    // One line is enough to find it.
    let shown = spec.text.get(span.clone())?;
    let end = span.start + shown.find('\n').unwrap_or(shown.len());
    Some(span.start..end)
}

fn hint(row: &Row<'_>) -> Option<String> {
    let again = "nobody is punished and no money moves; the arbiter looks again later";
    Some(match row.result.outcome {
        Outcome::Pass => return None,
        Outcome::Fail if row.result.reason.contains("malformed") => {
            "mend the test: a house with verifica@ refuses a quote with it".to_owned()
        }
        Outcome::Fail => return None,
        Outcome::Undecided(Cause::Contract) => {
            "no verifier can judge this test as it is written; mend it before anybody accepts it".to_owned()
        }
        Outcome::Undecided(Cause::Host) => "this machine cannot run this test; another may".to_owned(),
        Outcome::Undecided(Cause::Ours) => "this is a fault of the program: report it with the file".to_owned(),
        Outcome::Undecided(_) if row.result.reason.contains("not public") => {
            format!("{again}; for a server on your own machine use --allow-private")
        }
        Outcome::Undecided(_) => again.to_owned(),
    })
}

/// JUnit XML: an undecided test is an error there, because it is neither a pass nor a failure.
pub fn junit(rows: &[Row<'_>], spec: &Spec, razon: &str) -> String {
    let count = |word: &str| rows.iter().filter(|row| row.result.outcome.word() == word).count();
    let total: f64 = rows.iter().map(Row::seconds).sum();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{total:.3}\">\n",
        xml(&spec.path),
        rows.len(),
        count("fail"),
        count("undecided")
    );
    for row in rows {
        let name = row.result.name.clone().unwrap_or_else(|| format!("#{}", row.n + 1));
        let (kind, name) = (xml(&row.result.test_type), xml(&name));
        out.push_str(&format!("    <testcase classname=\"{kind}\" name=\"{name}\" time=\"{:.3}\"", row.seconds()));
        let element = match row.result.outcome {
            Outcome::Pass => {
                out.push_str("/>\n");
                continue;
            }
            Outcome::Fail => "failure",
            Outcome::Undecided(_) => "error",
        };
        let cause = row.result.outcome.cause().map_or("fail", Cause::name);
        out.push_str(&format!(
            ">\n      <{element} type=\"{cause}\" message=\"{}\"/>\n    </testcase>\n",
            xml(&row.result.reason)
        ));
    }
    out.push_str(&format!("    <system-out>{}</system-out>\n  </testsuite>\n</testsuites>\n", xml(razon)));
    out
}

/// Text inside XML; what XML cannot hold is replaced.
fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => out.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn claims_fit_one_line() {
        for (test, claim_text) in [
            (json!({"type": "http_status", "url": "https://a.b/x"}), "GET a.b/x → 200"),
            (json!({"type": "json_path", "url": "https://a.b/x", "path": "v", "equals": "2"}), "a.b/x  v = \"2\""),
            (json!({"type": "size", "url": "https://a.b/x", "max_bytes": 5}), "a.b/x  at most 5 bytes"),
            (json!({"type": "sha256", "expect": "a".repeat(64)}), "the delivery = aaaaaa…aaaa"),
            (json!({"type": "exit_0", "argv": ["true"]}), "[\"true\"]"),
        ] {
            assert_eq!(claim(&test), claim_text);
        }
    }

    #[test]
    fn xml_holds_anything() {
        assert_eq!(xml("<a b=\"c\">&\u{0}\n"), "&lt;a b=&quot;c&quot;&gt;&amp;\u{fffd} ");
    }
}
