//! Faults that are put into a simulated house on purpose, to see that the simulator finds them. Each stands between the
//! rules and the records: it shows a rule something untrue, or keeps something else than what a rule decided.

use super::people::HOUSES;
use crate::record::house::OnUndecided;
use crate::record::memory::MemoryView;
use crate::record::{
    AccountPage, AgentRecord, BlobRecord, Change, Contract, ContractState, Entry, House, Invitation, Job, LookRow,
    MailRecord, Mandate, OperationRecord, Pin, SealRecord, SeenRecord, View,
};
use crate::time::Timestamp;
use crate::wire::address::Address;
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    FeeRoundedUp,
    LostChange,
    DoubledEntry,
    DedupForgotten,
    OneLook,
    RefundAfterRelease,
    SilenceOverArbiter,
    MaxPerCharge,
    ReceiptMissing,
    AckBeforeCommit,
    SpentForgotten,
    GraceIgnored,
    QuoteTwice,
    QueueForgotten,
    Overdraft,
}

impl Bug {
    pub const ALL: [Bug; 15] = [
        Bug::FeeRoundedUp,
        Bug::LostChange,
        Bug::DoubledEntry,
        Bug::DedupForgotten,
        Bug::OneLook,
        Bug::RefundAfterRelease,
        Bug::SilenceOverArbiter,
        Bug::MaxPerCharge,
        Bug::ReceiptMissing,
        Bug::AckBeforeCommit,
        Bug::SpentForgotten,
        Bug::GraceIgnored,
        Bug::QuoteTwice,
        Bug::QueueForgotten,
        Bug::Overdraft,
    ];

    pub const fn words(self) -> &'static str {
        match self {
            Bug::FeeRoundedUp => "the fee is rounded up",
            Bug::LostChange => "a contract's new state is lost while its money moves",
            Bug::DoubledEntry => "a payment is entered twice",
            Bug::DedupForgotten => "what was seen is forgotten at a restart",
            Bug::OneLook => "a verdict is given after one look",
            Bug::RefundAfterRelease => "a released contract passes for a delivered one",
            Bug::SilenceOverArbiter => "silence pays while the arbiter is undecided",
            Bug::MaxPerCharge => "a mandate's max_per_charge is not looked at",
            Bug::ReceiptMissing => "now and then a receipt is not written",
            Bug::AckBeforeCommit => "an envelope is acknowledged before it is durable",
            Bug::SpentForgotten => "a charge counts against the leaf of its chain alone",
            Bug::GraceIgnored => "an escrow is reclaimed without its grace",
            Bug::QuoteTwice => "a quote is accepted again under another id",
            Bug::QueueForgotten => "letters that were tried once are forgotten at a restart",
            Bug::Overdraft => "a balance is read as five tokens more than it is",
        }
    }

    /// The house as its rules see it.
    pub fn house(bug: Option<Bug>, house: &House) -> Option<House> {
        let mut wrong = house.clone();
        match bug? {
            Bug::SilenceOverArbiter => wrong.settings.on_undecided_at_expiry = OnUndecided::Expire,
            Bug::GraceIgnored => wrong.settings.reclaim_grace_ms = 0,
            _ => return None,
        }
        Some(wrong)
    }

    /// What is kept instead of what was decided.
    pub fn keeps(self, changes: &mut Vec<Change>, view: &MemoryView, turn: u64) {
        match self {
            Bug::FeeRoundedUp => {
                for change in changes {
                    let Change::Journal(entry) = change else { continue };
                    let casa = HOUSES.map(|house| format!("casa@{house}"));
                    let fee = entry.doc.pointer("/meta/fee").and_then(serde_json::Value::as_i64).unwrap_or(0);
                    let rounded = fee > 0 && entry.lines.first().is_some_and(|l| (-l.delta) % 10 != 0);
                    if let [_, payee, fee_line, ..] = entry.lines.as_mut_slice()
                        && rounded
                        && casa.contains(&fee_line.account)
                    {
                        payee.delta -= 1;
                        fee_line.delta += 1;
                    }
                }
            }
            Bug::LostChange => {
                let moves = changes.iter().any(|c| matches!(c, Change::Journal(e) if !e.lines.is_empty()));
                if moves && turn.is_multiple_of(3) {
                    changes.retain(|change| !matches!(change, Change::PutContract(_)));
                }
            }
            Bug::DoubledEntry => {
                let paid = changes.iter().find_map(|change| match change {
                    Change::Journal(entry)
                        if entry.doc.pointer("/meta/kind").and_then(serde_json::Value::as_str) == Some("pay") =>
                    {
                        Some(Entry { n: entry.n + 1, ..entry.clone() })
                    }
                    _ => None,
                });
                let covered = paid.as_ref().and_then(|entry| entry.lines.first());
                if covered.is_some_and(|line| view.balance(&line.account) + 2 * line.delta >= 0) {
                    changes.extend(paid.map(Change::Journal));
                }
            }
            Bug::DedupForgotten => changes.retain(|change| match change {
                Change::InsertOperation(op) => view.operation(&op.from, &op.id).is_none(),
                _ => true,
            }),
            Bug::ReceiptMissing => {
                let receipt = |change: &Change| match change {
                    Change::Deliver(mail) => mail.from.starts_with("libro@"),
                    Change::PutJob(job) => job.from_local == "libro" && job.attempts == 0,
                    _ => false,
                };
                if turn.is_multiple_of(7)
                    && let Some(at) = changes.iter().position(receipt)
                {
                    changes.remove(at);
                }
            }
            Bug::SpentForgotten => changes.retain(|change| match change {
                Change::PutMandate(mandate) => {
                    let charged = view.mandate(&mandate.id).is_some_and(|before| before.spent != mandate.spent);
                    let leaf = view.mandates_under(&mandate.id).len() <= 1;
                    !charged || leaf
                }
                _ => true,
            }),
            _ => {}
        }
    }
}

