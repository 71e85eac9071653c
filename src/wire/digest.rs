//! SHA-256 as a type, and base64url without padding: how the protocol writes bytes.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::Digest;
use std::fmt;

/// A SHA-256; written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256(pub [u8; 32]);

/// A SHA-256 of what comes piece by piece.
#[derive(Clone, Default)]
pub struct Hashing(sha2::Sha256);

impl Hashing {
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub fn finish(self) -> Sha256 {
        Sha256(self.0.finalize().into())
    }
}

impl Sha256 {
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Sha256(sha2::Sha256::digest(bytes.as_ref()).into())
    }

    /// 64 hex digits in any case.
    pub fn parse(text: &str) -> Option<Self> {
        let mut out = [0u8; 32];
        let text = text.as_bytes();
        if text.len() != 64 {
            return None;
        }
        for (i, pair) in text.chunks_exact(2).enumerate() {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            out[i] = (high * 16 + low) as u8;
        }
        Some(Sha256(out))
    }

    pub fn hex(&self) -> String {
        let mut out = String::with_capacity(64);
        for byte in self.0 {
            for nibble in [byte >> 4, byte & 15] {
                out.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
            }
        }
        out
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl serde::Serialize for Sha256 {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.hex())
    }
}

impl<'de> serde::Deserialize<'de> for Sha256 {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        Sha256::parse(&text).ok_or_else(|| serde::de::Error::custom("not 64 hex digits"))
    }
}

pub fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Strict: no padding, no stray bits, no other alphabet.
pub fn from_base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Exactly `N` bytes of base64url.
pub fn array_from_base64url<const N: usize>(text: &str) -> Option<[u8; N]> {
    from_base64url(text)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_in_any_case_and_nothing_else() {
        let digest = Sha256::of("abc");
        assert_eq!(digest.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(Sha256::parse(&digest.hex().to_uppercase()), Some(digest));
        assert_eq!(Sha256::parse(&digest.hex()[..63]), None);
        assert_eq!(Sha256::parse(&format!("+{}", &digest.hex()[1..])), None);
        assert_eq!(Sha256::parse(&"é".repeat(32)), None);
    }

    #[test]
    fn base64url_refuses_padding_and_stray_bits() {
        assert_eq!(from_base64url("AQ"), Some(vec![1]));
        for bad in ["AQ==", "AR", "A+", "A/", "A"] {
            assert_eq!(from_base64url(bad), None, "{bad}");
        }
    }
}
