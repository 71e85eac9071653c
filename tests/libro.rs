//! The ledger's rules, driven from outside: tables of operations with the code and the balances each must leave, the
//! letters that parties get, and random histories that must keep the books true.

#[path = "libro/world.rs"]
mod world;

#[path = "libro/mirror.rs"]
mod mirror;

#[path = "libro/tables.rs"]
mod tables;

#[path = "libro/letters.rs"]
mod letters;

#[path = "libro/histories.rs"]
mod histories;

#[path = "libro/bounds.rs"]
mod bounds;

#[path = "libro/statements.rs"]
mod statements;
