"""Whether the engine answers, so that no page waits for one that hangs and no value of before looks like one of now.

A process that is stopped, or a host that is cut off, accepts a connection and says nothing.  So a request that takes
longer than a second is watched: another one asks for `/actuator/health/liveness`, and when that has no answer either,
the request is given up.  A slow search of an engine that works goes on to its own time limit.

Whatever the engine answers is a sign of life, an error as well.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime

from ipf.errors import Problem
from ipf.wire.client.remote_service import RemoteService, Response

LOOK_SECONDS = 1.0
"""How long a request takes before the engine is asked whether it lives."""
PROBE_SECONDS = 2.5
"""The time limit of that question.  The sum, and the time between two polls of a page, are less than five seconds."""
FRESH_SECONDS = 0.5
"""How old an answer to the question may be."""
_LIVENESS = "/actuator/health/liveness"


class NoAnswer(Exception):
    """There was no answer.  `since`: of the last one, None when the engine answers other requests."""

    def __init__(self, text: str, since: datetime | None) -> None:
        super().__init__(text)
        self.since = since


class Pulse:
    """The engine at `url`.  `clock`: seconds and callLater; `wall`: the time of day."""

    def __init__(
        self,
        service: RemoteService,
        url: str,
        clock: IReactorTime,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._service = service
        self._url = url
        self._clock = clock
        self._wall = wall
        self._waiting: list[Deferred[bool]] = []
        self._asked_at = float("-inf")
        self.is_up = True
        self.answered_at = wall()
        """Of the last answer; of the start of the console before the first one."""

    async def watched(self, request: Coroutine[Any, Any, Response], failures: int = 1) -> Response:
        """The response of a request.  NoAnswer.  `failures`: so many questions in a row without an answer end it."""
        asked: Deferred[Response] = Deferred.fromCoroutine(request)
        watch = _Watch(self, self._clock, asked, failures)
        try:
            response = await asked
        except Problem as problem:
            since = None if await self.lives() else self.answered_at
            raise NoAnswer(problem.text, since) from None
        except CancelledError:
            if not watch.has_given_up:
                raise
            raise NoAnswer("the engine does not answer", self.answered_at) from None
        finally:
            watch.end()
        self._answered()
        return response

    async def lives(self) -> bool:
        """Whether the engine answers, as of at most half a second ago.  All who ask at once share a request."""
        if not self._waiting and self._clock.seconds() - self._asked_at < FRESH_SECONDS:
            return self.is_up
        waiting: Deferred[bool] = Deferred()
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            Deferred.fromCoroutine(self._ask())
        return await waiting

    async def _ask(self) -> None:
        try:
            await self._service.request("GET", self._url + _LIVENESS, None, {}, PROBE_SECONDS)
            self._answered()
        except Exception:  # whatever it is, there is no answer
            self.is_up = False
        self._asked_at = self._clock.seconds()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.callback(self.is_up)

    def _answered(self) -> None:
        self.is_up, self.answered_at = True, self._wall()


class _Watch:
    """Looks at a request while it is under way."""

    def __init__(self, pulse: Pulse, clock: IReactorTime, asked: Deferred[Response], failures: int) -> None:
        self._pulse = pulse
        self._clock = clock
        self._asked = asked
        self._left = self._failures = failures
        self._is_over = self.has_given_up = False
        self._call = clock.callLater(LOOK_SECONDS, self._look)

    def end(self) -> None:
        """The request has ended."""
        self._is_over = True
        if self._call.active():
            self._call.cancel()

    def _look(self) -> None:
        Deferred.fromCoroutine(self._looked())

    async def _looked(self) -> None:
        self._left = self._failures if await self._pulse.lives() else self._left - 1
        if self._is_over:
            return
        if self._left > 0:
            self._call = self._clock.callLater(LOOK_SECONDS, self._look)
            return
        self.has_given_up = True
        self._asked.cancel()
