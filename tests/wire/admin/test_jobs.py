"""Effects, replay with dry run, bulk operations on dead letters, and jobs, over HTTP on PostgreSQL."""

from __future__ import annotations

import json
import re
from typing import Any

from openapi_spec_validator import validate
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.pipeline.maintenance.jobs import Jobs
from ipf.ports import FhirEffects, FiredEvent, Status
from ipf.rest.write.commit import commit
from ipf.rest.write.unit import Entry, Method, single
from ipf.wire.admin import app as admin
from ipf.wire.admin.access import OPEN_PATHS, AdminAccess
from ipf.wire.admin.inbox.effects import effects_status
from ipf.wire.admin.route import Mounted
from ipf.wire.reference.table import ADMIN
from tests.waiting import turns
from tests.wire.admin.operators import DOCUMENT, OperatorsTest, adt, as_deferred, now


def event(status: str, *, delivered: bool) -> FiredEvent:
    return FiredEvent("s", status, 1, "Patient/1", "rest-hook", None, "Patient?", delivered)


class EffectsTest(OperatorsTest):
    """The effects of a message."""

    async def test_what_a_message_did(self) -> None:
        """Versions with actions, the event, and each delivery attempt; nothing of other messages."""
        subscription = {
            "resourceType": "Subscription", "status": "active", "reason": "t", "criteria": "Patient?",
            "channel": {"type": "rest-hook", "endpoint": "http://sink", "payload": "application/fhir+json"},
        }  # fmt: skip
        entry = Entry(Method.UPDATE, "Subscription", "s1", subscription)
        (made,) = await commit([single(entry, correlation_id="6f1e1b5e-0c38-4b3c-9c51-0242ac120002")],
                               self.fhir, self.matcher, now)  # fmt: skip
        self.assertNotIsInstance(made, Problem)
        await self.inbox.store([adt(1), adt(2, name="Olsen")])
        _, body = await self.ask("GET", "/messages/1/effects")
        self.assertEqual((body["effects_status"], body["transform"]), ("pending", None))
        await self.convert()
        _, first = await self.ask("GET", "/messages/1/effects")
        _, second = await self.ask("GET", "/messages/2/effects")
        self.assertEqual([one["action"] for one in first["fhir_resources_created"]], ["created"])
        self.assertEqual([one["action"] for one in second["fhir_resources_created"]], ["updated"])
        self.assertEqual(second["fhir_resources_created"][0]["version_id"], "2")
        self.assertEqual(first["transform"], {"map": "urn:map:patient", "version": "2", "duration_ms": 1.5})
        patient = f"Patient/{first['fhir_resources_created'][0]['id']}"
        (fired,) = first["subscriptions_matched"]
        shown = (fired["id"], fired["matched_resource"], fired["delivered"])
        self.assertEqual(shown, ("Subscription/s1", patient, False))
        self.assertEqual((first["effects_status"], first["notifications_fired"]), ("pending", []))
        await self.attempts((1, False, 503, None), (1, True, 200, None))
        await self.database.many("SELECT 1")
        _, first = await self.ask("GET", "/messages/1/effects")
        tries = [(one["outcome"], one["http_status"], one["duration_ms"]) for one in first["notifications_fired"]]
        self.assertEqual(tries, [("failure", 503, 12), ("success", 200, 12)])
        self.assertEqual(first["effects_status"], "delivered")
        _, second = await self.ask("GET", "/messages/2/effects")
        self.assertEqual((second["effects_status"], second["notifications_fired"]), ("pending", []))
        await self.attempts((1, True, 200, 2))
        _, second = await self.ask("GET", "/messages/2/effects")
        (tried,) = second["notifications_fired"]
        self.assertEqual((second["effects_status"], tried["event_number"]), ("delivered", 2))

    async def attempts(self, *tries: tuple[int, bool, int, int | None]) -> None:
        """Rows of the ledger, and the cursor."""
        for number, succeeded, status, last in tries:
            await self.fhir_database.many(
                "INSERT INTO delivery_attempts (subscription_rid, event_number, attempted_at, succeeded, http_status,"
                " duration_ms, correlation_id, to_event_number) SELECT e.subscription_rid, e.event_number, now(),"
                f" {succeeded}, {status}, 12, e.correlation_id, {last or 'NULL'} FROM subscription_events e"
                f" WHERE event_number = {number}"
            )
            if succeeded:
                await self.fhir_database.many(f"UPDATE subscription_states SET delivered_number = {last or number}")

    async def test_the_fhir_database_is_away(self) -> None:
        """The response has the data of the inbox; the rest is unknown."""
        await self.inbox.store([adt(1)])
        await self.convert()
        await self.fhir_database.close()
        status, body = await self.ask("GET", "/messages/1/effects")
        self.assertEqual((status, body["effects_status"], body["message"]["status"]), (200, "unknown", "DELIVERED"))

    def test_status_of_effects(self) -> None:
        """By state of the message and of its subscriptions."""
        for status, events, expected in (
            (Status.DEAD_LETTER, [], "failed"),
            (Status.FAILED, [], "pending"),
            (Status.DELIVERED, [], "delivered"),
            (Status.DELIVERED, [event("active", delivered=True)], "delivered"),
            (Status.DELIVERED, [event("active", delivered=False)], "pending"),
            (Status.DELIVERED, [event("error", delivered=False)], "failed"),
            (Status.DELIVERED, [event("off", delivered=False)], "delivered"),
        ):
            self.assertEqual(effects_status(status, FhirEffects((), events, ())), expected)
        self.assertEqual(effects_status(Status.DELIVERED, None), "unknown")


