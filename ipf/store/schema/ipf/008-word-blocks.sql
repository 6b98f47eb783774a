-- The index of words, written once: a part is what one batch adds, up to 1,024 messages of one chunk; its words stand
-- in sorted blocks of about half a kilobyte instead of a row each.  What was indexed before is indexed again, behind the inbox.

DROP TABLE message_words;
DELETE FROM message_chunks;
UPDATE message_index_state SET indexed_to = 0;

CREATE TABLE message_parts (
    part bigint PRIMARY KEY                  -- its first message_bodies.id; all its messages are of one chunk
);

-- Few values, each in very many messages: the list asks for them all the time, so they are found without looking at words.
CREATE TABLE message_fields (
    word text COLLATE "C" NOT NULL,          -- a source system or message type: first character 0x01, then its letter
    part bigint NOT NULL,                    -- message_parts.part
    ids text NOT NULL,                       -- which messages, as in a line of a block
    PRIMARY KEY (word, part)
);
CREATE INDEX message_fields_part ON message_fields (part);

CREATE TABLE message_word_blocks (
    part bigint NOT NULL,                    -- message_parts.part
    first_word text COLLATE "C" NOT NULL,    -- the block has the words from this one up to that of the next block
    words text NOT NULL,                     -- line feed, then lines: word, tab, which messages (ipf/store/word_blocks.py)
    PRIMARY KEY (part, first_word)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_insert_scale_factor = 0.1);
ALTER TABLE message_word_blocks ALTER COLUMN words SET STORAGE EXTERNAL;
