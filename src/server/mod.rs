//! The doors of the house: routes, credentials, request limits, the listener.
//!
//! Routes are thin over [`Doors`]; rules live in the pure rooms and run inside one durable transaction. A stranger's
//! bytes stop here at the first fault with a code and one clear reason, and never make a 500.

mod blobs;
mod doors;
mod house;
mod http;
pub mod index;
mod listen;
mod mail;
mod money;
mod people;
mod pins;
mod routes;
mod talk;
mod transfers;

pub use blobs::discard;
pub use doors::{Asking, Caller, Doors, Wakes};
pub use http::{Keep, Payload, Reply};
pub use listen::{Listener, Tls};
pub use routes::{App, Auth, Call, Route, TABLE, router};
