"""Which side of the database answers a request: one table of requests, and what is asked again."""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import parse_qsl

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, StoreUnreachable, WriteConflict
from ipf.ports import OPEN, Answer, Caller, Request
from ipf.ports.replica import Position, Replica
from ipf.rest.http.outcome import refuse
from ipf.rest.reads import ReplicaReads, Sessions
from ipf.rest.router import tolerates_staleness
from ipf.rest.write.repository import Repository
from tests.rest.world import BASE, CORRELATION_ID, World

NARROW = Caller("someone", "app", ("patient/*.rs",), patient="p1", issuer="us")
WIDE = Caller("", "feed", ("system/*.cruds",), issuer="us")


class FakeReplica:
    """`ports.Replica` with what a test says."""

    def __init__(self) -> None:
        self.server = 1
        self.name = "0badcafe"
        self.written: Position | None = None
        self.reached = Position(1, 100)
        self.reason = ""

    def refusal(self, least: Position | None) -> str:
        """See `ports.Replica`."""
        return self.reason or ("" if least is None or least.is_reached_by(self.reached) else "session")


_: type[Replica] = FakeReplica


def request(
    method: str, url: str, caller: Caller = OPEN, address: str = "", body: bytes = b"", **headers: str
) -> Request:
    """A request; names of headers have _ for -."""
    path, _, query = url.partition("?")
    segments = tuple(path.split("/")) if path else ()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    pairs = tuple(parse_qsl(query, keep_blank_values=True))
    return Request(method, segments, pairs, named, body, BASE, CORRELATION_ID, caller=caller, address=address)


