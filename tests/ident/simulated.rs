//! Two houses over a network that loses, repeats, delays, reorders and lies, with clients and houses that stop in the
//! middle, under a clock that jumps from event to event. The real rules decide everything; the world only carries.
//!
//! What must hold at the end of every run: whatever a house acknowledged is delivered once or comes back, never neither;
//! nobody has anything twice; a stamp is charged once and only for what arrived; no bounce has a bounce.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use verifica::ids::Ids;
use verifica::libro::{self, Books, Ctx};
use verifica::limits;
use verifica::mail::queue::{Attempt, Outcome, judge_answer, plan_attempt, settle};
use verifica::mail::{self, Arrival};
use verifica::record::memory::MemoryView;
use verifica::record::{AgentRecord, Cards, Change, House, Settings, View};
use verifica::time::Timestamp;
use verifica::wire::{Address, AgentCard, Amount, Domain, Envelope, Local, Sha256, SigningKey};

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const DOMAINS: [&str; 2] = ["mar.example", "rio.example"];
const PEOPLE: [&str; 2] = ["anaa", "evaa"];
const PRICE: u64 = 3;
const FUNDS: u64 = 1_000;
const CLAIM_MS: i64 = 60_000;
const REPLY_MS: i64 = 10_000;
const GIVE_UP_MS: i64 = 150_000;

/// Chance that is the same for the same seed.
struct Dice(Ids);

impl Dice {
    fn new(seed: u64, what: &str) -> Dice {
        Dice(Ids::from_seed(Sha256::of(format!("{what}:{seed}")).0))
    }

    fn below(&mut self, bound: u64) -> u64 {
        let [a, b, c, d, ..] = self.0.bytes();
        u64::from(u32::from_be_bytes([a, b, c, d])) % bound.max(1)
    }

    fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }
}

enum Event {
    /// An agent hands its house an envelope, for the n-th time.
    Post {
        house: usize,
        letter: usize,
        again: u32,
    },
    Tick {
        house: usize,
    },
    /// An envelope reaches a house; whoever waits for the answer, if anybody does.
    Arrive {
        house: usize,
        doc: Value,
        from: Option<Waiting>,
    },
    Answer {
        at: Waiting,
        outcome: Outcome,
    },
    Acknowledge {
        house: usize,
        local: String,
    },
    /// A house stops and starts: what it remembers is what it made durable.
    Restart {
        house: usize,
    },
}

#[derive(Clone)]
struct Waiting {
    house: usize,
    job: String,
    /// The start of the house that waits.
    boot: u32,
}

struct Place {
    house: House,
    view: MemoryView,
    boot: u32,
    claims: BTreeMap<String, Timestamp>,
}

struct Letter {
    doc: Value,
    acknowledged: bool,
}

struct World {
    places: Vec<Place>,
    letters: Vec<Letter>,
    now: Timestamp,
    events: BTreeMap<(Timestamp, u64), Event>,
    order: u64,
    net: Dice,
    drawn: u64,
    seed: u64,
    /// How often each kind of trouble strikes, in thousandths.
    trouble: u64,
    /// Until when the network is bad at all.
    until: Timestamp,
    /// Nothing passes between the houses before this instant.
    cut: Timestamp,
}

fn key(name: &str) -> SigningKey {
    SigningKey::from_seed(Sha256::of(name).0)
}

fn address(text: &str) -> Address {
    Address::parse(text).expect("address")
}

impl Place {
    fn new(domain: &str, per_minute: u32) -> Place {
        let settings = Settings {
            give_up_ms: GIVE_UP_MS,
            retry_max_ms: 10_000,
            mail_per_minute: per_minute,
            ..Settings::default()
        };
        let house = House {
            domain: Domain::parse(domain).expect("domain"),
            public_url: format!("https://{domain}"),
            host: domain.to_owned(),
            key: key(domain),
            retiring: None,
            settings,
        };
        let mut view = MemoryView::new();
        let own = mail::system_cards(&house, &view, START).expect("cards");
        view.apply(own).expect("applied");
        let mut place = Place { house, view, boot: 0, claims: BTreeMap::new() };
        place.enrol("anaa", json!({"capabilities": {"read_receipts": true}}));
        place.enrol("evaa", json!({}));
        place.enrol("sola", json!({"inbox": {"policy": "allowlist", "allowlist": []}}));
        place.enrol("cara", json!({"inbox": {"policy": "stamp", "price": PRICE}}));
        for domain in DOMAINS {
            for person in PEOPLE {
                place.fund(&format!("{person}@{domain}"));
            }
        }
        place
    }

