-- The inbox database.  A message is a row that never changes (message_bodies) and a narrow row that changes often
-- (message_states).  Beside them: what is derived from messages, and what operators decide.

CREATE TYPE message_status AS ENUM ('RECEIVED', 'TRANSFORMING', 'DELIVERED', 'FAILED', 'DEAD_LETTER');

-- Messages are partitioned by ranges of ids, which grow in order of receipt, so that retention drops a partition instead of
-- deleting and vacuuming its rows.  The number of partitions is kept small: a statement that joins by id opens all of them
-- (docs/benchmarks.md).
CREATE TABLE message_bodies (
    id bigint GENERATED ALWAYS AS IDENTITY,  -- row identifier; grows in order of receipt
    tenant text NOT NULL,                    -- partition that the message belongs to
    received_at timestamptz NOT NULL,        -- when the last byte of the frame was read
    source_protocol text NOT NULL,           -- HL7V2_MLLP, FHIR_REST, EHR_NATIVE_API or OTHER
    source_system text NOT NULL,             -- sending system: MSH-3.1
    source_id text NOT NULL,                 -- the sender's control id: MSH-10
    message_type text NOT NULL,              -- MSH-9.1 _ MSH-9.2, for example ADT_A01
    correlation_id uuid NOT NULL,            -- made at receive time; the same in logs, headers and FHIR rows
    ordering_key bigint,                     -- messages with the same key are converted one after another; NULL = none
    listener text NOT NULL,                  -- name of the listener that took it
    charset text NOT NULL,                   -- codec of the text
    raw_content_type text NOT NULL,          -- MIME type of the payload
    raw_message bytea NOT NULL,              -- the payload, byte for byte
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
-- Payloads out of line are not compressed: compressing base64 costs ten times what writing it does.
ALTER TABLE message_bodies ALTER COLUMN raw_message SET STORAGE EXTERNAL;
CREATE INDEX message_bodies_correlation ON message_bodies (correlation_id);
-- The admin list and its counts, also when filtered by system or type, from the index alone.
CREATE INDEX message_bodies_list ON message_bodies (received_at, id)
    INCLUDE (source_system, message_type, tenant);

-- The key of each message, for as long as it is kept: repetitions are found here.
CREATE TABLE message_keys (
    source_id text NOT NULL,                 -- the sender's control id: MSH-10
    source_system text NOT NULL,             -- sending system: MSH-3.1
    tenant text NOT NULL,                    -- partition of the message
    id bigint NOT NULL,                      -- message_bodies.id
    PRIMARY KEY (source_id, source_system, tenant)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

-- A row with original_id is a further conversion of a message: it is claimed, retried and ordered as messages are, and
-- leaves the original's row as it is.  Its id is drawn from the same sequence, so it comes after all that is known of
-- its patient.
CREATE TABLE message_states (
    id bigint PRIMARY KEY,                   -- message_bodies.id
    tenant text NOT NULL,                    -- copied from the body, for the list
    status message_status NOT NULL,          -- state as the interface specification lists it
    received_at timestamptz NOT NULL,        -- copied from the body, for the order of the list
    ordering_key bigint,                     -- copied from the body, for the order of conversion
    attempt_count integer NOT NULL DEFAULT 0, -- failed attempts so far
    last_attempt_at timestamptz,             -- end of the last attempt
    next_attempt_at timestamptz,             -- when a failed message is due again, as the API shows it
    ready_at timestamptz NOT NULL,           -- when a claim may look at it; later than due while others go first
    last_error text,                         -- what the last failure was
    delivered_at timestamptz,                -- when it was done
    fence bigint NOT NULL DEFAULT 0,         -- grows with every claim; settling needs the value of one's own claim
    claimed_by text,                         -- worker that holds it
    leased_at timestamptz,                   -- when it was claimed or last renewed
    map_url text,                            -- StructureMap that converted it
    transform_ms real,                       -- how long the conversion took, milliseconds
    original_id bigint,                      -- message that is converted again; NULL: the row is of a message itself
    mapping_epoch bigint,                    -- mapping_state.epoch that this conversion must see
    reason text,                             -- who asked for it: unmapped-code/7
    permanent boolean NOT NULL DEFAULT false -- whether no retry mends last_error
) WITH (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX message_states_claim ON message_states (ready_at, id) WHERE status IN ('RECEIVED', 'FAILED');
CREATE INDEX message_states_order ON message_states (ordering_key, id)
    WHERE ordering_key IS NOT NULL AND status IN ('RECEIVED', 'TRANSFORMING', 'FAILED');
CREATE INDEX message_states_lease ON message_states (leased_at) WHERE status = 'TRANSFORMING';
CREATE INDEX message_states_conversions ON message_states (original_id, id) WHERE original_id IS NOT NULL;
-- The list shows messages, not conversions.
CREATE INDEX message_states_list ON message_states (tenant, status, received_at, id)
    WHERE original_id IS NULL;

CREATE TABLE rejects (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier
    tenant text NOT NULL,                    -- partition of the listener
    received_at timestamptz NOT NULL,        -- when it was read
    correlation_id uuid NOT NULL,            -- the same in the log
    listener text NOT NULL,                  -- name of the listener
    peer text NOT NULL,                      -- network address of the sender
    reason text NOT NULL,                    -- why it was refused
    size bigint NOT NULL,                    -- bytes that came
    raw bytea NOT NULL                       -- what came, cut to a bound
);
CREATE INDEX rejects_list ON rejects (received_at DESC, id DESC);
CREATE INDEX rejects_tenant ON rejects (tenant, received_at DESC, id DESC);

CREATE VIEW ingested_messages AS
SELECT b.id, b.tenant, b.received_at, b.source_protocol, b.source_system, b.source_id, b.message_type, b.raw_message,
       b.raw_content_type, s.status, s.attempt_count, s.last_attempt_at, s.next_attempt_at, s.last_error, s.delivered_at,
       b.correlation_id, b.charset, b.listener
FROM message_bodies b JOIN message_states s USING (id);

-- Mapping: codes that no table had, what operators answered, maps that they installed.

CREATE TABLE unmapped_codes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier, used in admin paths
    tenant text NOT NULL,                    -- partition of the messages
    source_system text NOT NULL,             -- sender: MSH-3.1
    concept_map text NOT NULL,               -- canonical of the ConceptMap that did not have the code
    code text NOT NULL,                      -- the code as the sender wrote it
    first_seen timestamptz NOT NULL,         -- when a message met it first
    last_seen timestamptz NOT NULL,          -- and last
    met bigint NOT NULL,                     -- conversions that met it
    kept bigint NOT NULL,                    -- of those, how many were kept in unmapped_messages since the last requeue
    UNIQUE (tenant, source_system, concept_map, code)
);
CREATE INDEX unmapped_codes_list ON unmapped_codes (tenant, last_seen DESC, id DESC);

CREATE TABLE unmapped_messages (
    unmapped_id bigint NOT NULL REFERENCES unmapped_codes (id) ON DELETE CASCADE, -- the code
    message_id bigint NOT NULL,              -- message_bodies.id of a message that met it
    PRIMARY KEY (unmapped_id, message_id)
);
CREATE INDEX unmapped_messages_message ON unmapped_messages (message_id);

CREATE TABLE code_overrides (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier, used in admin paths
    tenant text NOT NULL,                    -- partition of the messages
    source_system text NOT NULL,             -- sender that it is for; '' = all senders
    concept_map text NOT NULL,               -- canonical of the ConceptMap that it goes before
    code text NOT NULL,                      -- code as the sender writes it
    target_system text,                      -- system of what it means; all three NULL: no target, and that is right
    target_code text,                        -- its code
    target_display text,                     -- and its text
    created_at timestamptz NOT NULL DEFAULT now(), -- when it was first given
    updated_at timestamptz NOT NULL DEFAULT now(), -- and last changed
    UNIQUE (tenant, source_system, concept_map, code)
);

CREATE TABLE mapping_resources (
    resource_type text NOT NULL,             -- StructureMap or ConceptMap
    id text NOT NULL,                        -- its logical id on /mapping/fhir
    url text NOT NULL,                       -- its canonical
    version bigint NOT NULL,                 -- grows with each change
    updated_at timestamptz NOT NULL,         -- when it was installed
    content text NOT NULL,                   -- the resource, JSON
    PRIMARY KEY (resource_type, id)
);
CREATE UNIQUE INDEX mapping_resources_url ON mapping_resources (resource_type, url);

-- Every process that maps compares this with what it has loaded.
CREATE TABLE mapping_state (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), -- there is one row
    epoch bigint NOT NULL,                   -- grows with every change of overrides or maps
    maps_epoch bigint NOT NULL               -- value of epoch when maps were last changed or reloaded
);
INSERT INTO mapping_state (epoch, maps_epoch) VALUES (1, 1);

-- What conversions did not take over: fields that no rule read, and results that did not reach the Bundle.
CREATE TABLE unread_fields (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier, used in admin paths
    tenant text NOT NULL,                    -- partition of the messages
    source_system text NOT NULL,             -- sender: MSH-3.1
    message_type text NOT NULL,              -- ADT_A01
    kind text NOT NULL,                      -- unread, declared or dropped
    path text NOT NULL,                      -- PV1-40, ZPI (the whole segment) or ServiceRequest.code
    reason text NOT NULL,                    -- why it is declared, with map and line; '' = another kind
    occurrences bigint NOT NULL,             -- conversions that had it
    message_id bigint NOT NULL,              -- message_bodies.id of the last of them; retention may have removed it
    first_seen timestamptz NOT NULL,         -- when a conversion had it first
    last_seen timestamptz NOT NULL,          -- and last
    UNIQUE (tenant, source_system, message_type, path, kind)
) WITH (fillfactor = 70);                    -- every few seconds the rows of busy senders change

-- The review queue: matches that conversions did not make, because they are ambiguous or contradict what is stored.
CREATE TABLE identity_conflicts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier, used in admin paths
    tenant text NOT NULL,                    -- partition of the message
    state_id bigint NOT NULL REFERENCES message_states (id) ON DELETE CASCADE, -- message or further conversion that waits
    message_id bigint NOT NULL,              -- message_bodies.id
    place text NOT NULL,                     -- entry of the transaction Bundle; '' = not known
    status text NOT NULL,                    -- open, answered or closed
    detected_at timestamptz NOT NULL,        -- end of the last attempt that met it
    resource_type text NOT NULL,             -- type of the entry
    first_key text NOT NULL,                 -- system|type|value of its most important identifier: an answer is for this key
    candidates text NOT NULL,                -- Type/id of the matches, separated by spaces
    finding text NOT NULL,                   -- the whole finding, JSON
    answer text,                             -- merge, apart or take; NULL: not answered
    target text,                             -- Type/id that the operator decided for
    answered_by text,                        -- who answered
    answered_at timestamptz                  -- when
);
CREATE UNIQUE INDEX identity_conflicts_place ON identity_conflicts (state_id, place) WHERE status <> 'closed';
CREATE INDEX identity_conflicts_state ON identity_conflicts (state_id);
CREATE INDEX identity_conflicts_message ON identity_conflicts (message_id);
CREATE INDEX identity_conflicts_list ON identity_conflicts (tenant, detected_at DESC, id DESC);
CREATE INDEX identity_conflicts_open ON identity_conflicts (tenant, resource_type) WHERE status = 'open';

