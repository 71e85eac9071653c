//! Every bound in the system, by name. A limit that is not here does not exist.
//!
//! Sizes are bytes unless the name says otherwise; times are milliseconds unless the name says otherwise.

/// Largest integer that a double represents together with both neighbours: 2^53 - 1.
pub const SAFE_INTEGER_MAX: u64 = 9_007_199_254_740_991;

// ---- JSON at the doors -------------------------------------------------------------------------------------------
/// Nesting of a document that a stranger may send.
pub const JSON_DEPTH_MAX: usize = 100;

// ---- Envelopes ---------------------------------------------------------------------------------------------------
pub const ENVELOPE_BYTES_DEFAULT: usize = 1_048_576;
pub const ENVELOPE_ID_MIN: usize = 8;
pub const ENVELOPE_ID_MAX: usize = 128;
pub const RECIPIENTS_MAX: usize = 50;
pub const INTRO_BYTES_MAX: usize = 4_096;
pub const ADDRESS_LOCAL_MAX: usize = 64;
pub const DOMAIN_BYTES_MAX: usize = 253;
pub const POW_BITS_DEFAULT: u32 = 16;
pub const POW_BITS_MAX: u32 = 64;
pub const POW_NONCE_MAX: usize = 256;

// ---- HTTP doors --------------------------------------------------------------------------------------------------
/// A request body: the largest envelope plus room for headers of the document.
pub const REQUEST_BODY_MAX: usize = 2 * 1_048_576;
/// The whole request, headers and body, must have arrived by then.
pub const REQUEST_READ_MS: u64 = 15_000;
pub const AUTH_WINDOW_MS: i64 = 300_000;
pub const NONCE_KEEP_MS: i64 = 600_000;
pub const NONCE_BYTES_MAX: usize = 128;
pub const DIRECTORY_PAGE_DEFAULT: usize = 50;
pub const DIRECTORY_PAGE_MAX: usize = 200;
/// Subagents that one agent is shown.
pub const DELEGATIONS_SHOWN_MAX: usize = 1_000;
/// Pinned keys that the operator is shown at once.
pub const PINS_PAGE_MAX: usize = 500;
/// Agents certified in one transaction when the house changes its key.
pub const CERTIFIED_AT_ONCE: usize = 200;
/// Proxies, or networks of them, that may say for whom they speak.
pub const TRUSTED_PROXIES_MAX: usize = 64;
/// Proxies behind each other.
pub const PROXY_HOPS_MAX: usize = 8;
pub const MAILBOX_PAGE_DEFAULT: usize = 50;
pub const MAILBOX_PAGE_MAX: usize = 1_000;
pub const OUTBOX_PAGE_MAX: usize = 1_000;
pub const ACK_IDS_MAX: usize = 1_000;
pub const WAIT_SECONDS_DEFAULT: u64 = 25;
pub const WAIT_SECONDS_MAX: u64 = 90;
pub const JOURNAL_PAGE_MAX: usize = 1_000;
/// Bytes of bodies that are held at once, over all requests.
pub const BODIES_HELD_MAX: usize = 256 * 1_048_576;
/// Answers with lists that are made at once.
pub const LISTS_MADE_MAX: usize = 8;
/// Bodies that are not envelopes.
pub const SMALL_BODY_MAX: usize = 256 * 1_024;
/// Request line and headers together.
pub const HTTP_HEAD_MAX: usize = 32 * 1_024;
pub const HTTP_HEADERS_MAX: usize = 100;
/// The head of a request must have arrived by then; an idle connection is closed after it.
pub const HEAD_READ_MS: u64 = 15_000;
/// Before accepting again when the system refused a connection.
pub const ACCEPT_PAUSE_MS: u64 = 100;
pub const TLS_ACCEPT_MS: u64 = 10_000;
/// What is still read of a body that was refused, so that the refusal reaches whoever is still sending.
pub const LINGER_BYTES_MAX: usize = 8 * 1_048_576;
pub const LINGER_MS: u64 = 2_000;
pub const CONNECTIONS_MAX: usize = 1_024;
/// From one address that is not loopback: a proxy in front counts its own.
pub const CONNECTIONS_PER_IP_MAX: usize = 128;
/// An older connection ends after its current request.
pub const CONNECTION_AGE_MS: u64 = 600_000;
/// How long a connection told to end may go on writing.
pub const CONNECTION_END_MS: u64 = 120_000;
pub const DRAIN_MS: u64 = 20_000;
/// Readers that wait at one mailbox; a newer one takes the place of the oldest.
pub const WAITS_PER_AGENT_MAX: usize = 8;
/// A waiting reader looks again after this time even if nobody called it.
pub const WAIT_RECHECK_MS: u64 = 5_000;

