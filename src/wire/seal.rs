//! Sealing: a random content key encrypts the content, and is wrapped once for each reader, the sender included.
//!
//! The content is AES-256-GCM with the canonical `{id, from, to}` as associated data, so an envelope cannot be sent on
//! to another reader or under another name without breaking it. Each wrap is AES-256-GCM of the content key under
//! `HKDF-SHA256(X25519(ephemeral, reader), salt = the text of epk, info = "nyx5/1 cek-wrap")`.

use crate::refusal::{Refusal, Rule};
use crate::wire::address::Address;
use crate::wire::digest::{array_from_base64url, base64url, from_base64url};
use crate::wire::json::canonical;
use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

pub const ALGORITHM: &str = "X25519+HKDF-SHA256+A256GCM";
const WRAP_INFO: &[u8] = b"nyx5/1 cek-wrap";

/// A private encryption key (X25519).
#[derive(Clone)]
pub struct SealKey(x25519_dalek::StaticSecret);

/// A public encryption key (X25519).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealPublic([u8; 32]);

impl SealKey {
    pub fn from_seed(seed: [u8; 32]) -> Self {
        SealKey(x25519_dalek::StaticSecret::from(seed))
    }

    pub fn parse(secret: &str) -> Option<Self> {
        array_from_base64url::<32>(secret.trim()).map(Self::from_seed)
    }

    pub fn secret_text(&self) -> Zeroizing<String> {
        Zeroizing::new(base64url(self.0.to_bytes()))
    }

    pub fn public(&self) -> SealPublic {
        SealPublic(x25519_dalek::PublicKey::from(&self.0).to_bytes())
    }

    /// The shared secret; `None` when the other key is of small order and shares nothing secret.
    fn agree(&self, other: &SealPublic) -> Option<Zeroizing<[u8; 32]>> {
        let shared = self.0.diffie_hellman(&x25519_dalek::PublicKey::from(other.0));
        shared.was_contributory().then(|| Zeroizing::new(shared.to_bytes()))
    }
}

impl SealPublic {
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        array_from_base64url::<32>(text)
            .map(SealPublic)
            .ok_or_else(|| Refusal::new(Rule::BadField, "enc is the base64url text of a 32-byte X25519 public key"))
    }

    pub fn text(&self) -> String {
        base64url(self.0)
    }
}

/// The chance that one sealing needs, drawn by the caller.
pub struct SealChance {
    pub content_key: Zeroizing<[u8; 32]>,
    pub ephemeral: [u8; 32],
    pub content_iv: [u8; 12],
    /// The first wrap's iv; the others count on from it.
    pub wrap_iv: [u8; 12],
}

/// What identifies the sealed envelope; bound into the encryption.
pub struct Binding<'a> {
    pub id: &'a str,
    pub from: &'a str,
    /// As the envelope carries it, order and all.
    pub to: &'a [String],
}

impl Binding<'_> {
    fn associated_data(&self) -> String {
        canonical(&json!({"id": self.id, "from": self.from, "to": self.to}))
    }
}

/// Encrypts `content` for the readers; the result is the envelope's `encrypted` field.
pub fn seal(
    content: &Value,
    binding: &Binding<'_>,
    readers: &[(Address, SealPublic)],
    chance: SealChance,
) -> Result<Value, Refusal> {
    let fault = || Refusal::new(Rule::BadEnvelope, "the content could not be sealed for these readers");
    let ephemeral = SealKey::from_seed(chance.ephemeral);
    let epk = ephemeral.public().text();
    let aad = binding.associated_data();
    let cipher = Aes256Gcm::new((&*chance.content_key).into());
    let plain = Zeroizing::new(content.to_string().into_bytes());
    let payload = Payload { msg: &plain, aad: aad.as_bytes() };
    let sealed = cipher.encrypt(&Nonce::from(chance.content_iv), payload).map_err(|_| fault())?;
    let (ct, tag) = split_tag(&sealed).ok_or_else(fault)?;
    let mut keys = Map::new();
    let mut iv = chance.wrap_iv;
    for (address, public) in readers {
        let shared = ephemeral.agree(public).ok_or_else(|| {
            Refusal::new(Rule::BadEnvelope, format!("the encryption key of {address} is not a usable X25519 key"))
        })?;
        let wrapped = Aes256Gcm::new((&*wrapping_key(&shared, &epk)).into())
            .encrypt(&Nonce::from(iv), chance.content_key.as_slice())
            .map_err(|_| fault())?;
        let (wrapped_ct, wrapped_tag) = split_tag(&wrapped).ok_or_else(fault)?;
        let entry = json!({"iv": base64url(iv), "ct": base64url(wrapped_ct), "tag": base64url(wrapped_tag)});
        keys.insert(address.to_string(), entry);
        count_on(&mut iv);
    }
    Ok(json!({
        "alg": ALGORITHM, "epk": epk, "iv": base64url(chance.content_iv),
        "ct": base64url(ct), "tag": base64url(tag), "keys": keys,
    }))
}

