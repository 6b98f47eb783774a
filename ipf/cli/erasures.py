"""`ipfctl erasures`: the receipts of erasures, and their check without a service."""

from __future__ import annotations

from pathlib import Path

import click

from ipf.cli.api import Api
from ipf.cli.local import run_in_terminal
from ipf.cli.options import limit, tenant
from ipf.cli.output import Output
from ipf.cli.running import query

_COLUMNS = ("id", "at", "actor", "finished", "reason")
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("erasures")
def erasures() -> None:
    """Receipts of erased patients: list, verify."""


@erasures.command("list")
@tenant("One tenant.")
@limit(20)
@query
async def list_erasures(api: Api, output: Output, tenant: str | None, limit: int) -> bool:
    """List the receipts of erasures, newest first.

    Exit status 1 when one was not finished.
    """
    found = await api.get("/admin/erasures", tenant=tenant, limit=limit)
    if not output.data(found):
        output.page(found, _COLUMNS, "erasure")
    return all(one["finished"] for one in found["items"])


@erasures.command("verify")
@click.argument("file", type=_file)
@click.option("--key", "keys", type=_file, multiple=True, required=True,
              help="File with trusted public keys in PEM; may be repeated.")  # fmt: skip
@click.option("--patient", help="Patient/x: one of the receipts must be about him.")
@click.option("--tenant", default="default", show_default=True, help="Tenant of the Patient.")
def verify(file: Path, keys: tuple[Path, ...], patient: str | None, tenant: str) -> None:
    """Check receipts of erasures without a service.

    FILE: the JSON of `patients forget` or `erasures list`.  Exit status: 0 all are genuine; 1 one is not, or none is
    about the patient; 2 a file cannot be read.
    """
    asked = [f"--patient={patient}", f"--tenant={tenant}"] if patient else []
    run_in_terminal("ipf.app.verify_erasures", [str(file), *(f"--key={one}" for one in keys), *asked])
