-- Subscriptions: the service's own row about each, the numbered events, and the ledger of deliveries.

CREATE TABLE subscription_epoch (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), -- there is one row
    epoch bigint NOT NULL                    -- grows with every change of any Subscription
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
    UNIQUE (partition_id, id)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500
);
CREATE INDEX subscription_states_due ON subscription_states (ready_at, rid)
    WHERE status = 'active' AND last_event_number > delivered_number;
CREATE INDEX subscription_states_requested ON subscription_states (rid) WHERE status = 'requested';

CREATE TABLE subscription_events (
    subscription_rid bigint NOT NULL,        -- subscription_states.rid
    event_number bigint NOT NULL,            -- from 1, without gaps
    resource_rid bigint NOT NULL,            -- resources.rid of the resource that changed
    version_id integer NOT NULL,             -- its version that fired
    occurred_at timestamptz NOT NULL,        -- instant of that version
    correlation_id uuid NOT NULL,            -- of the request or message that changed it
    PRIMARY KEY (subscription_rid, event_number)
);
CREATE INDEX subscription_events_correlation ON subscription_events (correlation_id);

CREATE TABLE delivery_attempts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier
    subscription_rid bigint NOT NULL,        -- subscription_states.rid
    event_number bigint NOT NULL,            -- event that was sent
    attempted_at timestamptz NOT NULL,       -- when
    succeeded boolean NOT NULL,              -- whether the far end acknowledged
    http_status integer,                     -- its answer; NULL = none
    duration_ms integer NOT NULL,            -- how long it took, milliseconds
    error text,                              -- what went wrong
    correlation_id uuid NOT NULL             -- sent as X-Correlation-Id
);
CREATE INDEX delivery_attempts_history ON delivery_attempts (subscription_rid, attempted_at DESC, id DESC);
CREATE INDEX delivery_attempts_correlation ON delivery_attempts (correlation_id);