// ---- Conversations -----------------------------------------------------------------------------------------------
pub const CONVERSATION_PAGE_DEFAULT: usize = 50;
pub const CONVERSATION_PAGE_MAX: usize = 500;
/// Projects that are listed with each contact.
pub const PROJECTS_LISTED_MAX: usize = 20;
/// A project's name, in UTF-16 units.
pub const PROJECT_UNITS_MAX: usize = 40;
/// Characters of a declared project of which a name is made.
pub const PROJECT_CHARS_READ_MAX: usize = 1_024;
pub const ROLE_CHARS_MAX: usize = 40;
/// The line that a sender lets travel in clear.
pub const SUMMARY_CHARS_MAX: usize = 140;
pub const SUMMARY_CHARS_READ_MAX: usize = 4_096;
/// Whoever a conversation is with, as a query names it.
pub const CONTACT_BYTES_MAX: usize = 320;
/// Deferred letters that one look at the conversations files.
pub const DEFERRED_FILED_MAX: usize = 1_000;

// ---- Presence, calls, events -------------------------------------------------------------------------------------
pub const PRESENCE_KEEP_MS: i64 = 90 * 86_400_000;
/// One call to an agent's own server, connection and answer together.
pub const PUSH_MS: u64 = 5_000;
pub const PUSH_RETRY_BASE_MS: i64 = 1_000;
pub const PUSH_RETRY_MAX_MS: i64 = 300_000;
pub const PUSH_GIVE_UP_MS: i64 = 3_600_000;
pub const PUSH_CLAIM_MS: i64 = 30_000;
/// Calls under way at once, and of them for one agent.
pub const PUSH_SLOTS: usize = 32;
pub const PUSH_SLOTS_PER_AGENT: usize = 2;
pub const EVENTS_PAGE_DEFAULT: usize = 500;
pub const EVENTS_PAGE_MAX: usize = 1_000;
pub const EVENT_NAME_BYTES_MAX: usize = 64;

// ---- Groups ------------------------------------------------------------------------------------------------------
pub const GROUP_MEMBERS_MAX: usize = 50;
/// Of the name after `g.`.
pub const GROUP_NAME_MIN: usize = 3;
pub const GROUP_NAME_MAX: usize = 41;

// ---- Rates (per minute, fixed windows) ---------------------------------------------------------------------------
pub const RATE_MAIL_PER_MINUTE: u32 = 120;
pub const RATE_REGISTRATION_PER_MINUTE: u32 = 10;
pub const RATE_LOOKUP_PER_MINUTE: u32 = 120;
pub const RATE_GROUPS_PER_MINUTE: u32 = 240;

