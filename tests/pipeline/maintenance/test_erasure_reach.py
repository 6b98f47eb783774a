"""How far an erasure reaches: Binaries, and criteria and requests that name a patient without a reference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from twisted.internet import defer

from ipf.errors import Problem
from ipf.ports import Json, Rejected
from ipf.store.erasure.messages import PostgresMessageErasure
from ipf.subscriptions.policy import PERMISSIVE, ChannelPolicy
from tests.pipeline.maintenance.erasures import ErasureSuite, hl7, observation, patient_of
from tests.rest.world import BASE

ALL = frozenset("*")
OTHERS = ["Observation/oy", "Patient/y", "Patient/y"]


def binary(id_: str, context: str = "") -> Json:
    """A Binary with this security context."""
    about = {"securityContext": {"reference": context}} if context else {}
    return {"resourceType": "Binary", "id": id_, "contentType": "text/plain", "data": "eA==", **about}


def document(id_: str, patient: str, *urls: str) -> Json:
    """A DocumentReference with attachments at these URLs."""
    return {"resourceType": "DocumentReference", "id": id_, "status": "current",
            "subject": {"reference": f"Patient/{patient}"},
            "content": [{"attachment": {"url": url}} for url in urls]}  # fmt: skip


class BinaryTests(ErasureSuite):
    async def test_binaries(self) -> None:
        """What is stored beside the two patients; what a plain erasure leaves of it; what refuses it instead."""
        photo = [{"url": "Binary/b"}]
        former = document("d", "x", "Binary/b"), document("d", "x", "Binary/c")
        cases: Mapping[str, tuple[tuple[Json, ...], list[str], str]] = {
            "nobody else names it": ((binary("b"), document("d", "x", "Binary/b")), [], ""),
            "with the address of this server": ((binary("b"), document("d", "x", f"{BASE}/Binary/b")), [], ""),
            "a version of it": ((binary("b"), document("d", "x", "Binary/b/_history/1")), [], ""),
            "a photo of the Patient": ((binary("b"), patient_of("x", "4711", photo=photo)), [], ""),
            "in a former version": ((binary("b"), binary("c"), *former), [], ""),
            "in all its versions": ((binary("b"), binary("b", "Patient/x"), document("d", "x", "Binary/b")), [], ""),
            "his security context": ((binary("b", "Patient/x"),), [], ""),
            "the context is his resource": ((binary("b", "Observation/ox"),), [], ""),
            "nobody names it": ((binary("b"),), ["Binary/b"], ""),
            "on another server": ((binary("b"), document("d", "x", "http://other/Binary/b")), ["Binary/b"], ""),
            "of the other patient": ((binary("b", "Patient/y"), document("d", "y", "Binary/b")),
                                     ["Binary/b", "DocumentReference/d"], ""),
            "both name it": ((binary("b"), document("d", "x", "Binary/b"), document("e", "y", "Binary/b")),
                             [], "Binary/b"),
            "the other's context": ((binary("b", "Patient/y"), document("d", "x", "Binary/b")), [], "Binary/b"),
            "his context, the other names it": ((binary("b", "Patient/x"), document("e", "y", "Binary/b")),
                                                [], "DocumentReference/e"),
        }  # fmt: skip
        for name, (resources, left, obstacle) in cases.items():
            for resource in resources:
                await self.put(resource)
            if obstacle:
                await self.refused(obstacle)
                await self.forget(redact=ALL)
            else:
                await self.forget()
                self.assertEqual(await self.names(), sorted([*left, *OTHERS]), name)
            for database in (self.database, self.inbox_database):
                await database.close()
            await self.setUp()

    async def test_what_others_name_too_stays_by_redaction(self) -> None:
        """The Binary and the other's document are as before; `*` never removes the Binary, its name does."""
        for resource in (binary("b"), document("d", "x", "Binary/b"), document("e", "y", "Binary/b")):
            await self.put(resource)
        await self.refused("Binary/b", remove=ALL)
        before = [await self.bodies(id_) for id_ in "be"]
        await self.forget(redact=ALL)
        self.assertEqual(await self.names(), ["Binary/b", "DocumentReference/e", *OTHERS])
        self.assertEqual([await self.bodies(id_) for id_ in "be"], before)

    async def test_a_binary_removed_by_its_name(self) -> None:
        """What refers to it needs a decision of its own."""
        for resource in (binary("b"), document("d", "x", "Binary/b"), document("e", "y", "Binary/b")):
            await self.put(resource)
        await self.refused("DocumentReference/e", remove=frozenset(("Binary/b",)))
        await self.forget(remove=frozenset(("Binary/b",)), redact=ALL)
        (body,) = await self.bodies("e")
        self.assertEqual(json.loads(body)["content"], [{"attachment": {"url": "Binary/erased"}}])