-- What operators ask about many messages at once: counts, kept off the way of the messages; which process has a duty that
-- one of all replicas has at a time; and work on many messages.

CREATE TABLE received_hours (
    hour timestamptz NOT NULL,               -- its beginning
    tenant text NOT NULL,                    -- partition of the messages
    source_system text NOT NULL,             -- sender: MSH-3.1
    count bigint NOT NULL,                   -- messages received in it, removed dead letters not counted
    PRIMARY KEY (hour, tenant, source_system)
);

CREATE TABLE received_counted (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), -- there is one row
    until timestamptz NOT NULL,              -- messages received before this are in received_hours
    kept bigint NOT NULL                     -- how many of them are still in message_bodies
);
INSERT INTO received_counted (until, kept) VALUES ('-infinity', 0);

CREATE TABLE received_minutes (
    minute timestamptz NOT NULL,             -- its beginning; rows of the last hours are kept
    tenant text NOT NULL,                    -- partition of the messages
    source_system text NOT NULL,             -- sender: MSH-3.1
    count bigint NOT NULL,                   -- messages received in it
    PRIMARY KEY (minute, tenant, source_system)
);

-- Senders as operators watch them.
CREATE TABLE message_senders (
    tenant text NOT NULL,                    -- partition of the messages
    source_system text NOT NULL,             -- sender: MSH-3.1
    first_seen timestamptz NOT NULL,         -- receipt of the first message
    last_seen timestamptz NOT NULL,          -- and of the last one that is counted
    last_id bigint,                          -- message_bodies.id of the last; retention may have removed it
    PRIMARY KEY (tenant, source_system)
) WITH (fillfactor = 70);                    -- the rows of busy senders change with every step