// ---- Registration and cards --------------------------------------------------------------------------------------
pub const NAME_MIN_DEFAULT: usize = 4;
pub const PREVIOUS_KEYS_MAX: usize = 3;
pub const KEY_GRACE_MS: i64 = 7 * 86_400_000;
pub const CARD_BYTES_MAX: usize = 65_536;
pub const ALLOWLIST_MAX: usize = 1_000;
pub const INVITATION_USES_MAX: u64 = 1_000_000;
pub const INVITATION_NOTE_MAX: usize = 280;
pub const INVITATIONS_SHOWN_MAX: usize = 1_000;
pub const SOURCE_CHARS_MAX: usize = 64;
pub const ACCEPTS_MAX: usize = 100;
pub const WALLETS_MAX: usize = 10;
pub const WALLET_CHARS_MAX: usize = 128;
pub const PROFILE_NAME_CHARS_MAX: usize = 80;
pub const PROFILE_SUMMARY_CHARS_MAX: usize = 280;
pub const PROFILE_DESCRIPTION_CHARS_MAX: usize = 2_000;
pub const PROFILE_OWNER_CHARS_MAX: usize = 120;
pub const PROFILE_LANGUAGES_MAX: usize = 10;
pub const PROFILE_LANGUAGE_CHARS_MAX: usize = 35;
pub const PROFILE_TAGS_MAX: usize = 20;
pub const PROFILE_TAG_CHARS_MAX: usize = 32;
pub const PROFILE_LINKS_MAX: usize = 5;
pub const PROFILE_LINK_CHARS_MAX: usize = 200;
pub const PROFILE_SERVICES_MAX: usize = 20;
pub const SERVICE_ID_CHARS_MAX: usize = 40;

// ---- Federation --------------------------------------------------------------------------------------------------
pub const CARD_CACHE_MS: i64 = 300_000;
pub const CARD_CACHE_ENTRIES_MAX: usize = 10_000;
pub const CARD_FETCH_MS: u64 = 5_000;
pub const RELAY_MS: u64 = 10_000;
pub const PEER_ANSWER_BYTES_MAX: usize = 1_048_576;
pub const CARD_CACHE_BYTES_MAX: usize = 16 * 1_048_576;
/// A house that could not be resolved is not asked again before.
pub const FAILURE_CACHE_MS: i64 = 5_000;
/// Cards fetched from one domain in a minute.
pub const CARD_FETCHES_PER_MINUTE: u32 = 600;
pub const RESOLVE_FLIGHTS_KEPT: usize = 1_024;
pub const TXT_RECORDS_MAX: usize = 16;
pub const PEER_IDLE_MS: u64 = 60_000;
pub const PEER_IDLE_PER_HOST_MAX: usize = 4;
/// What an agent reads from its own house in one answer, a full mailbox included.
pub const AGENT_ANSWER_BYTES_MAX: usize = 64 * 1_048_576;
pub const AGENT_CALL_MS: u64 = 30_000;

/// How often the files of the certificate are looked at.
pub const TLS_WATCH_MS: u64 = 2_000;

