"""The bodies of the operator API as JSON Schemas, for its OpenAPI document."""

from __future__ import annotations

from typing import Any

from ipf.ports import Status

Schema = dict[str, Any]

STATES = [status.value for status in Status]
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
TIME: Schema = {"type": "string", "format": "date-time"}
_FLAG: Schema = {"type": "boolean"}
_ANY: Schema = {"type": "object"}
_UUID: Schema = {"type": "string", "format": "uuid"}


def ref(name: str) -> Schema:
    """A reference to one of `schemas`."""
    return {"$ref": f"#/components/schemas/{name}"}


def schemas() -> Schema:
    """All of them by name."""
    return {
        "Any": _ANY,
        "List": page_of(_ANY),
        "Error": object_of(error=TEXT, message=TEXT),
        "Conflict": object_of(error=TEXT, message=TEXT, id=COUNT, currentStatus={"enum": STATES}),
        "Acknowledged": object_of(
            code=or_null(TEXT),
            text=TEXT,
            acknowledgement=or_null(TEXT),
            messages=list_of(_sent()),
        ),
        **_messages(),
        **_effects(),
        **_jobs(),
        **_subscriptions(),
        **_others(),
    }


def _sent() -> Schema:
    row = {"oneOf": [ref("Message"), {"type": "null"}]}
    return object_of(source_id=TEXT, code=or_null(TEXT), text=TEXT, message=row)


def _messages() -> Schema:
    listed = {
        "id": COUNT,
        "received_at": TIME,
        "source_protocol": {"enum": ["HL7V2_MLLP", "FHIR_REST", "EHR_NATIVE_API", "OTHER"]},
        "source_system": TEXT,
        "source_id": TEXT,
        "message_type": TEXT,
        "status": {"enum": STATES},
        "attempt_count": COUNT,
        "last_attempt_at": or_null(TIME),
        "last_error": or_null(TEXT),
        "delivered_at": or_null(TIME),
        "correlation_id": _UUID,
        "tenant": TEXT,
        "permanent": _FLAG | {"description": "no retry mends last_error"},
    }
    whole = {
        "next_attempt_at": or_null(TIME),
        "raw_message": or_null(TEXT),
        "raw_content_type": or_null(TEXT),
        "passed_through": or_null(TEXT) | {"description": "the setting by which it was delivered without being mapped"},
    }
    page = page_of(ref("Message"))
    page["properties"] |= {
        "total_is_exact": _FLAG | {"description": "searches inside messages only; false: there may be more"},
        "index_lag": COUNT | {"description": "how many of the newest messages were looked at one by one"},
    }
    conversion = object_of(
        id=COUNT, message_id=COUNT, asked_at=TIME, reason=TEXT, status={"enum": STATES}, attempt_count=COUNT,
        last_error=or_null(TEXT), correlation_id=_UUID, last_attempt_at=or_null(TIME),
        next_attempt_at=or_null(TIME), delivered_at=or_null(TIME), tenant=TEXT, permanent=_FLAG,
    )  # fmt: skip
    return {
        "Message": object_of(**listed),
        "FullMessage": object_of(**listed, **whole),
        "MessageList": page,
        "Conversion": conversion,
        "ConversionList": page_of(ref("Conversion")),
    }


def _effects() -> Schema:
    made = object_of(
        resource_type=TEXT, id=TEXT, version_id=TEXT, action={"enum": ["created", "updated", "deleted", "found"]},
        written_at=TIME,
    )  # fmt: skip
    matched = object_of(
        id=TEXT, channel_type=TEXT, endpoint=or_null(TEXT), criteria=TEXT, matched_resource=TEXT, event_number=COUNT,
        delivered=_FLAG,
    )  # fmt: skip
    fired = object_of(
        subscription_id=TEXT, event_number=COUNT, attempted_at=TIME, outcome={"enum": ["success", "failure"]},
        http_status=or_null(COUNT), duration_ms=COUNT, error=or_null(TEXT),
    )  # fmt: skip
    transform = object_of(map=TEXT, version=or_null(TEXT), duration_ms=or_null({"type": "number"}))
    return {
        "Effects": object_of(
            effects_status={"enum": ["delivered", "pending", "failed", "unknown"]},
            message=ref("Message"),
            transform={"anyOf": [transform, {"type": "null"}]},
            fhir_resources_created=list_of(made),
            subscriptions_matched=list_of(matched),
            notifications_fired=list_of(fired),
        )
    }


