//! The domain's card, how any card is certified, and who may see which.
//!
//! A document is signed once and signed again only when its content changes, so its bytes are the same from every door
//! and after every start.

use crate::limits;
use crate::probe::plan::Capabilities;
pub use crate::record::agent::{Asker, visible_to};
use crate::record::{AgentRecord, Change, House, View};
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::AgentCard;
use crate::wire::json::canonical;
use serde_json::{Map, Value, json};

/// The card of an agent of this house, if this asker may see it.
pub fn seen_by(view: &dyn View, local: &str, asker: Asker<'_>, now: Timestamp) -> Option<AgentRecord> {
    view.agent(local).filter(|record| visible_to(&record.card, asker, now))
}

/// The domain's own card: the stored one as long as it says the same and its signature holds, else a new one.
///
/// While the house changes its key, both keys stand there, the new one first, and the old one signs: whoever knows the
/// house by the old key learns the new one from a card that the old key vouches for.
pub fn domain_card(house: &House, stored: Option<&Value>, now: Timestamp) -> Value {
    let listed = stored.and_then(|card| card.get("keys")?.as_array()).into_iter().flatten();
    let since = |kid: &str| {
        let known = listed.clone().find(|key| key.get("sig").and_then(Value::as_str) == Some(kid));
        known.and_then(|key| key.get("created")?.as_str()).map_or_else(|| now.to_string(), str::to_owned)
    };
    let keys = std::iter::once(&house.key).chain(&house.retiring).map(|key| key.public().kid());
    let keys: Vec<Value> = keys.map(|kid| json!({"sig": kid, "created": since(&kid)})).collect();
    let mut policy = json!({
        "inbound": "verified",
        "max_bytes": house.settings.max_bytes,
        "registration": house.settings.registration.as_str(),
    });
    if house.settings.outbound_sealed {
        policy["outbound"] = "sealed".into();
    }
    let mut content = json!({
        "nyx5": "1",
        "domain": house.domain,
        "estafeta": house.public_url,
        "keys": keys,
        "policy": policy,
        "extensions": extensions(house),
    });
    if let Some(attachments) = super::blobs::published(house) {
        content["attachments"] = attachments;
    }
    let signer = house.card_key();
    match stored {
        Some(card)
            if same_but_for(card, &content, &["issued", "signature"])
                && signer.public().verify_object(card, "signature") =>
        {
            card.clone()
        }
        _ => {
            content["issued"] = json!(now);
            signer.sign_object(&mut content, "signature");
            content
        }
    }
}

/// The changes that certify these agents of the house anew, with the house's key: those whose card it did not certify.
pub fn recertified(house: &House, agents: Vec<AgentRecord>) -> Result<Vec<Change>, Refusal> {
    let key = house.key.public();
    let stale =
        agents.into_iter().filter(|record| !record.system && !key.verify_object(record.card.doc(), "certification"));
    stale
        .map(|record| Ok(Change::PutAgent(AgentRecord { card: certify(house, record.card.doc().clone())?, ..record })))
        .collect()
}

/// Signs a card document with the domain's key, within the size that a card may have.
pub fn certify(house: &House, doc: Value) -> Result<AgentCard, Refusal> {
    let card = AgentCard::certify(doc, &house.key)?;
    let bytes = canonical(card.doc()).len();
    if bytes > limits::CARD_BYTES_MAX {
        let reason = format!("the card is {bytes} bytes; a card has up to {}", limits::CARD_BYTES_MAX);
        return Err(Refusal::new(Rule::BadProfile, reason));
    }
    Ok(card)
}

/// One entry of the directory: the card exactly as certified, delegation and all, so that whoever crawls the directory
/// can verify both signatures.
pub fn directory_entry(card: &AgentCard) -> Value {
    card.doc().clone()
}

/// Whether a card answers a query of the directory. `q` is compared in lower case with the address and with the text of
/// the capabilities.
pub fn matches(card: &AgentCard, capability: Option<&str>, accepts: Option<&str>, q: Option<&str>) -> bool {
    let capabilities = card.doc().get("capabilities");
    let truthy = |value: &Value| match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    };
    let has = |name: &str| card.capability(name).is_some_and(truthy);
    let takes = |media: &str| {
        let listed = card.capability("accepts").and_then(Value::as_array);
        listed.into_iter().flatten().any(|entry| entry.as_str() == Some(media))
    };
    let says = |q: &str| {
        let q = q.to_lowercase();
        card.address.as_str().contains(&q) || capabilities.is_some_and(|c| canonical(c).to_lowercase().contains(&q))
    };
    capability.is_none_or(has) && accepts.is_none_or(takes) && q.is_none_or(says)
}

