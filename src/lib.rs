//! verifica: the map of the house.
#![deny(unsafe_code)]

pub mod arbiter;
pub mod ids;
pub mod limits;
pub mod probe;
pub mod record;
pub mod refusal;
pub mod time;
pub mod verdict;
pub mod wire;
