-- Observations are indexed by subject, code and time for Observation/$lastn.  A job indexes the Observations that are there;
-- until it is done, $lastn reads resources.
--
-- Oldest release that may run beside: any.  Former releases write no such entries: after a rolling upgrade,
-- POST /$reindex?type=Observation indexes what they stored meanwhile.

INSERT INTO reindex_jobs (partition_id, resource_types, parameters, reason, until_rid)
SELECT 1, 'Observation', '', 'last observations', max(rid) FROM resources WHERE resource_type = 'Observation' HAVING count(*) > 0;

-- Whether that job is done: callers see jobs of their own tenant alone.
CREATE FUNCTION lastn_is_indexed() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS
    'SELECT NOT EXISTS (SELECT 1 FROM reindex_jobs WHERE reason = ''last observations'' AND status <> ''done'')';
