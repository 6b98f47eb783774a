"""Conditional writes that word one condition differently, at once: one resource is created."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, count, product
from random import Random
from typing import Any
from urllib.parse import parse_qsl

from twisted.internet import defer, reactor, task
from twisted.trial.unittest import SynchronousTestCase

from ipf.fhir.model.json import dumps, loads
from ipf.fhir.search.language.query import parse_criteria
from ipf.ports import Answer, Json, MatchLocks, Request
from ipf.rest.router import handler
from ipf.rest.write.commit import commit
from ipf.rest.write.match_locks import add_resources, locks_of
from ipf.store.postgres.lookup import lock_call
from ipf.store.resources.resources import PostgresFhirStore
from ipf.subscriptions.matching import MatchingIndex
from tests.fakes.resources import MemoryTransaction
from tests.rest.world import BASE, CORRELATION_ID, OnMemory, OnPostgres, Suite, World, issues
from tests.rest.write.messages import adt, unit_of

PERSON: Json = {
    "resourceType": "Patient",
    "identifier": [
        {"system": "urn:mrn", "value": "4711"},
        {
            "system": "urn:ssn",
            "value": "99",
            "type": {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/v2-0203", "code": "SS"}]},
        },
    ],
    "active": True,
    "name": [{"family": "Muster", "given": ["Ada"]}],
    "gender": "female",
    "birthDate": "1980-05-05",
    "telecom": [{"system": "phone", "value": "555"}],
}
BY_IDENTIFIER = (
    "identifier=urn:mrn|4711",
    "identifier=4711",
    "identifier=4711&identifier=urn:mrn|",
    "identifier=urn:ssn|99",
    "identifier=urn:mrn|4711,urn:ssn|99",
    "identifier=0815,99",
    "identifier=urn:ssn|99&birthdate=1980-05-05",
)
BY_OTHERS = (
    "identifier=urn:mrn|",
    "identifier:of-type=http://terminology.hl7.org/CodeSystem/v2-0203|SS|99",
    "name=Muster",
    "family=Muster",
    "family:exact=Muster&given=Ada",
    "birthdate=1980-05-05&gender=female",
    "gender:not=male",
    "phone=555",
    "active=true",
)
PAIRS = [(one, other) for one, other in combinations((*BY_IDENTIFIER, *BY_OTHERS), 2)]


def create(condition: str, resource: Json = PERSON) -> Request:
    """A conditional create."""
    return _request("POST", resource["resourceType"], body=resource, if_none_exist=condition)


def update(condition: str) -> Request:
    """A conditional update."""
    return _request("PUT", "Patient", body=PERSON, query=condition)


def transaction(*conditions: str, method: str = "POST") -> Request:
    """A transaction with one conditional write, and others that need no lock before and behind it."""
    plain = {
        "resource": {"resourceType": "Basic", "code": {"text": "x"}},
        "request": {"method": "POST", "url": "Basic"},
    }
    entries = []
    for condition in conditions:
        how: Json = {"method": "PUT", "url": f"Patient?{condition}"}
        if method == "POST":
            how = {"method": "POST", "url": "Patient", "ifNoneExist": condition}
        entries.append({"resource": PERSON, "request": how})
    return _request("POST", body={"resourceType": "Bundle", "type": "transaction", "entry": [plain, *entries, plain]})


def _request(method: str, *path: str, body: Json, query: str = "", **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(method, path, tuple(parse_qsl(query)), named, dumps(body), BASE, CORRELATION_ID)


class WordedConditionSuite(Suite):
    """Two servers on one store."""

    world: World

    def servers(self) -> list[Any]:
        """One for each client."""
        raise NotImplementedError

    def rounds(self) -> Iterator[tuple[Sequence[Request], tuple[str, str]]]:
        """Requests that are sent at once, and their conditions."""
        forms = create, update, transaction, lambda condition: transaction(condition, method="PUT")
        kinds = list(product(forms, forms))
        for number, (one, other) in enumerate(PAIRS):
            first, second = kinds[number % len(kinds)]
            yield [create(one), create(other)], (one, other)
            yield [first(one), second(other)], (one, other)
        for number in range(10):
            chosen = Random(number).sample([*BY_IDENTIFIER, *BY_OTHERS], 6)
            yield [create(one) for one in chosen], (chosen[0], chosen[1])

    async def test_one_resource(self) -> None:
        """Whatever the words: each round in a tenant of its own, since some conditions match any Patient."""
        servers, wrong, tenants = self.servers(), [], count()
        for requests, conditions in self.rounds():
            tenant = f"round-{next(tenants)}"
            answers = await at_once(
                servers[number % 2](replace(one, tenant=tenant)) for number, one in enumerate(requests)
            )
            statuses = Counter(answer.status for answer in answers)
            total = loads((await self.world.send("GET", "Patient?_summary=count", tenant=tenant)).body)["total"]
            if total != 1 or not statuses.keys() <= {200, 201}:
                wrong.append((conditions, total, statuses))
        self.assertEqual(wrong, [])

    async def test_in_one_transaction(self) -> None:
        """Two entries, and two in another transaction at once; updates in other words are refused as equal ones are."""
        servers, wrong = self.servers(), []
        for number, (one, other) in enumerate(PAIRS[::3]):
            tenant = f"one-{number}"
            sent = [transaction(one, other), transaction(other, one)]
            answers = await at_once(servers[at](replace(request, tenant=tenant)) for at, request in enumerate(sent))
            total = loads((await self.world.send("GET", "Patient?_summary=count", tenant=tenant)).body)["total"]
            if (total, {answer.status for answer in answers}) != (1, {200}):
                wrong.append((one, other, total))
            refused = await servers[0](replace(transaction(one, other, method="PUT"), tenant=f"{tenant}-put"))
            if refused.status != 400:
                wrong.append((one, other, refused.status))
        self.assertEqual(wrong, [])

    async def test_a_page_never_hides_a_second_match(self) -> None:
        """`_count` says nothing of what is meant: two matches are refused in every form of a condition."""
        await self.world.send("POST", "Patient", PERSON)
        await self.world.send("POST", "Patient", PERSON)
        for condition, size in product(("identifier=4711", "family=Muster"), (0, 1, 5000)):
            paged = f"{condition}&_count={size}"
            observation = {"resourceType": "Observation", "status": "final", "code": {"text": "x"},
                           "subject": {"reference": f"Patient?{paged}"}}  # fmt: skip
            entry = {"resource": observation, "request": {"method": "POST", "url": "Observation"}}
            bundle = {"resourceType": "Bundle", "type": "transaction", "entry": [entry]}
            headers = {"if_none_exist": paged}
            answers = [
                await self.world.send("POST", "Patient", PERSON, **headers),
                await self.world.send("PUT", f"Patient?{paged}", PERSON),
                await self.world.send("PATCH", f"Patient?{paged}", {"resourceType": "Parameters"}),
                await self.world.send("POST", "", bundle),
            ]
            self.assertTrue(all(400 <= one.status < 500 for one in answers), (paged, [one.status for one in answers]))
        total = loads((await self.world.send("GET", "Patient?_summary=count")).body)["total"]
        self.assertEqual(total, 2)

    async def test_others_of_one_transaction_stay_two(self) -> None:
        """Conditions of which only one matches the other resource, and those of two persons."""
        other = {**PERSON, "identifier": PERSON["identifier"][1:], "name": [{"family": "Else"}]}
        for conditions in (("identifier=urn:mrn|4711", "identifier=urn:ssn|99"), ("family=Muster", "family=Else")):
            for order in (1, -1):
                pairs = list(zip((PERSON, other), conditions, strict=True))[::order]
                tenant = f"two-{conditions[0]}-{order}"
                entries = [
                    {"resource": one, "request": {"method": "POST", "url": "Patient", "ifNoneExist": condition}}
                    for one, condition in pairs
                ]
                bundle = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
                answer = await self.world.send("POST", "", bundle, tenant=tenant)
                self.assertEqual([one["response"]["status"][:3] for one in loads(answer.body)["entry"]], ["201"] * 2)

    async def test_many_in_one_transaction(self) -> None:
        """Conditions with an exact value are found by it; others are compared with each other, up to a limit."""
        for form, many, status in (("_id=n%d", 500, 400), ("family=N%d.", 100, 200), ("phone=%d", 500, 200)):
            entries = [
                {
                    "resource": {
                        "resourceType": "Patient",
                        "name": [{"family": f"N{number}."}],
                        "telecom": [{"value": str(number)}],
                    },
                    "request": {"method": "POST", "url": "Patient", "ifNoneExist": form % number},
                }
                for number in range(many)
            ]
            bundle = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
            answer = await self.world.send("POST", "", bundle, tenant=f"many-{form[:3]}")
            self.assertEqual(answer.status, status, answer.body[:200])
            if status == 400:
                self.assertIn("100000 steps", issues(answer)[0][1])

    async def test_beside_a_feed(self) -> None:
        """A message and a client that name the same person by two numbers."""
        servers, wrong = self.servers(), []
        for number, condition in enumerate((*BY_IDENTIFIER[:2], "name=Muster", "identifier=urn:mrn|")):
            tenant = f"feed-{number}"
            unit = replace(unit_of(adt("4711^^^&urn:mrn&URI^MR", born="19800505")), tenant=tenant)
            server = self.world.repository
            sent = servers[0](replace(create(condition), tenant=tenant))
            other = commit([unit], server.store, MatchingIndex(), server.clock)
            await at_once([sent, other])
            found = loads((await self.world.send("GET", "Patient?_summary=count", tenant=tenant)).body)["total"]
            stored = loads((await self.world.send("GET", "Patient", tenant=tenant)).body)
            names = [one["resource"]["identifier"] for one in stored["entry"]]
            if found != 1:
                wrong.append((condition, names))
        self.assertEqual(wrong, [])

    async def test_several_types_without_deadlock(self) -> None:
        """Transactions that name types in any order, by numbers and otherwise, all succeed."""
        random, requests = Random(4), []
        types = "Patient", "Organization", "Location", "Practitioner"
        for number in range(24):
            entries = []
            for resource_type in random.sample(types, 3):
                value = str(random.randrange(3))
                resource = {"resourceType": resource_type, "identifier": [{"system": "urn:x", "value": value}]}
                condition = random.choice((f"identifier=urn:x|{value}", f"identifier={value}&identifier=urn:x|"))
                if resource_type != "Patient" and number % 2:
                    resource["name"] = [{"family": value}] if resource_type == "Practitioner" else f"N{value}"
                how = {"method": "POST", "url": resource_type, "ifNoneExist": condition}
                entries.append({"resource": resource, "request": how})
            requests.append(_request("POST", body={"resourceType": "Bundle", "type": "transaction", "entry": entries}))
        servers = self.servers()
        answers = await at_once(servers[number % 2](one) for number, one in enumerate(requests))
        self.assertEqual(Counter(answer.status for answer in answers), {200: 24})
        for resource_type in types:
            page = loads((await self.world.send("GET", resource_type)).body)
            values = [entry["resource"]["identifier"][0]["value"] for entry in page.get("entry", [])]
            self.assertEqual(sorted(values), sorted(set(values)), resource_type)

    async def test_what_matched_is_deleted_first(self) -> None:
        """A create whose match the same transaction deletes is locked as any other."""
        await self.world.send("PUT", "Patient/old", {**PERSON, "id": "old"})
        entry = {"request": {"method": "DELETE", "url": "Patient/old"}}
        how = {"method": "POST", "url": "Patient", "ifNoneExist": "name=Muster"}
        bundle = {
            "resourceType": "Bundle",
            "type": "transaction",
            "entry": [{"resource": PERSON, "request": how}, entry],
        }
        servers = self.servers()
        answers = await at_once([servers[0](_request("POST", body=bundle)), servers[1](create("family=Muster"))])
        self.assertLessEqual({answer.status for answer in answers}, {200, 201})
        page = loads((await self.world.send("GET", "Patient")).body)
        self.assertEqual(len(page.get("entry", [])), 1)


async def at_once(work: Any) -> list[Any]:
    """All coroutines together."""
    running: list[Coroutine[Any, Any, Answer]] = list(work)
    return list(await defer.gatherResults([defer.Deferred.fromCoroutine(one) for one in running]))


def after_a_turn(call: Any) -> Any:
    """The call, and then a turn of the reactor, in which others read and write."""

    async def slow(*args: Any, **named: Any) -> Any:
        found = await call(*args, **named)
        await task.deferLater(reactor, 0, lambda: None)
        return found

    return slow


class WordedConditionsInMemoryTests(WordedConditionSuite, OnMemory):
    def servers(self) -> list[Any]:
        """Both on the store in memory, whose transactions overlap as those of a database do."""
        self.patch(MemoryTransaction, "look_up", after_a_turn(MemoryTransaction.look_up))
        self.patch(MemoryTransaction, "lock", after_a_turn(MemoryTransaction.lock))
        one = self.world.repository
        other = replace(one, matcher=MatchingIndex(), write_group=type(one.write_group)())
        return [handler(one), handler(other)]


class WordedConditionsOnPostgresTests(WordedConditionSuite, OnPostgres):
    def servers(self) -> list[Any]:
        """Each with its own view of what is installed."""
        one = self.world.repository
        store = PostgresFhirStore(self.database)
        other = replace(one, store=store, matcher=MatchingIndex(), write_group=type(one.write_group)())
        return [handler(one), handler(other)]


class LockTests(SynchronousTestCase):
    def test_every_pair_conflicts(self) -> None:
        """Of two conditions that the resource of the other matches: a lock of both, at least one of them exclusive."""
        for one, other in combinations((*BY_IDENTIFIER, *BY_OTHERS), 2):
            self.assertTrue(_conflict(_locks(one), _locks(other)), (one, other))

    def test_numbers_of_others_do_not_wait(self) -> None:
        """Two persons with numbers of their own are created side by side."""
        stranger = {"resourceType": "Patient", "identifier": [{"system": "urn:mrn", "value": "1"}]}
        for condition in BY_IDENTIFIER:
            locks = locks_of([("default", parse_criteria("Patient?identifier=urn:mrn|1"))])
            add_resources(locks, [("default", stranger)])
            self.assertFalse(_conflict(_locks(condition), locks), condition)

    def test_other_types_and_tenants_do_not_wait(self) -> None:
        """The lock of a type is of one tenant."""
        mine = locks_of([("default", parse_criteria("Patient?name=x"))])
        for tenant, criteria in (("north", "Patient?name=x"), ("default", "Person?name=x")):
            self.assertFalse(_conflict(mine, locks_of([(tenant, parse_criteria(criteria))])))

    def test_one_order(self) -> None:
        """Each lock once, types before values, ascending; one that is wanted both ways is exclusive."""
        kinds = {("t", f"Type{number}"): number % 3 == 0 for number in range(2000)}
        values = {("t", "Patient", str(number)) for number in range(2000)}
        types, numbers = lock_call(MatchLocks(kinds, values)).split(";\n")
        for text in (types, numbers):
            keys = [int(one) for one in text.partition("{")[2].partition("}")[0].split(",")]
            self.assertEqual(keys, sorted(set(keys)))


def _locks(condition: str) -> MatchLocks:
    locks = locks_of([("default", parse_criteria(f"Patient?{condition}"))])
    add_resources(locks, [("default", PERSON)])
    return locks


def _conflict(one: MatchLocks, other: MatchLocks) -> bool:
    types = one.types.keys() & other.types.keys()
    return any(one.types[kind] or other.types[kind] for kind in types) or bool(one.values & other.values)
