-- What finds blocks of audit records.

CREATE INDEX audit_blocks_by_key ON audit_blocks USING gin (keys);
CREATE INDEX audit_blocks_upwards ON audit_blocks (partition_id, surface, first_id);

-- The planner need only know which keys are frequent.  Statistics of everything cost more than writing the trail.
ALTER TABLE audit_blocks
    ALTER COLUMN partition_id SET STATISTICS 10,
    ALTER COLUMN surface SET STATISTICS 10,
    ALTER COLUMN first_id SET STATISTICS 10,
    ALTER COLUMN last_id SET STATISTICS 10,
    ALTER COLUMN kinds SET STATISTICS 0,
    ALTER COLUMN counts SET STATISTICS 0,
    ALTER COLUMN keys SET STATISTICS 10,
    ALTER COLUMN body SET STATISTICS 0;
