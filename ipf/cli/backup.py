"""`ipfctl backup`, `restore` and `migrate`: they work on the databases, as modules on the service's host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ipf.config.paths import python_path

Register = Callable[[Callable[..., Any]], Callable[..., None]]

_FOLDER = click.argument("folder", type=click.Path(path_type=Path))
ENV_FILE = click.option(
    "--env-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Environment file of the service, such as /etc/ipf.env; default: the environment of this shell.",
)


def register(cli: click.Group, command: Register) -> None:
    """Put the commands of this module under `cli`.  They need no running service."""
    for one in (backup, restore, migrate):
        cli.add_command(one)


@click.command("backup")
@_FOLDER
@ENV_FILE
@click.option("--verify", is_flag=True, help="Check an existing backup: load it into a server of its own.")
@click.option("--scratch", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="With --verify: folder for that server's files; default: beside FOLDER.")  # fmt: skip
@click.option("--key", "keys", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True,
              help="With --verify: trusted public keys of the audit trail; default: those of the backup.")  # fmt: skip
def backup(folder: Path, env_file: Path | None, verify: bool, scratch: Path | None, keys: tuple[Path, ...]) -> None:
    """Write both databases, as they are at one moment, to a new FOLDER, while the service runs.

    Exit status: 0 done; 1 failed, or --verify found something.
    """
    if not verify and (scratch or keys):
        raise click.UsageError("--scratch and --key go with --verify")
    options = [f"--scratch={scratch}"] if scratch else []
    options += [f"--key={one}" for one in keys]
    run_in_terminal(
        "ipf.app.backup", ["verify" if verify else "backup", str(folder), *environment_options(env_file), *options]
    )


@click.command("restore")
@_FOLDER
@ENV_FILE
@click.option("--replace", is_flag=True, help="Remove what is in both databases first.")
def restore(folder: Path, env_file: Path | None, replace: bool) -> None:
    """Load the backup in FOLDER into the two empty databases of the settings, and check it.  No service may run.

    Exit status: 0 restored and complete; 1 refused, failed, or the check found something.
    """
    options = ["--replace"] if replace else []
    run_in_terminal("ipf.app.backup", ["restore", str(folder), *environment_options(env_file), *options])


@click.command("migrate")
@ENV_FILE
@click.option("--dry-run", is_flag=True, help="Only list what would be applied: locks, rewrites, sizes.")
@click.option(
    "--try", "tries", is_flag=True, help="Apply it in transactions that are rolled back, and say how long it took."
)
def migrate(env_file: Path | None, dry_run: bool, tries: bool) -> None:
    """Bring the schemas of both databases up to date, as the next start of the service would.

    Exit status: 0 done; 1 refused or failed.
    """
    mode = ["--dry-run"] if dry_run else ["--try"] if tries else []
    run_in_terminal("ipf.app.migrations", [*mode, *environment_options(env_file)])


def environment_options(env_file: Path | None) -> list[str]:
    """The option of a module for the environment file."""
    return [f"--env-file={env_file}"] if env_file else []


def run_in_terminal(module: str, arguments: list[str]) -> None:
    """Run a module on this terminal, and end with its exit status."""
    environment = os.environ | {"PYTHONPATH": python_path()}
    sys.exit(subprocess.call([sys.executable, "-m", module, *arguments], env=environment))
