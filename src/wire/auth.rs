//! Who is asking, over HTTP: the signed token of an agent, the relay header of a sending house, and the header by which
//! a house asks on behalf of one of its agents.
//!
//! Everything here fails closed: an unreadable time, a padded base64 text, a missing claim is no credential.

use crate::limits;
use crate::refusal::{Refusal, Rule};
use crate::time::Timestamp;
use crate::wire::address::{Address, Domain};
use crate::wire::digest::{base64url, from_base64url};
use crate::wire::json;
use crate::wire::key::{PublicKey, SigningKey};
use serde_json::Value;

/// What a request is bound to.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub method: &'a str,
    /// As sent: percent-encoding kept, without the query.
    pub path: &'a str,
    /// Host and port of the house's public URL, from its configuration.
    pub host: &'a str,
}

/// Host and port of a house's URL, as credentials name it: the port only when it is not the scheme's own.
pub fn host_of(url: &str) -> Option<String> {
    let url = url::Url::parse(url).ok()?;
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// A token that was read and not yet believed.
#[derive(Clone, Debug)]
pub struct Token {
    pub address: Address,
    pub nonce: String,
    ts: Timestamp,
    claims: Value,
    signature: String,
}

impl Token {
    /// The header value that `key` signs for one request.
    pub fn header(address: &Address, key: &SigningKey, request: Request<'_>, now: Timestamp, nonce: &str) -> String {
        let claims = serde_json::json!({
            "address": address, "ts": now, "nonce": nonce,
            "method": request.method, "path": request.path, "host": request.host,
        });
        let text = json::canonical(&claims);
        format!("Nyx5 {}.{}", base64url(&text), key.sign(text.as_bytes()))
    }

    pub fn parse(header: &str) -> Result<Token, Refusal> {
        let rest = header.trim().strip_prefix("Nyx5").filter(|rest| rest.starts_with([' ', '\t']));
        let rest = rest.ok_or_else(|| denied("the Authorization scheme is not Nyx5"))?;
        let (token, signature) =
            rest.trim().split_once('.').ok_or_else(|| denied("the credential is not <token>.<signature>"))?;
        let bytes = from_base64url(token).ok_or_else(|| denied("the token is not base64url without padding"))?;
        let claims = json::parse_object(&bytes).map_err(|r| denied(&r.reason))?;
        let field = |name: &str| {
            claims
                .get(name)
                .and_then(Value::as_str)
                .map(str::to_owned)
                .ok_or_else(|| denied(&format!("the token has no {name}")))
        };
        let address = Address::parse(&field("address")?).map_err(|r| denied(&r.reason))?;
        let nonce = field("nonce")?;
        if nonce.is_empty() || nonce.len() > limits::NONCE_BYTES_MAX {
            return Err(denied("the nonce is empty or too long"));
        }
        let ts = Timestamp::parse(&field("ts")?).ok_or_else(|| denied("ts is not an ISO 8601 instant with a zone"))?;
        Ok(Token { address, nonce, ts, claims, signature: signature.to_owned() })
    }

    /// The checks after the agent was found to be alive, in the protocol's order. The nonce is burned by the caller, last.
    pub fn check(&self, key: &PublicKey, request: Request<'_>, now: Timestamp) -> Result<(), Refusal> {
        if now.since(self.ts).abs() > limits::AUTH_WINDOW_MS {
            return Err(denied("ts is more than five minutes away from this house's clock"));
        }
        let claim = |name: &str| self.claims.get(name).and_then(Value::as_str);
        if claim("method") != Some(request.method) || claim("path") != Some(request.path) {
            return Err(denied("the token was signed for another method or path"));
        }
        if claim("host") != Some(request.host) {
            return Err(denied(&format!("the token was signed for another host than {}", request.host)));
        }
        if !key.verify(json::canonical(&self.claims).as_bytes(), &self.signature) {
            return Err(denied("the signature does not verify with the agent's current key"));
        }
        Ok(())
    }

    /// The key under which the nonce is burned.
    pub fn nonce_key(&self) -> String {
        format!("{}:{}", self.address, self.nonce)
    }
}

/// `X-Nyx5-Relay`: the sending house vouches for having relayed this envelope.
pub struct Relay {
    pub domain: Domain,
    kid: String,
    sig: String,
}

impl Relay {
    pub fn header(domain: &Domain, key: &SigningKey, envelope_id: &str, receiver: &Domain) -> String {
        let sig = key.sign(relay_text(envelope_id, receiver).as_bytes());
        format!("nyx51 domain={domain}; kid={}; sig={sig}", key.public().kid())
    }

    pub fn parse(header: &str) -> Option<Relay> {
        let fields = header_fields(header);
        Some(Relay {
            domain: Domain::parse(fields.get("domain")?).ok()?,
            kid: (*fields.get("kid")?).to_owned(),
            sig: (*fields.get("sig")?).to_owned(),
        })
    }

    /// The name of the key that signed, as the header has it.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    pub fn verifies(&self, domain_keys: &[PublicKey], envelope_id: &str, receiver: &Domain) -> bool {
        let text = relay_text(envelope_id, receiver);
        domain_keys.iter().any(|key| key.is_kid(&self.kid) && key.verify(text.as_bytes(), &self.sig))
    }
}

