//! Start and end of a house.
//!
//! Start: the store, whose books these are, the house's own agents and card, then workers, then the doors; whoever gets a
//! connection gets answers. End: readiness goes false, the doors close, requests and deliveries under way finish within
//! the deadline, the store closes last. What could not finish is still in the store and comes back with the next start.

use super::arbiter::{Arbiter, ArbiterOptions, Ledger};
use super::offer::offer_again;
use super::{blobs, index, push, queue};
use crate::client::agent::SystemClock;
use crate::client::dns::{SystemDns, TxtLookup};
use crate::client::peer::Peers;
use crate::client::resolver::{HostOverride, Resolver};
use crate::client::tls;
use crate::limits;
use crate::mail;
use crate::objects::{ObjectFault, Objects, Place};
use crate::observe::jobs::Jobs;
use crate::probe::address::{AddressRule, Network};
use crate::record::{Change, Decision, House};
use crate::refusal::Refusal;
use crate::sandbox;
use crate::server::{App, Doors, Listener, Tls, router};
use crate::store::{Store, StoreError};
use crate::time::Clock;
use crate::wire::address::Domain;
use rustls::pki_types::CertificateDer;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Where the doors are.
pub enum Listen {
    At(SocketAddr),
    /// A socket that is bound already: for whoever must know the port before the house has its URL.
    Bound(std::net::TcpListener),
}

/// PEM files; read at start, again when they change, and on [`Running::reload_tls`].
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificates: PathBuf,
    pub key: PathBuf,
}

/// All that a house needs to run.
pub struct ServeOptions {
    pub house: House,
    pub listen: Listen,
    pub tls: Option<TlsFiles>,
    /// Who may say, beside a proxy on this host, for whom it asks.
    pub trusted_proxies: Vec<Network>,
    /// The file of the store.
    pub store: PathBuf,
    /// Where attachments lie; nowhere where the house's settings say that it holds none.
    pub attachments: Place,
    pub admin_token: Option<SecretString>,
    pub hosts: BTreeMap<Domain, HostOverride>,
    /// Trusted beside the compiled-in roots when other houses are called.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// Which addresses a stranger's house may have.
    pub peer_addresses: AddressRule,
    pub clock: Arc<dyn Clock>,
    pub dns: Arc<dyn TxtLookup>,
    /// What the arbiter looks through; without it this house makes no looks of its own.
    pub arbiter: Option<ArbiterOptions>,
    /// How long an end in order may take.
    pub drain: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{0}")]
    Setup(String),
    #[error("the doors cannot open at {at}: {error}")]
    Listen { at: String, error: std::io::Error },
    #[error("the store {}: {error}", path.display())]
    Store { path: PathBuf, error: StoreError },
    #[error("the store {} holds the books of {found}; this house is {expected}", path.display())]
    AnotherHouse { path: PathBuf, found: String, expected: Domain },
    #[error("{0}")]
    Objects(ObjectFault),
    #[error("the house's own cards: {0}")]
    Cards(Refusal),
}

/// A house that runs. Dropping it ends everything at once.
pub struct Running {
    pub doors: Arc<Doors>,
    /// The unspecified address for what has no doors.
    pub local_addr: SocketAddr,
    stopping: CancellationToken,
    listener: Option<Listener>,
    workers: Vec<JoinHandle<()>>,
    tls: Option<(Tls, TlsFiles)>,
    drain: Duration,
    jobs: Option<Jobs>,
    /// Whether the card of verifica@ is kept here.
    own_card: bool,
}

/// What an end in order left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut at the deadline.
    pub connections_cut: usize,
    /// Workers that had not finished; their work comes back with the next start.
    pub workers_cut: usize,
    /// The store finished and closed.
    pub store_closed: bool,
}

impl ServeOptions {
    /// Defaults for everything but what a house cannot be without.
    pub fn new(house: House, listen: Listen, store: PathBuf) -> ServeOptions {
        let attachments = Place::Folder(store.with_file_name("attachments"));
        ServeOptions {
            attachments,
            house,
            listen,
            tls: None,
            trusted_proxies: Vec::new(),
            store,
            admin_token: None,
            hosts: BTreeMap::new(),
            extra_roots: Vec::new(),
            peer_addresses: AddressRule::default(),
            clock: Arc::new(SystemClock),
            dns: Arc::new(SystemDns::new()),
            arbiter: None,
            drain: Duration::from_millis(limits::DRAIN_MS),
        }
    }
}

