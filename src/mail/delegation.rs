//! Subagents: what a parent's word must say before the house certifies it, whether a chain still stands, and its end.
//!
//! A subagent never exceeds its parent. Where the parent is bounded the child must say its own bounds, at least as tight:
//! the delegation is signed by the parent and checked by other houses as it stands, so nothing can be added to it here.

use super::cards::{Asker, certify, visible_to};
use super::{Answer, Authority, no_such_agent};
use crate::limits;
use crate::record::agent::parents;
pub use crate::record::agent::stands;
use crate::record::{AgentRecord, Change, Decided, Decision, House, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::{Address, Local, SystemName};
use crate::wire::card::{Delegation, Scope, Visibility};
use crate::wire::key::{PublicKey, Signature};
use crate::wire::{AgentCard, Envelope};
use serde_json::{Value, json};

/// Whether this delegation lets `local`, holding `sig`, be certified as a subagent now.
pub(super) fn check(
    house: &House,
    view: &dyn View,
    now: Timestamp,
    delegation: &Delegation,
    local: &Local,
    sig: &PublicKey,
) -> Result<(), Refusal> {
    let by = &delegation.by;
    let head = local.as_str().strip_suffix(by.local()).and_then(|head| head.strip_suffix('.'));
    if !house.is_mine(by) || head.is_none_or(str::is_empty) {
        let reason = format!("a subagent of {by} is named <name>.{} at the same house", by.local());
        return Err(Refusal::new(Rule::BadField, reason));
    }
    let says = |field: &str| delegation.doc().get(field).and_then(Value::as_str);
    let named = says("address") == Some(house.domain.address(local).as_str()) && says("sig") == Some(&sig.kid());
    let parent = view.agent(by.local()).filter(|parent| !parent.system);
    let kid = Signature::of(delegation.doc(), "signature").map(|signature| signature.kid.to_owned());
    let signed = parent.as_ref().is_some_and(|parent| {
        let key = &parent.card.sig;
        kid.is_some_and(|kid| key.is_kid(&kid)) && key.verify_object(delegation.doc(), "signature")
    });
    // Whoever does not hold a secret parent's signature does not learn that there is such a parent.
    let Some(parent) = parent.filter(|parent| signed || parent.card.visibility != Visibility::Secret) else {
        return Err(no_such_agent());
    };
    if !named {
        let reason = "the delegation does not name this address and this key; the parent signs a new one for them";
        return Err(out_of_scope(reason));
    }
    if !signed {
        return Err(out_of_scope(&format!("the delegation is not signed with the current key of {by}")));
    }
    if delegation.valid_until.is_some_and(|until| until <= now) {
        return Err(out_of_scope("the delegation is past its date"));
    }
    stands(view, &parent.card, now)?;
    if parents(view, &parent.card).len() + 1 >= limits::DELEGATION_DEPTH_MAX {
        let reason = format!("a chain of delegation has at most {} parents", limits::DELEGATION_DEPTH_MAX);
        return Err(out_of_scope(&reason));
    }
    parent.card.scope().map_or(Ok(()), |bounds| narrower(&delegation.scope, bounds))
}

/// Whether the bounds of this card and of every parent above it admit the envelope. A parent that was bounded after its
/// subagents were made binds them all the same.
pub(super) fn admits(view: &dyn View, card: &AgentCard, envelope: &Envelope) -> Result<(), Refusal> {
    let parents = parents(view, card);
    let scopes = std::iter::once(card).chain(parents.iter()).filter_map(AgentCard::scope);
    scopes.into_iter().try_for_each(|scope| scope.admits(envelope))
}

/// Whether the bounds of this card and of every parent above it let it hand something to all of these.
pub(super) fn reaches(view: &dyn View, card: &AgentCard, to: &[Address]) -> Result<(), Refusal> {
    let parents = parents(view, card);
    let scopes = std::iter::once(card).chain(parents.iter()).filter_map(AgentCard::scope);
    scopes.into_iter().try_for_each(|scope| scope.reaches(to))
}

/// `POST /agents/:sub/revoke`: by the operator, by whoever delegated it, or by the subagent itself. Nobody else learns
/// whether the name exists.
pub fn revoke(house: &House, view: &dyn View, now: Timestamp, local: &str, by: &Authority) -> Decided<Answer> {
    let local = Local::parse(local).map_err(|r| Refusal::new(Rule::NameInvalid, r.reason))?;
    let caller = match by {
        Authority::Nobody => {
            return Err(Refusal::new(
                Rule::Unauthenticated,
                "revoking needs the signature of the parent or the subagent",
            ));
        }
        Authority::Admin => None,
        Authority::Agent(card) => Some(card.as_ref()),
    };
    let record = view.agent(local.as_str());
    let asker = caller.map_or(Asker::Nobody, Asker::Card);
    let record = record.filter(|record| caller.is_none() || visible_to(&record.card, asker, now));
    let record = record.filter(|record| record.card.delegation.is_some());
    let Some(record) = record else {
        return Err(Refusal::new(Rule::NoSuchDelegation, "no such delegated address"));
    };
    let parent = record.card.delegation.as_ref().map(|delegation| &delegation.by);
    if caller.is_some_and(|caller| caller.address != record.card.address && Some(&caller.address) != parent) {
        let reason = format!("only its parent and itself may revoke {}", record.card.address);
        return Err(Refusal::new(Rule::NotYours, reason));
    }
    if let Some(revoked) = record.card.doc().get("revoked").filter(|revoked| !revoked.is_null()) {
        let body = json!({"address": record.card.address, "revoked": revoked, "already": true});
        return Ok(Decision::nothing(Answer::new(200, body)));
    }
    let by = caller.map_or_else(|| house.address(SystemName::Casa), |card| card.address.clone());
    let revoked = json!({"at": now, "by": by});
    let mut doc = record.card.doc().clone();
    doc["valid_until"] = json!(now);
    doc["revoked"] = revoked.clone();
    // An old key in its grace ends with the card.
    doc["previous"] = json!([]);
    let card = certify(house, doc)?;
    let body = json!({"address": card.address, "revoked": revoked});
    let event = Change::Event {
        name: "delegation_revoked",
        at: now,
        actor: by.to_string(),
        data: json!({"address": card.address}),
    };
    let changes = vec![Change::PutAgent(AgentRecord { card, ..record }), event];
    Ok(Decision { changes, reply: Answer::new(200, body) })
}

fn narrower(child: &Scope, parent: &Scope) -> Result<(), Refusal> {
    for (field, own, bound) in
        [("types", &child.types, &parent.types), ("to_domains", &child.to_domains, &parent.to_domains)]
    {
        let Some(bound) = bound else { continue };
        let within = own.as_ref().is_some_and(|own| own.iter().all(|entry| bound.contains(entry)));
        if !within {
            let reason = format!("scope.{field} must be declared within the parent's: {}", bound.join(", "));
            return Err(out_of_scope(&reason));
        }
    }
    if let Some(bound) = parent.cap
        && child.cap.is_none_or(|cap| cap > bound)
    {
        return Err(out_of_scope(&format!("scope.cap must be declared, up to the parent's {bound}")));
    }
    if parent.messages_only && !child.messages_only {
        return Err(out_of_scope("scope.messages_only must be true, as the parent's is"));
    }
    Ok(())
}

fn out_of_scope(reason: &str) -> Refusal {
    Refusal::new(Rule::OutOfScope, reason)
}
