//! Who is who, who may write to whom, and houses that stay in step: names, cards, keys, delegations, policies,
//! registration and federation, through the doors and through the rules.

mod houses;

#[path = "ident/doors.rs"]
mod doors;
#[path = "ident/keys.rs"]
mod keys;
#[path = "ident/people.rs"]
mod people;
#[path = "ident/simulated.rs"]
mod simulated;
#[path = "ident/table.rs"]
mod table;
