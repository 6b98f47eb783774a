-- The FHIR database: who is there (resources), every version with its exact text (resource_versions), and what search looks
-- at (index_*); subscriptions, their events and deliveries; the audit trail; code systems.  Tables with data of patients have
-- the partition (tenant) in front.

CREATE TABLE partitions (
    id smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- number used in all other tables
    name text NOT NULL UNIQUE                -- name of the tenant
);
INSERT INTO partitions (name) VALUES ('default');

CREATE TABLE search_parameters (
    id smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- number used in the index tables
    resource_type text NOT NULL,             -- type of the resources that are indexed under it
    code text NOT NULL,                      -- search parameter's code
    UNIQUE (resource_type, code)
);

-- Internal numbers of resources: handed out in blocks to processes, growing, never used twice.
CREATE SEQUENCE rid_blocks INCREMENT BY 1000;

CREATE TABLE resources (
    rid bigint PRIMARY KEY,                  -- internal number; never leaves the house
    partition_id smallint NOT NULL,          -- partitions.id
    resource_type text COLLATE "C" NOT NULL, -- FHIR type
    id text COLLATE "C" NOT NULL,            -- logical id
    version_id integer NOT NULL,             -- current version
    last_updated timestamptz NOT NULL,       -- instant of the current version
    deleted boolean NOT NULL,                -- whether the current version is a deletion
    UNIQUE (partition_id, resource_type, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX resources_updated ON resources (partition_id, resource_type, last_updated, rid) WHERE NOT deleted;
CREATE INDEX resources_walk ON resources (partition_id, resource_type, rid) WHERE NOT deleted;

CREATE TABLE resource_versions (
    rid bigint NOT NULL,                     -- resources.rid
    version_id integer NOT NULL,             -- version number from 1
    partition_id smallint NOT NULL,          -- partitions.id
    last_updated timestamptz NOT NULL,       -- meta.lastUpdated
    method text NOT NULL,                    -- HTTP method that made it: POST, PUT, PATCH or DELETE
    deleted boolean NOT NULL,                -- whether this version is a deletion
    correlation_id uuid NOT NULL,            -- of the request or message that made it
    body text NOT NULL,                      -- the exact JSON; empty for a deletion
    sources text,                            -- JSON: fields of the HL7 v2 message that its elements come from, so that an
                                             -- update keeps what its message leaves out; NULL: no message wrote it
    PRIMARY KEY (rid, version_id)
) WITH (
    -- Bodies up to nearly a page stay in their row: one that is put aside (the default above 2 kB, where patients and visits
    -- often are) takes two rows and two index entries more to write, and a further look-up to read.
    toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000
);
ALTER TABLE resource_versions ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX resource_versions_correlation ON resource_versions (correlation_id);
-- The history of a type or of the whole system: all versions of a partition in the order in which they were made.
CREATE INDEX resource_versions_time ON resource_versions (partition_id, last_updated, rid, version_id);

CREATE TABLE index_text (
    partition_id smallint NOT NULL,          -- partitions.id
    param smallint NOT NULL,                 -- search_parameters.id
    val text COLLATE "C" NOT NULL,           -- token, string, reference or uri, composed as ipf/fhir/index/entries.py says
    rid bigint NOT NULL,                     -- resources.rid
    PRIMARY KEY (partition_id, param, val, rid)
);
-- The texts of a resource that another condition found: chains, orders by a text, ranges of tokens.  Rows come in the order
-- of rid, so that this index grows at its end; val is read from the row, which costs less than to store it twice.  Row-level
-- security allows no index on an expression, because an addition might tell what it adds, so the index is on the column.
-- The planner would take it for look-ups of one value as well, and to remove thousands of entries of one resource it would
-- read all of them for each: statements that must not use it compare rid by a range.
CREATE INDEX index_text_of ON index_text (rid, param);

CREATE TABLE index_date (
    partition_id smallint NOT NULL,          -- partitions.id
    param smallint NOT NULL,                 -- search_parameters.id
    lo bigint NOT NULL,                      -- beginning of the period, microseconds since 1970 UTC
    hi bigint NOT NULL,                      -- its end (excluded), microseconds since 1970 UTC
    rid bigint NOT NULL,                     -- resources.rid
    PRIMARY KEY (partition_id, param, lo, hi, rid)
);
-- The dates of a resource that another condition found, and its place in an order by date.  Rows come in the order of
-- rid, so that this index grows at its end.
CREATE INDEX index_date_of ON index_date (rid, param) INCLUDE (lo, hi);

CREATE TABLE index_quantity (
    partition_id smallint NOT NULL,          -- partitions.id
    param smallint NOT NULL,                 -- search_parameters.id
    lo numeric NOT NULL,                     -- lower end, implicit precision included
    hi numeric NOT NULL,                     -- upper end
    unit text COLLATE "C" NOT NULL,          -- system, code and unit, composed as ipf/fhir/index/entries.py says; empty for numbers
    rid bigint NOT NULL,                     -- resources.rid
    PRIMARY KEY (partition_id, param, lo, hi, unit, rid)
);

CREATE TABLE index_units (
    partition_id smallint NOT NULL,          -- partitions.id
    unit text COLLATE "C" NOT NULL,          -- a unit that occurs in index_quantity, as it stands there
    PRIMARY KEY (partition_id, unit)
);

-- Words of resources for _text and _content, written while IPF_FHIR_FULL_TEXT is on.
CREATE TABLE index_words (
    partition_id smallint NOT NULL,          -- partitions.id
    param smallint NOT NULL,                 -- search_parameters.id: _text or _content of the resource type
    words tsvector NOT NULL,                 -- words with their positions; ipf/fhir/index/words.py makes them
    rid bigint NOT NULL,                     -- resources.rid
    PRIMARY KEY (rid, param)
);
CREATE INDEX index_words_found ON index_words USING gin (words);

CREATE TABLE receipts (
    partition_id smallint NOT NULL,          -- partitions.id
    key text COLLATE "C" NOT NULL,           -- names one conversion of one message
    correlation_id uuid NOT NULL,            -- of that message
    written_at timestamptz NOT NULL DEFAULT now(), -- when it was done
    PRIMARY KEY (partition_id, key)
);

-- Ends a transaction whose expectation about rows does not hold any more, as a serialisation failure: it is tried again.
CREATE FUNCTION expect_rows(counted bigint, wanted bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF counted <> wanted THEN
        RAISE EXCEPTION 'rows changed meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN true;
END $$;

-- The highest internal number that is taken.
CREATE FUNCTION newest_rid() RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS
    'SELECT coalesce(max(rid), 0) FROM resources';

-- Statistics for the planner where there are none: only the owner of a table may ask for them.
-- Without those of resource_versions, the condition of row-level security makes the planner read all of a tenant.
CREATE FUNCTION ensure_statistics() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_class
               WHERE oid IN ('resources'::regclass, 'index_text'::regclass) AND reltuples <= 0) THEN
        ANALYZE resources, resource_versions, index_text, index_date;
    END IF;
END $$;

-- Page tokens contain internal numbers, which count what others write.  So they are encrypted, by all processes alike.
CREATE TABLE page_token_key (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), -- one row
    key text NOT NULL                                       -- 64 random bytes (AES-256-SIV), in hexadecimal digits
);
INSERT INTO page_token_key (key)
SELECT string_agg(replace(gen_random_uuid()::text, '-', ''), '') FROM generate_series(1, 4);

-- Jobs that bring the index up to date.
CREATE TABLE reindex_jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier, in order of creation
    partition_id smallint NOT NULL,          -- partitions.id of the tenant who asked
    resource_types text NOT NULL,            -- types to be indexed anew, with commas between
    parameters text NOT NULL,                -- parameters whose rows are removed first: Type.code, with commas between
    reason text NOT NULL,                    -- why: a SearchParameter, or a request
    status text NOT NULL DEFAULT 'requested', -- requested, running, done or failed
    last_rid bigint NOT NULL DEFAULT 0,      -- all resources up to this one are done
    until_rid bigint NOT NULL,               -- the newest resource when the job was made; later ones are indexed anyway
    done_count bigint NOT NULL DEFAULT 0,    -- resources that were looked at
    error text,                              -- why it failed
    created_at timestamptz NOT NULL DEFAULT now(), -- when it was made
    updated_at timestamptz NOT NULL DEFAULT now()  -- when it last got on
);
CREATE INDEX reindex_jobs_open ON reindex_jobs (id) WHERE status IN ('requested', 'running');

