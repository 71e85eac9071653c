//! The tables, their numbered migrations and the settings of a connection.
//!
//! A migration is never edited once it has been released: a new one is added at the end. All that are missing run in
//! one transaction, so a store is of its old version or of the new one. A store that a later program wrote is refused.
//! Settings on which a promise rests are read back after they are set, because SQLite ignores what it does not accept.

use super::StoreError;
use crate::limits;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// What the store runs under, as read back from SQLite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub journal_mode: String,
    /// 2 is FULL: every commit is on the disk before it is acknowledged.
    pub synchronous: i64,
    pub foreign_keys: i64,
    pub trusted_schema: i64,
    pub application_id: i64,
    pub user_version: i64,
    pub wal_autocheckpoint: i64,
}

/// The version that this program writes.
pub fn version() -> u32 {
    MIGRATIONS.len() as u32
}

/// Opens the writer's connection, creates or migrates the tables, and asserts the settings.
pub fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    let mut conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let found = user_version(&conn)?;
    if found > i64::from(version()) {
        return Err(StoreError::Newer { found, known: version() });
    }
    let marked = pragma(&conn, "application_id")?;
    if marked != i64::from(APPLICATION_ID) && (marked != 0 || found != 0 || has_tables(&conn)?) {
        return Err(StoreError::Foreign(path.display().to_string()));
    }
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "wal_autocheckpoint", limits::STORE_WAL_BACKSTOP_PAGES)?;
    conn.pragma_update(None, "journal_size_limit", limits::STORE_WAL_KEEP_BYTES)?;
    conn.pragma_update(None, "cache_size", -limits::STORE_WRITER_CACHE_KIB)?;
    migrate(&mut conn, MIGRATIONS)?;
    assert_settings(&settings(&conn)?)?;
    Ok(conn)
}

/// Opens one of the connections that only read.
pub fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.pragma_update(None, "query_only", true)?;
    conn.pragma_update(None, "cache_size", -limits::STORE_READER_CACHE_KIB)?;
    Ok(conn)
}

pub fn settings(conn: &Connection) -> Result<Settings, StoreError> {
    Ok(Settings {
        journal_mode: conn.query_row("PRAGMA journal_mode", [], |row| row.get(0))?,
        synchronous: pragma(conn, "synchronous")?,
        foreign_keys: pragma(conn, "foreign_keys")?,
        trusted_schema: pragma(conn, "trusted_schema")?,
        application_id: pragma(conn, "application_id")?,
        user_version: user_version(conn)?,
        wal_autocheckpoint: pragma(conn, "wal_autocheckpoint")?,
    })
}

/// Runs the migrations that this file has not had, all in one transaction.
pub fn migrate(conn: &mut Connection, migrations: &[&str]) -> Result<(), StoreError> {
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let had = usize::try_from(user_version(&tx)?).unwrap_or(usize::MAX);
    if had > migrations.len() {
        return Err(StoreError::Newer { found: user_version(&tx)?, known: migrations.len() as u32 });
    }
    if had < migrations.len() {
        for migration in &migrations[had..] {
            tx.execute_batch(migration)?;
        }
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", migrations.len() as i64)?;
    }
    tx.commit()?;
    Ok(())
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection, StoreError> {
    let conn = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(Duration::from_millis(limits::STORE_BUSY_MS))?;
    // A close must not hide a failed checkpoint: the writer makes its last one itself and looks at the outcome.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.pragma_update(None, "cell_size_check", true)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.set_prepared_statement_cache_capacity(super::sql::ALL.len() + 16);
    Ok(conn)
}

fn assert_settings(found: &Settings) -> Result<(), StoreError> {
    let wanted = Settings {
        journal_mode: "wal".to_owned(),
        synchronous: 2,
        foreign_keys: 1,
        trusted_schema: 0,
        application_id: i64::from(APPLICATION_ID),
        user_version: i64::from(version()),
        wal_autocheckpoint: limits::STORE_WAL_BACKSTOP_PAGES,
    };
    if *found == wanted {
        return Ok(());
    }
    Err(StoreError::Io(format!("sqlite runs with {found:?} where the store's promises need {wanted:?}")))
}

fn pragma(conn: &Connection, name: &str) -> Result<i64, StoreError> {
    Ok(conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))?)
}

fn user_version(conn: &Connection) -> Result<i64, StoreError> {
    pragma(conn, "user_version")
}

