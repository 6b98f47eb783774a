"""`python -m ipf.app.terminology import|list|remove`: what `ipfctl terminology` runs on this host.

The imports work on the FHIR database of the settings, while the service runs.  A system that another import or a crash
left unfinished is removed by the next import.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from ipf.app.backup.databases import opened
from ipf.app.backup.running import exit_with
from ipf.app.doctor import environment_file
from ipf.config.environment import read as read_settings
from ipf.fhir.releases import READERS, read
from ipf.store.postgres.migrate import migrate
from ipf.store.terminology.loading import Loader, connected

_EVERY_SECONDS = 1.0


class _Report:
    """Prints progress on standard error, at most once a second for each step."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._last = 0.0
        self._step = ""

    def __call__(self, step: str, done: int) -> None:
        now = time.monotonic()
        if step != self._step or now - self._last >= _EVERY_SECONDS:
            self._step, self._last = step, now
            print(f"{now - self._began:7.1f} s  {step}: {done}", file=sys.stderr, flush=True)


def main() -> None:
    """Entry point."""
    given = _arguments().parse_args()
    environ = dict(os.environ) | (dict(environment_file(given.env_file)) if given.env_file else {})
    exit_with(lambda: _run(environ, given))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ipfctl terminology")
    parser.add_argument("--env-file", type=Path)
    commands = parser.add_subparsers(dest="command", required=True)
    importing = commands.add_parser("import")
    importing.add_argument("kind", choices=tuple(READERS))
    importing.add_argument("path", type=Path)
    importing.add_argument("--version", default="")
    commands.add_parser("list")
    removing = commands.add_parser("remove")
    removing.add_argument("url")
    removing.add_argument("version", nargs="?", default="")
    return parser


async def _run(environ: dict[str, str], given: argparse.Namespace) -> bool:
    settings, _ = read_settings(environ)
    async with opened(settings, reactor) as urls:
        await migrate(urls.fhir, "fhir", reactor=reactor)
        done: bool = await deferToThread(_work, urls.fhir, given)
        return done


def _work(url: str, given: argparse.Namespace) -> bool:
    with connected(url) as loader:
        if given.command == "import":
            return import_release(loader, given.kind, given.path, given.version)
        if given.command == "list":
            for system, version, name, concepts, is_current, at in loader.listed():
                current = " (current)" if is_current else ""
                print(f"{system} {version or '-'}{current}: {name}, {concepts} concepts, {at:%Y-%m-%d %H:%M} UTC")
            return True
        found = loader.remove(given.url, given.version)
        print(f"{'removed' if found else 'there is no'} {given.url} {given.version}".rstrip())
        return found


def import_release(loader: Loader, kind: str, path: Path, version: str) -> bool:
    """Import every code system of a release."""
    report = _Report()
    for system in read(kind, path, version, report):
        loader.load(system, report)
        print(f"imported {system.url} {system.version or '-'}: {system.name}, {len(system.concepts)} concepts")
    return True


if __name__ == "__main__":
    main()