class ReplayTest(OperatorsTest):
    """Replay in order, and its preview."""

    async def replay(self, **body: Any) -> dict[str, Any]:
        status, job = await self.ask("POST", "/messages/replay", body)
        self.assertEqual((status, job["status"]), (202, "requested"))
        await self.work()
        return (await self.ask("GET", f"/jobs/{job['id']}"))[1]  # type: ignore[no-any-return]

    async def test_a_replay_leaves_the_row_and_the_last_message_wins(self) -> None:
        """The later message of the patient is converted again after the replayed one."""
        await self.inbox.store([adt(1, "Hansen"), adt(2, "Olsen")])
        await self.convert()
        _, before = await self.ask("GET", "/messages/1")
        job = await self.replay(ids=[1])
        self.assertEqual((job["status"], job["total"], job["done"], job["changed"]), ("done", 1, 1, 1))
        self.assertEqual((job["following_changed"], job["skipped"]), (1, 0))
        claims = await self.convert()
        self.assertEqual([claim.original_id for claim in claims], [1, 2])
        self.assertEqual(await self.families(), ["Olsen"])
        self.assertEqual((await self.ask("GET", "/messages/1"))[1], before)
        _, listed = await self.ask("GET", "/messages/1/conversions")
        (conversion,) = listed["items"]
        self.assertEqual((conversion["status"], conversion["reason"]), ("DELIVERED", f"job/{job['id']}"))
        _, effects = await self.ask("GET", "/messages/1/effects")
        self.assertEqual([one["action"] for one in effects["fhir_resources_created"]], ["created", "updated"])

    async def test_over_several_batches_each_is_converted_once(self) -> None:
        """A job of five messages in batches of two converts each once."""
        await self.inbox.store([adt(number, f"N{number}") for number in range(5)])
        await self.convert()
        job = await self.replay(filter={"text": "n*"}, following=True)
        self.assertEqual((job["total"], job["changed"], job["following_changed"]), (5, 5, 0))
        claims = await self.convert()
        self.assertEqual([claim.original_id for claim in claims], [1, 2, 3, 4, 5])
        self.assertEqual(await self.families(), ["N4"])

    async def test_what_is_selected(self) -> None:
        """By filter and time; waiting messages do not change, failed ones are retried."""
        await self.inbox.store([adt(1, ordering_key=None), adt(2, ordering_key=None, source_system="EHR")])
        await self.convert(1)
        job = await self.replay(filter={"source_system": "LAB", "received_from": "2000-01-01"})
        self.assertEqual((job["total"], job["changed"], job["skipped"]), (1, 1, 0))
        await self.convert()
        await self.inbox.store([adt(3, ordering_key=None)])
        job = await self.replay(filter={"source_id": "C3"})
        self.assertEqual((job["total"], job["changed"], job["skipped"]), (1, 0, 1))
        number = await self.end_as(Status.DEAD_LETTER)
        job = await self.replay(ids=[number, 999])
        self.assertEqual((job["total"], job["changed"]), (1, 1))
        self.assertEqual((await self.ask("GET", f"/messages/{number}"))[1]["status"], "RECEIVED")
        job = await self.replay(ids=[1, number], filter={"text": "c1"})
        self.assertEqual((job["total"], job["changed"]), (1, 1))
        job = (await self.ask("POST", "/messages/replay", {"filter": {"source_id": "none"}}))[1]
        self.assertEqual((job["status"], job["total"]), ("done", 0))

    async def test_dry_run(self) -> None:
        """Created, updated with the changed paths, unchanged; nothing is written."""
        await self.inbox.store([adt(1), adt(2, patient="P2"), adt(3, message_type="ADT_A04"), adt(4, patient="P3")])
        await self.convert(3)
        await self.fhir_database.many(
            "UPDATE resource_versions SET body = replace(body, 'Hansen', 'Older') WHERE body LIKE '%P1%'"
        )
        before = await self.fhir_database.many("SELECT count(*) FROM resource_versions")
        status, body = await self.ask("POST", "/messages/replay", {"filter": {"text": "hansen"}, "dry_run": True})
        self.assertEqual((status, body["total"], len(body["items"])), (200, 4, 4))
        updated, unchanged, passed, created = body["items"]
        (resource,) = updated["resources"]
        difference = {"path": "Patient.name[0].family", "stored": "Older", "replayed": "Hansen"}
        self.assertEqual((resource["outcome"], resource["differences"]), ("updated", [difference]))
        self.assertEqual([one["outcome"] for one in unchanged["resources"]], ["unchanged"])
        self.assertEqual((passed["resources"], passed["error"]), ([], None))
        (resource,) = created["resources"]
        self.assertEqual((resource["outcome"], resource["id"]), ("created", None))
        self.assertEqual(resource["resource"]["name"], [{"family": "Hansen"}])
        self.assertEqual(await self.fhir_database.many("SELECT count(*) FROM resource_versions"), before)
        self.assertEqual((await self.ask("GET", "/jobs"))[1]["total"], 0)
        _, body = await self.ask("POST", "/messages/replay", {"ids": [1, 2], "dry_run": True, "limit": 1})
        self.assertEqual((body["total"], len(body["items"])), (2, 1))

    async def test_a_dry_run_of_what_cannot_be_mapped(self) -> None:
        """The item names the reason."""

        async def fail(_: object) -> None:
            raise Problem(Category.MAPPING, "no rule for this")

        await self.inbox.store([adt(1)])
        self.mapper.transform = fail  # type: ignore[method-assign,assignment]
        _, body = await self.ask("POST", "/messages/replay", {"ids": [1], "dry_run": True})
        self.assertEqual([one["error"] for one in body["items"]], ["no rule for this"])

    async def test_bad_requests(self) -> None:
        """Each response names the error."""
        for path, body in (
            ("/messages/replay", {}),
            ("/messages/replay", {"filter": {}}),
            ("/messages/replay", {"filter": {"status": " "}}),
            ("/messages/replay", {"ids": []}),
            ("/messages/replay", {"ids": ["1"]}),
            ("/messages/replay", {"ids": [True]}),
            ("/messages/replay", {"ids": [1], "other": 1}),
            ("/messages/replay", {"ids": [1], "per_second": 0}),
            ("/messages/replay", {"ids": [1], "dry_run": "yes"}),
            ("/messages/replay", {"filter": {"status": "SENT"}}),
            ("/messages/replay", {"filter": {"color": "red"}}),
            ("/messages/replay", {"filter": {"text": 5}}),
            ("/messages/replay", {"filter": {"source_id": "a\u0000b"}}),
            ("/messages/replay", []),
            ("/messages/replay", b"{"),
            ("/dead-letters/retry", {}),
            ("/dead-letters/retry", {"filter": {"status": "FAILED"}}),
            ("/dead-letters/discard", {"fingerprint": "';"}),
        ):
            status, answer = await self.ask("POST", path, body)
            self.assertEqual(status, 400, (path, body, answer))
        status, answer = await self.ask("POST", "/messages/replay", {"ids": [1] * 20_001})
        self.assertEqual(status, 413, answer)
        status, found = (await self.ask("GET", "/jobs?status=x"))[:2]
        self.assertEqual((status, found["error"]), (400, "invalid_status"))
        self.assertEqual((await self.ask("GET", "/jobs/7"))[0], 404)
        self.assertEqual((await self.ask("POST", "/jobs/7/cancel"))[0], 404)