/// Decrypts the `encrypted` field as one of its readers.
pub fn open(encrypted: &Value, binding: &Binding<'_>, reader: &Address, key: &SealKey) -> Result<Value, Refusal> {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    if text(encrypted, "alg").as_deref() != Some(ALGORITHM) {
        return Err(cannot_open(&format!("the algorithm is not {ALGORITHM}")));
    }
    let epk = text(encrypted, "epk").ok_or_else(|| cannot_open("epk is missing"))?;
    let shared = SealPublic::parse(&epk)
        .ok()
        .and_then(|public| key.agree(&public))
        .ok_or_else(|| cannot_open("epk is not a usable X25519 key"))?;
    let copy = encrypted
        .get("keys")
        .and_then(|keys| keys.get(reader.as_str()))
        .ok_or_else(|| cannot_open(&format!("there is no key copy for {reader}")))?;
    let content_key = Zeroizing::new(
        decrypt(copy, &wrapping_key(&shared, &epk), b"")
            .ok_or_else(|| cannot_open(&format!("the key copy for {reader} does not open with this key")))?,
    );
    let content_key: Zeroizing<[u8; 32]> =
        Zeroizing::new(content_key.as_slice().try_into().map_err(|_| cannot_open("the content key is not 32 bytes"))?);
    let plain = decrypt(encrypted, &content_key, binding.associated_data().as_bytes())
        .ok_or_else(|| cannot_open("the content is not what was sealed for this id, sender and recipients"))?;
    serde_json::from_slice(&plain).map_err(|_| cannot_open("the opened content is not JSON"))
}

fn decrypt(sealed: &Value, key: &[u8; 32], aad: &[u8]) -> Option<Vec<u8>> {
    let field = |name: &str| sealed.get(name).and_then(Value::as_str);
    let iv = array_from_base64url::<12>(field("iv")?)?;
    let mut message = from_base64url(field("ct")?)?;
    message.extend_from_slice(&array_from_base64url::<16>(field("tag")?)?);
    Aes256Gcm::new(key.into()).decrypt(&Nonce::from(iv), Payload { msg: &message, aad }).ok()
}

fn wrapping_key(shared: &[u8; 32], epk: &str) -> Zeroizing<[u8; 32]> {
    let mut out = Zeroizing::new([0u8; 32]);
    // 32 bytes is always a valid length for HKDF-SHA256.
    let _ = hkdf::Hkdf::<sha2::Sha256>::new(Some(epk.as_bytes()), shared).expand(WRAP_INFO, &mut *out);
    out
}

fn split_tag(sealed: &[u8]) -> Option<(&[u8], &[u8])> {
    sealed.split_at_checked(sealed.len().checked_sub(16)?)
}

fn count_on(iv: &mut [u8; 12]) {
    for byte in iv.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return;
        }
    }
}

fn cannot_open(why: &str) -> Refusal {
    Refusal::new(Rule::BadEnvelope, format!("the sealed content cannot be opened: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chance() -> SealChance {
        SealChance { content_key: Zeroizing::new([3; 32]), ephemeral: [4; 32], content_iv: [5; 12], wrap_iv: [255; 12] }
    }

    #[test]
    fn every_reader_opens_and_nobody_else() {
        let (ana, leo) = (Address::parse("ana@a").expect("a"), Address::parse("leo@b").expect("b"));
        let (ana_key, leo_key) = (SealKey::from_seed([1; 32]), SealKey::from_seed([2; 32]));
        let to = ["leo@b".to_owned()];
        let binding = Binding { id: "12345678", from: "ana@a", to: &to };
        let content = json!({"media": "text/plain", "body": "hola ✓"});
        let readers = [(leo.clone(), leo_key.public()), (ana.clone(), ana_key.public())];
        let sealed = seal(&content, &binding, &readers, chance()).expect("seal");
        assert_eq!(open(&sealed, &binding, &leo, &leo_key), Ok(content.clone()));
        assert_eq!(open(&sealed, &binding, &ana, &ana_key), Ok(content));
        assert!(open(&sealed, &binding, &leo, &ana_key).is_err());
        assert!(open(&sealed, &Binding { id: "12345679", ..binding }, &leo, &leo_key).is_err());
        let elsewhere = ["eve@c".to_owned()];
        assert!(open(&sealed, &Binding { id: "12345678", from: "ana@a", to: &elsewhere }, &leo, &leo_key).is_err());
    }

    #[test]
    fn wraps_never_share_an_iv_and_small_order_keys_are_refused() {
        let to = ["leo@b".to_owned()];
        let binding = Binding { id: "12345678", from: "ana@a", to: &to };
        let readers: Vec<_> = (0..3u8)
            .map(|i| (Address::parse(&format!("r{i}@b")).expect("r"), SealKey::from_seed([i + 9; 32]).public()))
            .collect();
        let sealed = seal(&json!(1), &binding, &readers, chance()).expect("seal");
        let ivs: std::collections::BTreeSet<_> =
            sealed["keys"].as_object().expect("keys").values().map(|k| k["iv"].as_str().map(str::to_owned)).collect();
        assert_eq!(ivs.len(), 3);
        let weak = [(Address::parse("r@b").expect("r"), SealPublic([0; 32]))];
        assert!(seal(&json!(1), &binding, &weak, chance()).is_err());
    }
}
