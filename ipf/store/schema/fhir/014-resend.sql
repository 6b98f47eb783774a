-- A range of events that is sent again: delivered_number is within it, and goes back to resume_number behind it.

ALTER TABLE subscription_states
    ADD COLUMN resend_until bigint,          -- last event that is sent again; NULL = none is
    ADD COLUMN resume_number bigint;         -- delivered_number as it was
