//! Groups: one address that is many mailboxes of this house.
//!
//! Consent is asked twice. Somebody can be added only by a person from whom they take letters already, and at each
//! delivery a member gets only what their own mailbox takes freely from its author. The house holds the group's key and
//! reads nothing: the same signed envelope goes to every member, sealed by its author for each of them.
//!
//! A delivery is whole. Where the author's rate does not allow a copy for each member, no member gets one and the author's
//! house comes again: a fan-out that stopped half way would be taken for done, and the rest would never get it. A minute in
//! which the author has sent nothing carries any group, so that a low limit makes a large group slow and never mute.
//!
//! Who is in a group is for its members to see. Others see a card without names, signed by the house like the whole one.

use super::cards::{Asker, certify, seen_by};
use super::letters::is_own_voice;
use super::registration::same_as_now;
use super::talk::GROUP_PREFIX;
use super::{Answer, delegation, within_rate};
use crate::limits;
use crate::record::{AgentRecord, Change, Decided, Decision, House, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::{Address, Local};
use crate::wire::card::{Inbox, InboxPolicy};
use crate::wire::json::type_name;
use crate::wire::{AgentCard, Envelope};
use serde_json::{Value, json};

/// What a card says of the group whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub members: Vec<Address>,
    pub admins: Vec<Address>,
    pub post: Post,
    pub created: Timestamp,
    pub updated: Option<Timestamp>,
}

/// Who may write to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    Members,
    Admins,
}

/// Who gets a copy, and how many members do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audience {
    pub members: Vec<Address>,
    pub skipped: usize,
}

/// What a group's door answers: the attempt counts towards the caller's rate whatever comes of it.
pub type Attempted = Decided<Result<Answer, Refusal>>;

impl Group {
    pub fn of(card: &AgentCard) -> Option<Group> {
        let doc = card.doc().get("group")?;
        let addresses = |field: &str| -> Vec<Address> {
            let listed = doc.get(field).and_then(Value::as_array).into_iter().flatten();
            listed.filter_map(Value::as_str).filter_map(|text| Address::parse(text).ok()).collect()
        };
        let instant = |field: &str| doc.get(field).and_then(Value::as_str).and_then(Timestamp::parse);
        Some(Group {
            members: addresses("members"),
            admins: addresses("admins"),
            post: if doc.get("post").and_then(Value::as_str) == Some("admins") { Post::Admins } else { Post::Members },
            created: instant("created")?,
            updated: instant("updated"),
        })
    }

    pub fn to_json(&self) -> Value {
        let mut doc = json!({
            "admins": self.admins, "members": self.members, "post": self.post.as_str(), "max": limits::GROUP_MEMBERS_MAX,
            "created": self.created,
        });
        if let Some(updated) = self.updated {
            doc["updated"] = json!(updated);
        }
        doc
    }

    fn posters(&self) -> &[Address] {
        match self.post {
            Post::Members => &self.members,
            Post::Admins => &self.admins,
        }
    }
}

impl Post {
    pub const fn as_str(self) -> &'static str {
        match self {
            Post::Members => "members",
            Post::Admins => "admins",
        }
    }

    fn parse(value: Option<&Value>) -> Result<Post, Refusal> {
        match value {
            None | Some(Value::Null) => Ok(Post::Members),
            Some(Value::String(text)) if text == "members" => Ok(Post::Members),
            Some(Value::String(text)) if text == "admins" => Ok(Post::Admins),
            Some(_) => Err(bad("post must be members or admins".into())),
        }
    }
}

/// `POST /groups`: the creator is its first member and its admin.
pub fn create(house: &House, view: &dyn View, now: Timestamp, caller: &AgentCard, body: &Value) -> Attempted {
    attempt(view, now, caller, || {
        let local = name_of(body)?;
        let post = Post::parse(body.get("post"))?;
        let mut members = vec![caller.address.clone()];
        for address in addresses(body, "members")? {
            if !members.contains(&address) {
                admissible(house, view, now, caller, &address)?;
                members.push(address);
            }
        }
        within_size(&members)?;
        if view.agent(local.as_str()).is_some() {
            return Err(Refusal::new(Rule::NameTaken, format!("the name {local} is taken")));
        }
        let group = Group { members, admins: vec![caller.address.clone()], post, created: now, updated: None };
        let card = certify(house, card_doc(house, &local, &group))?;
        let reply = Answer::new(201, json!({"address": card.address, "group": group.to_json()}));
        let data = json!({"group": card.address, "members": group.members.len()});
        let record = AgentRecord {
            local,
            card,
            webhook: None,
            notify_email: None,
            registered_via: "group".into(),
            // Nobody signs for it, and what it would be paid nobody could spend.
            system: true,
            created: now,
        };
        let event = Change::Event { name: "group_created", at: now, actor: caller.address.to_string(), data };
        Ok((vec![Change::InsertAgent(record), event], reply))
    })
}