/// The records as a rule sees them.
pub struct Lens<'a> {
    pub view: &'a MemoryView,
    pub bug: Option<Bug>,
    /// What was seen since the last start.
    pub fresh: &'a BTreeSet<(String, String)>,
}

impl Lens<'_> {
    fn forgot(&self, from: &Address, id: &str) -> bool {
        self.bug == Some(Bug::DedupForgotten) && !self.fresh.contains(&(from.to_string(), id.to_owned()))
    }
}

impl View for Lens<'_> {
    fn agent(&self, local: &str) -> Option<AgentRecord> {
        self.view.agent(local)
    }

    fn invitation(&self, code: &str) -> Option<Invitation> {
        self.view.invitation(code)
    }

    fn pin(&self, domain: &str) -> Option<Pin> {
        self.view.pin(domain)
    }

    fn blob(&self, blob: &str) -> Option<BlobRecord> {
        self.view.blob(blob)
    }

    fn blob_bytes(&self) -> u64 {
        self.view.blob_bytes()
    }

    fn blob_day(&self, sender: &Address, day: i64) -> u64 {
        self.view.blob_day(sender, day)
    }

    fn seen(&self, from: &Address, id: &str) -> Option<SeenRecord> {
        self.view.seen(from, id).filter(|_| !self.forgot(from, id))
    }

    fn pending(&self, local: &str, id: &str) -> Vec<MailRecord> {
        self.view.pending(local, id)
    }

    fn job(&self, id: &str) -> Option<Job> {
        self.view.job(id)
    }

    fn last_seen(&self, local: &str) -> Option<Timestamp> {
        self.view.last_seen(local)
    }
    fn rate(&self, key: &str, at: Timestamp) -> u32 {
        self.view.rate(key, at)
    }

    fn nonce_used(&self, key: &str) -> bool {
        self.view.nonce_used(key)
    }

    fn journal_last(&self) -> u64 {
        self.view.journal_last()
    }

    fn balance(&self, account: &str) -> i64 {
        let more = if self.bug == Some(Bug::Overdraft) && !account.starts_with("escrow:") { 5 } else { 0 };
        self.view.balance(account) + more
    }

    fn contract(&self, id: &str) -> Option<Contract> {
        let mut contract = self.view.contract(id)?;
        if self.bug == Some(Bug::RefundAfterRelease) && contract.state == ContractState::Released {
            contract.state = ContractState::Delivered;
        }
        Some(contract)
    }

    fn contract_of_quote(&self, quote: &str) -> Option<String> {
        self.view.contract_of_quote(quote).filter(|_| self.bug != Some(Bug::QuoteTwice))
    }

    fn operation(&self, from: &Address, id: &str) -> Option<OperationRecord> {
        self.view.operation(from, id).filter(|_| !self.forgot(from, id))
    }

    fn look(&self, contract: &str) -> Option<LookRow> {
        self.view.look(contract)
    }

    fn journal_last_at(&self) -> Timestamp {
        self.view.journal_last_at()
    }

    fn account_page(
        &self,
        account: &str,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        limit: usize,
    ) -> AccountPage {
        self.view.account_page(account, since, until, limit)
    }

    fn contracts_of(&self, account: &str, limit: usize) -> Vec<Contract> {
        self.view.contracts_of(account, limit)
    }

    fn mandate(&self, id: &str) -> Option<Mandate> {
        let mut mandate = self.view.mandate(id)?;
        if self.bug == Some(Bug::MaxPerCharge)
            && let Some(scope) = mandate.scope.as_object_mut()
        {
            scope.remove("max_per_charge");
        }
        Some(mandate)
    }

    fn mandates_under(&self, id: &str) -> Vec<Mandate> {
        self.view.mandates_under(id)
    }

    fn mandates_of(&self, account: &str, limit: usize) -> Vec<Mandate> {
        self.view.mandates_of(account, limit)
    }

    fn seal(&self, sha256: &str, by: &Address) -> Option<SealRecord> {
        self.view.seal(sha256, by)
    }
}
