"""`python -m ipf.app.migrations [--dry-run | --try]`: what `ipfctl migrate` runs on this host.

`--dry-run` applies the pending files to an empty database of an embedded PostgreSQL of its own, and asks the real ones
for the sizes of their tables alone.  `--try` applies them to the real databases in one transaction each, which is
rolled back: meanwhile its locks hold up writers and readers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from twisted.internet import reactor

import ipf
from ipf.app.backup.databases import opened
from ipf.app.backup.running import exit_with
from ipf.app.doctor import environment_file
from ipf.app.runtime.databases import DatabaseUrls
from ipf.config.environment import read
from ipf.config.settings import Settings
from ipf.store.postgres.embedded import EmbeddedPostgres
from ipf.store.postgres.migrate import Migration, adopting, applied_to, is_former, migrate, migrations
from ipf.store.postgres.migration_preview import SIZES, Effect, preview
from ipf.store.postgres.probe import watched_connection

_BYTES_PER_SECOND = 50_000_000  # for indexes and rewrites: what a server with a slow disk does
_SECONDS = 24 * 3600.0

Size = tuple[int, int]
"""Rows, as the planner knows them, and bytes of a table."""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="ipfctl migrate")
    parser.add_argument("--env-file", type=Path)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--try", dest="tries", action="store_true")
    given = parser.parse_args()
    environ = dict(os.environ) | (dict(environment_file(given.env_file)) if given.env_file else {})
    exit_with(lambda: _run(environ, given))


async def _run(environ: dict[str, str], given: argparse.Namespace) -> bool:
    settings, _ = read(environ)
    work = _dry_run if given.dry_run else _try if given.tries else _apply
    async with opened(settings, reactor) as urls:
        await work(settings, urls)
    return True


async def _apply(settings: Settings, urls: DatabaseUrls) -> None:
    for kind, url in (("ipf", urls.inbox), ("fhir", urls.fhir)):
        number = await migrate(url, kind, reactor=reactor)
        print(f"{kind}: version {number} of ipf {ipf.__version__}")


async def _dry_run(settings: Settings, urls: DatabaseUrls) -> None:
    found = {kind: await _pending(kind, url) for kind, url in (("ipf", urls.inbox), ("fhir", urls.fhir))}
    if not any(pending for pending, _ in found.values()):
        return
    async with _scratch_server() as server:
        for kind, (pending, sizes) in found.items():
            if pending:
                print(f"{kind}:")
                await _rehearse(kind, server.url(kind), pending, sizes)
                _show_beside(kind, pending)


async def _rehearse(kind: str, url: str, pending: Sequence[Migration], sizes: dict[str, Size]) -> None:
    """Apply the files to an empty database with the schema before them."""
    wanted = migrations(kind)
    known = wanted[: wanted.index(pending[0])]
    if known:
        await migrate(url, kind, reactor=reactor, known=known)
    async with watched_connection(url, reactor=reactor, statement_seconds=_SECONDS) as connection:
        for one in pending:
            if one.is_online:
                print(f"  {one.name}: outside a transaction, holds up nobody")
                for statement in one.statements:
                    await connection.run(statement)
                continue
            await connection.run("BEGIN")
            effects, _ = await preview(connection, one, reactor)
            await connection.run("COMMIT")
            _show(one, effects, sizes)


async def _try(settings: Settings, urls: DatabaseUrls) -> None:
    for kind, url in (("ipf", urls.inbox), ("fhir", urls.fhir)):
        pending, sizes = await _pending(kind, url)
        async with watched_connection(url, reactor=reactor, statement_seconds=_SECONDS) as connection:
            await connection.run("BEGIN")
            for one in pending:
                if one.is_online:
                    print(f"  {one.name}: outside a transaction, it and what follows cannot be tried")
                    break
                effects, seconds = await preview(connection, one, reactor)
                _show(one, effects, sizes, seconds)
            await connection.run("ROLLBACK")


async def _pending(kind: str, url: str) -> tuple[Sequence[Migration], dict[str, Size]]:
    wanted = migrations(kind)
    async with watched_connection(url, reactor=reactor, statement_seconds=60) as connection:
        ((has,),) = await connection.run("SELECT to_regclass('schema_versions') IS NOT NULL")
        applied = await applied_to(connection, kind, wanted) if has else []
        sizes = {name: (rows, size) for name, rows, size in await connection.run(SIZES)}
        if is_former(kind, applied):
            await adopting(connection, kind, applied)
            print(f"{kind}: stop ipf {applied[-1].release} first; adopted as version {wanted[0].number}")
            return wanted[1:], sizes
    state = f"version {applied[-1].number} of ipf {applied[-1].release}" if applied else "empty"
    pending = wanted[len(applied) :]
    print(f"{kind}: {state}, {len(pending)} migrations to version {wanted[-1].number}")
    return pending, sizes


def _show(
    migration: Migration, effects: Sequence[Effect], sizes: dict[str, Size], seconds: float | None = None
) -> None:
    took = "" if seconds is None else f" in {seconds:.2f} s"
    print(f"  {migration.name}{took}" + ("" if effects else ": locks no table that is there"))
    for one in effects:
        rows, size = sizes.get(one.table, (0, 0))
        does = [f"blocks {one.blocks}"] if one.blocks else []
        does += ["drops it"] * one.is_dropped + ["rewrites it"] * one.is_rewritten
        does += [f"builds {one.builds} index{'es' * (one.builds > 1)}"] * (one.builds > 0)
        does += ["changes rows"] * (one.changes_rows and not one.is_dropped)
        estimate = size * (one.builds + one.is_rewritten) / _BYTES_PER_SECOND
        about = f", about {estimate:.0f} s" if estimate >= 1 else ""
        print(f"    {one.table} ({rows} rows, {size / 2**20:.1f} MiB): {', '.join(does)}{about}")


def _show_beside(kind: str, pending: Sequence[Migration]) -> None:
    oldest, newest = max(one.beside for one in pending), pending[-1].number
    may = "stop older programs first" if oldest == newest else f"programs that know version {oldest} may go on running"
    print(f"{kind}: {may}")


@asynccontextmanager
async def _scratch_server() -> AsyncIterator[EmbeddedPostgres]:
    """A server with empty databases in a temporary folder, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="ipf-migrate-"))
    postgres = EmbeddedPostgres(folder, reactor, extra={"fsync": "off"})
    try:
        await postgres.start()
        try:
            yield postgres
        finally:
            await postgres.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
