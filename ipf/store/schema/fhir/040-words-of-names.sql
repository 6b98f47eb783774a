-- Names are indexed from each of their words on.  A job indexes the resources that are there; until it is done, these
-- are found by the beginnings of their parts.

INSERT INTO search_parameters (resource_type, code)
SELECT resource_type, code || ':word' FROM search_parameters
WHERE code IN ('name', 'family', 'given')
ORDER BY resource_type, code ON CONFLICT DO NOTHING;

INSERT INTO reindex_jobs (partition_id, resource_types, parameters, reason, until_rid)
SELECT 1, string_agg(DISTINCT resource_type, ','), '', 'words of names', (SELECT coalesce(max(rid), 0) FROM resources)
FROM search_parameters WHERE code LIKE '%:word' HAVING count(*) > 0;
