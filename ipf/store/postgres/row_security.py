"""Row-level security, switched on by a start with several tenants: the role of callers' requests, grants, policies.

Arrives: the URL of the migrated FHIR database; its user owns the tables.  Leaves: a database that `Database(...,
tenants=True)` can open, or a Problem with the two statements that a user with more rights must run once.  Repeating it
changes nothing; replicas that start together take turns.  A start with one tenant does not use this module.

Behind a policy, an index condition may use only functions that cannot leak hidden rows (LEAKPROOF).  Only a superuser
may mark functions so: this module does it where the user is one, as in the embedded server, and logs `HINT` elsewhere.
Without it, searches that compare numbers or concatenate texts are slower.

Sources: https://www.postgresql.org/docs/current/ddl-rowsecurity.html,
https://www.postgresql.org/docs/current/sql-createfunction.html (LEAKPROOF)
"""

from __future__ import annotations

from typing import Any

from twisted.logger import Logger

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.store.postgres.connection import Connection
from ipf.store.postgres.migrate import take_turns
from ipf.store.postgres.probe import watched_connection
from ipf.store.postgres.quoting import literal
from ipf.store.postgres.tenant_scope import ROLE

log = Logger()

LEAKPROOF = (
    "numeric_eq(numeric, numeric)", "numeric_lt(numeric, numeric)", "numeric_le(numeric, numeric)",
    "numeric_gt(numeric, numeric)", "numeric_ge(numeric, numeric)", "textcat(text, text)", "substr(text, integer)",
    "arrayoverlap(anyarray, anyarray)",
)  # fmt: skip
HINT = "; ".join(f"ALTER FUNCTION pg_catalog.{one} LEAKPROOF" for one in LEAKPROOF)

# Names of the role and the user; whether the role exists, the user may create roles, the user is a superuser, and the
# functions are leakproof.
_STATE = f"""
SELECT {ROLE}::text, current_user::text, EXISTS (SELECT 1 FROM pg_roles WHERE rolname = {ROLE}),
    (SELECT rolcreaterole OR rolsuper FROM pg_roles WHERE rolname = current_user),
    (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
    (SELECT bool_and(proleakproof) FROM pg_proc
     WHERE oid = ANY (ARRAY[{",".join(map(literal, LEAKPROOF))}]::regprocedure[]))"""
_ENTER = f"SELECT set_config('role', {ROLE}, true)"  # for this statement alone

_CREATE_ROLE = """
DO $$ BEGIN
    EXECUTE format('CREATE ROLE %I NOLOGIN NOINHERIT', {role});
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; -- another start was first
END $$"""
_JOIN_ROLE = "DO $$ BEGIN EXECUTE format('GRANT %I TO %I', {role}, current_user); END $$"
_GRANT = """
DO $$
DECLARE
    place name := (SELECT relnamespace::regnamespace FROM pg_class WHERE oid = 'resources'::regclass);
    one name;
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', place, {role});
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO %I', place, {role});
    EXECUTE format('GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA %I TO %I', place, {role});
    EXECUTE format('REVOKE ALL ON schema_versions FROM %I', {role});
    FOR one IN SELECT DISTINCT c.relname FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
               WHERE NOT c.relrowsecurity LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', one);
    END LOOP;
END $$"""


async def secure(url: str, *, reactor: Any) -> None:
    """Create the role if it is missing, grant its rights, switch every policy on.

    Problem UNAVAILABLE with what to do when this user may not; StoreUnreachable when the server is away.
    """
    async with watched_connection(url, reactor=reactor, statement_seconds=3600) as connection:
        await take_turns(connection, reactor)
        await _join(connection)
        await connection.run(_GRANT.format(role=ROLE))
        await _leakproof(connection)


async def obstacle(connection: Connection) -> str:
    """The reason why a start with several tenants would be refused; empty if there is none.  Changes nothing."""
    ((role, user, exists, may_create, *_),) = await connection.run(_STATE)
    return "" if (may_create and not exists) or await _may_enter(connection) else missing(role, user)


async def _join(connection: Connection) -> None:
    """Create the role if it is missing and let this user set it."""
    ((role, user, exists, may_create, *_),) = await connection.run(_STATE)
    try:
        if may_create and not exists:
            await connection.run(_CREATE_ROLE.format(role=ROLE))
        if not await _may_enter(connection):
            await connection.run(_JOIN_ROLE.format(role=ROLE))
    except StoreUnreachable:
        raise
    except Problem as refused:
        raise Problem(Category.UNAVAILABLE, missing(role, user)) from refused


async def _may_enter(connection: Connection) -> bool:
    try:
        await connection.run(_ENTER)
    except StoreUnreachable:
        raise
    except Problem:
        return False
    return True


async def _leakproof(connection: Connection) -> None:
    ((*_, is_superuser, is_done),) = await connection.run(_STATE)
    if is_done:
        return
    if is_superuser:
        for statement in HINT.split("; "):
            await connection.run(statement)
    else:
        log.info("event=slow_searches searches by quantity or chain and for AuditEvents are slower until a superuser "
                 "says in the FHIR database: {hint}", event="slow_searches", hint=HINT)  # fmt: skip


def missing(role: str, user: str) -> str:
    """The instructions for a role that the service may not create."""
    return (
        f"row-level security needs a role that {user} may not create: a user with CREATEROLE must run once "
        f'CREATE ROLE "{role}" NOLOGIN NOINHERIT; GRANT "{role}" TO "{user}" '
        "- or set SUBSCRIPTION_SERVICE_MULTITENANCY_ROW_SECURITY=false to run without row-level security"
    )
