//! Files beside a letter: one random key each, AES-256-GCM, stored as `iv || ciphertext || tag` and nothing else.
//!
//! The encryption is tied to the object's name and to its sender, so a file cannot be passed off as another one or as
//! somebody else's. What a file is called, what it is and how it opens travels where the letter's content travels:
//! inside the seal, or in the open beside content in clear.

use crate::limits;
use crate::refusal::{Refusal, Rule};
use crate::wire::address::Address;
use crate::wire::digest::{Sha256, array_from_base64url, base64url};
use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use serde_json::{Value, json};
use zeroize::Zeroizing;

/// All that a recipient needs of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub blob: String,
    /// Of the file itself.
    pub bytes: u64,
    pub name: String,
    pub media: String,
    /// Of the file itself: whoever opened it knows that it is the right one.
    pub sha256: Sha256,
    key: Zeroizing<[u8; 32]>,
}

/// The chance that sealing one file needs, drawn by the caller.
pub struct FileChance {
    pub key: Zeroizing<[u8; 32]>,
    pub iv: [u8; 12],
}

impl Attachment {
    /// Seals a file for whoever learns the key; answers what is to be stored beside what is to be told.
    pub fn seal(
        blob: &str,
        from: &Address,
        name: &str,
        media: &str,
        file: &[u8],
        chance: &FileChance,
    ) -> Result<(Attachment, Vec<u8>), Refusal> {
        let most = limits::ATTACHMENT_BYTES_MAX - limits::ATTACHMENT_SEAL_BYTES;
        if file.is_empty() || file.len() as u64 > most {
            return Err(bad(&format!("a file beside a letter has 1 to {most} bytes")));
        }
        check(name, limits::ATTACHMENT_NAME_CHARS_MAX, "name")?;
        check(media, limits::ATTACHMENT_MEDIA_CHARS_MAX, "media")?;
        let aad = associated_data(blob, from);
        let sealed = Aes256Gcm::new((&*chance.key).into())
            .encrypt(&Nonce::from(chance.iv), Payload { msg: file, aad: aad.as_bytes() })
            .map_err(|_| bad("the file could not be sealed"))?;
        let mut object = Vec::with_capacity(sealed.len() + chance.iv.len());
        object.extend_from_slice(&chance.iv);
        object.extend_from_slice(&sealed);
        let attachment = Attachment {
            blob: blob.to_owned(),
            bytes: file.len() as u64,
            name: name.to_owned(),
            media: media.to_owned(),
            sha256: Sha256::of(file),
            key: chance.key.clone(),
        };
        Ok((attachment, object))
    }

    /// The file, if the object is what `from` sealed under this name, and it is the one that was told of.
    pub fn open(&self, from: &Address, object: &[u8]) -> Result<Vec<u8>, Refusal> {
        let fault = || bad("the stored bytes are not what the letter's sender sealed under this name");
        let (iv, sealed) = object.split_first_chunk::<12>().ok_or_else(fault)?;
        let aad = associated_data(&self.blob, from);
        let file = Aes256Gcm::new((&*self.key).into())
            .decrypt(&Nonce::from(*iv), Payload { msg: sealed, aad: aad.as_bytes() })
            .map_err(|_| fault())?;
        if Sha256::of(&file) != self.sha256 {
            return Err(bad("the file opened, and its sha256 is not the one in the letter"));
        }
        Ok(file)
    }

    /// The full record, key and all.
    pub fn to_json(&self) -> Value {
        json!({
            "blob": self.blob, "bytes": self.bytes, "name": self.name, "media": self.media,
            "sha256": self.sha256, "key": base64url(*self.key),
        })
    }

    /// What may stand outside a seal.
    pub fn outer(&self) -> Value {
        json!({"blob": self.blob, "bytes": self.bytes})
    }

