-- What operators decided about numbers whose resource cannot be told: later messages with the number find it here.

CREATE TABLE identity_answers (
    id bigint GENERATED ALWAYS AS IDENTITY,  -- number of the answer, for operators
    partition_id smallint NOT NULL,          -- tenant: partitions.id
    resource_type text NOT NULL,             -- Patient, Encounter ...
    key text NOT NULL,                       -- system|type|value of the first identifier of the messages
    resource_id text NOT NULL,               -- logical id of the resource that is meant; of apart a new one
    kind text NOT NULL,                      -- merge, apart or take
    answered_by text NOT NULL,               -- operator
    reason text NOT NULL,                    -- text of the operator, may be empty
    answered_at timestamptz NOT NULL DEFAULT clock_timestamp(), -- an answer about another patient's resource counts once
    PRIMARY KEY (id),
    UNIQUE (partition_id, resource_type, key)
);
CREATE POLICY tenants ON identity_answers
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