-- Whether the words of all resources are there: callers see jobs of their own tenant alone.
CREATE FUNCTION words_are_indexed() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS
    'SELECT coalesce(bool_and(status = ''done''), false) FROM reindex_jobs WHERE reason = ''full text''';

-- Subscriptions: the service's own row about each, the numbered events, and the ledger of deliveries.

CREATE TABLE subscription_epoch (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), -- there is one row
    epoch bigint NOT NULL,                   -- grows with every change of any Subscription
    parameters_epoch bigint NOT NULL DEFAULT 0 -- epoch of the last change of a SearchParameter
);
INSERT INTO subscription_epoch (epoch) VALUES (0);

CREATE TABLE subscription_states (
    rid bigint PRIMARY KEY,                  -- resources.rid of the Subscription
    partition_id smallint NOT NULL,          -- partitions.id
    id text COLLATE "C" NOT NULL,            -- logical id of the Subscription
    status text NOT NULL,                    -- requested, active, off, error or deleted
    error text,                              -- what Subscription.error says
    last_event_number bigint NOT NULL DEFAULT 0, -- number of the newest event; taken without gaps
    delivered_number bigint NOT NULL DEFAULT 0, -- all events up to this one are acknowledged
    ready_at timestamptz NOT NULL DEFAULT now(), -- when it may be leased: end of the lease, or of the backoff
    attempt_count integer NOT NULL DEFAULT 0, -- failed attempts since the last success
    failing_since timestamptz,               -- first of these failures
    lease_token bigint NOT NULL DEFAULT 0,   -- grows with every lease; settling needs the value of one's own lease
    lease_until timestamptz,                 -- end of the lease; NULL = not leased
    leased_by text,                          -- worker that holds it
    success_count bigint NOT NULL DEFAULT 0, -- attempts that were acknowledged
    failure_count bigint NOT NULL DEFAULT 0, -- attempts that were not
    last_attempt_at timestamptz,             -- time of the last attempt
    last_attempt_succeeded boolean,          -- how it ended
    last_error text,                         -- what the last failure was
    channel_type text NOT NULL DEFAULT 'rest-hook', -- how it is notified; websocket is never leased
    heartbeat_seconds integer,               -- longest silence that the subscriber asked for; NULL = any
    heartbeat_at timestamptz,                -- when a heartbeat is due; NULL = never
    epoch bigint NOT NULL DEFAULT 0,         -- epoch at which the Subscription was last written
    ends_at timestamptz,                     -- Subscription.end; NULL = never
    -- A range of events that is sent again: delivered_number is within it, and goes back to resume_number behind it.
    resend_until bigint,                     -- last event that is sent again; NULL = none is
    resume_number bigint,                    -- delivered_number as it was
    -- What tells events that are sent again on purpose from a repeated attempt: a message broker drops repetitions.
    resend_token bigint NOT NULL DEFAULT 0,  -- lease_token of the latest resend; 0 = there was none
    UNIQUE (partition_id, id)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500
);
CREATE INDEX subscription_states_due ON subscription_states (ready_at, rid)
    WHERE status = 'active' AND last_event_number > delivered_number AND channel_type <> 'websocket';
