"""`ipfctl backup FOLDER`: both databases at one consistent point, and the files that belong to them.

The folder gets `ipf.dump`, `fhir.dump`, the maps and vendor profiles of the settings, and at the end `manifest.json`.
While pg_dump reads, the manifest's figures are read under the same snapshots.  What fails leaves no file; what is
killed leaves a folder without a manifest.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ipf
from ipf.app.backup import manifest as manifests
from ipf.app.backup.concurrently import concurrently
from ipf.app.backup.databases import opened
from ipf.app.backup.manifest import CopiedFile, DumpedDatabase, Manifest
from ipf.app.maps.installation import maps_folder
from ipf.config.settings import Settings
from ipf.errors import Category, Problem
from ipf.security.audit.chain import public_pem
from ipf.store.backup.content import message_blocks, table_counts
from ipf.store.backup.point import Point, Side, consistent_point
from ipf.store.backup.programs import dump, programs_for
from ipf.vendor_profiles.folder import archives
from ipf.wire.admin.inbox.rejects import shown_settings

_KEYS = "SELECT encode(public_key, 'hex') FROM audit_keys ORDER BY created_at, key_id"


async def back_up(settings: Settings, given: frozenset[str], folder: Path, reactor: Any) -> Manifest:
    """Write a backup into a new folder.  `given`: names of the variables that are set.

    Problem names the folder, program or database that fails; the folder is then as it was.
    """
    made = _prepare(folder)
    try:
        async with opened(settings, reactor) as urls, consistent_point(urls.inbox, urls.fhir, reactor) as point:
            manifest = await _write(settings, given, folder, point, reactor)
        manifests.write(folder, manifest)
    except BaseException as failed:
        _remove(folder, made)
        if isinstance(failed, OSError):
            text = f"the backup cannot be written: {failed.strerror or failed}"
            raise Problem(Category.UNAVAILABLE, text) from failed
        raise
    return manifest


def _prepare(folder: Path) -> bool:
    """Make the folder; whether it is new.  Problem VALUE when something is in it."""
    try:
        if folder.exists() and any(folder.iterdir()):
            raise Problem(Category.VALUE, f"{folder} is not empty: a backup needs a new folder")
        is_new = not folder.exists()
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        return is_new
    except OSError as error:
        raise Problem(Category.VALUE, f"{folder}: {error.strerror}") from error


def _remove(folder: Path, made: bool) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    if made:
        folder.rmdir()


async def _write(settings: Settings, given: frozenset[str], folder: Path, point: Point, reactor: Any) -> Manifest:
    sides = dict(zip(manifests.KINDS, (point.inbox, point.fhir), strict=True))
    files = [_copy(folder, path, source) for path, source in _files(settings)]
    databases, blocks = await concurrently(
        concurrently(*(_dump(folder, kind, side, reactor) for kind, side in sides.items())),
        _counted(point),
    )
    messages, tables = blocks
    keys = [public_pem(key) for (key,) in await point.fhir.connection.run(_KEYS)]
    dumped = {kind: DumpedDatabase(**one, tables=tables[kind]) for kind, one in zip(sides, databases, strict=True)}
    return Manifest(
        ipf.__version__, point.at.isoformat(), round(point.held_ms, 1), dumped, messages, keys, files,
        shown_settings(settings, given), settings.retention_days, settings.fhir_url is not None,
    )  # fmt: skip


async def _dump(folder: Path, kind: str, side: Side, reactor: Any) -> dict[str, Any]:
    programs = await programs_for(side.server_major, reactor)
    name = f"{kind}.dump"
    written = await dump(programs, side.connection.host.dsn, side.snapshot, folder / name, reactor)
    about = {"server": side.server, "server_major": side.server_major, "dump_major": programs.major}
    return {"file": name, **written._asdict(), **about, "schema": side.schema, "lsn": side.lsn}


async def _counted(point: Point) -> tuple[list[Any], dict[str, dict[str, int]]]:
    messages = await message_blocks(point.inbox.connection)
    inbox, fhir = await concurrently(table_counts(point.inbox.connection), table_counts(point.fhir.connection))
    return messages, {"ipf": inbox, "fhir": fhir}


def _files(settings: Settings) -> Iterator[tuple[str, Path]]:
    """What belongs to an installation and holds no secret: its own maps, and the archives of its vendor profiles."""
    if settings.maps_dir:
        maps = maps_folder(settings)
        yield from ((f"maps/{path.relative_to(maps)}", path) for path in sorted(maps.rglob("*")) if path.is_file())
    yield from ((f"profiles/{path.name}", path) for path in archives(Path(settings.profile_dir)))


def _copy(folder: Path, path: str, source: Path) -> CopiedFile:
    target = folder / path
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = source.read_bytes()
    manifests.store(target, content)
    return CopiedFile(path, str(source.absolute()), len(content), manifests.sha256_of(target))
