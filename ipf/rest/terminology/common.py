"""What the operations of terminology share: definitions, the resource of a call, the codes that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.codesystem import CodeSystem
from ipf.ports import Json, Request
from ipf.ports.fhir.terminology import ImportedSystem
from ipf.ports.threads import run_by_size
from ipf.rest.http.arguments import Arguments
from ipf.rest.operations.validate import conformance_of
from ipf.rest.write.conformance import Conformance, Definitions
from ipf.rest.write.permission import if_readable
from ipf.rest.write.repository import Repository

TX_RESOURCE = "tx-resource"
"""Resources that a terminology operation uses beside its own.

Source: https://hl7.org/fhir/uv/tx-ecosystem/ecosystem.html
"""
KINDS = ("CodeSystem", "ValueSet", "ConceptMap")


async def definitions(request: Request, repository: Repository, *kinds: str) -> Definitions:
    """The definitions of the tenant.  Problem NOT_FOUND for an operation that this type of resource has not."""
    if request.path[0] not in kinds:
        operation = request.path[-1]
        text = f"{operation} is defined for {' and '.join(kinds)}, not for {request.path[0]}"
        raise Problem(Category.NOT_FOUND, text)
    return await conformance_of(repository).current_definitions_of(request.tenant)


async def by_id(request: Request, repository: Repository, kind: str) -> Json | None:
    """The resource of an instance-level call; None for a type-level call."""
    if len(request.path) != 3:
        return None
    version = await repository.store.read(request.tenant, kind, request.path[1])
    if version is None:
        version = conformance_of(repository).read(kind, request.path[1])
    version = if_readable(version, request.caller)
    if version is None or version.deleted:
        raise Problem(Category.NOT_FOUND, f"{kind}/{request.path[1]} does not exist")
    found: Json = await run_by_size(len(version.body), repository.run_in_thread, partial(loads, version.body))
    return found


def codings_of(arguments: Arguments, system: str | None = None) -> list[Json]:
    """The codes of a request: `codeableConcept`, `coding`, or `code` with `system`.  Problem REQUIRED without one."""
    concept, coding = arguments.structure("codeableConcept", "CodeableConcept"), arguments.structure("coding", "Coding")
    if concept is not None:
        found = [one for one in concept.get("coding", ()) if isinstance(one, dict)]
    elif coding is not None:
        found = [coding]
    else:
        given = arguments.text("system") or system
        found = [{"code": arguments.required("code"), **({"system": given} if given else {})}]
    if not found or any(not isinstance(one.get("code"), str) for one in found):
        raise Problem(Category.REQUIRED, "a code is required", "code")
    return found


async def terminology_of(
    known: Definitions, arguments: Arguments, repository: Repository, sent: Sequence[Json] = ()
) -> Terminology:
    """The terminology of a call: with the resources of its `tx-resource` parameters and `sent`, before all others.

    Problem VALUE for one that is no CodeSystem, ValueSet or ConceptMap, or has no url.
    """
    if not sent and not arguments.has(TX_RESOURCE):
        return known.terminology

    def made() -> Terminology:
        resources = [*arguments.resources(TX_RESOURCE, KINDS), *sent]
        for one in resources:
            if not one.get("url"):
                raise Problem(Category.VALUE, f"a {one['resourceType']} of the request needs a url", TX_RESOURCE)
        found = known.terminology.with_resources(resources)
        for one in resources:
            found.system(str(one["url"]))  # built here: it may be large
        return found

    terminology: Terminology = await repository.run_in_thread(made)
    return terminology


def system_and_version(arguments: Arguments, resource: Json | None, coding: Json) -> tuple[str, str | None]:
    """The code system of a call, and its version: of `coding`, the resource of the call, or the parameter `system`.

    `system` may be a canonical, `url|version`.  Problem VALUE when `version` is another one.
    """
    given, version = coding.get("version") or arguments.text("version"), None
    if coding.get("system"):
        url = str(coding["system"])
    elif resource is not None and resource.get("url"):
        url, version = str(resource["url"]), version_of(resource)
    else:
        url, _, version = arguments.required("system").partition("|")
    if given and version and given != version:
        raise Problem(Category.VALUE, f"the code system is of version {version[:100]}, not {given[:100]}", "version")
    return url, given or version or None


def version_of(system: Json | None) -> str | None:
    """The version of a CodeSystem that has its codes; the codes of others are imported in a version of their own."""
    return system.get("version") if system is not None and system.get("concept") else None


def loaded(terminology: Terminology, url: str, version: str | None) -> CodeSystem | ImportedSystem:
    """Where the codes of a system are.  Problem NOT_FOUND when it is not loaded, or not in this version."""
    found = terminology.source(canonical(url, version))
    if found is None or (version and isinstance(found, CodeSystem) and found.version not in ("", version)):
        raise not_loaded(terminology, url, version)
    return found


def canonical(url: str, version: str | None) -> str:
    """`url|version`, or the url alone."""
    return f"{url}|{version}" if version else url


def not_loaded(terminology: Terminology, system: str, version: str | None = None) -> Problem:
    """The code system that a request needs, and the versions of it that are there."""
    versions = sorted(one.version for one in terminology.imported_systems if one.url == system)
    here = terminology.source(system)
    if not versions and here is not None and here.version:
        versions = [here.version]
    known = f"; loaded: version {', '.join(versions)}" if versions else ""
    text = f"the code system {canonical(system, version)[:200]} is not loaded{known[:300]}"
    return Problem(Category.NOT_FOUND, text)


async def recall(conformance: Conformance, terminology: Terminology, codings: list[Json], version: str | None) -> None:
    """Look up the codes in imported systems."""
    pairs = [
        (canonical(one["system"], one.get("version") or version), one["code"]) for one in codings if one.get("system")
    ]
    without = [one["code"] for one in codings if not one.get("system")]
    pairs += [(canonical(each.url, each.version), code) for code in without for each in terminology.imported_systems]
    await conformance.recall(terminology, pairs)
