//! The attestation of a job (V63): a signed document that says what the sandbox really enforced while a stranger's
//! program ran, or which mechanism was missing when it refused to run.
//!
//! Promises: everything in it comes from a read-back or a canary; nothing is copied from a policy. Which protections are
//! claimed is derived from those facts by one table ([`PROTECTIONS`]), when the document is made and again whenever it
//! is read, so a claim without its proof makes the document invalid whoever signed it. What cannot be fixed, and every
//! protection that was not shown, is listed in `not_claimed`. Fields that this version does not know are kept, are
//! covered by the signature, and prove nothing.
//!
//! One document, two signatures by one key: `signature` over the canonical document like every other (V84), and `dsse`
//! over the in-toto statement that follows from it, so that anybody can hand it on in a DSSE envelope without the key.
//!
//! ## Facts
//!
//! What the sandbox hands over is a JSON object with the fields of the document that [`document`] lists: lines of a
//! status file as the kernel writes them, `"unlimited"` for a limit that is none. A field that was not read back is
//! absent or null. `witness` holds what the daemon saw of the job's process from outside, through /proc.
//!
//! Deliberately absent: whether a key may be believed (the caller knows cards and keys), and the policy: a reader that
//! has it compares its hash.

pub mod document;
pub mod dsse;
pub mod protection;
pub mod statement;

mod bound;
mod consistency;
mod shape;

pub use bound::bound;
pub use document::{About, Attestation, End, attest, exit_of};
pub use protection::{PROTECTIONS, Proof, Protection, proved};