// ---- The federated index -----------------------------------------------------------------------------------------
pub const INDEX_HOUSES_MAX: usize = 500;
/// Cards of one house.
pub const INDEX_AGENTS_PER_HOUSE_MAX: usize = 2_000;
pub const INDEX_CARD_BYTES_MAX: usize = 32_768;
pub const INDEX_TERMS_MAX: usize = 128;
pub const INDEX_TEXT_CHARS_MAX: usize = 200;
pub const INDEX_SHARE_CHARS_MAX: usize = 32;
pub const INDEX_CURSOR_CHARS_MAX: usize = 600;
pub const INDEX_CURSOR_ADDRESS_BYTES_MAX: usize = 320;
pub const INDEX_PAGE_DEFAULT: usize = 50;
pub const INDEX_PAGE_MAX: usize = 200;
/// Cards in one page, together; at least one is shown.
pub const INDEX_PAGE_BYTES_MAX: usize = 524_288;
/// Agents that one search looks at; a page may end early, and its cursor goes on.
pub const INDEX_EXAMINED_MAX: usize = 2_000;
/// Cards that one search reads for its words, together.
pub const INDEX_READ_BYTES_MAX: usize = 8 * 1_048_576;
/// Places of one agent that are remembered for walks under way, the one it has now included.
pub const INDEX_PLACES_KEPT: usize = 16;
/// How long the places of an agent that left are remembered.
pub const INDEX_GONE_KEEP_MS: i64 = 86_400_000;
pub const INDEX_GONE_PRUNED_AT_ONCE: usize = 1_000;
pub const INDEX_EVERY_MS: i64 = 900_000;
pub const INDEX_EVERY_MS_MIN: i64 = 60_000;
/// Between passes over a house that does not answer.
pub const INDEX_WAIT_MS_MAX: i64 = 86_400_000;
/// After so long without an answer a house and its cards are dropped.
pub const INDEX_LOST_MS: i64 = 3 * 86_400_000;
/// One pass over one house, all of its questions together.
pub const INDEX_CRAWL_MS: u64 = 60_000;
/// How long whoever registers a house waits for its first pass.
pub const INDEX_FIRST_CRAWL_MS: u64 = 15_000;
pub const INDEX_CRAWL_CLAIM_MS: i64 = 120_000;
pub const INDEX_CRAWLS_AT_ONCE: usize = 4;
pub const INDEX_LISTING_BYTES_MAX: usize = 4 * 1_048_576;
pub const INDEX_LISTING_MIN: usize = 25;
pub const INDEX_HISTORIES_AT_ONCE: usize = 50;
/// Histories that are asked for one by one, of a house that answers no batches.
pub const INDEX_SINGLE_HISTORIES_MAX: usize = 200;
pub const INDEX_HISTORY_BYTES_MAX: usize = 524_288;
/// How long the clock of the index sleeps at most.
pub const INDEX_TICK_MS: u64 = 30_000;

// ---- Sending queue -----------------------------------------------------------------------------------------------
pub const RETRY_BASE_MS: i64 = 1_000;
pub const RETRY_MAX_MS: i64 = 60_000;
pub const GIVE_UP_MS: i64 = 3 * 86_400_000;
pub const QUEUE_CLAIM_MS: i64 = 60_000;
pub const QUEUE_BATCH: usize = 20;
/// Deliveries under way at once, and of them to one domain.
pub const QUEUE_SLOTS: usize = 64;
pub const QUEUE_SLOTS_PER_DOMAIN: usize = 8;
/// The worker looks at the queue at least this often; and again after the shorter time when work waits for room.
pub const QUEUE_IDLE_MS: u64 = 30_000;
pub const QUEUE_RECHECK_MS: u64 = 1_000;
pub const HOUSEKEEPING_MS: u64 = 60_000;
/// Connections for queries beside the writer.
pub const STORE_READERS: usize = 4;
/// Lines of history kept in a job, newest last.
pub const JOB_LOG_MAX: usize = 20;
/// Of a reason that another house gave, as kept and as told to a sender.
pub const PEER_REASON_CHARS_MAX: usize = 500;

