"""The code systems of `GET [base]/metadata?mode=terminology`: what is imported, in packages and built in.

Code systems that clients of a tenant have stored are not told: the statement needs no token.

Source: https://hl7.org/fhir/R4/terminologycapabilities.html
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.fhir.capability import terminology_capabilities
from ipf.fhir.model.json import dumps
from ipf.fhir.terminology.implicit import SNOMED
from ipf.fhir.terminology.open_systems import OPEN_SYSTEMS
from ipf.ports import Answer, Json, Request
from ipf.ports.fhir.terminology import ImportedSystem
from ipf.rest.terminology.value_sets.expand import PARAMETERS
from ipf.rest.write.repository import Repository

_FILTERS = (("concept", ("is-a", "descendent-of", "is-not-a", "generalizes", "in", "not-in", "regex")),
            ("parent", ("=", "in")), ("child", ("=", "in")), ("inactive", ("=",)))  # fmt: skip
_OF_PROPERTIES = ("=", "in", "not-in", "exists", "regex")


async def terminology_statement(request: Request, repository: Repository) -> Answer:
    """The TerminologyCapabilities."""
    conformance = repository.conformance
    imported: Sequence[ImportedSystem] = ()
    if conformance is not None and conformance.systems is not None:
        imported = await conformance.systems.imported()
    loaded = {one.url for one in imported}
    others = set(OPEN_SYSTEMS) if conformance is None else {*OPEN_SYSTEMS, *conformance.catalog.urls("CodeSystem")}
    systems = [_imported(url, [one for one in imported if one.url == url]) for url in sorted(loaded)]
    systems += [{"uri": url, "subsumption": url not in OPEN_SYSTEMS} for url in sorted(others - loaded)]
    stated = terminology_capabilities(
        base_url=request.base_url,
        version=repository.software_version,
        systems=systems,
        parameters=[one for one in PARAMETERS if one != "_format"],
    )
    return Answer(200, dumps(stated))


def _imported(url: str, versions: Sequence[ImportedSystem]) -> Json:
    return {"uri": url, "version": [_version(one) for one in versions], "subsumption": True}


def _version(one: ImportedSystem) -> Json:
    filters = [{"code": name, "op": list(ops)} for name, ops in _FILTERS]
    filters += [{"code": name, "op": list(_OF_PROPERTIES)} for name in sorted(one.properties)]
    if one.url == SNOMED:
        filters.append({"code": "constraint", "op": ["="]})
    return {
        **({"code": one.version} if one.version else {}),
        "isDefault": one.is_current,
        "compositional": False,
        **({"language": list(one.languages)} if one.languages else {}),
        "filter": filters,
        "property": ["parent", "child", "inactive", *sorted(one.properties)],
    }
