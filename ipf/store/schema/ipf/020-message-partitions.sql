-- Messages in partitions by ranges of ids, which grow in order of receipt, so that retention drops a partition instead of
-- deleting and vacuuming its rows.  The tables of former releases become the first partitions; no row is copied or read.
-- The number of partitions is kept small: a statement that joins by id opens all of them (docs/benchmarks.md).
--
-- Oldest release that may run beside: this one.  Of former releases, receivers answer AE from now on (ON CONFLICT finds no
-- unique index), so their senders repeat; claims, conversion, delivery, lists and retention of former releases work.

LOCK TABLE message_bodies, message_text IN ACCESS EXCLUSIVE MODE;
DROP VIEW ingested_messages;
DROP TRIGGER message_bodies_uncount ON message_bodies;
DROP TRIGGER message_bodies_forget ON message_bodies;
-- A foreign key would make the server look for rows of each partition that is dropped; message_index_forget() replaces it.
ALTER TABLE forwards DROP CONSTRAINT forwards_message_id_fkey;
ALTER TABLE remote_effects DROP CONSTRAINT remote_effects_message_id_fkey;

ALTER TABLE message_bodies RENAME TO message_bodies_first;
ALTER INDEX message_bodies_pkey RENAME TO message_bodies_first_pkey;
ALTER INDEX message_bodies_correlation RENAME TO message_bodies_first_correlation;
ALTER INDEX message_bodies_list RENAME TO message_bodies_first_list;
ALTER TABLE message_text RENAME TO message_text_first;
ALTER INDEX message_text_pkey RENAME TO message_text_first_pkey;
ALTER INDEX message_text_words RENAME TO message_text_first_words;

