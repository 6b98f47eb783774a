"""`ipfctl codes`: codes of senders that no ConceptMap maps; what an operator maps them to."""

from __future__ import annotations

from typing import Any

import click

from ipf.cli.api import Api
from ipf.cli.options import number, tenant, window
from ipf.cli.output import Output
from ipf.cli.running import action, query
from ipf.cli.words import counted

_CODES = ("id", "source_system", "concept_map", "code", "status", "count", "messages", "last_seen")
_OVERRIDES = ("id", "source_system", "concept_map", "source_code", "system", "code", "display", "updated_at", "tenant")


@click.group("codes")
def codes() -> None:
    """Unmapped codes: list, show, map, convert messages again."""


@codes.command("list")
@click.option("--status", type=click.Choice(("open", "mapped")), help="Codes in this state only.")
@tenant("Tenant of the messages; * for all tenants.")
@window(50)
@query
async def list_codes(api: Api, output: Output, **given: Any) -> None:
    """List codes of senders that no ConceptMap maps."""
    found = await api.get("/admin/unmapped-codes", **given)
    if not output.data(found):
        output.page(found, _CODES, "unmapped code")


@codes.command("show")
@number("code_id")
@query
async def show(api: Api, output: Output, code_id: int) -> None:
    """Show one code, with the numbers of its messages."""
    found = await api.get(f"/admin/unmapped-codes/{code_id}")
    if not output.data(found):
        output.record(found)


@codes.command("map")
@number("code_id")
@click.option("--to", "code", metavar="CODE", help="The code in FHIR.")
@click.option("--system", help="Its code system, a URI.")
@click.option("--display", help="Its text.")
@click.option("--no-target", is_flag=True, help="The code has no target, and that is right.")
@click.option("--all-senders", is_flag=True, help="For all senders; default: for that of the code.")
@action
async def map_code(
    api: Api, output: Output, code_id: int, code: str | None, system: str | None, display: str | None,
    no_target: bool, all_senders: bool,
) -> None:  # fmt: skip
    """Map a code: an override that later conversions use."""
    if (code is None) != no_target:
        raise click.UsageError("give either --to CODE or --no-target")
    given = {"system": system, "display": display}
    body: dict[str, Any] = {"code": code, "scope": "all" if all_senders else "sender"}
    body |= {name: value for name, value in given.items() if value}
    made = await api.post(f"/admin/unmapped-codes/{code_id}/map", body)
    if not output.data(made):
        output.say(f"{made['source_code']} is mapped to {made['code'] or 'no target'}")
        output.say(f"`ipfctl codes requeue {code_id}` converts its messages again")


@codes.command("requeue")
@number("code_id")
@click.option("--only", is_flag=True, help="Do not convert later messages of the same patients.")
@action
async def requeue(api: Api, output: Output, code_id: int, only: bool) -> None:
    """Convert the messages of a code again."""
    done = await api.post(f"/admin/unmapped-codes/{code_id}/requeue", {"following": not only})
    if not output.data(done):
        again = counted(done["converted_again"], "message")
        output.say(
            f"converted again: {again}, and {counted(done['following'], 'later one')}; retried: {done['retried']}"
        )


@codes.command("overrides")
@tenant("Tenant of the overrides; * for all tenants.")
@window(50)
@query
async def overrides(api: Api, output: Output, **given: Any) -> None:
    """List what operators have mapped, the last changed first."""
    found = await api.get("/admin/code-overrides", **given)
    if not output.data(found):
        output.page(found, _OVERRIDES, "override")


@codes.command("unmap")
@number("override_id")
@action
async def unmap(api: Api, output: Output, override_id: int) -> None:
    """Remove an override: the ConceptMap applies again."""
    output.data(await api.call("DELETE", f"/admin/code-overrides/{override_id}"))
    output.say(f"{override_id} is removed")
