"""The groups of `bin/test --all`: tests that need more than this repository's Python packages, or minutes.

A module of tests belongs to the group that its line `GROUP = "..."` names; without one it belongs to `bin/test`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Need:
    """A program of the host.  `packages`: Debian's, which bring it."""

    name: str
    packages: tuple[str, ...]
    is_there: Callable[[], bool]


def _on_path(name: str) -> Callable[[], bool]:
    folders = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/lib/rabbitmq/bin"
    return lambda: shutil.which(name, path=folders) is not None


def _has_postgresql() -> bool:
    return any(Path("/usr/lib/postgresql").glob("*/bin/pg_basebackup"))


CHROMIUM = Need("chromium", ("chromium", "fonts-dejavu-core"), _on_path("chromium"))
NODE = Need("npm", ("nodejs", "npm"), _on_path("npm"))
JDK = Need("javac", ("default-jdk-headless",), _on_path("javac"))
MAVEN = Need("mvn", ("maven",), _on_path("mvn"))
NATS = Need("nats-server", ("nats-server",), _on_path("nats-server"))
RABBITMQ = Need("rabbitmq-server", ("rabbitmq-server",), _on_path("rabbitmq-server"))
HAPROXY = Need("haproxy", ("haproxy",), _on_path("haproxy"))
POSTGRESQL = Need("pg_basebackup", ("postgresql",), _has_postgresql)

GROUPS: dict[str, tuple[Need, ...]] = {
    "browsers": (CHROMIUM, NODE),
    "brokers": (NATS, RABBITMQ, JDK, MAVEN),
    "clients": (NODE, JDK, MAVEN),
    "failover": (POSTGRESQL, HAPROXY),
    "deployment": (NODE, HAPROXY),
    "flows": (),
    "kills": (),
    "hostile": (),
    "campaigns": (),
}


def missing(group: str) -> list[Need]:
    """What this host lacks for a group."""
    return [need for need in GROUPS[group] if not need.is_there()]


def install(groups: Iterable[str]) -> None:
    """Install what is missing for these groups, as root on Debian.  CalledProcessError when that fails."""
    needs = {need.name: need for group in groups for need in missing(group)}
    packages = [package for need in needs.values() if need is not POSTGRESQL for package in need.packages]
    if packages:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update"], check=True, env=environment)
        command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
        subprocess.run(command, check=True, env=environment)
    if POSTGRESQL.name in needs:
        subprocess.run([_ROOT / "bin/install-postgresql"], check=True)  # without a cluster of its own


def unavailable(groups: Iterable[str]) -> list[str]:
    """A line for each group that cannot run here, with what would make it."""
    lines = []
    for group in groups:
        needs = missing(group)
        if needs:
            packages = " ".join(package for need in needs for package in need.packages)
            lines.append(f"{group}: {', '.join(need.name for need in needs)} missing (apt-get install {packages})")
    return lines
