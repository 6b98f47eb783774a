-- Texts and displays of CodeableConcepts are indexed for :text.  A job indexes the resources that are there; until it is
-- done, :text reads resources.

INSERT INTO reindex_jobs (partition_id, resource_types, parameters, reason, until_rid)
SELECT 1, string_agg(DISTINCT resource_type, ','), '', 'texts of codes', max(rid) FROM resources HAVING count(*) > 0;

-- Whether that job is done: callers see jobs of their own tenant alone.
CREATE FUNCTION texts_are_indexed() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS
    'SELECT NOT EXISTS (SELECT 1 FROM reindex_jobs WHERE reason = ''texts of codes'' AND status <> ''done'')';