    pub fn parse(record: &Value) -> Result<Attachment, Refusal> {
        let text = |field: &str| {
            let value = record.get(field).and_then(Value::as_str);
            value.ok_or_else(|| bad(&format!("an attachment of the letter has no {field}")))
        };
        let blob = uuid::Uuid::try_parse(text("blob")?).map_err(|_| bad("an attachment's blob is not a uuid"))?;
        let bytes = record.get("bytes").and_then(Value::as_u64);
        let key = array_from_base64url::<32>(text("key")?).map(Zeroizing::new);
        Ok(Attachment {
            blob: blob.to_string(),
            bytes: bytes.ok_or_else(|| bad("an attachment of the letter has no bytes"))?,
            name: text("name")?.to_owned(),
            media: text("media")?.to_owned(),
            sha256: Sha256::parse(text("sha256")?).ok_or_else(|| bad("an attachment's sha256 is not 64 hex digits"))?,
            key: key.ok_or_else(|| bad("an attachment's key is not the base64url text of 32 bytes"))?,
        })
    }
}

fn associated_data(blob: &str, from: &Address) -> String {
    format!("nyx5:blob:{blob}:{from}")
}

fn check(text: &str, chars_max: usize, what: &str) -> Result<(), Refusal> {
    let fits = (1..=chars_max).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if fits { Ok(()) } else { Err(bad(&format!("the {what} of a file has 1 to {chars_max} printable characters"))) }
}

fn bad(why: &str) -> Refusal {
    Refusal::new(Rule::BadDocument, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOB: &str = "6f1c2b34-0000-4000-8000-000000000000";

    fn sealed(file: &[u8], name: &str) -> Result<(Attachment, Vec<u8>), Refusal> {
        let ana = Address::parse("ana@mar.example").expect("ana");
        let chance = FileChance { key: Zeroizing::new([7; 32]), iv: [9; 12] };
        Attachment::seal(BLOB, &ana, name, "text/plain", file, &chance)
    }

    #[test]
    fn a_file_opens_under_its_own_name_for_its_own_sender_and_is_the_one_told_of() {
        let (ana, eva) = (Address::parse("ana@mar.example").expect("a"), Address::parse("eva@mar.example").expect("e"));
        let (attachment, object) = sealed(b"hola", "a.txt").expect("sealed");
        assert_eq!(object.len() as u64, 4 + limits::ATTACHMENT_SEAL_BYTES);
        assert_eq!(attachment.open(&ana, &object).as_deref(), Ok(&b"hola"[..]));
        assert!(attachment.open(&eva, &object).is_err(), "another sender");
        let other = Attachment { blob: BLOB.replace('6', "7"), ..attachment.clone() };
        assert!(other.open(&ana, &object).is_err(), "another object");
        let wrong = Attachment { sha256: Sha256::of("hello"), ..attachment.clone() };
        assert!(wrong.open(&ana, &object).expect_err("hash").reason.contains("sha256"));
        for n in [0, 11, 12, 27, object.len() - 1] {
            assert!(attachment.open(&ana, &object[..n]).is_err(), "{n}");
        }
        assert_eq!(Attachment::parse(&attachment.to_json()), Ok(attachment.clone()));
        assert_eq!(attachment.outer().as_object().map(|outer| outer.len()), Some(2));
        for field in ["blob", "bytes", "name", "media", "sha256", "key"] {
            let mut record = attachment.to_json();
            record[field] = json!([]);
            assert!(Attachment::parse(&record).is_err(), "{field}");
        }
    }

    #[test]
    fn sizes_and_names_at_their_limits() {
        let most = (limits::ATTACHMENT_BYTES_MAX - limits::ATTACHMENT_SEAL_BYTES) as usize;
        let (_, object) = sealed(&vec![1; most], "a").expect("at the limit");
        assert_eq!(object.len() as u64, limits::ATTACHMENT_BYTES_MAX);
        assert!(sealed(&vec![1; most + 1], "a").is_err());
        assert!(sealed(b"", "a").is_err());
        assert!(sealed(b"1", &"n".repeat(limits::ATTACHMENT_NAME_CHARS_MAX)).is_ok());
        for bad in ["", "a\nb", &"n".repeat(limits::ATTACHMENT_NAME_CHARS_MAX + 1)] {
            assert!(sealed(b"1", bad).is_err(), "{bad:?}");
        }
        let media = |text: &str| check(text, limits::ATTACHMENT_MEDIA_CHARS_MAX, "media");
        assert!(media(&"m".repeat(limits::ATTACHMENT_MEDIA_CHARS_MAX)).is_ok());
        assert!(media(&"m".repeat(limits::ATTACHMENT_MEDIA_CHARS_MAX + 1)).is_err());
    }
}
