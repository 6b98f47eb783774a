-- The audit trail: one narrow row for each audited operation, shown as an AuditEvent resource.

CREATE TABLE audit_events (
    partition_id smallint NOT NULL,          -- tenant
    id uuid NOT NULL,                        -- version 7: grows with recorded_at
    recorded_at timestamptz NOT NULL,        -- end of the operation, whole milliseconds
    duration_ms integer NOT NULL,            -- from request to answer
    surface text NOT NULL,                   -- fhir: shown as AuditEvent; admin: for operators alone
    interaction text NOT NULL,               -- create, read, search, message-read ...
    action text NOT NULL,                    -- C R U D E
    outcome smallint NOT NULL,               -- 0 4 8
    status smallint NOT NULL,                -- of the HTTP answer; 0 = none
    agent text NOT NULL,                     -- subject or client of the token
    agent_name text NOT NULL,                -- client
    issuer text NOT NULL,                    -- identity provider
    user_reference text NOT NULL,            -- fhirUser
    address text NOT NULL,                   -- of the caller
    correlation_id text NOT NULL,            -- the same in the log
    target text NOT NULL,                    -- what was asked for
    entities text NOT NULL,                  -- references with versions, separated by blanks
    patients text NOT NULL,                  -- references, separated by blanks
    keys bigint[] NOT NULL,                  -- what the row is found by (ports/audit.py), hashed to 64 bits
    PRIMARY KEY (partition_id, id)
);
CREATE INDEX audit_events_by_key ON audit_events USING gin (keys);
CREATE INDEX audit_events_by_age ON audit_events USING brin (recorded_at) WITH (pages_per_range = 32);
