"""What arrived, as values: the parts of a `ports.Request`, however its bytes were read.

Source: RFC 9110; interface specification "Correlation".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from ipf.errors import Category, Problem

MOST_PARAMETERS = 500
_HOST = re.compile(r"[A-Za-z0-9.\-_\[\]:]{1,255}")

Address = Any
"""Twisted's, of either end of a connection."""


def fields_of(headers: Iterable[tuple[bytes, Sequence[bytes]]]) -> dict[str, str]:
    """Headers by their names in lower case; repeated ones joined, as RFC 9110 section 5.3 has it."""
    return {
        _lower(name): values[0].decode("latin-1") if len(values) == 1 else b", ".join(values).decode("latin-1")
        for name, values in headers
    }


@lru_cache(maxsize=256)
def _lower(name: bytes) -> str:
    return name.decode("latin-1").lower()


def pairs_of(query: str) -> tuple[tuple[str, str], ...]:
    """The parameters of a URL, decoded, in order.  Problem VALUE when they cannot be read or are too many."""
    if not query:
        return ()
    try:
        if "%" in query or "+" in query:
            return tuple(parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS))
    except ValueError as refused:
        raise unreadable() from refused
    parts = query.split("&")
    if len(parts) > MOST_PARAMETERS:
        raise unreadable()
    return tuple([(name, value) for name, _, value in [part.partition("=") for part in parts if part]])


def unreadable() -> Problem:
    """What is said of a URL that cannot be read."""
    return Problem(Category.VALUE, "the URL cannot be read")


def host_of(address: Address) -> str:
    """The client's address as text; "" when it has none."""
    return getattr(address, "host", None) or ""


def base_url(host: str, here: Address, is_secure: bool, prefix: Sequence[bytes]) -> str:
    """The address under which the caller knows what stands below `prefix`; `here`: ours, where `host` is none."""
    if not _HOST.fullmatch(host):
        host = f"{getattr(here, 'host', 'localhost')}:{getattr(here, 'port', 80)}"
    return _joined(is_secure, host, tuple(prefix))


@lru_cache(maxsize=64)
def _joined(is_secure: bool, host: str, prefix: tuple[bytes, ...]) -> str:
    """The same for all requests of a client."""
    path = "/".join(part.decode("latin-1") for part in prefix)
    return f"{'https' if is_secure else 'http'}://{host}/{path}".rstrip("/")
