"""Whether a converted message stores anything of what it is about.

The envelope (MessageHeader, Provenance) and what a message only mentions (the sender's Organization, a Practitioner, a
Location) do not count: a message of which nothing else is stored must not end as delivered, unless its map says so in
its header: `/// empty = "permitted"`.

The maps of the project store more than a person and a visit of a message of results, orders, documents and others.
"""

from __future__ import annotations

from typing import Any

from ipf.errors import Category, Problem
from ipf.mapping.bundle.identity import CREATE_ONCE, RULES
from ipf.mapping.bundle.transaction import Transaction
from ipf.mapping.language.model import StructureMap
from ipf.ports import Json
from ipf.ports.identity import Role
from ipf.ports.queries.entries import Entry

PERMITTED = "permitted"
_ENVELOPE = frozenset(("MessageHeader", "Provenance"))
_OF_EVENTS = frozenset(
    ("ORU", "OUL", "ORM", "OMG", "OML", "OMP", "RDE", "RDS", "RGV", "RAS", "MDM", "SIU", "DFT", "PPR", "REF")
)
"""Messages that bring more than a person and a visit (MSH-9.1)."""
_PERSONS = frozenset(("Patient", "Encounter", "RelatedPerson", "Coverage", "Account", "CareTeam"))
_OURS = "urn:ipf:map:"


def check_substance(made: Transaction, message_code: str, content: StructureMap) -> None:
    """Problem REQUIRED: `content`, a map, stores nothing of what the message is about, and does not say that it may."""
    if not _has_substance(made, message_code, content.url) and content.meta("empty") != PERMITTED:
        text = f"{content.url} stores nothing of what the message is about"
        raise Problem(Category.REQUIRED, f'{text}; a map that may says /// empty = "{PERMITTED}"')


def check_bundle(bundle: Json) -> None:
    """The same of the Bundle of a mapping service, whose maps are not known here.  Problem MAPPING: it has no list of
    entries.
    """
    entries = bundle.get("entry", [])
    if type(entries) is not list:
        raise Problem(Category.MAPPING, "the Bundle of the mapping service has an entry that is no list")
    if any(not _is_entry(one) or _writes(one) for one in entries):
        return  # what is no entry is refused where entries are read
    raise Problem(Category.REQUIRED, "the Bundle of the mapping service stores nothing of what the message is about")


def _is_entry(entry: Any) -> bool:
    members = (entry.get(name, {}) for name in ("resource", "request")) if type(entry) is dict else (None,)
    return all(type(one) is dict for one in members)


def _has_substance(made: Transaction, message_code: str, canonical: str) -> bool:
    """Whether an entry is about something; also of a result that is no transaction."""
    if made.entries is not None:
        is_person_enough = message_code not in _OF_EVENTS or not canonical.startswith(_OURS)
        return any(_is_about(one) and (is_person_enough or one.resource_type not in _PERSONS) for one in made.entries)
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
