//! Applying what a rule asked for.
//!
//! The rules decide; this is the second lock on the door. A change that breaks what the ledger promises (a gap in the
//! journal, lines that do not cancel out, an account below zero, a second ending of a contract, a signed entry that
//! says something else than its lines) is refused whole, whatever the rule thought.

use super::kept::{Account, Kept};
use super::rows::{self, Rows};
use super::{StoreError, filing, sql};
use crate::limits::SAFE_INTEGER_MAX;
use crate::mail::index::says_yes;
use crate::mail::talk;
use crate::record::{
    AgentRecord, BlobRecord, BlobState, Change, Contract, Entry, Invitation, Job, Line, LookRow, MailRecord, Mandate,
    MandateState, Pin, Push, SeenRecord,
};
use crate::time::Timestamp;
use crate::wire::address::{Domain, SystemName};
use rusqlite::{Params, params};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

pub fn apply(rows: &Rows<'_>, change: &Change) -> Result<(), StoreError> {
    match change {
        Change::InsertAgent(agent) => insert_agent(rows, agent),
        Change::PutAgent(agent) => put_agent(rows, agent),
        Change::InsertInvitation(invitation) => insert_invitation(rows, invitation),
        Change::UseInvitation { code, at } => use_invitation(rows, code, *at),
        Change::Deliver(mail) => deliver(rows, mail),
        Change::Acknowledge { local, id, at } => {
            let row = params![local, id, at.millis()];
            let acked: Vec<i64> = rows.many(sql::ACKNOWLEDGE, row, |row| Ok(row.get(0)?))?;
            acked.into_iter().try_for_each(|seq| filing::handled(rows, local, seq))
        }
        Change::InsertPush(push) => put_push(rows, sql::INSERT_PUSH, push),
        Change::PutPush(push) => put_push(rows, sql::UPDATE_PUSH, push),
        Change::EndPush { local, from, id } => rows.exec(sql::END_PUSH, params![local, from, id]).map(drop),
        Change::SeenIn { local, hour } => rows.exec(sql::SEEN_IN, params![local, hour.millis()]).map(drop),
        Change::FileDeferred { local, at } => filing::due(rows, local, *at),
        Change::PutSeen(seen) => put_seen(rows, seen),
        Change::PutJob(job) => put_job(rows, job),
        Change::CountRate { key, at, hits } => count_rate(rows, key, *at, *hits),
        Change::BurnNonce { key, at } => {
            fresh(rows, sql::BURN_NONCE, params![key, at.millis()], || "the nonce was used".to_owned())
        }
        Change::Journal(entry) => journal(rows, entry),
        Change::InsertContract(contract) => insert_contract(rows, contract),
        Change::PutContract(contract) => put_contract(rows, contract),
        Change::InsertOperation(operation) => {
            let row = params![
                operation.from.as_str(),
                operation.id,
                operation.sha256,
                operation.at.millis(),
                operation.result.text()
            ];
            fresh(rows, sql::INSERT_OPERATION, row, || format!("operation {} was applied", operation.id))
        }
        Change::InsertMandate(mandate) => insert_mandate(rows, mandate),
        Change::PutMandate(mandate) => put_mandate(rows, mandate),
        Change::InsertSeal(seal) => {
            let row = params![seal.id, seal.sha256, seal.by.as_str(), seal.at.millis(), text(seal)?];
            fresh(rows, sql::INSERT_SEAL, row, || "the seal, or its hash and declarant, is known".to_owned())
        }
        Change::PutLook(look) => put_look(rows, look),
        Change::PutObservation(seen) => {
            let row = params![seen.sha256.hex(), seen.at.millis(), seen.contract, seen.bytes];
            rows.exec(sql::PUT_OBSERVATION, row).map(drop)
        }
        Change::PutEvidence(row) => {
            let row = params![row.contract, row.sha256.hex(), row.at.millis(), row.bytes];
            rows.exec(sql::PUT_EVIDENCE, row).map(drop)
        }
        Change::ForgetEvidence { contract } => forget_evidence(rows, contract),
        Change::InsertPin { domain, key, at } => {
            rows.exec(sql::INSERT_PIN, params![domain, key.kid(), at.millis()]).map(drop)
        }
        Change::PutPin(Pin { domain, key, at, next }) => {
            let next = next.map(|next| next.kid());
            rows.exec(sql::PUT_PIN, params![domain, key.kid(), at.millis(), next]).map(drop)
        }
        Change::PutDomainCard(doc) => put_domain_card(rows, doc),
        Change::PutBlob(row) => put_blob(rows, row),
        Change::DropBlob { blob } => {
            weigh_blob(rows, blob, 0)?;
            rows.exec(sql::DROP_BLOB, [blob]).map(drop)
        }
        Change::CountBlobs { sender, day, bytes } => {
            rows.exec(sql::COUNT_BLOBS, params![sender.as_str(), day, bytes]).map(drop)
        }
        Change::Event { name, at, actor, data } => {
            let nth = rows.integer(sql::COUNT_EVENT, [name])?;
            rows.exec(sql::INSERT_EVENT, params![name, at.millis(), actor, text(data)?, nth]).map(drop)
        }
    }
}