def _jobs() -> Schema:
    names = ("source_id", "source_system", "message_type", "correlation_id", "tenant", "patient", "text", "error",
             "received_from", "received_to")  # fmt: skip
    wanted = {
        "type": "object",
        "properties": {
            "status": {"enum": STATES},
            "permanent": {"enum": ["true", "false"]},
            **dict.fromkeys(names, TEXT),
        },
        "additionalProperties": False,
    }
    asked: Schema = {
        "ids": {"type": "array", "items": COUNT, "minItems": 1, "maxItems": 10_000},
        "filter": wanted,
        "per_second": {"type": "integer", "minimum": 1, "maximum": 5000, "default": 100},
        "dry_run": _FLAG | {"default": False},
    }
    replay = asked | {"following": _FLAG | {"default": True}, "limit": {"type": "integer", "minimum": 1, "maximum": 20}}
    job = object_of(
        id=COUNT, kind={"enum": ["replay", "retry", "discard"]},
        status={"enum": ["requested", "running", "done", "cancelled", "failed"]}, selection=_ANY, following=_FLAG,
        per_second=COUNT, total=COUNT, done=COUNT, changed=COUNT, following_changed=COUNT, skipped=COUNT,
        error=or_null(TEXT), created_at=TIME, updated_at=TIME, tenant=TEXT,
    )  # fmt: skip
    difference = object_of(path=TEXT, stored={}, replayed={})
    outcomes = ["created", "updated", "unchanged", "found", "deleted"]
    resource = object_of(
        resource_type=TEXT,
        id=or_null(TEXT),
        outcome={"enum": outcomes},
        retained=list_of(TEXT),
        left_out=or_null(TEXT),
        differences=list_of(difference),
    )
    item = object_of(
        message_id=COUNT, correlation_id=_UUID, message_type=TEXT, map_url=or_null(TEXT), error=or_null(TEXT),
        resources=list_of(resource), unmapped=list_of(object_of(concept_map=TEXT, code=TEXT)),
        unread=list_of(object_of(kind=TEXT, path=TEXT, reason=or_null(TEXT))),
    )  # fmt: skip
    group = object_of(
        fingerprint=TEXT, count=COUNT, sample=TEXT, newest_id=COUNT, first_received_at=TIME, last_received_at=TIME
    )
    return {
        "ReplayRequest": {"type": "object", "properties": replay, "additionalProperties": False},
        "DeadLettersRequest": {
            "type": "object", "properties": asked | {"fingerprint": TEXT}, "additionalProperties": False,
        },
        "Job": job,
        "JobList": page_of(ref("Job")),
        "ReplayDryRun": object_of(dry_run={"const": True}, total=COUNT, limit=COUNT, items=list_of(item)),
        "DeadLettersDryRun": object_of(dry_run={"const": True}, total=COUNT, ids=list_of(COUNT)),
        "ErrorGroupList": page_of(group),
    }  # fmt: skip


