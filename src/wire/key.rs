//! Ed25519 keys and the two kinds of signature: over an object's canonical text, and detached over a string.
//!
//! A key is named by itself: `kid` is the base64url text of the public key. Verification is strict: small-order keys
//! and non-canonical signatures are refused.

use crate::refusal::{Refusal, Rule};
use crate::wire::digest::{array_from_base64url, base64url};
use crate::wire::json::{canonical, canonical_split, canonical_without, join};
use crate::wire::throwaway::OneNonce;
use ed25519_dalek::Signer;
use serde_json::{Value, json};
use std::fmt;

/// A public signing key, its point unpacked once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(ed25519_dalek::VerifyingKey);

impl PublicKey {
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        array_from_base64url::<32>(text)
            .and_then(|bytes| ed25519_dalek::VerifyingKey::from_bytes(&bytes).ok())
            .filter(|key| !key.is_weak())
            .map(PublicKey)
            .ok_or_else(|| Refusal::new(Rule::BadField, "a key is the base64url text of a 32-byte Ed25519 public key"))
    }

    pub fn kid(&self) -> String {
        base64url(self.0.as_bytes())
    }

    pub fn is_kid(&self, kid: &str) -> bool {
        self.kid() == kid
    }

    pub fn verify(&self, message: &[u8], signature: &str) -> bool {
        let Some(bytes) = array_from_base64url::<64>(signature) else { return false };
        self.0.verify_strict(message, &ed25519_dalek::Signature::from_bytes(&bytes)).is_ok()
    }

    /// Whether `doc[field]` is this key's signature over the rest of the document.
    pub fn verify_object(&self, doc: &Value, field: &str) -> bool {
        let (Some(object), Some(signature)) = (doc.as_object(), Signature::of(doc, field)) else { return false };
        self.is_kid(signature.kid) && self.verify(canonical_without(object, field).as_bytes(), signature.value)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kid())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kid())
    }
}

/// The signature field of a document, as it stands; nothing is verified by reading it.
///
/// It holds its three fields and no other. No signature covers what stands beside them, and a hash of the whole document
/// does: whoever could add a field there would have a second document with the same signature.
pub struct Signature<'a> {
    pub kid: &'a str,
    pub value: &'a str,
}

impl<'a> Signature<'a> {
    pub fn of(doc: &'a Value, field: &str) -> Option<Self> {
        let signature = doc.get(field)?.as_object().filter(|signature| signature.len() == 3)?;
        if signature.get("alg")?.as_str()? != "Ed25519" {
            return None;
        }
        let kid = signature.get("kid")?.as_str().filter(|kid| !kid.is_empty())?;
        let value = signature.get("value")?.as_str().filter(|value| !value.is_empty())?;
        Some(Signature { kid, value })
    }
}

/// A private signing key. It has no textual form of its own: [`SigningKey::secret_text`] is the only way out.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey, Option<OneNonce>);

impl SigningKey {
    pub fn from_seed(seed: [u8; 32]) -> Self {
        SigningKey(ed25519_dalek::SigningKey::from_bytes(&seed), None)
    }

    /// A key for the simulator: its signatures are true ones and cost a twentieth, and two of them betray it.
    pub fn throwaway(seed: [u8; 32]) -> Self {
        let key = ed25519_dalek::SigningKey::from_bytes(&seed);
        let nonce = OneNonce::of(&key);
        SigningKey(key, Some(nonce))
    }

    /// The base64url text of the 32-byte seed (JWK `d`).
    pub fn parse(secret: &str) -> Option<Self> {
        array_from_base64url::<32>(secret.trim()).map(Self::from_seed)
    }

    pub fn secret_text(&self) -> zeroize::Zeroizing<String> {
        zeroize::Zeroizing::new(base64url(self.0.as_bytes()))
    }

    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    pub fn sign(&self, message: &[u8]) -> String {
        base64url(match &self.1 {
            None => self.0.sign(message).to_bytes(),
            Some(nonce) => nonce.sign(self.0.verifying_key().as_bytes(), message),
        })
    }

    /// Puts `{alg, kid, value}` into `doc[field]`, over everything else in the document, and answers the canonical text
    /// of the whole; nothing where the document is no object.
    pub fn sign_object(&self, doc: &mut Value, field: &str) -> Option<String> {
        let object = doc.as_object_mut()?;
        let (rest, at) = canonical_split(object, field);
        let signature = json!({"alg": "Ed25519", "kid": self.public().kid(), "value": self.sign(rest.as_bytes())});
        let whole = join(&rest, at, field, &canonical(&signature));
        object.insert(field.to_owned(), signature);
        Some(whole)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_signature_covers_unknown_fields_and_nothing_forged_passes() {
        let key = SigningKey::from_seed([1; 32]);
        let other = SigningKey::from_seed([2; 32]);
        let mut doc = json!({"a": 1, "unknown": {"x": ["y"]}});
        key.sign_object(&mut doc, "signature");
        assert!(key.public().verify_object(&doc, "signature"));
        assert!(!other.public().verify_object(&doc, "signature"));
        let mut changed = doc.clone();
        changed["unknown"]["x"][0] = json!("z");
        assert!(!key.public().verify_object(&changed, "signature"));
        let mut other_algorithm = doc.clone();
        other_algorithm["signature"]["alg"] = json!("none");
        assert!(!key.public().verify_object(&other_algorithm, "signature"));
        let mut more = doc.clone();
        more["signature"]["note"] = json!("not covered");
        assert!(!key.public().verify_object(&more, "signature"), "a field that nobody signed");
        let mut other_name = doc;
        other_name["signature"]["kid"] = json!(other.public().kid());
        assert!(!key.public().verify_object(&other_name, "signature"));
    }

    #[test]
    fn a_throwaway_key_signs_what_every_verifier_takes() {
        let key = SigningKey::throwaway([3; 32]);
        for text in ["", "a", "another text"] {
            assert!(key.public().verify(text.as_bytes(), &key.sign(text.as_bytes())));
            assert!(!key.public().verify(b"forged", &key.sign(text.as_bytes())));
        }
        assert_eq!(key.public(), SigningKey::from_seed([3; 32]).public());
    }

    #[test]
    fn weak_and_malformed_keys_are_no_keys() {
        let identity = base64url([[1u8; 1].as_slice(), &[0u8; 31]].concat());
        for bad in [identity.as_str(), "", "AA", "!!"] {
            assert!(PublicKey::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_secret_never_shows_by_accident() {
        let key = SigningKey::from_seed([9; 32]);
        assert!(!format!("{key:?}").contains(key.secret_text().as_str()));
        assert_eq!(SigningKey::parse(&key.secret_text()).map(|k| k.public()), Some(key.public()));
    }
}
