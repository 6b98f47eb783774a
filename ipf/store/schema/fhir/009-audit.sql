-- The audit trail: records of what was done, packed many to a row (ipf/store/audit_blocks.py), shown as AuditEvents.

CREATE TABLE audit_blocks (
    partition_id smallint NOT NULL,          -- tenant
    surface smallint NOT NULL,               -- 0: shown as AuditEvents; 1: for operators alone
    first_id uuid NOT NULL,                  -- of its records, version 7: they grow with time
    last_id uuid NOT NULL,                   -- less than ten seconds later
    kinds text[] NOT NULL,                   -- what its records have in common: JSON lists, the fields of ports/audit.Kind
    counts integer[] NOT NULL,               -- how many records are of each kind
    keys integer[] NOT NULL,                 -- what its records are found by, hashed to 32 bits
    body bytea NOT NULL,                     -- the records: columns as JSON, compressed with zlib unless it begins with [
    PRIMARY KEY (partition_id, surface, last_id)
);
-- Bodies stand aside, so that searches and sums read narrow rows; they are compressed already.
ALTER TABLE audit_blocks
    ALTER COLUMN body SET STORAGE EXTERNAL,
    ALTER COLUMN keys SET STORAGE MAIN,
    ALTER COLUMN kinds SET STORAGE MAIN;
