"""`ipfctl rejects`: frames that were refused (`AR`), and why."""

from __future__ import annotations

import click

from ipf.cli.api import Api
from ipf.cli.options import number, tenant, window
from ipf.cli.output import Output
from ipf.cli.running import action, query

_COLUMNS = ("id", "received_at", "listener", "peer", "size", "reason", "tenant")


@click.group("rejects")
def rejects() -> None:
    """Refused frames: list, show, delete."""


@rejects.command("list")
@window(50)
@tenant("Tenant of the listeners; * for all tenants.")
@query
async def list_rejects(api: Api, output: Output, **given: object) -> None:
    """List refused frames, newest first."""
    page = await api.get("/admin/rejects", **given)
    if not output.data(page):
        output.page(page, _COLUMNS, "refused frame")


@rejects.command("show")
@number("reject_id")
@query
async def show(api: Api, output: Output, reject_id: int) -> None:
    """Show one refused frame, its bytes last."""
    row = await api.get(f"/admin/rejects/{reject_id}")
    if output.data(row):
        return
    if not output.is_table:
        output.record(row)
        return
    raw = str(row.pop("raw", "")).replace("\r\n", "\n").replace("\r", "\n")
    output.record(row)
    output.verbatim(f"\n{raw}")


@rejects.command("delete")
@number("reject_id")
@action
async def delete(api: Api, output: Output, reject_id: int) -> None:
    """Delete one refused frame."""
    output.data(await api.call("DELETE", f"/admin/rejects/{reject_id}"))
    output.say(f"{reject_id} is deleted")
