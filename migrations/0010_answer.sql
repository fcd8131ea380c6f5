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
    -- Milliseconds that a 5xx is kept at most.
    keep_errors INTEGER NOT NULL CHECK (keep_errors >= 0),
    -- What its job's handler has answered. Headers as HTTP writes them, the body under zstd.
    answered_at INTEGER,
    status      INTEGER CHECK (status BETWEEN 200 AND 599),
    headers     BLOB,
    body        BLOB,
    body_bytes  INTEGER CHECK (body_bytes >= 0),
    UNIQUE (source, caller, key),
    CHECK ((answered_at IS NULL) = (status IS NULL) AND (status IS NULL) = (headers IS NULL)
        AND (headers IS NULL) = (body IS NULL) AND (body IS NULL) = (body_bytes IS NULL))
) STRICT;

CREATE INDEX answer_expires ON answer (expires_at);
