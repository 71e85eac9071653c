//! Jobs end to end: the real daemon process over HTTP, deliverables over HTTPS, programs in the sandbox, signed verdicts
//! that move money or leave it where it is. As root each house runs once as root and once as an ordinary user.
//!
//! Where this host lacks a mechanism a test says so aloud and ends; with `VERIFICA_REQUIRE_ALL` set it fails instead.

#[path = "jobs/escrow.rs"]
mod escrow;
#[path = "jobs/house.rs"]
mod house;
#[path = "jobs/refusal.rs"]
mod refusal;
#[path = "cli/site.rs"]
mod site;
#[path = "jobs/stopping.rs"]
mod stopping;
