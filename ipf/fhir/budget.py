"""The budget of an interpreter: it is spent inside the loop, and its end is an error that names it.

Interpreters of programs from outside (compositions of value sets, patches, queries) count their steps here.  A step is
a piece of work of bounded size, about a microsecond.
"""

from __future__ import annotations

from ipf.errors import Category, Problem


class Budget:
    """Steps that one run may take.  `what`: for the message, such as "the expansion"."""

    def __init__(self, steps: int, what: str, place: str | None = None) -> None:
        self.steps = self.steps_left = steps
        self._what, self._place = what, place

    def spend(self, steps: int = 1) -> None:
        """Take some steps.  Problem COSTLY when there are none left."""
        self.steps_left -= steps
        if self.steps_left < 0:
            raise Problem(Category.COSTLY, f"{self._what} takes more than {self.steps} steps", self._place)
