"""A world with everything around the FHIR server that a client can observe: audit trail, notifications, websockets.

Records of requests are written at once, at the time of the request.  After each request the stages run: activation,
delivery, websockets.  What arrives at endpoints of the client (`CLIENT_HOST`) and on his websocket is kept until the
next answer to him is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from ipf.errors import Problem
from ipf.pipeline.deliver.activate import Activate
from ipf.pipeline.deliver.authorization import Authorization
from ipf.pipeline.deliver.compose import Composer
from ipf.pipeline.deliver.deliver import Deliver
from ipf.pipeline.deliver.websockets import WebsocketNotifier
from ipf.ports import Answer, Backoff, Caller, Delivered, Notification, Session
from ipf.ports.audit.records import Audit, millisecond_of
from ipf.rest.audit.audit_store import AuditedStore
from ipf.rest.audit.recorder import observer
from ipf.rest.operations.subscription_status import set_status
from ipf.rest.router import handler
from ipf.rest.write.repository import Repository
from ipf.security.access import may_hold
from ipf.security.audit.delivery import delivery_audit
from ipf.security.audit.draft import drafter
from ipf.security.audit.rules import AuditRules
from ipf.subscriptions.policy import PERMISSIVE, ChannelPolicy
from tests.fakes import MemoryDeliveryQueue
from tests.fakes.audit import MemoryAuditStore
from tests.fakes.bindings import MemoryBindingTokens
from tests.fakes.grants import MemoryGrants
from tests.pipeline.test_worker import MemoryNotifier
from tests.rest.world import BASE, World

RULES = AuditRules(reads=True, searches=True)
CLIENT_HOST = "https://client.example"


class Socket:
    """The websocket of the client, and his endpoint: what arrived."""

    unavailable = None

    def __init__(self) -> None:
        self.heard: list[str] = []

    def take(self) -> str:
        """What arrived since the last call."""
        found, self.heard = "\n".join(self.heard), []
        return found

    def destination(self, endpoint: str) -> str:
        """See `ports.Channel`."""
        return endpoint

    async def send(self, notification: Notification) -> Delivered:
        """A notification for an endpoint."""
        if notification.url.startswith(CLIENT_HOST):
            body = (notification.body or b"").decode()
            headers = "".join(f"{name}: {value}\n" for name, value in notification.headers)
            self.heard.append(f"{notification.method} {notification.url}\n{headers}{body}")
        return Delivered(200, 0, None)


class Frames:
    """`ports.WebsocketClient`."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    def send(self, texts: Sequence[bytes]) -> bool:
        """Frames."""
        self._socket.heard += [f"frame {text.decode()}" for text in texts]
        return True

    def end(self, reason: str) -> None:
        """The connection closes."""
        self._socket.heard.append(f"end {reason}")


@dataclass
class Server(World):
    """A world with an audit trail; reads and searches are recorded as well.  `notifies`: the stages run."""

    policy: ChannelPolicy = field(default_factory=lambda: ChannelPolicy(PERMISSIVE))
    expunges: bool = True
    trail: Any = field(default_factory=MemoryAuditStore)
    numbers: Any = field(default_factory=lambda: count(1))
    socket: Socket = field(default_factory=Socket)
    stages: Stages | None = None
    notifies: bool = True
    suffix: str = ""  # of the names of tenants, where several scenarios share a database

    @property
    def repository(self) -> Repository:
        """The world's, with the audit trail among the resources."""
        return replace(super().repository, store=AuditedStore(self.store, self.trail, BASE))

    async def send(self, method: str, url: str, body: Any = None, tenant: str = "default", **headers: str) -> Answer:
        """One request; its records are written, and the stages run.  `BIND` is a frame on the websocket."""
        records: list[Audit] = []
        observe = observer(RULES, records.append, lambda: millisecond_of(self.now), self.new_id_suffix)

        if self.stages is not None and method == "BIND":
            return await self.stages.bind(url, self.caller, tenant)
        drafts = drafter(RULES, self.new_id_suffix, lambda outcome, count: None)
        serve = handler(self.repository, None, observe, drafts)
        answer = await serve(self.request(method, url, body, tenant, **headers))
        if self.stages is not None and self.notifies:
            await self.stages.step()
        committed: list[Audit] = getattr(self.store, "audits", [])  # PostgreSQL has them in the trail
        await self.trail.append([*committed, *records])
        committed.clear()
        return answer

    def new_id_suffix(self) -> str:
        """Ids that grow among those of one moment."""
        return f"7000-8000-{next(self.numbers):012x}"


class Stages:
    """Activation, delivery and websockets of a world in memory."""

    def __init__(self, world: Server) -> None:
        world.deliveries = queue = MemoryDeliveryQueue(world.store, lambda: world.now)
        world.bindings = tokens = MemoryBindingTokens(lambda: world.now)
        self._clock, notifier = Clock(), MemoryNotifier()
        composer = Composer(world.store, world.matcher, lambda: world.now, BASE)
        compose = Authorization(MemoryGrants(world.store), composer, world.store.read_version)
        channels, audit = {"rest-hook": world.socket}, delivery_audit(world.new_id_suffix)

        async def change(tenant: str, id: str, status: str, error: str | None, version_id: str | None) -> None:
            parts = world.store, world.matcher, lambda: world.now
            await set_status(tenant, id, status, error, *parts, version_id=version_id)

        self._activate = Activate(queue, change, channels, compose, lambda: world.now, change)
        self._deliver = Deliver(
            queue, channels, compose, change, notifier, self._clock, lambda: world.now, worker="w",
            backoff=Backoff(1000, 2.0, 60000, 3), chance=lambda: 0.0, audit=audit,
            authorization_filter=compose.authorization_filter,
        )  # fmt: skip
        self._hub = WebsocketNotifier(
            queue, tokens, compose, notifier, self._clock, lambda: world.now,
            authorization_filter=compose.authorization_filter, numbered_from=compose.numbered_from, audit=audit,
        )  # fmt: skip
        self._socket = world.socket

    async def step(self) -> None:
        """Everything that is due."""
        await self._activate.step()
        step = Deferred.fromCoroutine(self._deliver.step())
        self._clock.advance(1)
        await step
        await self._hub.step()

    async def bind(self, url: str, caller: Caller, tenant: str) -> Answer:
        """`bind <id>`, or `bind-with-token <token>`, on a connection of its own."""
        way, _, what = url.partition(" ")
        frames = Frames(self._socket)
        try:
            if way == "bind":
                session = Session(tenant, lambda resource: may_hold(caller, "r", resource), None, caller)
                await self._hub.bind(frames, session, what)
                return Answer(200, b"bound")
            bound = await self._hub.bind_with_token(frames, what)
            return Answer(200, " ".join(bound.bound).encode())
        except Problem as problem:
            return Answer(problem.rendering.http_status, str(problem).encode())


def served() -> Server:
    """A world in memory with all stages."""
    world = Server()
    world.stages = Stages(world)
    return world
