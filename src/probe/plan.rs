//! Which tests this host can run.

use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TestType {
    HttpStatus,
    Sha256,
    JsonPath,
    Regex,
    Size,
    Header,
    Exit0,
}

/// The test types that a host can run now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub types: BTreeSet<TestType>,
}

impl Capabilities {
    /// Every test that needs only the network.
    pub fn network() -> Self {
        use TestType::{Header, HttpStatus, JsonPath, Regex, Sha256, Size};
        Capabilities { types: BTreeSet::from([HttpStatus, Sha256, JsonPath, Regex, Size, Header]) }
    }
}
