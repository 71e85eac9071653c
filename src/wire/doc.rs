//! A document that many hold: clones are the same document, and its canonical text is written once.
//!
//! A document may be promised before it is made. What a signature costs is then paid by whoever needs the document
//! first, on whatever thread that is. It is made of nothing but what it was promised with, so it is the same document
//! whenever and wherever it is made.

use crate::wire::json::canonical;
use crate::wire::key::SigningKey;
use serde_json::Value;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

#[derive(Clone)]
pub struct Doc(Arc<Inner>);

impl Doc {
    /// A document that is made when it is first looked at.
    pub fn later(make: impl FnOnce() -> Value + Send + 'static) -> Doc {
        let make: Make = Box::new(|| (make(), None));
        Doc(Arc::new(Inner { make: Mutex::new(Some(make)), value: OnceLock::new(), text: OnceLock::new() }))
    }

    /// As [`Doc::later`], signed with this key over all but `field`, which the signature becomes.
    pub fn signed_later(key: SigningKey, field: &'static str, make: impl FnOnce() -> Value + Send + 'static) -> Doc {
        let make: Make = Box::new(move || {
            let mut value = make();
            let text = key.sign_object(&mut value, field);
            (value, text)
        });
        Doc(Arc::new(Inner { make: Mutex::new(Some(make)), value: OnceLock::new(), text: OnceLock::new() }))
    }

    /// This object with another document as one of its fields, made when it is first looked at.
    pub fn with(self, field: &'static str, part: Doc) -> Doc {
        Doc::later(move || {
            let mut whole = self.into_value();
            if let Some(object) = whole.as_object_mut() {
                object.insert(field.to_owned(), part.value().clone());
            }
            whole
        })
    }

    pub fn value(&self) -> &Value {
        self.0.value.get_or_init(|| {
            let (value, text) = self.0.make();
            if let Some(text) = text {
                let _ = self.0.text.set(text);
            }
            value
        })
    }

    /// The document itself where nobody else holds it, else a copy.
    pub fn into_value(self) -> Value {
        match Arc::try_unwrap(self.0) {
            Ok(mut alone) => alone.value.take().unwrap_or_else(|| alone.make().0),
            Err(shared) => Doc(shared).value().clone(),
        }
    }

    /// The canonical text.
    pub fn text(&self) -> &str {
        let value = self.value();
        self.0.text.get_or_init(|| canonical(value))
    }
}

impl From<Value> for Doc {
    fn from(value: Value) -> Doc {
        let make = Mutex::new(None);
        Doc(Arc::new(Inner { make, value: OnceLock::from(value), text: OnceLock::new() }))
    }
}

impl Deref for Doc {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.value()
    }
}

impl PartialEq for Doc {
    fn eq(&self, other: &Doc) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.value() == other.value()
    }
}

impl PartialEq<Value> for Doc {
    fn eq(&self, other: &Value) -> bool {
        self.value() == other
    }
}

impl fmt::Debug for Doc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Display for Doc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl serde::Serialize for Doc {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(s)
    }
}

impl<'de> serde::Deserialize<'de> for Doc {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Value::deserialize(d).map(Doc::from)
    }
}

struct Inner {
    /// Taken by whoever makes the document.
    make: Mutex<Option<Make>>,
    value: OnceLock<Value>,
    text: OnceLock<String>,
}

impl Inner {
    /// Runs once; a document whose making failed is never taken for an empty one.
    fn make(&self) -> (Value, Option<String>) {
        let make = self.make.lock().unwrap_or_else(PoisonError::into_inner).take();
        match make {
            Some(make) => make(),
            None => panic!("the document could not be made"),
        }
    }
}

/// The document, and its text where that fell off on the way.
type Make = Box<dyn FnOnce() -> (Value, Option<String>) + Send>;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_promised_document_is_made_once_for_all_who_hold_it() {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let part = Doc::later(|| {
            MADE.fetch_add(1, Ordering::SeqCst);
            json!({"b": 1})
        });
        let whole = Doc::from(json!({"z": 0})).with("a", part.clone());
        assert_eq!(MADE.load(Ordering::SeqCst), 0);
        assert_eq!(whole.clone().text(), r#"{"a":{"b":1},"z":0}"#);
        assert_eq!(part.text(), r#"{"b":1}"#);
        assert_eq!((whole["a"]["b"].as_u64(), MADE.load(Ordering::SeqCst)), (Some(1), 1));
        assert_eq!(serde_json::to_value(&whole).ok().as_ref(), Some(whole.value()));
        assert_eq!(whole.clone().into_value(), whole.into_value(), "a copy while another holds it, then itself");
    }

    #[test]
    fn the_text_of_a_signed_document_is_its_canonical_text() {
        let key = SigningKey::from_seed([1; 32]);
        for doc in
            [json!({}), json!({"a": 1}), json!({"z": 1}), json!({"a": [1], "signatures": 2, "z": {"signature": 3}})]
        {
            let whole = doc.clone();
            let signed = Doc::signed_later(key.clone(), "signature", move || whole);
            assert!(key.public().verify_object(signed.value(), "signature"), "{doc}");
            assert_eq!(signed.text(), canonical(signed.value()), "{doc}");
        }
    }

    #[test]
    fn a_document_that_could_not_be_made_is_never_an_empty_one() {
        let doc = Doc::later(|| panic!("cannot be made"));
        for _ in 0..2 {
            let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| doc.text().to_owned()));
            assert!(looked.is_err());
        }
    }
}
