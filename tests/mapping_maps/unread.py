"""The fields of message files: mapped, ignored on purpose (declared), or open.

`bin/mapping-coverage --messages FILE...` prints them with the number of messages and one file for each; a file may hold
several messages, with any line ends.  `bin/mapping-coverage` writes the open fields of the corpus to
tests/corpus/unread.txt, which a test holds to be true.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ipf.config.paths import folder
from ipf.errors import Problem
from ipf.hl7.message import Message
from ipf.hl7.reads import read_fields
from ipf.mapping.library.maps import Library
from ipf.ports.messages.mapping import DECLARED, DROPPED, UNREAD
from tests.corpus import samples

MAPPED = "mapped"
TABLE = samples.HERE / "unread.txt"
HEAD = """# Fields of the corpus that no rule reads and no map declares, and results that are dropped.
# Kind, path, message types.  Written by bin/mapping-coverage.
"""

Seen = dict[tuple[str, str], list[str]]
"""By kind and path: the messages in which it occurs; a reason follows the path after a tab."""


def messages_in(path: Path) -> Iterator[bytes]:
    """The messages of a file."""
    content = re.sub(rb"[\x0b\x1c]", b"", path.read_bytes())
    content = re.sub(rb"\r\n|\n", b"\r", content)
    for one in re.split(rb"(?:^|\r)(?=MSH)", content):
        if one.startswith(b"MSH"):
            yield one.strip(b"\r") + b"\r"


def fields_of(message: Message, library: Library) -> Iterator[tuple[str, str]]:
    """Kind and path of each field of a message; a declared one with its reason.  Problem: it cannot be mapped."""
    result = library.run(message, checked=False)
    for one in result.unread():
        yield one.kind, f"{one.path}\t{one.reason}".rstrip("\t")
    for segment in message.all_segments:
        for number in read_fields(segment):
            yield MAPPED, f"{segment.name}-{number}"


def collect(messages: Iterable[tuple[str, bytes]], library: Library) -> tuple[Seen, list[str]]:
    """What becomes of the fields of named messages, and the messages that cannot be mapped."""
    seen: Seen = {}
    refused: list[str] = []
    for name, raw in messages:
        try:
            for key in dict.fromkeys(fields_of(Message.parse(raw), library)):
                seen.setdefault(key, []).append(name)
        except Problem as problem:
            refused.append(f"{name}: {problem}")
    return seen, refused


def table() -> str:
    """The open fields of the corpus, as in tests/corpus/unread.txt."""
    found: dict[tuple[str, str], set[str]] = {}
    for name in samples.names():
        message = samples.message(name)
        if samples.library().has_map(message.message_type):
            for kind, path in fields_of(message, samples.library()):
                if kind in (UNREAD, DROPPED):
                    found.setdefault((kind, path), set()).add(message.message_type)
    rows = [f"{kind} {path} {' '.join(sorted(types))}\n" for (kind, path), types in sorted(found.items())]
    return HEAD + "".join(rows)


def report(paths: Iterable[str]) -> Iterator[str]:
    """The lines of `bin/mapping-coverage --messages`."""
    library = Library.load(folder("maps"), compiled=False)
    files = [Path(path) for path in paths]
    seen, refused = collect(((str(path), raw) for path in files for raw in messages_in(path)), library)
    yield from (f"not mapped: {one}" for one in refused)
    for kind in (MAPPED, DECLARED, UNREAD, DROPPED):
        found = {path: names for (what, path), names in sorted(seen.items(), key=_order) if what == kind}
        yield f"{kind}: {len(found)}"
        for path, names in found.items():
            name, _, reason = path.partition("\t")
            yield f"  {name:24} {len(names):6}  {names[0]}  {reason}".rstrip()


def _order(item: tuple[tuple[str, str], list[str]]) -> tuple[str, int]:
    name, _, number = item[0][1].partition("\t")[0].partition("-")
    return name, int(number) if number.isdecimal() else 0
