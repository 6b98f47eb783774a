"""Samples of HL7 v2 messages about invented people: one of a kind each, with a fresh id and the time of now."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from uuid import uuid4

_TIME, _CONTROL_ID = 6, 9


@cache
def samples() -> dict[str, str]:
    """The texts by name (`a01_inpatient`), with line feeds, in the order of their names."""
    folder = files("ipf.console") / "samples"
    found = {one.name.removesuffix(".hl7"): one for one in folder.iterdir() if one.name.endswith(".hl7")}
    return {name: found[name].read_text("utf-8").replace("\r\n", "\n").replace("\r", "\n") for name in sorted(found)}


def fresh(text: str, now: datetime | None = None) -> str:
    """A message with the time of now and a control id that was never used, so that it is no repeat."""
    first, separator, rest = text.partition("\n")
    fields = first.split(first[3:4])
    fields[_TIME] = (now or datetime.now(UTC)).strftime("%Y%m%d%H%M%S+0000")
    fields[_CONTROL_ID] = f"SAMPLE-{uuid4().hex[:12].upper()}"
    return first[3:4].join(fields) + separator + rest
