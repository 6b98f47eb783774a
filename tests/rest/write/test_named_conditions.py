"""Conditions that name another entry of the transaction by its `fullUrl`, from POST /fhir to the stored resources."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from ipf.fhir.model.json import loads
from ipf.ports import Answer, Json
from tests.rest.world import BASE, OnMemory, OnSharedPostgres, Suite, World, issues, patient

A, B, C = (f"urn:uuid:0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e5{n}" for n in "abc")


def task(number: str, *based_on: str, **members: Any) -> Json:
    """A Task with an identifier, based on others."""
    made = {"resourceType": "Task", "status": "draft", "intent": "order", "identifier": [{"value": number}], **members}
    return {**made, "basedOn": [{"reference": one} for one in based_on]} if based_on else made


def entry(resource: Json | None, full_url: str | None = None, method: str = "POST", url: str = "", **more: str) -> Json:
    """One entry."""
    found: Json = {"request": {"method": method, "url": url or (resource or {})["resourceType"], **more}}
    return found | ({"resource": resource} if resource else {}) | ({"fullUrl": full_url} if full_url else {})


def once(resource: Json, condition: str, full_url: str | None = None) -> Json:
    """A conditional create."""
    return entry(resource, full_url, ifNoneExist=condition)


def update(resource: Json, condition: str, full_url: str | None = None) -> Json:
    """A conditional update."""
    return entry(resource, full_url, "PUT", f"{resource['resourceType']}?{condition}")


_CHANGE = {
    "type": {"valueCode": "replace"},
    "path": {"valueString": "Task.status"},
    "value": {"valueCode": "completed"},
}
PATCH: Json = {
    "resourceType": "Parameters",
    "parameter": [{"name": "operation", "part": [{"name": name, **value} for name, value in _CHANGE.items()]}],
}
FIRST = once(task("a"), "identifier=a", A)

TABLE: dict[str, list[Json]] = {
    "create on create": [FIRST, once(task("b", A), f"based-on={A}&identifier=b", B)],
    "before the other": [once(task("b", A), f"based-on={A}&identifier=b", B), FIRST],
    "update on create": [FIRST, update(task("b", A), f"based-on={A}", B)],
    "create on update": [update(task("a"), "identifier=a", A), once(task("b", A), f"based-on={A}", B)],
    "update on update": [update(task("a"), "identifier=a", A), update(task("b", A), f"based-on={A}", B)],
    "by type": [FIRST, once(task("b", A), f"based-on:Task={A}", B)],
    "encoded": [FIRST, once(task("b", A), f"based-on={A.replace(':', '%3A')}", B)],
    "one of several": [FIRST, once(task("b", A), f"based-on=Task/none,{A}", B)],
    "a chain": [
        once(task("c", B), f"based-on={B}"),
        once(task("b", A), f"based-on={A}", B),
        FIRST,
    ],
    "two names": [
        FIRST,
        once(patient("1"), "identifier=1", C),
        once(task("b", A, **{"for": {"reference": C}}), f"based-on={A}&subject={C}", B),
    ],
    "an update by id": [
        entry(task("a", id="a"), A, "PUT", "Task/a"),
        once(task("b", A), f"based-on={A}", B),
    ],
    "a url of another server": [
        once(task("a"), "identifier=a", "http://other.example/fhir/Task/1"),
        once(task("b", "Task/1"), "based-on=Task/1&identifier=b"),
        once(task("c", "Task/1"), "based-on=http://other.example/fhir/Task/1&identifier=c"),
    ],
    "a uri": [FIRST, once(task("b", A, instantiatesUri=A), "identifier=b"), once(
        {"resourceType": "Basic", "code": {"text": "x"}, "meta": {"source": A}}, f"_source={A}")],
    "the system of an identifier": [
        FIRST,
        once({"resourceType": "Basic", "identifier": [{"system": A, "value": "1"}]}, f"identifier={A}|1"),
    ],
    "a canonical": [
        once(patient("1"), "identifier=1", C),
        once(
            {"resourceType": "QuestionnaireResponse", "status": "completed", "questionnaire": C}, f"questionnaire={C}"
        ),
    ],
    "the value of an identifier": [
        FIRST,
        once({"resourceType": "Basic", "identifier": [{"system": "urn:ietf:rfc:3986", "value": A}]}, f"identifier={A}"),
    ],
    "a document that replaces another": [
        once({"resourceType": "DocumentReference", "status": "superseded", "identifier": [{"value": "1"}]},
             "identifier=1", A),
        once({"resourceType": "DocumentReference", "status": "current", "identifier": [{"value": "2"}],
              "relatesTo": [{"code": "replaces", "target": {"reference": A}}]}, f"relationship={A}$replaces"),
    ],
}  # fmt: skip

REFUSED: dict[str, list[Json]] = {
    "itself": [once(task("a", A), f"based-on={A}", A)],
    "each other": [once(task("a", B), f"based-on={B}", A), once(task("b", A), f"based-on={A}", B)],
    "a filter": [FIRST, once(task("b", A), f"_filter=based-on eq {A}")],
    "a deletion on a create": [FIRST, entry(None, None, "DELETE", f"Task?based-on={A}")],
    "a conditional deletion": [entry(None, A, "DELETE", "Task?identifier=z"), once(task("b"), f"based-on={A}")],
    "a conditional reference": [FIRST, entry(task("b", f"Task?based-on={A}"))],
}


class NamedConditionSuite(Suite):
    world: World

    async def post(self, *entries: Json, kind: str = "transaction") -> Answer:
        """The answer to a Bundle."""
        return await self.world.send("POST", "", {"resourceType": "Bundle", "type": kind, "entry": list(entries)})

    async def locations(self, *entries: Json) -> list[str]:
        """`Type/id` of the resources of a transaction."""
        answer = await self.post(*entries)
        self.assertEqual(answer.status, 200, answer.body)
        found = [one["response"].get("location", "") for one in loads(answer.body)["entry"]]
        return [one.removeprefix(f"{BASE}/").partition("/_history")[0] for one in found]

    async def count(self, *types: str) -> int:
        """How many resources of these types are stored."""
        answers = [await self.world.send("GET", f"{one}?_summary=count") for one in types]
        return sum(int(loads(one.body)["total"]) for one in answers)

    async def test_a_transaction_sent_twice_stores_everything_once(self) -> None:
        types = ("Task", "Patient", "Basic", "QuestionnaireResponse", "DocumentReference")
        for name, entries in TABLE.items():
            stored = await self.count(*types)
            first = await self.locations(*entries)
            self.assertEqual(len(set(first)), len(entries), name)
            number = await self.count(*types)
            again = await self.locations(*entries)
            self.assertEqual((first, number), (again, await self.count(*types)), name)
            self.assertEqual(number - stored, len(entries), name)
            for one in first:
                await self.world.send("DELETE", one)

    async def test_refusals_name_the_entry_and_store_nothing(self) -> None:
        for name, entries in REFUSED.items():
            for _ in range(2):
                answer = await self.post(*entries)
                self.assertEqual(answer.status, 400, (name, answer.body))
                code, text, place = issues(answer)[0]
                self.assertRegex(place, r"^Bundle\.entry\[\d\]", name)
                self.assertRegex(text, "another entry", name)
        self.assertEqual(await self.count("Task"), 0)

    async def test_the_resource_that_is_meant(self) -> None:
        """The condition finds what refers to the resource of the entry, not what refers to others."""
        (other,) = await self.locations(once(task("other"), "identifier=other"))
        (of_other,) = await self.locations(once(task("b", other), "identifier=b"))
        first, second = await self.locations(FIRST, once(task("b", A), f"based-on={A}"))
        self.assertNotEqual(second, of_other)
        self.assertEqual((await self.world.body(second))["basedOn"], [{"reference": first}])

    async def test_a_patch_of_what_refers_to_an_entry(self) -> None:
        patching = entry(PATCH, None, "PATCH", f"Task?based-on={A}")
        self.assertEqual((await self.post(FIRST, patching)).status, 404)
        _, second = await self.locations(FIRST, once(task("b", A), f"based-on={A}"))
        await self.locations(FIRST, patching)
        self.assertEqual((await self.world.body(second))["status"], "completed")

    async def test_many_patches(self) -> None:
        """More of them than a transaction may begin anew; one patches what is based on a patched one."""
        first = [once(task(f"a{n}"), f"identifier=a{n}", f"{A}{n}") for n in range(24)]
        made = await self.locations(*first, *(once(task(f"b{n}", f"{A}{n}"), f"based-on={A}{n}") for n in range(24)))
        below = await self.locations(once(task("c", made[24]), "identifier=c"))
        patches = [entry(PATCH, f"{B}{n}", "PATCH", f"Task?based-on={A}{n}") for n in range(24)]
        await self.locations(*first, *patches, entry(PATCH, None, "PATCH", f"Task?based-on={B}0"))
        for url in (*made[24:], *below):
            self.assertEqual((await self.world.body(url))["status"], "completed")

    async def test_a_deletion_of_what_refers_to_an_update_by_id(self) -> None:
        for deletes_many in (False, True):
            self.world.deletes_many = deletes_many
            update_by_id = entry(task("a", id="a"), A, "PUT", "Task/a")
            _, second = await self.locations(update_by_id, once(task("b", A), f"based-on={A}"))
            await self.locations(update_by_id, entry(None, None, "DELETE", f"Task?based-on={A}"))
            self.assertEqual((await self.world.send("GET", second)).status, 410)
            refused = await self.post(FIRST, entry(None, None, "DELETE", f"Task?based-on={A}"))
            self.assertEqual(refused.status, 400, refused.body)

    async def test_the_answer_tells_what_was_created(self) -> None:
        entries = TABLE["create on create"]
        for expected in ("201 Created", "200 OK"):
            answer = await self.post(*entries)
            found = [one["response"]["status"] for one in loads(answer.body)["entry"]]
            self.assertEqual(found, [expected, expected])

    async def test_many_entries(self) -> None:
        """One lookup more for all of them, however many they are."""
        firsts = [once(task(f"a{n}"), f"identifier=a{n}", f"urn:uuid:{n}") for n in range(40)]
        seconds = [once(task(f"b{n}", f"urn:uuid:{n}"), f"based-on=urn:uuid:{n}") for n in range(40)]
        first = await self.locations(*firsts, *seconds)
        self.assertEqual(first, await self.locations(*firsts, *seconds))
        self.assertEqual(await self.count("Task"), 80)

    async def test_a_long_chain_is_refused(self) -> None:
        chain = [once(task("0"), "identifier=0", "urn:uuid:0")]
        chain += [
            once(task(f"{n}", f"urn:uuid:{n - 1}"), f"based-on=urn:uuid:{n - 1}", f"urn:uuid:{n}") for n in range(1, 20)
        ]
        for entries, status in ((chain[:8], 200), (chain[:8], 200), (chain[::-1], 400)):
            answer = await self.post(*entries)
            self.assertEqual(answer.status, status, answer.body)


class NamedConditionOnMemoryTests(NamedConditionSuite, OnMemory):
    pass


class NamedConditionOnPostgresTests(NamedConditionSuite, OnSharedPostgres):
    async def test_at_the_same_time(self) -> None:
        """Equal transactions at once store everything once."""
        entries = TABLE["a chain"]
        await self.locations(FIRST)
        sent = [Deferred.fromCoroutine(self.post(*entries)) for _ in range(4)]
        answers = await gatherResults(sent, consumeErrors=True)
        self.assertEqual([one.status for one in answers], [200] * 4)
        self.assertEqual(await self.count("Task"), 3)
