"""`manifest.yaml`: identity of a profile, its messages, maps, quirks and audit settings.

Every mistake is a finding with file, JSON pointer and line.  An unknown key is a mistake too, so that a misspelt quirk
is noticed.  Keys and their meaning: docs/reference/vendor-profiles.md.

Source: interface specification "Vendor profile (installable archive)".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ipf.ports import DEFAULT_TENANT
from ipf.ports.messages.sources import PolledSource
from ipf.vendor_profiles.archive import MANIFEST
from ipf.vendor_profiles.findings import Findings
from ipf.vendor_profiles.layout import in_contract_layout
from ipf.vendor_profiles.parser import Parser
from ipf.vendor_profiles.polling import FHIR, NATIVE_TYPES, NotServed, is_time_zone, polled_source
from ipf.vendor_profiles.quirks import KNOWN
from ipf.vendor_profiles.source_fields import (
    LISTENER,
    RESOLVERS,
    SourceField,
    may_be_audited,
    resolver_of,
    source_field,
)
from ipf.vendor_profiles.yaml_tree import Mapping, Node, Scalar

SCHEMA_VERSION = 1
MLLP = "hl7v2-mllp"
POLLING = (FHIR, *NATIVE_TYPES)
LONGEST_MANIFEST = 64 * 1024

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TYPE = re.compile(r"([A-Z][A-Z0-9]{2})[\^_]([A-Z0-9]{3})(?:[\^_][A-Z0-9_]+)?")
_SOURCE_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_REST_FIELD = re.compile(r"(?:query|response-header|body)\..+")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_TENANT = re.compile(r"[\w.-]{1,64}")
_TOP = ("profile", "ingest", "mappings", "quirks", "audit")
_VENDOR = ("name", "productLine", "productVersion", "fhirVersions", "hl7Versions")


@dataclass(frozen=True, slots=True)
class Vendor:
    """Vendor and product of the source system."""

    name: str = ""
    product_line: str = ""
    product_version: str = ""
    fhir_versions: tuple[str, ...] = ()
    hl7_versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ingest:
    """Messages of the profile: those on this port for which `resolver` gives one of `facilities` (empty: any).

    `time_zone`: of their times without an offset; empty: that of the installation.
    """

    id: str
    port: int | None
    resolver: str
    facilities: tuple[str, ...]
    tenant: str | None
    pointer: str
    line: int
    time_zone: str = ""


@dataclass(frozen=True, slots=True)
class Served:
    """Whether messages arrive through an ingest item.  `reason`: why not; empty when they do."""

    id: str
    type: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MappingItem:
    """The map of one message type (`ADT_A04`), and its regression cases.

    `is_source_type`: the type is that of a source that sends no HL7 v2 (`sourceType`), and the cases are JSON.
    """

    message_type: str
    map: str
    tests: tuple[str, ...]
    pointer: str
    line: int
    is_source_type: bool = False

    def named_type(self) -> dict[str, str | None]:
        """Its type as `messageType` or `sourceType`; the other is None."""
        if self.is_source_type:
            return {"messageType": None, "sourceType": self.message_type}
        return {"messageType": self.message_type.replace("_", "^", 1), "sourceType": None}


@dataclass(frozen=True, slots=True)
class Audit:
    """Additions to the audit record of a message: the source system, and named source fields."""

    agent_system: str = ""
    enrichments: tuple[tuple[str, SourceField], ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """A valid manifest."""

    id: str
    version: str
    schema_version: int
    vendor: Vendor
    ingest: tuple[Ingest, ...]
    mappings: tuple[MappingItem, ...]
    quirks: dict[str, str]
    audit: Audit
    served: tuple[Served, ...] = ()
    polled: tuple[PolledSource, ...] = ()

    @property
    def time_zone(self) -> str:
        """The zone of the regression cases: the only one that is stated, or empty."""
        stated = {one.time_zone for one in self.ingest}
        return stated.pop() if len(stated) == 1 else ""


def read_manifest(content: bytes, findings: Findings) -> Manifest | None:
    """Parse a manifest; None when it cannot be read.  It is valid only without errors in `findings`."""
    if len(content) > LONGEST_MANIFEST:
        findings.error(MANIFEST, "", f"has more than {LONGEST_MANIFEST} bytes")
        return None
    from ipf.vendor_profiles.yaml_reader import read_yaml  # on demand: few installations have profiles

    tree = read_yaml(content, MANIFEST, findings)
    if tree is None:
        return None
    root = in_contract_layout(tree, findings)
    reader = Parser(findings)
    top = reader.mapping(root)
    if top is None:
        return None
    reader.known(top, _TOP)
    profile_json = reader.mapping(reader.required(top, "profile"))
    if profile_json is None:
        return None
    reader.known(profile_json, ("id", "version", "schemaVersion", "vendor"))
    id = reader.matching(reader.required(profile_json, "id"), _ID, "letters, digits and . _ -, up to 64")
    ingest, served, polled = _ingest(reader, top, id)
    return Manifest(
        id,
        reader.text(reader.required(profile_json, "version")),
        _schema_version(reader, profile_json),
        _vendor(reader, profile_json),
        ingest,
        _mappings(reader, top),
        _quirks(reader, top),
        _audit(reader, top),
        served,
        polled,
    )


def _schema_version(reader: Parser, profile_json: Mapping) -> int:
    node = reader.required(profile_json, "schemaVersion")
    text = reader.text(node)
    if node is None or not text:
        return SCHEMA_VERSION
    if not text.isdecimal():
        reader.error(node, "must be a whole number")
    elif int(text) != SCHEMA_VERSION:
        reader.error(node, f"this version reads schemaVersion {SCHEMA_VERSION}")
    return int(text) if text.isdecimal() else SCHEMA_VERSION


def _vendor(reader: Parser, profile_json: Mapping) -> Vendor:
    node = reader.mapping(reader.required(profile_json, "vendor"))
    if node is None:
        return Vendor()
    reader.known(node, _VENDOR)
    items = node.items
    return Vendor(
        reader.text(reader.required(node, "name")),
        reader.text(items.get("productLine")),
        reader.text(items.get("productVersion")),
        reader.texts(items.get("fhirVersions")),
        reader.texts(items.get("hl7Versions")),
    )


def _ingest(
    reader: Parser, top: Mapping, profile: str
) -> tuple[tuple[Ingest, ...], tuple[Served, ...], tuple[PolledSource, ...]]:
    found, served, polled = [], [], []
    ids: set[str] = set()
    for node in reader.mappings(top.items.get("ingest")):
        name = reader.matching(reader.required(node, "id"), _ID, "letters, digits and . _ -, up to 64")
        if name in ids:
            reader.error(node.items["id"], f"there are two of this id: {name}")
        ids.add(name)
        kind = reader.required(node, "type")
        text, reason = reader.text(kind), ""
        if text == MLLP:
            found.append(_mllp(reader, node, name))
        elif kind is not None and text in POLLING:
            try:
                polled.append(polled_source(reader, node, profile, name, text))
            except NotServed as missing:
                reason = f"nothing is fetched for this item: {missing}"
                reader.warning(kind, reason)
        elif kind is not None and text:
            reader.error(kind, f"is no type of ingest; known are {', '.join((MLLP, *POLLING))}")
        served.append(Served(name, text, reason))
    return tuple(found), tuple(served), tuple(polled)


def _mllp(reader: Parser, node: Mapping, name: str) -> Ingest:
    reader.known(node, ("id", "type", "port", "facilityResolver", "facilities", "tenant", "timeZone"))
    port, resolver, items = _port(reader, node.items.get("port")), LISTENER, node.items
    expected = items.get("facilityResolver")
    if expected is not None:
        given = resolver_of(reader.text(expected))
        resolver = given or LISTENER
        if given is None:
            reader.error(expected, f"is none of {', '.join(RESOLVERS)}")
    facilities = reader.texts(items.get("facilities"))
    tenant = reader.matching(items.get("tenant"), _TENANT, "letters, digits and . _ -, up to 64") or None
    if port is None and "port" not in items and not facilities:
        reader.error(node, "needs a port, or the facilities whose messages are of this profile")
    if tenant is not None and "port" not in items and resolver != LISTENER:
        reader.error(items["tenant"], "needs a port: a sender's MSH alone may not choose the tenant")
    tenant = None if tenant == DEFAULT_TENANT else tenant
    zone = reader.text(items.get("timeZone"))
    if zone and not is_time_zone(zone):
        reader.error(items["timeZone"], "is no time zone, such as Europe/Berlin")
        zone = ""
    return Ingest(name, port, resolver, facilities, tenant, node.pointer, node.line, zone)


def _port(reader: Parser, node: Node | None) -> int | None:
    text = reader.text(node)
    if node is None or not text:
        return None
    if not text.isdecimal() or not 0 < int(text) < 65536:
        reader.error(node, "must be a port, 1 to 65535")
        return None
    return int(text)


def _mappings(reader: Parser, top: Mapping) -> tuple[MappingItem, ...]:
    found: dict[str, MappingItem] = {}
    for node in reader.mappings(top.items.get("mappings")):
        reader.known(node, ("messageType", "sourceType", "map", "tests"))
        path = reader.required(node, "map")
        kind, name, is_source_type = _mapped_type(reader, node)
        if kind is None or not name:
            continue
        if name in found:
            reader.error(kind, f"there are two maps for {name}")
        tests = reader.texts(node.items.get("tests"))
        if not tests:
            reader.warning(node, "has no regression cases")
        found[name] = MappingItem(name, reader.text(path), tests, node.pointer, node.line, is_source_type)
    return tuple(found.values())


def _mapped_type(reader: Parser, node: Mapping) -> tuple[Node | None, str, bool]:
    """The node of `messageType` or `sourceType`, and the type; empty after an error."""
    source = node.items.get("sourceType")
    if source is not None and "messageType" in node.items:
        reader.error(source, "either messageType or sourceType is stated")
    if source is not None:
        return source, reader.matching(source, _SOURCE_TYPE, "letters, digits and . _ -, up to 64"), True
    kind = reader.required(node, "messageType")
    matched = _TYPE.fullmatch(reader.text(kind))
    if kind is not None and matched is None:
        reader.error(kind, "must be a message type such as ADT^A04")
    return kind, "" if matched is None else f"{matched[1]}_{matched[2]}", False


def _quirks(reader: Parser, top: Mapping) -> dict[str, str]:
    node = reader.mapping(top.items.get("quirks")) if not _is_null(top.items.get("quirks")) else None
    found = {}
    for name, value in node.items.items() if node is not None else ():
        known = KNOWN.get(name)
        if known is None:
            reader.error(value, f"is no quirk; known are {', '.join(KNOWN)}")
            continue
        strategy = reader.text(value)
        if strategy and strategy not in known.strategies:
            reader.error(value, f"is no strategy of {name}; known are {', '.join(known.strategies)}")
        found[name] = strategy
    return found


def _audit(reader: Parser, top: Mapping) -> Audit:
    node = reader.mapping(top.items.get("audit")) if not _is_null(top.items.get("audit")) else None
    if node is None:
        return Audit()
    reader.known(node, ("agent-system", "enrichments"))
    enrichments: dict[str, SourceField] = {}
    for one in reader.mappings(node.items.get("enrichments")):
        if len(one.items) != 1:
            reader.error(one, "must be one name with its source field")
            continue
        ((name, value),) = one.items.items()
        if not _NAME.fullmatch(name) or name in enrichments:
            reader.error(value, "the name is there twice" if name in enrichments else "this name cannot be used")
        text = reader.text(value)
        field = source_field(text)
        if field is None and _REST_FIELD.fullmatch(text):
            reader.warning(value, f"{text} is no field of a message: it is not in the audit record")
        elif field is None:
            reader.error(value, "must be a source field such as PV1-3.4")
        elif not may_be_audited(field):
            reader.error(value, "may not be written into the audit trail: it may say who a person is, or a result")
        else:
            enrichments[name] = field
    return Audit(reader.text(node.items.get("agent-system")), tuple(enrichments.items()))


def _is_null(node: Node | None) -> bool:
    return isinstance(node, Scalar) and node.is_null
