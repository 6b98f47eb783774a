"""The corpus: messages with made-up patients, and their expected Bundles.

`<name>.hl7` holds one segment a line.  `<name>.json` is the Bundle, checked against the tables of the v2-to-FHIR guide;
every `urn:uuid` is replaced by type and number (`Patient-1`).  After an intended change of the maps, `python -m
tests.corpus.samples` writes all of them; review the difference before the commit.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from ipf.config.paths import folder
from ipf.fhir.model.json import dumps
from ipf.hl7.message import Message
from ipf.mapping.library.maps import Library

WITHOUT_PATIENT = ("SIU_S23", "SIU_S24", "ORM_O01", "ORU_R01")
HERE = Path(__file__).resolve().parent


@lru_cache(maxsize=1)
def library() -> Library:
    """The maps of the project, each compiled once for all tests: when a test needs it; some orders have no patient."""
    return Library.load(folder("maps"), compiled=False, without_patient=WITHOUT_PATIENT)


def names() -> list[str]:
    """Names of the samples."""
    return sorted(path.stem for path in HERE.glob("*.hl7"))


def message(name: str) -> Message:
    """A sample as it comes off the wire: carriage return after each segment, UTF-8."""
    return parse((HERE / f"{name}.hl7").read_text(encoding="utf-8"))


def parse(text: str) -> Message:
    """A message from text with one segment a line."""
    return Message.parse(text.strip().replace("\n", "\r").encode() + b"\r")


def bundle(name: str) -> dict[str, Any]:
    """The Bundle that the maps make of a sample."""
    return library().transform_message(message(name))


def readable(made: dict[str, Any]) -> dict[str, Any]:
    """The Bundle with `Patient-1` in place of each fullUrl; JSON numbers as JSON reads them."""
    text = dumps(made).decode()
    counts: dict[str, int] = {}
    for entry in made["entry"]:
        resource_type = entry["resource"]["resourceType"]
        counts[resource_type] = counts.get(resource_type, 0) + 1
        text = text.replace(entry["fullUrl"], f"{resource_type}-{counts[resource_type]}")
    plain: dict[str, Any] = json.loads(text)
    return plain


def expected(name: str) -> dict[str, Any]:
    """The Bundle as it was found right."""
    plain: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    return plain


def write_all() -> None:
    """Write the expected Bundles anew."""
    for name in names():
        text = json.dumps(readable(bundle(name)), indent=1, ensure_ascii=False)
        flat = re.sub(r"\{\n\s+(\"[^\"]+\": (?:\"[^\"\n]*\"|[\w.-]+))\n\s+\}", r"{\1}", text)
        (HERE / f"{name}.json").write_text(flat + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_all()
