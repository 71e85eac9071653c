//! The protocol's bytes: canonical JSON, signatures, sealing, addresses, envelopes, cards, credentials, quotes.
//!
//! Pure. Nothing here knows of a store, a clock or a network; nothing here decides whether an envelope is welcome.

pub mod address;
pub mod amount;
pub mod attachment;
pub mod auth;
pub mod card;
pub mod digest;
pub mod doc;
pub mod envelope;
pub mod invisible;
pub mod json;
pub mod key;
pub mod pow;
pub mod quote;
pub mod seal;
mod throwaway;

pub use address::{Address, Domain, Local, SystemName};
pub use amount::Amount;
pub use card::{AgentCard, DomainCard};
pub use digest::Sha256;
pub use doc::Doc;
pub use envelope::{Envelope, Verified};
pub use key::{PublicKey, SigningKey};
