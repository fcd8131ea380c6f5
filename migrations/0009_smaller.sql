-- Fewer bytes for each event, and fewer of the pages that its arrival changes at random.
--
-- The table of events is copied. For each million of them that takes some 15 seconds once the store itself
-- is copied, and 150 MB each of the log, until it is emptied, and of the database, until retention gives
-- back what the old table had. Nothing refers to the copy before it has the name of the table, and foreign
-- keys are not enforced meanwhile: dropping the old one deletes nothing but it.
CREATE TABLE smaller (
    row               INTEGER PRIMARY KEY AUTOINCREMENT,
    source            TEXT    NOT NULL,
    -- A UUID as its 16 bytes where it came in the canonical lower-case form, every other id as its text.
    event_id          ANY     NOT NULL CHECK (CASE typeof(event_id)
        WHEN 'text' THEN length(event_id) BETWEEN 1 AND 200
        WHEN 'blob' THEN length(event_id) = 16
        ELSE 0
    END),
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
    -- How many of its jobs had succeeded, and been dropped, when they were removed with its payload: all of
    -- them or none.
    removed_succeeded INTEGER NOT NULL DEFAULT 0 CHECK (removed_succeeded >= 0),
    removed_dropped   INTEGER NOT NULL DEFAULT 0 CHECK (removed_dropped >= 0),
    UNIQUE (source, event_id, variant),
    CHECK ((duplicates = 0) = (last_duplicate_at IS NULL))
) STRICT;

-- Finds the same signed body under another id of its source; the type makes "another type" one look-up,
-- however often the body came. The first 8 bytes of the digest find it as surely as all 32: only genuine
-- bodies are here, so nobody can choose two that share them, and whoever asks compares the whole digest in
-- the row.
-- The old index goes with its table: pages that are free before the rows are copied would be used for them,
-- and SQLite keeps what was on such pages in memory until the statement ends.
CREATE INDEX event_body ON smaller (substr(digest, 1, 8), source, type) WHERE guarded = 1;

-- The text of a UUID is made of its digits once more: only where that gives the same text is it canonical.
INSERT INTO smaller (row, source, event_id, variant, type, raw_type, digest, guarded, flagged, received_at,
    body_bytes, duplicates, last_duplicate_at, conflicts)
SELECT row, source,
    CASE WHEN length(digits) = 32 AND event_id = lower(substr(digits, 1, 8) || '-' || substr(digits, 9, 4)
            || '-' || substr(digits, 13, 4) || '-' || substr(digits, 17, 4) || '-' || substr(digits, 21))
        THEN coalesce(unhex(digits), event_id)
        ELSE event_id
    END,
    variant, type, raw_type, digest, guarded, flagged, received_at, body_bytes, duplicates,
    last_duplicate_at, conflicts
FROM (SELECT *, replace(event_id, '-', '') AS digits FROM event) ORDER BY row;

-- The last number given, which the newest row need not have: it is not given again.
DELETE FROM sqlite_sequence WHERE name = 'smaller';
INSERT INTO sqlite_sequence (name, seq) SELECT 'smaller', seq FROM sqlite_sequence WHERE name = 'event';

DROP TABLE event;
ALTER TABLE smaller RENAME TO event;

-- From here on a settled attempt has no incarnation and no runner: nobody asks. Those that have one keep it
-- until they are deleted: without it they would be smaller, and their pages as many.
