"""Work that follows an answer: how it grows with the request, and what a stranger's requests leave in a store.

Requests come in over HTTP on a transport in memory, as a client sends them; records are read from the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import dumps
from ipf.pipeline.audit_writer import AuditLog
from ipf.pipeline.tracing import traced_handler
from ipf.ports import ANONYMOUS, Answer, Caller, Request
from ipf.ports.audit.records import Audit, AuditFilter
from ipf.rest.audit.recorder import observer, records_of
from ipf.rest.http.outcome import refuse
from ipf.rest.router import handler
from ipf.security.audit.draft import drafter
from ipf.security.audit.event import audit_event
from ipf.security.audit.rules import LONGEST_TARGET, AuditRules, id_suffixes
from ipf.security.audit.strangers import LIMIT, MOST_ADDRESSES, StrangerLimit
from ipf.security.audit.target import MOST_NAMED
from ipf.store.audit.audit import PostgresAuditStore
from ipf.wire.admin.audit.records import audit_of
from ipf.wire.http.app import resource
from ipf.wire.http.site import site
from tests.fakes.audit import MemoryAuditStore
from tests.rest.world import BASE, CORRELATION_ID, OnMemory, OnPostgres, Suite, World, patient
from tests.steps import MOST_STEPS, steps_of
from tests.waiting import until

ADDRESS = "192.0.2.9"
READER = Caller(subject="u-17", client="ward", scopes=("system/*.cruds",), issuer="https://idp.example")
RULES = AuditRules(reads=True, searches=True)
HEADERS = 64 * 1024
"""Bytes of the headers of a request that listeners accept (`HttpLimits.header_bytes`)."""
LONGEST_RECORD = 12_000
"""Characters of a record as a FHIR resource: its target takes up to LONGEST_TARGET four times, in base64."""


class Server:
    """A FHIR server whose requests are recorded.  `Authorization: Bearer x` is READER, nothing is ANONYMOUS."""

    def __init__(self, world: World, store: Any) -> None:
        self.world, self.store = world, store
        self.clock = Clock()
        self.counted: Counter[str] = Counter()
        self.milliseconds = 1_800_000_000_000
        new_id_suffix = id_suffixes()
        self.is_counting, self.steps = False, 0

        def count(outcome: str, count: int) -> None:
            self.counted[outcome] += count

        admit = StrangerLimit().admitted
        make = partial(records_of, RULES, new_id_suffix)
        self.log = AuditLog(store, self.clock, make=make, count=count, admit=admit)
        note = observer(RULES, self.log.note, self.now, new_id_suffix, later=self.log.note_exchange)

        def observe(request: Request, answer: Answer, began: float) -> None:
            if self.is_counting:
                self.steps += steps_of(lambda: note(request, answer, began))
            else:
                note(request, answer, began)

        drafts = drafter(RULES, new_id_suffix, count)
        self.spans: list[tuple[str, dict[str, object]]] = []
        spans: Any = self
        handle = traced_handler(handler(world.repository, self._identify, observe, drafts), spans)
        self.factory: Any = site({"fhir": resource(handle, refuse)})
        measured = self.factory.log

        def measure(request: Any) -> None:
            """The metrics of an answered request."""
            if self.is_counting:
                self.steps += steps_of(lambda: measured(request))
            else:
                measured(request)

        self.factory.log = measure

    def now(self) -> int:
        """Milliseconds since 1970."""
        return self.milliseconds

    def record(self, name: str, *_: object, attributes: dict[str, object], **more: object) -> None:
        """A span."""
        self.spans.append((name, attributes))

    async def _identify(self, request: Request) -> Request:
        return replace(request, caller=READER if "authorization" in request.headers else ANONYMOUS)

    async def ask(self, method: str, target: str, body: bytes = b"", *headers: str, address: str = ADDRESS) -> int:
        """The status of one request from this address."""
        transport = self.send(method, target, body, *headers, address=address)
        await until(transport.value)
        return int(transport.value().split()[1])

    def send(
        self, method: str, target: str, body: bytes = b"", *headers: str, address: str = ADDRESS
    ) -> StringTransport:
        """Send one request; a store in memory has answered it at once."""
        protocol: Any = self.factory.buildProtocol(None)
        transport = StringTransport(peerAddress=_Peer(address))
        protocol.callLater = Clock().callLater
        protocol.makeConnection(transport)
        lines = [f"{method} {target} HTTP/1.1", "Host: fhir.example", f"Content-Length: {len(body)}", *headers]
        protocol.dataReceived("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return transport

    async def rows(self) -> list[Audit]:
        """All records that are stored once the writer has had its time."""
        await self.log.stop(5)
        found: list[Audit] = await self.store.find("default", AuditFilter(), 5000, oldest_first=True)
        return found


class _Peer:
    """The address of a client, of any text."""

    def __init__(self, host: str) -> None:
        self.host, self.port = host, 1


def ids(size: int) -> str:
    """Numbers separated by commas, of about this many bytes."""
    return ",".join(str(number) for number in range(size // 5 + 2))[: max(size, 1)]


def searched(size: int) -> tuple[str, str, bytes]:
    """A search that names patients."""
    return "GET", f"/fhir/Patient?_id={ids(size)}", b""


def chained(size: int) -> tuple[str, str, bytes]:
    """A search with as many short parameters as are accepted, in which long references name patients."""
    query = "&".join(["patient=Patient/1"] * min(size // 20 + 1, 190))
    return "GET", f"/fhir/Observation?{query}&code={'%C3%A9' * max((size - len(query)) // 6 - 10, 0)}", b""


def posted(size: int) -> tuple[str, str, bytes]:
    """A search by POST."""
    return "POST", "/fhir/Patient/_search", f"_id={ids(size)}".encode()


def fields(size: int) -> tuple[str, str, bytes]:
    """A form of short fields, more than are accepted."""
    return "POST", "/fhir/Patient/_search", b"a&" * (size // 2)


def read(size: int) -> tuple[str, str, bytes]:
    """A read of a long id."""
    return "GET", "/fhir/Patient/" + "x" * size, b""


def segments(size: int) -> tuple[str, str, bytes]:
    """A long path of short segments."""
    return "GET", "/fhir/Patient" + "/a" * (size // 2), b""


def typed(size: int) -> tuple[str, str, bytes]:
    """A type of resource that does not exist, with parameters of patients."""
    return "GET", f"/fhir/X{'x' * (size // 2)}?patient=1&subject={ids(size // 2)}", b""


def created(size: int) -> tuple[str, str, bytes]:
    """A create."""
    return "POST", "/fhir/Patient", dumps({**patient("1"), "text": {"status": "generated", "div": "x" * size}})


def graph(size: int) -> tuple[str, str, bytes]:
    """A GraphQL query."""
    return "POST", "/fhir/$graphql", b'{Patient(id:"1"){id}}' * (size // 20 + 1)


def exported(size: int) -> tuple[str, str, bytes]:
    """A posted export."""
    one = {"name": "_type", "valueString": "Patient,Observation"}
    return "POST", "/fhir/$export", dumps({"resourceType": "Parameters", "parameter": [one] * (size // 60 + 1)})


def batch(size: int) -> tuple[str, str, bytes]:
    """A batch whose entries fail."""
    one = {"request": {"method": "GET", "url": "Patient/nobody"}}
    entries = [one] * min(size // 100 + 1, 90)
    return "POST", "/fhir", dumps({"resourceType": "Bundle", "type": "batch", "entry": entries})


def method(size: int) -> tuple[str, str, bytes]:
    """A method that does not exist."""
    return "X" * size, "/fhir/Patient/1", b""


KINDS: tuple[Callable[[int], tuple[str, str, bytes]], ...] = (
    searched, chained, posted, fields, read, segments, typed, created, graph, exported, batch, method,
)  # fmt: skip


class AfterTheAnswerSuite(Suite):
    """Requests and what they leave."""

    server: Server

    async def test_a_refused_search_for_nine_thousand_patients(self) -> None:
        """One record, whose target is cut; a digest proves the query to whoever knows it."""
        target = "Patient?_id=" + ",".join(map(str, range(9000)))
        self.assertEqual(await self.server.ask("GET", f"/fhir/{target}"), 401)
        (row,) = await self.server.rows()
        self.assertEqual((row.context.agent, row.context.outcome, row.all_patients), ("anonymous", 8, []))
        self.assertEqual(len(row.request_target), LONGEST_TARGET)
        self.assertTrue(row.request_target.startswith("Patient?_id=0%2C1%2C2%2C3"))
        text = target.replace("?", "\0").replace("=", "\0")
        expected = (
            ("patients without a record", "8900"), ("characters", str(len(text))),
            ("SHA-256", sha256(text.encode()).hexdigest()),
        )  # fmt: skip
        self.assertEqual(row.origin.details if row.origin else (), expected)
        event = audit_event(row, BASE)
        self.assertEqual([one["name"] for one in event["entity"] if "detail" in one], ["request"])
        self.assertLess(len(dumps(event)), LONGEST_RECORD)

    async def test_every_refused_request_of_a_stranger_is_one_record(self) -> None:
        """Whatever he sends, up to the largest request that is accepted."""
        for kind in KINDS:
            method, target, body = kind(HEADERS - 200 if kind is not method_of else 1)
            before = len(await self.server.rows())
            status = await self.server.ask(method, target, body)
            new = (await self.server.rows())[before:]
            if status == 431:  # refused by Twisted's channel
                self.assertEqual(new, [], kind.__name__)
                continue
            self.assertGreaterEqual(status, 400, kind.__name__)
            self.assertEqual(len(new), 1, (kind.__name__, status))
            self.assertLess(len(dumps(audit_event(new[0], BASE))), LONGEST_RECORD, kind.__name__)

    async def test_who_is_known_has_a_record_for_each_patient_up_to_a_number(self) -> None:
        stored = "p-own"
        await self.server.ask(
            "PUT", f"/fhir/Patient/{stored}", dumps(patient("1", id=stored)), "Authorization: Bearer x"
        )
        before = {one.id for one in await self.server.rows()}
        query = f"{stored}," + ",".join(f"p{number}" for number in range(500))
        self.assertEqual(
            await self.server.ask("GET", f"/fhir/Patient?_id={query}", b"", "Authorization: Bearer x"), 200
        )
        rows = [one for one in await self.server.rows() if one.id not in before]
        of_patients = [one for one in rows if one.all_patients]
        self.assertEqual(len(of_patients), MOST_NAMED)
        (found,) = [one for one in of_patients if one.entities]
        self.assertEqual(found.entities, (f"Patient/{stored}/_history/1",))
        self.assertTrue(all(len(one.request_target) < 100 for one in of_patients))
        (other,) = [one for one in rows if not one.all_patients]
        details = dict(other.origin.details) if other.origin else {}
        self.assertEqual(details["patients without a record"], str(501 - MOST_NAMED))
        self.assertEqual(len({one.id for one in rows}), MOST_NAMED + 1)

    async def test_an_address_writes_so_many_records_a_minute(self) -> None:
        """The next minute begins with a record that says how many are missing; nobody else is limited."""
        for _ in range(LIMIT + 50):
            await self.server.ask("GET", "/fhir/Patient/1")
        await self.server.ask("GET", "/fhir/Patient/1", address="192.0.2.10")
        for _ in range(LIMIT + 1):
            await self.server.ask("GET", "/fhir/Patient/1", b"", "Authorization: Bearer x")
        rows = await self.server.rows()
        of = Counter((one.context.address, one.context.agent) for one in rows)
        self.assertEqual(of["192.0.2.9", "anonymous"], LIMIT)
        self.assertEqual((of["192.0.2.10", "anonymous"], of["192.0.2.9", "u-17"]), (1, LIMIT + 1))
        self.assertEqual(self.server.counted["limited"], 50)
        self.server.milliseconds += 60_000
        await self.server.ask("GET", "/fhir/Patient/1")
        last = (await self.server.rows())[-1]
        self.assertEqual(last.origin.details if last.origin else (), (("requests without a record", "50"),))


method_of = method


class AfterTheAnswerOnMemory(AfterTheAnswerSuite, OnMemory):
    """And the steps that it takes."""

    async def setUp(self) -> None:
        await super().setUp()
        self.server = Server(self.world, MemoryAuditStore())

    def _work(self, kind: Callable[[int], tuple[str, str, bytes]], size: int, *headers: str) -> tuple[int, int]:
        """The steps after the answer to a request, until its records are stored, and their characters."""
        server, known = self.server, set(self.server.store.rows)
        server.steps, server.is_counting = 0, True
        server.send(*kind(size), *headers)
        server.is_counting = False
        steps = server.steps + steps_of(lambda: server.clock.advance(0.1))
        new = [one for key, one in server.store.rows.items() if key not in known]
        self.assertEqual(server.clock.getDelayedCalls(), [], kind.__name__)
        return steps, sum(len(dumps(audit_event(one, BASE))) for one in new)

    def test_growth(self) -> None:
        """Twice the request, at most twice the work; the largest takes less than 20 ms of the reactor."""
        for kind in KINDS:
            for headers in ((), ("Authorization: Bearer x",)):
                name = kind.__name__, bool(headers)
                self._work(kind, 100, *headers)  # what is computed once
                half, _ = self._work(kind, HEADERS // 2 - 300, *headers)
                whole, written = self._work(kind, HEADERS - 600, *headers)
                self.assertLess(whole, MOST_STEPS, name)
                self.assertLess(whole, 2.2 * half + 5000, name)
                self.assertLess(written, (MOST_NAMED + 2) * LONGEST_RECORD, name)
                if not headers and kind is not method_of:
                    self.assertGreater(written, 0, name)

    def test_spans_and_metrics_have_no_text_of_a_client(self) -> None:
        for kind in KINDS:
            self.server.send(*kind(1000))
        for name, attributes in self.server.spans:
            self.assertLess(len(name), 40)
            self.assertLess(len(str(attributes)), 120)

    def test_an_operator_api_refuses_in_one_bounded_record(self) -> None:
        query = tuple(("a" * 100, "b," * 100) for _ in range(200))
        asked = Request("GET", ("admin", "audit", *["x"] * 20_000), query, {}, b"", BASE, CORRELATION_ID)
        now = self.world.now
        make = lambda: audit_of(asked, Answer(401), ANONYMOUS, now, now, id_suffixes())  # noqa: E731
        made = make()
        assert made is not None
        self.assertLess(len(dumps(audit_event(made, BASE))), LONGEST_RECORD)
        self.assertLess(steps_of(make), MOST_STEPS)

    def test_references_in_a_stored_text_are_read_once(self) -> None:
        """Half a megabyte of `Patient/` in one text took half a minute of the reactor."""
        from ipf.security.audit.records import divided
        from tests.rest.audit.test_records import version

        def body(count: int) -> bytes:
            return b'{"note":[{"text":"' + b"Patient/" * count + b'"}],"subject":{"reference":"Patient/1"}}'

        one = version("Observation/1")
        some = [replace(one, body=body(count)) for count in (1000, 60_000)]
        few, many = (steps_of(lambda one=one: divided([one])) for one in some)
        self.assertEqual(few, many)
        self.assertEqual(list(divided(some)), ["Patient/1"])


class AfterTheAnswerOnPostgres(AfterTheAnswerSuite, OnPostgres):
    """The rows."""

    async def setUp(self) -> None:
        await super().setUp()
        self.server = Server(self.world, PostgresAuditStore(self.database))


class StrangerLimitTests(TestCase):
    """By address."""

    def test_many_addresses_share_a_limit(self) -> None:
        """What is kept of addresses is bounded, and what a network of machines writes."""
        from tests.contracts.audit import audit

        limit, refusal = StrangerLimit(), audit(1)
        admitted = 0
        for number in range(3 * MOST_ADDRESSES):
            context = refusal.context._replace(agent="anonymous", outcome=8, address=f"a{number}", issuer="")
            admitted += limit.admitted(refusal._replace(context=context)) is not None
        self.assertEqual(admitted, MOST_ADDRESSES + LIMIT)
