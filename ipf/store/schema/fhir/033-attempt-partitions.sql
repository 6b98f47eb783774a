-- Attempts in partitions by ranges of ids, so that retention drops a partition instead of deleting and vacuuming its rows.  The
-- table of former releases becomes the first partition; no row is copied or read.
--
-- Oldest release that may run beside: any.  All statements of former releases work as they are.

LOCK TABLE delivery_attempts IN ACCESS EXCLUSIVE MODE;
ALTER TABLE delivery_attempts RENAME TO delivery_attempts_first;
ALTER INDEX delivery_attempts_pkey RENAME TO delivery_attempts_first_pkey;
ALTER INDEX delivery_attempts_history RENAME TO delivery_attempts_first_history;
ALTER INDEX delivery_attempts_correlation RENAME TO delivery_attempts_first_correlation;
ALTER INDEX delivery_attempts_several RENAME TO delivery_attempts_first_several;

-- Columns: 002-subscriptions.sql, 006-delivery.sql.
CREATE TABLE delivery_attempts
    (LIKE delivery_attempts_first INCLUDING DEFAULTS, PRIMARY KEY (id))
    PARTITION BY RANGE (id);
CREATE INDEX delivery_attempts_history ON delivery_attempts (subscription_rid, attempted_at DESC, id DESC);
CREATE INDEX delivery_attempts_correlation ON delivery_attempts (correlation_id);
CREATE INDEX delivery_attempts_several ON delivery_attempts (subscription_rid, to_event_number, event_number)
    WHERE to_event_number IS NOT NULL;
CREATE POLICY tenants ON delivery_attempts
    USING (EXISTS (SELECT 1 FROM subscription_states s WHERE s.rid = subscription_rid));

DO $$
DECLARE
    last bigint := pg_sequence_last_value(pg_get_serial_sequence('delivery_attempts_first', 'id')::regclass); -- NULL: there is none
    first bigint := (SELECT substring(pg_get_constraintdef(oid) FROM '\d+') FROM pg_constraint
                     WHERE conname = 'delivery_attempts_first_ids');
    granted record;
BEGIN
    ALTER TABLE delivery_attempts_first ALTER id DROP IDENTITY;
    ALTER TABLE delivery_attempts ALTER id ADD GENERATED ALWAYS AS IDENTITY;
    IF last IS NOT NULL THEN
        PERFORM setval(pg_get_serial_sequence('delivery_attempts', 'id'), last);
    END IF;
    EXECUTE format('ALTER TABLE delivery_attempts ATTACH PARTITION delivery_attempts_first'
                   ' FOR VALUES FROM (MINVALUE) TO (%s)', first);
    -- Processes that run already go on in their role (ipf/store/postgres/row_security.py).
    FOR granted IN SELECT a.grantee::regrole AS role, string_agg(a.privilege_type, ', ') AS rights
                   FROM pg_class c, aclexplode(c.relacl) a
                   WHERE c.oid = 'delivery_attempts_first'::regclass AND a.grantee <> 0 AND a.grantee <> c.relowner
                   GROUP BY 1 LOOP
        EXECUTE format('GRANT %s ON delivery_attempts TO %s', granted.rights, granted.role);
        EXECUTE format('GRANT USAGE, SELECT ON SEQUENCE %s TO %s', pg_get_serial_sequence('delivery_attempts', 'id'), granted.role);
    END LOOP;
    IF (SELECT relrowsecurity FROM pg_class WHERE oid = 'delivery_attempts_first'::regclass) THEN
        ALTER TABLE delivery_attempts ENABLE ROW LEVEL SECURITY;
    END IF;
END $$;
ALTER TABLE delivery_attempts_first DROP CONSTRAINT delivery_attempts_first_ids;

-- A policy as that of the table, for those who read a partition by its name.
CREATE FUNCTION secure_attempt_partition(made name) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE POLICY tenants ON %I'
                   ' USING (EXISTS (SELECT 1 FROM subscription_states s WHERE s.rid = subscription_rid))', made);
    IF (SELECT relrowsecurity FROM pg_class WHERE oid = 'delivery_attempts'::regclass) THEN
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', made);
    END IF;
END $$;

-- Takes attempts without a partition of their own, so that none is refused.
CREATE TABLE delivery_attempts_default PARTITION OF delivery_attempts DEFAULT;
SELECT secure_attempt_partition('delivery_attempts_default');

