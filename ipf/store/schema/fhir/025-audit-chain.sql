-- The audit trail as one sequence: each record gets its place after its commit.  The feed to a log server follows it.

CREATE TABLE audit_chain (
    position bigint PRIMARY KEY,             -- from 1, without gaps, in the order in which committed records were taken up
    partition_id smallint NOT NULL,          -- of the record: tenant, partitions.id
    surface text NOT NULL,                   -- of the record: audit_records.surface
    recorded_at timestamptz NOT NULL,        -- of the record
    id uuid NOT NULL                         -- of the record
);
CREATE POLICY tenants ON audit_chain
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);

-- How far a feed has sent the sequence.
CREATE TABLE audit_feed (
    name text PRIMARY KEY,                   -- syslog
    position bigint NOT NULL DEFAULT 0,      -- the receiver has all up to here
    held_by text,                            -- the process that sends
    held_until timestamptz                   -- the end of its lease
);

-- Gives the next committed records their places, at most `most`; returns their number.  One process does so at a time: 0 for
-- the others.  Each statement of a function sees what is committed when it begins, so that the places follow the last ones.
CREATE FUNCTION take_up_audit(most integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    taken_up integer;
BEGIN
    IF NOT pg_try_advisory_xact_lock(4919003) THEN
        RETURN 0;
    END IF;
    WITH next AS (
        SELECT u.position FROM audit_unchained u ORDER BY u.position LIMIT most
    ), taken AS (
        DELETE FROM audit_unchained u USING next n WHERE u.position = n.position
        RETURNING u.position, u.partition_id, u.surface, u.recorded_at, u.id
    ), placed AS (
        INSERT INTO audit_chain (position, partition_id, surface, recorded_at, id)
        SELECT (SELECT coalesce(max(c.position), 0) FROM audit_chain c) + row_number() OVER (ORDER BY t.position),
            t.partition_id, t.surface, t.recorded_at, t.id
        FROM taken t
        RETURNING 1
    )
    SELECT count(*) INTO taken_up FROM placed;
    RETURN taken_up;
END $$;
