"""HL7 v2 over HTTP: a POST with one message or a batch, answered with its acknowledgement.

What arrives: `application/hl7-v2`, in the character set of MSH-18, else of the `charset` parameter.  What leaves: the
acknowledgement in the same type; 200 for AA and CA, 400 for AR and CR, 500 for AE and CE, 204 when none is due.  Of a
batch: 200 when all are accepted, else 500 when one must be repeated, else 400.  It is durable before it is answered.

Source: https://hapifhir.github.io/hapi-hl7v2/hapi-hl7overhttp/specification.html sections 2.1 to 2.6.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.message import Message as Header
from hashlib import sha256
from hmac import compare_digest

from twisted.web.resource import IResource

from ipf.errors import Category, Problem
from ipf.hl7.answers import answers_of
from ipf.hl7.charset import codec_of
from ipf.ports import Answer, Request
from ipf.wire.http.app import resource as klein_resource

TYPES = ("application/hl7-v2", "x-application/hl7-v2+er7")
PATHS = ("", "hl7")
"""First segments of the paths that are served; the specification leaves the path to the server."""
_PLAIN = "text/plain; charset=utf-8"
_STATUS = {"A": 200, "R": 400, "E": 500}

Receive = Callable[[bytes, str | None, str], Awaitable[bytes | None]]
"""(message, codec or None, address of the sender): the acknowledgement, None = none is due."""


@dataclass(frozen=True, slots=True)
class Hl7Access:
    """Who may send.  `token`: as bearer token, or as password of any user; None = no token is needed."""

    permits: Callable[[str], bool]
    token: str | None = None

    def check(self, request: Request) -> None:
        """Problem FORBIDDEN for another network, UNAUTHORIZED without the token."""
        if not self.permits(request.address):
            raise Problem(Category.FORBIDDEN, "this listener takes messages from other networks only")
        if self.token is not None and not compare_digest(_digest(_password(request)), _digest(self.token)):
            raise Problem(Category.UNAUTHORIZED, "a valid token is required, as Bearer, or as password of Basic")


def resource(receive: Receive, access: Hl7Access) -> IResource:
    """What the listener serves."""

    async def handle(request: Request) -> Answer:
        access.check(request)
        return await take(receive, request)

    return klein_resource(handle, refuse)


async def take(receive: Receive, request: Request) -> Answer:
    """Receive the message of one request.  Problem METHOD, VALUE."""
    if request.method != "POST":
        raise Problem(Category.METHOD, "this path answers POST")
    kind, codec = _type_of(request.headers.get("content-type", ""))
    raw = request.body.strip(b"\x0b\x1c\r\n").replace(b"\r\n", b"\r")
    if not raw:
        raise Problem(Category.VALUE, "the body must be one HL7 v2 message or a batch")
    if b"\r" not in raw:
        raw = raw.replace(b"\n", b"\r")
    acknowledgement = await receive(raw + b"\r", codec, request.address)
    if acknowledgement is None:
        return Answer(204)
    return Answer(status_of(acknowledgement), acknowledgement, content_type=kind)


def status_of(acknowledgement: bytes) -> int:
    """The HTTP status for the codes in MSA-1."""
    codes = {one.code[-1:] for one in answers_of(acknowledgement)}
    return next((_STATUS[code] for code in ("E", "R") if code in codes), _STATUS["A"])


def refuse(problem: Problem) -> Answer:
    """A request that is no message: plain text, and the status of the Problem."""
    status = problem.rendering.http_status
    headers = [("WWW-Authenticate", 'Basic realm="ipf", Bearer')] if status == 401 else []
    headers += [("Allow", "POST")] if status == 405 else []
    return Answer(status, f"{problem}\n".encode(), headers, _PLAIN)


def _type_of(header: str) -> tuple[str, str | None]:
    """The media type, and the codec of its charset parameter.  Problem MEDIA_TYPE."""
    parsed = Header()
    parsed["Content-Type"] = header
    kind = parsed.get_content_type()
    if kind not in TYPES:
        raise Problem(Category.MEDIA_TYPE, f"the Content-Type must be {' or '.join(TYPES)}; XML is not read")
    charset = parsed.get_content_charset()
    if charset is None:
        return kind, None
    codec = codec_of(charset)
    if codec is None:
        raise Problem(Category.MEDIA_TYPE, f"the charset {charset[:40]} is not known")
    return kind, codec


def _password(request: Request) -> str:
    scheme, _, given = request.headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    try:
        return b64decode(given.strip(), validate=True).decode("utf-8").partition(":")[2]
    except (Base64Error, ValueError):
        return ""


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()
