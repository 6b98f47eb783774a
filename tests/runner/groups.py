"""The groups of `bin/test --all`: tests that need more than this repository's Python packages, or minutes.

A module of tests belongs to the group that its line `GROUP = "..."` names; without one it belongs to `bin/test`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Need:
    """A program of the host.  `packages`: Debian's, which bring it."""

    name: str
    packages: tuple[str, ...]
    present: Callable[[], bool]


def _on_path(*names: str) -> Callable[[], bool]:
    folders = os.environ.get("PATH", "") + ":/usr/sbin:/usr/lib/rabbitmq/bin"
    return lambda: any(shutil.which(name, path=folders) for name in names)


def _has_postgresql() -> bool:
    return any(Path("/usr/lib/postgresql").glob("*/bin/pg_basebackup"))


CHROMIUM = Need("chromium", ("chromium", "fonts-dejavu-core"), _on_path("chromium"))
NODE = Need("npm", ("nodejs", "npm"), _on_path("npm"))
JAVA = Need("a JDK", ("default-jdk-headless",), _on_path("javac"))
MAVEN = Need("Maven", ("maven",), _on_path("mvn"))
NATS = Need("nats-server", ("nats-server",), _on_path("nats-server"))
RABBITMQ = Need("rabbitmq-server", ("rabbitmq-server",), _on_path("rabbitmq-server"))
HAPROXY = Need("haproxy", ("haproxy",), _on_path("haproxy"))
POSTGRESQL = Need("PostgreSQL's server programs", ("postgresql",), _has_postgresql)

GROUPS: dict[str, tuple[Need, ...]] = {
    "browsers": (CHROMIUM, NODE),
    "brokers": (NATS, RABBITMQ, JAVA, MAVEN),
    "clients": (NODE, JAVA, MAVEN),
    "failover": (POSTGRESQL, HAPROXY),
    "flows": (),
    "kills": (),
    "hostile": (),
    "deployment": (NODE, HAPROXY),
    "campaigns": (),
}
