//! Letters filed by conversation, and what is counted of them, in the transaction that keeps them.
//!
//! A count is a row that changes by one, so that a list of conversations costs the same whatever lies in the mailbox. A
//! letter for later is filed at once and counted when its time has come: see [`due`].

use super::reader::Reader;
use super::rows::{self, Rows, bound};
use super::{StoreError, apply, sql};
use crate::limits;
use crate::mail::talk::{self, Before, Conversation, Place, Said, Way};
use crate::record::{Job, MailRecord};
use crate::time::Timestamp;
use rusqlite::{Connection, Row, params};
use serde_json::Value;

/// Files a letter that has just been put into a mailbox as row `seq`.
pub fn received(rows: &Rows<'_>, seq: i64, mail: &MailRecord, shown: Timestamp) -> Result<(), StoreError> {
    let house = apply::house(rows)?;
    let Some(place) = talk::received(house.as_ref(), mail) else { return Ok(()) };
    let counted = mail.visible_from.is_none();
    let row = params![
        seq.saturating_mul(2),
        mail.local,
        place.contact,
        place.project,
        shown.millis(),
        mail.id,
        None::<String>,
        counted,
    ];
    if rows.exec(sql::FILE, row)? == 1 && counted {
        let letter = Letter { place: &place, at: shown.millis(), id: &mail.id, way: Some(mail.acked.is_none()) };
        count(rows, &mail.local, &letter)?;
    }
    mark_read(rows, mail)
}

/// Files what an agent hands in to be sent: once, however many houses it goes to.
pub fn sent(rows: &Rows<'_>, job: &Job) -> Result<(), StoreError> {
    let Some(place) = talk::sent(job) else { return Ok(()) };
    let Some(towards) = talk::job_towards(job, &place) else { return Ok(()) };
    let number = rows.integer(sql::JOB_NUMBER, [&job.job])?.unwrap_or_default();
    let at = job.created.millis();
    let seq = number.saturating_mul(2).saturating_add(1);
    let row = params![seq, job.from_local, place.contact, place.project, at, job.envelope_id, towards, true];
    if rows.exec(sql::FILE, row)? == 1 {
        count(rows, &job.from_local, &Letter { place: &place, at, id: &job.envelope_id, way: None })?;
    }
    Ok(())
}

/// One letter in the mailbox less to handle.
pub fn handled(rows: &Rows<'_>, local: &str, seq: i64) -> Result<(), StoreError> {
    let seq = seq.saturating_mul(2);
    count_deferred(rows, local, seq)?;
    let Some((place, ..)) = rows.one(sql::FILED, [seq], filed)? else { return Ok(()) };
    let under = place.project.is_some();
    rows.exec(sql::COUNT_HANDLED, params![local, place.contact, "", under])?;
    if let Some(project) = &place.project {
        rows.exec(sql::COUNT_HANDLED, params![local, place.contact, project, true])?;
    }
    Ok(())
}

/// Counts the deferred letters of this mailbox that can be seen by now.
pub fn due(rows: &Rows<'_>, local: &str, now: Timestamp) -> Result<(), StoreError> {
    let most = bound(limits::DEFERRED_FILED_MAX);
    let due: Vec<i64> = rows.many(sql::DEFERRED_DUE, params![local, now.millis(), most], |row| Ok(row.get(0)?))?;
    due.into_iter().try_for_each(|seq| count_deferred(rows, local, seq))
}

/// Files what a store of an earlier version holds, in pieces, so that an end half way goes on where it stood.
pub fn refile(conn: &Connection) -> Result<(), StoreError> {
    let rows = Rows::new(conn);
    if rows.text(sql::META, [META_FILED])?.is_some() {
        return Ok(());
    }
    let piece = bound(limits::STORE_PRUNE_ROWS);
    let (mut mail_at, mut job_at) = (0, 0);
    loop {
        rows.exec(sql::BEGIN, [])?;
        let mails: Vec<(i64, MailRecord)> =
            rows.many_within(sql::REFILE_MAIL, params![mail_at, piece], |row| Ok((row.get(8)?, rows::mail(row)?)))?.0;
        for (seq, mail) in &mails {
            rows.exec(sql::REFILE_PROJECT, params![seq, talk::project_of(&mail.envelope)])?;
            let shown = mail.visible_from.map_or(mail.received, |from| from.max(mail.received));
            received(&rows, *seq, mail, shown)?;
            mail_at = *seq;
        }
        let jobs: Vec<(Job, i64)> = rows
            .many_within(sql::REFILE_JOBS, params![job_at, piece], |row| Ok((rows::document(row, 0)?, row.get(1)?)))?
            .0;
        for (job, number) in &jobs {
            sent(&rows, job)?;
            job_at = *number;
        }
        let done = mails.is_empty() && jobs.is_empty();
        if done {
            rows.exec(sql::META_FIRST, params![META_FILED, "1"])?;
        }
        rows.exec(sql::COMMIT, [])?;
        if done {
            return Ok(());
        }
    }
}

