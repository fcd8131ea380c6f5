-- Text that is compared is COLLATE "C". An update of the C library changes the order of any other collation under an
-- index, and a unique index with a changed order lets a duplicate in.
CREATE SCHEMA hooklatch;

CREATE TABLE meta (
    one smallint PRIMARY KEY CHECK (one = 1),
    store_id uuid NOT NULL
);

-- Made once. A copy of the database has the same one.
INSERT INTO meta (one, store_id) VALUES (1, gen_random_uuid());

CREATE TABLE node (
    -- Random, made in the node's state folder.
    id uuid PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    -- What tells one machine from another, so that a copied folder is found.
    machine text COLLATE "C" NOT NULL,
    -- Random, written by each registration. A transaction of an earlier session fails.
    session uuid NOT NULL,
    -- Grows with each session.
    count bigint NOT NULL,
    version text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('active', 'lost'))
);

-- The name of a lost node is free for another machine.
CREATE UNIQUE INDEX node_name ON node (name) WHERE state = 'active';

-- The first statement of every transaction. FOR NO KEY UPDATE leaves no dead row and is written to the log, so the
-- transaction's commit waits for the flush and for the standbys even if the rest of it writes nothing.
CREATE FUNCTION fence(own uuid, own_session uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- A pooler that gives each transaction another connection loses what this program has set.
    IF current_setting('client_min_messages') <> 'warning'
        OR current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        RAISE EXCEPTION 'the settings of the connection are lost: use no pooler in transaction mode'
            USING ERRCODE = 'HL002';
    END IF;
    PERFORM FROM node WHERE id = own AND session = own_session AND state = 'active' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'node % has another session, or is declared lost', own USING ERRCODE = 'HL001';
    END IF;
END $$;
