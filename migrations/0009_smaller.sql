-- Fewer bytes for each event, and fewer of the pages that its arrival changes at random.

-- Finds the same signed body under another id; the type makes "another type" one look-up. The first 8
-- bytes of the digest find it as surely as all 32: only genuine bodies are here, so nobody can choose two
-- that share them, and whoever asks compares the whole digest, and the source, in the row.
DROP INDEX event_guard;
CREATE INDEX event_guard ON event (substr(digest, 1, 8), type) WHERE guarded = 1;

-- The runner that an attempt was claimed for is asked about only while the attempt is live.
UPDATE attempt SET incarnation = NULL, runner = NULL WHERE outcome IS NOT NULL AND incarnation IS NOT NULL;

-- How many of an event's jobs had succeeded, and been dropped, when they were removed with its payload: all
-- of them or none.
ALTER TABLE event ADD COLUMN removed_succeeded INTEGER NOT NULL DEFAULT 0 CHECK (removed_succeeded >= 0);
ALTER TABLE event ADD COLUMN removed_dropped INTEGER NOT NULL DEFAULT 0 CHECK (removed_dropped >= 0);
