"""Runs a module of the service on this host, for the commands that need no running service.

The modules are started as child processes: the command line tool itself imports nothing of the service.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from twisted.internet.threads import deferToThread

from ipf.cli.api import Refused
from ipf.config.paths import python_path


async def run_module(module: str, *arguments: str) -> bytes:
    """Standard output of `python -m module`.  Refused with its error output when it fails."""
    made: bytes = await deferToThread(lambda: _run(module, *arguments))
    return made


def _run(module: str, *arguments: str) -> bytes:
    environment = os.environ | {"PYTHONPATH": python_path()}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode != 0:
        raise Refused(done.stderr.decode(errors="replace").strip() or f"{module} failed with {done.returncode}")
    return done.stdout


def run_in_terminal(module: str, arguments: list[str]) -> None:
    """Run a module on this terminal, and end with its exit status."""
    environment = os.environ | {"PYTHONPATH": python_path()}
    sys.exit(subprocess.call([sys.executable, "-m", module, *arguments], env=environment))


def environment_options(env_file: Path | None) -> list[str]:
    """The option of a module for the environment file."""
    return [f"--env-file={env_file}"] if env_file else []
