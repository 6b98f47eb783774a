"""`/admin/api/profiles` through HTTP: checks each response against the OpenAPI document."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.resource import Resource
from twisted.web.server import Site

from ipf.app.maps.installation import site_of
from ipf.app.maps.mapper import ProfileAwareMapper, ProfileLookup
from ipf.app.maps.profiles import VendorProfiles
from ipf.config.parsers import Listener
from ipf.config.settings import Settings
from ipf.errors import Category, Problem
from ipf.mapping.library.installation import Installation, InstalledMapper
from ipf.mapping.library.map_files import Maps
from ipf.mapping.library.maps import Library
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.pipeline.receive.receive import Receiver
from ipf.ports import InstalledMap
from ipf.vendor_profiles import archive
from ipf.vendor_profiles.folder import ProfileFolder, prepare_copies_folder
from ipf.wire.admin import app as admin
from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.mapping import profiles as admin_profiles
from tests.fakes import MemoryInbox, MemoryUnmappedCodes
from tests.mapping.library.test_installation import at_once
from tests.pipeline.test_worker import MemoryNotifier
from tests.vendor_profiles.samples import MAP, bare, message, small, tar
from tests.vendor_profiles.test_folder import claimed
from tests.wire.admin.operators import check, now

NOW = datetime(2026, 1, 15, 9, 30, tzinfo=UTC)


class ProfilesCase(TestCase):
    """Vendor profiles of an installation without maps, behind the admin API."""

    async def setUp(self) -> None:
        self.live = Path(self.mktemp())
        self.live.mkdir()
        settings = Settings(profile_dir=str(self.live), data_dir=self.mktemp())
        copies = prepare_copies_folder(Path(settings.data_dir, f"profiles-{os.getpid()}"))
        self.folder = ProfileFolder(self.live, site_of(settings), copies)

        def build(installed: Sequence[InstalledMap], fresh: bool) -> Library:
            library = Library(Maps(), {}, bare().environment)
            library.vendor_profiles = self.folder.build(library, fresh=fresh)
            return library

        self.codes = MemoryUnmappedCodes(MemoryInbox())
        self.installation = Installation(build, self.codes, at_once)
        await self.installation.start()
        inbox, clock, self.events = MemoryInbox(), Clock(), list[str]()
        self.receiver = Receiver(inbox, GroupCommit(inbox, clock), clock, now=now, new_correlation_id=str)
        self.profiles = VendorProfiles(self.folder, self.installation, self.receiver, at_once)
        self.notifier, self.notified = MemoryNotifier(), [0]
        self.notifier.subscribe("mapping", lambda: self.notified.append(1))
        access = AdminAccess("s3cret", "look")
        root = Resource()
        tables = [admin_profiles.routes(self.profiles, self.notifier)]
        root.putChild(b"admin", admin.resource(access, tables))
        port = reactor.listenTCP(0, Site(root), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.client = HTTPClient(Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False)))
        self.base = f"http://127.0.0.1:{port.getHost().port}/admin/api/profiles"

    async def ask(
        self, method: str, path: str = "", body: bytes | None = None, token: str = "s3cret"
    ) -> tuple[int, Any]:
        """The response, checked against the OpenAPI document."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-gtar"}
        response = await self.client.request(method, self.base + path, headers=headers, data=body, reactor=reactor)
        content = await response.content()
        shown = json.loads(content) if content else None
        check(method, "/admin/api/profiles" + path.partition("?")[0], response.code, shown)
        return response.code, shown

    async def open_listener(self, listener: Listener) -> Callable[[], Awaitable[object]]:
        """A recorded listener; port 2602 is in use."""
        if listener.name == "tcp:2602":
            raise Problem(Category.UNAVAILABLE, "the port is taken")
        self.events.append(f"open {listener.endpoint}")

        async def close() -> None:
            self.events.append(f"close {listener.endpoint}")

        return close

    def install(self, name: str, files: dict[str, str]) -> None:
        """Copy an archive into the folder."""
        (self.live / name).write_bytes(tar(files))


