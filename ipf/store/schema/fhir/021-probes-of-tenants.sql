-- Row-level security allows no index on an expression, because an addition might tell what it adds.  So the index of texts
-- by resource is on the column; statements that must not use it compare rid by a range.
DROP INDEX index_text_of;
CREATE INDEX index_text_of ON index_text (rid, param);

-- Without statistics of resource_versions, the condition of row-level security makes the planner read all of a tenant.
CREATE OR REPLACE FUNCTION ensure_statistics() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_class
               WHERE oid IN ('resources'::regclass, 'index_text'::regclass) AND reltuples <= 0) THEN
        ANALYZE resources, resource_versions, index_text, index_date;
    END IF;
END $$;
