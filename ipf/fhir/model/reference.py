"""Parsing of reference texts: `Patient/1`, `http://other/fhir/Patient/1/_history/2`, `urn:uuid:...`, `#inner`.

A reference below the base URL of this server means the same resource as the relative one.  The base URLs are that of
`IPF_BASE_URL`, which the process installs at its start, and the one at which a request arrived.

Source: https://hl7.org/fhir/R4/references.html#literal, https://hl7.org/fhir/R4/http.html#root (the base URL)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ipf.fhir.model.definitions import definitions

_RELATIVE = re.compile(r"[A-Za-z]+/[A-Za-z0-9.\-]{1,64}(?:/_history/[A-Za-z0-9.\-]{1,64})?").fullmatch
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_installed: list[str] = []


@dataclass(frozen=True, slots=True)
class Literal:
    """A reference by type and id.  `base`: the base url (`http://other/fhir`), "" when it is relative."""

    base: str
    resource_type: str
    id: str
    version: str | None = None

    def __str__(self) -> str:
        """The reference without its version."""
        local = f"{self.resource_type}/{self.id}"
        return f"{self.base}/{local}" if self.base else local


def parse_reference(text: str) -> Literal | None:
    """The parsed reference; None for a URN, a contained resource, a search, or any other URL."""
    parts = text.split("/")
    version = None
    if len(parts) > 3 and parts[-2] == "_history":
        version = parts[-1]
        del parts[-2:]
    if len(parts) < 2 or not parts[-1] or parts[-2] not in definitions().resource_types or "?" in parts[-1]:
        return None
    base = "/".join(parts[:-2])
    if len(parts) > 2 and "://" not in base:
        return None
    return Literal(base, parts[-2], parts[-1], version)


def install_base_url(url: str | None) -> None:
    """The base URL of this server, for the whole process; None for none."""
    _installed[:] = [] if url is None else [url.rstrip("/")]


def relative_form(text: str, base_url: str = "") -> str:
    """`Patient/1` for the URL of a resource of this server; any other text as it is.  `base_url`: see `below_base`."""
    below = below_base(text, base_url)
    is_relative = _RELATIVE(below) and below.partition("/")[0] in definitions().resource_types
    return below if is_relative else text


def below_base(url: str, base_url: str = "") -> str:
    """What follows the base URL of this server; any other text as it is.

    `base_url`: where a request reached this server; that of the process counts as well.  Upper and lower case of the
    host, its default port, and http or https make no difference, because TLS may end at a proxy.
    """
    if url.startswith("http"):
        for base in (base_url, *_installed):
            parts = url.split("/", base.count("/") + 1)
            below = parts.pop()
            if base and _comparable("/".join(parts)) == _comparable(base):
                return below
    return url


def local_reference(text: str, base_url: str = "") -> Literal | None:
    """The resource of this server that a text refers to, relative or by URL; None: it refers to no such one."""
    literal = parse_reference(relative_form(text, base_url))
    return literal if literal is not None and not literal.base else None


@lru_cache(maxsize=256)
def _comparable(base: str) -> str:
    """Equal for base URLs of one server."""
    scheme, _, rest = base.partition("://")
    host, slash, path = rest.partition("/")
    return host.lower().removesuffix(_DEFAULT_PORTS.get(scheme, " ")) + slash + path


def indexed_form(text: str) -> str | None:
    """The index form of a reference: relative if it is one to this server, without version; None for `#inner`."""
    if text.startswith("#") or not text:
        return None
    text = relative_form(text)
    if "/_history/" in text:
        literal = parse_reference(text)
        return text if literal is None else str(literal)
    return text


def referenced_type(reference: dict[str, object]) -> str | None:
    """The target type of a Reference (parsed JSON): from its text, else from its `type` element."""
    text = reference.get("reference")
    if type(text) is str and text[:1] != "#":
        literal = parse_reference(text)
        if literal is not None:
            return literal.resource_type
    declared = reference.get("type")
    return declared if type(declared) is str else None
