"""Log records: one event of `twisted.logger` in, one line of JSON out.

A record has exactly the fields of the interface specification, "Log record": `@timestamp`, `@version`, `level`,
`level_value`, `logger_name`, `message`, `schema_version`, `thread_name`; `correlation_id` when the event has one;
`stack_trace` when it has a failure; `mdc` with every other scalar field of the event as a string.  On a terminal the
record is printed as text.

`event_line` builds the lines that operators search for (specification, "Log events"):
`log.info(event_line("dlq", message_id=7), correlation_id=...)`.  Such a line is not a format string, so text of a
sender cannot break it.  Other repeated lines at WARN and above are limited (`rate_limit.py`).  Bearer tokens and
passwords in URLs are redacted.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, Any, cast

import orjson
from constantly import NamedConstant
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent
from twisted.python.failure import Failure
from zope.interface import implementer

from ipf.errors import Problem
from ipf.telemetry.rate_limit import LogRateLimit

SCHEMA_VERSION = "1.0"
LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR")

_RANK: dict[NamedConstant, tuple[str, int]] = {
    LogLevel.debug: ("DEBUG", 10000),
    LogLevel.info: ("INFO", 20000),
    LogLevel.warn: ("WARN", 30000),
    LogLevel.error: ("ERROR", 40000),
    LogLevel.critical: ("ERROR", 40000),
}
_WARN = _RANK[LogLevel.warn]
_BY_NAME: dict[str, NamedConstant] = {
    "TRACE": LogLevel.debug,
    "DEBUG": LogLevel.debug,
    "INFO": LogLevel.info,
    "WARN": LogLevel.warn,
    "ERROR": LogLevel.error,
}
_LEGACY = "log_legacy"  # of Twisted's older log calls: ports and factories that open and close
# Fields with their own place in the record, and fields of legacy events that hold only their text.
_NOT_MDC = frozenset(("correlation_id", "line", "message", "format", "system", "time", "isError", "failure", "why"))
_SECRET_NAME = re.compile(r"token|secret|passw|authorization|api_?key", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"(bearer\s+|://[^/\s:@]*:(?=[^\s/@]+@))[^\s@\"',;]+", re.IGNORECASE)
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_PLAIN = re.compile(r"[^\s\"'=\\\x00-\x1f\x7f\u0085\u2028\u2029]+")
_FIELD = re.compile(r"=\{(\w+)\}")
_BRACES = {0x7B: "{{", 0x7D: "}}"}
_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029", 0x7F: "\\u007f"}


class Line(str):
    """A complete message text; the observer does not format it."""

    __slots__ = ()


def event_line(event: str, *, name: str = "event", **fields: object) -> Line:
    """One line of `key=value` pairs: `event=dlq message_id=7 last_error="no map"`.

    None becomes `null`; a value with spaces, quotes or control characters becomes a JSON string.  `name` is
    `audit_event` in audit lines.
    """
    parts = [f"{name}={event}"]
    parts.extend(f"{key}={_token(value)}" for key, value in fields.items())
    return Line(" ".join(parts))


def _token(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    return orjson.dumps(text.encode("utf-8", "replace").decode()).decode().translate(_LINE_BREAKS)


def level_named(name: str) -> NamedConstant:
    """The level of a name in `LEVELS`, in any case.  ValueError for other names."""
    try:
        return _BY_NAME[name.upper()]
    except KeyError:
        raise ValueError(f"log level must be one of {', '.join(LEVELS)}, not {name!r}") from None


@implementer(ILogObserver)
class LogWriter:
    """The log observer: writes each record to `stream` as one line, then flushes.

    An event that cannot be rendered becomes a record about that failure.  Nothing is raised to the code that logs.

    With `later` (the reactor's `callLater`, at 0), lines below WARN are flushed together at the end of the reactor's
    turn, since flushing each line costs as much as making it.  `kill -9` then loses the lines of one turn.
    """

    def __init__(
        self,
        stream: IO[bytes],
        level: NamedConstant = LogLevel.info,
        human: bool = False,
        later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._stream = stream
        self._later = later
        self._is_flush_due = False
        self._render: Callable[[LogEvent], bytes] = text_line if human else json_line
        limit = _RANK[level][1]
        self._written_levels = frozenset(each for each, (_, value) in _RANK.items() if value >= limit)
        self._rate_limit = LogRateLimit()

    def __call__(self, event: LogEvent) -> None:
        if event.get("log_namespace") == _LEGACY and event.get("log_level") is LogLevel.info:
            event = event | {"log_level": LogLevel.debug}
        if event.get("log_level", LogLevel.info) not in self._written_levels:
            return
        seconds = event.get("log_time") or time.time()
        for summary in self._rate_limit.summaries(seconds):
            self._write(summary)
        if type(event.get("log_format")) is Line or self._rate_limit.permits(event, seconds):
            self._write(event)

    def _write(self, event: LogEvent) -> None:
        try:
            line = self._render(event)
        except Exception as error:
            line = json_line(
                {"log_level": LogLevel.error, "log_format": Line(f"log event cannot be rendered: {error!r}")}
            )
        try:
            self._stream.write(line)
            if self._later is None or _RANK.get(event.get("log_level", LogLevel.info), _WARN)[1] >= _WARN[1]:
                self._stream.flush()
            elif not self._is_flush_due:
                self._is_flush_due = True
                self._later(self._flush)
        except (OSError, ValueError):
            return  # the reader of the log has gone; the service continues

    def _flush(self) -> None:
        self._is_flush_due = False
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return


def twistd_logger(level: NamedConstant = LogLevel.info) -> LogWriter:
    """The observer on standard output: JSON lines, or text on a terminal."""
    stream = sys.__stdout__ or sys.stdout
    return LogWriter(cast("IO[bytes]", stream.buffer), level, human=stream.isatty())


def json_line(event: LogEvent) -> bytes:
    """The record of `event` as JSON in UTF-8, with a line feed."""
    body = record(event)
    try:
        return orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # text with lone surrogates
        return orjson.dumps(_repaired(body), option=orjson.OPT_APPEND_NEWLINE)


def text_line(event: LogEvent) -> bytes:
    """The record as text: time, level, logger, message, correlation id; the stack trace below."""
    body = record(event)
    correlation = f" [{body['correlation_id']}]" if "correlation_id" in body else ""
    text = f"{body['@timestamp'][11:23]} {body['level']:5} {body['logger_name']:<28} {body['message']}{correlation}\n"
    if "stack_trace" in body:
        text += body["stack_trace"].rstrip("\n") + "\n"
    return text.encode("utf-8", "backslashreplace")


def record(event: LogEvent) -> dict[str, Any]:
    """The fields of the specification for one event, in its order."""
    level, level_value = _RANK.get(event.get("log_level", LogLevel.info), ("INFO", 20000))
    body: dict[str, Any] = {
        "@timestamp": _timestamp(event.get("log_time") or time.time()),
        "@version": "1",
        "level": level,
        "level_value": level_value,
        "logger_name": event.get("log_namespace") or "ipf",
        "thread_name": threading.current_thread().name,
        "schema_version": SCHEMA_VERSION,
        "message": _redacted(_message(event)),
    }
    correlation_id = event.get("correlation_id")
    if correlation_id:
        body["correlation_id"] = str(correlation_id)
    failure = event.get("log_failure")
    if failure is not None:
        body["stack_trace"] = _redacted(_trace(failure))
    mdc = _mdc(event)
    if mdc:
        body["mdc"] = mdc
    return body


def _message(event: LogEvent) -> str:
    text = event.get("log_format")
    if type(text) is not Line:
        # Most formats have no braces.
        text = _formatted(event) if type(text) is not str or "{" in text or "}" in text else text
    if not text and event.get("log_failure") is not None:
        text = _reason(event["log_failure"])
    return str(text)


def _formatted(event: LogEvent) -> str:
    """The formatted text; in `event=` lines the values of `key={field}` are quoted as by `event_line`."""
    text = event.get("log_format")
    if type(text) is str and text.startswith("event="):
        text = _FIELD.sub(lambda field: "=" + _token(event.get(field[1])).translate(_BRACES), text)
        event = {**event, "log_format": text}
    return formatEvent(event)


def _reason(failure: Failure) -> str:
    """The text of an exception without quoted parts, which may be patient data; texts of `Problem` stay whole."""
    text = failure.getErrorMessage()
    return text if failure.check(Problem) else _QUOTED.sub("'***'", text)


def _trace(failure: Failure) -> str:
    """The stack trace, with the text of the exception as in `_reason`."""
    text, message = failure.getTraceback(), failure.getErrorMessage()
    return text.replace(message, _reason(failure)) if message else text


def _mdc(event: LogEvent) -> dict[str, str]:
    fields: dict[str, str] = {}
    for key, value in event.items():
        if key.startswith("log_") or key in _NOT_MDC:
            continue
        if isinstance(value, (str, int, float)):
            fields[key] = "***" if _SECRET_NAME.search(key) else _redacted(str(value))
    return fields


def _redacted(text: str) -> str:
    # Most lines need no regular expression.
    if "://" in text or "earer" in text or "EARER" in text:
        return _SECRET_TEXT.sub(r"\1***", text)
    return text


_second = -1
_second_text = ""


def _timestamp(seconds: float) -> str:
    global _second, _second_text
    milliseconds = int(seconds * 1000)
    second, rest = divmod(milliseconds, 1000)
    if second != _second:
        _second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _second = second
    return f"{_second_text}.{rest:03d}Z"


def _repaired(value: Any) -> Any:
    if isinstance(value, dict):
        return {_repaired(key): _repaired(each) for key, each in value.items()}
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value
