"""Terminology of searches: `:in`, `:not-in`, `:above` and `:below` on tokens.

Of a large imported system only the codes that resources have are listed: `:below` on the root of SNOMED CT means all of
its codes, and a search the few hundred that occur.
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.errors import Category, Problem
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.valueset import Membership
from ipf.ports.fhir.terminology import Above, Below, ImportedSystem, Rule
from ipf.ports.threads import RunInThread, run_inline
from ipf.rest.terminology.grounding import grounded
from ipf.rest.terminology.value_sets.chosen import enumerable
from ipf.rest.write.conformance import Conformance

MOST_USED = 10_000


class TenantTerminology:
    """`ports.Terminology` for searches, by tenant."""

    def __init__(self, conformance: Conformance, run_in_thread: RunInThread = run_inline) -> None:
        self._conformance = conformance
        self._run_in_thread = run_in_thread

    async def expand(
        self, tenant: str, url: str, resource_type: str, parameters: Sequence[str]
    ) -> frozenset[tuple[str, str]]:
        """(system, code) of the members.  Problem for a value set that is not completely loaded."""
        terminology = (await self._conformance.current_definitions_of(tenant)).terminology

        def expanded() -> tuple[Membership, frozenset[tuple[str, str]]]:
            members = enumerable(terminology.members(url), url)
            return members, frozenset((system, code) for system, code, _ in members.members())

        members, found = await self._run_in_thread(expanded)
        for system, rule in members.rules.items():
            codes = await self._used(tenant, resource_type, parameters, system, rule)
            found |= {(system.url, code) for code in codes}
        return frozenset(found)

    async def related(
        self, tenant: str, system: str, code: str, relation: str, resource_type: str, parameters: Sequence[str]
    ) -> frozenset[str]:
        """The code and those above or below it.  Problem NOT_SUPPORTED when the code system is not loaded."""
        terminology = (await self._conformance.current_definitions_of(tenant)).terminology
        imported = terminology.imported(system)
        if imported is not None:
            rule = Above(code) if relation == "above" else Below(code)
            return await self._used(tenant, resource_type, parameters, imported, rule) | {code}

        def relatives() -> frozenset[str]:
            return _related(terminology, system, code, relation)

        found: frozenset[str] = await self._run_in_thread(relatives)
        return found

    async def _used(
        self, tenant: str, resource_type: str, parameters: Sequence[str], system: ImportedSystem, rule: Rule
    ) -> frozenset[str]:
        systems = self._conformance.systems
        assert systems is not None, "it has this system"
        rule = await grounded(rule, system, systems, self._run_in_thread)
        return await systems.used(tenant, resource_type, parameters, system, rule, MOST_USED + 1)


def _related(terminology: Terminology, system: str, code: str, relation: str) -> frozenset[str]:
    known = terminology.system(system)
    if known is None:
        raise Problem(Category.NOT_SUPPORTED, f"the code system {system[:200]} is not loaded")
    return frozenset((code, *(known.above(code) if relation == "above" else known.below(code))))
