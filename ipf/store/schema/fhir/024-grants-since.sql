-- From which event on the events of a Subscription are within the grants of a writer, and who set the endpoint.
-- Subscriptions that are there keep their numbers.

ALTER TABLE subscription_grants ADD COLUMN since bigint NOT NULL DEFAULT 0;        -- number of the newest event when it first wrote
ALTER TABLE subscription_grants ADD COLUMN owns boolean NOT NULL DEFAULT false;    -- whether it set the endpoint
