"""The limits that labels and Consents set to a caller, as a test of the resources that it may see.

Labels and Consents limit what a caller sees, changes and deletes, not what it creates: it may send what it may not read
afterwards.  The server itself is not limited, nor is anybody while authentication is off.  A Patient's own token (its
`fhirUser` is the Patient) sees all of the own compartment whatever Consents say, and a token with a scope that names
`Consent` sees Consents: otherwise nobody could withdraw one.  Break-glass lifts labels and Consents, not scopes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ipf.ports import DEFAULT_TENANT, Caller, Json
from ipf.ports.queries.predicates import NOTHING, AllOf, Test
from ipf.security.privacy.conditions import Condition, Patients, both, either, negated, of_patients, selected
from ipf.security.privacy.labels import LabelRules
from ipf.security.privacy.register import ConsentRegister, Group

BREAK_GLASS = "btg"
"""The scope that allows break-glass.  Source: HEART profile of OAuth 2.0 for FHIR, "Break the glass"."""

_OWN = "Patient/"


@dataclass(frozen=True, slots=True)
class Privacy:
    """`labels`, `consents`: None = off.  `has_tenants`: whether callers belong to the tenant that their token names.

    `trusted_clients`: not limited, such as a feed, which must find every patient, and a backup.
    """

    labels: LabelRules | None = None
    consents: ConsentRegister | None = None
    has_tenants: bool = False
    trusted_clients: frozenset[str] = frozenset()

    async def refresh(self) -> None:
        """Apply all committed changes of Consents.  StoreUnreachable."""
        if self.consents is not None:
            await self.consents.refresh()

    def stamp(self) -> int:
        """A number that changes when `limit` may."""
        return 0 if self.consents is None else self.consents.stamp()

    def tenant_of(self, caller: Caller) -> str:
        """The tenant whose Consents count for a caller."""
        return (caller.tenant or DEFAULT_TENANT) if self.has_tenants else DEFAULT_TENANT

    def concerns(self, caller: Caller, right: str) -> bool:
        """Whether there may be a limit for this caller and right."""
        return not (caller.is_unlimited or caller.break_glass or right == "c" or caller.client in self.trusted_clients)

    def limit(self, caller: Caller, resource_type: str, right: str) -> Test | None:
        """The test that a resource of this type passes when the caller may see it; None = any does."""
        tests = []
        if self.labels is not None and (test := self.labels.limit(caller, resource_type)) is not None:
            tests.append(test)
        if self.consents is not None:
            visible = self._by_consents(self.consents, caller, resource_type, right)
            if visible is not True:
                tests.append(NOTHING if visible is False else visible)
        return None if not tests else tests[0] if len(tests) == 1 else AllOf(tuple(tests))

    def _by_consents(self, consents: ConsentRegister, caller: Caller, resource_type: str, right: str) -> Condition:
        if resource_type == "Consent" and _names_consents(caller.scopes):
            return True
        groups = consents.in_force(self.tenant_of(caller)).groups(caller, right)
        if not (caller.user or "").startswith(_OWN):
            return negated(either(_denied(group, resource_type) for group in groups))
        patient = (caller.user or "").removeprefix(_OWN)
        if resource_type == "Binary":  # a context that is no Patient may be another's
            groups = ((what, exceptions, whom.without(patient)) for what, exceptions, whom in groups)
            return negated(either(_denied(group, resource_type) for group in groups))
        denied = either(_denied(group, resource_type) for group in groups)
        return denied is False or either((negated(denied), of_patients(resource_type, Patients([patient]))))

    async def check(self) -> Json:
        """The health check."""
        return {} if self.consents is None else await self.consents.check()


def _denied(group: Group, resource_type: str) -> Condition:
    selection, exceptions, patients = group
    denied = selected(selection, resource_type, is_permission=False)
    if denied is False:
        return False
    allowed = either(selected(one, resource_type, is_permission=True) for one in exceptions)
    return both((of_patients(resource_type, patients), denied, negated(allowed)))


def _names_consents(scopes: Iterable[str]) -> bool:
    """Whether a scope is for Consents by name."""
    return any(scope.partition("/")[2].startswith("Consent.") for scope in scopes)