/// `GET /groups/:g/members`, for its members.
pub fn members(house: &House, view: &dyn View, caller: &AgentCard, local: &str) -> Result<Value, Refusal> {
    let (record, group) = find(house, view, local)?;
    member_only(&group, caller)?;
    Ok(json!({"address": record.card.address, "group": group.to_json()}))
}

/// `POST /groups/:g/members`: `{add, remove, admins}`. Whoever is in already is not judged again, so that one who is gone
/// keeps nobody else from leaving.
pub fn edit(
    house: &House,
    view: &dyn View,
    now: Timestamp,
    caller: &AgentCard,
    local: &str,
    body: &Value,
) -> Attempted {
    attempt(view, now, caller, || {
        let (record, before) = find(house, view, local)?;
        member_only(&before, caller)?;
        let (add, remove) = (addresses(body, "add")?, addresses(body, "remove")?);
        let named = match body.get("admins") {
            None | Some(Value::Null) => None,
            Some(_) => Some(addresses(body, "admins")?),
        };
        let leaves = add.is_empty() && named.is_none() && remove.iter().all(|gone| *gone == caller.address);
        if !before.admins.contains(&caller.address) && !leaves {
            let reason = "only an admin of the group changes who is in it; a member may leave";
            return Err(Refusal::new(Rule::NotYours, reason));
        }
        let mut group = before.clone();
        group.members.retain(|member| !remove.contains(member));
        for address in add.iter().filter(|address| !remove.contains(address)) {
            if !group.members.contains(address) {
                admissible(house, view, now, caller, address)?;
                group.members.push(address.clone());
            }
        }
        within_size(&group.members)?;
        if let Some(named) = named {
            if let Some(stranger) = named.iter().find(|admin| !group.members.contains(admin)) {
                return Err(bad(format!("{stranger} is not in the group and cannot be its admin")));
            }
            group.admins = named;
        }
        group.admins.retain(|admin| group.members.contains(admin));
        if group.admins.is_empty() {
            return Err(Refusal::new(
                Rule::NoAdminLeft,
                "the group would have no admin; name one of its members first",
            ));
        }
        if group.members == before.members && group.admins == before.admins {
            return Ok((
                Vec::new(),
                Answer::new(200, json!({"address": record.card.address, "group": before.to_json()})),
            ));
        }
        group.updated = Some(now);
        let card = certify(house, card_doc(house, &record.local, &group))?;
        let reply = Answer::new(200, json!({"address": card.address, "group": group.to_json()}));
        let data = json!({"group": card.address, "members": group.members.len()});
        let event = Change::Event { name: "group_changed", at: now, actor: caller.address.to_string(), data };
        Ok((vec![Change::PutAgent(AgentRecord { card, ..record }), event], reply))
    })
}

/// The card of an agent or group of this house as this asker may read it. Of a group, only a member reads the names.
pub fn card_for(house: &House, record: &AgentRecord, asker: Asker<'_>) -> Result<Value, Refusal> {
    let Some(group) = Group::of(&record.card) else { return Ok(record.public().clone()) };
    let asking = match asker {
        Asker::Nobody => None,
        Asker::Address(address) => Some(address),
        Asker::Card(card) => Some(&card.address),
    };
    let mut doc = card_doc(house, &record.local, &group);
    if asking.is_some_and(|address| group.members.contains(address)) {
        if house.key.public().verify_object(record.public(), "certification") {
            return Ok(record.public().clone());
        }
    } else {
        doc["inbox"] = json!({"policy": "allowlist"});
        if let Some(said) = doc["group"].as_object_mut() {
            said.remove("members");
            said.remove("admins");
        }
    }
    certify(house, doc).map(|card| card.doc().clone())
}

