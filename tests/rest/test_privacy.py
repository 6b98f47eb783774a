"""Labels, Consents and break-glass on every way to a resource of the FHIR API, in memory and on PostgreSQL.

One Observation is hidden, by its label or by a Consent of its patient.  Each way says whether a caller learns of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ipf.fhir.model.json import dumps, loads
from ipf.pipeline.maintenance.export import Export
from ipf.ports import OPEN, Answer, Caller, Json
from ipf.rest.background import job_runner
from ipf.security.access import install
from ipf.security.privacy.labels import LabelRules
from ipf.security.privacy.policy import Privacy
from ipf.security.privacy.register import ConsentRegister
from tests.fakes.consents import MemoryConsents
from tests.rest.world import BASE, OnMemory, World, issues
from tests.security.privacy.consents import ISSUER, coded, consent, labelled, observation, rule

CONFIDENTIALITY = "http://terminology.hl7.org/CodeSystem/v3-Confidentiality"
IDENTIFIER = {"system": "http://lab", "value": "17"}
HIDDEN = observation(
    "hidden",
    "p1",
    identifier=[IDENTIFIER],
    encounter={"reference": "Encounter/e"},
    code={"coding": [coded("http://loinc.org", "4548-4")]},
)
BINARY = {
    "resourceType": "Binary", "id": "b", "contentType": "text/plain", "data": "eA==",
    "securityContext": {"reference": "Observation/hidden"},
}  # fmt: skip
OTHERS: list[Json] = [
    {"resourceType": "Patient", "id": "p1", "active": True},
    {"resourceType": "Patient", "id": "p2", "active": True},
    {
        "resourceType": "Encounter", "id": "e", "status": "finished", "subject": {"reference": "Patient/p2"},
        "class": coded("http://terminology.hl7.org/CodeSystem/v3-ActCode", "AMB"),
    },
    {
        "resourceType": "DiagnosticReport", "id": "r", "status": "final", "subject": {"reference": "Patient/p2"},
        "code": {"text": "all"}, "result": [{"reference": "Observation/hidden"}],
    },
    {
        "resourceType": "List", "id": "l", "status": "current", "mode": "working",
        "subject": {"reference": "Patient/p2"}, "entry": [{"item": {"reference": "Observation/hidden"}}],
    },
    observation("other", "p2", encounter={"reference": "Encounter/e"}),
]  # fmt: skip
DENIAL = {**consent(rule("deny")), "id": "denial"}

RIGHTS = ("system/*.cruds",)
CALLERS = {
    "hidden": Caller("a", "app", RIGHTS, issuer=ISSUER),
    "allowed": Caller("b", "app-b", (*RIGHTS, "conf/R"), issuer=ISSUER),
    "trusted": Caller("c", "feed", RIGHTS, issuer=ISSUER),
    "break-glass": Caller("d", "app-d", (*RIGHTS, "btg"), issuer=ISSUER),
}
EXCEPTION = rule(
    "deny",
    provision=[rule("permit", actor=[{"reference": {"identifier": {"system": ISSUER, "value": "app-b"}}}])],
)
REASON = {"x_break_glass_reason": "unconscious in the emergency room"}


class PrivacyInMemory(OnMemory):
    """See the module."""

    world: World
    caller: Caller
    headers: dict[str, str]

    def install(self, labels: str = "", *, has_consents: bool = True) -> None:
        """Switch labels and Consents on, until the end of the test."""
        register = ConsentRegister(MemoryConsents(self.world.store), lambda: self.world.now) if has_consents else None
        rules = LabelRules.of(labels.split()) if labels else None
        install(Privacy(rules, register, trusted_clients=frozenset({"feed"})))
        self.addCleanup(install, None)

    async def store(self, *resources: Json) -> None:
        """Write as somebody without limits."""
        self.world.caller = OPEN
        for resource in resources:
            self.world.pass_time()
            answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)
            self.assertLess(answer.status, 300, answer.body)

    async def ask(self, method: str, url: str, body: Any = None, **headers: str) -> Answer:
        """One request of the caller under test."""
        self.world.caller = self.caller
        return await self.world.send(method, url, body, **self.headers, **headers)

    async def ids(self, url: str) -> list[str]:
        """`Type/id` of the entries of a Bundle."""
        answer = await self.ask("GET", url)
        self.assertEqual(answer.status, 200, (url, answer.body))
        entries = loads(answer.body).get("entry", ())
        return [f"{one['resource']['resourceType']}/{one['resource']['id']}" for one in entries if "resource" in one]

    # -- the ways

    async def by_status(self, method: str, url: str, body: Any = None) -> bool:
        """200, or 404 as for a resource that is not there."""
        answer = await self.ask(method, url, body)
        self.assertIn(answer.status, (200, 404), (url, answer.body))
        return answer.status == 200

    async def in_bundle(self, url: str, reference: str = "Observation/hidden") -> bool:
        """Whether a Bundle has the resource."""
        return reference in await self.ids(url)

    async def total(self, url: str, others: int) -> bool:
        """Whether a total counts it."""
        found = loads((await self.ask("GET", url)).body)["total"]
        self.assertIn(found, (others, others + 1), url)
        return bool(found == others + 1)

    async def posted(self) -> bool:
        body = b"code=4548-4"
        answer = await self.ask("POST", "Observation/_search", body, content_type="application/x-www-form-urlencoded")
        return b"Observation/hidden" in answer.body

    async def batch(self) -> bool:
        request = {"request": {"method": "GET", "url": "Observation/hidden"}}
        answer = await self.ask("POST", "", {"resourceType": "Bundle", "type": "batch", "entry": [request]})
        return str(loads(answer.body)["entry"][0]["response"]["status"]).startswith("200")

    async def patched(self, url: str) -> bool:
        sent = dumps([{"op": "test", "path": "/status", "value": "final"}])
        answer = await self.ask("PATCH", url, sent, content_type="application/json-patch+json")
        self.assertIn(answer.status, (200, 404), answer.body)
        return answer.status == 200

    async def exported(self) -> bool:
        """From the start of a job to the download; a break-glass request may not start one."""
        answer = await self.ask("GET", "$export?_type=Observation", prefer="respond-async")
        if self.headers:
            self.assertEqual(answer.status, 403, answer.body)
            return True
        job = dict(answer.headers)["Content-Location"].rpartition("/")[2]
        stage = Export(self.world.exports, self.world.store)
        while await stage.step():
            pass
        manifest = loads((await self.ask("GET", f"$export-status/{job}")).body)
        (output,) = manifest["output"]
        body = (await self.ask("GET", f"$export-file/{job}/{output['url'].rpartition('/')[2]}")).body
        self.assertEqual(len(body.splitlines()), output["count"])
        return b'"hidden"' in body

    async def later(self, url: str) -> bool:
        """The answer of a search that is a job; a break-glass request is answered at once."""
        self.world.export_hours = 1_000_000.0  # the database has another clock than the world
        answer = await self.ask("GET", url, prefer="respond-async")
        if answer.status == 202:
            while await job_runner(self.world.repository).step():
                pass
            answer = await self.ask("GET", dict(answer.headers)["Content-Location"].removeprefix(f"{BASE}/"))
        self.assertEqual(answer.status, 200, answer.body)
        return b'"hidden"' in answer.body

    async def in_document(self) -> bool:
        """Whether a document of a Composition that refers to it has it."""
        section = [{"entry": [{"reference": "Observation/hidden"}, {"reference": "Observation/other"}]}]
        await self.store({
            "resourceType": "Composition", "id": "doc", "status": "final", "type": {"text": "x"}, "date": "2024-01-01",
            "title": "x", "author": [{"reference": "Patient/p2"}], "section": section,
        })  # fmt: skip
        strict = await self.ask("GET", "Composition/doc/$document")
        found = loads((await self.ask("GET", "Composition/doc/$document", prefer="handling=lenient")).body)
        has = "hidden" in [one["resource"]["id"] for one in found["entry"]]
        self.assertEqual(strict.status, 200 if has else 422)
        self.assertIn("other", [one["resource"]["id"] for one in found["entry"]])
        return has

    def ways(self) -> dict[str, Callable[[], Awaitable[bool]]]:
        """By name, each way to learn of the Observation."""
        found: dict[str, Callable[[], Awaitable[bool]]] = {
            "a search as a job": partial(self.later, "Observation?code=4548-4"),
            "$document": self.in_document,
            "POST _search": self.posted,
            "batch": self.batch,
            "patch": lambda: self.patched("Observation/hidden"),
            "conditional patch": lambda: self.patched("Observation?identifier=http://lab|17"),
            "$export": self.exported,
            "update": lambda: self.by_status("PUT", "Observation/hidden", self.hidden),
            "binary": lambda: self.by_status("GET", "Binary/b"),
            "total": lambda: self.total("Observation?_summary=count", 1),
            "total of a page": lambda: self.total("Observation?_count=1&_total=accurate", 1),
            "total of a chain": lambda: self.total("DiagnosticReport?result.code=4548-4&_summary=count", 0),
        }
        for url in ("Observation/hidden", "Observation/hidden/_history", "Observation/hidden/_history/1",
                    "Observation/hidden/_history/2"):  # fmt: skip
            found[url] = lambda url=url: self.by_status("GET", url)  # type: ignore[misc]
        for url in (
            "Observation", "Observation?_id=hidden", "Observation?identifier=17", "Observation?code=4548-4",
            "Observation?code:missing=false&_sort=-_lastUpdated", "Observation?_sort=code", "Observation?_list=l",
            "?_type=Observation,Encounter", "Encounter/e/Observation", "Encounter/e/*", "Encounter/e/$everything",
            "Encounter?_revinclude=Observation:encounter", "DiagnosticReport?_include=DiagnosticReport:result",
            "Observation/_history", "_history",
        ):  # fmt: skip
            found[url] = lambda url=url: self.in_bundle(url)  # type: ignore[misc]
        for url, other in (
            ("Encounter?_has:Observation:encounter:code=4548-4", "Encounter/e"),
            ("DiagnosticReport?result.identifier=17", "DiagnosticReport/r"),
        ):
            found[url] = lambda url=url, other=other: self.in_bundle(url, other)  # type: ignore[misc]
        return found

    # -- the table

    async def check(self, resource: Json, **sees: bool) -> None:
        """Each way for each caller; the Observation had another content before."""
        self.hidden = resource
        self.world.now = datetime.now(UTC)  # the database removes expired exports by its own clock
        await self.store(*OTHERS, {**HIDDEN, "status": "preliminary"}, resource, BINARY)
        for name, expected in sees.items():
            self.caller = CALLERS[name.replace("_", "-")]
            self.headers = REASON if name == "break_glass" else {}
            for way, learns in self.ways().items():
                self.assertEqual(await learns(), expected, f"{name}: {way}")

    async def test_an_answer_of_a_job_leaves_out_what_is_hidden_by_now(self) -> None:
        """The job ran before the Consent was written."""
        self.world.export_hours = 1_000_000.0
        self.install()
        self.caller, self.headers = CALLERS["hidden"], {}
        await self.store(*OTHERS, HIDDEN)
        answer = await self.ask("GET", "Observation", prefer="respond-async")
        while await job_runner(self.world.repository).step():
            pass
        url = dict(answer.headers)["Content-Location"].removeprefix(f"{BASE}/")
        before = loads((await self.ask("GET", url)).body)["entry"][0]["resource"]
        self.assertEqual((len(before["entry"]), before["total"]), (2, 2))
        await self.store(DENIAL)
        after = loads((await self.ask("GET", url)).body)["entry"][0]["resource"]
        self.assertEqual([one["resource"]["id"] for one in after["entry"]], ["other"])
        self.assertNotIn("total", after)

    async def test_labels(self) -> None:
        """Also of the version before, which had no label."""
        self.install("R", has_consents=False)
        hidden = labelled(HIDDEN, CONFIDENTIALITY, "R")
        await self.check(hidden, hidden=False, allowed=True, trusted=True, break_glass=True)

    async def test_consents(self) -> None:
        self.install()
        await self.store({**DENIAL, "provision": EXCEPTION})
        await self.check(HIDDEN, hidden=False, allowed=True, trusted=True, break_glass=True)

    async def test_off(self) -> None:
        """Nothing changes while both are off; the header is ignored."""
        await self.store(DENIAL)
        await self.check(labelled(HIDDEN, CONFIDENTIALITY, "V"), hidden=True)
        self.headers = REASON
        self.assertEqual((await self.ask("GET", "Observation/hidden")).status, 200)

    # -- single rules

    async def test_the_next_request_obeys(self) -> None:
        """A Consent counts when it is stored, is withdrawn, and by its period; pages go on."""
        self.install()
        self.caller, self.headers = CALLERS["hidden"], {}
        await self.store(*OTHERS, HIDDEN)
        first = loads((await self.ask("GET", "Observation?_count=1")).body)
        seen = [await self.in_bundle("Observation")]
        await self.store(DENIAL)
        seen.append(await self.in_bundle("Observation"))
        (following,) = [one["url"] for one in first["link"] if one["relation"] == "next"]
        self.assertEqual((await self.ask("GET", following.partition("/fhir/")[2])).status, 200)
        await self.store({**DENIAL, "status": "inactive"})
        seen.append(await self.in_bundle("Observation"))
        end = self.world.now.isoformat(timespec="seconds")
        await self.store({**DENIAL, "provision": rule("deny", period={"end": end})})
        self.world.pass_time(-3)
        seen.append(await self.in_bundle("Observation"))
        self.world.pass_time(10)
        seen.append(await self.in_bundle("Observation"))
        self.assertEqual(seen, [True, False, True, False, True])

    async def test_deletions(self) -> None:
        """Of what a caller could see it is 410, of what was hidden 404."""
        self.install("R")
        self.headers = {}
        label = labelled(observation("labelled", "p2"), CONFIDENTIALITY, "R")
        await self.store(*OTHERS, HIDDEN, label, DENIAL)
        for id in ("hidden", "labelled", "other"):
            self.assertEqual((await self.world.send("DELETE", f"Observation/{id}")).status, 204)
        self.caller = CALLERS["hidden"]
        found = [(await self.ask("GET", f"Observation/{id}")).status for id in ("hidden", "labelled", "other", "none")]
        self.assertEqual(found, [404, 404, 410, 404])
        entries = loads((await self.ask("GET", "Observation/_history")).body)["entry"]
        self.assertEqual({one["request"]["url"] for one in entries}, {"Observation/other"})

    async def test_writes(self) -> None:
        """A caller may write what it may not read afterwards; the id of something hidden is not free."""
        self.install("R")
        self.caller, self.headers = CALLERS["hidden"], {}
        await self.store(*OTHERS, HIDDEN, DENIAL)
        self.caller = CALLERS["hidden"]
        self.assertEqual((await self.ask("PUT", "Observation/new", observation("new", "p1"))).status, 201)
        self.assertEqual((await self.ask("GET", "Observation/new")).status, 404)
        labels = labelled(observation("other", "p2"), CONFIDENTIALITY, "R")
        self.assertEqual((await self.ask("PUT", "Observation/other", labels)).status, 200)
        self.assertEqual((await self.ask("GET", "Observation/other")).status, 404)
        self.assertEqual((await self.ask("PUT", "Observation/hidden", HIDDEN)).status, 404)
        self.assertEqual((await self.ask("DELETE", "Observation/hidden")).status, 204)
        self.assertEqual((await self.world.body("Observation/hidden"))["id"], "hidden")
        self.assertIsNotNone(await self.world.store.read("default", "Observation", "hidden"))

    async def test_break_glass(self) -> None:
        """Scope and reason together; each alone lifts nothing."""
        self.install("R")
        await self.store(*OTHERS, HIDDEN, DENIAL)
        self.caller, self.headers = CALLERS["break-glass"], {}
        self.assertEqual((await self.ask("GET", "Observation/hidden")).status, 404)
        for reason in ("", "   ", "x" * 201, "line\x00"):
            answer = await self.ask("GET", "Observation/hidden", x_break_glass_reason=reason)
            self.assertEqual((answer.status, "X-Break-Glass-Reason" in issues(answer)[0][1]), (400, True), reason)
        self.assertEqual((await self.ask("GET", "Observation/hidden", **REASON)).status, 200)
        self.caller = CALLERS["hidden"]
        answer = await self.ask("GET", "Observation/hidden", **REASON)
        self.assertEqual(answer.status, 401)
        self.assertIn('scope="btg"', dict(answer.headers)["WWW-Authenticate"])
        self.caller = replace(CALLERS["break-glass"], scopes=("patient/*.rs", "btg"), patient="p2")
        self.assertEqual((await self.ask("GET", "Observation/hidden", **REASON)).status, 404)