class IdentifierTests(ErasureSuite):
    """References by an identifier alone: logical references."""

    tenants = False

    async def named(self, id_: str, value: str, **more: Any) -> None:
        """An Observation whose subject is an identifier."""
        subject = {"identifier": {"system": "urn:mrn", "value": value}, **more}
        await self.put(observation(id_, "x") | {"subject": subject})

    async def test_whom_they_name(self) -> None:
        """The number with its system, in a Reference to a Patient; no other number, system, type or identifier."""
        await self.named("his", "4711")
        await self.named("typed", "4711", type="Patient", display="d")
        await self.named("former", "4711")
        await self.put(observation("former", "x") | {"subject": {"display": "d"}})
        await self.named("moved", "4711")
        await self.named("moved", "4712")
        await self.named("hers", "4712")
        await self.named("longer", "47110")
        await self.named("device", "4711", type="Device")
        await self.put(observation("other", "y", identifier=[{"system": "urn:mrn", "value": "4711"}]))
        foreign = {"identifier": {"system": "urn:other", "value": "4711"}}
        await self.put(observation("foreign", "y") | {"subject": foreign})
        await self.refused("Observation/moved")
        await self.forget(remove=frozenset(("Observation/moved",)))
        left = ["Observation/device", "Observation/foreign", "Observation/hers", "Observation/longer",
                "Observation/other", "Observation/oy", "Patient/y", "Patient/y"]  # fmt: skip
        self.assertEqual(await self.names(), left)

    async def test_what_refers_to_them_goes_too(self) -> None:
        """And a number of a Patient that was merged with him counts as well."""
        await self.put(patient_of("z", "4713", link=[{"other": {"reference": "Patient/x"}, "type": "replaced-by"}]))
        await self.named("his", "4713")
        await self.put(binary("b", "Observation/his"))
        await self.forget()
        self.assertEqual(await self.names(), OTHERS)

    async def test_in_a_group_they_are_masked(self) -> None:
        """In all versions and in the index; the other member stays."""
        members = [{"entity": {"identifier": {"system": "urn:mrn", "value": number}}} for number in ("4711", "4712")]
        await self.put({"resourceType": "Group", "id": "g", "type": "person", "actual": True, "member": members})
        mixed = [{"entity": {"reference": "Patient/x"}}, members[1]]
        await self.put({"resourceType": "Group", "id": "h", "type": "person", "actual": True, "member": mixed})
        await self.put(observation("ox", "x", performer=[{"identifier": {"system": "urn:npi", "value": "4712"}}]))
        await self.refused("Group/g, Group/h")
        await self.forget(redact=ALL)
        for id_ in "gh":
            (body,) = await self.bodies(id_)
            self.assertEqual(json.loads(body)["member"][1], members[1])
        rows = "\n".join(row for rows in (await self.rows()).values() for row in rows)
        self.assertNotIn("4711", rows)
        self.assertEqual(await self.names(), ["Group/g", "Group/h", *OTHERS])

    async def test_a_number_that_two_have(self) -> None:
        """Nobody can tell whom the Reference means: it needs a decision."""
        await self.put(patient_of("w", "4711"))
        await self.named("whose", "4711")
        await self.refused("Observation/whose")
        await self.forget(redact=ALL)
        self.assertIn("Observation/whose", await self.names())

    async def test_rejects_of_polled_sources(self) -> None:
        """Which are JSON: the number stands between quotation marks."""
        for raw in ('{"identifier":[{"value":"4711"}]}', '{"identifier":[{"value":"47110"}]}'):
            await self.inbox.reject(Rejected(datetime.now(UTC), str(uuid4()), "feed", "p", "r", raw.encode(), len(raw)))
        self.assertEqual((await self.forget()).counts["rejects"], 1)


