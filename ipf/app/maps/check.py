"""Loads the maps of an installation, and compiles all of them in a process of its own.

`python -m ipf.app.maps.check FOLDER` reads the settings from the environment and the maps that were installed over HTTP
from standard input.  It compiles every map, writes those that are broken of the installed maps to standard output and
exits with status 0, or writes the first error of the folder there and exits with status 1.  The main process runs it
before it accepts a changed folder of maps, and at start when it has no converter processes: those compile maps that
have not compiled before (`checked.py`) as they start, and report the first error in the same form.  Compiled maps take
most of the memory of a library: with converter processes, only those keep them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ipf.app.maps.checked import CheckedMaps
from ipf.app.maps.packages import load_packages
from ipf.config.environment import read
from ipf.config.paths import python_path
from ipf.config.settings import Settings
from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.mapping.compiler.conversions import zone_offset
from ipf.mapping.language.identity_table import read_table
from ipf.mapping.library.installed_maps import as_rows, from_rows
from ipf.mapping.library.maps import PACKAGE_TYPES, Library
from ipf.ports import InstalledMap

_INVALID = 1
_MARK = b"\nbroken: "


def load_maps(settings: Settings, installed: Sequence[InstalledMap], maps: Path, *, compiled: bool = True) -> Library:
    """Read every map of a folder, and compile the maps of message types unless `compiled` is False.

    Problem MAPPING names file, line and column, or file and row of the identity table; MALFORMED names a package and
    its entry.
    """
    offset, packages = zone_offset(settings.default_zone), load_packages(settings, PACKAGE_TYPES)
    # with a remote mapping service the choice of a map is that of the service
    generic = settings.generic_map and settings.mapping_url is None
    identity = read_table(Path(settings.identity_file)) if settings.identity_file else None
    return Library.load(
        maps,
        offset=offset,
        packages=packages,
        installed=installed,
        compiled=compiled,
        generic=generic,
        identity=identity,
        without_patient=settings.without_patient_types,
    )


def check_maps(installed: Sequence[InstalledMap], maps: Path) -> dict[str, Problem]:
    """Compile every map in a child process; returns `Library.broken`.  Blocks until it ends, one or two seconds.

    Problem as from `load_maps`; RuntimeError with the child's error output when the child fails otherwise.
    """
    rows = [[one.resource_type, one.id, one.url, one.resource] for one in installed]
    command = [sys.executable, "-m", "ipf.app.maps.check", str(maps)]
    environment = os.environ | {"PYTHONPATH": python_path()}
    done = subprocess.run(command, input=dumps(rows), env=environment, capture_output=True, check=False)
    if done.returncode == _INVALID and done.stdout:
        raise decoded(done.stdout)
    _, mark, broken = done.stdout.rpartition(_MARK)
    if done.returncode != 0 or not mark:
        errors = done.stderr.decode(errors="replace")[-2000:]
        raise RuntimeError(f"the process that compiles the maps ended with status {done.returncode}: {errors}")
    return from_rows(loads(broken))


def encoded(problem: Problem) -> bytes:
    """The first error of a child process, in one line."""
    return dumps([problem.category.name, problem.text, problem.place]) + b"\n"


def decoded(line: bytes) -> Problem:
    """The error of a child process, from its line."""
    category, text, place = loads(line)
    return Problem(Category[category], text, place)


def main() -> None:
    """Entry point of the child process."""
    settings, _ = read(os.environ)
    never = datetime.min.replace(tzinfo=UTC)
    installed = [
        InstalledMap(kind, resource_id, url, 0, never, resource)
        for kind, resource_id, url, resource in loads(sys.stdin.buffer.read())
    ]
    try:
        known, folder = CheckedMaps(settings), Path(sys.argv[1])
        known.look_up(installed, folder)
        broken = load_maps(settings, installed, folder).broken
        if not broken:
            known.note()
        sys.stdout.buffer.write(_MARK + dumps(as_rows(broken)))
    except Problem as problem:
        sys.stdout.buffer.write(encoded(problem))
        sys.exit(_INVALID)


if __name__ == "__main__":
    main()
