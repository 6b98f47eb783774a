"""The entry point of `ipfctl`, and its commands: a noun, then a verb."""

from __future__ import annotations

import math
from pathlib import Path

import click

import ipf
from ipf.cli import (
    audit,
    backup,
    codes,
    completion,
    dead_letters,
    destinations,
    doctor,
    erasures,
    fields,
    identity,
    interfaces,
    jobs,
    maps,
    messages,
    migrate,
    patients,
    profiles,
    rejects,
    settings,
    sources,
    status,
    subscriptions,
    terminology,
)
from ipf.cli.api import Api
from ipf.cli.names import Tree
from ipf.cli.output import Form, Output
from ipf.cli.running import FORM_ASKED, Context, options, output_options
from ipf.cli.times import UTC_ASKED

WIDTH = 80
"""Columns of help at most."""


def _number(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if math.isnan(value):  # which is in every range
        raise click.BadParameter("it is no number")
    return value


@click.group(
    cls=Tree,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
)
@click.option("--url", envvar="IPFCTL_URL", default="http://127.0.0.1:8090", show_default=True,
              help="The service's HTTP address.")  # fmt: skip
@click.option("--token", envvar="IPF_ADMIN_AUTH_TOKEN", help="Admin token (better: --token-file, or the variable).")
@click.option(
    "--token-file",
    envvar="IPF_ADMIN_AUTH_TOKEN_FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File that holds the admin token.",
)
@click.option("--timeout", type=click.FloatRange(0.1, 86_400), default=30.0, show_default=True, callback=_number,
              help="Seconds to wait for a response.")  # fmt: skip
@options(*output_options())
@click.version_option(ipf.__version__)
@click.pass_context
def cli(context: click.Context, url: str, token: str | None, token_file: Path | None, timeout: float) -> None:
    """Operate a running ipf: find messages and subscriptions that failed, see why, and retry them.

    `ipfctl NOUN --help` lists what can be done with one kind of thing.
    """
    secret = _content(token_file) if token_file is not None else token
    output = Output(context.meta.get(FORM_ASKED, Form.TABLE), context.meta.get(UTC_ASKED, False))
    context.obj = Context(Api(url, secret, timeout), output)


def _content(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, ValueError) as failed:
        raise click.BadParameter(f"{file} cannot be read: {failed}", param_hint="--token-file") from None


for _one in (
    status.status,
    messages.messages,
    dead_letters.dead_letters,
    rejects.rejects,
    jobs.jobs,
    interfaces.interfaces,
    sources.sources,
    destinations.destinations,
    subscriptions.subscriptions,
    identity.identity,
    patients.patients,
    erasures.erasures,
    maps.maps,
    codes.codes,
    fields.fields,
    profiles.profiles,
    terminology.terminology,
    audit.audit,
    settings.settings,
    backup.backup,
    migrate.migrate,
    doctor.doctor,
    completion.completion,
):
    cli.add_command(_one)


def main() -> None:
    """Entry point of the console script."""
    cli(prog_name="ipfctl")
