"""A marker in each component of each field of each segment of the corpus, and where it is found.

What a message says must be in a resource, in the ledger of unread fields, or among the codes without a row: `lost`
gives what is in none of them.  A message has a marker in the same component of each field of a segment, so that few
messages have all of them; each marker is told from the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from ipf.errors import Problem
from ipf.fhir.model.json import dumps
from ipf.hl7.message import Message
from ipf.mapping.compiler.v2 import count_of_parts, types_of
from ipf.mapping.library.maps import MappingResult
from tests.corpus import samples

_FIXED = frozenset(("EVN-1", "OBX-2", "PID-3", "PID-2", "PID-4", "MRG-1"))
"""Fields that say how the message is read, or of whom it is."""
_FLAGS = frozenset(("ID", "IS", "SI"))
_NUMBERS = frozenset(("NM", "SNM"))
_COMPANIONS = {"XCN": (1, 2), "CNN": (1, 2), "XPN": (1, 2), "PPN": (1, 2), "XON": (1, 3), "PL": (1,)}
"""Components without which the others of a data type mean nothing; of any other type the first."""
FURTHER = 0
"""In place of a component: a further repetition."""


@dataclass(frozen=True, slots=True)
class Case:
    """A sample with a marker in one component of the fields of one line."""

    sample: str
    line: int
    segment: str
    component: int

    @property
    def name(self) -> str:
        """For a report."""
        return f"{self.sample} {self.segment}.{self.component}"


def cases(sample: str) -> Iterator[Case]:
    """Each component, and a further repetition, of the fields of the first segment of each name."""
    seen = {"MSH"}
    for number, line in enumerate(lines_of(sample)):
        name = line[:3]
        if name not in seen:
            seen.add(name)
            most = max((len(parts_of(f"{name}_{field}")) for field in fields_of(name)), default=0)
            yield from (Case(sample, number, name, component) for component in range(FURTHER, most + 1))


def fields_of(segment: str) -> list[int]:
    """The fields that get a marker."""
    return [one for one in range(1, count_of_parts(segment) + 1) if f"{segment}-{one}" not in _FIXED]


@lru_cache(maxsize=4096)
def parts_of(field: str) -> tuple[str, ...]:
    """The data types of the components of a field, as in its newest version."""
    kind = _kind(field)
    found = [(types_of(f"{kind}_{number}") or ("ST",))[0] for number in range(1, count_of_parts(kind) + 1)]
    return tuple(found) or (kind,)


def _kind(field: str) -> str:
    return (types_of(field) or ("ST",))[0]


def marker(field: int, kind: str) -> tuple[str, str]:
    """A value of a data type that is of this field alone, as sent and as FHIR writes it."""
    if kind in ("DT", "DTM", "TS"):
        return f"{1900 + field}0623", f"{1900 + field}-06-23"
    if kind in _NUMBERS:
        return f"87{field:03}", f"87{field:03}"
    return (f"Q{field:02}Z",) * 2 if kind in _FLAGS else (f"Zq{field:02}marker",) * 2


def marked(case: Case) -> tuple[bytes, dict[int, str]]:
    """The message, and by field how its marker is written in FHIR."""
    lines, shown = lines_of(case.sample), {}
    fields = lines[case.line].split("|")
    for field in fields_of(case.segment):
        parts = parts_of(f"{case.segment}_{field}")
        if case.component > len(parts):
            continue
        value, shown[field] = marker(field, parts[max(case.component, 1) - 1])
        fields += [""] * (field + 1 - len(fields))
        fields[field] = _with(fields[field], f"{case.segment}_{field}", case.component, value)
    lines[case.line] = "|".join(fields)
    return "\r".join((*lines, "")).encode(), shown


def _with(sent: str, field: str, component: int, value: str) -> str:
    """A field with a marker."""
    if component == FURTHER:
        return f"{sent or 'A'}~{value}"
    first, tilde, rest = sent.partition("~")
    parts = first.split("^")
    for other in _companions(_kind(field), component):
        parts += [""] * (other - len(parts))
        parts[other - 1] = parts[other - 1] or f"C{field}".replace("_", "")
    parts += [""] * (component - len(parts))
    parts[component - 1] = value
    return f"{'^'.join(parts)}{tilde}{rest}"


def _companions(kind: str, component: int) -> tuple[int, ...]:
    if kind in ("CWE", "CNE") and component in (5, 6, 8):
        return (1, 4)
    if kind in ("CWE", "CNE") and component in (11, 12, 13):
        return (1, 10)
    if kind == "PL" and component == 11:
        return (1, 10)
    return _COMPANIONS.get(kind, (1,))


def result_of(raw: bytes) -> MappingResult | None:
    """The result of a message; None: it is refused, which its sender and the operators are told."""
    try:
        return samples.library().run(Message.parse(raw), checked=False)
    except Problem:
        return None


def lost(case: Case) -> list[str]:
    """The markers that are nowhere, by path."""
    raw, shown = marked(case)
    result = result_of(raw)
    if result is None:
        return []
    text = dumps(result.bundle).decode()
    codes = {one.code for one in result.unmapped}
    ledger = {one.path for one in result.unread()}
    found = []
    for field, value in shown.items():
        path = f"{case.segment}-{field}"
        part = f"{path}[2]" if case.component == FURTHER else f"{path}.{case.component}"
        shown_as = {case.segment, path, part, f"{path}.1" if case.component == FURTHER else part}
        if value not in text and value not in codes and not ledger & shown_as:
            found.append(part)
    return found if found and not _replaced(ledger) - _replaced(before(case.sample)) else []


def _replaced(ledger: Iterable[str]) -> set[str]:
    """Elements of resources in a ledger: a value of the message was replaced there by another one."""
    return {one for one in ledger if "." in one and "-" not in one}


@lru_cache(maxsize=4)
def before(sample: str) -> frozenset[str]:
    """The ledger of a sample as it is."""
    result = result_of("\r".join((*lines_of(sample), "")).encode())
    return frozenset(() if result is None else (one.path for one in result.unread()))


def lines_of(sample: str) -> list[str]:
    """The segments of a sample."""
    text = (samples.HERE / f"{sample}.hl7").read_text(encoding="utf-8")
    return [line for line in text.split("\n") if line]


def is_coded(path: str) -> bool:
    """Whether a path is of a coded field (CWE, CNE)."""
    segment, _, rest = path.partition("-")
    return _kind(f"{segment}_{rest.partition('.')[0]}") in ("CWE", "CNE")
