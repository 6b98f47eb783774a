-- Errors that no retry mends: marked, so that operators find them and, if the settings say so, later messages pass.
ALTER TABLE message_states
    ADD COLUMN permanent boolean NOT NULL DEFAULT false; -- whether no retry mends last_error
