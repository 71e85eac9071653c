//! DSSE, version 1: an envelope around bytes of a declared type, signed over both, whatever the bytes are.
//!
//! Base64 of both alphabets is read, padded or not; the standard one is written. `keyid` is a hint and never trusted: a
//! signature counts when a key that the caller believes verifies it.

use super::document::bad;
use crate::limits;
use crate::refusal::Refusal;
use crate::wire::digest::{base64url, from_base64url};
use crate::wire::key::{PublicKey, SigningKey};
use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub payload_type: String,
    pub payload: Vec<u8>,
    pub signatures: Vec<EnvelopeSignature>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeSignature {
    /// Unauthenticated: which key the signer says it used. Absent and empty are the same.
    pub keyid: Option<String>,
    pub sig: Vec<u8>,
}

/// What is signed: type and payload with their lengths, so that no other pair has the same text.
pub fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut out = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    out.extend_from_slice(payload);
    out
}

/// Whether a document has the fields of an envelope.
pub fn is_envelope(doc: &Value) -> bool {
    ["payload", "payloadType", "signatures"].iter().all(|name| doc.get(*name).is_some())
}

impl Envelope {
    pub fn sign(payload_type: &str, payload: Vec<u8>, key: &SigningKey) -> Envelope {
        let sig = from_base64url(&key.sign(&pae(payload_type, &payload))).unwrap_or_default();
        let signature = EnvelopeSignature { keyid: Some(key.public().kid()), sig };
        Envelope { payload_type: payload_type.to_owned(), payload, signatures: vec![signature] }
    }

    /// With a signature made earlier, as base64url text; it is not verified here.
    pub fn with_signature(payload_type: &str, payload: Vec<u8>, key: &PublicKey, sig: &str) -> Option<Envelope> {
        let signature = EnvelopeSignature { keyid: Some(key.kid()), sig: from_base64url(sig)? };
        Some(Envelope { payload_type: payload_type.to_owned(), payload, signatures: vec![signature] })
    }

    pub fn parse(doc: &Value) -> Result<Envelope, Refusal> {
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let missing = |name: &str| bad(format!("the envelope has no {name} of text"));
        let payload_type = text(doc, "payloadType").ok_or_else(|| missing("payloadType"))?;
        let payload = text(doc, "payload").ok_or_else(|| missing("payload"))?;
        let payload = decode(&payload).ok_or_else(|| bad("the payload is not base64"))?;
        let most = limits::STATEMENT_BYTES_MAX;
        if payload.len() > most {
            return Err(bad(format!("the payload is longer than {most} bytes")));
        }
        let list = doc.get("signatures").and_then(Value::as_array);
        let list = list.ok_or_else(|| bad("the envelope has no list of signatures"))?;
        if list.is_empty() || list.len() > limits::DSSE_SIGNATURES_MAX {
            return Err(bad(format!("the envelope has not 1 to {} signatures", limits::DSSE_SIGNATURES_MAX)));
        }
        let signature = |item: &Value| {
            let keyid = match item.get("keyid") {
                None | Some(Value::Null) => None,
                Some(Value::String(keyid)) => Some(keyid.clone()).filter(|keyid| !keyid.is_empty()),
                Some(_) => return Err(bad("a keyid of the envelope is not text")),
            };
            let sig = text(item, "sig").and_then(|sig| decode(&sig)).ok_or_else(|| bad("a sig is not base64"))?;
            Ok(EnvelopeSignature { keyid, sig })
        };
        let signatures = list.iter().map(signature).collect::<Result<_, Refusal>>()?;
        Ok(Envelope { payload_type, payload, signatures })
    }

    pub fn to_json(&self) -> Value {
        let signature = |s: &EnvelopeSignature| match &s.keyid {
            Some(keyid) => json!({"keyid": keyid, "sig": STANDARD.encode(&s.sig)}),
            None => json!({"sig": STANDARD.encode(&s.sig)}),
        };
        json!({
            "payload": STANDARD.encode(&self.payload), "payloadType": self.payload_type,
            "signatures": self.signatures.iter().map(signature).collect::<Vec<_>>(),
        })
    }

