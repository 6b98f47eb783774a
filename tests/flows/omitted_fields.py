"""Messages from which single fields are left out or deleted, and what is stored after them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ipf.fhir.model.json import dumps, loads
from ipf.mapping.bundle.identity import CREATE, RULES
from ipf.mapping.library.maps import Library
from ipf.ports import DEFAULT_TENANT, Json
from ipf.ports.messages.inbox import Claimed
from ipf.rest.identity.stored_sources import digest, origins_in
from ipf.rest.write.unit import Unit, UnitResult
from tests.corpus import samples
from tests.rest.world import CORRELATION_ID, World

Lines = list[list[str]]
"""A message: the fields of each segment, the name first."""

TWIN = " twin "
"""In the name of a resource that has its first number together with others."""
_COUNT = itertools.count(1)

KEYS = {
    "PID": {1, 3}, "PV1": {1, 2, 19, 50, 54}, "MRG": set(range(1, 9)), "EVN": {1}, "NK1": {1, 2, 3, 33},
    "AL1": {1, 3}, "IAM": {1, 3, 7}, "DG1": {1, 2, 3, 4, 20, 21}, "PR1": {1, 3, 5, 19}, "IN1": {1, 2, 3, 36, 49},
    "GT1": {1, 2, 3}, "ORC": {1, 2, 3, 4}, "OBR": {1, 2, 3, 4, 7}, "OBX": set(range(1, 30)), "TXA": {1, 12},
    "RXA": {1, 3, 5}, "SPM": {1, 2, 4}, "SCH": {1, 2}, "PRB": {1, 3, 4}, "ROL": {1, 2, 3, 4, 5},
}  # fmt: skip
"""Fields that say which resource is meant, or whether it is one at all."""


def lines(name: str) -> Lines:
    """A sample of the corpus."""
    text = (samples.HERE / f"{name}.hl7").read_text(encoding="utf-8").strip()
    return [line.split("|") for line in text.split("\n")]


def variants(message: Lines) -> Iterator[tuple[int, int]]:
    """Segment and number of each field with a value that is no key."""
    for number, segment in enumerate(message):
        if segment[0] == "MSH":
            continue
        for place in range(1, len(segment)):
            if segment[place] and place not in KEYS.get(segment[0], {1}):
                yield number, place


def with_field(message: Lines, number: int, place: int, value: str) -> Lines:
    """The message with another value in one field."""
    made = [list(one) for one in message]
    made[number][place] = value
    return made


class Feed:
    """Messages into one store in memory, as the converter does."""

    def __init__(self, library: Library | None = None) -> None:
        self.world = World()
        self.library = library or samples.library()

    async def tell(self, message: Lines) -> UnitResult:
        """Convert and store one message; raises its Problem."""
        (found,) = await self.world.commit(self.unit(message))
        self.world.pass_time()
        if not isinstance(found, UnitResult):
            raise found
        return found

    def unit(self, message: Lines) -> Unit:
        """Convert one message."""
        count = next(_COUNT)
        raw = "\r".join("|".join(one) for one in message).encode() + b"\r"
        kind = "_".join(message[0][8].split("^")[:2])
        now = datetime.now(UTC)
        claimed = Claimed(count, 1, CORRELATION_ID, now, message[0][2], f"M{count}", kind, raw, "utf-8", 0)
        mapped = self.library.transform(claimed)
        assert mapped.entries is not None
        return Unit(DEFAULT_TENANT, mapped.entries, CORRELATION_ID, f"m/{count}", references=mapped.references)

    def stored(self) -> dict[str, Json]:
        """The current resources that messages update, without meta, by type and id."""
        found: dict[str, Json] = {}
        for (_, kind, id_), versions in self.world.store.versions.items():
            if RULES.get(kind) != CREATE and not versions[-1].deleted:
                resource = loads(versions[-1].body)
                found[f"{kind}/{id_}"] = {name: one for name, one in resource.items() if name not in ("id", "meta")}
        return found

    def by_number(self) -> dict[str, Json]:
        """The same by type and first identifier, with these in place of the ids in references."""
        stored = self.stored()
        names = {key: f"{key.partition('/')[0]}#{_number(one)}" for key, one in stored.items()}
        counts = Counter(names.values())
        names = {key: f"{name}{TWIN}{place}" if counts[name] > 1 else name
                 for place, (key, name) in enumerate(names.items())}  # fmt: skip
        text = dumps(stored).decode()
        text = re.sub(r"\b[A-Z][A-Za-z]+/[\w-]+", lambda match: names.get(match[0], match[0]), text)
        whole: dict[str, Json] = loads(text.encode())
        return whole

    def said_by(self, field: str) -> list[tuple[str, str, list[Any]]]:
        """What only this field says: resource (as in `by_number`), element, items."""
        found = []
        stored, named = self.stored(), self.by_number()
        for key, name in zip(stored, named, strict=True):
            kind, _, id_ = key.partition("/")
            sources = self.world.store.versions[DEFAULT_TENANT, kind, id_][-1].sources
            for element, given in loads(sources.encode()).items() if sources else ():
                pairs = zip(items(stored[key], element), items(named[name], element), strict=True)
                origins = origins_in(stored[key].get(element), given)
                said = [two for one, two in pairs if origins.get(digest(one)) == field]
                if said:
                    found.append((name, element, said))
        return found


def items(resource: Json, element: str) -> list[Any]:
    """The items of an element; of a single one itself."""
    held = resource.get(element, [])
    return held if isinstance(held, list) else [held]


def _number(resource: Json) -> str:
    held: Any = resource.get("identifier", [])
    every = held if isinstance(held, list) else [held]
    return next((f"{one.get('system', '')}|{one['value']}" for one in every if "value" in one), "")
