"""A result that is found often, as a function that makes it anew: what is the same each time is constant in its code.

It does what `memo_results.Replay` does from JSON, in half the time.  Texts of messages enter its code as literals only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from ipf.mapping.runtime.memo_keys import Plan
from ipf.mapping.runtime.memo_results import Kept, Link
from ipf.mapping.runtime.scope import Act


def replay_function(plan: Plan, kept: Kept) -> Act:
    """A function of a frame."""
    names: dict[str, Any] = {"notes": kept.notes}
    writer = _Writer(plan, orjson.loads(kept.text), kept.links)
    lines = [*writer.targets(), *writer.entries(), *writer.references()]
    if kept.notes is not None:
        lines += ["r.unmapped += notes[0]", "r.warnings += notes[1]", "r.logs += notes[2]"]
    body = "\n    ".join(["r = f[0]", *lines])
    exec(compile(f"def again(f):\n    {body}\n", "<again>", "exec"), names)
    made: Act = names["again"]
    return made


class _Writer:
    """Writes the statements.  Objects that references are about get names: `o1`, `o2` ..."""

    def __init__(self, plan: Plan, content: list[Any], links: Sequence[Link]) -> None:
        self._plan = plan
        self._content = content
        self._links = links
        self._names: dict[int, str] = {}
        for way, _, number in links:
            self._named(way)
            if number >= 0:
                self._named((len(content) - 1, number, "resource"))

    def _named(self, way: tuple[str | int, ...]) -> str:
        """The name of an object in the content, or the expression for a target."""
        first = way[0]
        if type(first) is int and first >= len(self._content):
            return f"f[{self._plan.targets[first - len(self._content)]}]"
        found: Any = self._content
        for step in way:
            found = found[step]
        if found is self._content[0] and self._plan.target:  # what is in it goes to the target itself
            return f"f[{self._plan.target}]"
        return self._names.setdefault(id(found), f"o{len(self._names)}")

    def _literal(self, value: Any) -> str:
        """An expression that makes a value anew, and names what has a name."""
        if type(value) is list:
            return f"[{', '.join(map(self._literal, value))}]"
        if type(value) is not dict:
            return repr(value)
        made = f"{{{', '.join([f'{name!r}: {self._literal(one)}' for name, one in value.items()])}}}"
        name = self._names.get(id(value))
        return f"({name} := {made})" if name else made

    def targets(self) -> list[str]:
        """What comes into each target but the Bundle."""
        lines = []
        contents = iter(self._content)
        if self._plan.target:
            target = f"f[{self._plan.target}]"
            lines += [f"if {target}: {target}.clear()", f"{target}.update({self._literal(next(contents))})"]
        for shared in self._plan.shared:
            lines.append(f"t = f[{shared.place}]")
            for name, value in next(contents).items():
                if name in shared.lists:
                    lines.append(f"v = {self._literal(value)}")
                    lines.append(f"if {name!r} in t: t[{name!r}] += v")
                    lines.append(f"else: t[{name!r}] = v")
                else:
                    lines.append(f"t[{name!r}] = {self._literal(value)}")
        return lines

    def entries(self) -> list[str]:
        """The new entries of the Bundle."""
        added = self._content[-1]
        if not added:
            return []
        return [f"f[{self._plan.bundle}].setdefault('entry', []).extend({self._literal(added)})"]

    def references(self) -> list[str]:
        """The references, in the order in which they were made first."""
        lines = []
        for way, name, number in self._links:
            holder = self._named(way)
            if number >= 0:
                resource = self._named((len(self._content) - 1, number, "resource"))
            else:
                resource = f"f[{self._plan.targets[-1 - number]}]"
            lines.append(f"{holder}[{name!r}] = r.urn({resource})")
            lines.append(f"r.references.append(({holder}, {name!r}, {resource}))")
        return lines
