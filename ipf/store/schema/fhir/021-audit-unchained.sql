-- Records of the audit trail are written in the transaction of what they record.  Each waits in audit_unchained until the
-- chain of hashes takes it up.

ALTER TABLE audit_records ADD COLUMN purpose text[] NOT NULL DEFAULT '{}'; -- purposes of use of the token: system|code
ALTER TABLE audit_records ADD COLUMN request_id text NOT NULL DEFAULT '';  -- X-Request-Id as the client sent it

-- Records that are in no chain yet; their rows appear in the transaction of the record, in the same statement.
CREATE TABLE audit_unchained (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order in which the chain takes them up
    partition_id smallint NOT NULL,          -- tenant: partitions.id
    surface text NOT NULL,                   -- of the record: audit_records.surface
    recorded_at timestamptz NOT NULL,        -- of the record
    id uuid NOT NULL                         -- of the record
);
CREATE POLICY tenants ON audit_unchained
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
-- Rows come and go all the time.
ALTER TABLE audit_unchained SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- Inserts records; those that are there already stay as they are.  `records`: JSON, ipf/store/audit/rows.py.
CREATE FUNCTION insert_audit(records text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH made AS (
        INSERT INTO audit_records (partition_id, surface, recorded_at, id, interaction, action, outcome, status, agent,
            agent_name, issuer, user_reference, address, duration_ms, correlation_id, target, entities, patients,
            origin, keys, purpose, request_id)
        SELECT k.partition_id, k.surface, timestamptz 'epoch' + r.at * interval '1 millisecond', r.id, k.interaction,
            k.action, k.outcome, k.status, k.agent, k.agent_name, k.issuer, k."user", k.address, r.duration_ms,
            r.correlation_id, r.target, r.entities, r.patients, r.origin, r.keys || k.keys, k.purpose, r.request_id
        FROM json_to_recordset(insert_audit.records::json) AS k (partition_id smallint, surface text, interaction text,
            action text, outcome smallint, status smallint, agent text, agent_name text, issuer text, "user" text,
            address text, purpose text[], keys text[], records json),
        json_to_recordset(k.records) AS r (at bigint, id uuid, duration_ms integer, correlation_id text, target text,
            entities text[], patients text[], origin jsonb, request_id text, keys text[])
        ON CONFLICT DO NOTHING
        RETURNING partition_id, surface, recorded_at, id
    )
    INSERT INTO audit_unchained (partition_id, surface, recorded_at, id)
    SELECT m.partition_id, m.surface, m.recorded_at, m.id FROM made m ORDER BY m.recorded_at, m.id;
END $$;

-- Inserts records within the transaction of what they record, under a savepoint: when that fails, the transaction goes on,
-- and a warning that begins with audit_not_written says why.  It names no value.
CREATE FUNCTION note_audit(records text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    at_table text;
    at_constraint text;
BEGIN
    PERFORM insert_audit(records);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS at_table = TABLE_NAME, at_constraint = CONSTRAINT_NAME;
    RAISE WARNING 'audit_not_written %', concat_ws(' ', 'SQLSTATE', SQLSTATE, nullif(at_table, ''),
        nullif(at_constraint, ''), CASE WHEN SQLSTATE LIKE '42%' THEN SQLERRM END); -- names of the schema, never values
END $$;
