pub mod digest;
pub use digest::Sha256;
