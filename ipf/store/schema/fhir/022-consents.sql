-- Consents decide who may see what, so every process must know each change of one with its next request.

CREATE TABLE consent_epoch (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), -- there is one row
    epoch bigint NOT NULL                    -- grows with every transaction that writes a Consent; its lock orders them
);
INSERT INTO consent_epoch (epoch) VALUES (0);

CREATE TABLE consent_changes (
    rid bigint PRIMARY KEY,                  -- resources.rid of the Consent
    partition_id smallint NOT NULL,          -- partitions.id
    epoch bigint NOT NULL                    -- epoch at which it was last written
);
CREATE INDEX consent_changes_epoch ON consent_changes (epoch);
CREATE POLICY tenants ON consent_changes
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);

-- With labels or Consents, an export has what the one who asked for it may see.
ALTER TABLE export_jobs
    ADD COLUMN caller text;                  -- grants of the one who asked for it, as JSON; NULL = without limits
