-- Senders as operators watch them: when each was last heard, and how many messages a minute it sends.  The stage that counts
-- messages by hour fills both tables, so that receiving pays nothing for them.

CREATE TABLE message_senders (
    tenant text NOT NULL,                    -- partition of the messages
    source_system text NOT NULL,             -- sender: MSH-3.1
    first_seen timestamptz NOT NULL,         -- receipt of the first message; of before this table: the hour
    last_seen timestamptz NOT NULL,          -- and of the last one that is counted
    last_id bigint,                          -- message_bodies.id of the last; retention may have removed it
    PRIMARY KEY (tenant, source_system)
) WITH (fillfactor = 70);                    -- the rows of busy senders change with every step

CREATE TABLE received_minutes (
    minute timestamptz NOT NULL,             -- its beginning; rows of the last hours are kept
    tenant text NOT NULL,                    -- partition of the messages
    source_system text NOT NULL,             -- sender: MSH-3.1
    count bigint NOT NULL,                   -- messages received in it
    PRIMARY KEY (minute, tenant, source_system)
);

INSERT INTO message_senders (tenant, source_system, first_seen, last_seen)
SELECT tenant, source_system, min(hour), max(hour) FROM received_hours WHERE count > 0 GROUP BY 1, 2;
