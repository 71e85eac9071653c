//! Faults of a file, shown with their lines: all of them at once.

use super::output::{Failure, Faults, clean, visible_source};
use crate::config::{At, Diagnostic, Level, position};
use crate::refusal::Exit;
use annotate_snippets::renderer::Renderer;
use annotate_snippets::{AnnotationKind, Level as Shown, Snippet};
use serde_json::{Value, json};

/// The text of all diagnostics of one file.
pub fn render(path: &str, text: &str, diagnostics: &[Diagnostic], colour: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let (source, path) = (visible_source(text), clean(path));
    let mut out = String::new();
    for diagnostic in diagnostics {
        let level = match diagnostic.level {
            Level::Error => Shown::ERROR,
            Level::Warning => Shown::WARNING,
        };
        let message = clean(&diagnostic.message);
        let mut group = level.primary_title(message.as_str()).elements(Vec::<annotate_snippets::Element<'_>>::new());
        match &diagnostic.at {
            At::Span(span) => {
                let span = within(text, span);
                let snippet =
                    Snippet::source(source.as_str()).path(path.as_str()).annotation(AnnotationKind::Primary.span(span));
                group = group.element(snippet);
            }
            At::Env(name) => {
                group = group.element(annotate_snippets::Origin::path(format!("environment variable {}", clean(name))))
            }
            At::Whole => group = group.element(annotate_snippets::Origin::path(path.as_str())),
        }
        let hint = diagnostic.hint.as_deref().map(clean);
        if let Some(hint) = &hint {
            group = group.element(Shown::HELP.message(hint.as_str()));
        }
        out.push_str(renderer.render(&[group]).trim_end());
        out.push_str("\n\n");
    }
    out
}

/// The same bytes, or the nearest ones that the text has and that split no character.
fn within(text: &str, span: &std::ops::Range<usize>) -> std::ops::Range<usize> {
    let start = text.floor_char_boundary(span.start);
    start..text.ceil_char_boundary(span.end).max(start)
}

/// As data, for `--json`.
pub fn to_json(path: &str, text: &str, diagnostics: &[Diagnostic]) -> Vec<Value> {
    let one = |diagnostic: &Diagnostic| {
        let (mut line, mut column, mut variable) = (None, None, None);
        match &diagnostic.at {
            At::Span(span) => {
                let at = position(text, span.start);
                (line, column) = (Some(at.0), Some(at.1));
            }
            At::Env(name) => variable = Some(name.clone()),
            At::Whole => {}
        }
        let level = if diagnostic.level == Level::Error { "error" } else { "warning" };
        json!({
            "level": level, "message": diagnostic.message, "file": path, "line": line, "column": column,
            "variable": variable, "hint": diagnostic.hint,
        })
    };
    diagnostics.iter().map(one).collect()
}

/// A file that cannot be used, with everything that is wrong in it.
pub fn failure(what: &str, path: &str, text: &str, diagnostics: &[Diagnostic], colour: bool) -> Failure {
    let errors = diagnostics.iter().filter(|d| d.level == Level::Error).count();
    let plural = if errors == 1 { "fault" } else { "faults" };
    let mut failure = Failure::new(Exit::Usage, format!("{what} has {errors} {plural}")).at(path);
    let shown = format!("\n{}", render(path, text, diagnostics, colour));
    failure.faults = Some(Box::new(Faults { shown, data: to_json(path, text, diagnostics) }));
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::invisible::misleads;

    #[test]
    fn a_fault_shows_its_line_and_what_to_do() {
        let text = "a = 1\nfee = 2\n";
        let diagnostics = [
            Diagnostic::error(At::Span(6..9), "unknown key fee").hint("did you mean fee_bps"),
            Diagnostic::error(At::Env("VERIFICA_X".into()), "wrong"),
            Diagnostic::error(At::Span(400..900), "beyond the end"),
        ];
        let shown = render("house.toml", text, &diagnostics, false);
        assert!(shown.contains("house.toml:2:1"), "{shown}");
        assert!(
            shown.contains("fee = 2") && shown.contains("^^^") && shown.contains("did you mean fee_bps"),
            "{shown}"
        );
        assert!(shown.contains("environment variable VERIFICA_X"), "{shown}");
        for (text, span) in [("", 0..1), ("[{", 2..3), ("é", 1..2), ("a\u{fffd}b", 1..2), ("a\n", 2..3)] {
            let shown = render("f", text, &[Diagnostic::error(At::Span(span), "here")], false);
            assert!(shown.contains("here"), "{shown}");
        }
        let hostile = "x = \"\u{9b}2J\u{202e}\" # y\n";
        let shown = render("f\u{1b}", hostile, &[Diagnostic::error(At::Span(14..15), "\u{9b}")], false);
        assert!(shown.contains(":1:") && !shown.chars().any(|c| c != '\n' && misleads(c)), "{shown:?}");
        let data = to_json("house.toml", text, &diagnostics);
        assert_eq!((data[0]["line"].as_u64(), data[0]["column"].as_u64()), (Some(2), Some(1)));
        assert_eq!(failure("the configuration", "house.toml", text, &diagnostics, false).exit, Exit::Usage);
    }
}
