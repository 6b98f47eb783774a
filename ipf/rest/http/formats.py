"""Content negotiation: JSON, XML, or the raw content of a Binary.

`_format` overrides `Accept`.  In an Accept header the highest weight wins, then JSON; a browser, which accepts HTML,
gets JSON.  FHIR versions other than R4 (`fhirVersion=5.0`) are not supported.

Source: https://hl7.org/fhir/R4/http.html#mime-type, #version-parameter; RFC 9110 section 12.5.1
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache

from ipf.errors import Category, Problem
from ipf.ports import Request


class Format(StrEnum):
    """A response format; the value is the content type."""

    JSON = "application/fhir+json;charset=utf-8"
    XML = "application/fhir+xml;charset=utf-8"
    RAW = "application/octet-stream"


_JSON = dict.fromkeys(("application/fhir+json", "application/json", "text/json", "application/json+fhir", "json"))
_XML = dict.fromkeys(("application/fhir+xml", "application/xml", "text/xml", "application/xml+fhir", "xml"))
_TYPES: dict[str, Format] = {**dict.fromkeys(_JSON, Format.JSON), **dict.fromkeys(_XML, Format.XML)}
_ANY = frozenset({"*/*", "application/*"})
_VERSIONS = frozenset({"4.0", "4.0.1"})
_MOST_TYPES = 50


def media_type(header: str) -> str:
    """A media type without its parameters, in lower case."""
    return header.partition(";")[0].strip().lower()


def wanted_format(request: Request) -> Format:
    """The response format.  Problem NOT_ACCEPTABLE when the client accepts none of the supported formats.

    RAW is for reads of Binary without a FHIR format, and for files of exports and other jobs.
    """
    first = request.path[0] if request.path else ""
    raw = first == "Binary" and len(request.path) in (2, 4) and request.method in ("GET", "HEAD")
    raw = raw or first in ("$export-file", "$job-file")
    for name, value in request.query:
        if name == "_format":
            return _named(value)
    return _accepted(request.headers.get("accept", "*/*"), raw)


@lru_cache(maxsize=256)
def _named(value: str) -> Format:
    """The format in `_format`; an unescaped plus sign in the URL arrives as a space."""
    known = _known(value.strip().replace("/fhir ", "/fhir+"))
    if known is None:
        raise _refused()
    return known


@lru_cache(maxsize=256)
def _accepted(header: str, raw: bool) -> Format:
    if not header.strip():
        header = "*/*"
    ranked = sorted(_weighted(header), key=lambda one: -one[0])
    found = [(weight, known) for weight, text in ranked if (known := _known(text)) is not None and weight > 0]
    names = {media_type(text) for weight, text in ranked if weight > 0}
    if raw and (not found or "text/html" in names):
        return Format.RAW
    if found and not ("text/html" in names and names & _ANY):
        best = [known for weight, known in found if weight == found[0][0]]
        return Format.JSON if Format.JSON in best else best[0]
    if names & _ANY:
        return Format.JSON
    raise _refused()


def _weighted(header: str) -> Iterator[tuple[float, str]]:
    for text in header.split(",")[:_MOST_TYPES]:
        weight = 1.0
        for parameter in text.split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "q":
                weight = _number(value)
        yield weight, text


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if 0 <= number <= 1 else 0.0


def sent_format(header: str) -> Format:
    """The format of a body with this content type.  Problem MEDIA_TYPE when it is not a FHIR type."""
    known = _known(header)
    if known is None:
        text = f"send application/fhir+json or application/fhir+xml, not {media_type(header)[:100]}"
        raise Problem(Category.MEDIA_TYPE, text)
    return known


def is_fhir(header: str) -> bool:
    """Whether a content type is a FHIR type."""
    return _known(header) is not None


@lru_cache(maxsize=256)
def _known(text: str) -> Format | None:
    """The format of a media type with parameters; None for other types and other FHIR versions."""
    for parameter in text.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "fhirversion" and value.strip().strip('"') not in _VERSIONS:
            return None
    return _TYPES.get(media_type(text))


def _refused() -> Problem:
    return Problem(
        Category.NOT_ACCEPTABLE, "supported formats: application/fhir+json and application/fhir+xml, version R4"
    )
