"""Installing and rolling back vendor profiles through HTTP: what is in the folder, and what is in use."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tests.vendor_profiles.samples import small, tar
from tests.wire.admin.test_profiles import ProfilesCase


class InstallTests(ProfilesCase):
    """See the module."""

    async def put(self, name: str, files: dict[str, str]) -> tuple[int, Any]:
        """Install an archive."""
        return await self.ask("POST", f"/install?file={quote(name)}", tar(files))

    def versions(self, body: Any) -> list[str]:
        """`file version` of the profiles in use."""
        return [f"{one['file']} {one['profile']['version']}" for one in body["loaded"]]

    def folder_names(self) -> list[str]:
        """What is in the folder."""
        return sorted(one.name for one in self.live.iterdir())

    async def test_install_upgrade_and_roll_back(self) -> None:
        status, body = await self.put("a.tar.gz", small("a", "1.0"))
        self.assertEqual((status, self.versions(body), body["loaded"][0]["previous"]), (200, ["a.tar.gz 1.0"], False))
        status, body = await self.put("a.tar.gz", small("a", "2.0"))
        self.assertEqual((status, self.versions(body), body["loaded"][0]["previous"]), (200, ["a.tar.gz 2.0"], True))
        self.assertEqual(self.folder_names(), ["a.tar.gz", "a.tar.gz.previous"])
        for expected in ("1.0", "2.0"):
            status, body = await self.ask("POST", "/rollback?file=a.tar.gz")
            self.assertEqual((status, self.versions(body)), (200, [f"a.tar.gz {expected}"]))
        self.assertEqual(sum(self.notified), 4)

    async def test_what_cannot_be_used_changes_nothing(self) -> None:
        """An archive with a failing case, and one for messages that another profile has."""
        await self.put("a.tar.gz", small("a", "1.0"))
        before = {one.name: one.read_bytes() for one in self.live.iterdir()}
        for name, files, reason in (
            ("a.tar.gz", small("a", "2.0") | {"tests/a04.error": "x"}, "tests/a04.hl7"),
            ("b.tar.gz", small("b"), "a.tar.gz matches the same messages"),
        ):
            status, body = await self.put(name, files)
            self.assertEqual((status, body["error"], body["valid"]), (422, "invalid_profile", False))
            self.assertIn(reason, body["message"])
            self.assertEqual({one.name: one.read_bytes() for one in self.live.iterdir()}, before)
            self.assertEqual(self.versions((await self.ask("GET"))[1]), ["a.tar.gz 1.0"])

    async def test_a_roll_back_to_what_conflicts_now(self) -> None:
        """It is undone."""
        await self.put("a.tar.gz", small("a", "1.0"))
        await self.put("a.tar.gz", small("a", "2.0", port=2600))
        self.assertEqual((await self.put("b.tar.gz", small("b", "1.0")))[0], 200)
        status, body = await self.ask("POST", "/rollback?file=a.tar.gz")
        self.assertEqual((status, body["error"]), (422, "invalid_profile"))
        self.assertEqual(self.versions((await self.ask("GET"))[1]), ["a.tar.gz 2.0", "b.tar.gz 1.0"])

    async def test_refusals_of_names(self) -> None:
        for name in ("../a.tar.gz", "a.zip", ".a.tar.gz", "a/b.tar.gz", "x" * 200 + ".tar", "a b.tar"):
            status, body = await self.put(name, small())
            self.assertEqual((status, body["error"]), (400, "bad_request"), name)
        self.assertEqual((await self.ask("POST", "/install", b"x"))[0], 400)
        self.assertEqual((await self.ask("POST", "/install?file=a.tar.gz"))[0], 400)
        self.assertEqual((await self.ask("POST", "/rollback?file=a.tar.gz"))[0], 404)
        self.assertEqual((await self.ask("POST", "/install?file=a.tar.gz", tar(small()), token="look"))[0], 403)
        self.assertEqual(self.folder_names(), [])

    async def test_a_folder_that_cannot_be_written(self) -> None:
        self.live.rmdir()
        self.live.write_text("a file")
        status, body = await self.put("a.tar.gz", small())
        self.assertEqual((status, "cannot be written" in body["message"]), (503, True))
