"""The HL7 v2 messages of `../shared/reference`, whatever file they are in: converted and validated.

`python -m tests.mapping_maps.public_messages [FOLDER ...]` does so for all files of these folders (default: that one),
and prints the figures, each kind of error with a reduced message, and what was not converted.  A message is a line that
begins with MSH and the segments after it: in a file of messages, in a string of JSON, and in a string of a source file.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ipf.errors import Category, Problem
from tests.corpus import samples
from tests.mapping_maps.validity import kind_of, kinds, reduced, validator
from tests.reference import REFERENCE

_LARGEST = 5_000_000
_BEGINNING = re.compile(r"(?m)^[ \x0b]*(?=MSH[|#!$%&])")
_SEGMENT = re.compile(r"[A-Z][A-Z0-9]{2}[^A-Za-z0-9\s]")
_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


def messages(*folders: Path) -> Iterator[tuple[str, str]]:
    """(file and number, text with \\n between segments) of each message, each text once."""
    seen: set[str] = set()
    for folder in folders:
        for path in sorted(one for one in folder.rglob("*") if one.is_file() and one.stat().st_size < _LARGEST):
            for number, text in enumerate(_of_file(path)):
                if text not in seen:
                    seen.add(text)
                    yield f"{path.relative_to(folder)}#{number}", text


def _of_file(path: Path) -> Iterator[str]:
    raw = path.read_bytes()
    if b"MSH" not in raw:
        return
    text = raw.decode("utf-8", "replace")
    strings = _strings(path.suffix, text)
    for one in [text] if strings is None else strings:
        yield from _of_text(_PLACEHOLDER.sub(r"\1", re.sub(r"\r\n?", "\n", one)))


def _strings(suffix: str, text: str) -> list[str] | None:
    """The strings in a file of JSON or Python; None for another."""
    try:
        if suffix == ".json":
            return list(_strings_of(json.loads(text)))
        if suffix == ".py":
            nodes = ast.walk(ast.parse(text))
            return [one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    except (ValueError, SyntaxError):
        return []
    return None


def _strings_of(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings_of(one)


def _of_text(text: str) -> Iterator[str]:
    """A message ends where the next one begins, and with the first line that is no segment."""
    for part in _BEGINNING.split(text):
        lines = []
        for line in (one.strip(" \x1c") for one in part.split("\n")):
            if line and not _SEGMENT.match(line):
                break
            lines += [line] if line else []
        if len(lines) > 1 and lines[0].startswith("MSH"):
            yield "\n".join(lines)


@dataclass(slots=True)
class Survey:
    """What became of messages.  `unmapped`: of types without a map.  `refused`: by a rule about messages.

    `errors`: kind of each error -> how often; `examples`: a message of each.
    """

    messages: int = 0
    resources: int = 0
    unmapped: Counter[str] = field(default_factory=Counter)
    refused: dict[str, str] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, text: str) -> None:
        """Convert and validate one message."""
        self.messages += 1
        message_type = ""
        try:
            message = samples.parse(text)
            message_type = message.message_type
            made = samples.library().transform_message(message, checked=False)
        except Problem as problem:
            if problem.category is Category.UNMAPPED:
                self.unmapped[message_type] += 1
            else:
                self.refused[name] = str(problem)
            return
        self.resources += len(made["entry"])
        for one in validator().validate(made):
            if one.severity == "error":
                kind = kind_of(made, one)
                self.errors[kind] += 1
                self.examples.setdefault(kind, text)


def survey(*folders: Path) -> Survey:
    """All messages of these folders."""
    found = Survey()
    for name, text in messages(*folders):
        found.add(name, text)
    return found


def _has(kind: str, text: str) -> bool:
    return kind in kinds(text)


def main(folders: list[Path]) -> None:
    """Print the figures."""
    found = survey(*folders)
    for kind, times in found.errors.most_common():
        smallest = reduced(found.examples[kind], partial(_has, kind))
        print(f"{times:6} {kind}\n       | " + smallest.replace("\n", "\n       | "))
    for name, words in found.refused.items():
        print(f"refused {name}: {words}")
    print(f"no map: {dict(found.unmapped)}")
    print(f"{found.messages} messages, {found.resources} resources, {found.errors.total()} errors")


if __name__ == "__main__":
    main([Path(one) for one in sys.argv[1:]] or [REFERENCE])
