"""Which placement takes messages, requests and websockets of a tenant, and what they are told while it cannot."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.app.placements.directory import Directory, Placement, Serving
from ipf.app.placements.health import any_works, check, others
from ipf.app.placements.receiving import placed_receiver, refusing_receiver
from ipf.app.placements.requests import handle_in, placed_handler, writes
from ipf.app.placements.websockets import PlacedHub
from ipf.app.roles.api import Api
from ipf.config.placements import CLOSED, DEFAULT, FROZEN, OPEN, OTHERS, PlacementSettings
from ipf.errors import Category, Problem, StoreUnreachable
from ipf.hl7.framing import Oversize
from ipf.pipeline.receive.receive import MllpListener
from ipf.ports import Answer, Request, Session, TokenBinding
from ipf.rest.http.outcome import refuse
from ipf.wire.admin.actuator import Component, Health
from tests.pipeline.receive.test_receive import ReceiveCase, adt


def request(method: str = "GET", *path: str) -> Request:
    return Request(method, path, (), {}, b"", "http://h/fhir", "c")


class FakeHub:
    """Knows one token."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.bound: list[str] = []
        self.answers: list[Deferred[None]] = []

    async def bind(self, client: Any, session: Session, subscription_id: str) -> None:
        self.bound.append(subscription_id)

    async def bind_with_token(self, client: Any, token: str) -> TokenBinding:
        if self.token == "hangs":
            await Deferred()
        if token != self.token:
            raise Problem(Category.UNAUTHORIZED, "the binding token is unknown or has expired")
        self.bound.append(token)
        return TokenBinding(Session(), (), ())

    def leave(self, client: Any) -> None:
        self.bound.clear()


class Case(ReceiveCase):
    def setUp(self) -> None:
        super().setUp()
        self.north = self.placement("north", "b")
        self.default = self.placement(DEFAULT, OTHERS)
        self.directory = Directory([self.default, self.north])

    def placement(self, name: str, tenant: str) -> Placement:
        found: list[Placement] = []
        refusing = refusing_receiver(lambda: found[0].unusable, self.clock)
        found.append(Placement(PlacementSettings(name, (tenant,), "postgresql://x/i", "postgresql://x/f"), refusing, 2))
        return found[0]

    def serve(self, placement: Placement, token: str = "") -> Any:
        async def fhir(request: Request) -> Answer:
            return Answer(200, placement.name.encode())

        hub, receiver = FakeHub(token), self.make()
        receiver.of_tenant = self.directory.receiver
        placement.serving = Serving(receiver, Api(fhir=fhir, sockets=hub), Health({}, self.clock))
        return hub

    def set_state(self, placement: Placement, state: str) -> None:
        one = placement.settings
        placement.settings = PlacementSettings(one.name, one.tenants, one.db_url, one.fhir_db_url, state)


class ReceivingTests(Case):
    def front(self, tenant: str, control_id: str = "C1") -> tuple[str, str, Any]:
        self.receiver = placed_receiver(self.directory, self.clock)
        return self.ack(adt(control_id), MllpListener("main", tenant=tenant))

    def test_a_placement_that_is_away_answers_ae(self) -> None:
        code, _, answer = self.front("b")
        self.assertEqual(code, "AE")
        self.assertIn("the placement north cannot be reached", self.err(answer)[2])
        self.assertEqual(self.inbox.rows, {})

    def test_it_takes_messages_when_it_is_back(self) -> None:
        receiver = placed_receiver(self.directory, self.clock).for_listener(MllpListener("main", tenant="b"))
        self.assertIs(receiver.receiver, self.north.refusing)
        self.serve(self.north)
        self.assertIs(receiver.receiver, self.north.receiver)
        self.assertEqual(self.front("b")[0], "AA")
        self.assertEqual(self.front("a")[0], "AE", "the default is still away")

    def test_frozen(self) -> None:
        self.serve(self.north)
        self.set_state(self.north, FROZEN)
        code, _, answer = self.front("b")
        self.assertEqual(code, "AE")
        self.assertIn("frozen", self.err(answer)[2])

    def test_a_profile_names_the_tenant(self) -> None:
        self.serve(self.default)
        self.serve(self.north)
        self.default.receiver.apply_profile = lambda frame, header, listener: MllpListener("main", tenant="b")
        taken: list[bytes] = []
        self.north.receiver.take = lambda frame, *more: taken.append(frame)  # type: ignore[method-assign]
        self.north.receiver.oversize = lambda event, *more: taken.append(event.head)  # type: ignore[method-assign]
        front = placed_receiver(self.directory, self.clock)
        front.take(adt(), MllpListener("main"), "peer", object(), taken.append)
        front.oversize(Oversize(adt("C2"), 99), MllpListener("main"), "peer", taken.append)
        self.assertEqual(taken, [adt(), adt("C2")])

    def test_a_reject_stays_with_its_tenant(self) -> None:
        self.serve(self.north)
        self.receiver = placed_receiver(self.directory, self.clock)
        self.assertIn(b"MSA|AR", self.answer(b"no HL7", MllpListener("main", tenant="b")) or b"")
        self.assertIn(b"MSA|AE", self.answer(b"no HL7", MllpListener("main", tenant="a")) or b"")
        self.flushLoggedErrors(StoreUnreachable)
        self.assertEqual([one.tenant for one in self.inbox.rejects], ["b"])


