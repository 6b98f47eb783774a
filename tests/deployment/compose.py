"""The stack of `etc/docker/compose.yaml`: as it is written, and as containers of podman.

`Container` runs one service with what the file says of it: user, read-only root, capabilities, volumes, environment,
command.  All containers are in the network namespace of this process, where every service's name is loopback.  The
images that podman cannot pull have stand-ins (`images/`).  Named volumes and containers begin with `ipf-test-`.
"""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "etc/docker"
COMPOSE = FOLDER / "compose.yaml"
PREFIX = "ipf-test-"
_IMAGES = {"ipf:compose": "ipf", "postgres": "postgres", "prom/prometheus": "prometheus"}


def compose() -> dict[str, Any]:
    """The file, with its merge keys applied."""
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return loaded


def podman(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command of podman; RuntimeError with its output when it fails and `check`."""
    command = ["podman", "--runtime", "runc", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if check and ended.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return ended


def mounts(service: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Source, target and options of each volume; a source on the host is an absolute path."""
    found = []
    for text in service.get("volumes", ()):
        source, target, *options = text.split(":")
        is_file = source.startswith(".")
        found.append((str((FOLDER / source).resolve()) if is_file else source, target, ",".join(options)))
    return found


class Container:
    """One container of the stack; `environment` and `command` replace or add to those of the file."""

    def __init__(self, service: str, *command: str, name: str = "", **environment: str) -> None:
        self.service: dict[str, Any] = compose()["services"][service]
        self.name = PREFIX + (name or service)
        self.environment = self.service.get("environment", {}) | environment
        self.command = list(command) or self.service.get("command", [])

    def start(self) -> None:
        """Start it in the background."""
        podman("run", "--detach", *self._options(), self._image(), *self.command)

    def _image(self) -> str:
        name = self.service["image"]
        return f"localhost/{PREFIX.rstrip('-')}/{_IMAGES.get(name) or _IMAGES[name.rpartition(':')[0]]}"

    def _options(self) -> list[str]:
        service = self.service
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        hosts = [f"--add-host={name}:127.0.0.1" for name in compose()["services"]]
        found = [f"--name={self.name}", "--network=host", "--no-healthcheck", *hosts]
        found += [f"--ulimit=nofile={files}:{files}", "--ulimit=nproc=4096:4096"]
        if service["read_only"]:
            found += ["--read-only", "--read-only-tmpfs=false"]
        found += [f"--cap-drop={one}" for one in service["cap_drop"]]
        found += [f"--security-opt={one.partition(':')[0]}" for one in service["security_opt"]]
        found += [f"--tmpfs={one}" for one in service.get("tmpfs", ())]
        found += [f"--env={name}={value}" for name, value in self.environment.items()]
        found += [f"--group-add={one}" for one in service.get("group_add", ())]
        for source, target, options in mounts(service):
            is_file = source.startswith("/")
            found.append(f"--volume={source if is_file else PREFIX + source}:{target}{options and ':' + options}")
        if "user" in service:
            found.append(f"--user={service['user']}")
        return found

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it."""
        return podman("exec", self.name, *command, check=False)

    def is_healthy(self) -> bool:
        """Whether its health check passes: that of the file, or that of the image."""
        test = self.service.get("healthcheck", {}).get("test", ["CMD", "healthcheck"])
        return self.execute(*test[1:]).returncode == 0

    def state(self) -> tuple[str, int]:
        """Its state and its exit status."""
        (found,) = json.loads(podman("inspect", self.name).stdout)
        return found["State"]["Status"], found["State"]["ExitCode"]

    def wait(self) -> int:
        """Its exit status, when it has ended."""
        return int(podman("wait", self.name).stdout)

    def log(self) -> str:
        """Everything that it has written."""
        ended = podman("logs", self.name, check=False)
        return ended.stdout + ended.stderr

    def stop(self, seconds: int) -> None:
        """SIGTERM, and SIGKILL after so many seconds."""
        podman("stop", f"--time={seconds}", self.name)

    def remove(self) -> None:
        """Kill it, and forget it."""
        podman("rm", "--force", "--volumes", "--time=0", self.name, check=False)


def remove_volumes() -> None:
    """Remove the named volumes of the stack."""
    for name in compose()["volumes"]:
        podman("volume", "rm", "--force", PREFIX + name, check=False)
