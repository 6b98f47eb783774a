"""One line of arguments for each command of `ipfctl`, and a walk over its tree."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tests.reference import ROOT

A01 = str(ROOT / "tests/corpus/a01_minimal.hl7")
MAP = str(ROOT / "maps/README.md")  # its text is the service's business
ARCHIVE = str(ROOT / "README.md")

SAMPLES: dict[str, list[str]] = {
    "status": [],
    "messages list": ["--limit", "5"],
    "messages show": ["7"],
    "messages trace": ["c-2"],
    "messages effects": ["7"],
    "messages send": [A01, "--to", "127.0.0.1:1"],
    "messages retry": ["7"],
    "messages replay": ["7", "--dry-run"],
    "messages discard": ["7", "--yes"],
    "dead-letters list": ["--limit", "5"],
    "dead-letters errors": ["--limit", "5"],
    "dead-letters retry": ["--fingerprint", "3f1c"],
    "dead-letters discard": ["--status", "dead_letter"],
    "rejects list": [],
    "rejects show": ["2"],
    "rejects delete": ["2"],
    "jobs list": [],
    "jobs show": ["9"],
    "jobs cancel": ["9"],
    "interfaces list": ["--source-system", "LAB"],
    "sources list": [],
    "sources poll": ["sample/laboratory/results", "--since", "beginning"],
    "destinations list": [],
    "destinations show": ["registry"],
    "destinations retry": ["registry", "--message", "7"],
    "destinations skip": ["registry", "--message", "7"],
    "destinations pause": ["registry"],
    "destinations resume": ["registry"],
    "subscriptions list": [],
    "subscriptions show": ["s1"],
    "subscriptions history": ["Subscription/s1"],
    "subscriptions test": ["s1"],
    "subscriptions set": ["s1", "off"],
    "identity list": ["--status", "open"],
    "identity show": ["3"],
    "identity answer": ["3", "--apart"],
    "identity answers": [],
    "identity revoke": ["5"],
    "patients merge": ["Patient/b", "Patient/a"],
    "patients unmerge": ["Patient/b", "Patient/a"],
    "patients forget": ["Patient/a1"],
    "erasures list": ["--tenant", "north"],
    "maps list": [],
    "maps reload": [],
    "maps show": ["urn:map:a"],
    "maps try": [MAP, "--message", "7"],
    "maps compare": [MAP, "--type", "ADT^A01"],
    "maps install": [MAP],
    "maps remove": ["urn:map:b"],
    "codes list": ["--status", "open"],
    "codes show": ["4"],
    "codes map": ["4", "--to", "2345-7"],
    "codes requeue": ["4"],
    "codes overrides": [],
    "codes unmap": ["6"],
    "fields list": ["--sender", "LAB", "--type", "ADT^A01"],
    "fields forget": ["--sender", "LAB"],
    "settings list": [],
    "profiles list": [],
    "profiles reload": [],
    "profiles validate": [ARCHIVE],
    "profiles install": [ARCHIVE, "--name", "acme.tgz"],
    "profiles roll-back": ["acme.tgz"],
    "audit key": [],
    "audit heads": [],
    "audit export": ["--surface", "fhir", "-o", "audit-export.ndjson"],
}
"""Of every command that asks the service."""

ON_THE_HOST = {
    "doctor", "completion", "migrate", "backup create", "backup verify", "backup restore", "terminology import",
    "terminology list", "terminology remove", "audit verify", "erasures verify", "profiles pack", "profiles new",
}  # fmt: skip
"""The others: modules on the host of the service, and what works on files."""


def commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every group and command below a group, by its words."""
    for word, inner in getattr(command, "commands", {}).items():
        words = f"{name} {word}".strip()
        yield words, inner
        yield from commands(inner, words)
