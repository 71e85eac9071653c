//! How a contract is shown to a person. Every word of it may be a stranger's, and none of them moves the cursor.

use super::output::{Out, Style, brief};
use serde_json::Value;

pub fn show(doc: &Value, out: &Out) {
    let [id, kind, state] = ["id", "kind", "state"].map(|name| field(doc, name));
    out.line(format!("{}  {kind}  {}", out.paint(Style::Strong, id), out.paint(Style::Strong, state)));
    contract_lines(doc).iter().for_each(|line| out.line(line));
}

/// What stands below the heading.
fn contract_lines(doc: &Value) -> Vec<String> {
    let names = ["amount", "concept", "seller", "buyer", "arbiter", "created", "updated"];
    let mut lines: Vec<String> = names.iter().map(|name| format!("{name:<9}{}", field(doc, name))).collect();
    for item in doc.get("history").and_then(Value::as_array).into_iter().flatten() {
        let reason =
            item.pointer("/veredicto/razon").or_else(|| item.get("note")).and_then(Value::as_str).unwrap_or_default();
        let [at, op, by] = ["at", "op", "by"].map(|name| field(item, name));
        lines.push(format!("  {at}  {op:<8}  {by}  {}", brief(reason, 200)).trim_end().to_owned());
    }
    lines
}

fn field(doc: &Value, name: &str) -> String {
    let text = doc.get(name).filter(|value| !value.is_null());
    let text = text.map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
    text.map_or_else(|| "-".to_owned(), |text| brief(&text, 200))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_in_a_contract_moves_the_cursor() {
        let evil = "\u{1b}[2J\u{202e}\n";
        let doc = json!({
            "id": evil, "kind": evil, "state": evil, "amount": 5, "concept": evil, "seller": evil, "buyer": null,
            "history": [{"at": evil, "op": evil, "by": evil, "note": evil}, 3],
        });
        let shown = contract_lines(&doc).into_iter().chain(["id", "kind", "state"].map(|name| field(&doc, name)));
        for line in shown {
            assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
        }
        assert_eq!(field(&doc, "buyer"), "-");
    }
}