class DeadLettersTest(OperatorsTest):
    """Error groups, bulk retry and bulk discard."""

    async def dead(self) -> None:
        errors = ("matchbox: no map 17", "matchbox: no map 4711", "hapi: 'x' of \"y\" is wrong", "hapi: away")
        for number, error in enumerate(errors):
            await self.inbox.store([adt(number, ordering_key=None)])
            await self.end_as(Status.DEAD_LETTER, error)

    async def test_groups(self) -> None:
        """Errors that differ in numbers and quoted texts are one group; largest group first."""
        await self.dead()
        _, body = await self.ask("GET", "/dead-letters/errors")
        self.assertEqual((body["total"], [one["count"] for one in body["items"]]), (3, [2, 1, 1]))
        group = body["items"][0]
        self.assertEqual((group["newest_id"], group["sample"]), (2, "matchbox: no map 4711"))
        retry = {"fingerprint": group["fingerprint"]}
        _, dry = await self.ask("POST", "/dead-letters/retry", retry | {"dry_run": True})
        self.assertEqual((dry["total"], dry["ids"]), (2, [1, 2]))
        _, job = await self.ask("POST", "/dead-letters/retry", retry)
        await self.work()
        _, job = await self.ask("GET", f"/jobs/{job['id']}")
        self.assertEqual((job["status"], job["changed"], job["selection"]), ("done", 2, retry))
        self.assertEqual((await self.ask("GET", "/messages?status=RECEIVED"))[1]["total"], 2)
        self.assertEqual((await self.ask("GET", "/dead-letters/errors?limit=1&offset=1"))[1]["total"], 2)

    async def test_discard(self) -> None:
        """Only dead letters are deleted; a cancelled job stops."""
        await self.dead()
        await self.inbox.store([adt(9, ordering_key=None)])
        _, job = await self.ask("POST", "/dead-letters/discard", {"ids": [1, 2, 3, 5]})
        self.assertEqual(job["total"], 3)
        await self.message_admin.run_batch(2)
        _, job = await self.ask("POST", f"/jobs/{job['id']}/cancel")
        self.assertEqual((job["status"], job["done"], job["changed"]), ("cancelled", 2, 2))
        await self.work()
        self.assertEqual((await self.ask("POST", f"/jobs/{job['id']}/cancel"))[0], 409)
        _, left = await self.ask("GET", "/messages")
        self.assertEqual([one["id"] for one in left["items"]], [5, 4, 3])
        _, page = await self.ask("GET", "/jobs?status=cancelled")
        self.assertEqual((page["total"], page["items"][0]["id"]), (1, job["id"]))
        _, job = await self.ask("POST", "/dead-letters/discard", {"filter": {"error": "AWAY"}})
        await self.work()
        self.assertEqual((await self.ask("GET", "/messages"))[1]["total"], 2)

    async def test_a_kill_loses_nothing_and_does_nothing_twice(self) -> None:
        """Another process continues after the committed batch; a running batch locks the job."""
        await self.dead()
        _, job = await self.ask("POST", "/dead-letters/retry", {"ids": [1, 2, 3, 4], "per_second": 3})
        self.assertEqual(await self.message_admin.run_batch(50), (3, 3))
        async with self.database.session() as other:
            await other.many("SELECT 1 FROM admin_jobs FOR UPDATE")
            self.assertIsNone(await self.message_admin.run_batch(50))
        rests: list[float] = []
        notified: list[str] = []
        self.notifier.subscribe("inbox", lambda: notified.append("inbox"))

        async def rest(seconds: float) -> None:
            rests.append(seconds)
            await turns(1)

        stage = Jobs(self.message_admin, self.notifier, rest)
        self.assertEqual([await stage.step(), await stage.step()], [True, False])
        self.assertEqual((rests, notified), ([1 / 3], ["inbox"]))
        _, job = await self.ask("GET", f"/jobs/{job['id']}")
        self.assertEqual((job["status"], job["done"], job["changed"]), ("done", 4, 4))

    async def test_a_job_that_fails_says_why(self) -> None:
        """A failed job does not block the next; an unreachable store does not fail the job."""
        await self.dead()
        _, first = await self.ask("POST", "/dead-letters/retry", {"ids": [1]})
        _, second = await self.ask("POST", "/dead-letters/retry", {"ids": [2]})
        await self.database.many("UPDATE admin_jobs SET kind = 'replay', tenant = 'default' WHERE id = 1")
        await self.database.many("ALTER TABLE mapping_state RENAME TO renamed")
        await self.message_admin.run_batch(5)
        _, job = await self.ask("GET", f"/jobs/{first['id']}")
        self.assertEqual(job["status"], "failed")
        self.assertTrue(job["error"])
        await self.database.many("ALTER TABLE renamed RENAME TO mapping_state")
        await self.work()
        self.assertEqual((await self.ask("GET", f"/jobs/{second['id']}"))[1]["status"], "done")
        await self.database.close()
        await self.assertFailure(as_deferred(self.message_admin.run_batch(1)), StoreUnreachable)


