-- The replay guard's first events go from an index, which each event changes as it comes, into a table of their
-- own that many enter at once, in its order: digests come at random, so each changed a page of the index, and
-- of a hundred in order many share one.
--
-- For each million of events it takes some 2 seconds once the store itself is copied: the old index has them in
-- this order.

-- The first event of each body, by 4 bytes of its digest, as far as the store has put it here (`meta.listed`).
-- Whoever asks compares the whole digest and the source in the event's own row, which may be gone.
CREATE TABLE body (
    start BLOB    NOT NULL CHECK (length(start) = 4),
    event INTEGER NOT NULL,
    PRIMARY KEY (start, event)
) STRICT, WITHOUT ROWID;

INSERT INTO body (start, event)
SELECT substr(digest, 1, 4), row FROM event WHERE guarded = 1 AND repeated = 0 ORDER BY substr(digest, 1, 4), row;

-- Of the events up to this one all that belong there are in `body`; of later ones some.
ALTER TABLE meta ADD COLUMN listed INTEGER NOT NULL DEFAULT 0;
UPDATE meta SET listed = (SELECT coalesce(max(row), 0) FROM event);

DROP INDEX event_first;
