"""The names that commands had before they were nouns with verbs.  They work as ever, and no help names them.

What arrives: the words of a command line, from the name of the command on.  What leaves: the words of the command as it
is named now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

NAMES = {
    "messages": "messages list",
    "show": "messages show",
    "retry": "messages retry",
    "discard": "messages discard",
    "replay": "messages replay",
    "effects": "messages effects",
    "trace": "messages trace",
    "send": "messages send",
    "dlq": "dead-letters list",
    "interfaces": "interfaces list",
    "sources --poll": "sources poll",
    "sources": "sources list",
    "destinations --dead": "destinations show",
    "destinations --retry": "destinations retry",
    "destinations --skip": "destinations skip",
    "destinations --pause": "destinations pause",
    "destinations --resume": "destinations resume",
    "destinations": "destinations list",
    "maps --source": "maps show",
    "maps --install": "maps install",
    "maps --remove": "maps remove",
    "maps --reload": "maps reload",
    "maps": "maps list",
    "unmapped": "codes list",
    "unread --forget": "fields forget",
    "unread": "fields list",
    "merge": "patients merge",
    "unmerge": "patients unmerge",
    "forget": "patients forget",
    "erasures": "erasures list",
    "audit verify-erasures": "erasures verify",
    "config": "settings list",
    "profiles --reload": "profiles reload",
    "profiles": "profiles list",
    "validate-profile": "profiles validate",
    "install-profile": "profiles install",
    "roll-back-profile": "profiles roll-back",
    "pack-profile": "profiles pack",
    "new-profile": "profiles new",
    "backup --verify": "backup verify",
    "backup": "backup create",
    "restore": "backup restore",
}
"""Old name -> new one.  A flag that chose what a command does is part of its old name; its value stays an argument."""
_HELP = ("-h", "--help")


def present(words: Sequence[str], commands: Mapping[str, click.Command]) -> list[str]:
    """The words of the command as it is named now.  `commands`: those of the root."""
    noun = commands.get(words[0])
    if isinstance(noun, click.Group) and len(words) > 1 and (words[1] in noun.commands or words[1] in _HELP):
        return list(words)
    for old, new in NAMES.items():
        name, _, choice = old.partition(" ")
        if name != words[0]:
            continue
        rest = _without(choice, words[1:]) if choice else _of_default(noun, new, words[1:])
        if rest is not None:
            return [*new.split(), *rest]
    return list(words)


def _without(choice: str, words: Sequence[str]) -> list[str] | None:
    """The words without the one that chose; None if it is not there.  `--retry=x` leaves `x`."""
    for number, word in enumerate(words):
        if choice.startswith("--") and word.startswith(f"{choice}="):
            return [*words[:number], word.partition("=")[2], *words[number + 1 :]]
        if word == choice and (number == 0 or choice.startswith("--")):
            return [*words[:number], *words[number + 1 :]]
    return None


def _of_default(noun: click.Command | None, new: str, words: Sequence[str]) -> list[str] | None:
    """The words of an old name that is a noun today: options alone, or what its verb takes as an argument.

    Any other word is a verb that does not exist, and is left to the error message.
    """
    if not isinstance(noun, click.Group):
        return list(words)
    takes_argument = any(isinstance(one, click.Argument) for one in noun.commands[new.split()[1]].params)
    return list(words) if takes_argument or not words or words[0].startswith("-") else None


class Tree(click.Group):
    """The root: it also knows the old names, without listing them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the words name.  Completion of a shell asks for nouns alone: they stay nouns."""
        alone = ctx.resilient_parsing and args[0] in self.commands
        return super().resolve_command(ctx, args if alone else present(args, self.commands))
