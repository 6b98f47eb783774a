-- Reads both tables once, beside readers and writers, so that the next step need not read them under its lock.

ALTER TABLE message_bodies VALIDATE CONSTRAINT message_bodies_first_ids;
ALTER TABLE message_text VALIDATE CONSTRAINT message_text_first_ids;
