"""Two servers with delivery, for `test_two_worlds.py`: what a narrow client observes of Subscriptions is equal in both.

A step is an HTTP request (`tests.security.two_worlds.Step`) or one of TICK (activation, delivery, websockets and
heartbeats after so many seconds), BIND (a Subscription over a websocket) and REDEEM (the newest binding token).
The client observes answers, requests at endpoints that begin with HOOK, and websocket frames.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from twisted.internet.task import Clock

from ipf.errors import Problem
from ipf.pipeline.deliver.activate import Activate
from ipf.pipeline.deliver.authorization import Authorization
from ipf.pipeline.deliver.compose import Composer
from ipf.pipeline.deliver.deliver import Deliver
from ipf.pipeline.deliver.topic_failures import ReportTopicFailures
from ipf.pipeline.deliver.websockets import WebsocketNotifier
from ipf.ports import OPEN, Backoff, Caller, Delivered, Notification, Session
from ipf.ports.grants import CreatorGrants
from ipf.rest.operations.subscription_status import set_status, set_topic_failure
from ipf.rest.write.commit import refresh
from ipf.security.access import may_hold
from ipf.subscriptions.status import FIRING, Trigger, origins
from tests.pipeline.test_worker import MemoryNotifier
from tests.rest.world import BASE, World
from tests.security.two_worlds import START, Memory, Step

HOOK = "https://client.example.org/"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TOKEN = re.compile(r'(?<="valueString":")[A-Za-z0-9_-]{43}(?=")')


@dataclass(eq=False)
class Frames:
    """A websocket client, or the channel rest-hook: what was sent."""

    sent: list[str] = field(default_factory=list)
    unavailable: str | None = None

    def send_texts(self, texts: Sequence[bytes]) -> bool:
        """Take frames."""
        self.sent += [f"frame {text.decode()}" for text in texts]
        return True


class Socket(Frames):
    """`ports.WebsocketClient`."""

    def send(self, texts: Sequence[bytes]) -> bool:
        """See `ports.WebsocketClient.send`."""
        return self.send_texts(texts)

    def end(self, reason: str) -> None:
        """See `ports.WebsocketClient.end`."""
        self.sent.append(f"end {reason}")


class Hook(Frames):
    """`ports.Channel`: every endpoint acknowledges; requests to the client's are kept."""

    def destination(self, endpoint: str) -> str:
        """See `ports.Channel.destination`."""
        return endpoint

    async def send(self, notification: Notification) -> Delivered:
        """See `ports.Channel.send`."""
        if notification.url.startswith(HOOK):
            head = f"{notification.method} {notification.url} {notification.kind} {notification.content_type}"
            self.sent.append(f"{head} {list(notification.headers)} {(notification.body or b'').decode()}")
        return Delivered(200, 1, None)


