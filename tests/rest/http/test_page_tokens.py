"""Page tokens: what clients cannot read, change or make."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from urllib.parse import parse_qs, urlsplit

from ipf.fhir.model.json import loads
from tests.rest.world import BASE, OnMemory, OnSharedPostgres, Suite, World, patient

URLS = ("Patient?_count=1", "Patient?_count=1&_sort=-_lastUpdated", "?_count=1", "_history?_count=1",
        "Patient/_history?_count=1")  # fmt: skip


class PageTokenSuite(Suite):
    """Three patients on pages of one."""

    world: World

    async def fill(self, tenant: str = "") -> None:
        """Store them."""
        for number in "123":
            self.world.pass_time()
            await self.world.send("PUT", f"Patient/p{number}", patient(number, id=f"p{number}"), tenant)

    async def next_of(self, url: str, tenant: str = "") -> str:
        """The link to the next page."""
        answer = await self.world.send("GET", url, None, tenant)
        links = {link["relation"]: link["url"] for link in loads(answer.body)["link"]}
        return str(links["next"]).removeprefix(f"{BASE}/").removeprefix(BASE)

    def token(self, link: str) -> str:
        """The token in a link."""
        return parse_qs(urlsplit(link).query)["_cursor"][0]

    async def test_tokens_continue(self) -> None:
        """Also in another process, with a Repository of its own."""
        await self.fill()
        for url in URLS:
            self.assertEqual(len(loads((await self.world.send("GET", await self.next_of(url))).body)["entry"]), 1, url)

    async def test_tokens_tell_nothing(self) -> None:
        """Neither in clear nor by their length, which does not change with internal numbers."""
        await self.fill()
        for url in URLS:
            token = self.token(await self.next_of(url))
            data = urlsafe_b64decode(token + "=" * (-len(token) % 4))
            self.assertNotIn(b"Patient", data)
            with self.assertRaises(UnicodeDecodeError, msg=url):
                data.decode()

    async def test_other_tokens_are_refused(self) -> None:
        """A changed one, one in clear, one of another tenant."""
        await self.fill()
        await self.fill("other")
        for url in URLS:
            link = await self.next_of(url)
            token = self.token(link)
            for wrong in (
                "A" * len(token),
                token[:-4],
                token[4:],
                f"{token[4:]}{token[:4]}",
                "MQ",
                "Patient~~1",
                "1",
                "",
            ):
                answer = await self.world.send("GET", link.replace(token, wrong))
                self.assertEqual(answer.status, 400, (url, wrong, answer.body))
            self.assertEqual((await self.world.send("GET", link, None, "other")).status, 400, url)
            self.assertEqual(
                (await self.world.send("GET", await self.next_of(url, "other"), None, "other")).status, 200
            )


class OnMemoryTests(PageTokenSuite, OnMemory):
    """In memory."""


class OnPostgresTests(PageTokenSuite, OnSharedPostgres):
    """SQL continues a page."""
