"""The code systems of a FHIR package (`.tgz`): each CodeSystem with `content` complete or fragment.

Source: https://confluence.hl7.org/display/FHIR/NPM+Package+Specification
"""

from __future__ import annotations

from collections.abc import Iterator

from ipf.errors import Category, Problem
from ipf.fhir.model.packages import read_package
from ipf.fhir.releases.files import Files
from ipf.fhir.releases.ndjson import begun
from ipf.ports.fhir.terminology_import import NewSystem, Progress


def read_package_systems(files: Files, version: str, progress: Progress) -> Iterator[NewSystem]:
    """The code systems with codes, in the order of the package."""
    paths = sorted(files.path.glob("*.tgz")) if files.path.is_dir() else [files.path]
    found = False
    for path in paths:
        for entry in read_package(path, ("CodeSystem",)).entries:
            resource = entry.resource()
            if resource.get("content") in ("complete", "fragment") and resource.get("concept"):
                found = True
                try:
                    yield begun(resource, version)
                except Problem as problem:
                    raise Problem(problem.category, f"{entry.place}: {problem.text}") from problem
                progress("code systems read", 1)
    if not found:
        raise Problem(Category.NOT_FOUND, f"{files.path} has no CodeSystem with codes")
