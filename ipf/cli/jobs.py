"""`ipfctl jobs`: progress of replays, bulk retries and discards."""

from __future__ import annotations

import click

from ipf.cli import replays
from ipf.cli.api import Api
from ipf.cli.options import limit, number
from ipf.cli.output import Output
from ipf.cli.running import action, query


@click.group("jobs")
def jobs() -> None:
    """Replays, bulk retries and discards: progress, cancel."""


@jobs.command("list")
@limit(20)
@query
async def list_jobs(api: Api, output: Output, limit: int) -> None:
    """List jobs, newest first."""
    found = await api.get("/admin/jobs", limit=limit)
    if not output.data(found):
        output.page(found, replays.JOB, "job")


@jobs.command("show")
@number("number")
@click.option("--wait", is_flag=True, help="Wait until the job has ended.")
@query
async def show(api: Api, output: Output, number: int, wait: bool) -> bool:
    """Show the progress of a job; exit status 1 when it failed."""
    found = await api.get(f"/admin/jobs/{number}")
    if wait:
        found = await replays.ended(api, output, found)
    if not output.data(found):
        output.record(found)
    return bool(found["status"] != "failed")


@jobs.command("cancel")
@number("number")
@action
async def cancel(api: Api, output: Output, number: int) -> None:
    """Cancel a job; what it has done is not undone."""
    found = await api.post(f"/admin/jobs/{number}/cancel")
    if not output.data(found):
        output.record({name: found.get(name) for name in replays.JOB})
