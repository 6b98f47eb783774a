-- Whose grants a Subscription's notifications are checked against: who wrote it last over HTTP, with which scopes.

CREATE TABLE subscription_grants (
    rid bigint PRIMARY KEY,                  -- resources.rid of the Subscription
    partition_id smallint NOT NULL,          -- partitions.id
    subject text NOT NULL,                   -- sub of the token
    client text NOT NULL,                    -- client_id of the token
    scopes text NOT NULL,                    -- granted scopes, separated by a blank
    tenant text,                             -- tenant claim; NULL = none
    patient text,                            -- logical id of the patient in context; NULL = none
    fhir_user text,                          -- fhirUser, such as Practitioner/7; NULL = none
    issuer text NOT NULL,                    -- iss of the token
    granted_at timestamptz NOT NULL DEFAULT now() -- when it was written
);
