-- The inbox: messages as they came (never changed), apart from the narrow row of their state (changed all the time).

CREATE TYPE message_status AS ENUM ('RECEIVED', 'TRANSFORMING', 'DELIVERED', 'FAILED', 'DEAD_LETTER');

CREATE TABLE message_bodies (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier; grows in order of receipt
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
    raw_message bytea NOT NULL               -- the payload, byte for byte
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);
-- Payloads out of line are not compressed: compressing base64 costs ten times what writing it does.
ALTER TABLE message_bodies ALTER COLUMN raw_message SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX message_bodies_source ON message_bodies (source_id, source_system, tenant);
CREATE INDEX message_bodies_correlation ON message_bodies (correlation_id);
-- The admin list and its counts, also when filtered by system or type, from the index alone.
CREATE INDEX message_bodies_list ON message_bodies (received_at, id)
    INCLUDE (source_system, message_type, tenant);

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
    transform_ms real                        -- how long the conversion took, milliseconds
) WITH (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX message_states_claim ON message_states (ready_at, id) WHERE status IN ('RECEIVED', 'FAILED');
CREATE INDEX message_states_order ON message_states (ordering_key, id)
    WHERE ordering_key IS NOT NULL AND status IN ('RECEIVED', 'TRANSFORMING', 'FAILED');
CREATE INDEX message_states_lease ON message_states (leased_at) WHERE status = 'TRANSFORMING';
CREATE INDEX message_states_list ON message_states (tenant, status, received_at, id);

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

CREATE VIEW ingested_messages AS
SELECT b.id, b.tenant, b.received_at, b.source_protocol, b.source_system, b.source_id, b.message_type, b.raw_message,
       b.raw_content_type, s.status, s.attempt_count, s.last_attempt_at, s.next_attempt_at, s.last_error, s.delivered_at,
       b.correlation_id, b.charset, b.listener
FROM message_bodies b JOIN message_states s USING (id);
