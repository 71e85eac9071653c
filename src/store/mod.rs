//! Durable records: one writer, many readers, one SQLite file.
//!
//! What the store promises:
//! - **Acknowledged is durable.** A reply leaves only after the transaction that holds everything it implies is on the
//!   disk (`synchronous=FULL`, read back at every start).
//! - **All or nothing.** The changes of a decision are kept together or not at all, and are applied to exactly the
//!   records that the decision looked at. A refusal, fault or panic undoes nothing of its neighbours.
//! - **One house, one process.** A lock held for the life of the process keeps a second one away from the same file.
//! - **A fault of the disk ends it.** After one, no write is attempted or acknowledged until a restart; see
//!   [`Store::poisoned`]. A full disk only refuses, and writing goes on when there is room again.
//! - **No statement walks history.** Time and memory of a command do not grow with the age of the house.
//!
//! Deliberately absent: rules (they are pure, in `libro`, `mail` and `arbiter`) and any repair of a damaged file.

mod apply;
mod claim;
mod filing;
mod index;
mod kept;
mod late;
mod reader;
mod rows;
mod schema;
pub mod sql;
mod writer;

pub use reader::{Counts, DirectoryQuery, EventRow, MailFilter, Reader};
pub use schema::Settings;

use crate::limits;
use crate::record::{Decided, View};
use crate::refusal::{Refusal, Rule};
use reader::Pool;
use rows::Rows;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{mpsc, oneshot, watch};
use writer::{Command, Message, Writer};

/// A handle on the house's records; clones are the same store.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

/// The store could not do its part. Whose fault it is stands in the name; none of these is the caller's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("the disk failed: {0}")]
    Io(String),
    #[error("the disk is full; nothing was changed")]
    Full,
    #[error("the store is busy; nothing was changed")]
    Busy,
    #[error("the disk failed earlier; nothing is written until the house is started again")]
    Poisoned,
    #[error("the store was written by a newer program (version {found}, this one knows {known}); use that program")]
    Newer { found: i64, known: u32 },
    #[error("another process has this store open; end it first")]
    Locked,
    #[error("{0} is a database of another program; name another path")]
    Foreign(String),
    #[error("the store is closed")]
    Closed,
    #[error("conflict: {0}")]
    Conflict(String),
    #[error("a bug of ours, nothing was changed: {0}")]
    Bug(String),
}

/// Why a command changed nothing: a rule said no, or the store could not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error(transparent)]
    Refused(Refusal),
    #[error(transparent)]
    Store(#[from] StoreError),
}

struct Inner {
    messages: Option<mpsc::Sender<Message>>,
    thread: Option<JoinHandle<()>>,
    pool: Arc<Pool>,
    poison: watch::Receiver<Option<String>>,
    turns: claim::Turns,
    settings: Settings,
}

impl Store {
    /// Opens the store in this file, creating or migrating it, with as many connections for readers.
    pub fn open(path: &Path, readers: usize) -> Result<Store, StoreError> {
        let lock = lock(path)?;
        create(path)?;
        let conn = schema::open_writer(path)?;
        claim::release_all(&conn)?;
        filing::refile(&conn)?;
        let settings = schema::settings(&conn)?;
        let pool = Pool::open(path, readers)?;
        let (to_writer, messages) = mpsc::channel(limits::STORE_QUEUE_MAX);
        let (poison, poisoned) = watch::channel(None);
        let writer = Writer::new(conn, messages, poison, lock);
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(|| writer.serve())?;
        Ok(Store(Arc::new(Inner {
            messages: Some(to_writer),
            thread: Some(thread),
            pool: Arc::new(pool),
            poison: poisoned,
            turns: claim::Turns::default(),
            settings,
        })))
    }

    /// Runs a rule inside one durable transaction. The reply comes after everything the rule asked for is on the disk.
    ///
    /// Dropping the future leaves the outcome unknown: the rule may or may not have run. A rule must not call the
    /// store.
    pub async fn transact<T, F>(&self, rule: F) -> Result<T, Denied>
    where
        T: Send + 'static,
        F: Fn(&dyn View) -> Decided<T> + Send + Sync + 'static,
    {
        self.run(move |rows| {
            let decided = rule(rows);
            // A decision over records that could not be read is no decision, even if it is a refusal.
            if let Some(fault) = rows.take_fault() {
                return Err(Denied::Store(fault));
            }
            let decision = decided.map_err(Denied::Refused)?;
            late::make(rows, decision.changes)?;
            Ok(decision.reply)
        })
        .await
    }

    /// Runs queries over one snapshot, beside the writer.
    pub async fn read<T, F>(&self, queries: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Reader<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        Arc::clone(&self.0.pool).read(queries).await
    }

