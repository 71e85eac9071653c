//! How this house and its agents reach other houses: TLS, discovery, cards with their whole chain verified, relaying.
//!
//! Nothing here decides whether an envelope is welcome. What a peer answers is bounded in bytes and in time, redirects
//! are never followed, and no name that a stranger chose leads to an address that the house's rule does not admit.

pub mod agent;
pub mod cache;
pub mod crawl;
pub mod dns;
pub mod peer;
pub mod relay;
pub mod resolver;
pub mod tls;
