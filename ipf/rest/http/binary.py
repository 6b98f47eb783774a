"""Binary resources as raw content.

A POST or PUT to Binary with a content type other than FHIR's carries the content itself, which is stored as a Binary
resource.  A read without a FHIR format returns the content with its own type.  The client that uploads sets the type,
so the response headers forbid browsers to guess it or to execute the content.

Source: https://hl7.org/fhir/R4/binary.html#rest
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import replace

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.ports import Answer, Json, Request

_SECURITY_HEADERS = [("X-Content-Type-Options", "nosniff"), ("Content-Security-Policy", "sandbox; default-src 'none'")]
_MAX_TYPE_LENGTH = 200


def binary_resource(request: Request, content_type: str) -> Json:
    """The Binary resource of a raw body; `X-Security-Context` becomes its `securityContext`."""
    if not content_type.isprintable() or not content_type.isascii() or len(content_type) > _MAX_TYPE_LENGTH:
        raise Problem(Category.MEDIA_TYPE, "the content type is too long or not printable ASCII")
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


def binary_content(answer: Answer) -> Answer:
    """The content of a Binary that was read; other responses unchanged."""
    if answer.status != 200 or not answer.content_type.startswith("application/fhir+json"):
        return answer
    binary = loads(answer.body)
    if binary.get("resourceType") != "Binary":
        return answer
    try:
        content = b64decode(binary.get("data", ""), validate=False)
    except ValueError:
        return answer  # not base64: return the resource
    headers = [*answer.headers, *_SECURITY_HEADERS]
    context = binary.get("securityContext", {}).get("reference")
    if context and context.isprintable():
        headers.append(("X-Security-Context", context))
    kind = str(binary.get("contentType", ""))
    is_safe = kind.isprintable() and kind.isascii() and "/" in kind
    return replace(answer, body=content, headers=headers, content_type=kind if is_safe else "application/octet-stream")
