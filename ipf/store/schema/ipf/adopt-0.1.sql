-- A database with all migrations of ipf 0.1 (001 to 021) becomes what 022-baseline.sql makes.

-- Messages from before 020 have no key of their own yet; the unique index of their partition stood for it.
INSERT INTO message_keys (source_id, source_system, tenant, id)
SELECT source_id, source_system, tenant, id FROM message_bodies_first ON CONFLICT DO NOTHING;
DROP INDEX message_bodies_source;

ALTER TABLE message_bodies_first RENAME TO message_bodies_1;
ALTER INDEX message_bodies_first_pkey RENAME TO message_bodies_1_pkey;
ALTER INDEX message_bodies_first_correlation RENAME TO message_bodies_1_correlation_id_idx;
ALTER INDEX message_bodies_first_list RENAME TO message_bodies_1_received_at_id_source_system_message_type__idx;
ALTER TABLE message_text_first RENAME TO message_text_1;
ALTER INDEX message_text_first_pkey RENAME TO message_text_1_pkey;
ALTER INDEX message_text_first_words RENAME TO message_text_1_words_idx;

CREATE OR REPLACE VIEW message_partitions AS
SELECT c.relname AS bodies, replace(c.relname, 'bodies', 'text')::name AS texts,
    coalesce(substring(b.bound FROM 'FROM \(''?(\d+)')::bigint, 0) AS lower,
    substring(b.bound FROM 'TO \(''?(\d+)')::bigint AS upper
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid) AS bound) b
WHERE i.inhparent = 'message_bodies'::regclass AND b.bound <> 'DEFAULT' ORDER BY 4;

-- The first partition is dropped as the others are: no statement names it any more.
DO $$ BEGIN
    EXECUTE replace(pg_get_functiondef('ensure_message_partition'::regproc),
                    'SELECT max(p.upper) INTO lower', 'SELECT coalesce(max(p.upper), 1) INTO lower');
END $$;
CREATE OR REPLACE FUNCTION drop_message_partition(ending bigint) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '500ms' AS $$
DECLARE
    old message_partitions;
BEGIN
    SELECT * INTO STRICT old FROM message_partitions p WHERE p.upper = ending;
    -- In the order in which statements lock them.
    LOCK TABLE ONLY message_bodies, ONLY message_text IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE %I, %I IN ACCESS EXCLUSIVE MODE', old.bodies, old.texts);
    IF EXISTS (SELECT FROM message_states s
               WHERE s.id >= old.lower AND s.id < old.upper AND s.original_id IS NULL) THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %I, %I', old.bodies, old.texts);
    DELETE FROM message_drops d WHERE d.upper = ending;
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN false;
END $$;
