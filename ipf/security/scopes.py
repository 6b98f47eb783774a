"""The rights that SMART scopes grant.

`system/Observation.rs?category=...` (v2), `user/Patient.read` (v1): a context, a type or `*`, rights out of `cruds`,
and with v2 a search that limits them.  For a type and a right, `Grants` gives nothing, everything, or a test on the
index entries of the resource.  The same test limits searches and decides on single resources.

- `system/` and `user/` reach the whole tenant.  `patient/`, and `user/` with a `fhirUser` that is a Patient or a
  RelatedPerson, reach the compartment of the patient in context, and read types without patient data (`SHARED`).
  Without a patient in context they grant nothing.
- A scope that cannot be parsed, or with a search that needs other resources, grants nothing.

Sources: https://hl7.org/fhir/smart-app-launch/scopes-and-launch-context.html (2.2), and 1.0
(`.read`, `.write`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from urllib.parse import parse_qsl

from ipf.errors import Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.search.language.query import parse_query
from ipf.fhir.search.parameters.compartments import membership
from ipf.fhir.search.predicate import by_beginnings, parameters_that_need_store
from ipf.fhir.search.values.parameter import any_of
from ipf.ports import Caller
from ipf.ports.queries.predicates import AllOf, Test

CREATE, READ, UPDATE, DELETE, SEARCH = "c", "r", "u", "d", "s"
ALL = frozenset("cruds")
_V1 = {"read": frozenset("rs"), "write": frozenset("cud"), "*": ALL}
_FORM = re.compile(
    r"(?P<context>system|user|patient)/(?P<type>\*|[A-Z][A-Za-z]*)\."
    r"(?:(?P<v1>read|write|\*)|(?P<v2>(?=[cruds])c?r?u?d?s?)(?:\?(?P<search>.+))?)",
    re.ASCII,
)
_READING = frozenset("rs")

_OF_ONE_PATIENT = ("Patient/", "RelatedPerson/")  # users who are limited to one patient

SHARED = frozenset(
    ("Practitioner", "PractitionerRole", "Organization", "OrganizationAffiliation", "Location", "HealthcareService",
     "Endpoint", "Medication", "Substance", "InsurancePlan", "Questionnaire", "PlanDefinition", "ActivityDefinition",
     "Library", "Measure", "StructureDefinition", "ValueSet", "CodeSystem", "ConceptMap", "NamingSystem",
     "SearchParameter", "OperationDefinition", "CapabilityStatement", "StructureMap", "SubscriptionTopic")
)  # fmt: skip
"""Types without patient data: a scope for one patient that names them or `*` grants reads of them."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One scope.  `resource_type`: a type of R4 or `*`.  `search`: the search parameters that limit it, as pairs."""

    context: str
    resource_type: str
    rights: frozenset[str]
    search: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=4096)
