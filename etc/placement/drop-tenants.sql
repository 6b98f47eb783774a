-- Removes everything of some tenants from one database of ipf: the inbox or the FHIR database, whichever it is run in.
-- Part of the move of a tenant (docs/placement.md): no ipf may work on the database, its placement is frozen or closed.
--
--   psql -X -v tenants='hospital-c hospital-d' -f drop-tenants.sql "$DB_URL"
--
-- One transaction: all rows of the tenants go, or none.  Rows of the other tenants are not touched; the audit trail of
-- each tenant is a chain of its own.
\set ON_ERROR_STOP on
BEGIN;
SELECT set_config('ipf.tenants', :'tenants', true), set_config('ipf.pruning', 'on', true) \g /dev/null

DO $$
DECLARE
    tenants text[] := array_remove(regexp_split_to_array(current_setting('ipf.tenants'), '\s+'), '');
    is_fhir boolean := to_regclass('partitions') IS NOT NULL;
    numbers smallint[];
    one name;
    count bigint;
BEGIN
    IF tenants = '{}' OR 'default' = ANY (tenants) THEN
        RAISE EXCEPTION 'name the tenants to remove; default, which owns what all tenants share, cannot be removed';
    END IF;
    IF NOT is_fhir AND to_regclass('message_bodies') IS NULL THEN
        RAISE EXCEPTION 'this is no database of ipf';
    END IF;
    IF is_fhir THEN
        SELECT array_agg(id) INTO numbers FROM partitions WHERE name = ANY (tenants);
        -- Rows that name a subscription, and no partition.
        FOR one IN SELECT c.relname FROM pg_class c
                   JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'subscription_rid' AND NOT a.attisdropped
                   WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND pg_table_is_visible(c.oid) LOOP
            EXECUTE format('DELETE FROM %I WHERE subscription_rid IN
                            (SELECT rid FROM subscription_states WHERE partition_id = ANY ($1))', one) USING numbers;
        END LOOP;
    ELSE
        -- Rows that name a message, and no tenant.
        FOR one IN SELECT c.relname FROM pg_class c
                   JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'message_id' AND NOT a.attisdropped
                   WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND pg_table_is_visible(c.oid)
                     AND NOT EXISTS (SELECT FROM pg_attribute t WHERE t.attrelid = c.oid AND t.attname = 'tenant') LOOP
            EXECUTE format('DELETE FROM %I WHERE message_id IN
                            (SELECT id FROM message_bodies WHERE tenant = ANY ($1))', one) USING tenants;
        END LOOP;
    END IF;
    FOR one IN SELECT c.relname FROM pg_class c
               JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped
                                  AND a.attname = CASE WHEN is_fhir THEN 'partition_id' ELSE 'tenant' END
               WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND pg_table_is_visible(c.oid) LOOP
        IF is_fhir THEN
            EXECUTE format('DELETE FROM %I WHERE partition_id = ANY ($1)', one) USING numbers;
        ELSE
            EXECUTE format('DELETE FROM %I WHERE tenant = ANY ($1)', one) USING tenants;
        END IF;
        GET DIAGNOSTICS count = ROW_COUNT;
        IF count > 0 THEN
            RAISE NOTICE '%: % rows', one, count;
        END IF;
    END LOOP;
    IF is_fhir THEN
        DELETE FROM partitions WHERE id = ANY (numbers);
    END IF;
END $$;
COMMIT;
