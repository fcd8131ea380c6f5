-- Payloads as what is their own: what the events of one source and type have in common is stored once.

-- Words that several payloads of a source and type have in common, in their order: a dictionary for zstd. It is
-- never deleted, so a payload that refers to one always has it; how many there can be is bounded.
CREATE TABLE pattern (
    row     INTEGER PRIMARY KEY AUTOINCREMENT,
    source  TEXT    NOT NULL,
    type    TEXT    NOT NULL,
    made_at INTEGER NOT NULL,
    -- Under zstd.
    words   BLOB    NOT NULL,
    UNIQUE (source, type)
) STRICT;

-- Where it is set, `headers` is empty, and `body` is one frame of headers and body, made with this pattern's
-- words; the event's `body_bytes` says where the body begins. No foreign key: without an index it would have the
-- payloads searched, and with one each of them would take more.
ALTER TABLE payload ADD COLUMN pattern INTEGER;
