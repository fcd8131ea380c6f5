-- A key for which a handler's answer is kept, from its request on until it expires. With the row goes the
-- key: the next request that has it is a new one, with an event of its own.
CREATE TABLE answer (
    -- The request. Its one job is the one that answers; neither is deleted before this row.
    event       INTEGER PRIMARY KEY REFERENCES event (row) ON DELETE CASCADE,
    source      TEXT    NOT NULL,
    -- Whose key it is; empty where the source has one caller.
    caller      TEXT    NOT NULL,
    -- In the form of event.event_id.
    key         ANY     NOT NULL CHECK (CASE typeof(key)
        WHEN 'text' THEN length(key) BETWEEN 1 AND 200
        WHEN 'blob' THEN length(key) = 16
        ELSE 0
    END),
    -- Of all that makes it this request and no other.
    request     BLOB    NOT NULL CHECK (length(request) = 32),
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    -- Milliseconds that an answer is kept which says that the request is not done now.
    keep_errors INTEGER NOT NULL CHECK (keep_errors >= 0),
    -- When such an answer is forgotten, and the same request may have its job run again.
    error_until INTEGER,
    -- What its job's handler has answered. Headers as HTTP writes them, the body under zstd.
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

-- It was a request with a key, which may be gone since: then nothing runs it again, for its caller has his
-- answer, or was told to ask anew.
ALTER TABLE event ADD COLUMN asked INTEGER NOT NULL DEFAULT 0 CHECK (asked IN (0, 1));