CREATE INDEX subscription_states_heartbeat ON subscription_states (heartbeat_at, rid)
    WHERE status = 'active' AND heartbeat_at IS NOT NULL AND channel_type <> 'websocket';
CREATE INDEX subscription_states_epoch ON subscription_states (epoch);
CREATE INDEX subscription_states_ends ON subscription_states (ends_at)
    WHERE ends_at IS NOT NULL AND status IN ('requested', 'active', 'error');
CREATE INDEX subscription_states_requested ON subscription_states (rid) WHERE status = 'requested';

CREATE TABLE subscription_events (
    subscription_rid bigint NOT NULL,        -- subscription_states.rid
    event_number bigint NOT NULL,            -- from 1, without gaps
    resource_rid bigint NOT NULL,            -- resources.rid of the resource that changed
    version_id integer NOT NULL,             -- its version that fired
    occurred_at timestamptz NOT NULL,        -- instant of that version
    correlation_id uuid NOT NULL,            -- of the request or message that changed it
    PRIMARY KEY (subscription_rid, event_number)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
CREATE INDEX subscription_events_correlation ON subscription_events (correlation_id);

CREATE TABLE subscription_topics (
    rid bigint PRIMARY KEY,                  -- resources.rid of the SubscriptionTopic, or of the Basic that holds one
    partition_id smallint NOT NULL,          -- partitions.id
    url text NOT NULL,                       -- canonical URL of the topic
    served boolean NOT NULL,                 -- whether it is there, active, and fires
    epoch bigint NOT NULL                    -- epoch at which it was last written
);
CREATE INDEX subscription_topics_epoch ON subscription_topics (epoch);
CREATE INDEX subscription_topics_url ON subscription_topics (partition_id, url);

-- Whose grants a Subscription's notifications are checked against: all who wrote it over HTTP since it has its endpoint,
-- each with the scopes of the latest token.
CREATE TABLE subscription_grants (
    rid bigint NOT NULL,                     -- resources.rid of the Subscription
    partition_id smallint NOT NULL,          -- partitions.id
    subject text NOT NULL,                   -- sub of the token
    client text NOT NULL,                    -- client_id of the token
    scopes text NOT NULL,                    -- granted scopes, separated by a blank
    tenant text,                             -- tenant claim; NULL = none
    patient text,                            -- logical id of the patient in context; NULL = none
    fhir_user text,                          -- fhirUser, such as Practitioner/7; NULL = none
    issuer text NOT NULL,                    -- iss of the token
    granted_at timestamptz NOT NULL DEFAULT now(), -- when it was written
    since bigint NOT NULL DEFAULT 0,         -- number of the newest event when it first wrote
    owns boolean NOT NULL DEFAULT false,     -- whether it set the endpoint
    PRIMARY KEY (rid, issuer, subject, client)
);

-- The tokens that bind a websocket.
CREATE TABLE websocket_tokens (
    digest text COLLATE "C" PRIMARY KEY,     -- SHA-256 of the token, which itself is kept nowhere
    partition_id smallint NOT NULL,          -- partitions.id
    subscription_ids text NOT NULL,          -- logical ids that it binds, separated by a blank
    expires_at timestamptz NOT NULL,         -- notifications over it end then
    caller text                              -- JSON: who asked for it; what is told over it is held against these grants
                                             -- as well; NULL = nobody was asked who it is
);
CREATE INDEX websocket_tokens_expiry ON websocket_tokens (expires_at);

-- Attempts are partitioned by ranges of ids, so that retention drops a partition instead of deleting and vacuuming its rows.
CREATE TABLE delivery_attempts (
    id bigint GENERATED ALWAYS AS IDENTITY,  -- row identifier
    subscription_rid bigint NOT NULL,        -- subscription_states.rid
    event_number bigint NOT NULL,            -- event that was sent
    attempted_at timestamptz NOT NULL,       -- when
    succeeded boolean NOT NULL,              -- whether the far end acknowledged
    http_status integer,                     -- its answer; NULL = none
    duration_ms integer NOT NULL,            -- how long it took, milliseconds
    error text,                              -- what went wrong
    correlation_id uuid NOT NULL,            -- sent as X-Correlation-Id
    kind text NOT NULL DEFAULT 'event-notification', -- or handshake, heartbeat: then event_number is 0
    to_event_number bigint,                  -- last event of a notification that carried several; NULL = event_number
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
CREATE INDEX delivery_attempts_history ON delivery_attempts (subscription_rid, attempted_at DESC, id DESC);
CREATE INDEX delivery_attempts_correlation ON delivery_attempts (correlation_id);
-- Finds the attempts that carried an event among others.
CREATE INDEX delivery_attempts_several ON delivery_attempts (subscription_rid, to_event_number, event_number)
    WHERE to_event_number IS NOT NULL;

-- A policy as that of the table, for those who read a partition by its name.
CREATE FUNCTION secure_attempt_partition(made name) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE POLICY tenants ON %I'
                   ' USING (EXISTS (SELECT 1 FROM subscription_states s WHERE s.rid = subscription_rid))', made);
    IF (SELECT relrowsecurity FROM pg_class WHERE oid = 'delivery_attempts'::regclass) THEN
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', made);
    END IF;
END $$;

-- Bulk export: a row for each job, and what it has written so far, in parts.

CREATE TABLE export_jobs (
    partition_id smallint NOT NULL,          -- partitions.id
    id text COLLATE "C" NOT NULL,            -- random; who knows it may read the job
    request_url text NOT NULL,               -- what was asked for, as the manifest repeats it
    level text NOT NULL,                     -- system, patient, or the id of a Group behind "group:"
    types text NOT NULL,                     -- resource types, blanks between; in the order of the export
    since timestamptz,                       -- only versions from then on; NULL = all
    transaction_time timestamptz NOT NULL,   -- the state that is exported
    status text NOT NULL DEFAULT 'running',  -- running, done or failed
    error text,                              -- why it failed
    type_number integer NOT NULL DEFAULT 0,  -- place of the type that is next, in types
    after_rid bigint NOT NULL DEFAULT 0,     -- last resource of that type that was looked at
    exported bigint NOT NULL DEFAULT 0,      -- resources written
    lease_token bigint NOT NULL DEFAULT 0,   -- grows with every lease; writing needs the value of one's own lease
    lease_until timestamptz,                 -- end of the lease; NULL = not leased
    expires_at timestamptz NOT NULL,         -- then it is removed
    holder integer,                          -- pg_stat_activity.pid of who leased it; NULL = nobody ever
    caller text,                             -- JSON: grants of the one who asked for it; NULL = without limits
    deident text,                            -- title of the profile of de-identification; NULL = resources as they are
    PRIMARY KEY (partition_id, id)
);
CREATE INDEX export_jobs_running ON export_jobs (lease_until NULLS FIRST) WHERE status = 'running';
CREATE INDEX export_jobs_expiry ON export_jobs (expires_at);

CREATE TABLE export_parts (
    partition_id smallint NOT NULL,          -- partitions.id
    job_id text COLLATE "C" NOT NULL,        -- export_jobs.id
    number integer NOT NULL,                 -- from 1, without gaps
    resource_type text COLLATE "C" NOT NULL, -- type of the resources in it
    count integer NOT NULL,                  -- how many
    body text NOT NULL,                      -- NDJSON: one resource a line
    PRIMARY KEY (partition_id, job_id, number),
    FOREIGN KEY (partition_id, job_id) REFERENCES export_jobs ON DELETE CASCADE
);

-- Work that is done after its request was answered: asynchronous searches and Bundles, imports, large deletions.

CREATE TABLE jobs (
    partition_id smallint NOT NULL,          -- partitions.id
    id text COLLATE "C" NOT NULL,            -- random
    kind text COLLATE "C" NOT NULL,          -- what runs it: ipf/rest/jobs
    asked text NOT NULL,                     -- JSON: the request without its body
    body text NOT NULL DEFAULT '',           -- of the request
    caller text,                             -- JSON: who asked for it; NULL = authentication was off
    status text NOT NULL DEFAULT 'running',  -- running or done
    state text NOT NULL DEFAULT '{}',        -- JSON: where the next step begins
    progress text NOT NULL DEFAULT '',       -- for people
    answer text NOT NULL DEFAULT '',         -- JSON: what the client gets at the end
    lease_token bigint NOT NULL DEFAULT 0,   -- grows with every lease; writing needs the value of one's own lease
    lease_until timestamptz,                 -- end of the lease; NULL = not leased
    holder integer,                          -- pg_stat_activity.pid of who leased it; NULL = nobody ever
    created_at timestamptz NOT NULL DEFAULT now(), -- when it was asked for, or its last step
    expires_at timestamptz NOT NULL,         -- then it is removed
    PRIMARY KEY (partition_id, id)
);
CREATE INDEX jobs_running ON jobs (lease_until NULLS FIRST, created_at) WHERE status = 'running';
CREATE INDEX jobs_expiry ON jobs (expires_at);

-- What a part of a job has written, in the transaction that wrote it: no part is done twice.
CREATE TABLE job_results (
    partition_id smallint NOT NULL,          -- partitions.id
    job_id text COLLATE "C" NOT NULL,        -- jobs.id
    number integer NOT NULL,                 -- of the part; 0 for a transaction
    result text NOT NULL,                    -- JSON: status, outcome, type, id and version of each entry
    PRIMARY KEY (partition_id, job_id, number),
    FOREIGN KEY (partition_id, job_id) REFERENCES jobs ON DELETE CASCADE
);

-- Lines that a job reports, such as the errors of an import.
CREATE TABLE job_files (
    partition_id smallint NOT NULL,          -- partitions.id
    job_id text COLLATE "C" NOT NULL,        -- jobs.id
    number integer NOT NULL,                 -- from 1
    name text NOT NULL,                      -- what the lines are about, such as the URL of an input
    count integer NOT NULL,                  -- how many lines
    body text NOT NULL,                      -- NDJSON
    PRIMARY KEY (partition_id, job_id, number),
    FOREIGN KEY (partition_id, job_id) REFERENCES jobs ON DELETE CASCADE
);

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
    purpose text[] NOT NULL DEFAULT '{}',    -- purposes of use of the token: system|code
    request_id text NOT NULL DEFAULT '',     -- X-Request-Id as the client sent it
    PRIMARY KEY (partition_id, recorded_at, id) INCLUDE (surface)
) PARTITION BY RANGE (recorded_at);
CREATE INDEX audit_records_keys ON audit_records USING gin (keys);
CREATE INDEX audit_records_correlation ON audit_records (correlation_id);

