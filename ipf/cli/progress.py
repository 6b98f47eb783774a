"""What a terminal shows on standard error while a command works: a clock after two seconds, or a bar.

Nothing is written when standard error is no terminal.  It goes before the result is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

PATIENCE = 2.0
"""Seconds after which a command says that it still waits."""


class Waiting:
    """The progress of one command.  `console`: standard error."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: Progress | None = None

    @contextmanager
    def clock(self, reactor: Any, text: str) -> Iterator[None]:
        """Show `text` and the seconds since, once the command has taken two seconds."""
        call = reactor.callLater(PATIENCE, lambda: self._show(text, None))
        try:
            yield
        finally:
            if call.active():
                call.cancel()
            self.clear()

    @contextmanager
    def bar(self, text: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """A bar; the function that it gives takes what is done so far."""
        self.clear()
        update = self._show(text, total)
        try:
            yield update
        finally:
            self.clear()

    def clear(self) -> None:
        """Remove it, so that other text can be written."""
        shown, self._shown = self._shown, None
        if shown is not None:
            shown.stop()

    def _show(self, text: str, total: int | None) -> Callable[[int], None]:
        if self._shown is not None or not self._console.is_terminal:
            return lambda done: None
        figures = () if total is None else (BarColumn(), MofNCompleteColumn())
        made = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), *figures, TimeElapsedColumn(),
            console=self._console, transient=True,
        )  # fmt: skip
        task = made.add_task(text, total=total)
        made.start()
        self._shown = made
        return lambda done: made.update(task, completed=done)