class CriteriaTests(ErasureSuite):
    async def setUp(self) -> None:
        await super().setUp()
        self.world.policy = ChannelPolicy(PERMISSIVE)
        name = [{"family": "Zwölf", "given": ["Kari"]}]
        await self.put(patient_of("x", "4711", name=name, telecom=[{"system": "phone", "value": "+47 22 33"}]))
        await self.put(observation("ox", "x", identifier=[{"system": "urn:o", "value": "ORDER-9"}]))

    async def subscribe(self, id_: str, criteria: str, **more: Any) -> None:
        """Store a Subscription that is active."""
        channel = {"type": "rest-hook", "endpoint": "http://127.0.0.1:9/", "payload": "application/fhir+json"}
        await self.put({"resourceType": "Subscription", "id": id_, "status": "requested", "reason": "r",
                        "criteria": criteria, "channel": channel, **more})  # fmt: skip
        await self.database.all_tenants.many("UPDATE subscription_states SET status = 'active'")

    async def test_criteria_with_his_numbers_are_in_the_way(self) -> None:
        """By number, name, telephone number, number of an order; with `redact` they name nobody."""
        cases = {
            "Patient?identifier=4711": "Patient?identifier=erased",
            "Patient?identifier=urn%3Amrn%7C4711": "Patient?identifier=erased",
            "Patient?family=zwolf": "Patient?family=erased",
            "Patient?name=Kari,Ola": "Patient?name=erased,Ola",
            "Patient?phone=%2B47%2022%2033": "Patient?phone=erased",
            "Observation?identifier=ORDER-9&status=final": "Observation?identifier=erased&status=final",
        }
        for number, criteria in enumerate(cases):
            await self.subscribe(f"s{number}", criteria)
        await self.subscribe("other", "Patient?identifier=4712", reason="of 47110, Karianne")
        plan = await self.erasure.plan(self.wanted())
        self.assertEqual(sorted(plan.found.shared), [f"Subscription/s{number}" for number in range(len(cases))])
        await self.refused("Subscription/s0")
        other = await self.bodies("other")
        await self.forget(redact=ALL)
        self.assertEqual(await self.bodies("other"), other)
        for number, left in enumerate(cases.values()):
            (body,) = await self.bodies(f"s{number}")
            self.assertEqual(json.loads(body)["criteria"], left)
        rows = {table: "\n".join(found).lower() for table, found in (await self.rows()).items()}
        for mark in ('4711"', "zwolf", "zwölf", "order-9"):
            self.assertEqual([table for table, found in rows.items() if mark in found], [], mark)

    async def test_matching_follows(self) -> None:
        """A process that has them in memory learns of the redacted criteria, and that a removed one is gone."""
        for id_ in ("kept", "gone"):
            await self.subscribe(id_, "Patient?identifier=4711")
        await self.put(patient_of("z", "4713"))
        await self.forget(redact=frozenset(("Subscription/kept",)), remove=frozenset(("Subscription/gone",)))
        await self.put(patient_of("new", "4711"))
        await self.put(patient_of("late", "erased"))
        events = await self.database.all_tenants.many(
            "SELECT s.id, r.id FROM subscription_events e JOIN subscription_states s ON s.rid = e.subscription_rid"
            " JOIN resources r ON r.rid = e.resource_rid"
        )
        self.assertEqual(events, [("kept", "late")])
        states = await self.database.all_tenants.many("SELECT id, status FROM subscription_states ORDER BY 1")
        self.assertEqual(states, [("gone", "deleted"), ("kept", "active")])
        self.assertEqual(await self.found("Subscription?_id=gone"), [])

    async def test_a_deleted_one_goes(self) -> None:
        """With its history, in which the criteria are."""
        await self.subscribe("s", "Patient?identifier=4711")
        await self.world.send("DELETE", "Subscription/s")
        await self.forget()
        self.assertEqual(await self.names(), OTHERS)

    async def test_topics(self) -> None:
        """A SubscriptionTopic whose trigger names him, also as a Basic."""
        trigger = [{"resource": "Patient", "queryCriteria": {"current": "identifier=4711"}}]
        await self.put({"resourceType": "Basic", "id": "b", "code": {"text": "c"},
                        "extension": [{"url": "http://x/t", "valueString": "Patient?identifier=4711"}]})  # fmt: skip
        await self.put({"resourceType": "SubscriptionTopic", "id": "t", "url": "http://x/t", "status": "active",
                        "resourceTrigger": trigger})  # fmt: skip
        plan = await self.erasure.plan(self.wanted())
        self.assertEqual(sorted(plan.found.shared), ["Basic/b", "SubscriptionTopic/t"])
        await self.forget(remove=ALL)
        self.assertEqual(await self.names(), OTHERS)

    async def test_requests_that_name_him(self) -> None:
        """Asynchronous ones and exports: the search is a text, and what it found is another question."""
        asked = {"number": "urn:mrn|4711", "name": "Zwölf", "other": "4712", "part": "47110"}
        for id_, value in asked.items():
            query = json.dumps({"query": [["q", value]]}, ensure_ascii=False)
            await self.database.all_tenants.many(
                "INSERT INTO jobs (partition_id, id, kind, expires_at, status, asked) VALUES"
                f" (1, '{id_}', 'request', now(), 'done', '{query}');"
                " INSERT INTO export_jobs (partition_id, id, level, types, transaction_time, expires_at, status,"
                f" request_url) VALUES (1, '{id_}', 'system', 'Patient', now(), now(), 'done', 'u?_typeFilter={value}')"
            )
        await self.database.all_tenants.many(
            "INSERT INTO jobs (partition_id, id, kind, expires_at, status, asked, body) VALUES"
            " (1, 'body', 'request', now(), 'done', '{}', '{\"identifier\":[{\"value\":\"4711\"}]}')"
        )
        filters = json.dumps(["Patient?name=Zwölf"], ensure_ascii=False)
        await self.database.all_tenants.many(
            "INSERT INTO export_jobs (partition_id, id, level, types, transaction_time, expires_at, status,"
            f" request_url, filters) VALUES (1, 'posted', 'system', 'Patient', now(), now(), 'done', 'u', '{filters}')"
        )
        counts = (await self.forget()).counts
        self.assertEqual((counts["jobs"], counts["exports"]), (3, 3))
        for table in ("jobs", "export_jobs"):
            left = await self.database.all_tenants.many(f"SELECT id FROM {table} ORDER BY 1")
            self.assertEqual(left, [("other",), ("part",)])


