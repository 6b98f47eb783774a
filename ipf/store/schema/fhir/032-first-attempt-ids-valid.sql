-- Reads the table once, beside readers and writers, so that the next step need not read it under its lock.

ALTER TABLE delivery_attempts VALIDATE CONSTRAINT delivery_attempts_first_ids;
