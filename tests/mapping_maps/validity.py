"""Whether what the maps make of a message is valid R4: findings of the validator, and the smallest message with one.

`python -m tests.mapping_maps.validity 500` converts and validates 500 generated messages of every type that has a map,
and prints every kind of error with a count and a message reduced to the segments and fields that it needs.
`... 500 SIU ORM` does so for types that begin with these letters.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial
from time import perf_counter
from typing import Any

from ipf.errors import Problem
from ipf.fhir.validation.findings import Finding
from ipf.fhir.validation.validator import Validator
from ipf.mapping.bundle.merging import TWO_OWNERS
from tests.corpus import samples
from tests.mapping_maps import generator

_NUMBERED = re.compile(r"\[\d+\]")
_QUOTED = re.compile(r"'[^']*'")


@lru_cache(maxsize=1)
def validator() -> Validator:
    """Base R4 and the built-in definitions."""
    return Validator()


def errors(text: str) -> list[Finding]:
    """The errors of what a message becomes.  The Bundle is validated whole, so that references have their targets."""
    made = samples.library().transform_message(samples.parse(text), checked=False)
    return [one for one in validator().validate(made) if one.severity == "error"]


def kind_of(bundle: dict[str, Any], finding: Finding) -> str:
    """Resource, element and rule: the same for findings with the same cause."""
    number = re.match(r"Bundle\.entry\[(\d+)\]\.resource", finding.location)
    if number is None:
        return f"{_NUMBERED.sub('', finding.location)}: {finding.text}"
    resource_type = bundle["entry"][int(number[1])]["resource"]["resourceType"]
    element = _NUMBERED.sub("", finding.location[number.end() :])
    text = re.sub(r".* (is not in the required value set)", r"... \1", _QUOTED.sub("...", finding.text))
    return f"{resource_type}{element}: {text[:120]}"


def kinds(text: str) -> set[str]:
    """The kinds of the errors of a message; one that cannot be converted has one, which names the rule.

    The generator gives one number to things of two patients; such messages are refused.
    """
    try:
        made = samples.library().transform_message(samples.parse(text), checked=False)
    except Problem as problem:
        return set() if problem.text == TWO_OWNERS else {f"not converted: {problem}"}
    return {kind_of(made, one) for one in validator().validate(made) if one.severity == "error"}


def reduced(text: str, is_wrong: Callable[[str], bool]) -> str:
    """The message without the segments, fields and components that the error does not need."""
    lines = text.strip().split("\n")
    for number in range(len(lines) - 1, 0, -1):
        fewer = lines[:number] + lines[number + 1 :]
        if is_wrong("\n".join(fewer)):
            lines = fewer
    for separators in ("[|]", "[|~^&]"):
        for number in range(len(lines)):
            lines[number] = _reduced_line(lines, number, separators, is_wrong)
    return "\n".join(lines)


def _reduced_line(lines: list[str], number: int, separators: str, is_wrong: Callable[[str], bool]) -> str:
    """One line with as many parts emptied as possible; MSH keeps its separators, type and version."""
    head = "MSH|^~\\&|" if number == 0 else lines[number][:3]
    parts = re.split(f"({separators})", lines[number][len(head) :])
    for place in range(len(parts) - 1 - (len(parts) - 1) % 2, -1, -2):
        if not parts[place]:
            continue
        fewer = [*parts[:place], "", *parts[place + 1 :]]
        changed = (head + "".join(fewer)).rstrip("|")
        if is_wrong("\n".join([*lines[:number], changed, *lines[number + 1 :]])):
            parts = fewer
    return (
        re.sub(r"[~^&]+(?=[|]|$)", "", "".join(parts)).join([head, ""]).rstrip("|") if number else head + "".join(parts)
    )


def _has(kind: str, text: str) -> bool:
    return kind in kinds(text)


def explore(count: int, wanted: list[str]) -> None:
    """Print every kind of error in `count` messages of every type; `wanted`: beginnings of types."""
    found: Counter[str] = Counter()
    example: dict[str, str] = {}
    types = [one for one in samples.library().message_types if not wanted or one.startswith(tuple(wanted))]
    began, total = perf_counter(), 0
    for message_type in types:
        for number in range(count):
            text = generator.message(message_type, number)
            total += 1
            for kind in kinds(text):
                found[kind] += 1
                example.setdefault(kind, text)
    for kind, times in found.most_common():
        print(f"{times:6} {kind}")
        print("       | " + reduced(example[kind], partial(_has, kind)).replace("\n", "\n       | "), flush=True)
    print(f"{total} messages of {len(types)} types, {len(found)} kinds of errors, {perf_counter() - began:.1f} s")


if __name__ == "__main__":
    explore(int(sys.argv[1]), sys.argv[2:])