class SideTests(TestCase):
    """`perform` is replaced: it says which side it was given, or fails there."""

    def setUp(self) -> None:
        self.replica = FakeReplica()
        self.counts: Counter[str] = Counter()
        world, other = World(), World()
        self.primary = Repository(world.store, world.matcher, lambda: world.now, world.histories)
        self.reads = ReplicaReads(self.replica, other.store, other.histories, self._count)
        self.sides: list[str] = []
        self.there: Any = Answer(200)
        self.here: Any = Answer(200)

    def _count(self, outcome: str) -> None:
        self.counts[outcome] += 1

    async def _perform(self, request: Request, repository: Repository) -> Answer:
        is_primary = repository.store is self.primary.store
        self.assertEqual(repository.histories is self.primary.histories, is_primary)
        self.sides.append("primary" if is_primary else "replica")
        result = self.here if is_primary else self.there
        if isinstance(result, BaseException):
            raise result
        if callable(result):
            return result()  # type: ignore[no-any-return]
        assert isinstance(result, Answer)
        return result

    async def ask(self, method: str, url: str, **more: Any) -> tuple[int, list[str]]:
        """The status, and the sides that were asked."""
        self.sides.clear()
        one = request(method, url, **more)
        try:
            answer = await self.reads.perform(one, self.primary, self._perform, tolerates_staleness(one))
        except Problem as problem:
            answer = refuse(problem)
        return answer.status, list(self.sides)

    async def test_requests(self) -> None:
        """Reads go to the standby, all else to the primary."""
        reads = [
            ("GET", "Patient/1"), ("HEAD", "Patient/1"), ("GET", "Patient/1/_history/2"), ("GET", "Patient/1/_history"),
            ("GET", "Patient/_history"), ("GET", "_history"), ("GET", "Patient?name=x"), ("GET", "?_type=Patient"),
            ("POST", "Patient/_search"), ("POST", "_search"), ("GET", "Patient/1/Observation"), ("GET", "Patient/1/*"),
            ("GET", "Patient/1/$everything"), ("POST", "Patient/1/$everything"), ("GET", "Patient/1?_elements=id"),
        ]  # fmt: skip
        others = [
            ("POST", ""), ("POST", "Patient"), ("PUT", "Patient/1"), ("PUT", "Patient?name=x"), ("PATCH", "Patient/1"),
            ("DELETE", "Patient/1"), ("DELETE", "Patient?name=x"), ("POST", "Patient/$merge"), ("GET", "$export"),
            ("GET", "$export-status/1"), ("GET", "metadata"), ("GET", "AuditEvent?date=x"), ("GET", "AuditEvent/1"),
            ("GET", "Subscription/1/$status"), ("GET", "Subscription/1/$events"), ("GET", "Nothing/1"),
            ("GET", "$reindex"), ("POST", "Patient/1"), ("GET", "Patient/1/2/3/4/5"), ("POST", "Patient/$validate"),
        ]  # fmt: skip
        for method, url in reads:
            self.assertEqual(await self.ask(method, url), (200, ["replica"]), url)
        self.assertEqual(self.counts, {"replica": len(reads)})
        for method, url in others:
            self.assertEqual(await self.ask(method, url), (200, ["primary"]), url)
        self.assertEqual(self.counts, {"replica": len(reads)})

    async def test_why_the_primary_answers(self) -> None:
        """One table: what is said of the request, and the reason that is counted."""
        table: list[tuple[str, dict[str, Any], str]] = [
            ("Patient/1", {"cache_control": "no-cache"}, "asked"),
            ("Patient/1", {"cache_control": "private, No-Cache"}, "asked"),
            ("Patient/1", {"cache_control": "max-age=60"}, "replica"),
            ("Patient/1", {"caller": NARROW}, "access"),
            ("Patient/1", {"caller": WIDE}, "replica"),
            ("Patient/1", {"x_ipf_lsn": "1:0/64"}, "replica"),
            ("Patient/1", {"x_ipf_lsn": "1:0/65"}, "session"),
            ("Patient/1", {"x_ipf_lsn": "2:0/1"}, "session"),
            ("Patient?_cursor=abc", {}, "page"),
            ("Patient?_cursor=0badcafe.abc", {}, "replica"),
            ("Patient?_cursor=0badcaff.abc", {}, "page"),
            ("Patient/1/_history?_before=7", {}, "page"),
        ]
        for url, more, expected in table:
            self.counts.clear()
            side = "replica" if expected == "replica" else "primary"
            self.assertEqual(await self.ask("GET", url, **more), (200, [side]), (url, more))
            self.assertEqual(self.counts, {expected: 1}, (url, more))
        self.counts.clear()
        self.assertEqual((await self.ask("POST", "Patient/_search", body=b"_cursor=0badcafe.abc"))[1], ["primary"])
        for self.replica.reason in ("stale", "unreachable", "unrelated"):
            self.assertEqual(await self.ask("GET", "Patient/1"), (200, ["primary"]))
            self.assertEqual(self.counts[self.replica.reason], 1)

    async def test_a_header_that_is_no_position(self) -> None:
        self.assertEqual(await self.ask("GET", "Patient/1", x_ipf_lsn="0/64"), (400, []))

    async def test_what_is_asked_again(self) -> None:
        """The standby has not got it, or cannot answer; a refusal that does not depend on data stands."""
        for again in (
            Problem(Category.NOT_FOUND, ""), Problem(Category.GONE, ""), StoreUnreachable(), WriteConflict(),
            Problem(Category.INTERNAL, ""),
        ):  # fmt: skip
            self.there = again
            self.assertEqual(await self.ask("GET", "Patient/1"), (200, ["replica", "primary"]), again)
        self.here = Problem(Category.NOT_FOUND, "")
        self.assertEqual(await self.ask("GET", "Patient/1"), (404, ["replica", "primary"]))
        for category in (Category.UNAUTHORIZED, Category.NOT_SUPPORTED, Category.VALUE, Category.COSTLY):
            self.there = Problem(category, "")
            self.assertEqual((await self.ask("GET", "Patient/1"))[1], ["replica"], category)

    async def test_a_version_that_the_client_knows(self) -> None:
        """304 stands; another answer may be older than what the client has."""
        for name in ("if_none_match", "if_modified_since"):
            self.there = Answer(304)
            self.assertEqual(await self.ask("GET", "Patient/1", **{name: "x"}), (304, ["replica"]))
            self.there = Answer(200)
            self.assertEqual(await self.ask("GET", "Patient/1", **{name: "x"}), (200, ["replica", "primary"]))

    async def test_another_server_meanwhile(self) -> None:
        def changed() -> Answer:
            self.replica.server += 1
            return Answer(200)

        self.there = changed
        self.assertEqual(await self.ask("GET", "Patient?name=x"), (200, ["replica", "primary"]))

    async def test_own_writes(self) -> None:
        """A caller that wrote reads from the primary until the standby is there; others are not affected."""
        mine: list[dict[str, Any]] = [{"address": "192.0.2.1"}, {"caller": WIDE, "address": "192.0.2.2"}]
        others: list[dict[str, Any]] = [
            {"address": "192.0.2.9"},
            {"caller": Caller("", "other", WIDE.scopes, issuer="us")},
        ]
        for number, who in enumerate(mine):
            self.replica.written = Position(1, 200 + number)
            await self.ask("PUT", "Patient/1", **who)
            self.assertEqual((await self.ask("GET", "Patient/1", **who))[1], ["primary"])
            for other in others:
                self.assertEqual((await self.ask("GET", "Patient/1", **other))[1], ["replica"])
        self.replica.reached = Position(1, 200)
        self.assertEqual([(await self.ask("GET", "Patient/1", **who))[1] for who in mine], [["replica"], ["primary"]])
        token = {"caller": WIDE, "address": "192.0.2.7"}
        self.assertEqual((await self.ask("GET", "Patient/1", **token))[1], ["primary"], "a token has no address")

    async def test_a_write_that_fails_may_have_written(self) -> None:
        self.replica.written = Position(1, 200)
        self.here = StoreUnreachable()
        self.assertEqual((await self.ask("POST", "", address="192.0.2.1"))[0], 503)
        self.here = Answer(200)
        self.assertEqual((await self.ask("GET", "Patient/1", address="192.0.2.1"))[1], ["primary"])

    async def test_the_position_is_told(self) -> None:
        for written, expected in ((None, []), (Position(3, 0x1234), [("X-IPF-LSN", "3:0/1234")])):
            self.replica.written = written
            one = request("PUT", "Patient/1")
            answer = await self.reads.perform(one, self.primary, self._perform, False)
            self.assertEqual(list(answer.headers), expected)


class SessionTests(TestCase):
    def test_forgotten_callers(self) -> None:
        """However many callers write, none of them reads what is older than its write."""
        sessions = Sessions(most=10)
        for number in range(100):
            sessions.wrote(("", "", str(number)), Position(1, number))
            if number == 50:
                sessions.wrote(("", "", "0"), Position(1, number))
        for number in range(1, 100):
            least = sessions.least(("", "", str(number)))
            assert least is not None
            self.assertGreaterEqual(least.lsn, number)
        self.assertLessEqual(len(sessions._written), 10)
        stranger = sessions.least(("", "", "stranger"))
        assert stranger is not None
        self.assertLess(stranger.lsn, 91)


class PageTests(TestCase):
    async def test_marks_of_pages(self) -> None:
        """A token with a mark opens on both sides."""
        world = World()
        plain = Repository(world.store, world.matcher, lambda: world.now, world.histories)
        sealed = await plain.sealed("token")
        assert sealed is not None and "." not in sealed
        for text in (sealed, f"0badcafe.{sealed}"):
            self.assertEqual(await plain.opened(text), "token")
        self.assertIsNone(await plain.opened(None))
