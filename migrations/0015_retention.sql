-- Nothing of a payload outlives it: a dictionary had words of the payloads that it was learned from. A store
-- with such words is refused before this (schema.rs).
--
-- Writes the table of payloads anew, so it takes as long as copying the store.
ALTER TABLE payload DROP COLUMN pattern;
DROP TABLE pattern;

-- When retention looked last: by the wall clock, by the clock that counts from the machine's start, and until when
-- on that one nothing is deleted. In milliseconds.
ALTER TABLE meta ADD COLUMN looked_at INTEGER;
ALTER TABLE meta ADD COLUMN looked_monotonic INTEGER;
ALTER TABLE meta ADD COLUMN quiet_until INTEGER;
