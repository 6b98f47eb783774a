"""JSON Schemas of erasures, for the OpenAPI document of the operator API."""

from __future__ import annotations

from ipf.wire.admin.schemas.base import COUNT, TEXT, TIME, Schema, list_of, object_of, page_of


def schemas() -> Schema:
    """All of them by name."""
    flag, counts = {"type": "boolean"}, {"type": "object", "additionalProperties": COUNT}
    receipt = object_of(
        tenant=TEXT, at=TIME, actor=TEXT, reason=TEXT, counts=counts, salt=TEXT, digests=list_of(TEXT),
        key_id=TEXT, signature=TEXT, id=COUNT, finished=flag,
    )  # fmt: skip
    in_the_way = object_of(
        resources=list_of(TEXT), shared_messages=list_of(COUNT), uncertain_messages=list_of(COUNT),
        messages_in_conversion=list_of(COUNT), subscriptions=list_of(TEXT), jobs=list_of(COUNT),
    )  # fmt: skip
    preview = object_of(
        dry_run=flag,
        patient=TEXT,
        patients=list_of(TEXT),
        counts=counts,
        in_the_way=in_the_way,
        places={"type": "object", "additionalProperties": list_of(TEXT)},
        kept={"type": "object"},
        confirm=TEXT,
    )
    return {
        "Erasure": {"oneOf": [preview, object_of(dry_run=flag, receipt=receipt)]},
        "ErasureReceiptList": page_of(receipt),
        "ErasureRequest": {
            "type": "object",
            "properties": {
                "dry_run": flag | {"default": True},
                "reason": TEXT,
                "confirm": TEXT,
                "redact": list_of(TEXT),
                "remove": list_of(TEXT),
                "shared_messages": {"enum": ["remove"]},
                "uncertain_messages": {"enum": ["keep", "remove"]},
            },
            "additionalProperties": False,
        },
    }
