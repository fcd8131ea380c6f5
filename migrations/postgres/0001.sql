-- Text that is compared is COLLATE "C". An update of the C library changes the order of any other collation under an
-- index, and a unique index with a changed order lets a duplicate in.
-- An administrator may have made the schema for the role, which then needs no right to make one.
DO $$ BEGIN
    IF to_regnamespace('hooklatch') IS NULL THEN
        CREATE SCHEMA hooklatch;
    END IF;
END $$;

CREATE TABLE meta (
    one smallint PRIMARY KEY CHECK (one = 1),
    store_id uuid NOT NULL,
    -- The first store_id, by which runners know the store: a change of the history keeps it.
    origin uuid NOT NULL,
    -- The server and its timeline in hexadecimal. A restore or a promotion changes them.
    system text COLLATE "C" NOT NULL,
    timeline text COLLATE "C" NOT NULL,
    -- The oids of the database and of this table, which a dump that is loaded elsewhere changes. As numbers: a name would be
    -- looked up again when the dump is loaded.
    database oid NOT NULL,
    own oid NOT NULL,
    -- The number of the newest event of which retention removed a job that had run, where the latest of a group wins.
    newest_removed bigint NOT NULL DEFAULT 0,
    -- Damaged payloads that later deliveries have mended, with no more than a day between two, and when the last one.
    mended bigint NOT NULL DEFAULT 0,
    mended_at bigint,
    -- How many migrations were run, and how many a program must know at least.
    schema bigint NOT NULL DEFAULT 1,
    oldest bigint NOT NULL DEFAULT 1
);

-- Made once. A copy of the database has the same one.
INSERT INTO meta (one, store_id, origin, system, timeline, database, own)
SELECT 1, id, id, system_identifier::text, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8),
    (SELECT oid FROM pg_database WHERE datname = current_database()), 'hooklatch.meta'::regclass
FROM pg_control_system(), gen_random_uuid() id;

-- Whether the rows are where they were written, and not loaded from a dump.
CREATE FUNCTION is_in_place() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT own = 'hooklatch.meta'::regclass
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) FROM hooklatch.meta
$$;

CREATE TABLE node (
    -- Random, made in the node's state folder.
    id uuid PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    -- What tells one machine from another, so that a copied folder is found.
    machine text COLLATE "C" NOT NULL,
    -- Random, written by each registration. A transaction of an earlier session fails.
    session uuid NOT NULL,
    -- Grows with each session.
    count bigint NOT NULL,
    -- Grows while the node works. Its state folder has it too: rows with a smaller one were put back.
    mark bigint NOT NULL DEFAULT 0,
    version text COLLATE "C" NOT NULL,
    -- How many migrations its program knows.
    schema bigint NOT NULL DEFAULT 1,
    state text COLLATE "C" NOT NULL CHECK (state IN ('active', 'lost')),
    -- When it last looked at the server, or was registered. It decides nothing.
    seen_at bigint NOT NULL DEFAULT (extract(epoch FROM now()) * 1000)::bigint,
    -- The seen_at of a silence of which a notice was counted.
    silence_told bigint,
    -- When its retention last checked the clocks: the database's, the node's since boot, and the time since boot until
    -- which its retention deletes nothing, the last two in milliseconds.
    clock_checked_at bigint,
    clock_checked_monotonic bigint,
    retention_paused_until bigint
);

-- The name of a lost node is free for another machine.
CREATE UNIQUE INDEX node_name ON node (name) WHERE state = 'active';

-- Fails where the connection has lost what this program has set: a pooler gives each transaction another one.
CREATE FUNCTION check_settings() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('client_min_messages') <> 'warning'
        OR current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        RAISE EXCEPTION 'the settings of the connection are lost: use no pooler in transaction mode'
            USING ERRCODE = 'HL002';
    END IF;
END $$;

