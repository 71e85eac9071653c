//! The agent library: everything that an agent does with its house, over HTTP, signed with its own key.
//!
//! ```no_run
//! # async fn example() -> Result<(), verifica::client::agent::ClientError> {
//! use verifica::client::agent::{AgentClient, Identity, Options};
//! let text = std::fs::read_to_string("agent.json").unwrap_or_default();
//! let agent = AgentClient::new(Identity::from_text(&text)?, Options::default())?;
//! let id = agent.operate(&serde_json::json!({"op": "balance"})).await?;
//! let receipt = agent.wait_receipt(&id, std::time::Duration::from_secs(30)).await?;
//! println!("{}", receipt.body);
//! # Ok(())
//! # }
//! ```
//!
//! Promises: a credential is good for one request; an envelope is sent again only as the same envelope, which every
//! house takes once; what claims to come from the ledger is believed only with the signature of the house. The house is
//! known by the key of its domain card: the first one seen, or the one in the [`Identity`]. The cards of other houses
//! are believed as the agent's own house resolved them. Deliberately absent: keeping keys, and deciding what to pay.

pub mod files;
pub mod http;
pub mod identity;
pub mod index;
pub mod operator;
pub mod people;
pub mod talk;

pub use files::File;
pub use http::{Call, HouseClient};
pub use identity::{Identity, Sealing};
pub use operator::{journal, topup};

use crate::limits;
use crate::refusal::{Refusal, Rule, retryable};
use crate::time::{Clock, Timestamp};
use crate::wire::address::{Address, Domain, SystemName};
use crate::wire::auth::{Request, Token, host_of};
use crate::wire::card::{AgentCard, DomainCard, InboxPolicy};
use crate::wire::envelope::{Draft, Envelope, Kind, Payload, Verified};
use crate::wire::key::Signature;
use crate::wire::pow;
use crate::wire::quote::OP_MEDIA;
use crate::wire::seal::{self, Binding, SealChance, SealPublic};
use rustls::pki_types::CertificateDer;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use zeroize::Zeroizing;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{url} cannot be reached: {why}")]
    Unreachable { url: String, why: String },
    /// The house said no.
    #[error("{reason}")]
    Refused { status: u16, reason: String, rule: Option<u16>, retry_after: Option<u64>, body: Value },
    /// The house answered something that cannot be used or believed.
    #[error("{url}: {why}")]
    BadAnswer { url: String, why: String },
    /// What was to be sent is not what a house would take.
    #[error("{0}")]
    Local(#[from] Refusal),
    #[error("{0}")]
    Setup(String),
    /// The letter came back: `letter` is what the postmaster wrote about it.
    #[error("{reason}")]
    Bounced { id: String, reason: String, code: Option<u16>, letter: String },
    #[error("no receipt for {id} within {waited_s} s")]
    NoReceipt { id: String, waited_s: u64 },
    /// Whether the house has taken the letter is not known. Only this very envelope may be posted again: it is taken
    /// once however often it comes, and another one would be another order.
    #[error("{error}; whether the house has {id} is not known")]
    Unacknowledged { id: String, envelope: Box<Value>, error: Box<ClientError> },
}

pub struct Options {
    /// Trusted beside the compiled-in roots.
    pub extra_roots: Vec<CertificateDer<'static>>,
    pub clock: Arc<dyn Clock>,
}

pub struct AgentClient {
    identity: Identity,
    house: HouseClient,
    roots: Vec<CertificateDer<'static>>,
    clock: Arc<dyn Clock>,
    domain: OnceCell<DomainCard>,
}

/// What to register beside the keys. `None` leaves the house's default.
#[derive(Clone, Debug, Default)]
pub struct Joining {
    pub invite: Option<String>,
    pub capabilities: Option<Value>,
    pub inbox: Option<Value>,
    pub visibility: Option<String>,
    pub profile: Option<Value>,
    /// Where the house calls with each letter; the mailbox keeps it all the same.
    pub webhook: Option<String>,
    pub source: Option<String>,
}

