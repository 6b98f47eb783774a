-- FHIR resources: who is there (resources), every version with its exact text (resource_versions), and what search
-- looks at (index_*).  Every table is keyed by partition (tenant).

CREATE TABLE partitions (
    id smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- number used in all other tables
    name text NOT NULL UNIQUE                -- name of the tenant
);
INSERT INTO partitions (name) VALUES ('default');

CREATE TABLE search_parameters (
    id smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- number used in the index tables
    resource_type text NOT NULL,             -- type of the resources that are indexed under it
    code text NOT NULL,                      -- search parameter's code
    UNIQUE (resource_type, code)
);

-- Internal numbers of resources: handed out in blocks to processes, growing, never used twice.
CREATE SEQUENCE rid_blocks INCREMENT BY 1000;

CREATE TABLE resources (
    rid bigint PRIMARY KEY,                  -- internal number; never leaves the house
    partition_id smallint NOT NULL,          -- partitions.id
    resource_type text COLLATE "C" NOT NULL, -- FHIR type
    id text COLLATE "C" NOT NULL,            -- logical id
    version_id integer NOT NULL,             -- current version
    last_updated timestamptz NOT NULL,       -- instant of the current version
    deleted boolean NOT NULL,                -- whether the current version is a deletion
    UNIQUE (partition_id, resource_type, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX resources_updated ON resources (partition_id, resource_type, last_updated, rid) WHERE NOT deleted;
CREATE INDEX resources_walk ON resources (partition_id, resource_type, rid) WHERE NOT deleted;

CREATE TABLE resource_versions (
    rid bigint NOT NULL,                     -- resources.rid
    version_id integer NOT NULL,             -- version number from 1
    partition_id smallint NOT NULL,          -- partitions.id
    last_updated timestamptz NOT NULL,       -- meta.lastUpdated
    method text NOT NULL,                    -- HTTP method that made it: POST, PUT, PATCH or DELETE
    deleted boolean NOT NULL,                -- whether this version is a deletion
    correlation_id uuid NOT NULL,            -- of the request or message that made it
    body text NOT NULL,                      -- the exact JSON; empty for a deletion
    PRIMARY KEY (rid, version_id)
);
ALTER TABLE resource_versions ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX resource_versions_correlation ON resource_versions (correlation_id);

CREATE TABLE index_text (
    partition_id smallint NOT NULL,          -- partitions.id
    param smallint NOT NULL,                 -- search_parameters.id
    val text COLLATE "C" NOT NULL,           -- token, string, reference or uri, composed as ipf/fhir/entries.py says
    rid bigint NOT NULL,                     -- resources.rid
    PRIMARY KEY (partition_id, param, val, rid)
);

CREATE TABLE index_date (
    partition_id smallint NOT NULL,          -- partitions.id
    param smallint NOT NULL,                 -- search_parameters.id
    lo bigint NOT NULL,                      -- beginning of the period, microseconds since 1970 UTC
    hi bigint NOT NULL,                      -- its end (excluded), microseconds since 1970 UTC
    rid bigint NOT NULL,                     -- resources.rid
    PRIMARY KEY (partition_id, param, lo, hi, rid)
);

CREATE TABLE index_quantity (
    partition_id smallint NOT NULL,          -- partitions.id
    param smallint NOT NULL,                 -- search_parameters.id
    lo numeric NOT NULL,                     -- lower end, implicit precision included
    hi numeric NOT NULL,                     -- upper end
    unit text COLLATE "C" NOT NULL,          -- system, code and unit, composed as ipf/fhir/entries.py says; empty for numbers
    rid bigint NOT NULL,                     -- resources.rid
    PRIMARY KEY (partition_id, param, lo, hi, unit, rid)
);

CREATE TABLE receipts (
    partition_id smallint NOT NULL,          -- partitions.id
    key text COLLATE "C" NOT NULL,           -- names one conversion of one message
    correlation_id uuid NOT NULL,            -- of that message
    written_at timestamptz NOT NULL DEFAULT now(), -- when it was done
    PRIMARY KEY (partition_id, key)
);

-- Ends a transaction whose expectation about rows does not hold any more, as a serialisation failure: it is tried again.
CREATE FUNCTION expect_rows(counted bigint, wanted bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF counted <> wanted THEN
        RAISE EXCEPTION 'rows changed meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN true;
END $$;