fn has_tables(conn: &Connection) -> Result<bool, StoreError> {
    Ok(conn.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))?)
}

/// "NYX5": marks a file as ours, so that no other program's database is migrated by mistake.
const APPLICATION_ID: i32 = 0x4E59_5835;

/// Documents are kept whole, as JSON text, so that unknown fields and signatures survive. A column beside them exists
/// only where a query needs it. Times are milliseconds since the epoch.
const MIGRATIONS: &[&str] = &[
    "
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE domain_card (one INTEGER PRIMARY KEY CHECK (one = 1), doc TEXT NOT NULL) STRICT;

CREATE TABLE agent (
    local TEXT NOT NULL PRIMARY KEY,
    card TEXT NOT NULL,
    webhook TEXT,
    notify_email TEXT,
    registered_via TEXT NOT NULL,
    system INTEGER NOT NULL CHECK (system IN (0, 1)),
    created INTEGER NOT NULL,
    listed INTEGER NOT NULL CHECK (listed IN (0, 1)),
    words TEXT NOT NULL
) STRICT;
CREATE INDEX agent_listed ON agent (local) WHERE listed = 1;
CREATE TABLE agent_tag (
    kind TEXT NOT NULL CHECK (kind IN ('capability', 'accepts')),
    name TEXT NOT NULL,
    local TEXT NOT NULL REFERENCES agent (local),
    PRIMARY KEY (kind, name, local)
) STRICT, WITHOUT ROWID;
CREATE INDEX agent_tag_of ON agent_tag (local);

CREATE TABLE invitation (
    code TEXT NOT NULL PRIMARY KEY,
    uses INTEGER NOT NULL CHECK (uses >= 0),
    used INTEGER NOT NULL CHECK (used BETWEEN 0 AND uses),
    expires INTEGER,
    note TEXT,
    welcome INTEGER,
    created INTEGER NOT NULL,
    by_whom TEXT NOT NULL,
    last_used INTEGER
) STRICT;
CREATE INDEX invitation_created ON invitation (created);

CREATE TABLE mailbox (
    seq INTEGER PRIMARY KEY,
    local TEXT NOT NULL,
    id TEXT NOT NULL,
    sender TEXT NOT NULL,
    thread TEXT,
    received INTEGER NOT NULL,
    visible_from INTEGER,
    shown INTEGER NOT NULL,
    acked INTEGER,
    meta TEXT NOT NULL,
    envelope TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX mailbox_once ON mailbox (local, id, sender);
CREATE INDEX mailbox_pending ON mailbox (local, shown, seq) WHERE acked IS NULL AND visible_from IS NULL;
CREATE INDEX mailbox_deferred ON mailbox (local, visible_from, seq) WHERE acked IS NULL AND visible_from IS NOT NULL;

CREATE TABLE seen (
    sender TEXT NOT NULL,
    id TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    at INTEGER NOT NULL,
    accepted TEXT NOT NULL,
    PRIMARY KEY (sender, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE job (
    job TEXT NOT NULL PRIMARY KEY,
    from_local TEXT NOT NULL,
    domain TEXT NOT NULL,
    created INTEGER NOT NULL,
    wake INTEGER,
    claimed_until INTEGER,
    doc TEXT NOT NULL
) STRICT;
CREATE INDEX job_wake ON job (wake, domain, job) WHERE wake IS NOT NULL;
CREATE INDEX job_domain ON job (domain, wake, job) WHERE wake IS NOT NULL;
CREATE INDEX job_outbox ON job (from_local, created);

CREATE TABLE look (
    contract TEXT NOT NULL PRIMARY KEY,
    seller TEXT NOT NULL,
    wake INTEGER,
    lease_until INTEGER,
    doc TEXT NOT NULL
) STRICT;
CREATE INDEX look_wake ON look (wake, seller, contract) WHERE wake IS NOT NULL;
CREATE INDEX look_seller ON look (seller, wake, contract) WHERE wake IS NOT NULL;
CREATE INDEX look_lease ON look (seller, lease_until) WHERE lease_until IS NOT NULL;

CREATE TABLE rate (
    name TEXT NOT NULL,
    minute INTEGER NOT NULL,
    hits INTEGER NOT NULL,
    PRIMARY KEY (name, minute)
) STRICT, WITHOUT ROWID;
CREATE INDEX rate_minute ON rate (minute);

CREATE TABLE nonce (name TEXT NOT NULL PRIMARY KEY, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX nonce_at ON nonce (at);

CREATE TABLE entry (n INTEGER PRIMARY KEY, id TEXT NOT NULL, at INTEGER NOT NULL, doc TEXT NOT NULL) STRICT;
CREATE INDEX entry_at ON entry (at, n);
CREATE TABLE line (
    account TEXT NOT NULL,
    n INTEGER NOT NULL REFERENCES entry (n),
    i INTEGER NOT NULL,
    delta INTEGER NOT NULL,
    -- the account's balance after this line, and which of the account's entries this is
    balance INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    PRIMARY KEY (account, n, i)
) STRICT, WITHOUT ROWID;
CREATE TABLE account (
    name TEXT NOT NULL PRIMARY KEY,
    balance INTEGER NOT NULL,
    entries INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE contract (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    quote_id TEXT UNIQUE,
    state TEXT NOT NULL,
    open INTEGER NOT NULL CHECK (open IN (0, 1)),
    updated INTEGER NOT NULL,
    doc TEXT NOT NULL
) STRICT;
CREATE INDEX contract_open ON contract (state, updated, id) WHERE open = 1;
CREATE TABLE party (
    address TEXT NOT NULL,
    contract INTEGER NOT NULL REFERENCES contract (seq),
    PRIMARY KEY (address, contract)
) STRICT, WITHOUT ROWID;

CREATE TABLE mandate (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    doc TEXT NOT NULL
) STRICT;
CREATE TABLE mandate_party (
    address TEXT NOT NULL,
    mandate INTEGER NOT NULL REFERENCES mandate (seq),
    PRIMARY KEY (address, mandate)
) STRICT, WITHOUT ROWID;
-- only while the mandate is active
CREATE TABLE mandate_chain (
    link TEXT NOT NULL,
    id TEXT NOT NULL REFERENCES mandate (id),
    PRIMARY KEY (link, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE seal (
    id TEXT NOT NULL PRIMARY KEY,
    sha256 TEXT NOT NULL,
    by_whom TEXT NOT NULL,
    at INTEGER NOT NULL,
    doc TEXT NOT NULL,
    UNIQUE (sha256, by_whom)
) STRICT;
CREATE INDEX seal_hash ON seal (sha256, at, id);

CREATE TABLE operation (
    sender TEXT NOT NULL,
    id TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    at INTEGER NOT NULL,
    result TEXT NOT NULL,
    UNIQUE (sender, id)
) STRICT;

CREATE TABLE observation (
    sha256 TEXT NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    contract TEXT NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
CREATE INDEX observation_contract ON observation (contract, at);

CREATE TABLE pin (domain TEXT NOT NULL PRIMARY KEY, key TEXT NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    seq INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
CREATE INDEX event_name ON event (name, at, seq);
",
    "
CREATE TABLE seen_for (
    contract TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    at INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (contract, sha256)
) STRICT;
INSERT INTO seen_for SELECT contract, sha256, at, bytes FROM observation;
DROP TABLE observation;
ALTER TABLE seen_for RENAME TO observation;

CREATE TABLE evidence (
    contract TEXT NOT NULL PRIMARY KEY,
    ended INTEGER,
    sha256 TEXT NOT NULL,
    at INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
CREATE INDEX evidence_ended ON evidence (ended, contract) WHERE ended IS NOT NULL;
",
    "
ALTER TABLE mailbox ADD COLUMN project TEXT;
-- What was received and sent, by conversation. `seq` is twice the number of the row in `mailbox`, or one more than twice
-- that of the first job that the letter had in `job`.
CREATE TABLE talk (
    seq INTEGER PRIMARY KEY,
    local TEXT NOT NULL,
    contact TEXT NOT NULL,
    project TEXT,
    at INTEGER NOT NULL,
    id TEXT NOT NULL,
    job TEXT,
    counted INTEGER NOT NULL CHECK (counted IN (0, 1)),
    read_by TEXT,
    read_at INTEGER
) STRICT;
CREATE UNIQUE INDEX talk_sent ON talk (local, id) WHERE job IS NOT NULL;
CREATE INDEX talk_page ON talk (local, contact, at, seq) WHERE counted = 1;
CREATE INDEX talk_project ON talk (local, contact, project, at, seq) WHERE counted = 1 AND project IS NOT NULL;
CREATE INDEX talk_waiting ON talk (local, at) WHERE counted = 0;
-- one row a contact, with an empty project, and one for each project that its letters name
CREATE TABLE conversation (
    local TEXT NOT NULL,
    contact TEXT NOT NULL,
    project TEXT NOT NULL,
    count INTEGER NOT NULL,
    pending INTEGER NOT NULL CHECK (pending >= 0),
    filed INTEGER NOT NULL CHECK (filed >= 0),
    last_at INTEGER NOT NULL,
    last_in INTEGER NOT NULL CHECK (last_in IN (0, 1)),
    last_id TEXT NOT NULL,
    PRIMARY KEY (local, contact, project)
) STRICT, WITHOUT ROWID;
CREATE INDEX conversation_newest ON conversation (local, project, last_at, contact);
CREATE INDEX conversation_projects ON conversation (local, contact, last_at, project) WHERE project <> '';
",
    "
CREATE TABLE presence (local TEXT NOT NULL PRIMARY KEY, hour INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX presence_hour ON presence (hour);

-- calls that are due, one for each letter to an agent that is called
CREATE TABLE push (
    seq INTEGER PRIMARY KEY,
    local TEXT NOT NULL,
    sender TEXT NOT NULL,
    id TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    first INTEGER NOT NULL,
    wake INTEGER NOT NULL,
    UNIQUE (local, sender, id)
) STRICT;
CREATE INDEX push_wake ON push (wake, local, seq);
CREATE INDEX push_local ON push (local, wake, seq);

-- `nth` says which of its name an event is, so that nobody counts history
ALTER TABLE event ADD COLUMN nth INTEGER NOT NULL DEFAULT 0;
UPDATE event SET nth = numbered.nth
    FROM (SELECT seq, row_number() OVER (PARTITION BY name ORDER BY seq) AS nth FROM event) AS numbered
    WHERE numbered.seq = event.seq;
CREATE TABLE event_count (name TEXT NOT NULL PRIMARY KEY, n INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO event_count SELECT name, count(*) FROM event GROUP BY name;
CREATE INDEX event_at ON event (at, seq);
",
    "
CREATE INDEX agent_delegated ON agent (json_extract(card, '$.delegation.by'), local)
    WHERE json_extract(card, '$.delegation.by') IS NOT NULL;
ALTER TABLE pin ADD COLUMN next TEXT;
",
    "
CREATE TABLE blob (
    blob TEXT NOT NULL PRIMARY KEY,
    coming INTEGER NOT NULL CHECK (coming IN (0, 1)),
    until INTEGER NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    doc TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_until ON blob (until, blob);
CREATE INDEX blob_coming ON blob (blob) WHERE coming = 1;
-- what each sender handed in, by day of UTC
CREATE TABLE blob_day (
    day INTEGER NOT NULL,
    sender TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (day, sender)
) STRICT, WITHOUT ROWID;
",
    "
-- the federated index: houses that are crawled, their cards, and the order in which walks see them
CREATE TABLE index_state (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    generation INTEGER NOT NULL,
    -- orders of earlier generations cannot be reproduced
    floor INTEGER NOT NULL,
    houses INTEGER NOT NULL,
    agents INTEGER NOT NULL
) STRICT;
CREATE TABLE index_house (
    domain TEXT NOT NULL PRIMARY KEY,
    estafeta TEXT NOT NULL,
    added INTEGER NOT NULL,
    last_ok INTEGER,
    fails INTEGER NOT NULL,
    agents INTEGER NOT NULL,
    reputation TEXT NOT NULL,
    wake INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX index_house_wake ON index_house (wake);
CREATE TABLE index_agent (
    address TEXT NOT NULL PRIMARY KEY,
    house TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    card TEXT NOT NULL,
    score INTEGER,
    jobs INTEGER NOT NULL,
    price INTEGER,
    ends INTEGER
) STRICT;
CREATE INDEX index_agent_house ON index_agent (house, address);
CREATE TABLE index_term (term TEXT NOT NULL, address TEXT NOT NULL, PRIMARY KEY (term, address)) STRICT, WITHOUT ROWID;
CREATE INDEX index_term_of ON index_term (address);
-- where an agent stood from one generation up to another
CREATE TABLE index_rank (
    rank INTEGER NOT NULL,
    address TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (rank, address, since)
) STRICT, WITHOUT ROWID;
CREATE INDEX index_rank_now ON index_rank (rank, address) WHERE until = 9223372036854775807;
CREATE UNIQUE INDEX index_rank_of ON index_rank (address, since);
CREATE TABLE index_gone (
    address TEXT NOT NULL PRIMARY KEY,
    generation INTEGER NOT NULL,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX index_gone_at ON index_gone (at);
",
    "
-- ids of quotes are their seller's
UPDATE contract SET quote_id = json_extract(doc, '$.seller') || ' ' || quote_id WHERE quote_id IS NOT NULL;
",
];

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &[&str] = &["CREATE TABLE a (x INTEGER) STRICT; INSERT INTO a VALUES (7);"];
    const NEW: &[&str] = &[
        OLD[0],
        "CREATE TABLE b (y INTEGER) STRICT; INSERT INTO b SELECT x + 1 FROM a;",
        "ALTER TABLE b ADD COLUMN z INTEGER; UPDATE b SET z = y * 2;",
    ];

    fn memory() -> Connection {
        Connection::open_in_memory().expect("memory")
    }

    #[test]
    fn an_older_file_is_brought_forward_and_a_second_run_does_nothing() {
        let mut conn = memory();
        migrate(&mut conn, OLD).expect("old");
        assert_eq!(user_version(&conn), Ok(1));
        for _ in 0..2 {
            migrate(&mut conn, NEW).expect("new");
            let row: (i64, i64) = conn.query_row("SELECT y, z FROM b", [], |r| Ok((r.get(0)?, r.get(1)?))).expect("b");
            assert_eq!(row, (8, 16));
            assert_eq!(user_version(&conn), Ok(3));
        }
        assert_eq!(pragma(&conn, "application_id"), Ok(i64::from(APPLICATION_ID)));
    }

    #[test]
    fn observations_of_the_first_version_are_kept() {
        let mut conn = memory();
        migrate(&mut conn, &MIGRATIONS[..1]).expect("the first version");
        conn.execute("INSERT INTO observation (sha256, at, contract, bytes) VALUES ('ab', 7, 'c', x'00ff')", [])
            .expect("kept");
        migrate(&mut conn, MIGRATIONS).expect("this version");
        let row: (String, i64, Vec<u8>) = conn
            .query_row("SELECT sha256, at, bytes FROM observation WHERE contract = 'c'", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .expect("still kept");
        assert_eq!(row, ("ab".to_owned(), 7, vec![0, 255]));
    }

    #[test]
    fn a_migration_that_fails_half_way_leaves_the_old_version() {
        let mut conn = memory();
        migrate(&mut conn, OLD).expect("old");
        let broken = &[NEW[0], NEW[1], "UPDATE nowhere SET z = 1;"];
        assert!(migrate(&mut conn, broken).is_err());
        assert_eq!(user_version(&conn), Ok(1));
        assert!(conn.prepare("SELECT y FROM b").is_err(), "the second migration must not stay");
        migrate(&mut conn, NEW).expect("the mended list runs");
        assert_eq!(user_version(&conn), Ok(3));
    }

    #[test]
    fn a_file_of_a_later_version_is_refused() {
        let mut conn = memory();
        migrate(&mut conn, NEW).expect("new");
        assert_eq!(migrate(&mut conn, OLD), Err(StoreError::Newer { found: 3, known: 1 }));
    }

    #[test]
    fn settings_that_break_a_promise_are_named() {
        let good = Settings {
            journal_mode: "wal".to_owned(),
            synchronous: 2,
            foreign_keys: 1,
            trusted_schema: 0,
            application_id: i64::from(APPLICATION_ID),
            user_version: i64::from(version()),
            wal_autocheckpoint: limits::STORE_WAL_BACKSTOP_PAGES,
        };
        assert_eq!(assert_settings(&good), Ok(()));
        for bad in [
            Settings { synchronous: 1, ..good.clone() },
            Settings { journal_mode: "delete".to_owned(), ..good.clone() },
            Settings { foreign_keys: 0, ..good.clone() },
            Settings { trusted_schema: 1, ..good.clone() },
            Settings { user_version: 0, ..good.clone() },
        ] {
            assert!(matches!(assert_settings(&bad), Err(StoreError::Io(_))), "{bad:?}");
        }
    }
}
