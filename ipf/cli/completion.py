"""`ipfctl completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


def register(cli: click.Group, command: Callable[..., Any]) -> None:
    """Add the command; it needs neither a service nor the reactor."""

    @cli.command()
    @click.argument("shell", type=click.Choice(SHELLS))
    def completion(shell: str) -> None:
        """Print the script that completes commands and options in SHELL.

        bash: eval "$(ipfctl completion bash)" in ~/.bashrc.  zsh: the same with zsh, after compinit.  fish: ipfctl
        completion fish > ~/.config/fish/completions/ipfctl.fish.
        """
        found = get_completion_class(shell)
        assert found is not None  # Click has all of SHELLS
        click.echo(found(cli, {}, "ipfctl", "_IPFCTL_COMPLETE").source())
