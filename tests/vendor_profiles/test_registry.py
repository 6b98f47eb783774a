"""Messages of a profile beside a mapping service elsewhere; and what the audit trail shows of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import loads
from ipf.fhir.validation.validator import Validator
from ipf.mapping.library import profiled as profiled
from ipf.mapping.library.map_files import Maps
from ipf.mapping.library.maps import Library
from ipf.mapping.library.profiled import ProfiledMapper
from ipf.ports import Claimed, Mapped
from ipf.ports.audit.records import FHIR, Audit, AuditContext, millisecond_of
from ipf.ports.messages.mapping import Origin
from ipf.security.audit.event import version_of
from ipf.vendor_profiles.folder import ProfileFolder, prepare_copies_folder
from ipf.vendor_profiles.registry import Deployment
from tests.vendor_profiles.samples import bare, message, small, tar
from tests.vendor_profiles.test_folder import claimed

ORIGIN = Origin("urn:test:acme", "ACME", (("facility", "WEST"),))


class RemoteStore:
    """A mapping service that notes what it gets."""

    def __init__(self) -> None:
        self.seen: list[Claimed] = []

    def has_map(self, message_type: str) -> bool:
        """It may."""
        return True

    async def transform(self, message: Claimed) -> Mapped:
        """A Bundle of its own."""
        self.seen.append(message)
        entry = {"resource": {"resourceType": "Patient"}, "request": {"method": "POST", "url": "Patient"}}
        return Mapped({"resourceType": "Bundle", "entry": [entry]}, "elsewhere")


async def no_answers(message: Claimed) -> Any:
    """Operators answered nothing."""
    return None


class PlacedTests(TestCase):
    def setUp(self) -> None:
        live = Path(self.mktemp())
        live.mkdir()
        (live / "a.tar.gz").write_bytes(tar(small()))
        self.library = Library(Maps(), {}, bare().environment)
        folder = ProfileFolder(live, Deployment({}, {}), prepare_copies_folder(Path(self.mktemp()) / "profiles-1"))
        self.library.vendor_profiles = folder.build(self.library, fresh=True)

    async def test_a_mapping_service_elsewhere(self) -> None:
        """Types that the profile maps are mapped here; its other types go there as maps would see them."""
        far = RemoteStore()
        mapper = ProfiledMapper(far, lambda: self.library, no_answers)
        self.assertTrue(mapper.has_map("ADT_A04"))
        here = await mapper.transform(claimed(message("C1")))
        self.assertEqual((here.map_url, here.origin, far.seen), ("urn:test:acme:ADT_A04", ORIGIN, []))
        there = await mapper.transform(claimed(message("C1"), message_type="ADT_A08"))
        self.assertEqual((there.map_url, there.origin), ("elsewhere", ORIGIN))
        other = await mapper.transform(claimed(message("C1"), "main"))
        self.assertEqual((other.map_url, other.origin), ("elsewhere", None))
        self.assertIn(b"|19700315|", far.seen[0].raw)
        self.assertEqual(far.seen[1].raw, message("C1"))
        self.library.vendor_profiles = None
        self.assertEqual((await mapper.transform(claimed(message("C1")))).map_url, "elsewhere")

    def test_in_this_process(self) -> None:
        """Also with a trace."""
        self.assertEqual(profiled.transform(self.library, claimed(message("C1")), None).origin, ORIGIN)
        result = profiled.explain(self.library, claimed(message("C1")), None)
        self.assertEqual(result.map_url, "urn:test:acme:ADT_A04")
        self.assertTrue(result.steps)

    def test_the_audit_event_says_more(self) -> None:
        """A further agent, the source, and its fields; the resource is valid."""
        moment = datetime(2026, 1, 15, tzinfo=UTC)
        correlation_id = "0190f7a4-2b6e-7cc0-8a11-000000000002"
        context = AuditContext("west", FHIR, "transaction", "E", 0, 200, "ipf")
        audit = Audit(context, millisecond_of(moment), "7000-8000-000000000001", 3, correlation_id, origin=ORIGIN)
        event = loads(version_of(audit, "http://localhost/fhir").body or b"")
        source = event["agent"][-1]
        self.assertEqual(source["who"]["identifier"], {"system": "urn:test:acme", "value": "ACME"})
        self.assertEqual((source["requestor"], event["agent"][0]["altId"]), (False, "ipf"))
        self.assertEqual(event["entity"][-1]["detail"], [{"type": "facility", "valueString": "WEST"}])
        self.assertEqual([one for one in Validator().validate(event) if one.severity == "error"], [])
