//! The arbiter alone, beside a house that another program runs: verifica@'s key, the house's public doors, and a store of
//! its own for what it knows and has decided.
//!
//! It finds work in verifica@'s mailbox (every party is told of its contracts) and, for what no letter said, in
//! verifica@'s account; it reads the contracts, makes the same looks under the same rules as at home, and hands the
//! verdict to `/outbound`. A letter is only a reason to ask the house: nothing that it says is believed.
//!
//! A verdict is in the store before it is posted, and its id follows from the contract and the delivery: after a crash or
//! a lost answer the same bytes go out again, and a house takes them once. While the house cannot be asked nothing is
//! decided about its contracts. A verdict that the ledger bounces is not replaced: the log has it, and people may settle.
//! The card of verifica@ is the house's to keep, and the evidence of verdicts stays in this store.

use super::arbiter::{Arbiter, ArbiterOptions, Ledger};
use super::serve::{Running, ServeError, housekeeping, open_store};
use crate::arbiter::follow::{self, Followed};
use crate::arbiter::settle::Posted;
use crate::client::agent::{AgentClient, ClientError, Identity, Mail, Options};
use crate::client::dns::SystemDns;
use crate::client::peer::Peers;
use crate::client::resolver::Resolver;
use crate::client::tls;
use crate::limits;
use crate::probe::address::AddressRule;
use crate::record::{Change, Decision, House};
use crate::refusal::{Refusal, Rule};
use crate::server::Doors;
use crate::time::Clock;
use crate::wire::address::SystemName;
use crate::wire::envelope::Envelope;
use crate::wire::key::PublicKey;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// All that the arbiter needs to run beside a house.
pub struct WatchOptions {
    /// The house as its arbiter knows it: domain, URL, and the key of verifica@.
    pub house: House,
    /// The file of the arbiter's own store.
    pub store: PathBuf,
    /// The key of the house's card, where the operator knows it; otherwise the first one seen.
    pub house_key: Option<PublicKey>,
    /// Trusted beside the compiled-in roots when the house is called.
    pub extra_roots: Vec<CertificateDer<'static>>,
    pub clock: Arc<dyn Clock>,
    pub arbiter: ArbiterOptions,
    /// How long an end in order may take.
    pub drain: Duration,
}

/// Starts the arbiter beside a house, which need not be up. What is answered has no doors of its own.
pub async fn watch(options: WatchOptions) -> Result<Running, ServeError> {
    let identity = Identity {
        address: options.house.address(SystemName::Verifica),
        house: options.house.public_url.clone(),
        house_key: options.house_key,
        next_house_key: None,
        sig: options.house.key.clone(),
        enc: None,
    };
    let asked = Options { extra_roots: options.extra_roots.clone(), clock: options.clock.clone() };
    let client = AgentClient::new(identity, asked).map_err(|error| ServeError::Setup(error.to_string()))?;
    let house = Arc::new(options.house);
    let store = open_store(&options.store, &house.domain).await?;
    let roots = tls::client_config(&options.extra_roots).map_err(ServeError::Setup)?;
    let peers = Peers::new(&roots, AddressRule::default()).map_err(ServeError::Setup)?;
    let (clock, dns) = (options.clock, Arc::new(SystemDns::new()));
    let resolver = Resolver::new(house.clone(), store.clone(), clock.clone(), peers, dns, BTreeMap::new());
    let resolver = Arc::new(resolver.map_err(ServeError::Setup)?);
    let doors = Arc::new(Doors::new(house, store, resolver, clock, None));
    remember_house(&doors).await.map_err(ServeError::Cards)?;
    let beside = Arc::new(Beside { client, doors: doors.clone() });
    let stopping = CancellationToken::new();
    let (tick, jobs) = (options.arbiter.tick, options.arbiter.jobs.clone());
    if jobs.is_some() {
        let _ = tokio::task::spawn_blocking(crate::sandbox::sweep).await;
    }
    let arbiter = Arbiter::new(doors.clone(), Ledger::Beside(beside.clone()), options.arbiter);
    let workers = vec![
        tokio::spawn(beside.find(tick, stopping.clone())),
        tokio::spawn(arbiter.run(stopping.clone())),
        tokio::spawn(housekeeping(doors.clone(), stopping.clone())),
    ];
    tracing::info!(event = "watching", domain = %doors.house().domain);
    Ok(Running::without_doors(doors, stopping, workers, options.drain, jobs))
}

/// The house beside which this arbiter stands.
pub(super) struct Beside {
    client: AgentClient,
    doors: Arc<Doors>,
}

impl Beside {
    /// Asks the house how a contract stands, and keeps what it says.
    pub(super) async fn read(&self, id: &str) -> Result<Followed, ClientError> {
        let doc = self.client.contract(id).await?;
        self.keep(id, doc).await
    }

