-- The first schema.
--
-- Times are milliseconds since 1970 in UTC. Row numbers are AUTOINCREMENT where another table or an answer refers
-- to them: SQLite would give the number of a deleted last row again, and an old answer could settle a new row.
-- Tests compare the words in the CHECKs with the enums of `model.rs`. The CHECKs on jobs and attempts compare
-- words with OR: for IN with more than two words, SQLite builds a table of the words at each write.

-- The only row holds the facts about this store.
CREATE TABLE meta (
    one                     INTEGER PRIMARY KEY CHECK (one = 1),
    -- Random; a restore makes a new one, so no runner takes a restored store for the old one.
    store_id                BLOB    NOT NULL CHECK (length(store_id) = 16),
    created_at              INTEGER NOT NULL,
    -- The program that last changed the schema; an older program names it when it refuses the store.
    written_by              TEXT    NOT NULL,
    -- Each receiver raises it at its start; a runner refuses a lower one.
    epoch                   INTEGER NOT NULL DEFAULT 0,
    -- Grows with the commits; the file beside the store keeps it, and finds an older copy.
    mark                    INTEGER NOT NULL DEFAULT 0,
    -- Number of writes that tested whether a full disk has space again.
    probes                  INTEGER NOT NULL DEFAULT 0,
    -- The newest event of which retention removed a job that had run, where the latest of a group wins.
    newest_removed          INTEGER NOT NULL DEFAULT 0,
    -- Damaged payloads that later deliveries have mended, with no more than a day between two, and when the last one.
    mended                  INTEGER NOT NULL DEFAULT 0,
    mended_at               INTEGER,
    -- When the last copy of this store began. In the copy itself: when its knowledge ends.
    copied_at               INTEGER,
    -- When retention last checked the clocks: the wall clock, the clock since boot, and the time since boot until
    -- which retention deletes nothing, the last two in milliseconds.
    clock_checked_at        INTEGER,
    clock_checked_monotonic INTEGER,
    retention_paused_until  INTEGER
) STRICT;

-- A row is one unique (source, event id, variant): an accepted event.
CREATE TABLE event (
    row               INTEGER PRIMARY KEY AUTOINCREMENT,
    source            TEXT    NOT NULL,
    -- A UUID in canonical lower-case form as its 16 bytes, every other id as its text.
    event_id          ANY     NOT NULL CHECK (CASE typeof(event_id)
        WHEN 'text' THEN length(event_id) BETWEEN 1 AND 200
        WHEN 'blob' THEN length(event_id) = 16
        ELSE 0
    END),
    -- 0 for the first body under the id; later bodies, under an id that the signature does not cover, count up.
    variant           INTEGER NOT NULL DEFAULT 0 CHECK (variant >= 0),
    -- `?` where the provider's own text could not be a type; raw_type has that text.
    type              TEXT    NOT NULL,
    raw_type          TEXT,
    digest            BLOB    NOT NULL CHECK (length(digest) = 32),
    received_at       INTEGER NOT NULL,
    body_bytes        INTEGER NOT NULL CHECK (body_bytes >= 0),
    -- The replay guard compares this body with others.
    guarded           INTEGER NOT NULL CHECK (guarded IN (0, 1)),
    -- The guard knew another event of the source with the same body when this one came.
    repeated          INTEGER NOT NULL DEFAULT 0 CHECK (repeated IN (0, 1)),
    -- The guard marked the event and let it run.
    flagged           INTEGER NOT NULL DEFAULT 0 CHECK (flagged IN (0, 1)),
    -- The event is a request with a key. Its `answer` row may be gone; the event still never runs again.
    has_key           INTEGER NOT NULL DEFAULT 0 CHECK (has_key IN (0, 1)),
    duplicates        INTEGER NOT NULL DEFAULT 0 CHECK (duplicates >= 0),
    last_duplicate_at INTEGER,
    -- Duplicates whose body differed under a signed id.
    conflicts         INTEGER NOT NULL DEFAULT 0 CHECK (conflicts BETWEEN 0 AND duplicates),
    -- How many of its jobs had succeeded or been dropped when retention removed them with the payload. Retention
    -- removes all jobs of an event or none.
    removed_succeeded INTEGER NOT NULL DEFAULT 0 CHECK (removed_succeeded >= 0),
    removed_dropped   INTEGER NOT NULL DEFAULT 0 CHECK (removed_dropped >= 0),
    UNIQUE (source, event_id, variant),
    CHECK ((duplicates = 0) = (last_duplicate_at IS NULL))
) STRICT;

