//! The sandbox: a stranger's program is run so that it touches nothing but its inputs and its scratch, is ended whatever
//! it does, and leaves facts that say only what was really in force.
//!
//! What is promised: no job without the whole proof. Every protection that can be shown by trying is tried before and
//! after it is put on; what the kernel says of the job's process is read by the house itself, before the word to start.
//! Any mismatch, any missing mechanism, any step that fails: nothing runs, and the report names what is missing.
//!
//! Deliberately absent: a best effort, a way to switch protections off, a shell, a network, and a way into a running job.
//!
//! All unsafe code of the crate is in this room.
#![allow(unsafe_code)]

mod canary;
mod child;
mod facts;
mod filter;
mod group;
mod inputs;
mod launcher;
mod plan;
pub mod policy;
mod restrict;
mod root;
mod run;
mod self_test;
mod slot;
mod sys;
mod witness;

pub use facts::NOT_CLAIMED;
pub use group::sweep;
pub use launcher::main as launcher_main;
pub use plan::Step;
pub use policy::{JobPolicy, Narrowing};
pub use run::{ENTRY, set_launcher};
pub use self_test::{Item, SelfTest, host, self_test};
pub use slot::Slot;

use crate::attest;
use crate::probe::exit_0::{JobEnd, Unpack};
use crate::wire::Sha256;
use bytes::Bytes;
use serde_json::{Value, json};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What is run: a program with its arguments, its inputs, and under which policy. Never a shell line.
#[derive(Clone, Debug)]
pub struct Job {
    pub argv: Vec<String>,
    pub inputs: Vec<PlacedInput>,
    pub policy: JobPolicy,
    /// Seconds that the parties agreed on; the policy's wall stands above it.
    pub within_s: Option<u64>,
}

/// A file, or an archive, placed read-only in the job's directory. Its hash is checked again where it is placed.
#[derive(Clone, Debug)]
pub struct PlacedInput {
    /// Relative and clean.
    pub path: String,
    pub source: Source,
    pub sha256: Sha256,
    pub unpack: Option<Unpack>,
    pub mode: Option<u32>,
}

#[derive(Clone, Debug)]
pub enum Source {
    Bytes(Bytes),
    File(PathBuf),
}

/// What came of one run.
#[derive(Clone, Debug)]
pub struct JobReport {
    pub end: JobEnd,
    /// The program was executed; without it nothing of the job ran.
    pub started: bool,
    pub peak_memory: Option<u64>,
    pub cpu_ms: Option<u64>,
    pub wall_ms: u64,
    pub stdout: Stream,
    pub stderr: Stream,
    /// Processes of the tree that would not go. It is 0, or the host has a fault that a person must look at.
    pub survivors: usize,
    /// Only read-backs and canaries.
    pub facts: Value,
}

/// What was kept of one output.
#[derive(Clone, Debug)]
pub struct Stream {
    pub bytes: u64,
    pub truncated: bool,
    /// Of what was kept.
    pub sha256: Sha256,
    /// The last of it, for a person.
    pub tail: String,
}

/// Runs a job once. Dropping the future, or cancelling, ends the whole tree.
pub async fn run(job: &Job, slot: &Slot, cancel: CancellationToken) -> JobReport {
    let stop = match sys::event() {
        Ok(event) => Arc::new(event),
        Err(e) => return JobReport::refused(&plan::Refused::new("launcher", format!("eventfd: {e}")), job),
    };
    let _dropped = StopOnDrop(Arc::clone(&stop));
    let (owned, held, heard) = (job.clone(), slot.clone(), Arc::clone(&stop));
    let mut running = tokio::task::spawn_blocking(move || run::run_here(&owned, &held, Some(heard.as_fd()), None));
    let ended = tokio::select! {
        ended = &mut running => ended,
        () = cancel.cancelled() => {
            sys::raise(stop.as_fd());
            running.await
        }
    };
    ended.unwrap_or_else(|e| JobReport::refused(&plan::Refused::new("launcher", format!("the run failed: {e}")), job))
}

/// Runs a job in the calling thread, for programs without a runtime.
pub fn run_blocking(job: &Job, slot: &Slot) -> JobReport {
    run::run_here(job, slot, None, None)
}

/// A run that leaves one step out, to see that it is refused. Only builds for tests have it.
#[cfg(debug_assertions)]
pub fn rehearse(job: &Job, slot: &Slot, without: Step) -> JobReport {
    run::run_here(job, slot, None, Some(without))
}

impl JobReport {
    fn refused(refused: &plan::Refused, job: &Job) -> JobReport {
        let end = JobEnd::Unenforced { mechanism: refused.item.clone(), reason: refused.reason.clone() };
        let facts = json!({
            "schema": "verifica.sandbox-facts/1", "started": false,
            "requested": facts::requested(job),
            "exit": attest::exit_of(&end), "survivors": 0, "not_claimed": facts::never_claimed(),
        });
        JobReport {
            end,
            started: false,
            peak_memory: None,
            cpu_ms: None,
            wall_ms: 0,
            stdout: Stream::empty(),
            stderr: Stream::empty(),
            survivors: 0,
            facts,
        }
    }
}

impl Stream {
    fn empty() -> Stream {
        Stream { bytes: 0, truncated: false, sha256: Sha256::of(b""), tail: String::new() }
    }

    fn fact(&self) -> Value {
        json!({"bytes": self.bytes, "truncated": self.truncated, "sha256": self.sha256})
    }
}

struct StopOnDrop(Arc<OwnedFd>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        sys::raise(self.0.as_fd());
    }
}
