"""The interfaces between the parts of the profile compiler, and of the compiled checks to the validator.

`compiler.py` implements ProfileCompiler and SnapshotTree; `members.py` and `discriminators.py` use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ipf.fhir.fhirpath import Host
from ipf.fhir.terminology import Terminology
from ipf.fhir.validation.findings import Check, Json, Run
from ipf.fhir.validation.tree import Node


class ResourceValidator(Protocol):
    """The parts of the validator that compiled checks call."""

    def validate_nested(
        self, value: Any, location: str, run: Run, profiles: Sequence[str], checks: Sequence[Check] = ()
    ) -> None:
        """Validate a resource within another resource, with further checks of it."""

    def conforms(self, value: Json, profile: str, run: Run) -> bool | None:
        """Whether a value is valid by a profile, without reporting findings."""

    def host(self, run: Run) -> Host:
        """The functions of the host that FHIRPath expressions may call."""


class ProfileCompiler(Protocol):
    """All compiled types and profiles of one validator."""

    @property
    def terminology(self) -> Terminology:
        """Code systems and value sets."""

    @property
    def validator(self) -> ResourceValidator:
        """The validator that runs the checks."""

    def tree(self, url: str) -> SnapshotTree | None:
        """The snapshot of a type or profile; None when it is not known."""

    def base_type(self, profile: str) -> str | None:
        """The type that a profile constrains; None when it is not known."""

    def extension(self, modifier: bool, hosts: frozenset[str]) -> Check:
        """The check of extensions without a profile."""


class SnapshotTree(Protocol):
    """The snapshot of one type or profile."""

    @property
    def compiler(self) -> ProfileCompiler:
        """The compiler that it belongs to."""

    @property
    def type(self) -> str:
        """The FHIR type."""

    @property
    def root(self) -> Node:
        """The root node."""

    def value(self, node: Node, declared: Json) -> Check:
        """The check of one value of a node that has this type."""
