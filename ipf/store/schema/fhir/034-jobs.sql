-- Work that is done after its request was answered: asynchronous searches and Bundles, imports, large deletions.
--
-- Oldest release that may run beside: any.  Former releases do not know the tables.

CREATE TABLE jobs (
    partition_id smallint NOT NULL,          -- partitions.id
    id text COLLATE "C" NOT NULL,            -- random
    kind text COLLATE "C" NOT NULL,          -- what runs it: rest/background.py
    asked text NOT NULL,                     -- JSON: the request without its body
    body text NOT NULL DEFAULT '',           -- of the request
    caller text,                             -- JSON: who asked for it; NULL = authentication was off
    status text NOT NULL DEFAULT 'running',  -- running or done
    state text NOT NULL DEFAULT '{}',        -- JSON: where the next step begins
    progress text NOT NULL DEFAULT '',       -- for people
    answer text NOT NULL DEFAULT '',         -- JSON: what the client gets at the end
    lease_token bigint NOT NULL DEFAULT 0,   -- grows with every lease; writing needs the value of one's own lease
    lease_until timestamptz,                 -- end of the lease; NULL = not leased
    holder integer,                          -- pg_stat_activity.pid of who leased it; NULL = nobody ever
    created_at timestamptz NOT NULL DEFAULT now(), -- when it was asked for, or its last step
    expires_at timestamptz NOT NULL,         -- then it is removed
    PRIMARY KEY (partition_id, id)
);
CREATE INDEX jobs_running ON jobs (lease_until NULLS FIRST, created_at) WHERE status = 'running';
CREATE INDEX jobs_expiry ON jobs (expires_at);

-- What a part of a job has written, in the transaction that wrote it: no part is done twice.
CREATE TABLE job_results (
    partition_id smallint NOT NULL,          -- partitions.id
    job_id text COLLATE "C" NOT NULL,        -- jobs.id
    number integer NOT NULL,                 -- of the part; 0 for a transaction
    result text NOT NULL,                    -- JSON: status, outcome, type, id and version of each entry
    PRIMARY KEY (partition_id, job_id, number),
    FOREIGN KEY (partition_id, job_id) REFERENCES jobs ON DELETE CASCADE
);

-- Lines that a job reports, such as the errors of an import.
CREATE TABLE job_files (
    partition_id smallint NOT NULL,          -- partitions.id
    job_id text COLLATE "C" NOT NULL,        -- jobs.id
    number integer NOT NULL,                 -- from 1
    name text NOT NULL,                      -- what the lines are about, such as the URL of an input
    count integer NOT NULL,                  -- how many lines
    body text NOT NULL,                      -- NDJSON
    PRIMARY KEY (partition_id, job_id, number),
    FOREIGN KEY (partition_id, job_id) REFERENCES jobs ON DELETE CASCADE
);

CREATE POLICY tenants ON jobs USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON job_results USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON job_files USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
