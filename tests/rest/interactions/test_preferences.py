"""`Preference-Applied`: which preferences a response has honoured (RFC 7240 section 3)."""

from __future__ import annotations

from ipf.ports import Answer, Json
from tests.rest.world import OnMemory, patient


def applied(answer: Answer) -> str | None:
    """The header."""
    return dict(answer.headers).get("Preference-Applied")


class PreferenceTests(OnMemory):
    async def test_return(self) -> None:
        body = patient("1", id="a")
        bundle: Json = {"resourceType": "Bundle", "type": "transaction", "entry": []}
        for form in ("minimal", "representation", "OperationOutcome"):
            for method, url, sent in (
                ("POST", "Patient", patient("1")),
                ("PUT", "Patient/a", body),
                ("PUT", "Patient?identifier=urn:mrn|9", patient("9")),
                ("PATCH", "Patient/a", [{"op": "add", "path": "/language", "value": "de"}]),
                ("POST", "", bundle),
                ("DELETE", "Patient/a", None),
            ):
                kind = "application/json-patch+json" if method == "PATCH" else "application/fhir+json"
                answer = await self.world.send(method, url, sent, prefer=f"return={form}", content_type=kind)
                self.assertLess(answer.status, 300, answer.body)
                expected = None if (method, form) == ("DELETE", "representation") else f"return={form}"
                self.assertEqual(applied(answer), expected, (method, url))

    async def test_handling(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        for url in ("Patient", "Patient?_include=Patient:organization", "Patient/a/$everything", ""):
            for handling in ("strict", "lenient"):
                answer = await self.world.send("GET", url, prefer=f"handling={handling}")
                self.assertEqual((answer.status, applied(answer)), (200, f"handling={handling}"), url)
        lenient = await self.world.send("GET", "$export?x=1", prefer="respond-async, handling=lenient")
        self.assertEqual((lenient.status, applied(lenient)), (202, "respond-async, handling=lenient"))

    async def test_what_is_not_honoured_is_not_named(self) -> None:
        for prefer in ("return=everything", "wait=10", "handling=strict"):
            answer = await self.world.send("POST", "Patient", patient("1"), prefer=prefer)
            self.assertEqual((answer.status, applied(answer)), (201, None), prefer)
        self.assertIsNone(applied(await self.world.send("GET", "Patient", prefer="return=minimal")))
        refused = await self.world.send("GET", "Patient?nonsense=1", prefer="handling=strict")
        self.assertEqual((refused.status, applied(refused)), (400, None))