/// The domain of the house, once anything has said it.
pub(super) fn house(rows: &Rows<'_>) -> Result<Option<Domain>, StoreError> {
    let casa = bound_casa(rows)?;
    Ok(casa.as_deref().and_then(|casa| casa.split_once('@')).and_then(|(_, domain)| Domain::parse(domain).ok()))
}

/// The house's own account, which never changes once it is said.
fn bound_casa(rows: &Rows<'_>) -> Result<Option<Arc<str>>, StoreError> {
    if let Some(known) = rows.kept().and_then(Kept::casa) {
        return Ok(Some(known));
    }
    let casa: Option<Arc<str>> = rows.text(sql::META, [META_CASA])?.map(Arc::from);
    if let (Some(kept), Some(casa)) = (rows.kept(), &casa) {
        kept.set_casa(casa.clone());
    }
    Ok(casa)
}

/// Writes down whose books these are. The first name stays.
fn bind_house(rows: &Rows<'_>, domain: &Domain) -> Result<(), StoreError> {
    let casa = domain.system(SystemName::Casa);
    rows.exec(sql::META_FIRST, params![META_CASA, casa.as_str()])?;
    match rows.text(sql::META, [META_CASA])? {
        Some(bound) if bound == casa.as_str() => Ok(()),
        bound => Err(StoreError::Conflict(format!(
            "these are the books of {}, not of {casa}",
            bound.as_deref().unwrap_or("nobody")
        ))),
    }
}

/// How many agents there are, counted as they come so that nobody has to count them all.
pub fn agents(rows: &Rows<'_>) -> Result<u64, StoreError> {
    Ok(rows.text(sql::META, [META_AGENTS])?.and_then(|n| n.parse().ok()).unwrap_or(0))
}

fn insert_agent(rows: &Rows<'_>, agent: &AgentRecord) -> Result<(), StoreError> {
    write_agent(rows, sql::INSERT_AGENT, agent)
        .map_err(|fault| conflict(fault, || format!("the name {} is taken", agent.local)))?;
    rows.exec(sql::META_ADD, [META_AGENTS])?;
    tag(rows, agent)
}

fn put_agent(rows: &Rows<'_>, agent: &AgentRecord) -> Result<(), StoreError> {
    if write_agent(rows, sql::UPDATE_AGENT, agent)? == 0 {
        return insert_agent(rows, agent);
    }
    rows.exec(sql::DELETE_TAGS, [agent.local.as_str()])?;
    tag(rows, agent)
}

fn write_agent(rows: &Rows<'_>, statement: &'static str, agent: &AgentRecord) -> Result<usize, StoreError> {
    let listed = listed(agent);
    let words = if listed { words(agent) } else { String::new() };
    if let Some(kept) = rows.kept() {
        kept.forget_agent(agent.local.as_str());
    }
    rows.exec(
        statement,
        params![
            agent.local.as_str(),
            text(agent.card.doc())?,
            agent.webhook,
            agent.notify_email,
            agent.registered_via,
            agent.system,
            agent.created.millis(),
            listed,
            words,
        ],
    )
}

/// A revoked agent is nobody's to find.
fn listed(agent: &AgentRecord) -> bool {
    agent.card.listed() && !agent.card.revoked
}

/// What the directory's free search looks through: the address and the capabilities, lower case.
fn words(agent: &AgentRecord) -> String {
    let capabilities = agent.card.doc().get("capabilities").map(Value::to_string).unwrap_or_default();
    format!("{}\n{capabilities}", agent.card.address).to_lowercase()
}

fn tag(rows: &Rows<'_>, agent: &AgentRecord) -> Result<(), StoreError> {
    let Some(Value::Object(capabilities)) = agent.card.doc().get("capabilities") else { return Ok(()) };
    if !listed(agent) {
        return Ok(());
    }
    let insert =
        |kind: &str, name: &str| rows.exec(sql::INSERT_TAG, params![kind, name, agent.local.as_str()]).map(drop);
    for (name, value) in capabilities.iter().filter(|(_, value)| says_yes(value)) {
        insert("capability", name)?;
        if name == "accepts" {
            for media in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
                insert("accepts", media)?;
            }
        }
    }
    Ok(())
}