-- Takes records of months without a partition, so that none is lost.
CREATE TABLE audit_records_default PARTITION OF audit_records DEFAULT;

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

-- Records that are in no chain yet; their rows appear in the transaction of the record, in the same statement.
CREATE TABLE audit_unchained (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order in which the chain takes them up
    partition_id smallint NOT NULL,          -- tenant: partitions.id
    surface text NOT NULL,                   -- of the record: audit_records.surface
    recorded_at timestamptz NOT NULL,        -- of the record
    id uuid NOT NULL                         -- of the record
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000); -- rows come and go all the time

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

-- Chains of hashes, one for each tenant and surface, with signed heads; each record gets its place after its commit.  What a
-- hash covers: ipf/security/audit_chain.py.  Rows are inserted by ipf/store/audit/chain.py, never changed, and removed by
-- retention alone.  The feed to a log server follows them.

CREATE TABLE audit_chain (
    position bigint PRIMARY KEY,             -- from 1, without gaps, in the order in which committed records were taken up
    partition_id smallint NOT NULL,          -- of the record: tenant, partitions.id
    surface text NOT NULL,                   -- of the record: audit_records.surface
    recorded_at timestamptz NOT NULL,        -- of the record
    id uuid NOT NULL,                        -- of the record
    day date NOT NULL,                       -- UTC, on which the record was chained
    number bigint NOT NULL,                  -- in the chain, from 1 each day, without gaps
    version smallint NOT NULL,               -- of the digest: which columns it covers
    digest bytea,                            -- SHA-256 of the record; NULL: it was missing when it was to be chained
    hash bytea NOT NULL                      -- SHA-256 of the previous link's hash and of this row
);
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
CREATE INDEX audit_heads_at ON audit_heads (partition_id, surface, at);