    fn enrol(&mut self, local: &str, more: Value) {
        let address = format!("{local}@{}", self.house.domain);
        let mut doc = json!({
            "nyx5": "1", "address": address, "sig": key(&address).public().kid(), "enc": null, "capabilities": {},
            "inbox": {"policy": "open"}, "valid_from": START, "valid_until": null, "previous": [],
        });
        doc.as_object_mut().expect("object").extend(more.as_object().expect("object").clone());
        let record = AgentRecord {
            local: Local::parse(local).expect("local"),
            card: AgentCard::certify(doc, &self.house.key).expect("card"),
            webhook: None,
            notify_email: None,
            registered_via: "admin".into(),
            system: false,
            created: START,
        };
        self.view.apply(vec![Change::InsertAgent(record)]).expect("applied");
    }

    fn fund(&mut self, account: &str) {
        let cards = Cards::new();
        let ctx = Ctx { house: &self.house, view: &self.view, now: START, cards: &cards };
        let mut books = Books::open(&self.view);
        let mut ids = Ids::from_seed(Sha256::of(account).0);
        let tokens = Amount::new(FUNDS).expect("amount");
        libro::topup(&ctx, &mut books, &mut ids, &address(account), tokens, None, Map::new()).expect("topup");
        let changes = books.into_changes();
        self.view.apply(changes).expect("applied");
    }

    fn open_jobs(&self) -> usize {
        self.view.jobs().filter(|job| job.status.open()).count()
    }
}

impl World {
    fn new(seed: u64) -> World {
        let mut dice = Dice::new(seed, "world");
        let per_minute = if dice.happens(200) { 6 } else { limits::RATE_MAIL_PER_MINUTE };
        let bad_for = dice.below(2 * GIVE_UP_MS as u64) as i64;
        let cut_for = if dice.happens(150) { dice.below(2 * GIVE_UP_MS as u64) as i64 } else { 0 };
        let mut world = World {
            places: DOMAINS.iter().map(|domain| Place::new(domain, per_minute)).collect(),
            letters: Vec::new(),
            now: START,
            events: BTreeMap::new(),
            order: 0,
            net: Dice::new(seed, "net"),
            drawn: 0,
            seed,
            trouble: dice.below(500),
            until: START.plus(bad_for),
            cut: START.plus(cut_for),
        };
        for n in 0..3 + dice.below(5) as usize {
            world.write(&mut dice, n);
        }
        for house in 0..DOMAINS.len() {
            world.at(0, Event::Tick { house });
            for _ in 0..dice.below(3) {
                world.at(dice.below(90_000) as i64, Event::Restart { house });
            }
        }
        world
    }

    fn write(&mut self, dice: &mut Dice, n: usize) {
        let house = dice.below(2) as usize;
        let from = format!("{}@{}", PEOPLE[dice.below(2) as usize], DOMAINS[house]);
        let mut to: Vec<String> = Vec::new();
        for _ in 0..1 + dice.below(4) {
            let name = ["anaa", "evaa", "sola", "cara", "nadie"][dice.below(5) as usize];
            to.push(format!("{name}@{}", DOMAINS[dice.below(2) as usize]));
        }
        let posted = dice.below(60_000) as i64;
        let optional = |dice: &mut Dice, per_mille: u64, span: u64| {
            dice.happens(per_mille).then(|| START.plus(posted + 1 + dice.below(span) as i64))
        };
        let deliver_after = optional(dice, 150, 40_000);
        let expires = optional(dice, 250, 200_000).filter(|at| deliver_after.is_none_or(|after| *at > after));
        let mut doc = json!({
            "nyx5": "1", "id": format!("letter-{n:04}"), "from": from, "to": to, "created": START, "type": "message",
            "expires": expires, "deliver_after": deliver_after, "thread": null, "in_reply_to": null,
            "content": {"media": "text/plain", "body": format!("{n}")},
        });
        if let Some(paid) = to.iter().find(|to| to.starts_with("cara@")) {
            doc["stamp"] = json!({"house": address(paid).domain(), "amount": PRICE});
        }
        if dice.happens(300) {
            doc["receipt"] = "delivered".into();
        }
        key(&from).sign_object(&mut doc, "signature");
        self.letters.push(Letter { doc, acknowledged: false });
        self.at(posted, Event::Post { house, letter: n, again: 0 });
    }

