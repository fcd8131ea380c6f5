-- Failed deliveries lie in a file of their own beside the store, which promises nothing and is never
-- flushed: whoever floods the receiver must not write to this one.
DROP TABLE quarantine;
