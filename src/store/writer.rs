//! The one writer: a thread that owns the writing connection.
//!
//! Commands come over a bounded channel. The thread takes what is waiting, runs each command in one transaction,
//! commits once (one flush to the disk for all) and only then replies. A command that refuses, fails or panics leaves
//! nothing of itself behind and takes nothing of its neighbours with it. When the commit fails, every command of the
//! batch fails with it, refusals too: they were decided over changes that never came to be.
//!
//! A savepoint around each command costs a copy of every page it touches, and is needed only when a command fails after
//! it began to write, which no rule does unless it is wrong. So the batch runs without; should it happen all the same,
//! the transaction is undone and the batch runs again with savepoints. That is why commands can be run again.
//!
//! What a command adds and no other looks at is written when the batch ends, while other processors sign it: see `late`.
//!
//! A failed flush cannot be repeated: the kernel may have dropped the pages and report success the second time. So any
//! fault of the disk poisons the store: no further write is attempted or acknowledged until a restart has read back
//! what is really there. A full disk is not such a fault as long as the transaction was undone cleanly.

use super::kept::Kept;
use super::rows::Rows;
use super::{StoreError, sql};
use crate::limits;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Work for the writer, with the caller who waits for it.
pub trait Command: Send {
    /// The caller went away before the work began.
    fn abandoned(&self) -> bool;
    /// Does the work; whether its changes are to be kept. Runs again when its transaction had to be undone.
    fn run(&mut self, rows: &Rows<'_>) -> bool;
    /// The fault of the store that the work met, if any.
    fn fault(&self) -> Option<StoreError>;
    /// Replaces the outcome.
    fn fail(&mut self, fault: StoreError);
    fn reply(self: Box<Self>);
}

pub enum Message {
    Run(Box<dyn Command>),
    Close(oneshot::Sender<Result<(), StoreError>>),
}

pub struct Writer {
    conn: Connection,
    kept: Kept,
    messages: mpsc::Receiver<Message>,
    poison: watch::Sender<Option<String>>,
    closing: Closing,
    /// The log length at which waiting for readers is tried next.
    restart_at: i64,
    /// Held until the connection is closed, so that a successor cannot open in between. The last field drops last.
    _lock: File,
}

/// Why a transaction ended without a commit.
enum Stop {
    Fault(StoreError),
    /// A command failed after it began to write, and there was no savepoint to go back to.
    HalfDone,
}

impl From<StoreError> for Stop {
    fn from(fault: StoreError) -> Self {
        Stop::Fault(fault)
    }
}

impl Writer {
    pub fn new(
        conn: Connection,
        messages: mpsc::Receiver<Message>,
        poison: watch::Sender<Option<String>>,
        lock: File,
    ) -> Self {
        let kept = Kept::default();
        Writer { conn, kept, messages, poison, closing: None, restart_at: limits::STORE_WAL_STUCK_PAGES, _lock: lock }
    }

    /// Serves until the store is closed or its last handle is dropped.
    pub fn serve(mut self) {
        while let Some(message) = self.messages.blocking_recv() {
            if let Some(command) = accept(message, &mut self.messages, &mut self.closing) {
                self.run(command);
                self.checkpoint();
            }
        }
        let outcome = self.last_checkpoint();
        let closing = self.closing.take();
        drop(self);
        if let Some(done) = closing {
            let _ = done.send(outcome);
        }
    }

    /// Runs this command and those that come while it runs.
    fn run(&mut self, first: Box<dyn Command>) {
        let mut waiting = VecDeque::from([first]);
        let mut careful = false;
        while !waiting.is_empty() {
            if self.poison.borrow().is_some() {
                for mut command in waiting.drain(..) {
                    command.fail(StoreError::Poisoned);
                    command.reply();
                }
                return;
            }
            let mut ran = Vec::with_capacity(waiting.len());
            let outcome = match self.transaction(&mut waiting, &mut ran, careful) {
                Ok(()) => Ok(()),
                Err(Stop::Fault(fault)) => Err(self.undo().err().unwrap_or(fault)),
                Err(Stop::HalfDone) => self.undo().map(|()| {
                    ran.drain(..).rev().for_each(|command| waiting.push_front(command));
                    careful = true;
                }),
            };
            if let Err(StoreError::Io(reason)) = &outcome {
                self.poison(reason);
            }
            for mut command in ran {
                if let Err(fault) = &outcome {
                    command.fail(fault.clone());
                }
                command.reply();
            }
        }
    }