    fn at(&mut self, after_ms: i64, event: Event) {
        self.order += 1;
        self.events.insert((self.now.plus(after_ms), self.order), event);
    }

    fn ids(&mut self) -> Ids {
        self.drawn += 1;
        Ids::from_seed(Sha256::of(format!("ids:{}:{}", self.seed, self.drawn)).0)
    }

    fn strikes(&mut self) -> bool {
        self.now < self.until && self.net.happens(self.trouble)
    }

    fn delay(&mut self) -> i64 {
        let usual = 1 + self.net.below(80) as i64;
        if self.strikes() { usual + self.net.below(30_000) as i64 } else { usual }
    }

    /// Until nothing is left to happen.
    fn run(&mut self) {
        let end = START.plus(20 * GIVE_UP_MS);
        while let Some(((at, _), event)) = self.events.pop_first() {
            assert!(at <= end, "seed {}: it never comes to rest", self.seed);
            self.now = at;
            match event {
                Event::Post { house, letter, again } => self.post(house, letter, again),
                Event::Tick { house } => self.tick(house),
                Event::Arrive { house, doc, from } => self.arrive(house, &doc, from),
                Event::Answer { at, outcome } => self.answer(&at, &outcome),
                Event::Acknowledge { house, local } => self.acknowledge(house, &local),
                Event::Restart { house } => {
                    self.places[house].boot += 1;
                    self.places[house].claims.clear();
                }
            }
        }
    }

    fn post(&mut self, house: usize, letter: usize, again: u32) {
        let doc = self.letters[letter].doc.clone();
        if !self.strikes() {
            let envelope = Envelope::parse(doc, limits::ENVELOPE_BYTES_DEFAULT).expect("envelope");
            let place = &mut self.places[house];
            let caller = place.view.agent(envelope.from.local()).expect("sender").card;
            let answered = mail::outbound(&place.house, &place.view, self.now, &caller, &envelope);
            let code = match answered {
                Ok(decision) => place.view.commit(decision).expect("committed").code,
                Err(refusal) => refusal.code(),
            };
            match code {
                202 if !self.strikes() => {
                    self.letters[letter].acknowledged = true;
                    return;
                }
                // The answer is lost on its way: the client knows nothing and asks again.
                202 | 429 => {}
                410 => return,
                other => panic!("seed {}: outbound answered {other}", self.seed),
            }
        }
        if again < 40 {
            let wait = 1_000 + self.net.below(4_000) as i64;
            self.at(wait, Event::Post { house, letter, again: again + 1 });
        }
    }

    fn tick(&mut self, house: usize) {
        let now = self.now;
        let due: Vec<(String, Attempt, Value, Domain)> = self.places[house]
            .view
            .jobs()
            .filter(|job| self.places[house].claims.get(&job.job).is_none_or(|until| *until <= now))
            .map(|job| (job.job.clone(), plan_attempt(job, now), job.envelope.value().clone(), job.domain.clone()))
            .filter(|(_, attempt, ..)| *attempt != Attempt::Nothing)
            .collect();
        for (job, attempt, doc, domain) in due {
            let waiting = Waiting { house, job: job.clone(), boot: self.places[house].boot };
            self.places[house].claims.insert(job, now.plus(CLAIM_MS));
            if attempt == Attempt::Expired {
                self.at(0, Event::Answer { at: waiting, outcome: Outcome::Expired });
                continue;
            }
            let there = DOMAINS.iter().position(|name| *name == domain.as_str()).expect("a known house");
            if there == house {
                self.at(0, Event::Arrive { house, doc, from: Some(waiting) });
                continue;
            }
            // Nobody waits longer than this for an answer; whichever comes first settles the attempt.
            let failed = Outcome::Failed { code: 0, reason: "no answer in time".to_owned() };
            self.at(REPLY_MS, Event::Answer { at: waiting.clone(), outcome: failed });
            if now < self.cut || self.strikes() {
                continue;
            }
            let late = self.delay();
            if self.strikes() {
                let again = self.delay() + self.net.below(120_000) as i64;
                self.at(again, Event::Arrive { house: there, doc: doc.clone(), from: None });
            }
            self.at(late, Event::Arrive { house: there, doc, from: Some(waiting) });
        }
        let busy = self.places.iter().any(|place| place.open_jobs() > 0)
            || self.events.values().any(|event| !matches!(event, Event::Tick { .. }));
        if busy {
            self.at(500, Event::Tick { house });
        }
    }

