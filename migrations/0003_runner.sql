-- The runner that a command's attempt was claimed for, as the claim's own transaction knew it: whose
-- silence says "never started". NULL for a forward, which the receiver runs itself.
ALTER TABLE attempt ADD COLUMN incarnation TEXT;
-- What a command used: CPU time of it and its children, and the largest resident set of one of them.
ALTER TABLE attempt ADD COLUMN cpu_millis INTEGER;
ALTER TABLE attempt ADD COLUMN memory_bytes INTEGER;