/// Starts a house and answers when its doors are open.
pub async fn serve(options: ServeOptions) -> Result<Running, ServeError> {
    let tls = match options.tls {
        Some(files) => Some((read_tls(&files).map_err(ServeError::Setup)?, files)),
        None => None,
    };
    let listener = bind(options.listen).await?;
    let house = Arc::new(options.house);
    let store = open_store(&options.store, &house.domain).await?;
    let client = tls::client_config(&options.extra_roots).map_err(ServeError::Setup)?;
    let callers = Peers::new(&client, house.settings.addresses.clone()).map_err(ServeError::Setup)?;
    let place = if house.settings.attachments.is_some() { options.attachments } else { Place::Nowhere };
    let to_bucket = tls::http_client(&client, limits::BUCKET_CALL_MS).map_err(ServeError::Setup)?;
    let objects = Objects::open(place, to_bucket).await.map_err(ServeError::Objects)?.map(Arc::new);
    let peers = Peers::new(&client, options.peer_addresses).map_err(ServeError::Setup)?;
    let clock = options.clock;
    let resolver = Resolver::new(house.clone(), store.clone(), clock.clone(), peers, options.dns, options.hosts);
    let resolver = Arc::new(resolver.map_err(ServeError::Setup)?);
    let token = options.admin_token.as_ref().map(|token| token.expose_secret());
    let doors = Arc::new(Doors::new(house, store, resolver, clock, token));
    install_own_cards(&doors).await.map_err(ServeError::Cards)?;
    let stopping = CancellationToken::new();
    if let Some(objects) = &objects {
        blobs::recover(&doors, objects).await.map_err(ServeError::Cards)?;
    }
    let mut workers = vec![
        tokio::spawn(queue::run(doors.clone(), stopping.clone())),
        tokio::spawn(push::run(doors.clone(), callers, stopping.clone())),
        tokio::spawn(housekeeping(doors.clone(), stopping.clone())),
    ];
    if let Some(objects) = &objects {
        workers.push(tokio::spawn(blobs::run(doors.clone(), objects.clone(), stopping.clone())));
    }
    if doors.house().settings.index {
        workers.push(tokio::spawn(index::run(doors.clone(), stopping.clone())));
    }
    let jobs = options.arbiter.as_ref().and_then(|options| options.jobs.clone());
    if jobs.is_some() {
        // Whatever a house that crashed has left behind of its jobs.
        let _ = tokio::task::spawn_blocking(sandbox::sweep).await;
    }
    if let Some(options) = options.arbiter {
        let arbiter = Arbiter::new(doors.clone(), Ledger::Own, options);
        workers.push(tokio::spawn(arbiter.run(stopping.clone())));
    }
    let app = Arc::new(App::new(doors.clone(), stopping.clone()).holding(objects));
    let secured = tls.as_ref().map(|(tls, _)| tls.clone());
    let listener = Listener::start(listener, secured, router(app.clone()), options.trusted_proxies, stopping.clone());
    let listener = listener.map_err(|error| ServeError::Listen { at: "its socket".to_owned(), error })?;
    app.started();
    let local_addr = listener.local_addr();
    tracing::info!(event = "ready", domain = %doors.house().domain, listen = %local_addr);
    if let Some((tls, files)) = &tls {
        workers.push(tokio::spawn(watch_tls(tls.clone(), files.clone(), stopping.clone())));
    }
    let listener = Some(listener);
    Ok(Running { doors, local_addr, stopping, listener, workers, tls, drain: options.drain, jobs, own_card: true })
}

impl Running {
    /// Workers over a store, with nothing that listens.
    pub(super) fn without_doors(
        doors: Arc<Doors>,
        stopping: CancellationToken,
        workers: Vec<JoinHandle<()>>,
        drain: Duration,
        jobs: Option<Jobs>,
    ) -> Running {
        let local_addr = SocketAddr::from(([0, 0, 0, 0], 0));
        Running { doors, local_addr, stopping, listener: None, workers, tls: None, drain, jobs, own_card: false }
    }

    /// Cancelled when the end has begun; what runs beside the house ends with it.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// A worker that belongs to this house: it is waited for at the end. It must end when [`Running::stopping`] says so.
    pub fn adopt(&mut self, worker: JoinHandle<()>) {
        self.workers.push(worker);
    }

    /// Resolves when the disk has failed: the process must end and be started again.
    pub async fn poisoned(&self) -> String {
        self.doors.store.poisoned().await
    }

    /// Reads the certificate and key again; a pair that cannot be used changes nothing. Answers whether there is TLS.
    pub fn reload_tls(&self) -> Result<bool, String> {
        let Some((tls, files)) = &self.tls else { return Ok(false) };
        let (certificates, key) = read_pair(files)?;
        tls.replace(&certificates, &key)?;
        tracing::info!(event = "tls_reloaded");
        Ok(true)
    }

    /// Asks this host again what it can run; verifica@'s card says what it answers. Answers whether that is news.
    pub async fn offer_again(&self) -> Result<bool, String> {
        match &self.jobs {
            Some(jobs) => offer_again(&self.doors, jobs, self.own_card).await,
            None => Ok(false),
        }
    }

    /// Ends in order: no new connections, what is under way finishes, at most until the deadline.
    pub async fn shutdown(mut self) -> Drained {
        tracing::info!(event = "draining");
        self.stopping.cancel();
        self.doors.wakes.everybody();
        let deadline = tokio::time::Instant::now() + self.drain;
        let connections_cut = match self.listener.take() {
            Some(listener) => listener.drained(self.drain).await,
            None => 0,
        };
        let mut workers_cut = 0;
        for mut worker in std::mem::take(&mut self.workers) {
            if tokio::time::timeout_at(deadline, &mut worker).await.is_err() {
                worker.abort();
                workers_cut += 1;
            }
        }
        let store_closed = self.doors.store.close().await.is_ok();
        tracing::info!(event = "stopped", connections_cut, workers_cut, store_closed);
        Drained { connections_cut, workers_cut, store_closed }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.workers.iter().for_each(JoinHandle::abort);
    }
}

