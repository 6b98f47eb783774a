-- Search inside messages: an inverted index in chunks of 1,024 ids, written behind the inbox by a stage of its own
-- (ipf/stages/index_messages.py), so that receiving pays nothing for it.

CREATE TABLE message_index_state (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), -- there is one row
    indexed_to bigint NOT NULL               -- every message with an id up to this one is in the index
);
INSERT INTO message_index_state (indexed_to) VALUES (0);

CREATE TABLE message_chunks (
    tenant text NOT NULL,                    -- partition of the messages
    chunk bigint NOT NULL,                   -- id / 1024
    live bytea NOT NULL,                     -- 128 bytes: bit id % 1024 is set when the message is indexed and still there
    n integer NOT NULL,                      -- how many bits are set
    PRIMARY KEY (tenant, chunk)
) WITH (fillfactor = 70);

CREATE TABLE message_words (
    word text COLLATE "C" NOT NULL,          -- a word in lower case, or a field: first character 0x01, then its letter
    chunk bigint NOT NULL,                   -- id / 1024
    ids bytea NOT NULL,                      -- up to 63 times two bytes: id % 1024; or 128 bytes: a bit for each
    PRIMARY KEY (word, chunk)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1);
-- Rows come in the order of chunk: what belongs to chunks without messages is found for removal.
CREATE INDEX message_words_chunk ON message_words USING brin (chunk) WITH (pages_per_range = 32);

-- A message that is removed leaves the index, whoever removes it; storing messages fires nothing.
CREATE FUNCTION message_index_forget() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    gone record;
BEGIN
    PERFORM 1 FROM message_index_state WHERE single FOR SHARE; -- the stage adds no bits meanwhile
    FOR gone IN SELECT tenant, id / 1024 AS chunk, (id % 1024)::integer AS bit FROM removed ORDER BY 1, 2, 3 LOOP
        UPDATE message_chunks SET live = set_bit(live, gone.bit, 0), n = n - 1
        WHERE tenant = gone.tenant AND chunk = gone.chunk AND get_bit(live, gone.bit) = 1;
    END LOOP;
    RETURN NULL;
END $$;
CREATE TRIGGER message_bodies_forget AFTER DELETE ON message_bodies REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION message_index_forget();
