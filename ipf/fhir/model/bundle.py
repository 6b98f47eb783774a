"""Bundles in responses, assembled from the stored bytes without parsing them.

Every function takes versions and returns the Bundle as JSON text in UTF-8.

Source: https://hl7.org/fhir/R4/bundle.html, https://hl7.org/fhir/R4/http.html#search, #history, #transaction-response
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache

from ipf.fhir.model.json import dumps
from ipf.ports import Json, Version


def instant(when: datetime) -> str:
    """A FHIR instant in UTC with milliseconds, such as `2026-01-31T08:05:09.120Z`."""
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def http_date(when: datetime) -> str:
    """The form of a `Last-Modified` header, such as `Sat, 31 Jan 2026 08:05:09 GMT`."""
    return format_datetime(when.astimezone(UTC), usegmt=True)


def etag(version: Version) -> str:
    """The weak entity tag of a version, such as `W/"3"`."""
    return f'W/"{version.version_id}"'


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a Bundle: `relation` is self, next or previous."""

    relation: str
    url: str


@dataclass(frozen=True, slots=True)
class ResponseEntry:
    """One entry of a transaction or batch response; `resource` and `outcome` are JSON text, empty for none."""

    status: str
    location: str | None = None
    etag: str | None = None
    last_modified: datetime | None = None
    resource: bytes = b""
    outcome: bytes = b""
    full_url: str | None = None


def searchset(
    matches: Sequence[Version],
    total: int | None,
    base_url: str,
    links: Sequence[Link],
    *,
    included: Sequence[Version] = (),
    outcome: bytes = b"",
    notes: Mapping[int, bytes] | None = None,
) -> bytes:
    """A page of a searchset: matches, included resources, and an OperationOutcome about the search (JSON text).

    `notes`: by the rid of a match, further members of its `search` (JSON text after a comma).
    """
    base, of_match = _opened(base_url), notes or {}
    entries = [_found(base, one, b"match", of_match.get(one.rid, b"")) for one in matches]
    entries += [_found(base, one, b"include") for one in included]
    if outcome:
        entries.append(b'{"resource":%s,"search":{"mode":"outcome"}}' % outcome)
    return _bundle("searchset", entries, total, links)


def _found(base: bytes, version: Version, mode: bytes, note: bytes = b"") -> bytes:
    where = f"/{version.resource_type}/{version.id}".encode()
    return b'{"fullUrl":%b%b","resource":%b,"search":{"mode":"%b"%b}}' % (base, where, version.body, mode, note)


def history(versions: Sequence[Version], total: int | None, base_url: str, links: Sequence[Link]) -> bytes:
    """Versions as a history Bundle, newest first as given; deletions have no resource."""
    return _bundle("history", [_history_entry(base_url, version) for version in versions], total, links)


def response(kind: str, entries: Sequence[ResponseEntry]) -> bytes:
    """The response Bundle; `kind` is `transaction-response` or `batch-response`."""
    return _bundle(kind, [_response_entry(entry) for entry in entries], None, ())


def _bundle(kind: str, entries: Sequence[bytes], total: int | None, links: Sequence[Link]) -> bytes:
    parts = [b'{"resourceType":"Bundle","type":"%s"' % kind.encode()]
    if total is not None:
        parts.append(b',"total":%d' % total)
    if links:
        parts.append(b',"link":' + dumps([{"relation": link.relation, "url": link.url} for link in links]))
    if entries:
        parts.append(b',"entry":[' + b",".join(entries) + b"]")
    parts.append(b"}")
    return b"".join(parts)


def _full_url(base_url: str, version: Version) -> bytes:
    """The full urls of versions.  Types and ids are ASCII, so only the base needs JSON escaping."""
    return b'%s/%s/%s"' % (_opened(base_url), version.resource_type.encode(), version.id.encode())


@lru_cache(maxsize=16)
def _opened(base_url: str) -> bytes:
    return dumps(base_url)[:-1]


def _history_entry(base_url: str, version: Version) -> bytes:
    created = version.method == "POST"
    url = version.resource_type if created else f"{version.resource_type}/{version.id}"
    status = "204" if version.deleted else "201" if version.version_id == 1 else "200"
    request = {"method": version.method, "url": url}
    answer = {"status": status, "etag": etag(version), "lastModified": instant(version.last_updated)}
    body = b"" if version.deleted else b',"resource":' + version.body
    return b'{"fullUrl":%s%s,"request":%s,"response":%s}' % (
        _full_url(base_url, version),
        body,
        dumps(request),
        dumps(answer),
    )


def _response_entry(entry: ResponseEntry) -> bytes:
    answer: Json = {"status": entry.status}
    if entry.location:
        answer["location"] = entry.location
    if entry.etag:
        answer["etag"] = entry.etag
    if entry.last_modified:
        answer["lastModified"] = instant(entry.last_modified)
    text = dumps(answer)
    if entry.outcome:
        text = text[:-1] + b',"outcome":' + entry.outcome + b"}"
    parts = [b'"response":' + text]
    if entry.resource:
        parts.insert(0, b'"resource":' + entry.resource)
    if entry.full_url:
        parts.insert(0, b'"fullUrl":' + dumps(entry.full_url))
    return b"{" + b",".join(parts) + b"}"