-- Public keys that have signed heads.  Old ones stay.
CREATE TABLE audit_keys (
    key_id text PRIMARY KEY,                 -- the beginning of the key's SHA-256
    public_key bytea NOT NULL,               -- Ed25519, 32 bytes
    created_at timestamptz NOT NULL DEFAULT now() -- the first start with this key
);

-- The chains of an installation begin with its id.
CREATE TABLE audit_installation (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid() -- of the installation
);
INSERT INTO audit_installation DEFAULT VALUES;

-- How far a feed has sent the sequence.
CREATE TABLE audit_feed (
    name text PRIMARY KEY,                   -- syslog
    position bigint NOT NULL DEFAULT 0,      -- the receiver has all up to here
    held_by text,                            -- the process that sends
    held_until timestamptz                   -- the end of its lease
);

-- Consents decide who may see what, so every process must know each change of one with its next request.

CREATE TABLE consent_epoch (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), -- there is one row
    epoch bigint NOT NULL                    -- grows with every transaction that writes a Consent; its lock orders them
);
INSERT INTO consent_epoch (epoch) VALUES (0);

CREATE TABLE consent_changes (
    rid bigint PRIMARY KEY,                  -- resources.rid of the Consent
    partition_id smallint NOT NULL,          -- partitions.id
    epoch bigint NOT NULL                    -- epoch at which it was last written
);
CREATE INDEX consent_changes_epoch ON consent_changes (epoch);