-- The first statement of every transaction of a node. FOR NO KEY UPDATE leaves no dead row and is written to the log,
-- so the transaction's commit waits for the flush and for the standbys even if the rest of it writes nothing.
CREATE FUNCTION fence(own uuid, own_session uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_settings();
    PERFORM FROM node WHERE id = own AND session = own_session AND state = 'active' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'node % has another session, or is declared lost', own USING ERRCODE = 'HL001';
    END IF;
END $$;

-- Fails if a program cannot use the tables: a later version has taken something away, or a migration that the program
-- needs is missing.
CREATE FUNCTION check_schema(known bigint, needed bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT oldest FROM meta) > known THEN
        RAISE EXCEPTION 'the database is of a newer version of this program; upgrade it here'
            USING ERRCODE = 'HL003';
    ELSIF (SELECT schema FROM meta) < needed THEN
        RAISE EXCEPTION 'the tables are of an older version of this program; upgrade the nodes that run one (hooklatch node list), then start a receiver of this version'
            USING ERRCODE = 'HL003';
    END IF;
END $$;

-- Between a transaction's last statement and its COMMIT: a warning that comes behind this message is about the commit.
-- INFO is sent at every level of the client, and is not written to the server's log.
CREATE FUNCTION commit_follows() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE INFO 'COMMIT follows' USING ERRCODE = 'HL100';
END $$;

-- The time of the database's clock at the begin of the transaction, in milliseconds since 1970.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql STABLE
    RETURN (extract(epoch FROM now()) * 1000)::bigint;

-- When a delivery arrived, by the clock of its node where that is no more than an hour wrong. Otherwise retention would
-- delete the event at once, or never.
CREATE FUNCTION arrived(at bigint) RETURNS bigint LANGUAGE sql STABLE
    RETURN least(greatest(at, now_ms() - 3600000), now_ms() + 3600000);

-- The time of the database's clock at the call: behind the locks that the transaction has waited for.
CREATE FUNCTION clock_ms() RETURNS bigint LANGUAGE sql VOLATILE
    RETURN (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- The first statement of every transaction of an operator, and of retention. Its lock is written to the log as that of
-- the fence is, and no other transaction waits for it. Returns the time.
CREATE FUNCTION guest(known bigint, needed bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_settings();
    PERFORM FROM meta WHERE one = 1 FOR KEY SHARE;
    PERFORM check_schema(known, needed);
    RETURN now_ms();
END $$;

-- A row is one unique (source, event id, variant): an accepted event. With CACHE 1, an event that comes after another
-- one was answered has the higher row number, whichever nodes they reach.
CREATE TABLE event (
    row bigint GENERATED BY DEFAULT AS IDENTITY (CACHE 1) PRIMARY KEY,
    source text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL CHECK (octet_length(event_id) BETWEEN 1 AND 200),
    -- 0 for the first body under the id; later bodies, under an id that the signature does not cover, count up.
    variant bigint NOT NULL CHECK (variant >= 0),
    -- `?` where the provider's own text could not be a type; raw_type has that text, as UTF-8. It may contain NUL,
    -- which a column of type text cannot.
    type text COLLATE "C" NOT NULL,
    raw_type bytea,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    -- By the clock of the node that it came to.
    received_at bigint NOT NULL,
    body_bytes bigint NOT NULL CHECK (body_bytes >= 0),
    -- The replay guard compares this body with others.
    guarded boolean NOT NULL,
    -- The guard knew another event of the source with the same body when this one came.
    repeated boolean NOT NULL CHECK (guarded OR NOT repeated),
    -- The guard marked the event and let it run.
    flagged boolean NOT NULL,
    -- The event is a request with a key. Its `answer` row may be gone; the event still never runs again.
    has_key boolean NOT NULL DEFAULT false,
    duplicates bigint NOT NULL DEFAULT 0 CHECK (duplicates >= 0),
    last_duplicate_at bigint,
    -- Duplicates whose body differed under a signed id.
    conflicts bigint NOT NULL DEFAULT 0 CHECK (conflicts BETWEEN 0 AND duplicates),
    -- How many of its jobs had succeeded or been dropped when retention removed them with the payload.
    removed_succeeded bigint NOT NULL DEFAULT 0 CHECK (removed_succeeded >= 0),
    removed_dropped bigint NOT NULL DEFAULT 0 CHECK (removed_dropped >= 0),
    UNIQUE (source, event_id, variant),
    CHECK ((duplicates = 0) = (last_duplicate_at IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- Of the guarded events with one body only one can be the first, whichever nodes they reach. A second one is stored
-- as repeated.
CREATE UNIQUE INDEX event_first ON event (source, digest) WHERE guarded AND NOT repeated;

-- Finds the later events of a body. One body may come a million times, under many types: whether it came under
-- another type takes two look-ups all the same.
CREATE INDEX event_repeated ON event (source, digest, type) WHERE guarded AND repeated;

-- Finds the variant of an id with a body and a type. A sender can make any number of variants.
CREATE INDEX event_variant ON event (source, event_id, digest, type, sha256(coalesce(raw_type, '')), variant)
    WHERE variant > 0;

-- A row is the payload of an event: headers as HTTP writes them, the raw body under zstd. Retention deletes it
-- long before the event.
CREATE TABLE payload (
    event bigint PRIMARY KEY REFERENCES event (row) ON DELETE CASCADE,
    headers bytea NOT NULL,
    body bytea NOT NULL,
    -- Over what a handler is given of the event, by which a changed byte is found.
    sum bigint NOT NULL
);

-- The server does not try to compress it a second time.
ALTER TABLE payload ALTER COLUMN body SET STORAGE EXTERNAL;

-- A row is another body that came under the signed id of an event.
CREATE TABLE evidence (
    row bigint GENERATED BY DEFAULT AS IDENTITY (CACHE 1) PRIMARY KEY,
    event bigint NOT NULL REFERENCES event (row) ON DELETE CASCADE,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    received_at bigint NOT NULL,
    headers bytea NOT NULL,
    body_bytes bigint NOT NULL CHECK (body_bytes >= 0),
    body bytea NOT NULL,
    -- Its index finds the rows of an event too.
    UNIQUE (event, digest)
);

ALTER TABLE evidence ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX evidence_received ON evidence (received_at);

-- A row is a group of a handler's jobs, of which one runs at a time. Whoever makes a job of it or moves one locks the
-- row first.
CREATE TABLE job_group (
    handler text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    PRIMARY KEY (handler, key)
);

-- A row is one event for one handler. Its times are the database's.
CREATE TABLE job (
    row bigint GENERATED BY DEFAULT AS IDENTITY (CACHE 1) PRIMARY KEY,
    -- The idempotency key.
    id uuid NOT NULL UNIQUE,
    event bigint NOT NULL REFERENCES event (row) ON DELETE CASCADE,
    handler text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL
        CHECK (state IN ('ready', 'running', 'waiting', 'held', 'succeeded', 'dead', 'dropped')),
    -- Why the job is held, dead or dropped, and what more there is to say of it.
    reason text COLLATE "C",
    detail text,
    -- The number of the last attempt. A number is never given twice.
    attempt bigint NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    -- Attempts that count against the handler's limit since the job was made or last replayed, which was at `since`.
    counted bigint NOT NULL DEFAULT 0 CHECK (counted BETWEEN 0 AND attempt),
    since bigint NOT NULL,
    replays bigint NOT NULL DEFAULT 0 CHECK (replays >= 0),
    due_at bigint,
    -- What `due_at` counts from: when the job was made, its last attempt ended, or a clock was found to be set back.
    due_from bigint,
    created_at bigint NOT NULL,
    settled_at bigint,
    -- Its group, and what the group's jobs do to each other.
    group_key text COLLATE "C",
    group_rule text COLLATE "C" CHECK (group_rule IN ('block', 'step-over', 'latest')),
    -- Another job holds the group: nothing claims this one.
    behind boolean NOT NULL DEFAULT false,
    -- When the first event came of those that it replaced before any of them began, where its delay counts from each.
    wait_since bigint,
    -- The id of the newer job that took its place.
    superseded_by uuid,
    -- In this state a job keeps the others of its group waiting. A delivery that may be forged does not, nor a job of
    -- which the operator has said that it shall not run.
    holds boolean NOT NULL GENERATED ALWAYS AS (group_key IS NOT NULL AND (state IN ('ready', 'running', 'waiting')
        OR (state = 'dead' AND group_rule = 'block' AND reason <> 'resolved as failed')
        OR (state = 'held' AND group_rule <> 'latest' AND reason NOT IN ('suspected replay', 'id reused')))) STORED,
    -- Its index finds the jobs of an event too.
    UNIQUE (event, handler),
    CHECK ((group_key IS NULL) = (group_rule IS NULL)),
    CHECK (holds OR NOT behind),
    CHECK (superseded_by IS NULL OR reason = 'superseded'),
    CHECK (CASE state
        WHEN 'held' THEN coalesce(reason IN ('unknown outcome', 'suspected replay', 'id reused', 'restored',
            'cancelled', 'handler gone', 'condition failed', 'value refused', 'payload unreadable',
            'payload damaged'), false)
        WHEN 'dead' THEN coalesce(reason IN ('rejected', 'attempts exhausted', 'payload gone',
            'resolved as failed'), false)
        WHEN 'dropped' THEN coalesce(reason IN ('by the operator', 'superseded', 'condition false'), false)
        ELSE reason IS NULL
    END),
    CHECK ((state = 'waiting') = (due_at IS NOT NULL)),
    CHECK ((state IN ('succeeded', 'dead', 'dropped')) = (settled_at IS NOT NULL)),
    CHECK (state <> 'running' OR attempt > 0)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- Find the jobs to claim, in the order of arrival, the jobs that are due, and the jobs that wait for a person.
CREATE INDEX job_ready ON job (handler, row) WHERE state = 'ready' AND NOT behind;
CREATE INDEX job_waiting ON job (handler, due_at, row) WHERE state = 'waiting' AND NOT behind;
CREATE INDEX job_held ON job (row) WHERE state = 'held';
CREATE INDEX job_dead ON job (row) WHERE state = 'dead';

-- Finds the jobs whose wait begins in the future, because a clock was set back.
CREATE INDEX job_due_from ON job (due_from) WHERE state = 'waiting';

-- One job holds a group; those behind it in the order of their events; and those that have begun or are to begin.
CREATE UNIQUE INDEX job_holder ON job (handler, group_key) WHERE holds AND NOT behind;
CREATE INDEX job_behind ON job (handler, group_key, event) WHERE behind;
CREATE INDEX job_begun ON job (handler, group_key, event) WHERE group_key IS NOT NULL AND (attempt > 0 OR holds);

-- Counts a handler's attempts where the cluster limits them.
CREATE INDEX job_running ON job (handler) WHERE state = 'running';

-- A row is an idempotency key that a job had before, when it was replayed under a new one.
CREATE TABLE former_key (
    id uuid PRIMARY KEY,
    job bigint NOT NULL REFERENCES job (row) ON DELETE CASCADE,
    -- The last attempt that carried the key.
    attempt bigint NOT NULL CHECK (attempt >= 0),
    replaced_at bigint NOT NULL
);

CREATE INDEX former_key_job ON former_key (job);

-- A row is one attempt of a job. Its times are the database's.
CREATE TABLE attempt (
    job bigint NOT NULL REFERENCES job (row) ON DELETE CASCADE,
    number bigint NOT NULL CHECK (number > 0),
    started_at bigint NOT NULL,
    node uuid NOT NULL REFERENCES node (id),
    -- The session that claimed it. NULL once the node was declared lost: what the claimant reports then is a late end.
    claimant uuid,
    -- Of a command: the runner that it was claimed for, by its process and by its name. That runner's silence proves
    -- "never started". NULL for a forward, which the receiver runs itself, and once its claimant has reported its end.
    incarnation text COLLATE "C",
    runner text COLLATE "C" CHECK (runner IS NULL OR incarnation IS NOT NULL),
    -- The operator asked its node to end it.
    cancel_asked boolean NOT NULL DEFAULT false,
    finished_at bigint,
    outcome text COLLATE "C" CHECK (outcome IN ('succeeded', 'failed', 'rejected', 'timed_out', 'unknown', 'cancelled',
        'not_started')),
    detail text NOT NULL DEFAULT '',
    exit_code integer,
    signal integer,
    http_status integer,
    -- CPU time of a command and its children, and the largest resident set of one of them.
    cpu_millis bigint,
    memory_bytes bigint,
    stdout_head bytea NOT NULL DEFAULT '',
    stdout_tail bytea NOT NULL DEFAULT '',
    stdout_total bigint NOT NULL DEFAULT 0,
    stderr_head bytea NOT NULL DEFAULT '',
    stderr_tail bytea NOT NULL DEFAULT '',
    stderr_total bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (job, number),
    CHECK ((outcome IS NULL) = (finished_at IS NULL)),
    CHECK (outcome IS NOT NULL OR claimant IS NOT NULL)
);

-- Of a job one attempt is live, and a node finds its own.
CREATE UNIQUE INDEX attempt_live ON attempt (job) WHERE outcome IS NULL;
CREATE INDEX attempt_of_node ON attempt (node) WHERE outcome IS NULL;
CREATE INDEX attempt_lost ON attempt (node) WHERE claimant IS NULL;

-- A row is the report of an attempt that was settled without it: its node was declared lost, or the database has gone
-- back. It changes nothing. The job may be gone, so its id is not a foreign key.
CREATE TABLE late_end (
    job uuid NOT NULL,
    attempt bigint NOT NULL,
    claimant uuid NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    detail text NOT NULL,
    received_at bigint NOT NULL,
    PRIMARY KEY (job, attempt, claimant)
);

CREATE INDEX late_end_received ON late_end (received_at);

-- A row is one handler of the cluster. Every claim locks it: an update waits for the claims under way, and is seen by
-- every later one.
CREATE TABLE lane (
    handler text COLLATE "C" PRIMARY KEY,
    -- Nothing is claimed while it is set.
    paused_at bigint,
    -- Where its starts have a rate: the database's time to which the attempts that have started use it up.
    busy_to bigint
);

-- A row is one handler in a node's configuration, as it was at the node's last registration.
CREATE TABLE handler (
    node uuid NOT NULL REFERENCES node (id),
    handler text COLLATE "C" NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    on_unknown text COLLATE "C" NOT NULL CHECK (on_unknown IN ('hold', 'rerun')),
    -- When a job gives up: after so many attempts, or so many milliseconds.
    give_up_attempts bigint,
    give_up_after bigint,
    -- The delays between attempts, in milliseconds.
    backoff_base bigint NOT NULL,
    backoff_max bigint NOT NULL,
    pauses bigint[] NOT NULL,
    -- The node runs its jobs. It accepts them anyway.
    runs boolean NOT NULL,
    -- The sources whose events it takes.
    sources text[] NOT NULL,
    -- Its keys with their values, for a comparison of nodes: a JSON object. Nothing of it is a secret, or a value of a
    -- command's environment.
    settings text NOT NULL,
    PRIMARY KEY (node, handler),
    CHECK ((give_up_attempts IS NULL) <> (give_up_after IS NULL))
);

-- A row is a secret, by its reference, and when it last matched. The secret itself is never stored.
CREATE TABLE secret_use (
    source text COLLATE "C" NOT NULL,
    reference text COLLATE "C" NOT NULL,
    last_matched_at bigint NOT NULL,
    PRIMARY KEY (source, reference)
);

-- A row is the stored answer to a request with a key.
CREATE TABLE answer (
    -- The request. Its only job is the one that answers. Neither is deleted before this row.
    event bigint PRIMARY KEY REFERENCES event (row) ON DELETE CASCADE,
    source text COLLATE "C" NOT NULL,
    -- The caller whose key it is; empty where the source has one caller.
    caller text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 200),
    -- Digest of all that distinguishes this request from others.
    request bytea NOT NULL CHECK (octet_length(request) = 32),
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    -- For how many milliseconds an answer is kept that says "not now".
    keep_errors bigint NOT NULL CHECK (keep_errors >= 0),
    -- When such an answer is deleted; then the same request may run the job again.
    error_until bigint,
    -- What the job's handler answered: headers as HTTP writes them, the body under zstd.
    answered_at bigint,
    status integer CHECK (status BETWEEN 200 AND 599),
    headers bytea,
    body bytea,
    body_bytes bigint CHECK (body_bytes >= 0),
    UNIQUE (source, caller, key),
    CHECK ((answered_at IS NULL) = (status IS NULL) AND (status IS NULL) = (headers IS NULL)
        AND (headers IS NULL) = (body IS NULL) AND (body IS NULL) = (body_bytes IS NULL)),
    CHECK (error_until IS NULL OR answered_at IS NOT NULL)
);

ALTER TABLE answer ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX answer_expires ON answer (expires_at);
CREATE INDEX answer_error ON answer (error_until) WHERE error_until IS NOT NULL;

-- A row is what operators are told of one subject: what was reported, and what happened since.
CREATE TABLE notice (
    type text COLLATE "C" NOT NULL
        CHECK (type IN ('job.dead', 'job.held', 'store.degraded', 'store.lost', 'source.failing', 'handler.broken',
            'node.silent')),
    -- The handler or source that it is about; empty for the store.
    subject text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    -- When its last event was made.
    reported_at bigint,
    -- How often it happened since then, and is not reported yet; first and last time.
    count bigint NOT NULL DEFAULT 0 CHECK (count >= 0),
    first_at bigint,
    last_at bigint,
    -- The last job that it happened to, where it happens to jobs.
    source text COLLATE "C",
    event_id text COLLATE "C",
    job uuid,
    PRIMARY KEY (type, subject, reason),
    CHECK ((count = 0) = (first_at IS NULL)),
    CHECK ((first_at IS NULL) = (last_at IS NULL))
);

-- A row is a node that has not said in this history what its runners list, or, with a job, an attempt that they list and
-- that does not run in this history. While there is one, no job is replayed, and none of a group is claimed.
CREATE TABLE roll_call (
    node uuid NOT NULL REFERENCES node (id),
    -- It may be missing in this history, with its event.
    job uuid,
    attempt bigint,
    UNIQUE NULLS NOT DISTINCT (job, attempt, node)
);

CREATE INDEX roll_call_node ON roll_call (node);

-- A row is a change of the history: the database was restored or promoted, and its unfinished jobs were held.
CREATE TABLE restored (
    row bigint GENERATED BY DEFAULT AS IDENTITY (CACHE 1) PRIMARY KEY,
    from_store uuid NOT NULL,
    -- When the backup was made, where it was one of a file.
    made_at bigint,
    restored_at bigint NOT NULL,
    held bigint NOT NULL CHECK (held >= 0),
    -- Accepted events that nodes have missed since. Their logs name them.
    lost bigint NOT NULL DEFAULT 0
);

-- A row is one change that an operator asked for, or its result.
CREATE TABLE audit (
    row bigint GENERATED BY DEFAULT AS IDENTITY (CACHE 1) PRIMARY KEY,
    at bigint NOT NULL,
    verb text COLLATE "C" NOT NULL,
    -- The changed thing or things: a JSON object.
    subject text COLLATE "C" NOT NULL,
    -- How many jobs, handlers or deliveries were changed; before a change, how many it is about.
    count bigint NOT NULL CHECK (count >= 0),
    -- 'asked' before a change, 'done' after it, otherwise why it failed.
    result text COLLATE "C" NOT NULL,
    -- What the caller says: why, its name, and the program by which it asks. The kernel says its user. 500 and 100
    -- bytes, each of which may have been a NUL, in whose place there is a letter of 3 bytes.
    reason text COLLATE "C" CHECK (octet_length(reason) BETWEEN 1 AND 1500),
    uid bigint NOT NULL,
    name text COLLATE "C" CHECK (octet_length(name) BETWEEN 1 AND 300),
    via text COLLATE "C" NOT NULL CHECK (via IN ('command', 'dashboard'))
);