CREATE TABLE duties (
    name text PRIMARY KEY,                   -- retention
    held_by text,                            -- worker that has it
    held_until timestamptz NOT NULL,         -- then another may take it
    began_at timestamptz,                    -- when the last run began
    ended_at timestamptz,                    -- when it was complete; NULL: it runs, or was broken off
    result text                              -- what it came to so far, JSON
);

-- Replay, retry, discard; in batches, each with its progress in one transaction.
CREATE TABLE admin_jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier, used in admin paths
    tenant text NOT NULL,                    -- partition of the messages
    kind text NOT NULL,                      -- replay, retry or discard
    selection text NOT NULL,                 -- which messages were asked for, JSON
    following boolean NOT NULL,              -- replay: later messages of the same patients, too
    per_second integer NOT NULL,             -- messages a second, at most
    status text NOT NULL DEFAULT 'requested', -- requested, running, done, cancelled or failed
    total bigint NOT NULL,                   -- messages that were selected
    done_count bigint NOT NULL DEFAULT 0,    -- of those, how many were looked at
    changed_count bigint NOT NULL DEFAULT 0, -- retried, discarded or converted again
    following_count bigint NOT NULL DEFAULT 0, -- converted again because they come after one of them
    skipped_count bigint NOT NULL DEFAULT 0, -- left alone: gone, or in a state that does not allow it
    after_id bigint NOT NULL DEFAULT 0,      -- all selected messages up to this one are done
    error text,                              -- why it failed
    created_at timestamptz NOT NULL DEFAULT now(), -- when it was asked for
    updated_at timestamptz NOT NULL DEFAULT now()  -- when it last got on
);
CREATE INDEX admin_jobs_open ON admin_jobs (id) WHERE status IN ('requested', 'running');
CREATE INDEX admin_jobs_tenant ON admin_jobs (tenant, id DESC);

