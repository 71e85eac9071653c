//! How an agent enters the house, and how its owner changes its card.
//!
//! Who may write a name: the operator; the name's owner, signing with the current key; whoever signed the delegation of a
//! subagent; and, where the house lets people in by themselves, whoever proves possession of the key and finds the name
//! free. A registration that ends in a refusal leaves nothing behind but a counted attempt.
//!
//! A taken name that is secret to the asker goes the way of a reserved one, step by step. One thing is told all the same,
//! because the protocol asks for it: `x.<name>` cannot be registered without the delegation of an existing `<name>`, so
//! whoever may register here can learn by trying that the longer name is refused.

use super::cards::{Asker, certify, visible_to};
use super::request::{Given, RegistrationRequest, asks_dollars};
use super::{Answer, Authority, delegation, invitations, no_such_agent, profile, within_rate};
use crate::ids::Ids;
use crate::libro::{self, Books, Ctx};
use crate::limits;
use crate::record::{AgentRecord, Cards, Change, Decided, Decision, House, Registration, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::AgentCard;
use crate::wire::address::Local;
use crate::wire::amount::Amount;
use crate::wire::key::PublicKey;
use serde_json::{Map, Value, json};

/// `POST /agents`. `ip` is the bucket that attempts without an authority are counted in.
pub fn register(
    house: &House,
    view: &dyn View,
    now: Timestamp,
    ids: &mut Ids,
    body: &Value,
    authority: &Authority,
    ip: &str,
) -> Decided<Answer> {
    let request = RegistrationRequest::parse(house, body, now)?;
    let mut entry = Entry { house, view, now, request, existing: None, via: String::new(), gift: 0, invite: None };
    entry.existing = view.agent(entry.request.local.as_str());
    match authority {
        Authority::Admin => {
            entry.via = "admin".to_owned();
            entry.gift = house.settings.welcome;
            return entry.enrol(ids);
        }
        Authority::Agent(caller) => {
            same_as_now(view, caller, now)?;
            if let Some(via) = entry.entitlement(caller) {
                if caller.messages_only() && entry.request.profile != Given::Omitted {
                    return Err(profile_out_of_scope());
                }
                let key = format!("card:{}", caller.address);
                within_rate(view.rate(&key, now), house.settings.mail_per_minute, now, "changes of cards")?;
                entry.via = via.to_owned();
                let mut decision = entry.enrol(ids)?;
                decision.changes.push(Change::CountRate { key, at: now, hits: 1 });
                return Ok(decision);
            }
        }
        Authority::Nobody => {}
    }
    let key = format!("registration:{ip}");
    within_rate(view.rate(&key, now), house.settings.registrations_per_minute, now, "registrations from one address")?;
    let count = Change::CountRate { key, at: now, hits: 1 };
    let asker = match authority {
        Authority::Agent(caller) => Asker::Card(caller),
        _ => Asker::Nobody,
    };
    match entry.by_oneself(ids, body, asker) {
        Ok(mut decision) => {
            decision.changes.push(count);
            Ok(decision)
        }
        Err(refusal) => Ok(Decision { changes: vec![count], reply: Answer::denied(&refusal) }),
    }
}

/// `POST /agents/:local/profile`: only the profile changes; `null` or nothing deletes it.
pub fn set_profile(
    house: &House,
    view: &dyn View,
    now: Timestamp,
    local: &str,
    body: &Value,
    caller: &AgentCard,
) -> Decided<Answer> {
    same_as_now(view, caller, now)?;
    let record = view.agent(local).filter(|record| visible_to(&record.card, Asker::Card(caller), now));
    let record = record.filter(|record| !record.card.revoked && !record.system).ok_or_else(no_such_agent)?;
    if caller.messages_only() {
        return Err(profile_out_of_scope());
    }
    let delegated_by = record.card.delegation.as_ref().map(|delegation| &delegation.by);
    if caller.address != record.card.address && Some(&caller.address) != delegated_by {
        let reason = format!("only {} and whoever delegated it may edit this profile", record.card.address);
        return Err(Refusal::new(Rule::NotYours, reason));
    }
    let profile = match body.get("profile") {
        None | Some(Value::Null) => None,
        Some(value) => Some(profile::read(house, value, now)?),
    };
    let mut doc = record.card.doc().clone();
    let object = doc.as_object_mut().ok_or_else(|| bad("the stored card cannot be read"))?;
    match &profile {
        Some(profile) => object.insert("profile".into(), profile.clone()),
        None => object.remove("profile"),
    };
    dollars_need_a_wallet(object)?;
    let card = certify(house, doc)?;
    let reply = Answer::new(200, json!({"address": card.address, "profile": profile}));
    Ok(Decision { changes: vec![Change::PutAgent(AgentRecord { card, ..record })], reply })
}

/// Names that belong to the house, or that a stranger would take for its voice.
pub fn is_reserved(local: &str) -> bool {
    let sounds_like = |own: &&str| local.strip_prefix(*own).is_some_and(|rest| rest.starts_with(['.', '-', '_']));
    RESERVED.contains(&local) || HOUSE_VOICES.iter().any(sounds_like)
}

struct Entry<'a> {
    house: &'a House,
    view: &'a dyn View,
    now: Timestamp,
    request: RegistrationRequest,
    existing: Option<AgentRecord>,
    via: String,
    /// Tokens credited when the name is new.
    gift: u64,
    invite: Option<String>,
}

