//! What the store counts of conversations, against a recount of everything that it keeps.

use crate::store_fixture::{HOUSE, Place, at, job, mail, put};
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use std::collections::BTreeMap;
use verifica::mail::talk;
use verifica::record::{Change, JobStatus, MailRecord};
use verifica::store::Store;
use verifica::wire::Domain;

#[derive(Clone, Debug)]
enum Step {
    Receive { from: u8, id: u8, project: u8, later: bool },
    Send { to: u8, id: u8, project: u8 },
    Handle { id: u8 },
    Pass,
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    use proptest::prelude::*;
    prop_oneof![
        4 => (0..3u8, 0..6u8, 0..3u8, any::<bool>())
            .prop_map(|(from, id, project, later)| Step::Receive { from, id, project, later }),
        2 => (0..3u8, 0..6u8, 0..3u8).prop_map(|(to, id, project)| Step::Send { to, id, project }),
        3 => (0..6u8).prop_map(|id| Step::Handle { id }),
        1 => Just(Step::Pass),
    ]
}

/// What a recount finds: (count, pending, under any project, last).
type Counted = BTreeMap<(String, String), (u64, u64, u64)>;

#[derive(Default)]
struct Model {
    mail: Vec<MailRecord>,
    sent: BTreeMap<String, talk::Place>,
    now: i64,
}

impl Model {
    fn counted(&self) -> Counted {
        let house = Domain::parse(HOUSE).expect("domain");
        let mut counted = Counted::new();
        let mut add = |place: &talk::Place, pending: bool| {
            let mut names = vec![String::new()];
            names.extend(place.project.clone());
            for name in names {
                let row = counted.entry((place.contact.clone(), name)).or_default();
                row.0 += 1;
                row.1 += u64::from(pending);
                row.2 += u64::from(pending && place.project.is_some());
            }
        };
        for mail in self.mail.iter().filter(|mail| mail.visible_from.is_none_or(|from| from <= at(self.now))) {
            add(&talk::received(Some(&house), mail).expect("filed"), mail.acked.is_none());
        }
        self.sent.values().for_each(|place| add(place, false));
        counted
    }

    fn changes(&mut self, step: &Step) -> Vec<Change> {
        self.now += 1;
        let project = |n: u8| match n {
            0 => json!({}),
            n => json!({"urn:nyx5:ext:proyecto": {"project": format!("P{n}")}}),
        };
        match *step {
            Step::Receive { from, id, project: p, later } => {
                let mut record = mail("ana", &format!("leo{from}@b.example"), &format!("id-{id}"), self.now);
                let mut envelope = record.envelope.into_value();
                envelope["extensions"] = project(p);
                record.envelope = envelope.into();
                record.visible_from = later.then(|| at(self.now + 5));
                if !self.mail.iter().any(|known| known.id == record.id && known.from == record.from) {
                    self.mail.push(record.clone());
                }
                vec![Change::Deliver(record)]
            }
            Step::Send { to, id, project: p } => {
                let mut row = job("", "b.example", self.now);
                row.envelope_id = format!("sent-{id}");
                row.envelope = json!({"id": row.envelope_id, "from": format!("ana@{HOUSE}"),
                    "to": [format!("leo{to}@b{to}.example")], "extensions": project(p)})
                .into();
                (row.attempts, row.status, row.created) = (0, JobStatus::Queued, at(self.now));
                let place = talk::sent(&row).expect("filed");
                row.job = talk::job_towards(&row, &place).expect("a job");
                self.sent.entry(row.envelope_id.clone()).or_insert(place);
                vec![Change::PutJob(row)]
            }
            Step::Handle { id } => {
                let (id, now) = (format!("id-{id}"), at(self.now));
                let seen = |mail: &&mut MailRecord| {
                    mail.id == id && mail.acked.is_none() && mail.visible_from.is_none_or(|from| from <= now)
                };
                self.mail.iter_mut().filter(seen).for_each(|mail| mail.acked = Some(now));
                vec![Change::Acknowledge { local: "ana".into(), id, at: now }]
            }
            Step::Pass => {
                self.now += 4;
                Vec::new()
            }
        }
    }
}

#[test]
fn counts_are_those_of_a_recount_whatever_happens_in_whatever_order() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let steps = proptest::collection::vec(step(), 1..40);
    let outcome = runner.run(&steps, |steps| {
        runtime.block_on(async {
            let place = Place::new();
            let mut model = Model::default();
            for step in &steps {
                let changes = model.changes(step);
                place.put(changes).await.expect("kept");
            }
            place.put(vec![Change::FileDeferred { local: "ana".into(), at: at(model.now) }]).await.expect("filed");
            let names = ["", "p1", "p2"];
            let found = place.store.read(move |reader| {
                let mut found = Counted::new();
                for name in names {
                    let filter = Some(name).filter(|name| !name.is_empty());
                    for one in reader.conversations("ana", filter, None, 500)?.0 {
                        let letters = reader.letters("ana", &one.with, filter, None, 500)?.0;
                        assert_eq!(letters.len() as u64, one.count, "{one:?}");
                        let newest = letters.first().expect("a letter");
                        assert_eq!(newest.at, one.last_at);
                        assert!(letters.iter().any(|said| said.at == one.last_at && said.id == one.last_id));
                        found.insert((one.with, name.to_owned()), (one.count, one.pending, one.filed));
                    }
                }
                Ok(found)
            });
            assert_eq!(found.await.expect("reads"), model.counted(), "{steps:?}");
        });
        Ok(())
    });
    outcome.expect("every history agrees");
}

/// A store that an earlier version wrote: its letters are filed when it is opened, and once.
#[tokio::test]
async fn letters_of_an_earlier_version_are_filed_at_the_first_start() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("house.db");
    let mut model = Model::default();
    let steps: Vec<Step> = (0..40u8)
        .map(|n| match n % 4 {
            0 | 1 => Step::Receive { from: n % 3, id: n, project: n % 3, later: n == 1 },
            2 => Step::Send { to: n % 3, id: n, project: 0 },
            _ => Step::Handle { id: n - 3 },
        })
        .collect();
    let store = Store::open(&path, 1).expect("store");
    for step in &steps {
        let changes = model.changes(step);
        put(&store, changes).await.expect("kept");
    }
    store.close().await.expect("closed");
    drop(store);
    let conn = rusqlite::Connection::open(&path).expect("file");
    conn.execute_batch("DELETE FROM talk; DELETE FROM conversation; DELETE FROM meta WHERE name = 'filed'")
        .expect("old");
    drop(conn);
    for _ in 0..2 {
        let store = Store::open(&path, 1).expect("store");
        put(&store, vec![Change::FileDeferred { local: "ana".into(), at: at(model.now) }]).await.expect("filed");
        let found = store.read(|reader| Ok(reader.conversations("ana", None, None, 500)?.0)).await.expect("reads");
        let found: Counted =
            found.into_iter().map(|one| ((one.with, String::new()), (one.count, one.pending, one.filed))).collect();
        let mut expected = model.counted();
        expected.retain(|(_, project), _| project.is_empty());
        assert_eq!(found, expected);
        store.close().await.expect("closed");
    }
}
