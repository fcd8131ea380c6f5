-- The replay guard looks for the body of each new event at a page of its own, for digests come at random:
-- with an index of half the size, more of those pages are in memory.
--
-- For each million of events it takes some 10 seconds once the store itself is copied, and 45 MB of memory,
-- where the entries of the new index are sorted.

-- Whether the guard had an earlier event of its source with the same body when it came.
ALTER TABLE event ADD COLUMN repeated INTEGER NOT NULL DEFAULT 0 CHECK (repeated IN (0, 1));

-- All but the first of each body, by the index there was.
UPDATE event SET repeated = 1
FROM (SELECT substr(digest, 1, 8) AS start, source, min(row) AS first FROM event WHERE guarded = 1
      GROUP BY substr(digest, 1, 8), source HAVING count(*) > 1) AS body
WHERE guarded = 1 AND substr(digest, 1, 8) = body.start AND event.source = body.source AND row > body.first;

-- The first event of each body. 4 bytes of the digest find it: of 10 million events one in 400 shares them
-- with another by chance, and whoever asks compares the whole digest, and the source, in the row. A body is
-- here once for each source, so however often it comes that stays one look-up.
CREATE INDEX event_first ON event (substr(digest, 1, 4)) WHERE guarded = 1 AND repeated = 0;

-- The others, which are few where nobody replays. One body may come a million times, under any types and in
-- several sources: with these in the index "of this source under another type" is two look-ups all the same.
CREATE INDEX event_repeated ON event (digest, source, type) WHERE guarded = 1 AND repeated = 1;

-- Last, for what the index leaves free would be used for the others, and SQLite would keep what was on such
-- pages in memory until the statement ends.
DROP INDEX event_body;