impl Entry<'_> {
    /// By what right this caller writes the name without the rules for strangers, if it has one.
    fn entitlement(&self, caller: &AgentCard) -> Option<&'static str> {
        if caller.address == self.house.domain.address(&self.request.local) {
            return Some("self");
        }
        let asked = self.request.delegation.as_ref().is_some_and(|delegation| delegation.by == caller.address);
        // A name that somebody else holds is not made a subagent by signing for it.
        let mine = self.existing.as_ref().is_none_or(|record| {
            record.card.delegation.as_ref().is_some_and(|delegation| delegation.by == caller.address)
        });
        (asked && mine).then_some("delegation")
    }

    fn by_oneself(mut self, ids: &mut Ids, body: &Value, asker: Asker<'_>) -> Decided<Answer> {
        let seen = self.existing.as_ref().is_some_and(|record| visible_to(&record.card, asker, self.now));
        if seen {
            return Err(Refusal::new(Rule::NameTaken, format!("the name {} is taken", self.request.local)));
        }
        possession(body, &self.request, self.now)?;
        match self.house.settings.registration {
            Registration::Open => {
                self.via = "open".to_owned();
                self.gift = self.house.settings.welcome;
            }
            Registration::Invite => {
                let code = self.request.invite.clone();
                let invitation = code.as_deref().and_then(|code| self.view.invitation(code));
                let invitation = invitations::usable(invitation, self.now)?;
                self.via = format!("invite:{}", invitation.code);
                self.gift = invitation.welcome.unwrap_or(self.house.settings.welcome);
                self.invite = Some(invitation.code);
            }
            Registration::Admin => {
                let reason = "this house enrols agents itself; ask its operator";
                return Err(Refusal::new(Rule::RegistrationClosed, reason));
            }
        }
        if self.existing.is_some() {
            return Err(reserved(&self.request.local));
        }
        self.enrol(ids)
    }

    fn enrol(self, ids: &mut Ids) -> Decided<Answer> {
        let (house, now) = (self.house, self.now);
        self.name_rules()?;
        self.delegation_rules()?;
        self.return_rules()?;
        let doc = self.card_doc()?;
        let card = certify(house, doc)?;
        let record = AgentRecord {
            local: self.request.local.clone(),
            webhook: self.request.webhook.clone(),
            notify_email: None,
            registered_via: self.existing.as_ref().map_or_else(|| self.via.clone(), |old| old.registered_via.clone()),
            system: false,
            created: self.existing.as_ref().map_or(now, |old| old.created),
            card,
        };
        let mut body = record.card.doc().clone();
        body["registered_via"] = self.via.clone().into();
        let new = self.existing.is_none();
        let delegated = record.card.delegation.is_some();
        let address = record.card.address.clone();
        let mut changes = vec![if new { Change::InsertAgent(record) } else { Change::PutAgent(record) }];
        let event = |name: &'static str, data: Value| Change::Event { name, at: now, actor: address.to_string(), data };
        if let Some(code) = &self.invite {
            changes.push(Change::UseInvitation { code: code.clone(), at: now });
            changes.push(event("invitation_accepted", json!({"code": code})));
        }
        if new {
            changes.push(event("join", json!({"via": self.via, "source": self.request.source})));
        }
        if let Some(gift) = Amount::new(self.gift).filter(|_| new && !delegated) {
            let cards = Cards::new();
            let ctx = Ctx { house, view: self.view, now, cards: &cards };
            let mut books = Books::open(self.view);
            let meta = Map::from_iter([("agent".to_owned(), json!(address))]);
            libro::topup(&ctx, &mut books, ids, &address, gift, Some("welcome"), meta)?;
            changes.extend(books.into_changes());
        }
        Ok(Decision { changes, reply: Answer::new(201, body) })
    }

    fn name_rules(&self) -> Result<(), Refusal> {
        let local = &self.request.local;
        let dots = local.as_str().ends_with('.') || local.as_str().contains("..");
        if dots || local.as_str().starts_with(super::talk::GROUP_PREFIX) || is_reserved(local.as_str()) {
            return Err(reserved(local));
        }
        match &self.existing {
            Some(record) if record.system => return Err(reserved(local)),
            Some(_) => return Ok(()),
            None => {}
        }
        let least = self.house.settings.min_name_length;
        if self.request.delegation.is_some() {
            return Ok(());
        }
        if local.as_str().len() < least {
            let reason = format!("the name {local} is too short; a name has at least {least} characters");
            return Err(Refusal::new(Rule::NameTooShort, reason));
        }
        let text = local.as_str();
        // A dot reads as "of": whoever comes later by the name after it would find a stranger who looks delegated.
        if self.via != "admin" && text.contains('.') {
            return Err(reserved(local));
        }
        let above = text.match_indices('.').filter_map(|(at, _)| text.get(at + 1..));
        if above.into_iter().any(|name| self.view.agent(name).is_some()) {
            return Err(reserved(local));
        }
        Ok(())
    }

    fn delegation_rules(&self) -> Result<(), Refusal> {
        let standing = self.existing.as_ref().and_then(|record| record.card.delegation.as_ref());
        let Some(given) = &self.request.delegation else {
            let same_key = self.existing.as_ref().is_some_and(|record| record.card.sig == self.request.sig);
            if standing.is_some() && !same_key {
                let reason = "a subagent's new key needs a new delegation, signed for it by the parent";
                return Err(Refusal::new(Rule::OutOfScope, reason));
            }
            return Ok(());
        };
        let (house, local) = (self.house, &self.request.local);
        delegation::check(house, self.view, self.now, given, local, &self.request.sig)?;
        let Some(standing) = standing.filter(|_| self.via == "self") else { return Ok(()) };
        let issued = |doc: &Value| doc.get("issued").and_then(Value::as_str).and_then(Timestamp::parse);
        // An earlier, wider word of the parent is not brought back by the subagent.
        let not_older = issued(given.doc()).is_some_and(|new| issued(standing.doc()).is_none_or(|old| new >= old));
        if given.by != standing.by || !not_older {
            let reason = "the delegation is older than the one in force, or by another parent; it must be issued anew";
            return Err(Refusal::new(Rule::OutOfScope, reason));
        }
        Ok(())
    }

    /// After a revocation the name may come back, never the key; and what the operator revoked, only by the operator.
    fn return_rules(&self) -> Result<(), Refusal> {
        let Some(record) = self.existing.as_ref().filter(|record| record.card.revoked) else { return Ok(()) };
        let by = record.card.doc().pointer("/revoked/by").and_then(Value::as_str);
        if by == Some(self.house.casa().as_str()) && self.via != "admin" {
            return Err(Refusal::new(
                Rule::NotYours,
                "the house revoked this address; only its operator enrols it again",
            ));
        }
        if record.card.sig == self.request.sig {
            return Err(bad("sig is the key that was revoked; enrol another"));
        }
        if self.request.delegation.is_none() {
            return Err(bad("delegation is missing: a revoked subagent comes back with a new one"));
        }
        Ok(())
    }

    fn card_doc(&self) -> Result<Value, Refusal> {
        let request = &self.request;
        let old = self.existing.as_ref().map(|record| &record.card);
        let kept = |field: &str| old.and_then(|card| card.doc().get(field)).filter(|value| !value.is_null()).cloned();
        let same_key = old.is_some_and(|card| card.sig == request.sig);
        let delegation = request.delegation.as_ref().or_else(|| old.and_then(|card| card.delegation.as_ref()));
        let ends = delegation.and_then(|delegation| delegation.valid_until);
        let valid_until = match (request.valid_until, ends) {
            (Some(asked), Some(ends)) => Some(asked.min(ends)),
            (asked, ends) => asked.or(ends),
        };
        let mut doc = Map::new();
        let mut put = |field: &str, value: Value| {
            doc.insert(field.to_owned(), value);
        };
        put("nyx5", "1".into());
        put("address", json!(self.house.domain.address(&request.local)));
        put("sig", request.sig.kid().into());
        put("enc", request.enc.map(|enc| enc.text()).into());
        put("capabilities", request.capabilities.clone());
        put("inbox", request.inbox.clone());
        put("valid_from", kept("valid_from").filter(|_| same_key).unwrap_or_else(|| json!(self.now)));
        put("valid_until", json!(valid_until));
        put("previous", previous(old, &request.sig, self.now));
        if let Some(wallets) = request.wallets.clone().map(Value::Array).or_else(|| kept("wallets")) {
            put("wallets", wallets);
        }
        let profile = match &request.profile {
            Given::Omitted => kept("profile"),
            Given::Null => None,
            Given::Value(profile) => Some(profile.clone()),
        };
        if let Some(profile) = profile {
            put("profile", profile);
        }
        let visibility = match request.visibility {
            Given::Omitted => kept("visibility"),
            Given::Null => None,
            Given::Value(name) => Some(name.into()),
        };
        if let Some(visibility) = visibility {
            put("visibility", visibility);
        }
        if let Some(custody) = kept("custody").filter(|_| same_key) {
            put("custody", custody);
        }
        if let Some(delegation) = delegation {
            put("delegation", delegation.doc().clone());
        }
        dollars_need_a_wallet(&doc)?;
        Ok(Value::Object(doc))
    }
}

