-- A migration that only tests have. Like one that rebuilds the table of events, it deletes each event while
-- payloads and jobs refer to it, and writes it again.
CREATE TABLE moved AS SELECT * FROM event;
DELETE FROM event;
INSERT INTO event SELECT * FROM moved;
DROP TABLE moved;
ALTER TABLE meta ADD COLUMN tested INTEGER;
