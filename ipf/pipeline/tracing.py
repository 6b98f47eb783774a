"""Tracing wrappers of the stages: the same interfaces, with a span around each operation.

Trace of a message: `receive` (until its commit) with the children `map`, `store` and one `notify` per attempt.  A FHIR
request is the root of its own trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import Any

from ipf.errors import Problem
from ipf.fhir.model.definitions import definitions
from ipf.pipeline.receive.group_commit import GroupCommit, OnDone
from ipf.ports import (
    Answer,
    Channel,
    Claimed,
    Delivered,
    Handler,
    Mapped,
    Mapper,
    Notification,
    Outcome,
    Received,
    Request,
)
from ipf.rest.write.unit import Submit, Unit, UnitResult
from ipf.telemetry.metrics import METHODS, OTHER
from ipf.telemetry.spans import Spans


class TracedCommit(GroupCommit):
    """`GroupCommit` with a root span for each stored message.  Set `spans` before use."""

    spans: Spans

    def submit(self, received: Received, source: object, done: OnDone) -> None:
        """See `GroupCommit.submit`."""

        def on_done(result: Outcome | Exception) -> None:
            done(result)
            attributes = {
                "ipf.listener": received.listener,
                "ipf.message_type": received.message_type,
                "ipf.source_system": received.source_system,
                "ipf.outcome": result.value if isinstance(result, Outcome) else type(result).__name__,
            }
            if result is Outcome.STORED or not isinstance(result, Outcome):
                error = None if isinstance(result, Outcome) else type(result).__name__
                began = received.received_at.timestamp()
                self.spans.record(
                    "receive", received.correlation_id, began, time(), kind="SERVER", is_root=True,
                    attributes=attributes, error=error,
                )  # fmt: skip

        super().submit(received, source, on_done)


class TracedMapper:
    """`ports.Mapper` with a span per conversion."""

    def __init__(self, mapper: Mapper, spans: Spans) -> None:
        self._mapper = mapper
        self._spans = spans

    def has_map(self, message_type: str) -> bool:
        """See `Mapper.has_map`."""
        return self._mapper.has_map(message_type)

    async def transform(self, message: Claimed) -> Mapped:
        """See `Mapper.transform`."""
        began, error, mapped = time(), None, None
        try:
            mapped = await self._mapper.transform(message)
            return mapped
        except Exception as problem:
            error = type(problem).__name__ if not isinstance(problem, Problem) else problem.category.name
            raise
        finally:
            attributes = {
                "ipf.message_id": message.original_id or message.id,
                "ipf.message_type": message.message_type,
                "ipf.attempt": message.attempt_count + 1,
                "ipf.map_url": None if mapped is None else mapped.map_url,
            }
            self._spans.record("map", message.correlation_id, began, time(), attributes=attributes, error=error)


def traced_submit(submit: Submit, spans: Spans) -> Submit:
    """`Submit` with a span per unit; units of one batch share its duration."""

    async def traced(units: Sequence[Unit]) -> list[UnitResult | Problem]:
        began = time()
        results = await submit(units)
        for unit, result in zip(units, results, strict=True):
            error = result.category.name if isinstance(result, Problem) else None
            attributes = {"ipf.entries": len(unit.entries), "ipf.wave": len(units)}
            spans.record("store", unit.correlation_id, began, time(), attributes=attributes, error=error)
        return results

    return traced


class TracedChannel:
    """`ports.Channel` with a span per attempt."""

    def __init__(self, channel: Channel, name: str, spans: Spans) -> None:
        self._channel = channel
        self._name = name
        self._spans = spans

    @property
    def unavailable(self) -> str | None:
        """See `Channel.unavailable`."""
        return self._channel.unavailable

    def destination(self, endpoint: str) -> str:
        """See `Channel.destination`."""
        return self._channel.destination(endpoint)

    async def send(self, notification: Notification) -> Delivered:
        """See `Channel.send`."""
        began = time()
        delivered = await self._channel.send(notification)
        attributes = {
            "ipf.channel": self._name,
            "ipf.subscription_id": notification.subscription_id or None,
            "http.response.status_code": delivered.http_status,
        }
        error = None if delivered.succeeded else delivered.error or f"HTTP status {delivered.http_status}"
        self._spans.record(
            "notify", notification.correlation_id, began, time(), kind="CLIENT", attributes=attributes, error=error
        )
        return delivered

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


def traced_handler(handle: Handler, spans: Spans) -> Handler:
    """`handle` with a root span per FHIR request; the span name contains the resource type, never an id."""

    async def traced(request: Request) -> Answer:
        began, status = time(), 500
        try:
            answer = await handle(request)
            status = answer.status
            return answer
        finally:
            resource = request.path[0] if request.path and request.path[0] in definitions().resource_types else ""
            method = request.method if request.method in METHODS else OTHER
            name = f"{method} /fhir/{resource}"
            attributes = {"http.request.method": method, "http.response.status_code": status}
            spans.record(
                name, request.correlation_id, began, time(), kind="SERVER", is_root=True, attributes=attributes,
                error=f"HTTP status {status}" if status >= 500 else None,
            )  # fmt: skip

    return traced


_: type[Channel] = TracedChannel
_mapper: type[Mapper] = TracedMapper
