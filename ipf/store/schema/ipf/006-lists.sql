-- Lists of one tenant's rejects and jobs.

CREATE INDEX rejects_tenant ON rejects (tenant, received_at DESC, id DESC);
CREATE INDEX admin_jobs_tenant ON admin_jobs (tenant, id DESC);
