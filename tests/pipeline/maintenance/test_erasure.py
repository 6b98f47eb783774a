"""What an erasure removes, must not touch, and refuses; with one tenant, and under row-level security."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from twisted.internet import defer

from ipf.errors import Problem
from ipf.fhir.model.json import dumps
from ipf.pipeline.maintenance.erasure_search import ErasureRequest
from ipf.security.audit.erasure_receipt import begun_receipt, concerns, is_genuine, reference_digest
from ipf.store.erasure.resources import PostgresErasureStore
from ipf.store.resources.writing.consents import PostgresConsents
from tests.pipeline.maintenance.erasures import KEY, ErasureSuite, hl7, observation, patient_of
from tests.rest.world import BASE

ALL = frozenset("*")
MASKED = {"extension": [{"url": "http://hl7.org/fhir/StructureDefinition/data-absent-reason", "valueCode": "masked"}]}
OTHERS = ["Observation/oy", "Patient/y", "Patient/y"]


def one(*references: str) -> frozenset[str]:
    """References that an operator names."""
    return frozenset(references)


class ErasureTests(ErasureSuite):
    async def test_the_other_patient_stays(self) -> None:
        """A similar id, a resource of his that was deleted, and one that refers to him in a former version alone."""
        await self.put({"resourceType": "Patient", "id": "x.1"})
        await self.put(observation("gone", "x"))
        await self.world.send("DELETE", "Observation/gone")
        basic = {"resourceType": "Basic", "id": "b", "code": {"text": "c"}}
        await self.put(basic | {"subject": {"reference": "Patient/x"}})
        await self.put(basic)
        receipt = await self.forget()
        self.assertEqual(await self.names(), ["Observation/oy", "Patient/x.1", "Patient/y", "Patient/y"])
        self.assertTrue(is_genuine(receipt, KEY.public_key))
        self.assertFalse(is_genuine(receipt._replace(reason="other"), KEY.public_key))
        self.assertEqual(list(receipt.digests), [reference_digest(receipt.salt, "default", "Patient/x")])
        self.assertNotIn("Patient/x", dumps(receipt._asdict()).decode())
        total, (stored,) = await self.erasure.receipts("default", 10, 0)
        self.assertEqual((total, stored), (1, receipt))
        self.assertTrue(is_genuine(stored, KEY.public_key))

    async def test_urls(self) -> None:
        """One of this server is a reference to him; one of another server is not, even with the same id."""
        await self.put(observation("own", "y") | {"subject": {"reference": f"{BASE}/Patient/x"}})
        await self.put(observation("foreign", "y") | {"subject": {"reference": "http://other/fhir/Patient/x"}})
        await self.forget()
        self.assertEqual(await self.names(), ["Observation/foreign", *OTHERS])

    async def test_resources_about_two_patients(self) -> None:
        """Directly, in a former version, and through a resource of the other one: refused until it is decided."""
        provenance: dict[str, Any] = {"resourceType": "Provenance", "id": "p", "recorded": "2026-01-01T00:00:00Z",
                                      "agent": [{"who": {"display": "d"}}]}  # fmt: skip
        await self.put(provenance | {"target": [{"reference": f"Observation/o{id_}"} for id_ in "xy"]})
        await self.refused("Provenance/p")
        await self.refused("Provenance/p", redact=one("Provenance/q"))
        receipt = await self.forget(redact=one("Provenance/p"))
        self.assertEqual(receipt.counts["redacted"], 1)
        (body,) = await self.bodies("p")
        self.assertEqual(json.loads(body)["target"], [MASKED, {"reference": "Observation/oy"}])
        self.assertEqual(await self.names(), ["Observation/oy", "Patient/y", "Patient/y", "Provenance/p"])

    async def test_a_group_stays_without_him(self) -> None:
        """In all versions and in the index; the version numbers, times and the other members stay."""
        members = [{"entity": {"reference": f"Patient/{id_}", "display": f"name of {id_}"}} for id_ in "xy"]
        group = {"resourceType": "Group", "id": "g", "type": "person", "actual": True}
        await self.put(group | {"member": members})
        await self.put(group | {"member": members, "name": "later"})
        (before,) = [await self.world.versions("Group/g")]
        await self.refused("Group/g")
        await self.forget(redact=ALL)
        after = await self.world.versions("Group/g")
        self.assertEqual(
            [(v.version_id, v.last_updated) for v in after], [(v.version_id, v.last_updated) for v in before]
        )
        for version in after:
            self.assertEqual(json.loads(version.body)["member"], [{"entity": MASKED}, members[1]])
        self.assertEqual(await self.found("Group?member=Patient/x"), [])
        self.assertEqual(await self.found("Group?member=Patient/y"), ["g"])

    async def test_a_deleted_resource_about_both(self) -> None:
        """Its history loses him."""
        await self.put(observation("both", "x", performer=[{"reference": "Patient/y"}]))
        await self.world.send("DELETE", "Observation/both")
        await self.refused("Observation/both")
        await self.forget(redact=ALL)
        first, last = await self.bodies("both")
        self.assertEqual((json.loads(first)["subject"], last), (MASKED, ""))

    async def test_a_moved_resource(self) -> None:
        """It is the other patient's now, and its former version says that it was his."""
        await self.put(observation("ox", "y"))
        await self.refused("Observation/ox")
        await self.forget(remove=one("Observation/ox"))
        self.assertEqual(await self.names(), OTHERS)

    async def test_a_resource_of_no_compartment(self) -> None:
        """A type that belongs to no patient: refused, until it is decided or deleted."""
        await self.put({"resourceType": "Device", "id": "d", "patient": {"reference": "Patient/x"}})
        await self.refused("Device/d")
        await self.world.send("DELETE", "Device/d")
        await self.forget()
        self.assertEqual(await self.names(), OTHERS)

    async def test_what_is_removed_by_decision_takes_what_refers_to_it(self) -> None:
        """Which needs a decision of its own, if it is another patient's."""
        await self.put({"resourceType": "Device", "id": "d", "patient": {"reference": "Patient/x"}})
        await self.put(observation("oy", "y", device={"reference": "Device/d"}))
        await self.refused("Observation/oy", remove=one("Device/d"))
        await self.forget(remove=one("Device/d"), redact=one("Observation/oy"))
        self.assertEqual(json.loads((await self.bodies("oy"))[1])["device"], MASKED)
        self.assertEqual(await self.names(), ["Observation/oy", *OTHERS])

    async def test_criteria_and_narratives(self) -> None:
        """A text with his id is no Reference: the id is replaced."""
        html = '<div xmlns="http://www.w3.org/1999/xhtml"><a href="Patient/x">x</a> <a href="Patient/y">y</a></div>'
        await self.put({"resourceType": "Library", "id": "l", "status": "active", "type": {"text": "t"},
                        "text": {"status": "additional", "div": html}})  # fmt: skip
        await self.forget(redact=ALL)
        (body,) = await self.bodies("l")
        self.assertEqual(json.loads(body)["text"]["div"], html.replace("Patient/x", "Patient/erased"))

    async def test_merged_patients(self) -> None:
        """Links of a merge make them one; a link of another kind does not."""
        replaced = {"link": [{"other": {"reference": "Patient/x"}, "type": "replaced-by"}], "active": False}
        await self.put(patient_of("z", "4713", **replaced))
        await self.put(observation("oz", "z"))
        also = {"link": [{"other": {"reference": "Patient/z"}, "type": "seealso"}]}
        await self.put(patient_of("y", "4712", **also))
        await self.inbox.store([hl7("Z", "4713^^^A^MR"), hl7("Y", "4712^^^A^MR")])
        await self.refused("Patient/y", remove=ALL)
        receipt = await self.forget(redact=ALL, uncertain_messages="remove")
        self.assertEqual(await self.names(), ["Observation/oy", "Patient/y", "Patient/y", "Patient/y"])
        self.assertEqual(json.loads((await self.bodies("y"))[2])["link"], [{"other": MASKED, "type": "seealso"}])
        self.assertEqual(await self.message_ids(), ["Y"])
        self.assertEqual([concerns(receipt, f"Patient/{id_}") for id_ in "xyz"], [True, False, True])

    async def test_the_survivor_takes_the_prior_patient(self) -> None:
        """The other direction of the same link."""
        link = [{"other": {"reference": "Patient/x"}, "type": "replaced-by"}]
        await self.put(patient_of("z", "4713", link=link))
        await self.forget(id_="z")
        self.assertEqual(await self.names(), OTHERS)

    async def test_messages(self) -> None:
        """His by what they wrote or by number and authority; the same number of another authority is not decided."""
        known = hl7("K", "4711^^^A^MR")
        await self.inbox.store([
            known, hl7("OPEN", "4711^^^A^MR"), hl7("OTHER", "4711^^^B^MR"), hl7("Y", "4712^^^A^MR"),
            hl7("TWO", "4711^^^A^MR", "MRG|4712^^^A^MR\r"), hl7("TEXT", "99^^^A^MR", "NTE|||4711\r"),
            hl7("SAME", "4711^^^A^MR", "PID|2||4711^^^A^MR||Hansen\r"),
        ])  # fmt: skip
        await self.wrote(known, "x", "ox")
        await self.database.all_tenants.many(
            "INSERT INTO receipts (partition_id, key, correlation_id)"
            f" SELECT 1, 'message/' || k, gen_random_uuid() FROM unnest(ARRAY['{known.correlation_id}', '0']) k"
        )
        await self.refused("another patient")
        await self.refused("may be of another patient", shared_messages=True)
        await self.forget(shared_messages=True, uncertain_messages="keep")
        self.assertEqual(await self.message_ids(), ["OTHER", "TEXT", "Y"])
        left = await self.inbox_database.many("SELECT count(*) FROM message_states")
        self.assertEqual(left, [(3,)])
        self.assertEqual(await self.database.all_tenants.many("SELECT key FROM receipts"), [("message/0",)])

    async def test_messages_in_dispute_are_uncertain(self) -> None:
        """A conflict says that his number may be of another person; queues of others lose his resources."""
        known, disputed, other = hl7("K", "4711^^^A^MR"), hl7("D", "4711^^^A^MR"), hl7("Y", "4712^^^A^MR")
        await self.inbox.store([known, disputed, other])
        await self.wrote(known, "x")
        numbers = dict(await self.inbox_database.many("SELECT source_id, id FROM message_bodies"))
        await self.inbox_database.many(
            "UPDATE message_states SET status = 'DEAD_LETTER', last_error = 'hapi: cannot tell (Patient/x, Patient/y)';"
            " INSERT INTO identity_conflicts (tenant, state_id, message_id, place, status, detected_at, resource_type,"
            " first_key, candidates, finding) SELECT 'default', id, id, '', 'open', now(), 'Patient', 'k',"
            f" 'Patient/x Patient/y', '{{}}' FROM message_states WHERE id IN ({numbers['D']}, {numbers['Y']})"
        )
        await self.refused("may be of another patient")
        await self.forget(uncertain_messages="keep")
        self.assertEqual(await self.message_ids(), ["D", "Y"])
        self.assertEqual(await self.inbox_database.many("SELECT id FROM identity_conflicts"), [])
        errors = {row[0] for row in await self.inbox_database.many("SELECT last_error FROM message_states")}
        self.assertEqual(errors, {"hapi: cannot tell (Patient/erased, Patient/y)"})

    async def test_unmapped_codes(self) -> None:
        """A code that only his messages have goes; one that another message has stays."""
        known, other = hl7("K", "4711^^^A^MR"), hl7("Y", "4712^^^A^MR")
        await self.inbox.store([known, other])
        await self.wrote(known, "x")
        await self.inbox_database.many(
            "INSERT INTO unmapped_codes (tenant, source_system, concept_map, code, first_seen, last_seen, met, kept)"
            " SELECT 'default', 'LAB', 'm', c, now(), now(), 1, 1 FROM unnest(ARRAY['his', 'both', 'none']) c;"
            " INSERT INTO unmapped_messages SELECT u.id, b.id FROM unmapped_codes u, message_bodies b"
            " WHERE u.code = 'both' OR (u.code = 'his' AND b.source_id = 'K')"
        )
        await self.forget()
        left = await self.inbox_database.many(
            "SELECT code, (SELECT count(*) FROM unmapped_messages m WHERE m.unmapped_id = u.id) FROM unmapped_codes u"
            " ORDER BY 1"
        )
        self.assertEqual(left, [("both", 1), ("none", 0)])

    async def test_exports(self) -> None:
        """Those that run, that were asked for him or by him, or have him; de-identified ones; not those of others."""
        jobs = {
            "runs": "'running', NULL, 'u', NULL",
            "asked": "'done', NULL, 'u?_typeFilter=Observation%3Fsubject%3DPatient%2Fx', NULL",
            "his": "'done', NULL, 'u', NULL", "only-id": "'done', NULL, 'u', NULL", "deident": "'done', 'p', 'u', NULL",
            "caller": """'done', NULL, 'u', '{"patient": "x"}'""", "others": "'done', NULL, 'u', NULL",
        }  # fmt: skip
        parts = {"his": '{"subject":{"reference":"Patient/x"}}', "only-id": '{"resourceType":"Patient","id":"x"}',
                 "others": '{"id":"x.1","subject":{"reference":"Patient/xx"}}'}  # fmt: skip
        for name, values in jobs.items():
            await self.database.all_tenants.many(
                "INSERT INTO export_jobs (partition_id, id, level, types, transaction_time, expires_at, status,"
                f" deident, request_url, caller) VALUES (1, '{name}', 'system', 'Patient', now(), now(), {values})"
            )
        for name, body in parts.items():
            await self.database.all_tenants.many(
                f"INSERT INTO export_parts VALUES (1, '{name}', 1, 'Observation', 1, '{body}')"
            )
        self.assertEqual((await self.forget()).counts["exports"], 6)
        self.assertEqual(await self.database.all_tenants.many("SELECT id FROM export_jobs"), [("others",)])

    async def test_jobs(self) -> None:
        """Those that were asked for by him or about him or have him, searches that run; not those of others."""
        jobs = {
            "search": "'running', '{}', NULL, '', ''", "others-bundle": "'running', '{}', NULL, 'Patient/xx', ''",
            "bundle": """'running', '{}', NULL, '{"subject":{"reference":"Patient/x"}}', ''""",
            "asked": """'done', '{"query":[["subject","Patient/x"]]}', NULL, '', ''""",
            "caller": """'done', '{}', '["a","b",[],null,"x"]', '', ''""",
            "answer": """'done', '{}', NULL, '', '{"resourceType":"Patient","id":"x"}'""",
            "others": """'done', '{}', NULL, '', '{"id":"x.1"}'""",
            "file": "'done', '{}', NULL, '', ''", "result": "'done', '{}', NULL, '', ''",
        }  # fmt: skip
        for name, values in jobs.items():
            await self.database.all_tenants.many(
                "INSERT INTO jobs (partition_id, id, kind, expires_at, status, asked, caller, body, answer)"
                f" VALUES (1, '{name}', 'request', now(), {values})"
            )
        await self.database.all_tenants.many(
            "INSERT INTO job_files VALUES (1, 'file', 1, 'u', 1, '{\"diagnostics\":\"Patient/x\"}');"
            'INSERT INTO job_results VALUES (1, \'result\', 0, \'[[201,"created","Patient","x",1]]\')'
        )
        await self.forget()
        left = await self.database.all_tenants.many("SELECT id FROM jobs ORDER BY id")
        self.assertEqual(left, [("others",), ("others-bundle",)])

    async def test_a_message_in_conversion_refuses(self) -> None:
        await self.inbox.store([hl7("OTHER", "4711^^^B^MR")])
        await self.inbox_database.many("UPDATE message_states SET status = 'TRANSFORMING', leased_at = now()")
        await self.refused("being converted", uncertain_messages="remove")

    async def test_consents(self) -> None:
        """Every process learns that a Consent is gone."""
        consents = PostgresConsents(self.database)
        await self.put({
            "resourceType": "Consent", "id": "c", "status": "active", "scope": {"text": "s"},
            "category": [{"text": "c"}], "patient": {"reference": "Patient/x"}, "policyRule": {"text": "p"},
            "provision": {"type": "deny"},
        })  # fmt: skip
        epoch = await consents.epoch()
        self.assertEqual([found.resource is None for found in await consents.changes(epoch - 1)], [False])
        await self.forget()
        self.assertGreater(await consents.epoch(), epoch)
        self.assertEqual([found.resource for found in await consents.changes(epoch)], [None])

    async def test_another_plan_refuses(self) -> None:
        """What an operator has to decide on is not what the dry run showed; what is his alone may come since."""
        wanted = ErasureRequest("default", "x", "operator", "asked for", redact=ALL, uncertain_messages="keep")
        for late in (
            self.put(observation("both", "x", performer=[{"reference": "Patient/y"}])),
            self.inbox.store([hl7("U", "4711^^^B^MR")]),
            self.put(patient_of("z", "4713", link=[{"other": {"reference": "Patient/x"}, "type": "replaced-by"}])),
        ):
            plan = await self.erasure.plan(wanted)
            await late
            before = await self.rows()
            asked = self.erasure.forget(replace(wanted, confirm=plan.confirm))
            problem = await self.assertFailure(defer.Deferred.fromCoroutine(asked), Problem)
            self.assertIn("dry run", problem.text)
            self.assertEqual(await self.rows(), before)
        plan = await self.erasure.plan(wanted)
        await self.put(observation("late", "x"))
        await self.erasure.forget(replace(wanted, confirm=plan.confirm))
        self.assertEqual(await self.names(), ["Observation/both", *OTHERS])

    async def test_a_write_after_the_search_refuses(self) -> None:
        """The transaction looks again: at versions of his resources, and at new ones that mention him."""
        store = PostgresErasureStore(self.database, BASE)
        receipt = begun_receipt("default", ["Patient/x"], "a", "r")._replace(at="2026-01-01T00:00:00+00:00")
        for late in (observation("ox", "x"), observation("late", "x")):
            plan = await self.erasure.plan(ErasureRequest("default", "x"))
            await self.put(late | {"code": {"text": "late"}})
            before = await self.names()
            asked = defer.Deferred.fromCoroutine(store.remove(plan.resources, receipt))
            problem = await self.assertFailure(asked, Problem)
            self.assertIn("meanwhile", problem.text)
            self.assertEqual(await self.names(), before)

    async def test_holds(self) -> None:
        """For all tenants, or for one; of a patient merged with him, or whom shared resources and messages concern."""
        for hold in ("Patient/x", "default:Patient/x"):
            self.erasure = self.make(hold)
            await self.refused(hold)
        link = [{"other": {"reference": "Patient/x"}, "type": "replaced-by"}]
        await self.put(patient_of("z", "4713", link=link))
        self.erasure = self.make("Patient/z")
        await self.refused("Patient/z")
        await self.put(observation("both", "x", performer=[{"reference": "Patient/y"}]))
        self.erasure = self.make("Patient/y")
        await self.refused("Patient/y", redact=ALL)
        await self.refused("Patient/y", remove=ALL)
        self.erasure = self.make("Patient/other", "north:Patient/x")
        await self.forget(remove=ALL)

    async def test_a_held_patient_in_a_shared_message(self) -> None:
        """Removing it is refused."""
        shared = hl7("S", "4711^^^A^MR")
        await self.inbox.store([shared])
        await self.wrote(shared, "x", "y")
        self.erasure = self.make("Patient/y")
        await self.refused("Patient/y", shared_messages=True)

    async def test_another_tenant_stays(self) -> None:
        """Who has a Patient with the same id."""
        for resource in ({"resourceType": "Patient", "id": "x"}, observation("ox", "x")):
            await self.put(resource, "north")
        await self.forget()
        self.assertEqual(
            await self.names(), ["Observation/ox", "Observation/oy", "Patient/x", "Patient/y", "Patient/y"]
        )


class RowSecurityTests(ErasureSuite):
    """Each table that an erasure reads or writes is seen within the tenant."""

    tenants = True
    test_the_other_patient_stays = ErasureTests.test_the_other_patient_stays
    test_resources_about_two_patients = ErasureTests.test_resources_about_two_patients
    test_merged_patients = ErasureTests.test_merged_patients
    test_messages = ErasureTests.test_messages
    test_exports = ErasureTests.test_exports
    test_jobs = ErasureTests.test_jobs
    test_consents = ErasureTests.test_consents
    test_a_write_after_the_search_refuses = ErasureTests.test_a_write_after_the_search_refuses
    test_holds = ErasureTests.test_holds
    test_another_tenant_stays = ErasureTests.test_another_tenant_stays
