"""The CapabilityStatement and TerminologyCapabilities, generated from the route table and the definitions.

An interaction or operation is listed only when it has a route.

Sources: https://hl7.org/fhir/R4/capabilitystatement.html, https://hl7.org/fhir/R4/terminologycapabilities.html
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any

from ipf.fhir.index.entries import word_codes
from ipf.fhir.index.sources import sources
from ipf.fhir.model.definitions import Definitions
from ipf.fhir.profiles.catalog import supported_profiles
from ipf.ports import Json

Route = tuple[str, str]
"""(shape of the path, method)"""

FHIR_VERSION = "4.0.1"
FORMATS = ("json", "application/fhir+json", "xml", "application/fhir+xml")
PATCH_FORMATS = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/xml-patch+xml",
    "application/fhir+json",
    "application/fhir+xml",
)

_TYPE_INTERACTIONS: dict[Route, str] = {
    ("[type]/[id]", "GET"): "read",
    ("[type]/[id]/_history/[vid]", "GET"): "vread",
    ("[type]/[id]", "PUT"): "update",
    ("[type]/[id]", "PATCH"): "patch",
    ("[type]/[id]", "DELETE"): "delete",
    ("[type]/[id]/_history", "GET"): "history-instance",
    ("[type]/_history", "GET"): "history-type",
    ("[type]", "POST"): "create",
    ("[type]", "GET"): "search-type",
}
_SYSTEM_INTERACTIONS: dict[Route, tuple[str, ...]] = {
    ("", "POST"): ("transaction", "batch"),
    ("_history", "GET"): ("history-system",),
    ("", "GET"): ("search-system",),
}
_CORE = "http://hl7.org/fhir/OperationDefinition/"
_BULK = "http://hl7.org/fhir/uv/bulkdata/OperationDefinition/"
_US_CORE = "http://hl7.org/fhir/us/core"
_GUIDE = "http://hl7.org/fhir/uv/subscriptions-backport"
_BACKPORT = f"{_GUIDE}/OperationDefinition/"
_SERVER = f"{_GUIDE}/CapabilityStatement/backport-subscription-server-r4"
_TOPIC = f"{_GUIDE}/StructureDefinition/capabilitystatement-subscriptiontopic-canonical"
_OPERATIONS: dict[str, dict[str, str]] = {
    "validate": {"*": f"{_CORE}Resource-validate"},
    "everything": {"Patient": f"{_CORE}Patient-everything", "Encounter": f"{_CORE}Encounter-everything"},
    "document": {"Composition": f"{_CORE}Composition-document"},
    "docref": {"DocumentReference": f"{_US_CORE}/OperationDefinition/docref"},
    "lastn": {"Observation": f"{_CORE}Observation-lastn"},
    "graphql": {"": f"{_CORE}Resource-graphql", "*": f"{_CORE}Resource-graphql"},
    "fhirpath": {"": "urn:ipf:OperationDefinition/fhirpath"},
    "meta": {"": f"{_CORE}Resource-meta", "*": f"{_CORE}Resource-meta"},
    "meta-add": {"*": f"{_CORE}Resource-meta-add"},
    "meta-delete": {"*": f"{_CORE}Resource-meta-delete"},
    "diff": {"": "urn:ipf:OperationDefinition/diff", "*": "urn:ipf:OperationDefinition/diff"},
    "expunge": {"": "urn:ipf:OperationDefinition/expunge", "*": "urn:ipf:OperationDefinition/expunge"},
    "match": {"Patient": f"{_CORE}Patient-match"},
    "merge": {"Patient": f"{_CORE}Patient-merge"},
    "unmerge": {"Patient": "urn:ipf:OperationDefinition/Patient-unmerge"},
    "export": {"": f"{_BULK}export", "Patient": f"{_BULK}patient-export", "Group": f"{_BULK}group-export"},
    "import": {"": "urn:ipf:OperationDefinition/import"},
    "expand": {"ValueSet": f"{_CORE}ValueSet-expand"},
    "validate-code": {"ValueSet": f"{_CORE}ValueSet-validate-code", "CodeSystem": f"{_CORE}CodeSystem-validate-code"},
    "lookup": {"CodeSystem": f"{_CORE}CodeSystem-lookup"},
    "subsumes": {"CodeSystem": f"{_CORE}CodeSystem-subsumes"},
    "find-matches": {"CodeSystem": f"{_CORE}CodeSystem-find-matches"},
    "closure": {"": f"{_CORE}ConceptMap-closure"},
    "translate": {"ConceptMap": f"{_CORE}ConceptMap-translate"},
    "transform": {"StructureMap": f"{_CORE}StructureMap-transform"},
    "status": {"Subscription": f"{_BACKPORT}backport-subscription-status"},
    "resend": {"Subscription": f"{_BACKPORT}backport-subscription-resend"},
    "events": {"Subscription": f"{_BACKPORT}backport-subscription-events"},
    "get-ws-binding-token": {"Subscription": f"{_BACKPORT}backport-subscription-get-ws-binding-token"},
}
"""Operations by name: the types that have them (`*` all, empty the system) and their definitions."""

_COLUMNS = ("_id", "_lastUpdated")
_SEARCHES = """\
Modifiers: `:missing` on all; string `:exact` `:contains`; token `:not` `:in` `:not-in` `:above` `:below` `:text` and, \
of identifiers, `:of-type`; reference `:identifier` `:[type]` `:above` `:below` `:text`; uri `:above` `:below`; \
includes `:iterate`. Prefixes of dates, numbers and quantities: `eq` `ne` `gt` `lt` `ge` `le` `sa` `eb` `ap`. Chains \
of eight links, `_has`, `_list` with an id, `_text`, `_content`, `_filter`, `_sort`, `_count`, `_total`, `_summary`, \
`_elements`, `_type`. Not served: `_query`, `_list=$...`, `_contained`, and in \
histories `_list`. A parameter that is not known or not served is left out of a search and named in an \
OperationOutcome entry (`Prefer: handling=lenient`), or refused with 400 (`handling=strict`); without that preference a\
 setting decides. Conditional interactions and criteria of Subscriptions always refuse it, and every search refuses \
