"""The cases that fhirpath.js publishes, run by this engine: how many agree, and each one that does not.

`python -m tests.fhir.fhirpath.fhirpath_js FOLDER`: `FOLDER` is the folder `test` of the npm package `fhirpath` (3.0 to
3.13 contain it; later packages do not).  Cases of other releases of FHIR and disabled ones are left out.
docs/reference/fhirpath.md has the figures, and the reason of each kind of difference.
Source: https://github.com/HL7/fhirpath.js/tree/master/test/cases
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ipf.fhir.fhirpath import FhirNode, FhirPathError, compile
from ipf.fhir.fhirpath.functions.conversion import to_text
from ipf.fhir.fhirpath.items.nodes import TypeInfo, plain
from ipf.fhir.model.json import loads

_ERROR = "an error"


class Loader(yaml.SafeLoader):
    """YAML as fhirpath.js reads it: `yes` is a text, a date is a text."""

    yaml_implicit_resolvers = {
        mark: [one for one in those if one[0] not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool")]
        for mark, those in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def cases(tests: list[dict[str, Any]]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each expression with its case, through all groups."""
    for test in tests:
        group = next((name for name in test if name.startswith("group")), None)
        if test.get("disable") is True or test.get("model", "r4") != "r4":
            continue
        if group is not None:
            yield from cases(test[group] or [])
        elif "expression" in test:
            texts = test["expression"] if isinstance(test["expression"], list) else [test["expression"]]
            yield from ((text, test) for text in texts)


def exact(value: Any) -> Any:
    """YAML with decimals in place of floats."""
    if isinstance(value, list):
        return [exact(one) for one in value]
    if isinstance(value, dict):
        return {name: exact(one) for name, one in value.items()}
    return Decimal(repr(value)) if isinstance(value, float) else value


def as_json(item: Any) -> Any:
    """An item as fhirpath.js shows it; None without a value."""
    if isinstance(item, TypeInfo):
        return {"name": item.name, "namespace": item.namespace}
    value = plain(item)
    if type(value) is FhirNode:
        return value.value
    return value if isinstance(value, (str, bool, int, Decimal, type(None))) else to_text(value)


def same(a: Any, b: Any) -> bool:
    """The same JSON; numbers of JavaScript have some 16 digits."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (int, Decimal)) and isinstance(b, (int, Decimal)):
        return abs(a - b) < Decimal("1e-9")
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def result(text: str, test: dict[str, Any], subject: Any) -> Any:
    """What this engine gives for a case; `_ERROR` for an error."""
    base, text = (text["base"], text["expression"]) if isinstance(text, dict) else (None, text)
    variables = {**exact(test.get("variables") or {}), "resource": subject}
    try:
        if test.get("context"):
            variables["context"] = compile(test["context"]).evaluate(subject)[0]
        found = compile(text, base_type=base).evaluate(subject, variables, typed=True)
    except FhirPathError:
        return _ERROR
    return [value for value in map(as_json, found) if value is not None]


def main(folder: Path) -> None:
    """Print each difference and the totals."""
    resource = cache(lambda name: loads((folder / "resources" / name).read_text(encoding="utf-8")))
    total = differ = 0
    for path in sorted((folder / "cases").glob("*.yaml")):
        document = yaml.load(path.read_text(encoding="utf-8"), Loader)
        for text, test in cases(document["tests"]):
            subject = resource(test["inputfile"]) if "inputfile" in test else exact(document.get("subject"))
            wanted = _ERROR if test.get("error") else exact(test.get("result"))
            found = result(text, test, subject)
            total += 1
            if not same(found, wanted):
                differ += 1
                print(f"{path.stem}: {text}\n    theirs {wanted}\n    ours   {found}")
    print(f"{total} cases, {total - differ} agree")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
