-- Which fields of HL7 v2 messages the elements of a version come from, as JSON (ipf/rest/identity/omitted.py): an update
-- keeps what its message leaves out.  NULL: no message wrote it, or it was written before this migration.

ALTER TABLE resource_versions ADD COLUMN sources text;
