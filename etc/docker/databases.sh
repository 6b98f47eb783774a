#!/bin/sh
# Makes the two roles and the two databases of ipf; PostgreSQL's image runs it at the first start.
set -eu
for name in ipf fhir; do
    psql --username "$POSTGRES_USER" -v ON_ERROR_STOP=1 -v name="$name" \
        -v password="$(cat "/etc/ipf/secrets/$name-password")" <<'SQL'
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
SQL
done
