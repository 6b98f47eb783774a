-- The role and the databases of ipf; once, on the leader:
-- psql -v ON_ERROR_STOP=1 -v password=... -f databases.sql "host=LEADER dbname=postgres user=postgres"
-- CREATEROLE: the service makes the role of its row-level security by itself.
CREATE ROLE ipf LOGIN CREATEROLE PASSWORD :'password';
-- For reads on a standby (docs/how-to/read-replicas.md): it sees which timeline a standby receives.
GRANT pg_read_all_stats TO ipf;
CREATE DATABASE ipf OWNER ipf;
CREATE DATABASE fhir OWNER ipf;
