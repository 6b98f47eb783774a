"""Messages of the corpus, and public ones, with some fields changed: neighbours that no generator thinks of.

A change puts a value of any field of any message, or an odd one, into a field, a repetition or a component, adds fields
at the end, or repeats a segment.  The same number gives the same message.

`python -m tests.mapping_maps.mutations 5000 [FIRST]` converts and validates 5,000 of them, and prints every kind of
error with a reduced message.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache, partial
from random import Random

from tests.corpus import samples
from tests.mapping_maps import generator, validity
from tests.mapping_maps.public_messages import messages
from tests.reference import REFERENCE

_MOST_CHANGES = 6
_ODD = (*generator.ODD_DATES, *generator.ODD_NUMBERS, *generator.ODD_WORDS, *generator.ODD)


@cache
def _originals() -> tuple[list[list[str]], list[str]]:
    """The segments of each message, and all values of fields."""
    texts = [(samples.HERE / f"{name}.hl7").read_text(encoding="utf-8") for name in samples.names()]
    if REFERENCE.is_dir():
        texts += [text for _, text in messages(REFERENCE)]
    lines = [[line for line in text.split("\n") if line] for text in texts]
    return lines, sorted({value for one in lines for line in one for value in line.split("|")[1:] if value})


def mutation(number: int) -> str:
    """The message of a number."""
    random = Random(number)
    texts, values = _originals()
    lines = list(random.choice(texts))
    for _ in range(random.randint(1, _MOST_CHANGES) if len(lines) > 1 else 0):
        at = random.randrange(1, len(lines))
        if random.random() < 0.1:
            lines.insert(at, lines[at])
        else:
            lines[at] = _changed(lines[at], values, random)
    return "\n".join(lines)


def _changed(line: str, values: list[str], random: Random) -> str:
    fields = line.split("|")
    at = random.randrange(1, len(fields)) if len(fields) > 1 else 0
    kind = random.choice(("value", "value", "odd", "repetition", "component", "end"))
    if not at or kind == "end":
        return "|".join((*fields, *[""] * random.randint(0, 12), random.choice(values)))
    if kind == "repetition":
        fields[at] += "~" + random.choice(values)
    elif kind == "component":
        parts = fields[at].split("^")
        parts[random.randrange(len(parts))] = random.choice((*_ODD, "", "x"))
        fields[at] = "^".join(parts)
    else:
        fields[at] = random.choice(values if kind == "value" else _ODD)
    return "|".join(fields)


def explore(numbers: range) -> Counter[str]:
    """Print every kind of error."""
    found: Counter[str] = Counter()
    example: dict[str, str] = {}
    for number in numbers:
        text = mutation(number)
        for kind in validity.kinds(text):
            found[kind] += 1
            example.setdefault(kind, text)
    for kind, times in found.most_common():
        smallest = validity.reduced(example[kind], partial(_has, kind))
        print(f"{times:6} {kind}\n       | " + smallest.replace("\n", "\n       | "), flush=True)
    return found


def _has(kind: str, text: str) -> bool:
    return kind in validity.kinds(text)


if __name__ == "__main__":
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    explore(range(first, first + int(sys.argv[1])))
