//! The judging of network tests. Pure: a test and an observation in, an outcome out.

pub mod address;
pub mod decimal;
pub mod equal;
pub mod json;
mod json_text;
pub mod observation;
pub mod path;
pub mod plan;
pub mod regex;
pub mod text;
pub mod url;
