-- The name of the runner that a command's attempt was claimed for, beside its incarnation: which link is
-- to judge it, whatever runner its handler has by now. NULL for a forward, and where a command was
-- claimed when there was only the default runner.
ALTER TABLE attempt ADD COLUMN runner TEXT CHECK (runner IS NULL OR incarnation IS NOT NULL);
