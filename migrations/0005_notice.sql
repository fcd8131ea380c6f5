-- What the receiver tells of itself, coalesced: one row per type, subject and reason, kept while its
-- last event is young or something waits to be told.
CREATE TABLE notice (
    type     TEXT    NOT NULL CHECK (type IN ('job.dead', 'job.held', 'store.degraded', 'source.failing', 'handler.broken')),
    -- The handler or source it is about; empty for the store.
    subject  TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    -- When its last event was made.
    told_at  INTEGER,
    -- What has happened since then, and is not told.
    count    INTEGER NOT NULL DEFAULT 0 CHECK (count >= 0),
    first_at INTEGER,
    last_at  INTEGER,
    -- The last job it happened to, where it happens to jobs.
    source   TEXT,
    event_id TEXT,
    job      BLOB CHECK (length(job) = 16),
    PRIMARY KEY (type, subject, reason),
    CHECK ((count = 0) = (first_at IS NULL)),
    CHECK ((first_at IS NULL) = (last_at IS NULL))
) STRICT, WITHOUT ROWID;