    /// Moves commands from `waiting` to `ran`, and takes in what comes meanwhile: nobody waits for a flush that could
    /// have been shared. When it stops, nothing of what `ran` did is kept.
    fn transaction(
        &mut self,
        waiting: &mut VecDeque<Box<dyn Command>>,
        ran: &mut Vec<Box<dyn Command>>,
        careful: bool,
    ) -> Result<(), Stop> {
        let Writer { conn, kept, messages, closing, .. } = self;
        let rows = Rows::keeping(conn, kept);
        kept.late.allow(!careful);
        if let Err(fault) = rows.exec(sql::BEGIN, []) {
            ran.extend(waiting.drain(..));
            return Err(Stop::Fault(fault));
        }
        loop {
            let Some(mut command) = waiting.pop_front().or_else(|| next(messages, closing, ran.len())) else { break };
            if command.abandoned() {
                continue;
            }
            let before = rows.changes();
            let marked = if careful { rows.exec(sql::SAVEPOINT, []).map(drop) } else { Ok(()) };
            let keep = marked.is_ok() && run_one(&mut command, &rows);
            let fault = command.fault();
            ran.push(command);
            marked?;
            if let Some(fault @ StoreError::Io(_)) = fault {
                return Err(Stop::Fault(fault));
            }
            if conn.is_autocommit() {
                return Err(Stop::Fault(
                    fault.unwrap_or_else(|| StoreError::Io("the transaction vanished".to_owned())),
                ));
            }
            if careful {
                if keep {
                    kept.flush(&rows)?;
                } else {
                    rows.exec(sql::UNDO, []).map_err(StoreError::fatal)?;
                    kept.forget();
                }
                rows.exec(sql::RELEASE, []).map_err(StoreError::fatal)?;
            } else if kept.late.is_broken() || (!keep && rows.changes() != before) {
                return Err(Stop::HalfDone);
            }
        }
        kept.flush(&rows).map_err(|fault| match fault {
            StoreError::Conflict(_) | StoreError::Bug(_) if !careful => Stop::HalfDone,
            fault => Stop::Fault(fault),
        })?;
        rows.exec(sql::COMMIT, []).map_err(|fault| match fault {
            StoreError::Full | StoreError::Busy => fault,
            fault => fault.fatal(),
        })?;
        Ok(())
    }

    /// Makes sure that nothing of a failed transaction is left open.
    fn undo(&self) -> Result<(), StoreError> {
        self.kept.forget();
        if self.conn.is_autocommit() {
            return Ok(());
        }
        Rows::new(&self.conn).exec(sql::ROLLBACK, []).map(drop).map_err(StoreError::fatal)
    }

    fn poison(&self, reason: &str) {
        tracing::error!(reason, "the disk failed under the store; nothing more is acknowledged until a restart");
        self.poison.send_replace(Some(reason.to_owned()));
    }

    /// Moves what was committed from the log into the file, after the replies. A fault here is one of the disk like any
    /// other, which is why SQLite's own checkpoint, whose outcome nobody sees, is only the backstop.
    fn checkpoint(&mut self) {
        if self.poison.borrow().is_some() {
            return;
        }
        let outcome = self.log_pages(sql::WAL_PAGES).and_then(|(log, moved)| {
            if log - moved >= limits::STORE_WAL_PAGES {
                self.log_pages(sql::CHECKPOINT)?;
            }
            Ok(log)
        });
        let outcome = match outcome {
            Ok(log) if log >= self.restart_at => self.wait_for_readers(log),
            outcome => outcome.map(drop),
        };
        if let Err(fault @ (StoreError::Io(_) | StoreError::Bug(_))) = outcome {
            self.poison(&fault.to_string());
        }
    }

    /// The log starts over only when no reader stands in its middle. Long reads are waited for, briefly and seldom.
    fn wait_for_readers(&mut self, log: i64) -> Result<(), StoreError> {
        self.conn.busy_timeout(Duration::from_millis(limits::STORE_WAL_STUCK_WAIT_MS))?;
        let outcome = self.log_pages(sql::CHECKPOINT_RESTART);
        self.conn.busy_timeout(Duration::from_millis(limits::STORE_BUSY_MS))?;
        let over = matches!(outcome, Ok((pages, moved)) if pages == moved);
        self.restart_at = limits::STORE_WAL_STUCK_PAGES + if over { 0 } else { log };
        outcome.map(drop)
    }

    fn last_checkpoint(&self) -> Result<(), StoreError> {
        if self.poison.borrow().is_some() {
            return Err(StoreError::Poisoned);
        }
        match self.log_pages(sql::CHECKPOINT_TRUNCATE) {
            // What is in the log is safe there; the next start finds it.
            Ok(_) | Err(StoreError::Full | StoreError::Busy) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Pages in the log, and how many of them the file has.
    fn log_pages(&self, pragma: &'static str) -> Result<(i64, i64), StoreError> {
        let pages = Rows::new(&self.conn).one(pragma, [], |row| Ok((row.get(1)?, row.get(2)?)))?;
        Ok(pages.unwrap_or((0, 0)))
    }
}

fn run_one(command: &mut Box<dyn Command>, rows: &Rows<'_>) -> bool {
    // A fault that a panicking neighbour met is not this command's.
    rows.take_fault();
    catch_unwind(AssertUnwindSafe(|| command.run(rows))).unwrap_or_else(|_| {
        command.fail(StoreError::Bug("a rule panicked".to_owned()));
        false
    })
}

/// A command that is already waiting, while the batch has room.
fn next(messages: &mut mpsc::Receiver<Message>, closing: &mut Closing, batch: usize) -> Option<Box<dyn Command>> {
    if batch >= limits::STORE_BATCH_MAX {
        return None;
    }
    loop {
        let message = messages.try_recv().ok()?;
        let command = accept(message, messages, closing);
        if command.is_some() {
            return command;
        }
    }
}

fn accept(message: Message, messages: &mut mpsc::Receiver<Message>, closing: &mut Closing) -> Option<Box<dyn Command>> {
    match message {
        Message::Run(command) => Some(command),
        Message::Close(done) => {
            messages.close();
            *closing = Some(done);
            None
        }
    }
}

/// Who waits for the store to be closed.
type Closing = Option<oneshot::Sender<Result<(), StoreError>>>;
