//! The house at work: the store opened, the doors listening, the workers behind them, and the end in order.
//!
//! [`watch`] is the arbiter alone, beside a house that somebody else runs.
//!
//! [`serve`] starts all of it and answers a handle; it prints nothing. The same function runs under the command line, in
//! the demo and in tests.

mod arbiter;
mod blobs;
mod index;
mod offer;
mod push;
mod queue;
mod serve;
mod signals;
mod watch;

pub use arbiter::ArbiterOptions;
pub use serve::{Drained, Listen, Running, ServeError, ServeOptions, TlsFiles, serve};
pub use signals::{Ended, until_ended};
pub use watch::{WatchOptions, watch};