/// A letter to write.
#[derive(Clone, Debug)]
pub struct Message {
    pub to: Vec<Address>,
    pub kind: Kind,
    pub media: String,
    pub body: Value,
    pub thread: Option<String>,
    pub in_reply_to: Option<String>,
    pub expires: Option<Timestamp>,
    pub deliver_after: Option<Timestamp>,
    pub privacy: Privacy,
    /// Ask for a notice of delivery.
    pub receipt: bool,
    /// Tokens for a mailbox that asks for a stamp, with the house that takes them.
    pub stamp: Option<(Domain, u64)>,
    /// Signed and in clear, by the name of each extension; [`talk::Labels`] writes some.
    pub extensions: Map<String, Value>,
    /// Sealed and handed to the house when the letter is written.
    pub files: Vec<File>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privacy {
    /// Sealed when every recipient has an encryption key; in clear when none has.
    Auto,
    Sealed,
    Clear,
}

/// A letter that the house has taken for delivery.
#[derive(Clone, Debug)]
pub struct Sent {
    pub id: String,
    pub sealed: bool,
    pub answer: Value,
}

/// A letter in the mailbox.
#[derive(Clone, Debug)]
pub struct Mail {
    /// As the house keeps it: `received`, `envelope` and what the house found out about it.
    pub record: Value,
}

/// Which letters to wait for.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub from: Option<Address>,
    pub thread: Option<String>,
    pub since: Option<Timestamp>,
    pub project: Option<String>,
}

/// What the ledger answered, with the house's signature checked.
#[derive(Clone, Debug)]
pub struct Receipt {
    pub body: Value,
    pub envelope: Value,
}

