"""What goes before the strings of a connection: the time of a clock, and statements that are prepared on first use.

Statements write `now()`.  By default this is PostgreSQL's own: hosts whose clocks differ must agree about leases, due
times and expiries, and the database is the one time source that all of them ask, once a statement.  A `Database` that
was opened with `now` uses the caller's time instead: its connections find the function `ipf_clock.now()` before that of
PostgreSQL, and each string begins with the time.  Such connections are for tests: nothing in them waits for a clock.

A `Database` with `prepare_on_use` prepares a statement in front of its first call, in the same round trip.

Source: https://www.postgresql.org/docs/current/ddl-schemas.html#DDL-SCHEMAS-PATH
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from ipf.store.postgres.quoting import Statement, literal, script

Now = Callable[[], datetime]

SEARCH_PATH = 'SET search_path = "$user", public, ipf_clock, pg_catalog'
_READ = "RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE RETURN current_setting('ipf.now')::timestamptz"
CREATE_CLOCK = f"""
DO $$ BEGIN
    PERFORM pg_advisory_xact_lock(4919003);
    IF to_regprocedure('ipf_clock.now()') IS NULL THEN
        CREATE SCHEMA ipf_clock;
        GRANT USAGE ON SCHEMA ipf_clock TO PUBLIC;
        CREATE FUNCTION ipf_clock.now() {_READ};
        CREATE FUNCTION ipf_clock.clock_timestamp() {_READ};
    END IF;
END $$"""
_CALL = re.compile(r"\bEXECUTE (\w+)")
_NOT_RUN = ("25P02", "42601")  # the transaction had failed before, or the string could not be read: nothing of it ran


class Preambles:
    """Those of a pool: `now` is its clock, if any; `on_use`: whether `statements` are prepared when they are needed."""

    def __init__(self, now: Now | None, statements: Sequence[Statement], on_use: bool) -> None:
        self._now = now
        self._on_use = {statement.name: statement for statement in statements} if on_use else {}
        self.clock = "" if now is None else script(CREATE_CLOCK, SEARCH_PATH, time_of(now))
        self.prepared = "" if on_use else script(*(statement.prepare() for statement in statements))

    def one(self) -> Preamble | None:
        """That of a new connection; None if there is nothing to send."""
        return None if self._now is None and not self._on_use else Preamble(self._now, self._on_use)


class Preamble:
    """What one connection sends before its strings.  `on_use`: statements by name that it prepares when needed."""

    def __init__(self, now: Now | None, on_use: Mapping[str, Statement]) -> None:
        self._now = now
        self._on_use = on_use
        self._prepared: set[str] = set()
        self._last: set[str] = set()

    def before(self, sql: str) -> str:
        """`sql` with its preamble.  A ROLLBACK must also work in a transaction that has failed."""
        self._last = set()
        if sql == "ROLLBACK":
            return sql
        if self._on_use:
            self._last = (set(_CALL.findall(sql)) & self._on_use.keys()) - self._prepared
            self._prepared |= self._last
        return script(time_of(self._now), *(self._on_use[name].prepare() for name in sorted(self._last)), sql)

    def failed(self, code: str | None) -> None:
        """The last string has failed with this SQLSTATE."""
        if code in _NOT_RUN:
            self._prepared -= self._last


def time_of(now: Now | None) -> str:
    """The statement that sets the time; empty without a clock."""
    return "" if now is None else f"SET ipf.now = {literal(now().isoformat())}"
