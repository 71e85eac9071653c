//! `notarize`: the house seals a hash with a date and its signature, free and without an entry.
//!
//! A seal is signed twice: with its declarant, who gets it, and without, for whoever may not know that the declarant
//! exists.

use super::doing::{Doing, Receipt, bad};
use crate::limits;
use crate::record::{Change, SealRecord};
use crate::refusal::Refusal;
use crate::wire::Doc;
use crate::wire::card::Visibility;
use crate::wire::digest::Sha256;
use crate::wire::invisible::is_invisible;
use serde_json::{Value, json};

pub(super) fn notarize(doing: &mut Doing<'_, '_>) -> Result<Doc, Refusal> {
    let sha256 = doing.text("sha256")?.and_then(Sha256::parse);
    let sha256 = sha256.ok_or_else(|| bad("sha256 must be 64 hex digits"))?.hex();
    let by = doing.sender().clone();
    let cleaned = |field: &str, chars: usize| -> Result<Option<String>, Refusal> {
        Ok(doing.text(field)?.and_then(|text| clean(text, chars)))
    };
    let name = cleaned("name", limits::SEAL_NAME_CHARS_MAX)?;
    let media = cleaned("media", limits::SEAL_MEDIA_CHARS_MAX)?;
    let note = cleaned("note", limits::SEAL_NOTE_CHARS_MAX)?;
    let (sello, existing) = match doing.ctx.view.seal(&sha256, &by) {
        Some(seal) => (seal.sello, true),
        None => {
            let (id, at, house) = (doing.ids.uuid(), doing.now(), doing.ctx.house);
            let seal = |by: Value| {
                house.signed(json!({
                    "nyx5": "1", "tipo": "sello", "id": id, "sha256": sha256, "name": name, "media": media,
                    "note": note, "by": by, "house": house.domain, "at": at, "op_sha256": doing.sha256,
                }))
            };
            let (sello, anonimo) = (seal(json!(by)), seal(Value::Null));
            let secret = doing.standing.card.visibility == Visibility::Secret;
            doing.change(Change::InsertSeal(SealRecord {
                id,
                sha256,
                by: by.clone(),
                at,
                secret,
                sello: sello.clone(),
                anonimo,
            }));
            doing.event("notarized", &by, json!({}));
            (sello, false)
        }
    };
    let body = Doc::from(json!({"seal": sello, "existing": existing}));
    doing.receipt(Receipt { to: vec![by], thread: None, body: body.clone(), entry: None });
    Ok(body)
}

/// One line of visible text: what cannot be seen is taken out, so that two seals that look alike are alike.
fn clean(text: &str, chars: usize) -> Option<String> {
    let spaced: String =
        text.chars().filter(|c| !is_invisible(*c)).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let line: String = words.join(" ").chars().take(chars).collect();
    let line = line.trim_end();
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_one_visible_line_within_their_bound() {
        assert_eq!(clean(" a\u{200b}\tb\n\n c\u{202e} ", 120).as_deref(), Some("a b c"));
        assert_eq!(clean("\u{feff}\u{200d} \n", 120), None);
        assert_eq!(clean("ñandú", 3).as_deref(), Some("ñan"));
        assert_eq!(clean("ab cd", 3).as_deref(), Some("ab"));
    }
}