CREATE TABLE admin_job_messages (
    job_id bigint NOT NULL REFERENCES admin_jobs (id) ON DELETE CASCADE, -- the job
    message_id bigint NOT NULL,              -- message_bodies.id
    PRIMARY KEY (job_id, message_id)
);

-- Names that people give to the filters and columns of a list of the console.  Filters may name patients, so these views
-- are here, where an erasure finds them.
CREATE TABLE saved_views (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier, used in admin paths
    person text NOT NULL,                    -- whose: as the audit trail names him
    area text NOT NULL,                      -- list of the console: messages
    name text NOT NULL,                      -- as the person wrote it
    query text NOT NULL,                     -- of the list's URL
    UNIQUE (person, area, name)
);

-- What is alike in errors: numbers, identifiers and quoted texts are left out.
CREATE FUNCTION error_fingerprint(error text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT left(md5(regexp_replace(error, '("[^"]*"|''[^'']*''|[0-9a-fA-F-]{16,}|[0-9]+)', '?', 'g')), 12)
$$;

-- Search inside messages by PostgreSQL's full-text search: a tsvector for each message, a GIN index, and totals by sender
-- and type for the list.  The stage ipf/pipeline/maintenance/index_messages.py writes all of it behind the inbox, so that
-- receiving pays nothing.

CREATE TABLE message_index_state (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), -- there is one row
    indexed_to bigint NOT NULL               -- every message with an id up to this one is in the index
);
INSERT INTO message_index_state (indexed_to) VALUES (0);

