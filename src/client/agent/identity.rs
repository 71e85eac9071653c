//! What an agent is: its address, its house, and the two keys that only it has. As a value and as a document; where the
//! document is kept is the caller's business, and it must be kept where nobody else reads.

use crate::refusal::{Refusal, Rule};
use crate::wire::address::Address;
use crate::wire::key::{PublicKey, SigningKey};
use crate::wire::seal::SealKey;
use serde_json::{Value, json};
use zeroize::Zeroizing;

#[derive(Clone, Debug)]
pub struct Identity {
    pub address: Address,
    /// Where the agent reaches its house, without a trailing slash.
    pub house: String,
    /// The key that the house's domain card was first seen with; from then on the only one believed.
    pub house_key: Option<PublicKey>,
    /// The key that a card of `house_key` announced: believed in its place once it signs.
    pub next_house_key: Option<PublicKey>,
    pub sig: SigningKey,
    pub enc: Option<Sealing>,
}

/// An encryption key that does not show itself in logs.
#[derive(Clone)]
pub struct Sealing(pub SealKey);

impl std::fmt::Debug for Sealing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealing({})", self.0.public().text())
    }
}

impl Identity {
    /// A new identity from two seeds that nobody else knows.
    pub fn from_seeds(address: Address, house: String, sig: [u8; 32], enc: [u8; 32]) -> Identity {
        let (sig, enc) = (SigningKey::from_seed(sig), Some(Sealing(SealKey::from_seed(enc))));
        Identity { address, house, house_key: None, next_house_key: None, sig, enc }
    }

    /// The document to keep; it holds the private keys.
    pub fn to_text(&self) -> Zeroizing<String> {
        let doc = json!({
            "schema": SCHEMA,
            "address": self.address,
            "house": self.house,
            "house_key": self.house_key.map(|key| key.kid()),
            "next_house_key": self.next_house_key.map(|key| key.kid()),
            "sig": self.sig.secret_text().as_str(),
            "enc": self.enc.as_ref().map(|enc| enc.0.secret_text().to_string()),
        });
        Zeroizing::new(format!("{doc:#}\n"))
    }

    /// Reads what [`Identity::to_text`] wrote; the refusal names the field and never shows a key.
    pub fn from_text(text: &str) -> Result<Identity, Refusal> {
        let doc: Value = serde_json::from_str(text).map_err(|_| bad("it is not JSON"))?;
        let field = |name: &str| doc.get(name).and_then(Value::as_str);
        if field("schema") != Some(SCHEMA) {
            return Err(bad(&format!("its schema is not {SCHEMA}")));
        }
        let address = Address::parse(field("address").ok_or_else(|| bad("it has no address"))?)?;
        let house = field("house").ok_or_else(|| bad("it has no house"))?.trim_end_matches('/').to_owned();
        let house_key = field("house_key").map(PublicKey::parse).transpose()?;
        let next_house_key = field("next_house_key").map(PublicKey::parse).transpose()?;
        let sig = field("sig").and_then(SigningKey::parse).ok_or_else(|| bad("its sig is not a private key"))?;
        let enc = match doc.get("enc") {
            None | Some(Value::Null) => None,
            Some(value) => {
                let key = value.as_str().and_then(SealKey::parse).ok_or_else(|| bad("its enc is not a private key"))?;
                Some(Sealing(key))
            }
        };
        Ok(Identity { address, house, house_key, next_house_key, sig, enc })
    }
}

fn bad(why: &str) -> Refusal {
    Refusal::new(Rule::BadDocument, format!("the identity cannot be used: {why}"))
}

const SCHEMA: &str = "verifica.agent/1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_its_document_and_never_shows_its_keys() {
        let address = Address::parse("ana@mar.example").expect("address");
        let made = Identity::from_seeds(address, "https://mar.example".into(), [1; 32], [2; 32]);
        let read = Identity::from_text(&made.to_text()).expect("read");
        assert_eq!(read.address, made.address);
        assert_eq!(read.sig.public(), made.sig.public());
        assert_eq!(read.enc.map(|e| e.0.public()), made.enc.as_ref().map(|e| e.0.public()));
        let shown = format!("{made:?}");
        assert!(!shown.contains(made.sig.secret_text().as_str()));
        for bad in ["", "{}", "{\"schema\":\"verifica.agent/1\"}", "[]"] {
            assert!(Identity::from_text(bad).is_err(), "{bad}");
        }
    }
}
