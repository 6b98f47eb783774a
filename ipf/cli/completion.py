"""`ipfctl completion`: the script with which a shell completes nouns, verbs and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script for completion in a shell.

    bash: eval "$(ipfctl completion bash)" in ~/.bashrc.  zsh: the same with zsh, after compinit.  fish: ipfctl
    completion fish > ~/.config/fish/completions/ipfctl.fish.
    """
    found = get_completion_class(shell)
    assert found is not None  # Click has all of SHELLS
    click.echo(found(context.find_root().command, {}, "ipfctl", "_IPFCTL_COMPLETE").source())
