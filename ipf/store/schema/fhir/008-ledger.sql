-- Finding the attempts that carried an event among others, and room for rows that retention removes.

CREATE INDEX delivery_attempts_several ON delivery_attempts (subscription_rid, to_event_number, event_number)
    WHERE to_event_number IS NOT NULL;
ALTER TABLE delivery_attempts SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
ALTER TABLE subscription_events SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
ALTER TABLE resource_versions SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
