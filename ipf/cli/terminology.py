"""`ipfctl terminology`: code systems in the FHIR database, imported by a module on the service's host."""

from __future__ import annotations

from pathlib import Path

import click

from ipf.cli.local import environment_options, run_in_terminal
from ipf.cli.options import env_file as _env_file

KINDS = ("snomed", "loinc", "rxnorm", "icd10cm", "ndjson", "package")
_MODULE = "ipf.app.terminology"


@click.group("terminology")
def terminology() -> None:
    """Code systems of any size: import, list, remove."""


@terminology.command("import")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--version", "as_version", default="", help="Version of the code system; default: what the files say.")
@_env_file
def import_(kind: str, path: Path, as_version: str, env_file: Path | None) -> None:
    """Import the code system in PATH, while the service runs.

    PATH: a file, a folder or a ZIP archive.  Another import of the same version replaces it at its end.  Exit status: 0
    imported; 1 refused, or a row cannot be read: it is named by file and line, and nothing is changed.
    """
    version = [f"--version={as_version}"] if as_version else []
    run_in_terminal(_MODULE, [*environment_options(env_file), "import", kind, str(path), *version])


@terminology.command("list")
@_env_file
def list_(env_file: Path | None) -> None:
    """List the imported code systems."""
    run_in_terminal(_MODULE, [*environment_options(env_file), "list"])


@terminology.command("remove")
@click.argument("url")
@click.argument("version", default="")
@_env_file
def remove(url: str, version: str, env_file: Path | None) -> None:
    """Remove VERSION of the code system URL.  Exit status 1 when it is not there."""
    run_in_terminal(_MODULE, [*environment_options(env_file), "remove", url, *([version] if version else [])])