/// Who gets what this author writes to the group, if the author may write to it.
pub fn audience(
    view: &dyn View,
    now: Timestamp,
    group: &Group,
    author: Option<&AgentCard>,
    envelope: &Envelope,
) -> Result<Audience, Refusal> {
    let author = author.filter(|author| group.posters().contains(&author.address)).ok_or_else(|| {
        let who = match group.post {
            Post::Members => "members",
            Post::Admins => "admins",
        };
        Refusal::new(Rule::NotListed, format!("only its {who} write to this group"))
    })?;
    let keys = envelope.field("encrypted").filter(|sealed| !sealed.is_null()).map(|sealed| sealed.get("keys"));
    // Who came in after it was sealed could not open it.
    let opens = |member: &Address| keys.is_none_or(|keys| keys.is_some_and(|keys| keys.get(member.as_str()).is_some()));
    let others = group.members.iter().filter(|member| **member != author.address);
    let takes = |member: &&Address| {
        let record = seen_by(view, member.local(), Asker::Card(author), now);
        let standing = record.filter(|record| delegation::stands(view, &record.card, now).is_ok());
        opens(member) && standing.is_some_and(|record| takes_freely(&record.card.inbox, &author.address))
    };
    let members: Vec<Address> = others.clone().filter(takes).cloned().collect();
    let skipped = others.count() - members.len();
    Ok(Audience { members, skipped })
}

/// Whether the author's minute has room for a copy to each of so many members, after `own` hits of this envelope: all of
/// them or none.
pub fn room_for_all(before: u32, own: u32, copies: u32, limit: u32, now: Timestamp) -> Result<(), Refusal> {
    if before == 0 && own <= 1 {
        return Ok(());
    }
    let spent = before.saturating_add(own).saturating_add(copies);
    within_rate(spent.saturating_sub(1), limit, now, "envelopes from one sender, each copy to a group counted")
}

/// Whether a mailbox takes an author's letters as they are: open, or with the author on its list. A price, a proof of work,
/// an introduction or a vouch cannot be shown for a copy.
pub fn takes_freely(inbox: &Inbox, author: &Address) -> bool {
    match inbox.policy {
        _ if inbox.blocks(author) => false,
        InboxPolicy::Open => true,
        InboxPolicy::Allowlist | InboxPolicy::Pow { .. } | InboxPolicy::Stamp { .. } => inbox.lists(author),
        InboxPolicy::Unknown(_) => false,
    }
}

fn attempt(
    view: &dyn View,
    now: Timestamp,
    caller: &AgentCard,
    decide: impl FnOnce() -> Result<(Vec<Change>, Answer), Refusal>,
) -> Attempted {
    same_as_now(view, caller, now)?;
    let key = format!("groups:{}", caller.address);
    within_rate(view.rate(&key, now), limits::RATE_GROUPS_PER_MINUTE, now, "changes of groups by one agent")?;
    let mut changes = vec![Change::CountRate { key, at: now, hits: 1 }];
    let reply = decide().map(|(more, answer)| {
        changes.extend(more);
        answer
    });
    Ok(Decision { changes, reply })
}

fn find(house: &House, view: &dyn View, local: &str) -> Result<(AgentRecord, Group), Refusal> {
    let name = local.strip_prefix(GROUP_PREFIX).filter(|name| is_name(name));
    if name.is_none() {
        return Err(bad(format!("a group of {} is named g. and {NAME_RULE}", house.domain)));
    }
    let found = view.agent(local).and_then(|record| {
        let group = Group::of(&record.card)?;
        Some((record, group))
    });
    found.ok_or_else(|| Refusal::new(Rule::NoSuchAgent, "no such group"))
}

fn member_only(group: &Group, caller: &AgentCard) -> Result<(), Refusal> {
    if group.members.contains(&caller.address) {
        return Ok(());
    }
    Err(Refusal::new(Rule::NotYours, format!("{} is not in this group", caller.address)))
}