// ---- Ledger ------------------------------------------------------------------------------------------------------
pub const BPS_WHOLE: u64 = 10_000;
pub const FEE_BPS_DEFAULT: u64 = 1_000;
pub const CONCEPT_CHARS_MAX: usize = 200;
pub const NOTE_CHARS_MAX: usize = 2_000;
pub const STATEMENT_ROWS_DEFAULT: usize = 20;
pub const STATEMENT_ROWS_OP_MAX: usize = 200;
pub const STATEMENT_ROWS_HTTP_MAX: usize = 1_000;
pub const ACCOUNT_CONTRACTS_MAX: usize = 1_000;
pub const ACCOUNT_CONTRACTS_OP_MAX: usize = 200;
pub const ACCOUNT_MANDATES_MAX: usize = 200;
/// An account view that is kept as the result of an operation.
pub const ACCOUNT_VIEW_BYTES_MAX: usize = 262_144;
/// Terms, evidence and verdict together leave a receipt, which carries the whole contract, well below an envelope.
pub const TERMS_BYTES_MAX: usize = 131_072;
pub const EVIDENCE_BYTES_MAX: usize = 65_536;
pub const VERDICT_BYTES_MAX: usize = 131_072;
/// How long the evidence of a verdict is kept after its contract ended, unless the configuration says otherwise.
pub const EVIDENCE_KEEP_MS: i64 = 180 * 86_400_000;
pub const EVIDENCE_KEEP_MS_MIN: i64 = 86_400_000;
pub const EVIDENCE_KEEP_MS_MAX: i64 = 3_650 * 86_400_000;
/// Contracts whose evidence one piece of housekeeping removes; each may hold many megabytes.
pub const EVIDENCE_PRUNE_CONTRACTS: usize = 8;
pub const CLAIM_CHARS_MAX: usize = 2_000;
pub const MANDATE_CHAIN_MAX: usize = 16;
pub const MANDATES_UNDER_MAX: usize = 1_000;
pub const MANDATE_CONCEPTS_MAX: usize = 50;
pub const SEAL_NAME_CHARS_MAX: usize = 120;
pub const SEAL_MEDIA_CHARS_MAX: usize = 100;
pub const SEAL_NOTE_CHARS_MAX: usize = 500;
pub const RECLAIM_GRACE_MS: i64 = 86_400_000;
pub const REVIEW_WINDOW_MS: i64 = 72 * 3_600_000;

// ---- Tests of a contract -----------------------------------------------------------------------------------------
pub const TESTS_MAX: usize = 16;
pub const TESTS_DOC_BYTES_MAX: usize = 65_536;
pub const TEST_NAME_CHARS_MAX: usize = 80;
pub const URL_BYTES_MAX: usize = 2_048;
pub const SHA256_BODY_MAX: u64 = 64 * 1_048_576;
pub const SIZE_BOUND_MAX: u64 = 64 * 1_048_576;
pub const JSON_BODY_MAX: u64 = 1_048_576;
pub const PROBE_JSON_DEPTH_MAX: usize = 512;
pub const REGEX_WINDOW: u64 = 1_048_576;
pub const REGEX_PATTERN_UNITS_MAX: usize = 256;
/// Characters and assertions of a pattern once its counts are written out, lookarounds included.
pub const REGEX_NODES_MAX: usize = 4_096;
/// Ways from one of them to the next.
pub const REGEX_EDGES_MAX: usize = 1_000_000;
pub const REGEX_LOOKAROUNDS_MAX: usize = 60;
/// Word operations that one judgement may take.
pub const REGEX_STEPS_MAX: u64 = 1_500_000_000;
/// Word operations of a first look for a match as if every lookaround held.
pub const REGEX_FIRST_TRY_STEPS: u64 = 24_000_000;
/// Steps kept for reuse while matching, and the different symbols for which they are kept at all.
pub const REGEX_TABLE_MAX: usize = 1_048_576;
pub const REGEX_SYMBOLS_MAX: usize = 4_096;
pub const ARGV_WORDS_MAX: usize = 64;
pub const ARGV_BYTES_MAX: usize = 32_768;
pub const INPUTS_MAX: usize = 16;
pub const INPUT_PATH_BYTES_MAX: usize = 1_024;
/// The reason of a joint verdict, which also is the note of the ledger operation.
pub const VERDICT_REASON_CHARS_MAX: usize = 2_000;

// ---- Attestations ------------------------------------------------------------------------------------------------
/// The document in its canonical text.
pub const ATTESTATION_BYTES_MAX: usize = 65_536;
/// Entries of any list or map in it.
pub const ATTESTATION_LIST_MAX: usize = 256;
pub const ATTESTATION_TEXT_MAX: usize = 1_024;
pub const ATTESTATION_WORD_MAX: usize = 64;
/// The payload of an envelope: a document and its subjects.
pub const STATEMENT_BYTES_MAX: usize = 131_072;
pub const DSSE_SIGNATURES_MAX: usize = 16;

