"""Polling items of a manifest: `fhir-r4-polling`, and the REST API of a vendor.

What arrives: an item of `ingest`.  What leaves: a `PolledSource`, or the reason why the item cannot be served: profiles
of other engines name feeds that only those know, and the rest of such a profile is of use.  A value that cannot be read
is an error.  Keys: docs/how-to/poll-a-server.md.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ipf.fhir.model.definitions import definitions
from ipf.ports.base import DEFAULT_TENANT
from ipf.ports.messages.sources import FHIR_REST, NATIVE_API, AuthKind, Feed, Paging, PolledSource, SourceAuth
from ipf.vendor_profiles.parser import Parser
from ipf.vendor_profiles.yaml_tree import Mapping, Node, Scalar, Sequence

FHIR = "fhir-r4-polling"
ATHENA = "athena-native-rest"
NATIVE_TYPES = ("rest-polling", "vendor-rest-polling", "ehr-native-api", ATHENA)

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TENANT = re.compile(r"[\w.-]{1,64}")
_ENVIRONMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = ("IPF_", "PG", "SUBSCRIPTION_SERVICE_")
_KEYS = (
    "id", "type", "baseUrl", "pollIntervalSeconds", "sourceSystem", "tenant", "auth", "headers", "since",
    "overlapSeconds", "requestsPerMinute", "stripExtensions", "identifierBase", "timeFormat", "timeZone",
)  # fmt: skip
_SEARCH_KEYS = ("id", "search")
_RESOURCE_KEYS = (
    "sourceType", "id", "query", "items", "idField", "versionField", "nextField", "offsetParameter", "pageSize",
    "drain", "afterFailure",
)  # fmt: skip
_AUTH_KEYS = (
    "type", "tokenUrl", "clientId", "clientSecretEnv", "tokenEnv", "privateKeyEnv", "keyId", "algorithm", "scope",
)  # fmt: skip
_ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
_SHORTEST_INTERVAL = 1.0
_ATHENA_TIME = "%m/%d/%Y %H:%M:%S"
_ATHENA_REPEAT = "showprocessedstartdatetime={{lastRun}}&showprocessedenddatetime={{now}}"
# Feeds of athenaOne: the end of a source type, with the path, the list in the answer, and the number of an item.
_ATHENA_FEEDS = {
    "changed-patients": ("patients/changed", "patients", "patientid"),
    "changed-appointments": ("appointments/changed", "appointments", "appointmentid"),
    "changed-providers": ("providers/changed", "providers", "providerid"),
}


class NotServed(Exception):
    """The item lacks what polling needs; the text says what."""


def polled_source(reader: Parser, node: Mapping, profile: str, id: str, kind: str) -> PolledSource:
    """The source that an item describes.  NotServed."""
    lists = ("sources",) if kind == FHIR else ("resources",)
    for name, value in node.items.items():
        if name not in (*_KEYS, *lists):
            reader.warning(value, f"{name} is not read in an item of type {kind}")
    items = node.items
    base_url = _base_url(reader, items.get("baseUrl"))
    feeds = _searches(reader, node) if kind == FHIR else _resources(reader, node, kind)
    time_zone, time_format = _times(reader, node, kind)
    return PolledSource(
        profile,
        id,
        FHIR_REST if kind == FHIR else NATIVE_API,
        base_url,
        reader.text(items.get("sourceSystem")) or profile,
        feeds,
        max(_number(reader, items.get("pollIntervalSeconds"), 300.0), _SHORTEST_INTERVAL),
        reader.matching(items.get("tenant"), re.compile(r"[\w.-]{1,64}"), "letters, digits and . _ -")
        or DEFAULT_TENANT,
        _auth(reader, items.get("auth")),
        _headers(reader, items.get("headers")),
        _since(reader, node),
        _number(reader, items.get("overlapSeconds"), 60.0),
        int(_number(reader, items.get("requestsPerMinute"), 0.0)),
        reader.texts(items.get("stripExtensions")),
        reader.text(items.get("identifierBase")) or base_url,
        time_format,
        time_zone,
    )


def _base_url(reader: Parser, node: Node | None) -> str:
    if node is None:
        raise NotServed("it has no baseUrl")
    url = reader.text(node).rstrip("/")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment)
        usable = usable and parts.username is None and parts.port != 0
    except ValueError:
        usable = False
    if url and not usable:
        reader.error(node, "must be an http or https URL without user, query and fragment")
    return url


def _searches(reader: Parser, node: Mapping) -> tuple[Feed, ...]:
    found: dict[str, Feed] = {}
    for one in reader.mappings(node.items.get("sources")):
        if "search" not in one.items:
            raise NotServed("an entry of its sources has no search")
        reader.known(one, _SEARCH_KEYS)
        id = reader.matching(reader.required(one, "id"), _ID, "letters, digits and . _ -, up to 64")
        search = reader.required(one, "search")
        text = reader.text(search).strip("/")
        resource_type = text.partition("?")[0]
        if search is not None and text and not definitions().is_a(resource_type, "Resource"):
            reader.error(search, "must begin with a resource type of R4, as in Observation?_lastUpdated=gt{{lastRun}}")
        elif search is not None and "{{lastRun}}" not in text:
            reader.warning(search, "has no {{lastRun}}: each poll fetches all that matches")
        _placeholders(reader, search)
        if id in found:
            reader.error(one, f"there are two of this id: {id}")
        found[id] = Feed(id, text)
    if not found:
        raise NotServed("it has no sources with a search")
    return tuple(found.values())


def _resources(reader: Parser, node: Mapping, kind: str) -> tuple[Feed, ...]:
    listed = node.items.get("resources")
    found: dict[str, Feed] = {}
    for one in listed.items if isinstance(listed, Sequence) else ():
        feed = _athena(reader, one, kind) if isinstance(one, Scalar) else _resource(reader, one, kind)
        if feed.id in found:
            reader.error(one, f"there are two of this id: {feed.id}")
        found[feed.id] = feed
    if not found:
        raise NotServed("it has no resources with a query")
    return tuple(found.values())


def _athena(reader: Parser, node: Scalar, kind: str) -> Feed:
    """A feed of athenaOne by its name."""
    name = reader.matching(node, _ID, "letters, digits and . _ -, up to 64")
    known = next((value for end, value in _ATHENA_FEEDS.items() if name.endswith(end)), None)
    if kind != ATHENA or known is None:
        raise NotServed(f"of the resource {name} it says no query, items and idField")
    path, items, id_field = known
    return Feed(name, path, name, items, id_field, paging=Paging.FIELD, next_field="next", after_failure=_ATHENA_REPEAT)


def _resource(reader: Parser, node: Node, kind: str) -> Feed:
    held = reader.mapping(node)
    if held is None:
        raise NotServed("a resource is neither a name nor a map")
    reader.known(held, _RESOURCE_KEYS)
    items = held.items
    name = reader.matching(reader.required(held, "sourceType"), _ID, "letters, digits and . _ -, up to 64")
    query, id_field = reader.required(held, "query"), reader.text(reader.required(held, "idField"))
    _placeholders(reader, query)
    _placeholders(reader, items.get("afterFailure"))
    if "versionField" not in items:
        reader.warning(node, "has no versionField: what a later poll hands out again is a new message")
    offset, next_field = reader.text(items.get("offsetParameter")), reader.text(items.get("nextField"))
    drains = reader.text(items.get("drain")).lower() in ("true", "yes")
    if [bool(offset), bool(next_field), drains].count(True) > 1:
        reader.error(node, "states more than one of nextField, offsetParameter and drain")
    paging = Paging.DRAIN if drains else Paging.OFFSET if offset else Paging.FIELD
    size = int(_number(reader, items.get("pageSize"), 0.0))
    if paging is Paging.OFFSET and size < 1:
        reader.error(node, "needs a pageSize with offsetParameter")
    if drains and "afterFailure" in items:
        reader.error(items["afterFailure"], "is not possible with drain: what is handed out again never ends")
    if paging is Paging.FIELD and kind == ATHENA and not next_field:
        next_field = "next"
    return Feed(
        reader.matching(items.get("id"), _ID, "letters, digits and . _ -, up to 64") or name,
        reader.text(query).strip("/"),
        name,
        reader.text(items.get("items")),
        id_field,
        reader.text(items.get("versionField")),
        paging,
        next_field,
        offset,
        size,
        reader.text(items.get("afterFailure")) or (_ATHENA_REPEAT if kind == ATHENA and not drains else ""),
    )


def _placeholders(reader: Parser, node: Node | None) -> None:
    for name in re.findall(r"\{\{(.*?)\}\}", reader.text(node)) if node is not None else ():
        if node is not None and name.strip() not in ("lastRun", "now"):
            reader.error(node, "has a placeholder other than {{lastRun}} and {{now}}")


def _auth(reader: Parser, node: Node | None) -> SourceAuth:
    held = reader.mapping(node)
    if held is None:
        return SourceAuth()
    reader.known(held, _AUTH_KEYS)
    items, kind_node = held.items, reader.required(held, "type")
    try:
        kind = AuthKind(reader.text(kind_node))
    except ValueError:
        if kind_node is not None:
            reader.error(kind_node, f"is none of {', '.join(AuthKind)}")
        return SourceAuth()
    if kind is AuthKind.SECRET and "privateKeyEnv" in items:
        kind = AuthKind.SIGNED
    if kind is AuthKind.NONE:
        return SourceAuth()
    variable = {AuthKind.BEARER: "tokenEnv", AuthKind.SECRET: "clientSecretEnv", AuthKind.SIGNED: "privateKeyEnv"}[kind]
    secret = _variable(reader, reader.required(held, variable))
    if kind is AuthKind.BEARER:
        return SourceAuth(kind, secret=secret)
    algorithm = reader.text(items.get("algorithm")) or "RS384"
    if algorithm not in _ALGORITHMS:
        reader.error(items["algorithm"], f"is none of {', '.join(_ALGORITHMS)}")
    client = reader.required(held, "clientId")
    for name in re.findall(r"\$\{(.*?)\}", reader.text(client)) if client is not None else ():
        _checked_variable(reader, client, name)
    token_url = _base_url(reader, reader.required(held, "tokenUrl") or held)
    return SourceAuth(
        kind, token_url, reader.text(client), secret, reader.text(items.get("scope")), reader.text(items.get("keyId")),
        algorithm,
    )  # fmt: skip


def _variable(reader: Parser, node: Node | None) -> str:
    text = reader.text(node)
    return _checked_variable(reader, node, text) if text else ""


def _checked_variable(reader: Parser, node: Node | None, name: str) -> str:
    """The name of a variable that a profile may read: the secrets of the service itself are not for other hosts."""
    if node is not None and not _ENVIRONMENT.fullmatch(name):
        reader.error(node, "must be the name of an environment variable")
    elif node is not None and name.startswith(_OURS):
        reader.error(node, f"names a variable of the service; a profile may not read {', '.join(_OURS)}*")
    return name


def _headers(reader: Parser, node: Node | None) -> tuple[tuple[str, str], ...]:
    held = reader.mapping(node)
    found = []
    for name, value in held.items.items() if held is not None else ():
        text = reader.text(value)
        if not re.fullmatch(r"[A-Za-z0-9-]+", name) or not text.isprintable() or not text.isascii():
            reader.error(value, "is no header of a request")
        for variable in re.findall(r"\$\{(.*?)\}", text):
            _checked_variable(reader, value, variable)
        found.append((name, text))
    return tuple(found)


def _since(reader: Parser, node: Mapping) -> str:
    given = node.items.get("since")
    if given is None:
        reader.warning(node, "has no since: the first poll fetches everything that matches")
        return ""
    text = reader.text(given)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        reader.error(given, "must be a time as in 2026-11-01T00:00:00Z")
        return ""
    return (moment if moment.tzinfo is not None else moment.astimezone()).isoformat()


def is_time_zone(name: str) -> bool:
    """Whether this host knows a time zone."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _times(reader: Parser, node: Mapping, kind: str) -> tuple[str, str]:
    items, is_athena = node.items, kind == ATHENA
    zone = reader.text(items.get("timeZone")) or ("America/New_York" if is_athena else "")
    if zone and not is_time_zone(zone):
        reader.error(items["timeZone"], "is no time zone, such as Europe/Berlin")
    return zone, reader.text(items.get("timeFormat")) or (_ATHENA_TIME if is_athena else "")


def _number(reader: Parser, node: Node | None, default: float) -> float:
    text = reader.text(node)
    if node is None or not text:
        return default
    try:
        value = float(text)
        timedelta(seconds=value)
    except (ValueError, OverflowError):
        value = -1.0
    if not 0 <= value < float("inf"):
        reader.error(node, "must be a number, 0 or more")
        return default
    return value
