-- The first of three steps that partition message_bodies and message_text by ranges of ids without copying a row: the ids that
-- the tables as they are will hold.  Each step is a transaction of its own; readers and writers go on beside this one and the
-- next.  The processes of the former release stay below the limit for two days, and for 10,000,000 messages more.

DO $$
DECLARE
    per_day bigint := coalesce((SELECT sum(count) FROM received_hours WHERE hour >= now() - interval '1 day'), 0);
    first bigint := coalesce(pg_sequence_last_value(pg_get_serial_sequence('message_bodies', 'id')::regclass), 0)
        + 10000001 + 2 * per_day;
BEGIN
    EXECUTE format('ALTER TABLE message_bodies ADD CONSTRAINT message_bodies_first_ids CHECK (id < %s) NOT VALID', first);
    EXECUTE format('ALTER TABLE message_text ADD CONSTRAINT message_text_first_ids CHECK (message_id < %s) NOT VALID', first);
END $$;
