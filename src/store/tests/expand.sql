-- A migration that only tests have, for a database that older programs go on to use.
ALTER TABLE event ADD COLUMN tested bigint;