def parse_scope(text: str) -> Scope | None:
    """The parsed SMART resource scope; None for any other text."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    resource_type, search = found["type"], found["search"]
    if resource_type != "*" and resource_type not in definitions().resource_types:
        return None
    rights = _V1[found["v1"]] if found["v1"] else frozenset(found["v2"])
    if search is None:
        return Scope(found["context"], resource_type, rights)
    try:
        pairs = parse_qsl(search, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=20)
    except ValueError:
        return None
    return Scope(found["context"], resource_type, rights, tuple(pairs))


PermitResult = tuple[int, datetime, str, bool]
"""The result for a version: number, time and id of the version, and whether it passes the test."""


@dataclass(frozen=True, slots=True)
class Permit:
    """Rights on resources of a type: `test` None = on all, else only on those that pass it.

    `results`: the last result of each resource, by rid, cached by `access.allows`.
    """

    test: Test | None = None
    results: dict[int, PermitResult] = field(default_factory=dict, compare=False, repr=False)


UNLIMITED = Permit()


class Grants:
    """The union of a caller's scopes, with a cache of results.

    `finds_all`: everything of the tenant may be read and searched.  `does_all`: and written.  `is_narrow`: some scope
    reaches only a part of a type (one patient, a search), and none reaches everything.  `passed`: permitted reads
    and searches, by route and type, cached by `rest/write/permission`.  The caches are valid for one generation of the
    definitions, since search parameters may change.  `limited`: permits that labels and Consents limit, cached by
    `access.permit`: by type and right, the state of these, the permit of the scopes, and the limited one.
    """

    def __init__(self, caller: Caller) -> None:
        scopes = [scope for text in caller.scopes if (scope := parse_scope(text)) is not None]
        is_patient = (caller.user or "").startswith(_OF_ONE_PATIENT)
        self._scopes = [(scope, scope.context == "patient" or (scope.context == "user" and is_patient))
                        for scope in scopes]  # fmt: skip
        self._patient = caller.patient
        self._known: dict[tuple[str, str], Permit | None] = {}
        self._generation = -1
        self.passed: set[tuple[str, str]] = set()
        self.limited: dict[tuple[str, str], tuple[int, Permit, Permit]] = {}
        whole = [
            scope.rights
            for scope, is_limited in self._scopes
            if scope.resource_type == "*" and not scope.search and not is_limited
        ]
        self.finds_all = any(rights >= _READING for rights in whole)
        self.does_all = ALL in whole
        self.is_narrow = not self.finds_all and any(scope.search or is_limited for scope, is_limited in self._scopes)

    def permit(self, resource_type: str, right: str) -> Permit | None:
        """The permit for a type and a right (one of `cruds`); None = nothing is granted."""
        self.look()
        key = resource_type, right
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) > 2000:
                self._known.clear()
            found = self._known[key] = self._permit(resource_type, right)
            return found

    def look(self) -> None:
        """Clear the caches of older definitions."""
        generation = definitions().generation
        if generation != self._generation:
            self._known.clear()
            self.passed.clear()
            self._generation = generation

    def grants_any(self) -> bool:
        """Whether there is any resource scope."""
        return bool(self._scopes)

    def _permit(self, resource_type: str, right: str) -> Permit | None:
        tests: list[Test] = []
        for scope, is_limited in self._scopes:
            if right not in scope.rights or scope.resource_type not in ("*", resource_type):
                continue
            parts = _limits(resource_type, scope)
            if parts is None:
                continue
            if is_limited and not (resource_type in SHARED and right in _READING):
                within = membership("Patient", self._patient, resource_type) if self._patient else None
                if within is None:
                    continue
                parts.append(within)
            if not parts:
                return UNLIMITED
            tests.append(parts[0] if len(parts) == 1 else AllOf(tuple(parts)))
        return Permit(any_of(tests)) if tests else None


def _limits(resource_type: str, scope: Scope) -> list[Test] | None:
    """The tests of a scope's search; None when it does not apply to this type."""
    if not scope.search:
        return []
    try:
        query = parse_query(resource_type, scope.search)
    except Problem:
        return None
    if len(query.terms) != len(scope.search) or parameters_that_need_store(query):
        return None  # ignoring a limit would grant more than the scope does
    return [by_beginnings(term.test) for term in query.terms]  # a scope grants no more by words of a name


_MOST_KEPT = 4096
_grants: dict[int, tuple[Caller, Grants]] = {}


def grants_of(caller: Caller) -> Grants:
    """The grants of a caller, cached by the identity of the Caller object of a verified token."""
    kept = _grants.get(id(caller))
    if kept is not None and kept[0] is caller:
        return kept[1]
    if len(_grants) >= _MOST_KEPT:
        _grants.clear()
    found = Grants(caller)
    _grants[id(caller)] = caller, found
    return found


def forget_grants() -> None:
    """Begin anew, as after a change of what decides besides scopes."""
    _grants.clear()


def understood(scopes: Iterable[str]) -> Iterator[str]:
    """The scopes that this server understands."""
    return (scope for scope in scopes if parse_scope(scope) is not None)