-- It has the same ranges as message_bodies.
CREATE TABLE message_text (
    message_id bigint NOT NULL,              -- message_bodies.id
    words tsvector NOT NULL,                 -- the words of the message (ipf/hl7/words.py), and its tenant, sender and type
    PRIMARY KEY (message_id)
) PARTITION BY RANGE (message_id);
-- New rows go to the pending list of the index, which is merged in bulk: a message has about a hundred words, and to insert
-- them one by one costs several times as much.  The stage or autovacuum does the merge, never a receiver.  Every search reads
-- the pending list as well, so it is kept to 4 MB.
CREATE INDEX message_text_words ON message_text USING gin (words) WITH (fastupdate = on, gin_pending_list_limit = 4096);

CREATE TABLE message_totals (
    tenant text NOT NULL,                    -- partition of the messages
    source_system text NOT NULL,             -- sender: MSH-3.1
    message_type text NOT NULL,              -- MSH-9.1 _ MSH-9.2
    count bigint NOT NULL,                   -- messages with an id up to indexed_to
    PRIMARY KEY (tenant, source_system, message_type)
) WITH (fillfactor = 50);

-- Polled sources: how far each has been read.  The state changes in the transaction that stores the rows of a page.
CREATE TABLE polled_feeds (
    name text PRIMARY KEY,                   -- profile/item/feed of the vendor profile
    mark timestamptz,                        -- every change before it is stored, by the source's clock; NULL = nothing yet
    began timestamptz,                       -- beginning of the pass that is not complete; NULL = the last one is
    next_page text NOT NULL DEFAULT '',      -- URL of the page that follows; empty = the first one
    pages integer NOT NULL DEFAULT 0,        -- pages of this pass so far
    moved boolean NOT NULL DEFAULT false,    -- items changed their place while this pass read: it may have missed one
    candidate timestamptz,                   -- beginning of the first pass of which that is so, since the last complete one
    tries integer NOT NULL DEFAULT 0,        -- number of these passes
    repeats boolean NOT NULL DEFAULT false,  -- this pass asks for what an unfinished one may have lost
    due_at timestamptz NOT NULL DEFAULT now(), -- when it is polled next
    leased_until timestamptz,                -- another process polls it until then; NULL = none does
    leased_by text,                          -- which one
    fence bigint NOT NULL DEFAULT 0,         -- grows with every lease; a change needs the value of one's own
    failures integer NOT NULL DEFAULT 0,     -- failures in a row
    last_error text,                         -- of the last failure; NULL after a page that was stored
    polled_at timestamptz,                   -- when the last page was stored
    completed_at timestamptz,                -- when the last pass was complete
    fetched bigint NOT NULL DEFAULT 0,       -- items that came
    stored bigint NOT NULL DEFAULT 0         -- items that were new
);

-- What a FHIR server elsewhere (IPF_FHIR_URL) answered to the transactions of messages.  message_index_forget() stands for a
-- foreign key, with which the server would look for rows of each partition that is dropped.
CREATE TABLE remote_effects (
    message_id bigint NOT NULL,              -- the message, also for its further conversions
    resource_type text NOT NULL,             -- of the resource that the transaction-response names
    id text NOT NULL,                        -- its id at that server
    version_id text NOT NULL,                -- its version; '' = the response has none
    action text NOT NULL,                    -- created, updated, deleted, or found (it was there already)
    written_at timestamptz NOT NULL,         -- lastModified of the response, or when it came
    PRIMARY KEY (message_id, resource_type, id, version_id)
);

-- Forwarding of received messages to other systems: how far each destination has been filled, and what it was sent.

CREATE TABLE forward_destinations (
    name text PRIMARY KEY,                   -- name in IPF_FORWARD_FILE
    filled_to bigint NOT NULL,               -- every message up to this id has been looked at
    paused boolean NOT NULL DEFAULT false,   -- an operator has paused it
    leased_by text,                          -- process that sends to it
    leased_until timestamptz,                -- until then, unless it renews; NULL = none does
    fence bigint NOT NULL DEFAULT 0          -- grows with every lease; a change needs the value of one's own
);