    fn arrive(&mut self, house: usize, doc: &Value, from: Option<Waiting>) {
        if from.is_some() && self.strikes() && from.as_ref().is_some_and(|waiting| waiting.house != house) {
            // Somebody in between answers instead of the house.
            let lies = [(200, json!({"ok": true})), (502, json!({})), (503, json!("down")), (202, json!(null))];
            let (status, body) = lies[self.net.below(lies.len() as u64) as usize].clone();
            return self.reply(from, status, &body);
        }
        let mut ids = self.ids();
        let envelope = Envelope::parse(doc.clone(), limits::ENVELOPE_BYTES_DEFAULT).expect("envelope");
        let sender_house = DOMAINS.iter().position(|name| envelope.from.domain().as_str() == *name).expect("house");
        let sender = self.places[sender_house].view.agent(envelope.from.local()).expect("sender").card;
        let mut cards = Cards::new();
        for needed in libro::cards_needed(&self.places[house].house, &envelope) {
            cards.insert(needed, Ok(sender.clone()));
        }
        let verified = envelope.verify(sender, self.now).expect("verifies");
        let arrival = Arrival { verified, relay_verified: true, sender_promises_sealed: false };
        let place = &mut self.places[house];
        let decided = mail::inbound(&place.house, &place.view, self.now, &mut ids, &cards, &arrival);
        let answer = match decided {
            Ok(decision) => place.view.commit(decision).expect("committed"),
            Err(refusal) => mail::Answer::refused(&refusal),
        };
        for to in &arrival.verified.envelope().to {
            if self.places[house].house.is_mine(to) && self.net.happens(500) {
                let later = self.net.below(20_000) as i64;
                self.at(later, Event::Acknowledge { house, local: to.local().to_owned() });
            }
        }
        self.reply(from, answer.code, &answer.body);
    }

    fn reply(&mut self, to: Option<Waiting>, status: u16, body: &Value) {
        let Some(at) = to else { return };
        let outcome = judge_answer(status, body);
        if self.strikes() {
            return;
        }
        let late = self.delay();
        self.at(late, Event::Answer { at, outcome });
    }

    fn answer(&mut self, at: &Waiting, outcome: &Outcome) {
        let mut ids = self.ids();
        let place = &mut self.places[at.house];
        if place.boot != at.boot || place.claims.remove(&at.job).is_none() {
            return;
        }
        let settled = settle(&place.house, &place.view, self.now, &mut ids, &at.job, outcome).expect("settled");
        place.view.commit(settled).expect("committed");
    }

    fn acknowledge(&mut self, house: usize, local: &str) {
        let mut ids = self.ids();
        let place = &mut self.places[house];
        let Some(owner) = place.view.agent(local) else { return };
        let ids_read: Vec<String> = place.view.mailbox(local).iter().map(|mail| mail.id.clone()).collect();
        let body = json!({"ids": ids_read});
        let decided = mail::mailbox::acknowledge(&place.house, &place.view, self.now, &mut ids, &owner.card, &body)
            .expect("acked");
        place.view.commit(decided).expect("committed");
    }

