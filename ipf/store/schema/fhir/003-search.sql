-- Search: dates of one resource, units that occur, and the jobs that bring the index up to date.

-- The dates of a resource that another condition found, and its place in an order by date.  Rows come in the order of
-- rid, so that this index grows at its end.
CREATE INDEX index_date_of ON index_date (rid, param) INCLUDE (lo, hi);

CREATE TABLE index_units (
    partition_id smallint NOT NULL,          -- partitions.id
    unit text COLLATE "C" NOT NULL,          -- a unit that occurs in index_quantity, as it stands there
    PRIMARY KEY (partition_id, unit)
);

CREATE TABLE reindex_jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier, in order of creation
    partition_id smallint NOT NULL,          -- partitions.id of the tenant who asked
    resource_types text NOT NULL,            -- types to be indexed anew, with commas between
    parameters text NOT NULL,                -- parameters whose rows are removed first: Type.code, with commas between
    reason text NOT NULL,                    -- why: a SearchParameter, or a request
    status text NOT NULL DEFAULT 'requested', -- requested, running, done or failed
    last_rid bigint NOT NULL DEFAULT 0,      -- all resources up to this one are done
    until_rid bigint NOT NULL,               -- the newest resource when the job was made; later ones are indexed anyway
    done_count bigint NOT NULL DEFAULT 0,    -- resources that were looked at
    error text,                              -- why it failed
    created_at timestamptz NOT NULL DEFAULT now(), -- when it was made
    updated_at timestamptz NOT NULL DEFAULT now()  -- when it last got on
);
CREATE INDEX reindex_jobs_open ON reindex_jobs (id) WHERE status IN ('requested', 'running');
