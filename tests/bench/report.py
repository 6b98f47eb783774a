"""How a bench prints: a heading, then lines of name, figure and what it is compared with."""

from __future__ import annotations


def heading(name: str, doc: str) -> None:
    """Name and purpose of a bench."""
    print(f"\n== {name}: {doc.splitlines()[0]}", flush=True)


def line(what: str, figure: str, beside: str = "") -> None:
    """One result; `beside` is the limit or target it is to be read against."""
    print(f"  {what:<52} {figure:>22}   {beside}", flush=True)
