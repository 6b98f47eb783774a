-- What operators ask about many messages at once: a count an hour, kept off the way of the messages; and which process
-- has a duty that one of all replicas has at a time.

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

CREATE TABLE duties (
    name text PRIMARY KEY,                   -- retention
    held_by text,                            -- worker that has it
    held_until timestamptz NOT NULL,         -- then another may take it
    began_at timestamptz,                    -- when the last run began
    ended_at timestamptz,                    -- when it was complete; NULL: it runs, or was broken off
    result text                              -- what it came to so far, JSON
);

-- Removed rows make room for new ones soon.
ALTER TABLE message_bodies SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
CREATE INDEX unmapped_messages_message ON unmapped_messages (message_id);
