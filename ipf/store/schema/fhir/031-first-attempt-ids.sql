-- The first of three steps that partition delivery_attempts by ranges of ids without copying a row, as
-- ipf/018-first-message-ids.sql does with messages: the ids that the table as it is will hold.

DO $$
DECLARE
    last bigint := coalesce(pg_sequence_last_value(pg_get_serial_sequence('delivery_attempts', 'id')::regclass), 0);
    per_day bigint := 0;
BEGIN
    SELECT (last - a.id) * 86400 / greatest(extract(epoch FROM now() - a.attempted_at), 1) INTO per_day
    FROM delivery_attempts a WHERE a.id <= last - 100000 ORDER BY a.id DESC LIMIT 1;
    EXECUTE format('ALTER TABLE delivery_attempts ADD CONSTRAINT delivery_attempts_first_ids CHECK (id < %s) NOT VALID',
                   last + 10000001 + 2 * coalesce(per_day, 0));
END $$;
