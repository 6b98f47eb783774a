"""`ipfctl fields`: fields of converted messages that are not in the result."""

from __future__ import annotations

import click

from ipf.cli.api import Api
from ipf.cli.options import limit, message_type
from ipf.cli.output import Output
from ipf.cli.running import Decorator, action, options, query
from ipf.cli.words import counted

_COLUMNS = ("source_system", "message_type", "kind", "path", "occurrences", "last_seen", "message_id", "reason")
_OF_MESSAGE = ("segment", "kind", "path", "reason")
_kinds = click.Choice(("unread", "declared", "dropped", "invalid"))


def _narrowing(sender_is_required: bool) -> Decorator:
    return options(
        click.option("--sender", required=sender_is_required, help="This sender (MSH-3) only."),
        click.option("--type", "message_type", help="This message type only: ADT_A01."),
        click.option("--kind", type=_kinds, help="This kind only."),
        click.option("--path", help="This field, segment or element only: PV1-40, ZPI, ServiceRequest.code."),
    )


@click.group("fields")
def fields() -> None:
    """Fields that are not in the result: list, forget."""


@fields.command("list")
@_narrowing(False)
@click.option("--message", "message_id", type=int, help="Of this message only, by the installed maps.")
@limit(50)
@query
async def list_fields(api: Api, output: Output, limit: int, message_id: int | None, **given: str | None) -> None:
    """List the fields of converted messages that are not in the result.

    The most frequent first.  Kinds: unread (no rule read it), dropped (a rule's result was lost), invalid (an element
    that R4 does not allow); last declared (on purpose, with the reason).
    """
    if message_id is not None:
        traced = await api.get(f"/admin/messages/{message_id}/trace")
        if not output.data(traced["unread"]):
            output.page({"items": traced["unread"]}, _OF_MESSAGE, "field")
        return
    found = await api.call("GET", "/admin/unread-fields", {**_wanted(given), "limit": limit})
    if not output.data(found):
        output.page(found, _COLUMNS, "field")


@fields.command("forget")
@_narrowing(True)
@action
async def forget(api: Api, output: Output, **given: str | None) -> None:
    """Forget the rows of a sender: what is still unread comes back."""
    gone = await api.call("DELETE", "/admin/unread-fields", _wanted(given))
    if not output.data(gone):
        output.say(f"forgotten: {counted(gone['forgotten'], 'row')}")


def _wanted(given: dict[str, str | None]) -> dict[str, str | None]:
    kind = given["message_type"]
    return {
        "source_system": given["sender"], "message_type": message_type(kind) if kind else None, "kind": given["kind"],
        "path": given["path"],
    }  # fmt: skip
