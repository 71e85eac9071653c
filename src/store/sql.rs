//! Every statement that the store runs while it serves, in one list.
//!
//! The list is what `tests/store.rs` explains to itself: no statement may walk a table that grows with history. A
//! statement that is not here is not run, except for the settings and migrations of `schema`.

macro_rules! statements {
    ($( $name:ident = $text:literal; )+) => {
        $( pub const $name: &str = $text; )+
        /// Name and text of each statement.
        pub const ALL: &[(&str, &str)] = &[ $( (stringify!($name), $name) ),+ ];
    };
}

statements! {
    // transactions
    BEGIN = "BEGIN IMMEDIATE";
    BEGIN_READ = "BEGIN";
    COMMIT = "COMMIT";
    ROLLBACK = "ROLLBACK";
    SAVEPOINT = "SAVEPOINT command";
    RELEASE = "RELEASE command";
    UNDO = "ROLLBACK TO command";
    WAL_PAGES = "PRAGMA wal_checkpoint(NOOP)";
    CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)";
    CHECKPOINT_RESTART = "PRAGMA wal_checkpoint(RESTART)";
    CHECKPOINT_TRUNCATE = "PRAGMA wal_checkpoint(TRUNCATE)";

    // the house
    META = "SELECT value FROM meta WHERE name = ?1";
    META_FIRST = "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    META_ADD = "INSERT INTO meta (name, value) VALUES (?1, '1')
        ON CONFLICT DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)";
    DOMAIN_CARD = "SELECT doc FROM domain_card WHERE one = 1";
    PUT_DOMAIN_CARD = "INSERT INTO domain_card (one, doc) VALUES (1, ?1) ON CONFLICT DO UPDATE SET doc = excluded.doc";

    // agents
    AGENT = "SELECT local, card, webhook, notify_email, registered_via, system, created FROM agent WHERE local = ?1";
    AGENTS_AFTER = "SELECT local, card, webhook, notify_email, registered_via, system, created FROM agent
        WHERE local > ?1 ORDER BY local LIMIT ?2";
    SUBAGENTS = "SELECT local, card, webhook, notify_email, registered_via, system, created FROM agent
        WHERE json_extract(card, '$.delegation.by') = ?1 AND local > ?2 ORDER BY local LIMIT ?3";
    INSERT_AGENT = "INSERT INTO agent
        (local, card, webhook, notify_email, registered_via, system, created, listed, words)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    UPDATE_AGENT = "UPDATE agent SET card = ?2, webhook = ?3, notify_email = ?4, registered_via = ?5, system = ?6,
        created = ?7, listed = ?8, words = ?9 WHERE local = ?1";
    DELETE_TAGS = "DELETE FROM agent_tag WHERE local = ?1";
    INSERT_TAG = "INSERT INTO agent_tag (kind, name, local) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    DIRECTORY_TOTAL = "SELECT count(*) FROM agent WHERE listed = 1
        AND (?1 IS NULL OR EXISTS
            (SELECT 1 FROM agent_tag t WHERE t.kind = 'capability' AND t.name = ?1 AND t.local = agent.local))
        AND (?2 IS NULL OR EXISTS
            (SELECT 1 FROM agent_tag t WHERE t.kind = 'accepts' AND t.name = ?2 AND t.local = agent.local))
        AND (?3 IS NULL OR instr(words, ?3) > 0)";
    DIRECTORY = "SELECT card FROM agent WHERE listed = 1
        AND (?1 IS NULL OR EXISTS
            (SELECT 1 FROM agent_tag t WHERE t.kind = 'capability' AND t.name = ?1 AND t.local = agent.local))
        AND (?2 IS NULL OR EXISTS
            (SELECT 1 FROM agent_tag t WHERE t.kind = 'accepts' AND t.name = ?2 AND t.local = agent.local))
        AND (?3 IS NULL OR instr(words, ?3) > 0)
        ORDER BY local LIMIT ?4 OFFSET ?5";

    // invitations
    INVITATION = "SELECT code, uses, used, expires, note, welcome, created, by_whom, last_used
        FROM invitation WHERE code = ?1";
    INVITATIONS = "SELECT code, uses, used, expires, note, welcome, created, by_whom, last_used
        FROM invitation WHERE created <= ?1 ORDER BY created DESC LIMIT ?2";
    INSERT_INVITATION = "INSERT INTO invitation (code, uses, used, expires, note, welcome, created, by_whom, last_used)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    USE_INVITATION = "UPDATE invitation SET used = used + 1, last_used = ?2
        WHERE code = ?1 AND used < uses AND (expires IS NULL OR expires > ?2)";

    // mailboxes
    DELIVER = "INSERT INTO mailbox
        (local, id, sender, thread, received, visible_from, shown, acked, meta, envelope, project)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT DO NOTHING";
    ACKNOWLEDGE = "UPDATE mailbox SET acked = ?3 WHERE local = ?1 AND id = ?2 AND acked IS NULL
        AND (visible_from IS NULL OR visible_from <= ?3) RETURNING seq";
    PENDING = "SELECT local, id, sender, received, acked, visible_from, meta, envelope
        FROM mailbox WHERE local = ?1 AND id = ?2 AND acked IS NULL";
    MAILBOX = "SELECT local, id, sender, received, acked, visible_from, meta, envelope, shown, seq
        FROM mailbox INDEXED BY mailbox_pending WHERE local = ?1 AND acked IS NULL AND visible_from IS NULL
        ORDER BY shown DESC, seq DESC LIMIT ?2";
    MAILBOX_DEFERRED = "SELECT local, id, sender, received, acked, visible_from, meta, envelope, shown, seq
        FROM mailbox INDEXED BY mailbox_deferred WHERE local = ?1 AND acked IS NULL AND visible_from IS NOT NULL
        AND visible_from <= ?3 ORDER BY visible_from DESC, seq DESC LIMIT ?2";
    FIRST_PENDING = "SELECT local, id, sender, received, acked, visible_from, meta, envelope, shown, seq
        FROM mailbox INDEXED BY mailbox_pending WHERE local = ?1 AND acked IS NULL AND visible_from IS NULL
        AND shown > ?2 AND (?3 IS NULL OR sender = ?3) AND (?4 IS NULL OR thread = ?4 OR id = ?4)
        AND (?5 IS NULL OR project = ?5)
        ORDER BY shown, seq LIMIT 1";
    FIRST_DEFERRED = "SELECT local, id, sender, received, acked, visible_from, meta, envelope, shown, seq
        FROM mailbox INDEXED BY mailbox_deferred WHERE local = ?1 AND acked IS NULL AND visible_from IS NOT NULL
        AND visible_from <= ?6 AND shown > ?2
        AND (?3 IS NULL OR sender = ?3) AND (?4 IS NULL OR thread = ?4 OR id = ?4) AND (?5 IS NULL OR project = ?5)
        ORDER BY visible_from, seq LIMIT 1";

    // conversations
    FILE = "INSERT INTO talk (seq, local, contact, project, at, id, job, counted)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING";
    FILED = "SELECT contact, project, at, id, counted FROM talk WHERE seq = ?1";
    DEFERRED_DUE = "SELECT seq FROM talk INDEXED BY talk_waiting WHERE local = ?1 AND counted = 0 AND at <= ?2
        ORDER BY at LIMIT ?3";
    FILE_COUNTED = "UPDATE talk SET counted = 1 WHERE seq = ?1";
    COUNT_LETTER = "INSERT INTO conversation
        (local, contact, project, count, pending, filed, last_at, last_in, last_id)
        VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?8)
        ON CONFLICT DO UPDATE SET count = count + 1, pending = pending + excluded.pending,
        filed = filed + excluded.filed, last_at = max(last_at, excluded.last_at),
        last_in = iif(excluded.last_at >= last_at, excluded.last_in, last_in),
        last_id = iif(excluded.last_at >= last_at, excluded.last_id, last_id)";
    COUNT_HANDLED = "UPDATE conversation SET pending = pending - 1, filed = filed - ?4
        WHERE local = ?1 AND contact = ?2 AND project = ?3";
    SENT_OF = "SELECT t.seq, j.doc FROM talk t INDEXED BY talk_sent JOIN job j ON j.job = t.job
        WHERE t.local = ?1 AND t.id = ?2 AND t.job IS NOT NULL AND t.read_by IS NULL";
    MARK_READ = "UPDATE talk SET read_by = ?2, read_at = ?3 WHERE seq = ?1 AND read_by IS NULL";
    CONVERSATIONS = "SELECT contact, count, pending, filed, last_at, last_in, last_id
        FROM conversation INDEXED BY conversation_newest
        WHERE local = ?1 AND project = ?2 AND (last_at, contact) < (?3, ?4)
        ORDER BY last_at DESC, contact DESC LIMIT ?5";
    PROJECTS_OF = "SELECT project, pending FROM conversation INDEXED BY conversation_projects
        WHERE local = ?1 AND contact = ?2 AND project <> '' ORDER BY last_at DESC, project DESC LIMIT ?3";
    LETTERS = "SELECT t.id, t.at, t.seq, t.job, t.read_by, t.read_at, m.acked, m.envelope, j.doc
        FROM talk t INDEXED BY talk_page
        LEFT JOIN mailbox m ON t.job IS NULL AND m.seq = t.seq / 2 LEFT JOIN job j ON j.job = t.job
        WHERE t.local = ?1 AND t.contact = ?2 AND t.counted = 1 AND (t.at, t.seq) < (?3, ?4)
        ORDER BY t.at DESC, t.seq DESC LIMIT ?5";
    LETTERS_UNDER = "SELECT t.id, t.at, t.seq, t.job, t.read_by, t.read_at, m.acked, m.envelope, j.doc
        FROM talk t INDEXED BY talk_project
        LEFT JOIN mailbox m ON t.job IS NULL AND m.seq = t.seq / 2 LEFT JOIN job j ON j.job = t.job
        WHERE t.local = ?1 AND t.contact = ?2 AND t.project = ?6 AND t.project IS NOT NULL AND t.counted = 1
        AND (t.at, t.seq) < (?3, ?4) ORDER BY t.at DESC, t.seq DESC LIMIT ?5";
    JOB_NUMBER = "SELECT rowid FROM job WHERE job = ?1";
    REFILE_MAIL = "SELECT local, id, sender, received, acked, visible_from, meta, envelope, seq
        FROM mailbox WHERE seq > ?1 ORDER BY seq LIMIT ?2";
    REFILE_PROJECT = "UPDATE mailbox SET project = ?2 WHERE seq = ?1";
    REFILE_JOBS = "SELECT doc, rowid FROM job WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";

    // presence and calls
    LAST_SEEN = "SELECT hour FROM presence WHERE local = ?1";
    SEEN_IN = "INSERT INTO presence (local, hour) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET hour = excluded.hour";
    PRUNE_PRESENCE = "DELETE FROM presence WHERE local IN
        (SELECT local FROM presence WHERE hour < ?1 ORDER BY hour LIMIT ?2)";
    INSERT_PUSH = "INSERT INTO push (local, sender, id, attempts, first, wake) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT DO NOTHING";
    UPDATE_PUSH = "UPDATE push SET attempts = ?4, first = ?5, wake = ?6 WHERE local = ?1 AND sender = ?2 AND id = ?3";
    END_PUSH = "DELETE FROM push WHERE local = ?1 AND sender = ?2 AND id = ?3";
    PUSH_EARLIEST = "SELECT min(wake) FROM push";
    PUSHES_DUE = "SELECT local, CAST(seq AS TEXT) FROM push INDEXED BY push_wake WHERE wake <= ?1 ORDER BY wake LIMIT ?2";
    PUSH_NEXT_AGENT = "SELECT local FROM push WHERE local > ?1 ORDER BY local LIMIT 1";
    PUSHES_DUE_OF = "SELECT local, CAST(seq AS TEXT) FROM push INDEXED BY push_local
        WHERE local = ?1 AND wake <= ?2 ORDER BY wake LIMIT ?3";
    CLAIM_PUSH = "UPDATE push SET wake = max(wake, ?3) WHERE seq = CAST(?1 AS INTEGER) AND wake <= ?2
        RETURNING local, sender, id, attempts, first, wake";
    MAIL_OF = "SELECT local, id, sender, received, acked, visible_from, meta, envelope
        FROM mailbox WHERE local = ?1 AND id = ?2 AND sender = ?3";

    // attachments
    BLOB = "SELECT doc FROM blob WHERE blob = ?1";
    BLOB_HELD = "SELECT bytes FROM blob WHERE blob = ?1";
    PUT_BLOB = "INSERT INTO blob (blob, coming, until, bytes, doc) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT DO UPDATE SET coming = excluded.coming, until = excluded.until, bytes = excluded.bytes,
        doc = excluded.doc";
    DROP_BLOB = "DELETE FROM blob WHERE blob = ?1";
    BLOBS_DUE = "SELECT blob FROM blob INDEXED BY blob_until WHERE until <= ?1 ORDER BY until LIMIT ?2";
    BLOBS_COMING = "SELECT blob FROM blob INDEXED BY blob_coming WHERE coming = 1 ORDER BY blob LIMIT ?1";
    BLOB_DAY = "SELECT bytes FROM blob_day WHERE sender = ?1 AND day = ?2";
    COUNT_BLOBS = "INSERT INTO blob_day (sender, day, bytes) VALUES (?1, ?2, max(?3, 0))
        ON CONFLICT DO UPDATE SET bytes = max(bytes + ?3, 0)";
    PRUNE_BLOB_DAY = "DELETE FROM blob_day WHERE (day, sender) IN
        (SELECT day, sender FROM blob_day WHERE day < ?1 ORDER BY day LIMIT ?2)";
    META_SUM = "INSERT INTO meta (name, value) VALUES (?1, CAST(?2 AS TEXT))
        ON CONFLICT DO UPDATE SET value = CAST(CAST(value AS INTEGER) + ?2 AS TEXT)";

    // what was seen
    SEEN = "SELECT sha256, at, accepted FROM seen WHERE sender = ?1 AND id = ?2";
    PUT_SEEN = "INSERT INTO seen (sender, id, sha256, at, accepted) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT DO UPDATE SET accepted = excluded.accepted WHERE sha256 = excluded.sha256";
    RATE = "SELECT hits FROM rate WHERE name = ?1 AND minute = ?2";
    PUT_RATE = "INSERT INTO rate (name, minute, hits) VALUES (?1, ?2, ?3)
        ON CONFLICT DO UPDATE SET hits = excluded.hits";
    PRUNE_RATE = "DELETE FROM rate WHERE (name, minute) IN
        (SELECT name, minute FROM rate WHERE minute < ?1 ORDER BY minute LIMIT ?2)";
    NONCE = "SELECT 1 FROM nonce WHERE name = ?1";
    BURN_NONCE = "INSERT INTO nonce (name, at) VALUES (?1, ?2)";
    PRUNE_NONCE = "DELETE FROM nonce WHERE name IN (SELECT name FROM nonce WHERE at < ?1 ORDER BY at LIMIT ?2)";

    // the sending queue
    JOB = "SELECT doc FROM job WHERE job = ?1";
    PUT_JOB = "INSERT INTO job (job, from_local, domain, created, wake, claimed_until, doc)
        VALUES (?1, ?2, ?3, ?4, ?5, NULL, ?6)
        ON CONFLICT DO UPDATE SET from_local = excluded.from_local, domain = excluded.domain,
        created = excluded.created, wake = excluded.wake, claimed_until = NULL, doc = excluded.doc";
    OUTBOX = "SELECT doc FROM job WHERE from_local = ?1 ORDER BY created DESC, rowid DESC LIMIT ?2";
    QUEUE_LENGTH = "SELECT count(*) FROM job WHERE wake IS NOT NULL";
    JOB_EARLIEST = "SELECT min(wake) FROM job WHERE wake IS NOT NULL";
    JOBS_DUE = "SELECT domain, job FROM job WHERE wake IS NOT NULL AND wake <= ?1 ORDER BY wake LIMIT ?2";
    JOB_NEXT_DOMAIN = "SELECT domain FROM job WHERE wake IS NOT NULL AND domain > ?1 ORDER BY domain LIMIT 1";
    JOBS_DUE_OF = "SELECT domain, job FROM job INDEXED BY job_domain
        WHERE wake IS NOT NULL AND domain = ?1 AND wake <= ?2 ORDER BY wake LIMIT ?3";
    CLAIM_JOB = "UPDATE job SET claimed_until = ?3, wake = max(wake, ?3) WHERE job = ?1 AND wake <= ?2 RETURNING doc";
    RELEASE_JOBS = "UPDATE job INDEXED BY job_wake SET claimed_until = NULL, wake = 0
        WHERE wake IS NOT NULL AND claimed_until IS NOT NULL";

    // looks
    LOOK = "SELECT doc, lease_until FROM look WHERE contract = ?1";
    PUT_LOOK = "INSERT INTO look (contract, seller, wake, lease_until, doc) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT DO UPDATE SET seller = excluded.seller, wake = excluded.wake, lease_until = excluded.lease_until,
        doc = excluded.doc";
    LOOKS_OPEN = "SELECT doc, lease_until FROM look INDEXED BY look_wake WHERE wake IS NOT NULL ORDER BY wake LIMIT ?1";
    LOOK_EARLIEST = "SELECT min(wake) FROM look WHERE wake IS NOT NULL";
    LOOKS_DUE = "SELECT seller, contract FROM look WHERE wake IS NOT NULL AND wake <= ?1 ORDER BY wake LIMIT ?2";
    LOOK_NEXT_SELLER = "SELECT seller FROM look WHERE wake IS NOT NULL AND seller > ?1 ORDER BY seller LIMIT 1";
    LOOKS_DUE_OF = "SELECT seller, contract FROM look INDEXED BY look_seller
        WHERE wake IS NOT NULL AND seller = ?1 AND wake <= ?2 ORDER BY wake LIMIT ?3";
    LOOKS_LEASED = "SELECT count(*) FROM look WHERE lease_until IS NOT NULL AND seller = ?1 AND lease_until > ?2";
    CLAIM_LOOK = "UPDATE look SET lease_until = ?3, wake = max(wake, ?3) WHERE contract = ?1 AND wake <= ?2
        RETURNING doc, lease_until";
    RELEASE_LOOKS = "UPDATE look INDEXED BY look_wake SET lease_until = NULL, wake = 0
        WHERE wake IS NOT NULL AND lease_until IS NOT NULL";
    OBSERVATION = "SELECT sha256, at, contract, bytes FROM observation WHERE contract = ?1 AND sha256 = ?2";
    OBSERVATIONS_OF = "SELECT sha256 FROM observation WHERE contract = ?1 ORDER BY sha256 LIMIT ?2";
    PUT_OBSERVATION = "INSERT INTO observation (sha256, at, contract, bytes) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT DO NOTHING";
    FORGET_OBSERVATIONS = "DELETE FROM observation WHERE contract = ?1";
    EVIDENCE = "SELECT contract, sha256, at, bytes FROM evidence WHERE contract = ?1";
    PUT_EVIDENCE = "INSERT INTO evidence (contract, ended, sha256, at, bytes) VALUES (?1, NULL, ?2, ?3, ?4)
        ON CONFLICT DO UPDATE SET ended = NULL, sha256 = excluded.sha256, at = excluded.at, bytes = excluded.bytes";
    EVIDENCE_ENDED = "UPDATE evidence SET ended = ?2 WHERE contract = ?1 AND ended IS NULL";
    EVIDENCE_LAPSED = "SELECT contract FROM evidence WHERE ended IS NOT NULL AND ended < ?1 ORDER BY ended LIMIT ?2";
    FORGET_EVIDENCE = "DELETE FROM evidence WHERE contract = ?1";

    // the journal
    JOURNAL_LAST = "SELECT n, at FROM entry ORDER BY n DESC LIMIT 1";
    INSERT_ENTRY = "INSERT INTO entry (n, id, at, doc) VALUES (?1, ?2, ?3, ?4)";
    INSERT_LINE = "INSERT INTO line (account, n, i, delta, balance, ordinal) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    ACCOUNT = "SELECT balance, entries FROM account WHERE name = ?1";
    PUT_ACCOUNT = "INSERT INTO account (name, balance, entries) VALUES (?1, ?2, ?3)
        ON CONFLICT DO UPDATE SET balance = excluded.balance, entries = excluded.entries";
    BALANCES = "SELECT name, balance FROM account WHERE name > ?1 ORDER BY name LIMIT ?2";
    JOURNAL = "SELECT n, id, at, doc FROM entry WHERE n >= ?1 ORDER BY n LIMIT ?2";
    ENTRY_FROM = "SELECT n FROM entry WHERE at >= ?1 ORDER BY at, n LIMIT 1";
    LINE_BEFORE = "SELECT balance, ordinal FROM line WHERE account = ?1 AND n < ?2 ORDER BY n DESC, i DESC LIMIT 1";
    ENTRIES_OF = "SELECT n, id, at, doc FROM entry WHERE n IN
        (SELECT DISTINCT n FROM line WHERE account = ?1 AND n >= ?2 AND n < ?3 ORDER BY n DESC LIMIT ?4) ORDER BY n";

    // contracts and operations
    CONTRACT = "SELECT doc FROM contract WHERE id = ?1";
    CONTRACT_STATE = "SELECT state FROM contract WHERE id = ?1";
    CONTRACT_OF_QUOTE = "SELECT id FROM contract WHERE quote_id = ?1";
    INSERT_CONTRACT = "INSERT INTO contract (id, quote_id, state, open, updated, doc) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    UPDATE_CONTRACT = "UPDATE contract SET state = ?2, open = ?3, updated = ?4, doc = ?5
        WHERE id = ?1 AND (open = 1 OR state = ?2)";
    INSERT_PARTY = "INSERT INTO party (address, contract) VALUES (?1, ?2)";
    CONTRACTS_OF = "SELECT c.doc FROM party p JOIN contract c ON c.seq = p.contract
        WHERE p.address = ?1 ORDER BY p.contract DESC LIMIT ?2";
    CONTRACTS_OPEN = "SELECT doc FROM contract WHERE open = 1 AND state = ?1 AND (updated, id) > (?2, ?3)
        ORDER BY updated, id LIMIT ?4";
    MANDATE = "SELECT doc FROM mandate WHERE id = ?1";
    INSERT_MANDATE = "INSERT INTO mandate (id, doc) VALUES (?1, ?2)";
    UPDATE_MANDATE = "UPDATE mandate SET doc = ?2 WHERE id = ?1";
    INSERT_MANDATE_PARTY = "INSERT INTO mandate_party (address, mandate) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    INSERT_MANDATE_CHAIN = "INSERT INTO mandate_chain (link, id) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    DELETE_MANDATE_CHAIN = "DELETE FROM mandate_chain WHERE link = ?1 AND id = ?2";
    MANDATES_UNDER = "SELECT m.doc FROM mandate_chain c JOIN mandate m ON m.id = c.id WHERE c.link = ?1 ORDER BY c.id";
    MANDATES_OF = "SELECT m.doc FROM mandate_party p JOIN mandate m ON m.seq = p.mandate
        WHERE p.address = ?1 ORDER BY p.mandate DESC LIMIT ?2";
    SEAL = "SELECT doc FROM seal WHERE sha256 = ?1 AND by_whom = ?2";
    SEAL_BY_ID = "SELECT doc FROM seal WHERE id = ?1";
    SEALS = "SELECT doc FROM seal INDEXED BY seal_hash WHERE sha256 = ?1 ORDER BY at, id LIMIT ?2";
    INSERT_SEAL = "INSERT INTO seal (id, sha256, by_whom, at, doc) VALUES (?1, ?2, ?3, ?4, ?5)";
    OPERATION = "SELECT sha256, at, result FROM operation WHERE sender = ?1 AND id = ?2";
    INSERT_OPERATION = "INSERT INTO operation (sender, id, sha256, at, result) VALUES (?1, ?2, ?3, ?4, ?5)";

    // pins and events
    PIN = "SELECT domain, key, at, next FROM pin WHERE domain = ?1";
    PINS = "SELECT domain, key, at, next FROM pin WHERE domain > ?1 ORDER BY domain LIMIT ?2";
    INSERT_PIN = "INSERT INTO pin (domain, key, at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    PUT_PIN = "INSERT INTO pin (domain, key, at, next) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT DO UPDATE SET key = excluded.key, at = excluded.at, next = excluded.next";
    COUNT_EVENT = "INSERT INTO event_count (name, n) VALUES (?1, 1) ON CONFLICT DO UPDATE SET n = n + 1 RETURNING n";
    INSERT_EVENT = "INSERT INTO event (name, at, actor, data, nth) VALUES (?1, ?2, ?3, ?4, ?5)";
    EVENT_COUNTS = "SELECT name, n FROM event_count WHERE name > ?1 ORDER BY name LIMIT ?2";
    EVENT_FIRST_SINCE = "SELECT nth FROM event WHERE name = ?1 AND at >= ?2 ORDER BY at, seq LIMIT 1";
    EVENT_LOG = "SELECT seq, name, at, actor, data FROM event INDEXED BY event_at WHERE at >= ?1
        ORDER BY at DESC, seq DESC LIMIT ?2";
    EVENT_LOG_OF = "SELECT seq, name, at, actor, data FROM event INDEXED BY event_name WHERE name = ?1 AND at >= ?2
        ORDER BY at DESC, seq DESC LIMIT ?3";
    EVENTS = "SELECT name, at, actor, data FROM event WHERE name = ?1 AND at >= ?2 ORDER BY at DESC, seq DESC LIMIT ?3";

    // the federated index
    INDEX_STATE = "SELECT generation, floor, houses, agents FROM index_state WHERE one = 1";
    INDEX_BEGIN = "INSERT INTO index_state (one, generation, floor, houses, agents) VALUES (1, ?1, ?1, 0, 0)
        ON CONFLICT DO NOTHING";
    PUT_INDEX_STATE = "UPDATE index_state SET generation = ?1, floor = ?2, houses = ?3, agents = ?4 WHERE one = 1";
    INDEX_HOUSE = "SELECT domain, estafeta, added, last_ok, fails, agents, reputation FROM index_house WHERE domain = ?1";
    INDEX_HOUSES = "SELECT domain, estafeta, added, last_ok, fails, agents, reputation FROM index_house
        WHERE domain > ?1 ORDER BY domain LIMIT ?2";
    INDEX_INSERT_HOUSE = "INSERT INTO index_house (domain, estafeta, added, last_ok, fails, agents, reputation, wake)
        VALUES (?1, ?2, ?3, NULL, 0, 0, ?4, ?5)";
    INDEX_UPDATE_HOUSE = "UPDATE index_house SET estafeta = ?2, last_ok = ?3, fails = ?4, agents = ?5, reputation = ?6,
        wake = ?7 WHERE domain = ?1";
    INDEX_DELETE_HOUSE = "DELETE FROM index_house WHERE domain = ?1";
    INDEX_CLAIM = "UPDATE index_house SET wake = ?2 WHERE domain IN
        (SELECT domain FROM index_house WHERE wake <= ?1 ORDER BY wake LIMIT ?3) RETURNING domain";
    INDEX_NEXT = "SELECT wake FROM index_house WHERE wake > ?1 ORDER BY wake LIMIT 1";
    INDEX_OF_HOUSE = "SELECT address, sha256, score, jobs FROM index_agent WHERE house = ?1";
    INDEX_FACTS = "SELECT score, jobs, price, ends FROM index_agent WHERE address = ?1";
    INDEX_CARD = "SELECT card, house FROM index_agent WHERE address = ?1";
    INDEX_PUT_AGENT = "INSERT INTO index_agent (address, house, sha256, card, score, jobs, price, ends)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
        ON CONFLICT (address) DO UPDATE SET house = excluded.house, sha256 = excluded.sha256, card = excluded.card,
        score = excluded.score, jobs = excluded.jobs, price = excluded.price, ends = excluded.ends";
    INDEX_DELETE_AGENT = "DELETE FROM index_agent WHERE address = ?1";
    INDEX_TERM = "SELECT address FROM index_term WHERE term = ?1 LIMIT ?2";
    INDEX_HAS_TERM = "SELECT 1 FROM index_term WHERE term = ?1 AND address = ?2";
    INDEX_INSERT_TERM = "INSERT INTO index_term (term, address) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    INDEX_DELETE_TERMS = "DELETE FROM index_term WHERE address = ?1";
    INDEX_WALK_NOW = "SELECT rank, address, since, until FROM index_rank
        WHERE until = 9223372036854775807 AND (rank, address) > (?1, ?2) ORDER BY rank, address LIMIT ?3";
    INDEX_WALK = "SELECT rank, address, since, until FROM index_rank
        WHERE (rank, address) > (?1, ?2) ORDER BY rank, address, since LIMIT ?3";
    INDEX_RANK_AT = "SELECT rank FROM index_rank WHERE address = ?1 AND since <= ?2 AND until > ?2";
    INDEX_RANKS = "SELECT rank, since, until FROM index_rank WHERE address = ?1 ORDER BY since";
    INDEX_INSERT_RANK = "INSERT INTO index_rank (rank, address, since, until) VALUES (?1, ?2, ?3, ?4)";
    INDEX_CLOSE_RANK = "UPDATE index_rank SET until = ?2 WHERE address = ?1 AND until = 9223372036854775807";
    INDEX_DELETE_RANK = "DELETE FROM index_rank WHERE address = ?1 AND since = ?2";
    INDEX_DELETE_RANKS = "DELETE FROM index_rank WHERE address = ?1";
    INDEX_GONE = "INSERT INTO index_gone (address, generation, at) VALUES (?1, ?2, ?3)
        ON CONFLICT (address) DO UPDATE SET generation = excluded.generation, at = excluded.at";
    INDEX_BACK = "DELETE FROM index_gone WHERE address = ?1";
    INDEX_GONE_BEFORE = "SELECT address, generation FROM index_gone WHERE at < ?1 ORDER BY at LIMIT ?2";
}
