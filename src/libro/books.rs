//! The open books of one decision: balances and the journal number as they will be once its changes are made, so that
//! several movements of one decision (an operation, a stamp, a gift) see each other.
//!
//! Nothing is written here. A movement that the accounts do not cover leaves the books as they were.

use super::money::Movement;
use crate::ids::Ids;
use crate::limits::SAFE_INTEGER_MAX;
use crate::record::{Change, Entry, House, Line, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::Address;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

#[derive(Clone)]
pub struct Books<'a> {
    view: &'a dyn View,
    balances: BTreeMap<String, i64>,
    last: u64,
    last_at: Timestamp,
    changes: Vec<Change>,
}

/// What an entry says besides its number, time and lines.
pub(super) struct Posting {
    pub concept: String,
    pub lines: Vec<Line>,
    pub meta: Map<String, Value>,
    pub refs: Map<String, Value>,
    /// The account that the operation's sender may see the balance of.
    pub own: Option<Address>,
}

impl<'a> Books<'a> {
    pub fn open(view: &'a dyn View) -> Self {
        Books {
            view,
            balances: BTreeMap::new(),
            last: view.journal_last(),
            last_at: view.journal_last_at(),
            changes: Vec::new(),
        }
    }

    pub fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    pub fn balance(&self, account: &str) -> i64 {
        self.balances.get(account).copied().unwrap_or_else(|| self.view.balance(account))
    }

    pub(super) fn change(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Makes, signs and keeps the next entry. Lines are applied in order: an account that a line leaves below zero
    /// refuses the whole, even if a later line would mend it. The house's own account alone may be negative.
    pub(super) fn post(
        &mut self,
        house: &House,
        now: Timestamp,
        ids: &mut Ids,
        posting: Posting,
    ) -> Result<Entry, Refusal> {
        let casa = house.casa();
        let mut moved: BTreeMap<&str, i64> = BTreeMap::new();
        for line in &posting.lines {
            let before = moved.get(line.account.as_str()).copied().unwrap_or_else(|| self.balance(&line.account));
            let after = before.checked_add(line.delta).filter(|after| after.unsigned_abs() <= SAFE_INTEGER_MAX);
            let after = after.ok_or_else(|| {
                Refusal::new(
                    Rule::Overflow,
                    format!("the balance of {} would leave the range of safe integers", line.account),
                )
            })?;
            if after < 0 && line.account != casa.as_str() {
                return Err(short(&line.account, before, line.delta.unsigned_abs(), posting.own.as_ref()));
            }
            moved.insert(&line.account, after);
        }
        let moved: Vec<(String, i64)> = moved.into_iter().map(|(account, after)| (account.to_owned(), after)).collect();
        self.balances.extend(moved);
        self.last += 1;
        // The journal's times never fall, whatever the clock does: a range of time is a range of entries.
        self.last_at = self.last_at.max(now);
        let id = ids.uuid();
        let (n, at, lines) = (self.last, self.last_at, posting.lines);
        let (stated, moves, domain) = (id.clone(), lines.clone(), house.domain.clone());
        let doc = house.signed_later(move || {
            json!({
                "id": stated, "n": n, "at": at, "house": domain, "concept": posting.concept, "lines": moves,
                "meta": posting.meta, "refs": posting.refs,
            })
        });
        let entry = Entry { n, id, at, lines, doc };
        self.changes.push(Change::Journal(entry.clone()));
        Ok(entry)
    }
}

impl Posting {
    pub fn of(movement: Movement, kind: &str, concept: String, refs: Map<String, Value>) -> Posting {
        let meta = movement.meta(kind);
        Posting { concept, lines: movement.lines, meta, refs, own: None }
    }

    /// An operation that moves nothing still takes a number, so that two of them never decide on the same state.
    pub fn control(op: &str, refs: Map<String, Value>) -> Posting {
        let meta = Map::from_iter([("kind".to_owned(), Value::from("control"))]);
        Posting { concept: format!("op {op}"), lines: Vec::new(), meta, refs, own: None }
    }

    pub fn meta(mut self, field: &str, value: impl Into<Value>) -> Posting {
        self.meta.insert(field.to_owned(), value.into());
        self
    }

    pub fn own(mut self, account: &Address) -> Posting {
        self.own = Some(account.clone());
        self
    }
}

/// A balance is told to its owner only.
fn short(account: &str, has: i64, needs: u64, own: Option<&Address>) -> Refusal {
    let reason = if own.is_some_and(|own| own.as_str() == account) {
        format!("{account} has {has} tokens and {needs} are needed")
    } else {
        format!("{account} does not hold the {needs} tokens needed")
    };
    Refusal::new(Rule::NotEnough, reason)
}
