"""Health and metrics on HTTP: `/actuator/*`.

`/actuator/health` lists the components and is 503 when a required one is DOWN; `/health/liveness` states that the
process answers; `/health/readiness` that it can accept messages.  A downstream component (remote mapping service, FHIR
server or identity provider) is listed but affects neither, since the listener must stay reachable to accept messages
(decisions section 3).  Every check has a time limit of its own.  `/actuator/prometheus` is the scrape endpoint;
it may need a token, or be served by a listener of its own (`metrics_mounts`).
Mount `resource` at `/actuator`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from klein import Klein
from twisted.internet.defer import Deferred, TimeoutError, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource
from werkzeug.exceptions import HTTPException

from ipf.ports import Answer, Request
from ipf.telemetry import metrics
from ipf.wire.admin.klein_app import not_routed
from ipf.wire.admin.metrics_access import MetricsAccess
from ipf.wire.http.serving import JSON, refusal, serve

UP = "UP"
DOWN = "DOWN"

Check = Callable[[], Awaitable[Mapping[str, Any] | None]]


@dataclass(frozen=True, slots=True)
class Component:
    """`check` returns details or None when the component works, and raises when it does not.

    `required` False: a downstream part, shown only.
    """

    check: Check
    required: bool = True


class Health:
    """The checks of one process, run at each request.  `roles`: what it runs, shown with them."""

    def __init__(
        self,
        components: Mapping[str, Component],
        clock: IReactorTime,
        limit_seconds: float = 2.0,
        roles: Sequence[str] = (),
    ) -> None:
        self._components = dict(components)
        self._roles = list(roles)
        self._clock = clock
        self._limit_seconds = limit_seconds

    def add(self, name: str, component: Component) -> None:
        """Check this component from now on."""
        self._components[name] = component

    async def health(self) -> Answer:
        """All components with their states."""
        states = await self._run_checks(self._components)
        roles = {"roles": self._roles} if self._roles else {}
        return _answer({"status": self._status(states), **roles, "components": states})

    async def states(self) -> Mapping[str, Mapping[str, Any]]:
        """`{status, details}` of every component."""
        return await self._run_checks(self._components)

    @property
    def required(self) -> frozenset[str]:
        """Names of the components that make health DOWN."""
        return frozenset(name for name, each in self._components.items() if each.required)

    async def readiness(self) -> Answer:
        """The required components only."""
        states = await self._run_checks({name: each for name, each in self._components.items() if each.required})
        return _answer({"status": self._status(states)})

    async def liveness(self) -> Answer:
        """The process runs and its reactor is not blocked."""
        return _answer({"status": UP})

    def _status(self, states: Mapping[str, Mapping[str, Any]]) -> str:
        failed = (name for name, state in states.items() if state["status"] == DOWN)
        return DOWN if any(self._components[name].required for name in failed) else UP

    async def _run_checks(self, components: Mapping[str, Component]) -> dict[str, dict[str, Any]]:
        states = await gatherResults([Deferred.fromCoroutine(self._state(each)) for each in components.values()])
        return dict(zip(components, states, strict=True))

    async def _state(self, component: Component) -> dict[str, Any]:
        async def check() -> Mapping[str, Any] | None:
            return await component.check()

        try:
            details = await Deferred.fromCoroutine(check()).addTimeout(self._limit_seconds, self._clock)
        except TimeoutError:
            return {"status": DOWN, "details": {"error": f"no answer within {self._limit_seconds:g} s"}}
        except Exception as error:
            return {"status": DOWN, "details": {"error": _reason(error)}}
        return {"status": UP, "details": dict(details)} if details else {"status": UP}


def resource(health: Health, metrics_access: MetricsAccess | None) -> IResource:
    """The resource to mount at `/actuator`; without metrics when their access is None."""
    app = Klein()

    async def run(web: IRequest, work: Callable[[], Awaitable[Answer]]) -> bytes:
        return await serve(web, lambda _: work(), refusal)

    @app.route("/health", methods=["GET"])
    async def show_health(web: IRequest) -> bytes:
        return await run(web, health.health)

    @app.route("/health/liveness", methods=["GET"])
    async def liveness(web: IRequest) -> bytes:
        return await run(web, health.liveness)

    @app.route("/health/readiness", methods=["GET"])
    async def readiness(web: IRequest) -> bytes:
        return await run(web, health.readiness)

    if metrics_access is not None:
        _add_metrics(app, metrics_access, "/prometheus")
    _add_no_route(app)
    return app.resource()


def metrics_mounts(access: MetricsAccess) -> dict[str, IResource]:
    """What a listener for metrics alone serves: `/actuator/prometheus`, and `/metrics`, the default of Prometheus."""
    return {"actuator": _metrics_at("/prometheus", access), "metrics": _metrics_at("/", access)}


def _metrics_at(path: str, access: MetricsAccess) -> IResource:
    app = Klein()
    app.url_map.strict_slashes = False  # the path of a mount itself, `/metrics`, ends without one
    _add_metrics(app, access, path)
    _add_no_route(app)
    return app.resource()


def _add_metrics(app: Klein, access: MetricsAccess, path: str) -> None:
    async def exposition(request: Request) -> Answer:
        access.check(request)
        return Answer(200, metrics.exposition(), (), metrics.CONTENT_TYPE)

    @app.route(path, methods=["GET"])
    async def prometheus(web: IRequest) -> bytes:
        return await serve(web, exposition, refusal)


def _add_no_route(app: Klein) -> None:
    @app.handle_errors(HTTPException)  # type: ignore[arg-type]  # Klein's hint fits methods only
    async def no_route(web: IRequest, failure: Failure) -> bytes:
        async def answer(_: Request) -> Answer:
            return not_routed(failure.value, refusal)

        return await serve(web, answer, refusal)


def _answer(body: Mapping[str, Any]) -> Answer:
    return Answer(200 if body["status"] == UP else 503, orjson.dumps(body, default=str), (), JSON)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
