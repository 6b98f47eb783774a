"""`ipfctl doctor`: everything that keeps a service from starting or working, looked at from its own host.

Each check is a function that gives findings; one that cannot be made because of an earlier failure says so.  Nothing
is changed: databases are only asked, ports are tried and given back.  What only a check needs is imported there: other
commands shall not wait for it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import treq
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory

from ipf.cli.api import Api, Refused
from ipf.cli.output import Output
from ipf.config.environment import InvalidSetting, read
from ipf.config.paths import folder
from ipf.config.settings import Settings
from ipf.errors import Problem
from ipf.fhir.model.json import loads

if TYPE_CHECKING:
    from ipf.mapping.library.maps import Library

Register = Callable[[Callable[..., Any]], Callable[..., None]]

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"
_LOW_SPACE = 5 * 2**30  # bytes
_CLOCK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check says; `result` is ok, warning, failed or skipped."""

    check: str
    result: str
    text: str


@dataclass(frozen=True, slots=True)
class Examined:
    """What checks work on.  `running`: the service answers, so its ports are its own."""

    settings: Settings
    running: bool
    reactor: Any


Check = Callable[[Examined], Awaitable[list[Finding]]]


def register(cli: click.Group, command: Register) -> None:
    """Put the command of this module under `cli`."""
    option = click.option(
        "--env-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The service's environment file, such as /etc/ipf.env; else this shell's environment.",
    )
    cli.command("doctor")(option(command(doctor)))


async def doctor(api: Api, output: Output, env_file: Path | None) -> bool:
    """Check settings, databases, ports, identity provider, maps, packages, disk and clock on the service's own host."""
    findings = [await _service(api)]
    running = findings[0].result == OK
    environ = dict(os.environ) | (dict(_env_file(env_file)) if env_file is not None else {})
    settings, said = _settings(environ)
    findings += said
    if settings is not None:
        examined = Examined(settings, running, api.reactor)
        for check in CHECKS:
            findings += await check(examined)
    healthy = all(finding.result != FAILED for finding in findings)
    if not output.data([{"check": one.check, "result": one.result, "text": one.text} for one in findings]):
        output.table(("check", "result", ""), [(one.check, one.result, one.text) for one in findings])
    return healthy


async def _service(api: Api) -> Finding:
    try:
        code, health = await api.reach("/actuator/health")
    except Refused as refused:
        return Finding("service", SKIPPED, f"{refused}; it does not seem to run, so its ports must be free")
    if not isinstance(health, dict) or "status" not in health:
        return Finding("service", FAILED, f"{api.base} answers HTTP {code}, but it is not ipf")
    down = [name for name, part in health.get("components", {}).items() if part.get("status") != "UP"]
    text = f"{api.base} says {health['status']}" + (f"; not UP: {', '.join(down)}" if down else "")
    return Finding("service", OK if health["status"] == "UP" else FAILED, text)


def _settings(environ: Mapping[str, str]) -> tuple[Settings | None, list[Finding]]:
    try:
        settings, warnings = read(environ)
    except InvalidSetting as wrong:
        return None, [Finding("settings", FAILED, f"{wrong}; the other checks need them")]
    found = [Finding("settings", WARNING, warning) for warning in warnings]
    return settings, found or [Finding("settings", OK, "every variable can be read")]


def _env_file(path: Path) -> Iterator[tuple[str, str]]:
    """Names and values of a systemd environment file."""
    for line in path.read_text().splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name and not name.startswith(("#", ";")):
            yield name.strip(), value.strip().strip("\"'")


async def _databases(examined: Examined) -> list[Finding]:
    settings = examined.settings
    if settings.db_url is None or settings.fhir_db_url is None:
        return _embedded(Path(settings.data_dir))
    divided = settings.multitenancy == "enabled" and settings.row_security
    names = ("inbox database", settings.db_url, False), ("FHIR database", settings.fhir_db_url, divided)
    return [finding for name, url, more in names for finding in await _database(name, url, examined.reactor, more)]