-- What operators decided about numbers whose resource cannot be told: later messages with the number find it here.

CREATE TABLE identity_answers (
    id bigint GENERATED ALWAYS AS IDENTITY,  -- number of the answer, for operators
    partition_id smallint NOT NULL,          -- tenant: partitions.id
    resource_type text NOT NULL,             -- Patient, Encounter ...
    key text NOT NULL,                       -- system|type|value of the first identifier of the messages
    resource_id text NOT NULL,               -- logical id of the resource that is meant; of apart a new one
    kind text NOT NULL,                      -- merge, apart or take
    answered_by text NOT NULL,               -- operator
    reason text NOT NULL,                    -- text of the operator, may be empty
    answered_at timestamptz NOT NULL DEFAULT clock_timestamp(), -- an answer about another patient's resource counts once
    PRIMARY KEY (id),
    UNIQUE (partition_id, resource_type, key)
);

-- Receipts of erasures: that a patient was forgotten, without a name or an id.

CREATE TABLE erasures (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier
    partition_id smallint NOT NULL,          -- tenant: partitions.id
    at timestamptz NOT NULL,                 -- when, in whole seconds
    actor text NOT NULL,                     -- operator
    reason text NOT NULL,                    -- text of the operator
    counts text NOT NULL,                    -- what was removed, by kind: JSON
    salt text NOT NULL,                      -- random, in hexadecimal digits
    digests text NOT NULL,                   -- SHA-256 of salt, tenant and reference of each Patient that is merged with the
                                             -- others, with NUL between them; blanks between the digests
    key_id text NOT NULL,                    -- audit_keys.key_id
    signature text NOT NULL                  -- Ed25519 (ipf/security/erasure_receipt.py), in hexadecimal digits; empty:
                                             -- the erasure is not finished
);

-- Code systems of the installation, of any size, as `ipfctl terminology import` loads them.
--
-- Each version of a system has partitions of its own.  An import fills them as tables that nobody reads, then attaches
-- them and takes the earlier version out in one transaction.  They hold no data of patients or tenants.  The primary
-- keys and indexes are those of the partitions (ipf/store/terminology/loading.py): none has system_id, so that they are read
-- without the rows.

CREATE TABLE code_systems (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- of one import; the names of its partitions end with it
    url text NOT NULL,                       -- canonical URL
    version text NOT NULL,                   -- empty: it has none
    name text NOT NULL,                      -- for people
    is_loaded boolean NOT NULL DEFAULT false, -- false: an import runs, or was ended; the next import removes it
    is_current boolean NOT NULL DEFAULT false, -- the version that is meant where none is named
    is_case_sensitive boolean NOT NULL,      -- false: codes are found in small and in capital letters
    concepts integer NOT NULL DEFAULT 0,     -- how many it has
    properties text NOT NULL DEFAULT '{}',   -- JSON: code of each property and its type
    languages text NOT NULL DEFAULT '',      -- of its designations, separated by blanks
    imported_at timestamptz NOT NULL DEFAULT now() -- when it was taken into use
);
CREATE UNIQUE INDEX code_systems_loaded ON code_systems (url, version) WHERE is_loaded;
CREATE UNIQUE INDEX code_systems_current ON code_systems (url) WHERE is_current;

