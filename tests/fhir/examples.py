"""The example resources of the R4 specification, read from the reference folder beside the repository."""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path

REFERENCE = Path(__file__).resolve().parents[2].parent / "shared/reference"
ARCHIVE = REFERENCE / "fhir-examples/r4-examples.tar.gz"
ABSENT = None if ARCHIVE.exists() else "the reference folder with the R4 examples is not here"


@cache
def examples() -> dict[str, bytes]:
    """File name to JSON text."""
    with tarfile.open(ARCHIVE) as archive:
        members = [one for one in archive if one.name.endswith(".json")]
        return {
            one.name.rpartition("/")[2]: file.read()
            for one in members
            if (file := archive.extractfile(one)) is not None
        }
