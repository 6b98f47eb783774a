-- What a FHIR server elsewhere (IPF_FHIR_URL) answered to the transactions of messages.
CREATE TABLE remote_effects (
    message_id bigint NOT NULL REFERENCES message_bodies ON DELETE CASCADE, -- the message, also for its further conversions
    resource_type text NOT NULL,             -- of the resource that the transaction-response names
    id text NOT NULL,                        -- its id at that server
    version_id text NOT NULL,                -- its version; '' = the response has none
    action text NOT NULL,                    -- created, updated, deleted, or found (it was there already)
    written_at timestamptz NOT NULL,         -- lastModified of the response, or when it came
    PRIMARY KEY (message_id, resource_type, id, version_id)
);
