-- Receipts of erasures: that a patient was forgotten, without a name or an id.

CREATE TABLE erasures (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier
    partition_id smallint NOT NULL,          -- tenant: partitions.id
    at timestamptz NOT NULL,                 -- when, in whole seconds
    actor text NOT NULL,                     -- operator
    reason text NOT NULL,                    -- text of the operator
    counts text NOT NULL,                    -- what was removed, by kind: JSON
    salt text NOT NULL,                      -- random, in hexadecimal digits
    digest text NOT NULL,                    -- SHA-256 of salt, tenant and reference, with NUL between them
    key_id text NOT NULL,                    -- audit_keys.key_id
    signature text NOT NULL                  -- Ed25519 (ipf/security/erasure_receipt.py), in hexadecimal digits
);
CREATE POLICY tenants ON erasures
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
