"""`ipfctl settings`: the settings in effect."""

from __future__ import annotations

from typing import Any

import click

from ipf.cli.api import Api
from ipf.cli.output import Output
from ipf.cli.running import query

_COLUMNS = ("name", "value", "defaulted")


@click.group("settings")
def settings() -> None:
    """Settings in effect."""


@settings.command("list")
@query
async def list_settings(api: Api, output: Output) -> None:
    """List the settings in effect, and which of them are defaults.

    Secrets are redacted.
    """
    found = await api.get("/admin/config")
    if not output.data(found):
        output.table(_COLUMNS, [[words(item.get(name)) for name in _COLUMNS] for item in found["settings"]])


def words(value: Any) -> Any:
    """A list as text."""
    return (", ".join(map(str, value)) or None) if isinstance(value, list) else value
