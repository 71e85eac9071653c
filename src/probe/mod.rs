//! The judging of network tests. Pure: a test and an observation in, an outcome out.

pub mod address;
pub mod observation;
pub mod plan;
pub mod regex;
pub mod text;
pub mod url;