/// One entry of `GET /delegations/:local`: a subagent as its parent sees it. `renew_by` is there when the delegation was
/// signed with a key that the parent has retired: from then on nobody believes it, unless the parent signs it anew.
pub fn delegation_entry(card: &AgentCard, parent: &AgentCard) -> Value {
    let doc = card.doc();
    let field = |name: &str| doc.get(name).cloned().unwrap_or_default();
    let mut entry = json!({
        "address": card.address, "sig": field("sig"), "enc": field("enc"), "since": field("valid_from"),
        "valid_until": field("valid_until"), "revoked": field("revoked"), "custody": field("custody"),
        "scope": card.scope().map(|scope| scope.to_json()), "inbox": field("inbox"),
    });
    let kid = doc.pointer("/delegation/signature/kid").and_then(Value::as_str);
    if let Some(kid) = kid.filter(|kid| !parent.sig.is_kid(kid)) {
        let retired = parent.doc().get("previous").and_then(Value::as_array).into_iter().flatten();
        let grace =
            retired.filter(|key| key.get("sig").and_then(Value::as_str) == Some(kid)).find_map(|key| key.get("until"));
        entry["renew_by"] = grace.cloned().unwrap_or_else(|| field("valid_from"));
    }
    entry
}

/// The names of the test types, in their fixed order, as verifica@ publishes them.
pub fn test_names(capabilities: &Capabilities) -> Vec<&'static str> {
    capabilities.types.iter().map(|test| test.name()).collect()
}

/// Whether two documents are equal once these fields are left out of both.
pub(super) fn same_but_for(a: &Value, b: &Value, fields: &[&str]) -> bool {
    let without = |doc: &Value| -> Map<String, Value> {
        let mut doc = doc.as_object().cloned().unwrap_or_default();
        fields.iter().for_each(|field| {
            doc.remove(*field);
        });
        doc
    };
    canonical(&Value::Object(without(a))) == canonical(&Value::Object(without(b)))
}

/// What this house offers beyond the core, and nothing that it does not.
fn extensions(house: &House) -> Vec<&'static str> {
    let index = house.settings.index.then_some("urn:nyx5:ext:indice");
    EXTENSIONS.iter().copied().chain(index).collect()
}

