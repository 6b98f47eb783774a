"""The searches that US Core 7.0.0 asks of a server, on loaded Synthea patients.

Values are taken from loaded resources by the paths that the reference gives; every hit must have them, and the
resource that a value came from must be among the hits.  Searches for which the patients have no data must at least be
understood.
"""

from __future__ import annotations

import bz2
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from ipf.fhir.index.entries import normalise
from ipf.fhir.model.json import dumps, loads
from tests.reference import REFERENCE, needs_reference
from tests.rest.world import OnPostgres

METADATA = REFERENCE / "us-core-server/us_core_700_metadata.json"
LOAD = REFERENCE / "load"
PATIENTS = ("fcd31792-91d8-982e-8e28-ef1eb284e260", "1ae8d602-4b41-4571-8c49-b460a22892c2")
PER_SEARCH = 2
OWN = {  # parameters that US Core defines itself; all of them SHOULD; they are served when they are posted
    ("CareTeam", "role"), ("Condition", "asserted-date"), ("Encounter", "discharge-disposition"),
    ("Goal", "description"),
}  # fmt: skip

Json = dict[str, Any]
Search = tuple[str, tuple[str, ...]]


@needs_reference
class UsCoreSearch(OnPostgres):
    """All of them, against PostgreSQL."""

    async def test_searches(self) -> None:
        """Each search with the values of a few resources."""
        resources = await self._load()
        searches = _searches()
        self.assertGreater(len(searches), 70)
        tried = 0
        for search, paths in searches.items():
            sources = list(islice(_with_values(resources, search, paths), PER_SEARCH))
            for resource, values in sources:
                await self._try(resource, search, paths, values)
            if not sources:
                await self._understood(search)
            tried += bool(sources)
        self.assertGreater(tried, 70)

    async def _load(self) -> list[Json]:
        files = sorted(LOAD.glob("0-*")) + [LOAD / f"{name}.json.bz2" for name in PATIENTS]
        for file in files:
            bundle = loads(bz2.decompress(file.read_bytes()))
            if bundle["entry"][0]["resource"]["resourceType"] == "Patient":
                bundle["entry"] = _smaller(bundle["entry"])
            answer = await self.world.send("POST", "", dumps(bundle))
            self.assertEqual(answer.status, 200, answer.body[:500])
        rows = await self.database.many(
            "SELECT v.body FROM resources r JOIN resource_versions v ON v.rid = r.rid AND v.version_id = r.version_id"
        )
        return [json.loads(body) for (body,) in rows]

    async def _understood(self, search: Search) -> None:
        dates = ("birthdate", "date", "authored", "period", "_lastUpdated", "target-date", "authoredon")
        pairs = [(name, "ge2000" if name in dates or name.endswith("-date") else "1") for name in search[1]]
        answer = await self.world.send("GET", f"{search[0]}?{urlencode(pairs)}")
        self.assertEqual(answer.status, 200, (search, answer.body))

    async def _try(self, source: Json, search: Search, paths: dict[str, list[str]], values: list[str]) -> None:
        url = f"{search[0]}?{urlencode([*zip(search[1], values, strict=True), ('_count', '1000')])}"
        answer = await self.world.send("GET", url)
        self.assertEqual(answer.status, 200, (url, answer.body[:500]))
        hits = [entry["resource"] for entry in loads(answer.body).get("entry", ())]
        self.assertIn(source["id"], [one["id"] for one in hits], url)
        for hit in hits:
            for name, value in zip(search[1], values, strict=True):
                found = [text for path in paths[name] for text in _texts(hit, path)]
                self.assertTrue(any(_meets(text, value) for text in found), (url, hit["id"], name, found[:5]))


def _smaller(entries: list[Json]) -> list[Json]:
    """A part of a patient's record in which references still have their targets: some of each type."""
    kept, seen = [], dict[str, int]()
    for entry in entries:
        resource_type = entry["resource"]["resourceType"]
        seen[resource_type] = seen.get(resource_type, 0) + 1
        if resource_type in ("Patient", "Encounter", "Condition") or seen[resource_type] <= 12:
            kept.append(entry)
    known = {entry["fullUrl"] for entry in kept}

    def closed(entry: Json) -> bool:
        text = dumps(entry["resource"]).decode().split('"urn:uuid:')[1:]
        return all(f"urn:uuid:{part.partition(chr(34))[0]}" in known for part in text)

    while not all(map(closed, kept)):
        kept = [entry for entry in kept if closed(entry)]
        known = {entry["fullUrl"] for entry in kept}
    return kept


def _searches() -> dict[Search, dict[str, list[str]]]:
    """Each search once, with the paths of its parameters."""
    found: dict[Search, dict[str, list[str]]] = {}
    for group in json.loads(METADATA.read_text())["groups"]:
        for search in group["searches"]:
            key = group["resource"], tuple(search["names"])
            if not OWN & {(key[0], name) for name in key[1]}:
                paths = {name: group["search_definitions"][name]["paths"] for name in key[1]}
                found.setdefault(key, paths)
    return found


def _with_values(
    resources: list[Json], search: Search, paths: dict[str, list[str]]
) -> Iterator[tuple[Json, list[str]]]:
    for resource in resources:
        if resource["resourceType"] == search[0]:
            values = [value for name in search[1] if (value := _value(resource, paths[name]))]
            if len(values) == len(search[1]):
                yield resource, values


def _value(resource: Json, paths: list[str]) -> str | None:
    return next((_asked(text) for path in paths for text in _texts(resource, path)), None)


def _asked(text: str) -> str:
    return f"ge{text[1:11]}" if text.startswith("@") else text


def _meets(text: str, value: str) -> bool:
    if text.startswith("@"):
        return text[1:11] >= value[2:]
    return text == value or normalise(text).startswith(normalise(value))


def _texts(resource: Json, path: str) -> Iterator[str]:
    """The values at a path as they are asked for: dates with an @ before them."""
    values: list[Any] = [resource]
    for name in path.split("."):
        name = {"local_class": "class"}.get(name, name)
        values = [found for value in values for found in _members(value, name)]
    for value in values:
        yield from _of_value(value, path)


def _members(value: Any, name: str) -> list[Any]:
    if not isinstance(value, dict):
        return []
    names = [key for key in value if key == name or (key.startswith(name) and key[len(name) : len(name) + 1].isupper())]
    found = [value[key] for key in names]
    return [item for one in found for item in (one if isinstance(one, list) else [one])]


def _of_value(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, str):
        is_date = len(value) >= 10 and value[4:5] == "-" == value[7:8] and "." not in value[:10]
        yield f"@{value}" if is_date and path != "id" else value
    elif isinstance(value, dict):
        if "coding" in value:
            yield from (f"{one.get('system', '')}|{one['code']}" for one in value["coding"])
        elif "reference" in value:
            yield value["reference"]
        elif "start" in value:
            yield f"@{value['start']}"
            yield f"@{value.get('end', '9999-12-31')}"
        elif "family" in value:
            yield value["family"]
        elif "city" in value:
            yield value["city"]
        elif "value" in value:
            yield f"{value.get('system', '')}|{value['value']}"
        elif "code" in value:
            yield f"{value.get('system', '')}|{value['code']}"
