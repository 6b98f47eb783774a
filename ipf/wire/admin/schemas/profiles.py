"""JSON Schemas of `/admin/api/profiles`, for the OpenAPI document of the operator API."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_OR_NULL: Schema = {"type": ["string", "null"]}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_TEXTS: Schema = {"type": "array", "items": _TEXT}


def schemas() -> Schema:
    """All of them by name."""
    vendor = _object(name=_TEXT, productLine=_OR_NULL, productVersion=_OR_NULL, fhirVersions=_TEXTS, hl7Versions=_TEXTS)
    problem = _object(
        path=_TEXT, pointer=_TEXT, message=_TEXT, severity={"enum": ["error", "warning", "information"]},
        line={"type": ["integer", "null"]},
    )  # fmt: skip
    mapping = _object(messageType=_OR_NULL, sourceType=_OR_NULL, map=_TEXT, url=_OR_NULL, tests=_TEXTS)
    case = _object(path=_TEXT, messageType=_OR_NULL, sourceType=_OR_NULL, passed={"type": "boolean"}, message=_OR_NULL)
    served = _object(id=_TEXT, type=_TEXT, served={"type": "boolean"}, reason=_OR_NULL)
    ingest = _object(
        id=_TEXT, port={"type": ["integer", "null"]}, facilityResolver=_TEXT, facilities=_TEXTS, tenant=_TEXT
    )
    profile = _object(id=_TEXT, version=_TEXT, vendor=vendor)
    loaded = _object(
        file=_TEXT, profile=profile, mappings=_list(mapping), ingest=_list(ingest), quirks={"type": "object"},
        problems=_list(problem), previous={"type": "boolean"},
    )  # fmt: skip
    skipped = _object(file=_TEXT, kept=_OR_NULL, problems=_list(problem))
    return {
        "ProfileCheck": _object(
            valid={"type": "boolean"},
            profile={"oneOf": [profile, {"type": "null"}]},
            ingest=_list(served),
            mappings=_list(mapping),
            tests=_object(passed=_COUNT, failed=_COUNT, cases=_list(case)),
            problems=_list(problem),
        ),
        "Profiles": _object(loaded=_list(loaded), skipped=_list(skipped)),
    }


def _object(**members: Schema) -> Schema:
    return {"type": "object", "properties": members, "required": list(members)}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}