const EXTENSIONS: &[&str] = &["urn:nyx5:ext:libro", "urn:nyx5:ext:aval"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::fixture::{START, World, address, certified, key};
    use crate::probe::plan::Capabilities;
    use crate::record::Settings;
    use crate::wire::DomainCard;
    use crate::wire::address::Address;
    use crate::wire::card::Delegation;

    #[test]
    fn the_domain_card_is_signed_once_and_again_only_when_it_says_something_else() {
        let mut world = World::new();
        let first = domain_card(&world.house, None, START);
        let read = DomainCard::verify(first.clone(), &world.house.domain, None).expect("card");
        assert_eq!(read.estafeta, world.house.public_url);
        assert_eq!(first["extensions"], json!(["urn:nyx5:ext:libro", "urn:nyx5:ext:aval"]), "only what is offered");
        assert_eq!(domain_card(&world.house, Some(&first), START.plus(5)), first);
        world.house.settings.max_bytes += 1;
        let second = domain_card(&world.house, Some(&first), START.plus(5));
        assert_ne!(second["issued"], first["issued"]);
        assert_eq!(second["keys"], first["keys"], "the key is as old as it was");
        let mut forged = second.clone();
        forged["signature"] = first["signature"].clone();
        assert_eq!(domain_card(&world.house, Some(&forged), START.plus(9))["issued"], json!(START.plus(9)));
        world.house.key = key("new");
        let third = domain_card(&world.house, Some(&second), START.plus(7));
        assert_eq!(third["keys"], json!([{"sig": key("new").public().kid(), "created": START.plus(7)}]));
    }

    #[test]
    fn system_cards_follow_what_the_house_can_do() {
        let mut world = World::new();
        let again = |world: &World| crate::mail::system_cards(&world.house, &world.view, world.now).expect("cards");
        assert!(again(&world).is_empty(), "nothing changed");
        for name in ["postmaster", "libro", "verifica"] {
            let record = world.view.agent(name).expect("record");
            assert!(record.system && certified(&world, &record.card));
            assert_eq!(record.card.sig, world.house.key.public());
        }
        let tests = |world: &World| world.card_of("verifica").doc()["capabilities"]["verifica"]["pruebas"].clone();
        assert_eq!(tests(&world), json!(["http_status", "sha256", "json_path", "regex", "size", "header"]));
        assert!(world.card_of("verifica").listed());
        let ops = world.card_of("libro").doc()["capabilities"]["libro"].clone();
        assert_eq!((ops["fee_bps"].clone(), ops["ops"][0].clone()), (json!(1_000), json!("accept")));
        world.house.settings.capabilities = Capabilities::default();
        world.house.settings.fee_bps = 50;
        world.now = START.plus(9);
        let changes = again(&world);
        assert_eq!(changes.len(), 2);
        world.view.apply(changes).expect("applied");
        assert_eq!(tests(&world), json!([]));
        assert_eq!(world.card_of("libro").doc()["valid_from"], json!(START));
        let without = World::with(Settings { arbiter: false, ..Settings::default() });
        assert!(without.view.agent("verifica").is_none());
    }

    #[test]
    fn a_secret_agent_is_seen_by_its_own_people_only() {
        let mut world = World::new();
        let open = world.agent("alicia", json!({}));
        let secret = |more: Value| {
            let mut doc = json!({"visibility": "secret"});
            doc.as_object_mut().expect("object").extend(more.as_object().expect("object").clone());
            doc
        };
        let delegated = |child: &str, parent: &str| {
            let (child, parent) = (address(child), address(parent));
            let scope = crate::wire::card::Scope::default();
            let key_of = |a: &Address| key(a.as_str());
            Delegation::sign(&parent, &key_of(&parent), &child, &key_of(&child).public(), &scope, None, START)
        };
        let list = json!({"policy": "allowlist", "allowlist": ["leo@b.example", "c.example"]});
        let of_alicia = delegated("oculta.alicia@mar.example", "alicia@mar.example");
        let hidden = world.agent("oculta.alicia", secret(json!({"inbox": list, "delegation": of_alicia})));
        let below = delegated("bot.oculta.alicia@mar.example", "oculta.alicia@mar.example");
        let bot = world.agent("bot.oculta.alicia", json!({"delegation": below}));
        let revoked = json!({"delegation": below, "revoked": {"at": START, "by": "x"}});
        let impostor = world.agent("evil.oculta.alicia", json!({}));
        let sees = |asker: Asker<'_>| visible_to(&hidden, asker, START);
        assert!(sees(Asker::Card(&hidden)) && sees(Asker::Card(&open)) && sees(Asker::Card(&bot)));
        for listed in ["leo@b.example", "eva@c.example", "alicia@mar.example", "oculta.alicia@mar.example"] {
            assert!(sees(Asker::Address(&address(listed))), "{listed}");
        }
        assert!(!sees(Asker::Nobody));
        assert!(!sees(Asker::Card(&impostor)), "a name is no delegation");
        assert!(!sees(Asker::Address(&address("bot.oculta.alicia@mar.example"))), "nor is an address");
        assert!(!sees(Asker::Address(&address("eva@b.example"))));
        assert!(!sees(Asker::Card(&world.agent("bot.oculta.alicia", revoked))), "nor is what was revoked");
        assert!(visible_to(&open, Asker::Nobody, START));
        let listed = world.agent("vista", secret(json!({"capabilities": {"listed": true}})));
        assert!(!listed.listed());
    }

    #[test]
    fn directory_entries_verify_as_they_stand() {
        let mut world = World::new();
        let parent = world.agent("alicia", json!({}));
        let (child, scope) = (address("bot.alicia@mar.example"), crate::wire::card::Scope::default());
        let own = key(child.as_str());
        let doc =
            Delegation::sign(&parent.address, &key("alicia@mar.example"), &child, &own.public(), &scope, None, START);
        let card = world
            .agent("bot.alicia", json!({"delegation": doc, "capabilities": {"accepts": ["a/b"], "mcp": "x", "n": 0}}));
        let entry = AgentCard::parse(directory_entry(&card)).expect("card");
        assert!(certified(&world, &entry) && entry.delegated_by(&parent, START).is_ok());
        for (capability, accepts, q, found) in [
            (None, None, None, true),
            (Some("mcp"), Some("a/b"), Some("ALICIA"), true),
            (Some("n"), None, None, false),
            (Some("listed"), None, None, false),
            (None, Some("a"), None, false),
            (None, None, Some("a/b"), true),
            (None, None, Some("policy"), false),
        ] {
            assert_eq!(matches(&card, capability, accepts, q), found, "{capability:?} {accepts:?} {q:?}");
        }
    }

    #[test]
    fn a_parent_sees_until_when_a_delegation_under_a_retired_key_is_believed() {
        let mut world = World::new();
        let parent = world.agent("alicia", json!({}));
        let (child, scope) = (address("bot.alicia@mar.example"), crate::wire::card::Scope::default());
        let own = key(child.as_str());
        let doc =
            Delegation::sign(&parent.address, &key("alicia@mar.example"), &child, &own.public(), &scope, None, START);
        let card = world.agent("bot.alicia", json!({"delegation": doc}));
        assert!(delegation_entry(&card, &parent).get("renew_by").is_none());
        let until = START.plus(limits::KEY_GRACE_MS);
        let old = json!([{"sig": parent.sig.kid(), "until": until}]);
        let rotated = world.agent("alicia", json!({"sig": key("new").public().kid(), "previous": old}));
        assert_eq!(delegation_entry(&card, &rotated)["renew_by"], json!(until));
        assert!(card.delegated_by(&rotated, until.minus(1)).is_ok());
        assert!(card.delegated_by(&rotated, until).is_err());
    }
}
