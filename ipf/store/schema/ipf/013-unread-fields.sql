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
