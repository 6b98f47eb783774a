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
    message_id bigint NOT NULL REFERENCES message_bodies (id) ON DELETE CASCADE, -- the message
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