CREATE TABLE code_system_concepts (
    system_id integer NOT NULL,              -- code_systems.id
    id integer NOT NULL,                     -- from 1, shortest displays first
    code text COLLATE "C" NOT NULL,          -- as the system writes it
    display text NOT NULL,                   -- the code where it has none
    is_active boolean NOT NULL,              -- false: for old data only
    is_abstract boolean NOT NULL,            -- only groups others; not to be selected
    definition text,                         -- NULL: it has none
    words tsvector NOT NULL                  -- of the code, the display and the designations, accents folded
) PARTITION BY LIST (system_id);

CREATE TABLE code_system_designations (
    system_id integer NOT NULL,              -- code_systems.id
    concept_id integer NOT NULL,             -- code_system_concepts.id
    language text NOT NULL,                  -- BCP 47; empty: not known
    use_system text NOT NULL,                -- Coding of its use; empty: not known
    use_code text NOT NULL,                  -- the same
    use_display text NOT NULL,               -- the same
    value text NOT NULL,                     -- the name itself
    number integer NOT NULL                  -- of the designations of its concept, from 1
) PARTITION BY LIST (system_id);

CREATE TABLE code_system_properties (
    system_id integer NOT NULL,              -- code_systems.id
    concept_id integer NOT NULL,             -- code_system_concepts.id
    name text COLLATE "C" NOT NULL,          -- code of the property
    value text COLLATE "C" NOT NULL,         -- as FHIR writes it; of a Coding the code
    number integer NOT NULL                  -- of the properties of its concept, from 1
) PARTITION BY LIST (system_id);

CREATE TABLE code_system_parents (
    system_id integer NOT NULL,              -- code_systems.id
    child integer NOT NULL,                  -- code_system_concepts.id
    parent integer NOT NULL                  -- code_system_concepts.id
) PARTITION BY LIST (system_id);

-- The closure of the parents.  Each concept is its own ancestor.
CREATE TABLE code_system_ancestors (
    system_id integer NOT NULL,              -- code_systems.id
    ancestor integer NOT NULL,               -- code_system_concepts.id
    descendant integer NOT NULL              -- code_system_concepts.id
) PARTITION BY LIST (system_id);

-- Closure tables of clients: CodeSystem/$closure keeps the codes that a client has named, and when.

CREATE TABLE closure_tables (
    partition_id smallint NOT NULL,          -- partitions.id
    name text COLLATE "C" NOT NULL,          -- as the client names it
    version integer NOT NULL DEFAULT 0,      -- grows with each request that adds codes
    PRIMARY KEY (partition_id, name)
);

CREATE TABLE closure_concepts (
    partition_id smallint NOT NULL,          -- closure_tables
    name text COLLATE "C" NOT NULL,          -- of the table
    system text COLLATE "C" NOT NULL,        -- URL of the code system
    code text COLLATE "C" NOT NULL,          -- a code that the client has named
    version integer NOT NULL,                -- version of the table that added the code
    PRIMARY KEY (partition_id, name, system, code)
);

-- Row-level security as the second lock between tenants: what a statement may see and write belongs to the partition that
-- its transaction names in ipf.partition; without one nothing.  Policies say it here; they hold for the role of callers'
-- requests once a start with several tenants has switched them on (ipf/store/postgres/row_security.py).  The owner of the
-- tables passes by: with one tenant they cost nothing.
DO $$
DECLARE
    one name;
