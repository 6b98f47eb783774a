-- Closure tables of clients: CodeSystem/$closure keeps the codes that a client has named, and when.
--
-- beside: 33

CREATE TABLE closure_tables (
    partition_id smallint NOT NULL,          -- partitions.id
    name text COLLATE "C" NOT NULL,          -- as the client names it
    version integer NOT NULL DEFAULT 0,      -- grows with each request that adds codes
    PRIMARY KEY (partition_id, name)
);
CREATE POLICY tenants ON closure_tables
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);

CREATE TABLE closure_concepts (
    partition_id smallint NOT NULL,          -- closure_tables
    name text COLLATE "C" NOT NULL,          -- of the table
    system text COLLATE "C" NOT NULL,        -- URL of the code system
    code text COLLATE "C" NOT NULL,          -- a code that the client has named
    version integer NOT NULL,                -- version of the table that added the code
    PRIMARY KEY (partition_id, name, system, code)
);
CREATE POLICY tenants ON closure_concepts
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
