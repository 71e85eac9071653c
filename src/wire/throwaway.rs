//! Ed25519 with one nonce for ever, for keys that guard nothing.
//!
//! The costly part of a signature is the point of its nonce. Made once, the rest is two hashes, and the signature still
//! verifies like any other. Whoever sees two of them computes the key: only the simulator makes such keys, out of a seed
//! that everybody knows anyway. `tests/tidy.rs` keeps every other room from it.

use curve25519_dalek::{EdwardsPoint, Scalar};
use sha2::{Digest, Sha512};

#[derive(Clone)]
pub(super) struct OneNonce {
    secret: Scalar,
    nonce: Scalar,
    point: [u8; 32],
}

impl OneNonce {
    pub fn of(key: &ed25519_dalek::SigningKey) -> OneNonce {
        let nonce = scalar(Sha512::new().chain_update(b"throwaway").chain_update(key.as_bytes()));
        OneNonce { secret: key.to_scalar(), nonce, point: EdwardsPoint::mul_base(&nonce).compress().to_bytes() }
    }

    pub fn sign(&self, public: &[u8; 32], message: &[u8]) -> [u8; 64] {
        let challenge = scalar(Sha512::new().chain_update(self.point).chain_update(public).chain_update(message));
        let answer = self.nonce + challenge * self.secret;
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(&self.point);
        signature[32..].copy_from_slice(answer.as_bytes());
        signature
    }
}

fn scalar(hash: Sha512) -> Scalar {
    Scalar::from_bytes_mod_order_wide(&hash.finalize().into())
}