CREATE TABLE forwards (
    destination text NOT NULL,               -- forward_destinations.name
    message_id bigint NOT NULL,              -- the message; message_index_forget() stands for a foreign key
    status text NOT NULL DEFAULT 'PENDING',  -- PENDING, SENT or DEAD_LETTER
    attempts integer NOT NULL DEFAULT 0,     -- attempts that failed
    due_at timestamptz NOT NULL DEFAULT now(), -- when it may be sent next
    code text,                               -- MSA-1 of the last acknowledgement
    error text,                              -- why the last attempt failed, or MSA-3
    ended_at timestamptz,                    -- when it was acknowledged or given up
    PRIMARY KEY (destination, message_id)
) WITH (fillfactor = 80);
CREATE INDEX forwards_pending ON forwards (destination, message_id) WHERE status = 'PENDING';
CREATE INDEX forwards_message ON forwards (message_id);

-- A message that an operator removes is no longer counted.  Retention says ipf.pruning = on: what it removes was
-- delivered and stays counted.
CREATE FUNCTION uncount_message() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM received_counted WHERE until > OLD.received_at FOR UPDATE;
    IF FOUND THEN
        UPDATE received_counted SET kept = kept - 1;
        UPDATE received_hours SET count = count - 1
        WHERE hour = date_trunc('hour', OLD.received_at, 'UTC') AND tenant = OLD.tenant
          AND source_system = OLD.source_system;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER message_bodies_uncount AFTER DELETE ON message_bodies FOR EACH ROW
    WHEN (current_setting('ipf.pruning', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION uncount_message();

-- A message that is removed leaves the index, the totals and its key, and forwards and effects go with it, whoever removes it.
CREATE FUNCTION message_index_forget() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    reached bigint;
BEGIN
    SELECT indexed_to INTO reached FROM message_index_state WHERE single FOR UPDATE; -- waits for a batch of the stage
    DELETE FROM message_text t USING removed r WHERE t.message_id = r.id;
    DELETE FROM message_keys k USING removed r
    WHERE k.source_id = r.source_id AND k.source_system = r.source_system AND k.tenant = r.tenant AND k.id = r.id;
    DELETE FROM forwards f USING removed r WHERE f.message_id = r.id;
    DELETE FROM remote_effects e USING removed r WHERE e.message_id = r.id;
    UPDATE message_totals t SET count = t.count - gone.count
    FROM (SELECT tenant, source_system, message_type, count(*) FROM removed WHERE id <= reached GROUP BY 1, 2, 3) gone
    WHERE t.tenant = gone.tenant AND t.source_system = gone.source_system AND t.message_type = gone.message_type;
    RETURN NULL;
END $$;
CREATE TRIGGER message_bodies_forget AFTER DELETE ON message_bodies REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION message_index_forget();

-- Take messages without a partition of their own, so that none is refused.
CREATE TABLE message_bodies_default PARTITION OF message_bodies DEFAULT;
CREATE TABLE message_text_default PARTITION OF message_text DEFAULT;

-- Partitions whose messages are being removed: their payloads stay until they are dropped.
CREATE TABLE message_drops (
    upper bigint PRIMARY KEY,                -- message_partitions.upper
    began_at timestamptz NOT NULL DEFAULT now() -- when retention began with it
);

-- The ranges of message_bodies, oldest first; message_text has the same.
CREATE VIEW message_partitions AS
SELECT c.relname AS bodies, replace(c.relname, 'bodies', 'text')::name AS texts,
    coalesce(substring(b.bound FROM 'FROM \(''?(\d+)')::bigint, 0) AS lower,
    substring(b.bound FROM 'TO \(''?(\d+)')::bigint AS upper
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid) AS bound) b
WHERE i.inhparent = 'message_bodies'::regclass AND b.bound <> 'DEFAULT' ORDER BY 4;

-- Makes the next partition when the last one holds fewer than `smallest` / 2 further ids, or what two days need.  It lasts for about
-- `days`, and holds at least `smallest` ids.  NULL when others use the default partitions.  What the default partitions hold of its range moves into it.
-- What the planner need not know has no statistics: looking through a sample of payloads takes a tenth of a second in which
-- senders wait longer for their acknowledgements.  The sample is 300 rows for each of the largest number here.
CREATE FUNCTION ensure_message_partition(days double precision, smallest bigint) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '500ms' AS $$
DECLARE
    last bigint := coalesce(pg_sequence_last_value(pg_get_serial_sequence('message_bodies', 'id')::regclass), 0);
    lower bigint;
    upper bigint;
    per_day double precision;
    made name;