async def _database(name: str, url: str, reactor: Any, divided: bool) -> list[Finding]:
    from ipf.store.postgres.connection import connect
    from ipf.store.postgres.row_security import obstacle

    ask = "SELECT current_setting('server_version'), current_setting('fsync'), now(), pg_is_in_recovery()"
    try:
        connection = await connect(url, reactor=reactor)
    except Problem as problem:
        return [Finding(name, FAILED, problem.text)]
    try:
        ((version, fsync, clock, standby),) = await connection.run(ask)
        reason = await obstacle(connection) if divided else ""
        refused = [Finding("row-level security", FAILED, reason)] if reason else []
    except Problem as problem:
        return [Finding(name, FAILED, problem.text)]
    finally:
        connection.close()
    found = [Finding(name, OK, f"PostgreSQL {version}"), *refused]
    if fsync != "on":
        found.append(Finding(name, FAILED, "fsync is off: acknowledged messages would be lost in a crash"))
    if standby:
        found.append(Finding(name, FAILED, "is a read-only standby"))
    return [*found, _clock(f"clock of the {name}", clock)]


def _clock(name: str, theirs: datetime) -> Finding:
    apart = abs((datetime.now(UTC) - theirs).total_seconds())
    return Finding(name, OK if apart < _CLOCK_SECONDS else WARNING, f"{apart:.1f} s from this host's")


def _embedded(data: Path) -> list[Finding]:
    existing = next(path for path in (data.absolute(), *data.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return [Finding("data directory", FAILED, f"{existing} cannot be written")]
    free = shutil.disk_usage(existing).free
    text = f"embedded PostgreSQL under {data}, {free / 2**30:.1f} GiB free"
    return [Finding("data directory", OK if free > _LOW_SPACE else WARNING, text)]


async def _ports(examined: Examined) -> list[Finding]:
    settings = examined.settings
    listeners = [("HTTP", settings.http_listen), *((f"MLLP {one.name}", one.endpoint) for one in settings.mllp_listen)]
    if examined.running:
        return [Finding("ports", OK, "held by the running service")]
    return [await _port(name, endpoint, examined.reactor) for name, endpoint in listeners]


async def _port(name: str, endpoint: str, reactor: Any) -> Finding:
    try:
        port = await serverFromString(reactor, endpoint).listen(Factory())
    except (CannotListenError, ValueError, OSError) as error:
        return Finding(f"port {name}", FAILED, f"{endpoint}: {error}")
    await port.stopListening()
    return Finding(f"port {name}", OK, f"{endpoint} is free")


async def _maps(examined: Examined) -> list[Finding]:
    from ipf.fhir.model.packages import Packages
    from ipf.mapping.library.maps import Library

    settings = examined.settings
    found = []
    try:
        place = Path(settings.package_dir) if settings.package_dir else folder("fhir") / "packages"
        packages = Packages.load(place if place.is_dir() else None)
        found.append(Finding("packages", OK, f"{place}" if place.is_dir() else "none"))
        library = Library.load(Path(settings.maps_dir) if settings.maps_dir else folder("maps"), packages=packages)
    except Problem as problem:
        return [*found, Finding("maps", FAILED, f"{problem.place or ''} {problem.text}".strip())]
    missing = sorted(kind for kind in settings.require_map_types if not library.has_map(kind))
    if missing:
        found.append(Finding("maps", WARNING, f"no map for {', '.join(missing)}: such messages are answered AE"))
    found.append(Finding("maps", OK, f"{len(library.maps)} maps for {len(library.message_types)} message types"))
    return [*found, *profile_findings(settings, library)]


def profile_findings(settings: Settings, library: Library) -> list[Finding]:
    """Archives of vendor profiles, each against the maps of this installation."""
    from ipf.vendor_profiles.folder import archives
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


async def _identity(examined: Examined) -> list[Finding]:
    issuer = examined.settings.auth_issuer
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
        return [Finding("identity provider", FAILED, f"it calls itself {found.get('issuer')}, not {issuer}")]
    return [Finding("identity provider", OK, text)]


CHECKS: tuple[Check, ...] = (_databases, _ports, _maps, _identity)