/// Whether this person can be added by this one. Who is secret to the adder is answered as one who does not exist.
fn admissible(
    house: &House,
    view: &dyn View,
    now: Timestamp,
    adder: &AgentCard,
    address: &Address,
) -> Result<(), Refusal> {
    if !house.is_mine(address) {
        return Err(bad(format!("{address} is of another house; a group has members of {} only", house.domain)));
    }
    if address.local().starts_with(GROUP_PREFIX) || is_own_voice(address.local()) {
        return Err(bad(format!("{address} is no person; groups and the house's own names are in no group")));
    }
    let record = seen_by(view, address.local(), Asker::Card(adder), now)
        .filter(|record| delegation::stands(view, &record.card, now).is_ok())
        .ok_or_else(|| bad(format!("there is no agent {address}")))?;
    if takes_freely(&record.card.inbox, &adder.address) {
        return Ok(());
    }
    Err(bad(format!("{address} does not take letters from {} and cannot be added", adder.address)))
}

fn card_doc(house: &House, local: &Local, group: &Group) -> Value {
    json!({
        "nyx5": "1",
        "address": house.domain.address(local),
        "sig": house.key.public().kid(),
        "enc": null,
        "capabilities": {"accepts": ["text/plain", "application/json"], "group": true},
        "inbox": {"policy": "allowlist", "allowlist": group.posters()},
        "valid_from": group.created,
        "valid_until": null,
        "previous": [],
        "group": group.to_json(),
    })
}

fn name_of(body: &Value) -> Result<Local, Refusal> {
    let name = match body.get("name") {
        Some(Value::String(name)) => name,
        None | Some(Value::Null) => return Err(bad("name is missing: what follows g. in the group's address".into())),
        Some(other) => return Err(bad(format!("name must be a text, got {}", type_name(other)))),
    };
    let local = Some(name).filter(|name| is_name(name)).map(|name| Local::parse(&format!("{GROUP_PREFIX}{name}")));
    match local {
        Some(Ok(local)) => Ok(local),
        _ => Err(bad(format!("name must be {NAME_RULE}"))),
    }
}

fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (limits::GROUP_NAME_MIN..=limits::GROUP_NAME_MAX).contains(&name.len())
        && name.bytes().next().is_some_and(plain)
        && name.bytes().all(|b| plain(b) || matches!(b, b'.' | b'_' | b'-'))
}

fn addresses(body: &Value, field: &str) -> Result<Vec<Address>, Refusal> {
    let listed = match body.get(field) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(listed)) if listed.len() <= limits::GROUP_MEMBERS_MAX => listed,
        Some(Value::Array(_)) => return Err(bad(format!("{field} lists at most {}", limits::GROUP_MEMBERS_MAX))),
        Some(other) => return Err(bad(format!("{field} must be a list of addresses, got {}", type_name(other)))),
    };
    let mut out: Vec<Address> = Vec::with_capacity(listed.len());
    for (i, text) in listed.iter().enumerate() {
        let address = Address::parse(text.as_str().unwrap_or_default())
            .map_err(|refusal| bad(format!("{field}[{i}] is no address: {}", refusal.reason)))?;
        if !out.contains(&address) {
            out.push(address);
        }
    }
    Ok(out)
}

fn within_size(members: &[Address]) -> Result<(), Refusal> {
    if members.len() <= limits::GROUP_MEMBERS_MAX {
        return Ok(());
    }
    Err(bad(format!("the group would have {} members; at most {}", members.len(), limits::GROUP_MEMBERS_MAX)))
}

fn bad(reason: String) -> Refusal {
    Refusal::new(Rule::BadField, reason)
}

