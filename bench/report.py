"""Output of a bench: a heading, then lines with name, figure and reference."""

from __future__ import annotations


def heading(name: str, doc: str) -> None:
    """Name and purpose of a bench."""
    print(f"\n== {name}: {doc.splitlines()[0]}", flush=True)


def line(what: str, figure: str, reference: str = "") -> None:
    """One result; `reference`: the limit or target to compare it with."""
    print(f"  {what:<52} {figure:>22}   {reference}", flush=True)