fn insert_invitation(rows: &Rows<'_>, invitation: &Invitation) -> Result<(), StoreError> {
    let row = params![
        invitation.code,
        integer(invitation.uses)?,
        integer(invitation.used)?,
        invitation.expires.map(Timestamp::millis),
        invitation.note,
        invitation.welcome.map(integer).transpose()?,
        invitation.created.millis(),
        invitation.by,
        invitation.last_used.map(Timestamp::millis),
    ];
    fresh(rows, sql::INSERT_INVITATION, row, || "the invitation exists".to_owned())
}

fn use_invitation(rows: &Rows<'_>, code: &str, at: Timestamp) -> Result<(), StoreError> {
    if rows.exec(sql::USE_INVITATION, params![code, at.millis()])? == 1 {
        return Ok(());
    }
    Err(StoreError::Conflict("the invitation is unknown, used up or expired".to_owned()))
}

fn deliver(rows: &Rows<'_>, mail: &MailRecord) -> Result<(), StoreError> {
    let shown = mail.visible_from.map_or(mail.received, |from| from.max(mail.received));
    let row = params![
        mail.local,
        mail.id,
        mail.from,
        mail.envelope.get("thread").and_then(Value::as_str),
        mail.received.millis(),
        mail.visible_from.map(Timestamp::millis),
        shown.millis(),
        mail.acked.map(Timestamp::millis),
        text(&mail.meta)?,
        mail.envelope.text(),
        talk::project_of(&mail.envelope),
    ];
    if rows.exec(sql::DELIVER, row)? == 0 {
        return Ok(());
    }
    filing::received(rows, rows.last_number(), mail, shown)
}

fn put_seen(rows: &Rows<'_>, seen: &SeenRecord) -> Result<(), StoreError> {
    let row = params![seen.from.as_str(), seen.id, seen.sha256, seen.at.millis(), text(&seen.accepted)?];
    if rows.exec(sql::PUT_SEEN, row)? == 1 {
        return Ok(());
    }
    Err(StoreError::Conflict(format!("envelope {} of {} was seen with another body", seen.id, seen.from)))
}

fn put_job(rows: &Rows<'_>, job: &Job) -> Result<(), StoreError> {
    let wake = job.status.open().then_some(job.next_attempt.millis());
    let row = params![job.job, job.from_local, job.domain.as_str(), job.created.millis(), wake, text(job)?];
    rows.exec(sql::PUT_JOB, row)?;
    // Filed when it is handed in; an attempt changes nothing of that.
    if job.attempts == 0 { filing::sent(rows, job) } else { Ok(()) }
}

fn put_push(rows: &Rows<'_>, statement: &'static str, push: &Push) -> Result<(), StoreError> {
    let row = params![push.local, push.from, push.id, push.attempts, push.first.millis(), push.wake.millis()];
    rows.exec(statement, row).map(drop)
}

fn put_blob(rows: &Rows<'_>, row: &BlobRecord) -> Result<(), StoreError> {
    weigh_blob(rows, &row.blob, integer(row.bytes)?)?;
    let coming = row.state == BlobState::Coming;
    let values = params![row.blob, coming, row.until.millis(), integer(row.bytes)?, text(row)?];
    rows.exec(sql::PUT_BLOB, values).map(drop)
}

/// Keeps the sum of all attachments true before one of them changes to so many bytes.
fn weigh_blob(rows: &Rows<'_>, blob: &str, bytes: i64) -> Result<(), StoreError> {
    let before = rows.integer(sql::BLOB_HELD, [blob])?.unwrap_or(0);
    if before == bytes {
        return Ok(());
    }
    rows.exec(sql::META_SUM, params![rows::META_BLOB_BYTES, bytes - before]).map(drop)
}

fn put_look(rows: &Rows<'_>, look: &LookRow) -> Result<(), StoreError> {
    let wake = look.lease_until.map_or(look.due, |lease| lease.max(look.due));
    let wake = (!look.done).then_some(wake.millis());
    let lease = look.lease_until.filter(|_| !look.done).map(Timestamp::millis);
    rows.exec(sql::PUT_LOOK, params![look.contract, look.seller, wake, lease, text(look)?]).map(drop)
}

fn put_domain_card(rows: &Rows<'_>, doc: &Value) -> Result<(), StoreError> {
    let domain = doc.get("domain").and_then(Value::as_str).and_then(|domain| Domain::parse(domain).ok());
    let domain = domain.ok_or_else(|| StoreError::Bug("a domain card without its domain".to_owned()))?;
    bind_house(rows, &domain)?;
    rows.exec(sql::PUT_DOMAIN_CARD, [text(doc)?]).map(drop)
}

