-- The texts of a resource that another condition found: chains, orders by a text, ranges of tokens.  Rows come in the order
-- of rid, so that this index grows at its end; val is read from the row, which costs less than to store it twice.  Row-level
-- security allows no index on an expression, because an addition might tell what it adds, so the index is on the column.
-- The planner would take it for look-ups of one value as well, and to remove thousands of entries of one resource it would
-- read all of them for each: statements that must not use it compare rid by a range.
CREATE INDEX index_text_of ON index_text (rid, param);

-- Without statistics of resource_versions, the condition of row-level security makes the planner read all of a tenant.
CREATE OR REPLACE FUNCTION ensure_statistics() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_class
               WHERE oid IN ('resources'::regclass, 'index_text'::regclass) AND reltuples <= 0) THEN
        ANALYZE resources, resource_versions, index_text, index_date;
    END IF;
END $$;