modifiers and values that it cannot read.

A create, update, patch or transaction with the header `X-Provenance` stores this Provenance with what it writes as \
its target."""
_WORDS = "Finds the beginning of each word of a value, regardless of case and accents."
_DATE = "2026-11-29"  # of this form of the statement; it changes when the statement does


def capability_statement(
    definitions: Definitions,
    routes: Collection[Route],
    *,
    base_url: str,
    version: str,
    is_secured: bool = False,
    topics: Collection[str] = (),
    deletes_many: bool = False,
) -> Json:
    """The statement of the server at `base_url`, software version `version`, that has these routes and topics."""
    operations = {shape.rpartition("$")[2] for shape, _ in routes if "$" in shape}
    rest: Json = {
        "mode": "server",
        "security": _security(is_secured),
        "resource": [_resource(definitions, name, routes, operations) for name in _stated(definitions)],
        "interaction": [
            {"code": code} for route, codes in _SYSTEM_INTERACTIONS.items() if route in routes for code in codes
        ],
    }
    for stated in rest["resource"]:
        if deletes_many and stated["conditionalDelete"] == "single":
            stated["conditionalDelete"] = "multiple"
        if stated["type"] == "Subscription" and topics:
            stated["extension"] = [{"url": _TOPIC, "valueCanonical": topic} for topic in topics]
    operation = list(_operations("", operations))
    if ("[type]", "GET") in routes:
        rest = {"mode": rest.pop("mode"), "documentation": _SEARCHES, **rest}
    return {
        **_head("CapabilityStatement", base_url, version),
        "instantiates": [_SERVER, f"{_US_CORE}/CapabilityStatement/us-core-server"],
        "implementationGuide": [f"{_US_CORE}/ImplementationGuide/hl7.fhir.us.core|7.0.0"],
        "fhirVersion": FHIR_VERSION,
        "format": list(FORMATS),
        "patchFormat": list(PATCH_FORMATS),
        "rest": [{**rest, "operation": operation} if operation else rest],
    }


def _stated(definitions: Definitions) -> list[str]:
    """R4's own types: the statement's type codes are bound to them."""
    return sorted(definitions.resource_types - definitions.later_types)


def terminology_capabilities(
    *, base_url: str, version: str, systems: Sequence[Json] = (), parameters: Sequence[str] = ()
) -> Json:
    """The TerminologyCapabilities of `metadata?mode=terminology`.

    `systems`: the elements `codeSystem` of what is loaded; `parameters`: those of $expand.
    """
    return {
        **_head("TerminologyCapabilities", base_url, version),
        "lockedDate": False,
        **({"codeSystem": list(systems)} if systems else {}),
        "expansion": {
            "hierarchical": True,
            "paging": True,
            "incomplete": False,
            "parameter": [{"name": name} for name in parameters],
            "textFilter": "the beginnings of words of displays and designations, in any order and case",
        },
        "codeSearch": "explicit",
        "validateCode": {"translations": True},
        "translation": {"needsMap": True},
        "closure": {"translation": False},
    }


def _head(resource_type: str, base_url: str, version: str) -> Json:
    return {
        "resourceType": resource_type,
        "status": "active",
        "date": _DATE,
        "kind": "instance",
        "software": {"name": "ipf", "version": version},
        "implementation": {"description": "ipf FHIR R4 server", "url": base_url},
    }


def _security(is_secured: bool) -> Json:
    if not is_secured:
        return {"description": "Requests are not authenticated."}
    system = "http://terminology.hl7.org/CodeSystem/restful-security-service"
    smart = {"system": system, "code": "SMART-on-FHIR"}
    return {"service": [{"coding": [smart]}], "description": "OAuth 2 bearer tokens with SMART scopes."}


def _operations(resource_type: str, names: Collection[str]) -> Iterator[Json]:
    for name in sorted(names):
        known = _OPERATIONS.get(name, {})
        definition = known.get(resource_type) or (known.get("*") if resource_type else None)
        if definition is not None:
            yield {"name": name, "definition": definition}


def _resource(
    definitions: Definitions, resource_type: str, routes: Collection[Route], operations: Collection[str]
) -> Json:
    stated: dict[str, Any] = {
        "type": resource_type,
        "supportedProfile": supported_profiles().get(resource_type),
        "interaction": [{"code": code} for route, code in _TYPE_INTERACTIONS.items() if route in routes],
        "versioning": "versioned-update",
        "readHistory": True,
        "updateCreate": True,
        "conditionalCreate": True,
        "conditionalRead": "full-support",
        "conditionalUpdate": True,
        "conditionalDelete": "single",
        "referencePolicy": ["literal", "logical"],
        "searchParam": _search_parameters(definitions, resource_type),
    }
    if resource_type == "AuditEvent":  # never changed, never deleted
        codes = [one for one in stated["interaction"] if one["code"] not in ("update", "patch", "delete")]
        stated |= {"interaction": codes, "versioning": "versioned", "updateCreate": False, "conditionalUpdate": False}
        stated["conditionalDelete"] = "not-supported"
    for name, found in (("searchInclude", _includes(definitions, resource_type)),
                        ("searchRevInclude", _referring(definitions).get(resource_type)),
                        ("operation", list(_operations(resource_type, operations)))):  # fmt: skip
        if found:
            stated[name] = found
    if stated["supportedProfile"] is None:
        del stated["supportedProfile"]
    return stated


def _search_parameters(definitions: Definitions, resource_type: str) -> list[Json]:
    known = sources(resource_type)
    return [
        {"name": parameter.code, "definition": parameter.url, "type": parameter.type}
        | ({"documentation": _WORDS} if parameter.type == "string" and any(map(word_codes, known[code].codes)) else {})
        for code, parameter in definitions.search_parameters(resource_type).items()
        if code in (*_COLUMNS, "near") or code in known
    ]


@lru_cache(maxsize=1)
def _referring_to(definitions: Definitions, generation: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in sorted(definitions.resource_types):
        parameters = definitions.search_parameters(name)
        for code in sources(name):
            for target in parameters[code].targets if parameters[code].type == "reference" else ():
                found.setdefault(target, []).append(f"{name}:{code}")
    return found


def _referring(definitions: Definitions) -> dict[str, list[str]]:
    """Type -> the parameters of others that may refer to it."""
    return _referring_to(definitions, definitions.generation)


def _includes(definitions: Definitions, resource_type: str) -> list[str]:
    parameters = definitions.search_parameters(resource_type)
    references = [code for code in sources(resource_type) if parameters[code].type == "reference"]
    return ["*", *(f"{resource_type}:{code}" for code in references)] if references else []
