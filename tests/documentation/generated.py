"""Writes the pages of docs/reference that are facts of the code: settings, paths of the admin API, `ipfctl`.

What arrives: the tables of settings, the sections of `etc/ipf.env` and `etc/ipf-ui.env`, the table of operations of the
admin API, and the commands of `ipfctl`.  `test_generated` fails until `bin/reference` has run.

usage: bin/reference
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import Field, fields
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click

from ipf.cli.main import cli as ipfctl
from ipf.config.console import ConsoleSettings
from ipf.config.settings import Settings
from ipf.wire.reference.table import ADMIN, OBSERVE
from tests.service_process import ROOT

FOLDER = ROOT / "docs/reference"
_SECTION = re.compile(r"^# -+ (.+?)(?: \(docs/[^)]*\))? -+$")
_VARIABLE = re.compile(r"^#?\s?((?:IPF|SUBSCRIPTION_SERVICE|OIDC)_[A-Z0-9_]+)=")
_SHOWN = {"IPF_WORKER_PROCESSES": "`1`; `0` on one core", "IPF_ROLES": "`all`"}
"""Defaults that depend on the machine, or have a shorter name."""


def settings() -> str:
    """The page of the settings, by the sections of the example files."""
    lines = [
        "# Settings",
        "",
        "Written by `bin/reference` from the tables in `ipf/config`. Settings are environment variables.",
        "[etc/ipf.env](../../etc/ipf.env) and [etc/ipf-ui.env](../../etc/ipf-ui.env) explain each of them for systemd.",
        "`GET /admin/config` and `ipfctl config` show values in effect. A wrong value stops the start and is named",
        "with its rule. A secret (marked *) can come from a file (`NAME_FILE` for `NAME`) or a systemd credential.",
    ]
    for title, declared, example in (
        ("Service", Settings, ROOT / "etc/ipf.env"),
        ("Console", ConsoleSettings, ROOT / "etc/ipf-ui.env"),
    ):
        rows = {one.metadata["variable"].name: one for one in fields(declared)}
        lines += ["", f"## {title}"]
        for section, names in _sections(example, rows):
            lines += ["", f"### {section}", ""] if section else [""]
            lines += ["| variable | default | meaning |", "|---|---|---|"]
            lines += [_setting(rows[name]) for name in names]
    return "\n".join(lines) + "\n"


def _sections(example: Path, rows: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The sections of an example file with the variables in them; those that it lacks come last."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in example.read_text().splitlines():
        if section := _SECTION.match(line):
            title = section[1]
        elif (named := _VARIABLE.match(line)) and named[1] in rows:
            names = found.setdefault(title, [])
            names += [] if named[1] in names else [named[1]]
    listed = {name for names in found.values() for name in names}
    yield from found.items()
    if rest := sorted(rows.keys() - listed):
        yield "Others", rest


def _setting(declared: Field[Any]) -> str:
    row = declared.metadata["variable"]
    default = _SHOWN.get(row.name) or _shown(declared.default)
    return f"| `{row.name}`{' *' if row.secret else ''} | {default} | {_cell(row.meaning)} |"


def _shown(value: object) -> str:
    """A default as it is written into the variable."""
    if value is None or value in ((), ""):
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{' '.join(map(str, value))}`"
    return f"`{value:.10g}`" if isinstance(value, float) else f"`{value}`"


def admin_paths() -> str:
    """The page of the paths of the operator API."""
    lines = [
        "# Paths of the admin API",
        "",
        "Written by `bin/reference` from the table of operations. `GET /admin/docs` shows parameters and bodies.",
        "[admin-api.md](admin-api.md) explains the paths. *Role* is the least role of the console for a path.",
        "",
        "| method | path | function | role |",
        "|---|---|---|---|",
    ]
    for mount, routes in (("/admin", ADMIN), ("/admin/observe", OBSERVE)):
        for route in routes:
            row = (route.method, f"`{mount}{route.path}`", _cell(route.summary), route.role.name.lower())
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def commands() -> str:
    """The page of the commands of `ipfctl`."""
    lines = [
        "# Commands of ipfctl",
        "",
        "Written by `bin/reference` from the program; `ipfctl COMMAND --help` prints the same.",
        "[ipfctl.md](ipfctl.md) has the global options (`--output` ...), exit statuses, completion and sending.",
    ]
    for name, command in _commands(ipfctl, ()):
        usage = " ".join(
            one.make_metavar(click.Context(command)) for one in command.params if isinstance(one, click.Argument)
        )
        lines += ["", f"## `ipfctl {' '.join((*name, usage)).strip()}`", "", _text(command.help or "")]
        options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
        options = [one for one in options if not {"--output", "--utc"}.intersection(one.opts) or one.required]
        if options:
            lines += ["", "| option | meaning |", "|---|---|"]
            lines += [f"| {_options(one)} | {_cell(one.help or '')} |" for one in options]
    return "\n".join(lines) + "\n"


def _commands(command: click.Command, name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for one in sorted(command.commands.values(), key=lambda one: one.name or ""):
            if not one.hidden:
                yield from _commands(one, (*name, one.name or ""))
    else:
        yield name, command


def _options(option: click.Option) -> str:
    """The names of an option, with a placeholder unless it is a flag."""
    names = ", ".join(f"`{one}`" for one in option.opts)
    if option.is_flag:
        return names
    if isinstance(option.type, click.Choice):
        return f"{names} `{_cell('|'.join(map(str, option.type.choices)))}`"
    return f"{names} {(option.metavar or option.type.name).upper()}"


def _text(help_text: str) -> str:
    """A docstring as paragraphs of Markdown."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", cleandoc(help_text.replace("\b", "")))


def _cell(text: str) -> str:
    """Text within a row of a table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").strip()


PAGES = {"settings.md": settings, "admin-paths.md": admin_paths, "ipfctl-commands.md": commands}


def main() -> None:
    """Write all pages."""
    for name, text in PAGES.items():
        (FOLDER / name).write_text(text(), encoding="utf-8")
        print(f"docs/reference/{name}")


if __name__ == "__main__":
    main()
