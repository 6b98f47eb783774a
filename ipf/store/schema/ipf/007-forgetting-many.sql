-- Retention removes thousands of messages at once: each chunk of the index is then written once.
CREATE OR REPLACE FUNCTION message_index_forget() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    gone record;
    known bytea;
    place integer;
    cleared integer;
BEGIN
    PERFORM 1 FROM message_index_state WHERE single FOR SHARE; -- the stage adds no bits meanwhile
    FOR gone IN
        SELECT tenant, id / 1024 AS chunk, array_agg((id % 1024)::integer) AS bits FROM removed GROUP BY 1, 2 ORDER BY 1, 2
    LOOP
        SELECT live INTO known FROM message_chunks WHERE tenant = gone.tenant AND chunk = gone.chunk FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        cleared := 0;
        FOREACH place IN ARRAY gone.bits LOOP
            cleared := cleared + get_bit(known, place);
            known := set_bit(known, place, 0);
        END LOOP;
        UPDATE message_chunks SET live = known, n = n - cleared WHERE tenant = gone.tenant AND chunk = gone.chunk;
    END LOOP;
    RETURN NULL;
END $$;