fn journal(rows: &Rows<'_>, entry: &Entry) -> Result<(), StoreError> {
    let accounts = move_accounts(rows, entry)?;
    write_entry(rows, entry, &accounts)
}

/// Checks that the entry follows, sums to zero and is covered, and moves the accounts. Answers the account of each line
/// as it is after it. Where it refuses, nothing has moved.
pub fn move_accounts(rows: &Rows<'_>, entry: &Entry) -> Result<Vec<Account>, StoreError> {
    let (last, last_at) = rows::journal_last(rows)?;
    let broken = |how: String| Err(StoreError::Bug(format!("entry {} {how}", entry.n)));
    if entry.n != last + 1 {
        return Err(StoreError::Conflict(format!("entry {} does not follow entry {last}", entry.n)));
    }
    if entry.at < last_at {
        return broken(format!("lies before entry {last}"));
    }
    let sum: i128 = entry.lines.iter().map(|line| i128::from(line.delta)).sum();
    if sum != 0 {
        return broken(format!("sums to {sum}"));
    }
    let mut after = Vec::with_capacity(entry.lines.len());
    let mut moved: Vec<(&str, Account)> = Vec::with_capacity(entry.lines.len());
    for line in &entry.lines {
        let known = moved.iter().position(|(account, _)| *account == line.account);
        let Account { balance, entries } = match known {
            Some(at) => moved.swap_remove(at).1,
            None => {
                let before = rows::account_of(rows, &line.account)?;
                Account { entries: before.entries + 1, ..before }
            }
        };
        let balance = balance.checked_add(line.delta).filter(|sum| sum.unsigned_abs() <= SAFE_INTEGER_MAX);
        let Some(balance) = balance else {
            return broken(format!("overflows {}", line.account));
        };
        after.push(Account { balance, entries });
        moved.push((&line.account, Account { balance, entries }));
    }
    for (name, account) in &moved {
        if account.balance < 0 && *name != &*casa(rows, entry)? {
            return broken(format!("leaves {name} at {}", account.balance));
        }
    }
    for (name, account) in moved {
        match rows.kept() {
            Some(kept) => kept.put_account(name, account),
            None => rows.exec(sql::PUT_ACCOUNT, params![name, account.balance, account.entries]).map(drop)?,
        }
    }
    if let Some(kept) = rows.kept() {
        kept.set_journal((entry.n, entry.at));
    }
    Ok(after)
}

/// The rows of an entry whose accounts have moved.
pub fn write_entry(rows: &Rows<'_>, entry: &Entry, accounts: &[Account]) -> Result<(), StoreError> {
    if !says_its_lines(entry) {
        return Err(StoreError::Bug(format!("entry {} was signed with other lines", entry.n)));
    }
    let n = integer(entry.n)?;
    fresh(rows, sql::INSERT_ENTRY, params![n, entry.id, entry.at.millis(), entry.doc.text()], || {
        format!("entry {} exists", entry.id)
    })?;
    for (i, (line, after)) in entry.lines.iter().zip(accounts).enumerate() {
        let row = params![line.account, n, i as i64, line.delta, after.balance, after.entries];
        rows.exec(sql::INSERT_LINE, row)?;
    }
    Ok(())
}

fn count_rate(rows: &Rows<'_>, key: &str, at: Timestamp, hits: u32) -> Result<(), StoreError> {
    let sum = rows::rate(rows, key, at)?.saturating_add(hits);
    match rows.kept() {
        Some(kept) => kept.put_rate((key.to_owned(), at.minute()), sum),
        None => rows.exec(sql::PUT_RATE, params![key, at.minute(), sum]).map(drop)?,
    }
    Ok(())
}

/// The account that may be negative: that of the house whose books these are, which the first entry says.
fn casa(rows: &Rows<'_>, entry: &Entry) -> Result<Arc<str>, StoreError> {
    if let Some(casa) = bound_casa(rows)? {
        return Ok(casa);
    }
    let house = entry.doc.get("house").and_then(Value::as_str).and_then(|domain| Domain::parse(domain).ok());
    let house = house.ok_or_else(|| StoreError::Bug(format!("entry {} does not say its house", entry.n)))?;
    bind_house(rows, &house)?;
    Ok(house.system(SystemName::Casa).as_str().into())
}