// ---- Guarded fetch -----------------------------------------------------------------------------------------------
pub const DNS_MS: u64 = 5_000;
pub const CONNECT_MS: u64 = 5_000;
pub const TLS_MS: u64 = 5_000;
pub const FIRST_BYTE_MS: u64 = 10_000;
pub const BODY_MS: u64 = 15_000;
pub const PROBE_MS_DEFAULT: u64 = 10_000;
pub const ADDRESSES_TRIED_MAX: usize = 4;
/// Connections to one host at once: one that answers slowly takes this many of the arbiter's and no more.
pub const PER_HOST_CONNECTIONS_MAX: usize = 8;
/// So little content is judged where it was read; more is judged beside the connections.
pub const JUDGED_AT_ONCE_BYTES_MAX: usize = 4_096;
/// A look that would queue longer than this at a host is put off instead, and holds no slot meanwhile.
pub const PACE_WAIT_MAX_MS: u64 = 5_000;
/// Looks under way for each connection that the probes may have open: most of them wait for a host or for a second look.
pub const LOOKS_PER_SLOT: usize = 4;
pub const HEAD_BYTES_MAX: usize = 65_536;
pub const HEAD_LINES_MAX: usize = 256;
pub const INTERIM_MAX: usize = 16;
/// The longest time that a plan may ask for.
pub const TIMEOUT_MS_MAX: u64 = 3_600_000;
pub const CONTENT_LENGTH_DIGITS_MAX: usize = 19;
pub const CHUNK_SIZE_DIGITS_MAX: usize = 16;
/// A line with the size of a chunk, its extensions and its end.
pub const CHUNK_LINE_BYTES_MAX: usize = 4_096;
/// All chunk extensions of one answer.
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 16_384;
/// How long content is looked for after a 204 or 304.
pub const NO_CONTENT_GRACE_MS: u64 = 500;
/// The longest `Retry-After` that is waited for within a look.
pub const RETRY_AFTER_MS_MAX: u64 = 10_000;

// ---- Arbiter -----------------------------------------------------------------------------------------------------
pub const PROBE_SLOTS_DEFAULT: usize = 64;
pub const LOOK_LEASE_MS: i64 = 120_000;
pub const LOOK_BACKOFF_BASE_MS: i64 = 5_000;
pub const LOOK_BACKOFF_MAX_MS: i64 = 3_600_000;
/// The longest time between two looks of a review in which a host is said never to have answered.
pub const UNREACHED_GAP_MS: i64 = 2 * LOOK_BACKOFF_MAX_MS;
/// The fewest looks that may say so.
pub const UNREACHED_LOOKS_MIN: u32 = 10;
pub const CONFIRM_AFTER_MS: i64 = 2_000;
/// A worker whose work is overdue but claimed elsewhere looks again after this long.
pub const LOOK_RECHECK_MS: u64 = 200;
pub const PER_HOST_PER_MINUTE: u32 = 60;

/// How often an arbiter beside a house reads verifica@'s account: letters tell it sooner, and may be lost.
pub const WATCH_ACCOUNT_MS: u64 = 30_000;
/// The longest pause between two attempts to read a house that does not answer.
pub const WATCH_RETRY_MAX_MS: u64 = 30_000;

