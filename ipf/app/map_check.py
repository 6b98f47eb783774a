"""Reads the maps of an installation; and compiles them all in a process of its own, which then is gone.

`python -m ipf.app.map_check FOLDER` takes the settings from the environment and what was installed over HTTP from
standard
input, compiles everything, and ends with status 0, or 1 and the first mistake on standard output.  The main process
asks so before it accepts a folder: what is compiled is most of the memory of a library, and with converter processes it
runs in these alone, each map from its first message on (`Library`, `compiled` False).  Part of the composition root.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ipf.app.packages import load_packages
from ipf.config.settings import Settings, read
from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.mapping.compiler.conversions import zone_offset
from ipf.mapping.library.maps import PACKAGE_TYPES, Library
from ipf.ports import Installed

_BROKEN = 1


def load_maps(settings: Settings, installed: Sequence[Installed], maps: Path, *, compiled: bool = True) -> Library:
    """Read every map, and compile those of message types unless they are known to compile.  Problem MAPPING names
    file, line and column, MALFORMED a package and its entry."""
    offset, packages = zone_offset(settings.default_zone), load_packages(settings, PACKAGE_TYPES)
    return Library.load(maps, offset=offset, packages=packages, installed=installed, compiled=compiled)


def check_maps(installed: Sequence[Installed], maps: Path) -> None:
    """Compile every map in another process; blocks until that is done (a second or two).

    The Problem of `load_maps`; RuntimeError when the process fails otherwise, with what it said.
    """
    rows = [[one.resource_type, one.id, one.url, one.resource] for one in installed]
    command = [sys.executable, "-m", "ipf.app.map_check", str(maps)]
    environment = os.environ | {"PYTHONPATH": python_path()}
    done = subprocess.run(command, input=dumps(rows), env=environment, capture_output=True, check=False)
    if done.returncode == _BROKEN and done.stdout:
        category, text, place = loads(done.stdout)
        raise Problem(Category[category], text, place)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace")[-2000:]
        raise RuntimeError(f"the process that compiles the maps ended with {done.returncode}: {said}")


def python_path() -> str:
    """PYTHONPATH with which a child finds this very package, wherever it is started."""
    return os.pathsep.join(filter(None, [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")]))


def main() -> None:
    """Entry of the process."""
    gc.disable()  # it ends before there is much to collect
    settings, _ = read(os.environ)
    never = datetime.min.replace(tzinfo=UTC)
    installed = [
        Installed(kind, resource_id, url, 0, never, resource)
        for kind, resource_id, url, resource in loads(sys.stdin.buffer.read())
    ]
    try:
        load_maps(settings, installed, Path(sys.argv[1]))
    except Problem as problem:
        sys.stdout.buffer.write(dumps([problem.category.name, problem.text, problem.place]))
        sys.exit(_BROKEN)


if __name__ == "__main__":
    main()
