"""What the service of `tests/cli/service.py` answers: texts that are long, wide, or of several lines among them."""

from __future__ import annotations

from typing import Any

LONG = (
    "mapping ADT_A01 of LAB failed: no map; "
    + "the sender repeats 患者番号 in every field, " * 6
    + "and nothing else\n"
    'second line with \u202e in it, "quotes", and a comma'
)
"""A last error that no terminal holds in a line."""

ROW = {
    "id": 7,
    "received_at": "2026-01-01T00:00:00Z",
    "status": "DEAD_LETTER",
    "attempt_count": 5,
    "source_system": "LAB",
    "source_id": "M1",
    "message_type": "ORU_R01",
    "last_error": LONG,
    "correlation_id": "c-1",
    "raw_message": "MSH|^~\\&|LAB\rPID|1",
}
HEALTH = {
    "id": "Subscription/s1",
    "status": "error",
    "channel_type": "rest-hook",
    "endpoint": "https://subscriber.example/" + "notifications/" * 9,
    "criteria": "Observation?code=2345-7",
    "delivery_success_count": 1200,
    "delivery_failure_count": 1,
    "last_attempt_at": "2026-01-01T12:00:00.123456Z",
    "last_error": "since noon",
}
GROUP = {"fingerprint": "3f1c", "count": 12, "sample": "mapping ADT_A01 of LAB failed: no map", "newest_id": 7}
MANY = [{"path": f"Patient.name[{number}]", "stored": "Old", "replayed": f"New {number}"} for number in range(23)]
CHANGED = {"outcome": "updated", "resource_type": "Patient", "id": "p1", "differences": MANY}
PREVIEW = {"message_id": 7, "map_url": "urn:map", "resources": [CHANGED]}
CANDIDATES = [
    {
        "reference": f"Patient/{id}",
        "exists": True,
        "active": None,
        "names": ["Kari Hansen"],
        "birth_date": "1970-05-17",
        "gender": None,
        "identifiers": [{"system": "urn:mrn", "type": "MR", "value": "4711", "use": None}],
        "subject": None,
        "replaced_by": None,
    }
    for id in "ab"
]
IDENTITY = {
    "id": 3,
    "status": "open",
    "kind": "ambiguous",
    "resource_type": "Patient",
    "keys": CANDIDATES[0]["identifiers"],
    "query": "Patient?identifier=urn:mrn|4711",
    "candidates": ["Patient/a", "Patient/b"],
    "message_id": 7,
    "message_status": "FAILED",
    "answer": None,
    "target": None,
    "detected_at": "2026-01-01T00:00:00Z",
    "source_system": "LAB",
    "what_to_do": "merge: they are one person",
}
ANSWERED = {
    **IDENTITY,
    "status": "answered",
    "answer": "take",
    "target": "Patient/a",
    "retried": 2,
    "converted_again": 1,
}
STORED = {"id": 5, "resource_type": "Patient", "key": "urn:mrn|MR|4711", "answer": "take", "target": "Patient/a"}
MERGED = {"source": "Patient/b", "target": "Patient/a", "moved": {"Encounter": 2, "Observation": 10}, "preview": False}
UNREAD = {"kind": "declared", "path": "PV1-40", "reason": "a shared place", "occurrences": 17, "source_system": "LAB"}
CONFLICT = {"error": "invalid_state_for_retry", "message": "message 8 is DELIVERED", "id": 8}
MAPS = [
    {"url": "urn:map:b", "version": "1.4", "file": "b.fml", "message_types": ["ADT_A01"], "mistake": None},
    {
        "url": "urn:map:c",
        "version": None,
        "file": "c.fml",
        "message_types": [],
        "mistake": {"line": 3, "column": 1, "message": "expected ';'"},
    },
]
TRIED = {
    "mistake": None,
    "map_url": "urn:map:b",
    "result": {"resourceType": "Bundle", "entry": [{"resource": {"resourceType": "Patient", "id": "p1"}}]},
    "unread": [{"segment": "OBX[2]", "kind": "unread", "path": "OBX-8", "reason": None}],
    "unmapped": [{"concept_map": "urn:cm", "code": "XX"}],
    "warnings": ["a warning"],
}
BUNDLE = {"entry": [{"resource": {"resourceType": "Patient"}}]}
COMPARED = {
    "message_type": "ADT_A01",
    "messages": 2,
    "mistake": None,
    "same": 1,
    "differing": [{"id": 7, "before": BUNDLE, "after": {"mistake": MAPS[1]["mistake"]}}],
}
CODE = {
    "id": 4,
    "source_system": "LAB",
    "concept_map": "urn:cm:" + "table-" * 20,
    "code": "=1+1",
    "status": "open",
    "count": 3,
    "messages": 2,
    "first_seen": "2026-01-01T00:00:00Z",
    "last_seen": "2026-07-01T23:30:00.5Z",
    "override_id": None,
    "tenant": "default",
}
OVERRIDE = {
    "id": 6,
    "source_system": None,
    "concept_map": "urn:cm",
    "source_code": "XX",
    "system": "http://loinc.org",
    "code": "2345-7",
    "display": "Glucose",
    "created_at": None,
    "updated_at": "2026-01-01T00:00:00Z",
    "tenant": "default",
}
REJECT = {
    "id": 2,
    "received_at": "2026-01-01T00:00:00Z",
    "correlation_id": "c-9",
    "listener": "main",
    "peer": "10.0.0.7:4711",
    "reason": "no MSH segment",
    "size": 15,
    "tenant": "default",
}
JOB = {
    "id": 9,
    "kind": "retry",
    "status": "done",
    "total": 3,
    "done": 3,
    "changed": 2,
    "skipped": 1,
    "created_at": "2026-01-01T00:00:00Z",
    "error": None,
    "per_second": 100,
}
EFFECTS = {
    "effects_status": "delivered",
    "transform": {"map": "urn:map:b", "version": "1.4", "duration_ms": 3.5},
    "fhir_resources_created": [{"resource_type": "Patient", "id": "p1", "version_id": 2, "action": "updated"}],
    "subscriptions_matched": [],
    "notifications_fired": [{"subscription_id": "s1", "event_number": 4, "outcome": "success", "error": None}],
}
SENDER = {
    "source_system": "LAB",
    "kind": "mllp",
    "listener": "main",
    "last_seen": "2026-01-01T00:00:00Z",
    "is_silent": True,
    "expected_seconds": 60,
    "per_minute": 0.5,
    "received_24h": 12345,
    "errors_24h": 1,
    "waiting": 0,
    "oldest_waiting_at": None,
    "tenant": "default",
}
FEED = {
    "name": "sample/laboratory/results",
    "source_system": "LAB",
    "read_until": "2026-01-01T00:00:00Z",
    "polled_at": "2026-01-01T00:00:00Z",
    "due_at": None,
    "fetched": 5,
    "stored": 4,
    "failures": 1,
    "last_error": LONG,
}
DESTINATION = {
    "name": "registry",
    "pending": 1,
    "dead_letters": 1,
    "sent": 7,
    "oldest_pending_at": "2026-01-01T00:00:00Z",
    "last_sent_at": None,
    "paused": False,
    "last_error": LONG,
}
FORWARDED = {
    "message_id": 7,
    "message_type": "ADT_A01",
    "source_id": "M1",
    "status": "DEAD_LETTER",
    "attempts": 5,
    "code": "AE",
    "text": "bed unknown",
    "ended_at": "2026-01-01T00:00:00Z",
}
ATTEMPT = {
    "attempted_at": "2026-01-01T00:00:00Z",
    "outcome": "failure",
    "http_status": 503,
    "duration_ms": 12,
    "error": "HTTP 503",
}
SETTING = {"name": "IPF_HOSTS", "value": ["a.example", "b.example"], "defaulted": False, "secret": False}
ERASURE = {"id": 1, "at": "2026-01-01T00:00:00Z", "actor": "operator", "finished": True, "reason": "asked for"}
FORGET = {
    "patient": "Patient/a1",
    "patients": ["Patient/a1"],
    "counts": {"fhir": 3},
    "places": {"fhir": ["Encounter"]},
    "kept": {"audit": "the law"},
    "in_the_way": {},
    "confirm": "x",
    "receipt": {"id": 1},
}
HEADS = {
    "total": 1,
    "installation": "i-1",
    "keys": [{"key_id": "k1", "created_at": "2026-01-01T00:00:00Z", "pem": "-----BEGIN PUBLIC KEY-----\nMCow\n"}],
    "items": [
        {
            "at": "2026-01-01T00:00:00Z",
            "tenant": "default",
            "surface": "fhir",
            "day": "2026-01-01",
            "number": 1,
            "reason": "daily",
            "key_id": "k1",
            "hash": "ab" * 32,
        }
    ],
}
PROBLEM = {"path": "maps/a.fml", "pointer": "3:1", "line": 3, "message": "expected ';'", "severity": "error"}
SERVED = [
    {"id": "adt", "type": "hl7v2-mllp", "served": True, "reason": None},
    {"id": "api", "type": "sftp", "served": False, "reason": "is not served"},
]
CASE = {
    "path": "tests/a.hl7",
    "messageType": "ADT^A04",
    "sourceType": None,
    "passed": False,
    "message": "no Patient was made",
}
PROFILE = {"id": "acme", "version": "1.2", "vendor": {"name": "Acme"}}
INGEST = {"port": 2580, "facilityResolver": "msh-4", "facilities": ["WEST", "EAST"]}
ANSWERS: dict[tuple[str, str], tuple[int, Any]] = {
    ("GET", "/actuator/health"): (503, {"status": "DOWN", "components": {"inbox": {"status": "DOWN", "details": {}}}}),
    ("GET", "/admin/messages"): (200, {"total": 1, "limit": 50, "offset": 0, "items": [ROW]}),
    ("GET", "/admin/messages/7"): (200, ROW),
    ("POST", "/admin/messages/7/retry"): (200, ROW),
    ("POST", "/admin/messages/8/retry"): (409, CONFLICT),
    ("DELETE", "/admin/messages/7"): (204, None),
    ("GET", "/admin/observe/dlq"): (200, {"total": 1, "limit": 20, "items": [ROW]}),
    ("GET", "/admin/observe/trace/c-1"): (200, {"messages": [ROW], "resources": [{"id": "p1", "version_id": 2}]}),
    ("GET", "/admin/observe/trace/c-2"): (200, {"messages": [ROW], "identity_conflicts": [IDENTITY]}),
    ("GET", "/admin/identity-conflicts"): (200, {"total": 1, "limit": 50, "offset": 0, "items": [IDENTITY]}),
    ("GET", "/admin/identity-conflicts/3"): (200, {**IDENTITY, "candidate_resources": CANDIDATES}),
    ("POST", "/admin/identity-conflicts/3/answer"): (200, ANSWERED),
    ("POST", "/admin/patient-merges"): (200, MERGED),
    ("POST", "/admin/patient-merges/undo"): (200, MERGED),
    ("GET", "/admin/identity-answers"): (200, {"total": 1, "limit": 50, "offset": 0, "items": [STORED]}),
    ("DELETE", "/admin/identity-answers/5"): (204, None),
    ("GET", "/admin/dead-letters/errors"): (200, {"total": 1, "items": [GROUP]}),
    ("POST", "/admin/messages/replay"): (200, {"total": 1, "items": [PREVIEW]}),
    ("GET", "/admin/subscriptions/health"): (200, {"total": 1, "items": [HEALTH]}),
    ("GET", "/admin/mapping/source"): (200, {"url": "urn:map:a", "text": "// why it is so"}),
    ("GET", "/admin/mapping"): (200, {"maps": MAPS, "message_types": []}),
    ("POST", "/admin/mapping/try"): (200, TRIED),
    ("POST", "/admin/mapping/compare"): (200, COMPARED),
    ("POST", "/admin/mapping/install"): (200, {"url": "urn:map:b", "id": "b-1", "version": 3}),
    ("POST", "/admin/mapping/remove"): (200, {"url": "urn:map:b", "is_installed": False}),
    ("POST", "/admin/subscriptions/s1/test"): (200, {"outcome": "failure", "kind": "handshake", "http_status": 503}),
    ("PATCH", "/admin/subscriptions/s1/status"): (200, {**HEALTH, "status": "off"}),
    ("GET", "/admin/unmapped-codes"): (200, {"total": 1, "limit": 50, "offset": 0, "items": [CODE]}),
    ("GET", "/admin/unmapped-codes/4"): (200, CODE | {"message_ids": [7, 8]}),
    ("POST", "/admin/unmapped-codes/4/map"): (200, OVERRIDE),
    ("POST", "/admin/unmapped-codes/4/requeue"): (200, {"id": 4, "converted_again": 1, "following": 2, "retried": 0}),
    ("GET", "/admin/code-overrides"): (200, {"total": 1, "limit": 50, "offset": 0, "items": [OVERRIDE]}),
    ("DELETE", "/admin/code-overrides/6"): (204, None),
    ("GET", "/admin/rejects"): (200, {"total": 3, "limit": 50, "offset": 0, "items": [REJECT]}),
    ("GET", "/admin/rejects/2"): (200, REJECT | {"raw": "this is no HL7\r"}),
    ("DELETE", "/admin/rejects/2"): (204, None),
    ("GET", "/admin/jobs"): (200, {"total": 1, "items": [JOB]}),
    ("GET", "/admin/jobs/9"): (200, JOB),
    ("POST", "/admin/jobs/9/cancel"): (200, JOB | {"status": "cancelled"}),
    ("POST", "/admin/dead-letters/retry"): (202, JOB | {"status": "running"}),
    ("POST", "/admin/dead-letters/discard"): (202, JOB | {"kind": "discard"}),
    ("GET", "/admin/observe/trace/c-1/"): (404, None),
    ("GET", "/admin/messages/7/effects"): (200, EFFECTS),
    ("GET", "/admin/observe/interfaces"): (200, {"total": 1, "silent": 1, "items": [SENDER]}),
    ("GET", "/admin/sources"): (200, {"total": 1, "items": [FEED]}),
    ("POST", "/admin/sources/poll"): (200, {"message": "sample/laboratory/results is polled now"}),
    ("POST", "/admin/sources/rewind"): (200, {"message": "sample/laboratory/results is polled again"}),
    ("GET", "/admin/destinations"): (200, {"total": 1, "items": [DESTINATION]}),
    ("GET", "/admin/destinations/registry/messages"): (200, {"total": 1, "items": [FORWARDED]}),
    ("POST", "/admin/destinations/registry/retry"): (200, {"retried": 1}),
    ("POST", "/admin/destinations/registry/skip"): (200, {"skipped": 7}),
    ("POST", "/admin/destinations/registry/pause"): (200, {"paused": True}),
    ("POST", "/admin/destinations/registry/resume"): (200, {"paused": False}),
    ("GET", "/admin/subscriptions/s1/resource"): (
        200,
        {"resourceType": "Subscription", "id": "s1", "channel": {"type": "rest-hook"}},
    ),
    ("GET", "/admin/subscriptions/s1/history"): (200, {"total": 1, "items": [ATTEMPT]}),
    ("GET", "/admin/config"): (200, {"settings": [SETTING]}),
    ("GET", "/admin/erasures"): (200, {"total": 1, "items": [ERASURE]}),
    ("POST", "/admin/patients/a1/forget"): (200, FORGET),
    ("GET", "/admin/audit/heads"): (200, HEADS),
    ("GET", "/admin/audit/export"): (200, b'{"type":"record"}\n{"type":"end"}\n'),
    ("POST", "/admin/api/profiles/install"): (
        200,
        {"loaded": [{"file": "acme.tgz", "profile": PROFILE}], "skipped": []},
    ),
    ("POST", "/admin/api/profiles/rollback"): (
        200,
        {"loaded": [{"file": "acme.tgz", "profile": PROFILE}], "skipped": []},
    ),
    ("GET", "/admin/unread-fields"): (200, {"total": 2, "items": [UNREAD]}),
    ("DELETE", "/admin/unread-fields"): (200, {"forgotten": 12}),
    ("GET", "/admin/messages/7/trace"): (200, {"unread": [{**UNREAD, "segment": "OBX[2]"}]}),
    ("GET", "/admin/observe/trace/c-3"): (200, {"messages": [{**ROW, "id": 9, "status": "DELIVERED"}]}),
    ("GET", "/admin/observe/trace/c-4"): (200, {"messages": [{**ROW, "id": 10, "status": "DELIVERED"}]}),
    ("GET", "/admin/messages/9/trace"): (
        200,
        {"unread": [{"kind": "unread", "path": "DG1", "segment": "DG1[2]"}, UNREAD | {"segment": "PV1"}]},
    ),
    ("POST", "/admin/mapping/reload"): (422, {"error": "bad_request", "message": "PID_Patient.fml:3:1: expected ';'"}),
}

ANSWERS["POST", "/admin/api/profiles/validate"] = (
    200,
    {
        "valid": False,
        "profile": PROFILE,
        "ingest": SERVED,
        "mappings": [],
        "tests": {"passed": 1, "failed": 1, "cases": [CASE]},
        "problems": [PROBLEM],
    },
)
ANSWERS["GET", "/admin/api/profiles"] = (
    200,
    {
        "loaded": [{"file": "acme.tgz", "profile": PROFILE, "mappings": [CASE], "ingest": [INGEST]}],
        "skipped": [],
    },
)
ANSWERS["POST", "/admin/api/profiles/reload"] = (
    200,
    {
        "loaded": [],
        "skipped": [{"file": "acme.tgz", "kept": "1.1", "problems": [PROBLEM]}],
    },
)

UNKNOWN = (404, {"error": "not_found", "message": "there is no such thing"})
