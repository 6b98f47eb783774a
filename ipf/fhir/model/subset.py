"""A resource with some of its elements only: `_summary` and `_elements`.

The result has the tag SUBSETTED.  It keeps `id`, `meta` and the elements that R4 requires.

Source: https://hl7.org/fhir/R4/search.html#summary, #elements
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import orjson

from ipf.config.paths import folder
from ipf.fhir.model.definitions import definitions
from ipf.ports import Json

SUBSETTED = {
    "system": "http://terminology.hl7.org/CodeSystem/v3-ObservationValue",
    "code": "SUBSETTED",
    "display": "Resource encoded in summary mode",
}
_ALWAYS = frozenset({"resourceType", "id", "meta"})


def summary(resource: Json) -> Json:
    """`_summary=true`: the elements that R4 marks as summary, also within backbone elements."""
    return _tagged(_summarised(resource, str(resource["resourceType"])))


def text_only(resource: Json) -> Json:
    """`_summary=text`: narrative, id, meta and what R4 requires."""
    return _tagged(_kept(resource, _ALWAYS | {"text", *_required(str(resource["resourceType"]))}))


def data_only(resource: Json) -> Json:
    """`_summary=data`: all but the narrative."""
    return _tagged({name: value for name, value in resource.items() if name != "text"})


def elements(resource: Json, names: frozenset[str]) -> Json:
    """`_elements`: these top-level elements (a choice by its name with or without its type) and what R4 requires."""
    resource_type = str(resource["resourceType"])
    wanted = names | _chosen(resource_type, names) | _required(resource_type)
    return _tagged(_kept(resource, _ALWAYS | wanted))


def _chosen(resource_type: str, names: frozenset[str]) -> frozenset[str]:
    """JSON names of the choices among `names`: `valueQuantity` for `value`."""
    members = definitions().members(resource_type)
    choices = [members[name] for name in names if name in members and members[name].choice]
    return frozenset(one.json_name(kind) for one in choices for kind in one.types)


def _kept(resource: Json, names: frozenset[str]) -> Json:
    return {name: value for name, value in resource.items() if name.removeprefix("_") in names}


def _tagged(resource: Json) -> Json:
    meta = resource.get("meta") or {}
    return {**resource, "meta": {**meta, "tag": [*meta.get("tag", ()), SUBSETTED]}}


def _summarised(value: Json, path: str) -> Json:
    names = _summary_names(path)
    found: Json = {}
    for name, item in value.items():
        known = names.get(name)
        if known is None:
            if name not in _ALWAYS:
                continue
        elif known:
            item = _each(item, known)
        found[name] = item
    return found


def _each(item: Any, path: str) -> Any:
    if isinstance(item, list):
        return [_each(one, path) for one in item]
    return _summarised(item, path) if isinstance(item, dict) else item


@cache
def _summary_names(path: str) -> Mapping[str, str]:
    """JSON names of the summary elements of a type path; for an inner structure with summary elements its own path."""
    found: dict[str, str] = {}
    for name, one in definitions().members(path).items():
        if not (one.required or name in _marked(one.path.rpartition(".")[0])):
            continue
        inner = one.path if one.types == (one.path,) and (_marked(one.path) or path == "Bundle") else ""
        for kind in one.types:
            found[one.json_name(kind)] = inner
            found["_" + one.json_name(kind)] = ""
    if path.count(".") and found:
        found.update({"id": "", "modifierExtension": ""})
    return found


@cache
def _required(resource_type: str) -> frozenset[str]:
    members = definitions().members(resource_type).values()
    return frozenset(one.json_name(kind) for one in members if one.required for kind in one.types)


@cache
def _marked(path: str) -> frozenset[str]:
    return frozenset(name.removesuffix("[x]") for name in _table().get(path, "").split())


@lru_cache(maxsize=1)
def _table() -> dict[str, str]:
    source: Path = folder("fhir") / "r4"
    table: dict[str, str] = orjson.loads((source / "summary.json").read_bytes())["summary"]
    return table