/// `X-Nyx5-For`: another house asks on behalf of one of its own agents.
pub struct OnBehalf {
    pub domain: Domain,
    pub agent: Address,
    ts: String,
    at: Timestamp,
    kid: String,
    sig: String,
}

impl OnBehalf {
    pub fn header(domain: &Domain, key: &SigningKey, agent: &Address, target: &Domain, now: Timestamp) -> String {
        let sig = key.sign(format!("for:{agent}:{target}:{now}").as_bytes());
        format!("nyx51 domain={domain}; for={agent}; ts={now}; kid={}; sig={sig}", key.public().kid())
    }

    pub fn parse(header: &str) -> Option<OnBehalf> {
        let fields = header_fields(header);
        let ts = (*fields.get("ts")?).to_owned();
        let asked = OnBehalf {
            domain: Domain::parse(fields.get("domain")?).ok()?,
            agent: Address::parse(fields.get("for")?).ok()?,
            at: Timestamp::parse(&ts)?,
            ts,
            kid: (*fields.get("kid")?).to_owned(),
            sig: (*fields.get("sig")?).to_owned(),
        };
        asked.agent.is_of(&asked.domain).then_some(asked)
    }

    /// The name of the key that signed, as the header has it.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    pub fn verifies(&self, domain_keys: &[PublicKey], target: &Domain, now: Timestamp) -> bool {
        let text = format!("for:{}:{target}:{}", self.agent, self.ts);
        &self.domain != target
            && now.since(self.at).abs() <= limits::AUTH_WINDOW_MS
            && domain_keys.iter().any(|key| key.is_kid(&self.kid) && key.verify(text.as_bytes(), &self.sig))
    }
}

/// `X-Nyx5-Push`: the house tells an agent's own server of a letter.
pub struct Push {
    pub domain: Domain,
    kid: String,
    sig: String,
}

impl Push {
    pub fn header(domain: &Domain, key: &SigningKey, envelope_id: &str) -> String {
        let sig = key.sign(format!("push:{envelope_id}").as_bytes());
        format!("domain={domain}; kid={}; sig={sig}", key.public().kid())
    }

    pub fn parse(header: &str) -> Option<Push> {
        let fields = header_fields(header);
        Some(Push {
            domain: Domain::parse(fields.get("domain")?).ok()?,
            kid: (*fields.get("kid")?).to_owned(),
            sig: (*fields.get("sig")?).to_owned(),
        })
    }

    pub fn verifies(&self, domain_keys: &[PublicKey], envelope_id: &str) -> bool {
        let text = format!("push:{envelope_id}");
        domain_keys.iter().any(|key| key.is_kid(&self.kid) && key.verify(text.as_bytes(), &self.sig))
    }
}

fn relay_text(envelope_id: &str, receiver: &Domain) -> String {
    format!("relay:{envelope_id}:{receiver}")
}

/// `nyx51 a=b; c=d`: values may hold `=` only in what is cut off after the second piece, as the protocol reads them.
fn header_fields(header: &str) -> std::collections::BTreeMap<&str, &str> {
    let rest = header.trim();
    let rest = rest.strip_prefix("nyx51").unwrap_or(rest);
    rest.split(';')
        .filter_map(|piece| {
            let mut parts = piece.trim().split('=');
            Some((parts.next()?.trim(), parts.next()?.trim()))
        })
        .collect()
}

