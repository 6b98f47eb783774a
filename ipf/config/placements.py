"""The placements of `IPF_PLACEMENTS_FILE`: a TOML file with a table `[[placement]]` for each further pair of databases.

What arrives: the file, the environment, and the settings.  What leaves: the placements.  Problem VALUE names file,
placement, key and rule, and never shows a URL.  The file is read at start and at SIGHUP.  Keys: docs/placement.md.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ipf.config.parsers import postgres_url
from ipf.config.settings import Settings
from ipf.errors import Category, Problem

DEFAULT = "default"
"""The name of the placement of `IPF_DB_URL` and `IPF_FHIR_DB_URL`, which has every tenant that no other names."""
OTHERS = ""
"""Stands for the tenants that no placement names."""
OPEN, FROZEN, CLOSED = "open", "frozen", "closed"
STATES = (OPEN, FROZEN, CLOSED)
MOST = 100
"""Placements of one file: each takes connections, a set of maps and its own converter processes."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")  # as `security.tenancy`
_URLS = ("db_url", "fhir_db_url")
_SOURCES = ("", "_env", "_file")
_KEYS = frozenset(("name", "tenants", "state", *(url + source for url in _URLS for source in _SOURCES)))

Row = Mapping[str, Any]
Parts = Callable[[str], Mapping[str, str]]
"""The parameters of a connection string.  ValueError when libpq cannot read it."""


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """A pair of databases and the tenants whose data they hold.

    `state`: `open`; `frozen`: nothing is written, reads go on; `closed`: nothing is served.
    """

    name: str
    tenants: tuple[str, ...]
    db_url: str = field(repr=False)
    fhir_db_url: str = field(repr=False)
    state: str = OPEN


@dataclass(frozen=True, slots=True)
class PairSettings(Settings):
    """The settings of a process, with the pair of databases of one placement.  `placement`: its name."""

    placement: str = ""
    placed_tenants: tuple[str, ...] = ()


def pair_settings(settings: Settings, one: PlacementSettings) -> PairSettings:
    """The settings with which the parts of one placement are built.

    What listens belongs to the process; files of the process that a pair has, too, are in a folder of its own.
    """
    shared = {row.name: getattr(settings, row.name) for row in fields(Settings)}
    own: dict[str, Any] = {"db_url": one.db_url, "fhir_db_url": one.fhir_db_url}
    if one.name != DEFAULT:
        if "fhir_read_db_url" in shared:  # a standby of the default pair
            own["fhir_read_db_url"] = None
        own["data_dir"] = str(Path(settings.data_dir, "placements", one.name))
    return PairSettings(**(shared | own), placement=one.name, placed_tenants=one.tenants)


def placements(settings: Settings, environ: Mapping[str, str], parts: Parts) -> tuple[PlacementSettings, ...]:
    """The placements of the settings, the default first, checked against them; none without a file.  Problem VALUE."""
    if settings.placements_file is None:
        return ()
    path = Path(settings.placements_file)
    content = _content(path)
    found = _further(path, content, environ, parts)
    reason = next(_conflicts(settings, found, parts), None)
    if reason is not None:
        raise Problem(Category.VALUE, reason, str(path))
    state = _default_state(path, content)
    return PlacementSettings(DEFAULT, (OTHERS,), settings.db_url or "", settings.fhir_db_url or "", state), *found