    /// What postmaster@ told about this letter and recipient: the reasons of every notice of this status.
    fn told(&self, house: usize, from: &Address, id: &str, to: &str, status: &str) -> Vec<String> {
        let mailbox = self.places[house].view.mailbox(from.local());
        let bodies = mailbox.iter().filter_map(|mail| mail.envelope.pointer("/content/body"));
        bodies
            .filter(|body| body["of"] == json!(id) && body["to"] == json!(to) && body["status"] == json!(status))
            .map(|body| body["reason"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Holds the promises; answers how many were delivered and how many came back.
    fn check(&self) -> (usize, usize) {
        let seed = self.seed;
        let (mut delivered, mut returned) = (0, 0);
        let mut stamps: BTreeMap<(String, usize), u64> = BTreeMap::new();
        for letter in &self.letters {
            let (id, from) =
                (letter.doc["id"].as_str().expect("id"), address(letter.doc["from"].as_str().expect("from")));
            let home = DOMAINS.iter().position(|name| from.domain().as_str() == *name).expect("house");
            let to: BTreeSet<&str> =
                letter.doc["to"].as_array().expect("to").iter().filter_map(Value::as_str).collect();
            for to in to {
                let there = DOMAINS.iter().position(|name| to.ends_with(name)).expect("house");
                let local = to.split('@').next().expect("local");
                let copies = self.places[there].view.mailbox(local);
                let copies =
                    copies.iter().filter(|mail| mail.id == id && mail.from == from.as_str()).collect::<Vec<_>>();
                let bounces = self.told(home, &from, id, to, "failed");
                let notices = self.told(home, &from, id, to, "delivered");
                assert!(copies.len() <= 1, "seed {seed}: {to} has {id} {} times", copies.len());
                assert!(bounces.len() <= 1, "seed {seed}: {id} to {to} came back {} times", bounces.len());
                assert!(notices.len() <= 1, "seed {seed}: {id} to {to} was confirmed {} times", notices.len());
                assert!(
                    notices.is_empty() || copies.len() == 1,
                    "seed {seed}: {id} to {to} was confirmed, not delivered"
                );
                assert!(notices.is_empty() || bounces.is_empty(), "seed {seed}: {id} to {to} both fates");
                let fated = copies.len() + bounces.len();
                assert!(!letter.acknowledged || fated >= 1, "seed {seed}: {id} to {to} was acknowledged and lost");
                if !copies.is_empty() && !bounces.is_empty() {
                    let open = ["no success", "the envelope expired", "rejected (410)"];
                    let uncertain = open.iter().any(|why| bounces[0].starts_with(why));
                    assert!(uncertain, "seed {seed}: {id} to {to} was delivered and refused: {}", bounces[0]);
                }
                assert!(copies.is_empty() || !["sola", "nadie"].contains(&local), "seed {seed}: {to} took {id}");
                if local == "cara" && !copies.is_empty() {
                    assert!(copies[0].meta.contains_key("stamp"), "seed {seed}: {id} entered {to} unpaid");
                    *stamps.entry((from.to_string(), there)).or_default() += PRICE;
                }
                delivered += copies.len();
                returned += bounces.len();
            }
        }
        for (n, place) in self.places.iter().enumerate() {
            assert_eq!(place.open_jobs(), 0, "seed {seed}");
            assert_eq!(place.view.balances().values().sum::<i64>(), 0, "seed {seed}");
            for domain in DOMAINS {
                for person in PEOPLE {
                    let account = format!("{person}@{domain}");
                    let paid = stamps.get(&(account.clone(), n)).copied().unwrap_or_default();
                    assert_eq!(place.view.balance(&account), (FUNDS - paid) as i64, "seed {seed}: stamps of {account}");
                }
            }
            let about_itself = place.view.jobs().filter(|job| {
                let field = |name: &str| job.envelope.pointer(name).and_then(Value::as_str).unwrap_or_default();
                field("/from").starts_with("postmaster@") && field("/content/body/status") == "failed"
            });
            assert_eq!(about_itself.count(), 0, "seed {seed}: a bounce left its house");
        }
        (delivered, returned)
    }
}

/// `VERIFICA_SIM_SEEDS` asks for more seeds than the usual run has, `VERIFICA_SIM_FIRST` for where they begin.
#[test]
fn what_a_house_acknowledged_is_delivered_once_or_comes_back_whatever_the_network_does() {
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (first, seeds) = (number("VERIFICA_SIM_FIRST", 0), number("VERIFICA_SIM_SEEDS", 200));
    let (mut delivered, mut returned) = (0, 0);
    for seed in first..first + seeds {
        let mut world = World::new(seed);
        world.run();
        let (arrived, back) = world.check();
        delivered += arrived;
        returned += back;
    }
    println!("{seeds} seeds: {delivered} delivered, {returned} came back");
    assert!(delivered > 0 && returned > 0, "a run in which nothing happens shows nothing");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let boxes = |seed: u64| {
        let mut world = World::new(seed);
        world.run();
        let all = world.places.iter().flat_map(|place| PEOPLE.iter().flat_map(|name| place.view.mailbox(name)));
        all.map(|mail| mail.envelope.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(boxes(7), boxes(7));
}