pub(super) async fn open_store(path: &Path, domain: &Domain) -> Result<Store, ServeError> {
    let failed = |error: StoreError| ServeError::Store { path: path.to_owned(), error };
    let file = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || Store::open(&file, limits::STORE_READERS)).await;
    let store = opened.unwrap_or_else(|e| Err(StoreError::Bug(e.to_string()))).map_err(failed)?;
    let card = store.read(|reader| reader.domain_card()).await.map_err(failed)?;
    match card.as_ref().and_then(|card| card.get("domain")).and_then(Value::as_str) {
        Some(found) if found != domain.as_str() => {
            Err(ServeError::AnotherHouse { path: path.to_owned(), found: found.to_owned(), expected: domain.clone() })
        }
        _ => Ok(store),
    }
}

/// The house's own agents and its card, made at the first start and made anew when what they say has changed.
pub(super) async fn install_own_cards(doors: &Doors) -> Result<(), Refusal> {
    let (house, now) = (doors.house(), doors.now());
    let stored = doors.read(|reader| reader.domain_card()).await?;
    let active = stored.as_ref().and_then(|card| card.pointer("/keys/0/sig")?.as_str());
    // The card of the house comes last: a stop in between begins again.
    if active.is_some_and(|kid| !house.key.public().is_kid(kid)) {
        certify_agents(doors, &house).await?;
    }
    let install = doors.commit(move |view| {
        let mut changes = mail::system_cards(&house, view, now)?;
        let card = mail::cards::domain_card(&house, stored.as_ref(), now);
        if stored.as_ref() != Some(&card) {
            changes.push(Change::PutDomainCard(card));
        }
        Ok(Decision { changes, reply: () })
    });
    install.await
}

/// The house's key is another one than before: every agent's card is certified with it before the doors open.
async fn certify_agents(doors: &Doors, house: &Arc<House>) -> Result<(), Refusal> {
    let (mut after, mut done) = (String::new(), 0);
    loop {
        let from = after.clone();
        let page = doors.read(move |reader| reader.agents_after(&from, limits::CERTIFIED_AT_ONCE)).await?;
        let Some(last) = page.last() else { break };
        after = last.local.as_str().to_owned();
        let house = house.clone();
        done += doors
            .commit(move |view| {
                let current = page.iter().filter_map(|record| view.agent(record.local.as_str()));
                let changes = mail::cards::recertified(&house, current.collect())?;
                Ok(Decision { reply: changes.len(), changes })
            })
            .await?;
    }
    tracing::info!(event = "agents_certified_anew", agents = done);
    Ok(())
}

pub(super) async fn housekeeping(doors: Arc<Doors>, stopping: CancellationToken) {
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(limits::HOUSEKEEPING_MS)) => {}
        }
        if let Err(error) = doors.store.housekeeping(doors.now(), doors.house().settings.evidence_keep_ms).await {
            tracing::warn!(event = "housekeeping_failed", error = %error);
        }
    }
}

/// Takes a new certificate and key into use when their files change. A pair that cannot be used changes nothing: the two
/// may be half written, and are looked at again when they change once more.
async fn watch_tls(tls: Tls, files: TlsFiles, stopping: CancellationToken) {
    let mut known = None;
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(limits::TLS_WATCH_MS)) => {}
        }
        let (from, before) = (files.clone(), known.take());
        let read = tokio::task::spawn_blocking(move || (read_pair(&from), before)).await;
        let Ok((pair, before)) = read else { continue };
        known = match pair {
            Ok(pair) if before.as_ref() == Some(&pair) => before,
            Ok(pair) => {
                match tls.replace(&pair.0, &pair.1) {
                    Ok(()) => tracing::info!(event = "tls_reloaded"),
                    Err(why) => tracing::warn!(event = "tls_not_reloaded", why = %why),
                }
                Some(pair)
            }
            Err(why) => {
                tracing::debug!(event = "tls_not_read", why = %why);
                before
            }
        };
    }
}

async fn bind(listen: Listen) -> Result<TcpListener, ServeError> {
    let (at, bound) = match listen {
        Listen::At(at) => (at.to_string(), TcpListener::bind(at).await),
        Listen::Bound(socket) => {
            let bound = socket.set_nonblocking(true).and_then(|()| TcpListener::from_std(socket));
            ("its socket".to_owned(), bound)
        }
    };
    bound.map_err(|error| ServeError::Listen { at, error })
}

fn read_pair(files: &TlsFiles) -> Result<(Vec<u8>, Vec<u8>), String> {
    let read = |path: &PathBuf| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    Ok((read(&files.certificates)?, read(&files.key)?))
}

fn read_tls(files: &TlsFiles) -> Result<Tls, String> {
    let (certificates, key) = read_pair(files)?;
    Tls::from_pem(&certificates, &key)
}