impl Reader<'_> {
    /// One page of conversations, newest first, and whether there may be more. Under a project, those that have a letter
    /// of it, with what is counted of it.
    pub fn conversations(
        &self,
        local: &str,
        project: Option<&str>,
        before: Option<&Before<String>>,
        limit: usize,
    ) -> Result<(Vec<Conversation>, bool), StoreError> {
        let (at, than) = before.map_or((i64::MAX, ""), |before| (before.at.millis(), before.than.as_str()));
        let page = params![local, project.unwrap_or(""), at, than, bound(limit)];
        let mut list = self.rows().many(sql::CONVERSATIONS, page, conversation)?;
        if project.is_none() {
            for one in &mut list {
                let most = bound(limits::PROJECTS_LISTED_MAX);
                one.projects = self.rows().many(sql::PROJECTS_OF, params![local, one.with, most], |row| {
                    Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()))
                })?;
            }
        }
        let full = list.len() == limit;
        Ok((list, full))
    }

    /// The newest letters of a conversation, newest first, and whether there may be more; less than `limit` where they are
    /// large.
    pub fn letters(
        &self,
        local: &str,
        with: &str,
        project: Option<&str>,
        before: Option<&Before<i64>>,
        limit: usize,
    ) -> Result<(Vec<Said>, bool), StoreError> {
        let (at, than) = before.map_or((i64::MAX, i64::MAX), |before| (before.at.millis(), before.than));
        let (list, cut) = match project {
            None => self.rows().many_within(sql::LETTERS, params![local, with, at, than, bound(limit)], said)?,
            Some(name) => {
                let page = params![local, with, at, than, bound(limit), name];
                self.rows().many_within(sql::LETTERS_UNDER, page, said)?
            }
        };
        let full = cut || list.len() == limit;
        Ok((list.into_iter().flatten().collect(), full))
    }
}

/// What is counted of one letter.
struct Letter<'a> {
    place: &'a Place,
    at: i64,
    id: &'a str,
    /// Whether a received one waits to be handled; nothing for one that was sent.
    way: Option<bool>,
}

fn count(rows: &Rows<'_>, local: &str, letter: &Letter<'_>) -> Result<(), StoreError> {
    let pending = letter.way == Some(true);
    let is_in = letter.way.is_some();
    let Letter { place, at, id, .. } = letter;
    let filed = pending && place.project.is_some();
    rows.exec(sql::COUNT_LETTER, params![local, place.contact, "", pending, filed, at, is_in, id])?;
    if let Some(project) = &place.project {
        rows.exec(sql::COUNT_LETTER, params![local, place.contact, project, pending, pending, at, is_in, id])?;
    }
    Ok(())
}

/// Counts a letter that was filed for later and was not counted yet; it waits to be handled.
fn count_deferred(rows: &Rows<'_>, local: &str, seq: i64) -> Result<(), StoreError> {
    let Some((place, at, id, counted)) = rows.one(sql::FILED, [seq], filed)? else { return Ok(()) };
    if counted {
        return Ok(());
    }
    rows.exec(sql::FILE_COUNTED, [seq])?;
    count(rows, local, &Letter { place: &place, at, id: &id, way: Some(true) })
}

/// A receipt of a reader's house marks the letter that it speaks of, if the reader was written to. The first one counts.
fn mark_read(rows: &Rows<'_>, mail: &MailRecord) -> Result<(), StoreError> {
    let Some(mark) = talk::read_mark(mail) else { return Ok(()) };
    let found = rows.one(sql::SENT_OF, params![mail.local, mark.of], |row| {
        Ok((row.get::<_, i64>(0)?, rows::document::<Job>(row, 1)?))
    })?;
    if let Some((seq, job)) = found
        && talk::was_written_to(&job.envelope, &mark.by)
    {
        rows.exec(sql::MARK_READ, params![seq, mark.by.as_str(), mark.at.millis()])?;
    }
    Ok(())
}

fn filed(row: &Row<'_>) -> Result<(Place, i64, String, bool), StoreError> {
    Ok((Place { contact: row.get(0)?, project: row.get(1)? }, row.get(2)?, row.get(3)?, row.get(4)?))
}

fn conversation(row: &Row<'_>) -> Result<Conversation, StoreError> {
    let number = |at: usize| Ok::<_, StoreError>(row.get::<_, i64>(at)?.cast_unsigned());
    Ok(Conversation {
        with: row.get(0)?,
        count: number(1)?,
        pending: number(2)?,
        filed: number(3)?,
        last_at: rows::instant(row, 4)?,
        last_in: row.get(5)?,
        last_id: row.get(6)?,
        projects: Vec::new(),
    })
}

/// Nothing where the letter itself is not kept.
fn said(row: &Row<'_>) -> Result<Option<Said>, StoreError> {
    let instant = |at: usize| Ok::<_, StoreError>(row.get::<_, Option<i64>>(at)?.map(Timestamp::from_millis));
    let sent: Option<String> = row.get(3)?;
    let (envelope, way): (Value, Way) = match sent {
        None if row.get_ref(7)?.as_str_or_null().ok().flatten().is_none() => return Ok(None),
        None => (rows::document(row, 7)?, Way::In { acked: instant(6)? }),
        Some(_) if row.get_ref(8)?.as_str_or_null().ok().flatten().is_none() => return Ok(None),
        Some(_) => {
            let job: Job = rows::document(row, 8)?;
            let read = row.get::<_, Option<String>>(4)?.zip(instant(5)?);
            (job.envelope.into_value(), Way::Out { status: job.status, read })
        }
    };
    Ok(Some(Said { id: row.get(0)?, at: rows::instant(row, 1)?, seq: row.get(2)?, envelope, way }))
}

const META_FILED: &str = "filed";
