"""Singular and plural of what lists count."""

from __future__ import annotations


def plural(noun: str) -> str:
    """`identity conflict` -> `identity conflicts`, `reply` -> `replies`."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def counted(count: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{count} {noun if count == 1 else plural(noun)}"


def none_of(noun: str) -> str:
    """`There are no messages.`"""
    return f"There are no {plural(noun)}."