fn denied(why: &str) -> Refusal {
    Refusal::new(Rule::Unauthenticated, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request<'static> {
        Request { method: "GET", path: "/mailbox/ana", host: "mail.mar.example:4040" }
    }

    fn token(now: Timestamp) -> String {
        let ana = Address::parse("ana@mar.example").expect("address");
        Token::header(&ana, &SigningKey::from_seed([1; 32]), request(), now, "nonce-1")
    }

    #[test]
    fn a_token_is_good_for_one_method_path_host_and_five_minutes() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let read = Token::parse(&token(now)).expect("token");
        let key = SigningKey::from_seed([1; 32]).public();
        assert_eq!(read.check(&key, request(), now), Ok(()));
        assert_eq!(read.check(&key, request(), now.plus(limits::AUTH_WINDOW_MS)), Ok(()));
        assert!(read.check(&key, request(), now.plus(limits::AUTH_WINDOW_MS + 1)).is_err());
        assert!(read.check(&key, request(), now.minus(limits::AUTH_WINDOW_MS + 1)).is_err());
        assert!(read.check(&key, Request { method: "POST", ..request() }, now).is_err());
        assert!(read.check(&key, Request { path: "/mailbox/leo", ..request() }, now).is_err());
        assert!(read.check(&key, Request { host: "mail.mar.example", ..request() }, now).is_err());
        assert!(read.check(&SigningKey::from_seed([2; 32]).public(), request(), now).is_err());
    }

    #[test]
    fn garbage_is_401_and_never_a_panic() {
        let good = token(Timestamp::from_millis(0));
        for bad in [
            "",
            "Nyx5",
            "Nyx5 ",
            "Nyx5 a",
            "Nyx5 a.b",
            "Bearer a.b",
            "nyx5 a.b",
            "Nyx5a.b",
            "Nyx5 e30.AA",
            "Nyx5 ..",
            "Nyx5 W10.AA",
            &format!("{good}="),
            &good.replace("Nyx5 ", "Nyx5"),
            &good[..good.len() / 2],
        ] {
            let answer = Token::parse(bad)
                .and_then(|t| t.check(&SigningKey::from_seed([1; 32]).public(), request(), Timestamp::from_millis(0)));
            assert_eq!(answer.map_err(|r| r.code()), Err(401), "{bad}");
        }
    }

    #[test]
    fn relay_and_on_behalf_headers_are_bound_to_the_receiver() {
        let key = SigningKey::from_seed([5; 32]);
        let (a, b) = (Domain::parse("a.example").expect("a"), Domain::parse("b.example").expect("b"));
        let header = Relay::header(&a, &key, "envelope-1", &b);
        let relay = Relay::parse(&header).expect("relay");
        assert!(relay.verifies(&[key.public()], "envelope-1", &b));
        assert!(!relay.verifies(&[key.public()], "envelope-2", &b));
        assert!(!relay.verifies(&[key.public()], "envelope-1", &a));
        assert!(!relay.verifies(&[], "envelope-1", &b));
        let pushed = Push::parse(&Push::header(&a, &key, "envelope-1")).expect("push");
        assert!(pushed.domain == a && pushed.verifies(&[key.public()], "envelope-1"));
        assert!(!pushed.verifies(&[key.public()], "envelope-2") && !pushed.verifies(&[], "envelope-1"));
        assert!(!Push::header(&a, &key, "envelope-1").contains("nyx51"));
        let now = Timestamp::from_millis(1_800_000_000_000);
        let ana = Address::parse("ana@a.example").expect("ana");
        let asked = OnBehalf::parse(&OnBehalf::header(&a, &key, &ana, &b, now)).expect("for");
        assert!(asked.verifies(&[key.public()], &b, now));
        assert!(!asked.verifies(&[key.public()], &a, now));
        assert!(!asked.verifies(&[key.public()], &b, now.plus(limits::AUTH_WINDOW_MS + 1)));
        let foreign = Address::parse("eve@c.example").expect("eve");
        assert!(OnBehalf::parse(&OnBehalf::header(&a, &key, &foreign, &b, now)).is_none());
        assert!(OnBehalf::parse("nyx51 domain=a.example; for=ana@a.example; ts=NaN; kid=x; sig=y").is_none());
    }
}