-- Finds the first event of a body. 4 bytes of the digest keep the index small: of 10 million events one in 400
-- shares them with another by chance, and the reader compares the whole digest and the source in the row.
CREATE INDEX event_first ON event (substr(digest, 1, 4)) WHERE guarded = 1 AND repeated = 0;

-- Finds the later events of a body. One body may come a million times, under many types and in several sources:
-- whether it came to this source under another type takes two look-ups all the same.
CREATE INDEX event_repeated ON event (digest, source, type) WHERE guarded = 1 AND repeated = 1;

-- A row is the payload of an event: headers as HTTP writes them, the raw body under zstd. Retention deletes it
-- long before the event.
CREATE TABLE payload (
    event   INTEGER PRIMARY KEY REFERENCES event (row) ON DELETE CASCADE,
    headers BLOB NOT NULL,
    body    BLOB NOT NULL,
    -- Over what a handler is given of the event, by which a changed byte is found.
    sum     INTEGER NOT NULL
) STRICT;

-- A row is another body that came under the signed id of an event.
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

-- A row is one event for one handler.
CREATE TABLE job (
    row        INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The idempotency key.
    id         BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
    event      INTEGER NOT NULL REFERENCES event (row) ON DELETE CASCADE,
    handler    TEXT    NOT NULL,
    state      TEXT    NOT NULL CHECK (state = 'ready' OR state = 'running' OR state = 'waiting' OR state = 'held'
        OR state = 'succeeded' OR state = 'dead' OR state = 'dropped'),
    -- Why the job is held, dead or dropped, and what more there is to say of it.
    reason     TEXT,
    detail     TEXT,
    -- The number of the last attempt. A number is never given twice.
    attempt    INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    -- Attempts that count against the handler's limit since the job was made or last replayed, which was at `since`.
    counted    INTEGER NOT NULL DEFAULT 0 CHECK (counted BETWEEN 0 AND attempt),
    since      INTEGER NOT NULL,
    replays    INTEGER NOT NULL DEFAULT 0 CHECK (replays >= 0),
    due_at     INTEGER,
    -- What `due_at` counts from: when the job was made, its last attempt ended, or a clock was found to be set back.
    due_from   INTEGER,
    created_at INTEGER NOT NULL,
    settled_at INTEGER,
    -- Its group, of which one job runs at a time, and what the group's jobs do to each other.
    group_key  TEXT,
    group_rule TEXT CHECK (group_rule = 'block' OR group_rule = 'step-over' OR group_rule = 'latest'),
    -- Another job holds the group: nothing claims this one.
    behind     INTEGER NOT NULL DEFAULT 0 CHECK (behind = 0 OR behind = 1),
    -- When the first event came of those that it replaced before any of them began, where its delay counts from each.
    wait_since INTEGER,
    -- The id of the newer job that took its place.
    superseded_by BLOB CHECK (length(superseded_by) = 16),
    -- In this state a job keeps the others of its group waiting. A delivery that may be forged does not, nor a job of
    -- which the operator has said that it shall not run.
    holds      INTEGER GENERATED ALWAYS AS (group_key IS NOT NULL AND (state = 'ready' OR state = 'running'
        OR state = 'waiting' OR (state = 'dead' AND group_rule = 'block' AND reason <> 'resolved as failed')
        OR (state = 'held' AND group_rule <> 'latest' AND reason <> 'suspected replay' AND reason <> 'id reused')
        )) VIRTUAL,
    UNIQUE (event, handler),
    CHECK ((group_key IS NULL) = (group_rule IS NULL)),
    CHECK (behind = 0 OR holds = 1),
    CHECK (superseded_by IS NULL OR reason IS 'superseded'),
    CHECK (CASE state
        WHEN 'held' THEN reason IS 'unknown outcome' OR reason IS 'suspected replay' OR reason IS 'id reused'
            OR reason IS 'restored' OR reason IS 'cancelled' OR reason IS 'handler gone'
            OR reason IS 'condition failed' OR reason IS 'value refused' OR reason IS 'payload unreadable'
            OR reason IS 'payload damaged'
        WHEN 'dead' THEN reason IS 'rejected' OR reason IS 'attempts exhausted' OR reason IS 'payload gone'
            OR reason IS 'resolved as failed'
        WHEN 'dropped' THEN reason IS 'by the operator' OR reason IS 'superseded'
            OR reason IS 'condition false'
        ELSE reason IS NULL
    END),
    CHECK ((state = 'waiting') = (due_at IS NOT NULL)),
    CHECK ((state = 'succeeded' OR state = 'dead' OR state = 'dropped') = (settled_at IS NOT NULL)),
    CHECK (state <> 'running' OR attempt > 0)
) STRICT;

