"""Paths of the installation.

The data folders `maps/` and `fhir/` are next to the package in a checkout, inside it in an installed wheel.
"""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def folder(name: str) -> Path:
    """The folder `maps` or `fhir`; read it only.  FileNotFoundError when the installation is incomplete."""
    for candidate in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"data folder {name!r} is missing: this installation of ipf is incomplete")


def python_path() -> str:
    """PYTHONPATH with which a child process imports this very package, whatever its working directory."""
    return os.pathsep.join(filter(None, [str(_PACKAGE.parent), os.environ.get("PYTHONPATH")]))
