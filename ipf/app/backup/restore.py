"""`ipfctl restore FOLDER` and `ipfctl backup --verify FOLDER`.

A restore loads both dumps into empty databases, checks them (`check.py`), and only then removes the mark without which
no service starts on them (`store/backup/target.py`).  A restore that fails empties both databases again; after one that
was killed the mark says what to do.

A verification does the same with an embedded PostgreSQL in a folder of its own, which is removed at the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import ipf
from ipf.app.backup import manifest as manifests
from ipf.app.backup.check import Checked, check_databases
from ipf.app.backup.concurrently import concurrently
from ipf.app.backup.databases import APPLICATION, opened
from ipf.app.backup.manifest import KINDS, Manifest
from ipf.app.runtime.databases import DatabaseUrls
from ipf.config.settings import Settings
from ipf.errors import Category, Problem
from ipf.store.backup import target
from ipf.store.backup.programs import programs_for, restore
from ipf.store.postgres.adoption import LAST
from ipf.store.postgres.connection import Connection
from ipf.store.postgres.migrate import migrations
from ipf.store.postgres.probe import watched_connection

_SCRATCH = ".ipf-verify-"
_LONGEST_SECONDS = 86_400.0


async def restore_backup(settings: Settings, folder: Path, reactor: Any, *, replace: bool) -> tuple[Manifest, Checked]:
    """Restore into the databases of the settings.  `replace`: what is in them is removed first.

    Problem says what is wrong and in which state the databases are.
    """
    manifest = _readable(folder)
    async with opened(settings, reactor, alone=True) as urls:
        checked = await _load_marked(folder, manifest, urls, reactor, replace=replace)
    return manifest, checked


async def verify_backup(
    folder: Path, reactor: Any, scratch: Path | None, trusted: Mapping[str, str] | None
) -> tuple[Manifest, Checked]:
    """Load a backup into a server of its own and check it.  `scratch`: where that has its files."""
    manifest = _readable(folder)
    async with _scratch_server(scratch or folder.parent, reactor) as urls:
        await _load(folder, manifest, urls, reactor)
        return manifest, await check_databases(manifest, urls, reactor, trusted)


def _readable(folder: Path) -> Manifest:
    """The manifest of an undamaged backup that this release can use."""
    manifest = manifests.read(folder)
    for kind in KINDS:
        known, has = migrations(kind)[-1].number, manifest.databases[kind].schema
        text = f"the backup is of ipf {manifest.ipf}: its {kind} database has schema {has}"
        if has < LAST[kind][0]:
            raise Problem(Category.VALUE, f"{text}: restore it with ipf 0.1, start that once, and back up again")
        if has > known:
            text = f"{text}, this is ipf {ipf.__version__}, which knows {known}"
            raise Problem(Category.VALUE, f"{text}: restore with ipf {manifest.ipf} or later")
    manifests.check_files(folder, manifest)
    return manifest


async def _load_marked(folder: Path, manifest: Manifest, urls: DatabaseUrls, reactor: Any, *, replace: bool) -> Checked:
    options = {"reactor": reactor, "statement_seconds": _LONGEST_SECONDS}
    async with watched_connection(urls.inbox, **options) as inbox, watched_connection(urls.fhir, **options) as fhir:
        connections = dict(zip(KINDS, (inbox, fhir), strict=True))
        await _check_targets(manifest, connections, replace=replace)
        for connection in connections.values():
            await target.mark(connection, str(folder))
        try:
            if replace:
                for connection in connections.values():
                    await target.wipe(connection)
            await _load(folder, manifest, urls, reactor)
        except BaseException as failed:
            await _undo(failed, connections)
            raise
        checked = await check_databases(manifest, urls, reactor)
        if not checked.findings:
            for connection in connections.values():
                await target.unmark(connection)
        return checked


async def _check_targets(manifest: Manifest, connections: Mapping[str, Connection], *, replace: bool) -> None:
    """Problem CONFLICT when a database is in use, not empty, or of an older PostgreSQL."""
    for kind, connection in connections.items():
        found = await target.about(connection, APPLICATION)
        name = f"the {kind} database ({found.name})"
        needed = manifest.databases[kind].server_major
        if found.server_major < needed:
            text = f"{name} is on PostgreSQL {found.server_major}, the backup is of PostgreSQL {needed}"
            raise Problem(Category.CONFLICT, f"{text}: restore on {needed} or later")
        if found.sessions:
            text = f"{found.sessions} sessions use {name}: stop every service on it first (pg_stat_activity)"
            raise Problem(Category.CONFLICT, text)
        if found.relations and not replace:
            text = f"{name} is not empty: restore into new databases, or remove what is in both with --replace"
            raise Problem(Category.CONFLICT, text)


async def _load(folder: Path, manifest: Manifest, urls: DatabaseUrls, reactor: Any) -> None:
    urls_of = zip(KINDS, (urls.inbox, urls.fhir), strict=True)
    await concurrently(*(_load_one(folder, manifest, kind, url, reactor) for kind, url in urls_of))


async def _load_one(folder: Path, manifest: Manifest, kind: str, url: str, reactor: Any) -> None:
    dumped = manifest.databases[kind]
    programs = await programs_for(dumped.dump_major, reactor)
    async with watched_connection(url, reactor=reactor, statement_seconds=60) as connection:
        dsn = connection.host.dsn  # the server that can write
    await restore(programs, dsn, folder / dumped.file, max(1, (os.cpu_count() or 2) // 2), reactor)


async def _undo(failed: BaseException, connections: Mapping[str, Connection]) -> None:
    """Empty both databases.  Problem: `failed`, and the state of the databases."""
    try:
        for connection in connections.values():
            await target.wipe(connection)
        for connection in connections.values():
            await target.unmark(connection)
        state = "both databases are empty again: mend the cause and repeat the restore"
    except Problem as problem:
        state = f"the databases hold a part of the backup ({problem}), no service starts on them: repeat with --replace"
    if isinstance(failed, Problem):
        raise Problem(failed.category, f"{failed.text}; {state}") from failed


@asynccontextmanager
async def _scratch_server(parent: Path, reactor: Any) -> AsyncIterator[DatabaseUrls]:
    """An embedded PostgreSQL below `parent`, removed at the end."""
    from ipf.store.postgres.embedded import EmbeddedPostgres

    await _sweep(parent, reactor)
    try:
        folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=parent))
    except OSError as error:
        raise Problem(Category.VALUE, f"{parent}: {error.strerror}: name another folder with --scratch") from error
    quick = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "autovacuum": "off"}
    postgres = EmbeddedPostgres(folder, reactor, extra=quick)
    try:
        await postgres.start()
        try:
            yield DatabaseUrls(postgres.url("ipf"), postgres.url("fhir"))
        finally:
            await postgres.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _sweep(parent: Path, reactor: Any) -> None:
    """Stop and remove the servers of verifications that were killed: nobody holds their lock."""
    from ipf.store.postgres.embedded import EmbeddedPostgres

    for lock in parent.glob(f"{_SCRATCH}*/lock"):  # noqa: ASYNC240  a command has nothing else to do meanwhile
        left = EmbeddedPostgres(lock.parent, reactor)
        try:
            await left.start()
            await left.stop()
        except Problem:
            continue  # it is in use
        shutil.rmtree(lock.parent, ignore_errors=True)
