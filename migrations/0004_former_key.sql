-- The idempotency keys that a job had before the operator put it back under a new one. No two jobs,
-- now or before, share a key: a former one still names its job for whoever finds it in a log.
CREATE TABLE former_key (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    job         INTEGER NOT NULL REFERENCES job (row) ON DELETE CASCADE,
    -- The last attempt that carried it.
    attempt     INTEGER NOT NULL CHECK (attempt >= 0),
    replaced_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX former_key_job ON former_key (job);
