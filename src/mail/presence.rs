//! When an agent was last here, for those who ask: only of agents that let it be known, only the hour, only for a time.

use super::cards::{Asker, seen_by};
use crate::limits;
use crate::record::{AgentRecord, Change, House, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::AgentCard;
use crate::wire::address::Local;
use serde_json::{Value, json};

/// What to write down when an agent of this house has proved who it is; nothing within an hour that is written already.
pub fn note(house: &House, view: &dyn View, now: Timestamp, card: &AgentCard) -> Option<Change> {
    if !house.is_mine(&card.address) || !lets_it_be_known(card) {
        return None;
    }
    let (local, hour) = (card.address.local(), hour_of(now));
    view.last_seen(local).is_none_or(|seen| seen < hour).then(|| Change::SeenIn { local: local.to_owned(), hour })
}

/// The hour that an asker may know.
pub fn last_seen(view: &dyn View, record: Option<&AgentRecord>, now: Timestamp) -> Option<Timestamp> {
    let record = record.filter(|record| lets_it_be_known(&record.card) && !record.card.ended(now))?;
    view.last_seen(record.local.as_str()).filter(|hour| now.since(*hour) <= limits::PRESENCE_KEEP_MS)
}

/// `GET /agents/:local/presence`: the same answer for who is absent, secret, or says nothing.
pub fn answer(house: &House, view: &dyn View, now: Timestamp, local: &str, asker: Asker<'_>) -> Result<Value, Refusal> {
    let local = Local::parse(local).map_err(|refusal| Refusal::new(Rule::NameInvalid, refusal.reason))?;
    let record = seen_by(view, local.as_str(), asker, now);
    let seen = last_seen(view, record.as_ref(), now);
    Ok(json!({"address": house.domain.address(&local), "last_seen": seen}))
}

fn lets_it_be_known(card: &AgentCard) -> bool {
    card.capability("presence") == Some(&Value::Bool(true))
}

fn hour_of(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(at.millis().div_euclid(HOUR_MS) * HOUR_MS)
}

const HOUR_MS: i64 = 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::fixture::{START, World};

    #[test]
    fn only_the_hour_only_if_wanted_and_only_for_ninety_days() {
        let mut world = World::new();
        world.agent("ana", json!({"capabilities": {"presence": true}}));
        world.agent("bob", json!({}));
        let at = START.plus(59 * 60_000);
        assert!(note(&world.house, &world.view, at, &world.card_of("bob")).is_none());
        let change = note(&world.house, &world.view, at, &world.card_of("ana")).expect("noted");
        world.view.apply(vec![change]).expect("applied");
        assert!(note(&world.house, &world.view, at.plus(30_000), &world.card_of("ana")).is_none(), "once an hour");
        assert!(note(&world.house, &world.view, at.minus(HOUR_MS), &world.card_of("ana")).is_none(), "never back");
        assert!(note(&world.house, &world.view, at.plus(HOUR_MS), &world.card_of("ana")).is_some());
        let ask = |world: &World, name: &str, now: Timestamp| {
            answer(&world.house, &world.view, now, name, Asker::Nobody).map(|answer| answer["last_seen"].clone())
        };
        assert_eq!(ask(&world, "ana", at), Ok(json!(START)), "START is a whole hour");
        let until = START.plus(limits::PRESENCE_KEEP_MS);
        assert_eq!(ask(&world, "ana", until), Ok(json!(START)));
        assert_eq!(ask(&world, "ana", until.plus(1)), Ok(json!(null)));
        assert_eq!(ask(&world, "bob", at), Ok(json!(null)));
        assert_eq!(ask(&world, "nobody", at), Ok(json!(null)));
        assert_eq!(ask(&world, "..", at).map_err(|r| r.code()), Err(400));
        world.agent("ana", json!({"capabilities": {"presence": true}, "visibility": "secret"}));
        assert_eq!(ask(&world, "ana", at), Ok(json!(null)));
        world.agent("ana", json!({}));
        assert_eq!(ask(&world, "ana", at), Ok(json!(null)), "who has changed its mind is not shown");
    }
}