/// The old keys that still verify: those in their grace, and the one that this change retires, newest first. The key of a
/// revoked card is none of them.
pub(super) fn previous(old: Option<&AgentCard>, sig: &PublicKey, now: Timestamp) -> Value {
    let Some(old) = old.filter(|card| !card.revoked) else { return json!([]) };
    let mut keys: Vec<Value> = Vec::new();
    if &old.sig != sig {
        keys.push(json!({"sig": old.sig.kid(), "until": now.plus(limits::KEY_GRACE_MS)}));
    }
    let listed = old.doc().get("previous").and_then(Value::as_array).into_iter().flatten();
    let in_grace = listed.filter(|key| {
        let until = key.get("until").and_then(Value::as_str).and_then(Timestamp::parse);
        let kid = key.get("sig").and_then(Value::as_str);
        until.is_some_and(|until| until > now) && kid.is_some_and(|kid| !sig.is_kid(kid) && !old.sig.is_kid(kid))
    });
    keys.extend(in_grace.cloned());
    keys.truncate(limits::PREVIOUS_KEYS_MAX);
    Value::Array(keys)
}

/// The body is signed with the key that it enrols, now. What cannot be read proves nothing.
fn possession(body: &Value, request: &RegistrationRequest, now: Timestamp) -> Result<(), Refusal> {
    let denied = |reason: &str| Err(Refusal::new(Rule::PossessionNotProved, reason));
    if !request.sig.verify_object(body, "signature") {
        return denied("the body must be signed with the key that it enrols: signature.kid equal to sig");
    }
    match request.ts {
        Some(ts) if now.since(ts).abs() <= limits::AUTH_WINDOW_MS => Ok(()),
        Some(_) => denied("ts is more than five minutes away from this house's clock"),
        None => denied("ts must be an ISO 8601 instant with a zone: when the body was signed"),
    }
}

