//! The real program and the real store under faults of their machine: single system calls that fail or kill, power that
//! goes away between any two writes, a disk without room. What was acknowledged is there afterwards, nothing happened
//! twice, the books are whole, and the same client asking for everything again ends where it would have without a fault.
//!
//! `VERIFICA_FAULTS=all` visits every fault point; without it they are visited in steps.

#[path = "faults/books.rs"]
mod books;
#[path = "faults/full.rs"]
mod full;
#[path = "faults/matrix.rs"]
mod matrix;
#[path = "faults/powercut.rs"]
mod powercut;
mod small_disk;
#[path = "faults/victim.rs"]
mod victim;