BEGIN
    FOREACH one IN ARRAY ARRAY[
        'resources', 'resource_versions', 'index_text', 'index_date', 'index_quantity', 'index_units', 'index_words',
        'receipts', 'subscription_states', 'subscription_topics', 'subscription_grants', 'websocket_tokens',
        'reindex_jobs', 'export_jobs', 'export_parts', 'jobs', 'job_results', 'job_files', 'audit_records',
        'audit_records_default', 'audit_unchained', 'audit_chain', 'audit_heads', 'consent_changes', 'identity_answers',
        'erasures', 'closure_tables', 'closure_concepts'
    ] LOOP
        EXECUTE format('CREATE POLICY tenants ON %I'
                       ' USING (partition_id = nullif(current_setting(''ipf.partition'', true), '''')::smallint)', one);
    END LOOP;
END $$;
-- These belong to whom their subscription belongs; which the policy of its own table decides.
CREATE POLICY tenants ON subscription_events
    USING (EXISTS (SELECT 1 FROM subscription_states s WHERE s.rid = subscription_rid));
CREATE POLICY tenants ON delivery_attempts
    USING (EXISTS (SELECT 1 FROM subscription_states s WHERE s.rid = subscription_rid));

-- Takes attempts without a partition of their own, so that none is refused.
CREATE TABLE delivery_attempts_default PARTITION OF delivery_attempts DEFAULT;
SELECT secure_attempt_partition('delivery_attempts_default');

-- The ranges of ids, oldest first.
CREATE VIEW attempt_partitions AS
SELECT c.relname AS attempts,
    coalesce(substring(b.bound FROM 'FROM \(''?(\d+)')::bigint, 0) AS lower,
    substring(b.bound FROM 'TO \(''?(\d+)')::bigint AS upper
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid) AS bound) b
WHERE i.inhparent = 'delivery_attempts'::regclass AND b.bound <> 'DEFAULT' ORDER BY 3;

-- As ensure_message_partition() of the inbox database.
CREATE FUNCTION ensure_attempt_partition(days double precision, smallest bigint) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '500ms' AS $$
DECLARE
    last bigint := coalesce(pg_sequence_last_value(pg_get_serial_sequence('delivery_attempts', 'id')::regclass), 0);
    lower bigint;
    upper bigint;
    per_day double precision;
    made name;
BEGIN
    SELECT (last - a.id) * 86400 / greatest(extract(epoch FROM now() - a.attempted_at), 1) INTO per_day
    FROM delivery_attempts a WHERE a.id <= last - 100000 ORDER BY a.id DESC LIMIT 1;
    per_day := coalesce(per_day, 0);
    IF (SELECT max(p.upper) FROM attempt_partitions p) > last + greatest(smallest / 2, 2 * per_day) THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(4919004);
    LOCK TABLE delivery_attempts_default IN ACCESS EXCLUSIVE MODE;
    SELECT coalesce(max(p.upper), 1) INTO lower FROM attempt_partitions p;
    IF lower > last + greatest(smallest / 2, 2 * per_day) THEN -- another process was first
        RETURN false;
    END IF;
    upper := greatest(lower, last) + greatest(smallest, days * per_day)::bigint;
    made := format('delivery_attempts_%s', lower);
    EXECUTE format('CREATE TABLE %I (LIKE delivery_attempts INCLUDING DEFAULTS) WITH (autovacuum_vacuum_scale_factor = 0.02,'
                   ' autovacuum_vacuum_threshold = 2000)', made);
    EXECUTE format('WITH moved AS (DELETE FROM delivery_attempts_default WHERE id >= $1 AND id < $2 RETURNING *)'
                   ' INSERT INTO %I SELECT * FROM moved', made) USING lower, upper;
    PERFORM secure_attempt_partition(made);
    EXECUTE format('ALTER TABLE delivery_attempts ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', made, lower, upper);
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN NULL; -- the next run makes it
END $$;

-- Drops the oldest partition in which every attempt is older than `before`; the number of its rows, NULL if there is none or others
-- use it.
CREATE FUNCTION drop_attempt_partition(before timestamptz) RETURNS bigint LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
    last bigint := coalesce(pg_sequence_last_value(pg_get_serial_sequence('delivery_attempts', 'id')::regclass), 0);
    old attempt_partitions;
    is_old boolean;
    removed bigint;
BEGIN
    FOR old IN SELECT * FROM attempt_partitions p WHERE p.upper <= last LOOP
        EXECUTE format('SELECT count(*), coalesce(max(attempted_at) < $1, true) FROM %I', old.attempts)
        INTO removed, is_old USING before;
        CONTINUE WHEN NOT is_old;
        -- In the order in which statements lock them; then whoever still wrote to it has ended.
        LOCK TABLE ONLY delivery_attempts IN ACCESS EXCLUSIVE MODE;
        EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', old.attempts);
        EXECUTE format('SELECT coalesce(max(attempted_at) < $1, true)'
                       ' FROM (SELECT attempted_at FROM %I ORDER BY id DESC LIMIT 100000) n', old.attempts)
        INTO is_old USING before;
        IF is_old THEN
            EXECUTE format('DROP TABLE %I', old.attempts);
            RETURN removed;
        END IF;
    END LOOP;
    RETURN NULL;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN NULL;
END $$;

-- Resets the statistics of partitions that ANALYZE found empty: of a table with no rows the planner takes any index, or none of its
-- conditions, and would keep to that until the next ANALYZE.  Of a table without statistics it does not.
CREATE FUNCTION reset_empty_partitions(parent regclass) RETURNS void LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
    one regclass;
    is_empty boolean;
BEGIN
    FOR one IN SELECT c.oid FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
               WHERE i.inhparent = parent AND c.reltuples = 0 LOOP
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', one);
        EXECUTE format('SELECT NOT EXISTS (SELECT FROM %s)', one) INTO is_empty;
        IF is_empty THEN
            EXECUTE format('TRUNCATE %s', one);
        END IF;
    END LOOP;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN; -- the next run does it
END $$;

SELECT ensure_attempt_partition(365, 10000000); -- the first one; PartitionsAhead makes the others
