"""The last Observations of each code: grouped, cut and put in order.

Observations with the same code and system are of one group, and so are those that a third one connects, which has the
codes of both.  Those without codes are grouped by their text as it is.  Each subject has groups of its own.

Source: https://hl7.org/fhir/R4/observation-operation-lastn.html
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ipf.errors import Category, Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.index.lastn import DATE, OF_KIND, SEPARATOR, LastnKey, codes_of, lastn_key_of
from ipf.fhir.model.json import loads
from ipf.fhir.search.predicate import inner
from ipf.ports import Version
from ipf.ports.queries.predicates import (
    AllOf,
    AnyOf,
    DateRange,
    Not,
    Present,
    Test,
    TextAmong,
    TextEquals,
    TextPrefix,
    TextSuffix,
)

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Observed:
    """An Observation with its key."""

    key: LastnKey
    version: Version


def observed(version: Version) -> Observed:
    """An Observation with the key that its content has."""
    resource = loads(version.body)
    entries = extract(resource)
    return Observed(lastn_key_of(resource, entries.texts, entries.dates), version)


def last_of_each(found: Iterable[Observed], most: int) -> list[Version]:
    """The newest `most` of each group, groups in the order of their codes; of equal times the one stored last."""
    by_kind: dict[Key, list[Observed]] = defaultdict(list)
    for one in found:
        by_kind[one.key.subject, one.key.kind].append(one)
    groups = _connected({key: _codes(some[0].version) for key, some in by_kind.items()})
    result: list[Version] = []
    for keys in groups:
        members = [one for key in keys for one in by_kind[key]]
        members.sort(key=lambda one: (one.key.time, one.version.rid), reverse=True)
        result += [one.version for one in members[:most]]
    return result


def of_kind_alone(test: Test) -> bool:
    """Whether all Observations of a kind pass a test, or none."""
    match test:
        case TextEquals() | TextAmong() | TextPrefix() | TextSuffix() | Present():
            return test.code in OF_KIND
        case AllOf() | AnyOf() | Not():
            return all(of_kind_alone(one) for one in inner(test))
    return False


def latest_start(test: Test) -> int | None:
    """A time after which no Observation that passes a test begins; None: the test says nothing of it."""
    match test:
        case DateRange(code, bounds) if code == DATE and bounds:
            ends = [[one.value for one in some if one.operator in ("<", "<=")] for some in bounds]
            return max(min(map(int, some)) for some in ends) if all(ends) else None  # type: ignore[arg-type]
        case AllOf(tests):
            return min((end for one in tests if (end := latest_start(one)) is not None), default=None)
        case AnyOf(tests):
            found = [latest_start(one) for one in tests]
            return None if None in found else max((end for end in found if end is not None), default=None)
    return None


def too_many(limit: int) -> Problem:
    """The refusal of a result of more than `limit` Observations."""
    text = f"the result has more than {limit} Observations: name fewer codes or categories, or a smaller max"
    return Problem(Category.COSTLY, text, "max")


def _codes(version: Version) -> Sequence[str]:
    part = {"resourceType": version.resource_type, "code": loads(version.body).get("code")}
    return codes_of(part, extract(part).texts)


def _connected(codes: dict[Key, Sequence[str]]) -> list[list[Key]]:
    """The keys in groups, which are connected by common codes of one subject."""
    parents: dict[Key, Key] = {key: key for key in codes}
    first: dict[Key, Key] = {}  # by subject and code

    def root(key: Key) -> Key:
        while parents[key] != key:
            parents[key] = parents[parents[key]]
            key = parents[key]
        return key

    for key, some in codes.items():
        for code in some:
            parents[root(key)] = root(first.setdefault((key[0], code), key))
    groups: dict[Key, list[Key]] = defaultdict(list)
    for key in codes:
        groups[root(key)].append(key)
    return sorted(groups.values(), key=lambda keys: min(_order(key[0], code) for key in keys for code in codes[key]))


def _order(subject: str, code: str) -> tuple[str, bool, str]:
    """Texts come after codes."""
    return subject, code.startswith(SEPARATOR), code
