"""Mapping of a row of a polled source: a map of the source's profile, or as it is; then it is normalized.

What arrives: a stored row whose payload is JSON.  What leaves: its transaction.  The same row gives the same one.

Problem UNMAPPED: the profile of the source is not loaded, or has no map for the records of a REST API.  MALFORMED: the
payload is no JSON object.  MAPPING names map and rule, or entry.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.mapping.bundle.transaction import Rules, finished
from ipf.mapping.language.concepts import Overrides
from ipf.mapping.library.maps import Library, MappingResult, ProfiledMessage, message_key
from ipf.mapping.normalization.result import NORMALIZATION, normalize
from ipf.mapping.runtime.run import Run
from ipf.ports import Claimed, Json, Mapped
from ipf.ports.messages.sources import FHIR_REST

_NOTHING: frozenset[str] = frozenset()


def transform(
    general: Library, profiled: ProfiledMessage | None, claimed: Claimed, overrides: Overrides | None
) -> Mapped:
    """The transaction of a row, as `Library.transform`."""
    result = explain(general, profiled, claimed, overrides)
    library = None if profiled is None else profiled.library
    unmapped = (library or general).unmapped_codes(result.unmapped)
    origin = None if profiled is None else profiled.origin
    made = result.made
    return Mapped(
        made.bundle, result.map_url, unmapped, made.references, origin, made.entries, map_version=result.map_version
    )


def explain(
    general: Library,
    profiled: ProfiledMessage | None,
    claimed: Claimed,
    overrides: Overrides | None,
    *,
    trace: bool = False,
) -> MappingResult:
    """The same with warnings, logs and, on request, a trace."""
    if profiled is None or profiled.source is None:
        raise Problem(Category.UNMAPPED, f"the vendor profile of the source {claimed.listener} is not loaded")
    began, source, library = perf_counter(), profiled.source, profiled.library
    content = _content(claimed)
    key = message_key(claimed.tenant, claimed.source_system, claimed.source_id)
    moves, map_url, version = _NOTHING, NORMALIZATION, ""
    if library is not None:
        program = library.program_for(claimed.message_type)
        size = len(claimed.raw)
        target, run = program.run(content, key, trace=trace, overrides=overrides, characters=size)
        bundle, moves = _as_bundle(target), program.moves
        map_url, version = program.content.url, program.version
        _keep_id(bundle, content)
    elif source.protocol == FHIR_REST:
        run, bundle = Run(key, content, is_bundle=True), _as_bundle(content)
    else:
        text = f"the vendor profile {source.profile} has no map for {claimed.message_type}"
        raise Problem(Category.UNMAPPED, text)
    notes = normalize(bundle, run, source, claimed.source_id, claimed.received_at)
    made = finished(bundle, run, Rules(general.environment.identity, moves))
    if run.trace is not None:
        run.trace.finish(made.bundle(), made.merged)
    steps = None if run.steps is None else tuple(run.steps)
    return MappingResult(
        made, map_url, tuple(run.unmapped), tuple(run.warnings), (*run.logs, *notes), steps,
        (perf_counter() - began) * 1000, map_version=version,
    )  # fmt: skip


def _content(claimed: Claimed) -> Json:
    content: Any = loads(claimed.raw)
    if not isinstance(content, dict):
        raise Problem(Category.MALFORMED, "the payload is no JSON object")
    return content


def _as_bundle(target: Json) -> Json:
    if target.get("resourceType") == "Bundle" and target.get("type", "transaction") == "transaction":
        target.setdefault("type", "transaction")
        return target
    return {"resourceType": "Bundle", "type": "transaction", "entry": [{"resource": target}]}


def _keep_id(bundle: Json, content: Json) -> None:
    """What a map makes of a FHIR resource is the same resource: references of others find it by its id."""
    for entry in bundle.get("entry", ()):
        resource = entry.get("resource")
        if isinstance(resource, dict) and resource.get("resourceType") == content.get("resourceType"):
            if "id" in content:
                resource.setdefault("id", content["id"])
            return
