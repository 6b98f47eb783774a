"""Paths and JSON Schemas of identity conflicts, for the OpenAPI document of the operator API."""

from __future__ import annotations

from ipf.ports.identity import AnswerKind, ConflictKind, ConflictStatus
from ipf.wire.admin.schemas.base import COUNT, TEXT, TIME, Schema, list_of, object_of, or_null, page_of, ref

ANSWERS = [kind.value for kind in AnswerKind]
STATUSES = [status.value for status in ConflictStatus]


def schemas() -> Schema:
    """All of them by name."""
    key = object_of(system=TEXT, type=or_null(TEXT), value=TEXT)
    conflict = {
        "id": COUNT, "status": {"enum": STATUSES}, "kind": {"enum": [kind.value for kind in ConflictKind]},
        "resource_type": TEXT, "place": or_null(TEXT), "keys": list_of(key), "query": or_null(TEXT),
        "candidates": list_of(TEXT), "subject": or_null(TEXT), "what_to_do": TEXT, "message_id": COUNT,
        "conversion_id": or_null(COUNT), "message_status": TEXT, "message_type": TEXT, "source_system": TEXT,
        "source_id": TEXT, "correlation_id": TEXT, "detected_at": TIME, "answer": {"enum": [*ANSWERS, None]},
        "target": or_null(TEXT), "answered_by": or_null(TEXT), "answered_at": or_null(TIME), "tenant": TEXT,
    }  # fmt: skip
    identifier = object_of(system=or_null(TEXT), type=or_null(TEXT), value=or_null(TEXT), use=or_null(TEXT))
    candidate = object_of(
        reference=TEXT, exists={"type": "boolean"}, active={"type": ["boolean", "null"]}, status=or_null(TEXT),
        identifiers=list_of(identifier), names=list_of(TEXT), birth_date=or_null(TEXT), gender=or_null(TEXT),
        subject=or_null(TEXT), replaced_by=or_null(TEXT), last_updated=or_null(TEXT),
    )  # fmt: skip
    stored = object_of(
        id=COUNT, resource_type=TEXT, key=TEXT, answer={"enum": ANSWERS}, target=TEXT, reason=or_null(TEXT),
        answered_by=TEXT, answered_at=or_null(TIME), tenant=TEXT,
    )  # fmt: skip
    merge = {"source": TEXT, "target": TEXT, "reason": or_null(TEXT)}
    flag = {"type": "boolean"}
    moved = {"type": "object", "additionalProperties": COUNT}
    return {
        "PatientMergeRequest": _request({**merge, "preview": flag}, ["source", "target"]),
        "PatientUnmergeRequest": _request(merge, ["source", "target"]),
        "PatientMerged": object_of(source=TEXT, target=TEXT, tenant=TEXT, preview=flag, moved=moved),
        "IdentityConflict": object_of(**conflict),
        "IdentityConflictList": page_of(ref("IdentityConflict")),
        "FullIdentityConflict": object_of(**conflict, candidate_resources=list_of(candidate)),
        "IdentityAnswered": object_of(**conflict, retried=COUNT, converted_again=COUNT),
        "IdentityAnswerRequest": {
            "type": "object",
            "properties": {
                "answer": {"enum": ANSWERS},
                "target": or_null(TEXT) | {"description": "one of the candidates; for merge and take"},
                "reason": or_null(TEXT),
            },
            "required": ["answer"],
            "additionalProperties": False,
        },
        "IdentityAnswerList": page_of(stored),
    }


def _request(properties: Schema, required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
