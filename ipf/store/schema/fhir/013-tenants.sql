-- Row-level security as the second lock between tenants: what a statement may see and write belongs to the partition that
-- its transaction names in ipf.partition; without one nothing.  Policies say it here; they hold for the role of callers'
-- requests once a start with several tenants has switched them on (ipf/store/row_security.py).  The owner of the tables
-- passes by: with one tenant they cost nothing.

CREATE POLICY tenants ON resources USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON resource_versions
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON index_text USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON index_date USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON index_quantity
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON index_units USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON receipts USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON subscription_states
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON subscription_topics
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON subscription_grants
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON websocket_tokens
    USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON reindex_jobs USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON export_jobs USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON export_parts USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
CREATE POLICY tenants ON audit_blocks USING (partition_id = nullif(current_setting('ipf.partition', true), '')::smallint);
-- These belong to whom their subscription belongs; which the policy of its own table decides.
CREATE POLICY tenants ON subscription_events
    USING (EXISTS (SELECT 1 FROM subscription_states s WHERE s.rid = subscription_rid));
CREATE POLICY tenants ON delivery_attempts
    USING (EXISTS (SELECT 1 FROM subscription_states s WHERE s.rid = subscription_rid));

-- What requests need of all tenants together tells nothing of any.

-- The highest internal number that is taken.
CREATE FUNCTION newest_rid() RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS
    'SELECT coalesce(max(rid), 0) FROM resources';

-- Statistics for the planner where there are none: only the owner of a table may ask for them.
CREATE FUNCTION ensure_statistics() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_class
               WHERE oid IN ('resources'::regclass, 'index_text'::regclass) AND reltuples <= 0) THEN
        ANALYZE resources, index_text, index_date;
    END IF;
END $$;
