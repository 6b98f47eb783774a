-- Channels beside rest-hook, heartbeats, batches of events, and the tokens that bind a websocket.

ALTER TABLE subscription_states
    ADD COLUMN channel_type text NOT NULL DEFAULT 'rest-hook', -- how it is notified; websocket is never leased
    ADD COLUMN heartbeat_seconds integer,    -- longest silence that the subscriber asked for; NULL = any
    ADD COLUMN heartbeat_at timestamptz;     -- when a heartbeat is due; NULL = never
DROP INDEX subscription_states_due;
CREATE INDEX subscription_states_due ON subscription_states (ready_at, rid)
    WHERE status = 'active' AND last_event_number > delivered_number AND channel_type <> 'websocket';
CREATE INDEX subscription_states_heartbeat ON subscription_states (heartbeat_at, rid)
    WHERE status = 'active' AND heartbeat_at IS NOT NULL AND channel_type <> 'websocket';

ALTER TABLE delivery_attempts
    ADD COLUMN kind text NOT NULL DEFAULT 'event-notification', -- or handshake, heartbeat: then event_number is 0
    ADD COLUMN to_event_number bigint;       -- last event of a notification that carried several; NULL = event_number

CREATE TABLE websocket_tokens (
    digest text COLLATE "C" PRIMARY KEY,     -- SHA-256 of the token, which itself is kept nowhere
    partition_id smallint NOT NULL,          -- partitions.id
    subscription_ids text NOT NULL,          -- logical ids that it binds, separated by a blank
    expires_at timestamptz NOT NULL          -- notifications over it end then
);
CREATE INDEX websocket_tokens_expiry ON websocket_tokens (expires_at);
