//! # The map of the house
//!
//! `verifica` is what a *house* of agents runs: its mail server (*estafeta*), its double-entry ledger (*libro*) and its
//! arbiter (*verifica@*), which runs the tests that a contract declares and posts a signed verdict: release, refund, or
//! nothing. A verdict moves money, so the answer to any doubt is *undecided*, and nothing moves.
//!
//! ## How a request goes
//!
//! ```text
//! door (HTTP route, command line, queue, arbiter)    a stranger's bytes become a typed command or a refusal
//!   -> cards resolved                                 who signed this, with the whole chain verified
//!   -> store.transact(|view| rule(view, now, ids, command))
//!                                                     a pure rule looks at records and asks for changes; the store
//!                                                     makes all of them durable in one transaction, or none
//!   -> reply; workers take due rows (letters to send, contracts to look at) and come back through the same doors
//! ```
//!
//! Nothing is acknowledged before it is durable. An effect is a row written in the transaction of its cause, so a crash
//! repeats it and never loses it, and every effect carries an id that makes the repetition harmless.
//!
//! ## The rooms
//!
//! Pure rooms: no IO, no clock, no chance, no async. Time and identifiers come in as arguments.
//!
//! - [`limits`]: every bound in the system, by name.
//! - [`refusal`]: the closed list of reasons to say no, with stable numbers, protocol codes and exit codes.
//! - [`time`] and [`ids`]: instants and identifiers as inputs.
//! - [`wire`]: the protocol's bytes: canonical JSON, signatures, sealing, addresses, envelopes, cards, credentials, quotes.
//! - [`probe`]: the tests of a contract: parsing them, and judging a recorded observation.
//! - [`verdict`]: outcomes joined, looks that must agree, evidence, the verdict document, replay.
//! - [`attest`]: what a sandbox enforced, as a signed document: facts, claims that follow from them, in-toto and DSSE.
//! - [`record`]: what the house remembers; the view that a rule looks at and the changes that it asks for.
//! - [`arbiter`]: which contracts to look at, when to look again, what to post.
//! - [`libro`]: the ledger's rules: entries, contracts, operations, statements.
//! - [`mail`]: the mail's rules: arrival, sending, retries, bounces, registration, visibility.
//!
//! Rooms that touch the world:
//!
//! - [`store`]: durable records: one writer, many readers.
//! - [`objects`]: the bytes of attachments: a folder, or a bucket.
//! - [`sandbox`]: runs a stranger's program where it can touch nothing, and proves it.
//! - [`observe`]: makes observations: the guarded fetch, runs of jobs, and a look of both.
//! - [`client`]: how this house and its agents reach other houses.
//! - [`server`]: the doors: routes, credentials, request limits.
//! - [`daemon`]: the workers behind the doors, start and drain.
//! - [`config`]: the configuration file, parsed.
//! - [`cli`]: one file a subcommand; text and JSON printers.
//! - [`sim`]: a simulated world around the pure rooms, with a reference ledger that checks every answer. No command
//!   uses it; tests and `benches/sim.rs` run it.
//!
//! ## Which way the arrows run
//!
//! ```text
//! limits, refusal, time, ids <- wire <- probe <- verdict, attest <- record <- arbiter <- libro <- mail
//!     <- store, sandbox, objects <- observe, client <- server <- daemon <- config <- cli
//! ```
//!
//! No arrow runs back. `tests/tidy.rs` reads this source and says so when one does.
//!
//! ## What must never be
//!
//! - A verdict from fewer than two looks that agree, or from anything but recorded observations.
//! - A rule with a second copy: every door calls the same function.
//! - An entry that does not sum to zero, an account but the house's below zero, a contract with two endings.
//! - An acknowledgement of what is not durable.
//! - A test that counts as failed because this host, the network or an intermediary failed.
//! - `unsafe` outside the sandbox.
#![deny(unsafe_code)]

pub mod arbiter;
pub mod attest;
pub mod cli;
pub mod client;
pub mod config;
pub mod daemon;
pub mod ids;
pub mod libro;
pub mod limits;
pub mod mail;
pub mod objects;
pub mod observe;
pub mod probe;
pub mod record;
pub mod refusal;
pub mod sandbox;
pub mod server;
pub mod sim;
pub mod store;
pub mod time;
pub mod verdict;
pub mod wire;
