-- Contained resources are indexed for searches with _contained.  A job indexes those that are there; until it
-- is done, these searches find only what was written since.

INSERT INTO search_parameters (resource_type, code)
SELECT DISTINCT resource_type, '$contained' FROM search_parameters ORDER BY resource_type ON CONFLICT DO NOTHING;

INSERT INTO reindex_jobs (partition_id, resource_types, parameters, reason, until_rid)
SELECT 1, string_agg(DISTINCT resource_type, ','), '', 'contained resources', max(rid)
FROM resources HAVING count(*) > 0;
