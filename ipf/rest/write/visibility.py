"""Which versions a caller may see when labels or Consents limit it.

They are about resources as they are now: an earlier version is seen by those who may see it and the current one.  A
deletion has no content, so that what was deleted decides.  A Binary is seen by those who see its security context.
Without labels and Consents, the content of each version decides alone, and nothing more is read.

Source: https://hl7.org/fhir/R4/binary.html (securityContext)
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import loads
from ipf.fhir.model.reference import parse_reference
from ipf.ports import Caller, FhirStore, Json, Version
from ipf.rest.write.permission import if_readable, visible
from ipf.security.access import allows, finds_all, granted, limits, passes, permit
from ipf.security.scopes import Permit

Key = tuple[str, str]
"""(resource type, id)"""


async def visible_now(
    versions: Sequence[Version], caller: Caller, tenant: str, store: FhirStore, rights: str = "rs"
) -> list[Version]:
    """The versions that the caller may see by one of these rights."""
    if not versions or finds_all(caller):
        return list(versions)
    if not limits(caller):
        return visible(versions, caller)
    keys = list(dict.fromkeys((one.resource_type, one.id) for one in versions))
    current = {(one.resource_type, one.id): one for one in await store.read_many(tenant, keys)}
    seen: dict[Key, bool] = {}
    found = []
    for one in versions:
        key = one.resource_type, one.id
        if key not in seen:
            newest = current.get(key) or await store.read(tenant, *key) or one  # `one` is built in
            seen[key] = await _sees(newest, caller, tenant, store, rights)
        if seen[key] and await _sees(one, caller, tenant, store, rights):
            found.append(one)
    return found


async def readable_now(version: Version | None, caller: Caller, tenant: str, store: FhirStore) -> Version | None:
    """The version if the caller may read it, else None: the response does not reveal its existence."""
    if version is None or not limits(caller):
        return if_readable(version, caller)
    found = await visible_now([version], caller, tenant, store, "r")
    return found[0] if found else None


async def _sees(version: Version, caller: Caller, tenant: str, store: FhirStore, rights: str) -> bool:
    """Whether the caller may see this version, of a deletion what was deleted."""
    for right in rights:
        scopes, found = granted(caller, version.resource_type, right), permit(caller, version.resource_type, right)
        if scopes is None or found is None:
            continue
        if found.test is None:
            return True
        if version.resource_type == "Binary" and await _sees_context(found, version, caller, tenant, store):
            return True
        if not version.deleted:
            if allows(found, version):
                return True
        elif scopes.test is None:
            before = await store.history(tenant, version.resource_type, version.id, 1, version.version_id)
            if before and not before[0].deleted and allows(found, before[0]):
                return True
    return False


async def _sees_context(found: Permit, binary: Version, caller: Caller, tenant: str, store: FhirStore) -> bool:
    """Whether the caller sees the resource that is the security context of a Binary, and its labels allow it too."""
    if binary.deleted:
        return False
    resource: Json = loads(binary.body)
    reference = parse_reference(str((resource.pop("securityContext", None) or {}).get("reference", "")))
    if reference is None or reference.base or reference.resource_type == "Binary":
        return False
    context = await store.read(tenant, reference.resource_type, reference.id)
    if context is None or context.deleted or not await _sees(context, caller, tenant, store, "rs"):
        return False
    return passes(found.test, "Binary", binary.id, binary.last_updated, extract(resource), resource)
