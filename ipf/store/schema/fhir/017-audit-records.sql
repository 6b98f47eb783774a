-- The audit trail: a row for each record, in a table partitioned by month (UTC), so that retention drops whole partitions.

CREATE TABLE audit_records (
    partition_id smallint NOT NULL,          -- tenant: partitions.id
    surface text NOT NULL,                   -- fhir: shown as AuditEvents; admin: for operators alone
    recorded_at timestamptz NOT NULL,        -- the end, in whole milliseconds
    id uuid NOT NULL,                        -- AuditEvent.id: version 7, made of recorded_at and a tail
    interaction text NOT NULL,               -- read, search, create ...; on the surface admin message-read ...
    action text NOT NULL,                    -- AuditEvent.action: C, R, U, D or E
    outcome smallint NOT NULL,               -- AuditEvent.outcome: 0, 4 or 8
    status smallint NOT NULL,                -- HTTP status; 0: there was none
    agent text NOT NULL,                     -- subject of the token, or the client, or anonymous
    agent_name text NOT NULL,                -- the client
    issuer text NOT NULL,                    -- issuer of the token
    user_reference text NOT NULL,            -- fhirUser
    address text NOT NULL,                   -- far end of the connection
    duration_ms integer NOT NULL,            -- how long it took
    correlation_id text NOT NULL,            -- X-Correlation-Id
    target text,                             -- what was asked for, such as Patient?name=x; NULL: the first of entities
    entities text[] NOT NULL,                -- resources written or shown: Patient/1/_history/2
    patients text[] NOT NULL,                -- patients whom it is about, beside those
    origin jsonb,                            -- of a message of a vendor profile: agent_system, source_system, details
    keys text[] NOT NULL,                    -- searched: e:Patient/1 entity or patient, a:subject<TAB>issuer, a:Practitioner/7
    PRIMARY KEY (partition_id, recorded_at, id) INCLUDE (surface)
) PARTITION BY RANGE (recorded_at);
CREATE INDEX audit_records_keys ON audit_records USING gin (keys);
CREATE INDEX audit_records_correlation ON audit_records (correlation_id);
CREATE POLICY tenants ON audit_records
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);

-- Takes records of months without a partition, so that none is lost.
CREATE TABLE audit_records_default PARTITION OF audit_records DEFAULT;
CREATE POLICY tenants ON audit_records_default
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);

-- Makes the partition of a month, audit_records_y2026m11, unless it exists.  Records of it in the default partition move.
CREATE FUNCTION ensure_audit_month(moment timestamptz) RETURNS void LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    first timestamptz := date_trunc('month', moment);
    after timestamptz := first + interval '1 month';
    name text := to_char(first, '"audit_records_y"YYYY"m"MM');
BEGIN
    IF to_regclass(name) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(4919002);
    IF to_regclass(name) IS NOT NULL THEN -- another process was first
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE audit_records INCLUDING DEFAULTS)', name);
    EXECUTE format('WITH moved AS (DELETE FROM audit_records_default WHERE recorded_at >= $1 AND recorded_at < $2'
                   ' RETURNING *) INSERT INTO %I SELECT * FROM moved', name) USING first, after;
    EXECUTE format('CREATE POLICY tenants ON %I'
                   ' USING (partition_id = nullif(current_setting(''ipf.partition'', true), '''')::smallint)', name);
    IF (SELECT relrowsecurity FROM pg_class WHERE oid = 'audit_records'::regclass) THEN
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    END IF;
    EXECUTE format('ALTER TABLE audit_records ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, first, after);
END $$;

-- Records that earlier releases wrote are in audit_blocks, compressed.  ipf/pipeline/maintenance/audit_maintenance.py moves
-- them to audit_records; nothing is written to audit_blocks any more.
