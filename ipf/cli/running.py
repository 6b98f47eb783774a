"""How a coroutine function becomes a command: its reactor, form of output, progress, errors and exit status.

Exit status: 0 success; 1 refused, or a problem was found; 2 wrong usage.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple

import click
from twisted.internet.defer import Deferred
from twisted.internet.task import react
from twisted.python.failure import Failure

from ipf.cli.api import Api, Refused
from ipf.cli.output import Form, Output
from ipf.cli.times import UTC_ASKED

FORM_ASKED = "ipf.cli.form"
"""The key of `click.Context.meta` that `--output` and `--json` set."""


class Context(NamedTuple):
    """The first argument of every command."""

    api: Api
    output: Output


Work = Callable[..., Awaitable[bool | None]]
Decorator = Callable[[Any], Any]


def _set_form(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[FORM_ASKED] = Form(value)


def _set_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.meta[FORM_ASKED] = Form.JSON


def _set_utc(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.meta[UTC_ASKED] = True


def output_options(*, hidden: bool = False, short: bool = True) -> list[Decorator]:
    """`-o`, `--utc` and `--json`, before or after the name of a command; `short`: with `-o`, and not `--json` alone."""
    forms = click.Choice([str(one) for one in Form])
    common: dict[str, Any] = {"expose_value": False, "is_eager": True}
    utc = "UTC instead of local times."
    options = [
        click.option("--utc", is_flag=True, callback=_set_utc, hidden=hidden, help=utc, **common),
        click.option("--json", is_flag=True, callback=_set_json, hidden=True, help="The same as -o json.", **common),
    ]  # fmt: skip
    if short:
        text = "Form of the result.  [default: table]"
        options.insert(
            0, click.option("-o", "--output", type=forms, callback=_set_form, hidden=hidden, help=text, **common)
        )
    return options


def options(*decorators: Decorator) -> Decorator:
    """Several decorators in the order in which help lists their options."""

    def decorate(work: Any) -> Any:
        for one in reversed(decorators):
            work = one(work)
        return work

    return decorate


def query(work: Work) -> Callable[..., None]:
    """A command that lists or shows something: see :func:`_command`; its help names `-o` and `--utc`."""
    return _command(work, output_options())


def action(work: Work) -> Callable[..., None]:
    """A command that changes something: see :func:`_command`; its help does not name `-o` and `--utc`."""
    return _command(work, output_options(hidden=True))


def writes_file(work: Work) -> Callable[..., None]:
    """A command with an option `-o FILE` of its own: see :func:`_command`."""
    return _command(work, output_options(hidden=True, short=False))


def _command(work: Work, decorators: list[Decorator]) -> Callable[..., None]:
    """Run a coroutine function as a command, on the reactor.  False as its result, or Refused, is exit status 1."""

    @click.pass_context
    @functools.wraps(work)
    def run(context: click.Context, /, **arguments: Any) -> None:
        given: Context = context.obj
        output = replace(
            given.output,
            form=context.meta.get(FORM_ASKED, given.output.form),
            utc=context.meta.get(UTC_ASKED, given.output.utc),
        )
        sys.exit(
            0 if run_on_reactor(lambda reactor: _guarded(work, reactor, context, given.api, output, arguments)) else 1
        )

    command: Callable[..., None] = options(*decorators)(run)
    return command


async def _guarded(
    work: Work, reactor: Any, context: click.Context, api: Api, output: Output, arguments: dict[str, Any]
) -> bool:
    try:
        with output.waiting.clock(reactor, f"waiting for {api.base}"):
            ended = await work(replace(api, reactor=reactor), output, **arguments)
        output.finish()
        return ended is not False
    except Refused as refused:
        output.error(str(refused), refused.hint or _next_step(context, refused))
        return False


def _next_step(context: click.Context, refused: Refused) -> str:
    """What to do about a response without a hint of its own: where the ids are, or what the command accepts."""
    group = context.parent
    if refused.status == 404 and group is not None and isinstance(group.command, click.Group):
        listing = next((name for name in ("list", "errors", "heads") if name in group.command.commands), None)
        if listing is not None:
            return f"`{group.command_path} {listing}` shows what there is"
    if refused.status == 409:
        return "it may have changed meanwhile: look at it again, then repeat the command"
    if refused.status is not None and refused.status >= 500:
        return "`ipfctl status` shows what is wrong; the log of the service has the details"
    return f"`{context.command_path} --help` shows what it accepts"


def run_on_reactor(work: Callable[[Any], Awaitable[bool]]) -> bool:
    """Run the reactor until `work` is done; its result, or what it raises."""
    ended: list[bool] = []
    failures: list[Failure] = []

    async def main(reactor: Any) -> None:
        try:
            ended.append(await work(reactor))
        except BaseException:
            failures.append(Failure())

    try:
        react(lambda reactor: Deferred.fromCoroutine(main(reactor)))
    except SystemExit:
        pass
    if failures:
        failures[0].raiseException()
    return bool(ended and ended[0])
