//! Identifiers and chance as inputs: the driver draws one seed for a command, pure code derives what it needs from it.

use sha2::{Digest, Sha256};

/// A deterministic source of identifiers for one command. The same seed gives the same identifiers.
#[derive(Clone)]
pub struct Ids {
    seed: [u8; 32],
    drawn: u64,
}

impl Ids {
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Ids { seed, drawn: 0 }
    }

    pub fn bytes(&mut self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.seed);
        hash.update(self.drawn.to_be_bytes());
        self.drawn += 1;
        hash.finalize().into()
    }

    /// A version 4 UUID.
    pub fn uuid(&mut self) -> String {
        let bytes = self.bytes();
        let mut half = [0u8; 16];
        half.copy_from_slice(&bytes[..16]);
        uuid::Builder::from_random_bytes(half).into_uuid().to_string()
    }

    /// A fraction in `0..1000`, for jitter counted in thousandths.
    pub fn per_mille(&mut self) -> u32 {
        let bytes = self.bytes();
        u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) % 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_ids_and_no_repeats() {
        let mut a = Ids::from_seed([7; 32]);
        let mut b = Ids::from_seed([7; 32]);
        let first = a.uuid();
        assert_eq!(first, b.uuid());
        assert_ne!(first, a.uuid());
        assert_eq!(first.as_bytes()[14], b'4');
    }
}