-- Columns: 001-inbox.sql.
CREATE TABLE message_bodies
    (LIKE message_bodies_first INCLUDING STORAGE, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE INDEX message_bodies_correlation ON message_bodies (correlation_id);
CREATE INDEX message_bodies_list ON message_bodies (received_at, id) INCLUDE (source_system, message_type, tenant);
-- Columns: 010-text-search.sql.
CREATE TABLE message_text
    (LIKE message_text_first INCLUDING STORAGE, PRIMARY KEY (message_id))
    PARTITION BY RANGE (message_id);
CREATE INDEX message_text_words ON message_text USING gin (words) WITH (fastupdate = on, gin_pending_list_limit = 4096);

DO $$
DECLARE
    last bigint := pg_sequence_last_value(pg_get_serial_sequence('message_bodies_first', 'id')::regclass); -- NULL: there is none
    first bigint := (SELECT substring(pg_get_constraintdef(oid) FROM '\d+') FROM pg_constraint
                     WHERE conname = 'message_bodies_first_ids');
BEGIN
    ALTER TABLE message_bodies_first ALTER id DROP IDENTITY;
    ALTER TABLE message_bodies ALTER id ADD GENERATED ALWAYS AS IDENTITY;
    IF last IS NOT NULL THEN
        PERFORM setval(pg_get_serial_sequence('message_bodies', 'id'), last);
    END IF;
    EXECUTE format('ALTER TABLE message_bodies ATTACH PARTITION message_bodies_first'
                   ' FOR VALUES FROM (MINVALUE) TO (%s)', first);
    EXECUTE format('ALTER TABLE message_text ATTACH PARTITION message_text_first'
                   ' FOR VALUES FROM (MINVALUE) TO (%s)', first);
END $$;
ALTER TABLE message_bodies_first DROP CONSTRAINT message_bodies_first_ids;
ALTER TABLE message_text_first DROP CONSTRAINT message_text_first_ids;

-- The key of each message, for as long as it is kept: repetitions are found here, and for messages of former releases by the
-- index message_bodies_source of the first partition.
CREATE TABLE message_keys (
    source_id text NOT NULL,                 -- the sender's control id: MSH-10
    source_system text NOT NULL,             -- sending system: MSH-3.1
    tenant text NOT NULL,                    -- partition of the message
    id bigint NOT NULL,                      -- message_bodies.id
    PRIMARY KEY (source_id, source_system, tenant)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

-- Take messages without a partition of their own, so that none is refused.
CREATE TABLE message_bodies_default PARTITION OF message_bodies DEFAULT;
CREATE TABLE message_text_default PARTITION OF message_text DEFAULT;

-- A message that is removed leaves the index, the totals and its key, and forwards and effects go with it, whoever removes it.
CREATE OR REPLACE FUNCTION message_index_forget() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    reached bigint;
BEGIN
    SELECT indexed_to INTO reached FROM message_index_state WHERE single FOR UPDATE; -- waits for a batch of the stage
    DELETE FROM message_text t USING removed r WHERE t.message_id = r.id;
    DELETE FROM message_keys k USING removed r
    WHERE k.source_id = r.source_id AND k.source_system = r.source_system AND k.tenant = r.tenant AND k.id = r.id;
    DELETE FROM forwards f USING removed r WHERE f.message_id = r.id;
    DELETE FROM remote_effects e USING removed r WHERE e.message_id = r.id;
    UPDATE message_totals t SET count = t.count - gone.count
    FROM (SELECT tenant, source_system, message_type, count(*) FROM removed WHERE id <= reached GROUP BY 1, 2, 3) gone
    WHERE t.tenant = gone.tenant AND t.source_system = gone.source_system AND t.message_type = gone.message_type;
    RETURN NULL;
END $$;
CREATE TRIGGER message_bodies_uncount AFTER DELETE ON message_bodies FOR EACH ROW
    WHEN (current_setting('ipf.pruning', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION uncount_message();
CREATE TRIGGER message_bodies_forget AFTER DELETE ON message_bodies REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION message_index_forget();

-- The ranges of message_bodies, oldest first; message_text has the same.  `lower` NULL: the first partition.
CREATE VIEW message_partitions AS
SELECT c.relname AS bodies, replace(c.relname, 'bodies', 'text')::name AS texts,
    substring(b.bound FROM 'FROM \(''?(\d+)')::bigint AS lower, substring(b.bound FROM 'TO \(''?(\d+)')::bigint AS upper
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid) AS bound) b
WHERE i.inhparent = 'message_bodies'::regclass AND b.bound <> 'DEFAULT' ORDER BY 4;

-- Makes the next partition when the last one holds fewer than `smallest` / 2 further ids, or what two days need.  It lasts for about
-- `days`, and holds at least `smallest` ids.  NULL when others use the default partitions.  What the default partitions hold of its range moves into it.
CREATE FUNCTION ensure_message_partition(days double precision, smallest bigint) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '500ms' AS $$
DECLARE
    last bigint := coalesce(pg_sequence_last_value(pg_get_serial_sequence('message_bodies', 'id')::regclass), 0);
    lower bigint;
    upper bigint;
    per_day double precision;
    made name;
BEGIN
    SELECT (last - b.id) * 86400 / greatest(extract(epoch FROM now() - b.received_at), 1) INTO per_day
    FROM message_bodies b WHERE b.id <= last - 100000 ORDER BY b.id DESC LIMIT 1;
    per_day := coalesce(per_day, 0);
    IF (SELECT max(p.upper) FROM message_partitions p) > last + greatest(smallest / 2, 2 * per_day) THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(4919004);
    LOCK TABLE message_bodies_default, message_text_default IN ACCESS EXCLUSIVE MODE;
    SELECT max(p.upper) INTO lower FROM message_partitions p;
    IF lower > last + greatest(smallest / 2, 2 * per_day) THEN -- another process was first
        RETURN false;
    END IF;
    upper := greatest(lower, last) + greatest(smallest, days * per_day)::bigint;
    made := format('message_bodies_%s', lower);
    EXECUTE format('CREATE TABLE %I (LIKE message_bodies INCLUDING STORAGE) WITH (autovacuum_vacuum_scale_factor = 0.02,'
                   ' autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_insert_scale_factor = 0.05)', made);
    EXECUTE format('ALTER TABLE %I ALTER raw_message SET STATISTICS 0, ALTER raw_content_type SET STATISTICS 0,'
                   ' ALTER charset SET STATISTICS 0, ALTER id SET STATISTICS 20, ALTER tenant SET STATISTICS 20,'
                   ' ALTER received_at SET STATISTICS 20, ALTER source_protocol SET STATISTICS 20,'
                   ' ALTER source_system SET STATISTICS 20, ALTER source_id SET STATISTICS 20,'
                   ' ALTER message_type SET STATISTICS 20, ALTER correlation_id SET STATISTICS 20,'
                   ' ALTER ordering_key SET STATISTICS 20, ALTER listener SET STATISTICS 20', made);
    PERFORM set_config('ipf.pruning', 'on', true); -- what moves stays counted
    EXECUTE format('WITH moved AS (DELETE FROM message_bodies_default WHERE id >= $1 AND id < $2 RETURNING *)'
                   ' INSERT INTO %I SELECT * FROM moved', made) USING lower, upper;
    EXECUTE format('ALTER TABLE message_bodies ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', made, lower, upper);
    made := format('message_text_%s', lower);
    EXECUTE format('CREATE TABLE %I (LIKE message_text INCLUDING STORAGE) WITH (autovacuum_vacuum_scale_factor = 0.05,'
                   ' autovacuum_vacuum_insert_scale_factor = 0.05)', made);
    EXECUTE format('ALTER TABLE %I ALTER words SET STATISTICS 0', made);
    EXECUTE format('WITH moved AS (DELETE FROM message_text_default WHERE message_id >= $1 AND message_id < $2 RETURNING *)'
                   ' INSERT INTO %I SELECT * FROM moved', made) USING lower, upper;
    EXECUTE format('ALTER TABLE message_text ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', made, lower, upper);
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN NULL; -- the next run makes it
END $$;

-- Partitions whose messages are being removed: their payloads stay until they are dropped.
CREATE TABLE message_drops (
    upper bigint PRIMARY KEY,                -- message_partitions.upper
    began_at timestamptz NOT NULL DEFAULT now() -- when retention began with it
);

-- Drops the partitions that end at `ending`, if no message of them is left; false otherwise, and when others use them.  The first
-- ones stay, empty: statements name them.
CREATE FUNCTION drop_message_partition(ending bigint) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
    old message_partitions;
BEGIN
    SELECT * INTO STRICT old FROM message_partitions p WHERE p.upper = ending;
    IF old.lower IS NOT NULL THEN -- in the order in which statements lock them
        LOCK TABLE ONLY message_bodies, ONLY message_text IN ACCESS EXCLUSIVE MODE;
    END IF;
    EXECUTE format('LOCK TABLE %I, %I IN ACCESS EXCLUSIVE MODE', old.bodies, old.texts);
    IF EXISTS (SELECT FROM message_states s
               WHERE s.id >= coalesce(old.lower, 0) AND s.id < old.upper AND s.original_id IS NULL) THEN
        RETURN false;
    END IF;
    EXECUTE format(CASE WHEN old.lower IS NULL THEN 'TRUNCATE %I, %I' ELSE 'DROP TABLE %I, %I' END, old.bodies, old.texts);
    DELETE FROM message_drops d WHERE d.upper = ending;
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN false;
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

CREATE VIEW ingested_messages AS
SELECT b.id, b.tenant, b.received_at, b.source_protocol, b.source_system, b.source_id, b.message_type, b.raw_message,
       b.raw_content_type, s.status, s.attempt_count, s.last_attempt_at, s.next_attempt_at, s.last_error, s.delivered_at,
       b.correlation_id, b.charset, b.listener
FROM message_bodies b JOIN message_states s USING (id);