const NAME_RULE: &str =
    "3 to 41 lower-case letters, digits, dots, hyphens or underscores, beginning with one of the first two";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::fixture::{START, World, address, certified, envelope};

    fn world(names: &[&str]) -> World {
        let mut world = World::new();
        for name in names {
            world.agent(name, json!({}));
        }
        world
    }

    fn full(local: &str) -> String {
        format!("{local}@mar.example")
    }

    fn keep(world: &mut World, attempted: Attempted) -> Result<Answer, Refusal> {
        world.view.commit(attempted?).expect("committed")
    }

    fn make(world: &mut World, by: &str, body: Value) -> Result<Answer, Refusal> {
        let caller = world.card_of(by);
        let attempted = create(&world.house, &world.view, world.now, &caller, &body);
        keep(world, attempted)
    }

    fn change(world: &mut World, by: &str, body: Value) -> Result<Answer, Refusal> {
        let caller = world.card_of(by);
        let attempted = edit(&world.house, &world.view, world.now, &caller, "g.team", &body);
        keep(world, attempted)
    }

    fn team(world: &mut World, members: &[&str]) -> Answer {
        let members: Vec<String> = members.iter().map(|name| full(name)).collect();
        make(world, "ana", json!({"name": "team", "members": members})).expect("made")
    }

    fn code(outcome: Result<Answer, Refusal>) -> u16 {
        outcome.map_or_else(|refusal| refusal.code(), |answer| answer.code)
    }

    fn to_team(id: &str, from: &str) -> Value {
        envelope(id, &full(from), &["g.team@mar.example"], json!({}))
    }

    fn holds(world: &World, local: &str, id: &str) -> bool {
        world.mailbox(local).iter().any(|mail| mail.id == id)
    }

    /// Incident 10: anyone could add anyone to a group, past every list.
    #[test]
    fn only_who_takes_ones_letters_can_be_added() {
        let mut world = world(&["ana", "bob"]);
        let list = |names: &[&str]| json!({"inbox": {"policy": "allowlist", "allowlist": names}});
        world.agent("lists", list(&["ana@mar.example"]));
        world.agent("domain", list(&["mar.example"]));
        world.agent("closed", list(&[]));
        world.agent("paid", json!({"inbox": {"policy": "stamp", "price": 1}}));
        world.agent("work", json!({"inbox": {"policy": "pow", "pow_bits": 1}}));
        world.agent("odd", json!({"inbox": {"policy": "later"}}));
        world.agent("blocks", json!({"inbox": {"policy": "open", "blocklist": ["ana@mar.example"]}}));
        world.agent("gone", json!({"revoked": {"at": START, "by": "x"}}));
        world.agent("hidden", json!({"visibility": "secret"}));
        for (name, taken) in [
            ("bob", true),
            ("lists", true),
            ("domain", true),
            ("closed", false),
            ("paid", false),
            ("work", false),
            ("odd", false),
            ("blocks", false),
            ("gone", false),
            ("hidden", false),
            ("absent", false),
            ("libro", false),
            ("g.team", false),
        ] {
            let mut fresh = World::new();
            (fresh.house, fresh.view) = (world.house.clone(), world.view.clone());
            let made = make(&mut fresh, "ana", json!({"name": "team", "members": [full(name)]}));
            assert_eq!(code(made), if taken { 201 } else { 400 }, "{name}");
        }
        let foreign = make(&mut world, "ana", json!({"name": "team", "members": ["leo@b.example"]}));
        assert_eq!(code(foreign), 400);
        let mut said = |name: &str| {
            let refusal =
                make(&mut world, "ana", json!({"name": "team", "members": [full(name)]})).expect_err("refused");
            refusal.reason.replace(name, "X")
        };
        assert_eq!(said("hidden"), said("absent"), "who is secret is not there");
    }

    #[test]
    fn names_sizes_and_takers_are_bounded() {
        let mut world = world(&["ana"]);
        let named = |name: Value| json!({"name": name});
        let long = "a".repeat(limits::GROUP_NAME_MAX);
        for bad in [
            json!("ab"),
            json!("Team"),
            json!(".abc"),
            json!("a b c"),
            json!("téam"),
            json!(3),
            json!(null),
            json!(format!("{long}a")),
        ] {
            assert_eq!(code(make(&mut world, "ana", named(bad.clone()))), 400, "{bad}");
        }
        assert_eq!(code(make(&mut world, "ana", named(json!("abc")))), 201);
        assert_eq!(code(make(&mut world, "ana", named(json!("abc")))), 409);
        assert_eq!(code(make(&mut world, "ana", named(json!(long)))), 201);
        assert_eq!(code(make(&mut world, "ana", json!({"name": "post", "post": "all"}))), 400);
        let people: Vec<String> = (0..limits::GROUP_MEMBERS_MAX).map(|n| format!("p{n}")).collect();
        for name in &people {
            world.agent(name, json!({}));
        }
        let people: Vec<String> = people.iter().map(|name| full(name)).collect();
        let (most, over) = (&people[1..], &people[..]);
        assert_eq!(code(make(&mut world, "ana", json!({"name": "over", "members": over}))), 400);
        assert_eq!(code(make(&mut world, "ana", json!({"name": "most", "members": most}))), 201);
        for _ in 0..limits::RATE_GROUPS_PER_MINUTE {
            let _ = make(&mut world, "ana", json!({}));
        }
        let refused = make(&mut world, "ana", json!({"name": "later"})).expect_err("over the rate");
        assert!(refused.code() == 429 && refused.retry_after.is_some());
    }

    #[test]
    fn admins_change_a_group_and_members_leave_it() {
        let mut world = world(&["ana", "bob", "eva", "tom"]);
        team(&mut world, &["bob", "eva"]);
        assert_eq!(code(change(&mut world, "tom", json!({"add": [full("tom")]}))), 403);
        assert_eq!(code(change(&mut world, "bob", json!({"add": [full("tom")]}))), 403);
        assert_eq!(code(change(&mut world, "bob", json!({"remove": [full("eva")]}))), 403);
        assert_eq!(code(change(&mut world, "bob", json!({"remove": [full("bob")], "admins": [full("bob")]}))), 403);
        assert_eq!(code(change(&mut world, "ana", json!({"admins": [full("tom")]}))), 400);
        assert_eq!(code(change(&mut world, "ana", json!({"remove": [full("ana")]}))), 409);
        assert_eq!(code(change(&mut world, "ana", json!({"admins": []}))), 409);
        // One who is gone keeps nobody from leaving.
        world.agent("eva", json!({"revoked": {"at": START, "by": "x"}}));
        assert_eq!(code(change(&mut world, "bob", json!({"remove": [full("bob")]}))), 200);
        let answer =
            change(&mut world, "ana", json!({"add": [full("tom")], "admins": [full("tom")]})).expect("changed");
        assert_eq!(answer.body["group"]["admins"], json!([full("tom")]));
        assert_eq!(answer.body["group"]["members"], json!([full("ana"), full("eva"), full("tom")]));
        assert_eq!(code(change(&mut world, "ana", json!({"remove": [full("ana")]}))), 200);
        let record = world.view.agent("g.team").expect("group");
        assert!(certified(&world, &record.card) && record.system);
        let caller = world.card_of("ana");
        assert_eq!(members(&world.house, &world.view, &caller, "g.team").map_err(|r| r.code()), Err(403));
        assert_eq!(members(&world.house, &world.view, &caller, "g.none").map_err(|r| r.code()), Err(404));
        assert_eq!(members(&world.house, &world.view, &caller, "team").map_err(|r| r.code()), Err(400));
    }

    /// Incident: group delivery ignored each member's policy.
    #[test]
    fn the_same_envelope_goes_to_each_member_that_takes_it_from_its_author() {
        let mut world = world(&["ana", "bob", "eva", "tom"]);
        team(&mut world, &["bob", "eva"]);
        world.agent("eva", json!({"inbox": {"policy": "allowlist", "allowlist": ["ana@mar.example"]}}));
        let answer = world.arrive(to_team("envelope-1", "ana"));
        assert_eq!(answer.code, 202, "{}", answer.body);
        assert_eq!(answer.body["results"]["g.team@mar.example"], json!({"members": 2, "skipped": 0}));
        assert!(holds(&world, "bob", "envelope-1") && holds(&world, "eva", "envelope-1"));
        assert!(holds(&world, "g.team", "envelope-1") && !holds(&world, "ana", "envelope-1"));
        let copy = &world.mailbox("bob")[0];
        assert_eq!(copy.meta["group"], "g.team@mar.example");
        assert_eq!(copy.envelope, world.mailbox("eva")[0].envelope);
        let answer = world.arrive(to_team("envelope-2", "bob"));
        assert_eq!(answer.body["results"]["g.team@mar.example"], json!({"members": 1, "skipped": 1}));
        assert!(!holds(&world, "eva", "envelope-2"));
        for id in ["envelope-1", "envelope-2"] {
            let from = if id == "envelope-1" { "ana" } else { "bob" };
            assert_eq!(world.arrive(to_team(id, from)).body["duplicate"], true);
        }
        assert_eq!(world.arrive(to_team("envelope-3", "tom")).code, 403);
        let intro = envelope("envelope-4", &full("tom"), &["g.team@mar.example"], json!({"type": "intro"}));
        assert_eq!(world.arrive(intro).code, 403, "no introduction opens a group");
        assert_eq!(world.arrive(envelope("envelope-5", "leo@b.example", &["g.team@mar.example"], json!({}))).code, 403);
        assert_eq!(world.arrive(envelope("envelope-6", "leo@b.example", &["g.none@mar.example"], json!({}))).code, 404);
        let body = json!({"name": "news", "members": [full("bob")], "post": "admins"});
        make(&mut world, "ana", body).expect("made");
        let to_news = |id: &str, from: &str| envelope(id, &full(from), &["g.news@mar.example"], json!({}));
        assert_eq!(world.arrive(to_news("envelope-7", "bob")).code, 403);
        assert_eq!(world.arrive(to_news("envelope-8", "ana")).code, 202);
        assert!(holds(&world, "bob", "envelope-8"));
        let sealed = json!({"content": null, "encrypted": {"ct": "x", "keys": {"bob@mar.example": {}}}});
        let answer = world.arrive(envelope("envelope-s", &full("ana"), &["g.team@mar.example"], sealed));
        assert_eq!(answer.body["results"]["g.team@mar.example"], json!({"members": 1, "skipped": 1}));
        // A member who is written to by name as well has one copy.
        let both = envelope("envelope-9", &full("ana"), &["bob@mar.example", "g.team@mar.example"], json!({}));
        assert_eq!(world.arrive(both).code, 202);
        assert_eq!(world.mailbox("bob").iter().filter(|mail| mail.id == "envelope-9").count(), 1);
    }

    /// Seen while reading: a fan-out cut by the rate listed the group as rejected and accepted, and the rest never got it.
    #[test]
    fn a_rate_that_does_not_reach_for_all_lets_none_get_it_and_then_all() {
        let mut world = world(&["ana"]);
        world.house.settings.mail_per_minute = 10;
        let people: Vec<String> = (0..6).map(|n| format!("p{n}")).collect();
        for name in &people {
            world.agent(name, json!({}));
        }
        let names: Vec<&str> = people.iter().map(String::as_str).collect();
        team(&mut world, &names);
        assert_eq!(world.arrive(to_team("envelope-1", "ana")).code, 202);
        assert_eq!(world.view.rate("inbound:ana@mar.example", world.now), 7);
        let refused = world.arrive(to_team("envelope-2", "ana"));
        assert_eq!(refused.code, 429, "{}", refused.body);
        assert_eq!(
            (refused.body["accepted"].clone(), refused.body["rejected"][0]["code"].clone()),
            (json!([]), json!(429))
        );
        assert!(people.iter().all(|name| !holds(&world, name, "envelope-2")) && !holds(&world, "g.team", "envelope-2"));
        world.now = world.now.plus(60_000);
        assert_eq!(world.arrive(to_team("envelope-2", "ana")).code, 202);
        assert!(people.iter().all(|name| holds(&world, name, "envelope-2")));
        // A group larger than the limit is slow, not mute.
        world.house.settings.mail_per_minute = 3;
        world.now = world.now.plus(60_000);
        assert_eq!(world.arrive(to_team("envelope-3", "ana")).code, 202);
        assert_eq!(world.arrive(to_team("envelope-4", "ana")).code, 429);
        let (limit, now) = (10, START);
        assert!(room_for_all(3, 1, 6, limit, now).is_ok());
        assert!(room_for_all(3, 1, 7, limit, now).is_err());
        assert!(room_for_all(0, 1, 700, limit, now).is_ok());
        assert!(room_for_all(0, 2, 700, limit, now).is_err());
    }

    #[test]
    fn who_is_in_a_group_is_for_its_members_to_see() {
        let mut world = world(&["ana", "bob", "tom"]);
        team(&mut world, &["bob"]);
        let record = world.view.agent("g.team").expect("group");
        let bob = world.card_of("bob");
        let tom = world.card_of("tom");
        let seen = |asker: Asker<'_>| card_for(&world.house, &record, asker).expect("card");
        let whole = seen(Asker::Card(&bob));
        assert_eq!(whole["group"]["members"], json!([full("ana"), full("bob")]));
        assert_eq!(whole["enc"], json!(null));
        for outsider in [Asker::Nobody, Asker::Card(&tom), Asker::Address(&address("leo@b.example"))] {
            let card = seen(outsider);
            assert!(!card.to_string().contains("bob@"), "{card}");
            assert_eq!(card["group"]["max"], json!(limits::GROUP_MEMBERS_MAX));
            assert!(certified(&world, &AgentCard::parse(card).expect("card")));
        }
    }
}
