"""The OpenAPI 3.1 document of the operator API, served at `/admin/openapi.json` without a token.

A test validates it, holds the answers of the API against it, and compares its paths with those that are served.
`/admin/observe` has a document of its own.

Source: https://spec.openapis.org/oas/v3.1.0; interface specification "Message administration", "Limits", "Errors".
"""

from __future__ import annotations

from typing import Any

from ipf.wire.admin.schemas import audit as audit_schema
from ipf.wire.admin.schemas import erasure as erasure_schema
from ipf.wire.admin.schemas import identity as identity_schema
from ipf.wire.admin.schemas import mapping as mapping_schema
from ipf.wire.admin.schemas import profiles as admin_profiles_schema
from ipf.wire.admin.schemas import systems as admin_systems_schema
from ipf.wire.admin.schemas.base import COUNT, STATES, TEXT, Schema, ref, schemas

_LIMIT = "default 50, clamped to 1..500"
_OFFSET = "default 0; negative becomes 0; rounded down to a multiple of limit"
_REFUSALS = {
    "400": "a value cannot be used",
    "401": "the admin token is missing or wrong",
    "403": "this token may only read",
    "404": "there is nothing with this id",
    "413": "the body is too large",
    "422": "it was understood and cannot be done; the message says why",
    "500": "the request could not be completed; the log says why",
    "503": "the store cannot be reached",
}

_TENANT: Schema = {
    "name": "tenant",
    "in": "query",
    "description": "whose; * = of all tenants; without it those of the tenant default",
    "schema": TEXT,
}


