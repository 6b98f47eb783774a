"""$meta, $meta-add, $meta-delete and $diff."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import Answer, Caller, Json
from ipf.rest.resource_operations import meta as meta_operation
from tests.rest.world import OnMemory, issues, patient

TAG, OTHER = {"system": "urn:t", "code": "a", "display": "A"}, {"system": "urn:t", "code": "b"}
PROFILE = "http://example.org/p"


def parameters(meta: Any) -> Json:
    """The body of $meta-add and $meta-delete."""
    return {"resourceType": "Parameters", "parameter": [{"name": "meta", "valueMeta": meta}]}


def limited(scope: str) -> Caller:
    """A caller with these scopes."""
    return Caller("ada", "app", tuple(scope.split()))


class MetaAndDiffTests(OnMemory):
    async def meta(self, url: str, status: int = 200) -> Any:
        """The Meta that a $meta answers."""
        answer = await self.world.send("GET", url)
        self.assertEqual(answer.status, status, answer.body)
        return self.meta_in(answer) if status == 200 else None

    def meta_in(self, answer: Answer) -> Json:
        """The Meta in an answer, without version and time."""
        (found,) = loads(answer.body)["parameter"]
        self.assertEqual(found["name"], "return")
        return {name: value for name, value in found["valueMeta"].items() if name not in ("versionId", "lastUpdated")}

    async def test_add_and_delete(self) -> None:
        """Each that changes something is a version; the same again is none."""
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        for operation, sent, left, versions in (
            ("add", {"tag": [TAG, OTHER], "profile": [PROFILE]}, {"tag": [TAG, OTHER], "profile": [PROFILE]}, 2),
            ("add", {"tag": [OTHER, OTHER]}, {"tag": [TAG, OTHER], "profile": [PROFILE]}, 2),
            ("delete", {"tag": [{"system": "urn:t", "code": "a"}]}, {"tag": [OTHER], "profile": [PROFILE]}, 3),
            ("delete", {"tag": [{"code": "b"}]}, {"tag": [OTHER], "profile": [PROFILE]}, 3),
            ("delete", {"tag": [OTHER], "profile": [PROFILE]}, {}, 4),
            ("add", {"security": [{"code": "R"}]}, {"security": [{"code": "R"}]}, 5),
        ):
            answer = await self.world.send("POST", f"Patient/a/$meta-{operation}", parameters(sent))
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual(self.meta_in(answer), left)
            self.assertEqual(await self.meta("Patient/a/$meta"), left)
            self.assertEqual(len(await self.world.versions("Patient/a")), versions)
        found = await self.world.send("GET", "Patient?_security=R&_summary=count")
        self.assertEqual(loads(found.body)["total"], 1)

    async def test_refused(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        await self.world.send("POST", "AuditEvent", {"resourceType": "AuditEvent", "id": "x"})
        for url, body, status in (
            ("Patient/none/$meta-add", parameters({"tag": [TAG]}), 404),
            ("Patient/a/$meta-add", None, 400),
            ("Patient/a/$meta-add", parameters({"versionId": "7"}), 400),
            ("Patient/a/$meta-add", parameters({"tag": "x"}), 400),
            ("Patient/a/$meta-add", {"resourceType": "Patient"}, 400),
            ("AuditEvent/x/$meta-add", parameters({"tag": [TAG]}), 405),
        ):
            answer = await self.world.send("POST", url, body)
            self.assertEqual(answer.status, status, (url, answer.body))
        for url, status in (("Patient/none/$meta", 404), ("Patient/a/$meta?x=1", 400), ("Nothing/$meta", 404)):
            self.assertEqual((await self.world.send("GET", url)).status, status, url)
        self.assertEqual(len(await self.world.versions("Patient/a")), 1)

    async def test_of_types_and_of_all(self) -> None:
        """Each value once, of what is there and of what the caller may find."""
        await self.world.send("PUT", "Patient/a", patient("1", id="a", meta={"tag": [TAG]}))
        await self.world.send("PUT", "Patient/b", patient("2", id="b", meta={"tag": [TAG, OTHER]}))
        labelled = {"profile": [PROFILE], "security": [{"code": "R"}]}
        group = {"resourceType": "Group", "id": "g", "type": "person", "actual": True, "meta": labelled}
        await self.world.send("PUT", "Group/g", group)
        await self.world.send("PUT", "Patient/gone", patient("3", id="gone", meta={"tag": [{"code": "gone"}]}))
        await self.world.send("DELETE", "Patient/gone")
        self.assertEqual(await self.meta("Patient/$meta"), {"tag": [TAG, OTHER]})
        whole = {"tag": [TAG, OTHER], "profile": [PROFILE], "security": [{"code": "R"}]}
        self.assertEqual(await self.meta("$meta"), whole)
        self.assertEqual(await self.meta("Observation/$meta"), {})
        self.world.caller = limited("system/Patient.rs?_id=a")
        self.assertEqual(await self.meta("Patient/$meta"), {"tag": [TAG]})
        self.assertEqual(await self.meta("$meta"), {"tag": [TAG]})
        await self.meta("Group/$meta", 401)
        await self.meta("Patient/b/$meta", 404)
        refused = await self.world.send("POST", "Patient/a/$meta-add", parameters({"tag": [OTHER]}))
        self.assertEqual(refused.status, 401)

    async def test_bounds(self) -> None:
        """What a caller is shown is counted, whatever else is there."""
        for number, tags in enumerate(([TAG], [TAG, OTHER], [OTHER, {"code": "c"}])):
            await self.world.send("PUT", f"Patient/{number}", patient(f"{number}", id=f"{number}", meta={"tag": tags}))
        self.patch(meta_operation, "_MOST_VALUES", 2)
        for scopes, shown in (("system/*.rs", 400), ("system/Patient.rs?_id=0", 1), ("system/Patient.rs?_id=1", 2)):
            self.world.caller = limited(scopes)
            for url in ("Patient/$meta", "$meta"):
                answer = await self.world.send("GET", url)
                if shown == 400:
                    self.assertEqual((answer.status, issues(answer)[0][0]), (400, "too-costly"), scopes)
                else:
                    self.assertEqual(len(self.meta_in(answer)["tag"]), shown, scopes)
        self.patch(meta_operation, "_MOST_READ", 2)
        self.assertEqual((await self.world.send("GET", "$meta")).status, 400)

    async def test_diff(self) -> None:
        """Applied as a patch, it gives the later version."""
        await self.world.send("PUT", "Patient/a", patient("1", "One", id="a"))
        await self.world.send("PUT", "Patient/a", patient("1", "Two", id="a", active=True))
        await self.world.send("PUT", "Patient/a", patient("1", "Three", id="a", meta={"tag": [TAG]}))
        await self.world.send("PUT", "Patient/b", patient("1", "One", id="b"))
        for url in (
            "Patient/a/$diff?fromVersion=1",
            "$diff?from=Patient/a/_history/1&to=Patient/a",
            "$diff?from=Patient/b&to=Patient/a",
        ):
            answer = await self.world.send("GET", url)
            self.assertEqual(answer.status, 200, answer.body)
            patched = await self.world.send("PATCH", "Patient/b", answer.body, content_type="application/fhir+json")
            self.assertEqual(patched.status, 200, patched.body)
            found = loads(patched.body)
            self.assertEqual((found["name"], found["meta"]["tag"]), ([{"family": "Three"}], [TAG]))
            self.assertNotIn("active", found)
            await self.world.send("PUT", "Patient/b", patient("1", "One", id="b"))
        last = loads((await self.world.send("GET", "Patient/a/$diff")).body)
        self.assertEqual(len(last["parameter"]), 3)
        nothing = await self.world.send("GET", "$diff?from=Patient/a&to=Patient/a")
        self.assertEqual(loads(nothing.body), {"resourceType": "Parameters"})

    async def test_diff_refused(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        await self.world.send("PUT", "Patient/b", patient("2", id="b"))
        await self.world.send("PUT", "Group/g", {"resourceType": "Group", "id": "g", "type": "person", "actual": True})
        await self.world.send("PUT", "Patient/gone", patient("3", id="gone"))
        await self.world.send("DELETE", "Patient/gone")
        for url, status, place in (
            ("Patient/a/$diff", 404, "fromVersion"),
            ("Patient/a/$diff?fromVersion=2", 404, ""),
            ("Patient/a/$diff?fromVersion=x", 400, "fromVersion"),
            ("Patient/gone/$diff", 410, ""),
            ("$diff?from=Patient/a", 400, "to"),
            ("$diff?from=Patient/a&to=x", 400, "to"),
            ("$diff?from=Patient/a&to=Group/g", 400, "to"),
        ):
            answer = await self.world.send("GET", url)
            self.assertEqual((answer.status, issues(answer)[0][2]), (status, place), url)
        self.world.caller = limited("system/Patient.rs?_id=a")
        for url, status in (("$diff?from=Patient/a&to=Patient/b", 404), ("$diff?from=Group/g&to=Group/g", 401)):
            self.assertEqual((await self.world.send("GET", url)).status, status, url)