    pub fn verified_by(&self, key: &PublicKey) -> bool {
        let message = pae(&self.payload_type, &self.payload);
        self.signatures.iter().any(|signature| key.verify(&message, &signature.text()))
    }

    /// The first key named by a `keyid` that is one of ours and verifies.
    pub fn self_named_signer(&self) -> Option<PublicKey> {
        let named = self.signatures.iter().filter_map(|s| PublicKey::parse(s.keyid.as_deref()?).ok());
        named.into_iter().find(|key| self.verified_by(key))
    }
}

impl EnvelopeSignature {
    /// As base64url.
    pub fn text(&self) -> String {
        base64url(&self.sig)
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    if text.len() > limits::STATEMENT_BYTES_MAX * 4 / 3 + 4 {
        return None;
    }
    // Padding is there in full or not at all.
    if text.contains('=') && !text.len().is_multiple_of(4) {
        return None;
    }
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let url_safe = text.contains(['-', '_']);
    let alphabet = if url_safe { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    GeneralPurpose::new(alphabet, config).decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_is_that_of_the_specification() {
        let text = pae("http://example.com/HelloWorld", b"hello world");
        assert_eq!(text, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
        assert_eq!(pae("", b""), b"DSSEv1 0  0 ");
        assert_eq!(pae("é", b"\0 1"), b"DSSEv1 2 \xc3\xa9 3 \0 1");
    }

    #[test]
    fn signed_written_read_and_verified() {
        let key = SigningKey::from_seed([3; 32]);
        let other = SigningKey::from_seed([4; 32]).public();
        let envelope = Envelope::sign("application/x", b"\xfb\xff bytes".to_vec(), &key);
        let read = Envelope::parse(&envelope.to_json()).expect("read");
        assert_eq!(read, envelope);
        assert!(read.verified_by(&key.public()) && !read.verified_by(&other));
        assert_eq!(read.self_named_signer(), Some(key.public()));
        let changed = [
            Envelope { payload_type: "application/y".into(), ..read.clone() },
            Envelope { payload: b"\xfb\xff bytez".to_vec(), ..read.clone() },
            Envelope { signatures: vec![EnvelopeSignature { keyid: None, sig: vec![0; 64] }], ..read.clone() },
            Envelope { signatures: Vec::new(), ..read },
        ];
        assert!(changed.iter().all(|envelope| !envelope.verified_by(&key.public())));
    }

    #[test]
    fn both_alphabets_are_read_and_never_mixed() {
        let bytes = Some(vec![0xfb, 0xff, 0xfe, 0xfb]);
        for same in ["+//++w==", "-__--w==", "+//++w", "-__--w"] {
            assert_eq!(decode(same), bytes, "{same}");
        }
        for bad in ["+__--w==", "-//--w==", "+//++x==", "+//++w=", "+ //++w==", "é"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn one_of_several_signatures_suffices_and_their_number_is_bounded() {
        let key = SigningKey::from_seed([3; 32]);
        let mut envelope = Envelope::sign("t", b"x".to_vec(), &key);
        let stranger = EnvelopeSignature { keyid: Some("somebody".into()), sig: vec![1, 2, 3] };
        while envelope.signatures.len() < limits::DSSE_SIGNATURES_MAX {
            envelope.signatures.insert(0, stranger.clone());
        }
        let full = Envelope::parse(&envelope.to_json()).expect("at the limit");
        assert!(full.verified_by(&key.public()));
        assert_eq!(full.self_named_signer(), Some(key.public()));
        envelope.signatures.push(stranger);
        assert!(Envelope::parse(&envelope.to_json()).is_err());
        envelope.signatures.clear();
        assert!(Envelope::parse(&envelope.to_json()).is_err());
    }

    #[test]
    fn payloads_at_the_limit_and_one_beyond() {
        let key = SigningKey::from_seed([3; 32]);
        let envelope = |len: usize| Envelope::sign("t", vec![b'x'; len], &key).to_json();
        assert!(Envelope::parse(&envelope(limits::STATEMENT_BYTES_MAX)).is_ok());
        assert!(Envelope::parse(&envelope(limits::STATEMENT_BYTES_MAX + 1)).is_err());
    }
}