def _subscriptions() -> Schema:
    states = {"enum": ["active", "off", "requested", "error"]}
    outcome = {"enum": ["success", "failure", None]}
    health = object_of(
        id=TEXT, active=_FLAG, channel_type=TEXT, endpoint=or_null(TEXT), delivery_success_count=COUNT,
        delivery_failure_count=COUNT, last_attempt_at=or_null(TIME), last_attempt_outcome=outcome,
        last_error=or_null(TEXT), status=states, criteria=TEXT, warnings=list_of(TEXT),
    )  # fmt: skip
    tried = object_of(
        attempted_at=TIME, outcome=TEXT, http_status=or_null(COUNT), error=or_null(TEXT), duration_ms=or_null(COUNT)
    )
    history = page_of(ref("DeliveryAttempt"))
    history["properties"]["subscription_id"] = TEXT
    return {
        "SubscriptionHealth": health,
        "SubscriptionHealthList": object_of(total=COUNT, items=list_of(ref("SubscriptionHealth"))),
        "DeliveryAttempt": tried,
        "SubscriptionHistory": history,
        "StatusRequest": {"type": "object", "properties": {"status": states}, "required": ["status"]},
    }


def _others() -> Schema:
    refused: Schema = {
        "id": COUNT, "received_at": TIME, "correlation_id": _UUID, "listener": TEXT, "peer": TEXT, "reason": TEXT,
        "size": COUNT, "tenant": TEXT,
    }  # fmt: skip
    unread = object_of(
        id=COUNT, source_system=TEXT, message_type=TEXT, path=TEXT,
        kind={"enum": ["unread", "declared", "dropped", "invalid"]},
        reason=or_null(TEXT), occurrences=COUNT, message_id=or_null(COUNT), first_seen=TIME, last_seen=TIME,
        tenant=TEXT,
    )  # fmt: skip
    setting = object_of(name=TEXT, value={}, secret=_FLAG, defaulted=_FLAG, meaning=TEXT)
    return {
        "Reject": object_of(**refused),
        "FullReject": object_of(**refused, raw=TEXT),
        "RejectList": page_of(ref("Reject")),
        "UnreadFieldList": page_of(unread),
        "Forgotten": object_of(forgotten=COUNT),
        "SavedView": object_of(id=COUNT, area=TEXT, name=TEXT, query=TEXT),
        "SavedViewList": object_of(items=list_of(ref("SavedView"))),
        "NewView": object_of(area=TEXT, name=TEXT, query=TEXT),
        "ViewRequest": object_of(page=TEXT, references=list_of(TEXT)),
        "Config": object_of(settings=list_of(setting)),
        "Retention": _retention(),
        "Accepted": object_of(message=TEXT),
        "MapCodeRequest": _code_answer(),
        "RequeueRequest": object_of(following=_FLAG | {"default": True}) | {"required": []},
        "Requeued": object_of(id=COUNT, converted_again=COUNT, following=COUNT, retried=COUNT),
    }


def _retention() -> Schema:
    counts: Schema = {"type": "object", "additionalProperties": COUNT, "description": "rows by kind"}
    run = object_of(
        began_at=TIME, ended_at=or_null(TIME), running_on=or_null(TEXT), removed=or_null(_ANY),
    )  # fmt: skip
    policy = object_of(delivered_days=COUNT, dead_letter_days=COUNT, history_days=COUNT)
    return object_of(policy=policy, last_run=or_null(run), would_remove=or_null(counts))


def _code_answer() -> Schema:
    code = or_null(TEXT) | {"description": "the target; null: the code has none, and that is right"}
    scope = {"enum": ["sender", "all"], "default": "sender", "description": "messages of its sender, or of all"}
    return object_of(system=TEXT, code=code, display=TEXT, scope=scope) | {"required": ["code"]}


def object_of(**members: Schema) -> Schema:
    """An object with required members; others may be added."""
    return {"type": "object", "properties": members, "required": list(members)}


def page_of(item: Schema) -> Schema:
    """One page of a list."""
    return object_of(total=COUNT, limit=COUNT, offset=COUNT, items=list_of(item))


def list_of(item: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": item}


def or_null(schema: Schema) -> Schema:
    """The same, or null."""
    return schema | {"type": [schema["type"], "null"]}
