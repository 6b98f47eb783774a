"""Binary: content as it is, in and out.

A POST or PUT to Binary with a content type that is none of FHIR's carries the content itself; it is stored as a Binary
resource.  A read that names no FHIR format is answered with the content under its own type.  Whoever uploads decides
the type, so browsers are told not to guess it and to run nothing of it.

Source: https://hl7.org/fhir/R4/binary.html#rest
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import replace

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.ports import Answer, Json, Request

_FENCE = [("X-Content-Type-Options", "nosniff"), ("Content-Security-Policy", "sandbox; default-src 'none'")]
_LONGEST_TYPE = 200


def wrapped(request: Request, content_type: str) -> Json:
    """The Binary resource of a body that is content; `X-Security-Context` names what governs access to it."""
    if not content_type.isprintable() or not content_type.isascii() or len(content_type) > _LONGEST_TYPE:
        raise Problem(Category.MEDIA_TYPE, "the content type cannot be kept")
    if not request.body:
        raise Problem(Category.REQUIRED, "a Binary needs content")
    resource: Json = {"resourceType": "Binary"}
    if len(request.path) == 2:
        resource["id"] = request.path[1]
    resource["contentType"] = content_type
    context = request.headers.get("x-security-context")
    if context:
        resource["securityContext"] = {"reference": context}
    resource["data"] = b64encode(request.body).decode()
    return resource


def raw(answer: Answer) -> Answer:
    """The content of a Binary that was read; other answers as they are."""
    if answer.status != 200 or not answer.content_type.startswith("application/fhir+json"):
        return answer
    binary = loads(answer.body)
    if binary.get("resourceType") != "Binary":
        return answer
    try:
        content = b64decode(binary.get("data", ""), validate=False)
    except ValueError:
        return answer  # no base64: the resource tells what there is
    headers = [*answer.headers, *_FENCE]
    context = binary.get("securityContext", {}).get("reference")
    if context and context.isprintable():
        headers.append(("X-Security-Context", context))
    kind = str(binary.get("contentType", ""))
    safe = kind.isprintable() and kind.isascii() and "/" in kind
    return replace(answer, body=content, headers=headers, content_type=kind if safe else "application/octet-stream")
