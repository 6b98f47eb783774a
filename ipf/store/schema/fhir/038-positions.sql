-- Positions of Locations are indexed for near.  A job indexes the Locations that are there.

INSERT INTO reindex_jobs (partition_id, resource_types, parameters, reason, until_rid)
SELECT 1, 'Location', '', 'positions of Locations', max(rid) FROM resources WHERE resource_type = 'Location' HAVING count(*) > 0;