BEGIN
    SELECT (last - b.id) * 86400 / greatest(extract(epoch FROM now() - b.received_at), 1) INTO per_day
    FROM message_bodies b WHERE b.id <= last - 100000 ORDER BY b.id DESC LIMIT 1;
    per_day := coalesce(per_day, 0);
    IF (SELECT max(p.upper) FROM message_partitions p) > last + greatest(smallest / 2, 2 * per_day) THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(4919004);
    LOCK TABLE message_bodies_default, message_text_default IN ACCESS EXCLUSIVE MODE;
    SELECT coalesce(max(p.upper), 1) INTO lower FROM message_partitions p;
    IF lower > last + greatest(smallest / 2, 2 * per_day) THEN -- another process was first
        RETURN false;
    END IF;
    upper := greatest(lower, last) + greatest(smallest, days * per_day)::bigint;
    made := format('message_bodies_%s', lower);
    EXECUTE format('CREATE TABLE %I (LIKE message_bodies INCLUDING STORAGE) WITH (autovacuum_vacuum_scale_factor = 0.02,'
                   ' autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_insert_scale_factor = 0.05)', made);
    EXECUTE format('ALTER TABLE %I ALTER raw_message SET STATISTICS 0, ALTER raw_content_type SET STATISTICS 0,'
                   ' ALTER charset SET STATISTICS 0, ALTER id SET STATISTICS 20, ALTER tenant SET STATISTICS 20,'
                   ' ALTER received_at SET STATISTICS 20, ALTER source_protocol SET STATISTICS 20,'
                   ' ALTER source_system SET STATISTICS 20, ALTER source_id SET STATISTICS 20,'
                   ' ALTER message_type SET STATISTICS 20, ALTER correlation_id SET STATISTICS 20,'
                   ' ALTER ordering_key SET STATISTICS 20, ALTER listener SET STATISTICS 20', made);
    PERFORM set_config('ipf.pruning', 'on', true); -- what moves stays counted
    EXECUTE format('WITH moved AS (DELETE FROM message_bodies_default WHERE id >= $1 AND id < $2 RETURNING *)'
                   ' INSERT INTO %I SELECT * FROM moved', made) USING lower, upper;
    EXECUTE format('ALTER TABLE message_bodies ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', made, lower, upper);
    made := format('message_text_%s', lower);
    EXECUTE format('CREATE TABLE %I (LIKE message_text INCLUDING STORAGE) WITH (autovacuum_vacuum_scale_factor = 0.05,'
                   ' autovacuum_vacuum_insert_scale_factor = 0.05)', made);
    EXECUTE format('ALTER TABLE %I ALTER words SET STATISTICS 0', made);
    EXECUTE format('WITH moved AS (DELETE FROM message_text_default WHERE message_id >= $1 AND message_id < $2 RETURNING *)'
                   ' INSERT INTO %I SELECT * FROM moved', made) USING lower, upper;
    EXECUTE format('ALTER TABLE message_text ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', made, lower, upper);
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN NULL; -- the next run makes it
END $$;

-- Drops the partitions that end at `ending`, if no message of them is left; false otherwise, and when others use them.
CREATE FUNCTION drop_message_partition(ending bigint) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
    old message_partitions;
BEGIN
    SELECT * INTO STRICT old FROM message_partitions p WHERE p.upper = ending;
    -- In the order in which statements lock them.
    LOCK TABLE ONLY message_bodies, ONLY message_text IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE %I, %I IN ACCESS EXCLUSIVE MODE', old.bodies, old.texts);
    IF EXISTS (SELECT FROM message_states s
               WHERE s.id >= old.lower AND s.id < old.upper AND s.original_id IS NULL) THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %I, %I', old.bodies, old.texts);
    DELETE FROM message_drops d WHERE d.upper = ending;
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN false;
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

SELECT ensure_message_partition(365, 10000000); -- the first one; PartitionsAhead makes the others
