-- The history of a type or of the whole system: all versions of a partition in the order in which they were made.
CREATE INDEX resource_versions_time ON resource_versions (partition_id, last_updated, rid, version_id);
