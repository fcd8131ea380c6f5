-- The quarantine's own file. It has no migrations: another version's file is thrown away.

CREATE TABLE delivery (
    -- The order of arrival. Never used again, so that an answer never means another delivery.
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    source       TEXT    NOT NULL,
    received_at  INTEGER NOT NULL,
    -- The client, where it is known.
    address      TEXT,
    -- Whom its bytes count for: the address, or the network that one client has.
    holder       TEXT    NOT NULL,
    reason       TEXT    NOT NULL,
    detail       TEXT    NOT NULL,
    -- The event id it claims. Nothing proves it.
    claimed_id   TEXT,
    path         TEXT    NOT NULL,
    headers      BLOB    NOT NULL,
    body_bytes   INTEGER NOT NULL CHECK (body_bytes >= 0),
    -- Under zstd; NULL where none was kept.
    body         BLOB,
    stored_bytes INTEGER NOT NULL CHECK (stored_bytes > 0)
) STRICT;
CREATE INDEX delivery_holder ON delivery (holder, id);
CREATE INDEX delivery_source ON delivery (source, id);
CREATE INDEX delivery_arrival ON delivery (received_at);

-- The bytes of each holder, kept by the triggers below.
CREATE TABLE holder (
    holder TEXT    NOT NULL PRIMARY KEY,
    bytes  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX holder_bytes ON holder (bytes);

CREATE TRIGGER delivery_kept AFTER INSERT ON delivery BEGIN
    INSERT INTO holder (holder, bytes) VALUES (new.holder, new.stored_bytes)
        ON CONFLICT (holder) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER delivery_gone AFTER DELETE ON delivery BEGIN
    UPDATE holder SET bytes = bytes - old.stored_bytes WHERE holder = old.holder;
    DELETE FROM holder WHERE holder = old.holder AND bytes <= 0;
END;

-- What was not kept, or not for its whole time, and why.
CREATE TABLE left_out (
    source     TEXT    NOT NULL,
    why        TEXT    NOT NULL,
    deliveries INTEGER NOT NULL,
    PRIMARY KEY (source, why)
) STRICT, WITHOUT ROWID;
