-- A database with all migrations of ipf 0.1 (001 to 042) becomes what 043-baseline.sql makes.  What 0.1 had still to convert
-- is converted when this runs (ipf/store/postgres/adoption.py).

DROP TABLE audit_blocks;
DROP FUNCTION texts_are_indexed();
DROP FUNCTION lastn_is_indexed();

ALTER TABLE audit_installation ADD PRIMARY KEY (id);

ALTER TABLE delivery_attempts_first RENAME TO delivery_attempts_1;
ALTER INDEX delivery_attempts_first_pkey RENAME TO delivery_attempts_1_pkey;
ALTER INDEX delivery_attempts_first_history RENAME TO delivery_attempts_1_subscription_rid_attempted_at_id_idx;
ALTER INDEX delivery_attempts_first_correlation RENAME TO delivery_attempts_1_correlation_id_idx;
ALTER INDEX delivery_attempts_first_several
    RENAME TO delivery_attempts_1_subscription_rid_to_event_number_event__idx;

CREATE OR REPLACE VIEW attempt_partitions AS
SELECT c.relname AS attempts,
    coalesce(substring(b.bound FROM 'FROM \(''?(\d+)')::bigint, 0) AS lower,
    substring(b.bound FROM 'TO \(''?(\d+)')::bigint AS upper
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid) AS bound) b
WHERE i.inhparent = 'delivery_attempts'::regclass AND b.bound <> 'DEFAULT' ORDER BY 3;
DO $$ BEGIN
    EXECUTE replace(pg_get_functiondef('ensure_attempt_partition'::regproc),
                    'SELECT max(p.upper) INTO lower', 'SELECT coalesce(max(p.upper), 1) INTO lower');
END $$;

-- Every row of a code system can be named: by a number where its columns repeat.
ALTER TABLE code_system_designations ADD COLUMN number integer;
ALTER TABLE code_system_properties ADD COLUMN number integer;
DO $$
DECLARE
    part name;
    key text;
BEGIN
    FOR part, key IN
        SELECT c.relname, k.key FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN (VALUES
            ('code_system_concepts', 'id'), ('code_system_designations', 'concept_id, number'),
            ('code_system_properties', 'concept_id, number'), ('code_system_parents', 'child, parent'),
            ('code_system_ancestors', 'ancestor, descendant')) k (parent, key) ON i.inhparent = k.parent::regclass
    LOOP
        IF key = 'concept_id, number' THEN
            EXECUTE format('UPDATE %I t SET number = n.number FROM (SELECT ctid, row_number() OVER'
                           ' (PARTITION BY concept_id ORDER BY ctid) AS number FROM %I) n WHERE n.ctid = t.ctid', part, part);
            EXECUTE format('DROP INDEX %I', part || '_concept_id_idx');
        ELSE
            EXECUTE format('DROP INDEX %I', part || '_' || replace(key, ', ', '_') || '_idx');
        END IF;
        EXECUTE format('ALTER TABLE %I ADD PRIMARY KEY (%s)', part, key);
    END LOOP;
END $$;
ALTER TABLE code_system_designations ALTER number SET NOT NULL;
ALTER TABLE code_system_properties ALTER number SET NOT NULL;
