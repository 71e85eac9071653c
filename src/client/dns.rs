//! The discovery record of a domain: TXT at `_nyx5.<domain>`.
//!
//! Three answers are kept apart, because they lead to different anchors: a record, the certain absence of one, and no
//! answer. Only certain absence may fall through to the well-known document; trouble in DNS must not weaken the anchor.

use crate::limits;
use crate::wire::address::Domain;
use crate::wire::key::PublicKey;
use hickory_resolver::TokioResolver;
use hickory_resolver::proto::rr::RData;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// What DNS said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxtAnswer {
    /// Every TXT record at the name, its pieces joined.
    Records(Vec<String>),
    /// The name or its TXT records certainly do not exist.
    Absent,
    /// No answer, or one that says nothing.
    Failed(String),
}

pub trait TxtLookup: Send + Sync {
    fn txt<'a>(&'a self, name: &'a str) -> Pin<Box<dyn Future<Output = TxtAnswer> + Send + 'a>>;
}

/// The system's resolver, as `/etc/resolv.conf` has it.
pub struct SystemDns(Option<TokioResolver>);

impl SystemDns {
    pub fn new() -> Self {
        SystemDns(TokioResolver::builder_tokio().and_then(|builder| builder.build()).ok())
    }
}

impl Default for SystemDns {
    fn default() -> Self {
        SystemDns::new()
    }
}

impl TxtLookup for SystemDns {
    fn txt<'a>(&'a self, name: &'a str) -> Pin<Box<dyn Future<Output = TxtAnswer> + Send + 'a>> {
        Box::pin(async move {
            let Some(resolver) = &self.0 else {
                return TxtAnswer::Failed("this host has no usable resolver configuration".to_owned());
            };
            let bound = Duration::from_millis(limits::DNS_MS);
            match tokio::time::timeout(bound, resolver.txt_lookup(name)).await {
                Err(_) => TxtAnswer::Failed(format!("no answer within {} ms", limits::DNS_MS)),
                Ok(Err(e)) if e.is_no_records_found() => TxtAnswer::Absent,
                Ok(Err(e)) => TxtAnswer::Failed(e.to_string()),
                Ok(Ok(found)) => {
                    let joined = |pieces: &[Box<[u8]>]| String::from_utf8_lossy(&pieces.concat()).into_owned();
                    let records = found.answers().iter().filter_map(|record| match &record.data {
                        RData::TXT(txt) => Some(joined(&txt.txt_data)),
                        _ => None,
                    });
                    TxtAnswer::Records(records.take(limits::TXT_RECORDS_MAX).collect())
                }
            }
        })
    }
}

/// Where the house of a domain is and which key it must sign with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    pub url: String,
    pub sig: Option<PublicKey>,
}

/// The name that is asked for.
pub fn record_name(domain: &Domain) -> String {
    format!("_nyx5.{domain}.")
}

/// Reads the records at the name. `Ok(None)`: none of them is of this protocol. Two that differ, or one that cannot be
/// read, are an error and not an absence.
pub fn read(records: &[String]) -> Result<Option<Discovery>, String> {
    let mut found: Option<Discovery> = None;
    for record in records {
        let Some(read) = read_one(record)? else { continue };
        match &found {
            Some(before) if *before != read => return Err("two discovery records that differ".to_owned()),
            _ => found = Some(read),
        }
    }
    Ok(found)
}

fn read_one(record: &str) -> Result<Option<Discovery>, String> {
    let mut fields = record.split(';').filter_map(|field| {
        let (name, value) = field.split_once('=')?;
        Some((name.trim(), value.trim()))
    });
    if fields.next() != Some(("v", "nyx51")) {
        return Ok(None);
    }
    let (mut url, mut sig) = (None, None);
    for (name, value) in fields {
        match name {
            "url" => url = Some(value.trim_end_matches('/').to_owned()),
            "sig" => {
                let key = PublicKey::parse(value).map_err(|_| "the discovery record's sig is not a key".to_owned())?;
                sig = Some(key);
            }
            _ => {}
        }
    }
    let url = url.filter(|url| url.starts_with("https://"));
    let url = url.ok_or_else(|| "the discovery record has no https url".to_owned())?;
    Ok(Some(Discovery { url, sig }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::key::SigningKey;

    #[test]
    fn a_record_names_a_place_and_a_key() {
        let key = SigningKey::from_seed([4; 32]).public();
        let record = format!("v=nyx51; url=https://mail.mar.example/; sig={key}");
        let other = "v=spf1 -all".to_owned();
        assert_eq!(
            read(&[other.clone(), record.clone(), record.clone()]),
            Ok(Some(Discovery { url: "https://mail.mar.example".into(), sig: Some(key) }))
        );
        assert_eq!(read(&[other]), Ok(None));
        assert!(read(&[record, "v=nyx51; url=https://other.example".into()]).is_err());
    }

    #[test]
    fn a_record_that_cannot_be_read_is_not_an_absent_one() {
        for bad in ["v=nyx51", "v=nyx51; url=http://a.example", "v=nyx51; url=https://a.example; sig=AAAA"] {
            assert!(read(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
