-- When the last copy of this store was begun; in the copy itself: since when it knows nothing.
ALTER TABLE meta ADD COLUMN copied_at INTEGER;
-- One row per restore in this store's history: between the two times events were accepted, answered and
-- handled that it does not know.
CREATE TABLE restored (
    row         INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The identity of the store that the backup was made of.
    from_store  BLOB    NOT NULL CHECK (length(from_store) = 16),
    made_at     INTEGER NOT NULL,
    restored_at INTEGER NOT NULL,
    -- Jobs that were not finished in the backup, and wait for a person since.
    held        INTEGER NOT NULL CHECK (held >= 0)
) STRICT;
