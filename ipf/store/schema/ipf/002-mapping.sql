-- What operators know about mapping: codes that no table had, what they answered, maps that they installed; and
-- messages that are converted again.

-- A row with original_id is a further conversion of a message: it is claimed, retried and ordered as messages are, and
-- leaves the original's row as it is.  Its id is drawn from the same sequence, so it comes after all that is known of
-- its patient.
ALTER TABLE message_states
    ADD COLUMN original_id bigint,           -- message that is converted again; NULL: the row is of a message itself
    ADD COLUMN mapping_epoch bigint,         -- mapping_state.epoch that this conversion must see
    ADD COLUMN reason text;                  -- who asked for it: unmapped-code/7
CREATE INDEX message_states_conversions ON message_states (original_id, id) WHERE original_id IS NOT NULL;
-- The list shows messages, not conversions.
DROP INDEX message_states_list;
CREATE INDEX message_states_list ON message_states (tenant, status, received_at, id)
    WHERE original_id IS NULL;

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
