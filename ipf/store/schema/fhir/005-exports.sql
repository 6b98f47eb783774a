-- Bulk export: a row for each job, and what it has written so far, in parts.

CREATE TABLE export_jobs (
    partition_id smallint NOT NULL,          -- partitions.id
    id text COLLATE "C" NOT NULL,            -- random; who knows it may read the job
    request_url text NOT NULL,               -- what was asked for, as the manifest repeats it
    level text NOT NULL,                     -- system, patient, or the id of a Group behind "group:"
    types text NOT NULL,                     -- resource types, blanks between; in the order of the export
    since timestamptz,                       -- only versions from then on; NULL = all
    transaction_time timestamptz NOT NULL,   -- the state that is exported
    status text NOT NULL DEFAULT 'running',  -- running, done or failed
    error text,                              -- why it failed
    type_number integer NOT NULL DEFAULT 0,  -- place of the type that is next, in types
    after_rid bigint NOT NULL DEFAULT 0,     -- last resource of that type that was looked at
    exported bigint NOT NULL DEFAULT 0,      -- resources written
    lease_token bigint NOT NULL DEFAULT 0,   -- grows with every lease; writing needs the value of one's own lease
    lease_until timestamptz,                 -- end of the lease; NULL = not leased
    expires_at timestamptz NOT NULL,         -- then it is removed
    PRIMARY KEY (partition_id, id)
);
CREATE INDEX export_jobs_running ON export_jobs (lease_until NULLS FIRST) WHERE status = 'running';
CREATE INDEX export_jobs_expiry ON export_jobs (expires_at);

CREATE TABLE export_parts (
    partition_id smallint NOT NULL,          -- partitions.id
    job_id text COLLATE "C" NOT NULL,        -- export_jobs.id
    number integer NOT NULL,                 -- from 1, without gaps
    resource_type text COLLATE "C" NOT NULL, -- type of the resources in it
    count integer NOT NULL,                  -- how many
    body text NOT NULL,                      -- NDJSON: one resource a line
    PRIMARY KEY (partition_id, job_id, number),
    FOREIGN KEY (partition_id, job_id) REFERENCES export_jobs ON DELETE CASCADE
);