class ProfilesTest(ProfilesCase):
    """What is loaded, what is valid, and reloads."""

    async def test_an_archive_is_checked_and_not_installed(self) -> None:
        status, body = await self.ask("POST", "/validate", tar(small()))
        self.assertEqual((status, body["valid"], body["problems"]), (200, True, []))
        self.assertEqual((body["profile"]["id"], body["profile"]["vendor"]["hl7Versions"]), ("acme", ["2.5", "2.5.1"]))
        self.assertEqual((body["tests"]["passed"], body["tests"]["failed"]), (1, 0))
        self.assertEqual((await self.ask("GET"))[1], {"loaded": [], "skipped": []})

    async def test_what_is_wrong_is_named(self) -> None:
        """Status 200 for valid and invalid archives."""
        broken = small() | {"maps/a04.fml": MAP.replace("bundle.entry", "bundle.enty")}
        broken["manifest.yaml"] = broken["manifest.yaml"].replace("timestamps: day-first", "timestamp: x")
        status, body = await self.ask("POST", "/validate", tar(broken))
        self.assertEqual((status, body["valid"], body["mappings"][0]["url"]), (200, False, None))
        shown = {(one["path"], one["pointer"], one["line"]) for one in body["problems"] if one["severity"] == "error"}
        self.assertIn(("manifest.yaml", "/quirks/timestamp", 13), shown)
        self.assertIn(5, [line for path, _, line in shown if path == "maps/a04.fml"])
        status, body = await self.ask("POST", "/validate", tar({"README.md": "nothing else"}))
        self.assertEqual((status, body["valid"], body["profile"]), (200, False, None))

    async def test_refusals(self) -> None:
        """400 for a body that is not an archive, 413 if too large, 401 and 403 as for other paths."""
        whole = tar(small())
        for body, token, status, code in (
            (b"PK\x03\x04", "s3cret", 400, "bad_request"), (b"{}", "s3cret", 400, "bad_request"),
            (whole[:-20], "s3cret", 400, "bad_request"), (whole, "look", 403, "unauthorized"),
            (whole, "wrong", 401, "unauthorized"),
        ):  # fmt: skip
            found, shown = await self.ask("POST", "/validate", body, token)
            self.assertEqual((found, shown["error"]), (status, code), body[:9])
        self.assertEqual((await self.ask("POST", "/validate"))[0], 400)
        self.assertEqual((await self.ask("POST", "/reload", token="look"))[0], 403)
        self.patch(archive, "MOST_BYTES", 100)
        found, shown = await self.ask("POST", "/validate", whole)
        self.assertEqual((found, shown["error"]), (413, "payload_too_large"))

    async def test_nothing_is_passed_through_that_a_new_profile_maps(self) -> None:
        """A process with old maps reloads first, once for all stored messages."""
        moments = [NOW + timedelta(seconds=number) for number in range(5)]
        times, reloads = iter(moments), [0]
        lookup = ProfileLookup(self.installation, lambda: next(times))
        is_mapped = lookup.is_mapped
        refresh = self.installation.refresh

        async def counted() -> None:
            reloads.append(1)
            await refresh()

        self.patch(self.installation, "refresh", counted)
        early = replace(claimed(message("C1")), received_at=NOW - timedelta(seconds=1))
        self.assertFalse(await is_mapped(early))
        self.install("a.tar.gz", small("a"))
        self.folder.scan(bare())
        await self.codes.maps_changed()  # as another process has done
        self.assertEqual((await is_mapped(early), sum(reloads)), (False, 1))
        self.assertEqual((await is_mapped(replace(early, received_at=NOW)), sum(reloads)), (True, 2))
        self.assertEqual((await is_mapped(replace(early, received_at=NOW)), sum(reloads)), (True, 2))
        mapper = ProfileAwareMapper(InstalledMapper(self.installation), frozenset({"main"}), lookup)
        self.install("b.tar.gz", small("b", port=2601))
        self.folder.scan(bare())
        await self.codes.maps_changed()
        late = replace(claimed(message("C2"), "tcp:2601"), received_at=NOW + timedelta(seconds=1))
        self.assertEqual((await mapper.transform(late)).map_url, "urn:test:acme:ADT_A04")
        self.assertEqual(sum(reloads), 3)
        await self.assertFailure(Deferred.fromCoroutine(mapper.transform(replace(late, listener="main"))), Problem)
        self.assertEqual(sum(reloads), 3)

    async def test_reload(self) -> None:
        """A valid profile is in use, with its port; an invalid one is skipped and does not replace it."""
        events, receiver = self.events, self.receiver
        await self.profiles.start(self.open_listener)
        self.assertIsNone(receiver.apply_profile)
        self.install("a.tar.gz", small("a"))
        self.install("b.tar.gz", small("b", port=2601) | {"tests/a04.error": "x"})
        self.install("c.tar.gz", small("c", port=2602))
        before = await self.codes.epochs()
        status, body = await self.ask("POST", "/reload")
        self.assertEqual((status, [one["file"] for one in body["loaded"]]), (200, ["a.tar.gz", "c.tar.gz"]))
        self.assertEqual(body["loaded"][0]["ingest"][0]["port"], 2599)
        self.assertIn("the port is taken", body["loaded"][1]["problems"][0]["message"])
        self.assertEqual([(one["file"], one["kept"]) for one in body["skipped"]], [("b.tar.gz", None)])
        self.assertEqual((events, sum(self.notified)), (["open tcp:2599"], 1))
        self.assertIsNotNone(receiver.apply_profile)
        self.assertGreater(await self.codes.epochs(), before)
        with self.assertRaisesRegex(RuntimeError, r"b\.tar\.gz: tests/a04\.hl7.*the port is taken"):
            await self.profiles.health()
        self.install("d.tar.gz", small("d", port=2603))
        await self.installation.reload()  # as SIGHUP and /admin/mapping/reload do
        self.assertEqual(events[1:], ["open tcp:2603"])
        (self.live / "d.tar.gz").unlink()
        await self.installation.reload()
        self.assertEqual(events[2:], ["close tcp:2603"])
        self.install("a.tar.gz", small("a", "2.0") | {"manifest.yaml": "x"})
        for name in ("b.tar.gz", "c.tar.gz"):
            (self.live / name).unlink()
        _, body = await self.ask("POST", "/reload")
        self.assertEqual([one["profile"]["version"] for one in body["loaded"]], ["1.0"])
        self.assertEqual([(one["file"], one["kept"]) for one in body["skipped"]], [("a.tar.gz", "1.0")])
        (self.live / "a.tar.gz").unlink()
        self.assertEqual((await self.ask("POST", "/reload"))[1], {"loaded": [], "skipped": []})
        self.assertIsNone(receiver.apply_profile)
        self.assertEqual(events[3:], ["close tcp:2599"])
        self.assertEqual(await self.profiles.health(), {"loaded": []})
