"""Topics: stored, found, checked; what fires through them, exactly, in memory and on PostgreSQL.

Names carry the numbers of the guide's requirements (its requirements-server.csv) where they apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from ipf.fhir.model.json import loads
from ipf.fhir.model.packages import Packages
from ipf.fhir.topics.unsupported import UNSUPPORTED
from ipf.fhir.xml.writer import from_xml
from ipf.ports import DeliveryQueue, Json
from ipf.rest.write.conformance import Conformance
from ipf.store.deliveries.deliveries import PostgresDeliveryQueue
from ipf.store.resources.resources import PostgresFhirStore
from ipf.subscriptions.guide import CHANNEL_TYPE, CONTENT, FILTER
from tests.fakes import MemoryDeliveryQueue
from tests.rest.interactions.test_transaction import bundle, entry
from tests.rest.world import OnMemory, OnSharedPostgres, Suite, World, issues

URL = "http://example.org/topics/encounter-start"
TYPES = "http://hl7.org/fhir/fhir-types"
EXTENSION = "http://hl7.org/fhir/4.3/StructureDefinition/extension-SubscriptionTopic."


def topic(url: str = URL, *, id: str = "t1", **members: Any) -> Json:
    """A topic for the start of an encounter (the R5 example); None removes a member."""
    start = {
        "resource": "http://hl7.org/fhir/StructureDefinition/Encounter",
        "supportedInteraction": ["create", "update"],
        "queryCriteria": {
            "previous": "status:not=in-progress",
            "resultForCreate": "test-passes",
            "current": "status=in-progress",
            "requireBoth": True,
        },
    }
    made = {
        "resourceType": "SubscriptionTopic",
        "id": id,
        "url": url,
        "title": "Encounters that begin",
        "status": "active",
        "resourceTrigger": [start],
        "canFilterBy": [{"resource": "Encounter", "filterParameter": "patient"}],
        **members,
    }
    return {name: value for name, value in made.items() if value is not None}


def subscription(*filters: str, id: str = "s", criteria: str = URL, **members: Any) -> Json:
    """A subscription to the topic, with a content level unless `_payload` is None."""
    channel = {
        "type": "rest-hook",
        "endpoint": "https://hook.example.org",
        "payload": "application/fhir+json",
        "_payload": {"extension": [{"url": CONTENT, "valueCode": "id-only"}]},
        "header": ["Authorization: Bearer x"],
        **members.pop("channel", {}),
    }
    made: Json = {
        "resourceType": "Subscription",
        "id": id,
        "status": "requested",
        "reason": "test",
        "criteria": criteria,
        "channel": {name: value for name, value in channel.items() if value is not None},
        **members,
    }
    if filters:
        made["_criteria"] = {"extension": [{"url": FILTER, "valueString": text} for text in filters]}
    return made


def encounter(id: str, status: str, patient: str = "p1", **members: Any) -> Json:
    """An Encounter."""
    subject = {"reference": f"Patient/{patient}"}
    return {
        "resourceType": "Encounter",
        "id": id,
        "status": status,
        "class": {"code": "AMB"},
        "subject": subject,
        **members,
    }


def _inner(members: Json) -> Iterator[Json]:
    """Members as the inner extensions of a Basic."""
    for name, value in members.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                yield {"url": name, "extension": list(_inner(one))}
            elif isinstance(one, bool):
                yield {"url": name, "valueBoolean": one}
            else:
                yield {"url": name, "valueString": one}


class TopicSuite(Suite):
    """Through the FHIR interactions."""

    world: World
    queue: DeliveryQueue

    async def ok(
        self, method: str, url: str, body: Json | None = None, *, status: tuple[int, ...] = (200, 201, 204)
    ) -> Any:
        """A request that succeeds."""
        answer = await self.world.send(method, url, body)
        self.assertIn(answer.status, status, answer.body)
        return loads(answer.body) if answer.body else None

    async def store(self, resource: Json) -> Any:
        """PUT it."""
        return await self.ok("PUT", f"{resource['resourceType']}/{resource['id']}", resource)

    async def fired(self, id: str = "s") -> list[str]:
        """`Type/id/version` of the events of a subscription, in order of number, which has no gaps."""
        events = await self.queue.event_range(self.world.tenant, id, 1, 1000, 1000)
        self.assertEqual([event.number for event in events], list(range(1, len(events) + 1)))
        return [f"{event.id}/{event.version_id}" for event in events]

    async def refused(self, resource: Json) -> str:
        """The reasons of a 422, joined."""
        answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)
        self.assertEqual(answer.status, 422, answer.body)
        return " | ".join(f"{place}: {text}" for _, text, place in issues(answer))

    async def test_topics_are_resources(self) -> None:
        """A new server has no topics; stored topics are found by url, also in XML, with history."""
        self.assertEqual((await self.ok("GET", "SubscriptionTopic"))["total"], 0)
        await self.store(topic())
        await self.store(topic(title="Starts"))
        found = await self.ok("GET", f"SubscriptionTopic?url={URL}&status=active")
        self.assertEqual([one["resource"]["title"] for one in found["entry"]], ["Starts"])
        self.assertEqual((await self.ok("GET", "SubscriptionTopic/t1/_history"))["total"], 2)
        xml = await self.world.send("GET", "SubscriptionTopic/t1", accept="application/fhir+xml")
        self.assertEqual(from_xml(xml.body)["resourceTrigger"], topic()["resourceTrigger"])
        posted = await self.world.send("POST", "SubscriptionTopic", xml.body.replace(b"t1", b"t2"),
                                       content_type="application/fhir+xml")  # fmt: skip
        self.assertEqual(posted.status, 201)
        await self.ok("DELETE", "SubscriptionTopic/t1")
        self.assertEqual((await self.world.send("GET", "SubscriptionTopic/t1")).status, 410)

    async def test_topics_that_cannot_be_served_are_refused(self) -> None:
        start = topic()["resourceTrigger"][0]
        for members, place in (
            ({"resourceTrigger": None}, "resourceTrigger"),
            ({"resourceTrigger": [{**start, "resource": "Nonsense"}]}, "resourceTrigger[0].resource"),
            ({"resourceTrigger": [{**start, "supportedInteraction": ["read"]}]}, "supportedInteraction"),
            ({"resourceTrigger": [{**start, "queryCriteria": {"current": "nonsense=1"}}]}, "queryCriteria.current"),
            ({"resourceTrigger": [{**start, "queryCriteria": {"current": "patient.name=x"}}]}, "queryCriteria.current"),
            ({"resourceTrigger": [{**start, "queryCriteria": {"previous": "Patient?a=1"}}]}, "queryCriteria.previous"),
            ({"resourceTrigger": [{**start, "fhirPathCriteria": "status ="}]}, "fhirPathCriteria"),
            ({"resourceTrigger": None, "eventTrigger": [{"event": {"text": "x"}}]}, "resourceTrigger"),
            ({"url": None}, "url"),
        ):  # fmt: skip
            self.assertIn(place, await self.refused(topic(**members)))
        await self.store(topic(status="draft", resourceTrigger=None))

    async def test_parts_without_effect_are_listed(self) -> None:
        """In the stored topic, in the outcome of the write, and in a Bundle; a filter among them is refused."""
        sent = topic(
            canFilterBy=[{"filterParameter": "patient"}, {"resource": "Encounter", "filterParameter": "_in"}],
            eventTrigger=[{"event": {"text": "x"}, "resource": "Patient"}],
            extension=[{"url": UNSUPPORTED, "valueString": "of a client"}, {"url": "urn:x", "valueString": "kept"}],
        )
        stored = await self.store(sent)
        parts = [one["valueString"] for one in stored["extension"] if one["url"] == UNSUPPORTED]
        self.assertEqual([one.partition(":")[0] for one in parts],
                         ["SubscriptionTopic.eventTrigger[0]", "SubscriptionTopic.canFilterBy[1]"])  # fmt: skip
        self.assertEqual((await self.store(stored))["meta"]["versionId"], "1", "what a server stored is unchanged")
        answer = await self.world.send("PUT", "SubscriptionTopic/t2", {**sent, "id": "t2", "url": "urn:t2"},
                                       prefer="return=OperationOutcome")  # fmt: skip
        self.assertEqual([one[0] for one in issues(answer)], ["informational", "not-supported", "not-supported"])
        self.assertNotIn("X-FHIR-Request-Validation", dict(answer.headers))
        plain = await self.world.send("PUT", "SubscriptionTopic/t3", {**sent, "id": "t3", "url": "urn:t3"})
        self.assertIn("SubscriptionTopic.canFilterBy[1]", dict(plain.headers)["X-FHIR-Request-Validation"])
        self.assertIn("does not allow the filter", await self.refused(subscription("_in=Group/1")))
        repaired = await self.store(topic())
        self.assertNotIn("extension", repaired)

    async def test_hl7_example_encounter_complete(self) -> None:
        """The example of the guide can be activated, as SubscriptionTopic and as Basic, and fires."""
        url, name = "http://example.org/encounter-complete", "extension"
        rule = {
            "previous": "status:not=finished",
            "resultForCreate": "test-passes",
            "current": "status=finished",
            "resultForDelete": "test-fails",
            "requireBoth": True,
        }
        text = "(%previous.id.empty() or (%previous.status != 'finished')) and (%current.status = 'finished')"
        trigger = {"resource": "http://hl7.org/fhir/StructureDefinition/Encounter", "queryCriteria": rule,
                   "supportedInteraction": ["create", "update"], "fhirPathCriteria": text}  # fmt: skip
        names = ("patient&iterate=Patient.link", "practitioner", "service-provider", "account", "observation")
        filters = [{"resource": "Encounter", "filterParameter": one} for one in ("subject", "_in", "length")]
        shape = {"resource": "Encounter", "include": [f"Encounter:{one}" for one in names],
                 "revInclude": ["Encounter:subject"]}  # fmt: skip
        await self.store(topic(url, resourceTrigger=[trigger], canFilterBy=filters, notificationShape=[shape]))
        basic: Json = {
            "resourceType": "Basic",
            "id": "b",
            "code": {"coding": [{"system": TYPES, "code": "SubscriptionTopic"}]},
            "modifierExtension": [{"url": f"{EXTENSION}status", "valueCode": "active"}],
            name: [
                {"url": f"{EXTENSION}url", "valueUri": f"{url}-basic"},
                {"url": f"{EXTENSION}resourceTrigger", name: list(_inner(trigger))},
                *({"url": f"{EXTENSION}canFilterBy", name: list(_inner(one))} for one in filters),
                {"url": f"{EXTENSION}notificationShape", name: list(_inner(shape))},
            ],
        }
        stored = await self.store(basic)
        parts = [one["valueString"] for one in stored[name] if one["url"] == UNSUPPORTED]
        self.assertEqual(len(parts), 3, parts)
        await self.store(subscription("subject=Patient/p1", criteria=url))
        await self.store(subscription("subject=Patient/p1", id="by-basic", criteria=f"{url}-basic"))
        for status in ("in-progress", "finished", "finished", "in-progress", "finished"):
            await self.store(encounter("e1", status))
        await self.store(encounter("e2", "finished"))
        await self.store(encounter("e3", "finished", "p2"))
        await self.ok("DELETE", "Encounter/e1")
        for id_ in ("s", "by-basic"):
            self.assertEqual(await self.fired(id_), ["e1/2", "e1/4", "e2/1"])

    async def test_req_8_9_62_63_unknown_topics_and_filters_are_refused(self) -> None:
        self.assertIn(URL, await self.refused(subscription()))
        await self.store(topic(status="draft"))
        self.assertIn("no active topic", await self.refused(subscription()))
        await self.store(topic(version="2"))
        self.assertIn("no active topic", await self.refused(subscription(criteria=f"{URL}|1")))
        await self.store(subscription(criteria=f"{URL}|2"))
        for text in (
            "status=finished",
            "nonsense=1",
            "patient",
            "Patient.patient=1",
            "Encounter.status=finished",
            "=x",
        ):
            self.assertIn("Subscription.criteria.extension", await self.refused(subscription(text)), text)

    async def test_req_10_12_36_60_66_90_unknown_channels_and_payloads_are_refused(self) -> None:
        await self.store(topic())
        custom = {"extension": [{"url": CHANNEL_TYPE, "valueCoding": {"code": "zulip"}}]}
        level = {"extension": [{"url": CONTENT, "valueCode": "everything"}]}
        for channel, place in (
            ({"type": "pigeon"}, "Subscription.channel.type"),
            ({"_type": custom}, "Subscription.channel.type"),
            ({"_payload": level}, "Subscription.channel.payload.extension"),
            ({"payload": "application/fhir+json; fhirVersion=5.0"}, "Subscription.channel.payload"),
            ({"payload": "application/fhir+json; fhirVersion=4.3.1"}, "Subscription.channel.payload"),
            ({"payload": "text/csv"}, "Subscription.channel.payload"),
            ({"endpoint": "http://hook.example.org"}, "Subscription.channel.endpoint"),
        ):
            self.assertIn(place, await self.refused(subscription(channel=channel)))

    async def test_extensions_that_would_be_ignored_are_refused(self) -> None:
        """Nothing that changes what fires is dropped: neither on the criteria nor in a transaction."""
        await self.store(topic())
        later = "http://hl7.org/fhir/5.0/StructureDefinition/extension-Subscription.filterBy"
        wrong = {"extension": [{"url": later, "valueString": "patient=Patient/p1"}]}
        self.assertIn("Subscription.criteria.extension[0]", await self.refused(subscription(_criteria=wrong)))
        sent = bundle("transaction", entry("PUT", "Subscription/s", subscription(_criteria=wrong)))
        answer = await self.world.send("POST", "", sent)
        self.assertEqual(answer.status, 422)
        self.assertIn("Subscription.criteria.extension[0]", issues(answer)[0][2])
        self.assertEqual((await self.world.send("GET", "Subscription/s")).status, 404)

    async def test_comparators_and_modifiers_of_a_filter(self) -> None:
        """Only those that the topic allows, in each alternative of a value."""
        rules = [
            {"resource": "Encounter", "filterParameter": "length", "comparator": ["gt", "lt"]},
            {"resource": "Encounter", "filterParameter": "class", "modifier": ["not"]},
            {"resource": "Encounter", "filterParameter": "date", "modifier": ["=", "ge"]},  # the form of R4B
        ]
        await self.store(topic(canFilterBy=rules))
        for text in ("length=gt5", "length=5", "length=gt5,lt2", "class:not=AMB", "class=le5", "date=ge2026"):
            await self.store(subscription(text))
        for text in (
            "length=ge5",
            "length=5,ge9",
            "length=5%2Cge9",
            "class:in=AMB",
            "length:missing=true&length=ne5",
            "date=lt2026",
            "date:missing=true",
        ):
            self.assertIn("does not allow the filter", await self.refused(subscription(text)), text)

    async def test_req_18_19_submitted_active_is_stored_as_requested(self) -> None:
        await self.store(topic())
        self.assertEqual((await self.store(subscription(status="active")))["status"], "requested")

    async def test_firing(self) -> None:
        """Creation in the state and change into it fire; changes within or out of it do not; filters apply."""
        await self.store(topic())
        await self.store(subscription())
        forms = ("patient=Patient/p1", "patient=p1", "Encounter?patient=Patient/p1", "Encounter.patient=Patient/p1",
                 "patient:Patient=p1")  # fmt: skip
        for number, text in enumerate(forms):
            await self.store(subscription(text, id=f"f{number}"))
        await self.store(subscription("patient=Patient/p1", "patient=Patient/p2", id="both"))
        await self.store(encounter("e1", "in-progress"))
        await self.store(encounter("e1", "in-progress", priority={"text": "x"}))
        await self.store(encounter("e1", "finished"))
        await self.store(encounter("e1", "in-progress"))
        await self.store(encounter("e2", "planned", "p2"))
        await self.store(encounter("e2", "in-progress", "p2"))
        await self.ok("DELETE", "Encounter/e2")
        self.assertEqual(await self.fired(), ["e1/1", "e1/4", "e2/2"])
        for number in range(len(forms)):
            self.assertEqual(await self.fired(f"f{number}"), ["e1/1", "e1/4"], forms[number])
        self.assertEqual(await self.fired("both"), [])

    async def test_deletions_and_expressions(self) -> None:
        gone = {
            "resource": "Encounter",
            "supportedInteraction": ["delete"],
            "queryCriteria": {"previous": "status=planned"},
        }
        moved = {"resource": "Encounter", "supportedInteraction": ["update"],
                 "fhirPathCriteria": "%previous.status != %current.status and %current.class.code = 'AMB'"}  # fmt: skip
        await self.store(topic(resourceTrigger=[gone, moved]))
        await self.store(subscription("patient=Patient/p1"))
        for id_, status in (("a", "planned"), ("b", "planned"), ("b", "arrived"), ("b", "arrived")):
            await self.store(encounter(id_, status))
        for id_ in ("a", "b"):
            await self.ok("DELETE", f"Encounter/{id_}")
        await self.store(encounter("a", "arrived"))  # is created anew, after the deletion
        self.assertEqual(await self.fired(), ["b/2", "a/2"])
        events = await self.queue.event_range(self.world.tenant, "s", 1, 9, 9)
        self.assertEqual([(one.method, bool(one.body)) for one in events], [("PUT", True), ("DELETE", False)])

    async def test_several_types(self) -> None:
        """With filters, a type without a filter does not fire."""
        any_change = [{"resource": name} for name in ("Encounter", "Patient")]
        rules = [{"resource": "Encounter", "filterParameter": "patient"}, {"filterParameter": "_id"}]
        await self.store(topic(resourceTrigger=any_change, canFilterBy=rules))
        for id_, filters in (("all", ()), ("enc", ("Encounter.patient=p1",)), ("one", ("_id=x",))):
            await self.store(subscription(*filters, id=id_))
        await self.store(encounter("x", "planned"))
        await self.store({"resourceType": "Patient", "id": "x"})
        self.assertEqual([len(await self.fired(one)) for one in ("all", "enc", "one")], [2, 1, 2])

    async def test_changed_topic_affects_its_subscriptions_at_once(self) -> None:
        await self.store(topic())
        await self.store(subscription())
        await self.store(encounter("e1", "in-progress"))
        finished = {"resource": "Encounter", "queryCriteria": {"current": "status=finished"}}
        await self.store(topic(resourceTrigger=[finished]))
        await self.store(encounter("e1", "finished"))
        await self.store(encounter("e2", "in-progress"))
        await self.store(topic(status="retired"))
        await self.store(encounter("e2", "finished"))
        self.assertEqual(await self.fired(), ["e1/1", "e1/2"])
        unserved = self.world.matcher.unserved.values()
        self.assertEqual([one.id for one in unserved if one.tenant == self.world.tenant], ["s"])
        await self.store(subscription(status="off"))  # pausing is possible all the same
        await self.store(topic())
        await self.store(subscription())
        await self.store(encounter("e3", "in-progress"))
        self.assertEqual(await self.fired(), ["e1/1", "e1/2", "e3/1"])

    async def test_a_topic_as_basic(self) -> None:
        def value(name: str, **content: Any) -> Json:
            return {
                "url": f"{EXTENSION}{name}".replace("/4.3/", "/5.0/") if name == "url" else EXTENSION + name,
                **content,
            }

        criteria = [{"url": "current", "valueString": "status=in-progress"}]
        trigger = [
            {"url": "resource", "valueUri": "Encounter"},
            {"url": "supportedInteraction", "valueCode": "create"},
            {"url": "queryCriteria", "extension": criteria},
        ]
        basic: Json = {
            "resourceType": "Basic",
            "id": "b",
            "code": {"coding": [{"system": TYPES, "code": "SubscriptionTopic"}]},
            "modifierExtension": [value("status", valueCode="active")],
            "extension": [
                value("url", valueUri=URL),
                value("resourceTrigger", extension=trigger),
                value("canFilterBy", extension=[{"url": "filterParameter", "valueString": "patient"}]),
            ],
        }
        await self.store({**basic, "id": "note", "code": {"text": "a note"}})
        await self.store(basic)
        await self.store(subscription("patient=Patient/p1"))
        await self.store(encounter("e1", "in-progress"))
        await self.store(encounter("e2", "planned"))
        self.assertEqual(await self.fired(), ["e1/1"])
        await self.ok("DELETE", "Basic/b")
        await self.store(encounter("e3", "in-progress"))
        self.assertEqual(await self.fired(), ["e1/1"])

    async def test_topic_and_subscription_in_one_transaction(self) -> None:
        """A subscription may come with its topic."""
        sent = bundle(
            "transaction", entry("PUT", "SubscriptionTopic/t1", topic()), entry("PUT", "Subscription/s", subscription())
        )
        await self.ok("POST", "", sent)
        bad = bundle("transaction", entry("PUT", "Subscription/x", subscription("nonsense=1", id="x")))
        answer = await self.world.send("POST", "", bad)
        self.assertEqual(answer.status, 422)
        self.assertIn("Bundle.entry[0].resource", issues(answer)[0][2])

    async def test_end_of_subscription(self) -> None:
        await self.store(topic())
        await self.store(subscription(end="2026-01-31T08:05:10Z"))
        await self.store(encounter("e1", "in-progress"))
        self.world.pass_time(5)
        await self.store(encounter("e2", "in-progress"))
        self.assertEqual(await self.fired(), ["e1/1"])


class TopicTests(TopicSuite, OnMemory):
    async def setUp(self) -> None:
        await super().setUp()
        self.queue = MemoryDeliveryQueue(self.world.store)

    async def test_validation_knows_topics(self) -> None:
        """Valid and invalid topics in mode enforce."""
        world = self.world
        world.conformance = Conformance(lambda: Packages.load(None), world.store, lambda: world.now, "enforce")
        await self.store(topic())
        partly = topic(id="t2", url="urn:t2", canFilterBy=[{"filterParameter": "_in"}])
        for sent in (partly, await self.store(partly)):  # what this server adds is valid when it comes back
            self.assertEqual((await self.store(sent))["meta"]["versionId"], "1")
        self.assertIn("SubscriptionTopic.status", await self.refused(topic(status="fine")))
        found = await self.ok(
            "GET", "StructureDefinition?url=http://hl7.org/fhir/StructureDefinition/SubscriptionTopic"
        )
        self.assertEqual(found["total"], 1)


class TopicOnPostgresTests(TopicSuite, OnSharedPostgres):
    """SQL holds the events, and orders concurrent writers."""

    async def setUp(self) -> None:
        await super().setUp()
        self.queue = PostgresDeliveryQueue(self.database)

    def other(self) -> World:
        """Another process."""
        return World(PostgresFhirStore(self.database), database=self.database, tenant=self.world.tenant)

    async def test_two_processes(self) -> None:
        """A change of topics or subscriptions by one process applies to the next write of another process."""
        other = self.other()
        finished = {"resource": "Encounter", "queryCriteria": {"current": "status=finished"}}
        for step, (change, resource) in enumerate(
            (
                (topic(), encounter("e0", "in-progress")),
                (subscription(), encounter("e1", "in-progress")),
                (topic(resourceTrigger=[finished]), encounter("e2", "in-progress")),
                (topic(resourceTrigger=[finished]), encounter("e3", "finished")),
                (subscription(status="off"), encounter("e4", "finished")),
                (subscription(), encounter("e5", "finished")),
                (topic(status="retired"), encounter("e6", "finished")),
            )
        ):
            await self.store(change)
            answer = await other.send("PUT", f"Encounter/{resource['id']}", resource)
            self.assertEqual(answer.status, 201, step)
        self.assertEqual(await self.fired(), ["e1/1", "e3/1", "e5/1"])

    async def test_topics_change_while_others_write(self) -> None:
        """Every write fires according to the topic at that time; no event is lost or duplicated."""
        await self.store(topic(resourceTrigger=[{"resource": "Encounter"}]))
        await self.store(subscription())
        worlds = [self.other() for _ in range(2)]

        async def write(number: int) -> int:
            world = worlds[number % 2]
            answer = await world.send("PUT", f"Encounter/w{number}", encounter(f"w{number}", "planned"))
            return answer.status

        async def change(number: int) -> None:
            kept = [{"resource": "Encounter", "queryCriteria": {"current": f"_id=w{number},w99"}}]
            await self.store(topic(resourceTrigger=kept if number % 2 else [{"resource": "Encounter"}]))

        works = [Deferred.fromCoroutine(write(number)) for number in range(12)]
        works += [Deferred.fromCoroutine(change(number)) for number in range(4)]
        await gatherResults(works)
        await self.store(topic(resourceTrigger=[{"resource": "Encounter", "queryCriteria": {"current": "_id=w99"}}]))
        before = len(await self.fired())
        self.assertEqual([await write(number) for number in (50, 51, 99, 52)], [201] * 4)
        self.assertEqual((await self.fired())[before:], ["w99/1"])
