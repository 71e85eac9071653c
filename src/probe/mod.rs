//! The judging of tests. Pure: a test and an observation in, an outcome out.
//!
//! A contract's tests become a [`plan::Suite`]. The suite says what to fetch; somebody else fetches it and hands back
//! [`observation::Observation`]s; the suite judges them. The same tests and the same observations give the same bytes,
//! on any machine and at any time: nothing in this room asks the clock, the network or the disk.

pub mod address;
pub mod content;
pub mod decimal;
pub mod equal;
pub mod exit_0;
pub mod fields;
pub mod file;
pub mod header;
pub mod http_status;
pub mod json;
pub mod json_path;
mod json_text;
pub mod observation;
pub mod path;
pub mod plan;
pub mod regex;
pub mod regex_test;
pub mod result;
pub mod sha256;
pub mod size;
pub mod test;
pub mod text;
pub mod url;

pub use plan::{Capabilities, Suite, acceptable};
pub use result::{Outcome, TestResult};
pub use sha256::Delivery;
pub use test::{Parsed, Test, TestType};
