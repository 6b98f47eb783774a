"""`ipfctl migrate`: the schemas of both databases, as a module on the service's host."""

from __future__ import annotations

from pathlib import Path

import click

from ipf.cli.local import environment_options, run_in_terminal
from ipf.cli.options import env_file


@click.command("migrate")
@env_file
@click.option("--dry-run", is_flag=True, help="Only list what would be applied: locks, rewrites, sizes.")
@click.option("--try", "tries", is_flag=True,
              help="Apply it in transactions that are rolled back, and say how long it took.")  # fmt: skip
def migrate(env_file: Path | None, dry_run: bool, tries: bool) -> None:
    """Bring the schemas of both databases up to date.

    As the next start of the service would.  Exit status: 0 done; 1 refused or failed.
    """
    mode = ["--dry-run"] if dry_run else ["--try"] if tries else []
    run_in_terminal("ipf.app.migrations", [*mode, *environment_options(env_file)])
