//! The durable store beside the model: given the same operations, both must answer and remember the same.

use crate::world::World;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use verifica::ids::Ids;
use verifica::libro::{self, Books, Ctx, Operated};
use verifica::record::{Cards, Change, Decision, House, View};
use verifica::refusal::Refusal;
use verifica::store::{Denied, Store};
use verifica::time::Timestamp;
use verifica::wire::envelope::Verified;

pub struct Mirror {
    runtime: Runtime,
    store: Store,
    _folder: TempDir,
}

impl Mirror {
    pub fn new() -> Mirror {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        let folder = tempfile::tempdir().expect("folder");
        let store = runtime.block_on(async { Store::open(&folder.path().join("house.db"), 1) }).expect("store");
        Mirror { runtime, store, _folder: folder }
    }

    pub fn change(&self, changes: Vec<Change>) {
        let changes = Arc::new(changes);
        let rule = move |_: &dyn View| Ok(Decision { changes: changes.as_ref().clone(), reply: () });
        self.runtime.block_on(self.store.transact(rule)).expect("admitted");
    }

    pub fn operate(
        &self,
        house: &House,
        cards: &Cards,
        now: Timestamp,
        ids: Ids,
        op: &Verified,
    ) -> Result<Operated, Refusal> {
        let (house, cards, op) = (house.clone(), cards.clone(), op.clone());
        let rule = move |view: &dyn View| {
            let ctx = Ctx { house: &house, view, now, cards: &cards };
            let (mut books, mut ids) = (Books::open(view), ids.clone());
            let operated = libro::operate(&ctx, &mut books, &mut ids, &op)?;
            Ok(Decision { changes: books.into_changes(), reply: operated })
        };
        match self.runtime.block_on(self.store.transact(rule)) {
            Ok(operated) => Ok(operated),
            Err(Denied::Refused(refusal)) => Err(refusal),
            Err(Denied::Store(error)) => panic!("the store failed: {error}"),
        }
    }

    /// Everything that a rule could ask, asked of both.
    pub fn compare(&self, world: &World, cuts: &[Timestamp]) {
        let model = &world.view;
        let accounts: Vec<String> = model.balances().keys().cloned().collect();
        let contracts: Vec<String> = model.contracts().map(|contract| contract.id.clone()).collect();
        let mandates: Vec<String> = world.named.values().cloned().collect();
        let mut ranges = vec![(None, None)];
        ranges.extend(cuts.iter().flat_map(|cut| [(Some(*cut), None), (None, Some(*cut))]));
        let facts = move |view: &dyn View| {
            let mut facts = vec![format!("{} {}", view.journal_last(), view.journal_last_at())];
            for account in &accounts {
                facts.push(format!("{account} {}", view.balance(account)));
                for (since, until) in &ranges {
                    for limit in [1, 3, 1000] {
                        let page = view.account_page(account, *since, *until, limit);
                        let entries: Vec<String> = page.entries.iter().map(|entry| entry.doc.to_string()).collect();
                        facts.push(format!(
                            "{account} {since:?} {until:?} {limit}: {} {} {entries:?}",
                            page.opening, page.total
                        ));
                    }
                }
                let of: Vec<String> = view.contracts_of(account, 5).into_iter().map(|c| c.id).collect();
                let held: Vec<String> = view.mandates_of(account, 5).into_iter().map(|m| m.id).collect();
                facts.push(format!("{account} {of:?} {held:?}"));
            }
            for id in &contracts {
                let contract = view.contract(id);
                let made =
                    contract.as_ref().and_then(|c| c.quote_key()).and_then(|quote| view.contract_of_quote(&quote));
                facts.push(format!("{made:?} {:?} {:?}", contract.map(|c| c.to_json()), view.look(id)));
            }
            for id in &mandates {
                let mut under: Vec<String> = view.mandates_under(id).into_iter().map(|m| m.id).collect();
                under.sort();
                facts.push(format!("{:?} {under:?}", view.mandate(id)));
            }
            facts
        };
        let expected = facts(model);
        let rule = move |view: &dyn View| Ok(Decision::nothing(facts(view)));
        let seen = self.runtime.block_on(self.store.transact(rule)).expect("read");
        for (seen, expected) in seen.iter().zip(&expected) {
            assert_eq!(seen, expected);
        }
        assert_eq!(seen.len(), expected.len());
    }
}
