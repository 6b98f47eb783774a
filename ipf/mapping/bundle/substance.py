"""Whether a converted message stores anything of what it is about.

The envelope (MessageHeader, Provenance) and what a message only mentions (the sender's Organization, a Practitioner, a
Location) do not count: a message of which nothing else is stored must not end as delivered, unless its map says so in
its header: `/// empty = "permitted"`.
"""

from __future__ import annotations

from typing import Any

from ipf.mapping.bundle.identity import CREATE_ONCE, RULES
from ipf.mapping.bundle.transaction import Transaction
from ipf.ports.identity import Role
from ipf.ports.queries.entries import Entry

PERMITTED = "permitted"
_ENVELOPE = frozenset(("MessageHeader", "Provenance"))


def has_substance(made: Transaction) -> bool:
    """Whether an entry is about something; also of a result that is no transaction."""
    if made.entries is not None:
        return any(map(_is_about, made.entries))
    bundle = made.bundle()
    return bundle.get("type") != "transaction" or any(map(_writes, bundle.get("entry", ())))


def _is_about(entry: Entry) -> bool:
    if entry.resource_type in _ENVELOPE:
        return False
    is_mentioned = entry.identity is not None and entry.identity.role is Role.AUXILIARY
    return not (is_mentioned and RULES.get(entry.resource_type) == CREATE_ONCE)


def _writes(entry: dict[str, Any]) -> bool:
    """The same of an entry with a request of the map; what it only creates when missing is mentioned."""
    resource_type = entry.get("resource", {}).get("resourceType", "")
    if resource_type in _ENVELOPE:
        return False
    return not (RULES.get(resource_type) == CREATE_ONCE and "ifNoneExist" in entry.get("request", {}))
