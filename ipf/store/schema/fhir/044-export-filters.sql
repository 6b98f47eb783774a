-- Exports of what searches select (`_typeFilter`).

ALTER TABLE export_jobs
    ADD COLUMN filters text;                 -- JSON list of `Type?query`; NULL = everything of its types
