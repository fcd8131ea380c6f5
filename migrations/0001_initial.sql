-- The first schema. Forward only; never edited once released.
--
-- The CHECK lists are the words of `model.rs` and the shapes of the states in `ARCHITECTURE.md`: a
-- test compares them. Every number of a row is AUTOINCREMENT, because a reused number would let an
-- old answer settle a new row. Times are milliseconds since 1970 in UTC.

-- One row of facts about this store.
CREATE TABLE meta (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    store_id   BLOB    NOT NULL CHECK (length(store_id) = 16),
    created_at INTEGER NOT NULL,
    -- The program that last changed the schema, for the message of an older one.
    written_by TEXT    NOT NULL,
    -- Raised by every receiver that starts; a runner refuses a lower one.
    epoch      INTEGER NOT NULL DEFAULT 0,
    -- Counts the writes that ask whether a full disk has space again.
    probes     INTEGER NOT NULL DEFAULT 0
) STRICT;

-- One row per unique (source, event id). Variant 0 is the first body under the id; others came
-- later under an id that the signature does not cover.
CREATE TABLE event (
    row               INTEGER PRIMARY KEY AUTOINCREMENT,
    source            TEXT    NOT NULL,
    event_id          TEXT    NOT NULL CHECK (length(event_id) BETWEEN 1 AND 200),
    variant           INTEGER NOT NULL DEFAULT 0 CHECK (variant >= 0),
    type              TEXT    NOT NULL,
    raw_type          TEXT,
    digest            BLOB    NOT NULL CHECK (length(digest) = 32),
    -- Whether the replay guard looks at this digest.
    guarded           INTEGER NOT NULL CHECK (guarded IN (0, 1)),
    flagged           INTEGER NOT NULL DEFAULT 0 CHECK (flagged IN (0, 1)),
    received_at       INTEGER NOT NULL,
    body_bytes        INTEGER NOT NULL CHECK (body_bytes >= 0),
    duplicates        INTEGER NOT NULL DEFAULT 0 CHECK (duplicates >= 0),
    last_duplicate_at INTEGER,
    conflicts         INTEGER NOT NULL DEFAULT 0 CHECK (conflicts BETWEEN 0 AND duplicates),
    UNIQUE (source, event_id, variant),
    CHECK ((duplicates = 0) = (last_duplicate_at IS NULL))
) STRICT;

-- Finds the same signed body under another id; the type makes "another type" one look-up.
CREATE INDEX event_guard ON event (source, digest, type) WHERE guarded = 1;

-- Headers as HTTP wrote them and the raw body under zstd. Retention deletes it before its event.
CREATE TABLE payload (
    event   INTEGER PRIMARY KEY REFERENCES event (row) ON DELETE CASCADE,
    headers BLOB NOT NULL,
    body    BLOB NOT NULL
) STRICT;

-- Other bodies that came under a signed id.
CREATE TABLE evidence (
    row         INTEGER PRIMARY KEY AUTOINCREMENT,
    event       INTEGER NOT NULL REFERENCES event (row) ON DELETE CASCADE,
    digest      BLOB    NOT NULL CHECK (length(digest) = 32),
    received_at INTEGER NOT NULL,
    headers     BLOB    NOT NULL,
    body_bytes  INTEGER NOT NULL CHECK (body_bytes >= 0),
    body        BLOB    NOT NULL,
    UNIQUE (event, digest)
) STRICT;

-- One event for one handler.
CREATE TABLE job (
    row        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
    event      INTEGER NOT NULL REFERENCES event (row) ON DELETE CASCADE,
    handler    TEXT    NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('ready', 'running', 'waiting', 'held', 'succeeded', 'dead', 'dropped')),
    reason     TEXT,
    -- The last attempt's number, never given back.
    attempt    INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    -- Attempts that count against the handler's limit, since the job was made or last replayed.
    counted    INTEGER NOT NULL DEFAULT 0 CHECK (counted BETWEEN 0 AND attempt),
    since      INTEGER NOT NULL,
    replays    INTEGER NOT NULL DEFAULT 0 CHECK (replays >= 0),
    due_at     INTEGER,
    created_at INTEGER NOT NULL,
    settled_at INTEGER,
    UNIQUE (event, handler),
    CHECK (CASE state
        WHEN 'held' THEN coalesce(reason, '') IN ('unknown outcome', 'suspected replay', 'id reused', 'restored', 'cancelled', 'handler gone')
        WHEN 'dead' THEN coalesce(reason, '') IN ('rejected', 'attempts exhausted', 'payload gone', 'resolved as failed')
        WHEN 'dropped' THEN coalesce(reason, '') IN ('by the operator', 'superseded')
        ELSE reason IS NULL
    END),
    CHECK ((state = 'waiting') = (due_at IS NOT NULL)),
    CHECK ((state IN ('succeeded', 'dead', 'dropped')) = (settled_at IS NOT NULL)),
    CHECK (state <> 'running' OR attempt > 0)
) STRICT;

-- What is claimed, in the order of its arrival; what is due; what is live; what waits for a person.
CREATE INDEX job_ready ON job (handler, row) WHERE state = 'ready';
CREATE INDEX job_waiting ON job (handler, due_at) WHERE state = 'waiting';
CREATE INDEX job_running ON job (row) WHERE state = 'running';
CREATE INDEX job_held ON job (row) WHERE state = 'held';
CREATE INDEX job_dead ON job (row) WHERE state = 'dead';

-- One run of a job's handler. It is live while it has no outcome.
CREATE TABLE attempt (
    job          INTEGER NOT NULL REFERENCES job (row) ON DELETE CASCADE,
    number       INTEGER NOT NULL CHECK (number > 0),
    started_at   INTEGER NOT NULL,
    finished_at  INTEGER,
    outcome      TEXT CHECK (outcome IN ('succeeded', 'failed', 'rejected', 'timed_out', 'unknown', 'cancelled', 'not_started')),
    detail       TEXT    NOT NULL DEFAULT '',
    exit_code    INTEGER,
    signal       INTEGER,
    http_status  INTEGER,
    stdout_head  BLOB    NOT NULL DEFAULT x'',
    stdout_tail  BLOB    NOT NULL DEFAULT x'',
    stdout_total INTEGER NOT NULL DEFAULT 0,
    stderr_head  BLOB    NOT NULL DEFAULT x'',
    stderr_tail  BLOB    NOT NULL DEFAULT x'',
    stderr_total INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job, number),
    CHECK ((outcome IS NULL) = (finished_at IS NULL))
) STRICT;

-- At most one attempt of a job is live.
CREATE UNIQUE INDEX attempt_live ON attempt (job) WHERE outcome IS NULL;

-- When each secret last matched; the reference, never the secret.
CREATE TABLE secret_use (
    source          TEXT    NOT NULL,
    reference       TEXT    NOT NULL,
    last_matched_at INTEGER NOT NULL,
    PRIMARY KEY (source, reference)
) STRICT, WITHOUT ROWID;

-- Deliveries that failed verification, the newest few of each source.
CREATE TABLE quarantine (
    row         INTEGER PRIMARY KEY AUTOINCREMENT,
    source      TEXT    NOT NULL,
    received_at INTEGER NOT NULL,
    reason      TEXT    NOT NULL,
    detail      TEXT    NOT NULL,
    headers     BLOB    NOT NULL,
    body_bytes  INTEGER NOT NULL CHECK (body_bytes >= 0),
    -- Under zstd; NULL where the body was too large to keep.
    body        BLOB
) STRICT;
CREATE INDEX quarantine_source ON quarantine (source, row);