    /// Resolves when the disk has failed, with what it said: the process should end with exit code 74 and be started
    /// again. Never resolves otherwise.
    pub async fn poisoned(&self) -> String {
        let mut poison = self.0.poison.clone();
        match poison.wait_for(Option::is_some).await.map(|reason| reason.clone()) {
            Ok(reason) => reason.unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    pub fn is_poisoned(&self) -> bool {
        self.0.poison.borrow().is_some()
    }

    /// What SQLite said that it runs under when the store was opened.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Finishes what is queued, moves the log into the file and closes it. Later calls answer [`StoreError::Closed`].
    pub async fn close(&self) -> Result<(), StoreError> {
        self.0.pool.close();
        let (done, outcome) = oneshot::channel();
        self.send(Message::Close(done)).await?;
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Runs statements inside one durable transaction, after everything that was decided before them.
    async fn command<T, F>(&self, mut work: F) -> Result<T, Denied>
    where
        T: Send + 'static,
        F: FnMut(&Rows<'_>) -> Result<T, Denied> + Send + 'static,
    {
        self.run(move |rows| {
            late::settle(rows)?;
            work(rows)
        })
        .await
    }

    async fn run<T, F>(&self, work: F) -> Result<T, Denied>
    where
        T: Send + 'static,
        F: FnMut(&Rows<'_>) -> Result<T, Denied> + Send + 'static,
    {
        let (to, outcome) = oneshot::channel();
        self.send(Message::Run(Box::new(Call { work, outcome: None, to }))).await?;
        outcome.await.unwrap_or(Err(Denied::Store(StoreError::Closed)))
    }

    async fn send(&self, message: Message) -> Result<(), StoreError> {
        let Some(messages) = &self.0.messages else { return Err(StoreError::Closed) };
        let wait = Duration::from_millis(limits::STORE_QUEUE_WAIT_MS);
        messages.send_timeout(message, wait).await.map_err(|refused| match refused {
            SendTimeoutError::Timeout(_) => StoreError::Busy,
            SendTimeoutError::Closed(_) => StoreError::Closed,
        })
    }
}

impl Drop for Inner {
    /// Waits for the writer, so that whoever opens the file next finds it unlocked.
    fn drop(&mut self) {
        self.pool.close();
        self.messages = None;
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl StoreError {
    /// The same fault where nothing but a working disk explains it: it poisons the store.
    fn fatal(self) -> StoreError {
        match self {
            StoreError::Io(reason) => StoreError::Io(reason),
            other => StoreError::Io(other.to_string()),
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        let Some(code) = error.sqlite_error() else { return StoreError::Bug(error.to_string()) };
        match code.code {
            Code::DiskFull => StoreError::Full,
            Code::DatabaseBusy | Code::DatabaseLocked => StoreError::Busy,
            Code::ConstraintViolation if UNIQUE.contains(&code.extended_code) => {
                StoreError::Conflict(error.to_string())
            }
            Code::SystemIoFailure
            | Code::DatabaseCorrupt
            | Code::NotADatabase
            | Code::CannotOpen
            | Code::PermissionDenied
            | Code::ReadOnly
            | Code::OutOfMemory
            | Code::FileLockingProtocolFailed
            | Code::NoLargeFileSupport => StoreError::Io(format!("{error} (sqlite {})", code.extended_code)),
            _ => StoreError::Bug(error.to_string()),
        }
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull => StoreError::Full,
            _ => StoreError::Io(error.to_string()),
        }
    }
}

impl Denied {
    /// What the caller is told. The store's own troubles are for the log: a peer learns only that it may try again.
    pub fn into_refusal(self) -> Refusal {
        match self {
            Denied::Refused(refusal) => refusal,
            Denied::Store(StoreError::Conflict(_)) => {
                Refusal::new(Rule::Conflict, "another operation came first; send the same again")
            }
            Denied::Store(_) => {
                Refusal::new(Rule::StoreUnavailable, "the house cannot write now; send the same again later")
                    .retry_after(limits::STORE_RETRY_AFTER_SECONDS)
            }
        }
    }

    fn into_fault(self) -> StoreError {
        match self {
            Denied::Store(fault) => fault,
            Denied::Refused(refusal) => StoreError::Bug(refusal.to_string()),
        }
    }
}

/// One piece of work and the caller who waits for its outcome.
struct Call<T, F> {
    work: F,
    outcome: Option<Result<T, Denied>>,
    to: oneshot::Sender<Result<T, Denied>>,
}

impl<T, F> Command for Call<T, F>
where
    T: Send,
    F: FnMut(&Rows<'_>) -> Result<T, Denied> + Send,
{
    fn abandoned(&self) -> bool {
        self.to.is_closed()
    }

    fn run(&mut self, rows: &Rows<'_>) -> bool {
        self.outcome.insert((self.work)(rows)).is_ok()
    }

    fn fault(&self) -> Option<StoreError> {
        match &self.outcome {
            Some(Err(Denied::Store(fault))) => Some(fault.clone()),
            _ => None,
        }
    }

    fn fail(&mut self, fault: StoreError) {
        self.outcome = Some(Err(Denied::Store(fault)));
    }

    fn reply(self: Box<Self>) {
        let outcome = self.outcome.unwrap_or(Err(Denied::Store(StoreError::Closed)));
        let _ = self.to.send(outcome);
    }
}

/// Takes the lock beside the file; it lasts until the returned handle is dropped, however the process ends.
fn lock(path: &Path) -> Result<File, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE)
        .open(PathBuf::from(name))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Makes sure that the file exists, is private, and that its name survives a power cut.
fn create(path: &Path) -> Result<(), StoreError> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(PRIVATE).open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(std::fs::Permissions::from_mode(PRIVATE))?;
    }
    file.sync_all()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(File::open(folder)?.sync_all()?)
}

const PRIVATE: u32 = 0o600;
const UNIQUE: [i32; 3] = [
    rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE,
    rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY,
    rusqlite::ffi::SQLITE_CONSTRAINT_ROWID,
];