def _content(path: Path) -> Row:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Problem(Category.VALUE, f"cannot be read: {error.strerror}", str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Problem(Category.VALUE, f"is no TOML: {error}", str(path)) from error
    if not set(content) <= {"placement", DEFAULT}:
        raise Problem(Category.VALUE, "must have tables [[placement]] and [default], and nothing else", str(path))
    return content


def _default_state(path: Path, content: Row) -> str:
    row = content.get(DEFAULT, {})
    if not isinstance(row, dict) or not set(row) <= {"state"}:
        raise Problem(Category.VALUE, "has the one key state", f"{path}: default")
    return _state(row, f"{path}: default")


def _state(row: Row, place: str) -> str:
    state = row.get("state", OPEN)
    if state not in STATES:
        raise Problem(Category.VALUE, f"state must be one of {', '.join(STATES)}", place)
    return str(state)


def _further(path: Path, content: Row, environ: Mapping[str, str], parts: Parts) -> tuple[PlacementSettings, ...]:
    rows = content.get("placement", [])
    if not isinstance(rows, list):
        raise Problem(Category.VALUE, "placement must be tables [[placement]]", str(path))
    if len(rows) > MOST:
        raise Problem(Category.VALUE, f"has {len(rows)} placements; at most {MOST} are served", str(path))
    found = tuple(_placement(row, f"{path}: placement {number}", environ, parts) for number, row in enumerate(rows, 1))
    for name in _twice(one.name for one in found):
        raise Problem(Category.VALUE, f"there are two placements of the name {name}", str(path))
    for tenant in _twice(tenant for one in found for tenant in one.tenants):
        raise Problem(Category.VALUE, f"the tenant {tenant} is in two placements", str(path))
    return found


def _placement(row: Any, place: str, environ: Mapping[str, str], parts: Parts) -> PlacementSettings:
    if not isinstance(row, dict):
        raise Problem(Category.VALUE, "must be a table", place)
    unknown = sorted(set(row) - _KEYS)
    if unknown:
        raise Problem(Category.VALUE, f"has the unknown key {unknown[0]}; known are {', '.join(sorted(_KEYS))}", place)
    name = row.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == DEFAULT:
        text = f"name must be small letters, digits and -, up to 40, and not {DEFAULT}"
        raise Problem(Category.VALUE, text, place)
    place = f"{place} ({name})"
    state = _state(row, place)
    db_url, fhir_db_url = (_url(row, key, place, environ, parts) for key in _URLS)
    return PlacementSettings(name, _tenants(row, place), db_url, fhir_db_url, state)


def _tenants(row: Row, place: str) -> tuple[str, ...]:
    tenants = row.get("tenants")
    if not isinstance(tenants, list) or not tenants:
        raise Problem(Category.VALUE, "tenants must be a list of one tenant or more", place)
    for tenant in tenants:
        if not isinstance(tenant, str) or not _TENANT.fullmatch(tenant):
            raise Problem(Category.VALUE, f"tenants: {str(tenant)[:60]!r} is no name of a tenant", place)
        if tenant == DEFAULT:
            raise Problem(Category.VALUE, f"tenants: {DEFAULT} stays in the databases of IPF_DB_URL", place)
    return tuple(tenants)


def _url(row: Row, key: str, place: str, environ: Mapping[str, str], parts: Parts) -> str:
    """A URL: written in the file without a password, or from an environment variable, or from a file."""
    given = [key + source for source in _SOURCES if key + source in row]
    if len(given) != 1:
        raise Problem(Category.VALUE, f"needs one of {', '.join(key + source for source in _SOURCES)}", place)
    named = given[0]
    value = row[named]
    if not isinstance(value, str) or not value.strip():
        raise Problem(Category.VALUE, f"{named} must be a text", place)
    if named.endswith("_env"):
        value = _of_environment(value, named, place, environ)
    elif named.endswith("_file"):
        value = _of_file(Path(value), named, place)
    try:
        url = postgres_url(value) or ""
        has_password = "password" in parts(url)
    except ValueError:
        text = f"{named}: expected postgresql://user@host:5432/database (the value is not shown)"
        raise Problem(Category.VALUE, text, place) from None
    if named == key and has_password:
        text = f"{named} has a password: name an environment variable ({key}_env) or a file ({key}_file) that has it"
        raise Problem(Category.VALUE, text, place)
    return url


def _of_environment(variable: str, key: str, place: str, environ: Mapping[str, str]) -> str:
    value = environ.get(variable, "")
    if not value.strip():
        raise Problem(Category.VALUE, f"{key}: the environment variable {variable} is not set", place)
    return value


def _of_file(path: Path, key: str, place: str) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise Problem(Category.VALUE, f"{key}: {path}: {error.strerror}", place) from error
    except UnicodeDecodeError as error:
        raise Problem(Category.VALUE, f"{key}: {path}: is not UTF-8", place) from error


def _conflicts(settings: Settings, found: tuple[PlacementSettings, ...], parts: Parts) -> Iterator[str]:
    """Why these placements do not fit the settings."""
    if settings.multitenancy != "enabled":
        yield "placements need SUBSCRIPTION_SERVICE_MULTITENANCY=enabled: without it all data are of one tenant"
    if settings.db_url is None or settings.fhir_db_url is None:
        yield "placements need IPF_DB_URL and IPF_FHIR_DB_URL: the embedded PostgreSQL serves one pair alone"
    if settings.fhir_url is not None:
        yield "placements cannot be used with IPF_FHIR_URL: converted messages of all tenants go to that server"
    for one in found:
        for tenant in one.tenants:
            if settings.tenants and tenant not in settings.tenants:
                yield f"placement {one.name}: the tenant {tenant} is not among IPF_TENANTS"
    urls = [("IPF_DB_URL", settings.db_url), ("IPF_FHIR_DB_URL", settings.fhir_db_url)]
    for one in found:
        urls += [(f"{one.name} (db_url)", one.db_url), (f"{one.name} (fhir_db_url)", one.fhir_db_url)]
    seen: dict[object, str] = {}
    for name, url in urls:
        if url is not None and (first := seen.setdefault(_database(parts(url)), name)) != name:
            yield f"{first} and {name} are the same database"


def _database(parts: Mapping[str, str]) -> object:
    """What tells two databases apart: hosts, ports and the name."""
    host, port = parts.get("host", ""), parts.get("port") or "5432"
    return parts.get("hostaddr") or host.lower(), port, parts.get("dbname") or parts.get("user", "")


def _twice(values: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            yield value
        seen.add(value)