def document(version: str) -> Schema:
    """The whole document; `version`: of the service."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ipf admin API",
            "version": version,
            "description": "Messages, subscriptions, codes and maps for operators. Fields may be added; times are UTC.",
        },
        "servers": [{"url": "/"}],
        "security": [{"adminToken": []}],
        "paths": _message_paths()
        | _bulk_paths()
        | _code_paths()
        | _identity_paths()
        | _erasure_paths()
        | _unread_paths()
        | _subscription_paths()
        | _profile_paths()
        | _view_paths()
        | _other_paths(),
        "components": {
            "securitySchemes": {"adminToken": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas()
            | admin_profiles_schema.schemas()
            | admin_systems_schema.schemas()
            | audit_schema.schemas()
            | identity_schema.schemas()
            | mapping_schema.schemas()
            | erasure_schema.schemas(),
        },
    }


def _message_paths() -> Schema:
    exact = ("source_id", "source_system", "message_type", "correlation_id")
    filters = [
        _query("status", {"enum": STATES}, "one of the five states"),
        *(_query(name, TEXT, "exactly") for name in exact),
        _TENANT,
        _query("patient", TEXT, "an identifier of PID-3 or MRG-1: value, or authority|value"),
        _query("text", TEXT, "words inside the message, all of them; name* = every word that begins so"),
        _query("error", TEXT, "a part of the last error"),
        _query("permanent", {"enum": ["true", "false"]}, "the last error is (not) one that no retry mends"),
        _query("received_from", TEXT, "ISO 8601 date or time, included"),
        _query("received_to", TEXT, "ISO 8601 date or time, excluded"),
    ]
    one, wrong_state = [_path("id")], _refused("the state does not allow it", "Conflict")
    return {
        "/admin/messages": {"get": _page("listMessages", "Messages, newest first", "MessageList", *filters)},
        "/admin/ingest": {"post": _sent()},
        "/admin/messages/{id}": {
            "get": _operation("getMessage", "One message with what was received", "FullMessage", one, "404"),
            "delete": _operation("deleteMessage", "Remove a dead letter", None, one, "404", conflict=wrong_state),
        },
        "/admin/messages/{id}/retry": {
            "post": _operation(
                "retryMessage", "FAILED or DEAD_LETTER back to RECEIVED", "FullMessage", one, "404",
                conflict=wrong_state,
            )
        },
        "/admin/messages/{id}/effects": {
            "get": _operation("messageEffects", "What a message did: facts of both databases", "Effects", one, "404")
        },
        "/admin/messages/{id}/conversions": {
            "get": _page("messageConversions", "Further conversions of a message", "ConversionList", *one)
        },
        "/admin/messages/{id}/trace": {
            "get": _operation("messageTrace", "How its resources come to be; nothing is changed", "Any", one, "404")
        },
    }  # fmt: skip


def _sent() -> Schema:
    made = _operation("ingest", "Receive HL7 v2 messages, as over MLLP", "Acknowledged", [_TENANT])
    made["requestBody"] = {"required": True, "content": {"text/plain": {"schema": TEXT}}}
    return made


def _bulk_paths() -> Schema:
    job = [_path("id")]
    replayed = {"oneOf": [ref("Job"), ref("ReplayDryRun")]}
    picked = {"oneOf": [ref("Job"), ref("DeadLettersDryRun")]}
    ended, of_job = _refused("it has ended", "Error"), _query("status", TEXT, "of a job")
    return {
        "/admin/messages/replay": {
            "post": _started(
                "replay", "Convert stored messages again with the installed maps", "ReplayRequest", replayed
            )
        },
        "/admin/dead-letters/errors": {
            "get": _page("errorGroups", "Dead letters by what is alike in their errors", "ErrorGroupList", _TENANT)
        },
        "/admin/dead-letters/retry": {
            "post": _started("retryDeadLetters", "Try dead letters again", "DeadLettersRequest", picked)
        },
        "/admin/dead-letters/discard": {
            "post": _started("discardDeadLetters", "Remove dead letters", "DeadLettersRequest", picked)
        },
        "/admin/jobs": {"get": _page("listJobs", "Jobs, newest first", "JobList", of_job, _TENANT)},
        "/admin/jobs/{id}": {"get": _operation("getJob", "One job", "Job", job, "404")},
        "/admin/jobs/{id}/cancel": {
            "post": _operation("cancelJob", "Do no more of it", "Job", job, "404", conflict=ended)
        },
    }


def _code_paths() -> Schema:
    one = [_path("id")]
    exact = [_TENANT, *(_query(name, TEXT, "exactly") for name in ("source_system", "concept_map", "code"))]
    wrong_state = _refused("the state does not allow it", "Conflict")
    state = _query("status", TEXT, "open or mapped")
    by = [_query("message_id", COUNT, "of this message"), _query("status", {"enum": STATES}, "in this state"), _TENANT]
    return {
        "/admin/unmapped-codes": {
            "get": _page("listUnmappedCodes", "Codes that no table had", "List", *exact, state)
        },
        "/admin/unmapped-codes/{id}": {"get": _operation("getUnmappedCode", "One code", "Any", one, "404")},
        "/admin/unmapped-codes/{id}/map": {
            "post": _operation("mapCode", "Keep an answer", "Any", one, "404", body="MapCodeRequest")
        },
        "/admin/unmapped-codes/{id}/requeue": {
            "post": _operation(
                "requeueCode", "Convert its messages again", "Requeued", one, "404", body="RequeueRequest"
            )
        },
        "/admin/code-overrides": {"get": _page("listOverrides", "Answers of operators", "List", *exact)},
        "/admin/code-overrides/{id}": {
            "get": _operation("getOverride", "One answer", "Any", one, "404"),
            "delete": _operation("deleteOverride", "Take it back", None, one, "404"),
        },
        "/admin/conversions": {"get": _page("listConversions", "Further conversions", "ConversionList", *by)},
        "/admin/conversions/{id}": {
            "delete": _operation("deleteConversion", "Remove a dead letter", None, one, "404", conflict=wrong_state)
        },
        "/admin/conversions/{id}/retry": {
            "post": _operation("retryConversion", "Try it again", "Conversion", one, "404", conflict=wrong_state)
        },
        **mapping_schema.paths(_operation),
    }  # fmt: skip


def _identity_paths() -> Schema:
    one = [_path("id")]
    filters = [
        _query("status", {"enum": identity_schema.STATUSES}, "of the conflict"),
        _query("source_system", TEXT, "exactly"),
        _query("resource_type", TEXT, "exactly, such as Patient"),
        _query("message_id", COUNT, "of this message"),
        _TENANT,
    ]
    conflicts = "/admin/identity-conflicts"
    return {
        conflicts: {
            "get": _page("listIdentityConflicts", "Matches that were not made", "IdentityConflictList", *filters)
        },
        f"{conflicts}/{{id}}": {
            "get": _operation("getIdentityConflict", "One, with its candidates", "FullIdentityConflict", one, "404")
        },
        f"{conflicts}/{{id}}/answer": {
            "post": _operation(
                "answerIdentityConflict", "Decide it and release its messages", "IdentityAnswered", one, "404", "422",
                body="IdentityAnswerRequest", conflict=_refused("it is closed, or the target is gone", "Error"),
            )
        },
        "/admin/identity-answers": {
            "get": _page("listIdentityAnswers", "Answers of operators", "IdentityAnswerList", _TENANT)
        },
        "/admin/identity-answers/{id}": {
            "delete": _operation("revokeIdentityAnswer", "Take it back", None, [*one, _TENANT], "404")
        },
        "/admin/patient-merges": {
            "post": _operation(
                "mergePatients", "Merge two Patients", "PatientMerged", [_TENANT], "404", "422",
                body="PatientMergeRequest", conflict=_refused("others keep changing the same resources", "Error"),
            )
        },
        "/admin/patient-merges/undo": {
            "post": _operation(
                "unmergePatients", "Undo a merge", "PatientMerged", [_TENANT], "404", "422",
                body="PatientUnmergeRequest", conflict=_refused("others keep changing the same resources", "Error"),
            )
        },
    }  # fmt: skip


def _erasure_paths() -> Schema:
    return {
        "/admin/patients/{id}/forget": {
            "post": _operation(
                "forgetPatient", "Erase a patient, or show what an erasure would remove", "Erasure",
                [_path("id", TEXT), _TENANT], "404", body="ErasureRequest",
                conflict=_refused("something is in the way, or changed since the dry run", "Error"),
            )
        },
        "/admin/erasures": {"get": _page("listErasures", "Receipts of erasures", "ErasureReceiptList", _TENANT)},
    }  # fmt: skip


def _unread_paths() -> Schema:
    exact = [_TENANT, *(_query(name, TEXT, "exactly") for name in ("source_system", "message_type", "path"))]
    exact.append(_query("kind", {"enum": ["unread", "declared", "dropped", "invalid"]}, "of this kind"))
    return {
        "/admin/unread-fields": {
            "get": _page("listUnreadFields", "Fields that conversions did not take over", "UnreadFieldList", *exact),
            "delete": _operation("forgetUnreadFields", "Forget the rows of a sender", "Forgotten", exact, "422"),
        },
        "/admin/unread-fields/{id}": {
            "delete": _operation("forgetUnreadField", "Forget one row", None, [_path("id")], "404")
        },
    }


def _view_paths() -> Schema:
    full = _refused("the person has too many views", "Error")
    return {
        "/admin/views": {
            "get": _operation(
                "listViews", "Saved views of a list", "SavedViewList", [_query("area", TEXT, "the list")]
            ),
            "post": _operation("saveView", "Save a view", "SavedView", [], body="NewView", conflict=full),
        },
        "/admin/views/{id}": {"delete": _operation("removeView", "Remove a view", None, [_path("id")], "404")},
    }


def _subscription_paths() -> Schema:
    tenant = _query("tenant", TEXT, "whose; without it the id is found in any tenant (409 when several have it)")
    one = [_path("id", TEXT), tenant]
    return {
        "/admin/subscriptions/health": {
            "get": _operation("subscriptionHealth", "Up to 500 subscriptions", "SubscriptionHealthList", [])
        },
        "/admin/subscriptions/{id}/health": {
            "get": _operation("oneSubscriptionHealth", "Health of one", "SubscriptionHealth", one, "404", "409")
        },
        "/admin/subscriptions/{id}/test": {
            "post": _operation(
                "testSubscription", "Send a handshake to its endpoint", "DeliveryAttempt", one, "404", "409", "422"
            )
        },
        "/admin/subscriptions/{id}/history": {
            "get": _page("subscriptionHistory", "Tries to notify, newest first", "SubscriptionHistory", *one)
        },
        "/admin/subscriptions/{id}/resource": {
            "get": _operation("subscriptionResource", "The FHIR resource", "Any", one, "404", "409")
        },
        "/admin/subscriptions/{id}/status": {
            "patch": _operation(
                "setSubscriptionStatus", "Set its status", "SubscriptionHealth", one, "404", "409", body="StatusRequest"
            )
        },
    }


def _profile_paths() -> Schema:
    file = [_query("file", TEXT, "name of the archive in the folder")]
    validate = _operation("validateProfile", "Check the archive of a vendor profile", "ProfileCheck", [], "413")
    install = _operation("installProfile", "Use an archive", "Profiles", file, "413", "422", "503")
    for one in (validate, install):
        content = {"application/x-gtar": {"schema": {"type": "string", "format": "binary"}}}
        one["requestBody"] = {"required": True, "content": content}
    return {
        "/admin/api/profiles": {"get": _operation("listProfiles", "Vendor profiles in use", "Profiles", [])},
        "/admin/api/profiles/validate": {"post": validate},
        "/admin/api/profiles/install": {"post": install},
        "/admin/api/profiles/rollback": {
            "post": _operation("rollBackProfile", "Use the archive from before", "Profiles", file, "404", "422", "503")
        },
        "/admin/api/profiles/reload": {
            "post": _operation("reloadProfiles", "Read the folder of profiles again", "Profiles", [], "422")
        },
    }


def _other_paths() -> Schema:
    one = [_path("id")]
    openapi = _operation("openapi", "This document", "Any", [])
    dry_run = [
        _query("dry_run", {"enum": ["true", "false"]}, "counts what a run would remove now, and removes nothing")
    ]
    run = _operation("runRetention", "Let a run begin within a minute", "Retention", dry_run, "422")
    run["responses"]["202"] = _response("a run begins within a minute", ref("Accepted"))
    page = _operation("docs", "The documents as a page", "Any", [])
    page["responses"]["200"]["content"] = {"text/html": {"schema": TEXT}}
    return {
        "/admin/rejects": {"get": _page("listRejects", "Refused frames, newest first", "RejectList", _TENANT)},
        "/admin/rejects/{id}": {
            "get": _operation("getReject", "One, with what came", "FullReject", one, "404"),
            "delete": _operation("deleteReject", "Remove it", None, one, "404"),
        },
        "/admin/config": {"get": _operation("config", "Settings in effect; secrets are masked", "Config", [])},
        **audit_schema.paths(_operation, _page),
        **admin_systems_schema.paths(_operation, _page),
        "/admin/retention": {
            "get": _operation("retention", "Policy, last run, and what a run would remove", "Retention", dry_run),
            "post": run,
        },
        "/admin/docs": {"get": page},
        "/admin/openapi.json": {"get": openapi | {"security": []}},
    }


def _query(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _path(name: str, schema: Schema | None = None) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": schema or {"type": "integer"}}


def _page(name: str, summary: str, schema: str, *parameters: Schema) -> Schema:
    """An operation that answers a page."""
    window = [_query("limit", {"type": "integer"}, _LIMIT), _query("offset", {"type": "integer"}, _OFFSET)]
    missing = ["404"] if any(one["in"] == "path" or one["name"] == "message_id" for one in parameters) else []
    return _operation(name, summary, schema, [*parameters, *window], *missing)


def _started(name: str, summary: str, body: str, answer: Schema) -> Schema:
    """An operation that starts a job (202), or says what it would do (200)."""
    made = _operation(name, summary, None, [], body=body)
    made["responses"] = {
        status: _response(text, answer) for status, text in (("200", "a dry run"), ("202", "the job"))
    } | {status: one for status, one in made["responses"].items() if status != "204"}
    return made


def _operation(
    name: str,
    summary: str,
    schema: str | None,
    parameters: list[Schema],
    *refusals: str,
    body: str | None = None,
    conflict: Schema | None = None,
    status: str = "200",
) -> Schema:
    """`schema` None: 204, no body; else `status` with it."""
    responses: Schema = (
        {"204": {"description": "done"}} if schema is None else {status: _response(summary, ref(schema))}
    )
    for refusal in sorted({"400", "401", "403", "413", "500", "503", *refusals}):
        responses[refusal] = _refused(_REFUSALS.get(refusal, "it cannot be done"), "Error")
    made: Schema = {"operationId": name, "summary": summary, "responses": responses}
    if conflict is not None:
        responses["409"] = conflict
    if parameters:
        made["parameters"] = parameters
    if body is not None:
        made["requestBody"] = {"content": {"application/json": {"schema": ref(body)}}}
    return made


def _refused(description: str, schema: str) -> Schema:
    return _response(description, ref(schema))


def _response(description: str, schema: Schema) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
