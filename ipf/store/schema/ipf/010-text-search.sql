-- Search inside messages by PostgreSQL's full-text search: a tsvector for each message, a GIN index, and totals by sender
-- and type for the list.  The stage ipf/pipeline/maintenance/index_messages.py writes all of it behind the inbox, so that
-- receiving pays nothing.  The former index goes; messages that are stored already are indexed again, oldest first.

DROP TABLE message_word_blocks, message_fields, message_parts, message_chunks;
UPDATE message_index_state SET indexed_to = 0;

CREATE TABLE message_text (
    message_id bigint PRIMARY KEY,           -- message_bodies.id
    words tsvector NOT NULL                  -- the words of the message (ipf/hl7/words.py), and its tenant, sender and type
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_scale_factor = 0.05);
-- ANALYZE leaves the vectors out: the queries do not depend on their statistics, and a sample of them is large.
ALTER TABLE message_text ALTER words SET STATISTICS 0;

-- New rows go to the pending list of the index, which is merged in bulk: a message has about a hundred words, and to insert
-- them one by one costs several times as much.  The stage or autovacuum does the merge, never a receiver.  Every search reads
-- the pending list as well, so it is kept to 4 MB.
CREATE INDEX message_text_words ON message_text USING gin (words) WITH (fastupdate = on, gin_pending_list_limit = 4096);

CREATE TABLE message_totals (
    tenant text NOT NULL,                    -- partition of the messages
    source_system text NOT NULL,             -- sender: MSH-3.1
    message_type text NOT NULL,              -- MSH-9.1 _ MSH-9.2
    count bigint NOT NULL,                   -- messages with an id up to indexed_to
    PRIMARY KEY (tenant, source_system, message_type)
) WITH (fillfactor = 50);

-- A deleted message leaves index and totals, whoever deletes it.  Insertion fires nothing.
CREATE OR REPLACE FUNCTION message_index_forget() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    reached bigint;
BEGIN
    SELECT indexed_to INTO reached FROM message_index_state WHERE single FOR UPDATE; -- waits for a batch of the stage
    DELETE FROM message_text t USING removed r WHERE t.message_id = r.id;
    UPDATE message_totals t SET count = t.count - gone.count
    FROM (SELECT tenant, source_system, message_type, count(*) FROM removed WHERE id <= reached GROUP BY 1, 2, 3) gone
    WHERE t.tenant = gone.tenant AND t.source_system = gone.source_system AND t.message_type = gone.message_type;
    RETURN NULL;
END $$;
