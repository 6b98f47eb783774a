-- One hospital on a Citus cluster: two schemas, each with all its tables on one node, and the users that ipf connects as.
-- Run it once for each hospital, as a superuser, in the database on the coordinator:
--
--   psql -v ON_ERROR_STOP=1 -v hospital=north -v password="$(cat north.password)" -f distribute.sql "$DATABASE_URL"
--
-- Then the hospital's URLs are postgresql://north_inbox:PASSWORD@COORDINATOR/DATABASE and postgresql://north_fhir:...,
-- and the first start of ipf makes the tables.  docs/citus.md.  Without the extension the schemas are ordinary ones: several
-- hospitals then share one server, and each can be moved by itself.
-- Source: https://docs.citusdata.com/en/stable/get_started/tutorial_microservices.html

\set ON_ERROR_STOP on
SELECT format('%s_inbox', :'hospital') AS inbox, format('%s_fhir', :'hospital') AS fhir,
       'ipf_tenants_' || current_database() AS tenants, current_database() AS database,
       EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'citus') AS citus,
       NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'ipf_tenants_' || current_database()) AS first \gset

\if :citus
SET citus.enable_schema_based_sharding = on; -- CREATE SCHEMA chooses a node; tables made in it follow
-- Triggers of ipf touch only tables of their own schema, which are on the same node.
ALTER DATABASE :"database" SET citus.enable_unsafe_triggers = on;
\endif

CREATE ROLE :"inbox" LOGIN PASSWORD :'password';
CREATE ROLE :"fhir" LOGIN PASSWORD :'password';
CREATE SCHEMA :"inbox" AUTHORIZATION :"inbox";
CREATE SCHEMA :"fhir" AUTHORIZATION :"fhir";

-- A user sees its schema and no other one, so no statement can reach a second node.
ALTER ROLE :"inbox" IN DATABASE :"database" SET search_path = :"inbox";
ALTER ROLE :"fhir" IN DATABASE :"database" SET search_path = :"fhir";

-- Row-level security of several tenants in one pair of schemas (docs/security.md, "Tenants") works in this role.
\if :first
CREATE ROLE :"tenants" NOLOGIN NOINHERIT;
\endif
GRANT :"tenants" TO :"fhir";
