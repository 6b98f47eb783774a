"""OpenTelemetry spans for a collector (`IPF_OTLP_URL`).  Without a collector the SDK is not imported.

The trace id is the correlation id, so the spans of all processes, and of later retries, form one tree.  Its root is the
receipt of a message or an HTTP request; the span id of the root follows from the correlation id
(`correlation.first_span`).  A span is created at its end, with its times, so the stages carry no context.  A thread of
the SDK sends spans in batches, and drops them while the collector is unreachable.

Attributes are row ids, types, listeners and outcomes, never content.

Sources: https://opentelemetry.io/docs/specs/otel/trace/sdk/, https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from ipf.errors import Category, Problem
from ipf.telemetry import correlation

_random_bits = Random().getrandbits
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Spans:
    """Creates spans and passes them to a span processor of the SDK."""

    def __init__(self, processor: Any, version: str, process: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._processor = processor
        attributes = {"service.name": "ipf", "service.version": version, "process.role": process}
        self._resource = Resource.create(attributes)
        self._scope = InstrumentationScope("ipf", version)

    def record(
        self,
        name: str,
        correlation_id: str,
        began: float,
        ended: float,
        *,
        kind: str = "INTERNAL",
        is_root: bool = False,
        attributes: Mapping[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        """Record a completed span; times in seconds since 1970.  `kind`: of `SpanKind`.  `error`: of a failure."""
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanKind, Status, StatusCode

        if not _UUID.fullmatch(correlation_id):
            return
        root = int(correlation.first_span(correlation_id), 16)
        span = ReadableSpan(
            name,
            context=_context(correlation_id, root if is_root else _random_bits(64) or 1),
            parent=None if is_root else _context(correlation_id, root),
            resource=self._resource,
            attributes={key: value for key, value in (attributes or {}).items() if value is not None},
            kind=SpanKind[kind],
            status=Status(StatusCode.OK) if error is None else Status(StatusCode.ERROR, error),
            start_time=int(began * 1e9),
            end_time=int(ended * 1e9),
            instrumentation_scope=self._scope,
        )
        self._processor.on_end(span)

    def close(self) -> None:
        """Send the remaining spans.  Blocks for seconds: call it in a thread."""
        self._processor.shutdown()


def open_spans(url: str | None, version: str, process: str) -> Spans | None:
    """Spans for the collector at `url`, such as `http://host:4318/v1/traces`; None without a collector.

    Problem UNAVAILABLE when the extra `otel` is not installed.
    """
    if url is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as missing:
        raise Problem(Category.UNAVAILABLE, "IPF_OTLP_URL needs the extra otel: pip install ipf[otel]") from missing
    correlation.sampled()
    return Spans(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=5)), version, process)


def _context(correlation_id: str, span_id: int) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    trace_id = int(correlation_id.replace("-", ""), 16)
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
