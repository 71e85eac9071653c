//! What one envelope costs at the door: parse, canonicalise and verify, against a bare Ed25519 verification of the same
//! text, side by side in one run. Prints the ratio and fails above its bound.

use ed25519_dalek::{Signature, VerifyingKey};
use serde_json::json;
use std::hint::black_box;
use std::time::Instant;
use verifica::limits::ENVELOPE_BYTES_DEFAULT;
use verifica::time::Timestamp;
use verifica::wire::digest::array_from_base64url;
use verifica::wire::{AgentCard, Envelope, SigningKey, json};

const BOUND: f64 = 1.5;
const ROUNDS: usize = 60;
const PER_ROUND: usize = 200;

fn main() {
    let key = SigningKey::from_seed([1; 32]);
    let card = json!({"nyx5": "1", "address": "ana@a.example", "sig": key.public().kid()});
    let card = AgentCard::certify(card, &SigningKey::from_seed([2; 32])).expect("card");
    let envelope = json!({
        "nyx5": "1", "id": "7f0c1f6e-1111-4222-8333-444455556666", "from": "ana@a.example", "to": ["libro@b.example"],
        "created": "2026-09-15T10:00:00.000Z", "expires": null, "thread": null, "in_reply_to": null, "type": "task",
        "content": {"media": "application/nyx5.libro+json",
            "body": {"op": "pay", "to": "leo@b.example", "amount": 25, "concept": "hosting, september"}},
    });
    let signed = Envelope::sign(envelope, &key, ENVELOPE_BYTES_DEFAULT).expect("envelope");
    let bytes = signed.doc().to_string().into_bytes();
    let now = Timestamp::from_millis(1_800_000_000_000);

    let text = json::canonical_without(signed.doc().as_object().expect("object"), "signature");
    let value = signed.doc()["signature"]["value"].as_str().expect("value");
    let signature = Signature::from_bytes(&array_from_base64url::<64>(value).expect("signature"));
    let kid = array_from_base64url::<32>(&signed.kid).expect("key");
    let bare_key = VerifyingKey::from_bytes(&kid).expect("key");

    let mut door = Vec::new();
    let mut bare = Vec::new();
    for _ in 0..ROUNDS {
        door.push(per_call(|| {
            let doc = json::parse_object(black_box(&bytes)).expect("JSON");
            let envelope = Envelope::parse(doc, ENVELOPE_BYTES_DEFAULT).expect("envelope");
            envelope.is_signed_by(&card, now).expect("signed");
            black_box(envelope);
        }));
        bare.push(per_call(|| {
            black_box(&bare_key).verify_strict(black_box(text.as_bytes()), black_box(&signature)).expect("signed");
        }));
    }
    let (door, bare) = (median(door), median(bare));
    let ratio = door / bare;
    println!(
        "envelope of {} bytes: parse + canonicalise + verify {:.1} us, bare Ed25519 verification {:.1} us, ratio {ratio:.3} (bound {BOUND})",
        bytes.len(),
        door * 1e6,
        bare * 1e6
    );
    assert!(ratio <= BOUND, "the door costs more than {BOUND} bare verifications");
}

fn per_call(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..PER_ROUND).for_each(|_| work());
    start.elapsed().as_secs_f64() / PER_ROUND as f64
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