impl AgentClient {
    pub fn new(identity: Identity, options: Options) -> Result<AgentClient, ClientError> {
        let house = HouseClient::new(&identity.house, &options.extra_roots)?;
        Ok(AgentClient { identity, house, roots: options.extra_roots, clock: options.clock, domain: OnceCell::new() })
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn address(&self) -> &Address {
        &self.identity.address
    }

    /// The card of the agent's house, verified; from then on its key is the one believed.
    pub async fn domain_card(&self) -> Result<&DomainCard, ClientError> {
        self.domain.get_or_try_init(|| self.fetch_domain_card()).await
    }

    /// The house's card, if a call has fetched it.
    pub fn known_house(&self) -> Option<&DomainCard> {
        self.domain.get()
    }

    /// Registers the agent at its house, by an invitation or an open door.
    pub async fn join(&self, joining: &Joining) -> Result<Value, ClientError> {
        self.domain_card().await?;
        let mut body = self.registration(joining);
        body["ts"] = self.clock.now().to_string().into();
        if let Some(invite) = &joining.invite {
            body["invite"] = invite.as_str().into();
        }
        self.identity.sig.sign_object(&mut body, "signature");
        self.house.json(self.call(reqwest::Method::POST, "/agents", Some(&body), &|| Ok(None), false)).await
    }

    /// Registers the agent with the operator's own authority.
    pub async fn join_as_admin(&self, joining: &Joining, admin_token: &str) -> Result<Value, ClientError> {
        self.domain_card().await?;
        let bearer = bearer(&self.house, admin_token)?;
        let body = self.registration(joining);
        self.house
            .json(self.call(reqwest::Method::POST, "/agents", Some(&body), &|| Ok(Some(bearer.clone())), false))
            .await
    }

    /// Replaces the agent's own card; what is left out returns to the house's defaults.
    pub async fn update_card(&self, joining: &Joining) -> Result<Value, ClientError> {
        let body = self.registration(joining);
        self.signed(reqwest::Method::POST, "/agents", &[], Some(&body), false).await
    }

    /// A card: of this house with its certification checked, of another house as this house resolved it.
    pub async fn card(&self, address: &Address) -> Result<AgentCard, ClientError> {
        let domain = self.domain_card().await?;
        if !address.is_of(&domain.domain) {
            let doc = self.signed(reqwest::Method::GET, &format!("/resolve/{address}"), &[], None, true).await?;
            let card = AgentCard::parse(doc)?;
            return if card.address == *address {
                Ok(card)
            } else {
                Err(self.bad("the house resolved another address"))
            };
        }
        let doc = self.signed(reqwest::Method::GET, &format!("/agents/{}", address.local()), &[], None, true).await?;
        let card = AgentCard::parse(doc)?;
        card.certified_by(domain)?;
        if card.address == *address {
            Ok(card)
        } else {
            Err(self.bad("the house answered with the card of another agent"))
        }
    }

    /// The public directory of the house: `{total, offset, agents}`.
    pub async fn directory(&self, query: &[(&str, String)]) -> Result<Value, ClientError> {
        directory(&self.house, query).await
    }

    /// Writes, seals and signs a letter under an id that its sender never used. Whoever keeps it until its answer came
    /// may [`AgentClient::post`] it again after any fault, a crash included, and nothing happens twice.
    pub async fn write(&self, id: &str, message: &Message) -> Result<Envelope, ClientError> {
        let mut more = Map::new();
        if message.receipt {
            more.insert("receipt".into(), "delivered".into());
        }
        if let Some((house, amount)) = &message.stamp {
            more.insert("stamp".into(), json!({"house": house, "amount": amount}));
        }
        if !message.extensions.is_empty() {
            more.insert("extensions".into(), Value::Object(message.extensions.clone()));
        }
        let ledger = message.media == OP_MEDIA;
        let mut readers: Vec<(Address, SealPublic)> = Vec::new();
        let mut closed: Vec<Address> = Vec::new();
        let mut work = 0;
        for to in message.to.iter().filter(|_| !ledger) {
            if self.is_group(to) {
                if message.privacy != Privacy::Clear {
                    let (open, shut) = self.readers_in(to).await?;
                    readers.extend(open);
                    closed.extend(shut);
                }
                continue;
            }
            let card = match self.card(to).await {
                // In clear nothing of the card is needed but the work it may ask for: a house that cannot be found now
                // is the queue's to find.
                Err(ClientError::Refused { status, .. }) if message.privacy == Privacy::Clear && retryable(status) => {
                    continue;
                }
                card => card?,
            };
            match card.enc {
                Some(enc) => readers.push((to.clone(), enc)),
                None => closed.push(to.clone()),
            }
            if let InboxPolicy::Pow { bits } = card.inbox.policy {
                work = work.max(bits);
            }
        }
        if work > 0 {
            let found =
                if work <= POW_BITS_WILLING { pow::search(id, work, 1 << (POW_BITS_WILLING + 4)) } else { None };
            let found = found.ok_or_else(|| {
                Refusal::new(
                    Rule::ProofOfWorkMissing,
                    format!("a mailbox asks for {work} bits of work; this client does up to {POW_BITS_WILLING}"),
                )
            })?;
            more.insert("pow".into(), found);
        }
        let sealed = match message.privacy {
            Privacy::Clear => false,
            Privacy::Auto if readers.is_empty() => false,
            Privacy::Auto | Privacy::Sealed => match closed.first() {
                None => true,
                Some(to) => {
                    let why = format!(
                        "{to} has no encryption key, so nothing can be sealed for it; send in clear, or to each apart"
                    );
                    return Err(Refusal::new(Rule::MustBeSealed, why).into());
                }
            },
        };
        let mut content = json!({"media": message.media, "body": message.body});
        self.enclose(message, sealed, &mut content, &mut more).await?;
        let payload = if sealed {
            let own = self.identity.enc.as_ref();
            if let Some(own) = own.filter(|_| !message.to.contains(self.address())) {
                readers.push((self.address().clone(), own.0.public()));
            }
            readers.sort_by(|(one, _), (other, _)| one.cmp(other));
            readers.dedup_by(|(one, _), (other, _)| one == other);
            let to: Vec<String> = message.to.iter().map(Address::to_string).collect();
            let binding = Binding { id, from: self.address().as_str(), to: &to };
            Payload::Sealed(seal::seal(&content, &binding, &readers, chance()?)?)
        } else {
            Payload::Clear { media: message.media.clone(), body: message.body.clone() }
        };
        let draft = Draft {
            id: id.to_owned(),
            from: self.address().clone(),
            to: message.to.clone(),
            kind: message.kind,
            created: self.clock.now(),
            expires: message.expires,
            deliver_after: message.deliver_after,
            thread: message.thread.clone(),
            in_reply_to: message.in_reply_to.clone(),
            payload,
            more,
        };
        Ok(Envelope::sign(draft.into_doc(), &self.identity.sig, limits::REQUEST_BODY_MAX)?)
    }

    /// Writes, seals, signs and hands over a letter.
    pub async fn send(&self, message: &Message) -> Result<Sent, ClientError> {
        let id = uuid::Uuid::new_v4().to_string();
        let envelope = self.write(&id, message).await?;
        let sealed = envelope.is_sealed();
        let answer = self.post(&envelope).await?;
        Ok(Sent { id, sealed, answer })
    }

    /// Hands an envelope to the house. Repeated as it is when the answer was lost: no house delivers it twice. When the
    /// repetitions are lost too, [`ClientError::Unacknowledged`] gives the envelope back.
    pub async fn post(&self, envelope: &Envelope) -> Result<Value, ClientError> {
        let posted = self.signed(reqwest::Method::POST, "/outbound", &[], Some(envelope.doc()), true).await;
        posted.map_err(|error| match error.is_final() {
            true => error,
            false => ClientError::Unacknowledged {
                id: envelope.id.clone(),
                envelope: Box::new(envelope.doc().clone()),
                error: Box::new(error),
            },
        })
    }

    /// The pending letters, oldest first.
    pub async fn inbox(&self, limit: usize) -> Result<Vec<Mail>, ClientError> {
        let path = format!("/mailbox/{}", self.local());
        let answer = self.signed(reqwest::Method::GET, &path, &[("limit", limit.to_string())], None, true).await?;
        let messages = answer.get("messages").and_then(Value::as_array);
        let messages = messages.ok_or_else(|| self.bad("the mailbox has no list of messages"))?;
        Ok(messages.iter().map(|record| Mail { record: record.clone() }).collect())
    }

    /// Waits for the first pending letter that the filter admits.
    pub async fn wait(&self, filter: &Filter, seconds: u64) -> Result<Option<Mail>, ClientError> {
        let seconds = seconds.min(limits::WAIT_SECONDS_MAX);
        let path = format!("/mailbox/{}/wait", self.local());
        let mut query = vec![("timeout", seconds.to_string())];
        query.extend(filter.from.as_ref().map(|from| ("from", from.to_string())));
        query.extend(filter.thread.as_ref().map(|thread| ("thread", thread.clone())));
        query.extend(filter.since.map(|since| ("since", since.to_string())));
        query.extend(filter.project.as_ref().map(|project| ("project", project.clone())));
        let authorize = || self.credential("GET", &path).map(Some);
        let mut call = self.call(reqwest::Method::GET, &path, None, &authorize, true);
        call.query = &query;
        call.timeout_ms = seconds.saturating_mul(1_000).saturating_add(limits::AGENT_CALL_MS);
        self.domain_card().await?;
        let answer = self.house.json(call).await?;
        Ok(answer.get("message").filter(|record| !record.is_null()).map(|record| Mail { record: record.clone() }))
    }

    /// Marks letters as handled; answers those that were pending.
    pub async fn ack(&self, ids: &[String]) -> Result<Vec<String>, ClientError> {
        let path = format!("/mailbox/{}/ack", self.local());
        let answer = self.signed(reqwest::Method::POST, &path, &[], Some(&json!({"ids": ids})), true).await?;
        let acked = answer.get("acked").and_then(Value::as_array).into_iter().flatten();
        Ok(acked.filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// What was sent and what became of it.
    pub async fn outbox(&self) -> Result<Vec<Value>, ClientError> {
        let answer = self.signed(reqwest::Method::GET, &format!("/outbox/{}", self.local()), &[], None, true).await?;
        Ok(answer.get("sent").and_then(Value::as_array).cloned().unwrap_or_default())
    }

    /// `{account, balance, contracts, mandates}` of the agent at its own house's ledger.
    pub async fn account(&self) -> Result<Value, ClientError> {
        self.signed(reqwest::Method::GET, &format!("/libro/cuenta/{}", self.address()), &[], None, true).await
    }

    pub async fn contract(&self, id: &str) -> Result<Value, ClientError> {
        let id: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
        self.signed(reqwest::Method::GET, &format!("/libro/contrato/{id}"), &[], None, true).await
    }

    /// What the verdict that ended a contract stands on, with the verdict; `verdict::replay` judges it again.
    pub async fn evidence(&self, contract: &str) -> Result<Value, ClientError> {
        let id: String = url::form_urlencoded::byte_serialize(contract.as_bytes()).collect();
        self.signed(reqwest::Method::GET, &format!("/libro/contrato/{id}/evidencia"), &[], None, true).await
    }

    /// The same from another house, of which this agent is a party's.
    pub async fn evidence_at(&self, house: &HouseClient, contract: &str) -> Result<Value, ClientError> {
        let doc = well_known(house).await?;
        let domain = Domain::parse(doc.get("domain").and_then(Value::as_str).unwrap_or_default())?;
        let host = lives_at(house, &DomainCard::verify(doc, &domain, None)?)?;
        let id: String = url::form_urlencoded::byte_serialize(contract.as_bytes()).collect();
        let path = format!("/libro/contrato/{id}/evidencia");
        let authorize = || Ok(Some(self.token("GET", &path, &host)));
        house.json(self.call(reqwest::Method::GET, &path, None, &authorize, true)).await
    }

    /// The statement of the agent's account; `query` may set `desde`, `hasta` and `limit`.
    pub async fn statement(&self, query: &[(&str, String)]) -> Result<Value, ClientError> {
        self.signed(reqwest::Method::GET, "/libro/estado", &self.own_account(query), None, true).await
    }

    /// The same as the house's CSV.
    pub async fn statement_csv(&self, query: &[(&str, String)]) -> Result<Vec<u8>, ClientError> {
        let mut query = self.own_account(query);
        query.push(("formato", "csv".to_owned()));
        self.domain_card().await?;
        let authorize = || self.credential("GET", "/libro/estado").map(Some);
        let mut call = self.call(reqwest::Method::GET, "/libro/estado", None, &authorize, true);
        call.query = &query;
        self.house.bytes(call).await
    }

    /// Orders the ledger of the agent's own house; the id names the order in receipts and bounces.
    pub async fn operate(&self, op: &Value) -> Result<String, ClientError> {
        let libro = self.domain_card().await?.domain.system(SystemName::Libro);
        self.operate_at(&libro, op).await
    }

    /// Orders the ledger of a house. An order travels in clear: the ledger reads it.
    pub async fn operate_at(&self, libro: &Address, op: &Value) -> Result<String, ClientError> {
        Ok(self.send(&Message::order(libro, op)).await?.id)
    }

    /// Waits until the ledger answered an order of this id, or the letter came back.
    pub async fn wait_receipt(&self, id: &str, within: Duration) -> Result<Receipt, ClientError> {
        let started = tokio::time::Instant::now();
        let mut pause_ms = RECEIPT_POLL_FIRST_MS;
        loop {
            for mail in self.inbox(limits::MAILBOX_PAGE_MAX).await? {
                if let Some(answer) = self.answer_to(id, &mail).await? {
                    return answer;
                }
            }
            let left = within.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(ClientError::NoReceipt { id: id.to_owned(), waited_s: within.as_secs() });
            }
            tokio::time::sleep(Duration::from_millis(pause_ms).min(left)).await;
            pause_ms = (pause_ms * 3 / 2).min(RECEIPT_POLL_MAX_MS);
        }
    }

    /// The content of a letter, opened if it was sealed for this agent: `{media, body}`.
    pub fn open(&self, mail: &Mail) -> Result<Value, Refusal> {
        let envelope = mail.envelope();
        let Some(sealed) = envelope.get("encrypted").filter(|sealed| !sealed.is_null()) else {
            return Ok(envelope.get("content").cloned().unwrap_or_default());
        };
        let key = self.identity.enc.as_ref();
        let key =
            key.ok_or_else(|| Refusal::new(Rule::BadEnvelope, "this identity has no encryption key to open it with"))?;
        let to: Vec<String> = texts(envelope.get("to"));
        let (id, from) = (mail.id(), mail.from());
        seal::open(sealed, &Binding { id, from, to: &to }, self.address(), &key.0)
    }

    /// The envelope of a letter, with its signature checked against the sender's card as it is now.
    pub async fn verified(&self, mail: &Mail) -> Result<Verified, ClientError> {
        let envelope = Envelope::parse(mail.envelope().clone(), limits::AGENT_ANSWER_BYTES_MAX)?;
        let card = self.card(&envelope.from).await?;
        Ok(envelope.verify(card, self.clock.now())?)
    }

    /// A signed GET or POST of the agent, with the house known first.
    pub async fn signed(
        &self,
        method: reqwest::Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&Value>,
        repeatable: bool,
    ) -> Result<Value, ClientError> {
        self.domain_card().await?;
        let authorize = || self.credential(method.as_str(), path).map(Some);
        let mut call = self.call(method.clone(), path, body, &authorize, repeatable);
        call.query = query;
        self.house.json(call).await
    }

    fn call<'a>(
        &self,
        method: reqwest::Method,
        path: &'a str,
        body: Option<&'a Value>,
        authorize: &'a (dyn Fn() -> Result<Option<String>, ClientError> + Sync),
        repeatable: bool,
    ) -> Call<'a> {
        Call { method, path, query: &[], body, authorize, repeatable, timeout_ms: limits::AGENT_CALL_MS }
    }