class SearchTests(ErasureSuite):
    """Selections of jobs, and saved views."""

    async def setUp(self) -> None:
        await super().setUp()
        await self.put(patient_of("x", "4711", name=[{"family": "Zwölf"}]))
        note, other = hl7("K", "4711^^^A^MR", "NTE|||rare secret\r"), hl7("Y", "4712^^^A^MR", "NTE|||secret\r")
        await self.inbox.store([note, other])
        await self.wrote(note, "x")

    async def add(self, name: str, filter_: Mapping[str, Any], status: str = "done") -> None:
        """A job with this selection, and a view with the same query."""
        selection = json.dumps({"filter": filter_}, ensure_ascii=False).replace("'", "''")
        query = urlencode(filter_)
        await self.inbox_database.many(
            "INSERT INTO admin_jobs (tenant, kind, selection, following, per_second, status, total)"
            f" VALUES ('default', 'replay', '{selection}', false, 1, '{status}', 0);"
            f" INSERT INTO saved_views (person, area, name, query) VALUES ('{name}', 'messages', 'v', '{query}')"
        )

    async def left(self) -> tuple[set[str], set[str]]:
        """The jobs, by a text of their selections, and the views, by person."""
        jobs = await self.inbox_database.many("SELECT selection FROM admin_jobs")
        views = await self.inbox_database.many("SELECT person FROM saved_views")
        return {next(iter(json.loads(row[0])["filter"].values())) for row in jobs}, {row[0] for row in views}

    async def test_what_names_him_or_finds_him_alone(self) -> None:
        """By number, name, word of a name; by words that no other message has."""
        his = {"number": {"patient": "4711"}, "qualified": {"patient": "A|4711"}, "name": {"text": "zwolf"},
               "among": {"text": "hansen zwölf"}, "error": {"error": "of 4711: none"}, "words": {"text": "rare secret"},
               "rare": {"text": "RARE"}, "prefix": {"text": "rar*"}}  # fmt: skip
        kept = {"other": {"patient": "4712"}, "part": {"patient": "47110"}, "both": {"text": "secret"},
                "state": {"status": "FAILED"}, "nobody": {"text": "unheard"},
                "control": {"source_id": "Y"}}  # fmt: skip
        for name, filter_ in {**his, **kept}.items():
            await self.add(name, filter_)
        plan = await self.erasure.plan(self.wanted())
        self.assertEqual((plan.counts["operator_jobs"], plan.counts["saved_views"]), (len(his), len(his)))
        await self.forget()
        jobs, views = await self.left()
        self.assertEqual(views, set(kept))
        self.assertEqual(jobs, {next(iter(filter_.values())) for filter_ in kept.values()})

    async def test_names_of_views(self) -> None:
        """A person may call a view as the patient is called."""
        await self.inbox_database.many(
            "INSERT INTO saved_views (person, area, name, query)"
            " SELECT 'p', 'messages', n, '' FROM unnest(ARRAY['Zwolf, urgent', 'zwölfer', 'of 4711', 'Mine']) n"
        )
        await self.forget()
        left = await self.inbox_database.many("SELECT name FROM saved_views ORDER BY 1")
        self.assertEqual(left, [("Mine",), ("zwölfer",)])

    async def test_a_job_that_is_not_finished_is_in_the_way(self) -> None:
        """It needs its selection; when it has ended, it goes."""
        await self.add("a", {"patient": "4711"}, "running")
        await self.refused("not finished")
        await self.inbox_database.many("UPDATE admin_jobs SET status = 'cancelled'")
        await self.forget()
        self.assertEqual(await self.left(), (set(), set()))

    async def test_a_search_since_the_plan(self) -> None:
        """The transaction looks again; the erasure begins again and takes it too."""
        store = PostgresMessageErasure(self.inbox_database, BASE)
        plan = await self.erasure.plan(self.wanted())
        await self.add("a", {"patient": "4711"})
        problem = await self.assertFailure(defer.Deferred.fromCoroutine(store.remove(plan.messages)), Problem)
        self.assertIn("meanwhile", problem.text)
        await self.erasure.forget(replace(self.wanted(), confirm=plan.confirm))
        self.assertEqual(await self.left(), (set(), set()))


class RowSecurityTests(CriteriaTests):
    tenants = True


class RowSecurityOfIdentifiersTests(IdentifierTests):
    tenants = True
