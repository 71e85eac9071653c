//! Names: `local@domain`, lower case only. An address with a capital letter is refused, never folded, so that every
//! list, ledger account and rate key sees the same bytes that were signed.

use crate::limits;
use crate::refusal::{Refusal, Rule};
use std::fmt;

/// The domain of a house.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(String);

impl Domain {
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let well_formed = !text.is_empty()
            && text.len() <= limits::DOMAIN_BYTES_MAX
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-')
            && text.split('.').all(|label| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-'));
        if well_formed {
            return Ok(Domain(text.to_owned()));
        }
        Err(bad(text, "a domain is lower-case letters, digits, dots and hyphens"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// An address of this house whose local part is already known to be well formed.
    pub fn address(&self, local: &Local) -> Address {
        Address::from_parts(local.0.clone(), self.0.clone())
    }

    /// One of the house's own names.
    pub fn system(&self, name: SystemName) -> Address {
        Address::from_parts(name.as_str().to_owned(), self.0.clone())
    }
}

/// The house's own addresses; all of them hold the domain key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SystemName {
    Postmaster,
    Libro,
    Verifica,
    Tareas,
    Casa,
}

impl SystemName {
    pub const fn as_str(self) -> &'static str {
        match self {
            SystemName::Postmaster => "postmaster",
            SystemName::Libro => "libro",
            SystemName::Verifica => "verifica",
            SystemName::Tareas => "tareas",
            SystemName::Casa => "casa",
        }
    }
}

/// The part before the `@`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Local(String);

impl Local {
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let first = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let rest =
            text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'));
        if first && rest && text.len() <= limits::ADDRESS_LOCAL_MAX {
            return Ok(Local(text.to_owned()));
        }
        Err(bad(text, "a name starts with a letter or digit and has at most 64 of a-z 0-9 . _ -"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `local@domain`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    text: String,
    at: usize,
}

impl Address {
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let Some((local, domain)) = text.split_once('@') else {
            return Err(bad(text, "an address is local@domain"));
        };
        let local = Local::parse(local).map_err(|r| bad(text, &r.reason))?;
        let domain = Domain::parse(domain).map_err(|r| bad(text, &r.reason))?;
        Ok(Address::from_parts(local.0, domain.0))
    }

    fn from_parts(local: String, domain: String) -> Self {
        let at = local.len();
        Address { text: format!("{local}@{domain}"), at }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn local(&self) -> &str {
        &self.text[..self.at]
    }

    pub fn domain(&self) -> Domain {
        Domain(self.text[self.at + 1..].to_owned())
    }

    pub fn is_of(&self, domain: &Domain) -> bool {
        &self.text[self.at + 1..] == domain.as_str()
    }

    pub fn is_system(&self, domain: &Domain, name: SystemName) -> bool {
        self.is_of(domain) && self.local() == name.as_str()
    }

    /// Whether a list that names addresses and whole domains names this one.
    pub fn is_named_in<'a>(&self, list: impl IntoIterator<Item = &'a str>) -> bool {
        let domain = &self.text[self.at + 1..];
        list.into_iter().any(|entry| entry == self.text || entry == domain)
    }
}

macro_rules! text_type {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl std::str::FromStr for $name {
            type Err = Refusal;
            fn from_str(text: &str) -> Result<Self, Refusal> {
                $name::parse(text)
            }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.as_str())
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
                $name::parse(&text).map_err(|r| serde::de::Error::custom(r.reason))
            }
        }
    };
}

text_type!(Domain);
text_type!(Local);
text_type!(Address);

fn bad(text: &str, rule: &str) -> Refusal {
    let shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
    Refusal::new(Rule::BadAddress, format!("\"{shown}\": {rule}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_lower_case_and_bounded() {
        let long = format!("{}@a.example", "a".repeat(64));
        for good in ["a@b", "a.b_c-d@mar.example", "0@x-1.example", long.as_str()] {
            assert_eq!(Address::parse(good).map(|a| a.to_string()), Ok(good.to_owned()));
        }
        let too_long = format!("{}@a.example", "a".repeat(65));
        for bad in [
            "",
            "@",
            "a@",
            "@b",
            "A@b",
            "a@B",
            ".a@b",
            "a b@c",
            "a@b@c",
            "a@.b",
            "a@b.",
            "a@b..c",
            "a@-b",
            "a@b-",
            "ä@b",
            "a@b/../c",
            "a/b@c",
            "a@b:80",
            too_long.as_str(),
        ] {
            assert_eq!(Address::parse(bad).map_err(|r| r.rule), Err(Rule::BadAddress), "{bad}");
        }
    }

    #[test]
    fn lists_name_addresses_or_whole_domains_never_suffixes() {
        let address = Address::parse("ana@mar.example").expect("address");
        assert!(address.is_named_in(["mar.example"]));
        assert!(address.is_named_in(["x@y", "ana@mar.example"]));
        assert!(!address.is_named_in(["example", "ar.example", "na@mar.example", "@mar.example"]));
    }
}