    fn local(&self) -> &str {
        self.identity.address.local()
    }

    fn own_account<'a>(&self, query: &[(&'a str, String)]) -> Vec<(&'a str, String)> {
        let mut query = query.to_vec();
        query.push(("account", self.address().to_string()));
        query
    }

    async fn fetch_domain_card(&self) -> Result<DomainCard, ClientError> {
        let domain = self.address().domain();
        let doc = well_known(&self.house).await?;
        let signer = Signature::of(&doc, "signature").map(|signature| signature.kid.to_owned());
        let next = self.identity.next_house_key.as_ref().filter(|key| signer.is_some_and(|kid| key.is_kid(&kid)));
        let card = DomainCard::verify(doc, &domain, next.or(self.identity.house_key.as_ref()))?;
        lives_at(&self.house, &card)?;
        Ok(card)
    }

    fn credential(&self, method: &str, path: &str) -> Result<String, ClientError> {
        let card = self.domain.get().ok_or_else(|| ClientError::Setup("the house is not known yet".into()))?;
        let host =
            host_of(&card.estafeta).ok_or_else(|| self.bad("the estafeta URL of the domain card has no host"))?;
        Ok(self.token(method, path, &host))
    }

    fn token(&self, method: &str, path: &str, host: &str) -> String {
        let nonce = uuid::Uuid::new_v4().to_string();
        Token::header(self.address(), &self.identity.sig, Request { method, path, host }, self.clock.now(), &nonce)
    }

    fn registration(&self, joining: &Joining) -> Value {
        let mut body = json!({"local": self.local(), "sig": self.identity.sig.public().kid()});
        let enc = self.identity.enc.as_ref().map(|enc| Value::from(enc.0.public().text()));
        let text = |text: &Option<String>| text.as_deref().map(Value::from);
        let fields = [
            ("enc", enc),
            ("capabilities", joining.capabilities.clone()),
            ("inbox", joining.inbox.clone()),
            ("visibility", text(&joining.visibility)),
            ("profile", joining.profile.clone()),
            ("webhook", text(&joining.webhook)),
            ("source", text(&joining.source)),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                body[name] = value;
            }
        }
        body
    }

    /// What a letter says of an order: `None` when it says nothing of it, or says it without the house's signature.
    async fn answer_to(&self, id: &str, mail: &Mail) -> Result<Option<Result<Receipt, ClientError>>, ClientError> {
        let doc = mail.envelope();
        let says = |name: &str| doc.get(name).and_then(Value::as_str);
        if says("in_reply_to") != Some(id) || says("type") != Some(Kind::Receipt.as_str()) {
            return Ok(None);
        }
        let Ok(envelope) = Envelope::parse(doc.clone(), limits::AGENT_ANSWER_BYTES_MAX) else { return Ok(None) };
        let from = envelope.from.clone();
        let ours = &self.domain_card().await?.domain;
        let ledger = from.local() == SystemName::Libro.as_str();
        if !ledger && !from.is_system(ours, SystemName::Postmaster) {
            return Ok(None);
        }
        let card = self.card(&from).await?;
        let Ok(verified) = envelope.verify(card, self.clock.now()) else { return Ok(None) };
        let body = verified.envelope().body().cloned().unwrap_or_default();
        if ledger {
            return Ok(Some(Ok(Receipt { body, envelope: doc.clone() })));
        }
        if body.get("status").and_then(Value::as_str) != Some("failed") {
            return Ok(None);
        }
        let reason = body.get("reason").and_then(Value::as_str).unwrap_or("no reason given").to_owned();
        let code = reason.split_once('(').and_then(|(_, rest)| rest.split_once(')')?.0.trim().parse().ok());
        Ok(Some(Err(ClientError::Bounced { id: id.to_owned(), reason, code, letter: mail.id().to_owned() })))
    }

    fn bad(&self, why: &str) -> ClientError {
        ClientError::BadAnswer { url: self.house.url().to_owned(), why: why.to_owned() }
    }
}

