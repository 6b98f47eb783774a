-- The audit trail as chains of hashes, one for each tenant and surface, with signed heads.  What a hash covers:
-- ipf/security/audit_chain.py.  Rows are inserted by ipf/store/audit/chain.py, never changed, and removed by retention alone.

DROP FUNCTION take_up_audit(integer);

-- Every record is chained once, those of earlier releases too, in the order of their times.
INSERT INTO audit_unchained (partition_id, surface, recorded_at, id)
SELECT a.partition_id, a.surface, a.recorded_at, a.id FROM audit_records a
WHERE NOT EXISTS (SELECT FROM audit_unchained u WHERE u.id = a.id AND u.partition_id = a.partition_id)
ORDER BY a.recorded_at, a.id;
DELETE FROM audit_chain;
UPDATE audit_feed SET position = 0;

ALTER TABLE audit_chain
    ADD COLUMN day date NOT NULL,            -- UTC, on which the record was chained
    ADD COLUMN number bigint NOT NULL,       -- in the chain, from 1 each day, without gaps
    ADD COLUMN version smallint NOT NULL,    -- of the digest: which columns it covers
    ADD COLUMN digest bytea,                 -- SHA-256 of the record; NULL: it was missing when it was to be chained
    ADD COLUMN hash bytea NOT NULL;          -- SHA-256 of the previous link's hash and of this row
CREATE UNIQUE INDEX audit_chain_numbers ON audit_chain (partition_id, surface, day, number);
CREATE INDEX audit_chain_records ON audit_chain (partition_id, recorded_at, id);

-- Signed statements: at this time this was the last link of the chain.
CREATE TABLE audit_heads (
    partition_id smallint NOT NULL,          -- of the link, as the next four: tenant, partitions.id
    surface text NOT NULL,                   -- audit_chain.surface
    day date NOT NULL,                       -- audit_chain.day
    number bigint NOT NULL,                  -- audit_chain.number
    hash bytea NOT NULL,                     -- audit_chain.hash
    at timestamptz NOT NULL,                 -- in whole seconds
    reason text NOT NULL,                    -- hour, day, stop; retention: records before `before` were removed
    before timestamptz,                      -- in whole seconds
    key_id text NOT NULL,                    -- audit_keys.key_id
    signature bytea NOT NULL,                -- Ed25519
    PRIMARY KEY (partition_id, surface, day, number, reason, key_id, at)
);
CREATE POLICY tenants ON audit_heads
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE INDEX audit_heads_at ON audit_heads (partition_id, surface, at);

-- Public keys that have signed heads.  Old ones stay.
CREATE TABLE audit_keys (
    key_id text PRIMARY KEY,                 -- the beginning of the key's SHA-256
    public_key bytea NOT NULL,               -- Ed25519, 32 bytes
    created_at timestamptz NOT NULL DEFAULT now() -- the first start with this key
);

-- The chains of an installation begin with its id.
CREATE TABLE audit_installation (
    id uuid NOT NULL DEFAULT gen_random_uuid() -- of the installation
);
INSERT INTO audit_installation DEFAULT VALUES;