class RequestTests(Case):
    def ask(self, tenant: str | None, method: str = "GET", *path: str) -> tuple[int, bytes]:
        async def identify(one: Request) -> Request:
            if tenant is None:
                raise Problem(Category.UNAUTHORIZED, "no token")
            return one.by(one.caller, tenant)

        handle = placed_handler(self.directory, identify, lambda api: api.fhir, refuse)
        answer = self.successResultOf(Deferred.fromCoroutine(handle(request(method, *path))))
        return answer.status, answer.body

    def test_by_tenant(self) -> None:
        self.serve(self.default)
        self.serve(self.north)
        self.assertEqual(self.ask("a"), (200, b"default"))
        self.assertEqual(self.ask("b"), (200, b"north"))
        self.assertEqual(self.ask(None), (200, b"default"), "which refuses it in its own words")

    def test_away_frozen_and_closed(self) -> None:
        self.serve(self.default)
        self.assertEqual(self.ask("b")[0], 503)
        self.assertEqual(self.ask("a")[0], 200)
        self.serve(self.north)
        self.set_state(self.north, FROZEN)
        self.assertEqual(self.ask("b", "GET", "Patient", "1")[0], 200)
        status, body = self.ask("b", "PUT", "Patient", "1")
        self.assertEqual(status, 503)
        self.assertIn(b"the placement north is frozen", body)
        self.north.serving = None
        self.set_state(self.north, CLOSED)
        self.assertIn(b"north is closed", self.ask("b")[1])

    def test_too_many_wait(self) -> None:
        hangs: list[Deferred[Answer]] = []

        async def fhir(one: Request) -> Answer:
            hangs.append(Deferred())
            return await hangs[-1]

        self.serve(self.north)
        assert self.north.serving is not None
        self.north.serving = Serving(self.north.receiver, Api(fhir=fhir), Health({}, self.clock))

        def start() -> Deferred[Answer]:
            return Deferred.fromCoroutine(handle_in(self.north, request(), lambda api: api.fhir, refuse))

        waiting = [start(), start()]
        self.assertEqual(self.successResultOf(start()).status, 503)
        hangs[0].callback(Answer(200))
        self.assertEqual(self.successResultOf(waiting[0]).status, 200)
        self.assertEqual(self.north.waiting, 1)
        self.assertNoResult(start())

    def test_what_writes(self) -> None:
        for method, path, is_write in (
            ("GET", ("Patient", "1"), False),
            ("POST", ("Patient", "_search"), False),
            ("POST", ("Patient",), True),
            ("POST", (), True),
            ("PUT", ("Patient", "1"), True),
            ("PATCH", ("Patient", "1"), True),
            ("DELETE", ("$export-status", "1"), True),
            ("GET", ("Patient", "$export"), True),
            ("GET", ("Subscription", "$get-ws-binding-token"), True),
            ("POST", ("StructureMap", "$transform"), False),
        ):
            self.assertEqual(writes(request(method, *path)), is_write, (method, path))


class WebsocketTests(Case):
    def test_bind(self) -> None:
        hub, client = PlacedHub(self.directory), Any
        north = self.serve(self.north)
        self.successResultOf(Deferred.fromCoroutine(hub.bind(client, Session("b"), "s1")))  # type: ignore[arg-type]
        self.assertEqual(north.bound, ["s1"])
        refused = Deferred.fromCoroutine(hub.bind(client, Session("a"), "s2"))  # type: ignore[arg-type]
        self.assertEqual(self.failureResultOf(refused, Problem).value.category, Category.UNAVAILABLE)
        hub.leave(client)  # type: ignore[arg-type]
        self.assertEqual(north.bound, [])

    def redeem(self, token: str) -> Deferred[TokenBinding]:
        client: Any = object()
        return Deferred.fromCoroutine(PlacedHub(self.directory).bind_with_token(client, token))

    def test_a_token_is_found_where_it_is(self) -> None:
        self.serve(self.default, "hangs")
        north = self.serve(self.north, "t")
        self.successResultOf(self.redeem("t"))
        self.assertEqual(north.bound, ["t"])

    def test_an_unknown_token(self) -> None:
        self.serve(self.default, "x")
        self.assertEqual(self.failureResultOf(self.redeem("t"), Problem).value.category, Category.UNAVAILABLE)
        self.serve(self.north, "y")
        self.assertEqual(self.failureResultOf(self.redeem("t"), Problem).value.category, Category.UNAUTHORIZED)


class HealthTests(Case):
    def test_one_is_away(self) -> None:
        self.serve(self.default)
        self.north.reason = "placement north (db_url): refused"
        failed = self.failureResultOf(Deferred.fromCoroutine(check(self.north)), RuntimeError)
        self.assertIn("north (db_url): refused", str(failed.value))
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(check(self.default))), {"state": OPEN, "down": []})
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(any_works(self.directory))), {})
        failed = self.failureResultOf(Deferred.fromCoroutine(others(self.directory)), RuntimeError)
        self.assertIn("north: placement north", str(failed.value))

    def test_all_are_away(self) -> None:
        self.failureResultOf(Deferred.fromCoroutine(any_works(self.directory)), RuntimeError)

    def test_a_required_part_does_not_work(self) -> None:
        async def inbox() -> None:
            raise RuntimeError("the store cannot be reached")

        self.serve(self.north)
        assert self.north.serving is not None
        self.north.serving.health.add("inbox", Component(inbox))
        failed = self.failureResultOf(Deferred.fromCoroutine(check(self.north)), RuntimeError)
        self.assertEqual(str(failed.value), "inbox: the store cannot be reached")


class NameTests(TestCase):
    def test_an_unknown_name(self) -> None:
        clock = Clock()
        refusing: Any = refusing_receiver(str, clock)
        directory = Directory([Placement(PlacementSettings(DEFAULT, (OTHERS,), "", ""), refusing, 1)])
        self.assertIs(directory.named(DEFAULT), directory.default)
        with self.assertRaisesRegex(Problem, "no placement named 'west'"):
            directory.named("west")