impl Message {
    /// A text, for nobody yet.
    pub fn text(body: &str) -> Message {
        Message {
            to: Vec::new(),
            kind: Kind::Message,
            media: "text/plain".to_owned(),
            body: body.into(),
            thread: None,
            privacy: Privacy::Auto,
            in_reply_to: None,
            expires: None,
            deliver_after: None,
            receipt: false,
            stamp: None,
            extensions: Map::new(),
            files: Vec::new(),
        }
    }

    /// An operation for the ledger of a house.
    pub fn order(libro: &Address, op: &Value) -> Message {
        Message {
            to: vec![libro.clone()],
            kind: Kind::Task,
            media: OP_MEDIA.to_owned(),
            body: op.clone(),
            thread: op.get("contract").and_then(Value::as_str).map(str::to_owned),
            privacy: Privacy::Clear,
            ..Message::text("")
        }
    }
}

impl Mail {
    pub fn envelope(&self) -> &Value {
        self.record.get("envelope").unwrap_or(&Value::Null)
    }

    pub fn id(&self) -> &str {
        self.envelope().get("id").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn from(&self) -> &str {
        self.envelope().get("from").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn received(&self) -> Option<Timestamp> {
        self.record.get("received").and_then(Value::as_str).and_then(Timestamp::parse)
    }

    pub fn is_sealed(&self) -> bool {
        self.envelope().get("encrypted").is_some_and(|sealed| !sealed.is_null())
    }
}

impl ClientError {
    /// Whether the house, or this side before anything left, said no for good: then nothing was taken.
    fn is_final(&self) -> bool {
        match self {
            ClientError::Refused { status, .. } => !retryable(*status),
            ClientError::Local(_) | ClientError::Setup(_) => true,
            _ => false,
        }
    }

    /// How long to wait before the same request again; `None` when that would not help.
    fn pause_ms(&self, wait_ms: u64) -> Option<u64> {
        match self {
            ClientError::Unreachable { .. } => Some(wait_ms),
            ClientError::Refused { status, retry_after, .. } if retryable(*status) => match retry_after {
                Some(seconds) => seconds.checked_mul(1_000).filter(|ms| *ms <= RETRY_AFTER_WILLING_MS),
                None => Some(wait_ms),
            },
            _ => None,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options { extra_roots: Vec::new(), clock: Arc::new(SystemClock) }
    }
}

/// The machine's clock.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Timestamp::from_millis(since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// The host that credentials for a house are bound to. A house that says it lives elsewhere could pass the credentials it
/// is shown on to the house there.
fn lives_at(house: &HouseClient, card: &DomainCard) -> Result<String, ClientError> {
    let bad = |why: String| ClientError::BadAnswer { url: house.url().to_owned(), why };
    let said = host_of(&card.estafeta).ok_or_else(|| bad("the estafeta URL of the domain card has no host".into()))?;
    if host_of(house.url()).as_ref() != Some(&said) && !house.is_loopback() {
        return Err(bad(format!("the house says that it lives at {}; use that URL", card.estafeta)));
    }
    Ok(said)
}

/// The public directory of a house, without being anybody.
pub async fn directory(house: &HouseClient, query: &[(&str, String)]) -> Result<Value, ClientError> {
    house.json(public("/agents", query)).await
}

/// The domain card of a house, not verified.
pub async fn well_known(house: &HouseClient) -> Result<Value, ClientError> {
    house.json(public("/.well-known/nyx5.json", &[])).await
}

/// An agent's card as anybody sees it, not verified.
pub async fn public_card(house: &HouseClient, address: &Address) -> Result<Value, ClientError> {
    house.json(public(&format!("/agents/{}", address.local()), &[])).await
}

fn public<'a>(path: &'a str, query: &'a [(&'a str, String)]) -> Call<'a> {
    Call {
        method: reqwest::Method::GET,
        path,
        query,
        body: None,
        authorize: &|| Ok(None),
        repeatable: true,
        timeout_ms: limits::AGENT_CALL_MS,
    }
}

