-- A migration that only tests have. A program that does not know it could not go on.
ALTER TABLE event DROP COLUMN tested;
