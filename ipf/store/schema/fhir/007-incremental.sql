-- Writers learn what changed about subscriptions since the epoch they know; topics and ends of subscriptions.

ALTER TABLE subscription_epoch
    ADD COLUMN parameters_epoch bigint NOT NULL DEFAULT 0; -- epoch of the last change of a SearchParameter
UPDATE subscription_epoch SET parameters_epoch = epoch;

ALTER TABLE subscription_states
    ADD COLUMN epoch bigint NOT NULL DEFAULT 0, -- epoch at which the Subscription was last written
    ADD COLUMN ends_at timestamptz;          -- Subscription.end; NULL = never
CREATE INDEX subscription_states_epoch ON subscription_states (epoch);
CREATE INDEX subscription_states_ends ON subscription_states (ends_at)
    WHERE ends_at IS NOT NULL AND status IN ('requested', 'active', 'error');

CREATE TABLE subscription_topics (
    rid bigint PRIMARY KEY,                  -- resources.rid of the SubscriptionTopic, or of the Basic that holds one
    partition_id smallint NOT NULL,          -- partitions.id
    url text NOT NULL,                       -- canonical URL of the topic
    served boolean NOT NULL,                 -- whether it is there, active, and fires
    epoch bigint NOT NULL                    -- epoch at which it was last written
);
CREATE INDEX subscription_topics_epoch ON subscription_topics (epoch);
CREATE INDEX subscription_topics_url ON subscription_topics (partition_id, url);