/// What is signed is what is counted.
fn says_its_lines(entry: &Entry) -> bool {
    let said = |doc: &Value, line: &Line| {
        doc.get("account").and_then(Value::as_str) == Some(line.account.as_str())
            && doc.get("delta").and_then(Value::as_i64) == Some(line.delta)
    };
    let lines = entry.doc.get("lines").and_then(Value::as_array);
    entry.doc.get("n").and_then(Value::as_u64) == Some(entry.n)
        && entry.doc.get("id").and_then(Value::as_str) == Some(entry.id.as_str())
        && lines.is_some_and(|docs| {
            docs.len() == entry.lines.len() && docs.iter().zip(&entry.lines).all(|(doc, line)| said(doc, line))
        })
}

fn insert_contract(rows: &Rows<'_>, contract: &Contract) -> Result<(), StoreError> {
    let row = params![
        contract.id,
        contract.quote_key(),
        contract.state.as_str(),
        !contract.state.terminal(),
        contract.updated.millis(),
        text(contract)?,
    ];
    let seq = numbered(rows, sql::INSERT_CONTRACT, row, || "the contract or its quote is known".to_owned())?;
    for party in contract.parties() {
        rows.exec(sql::INSERT_PARTY, params![party.as_str(), seq])?;
    }
    Ok(())
}

fn put_contract(rows: &Rows<'_>, contract: &Contract) -> Result<(), StoreError> {
    let state = contract.state.as_str();
    let ended = contract.state.terminal();
    let row = params![contract.id, state, !ended, contract.updated.millis(), text(contract)?];
    if rows.exec(sql::UPDATE_CONTRACT, row)? == 1 {
        if ended {
            rows.exec(sql::EVIDENCE_ENDED, params![contract.id, contract.updated.millis()])?;
        }
        return Ok(());
    }
    match rows.text(sql::CONTRACT_STATE, [&contract.id])? {
        None => Err(StoreError::Conflict(format!("there is no contract {}", contract.id))),
        Some(ended) => {
            Err(StoreError::Bug(format!("contract {} ended as {ended} and cannot become {state}", contract.id)))
        }
    }
}

/// What was seen for a contract and the evidence made of it, both or neither.
pub(super) fn forget_evidence(rows: &Rows<'_>, contract: &str) -> Result<(), StoreError> {
    rows.exec(sql::FORGET_OBSERVATIONS, [contract])?;
    rows.exec(sql::FORGET_EVIDENCE, [contract]).map(drop)
}

fn insert_mandate(rows: &Rows<'_>, mandate: &Mandate) -> Result<(), StoreError> {
    let row = params![mandate.id, text(mandate)?];
    let seq = numbered(rows, sql::INSERT_MANDATE, row, || format!("mandate {} is known", mandate.id))?;
    for party in [&mandate.grantor, &mandate.grantee] {
        rows.exec(sql::INSERT_MANDATE_PARTY, params![party.as_str(), seq])?;
    }
    chain(rows, mandate)
}

fn put_mandate(rows: &Rows<'_>, mandate: &Mandate) -> Result<(), StoreError> {
    if rows.exec(sql::UPDATE_MANDATE, params![mandate.id, text(mandate)?])? == 0 {
        return Err(StoreError::Conflict(format!("there is no mandate {}", mandate.id)));
    }
    chain(rows, mandate)
}

/// What is revoked hangs under nothing any more.
fn chain(rows: &Rows<'_>, mandate: &Mandate) -> Result<(), StoreError> {
    let statement = match mandate.state {
        MandateState::Active => sql::INSERT_MANDATE_CHAIN,
        MandateState::Revoked => sql::DELETE_MANDATE_CHAIN,
    };
    mandate.chain.iter().try_for_each(|link| rows.exec(statement, params![link, mandate.id]).map(drop))
}

/// An insert whose row must be new, and the number that it got.
fn numbered(
    rows: &Rows<'_>,
    sql: &'static str,
    row: impl Params,
    what: impl FnOnce() -> String,
) -> Result<i64, StoreError> {
    fresh(rows, sql, row, what)?;
    Ok(rows.last_number())
}

/// An insert whose row must be new.
fn fresh(
    rows: &Rows<'_>,
    sql: &'static str,
    row: impl Params,
    what: impl FnOnce() -> String,
) -> Result<(), StoreError> {
    rows.exec(sql, row).map(drop).map_err(|fault| conflict(fault, what))
}

fn conflict(fault: StoreError, what: impl FnOnce() -> String) -> StoreError {
    match fault {
        StoreError::Conflict(_) => StoreError::Conflict(what()),
        fault => fault,
    }
}

fn text(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError::Bug(format!("a record cannot be written: {e}")))
}

fn integer(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::Bug(format!("{value} is beyond the store's integers")))
}

const META_CASA: &str = "casa";
const META_AGENTS: &str = "agents";