/// Whoever reads the operator's token can issue tokens: it never crosses an open network in clear.
fn bearer(house: &HouseClient, token: &str) -> Result<String, ClientError> {
    if !house.keeps_secrets() {
        let why = format!("the operator's token would travel in clear to {}; use its https URL", house.url());
        return Err(ClientError::Setup(why));
    }
    Ok(format!("Bearer {}", token.trim()))
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let listed = value.and_then(Value::as_array).into_iter().flatten();
    listed.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn chance() -> Result<SealChance, ClientError> {
    let mut bytes = Zeroizing::new([0u8; 88]);
    getrandom::fill(bytes.as_mut_slice())
        .map_err(|e| ClientError::Setup(format!("the system's random generator does not answer: {e}")))?;
    let mut chance =
        SealChance { content_key: Zeroizing::new([0; 32]), ephemeral: [0; 32], content_iv: [0; 12], wrap_iv: [0; 12] };
    chance.content_key.copy_from_slice(&bytes[..32]);
    chance.ephemeral.copy_from_slice(&bytes[32..64]);
    chance.content_iv.copy_from_slice(&bytes[64..76]);
    chance.wrap_iv.copy_from_slice(&bytes[76..88]);
    Ok(chance)
}

const RECEIPT_POLL_FIRST_MS: u64 = 60;
const RECEIPT_POLL_MAX_MS: u64 = 1_000;
const RETRY_AFTER_WILLING_MS: u64 = 5_000;
/// Work that a client does for a letter without asking: seconds at most.
const POW_BITS_WILLING: u32 = 24;
