//! Proof of work: SHA-256 of `<id>:<nonce>` with enough leading zero bits. Bound to the envelope's id, so one search
//! pays for one envelope.

use crate::limits;
use crate::wire::digest::Sha256;
use serde_json::{Value, json};

/// Whether the envelope's `pow` field does the work that a mailbox asks for. What the field claims is not looked at.
pub fn suffices(id: &str, pow: Option<&Value>, bits: u32) -> bool {
    let nonce = match pow.and_then(|pow| pow.get("nonce")) {
        Some(Value::String(nonce)) if nonce.len() <= limits::POW_NONCE_MAX => nonce.clone(),
        Some(Value::Number(nonce)) => super::json::number_text(nonce),
        _ => return false,
    };
    leading_zero_bits(&Sha256::of(format!("{id}:{nonce}"))) >= bits
}

/// Searches from nonce zero; `None` when the budget of hashes ran out.
pub fn search(id: &str, bits: u32, budget: u64) -> Option<Value> {
    (0..budget)
        .find(|nonce| leading_zero_bits(&Sha256::of(format!("{id}:{nonce}"))) >= bits)
        .map(|nonce| json!({"bits": bits, "nonce": nonce.to_string()}))
}

fn leading_zero_bits(digest: &Sha256) -> u32 {
    let mut bits = 0;
    for byte in digest.0 {
        bits += byte.leading_zeros();
        if byte != 0 {
            break;
        }
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_counts_only_for_its_own_envelope() {
        let pow = search("envelope-1", 12, 1 << 20).expect("found");
        assert!(suffices("envelope-1", Some(&pow), 12));
        assert!(!suffices("envelope-2", Some(&pow), 12));
        assert!(!suffices("envelope-1", None, 1));
        assert!(!suffices("envelope-1", Some(&json!({"bits": 64})), 1));
        assert!(!suffices("envelope-1", None, 0));
    }
}
