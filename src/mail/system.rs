//! The house's own agents: postmaster@, libro@ and verifica@, all of them holding the domain's key.
//!
//! What libro@ and verifica@ say of themselves follows what they can do now: their cards are certified again when that
//! changes, and only then.

use super::cards::{certify, same_but_for, test_names};
use super::registration::previous;
use crate::libro::Op;
use crate::record::{AgentRecord, Change, House, View};
use crate::refusal::Refusal;
use crate::time::Timestamp;
use crate::wire::AgentCard;
use crate::wire::address::{Local, SystemName};
use crate::wire::quote::OP_MEDIA;
use serde_json::{Value, json};

/// The changes that bring the house's own agents up to what the house is now; none when nothing changed.
pub fn system_cards(house: &House, view: &dyn View, now: Timestamp) -> Result<Vec<Change>, Refusal> {
    let mut changes = Vec::new();
    for name in [SystemName::Postmaster, SystemName::Libro, SystemName::Verifica] {
        let stored = view.agent(name.as_str());
        if name == SystemName::Verifica && !house.settings.arbiter && stored.is_none() {
            continue;
        }
        let mut content = system_content(house, name);
        content["previous"] = retired(house, stored.as_ref().map(|record| &record.card), now);
        let current = stored.as_ref().is_some_and(|record| {
            same_but_for(record.card.doc(), &content, &["valid_from", "certification"])
                && house.key.public().verify_object(record.card.doc(), "certification")
        });
        if current {
            continue;
        }
        let valid_from = stored.as_ref().and_then(|record| record.card.doc().get("valid_from").cloned());
        content["valid_from"] = valid_from.unwrap_or_else(|| json!(now));
        let record = AgentRecord {
            local: Local::parse(name.as_str())?,
            card: certify(house, content)?,
            webhook: None,
            notify_email: None,
            registered_via: "system".to_owned(),
            system: true,
            created: stored.as_ref().map_or(now, |record| record.created),
        };
        changes.push(if stored.is_some() { Change::PutAgent(record) } else { Change::InsertAgent(record) });
    }
    Ok(changes)
}

fn system_content(house: &House, name: SystemName) -> Value {
    let (inbox, capabilities) = match name {
        SystemName::Libro => (
            json!({"policy": "open"}),
            json!({"accepts": [OP_MEDIA], "libro": {"fee_bps": house.settings.fee_bps, "ops": Op::ALL.map(Op::as_str)}}),
        ),
        SystemName::Verifica => {
            let tests = if house.settings.arbiter { test_names(&house.settings.capabilities) } else { Vec::new() };
            (
                json!({"policy": "open"}),
                json!({"accepts": [OP_MEDIA], "verifica": {"pruebas": tests}, "listed": house.settings.arbiter}),
            )
        }
        _ => (json!({"policy": "allowlist", "allowlist": []}), json!({"accepts": []})),
    };
    json!({
        "nyx5": "1",
        "address": house.address(name),
        "sig": house.key.public().kid(),
        "enc": null,
        "capabilities": capabilities,
        "inbox": inbox,
        "valid_until": null,
    })
}

/// What the house wrote with its old key is on its way still; a key that was dropped without a change over is not
/// believed any more.
fn retired(house: &House, stored: Option<&AgentCard>, now: Timestamp) -> Value {
    let stored = stored.filter(|card| house.holds(&card.sig));
    stored.map_or_else(|| json!([]), |card| previous(Some(card), &house.key.public(), now))
}