class OpenApiTest(TestCase):
    """The document."""

    def test_it_is_valid(self) -> None:
        """Checked by an OpenAPI 3.1 validator; serializable as JSON."""
        validate(json.loads(json.dumps(DOCUMENT)))
        ids = [one["operationId"] for path in DOCUMENT["paths"].values() for one in path.values()]
        self.assertEqual(len(ids), len(set(ids)))

    def test_the_document_names_what_is_served(self) -> None:
        """Exactly the served paths and methods; `/admin/observe` has its own document."""
        served = admin.resource(AdminAccess(None), [Mounted(ADMIN, None)])._app.url_map  # type: ignore[attr-defined]
        found = {
            (re.sub("<[a-z_]+>", "{id}", "/admin" + rule.rule), method.lower())
            for rule in served.iter_rules()
            for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        }
        said = {(path, method) for path, operations in DOCUMENT["paths"].items() for method in operations}
        self.assertEqual(said, found)
        endpoints = [rule.endpoint for rule in served.iter_rules()]  # of one name, Klein would call the last for all
        self.assertEqual({name for name in endpoints if endpoints.count(name) > 1}, set())

    def test_the_document_names_refusals(self) -> None:
        """Every operation lists the common error responses."""
        for path, methods in DOCUMENT["paths"].items():
            for method, described in methods.items():
                self.assertLessEqual({"401", "403", "413", "500", "503"}, set(described["responses"]), (method, path))
        self.assertIn("422", DOCUMENT["paths"]["/admin/retention"]["post"]["responses"])

    def test_open_paths(self) -> None:
        """Paths that the document describes as open need no token."""
        free = {
            tuple(path.strip("/").split("/"))
            for path, operations in DOCUMENT["paths"].items()
            for one in operations.values()
            if one.get("security") == []
        }
        self.assertTrue(free <= OPEN_PATHS)
