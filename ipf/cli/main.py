"""The entry point of `ipfctl`, and its commands.

Exit status: 0 success; 1 refused, or a problem was found; 2 wrong usage.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click
from twisted.internet.defer import Deferred
from twisted.internet.task import react
from twisted.python.failure import Failure

import ipf
from ipf.cli import (
    audit,
    backup,
    bulk,
    completion,
    configuration,
    destinations,
    doctor,
    erasure,
    identity,
    merges,
    messages,
    profiles,
    sending,
    sources,
    subscriptions,
    terminology,
)
from ipf.cli.api import Api, Refused
from ipf.cli.output import Output


class Context(NamedTuple):
    """The first argument of every command."""

    api: Api
    output: Output


Command = Callable[..., Awaitable[bool | None]]


def command(work: Command) -> Callable[..., None]:
    """Run a coroutine function as a command, on the reactor.  False as its result, or Refused, is exit status 1."""

    @click.option("--json", "as_json", is_flag=True, hidden=True)
    @click.pass_obj
    @functools.wraps(work)
    def run(context: Context, /, as_json: bool, **arguments: Any) -> None:
        ended: list[bool | None] = []
        if as_json:
            context = context._replace(output=replace(context.output, as_json=True))

        async def guarded(reactor: Any) -> None:
            try:
                ended.append(await work(replace(context.api, reactor=reactor), context.output, **arguments))
            except Refused as refused:
                context.output.error(str(refused), refused.hint)
                ended.append(False)

        _until_done(guarded)
        sys.exit(0 if ended and ended[0] is not False else 1)

    return run


def _until_done(work: Callable[[Any], Awaitable[None]]) -> None:
    """Run the reactor until `work` is done, and raise what it raises."""
    failures: list[Failure] = []

    async def main(reactor: Any) -> None:
        try:
            await work(reactor)
        except Exception:
            failures.append(Failure())

    try:
        react(lambda reactor: Deferred.fromCoroutine(main(reactor)))
    except SystemExit:
        if failures:
            failures[0].raiseException()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--url", envvar="IPFCTL_URL", default="http://127.0.0.1:8090", show_default=True, help="The service's HTTP address."
)
@click.option("--token", envvar="IPF_ADMIN_AUTH_TOKEN", help="Admin token (better: --token-file, or the variable).")
@click.option(
    "--token-file",
    envvar="IPF_ADMIN_AUTH_TOKEN_FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File that holds the admin token.",
)
@click.option("--timeout", default=30.0, show_default=True, help="Seconds to wait for a response.")
@click.option("--json", "as_json", is_flag=True, help="JSON on standard output, for scripts.")
@click.version_option(ipf.__version__)
@click.pass_context
def cli(
    context: click.Context,
    url: str,
    token: str | None,
    token_file: Path | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Operate a running ipf: find messages and subscriptions that failed, see why, and retry them."""
    secret = token_file.read_text().strip() if token_file is not None else token
    context.obj = Context(Api(url, secret, timeout), Output(as_json))


audit.register(cli, command)
messages.register(cli, command)
subscriptions.register(cli, command)
sending.register(cli, command)
configuration.register(cli, command)
profiles.register(cli, command)
sources.register(cli, command)
destinations.register(cli, command)
bulk.register(cli, command)
identity.register(cli, command)
merges.register(cli, command)
erasure.register(cli, command)
doctor.register(cli, command)
completion.register(cli, command)
backup.register(cli, command)
terminology.register(cli, command)


def main() -> None:
    """Entry point of the console script."""
    cli(prog_name="ipfctl")
