"""An expansion as a tree: each code within its parent, if that is in the expansion too."""

from __future__ import annotations

from ipf.fhir.terminology import Terminology
from ipf.ports import Json


def nested(contains: list[Json], terminology: Terminology) -> list[Json]:
    """The entries with those of children inside; a code with several parents stands in the first one."""
    entries = {(one.get("system", ""), one["code"]): one for one in contains}
    top = []
    for (system, code), one in entries.items():
        known = None if terminology.imported(system) is not None else terminology.system(system)
        concept = known.find(code) if known is not None else None
        above = concept.parents if concept is not None else ()
        parent = next((entries[system, each] for each in above if (system, each) in entries), None)
        if parent is None or known is None or code in known.above(code):
            top.append(one)
        else:
            parent.setdefault("contains", []).append(one)
    return top
