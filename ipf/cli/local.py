"""Runs a module of the service on this host, for the two commands that need no running service.

The modules are started as child processes: the command line tool itself imports nothing of the service.
"""

from __future__ import annotations

import os
import subprocess
import sys

from ipf.cli.api import Refused
from ipf.config.paths import python_path


def run_module(module: str, *arguments: str) -> bytes:
    """Standard output of `python -m module`.  Refused with its error output when it fails."""
    environment = os.environ | {"PYTHONPATH": python_path()}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode != 0:
        raise Refused(done.stderr.decode(errors="replace").strip() or f"{module} failed with {done.returncode}")
    return done.stdout