// ---- Attachments (sizes of section 5b are powers of two) ---------------------------------------------------------
pub const ATTACHMENTS_MAX: usize = 10;
pub const ATTACHMENT_BYTES_MAX: u64 = 10 * 1_048_576;
pub const ATTACHMENTS_BYTES_MAX: u64 = 25 * 1_048_576;
/// The iv before and the tag after the sealed bytes of a file.
pub const ATTACHMENT_SEAL_BYTES: u64 = 12 + 16;
pub const ATTACHMENT_NAME_CHARS_MAX: usize = 255;
pub const ATTACHMENT_MEDIA_CHARS_MAX: usize = 100;
/// What one sender hands in on a day of UTC.
pub const ATTACHMENT_DAY_BYTES_MAX: u64 = 100 * 1_048_576;
/// What a house holds of all senders, unless the configuration says otherwise.
pub const ATTACHMENT_HOUSE_BYTES_DEFAULT: u64 = 10 * 1_024 * 1_048_576;
/// Who may fetch one attachment: the recipients of an envelope, and the members of a group among them.
pub const ATTACHMENT_READERS_MAX: usize = RECIPIENTS_MAX + GROUP_MEMBERS_MAX;
pub const ATTACHMENT_KEEP_MS: i64 = 30 * 86_400_000;
/// Once every recipient has it.
pub const ATTACHMENT_KEEP_FETCHED_MS: i64 = 7 * 86_400_000;
/// Bytes of an attachment that are under way between a file and a connection.
pub const BLOB_PIECE_BYTES: usize = 65_536;
/// A transfer in which nothing moves for so long ends.
pub const BLOB_STALL_MS: u64 = 15_000;
/// The longest transfer of one attachment.
pub const BLOB_TRANSFER_MS: u64 = 300_000;
/// Putting an attachment where it is kept, once it has come.
pub const BLOB_KEEP_MS: u64 = 60_000;
/// Room is reserved so long for an attachment that is coming: longer than it may take.
pub const BLOB_LEASE_MS: i64 = (BLOB_TRANSFER_MS + BLOB_KEEP_MS + 60_000) as i64;
/// Transfers under way at once, and of them for one agent.
pub const BLOB_TRANSFERS_MAX: usize = 64;
pub const BLOB_TRANSFERS_PER_AGENT_MAX: usize = 4;
/// Attachments on their way to a bucket at once: each is in memory meanwhile.
pub const BUCKET_PUTS_MAX: usize = 4;
/// One call of a bucket, and repetitions of it.
pub const BUCKET_CALL_MS: u64 = 30_000;
pub const BUCKET_RETRIES_MAX: usize = 2;
/// Attachments that are looked at in one piece of housekeeping.
pub const BLOB_SWEEP_ROWS: usize = 100;
/// Before asking again a house that has no room left.
pub const BLOB_NO_ROOM_RETRY_SECONDS: u64 = 3_600;

// ---- Delegation --------------------------------------------------------------------------------------------------
/// Parents above a subagent that a verifier follows.
pub const DELEGATION_DEPTH_MAX: usize = 8;

// ---- Store -------------------------------------------------------------------------------------------------------
/// Commands that wait for the writer.
pub const STORE_QUEUE_MAX: usize = 4_096;
/// How long a caller waits for a place among them before it is told that the store is busy.
pub const STORE_QUEUE_WAIT_MS: u64 = 2_000;
/// Commands that share one flush to the disk.
pub const STORE_BATCH_MAX: usize = 256;
/// How long SQLite waits for a lock that another program took by hand.
pub const STORE_BUSY_MS: u64 = 5_000;
pub const STORE_RETRY_AFTER_SECONDS: u64 = 5;
pub const STORE_WRITER_CACHE_KIB: i64 = 32_768;
/// Of what the writer remembers beside the file, in each of two generations: agents by the bytes of their cards, accounts
/// and counters by their number.
pub const STORE_KEPT_BYTES: usize = 1_048_576;
pub const STORE_KEPT_ROWS: usize = 4_096;
/// Rows that wait for the end of their transaction; beyond them all are written at once.
pub const STORE_LATE_ROWS_MAX: usize = 4_096;
/// Threads that sign what the writer has decided, where there are processors for them.
pub const STORE_SIGNERS_MAX: usize = 4;
pub const STORE_READER_CACHE_KIB: i64 = 4_096;
/// Pages in the log at which they are moved into the file.
pub const STORE_WAL_PAGES: i64 = 8_192;
/// The same by SQLite itself, should ours not keep up.
pub const STORE_WAL_BACKSTOP_PAGES: i64 = 16_384;
/// Pages in the log at which long readers are waited for, and how long.
pub const STORE_WAL_STUCK_PAGES: i64 = 32_768;
pub const STORE_WAL_STUCK_WAIT_MS: u64 = 100;
/// Bytes of the log file that stay on the disk when it starts over.
pub const STORE_WAL_KEEP_BYTES: i64 = 64 * 1_048_576;
/// Due rows that are looked at to share out work, and groups that are walked when there are more.
pub const STORE_DUE_SCAN: usize = 512;
pub const STORE_WALK_MAX: usize = 1_024;
/// Bytes of the documents in one list: mail, jobs, contracts. In memory a document can be many times its text.
pub const STORE_LIST_BYTES_MAX: usize = 4 * 1_048_576;
/// Rows that one piece of housekeeping removes.
pub const STORE_PRUNE_ROWS: usize = 1_000;
pub const RATE_KEEP_MINUTES: i64 = 2;

