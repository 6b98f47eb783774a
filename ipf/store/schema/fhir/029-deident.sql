-- De-identified exports.

ALTER TABLE export_jobs
    ADD COLUMN deident text;                 -- title of the profile of de-identification; NULL = resources as they are
