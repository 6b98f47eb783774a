"""Random worlds: whatever is stored, an erasure removes what is his alone, and what is another's alone stays as it is.

The generator knows whom each resource and message is about; the erasure has to find out.  `IPF_ERASURE_WORLDS` sets the
number of worlds.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

from ipf.errors import Problem
from ipf.ports import Json
from tests.pipeline.maintenance.erasures import ErasureSuite, hl7, patient_of

WORLDS = int(os.environ.get("IPF_ERASURE_WORLDS", "12"))
HIS = {"x", "x2"}  # x2 was merged into x
PEOPLE = ("x", "x2", "y", "z", "x.1")
ALWAYS = ("Patient", "Observation", "Encounter", "List", "Group")
_BY_RID = "SELECT rid::text, {table}::text FROM {table} ORDER BY 1, 2"


class WorldTests(ErasureSuite):
    async def test_worlds(self) -> None:
        """Each seed is a world of its own."""
        for seed in range(WORLDS):
            if seed:
                for database in (self.database, self.inbox_database):
                    await database.close()
                await self.setUp()
            try:
                await self._world(random.Random(seed))
            except (AssertionError, Problem) as failed:
                raise AssertionError(f"seed {seed}: {failed}") from failed

    async def _world(self, chance: random.Random) -> None:
        await self._people()
        about = {f"Patient/{name}": {name} for name in PEOPLE} | {"Observation/ox": {"x"}, "Observation/oy": {"y"}}
        for number in range(chance.randint(8, 20)):
            await self._resource(chance, number, about)
        senders = await self._messages(chance, about)
        before, bodies = await self._state(), await self._bodies()
        others = chance.choice(("redact", "remove"))
        shared = {name for name, people in about.items() if people & HIS and people - HIS}
        kept = {name for name in shared if name.startswith("Patient/")} if others == "remove" else shared
        await self.forget(
            redact=frozenset("*" if others == "redact" else kept), remove=frozenset("*" if others == "remove" else ()),
            shared_messages=True, uncertain_messages="remove",
        )  # fmt: skip
        after = await self._state()
        self._check(about, before, after, kept)
        await self._check_bodies(about, bodies, kept)
        self.assertEqual(
            sorted(await self.message_ids()), sorted(n for n, people in senders.items() if not people & HIS)
        )

    async def _people(self) -> None:
        link = [{"other": {"reference": "Patient/x"}, "type": "replaced-by"}]
        await self.put(patient_of("x2", "4713", link=link))
        await self.put(patient_of("z", "4714"))
        await self.put(patient_of("x.1", "47110"))

    async def _resource(self, chance: random.Random, number: int, about: dict[str, set[str]]) -> None:
        """A resource with one to three versions, about one or several patients, or about another resource too."""
        resource_type, versions = chance.choice(ALWAYS[1:]), chance.randint(1, 3)
        name = f"{resource_type}/r{number}"
        people: set[str] = set()
        for version in range(versions):
            subjects = chance.sample(PEOPLE, 1 if chance.random() < 0.8 else 2)
            target = chance.choice(sorted(about)) if chance.random() < 0.3 else ""
            await self.put(_made(resource_type, f"r{number}", version, subjects, target))
            people |= {*subjects, *about.get(target, ())}
        if chance.random() < 0.2:
            await self.world.send("DELETE", name)
        about[name] = people

    async def _messages(self, chance: random.Random, about: dict[str, set[str]]) -> dict[str, set[str]]:
        """Messages that wrote some of the resources, and such that wrote nothing; by MSH-10."""
        numbers = {"x": "4711", "x2": "4713", "y": "4712", "z": "4714", "x.1": "47110"}
        people: dict[str, set[str]] = {}
        for number, person in enumerate([*PEOPLE, *chance.choices(PEOPLE, k=4)]):
            name = f"M{number}"
            message = hl7(name, f"{numbers[person]}^^^A^MR")
            await self.inbox.store([message])
            people[name] = {person}
            if number < len(PEOPLE):  # one of each wrote the Patient: so its number and authority are known
                await self.wrote(message, person)
        return people

    async def _state(self) -> dict[str, dict[str, list[str]]]:
        """Rows by table and resource."""
        names = {
            str(rid): name
            for rid, name in await self.database.all_tenants.many(
                "SELECT rid, resource_type || '/' || id FROM resources"
            )
        }
        found: dict[str, dict[str, list[str]]] = {}
        for table in ("resources", "resource_versions", "index_text", "index_date", "index_quantity", "index_words"):
            by_name: dict[str, list[str]] = {}
            for rid, row in await self.database.all_tenants.many(_BY_RID.format(table=table)):
                by_name.setdefault(names.get(rid, rid), []).append(row)
            found[table] = by_name
        return found

    async def _bodies(self) -> dict[str, list[Json]]:
        rows = await self.database.all_tenants.many(
            "SELECT resource_type || '/' || id, v.body FROM resources r JOIN resource_versions v USING (rid)"
            " ORDER BY rid, v.version_id"
        )
        found: dict[str, list[Json]] = {}
        for name, body in rows:
            found.setdefault(name, []).append(json.loads(body or "{}"))
        return found

    def _check(self, about: dict[str, set[str]], before: dict[str, Any], after: dict[str, Any], kept: set[str]) -> None:
        """Resources of others are the same row by row, in every table; his are in none."""
        for table, rows in before.items():
            for name, people in about.items():
                if not people & HIS:
                    self.assertEqual(after[table].get(name), rows.get(name), (table, name))
                elif name not in kept:
                    self.assertNotIn(name, after[table], (table, people))
            self.assertLessEqual(set(after[table]), set(about), table)

    async def _check_bodies(self, about: dict[str, set[str]], before: dict[str, list[Json]], kept: set[str]) -> None:
        """What stays of several patients has all references to the others, and none to what is gone."""
        gone = {name for name, people in about.items() if people & HIS} - kept
        after = await self._bodies()
        for name in kept:
            self.assertEqual(
                [sorted(set(_references(one)) - gone) for one in before[name]],
                [sorted(_references(one)) for one in after[name]], name,
            )  # fmt: skip
            text = json.dumps(after[name])
            self.assertFalse([one for one in gone if f'"{one}"' in text], name)


def _made(resource_type: str, id_: str, version: int, subjects: list[str], target: str) -> Json:
    references = [{"reference": f"Patient/{one}", "display": f"name of {one}"} for one in subjects]
    resource: Json = {"resourceType": resource_type, "id": id_, "language": f"x-{version}"}
    if resource_type == "Group":
        resource |= {"type": "person", "actual": True, "member": [{"entity": one} for one in references]}
    elif resource_type == "List":
        resource |= {"status": "current", "mode": "working", "entry": [{"item": one} for one in references]}
    else:
        resource |= {"status": "final", "code": {"text": "c"}, "subject": references[0]}
        resource["performer"] = references[1:]
        if resource_type == "Encounter":
            resource = {**resource, "status": "planned", "class": {"code": "AMB"}}
            resource |= {"participant": [{"individual": one} for one in resource.pop("performer")]}
            del resource["code"]
    resource = {name: value for name, value in resource.items() if value != []}
    if target:
        resource["extension"] = [{"url": "urn:about", "valueReference": {"reference": target}}]
    return resource


def _references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [one for item in value for one in _references(item)]
    if isinstance(value, dict):
        own = [value["reference"]] if isinstance(value.get("reference"), str) else []
        return own + [one for item in value.values() for one in _references(item)]
    return []
