"""`ipfctl backup`: create, verify and restore; they work on the databases, as modules on the service's host."""

from __future__ import annotations

from pathlib import Path

import click

from ipf.cli.local import environment_options, run_in_terminal
from ipf.cli.options import env_file

_folder = click.argument("folder", type=click.Path(path_type=Path))
_MODULE = "ipf.app.backup"


@click.group("backup")
def backup() -> None:
    """Backups of both databases: create, verify, restore."""


@backup.command("create")
@_folder
@env_file
def create(folder: Path, env_file: Path | None) -> None:
    """Write both databases to a new FOLDER, while the service runs.

    As they are at one moment.  Exit status: 0 done; 1 failed.
    """
    run_in_terminal(_MODULE, ["backup", str(folder), *environment_options(env_file)])


@backup.command("verify")
@_folder
@env_file
@click.option("--scratch", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Folder for the files of that server; default: beside FOLDER.")  # fmt: skip
@click.option("--key", "keys", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True,
              help="Trusted public keys of the audit trail; default: those of the backup.")  # fmt: skip
def verify(folder: Path, env_file: Path | None, scratch: Path | None, keys: tuple[Path, ...]) -> None:
    """Check a backup: load it into a server of its own, and compare.

    Exit status: 0 complete; 1 something is missing or changed.
    """
    options = [f"--scratch={scratch}"] if scratch else []
    options += [f"--key={one}" for one in keys]
    run_in_terminal(_MODULE, ["verify", str(folder), *environment_options(env_file), *options])


@backup.command("restore")
@_folder
@env_file
@click.option("--replace", is_flag=True, help="Remove what is in both databases first.")
def restore(folder: Path, env_file: Path | None, replace: bool) -> None:
    """Load a backup into the two empty databases of the settings.

    And check it.  No service may run.  Exit status: 0 restored and complete; 1 refused, failed, or the check found
    something.
    """
    options = ["--replace"] if replace else []
    run_in_terminal(_MODULE, ["restore", str(folder), *environment_options(env_file), *options])
