-- What tells events that are sent again on purpose from a repeated attempt: a message broker drops repetitions.

ALTER TABLE subscription_states
    ADD COLUMN resend_token bigint NOT NULL DEFAULT 0; -- lease_token of the latest resend; 0 = there was none
