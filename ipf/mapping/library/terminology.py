"""The value sets and code systems of this process, for FHIRPath in maps (`memberOf`, `subsumes`).

They come from the FHIR packages of the installation and from the shipped tables, and are read when a map first needs
them.  A code that they do not decide gives an empty result, which counts as false.
"""

from __future__ import annotations

from ipf.fhir.fhirpath import Host
from ipf.fhir.fhirpath.evaluation.terms import Terminology, terminology_host
from ipf.fhir.model.packages import Packages
from ipf.ports import Json


def local_host(packages: Packages | None = None) -> Host:
    """Lookups of FHIRPath in maps without a terminology server."""
    return terminology_host(LocalTerminology(packages or Packages()))


class LocalTerminology:
    """`Terminology` that is imported and loaded at its first use: few maps need it, and it takes memory."""

    def __init__(self, packages: Packages) -> None:
        self._packages = packages
        self._made: Terminology | None = None

    def contains(self, value_set: str, system: str | None, code: str) -> bool | None:
        """See `ipf.fhir.terminology.service`."""
        return self._loaded.contains(value_set, system, code)

    def subsumes(self, system: str, above: str, below: str) -> bool | None:
        """See `ipf.fhir.terminology.service`."""
        return self._loaded.subsumes(system, above, below)

    @property
    def _loaded(self) -> Terminology:
        if self._made is None:
            from ipf.fhir.terminology.service import Terminology as Loaded

            self._made = Loaded(self._find)
        return self._made

    def _find(self, resource_type: str, canonical: str) -> Json | None:
        entry = self._packages.find(canonical, resource_type)
        return None if entry is None else entry.resource()


_: type[Terminology] = LocalTerminology