/// The caller's card was read before this transaction; it must still be the one in force.
pub(super) fn same_as_now(view: &dyn View, caller: &AgentCard, now: Timestamp) -> Result<(), Refusal> {
    let current = view.agent(caller.address.local()).map(|record| record.card);
    match current.filter(|card| card.address == caller.address && card.sig == caller.sig) {
        Some(card) if delegation::stands(view, &card, now).is_ok() => Ok(()),
        _ => Err(Refusal::new(Rule::Unauthenticated, "the caller's card changed since the request was signed")),
    }
}

fn dollars_need_a_wallet(card: &Map<String, Value>) -> Result<(), Refusal> {
    let asked = card.get("inbox").is_some_and(asks_dollars) || card.get("profile").is_some_and(profile::asks_dollars);
    let wallets = card.get("wallets").and_then(Value::as_array).is_some_and(|wallets| !wallets.is_empty());
    if asked && !wallets {
        return Err(bad("a price in dollars needs a wallet to be paid to; give wallets"));
    }
    Ok(())
}

fn profile_out_of_scope() -> Refusal {
    Refusal::new(Rule::OutOfScope, "a messages-only address may not edit a profile")
}

fn reserved(local: &Local) -> Refusal {
    Refusal::new(Rule::NameReserved, format!("the name {local} is reserved"))
}

fn bad(reason: &str) -> Refusal {
    Refusal::new(Rule::BadField, reason)
}

/// The house's own names; `libro-1` or `casa.x` would pass for them in prose.
const HOUSE_VOICES: &[&str] = &["postmaster", "libro", "verifica", "tareas", "casa"];

const RESERVED: &[&str] = &[
    "postmaster",
    "libro",
    "verifica",
    "tareas",
    "casa",
    "admin",
    "root",
    "abuse",
    "security",
    "hostmaster",
    "noreply",
    "no-reply",
    "support",
    "estafeta",
    "nyx5",
    "indice",
    "historial",
    "qa",
    "ideas",
];
