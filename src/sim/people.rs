//! Who takes part: the agents of two houses, with what their cards say in the terms of the reference model.
//!
//! Cards and keys are made once and shared by all runs.

use crate::record::{AgentRecord, Change, House, Settings};
use crate::refusal::Refusal;
use crate::time::Timestamp;
use crate::wire::address::{Address, Domain, Local};
use crate::wire::card::{AgentCard, Delegation, Scope};
use crate::wire::digest::Sha256;
use crate::wire::key::SigningKey;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// When every run begins.
pub const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
pub const HOUSES: [&str; 2] = ["mar.example", "rio.example"];

/// What the model knows of an agent.
#[derive(Clone, Debug)]
pub struct Person {
    pub address: String,
    pub house: usize,
    pub system: bool,
    pub messages_only: bool,
    /// What one operation may commit.
    pub cap: Option<i64>,
    pub parent: Option<String>,
    /// Who sees a secret agent.
    pub secret_to: Option<Vec<String>>,
    pub inbox: Inbox,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbox {
    Open,
    Stamp { price: i64, free: Vec<String> },
    List(Vec<String>),
}

/// Keys, cards and people of all runs.
pub struct Cast {
    pub people: BTreeMap<String, Person>,
    /// Those who act, by house.
    pub actors: [Vec<String>; 2],
    pub keys: BTreeMap<String, SigningKey>,
    pub records: [Vec<AgentRecord>; 2],
    pub house_keys: [SigningKey; 2],
}

impl Person {
    pub fn lists(&self, sender: &str) -> bool {
        match &self.inbox {
            Inbox::Open => false,
            Inbox::Stamp { free: list, .. } | Inbox::List(list) => list.iter().any(|listed| listed == sender),
        }
    }
}

impl Cast {
    pub fn new() -> Result<Cast, Refusal> {
        let house_keys = HOUSES.map(key);
        let mut cast = Cast {
            people: BTreeMap::new(),
            actors: [Vec::new(), Vec::new()],
            keys: BTreeMap::new(),
            records: [Vec::new(), Vec::new()],
            house_keys,
        };
        for house in 0..2 {
            cast.populate(house)?;
        }
        Ok(cast)
    }

    pub fn house(&self, house: usize, settings: Settings) -> Result<House, Refusal> {
        let domain = HOUSES[house & 1];
        Ok(House {
            domain: Domain::parse(domain)?,
            public_url: format!("https://mail.{domain}"),
            host: format!("mail.{domain}"),
            key: self.house_keys[house & 1].clone(),
            retiring: None,
            settings,
        })
    }

    /// Those whom a house knows from the start, beside its own names.
    pub fn enrolled(&self, house: usize) -> Vec<Change> {
        self.records[house & 1].iter().cloned().map(Change::InsertAgent).collect()
    }

    pub fn key_of(&self, address: &str) -> SigningKey {
        match self.keys.get(address) {
            Some(key) => key.clone(),
            None => key(address),
        }
    }

    fn populate(&mut self, house: usize) -> Result<(), Refusal> {
        let domain = HOUSES[house];
        let at = |local: &str| format!("{local}@{domain}");
        let friends = vec![at("ana"), at("leo")];
        let open = || json!({"policy": "open"});
        let listed = json!({"policy": "allowlist", "allowlist": friends});
        let agents: Vec<(&str, Value, Inbox)> = vec![
            ("ana", open(), Inbox::Open),
            ("leo", open(), Inbox::Open),
            ("eva", open(), Inbox::Open),
            ("abi", open(), Inbox::Open),
            (
                "tia",
                json!({"policy": "stamp", "price": 3, "allowlist": [at("ana")]}),
                Inbox::Stamp { price: 3, free: vec![at("ana")] },
            ),
            ("lis", listed.clone(), Inbox::List(friends.clone())),
            ("sec", listed, Inbox::List(friends.clone())),
            ("bot.ana", open(), Inbox::Open),
            ("pal.ana", open(), Inbox::Open),
        ];
        for (local, inbox_doc, inbox) in agents {
            let address = at(local);
            let own = key(&address);
            let mut doc = json!({
                "nyx5": "1", "address": address, "sig": own.public().kid(), "enc": null, "inbox": inbox_doc,
                "capabilities": {"accepts": ["text/plain"]}, "valid_from": START, "valid_until": null, "previous": [],
            });
            let secret = local == "sec";
            if secret {
                doc["visibility"] = "secret".into();
            }
            let parent = local.split_once('.').map(|(_, parent)| at(parent));
            let scope = Scope {
                cap: (local == "bot.ana").then_some(40),
                messages_only: local == "pal.ana",
                ..Scope::default()
            };
            if let Some(parent) = &parent {
                let (above, below) = (Address::parse(parent)?, Address::parse(&address)?);
                doc["delegation"] = Delegation::sign(&above, &key(parent), &below, &own.public(), &scope, None, START);
            }
            let card = AgentCard::certify(doc, &self.house_keys[house])?;
            self.records[house].push(AgentRecord {
                local: Local::parse(local)?,
                card,
                webhook: None,
                notify_email: None,
                registered_via: "admin".into(),
                system: false,
                created: START,
            });
            let person = Person {
                address: address.clone(),
                house,
                system: false,
                messages_only: scope.messages_only,
                cap: scope.cap.map(u64::cast_signed),
                parent,
                secret_to: secret.then(|| friends.clone()),
                inbox,
            };
            self.people.insert(address.clone(), person);
            self.keys.insert(address.clone(), own);
            self.actors[house].push(address);
        }
        for local in ["postmaster", "libro", "verifica"] {
            let address = at(local);
            let inbox = if local == "postmaster" { Inbox::List(Vec::new()) } else { Inbox::Open };
            let person = Person {
                address: address.clone(),
                house,
                system: true,
                messages_only: false,
                cap: None,
                parent: None,
                secret_to: None,
                inbox,
            };
            self.people.insert(address.clone(), person);
            self.keys.insert(address, self.house_keys[house].clone());
        }
        Ok(())
    }
}

fn key(name: &str) -> SigningKey {
    SigningKey::throwaway(Sha256::of(name).0)
}