-- Find the jobs to claim, in the order of arrival, the jobs that are due, and the jobs that wait for a person.
-- Running jobs are found by `attempt_live`.
CREATE INDEX job_ready ON job (handler, behind, row) WHERE state = 'ready';
CREATE INDEX job_waiting ON job (handler, behind, due_at) WHERE state = 'waiting';
CREATE INDEX job_held ON job (row) WHERE state = 'held';
CREATE INDEX job_dead ON job (row) WHERE state = 'dead';

-- Finds the jobs whose wait begins in the future, because a clock was set back.
CREATE INDEX job_due_from ON job (due_from) WHERE state = 'waiting';

-- Count the jobs that wait for a person by their cause, and find the newest of a cause, without a look at the rows of
-- the table, of which each may lie in another page.
CREATE INDEX job_held_cause ON job (handler, reason, row, created_at, group_key) WHERE state = 'held';
CREATE INDEX job_dead_cause ON job (handler, reason, row, created_at, group_key) WHERE state = 'dead';

-- At most one job holds a group. The others are found behind it, in the order of arrival.
CREATE UNIQUE INDEX job_holder ON job (handler, group_key) WHERE holds = 1 AND behind = 0;
CREATE INDEX job_behind ON job (handler, group_key, event) WHERE behind = 1;

-- Finds the newest job of a group that has begun or is to begin. Without those that were dropped before: a million of
-- them may lie between two others.
CREATE INDEX job_begun ON job (handler, group_key, event) WHERE group_key IS NOT NULL AND (attempt > 0 OR holds = 1);

