-- Words of resources for _text and _content, written while IPF_FHIR_FULL_TEXT is on.
--
-- Oldest release that may run beside: any.  Former releases write no rows here; the setting is for processes of one release.

CREATE TABLE index_words (
    partition_id smallint NOT NULL,          -- partitions.id
    param smallint NOT NULL,                 -- parameters.id: _text or _content of the resource type
    words tsvector NOT NULL,                 -- words with their positions; ipf/fhir/index/words.py makes them
    rid bigint NOT NULL,                     -- resources.rid
    PRIMARY KEY (rid, param)
);
CREATE INDEX index_words_found ON index_words USING gin (words);
CREATE POLICY tenants ON index_words USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);

-- Whether the words of all resources are there: callers see jobs of their own tenant alone.
CREATE FUNCTION words_are_indexed() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS
    'SELECT coalesce(bool_and(status = ''done''), false) FROM reindex_jobs WHERE reason = ''full text''';
