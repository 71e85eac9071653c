//! The sandbox on this host: a run with its whole proof, what ends a run, what an input may be, what differs for an
//! ordinary user, and a table of steps left out with the canary that objected to each.
//!
//! Where this host lacks a mechanism a test says so aloud and ends; with `VERIFICA_REQUIRE_ALL` set it fails instead.

#[path = "sandbox/support.rs"]
mod support;

#[path = "sandbox/declared.rs"]
mod declared;
#[path = "sandbox/ending.rs"]
mod ending;
#[path = "sandbox/host.rs"]
mod host;
#[path = "sandbox/hostile.rs"]
mod hostile;
#[path = "sandbox/inputs.rs"]
mod inputs;
#[path = "sandbox/leaks.rs"]
mod leaks;
#[path = "sandbox/ordinary.rs"]
mod ordinary;
#[path = "sandbox/proof.rs"]
mod proof;