// ---- Jobs --------------------------------------------------------------------------------------------------------
pub const POLICY_NAME_CHARS_MAX: usize = 40;
pub const JOB_WALL_S_MAX: u64 = 3_600;
/// Below this the launcher itself does not fit.
pub const JOB_MEMORY_BYTES_MIN: u64 = 16 * 1_048_576;
/// The launcher's init, the job and the two helpers of the proof.
pub const JOB_PROCESSES_MIN: u64 = 4;
pub const JOB_PROCESSES_MAX: u64 = 4_096;
pub const JOB_OPEN_FILES_MIN: u64 = 16;
pub const JOB_OPEN_FILES_MAX: u64 = 65_536;
pub const JOB_SCRATCH_BYTES_MIN: u64 = 65_536;
pub const JOB_SCRATCH_FILES_MIN: u64 = 32;
pub const JOB_SCRATCH_FILES_MAX: u64 = 1_000_000;
pub const JOB_OUTPUT_BYTES_MAX: u64 = 16 * 1_048_576;
pub const JOB_RUNS_MAX: u64 = 10;
pub const JOB_READABLE_MAX: usize = 16;
/// One input as it was delivered.
pub const JOB_INPUT_BYTES_MAX: u64 = 64 * 1_048_576;
/// Files, directories and links of one archive.
pub const ARCHIVE_ENTRIES_MAX: usize = 10_000;
/// A plan, a proof or a note between the house and its launcher.
pub const JOB_NOTE_BYTES_MAX: usize = 131_072;
/// From the start of the launcher to its proof, inputs placed; not the seller's time.
pub const JOB_PREPARE_MS: u64 = 60_000;
/// How long an ended tree may take to be gone.
pub const JOB_END_MS: u64 = 5_000;
/// After an end by a signal: for whoever signals a whole group to reach all of it.
pub const JOB_OUTSIDE_MS: u64 = 20;
/// Output that is still in the pipes of an ended tree.
pub const JOB_DRAIN_MS: u64 = 500;
/// Last bytes of each stream that a person sees.
pub const JOB_TAIL_BYTES: usize = 4_096;
/// Jobs of all houses of a host that have a uid of their own.
pub const JOB_SLOTS_MAX: u32 = 4_096;
/// Looks with jobs under way at once in one house, and how many of them unless the configuration says.
pub const JOB_PLACES_MAX: usize = 256;
pub const JOB_PLACES_DEFAULT: usize = 2;
/// How often a look with jobs asks whether its contract is still to be judged.
pub const JOB_RECHECK_MS: u64 = 1_000;
/// Looks that wait for a place, for each place; beyond it a look is put off and not kept waiting.
pub const JOB_QUEUE_PER_PLACE: usize = 4;
/// How deep one script may name another as its interpreter.
pub const INTERPRETER_DEPTH_MAX: usize = 4;
/// Bytes of the first line of a script.
pub const INTERPRETER_LINE_MAX: usize = 256;

// ---- Looking after a house ---------------------------------------------------------------------------------------
/// A certificate that ends sooner is worth a warning.
pub const CERTIFICATE_WARN_DAYS: i64 = 14;
