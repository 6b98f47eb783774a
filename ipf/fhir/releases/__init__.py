"""Readers of the release formats of code systems: a file, a folder or a ZIP archive in, a NewSystem out.

    read("snomed", Path("SnomedCT_International_20260101.zip"))

A row that cannot be read stops the import: Problem MALFORMED names up to 20 rows by file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ipf.errors import Category, Problem
from ipf.fhir.releases.files import Files
from ipf.fhir.releases.icd10cm import read_icd10cm
from ipf.fhir.releases.loinc import read_loinc
from ipf.fhir.releases.ndjson import read_ndjson
from ipf.fhir.releases.package import read_package_systems
from ipf.fhir.releases.rxnorm import read_rxnorm
from ipf.fhir.releases.snomed import read_snomed
from ipf.ports.fhir.terminology_import import NewSystem, Progress

Reader = Callable[[Files, str, Progress], Iterator[NewSystem]]
"""Files, the version that was asked for (empty: as the files say), progress."""

READERS: Mapping[str, Reader] = {
    "snomed": read_snomed,
    "loinc": read_loinc,
    "rxnorm": read_rxnorm,
    "icd10cm": read_icd10cm,
    "ndjson": read_ndjson,
    "package": read_package_systems,
}
"""By the name of the format."""


def read(kind: str, path: Path, version: str = "", progress: Progress = lambda step, done: None) -> Iterator[NewSystem]:
    """The code systems of a release.  Problem MALFORMED or NOT_FOUND for files that cannot be read."""
    if kind not in READERS:
        raise Problem(Category.VALUE, f"{kind[:40]} is no format; there are {', '.join(READERS)}")
    with Files(path) as files:
        yield from READERS[kind](files, version, progress)