class Server:
    """One world with activation, delivery and a websocket of the client."""

    def __init__(self, world: World, grants: CreatorGrants, queue: Any, bindings: Any, caller: Caller) -> None:
        self.world, self.clock, self.queue = world, Clock(), queue
        world.deliveries, world.bindings = queue, bindings
        self.memory = Memory(replace(caller))
        self.callers = {name: replace(one) for name, one in CALLERS.items()}  # decisions are cached by caller
        self.hook, self.socket, self.other = Hook(), Socket(), Socket()
        self.token = ""
        store, matcher, notifier = world.store, world.matcher, MemoryNotifier()
        authorization = Authorization(grants, Composer(store, matcher, self.now, BASE), store.read_version)
        channels = {"rest-hook": self.hook, "websocket": Hook()}
        check = authorization.authorization_filter

        async def set_one(
            when: frozenset[str], tenant: str, id: str, status: str, error: str | None, version_id: str | None
        ) -> None:
            parts = store, matcher, self.now
            await set_status(tenant, id, status, error, *parts, only_from=when, version_id=version_id)

        async def unserved() -> list[tuple[str, str, str, str]]:
            await refresh(store, matcher)
            lost = [one for one in matcher.unserved.values() if one.status != "error"]
            return [(one.tenant, one.id, one.version_id, one.reason) for one in lost]

        async def report(tenant: str, id: str, error: str | None) -> bool:
            return await set_topic_failure(tenant, id, error, store, matcher, self.now)

        self.activate = Activate(
            queue, partial(set_one, origins(Trigger.ACTIVATED)), channels, authorization, self.now,
            partial(set_one, FIRING), unserved,
        )  # fmt: skip
        self.deliver = Deliver(
            queue, channels, authorization, partial(set_one, origins(Trigger.EXHAUSTED)), notifier, self.clock,
            self.now, worker="w", backoff=Backoff(1000, 2.0, 60000, 3), authorization_filter=check,
        )  # fmt: skip
        self.hub = WebsocketNotifier(
            queue, bindings, authorization, notifier, self.clock, self.now,
            authorization_filter=check, numbered_from=authorization.numbered_from,
        )  # fmt: skip
        failures = matcher.failures
        self.report = ReportTopicFailures(failures.pending, failures.reported, failures.postponed, report, lambda: ())

    def now(self) -> datetime:
        """The time of the step."""
        return self.world.now

    async def perform(self, step: Step) -> str:
        """One step; what the client observes."""
        self.world.now = max(self.world.now, START + timedelta(seconds=step.at))
        if step.method == "TICK":
            await self.tick(int(step.url))
        elif step.method in ("BIND", "REDEEM"):
            await self.bind(step)
        else:
            answer = await self._request(step)
            if step.is_client:
                return self._seen([answer])
        return self._seen([])

    async def _request(self, step: Step) -> str:
        self.world.caller = self.memory.caller if step.is_client else self.callers.get(step.tenant, OPEN)
        body = None if step.body is None else self.memory.fill(step.body).encode()
        url, headers = self.memory.fill(step.url), dict(step.headers)
        answer = await self.world.send(step.method, url, body, "default", **headers)
        text = answer.body.decode()
        if step.is_client and (token := _TOKEN.search(text)):
            self.token = token[0]
        headers_sent = "".join(f"{name}: {value}\n" for name, value in answer.headers)
        return f"{answer.status} {answer.content_type}\n{headers_sent}\n{_TOKEN.sub('token', text)}"

    async def bind(self, step: Step) -> None:
        """Bind by id, or by the newest token; the other client's socket binds by id."""
        caller = self.memory.caller if step.is_client else self.callers["wide"]
        socket = self.socket if step.is_client else self.other
        try:
            if step.method == "BIND":
                session = Session("default", partial(may_hold, caller, "r"), None, caller)
                await self.hub.bind(socket, session, step.url)
            else:
                await self.hub.bind_with_token(socket, self.token)
        except Problem as problem:
            socket.sent.append(f"error {problem.text}")

    async def tick(self, seconds: int) -> None:
        """Everything that runs in the background, until there is nothing to do."""
        self.clock.advance(seconds)
        self.world.now += timedelta(seconds=seconds)
        await self.activate.step()
        await self.report.step()
        for _ in range(4):
            await self.deliver.step()
        await self.deliver.heartbeat_step()
        await self.hub.step()

    def _seen(self, observed: list[str]) -> str:
        observed += [*self.hook.sent, *self.socket.sent]
        self.hook.sent.clear()
        self.socket.sent.clear()
        return _UUID.sub(lambda one: f"id-{self._number(one[0])}", "\n".join(observed))

    def _number(self, id: str) -> int:
        """The place of a random id in the order of their first appearance."""
        if id not in self.memory.ids:
            self.memory.ids.append(id)
        return self.memory.ids.index(id)


CALLERS = {
    "wide": Caller("ehr", "ehr", ("system/*.cruds",)),
    "vital": Caller("ward", "ward", ("system/Subscription.cruds", "system/Observation.rs?status=final")),
}
"""Other clients."""
