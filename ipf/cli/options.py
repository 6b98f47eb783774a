"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ipf.cli.running import Decorator, options
from ipf.cli.times import Moment

FILTERS = (
    ("source-system", "MSH-3.1 of the sender."),
    ("type", "Such as ADT_A01."),
    ("status", "State of the messages."),
    ("received-from", "Received at or after this time; 2h: two hours ago."),
    ("received-to", "Received before this time."),
    ("patient", "Patient identifier, PID-3."),
    ("text", "Words inside the message."),
    ("error", "Text of the last error."),
    ("permanent", "true: errors that no retry mends; false: the others."),
    ("tenant", "Tenant of the messages; * for all tenants."),
)
_NAMES = {"type": "message_type"}


def limit(default: int) -> Decorator:
    """`--limit`."""
    return click.option("--limit", default=default, show_default=True, help="Rows at most.")


def window(default: int) -> Decorator:
    """`--limit` and `--offset`."""
    offset = click.option("--offset", default=0, show_default=True, help="Rows to leave out.")
    return options(limit(default), offset)


def tenant(text: str) -> Decorator:
    """`--tenant`."""
    return click.option("--tenant", help=text)


def number(name: str) -> Decorator:
    """An argument that is the number of a row."""
    return click.argument(name, type=int)


env_file = click.option(
    "--env-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Environment file of the service, such as /etc/ipf.env; default: the environment of this shell.",
)


def filters() -> Decorator:
    """The options that filter messages."""
    times = {"received-from": Moment(), "received-to": Moment()}
    return options(*(click.option(f"--{name}", type=times.get(name), help=text) for name, text in FILTERS))


def filters_in(arguments: dict[str, Any]) -> dict[str, str]:
    """The filters among the arguments, by the names of the admin API."""
    chosen = [name.replace("-", "_") for name, _ in FILTERS]
    wanted = {_NAMES.get(name, name): str(arguments[name]) for name in chosen if arguments.get(name)}
    made = {"status": str.upper, "message_type": message_type}
    return {name: made.get(name, str)(text) for name, text in wanted.items()}


def message_type(text: str) -> str:
    """`ADT^A08`, `ADT^A08^ADT_A01`, `adt_a08` -> `ADT_A08`, as the admin API has it."""
    return "_".join(text.strip().upper().split("^")[:2])


def selection(arguments: dict[str, Any]) -> dict[str, Any]:
    """The body of a request for many messages."""
    body: dict[str, Any] = {"dry_run": arguments["dry_run"]}
    wanted = filters_in(arguments)
    if wanted:
        body["filter"] = wanted
    if arguments["message_ids"]:
        body["ids"] = list(arguments["message_ids"])
    if arguments.get("per_second"):
        body["per_second"] = arguments["per_second"]
    return body


def selecting() -> Decorator:
    """The options that select messages for a job."""
    return options(
        click.argument("message_ids", type=int, nargs=-1),
        filters(),
        click.option("--wait", is_flag=True, help="Wait until the job has ended."),
        click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing."),
        click.option("--per-second", type=int, help="Messages per second at most."),
    )
