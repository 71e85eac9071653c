//! Invitations: codes by which the operator lets agents in. A code is spent in the transaction that makes the agent, so
//! no rejected registration burns one and no race uses one twice.

use super::Answer;
use crate::ids::Ids;
use crate::limits;
use crate::record::{Change, Decided, Decision, Invitation};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::json::type_name;
use serde_json::{Value, json};

/// `POST /invitations`, by the house's operator.
pub fn create(now: Timestamp, ids: &mut Ids, body: &Value) -> Decided<Answer> {
    let given = |field: &str| body.get(field).filter(|value| !value.is_null());
    let whole =
        |field: &str, range: std::ops::RangeInclusive<u64>| match given(field) {
            None => Ok(None),
            Some(value) => value.as_u64().filter(|n| range.contains(n)).map(Some).ok_or_else(|| {
                bad(format!("{field} must be a whole number from {} to {}", range.start(), range.end()))
            }),
        };
    let uses = whole("uses", 1..=limits::INVITATION_USES_MAX)?.unwrap_or(1);
    let welcome = whole("welcome", 0..=limits::SAFE_INTEGER_MAX)?;
    let expires = match given("expires") {
        None => None,
        Some(value) => {
            let at = value.as_str().and_then(Timestamp::parse);
            let at = at.ok_or_else(|| bad("expires must be an ISO 8601 instant with a zone, or null".to_owned()))?;
            if at <= now {
                return Err(bad(format!("expires {at} is past")));
            }
            Some(at)
        }
    };
    let note = match given("note") {
        None => None,
        Some(Value::String(note)) if note.chars().count() <= limits::INVITATION_NOTE_MAX => Some(note.clone()),
        Some(Value::String(_)) => {
            return Err(bad(format!("note has at most {} characters", limits::INVITATION_NOTE_MAX)));
        }
        Some(other) => return Err(bad(format!("note must be a text, got {}", type_name(other)))),
    };
    let invitation = Invitation {
        code: code(ids),
        uses,
        used: 0,
        expires,
        note,
        welcome,
        created: now,
        by: "admin".to_owned(),
        last_used: None,
    };
    let mut shown = to_json(&invitation);
    if let Some(object) = shown.as_object_mut() {
        object.remove("last_used");
    }
    let data = json!({"uses": uses});
    let event = Change::Event { name: "invitation_created", at: now, actor: "admin".to_owned(), data };
    let changes = vec![Change::InsertInvitation(invitation), event];
    Ok(Decision { changes, reply: Answer::new(201, shown) })
}

/// `GET /invitations`.
pub fn listing(invitations: &[Invitation]) -> Value {
    json!({"invitations": invitations.iter().map(to_json).collect::<Vec<_>>()})
}

/// Whether this invitation lets somebody in now; the refusal does not say which of the reasons it was.
pub(super) fn usable(invitation: Option<Invitation>, now: Timestamp) -> Result<Invitation, Refusal> {
    invitation
        .filter(|invitation| {
            invitation.used < invitation.uses && invitation.expires.is_none_or(|expires| expires > now)
        })
        .ok_or_else(|| Refusal::new(Rule::InvitationInvalid, "the invitation is unknown, expired or used up"))
}

fn to_json(invitation: &Invitation) -> Value {
    serde_json::to_value(invitation).unwrap_or_default()
}

/// Twenty hex digits: eighty bits that nobody guesses.
fn code(ids: &mut Ids) -> String {
    crate::wire::digest::Sha256(ids.bytes()).hex().chars().take(20).collect()
}

fn bad(reason: String) -> Refusal {
    Refusal::new(Rule::BadField, reason)
}
