-- Whose grants a Subscription's notifications are checked against: all who wrote it over HTTP since it has its endpoint,
-- each with the scopes of the latest token.

CREATE TABLE subscription_grants (
    rid bigint NOT NULL,                     -- resources.rid of the Subscription
    partition_id smallint NOT NULL,          -- partitions.id
    subject text NOT NULL,                   -- sub of the token
    client text NOT NULL,                    -- client_id of the token
    scopes text NOT NULL,                    -- granted scopes, separated by a blank
    tenant text,                             -- tenant claim; NULL = none
    patient text,                            -- logical id of the patient in context; NULL = none
    fhir_user text,                          -- fhirUser, such as Practitioner/7; NULL = none
    issuer text NOT NULL,                    -- iss of the token
    granted_at timestamptz NOT NULL DEFAULT now(), -- when it was written
    PRIMARY KEY (rid, issuer, subject, client)
);
