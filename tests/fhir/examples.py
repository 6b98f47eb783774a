"""The example resources of the R4 specification, read from the reference folder beside the repository."""

from __future__ import annotations

import tarfile
from functools import cache

from tests.reference import REFERENCE

ARCHIVE = REFERENCE / "fhir-examples/r4-examples.tar.gz"


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