    /// Hands a verdict to the house. An answer that did not come says nothing: the same bytes go again.
    pub(super) async fn post(&self, verdict: &Value) -> Posted {
        let refused = |code: u16, reason: String| Posted::Refused { code, reason };
        let envelope = match Envelope::parse(verdict.clone(), limits::REQUEST_BODY_MAX) {
            Ok(envelope) => envelope,
            Err(refusal) => return refused(refusal.code(), refusal.reason),
        };
        match self.client.post(&envelope).await {
            Ok(answer) if answer.get("ok") == Some(&Value::Bool(true)) => Posted::Taken,
            Ok(_) => refused(Rule::PeerUnreachable.code(), "whoever answered is not the house".to_owned()),
            Err(ClientError::Refused { status, reason, .. }) => refused(status, reason),
            Err(error) => refused(Rule::PeerUnreachable.code(), error.to_string()),
        }
    }

    /// Looks for work until `stopping`, less often while the house does not answer.
    async fn find(self: Arc<Self>, tick: Duration, stopping: CancellationToken) {
        let longest = Duration::from_millis(limits::WATCH_RETRY_MAX_MS).max(tick);
        let (mut pause, mut account_due) = (tick, Instant::now());
        loop {
            let round = async {
                if Instant::now() >= account_due {
                    self.read_account().await?;
                    account_due = Instant::now() + Duration::from_millis(limits::WATCH_ACCOUNT_MS);
                }
                self.read_mailbox().await
            };
            tokio::select! {
                () = stopping.cancelled() => return,
                found = round => match found {
                    Ok(()) => pause = tick,
                    Err(error) => {
                        tracing::warn!(event = "house_not_read", error = %error);
                        pause = (pause * 2).min(longest);
                        // Letters may have come and gone unread meanwhile.
                        account_due = Instant::now();
                    }
                }
            }
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Contracts that no letter told of, or whose letter was lost.
    async fn read_account(&self) -> Result<(), ClientError> {
        let account = self.client.account().await?;
        let contracts = account.get("contracts").and_then(Value::as_array);
        for doc in contracts.into_iter().flatten() {
            let id = doc.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
            self.keep_sound(&id, doc.clone()).await?;
        }
        Ok(())
    }

    /// Contracts that the ledger's letters name. Letters are marked as handled once what they told of is kept; nobody
    /// else reads this mailbox.
    async fn read_mailbox(&self) -> Result<(), ClientError> {
        let house = self.doors.house();
        let (libro, postmaster) = (house.address(SystemName::Libro), house.address(SystemName::Postmaster));
        let letters = self.client.inbox(limits::MAILBOX_PAGE_MAX).await?;
        let mut named = BTreeSet::new();
        for letter in &letters {
            if letter.from() == libro.as_str() {
                named.extend(contract_in(letter));
            } else if letter.from() == postmaster.as_str() {
                let body = letter.envelope().pointer("/content/body").cloned().unwrap_or_default();
                let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or("-").to_owned();
                if text("status") == "failed" {
                    tracing::error!(event = "verdict_bounced", of = text("of"), reason = text("reason"));
                }
            }
        }
        for id in named {
            match self.client.contract(&id).await {
                Ok(doc) => self.keep_sound(&id, doc).await?,
                // Not this arbiter's business, or none at all.
                Err(ClientError::Refused { status: 400 | 403 | 404, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let ids: Vec<String> = letters.iter().map(|letter| letter.id().to_owned()).collect();
        if !ids.is_empty() {
            self.client.ack(&ids).await?;
        }
        Ok(())
    }

    /// As [`Beside::keep`]; a document that cannot be used is said and passed over, so that it stops no other.
    async fn keep_sound(&self, id: &str, doc: Value) -> Result<(), ClientError> {
        match self.keep(id, doc).await {
            Ok(_) => Ok(()),
            Err(ClientError::Local(refusal)) if !refusal.transient() => {
                tracing::warn!(event = "contract_not_usable", contract = id, reason = %refusal);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn keep(&self, id: &str, doc: Value) -> Result<Followed, ClientError> {
        let (house, now) = (self.doors.house(), self.doors.now());
        let contract = follow::shown(&house, id, doc)?;
        let followed = self.doors.commit(move |view| Ok(follow::follow(&house, view, now, &contract))).await?;
        if followed == Followed::Work {
            tracing::info!(event = "contract_to_judge", contract = id);
            self.doors.wakes.arbiter.notify_one();
        }
        Ok(followed)
    }
}

/// The contract that a receipt is about, as its id or whole.
fn contract_in(letter: &Mail) -> Option<String> {
    let contract = letter.envelope().pointer("/content/body/contract")?;
    let id = contract.as_str().or_else(|| contract.get("id")?.as_str())?;
    Some(id.to_owned())
}

/// A store serves one house: the next start finds out whose contracts these are.
async fn remember_house(doors: &Doors) -> Result<(), Refusal> {
    let known = doors.read(|reader| reader.domain_card()).await?;
    let domain = doors.house().domain.clone();
    let note = doors.commit(move |_| {
        let changes = match known {
            Some(_) => Vec::new(),
            None => vec![Change::PutDomainCard(json!({"domain": domain}))],
        };
        Ok(Decision { changes, reply: () })
    });
    note.await
}
