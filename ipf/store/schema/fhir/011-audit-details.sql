-- What a vendor profile adds to the audit record of a message of its own.

ALTER TABLE audit_events
    ADD COLUMN details text NOT NULL DEFAULT '';  -- JSON: agent_system, source_system, details [[name, text]]; '' = none
