-- Work on many messages at once: replay, retry, discard; in batches, each with its progress in one transaction.

CREATE TABLE admin_jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- row identifier, used in admin paths
    tenant text NOT NULL,                    -- partition of the messages
    kind text NOT NULL,                      -- replay, retry or discard
    selection text NOT NULL,                 -- which messages were asked for, JSON
    following boolean NOT NULL,              -- replay: later messages of the same patients, too
    per_second integer NOT NULL,             -- messages a second, at most
    status text NOT NULL DEFAULT 'requested', -- requested, running, done, cancelled or failed
    total bigint NOT NULL,                   -- messages that were selected
    done_count bigint NOT NULL DEFAULT 0,    -- of those, how many were looked at
    changed_count bigint NOT NULL DEFAULT 0, -- retried, discarded or converted again
    following_count bigint NOT NULL DEFAULT 0, -- converted again because they come after one of them
    skipped_count bigint NOT NULL DEFAULT 0, -- left alone: gone, or in a state that does not allow it
    after_id bigint NOT NULL DEFAULT 0,      -- all selected messages up to this one are done
    error text,                              -- why it failed
    created_at timestamptz NOT NULL DEFAULT now(), -- when it was asked for
    updated_at timestamptz NOT NULL DEFAULT now()  -- when it last got on
);
CREATE INDEX admin_jobs_open ON admin_jobs (id) WHERE status IN ('requested', 'running');

CREATE TABLE admin_job_messages (
    job_id bigint NOT NULL REFERENCES admin_jobs (id) ON DELETE CASCADE, -- the job
    message_id bigint NOT NULL,              -- message_bodies.id
    PRIMARY KEY (job_id, message_id)
);

-- What is alike in errors: numbers, identifiers and quoted texts are left out.
CREATE FUNCTION error_fingerprint(error text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT left(md5(regexp_replace(error, '("[^"]*"|''[^'']*''|[0-9a-fA-F-]{16,}|[0-9]+)', '?', 'g')), 12)
$$;