-- A row is an idempotency key that a job had before the operator replayed it under a new one. No two jobs ever
-- share a key, so a key found in an old log still names its job.
CREATE TABLE former_key (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    job         INTEGER NOT NULL REFERENCES job (row) ON DELETE CASCADE,
    -- The last attempt that carried the key.
    attempt     INTEGER NOT NULL CHECK (attempt >= 0),
    replaced_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX former_key_job ON former_key (job);

-- A row is one run of a job's handler. It is live until it has an outcome.
CREATE TABLE attempt (
    job          INTEGER NOT NULL REFERENCES job (row) ON DELETE CASCADE,
    number       INTEGER NOT NULL CHECK (number > 0),
    started_at   INTEGER NOT NULL,
    -- Of a command that is live: the runner that it was claimed for, by its process and by its name. That runner's
    -- silence proves "never started". NULL for a forward, which the receiver runs itself, and once it is settled.
    incarnation  TEXT,
    runner       TEXT CHECK (runner IS NULL OR incarnation IS NOT NULL),
    finished_at  INTEGER,
    outcome      TEXT CHECK (outcome = 'succeeded' OR outcome = 'failed' OR outcome = 'rejected' OR outcome = 'timed_out'
        OR outcome = 'unknown' OR outcome = 'cancelled' OR outcome = 'not_started'),
    detail       TEXT    NOT NULL DEFAULT '',
    exit_code    INTEGER,
    signal       INTEGER,
    http_status  INTEGER,
    -- CPU time of a command and its children, and the largest resident set of one of them.
    cpu_millis   INTEGER,
    memory_bytes INTEGER,
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

-- A row is the key of a request, from the request until the key expires. Once the row is deleted, the next request
-- with the key is a new request and makes a new event.
CREATE TABLE answer (
    -- The request. Its only job is the one that answers. Neither is deleted before this row.
    event       INTEGER PRIMARY KEY REFERENCES event (row) ON DELETE CASCADE,
    source      TEXT    NOT NULL,
    -- The caller whose key it is; empty where the source has one caller.
    caller      TEXT    NOT NULL,
    -- In the form of event.event_id.
    key         ANY     NOT NULL CHECK (CASE typeof(key)
        WHEN 'text' THEN length(key) BETWEEN 1 AND 200
        WHEN 'blob' THEN length(key) = 16
        ELSE 0
    END),
    -- Digest of all that distinguishes this request from others.
    request     BLOB    NOT NULL CHECK (length(request) = 32),
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    -- For how many milliseconds an answer is kept that says "not now".
    keep_errors INTEGER NOT NULL CHECK (keep_errors >= 0),
    -- When such an answer is deleted; then the same request may run the job again.
    error_until INTEGER,
    -- What the job's handler answered: headers as HTTP writes them, the body under zstd.
    answered_at INTEGER,
    status      INTEGER CHECK (status BETWEEN 200 AND 599),
    headers     BLOB,
    body        BLOB,
    body_bytes  INTEGER CHECK (body_bytes >= 0),
    UNIQUE (source, caller, key),
    CHECK ((answered_at IS NULL) = (status IS NULL) AND (status IS NULL) = (headers IS NULL)
        AND (headers IS NULL) = (body IS NULL) AND (body IS NULL) = (body_bytes IS NULL)),
    CHECK (error_until IS NULL OR answered_at IS NOT NULL)
) STRICT;

CREATE INDEX answer_expires ON answer (expires_at);
CREATE INDEX answer_error ON answer (error_until) WHERE error_until IS NOT NULL;

-- A row is a handler whose jobs are not claimed until the operator resumes it. The state of its jobs stays.
CREATE TABLE paused (
    handler TEXT    NOT NULL PRIMARY KEY,
    since   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A row is a handler whose starts are limited by a rate: the microsecond since 1970 at which its starts so far would
-- have come to an end, had each taken its share of the time.
CREATE TABLE pace (
    handler TEXT    NOT NULL PRIMARY KEY,
    busy_to INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A row is a secret, by its reference, and when it last matched. The secret itself is never stored.
CREATE TABLE secret_use (
    source          TEXT    NOT NULL,
    reference       TEXT    NOT NULL,
    last_matched_at INTEGER NOT NULL,
    PRIMARY KEY (source, reference)
) STRICT, WITHOUT ROWID;

-- A row is one kind of trouble, by type, subject and reason, that the receiver reports as an internal event. It is
-- kept while its last event is young or while something is still to be reported.
CREATE TABLE notice (
    type        TEXT    NOT NULL CHECK (type IN ('job.dead', 'job.held', 'store.degraded', 'source.failing', 'handler.broken')),
    -- The handler or source that it is about; empty for the store.
    subject     TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    -- When its last event was made.
    reported_at INTEGER,
    -- How often it happened since then, and is not reported yet; first and last time.
    count       INTEGER NOT NULL DEFAULT 0 CHECK (count >= 0),
    first_at    INTEGER,
    last_at     INTEGER,
    -- The last job that it happened to, where it happens to jobs.
    source      TEXT,
    event_id    TEXT,
    job         BLOB CHECK (length(job) = 16),
    PRIMARY KEY (type, subject, reason),
    CHECK ((count = 0) = (first_at IS NULL)),
    CHECK ((first_at IS NULL) = (last_at IS NULL))
) STRICT, WITHOUT ROWID;

-- A row is one restore in this store's history. The store knows nothing of the events that were accepted and
-- handled between its two times.
CREATE TABLE restored (
    row         INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The identity of the store that the backup was made of.
    from_store  BLOB    NOT NULL CHECK (length(from_store) = 16),
    made_at     INTEGER NOT NULL,
    restored_at INTEGER NOT NULL,
    -- Jobs that were unfinished in the backup and were held by the restore.
    held        INTEGER NOT NULL CHECK (held >= 0)
) STRICT;

-- A row is one change that the admin API was asked for, written in the change's own transaction. A change that is not
-- made in this file (cancel, reload, quarantine-drop) has a row before it and one after it. A row is not edited, with
-- one exception: quarantine-accept is a transaction for each delivery, which adds one to the count of its step.
CREATE TABLE audit (
    row     INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    verb    TEXT    NOT NULL CHECK (verb = 'replay' OR verb = 'make-missing' OR verb = 'resolve' OR verb = 'drop'
        OR verb = 'cancel' OR verb = 'pause' OR verb = 'resume' OR verb = 'quarantine-accept'
        OR verb = 'quarantine-drop' OR verb = 'reload'),
    -- The changed thing or things: a JSON object.
    subject TEXT    NOT NULL,
    -- How many jobs, handlers or deliveries were changed; before a change, how many it is about.
    count   INTEGER NOT NULL CHECK (count >= 0),
    -- 'asked' before a change, 'done' after it, otherwise why it failed.
    result  TEXT    NOT NULL,
    -- What the caller says: why, its name, and the program by which it asks. The kernel says its user.
    reason  TEXT    CHECK (octet_length(reason) BETWEEN 1 AND 500),
    uid     INTEGER NOT NULL,
    name    TEXT    CHECK (octet_length(name) BETWEEN 1 AND 100),
    via     TEXT    NOT NULL CHECK (via = 'command' OR via = 'dashboard')
) STRICT;
