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
