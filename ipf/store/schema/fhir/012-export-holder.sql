-- Who works on an export: the server's process of the connection that leased it.  When that is gone, so is the holder.

ALTER TABLE export_jobs ADD COLUMN holder integer; -- pg_stat_activity.pid; NULL = nobody ever