-- The ranges of ids, oldest first.  `lower` NULL: the first partition.
CREATE VIEW attempt_partitions AS
SELECT c.relname AS attempts,
    substring(b.bound FROM 'FROM \(''?(\d+)')::bigint AS lower, substring(b.bound FROM 'TO \(''?(\d+)')::bigint AS upper
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid) AS bound) b
WHERE i.inhparent = 'delivery_attempts'::regclass AND b.bound <> 'DEFAULT' ORDER BY 3;

-- As ensure_message_partition() of the inbox database.
CREATE FUNCTION ensure_attempt_partition(days double precision, smallest bigint) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '500ms' AS $$
DECLARE
    last bigint := coalesce(pg_sequence_last_value(pg_get_serial_sequence('delivery_attempts', 'id')::regclass), 0);
    lower bigint;
    upper bigint;
    per_day double precision;
    made name;
BEGIN
    SELECT (last - a.id) * 86400 / greatest(extract(epoch FROM now() - a.attempted_at), 1) INTO per_day
    FROM delivery_attempts a WHERE a.id <= last - 100000 ORDER BY a.id DESC LIMIT 1;
    per_day := coalesce(per_day, 0);
    IF (SELECT max(p.upper) FROM attempt_partitions p) > last + greatest(smallest / 2, 2 * per_day) THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(4919004);
    LOCK TABLE delivery_attempts_default IN ACCESS EXCLUSIVE MODE;
    SELECT max(p.upper) INTO lower FROM attempt_partitions p;
    IF lower > last + greatest(smallest / 2, 2 * per_day) THEN -- another process was first
        RETURN false;
    END IF;
    upper := greatest(lower, last) + greatest(smallest, days * per_day)::bigint;
    made := format('delivery_attempts_%s', lower);
    EXECUTE format('CREATE TABLE %I (LIKE delivery_attempts INCLUDING DEFAULTS) WITH (autovacuum_vacuum_scale_factor = 0.02,'
                   ' autovacuum_vacuum_threshold = 2000)', made);
    EXECUTE format('WITH moved AS (DELETE FROM delivery_attempts_default WHERE id >= $1 AND id < $2 RETURNING *)'
                   ' INSERT INTO %I SELECT * FROM moved', made) USING lower, upper;
    PERFORM secure_attempt_partition(made);
    EXECUTE format('ALTER TABLE delivery_attempts ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', made, lower, upper);
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN NULL; -- the next run makes it
END $$;

-- Drops the oldest partition in which every attempt is older than `before`; the number of its rows, NULL if there is none or others
-- use it.
CREATE FUNCTION drop_attempt_partition(before timestamptz) RETURNS bigint LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
    last bigint := coalesce(pg_sequence_last_value(pg_get_serial_sequence('delivery_attempts', 'id')::regclass), 0);
    old attempt_partitions;
    is_old boolean;
    removed bigint;
BEGIN
    FOR old IN SELECT * FROM attempt_partitions p WHERE p.upper <= last LOOP
        EXECUTE format('SELECT count(*), coalesce(max(attempted_at) < $1, true) FROM %I', old.attempts)
        INTO removed, is_old USING before;
        CONTINUE WHEN NOT is_old;
        -- In the order in which statements lock them; then whoever still wrote to it has ended.
        LOCK TABLE ONLY delivery_attempts IN ACCESS EXCLUSIVE MODE;
        EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', old.attempts);
        EXECUTE format('SELECT coalesce(max(attempted_at) < $1, true)'
                       ' FROM (SELECT attempted_at FROM %I ORDER BY id DESC LIMIT 100000) n', old.attempts)
        INTO is_old USING before;
        IF is_old THEN
            EXECUTE format('DROP TABLE %I', old.attempts);
            RETURN removed;
        END IF;
    END LOOP;
    RETURN NULL;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN NULL;
END $$;

-- Resets the statistics of partitions that ANALYZE found empty: of a table with no rows the planner takes any index, or none of its
-- conditions, and would keep to that until the next ANALYZE.  Of a table without statistics it does not.
CREATE FUNCTION reset_empty_partitions(parent regclass) RETURNS void LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
    one regclass;
    is_empty boolean;
BEGIN
    FOR one IN SELECT c.oid FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
               WHERE i.inhparent = parent AND c.reltuples = 0 LOOP
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', one);
        EXECUTE format('SELECT NOT EXISTS (SELECT FROM %s)', one) INTO is_empty;
        IF is_empty THEN
            EXECUTE format('TRUNCATE %s', one);
        END IF;
    END LOOP;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN; -- the next run does it
END $$;
