"""Log records: one event of `twisted.logger` in, one line of JSON out.

A record has the fields of the interface specification, "Log record", and no others: `@timestamp`, `@version`, `level`,
`level_value`, `logger_name`, `message`, `schema_version`, `thread_name`; `correlation_id` when the event carries one;
`stack_trace` when it carries a failure; `mdc` with every other plain field of the event as a string.  On a terminal the
same record is printed for a person.  A level below the limit costs one comparison.

Lines that operators search for are built by `event_line` (specification, "Log events"):
`log.info(event_line("dlq", message_id=7), correlation_id=...)`.  Such a line is never treated as a format string, so
what a sender wrote cannot break it.  Other lines at WARN and above that repeat are counted (`repeats.py`).  Bearer
tokens and passwords in URLs are masked wherever they appear.
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
from ipf.telemetry.repeats import Repeats

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
# Fields that have a place of their own in the record, or that only carry the text of a legacy event.
_NOT_MDC = frozenset(("correlation_id", "line", "message", "format", "system", "time", "isError", "failure", "why"))
_SECRET_NAME = re.compile(r"token|secret|passw|authorization|api_?key", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"(bearer\s+|://[^/\s:@]*:(?=[^\s/@]+@))[^\s@\"',;]+", re.IGNORECASE)
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_PLAIN = re.compile(r"[^\s\"'=\\\x00-\x1f\x7f\u0085\u2028\u2029]+")
_FIELD = re.compile(r"=\{(\w+)\}")
_BRACES = {0x7B: "{{", 0x7D: "}}"}
_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029", 0x7F: "\\u007f"}


class Line(str):
    """A finished message text: the observer prints it as it is, braces included."""

    __slots__ = ()


def event_line(event: str, *, name: str = "event", **fields: object) -> Line:
    """`event=dlq message_id=7 last_error="no map"`: tokens on one line, values quoted where they need it.

    None becomes `null`; a value with spaces, quotes or control characters becomes a JSON string.  `name` is
    `audit_event` for audit lines.
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
    """The level for one of `LEVELS`, in any case.  ValueError for anything else."""
    try:
        return _BY_NAME[name.upper()]
    except KeyError:
        raise ValueError(f"log level must be one of {', '.join(LEVELS)}, not {name!r}") from None


@implementer(ILogObserver)
class LogWriter:
    """The observer: writes each record to `stream` as one `write` of a whole line, then flushes.

    An event that cannot be rendered is reported as a record of its own; nothing is ever raised to the code that logs.

    With `later` (the reactor's `callLater`, at 0), lines below WARN are flushed together at the end of the reactor's
    turn: a process that writes two lines a message spends as much on the writes as on the lines.  A kill -9 then costs
    the lines of one turn.
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
        self._is_waiting = False
        self._render: Callable[[LogEvent], bytes] = human_line if human else json_line
        limit = _RANK[level][1]
        self._shown = frozenset(each for each, (_, value) in _RANK.items() if value >= limit)
        self._repeats = Repeats()

    def __call__(self, event: LogEvent) -> None:
        if event.get("log_level", LogLevel.info) not in self._shown:
            return
        seconds = event.get("log_time") or time.time()
        for held in self._repeats.ended(seconds):
            self._write(held)
        if type(event.get("log_format")) is Line or self._repeats.admits(event, seconds):
            self._write(event)

    def _write(self, event: LogEvent) -> None:
        try:
            line = self._render(event)
        except Exception as error:
            line = json_line({"log_level": LogLevel.error, "log_format": Line(f"log event cannot be shown: {error!r}")})
        try:
            self._stream.write(line)
            if self._later is None or _RANK.get(event.get("log_level", LogLevel.info), _WARN)[1] >= _WARN[1]:
                self._stream.flush()
            elif not self._is_waiting:
                self._is_waiting = True
                self._later(self._flush)
        except (OSError, ValueError):
            return  # the reader of the log is gone; the service goes on

    def _flush(self) -> None:
        self._is_waiting = False
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return


def twistd_logger(level: NamedConstant = LogLevel.info) -> LogWriter:
    """The service's observer on standard output: JSON lines, or the human form when that is a terminal."""
    stream = sys.__stdout__ or sys.stdout
    return LogWriter(cast("IO[bytes]", stream.buffer), level, human=stream.isatty())


def json_line(event: LogEvent) -> bytes:
    """The record of `event` as JSON in UTF-8, with its line feed."""
    body = record(event)
    try:
        return orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # text with lone surrogates
        return orjson.dumps(_repaired(body), option=orjson.OPT_APPEND_NEWLINE)


def human_line(event: LogEvent) -> bytes:
    """The same record for a person: time, level, logger, message, correlation id; the stack trace below."""
    body = record(event)
    correlation = f" [{body['correlation_id']}]" if "correlation_id" in body else ""
    text = f"{body['@timestamp'][11:23]} {body['level']:5} {body['logger_name']:<28} {body['message']}{correlation}\n"
    if "stack_trace" in body:
        text += body["stack_trace"].rstrip("\n") + "\n"
    return text.encode("utf-8", "backslashreplace")


def record(event: LogEvent) -> dict[str, Any]:
    """The fields of the specification's table for one event, in their order."""
    level, level_value = _RANK.get(event.get("log_level", LogLevel.info), ("INFO", 20000))
    body: dict[str, Any] = {
        "@timestamp": _timestamp(event.get("log_time") or time.time()),
        "@version": "1",
        "level": level,
        "level_value": level_value,
        "logger_name": event.get("log_namespace") or "ipf",
        "thread_name": threading.current_thread().name,
        "schema_version": SCHEMA_VERSION,
        "message": _masked(_message(event)),
    }
    correlation_id = event.get("correlation_id")
    if correlation_id:
        body["correlation_id"] = str(correlation_id)
    failure = event.get("log_failure")
    if failure is not None:
        body["stack_trace"] = _masked(_trace(failure))
    mdc = _mdc(event)
    if mdc:
        body["mdc"] = mdc
    return body


def _message(event: LogEvent) -> str:
    text = event.get("log_format")
    if type(text) is not Line:
        # A format without braces is its own result, and by far the most common one.
        text = _formatted(event) if type(text) is not str or "{" in text or "}" in text else text
    if not text and event.get("log_failure") is not None:
        text = _reason(event["log_failure"])
    return str(text)


def _formatted(event: LogEvent) -> str:
    """As the library does it; the values of `key={field}` in `event=` lines are quoted as `event_line` quotes them."""
    text = event.get("log_format")
    if type(text) is str and text.startswith("event="):
        text = _FIELD.sub(lambda field: "=" + _token(event.get(field[1])).translate(_BRACES), text)
        event = {**event, "log_format": text}
    return formatEvent(event)


def _reason(failure: Failure) -> str:
    """What an exception says; what it quotes may be a patient's and is left out, unless it is a text of ours."""
    text = failure.getErrorMessage()
    return text if failure.check(Problem) else _QUOTED.sub("'***'", text)


def _trace(failure: Failure) -> str:
    """Where it happened, and what the exception says as in `_reason`."""
    text, said = failure.getTraceback(), failure.getErrorMessage()
    return text.replace(said, _reason(failure)) if said else text


def _mdc(event: LogEvent) -> dict[str, str]:
    fields: dict[str, str] = {}
    for key, value in event.items():
        if key.startswith("log_") or key in _NOT_MDC:
            continue
        if isinstance(value, (str, int, float)):
            fields[key] = "***" if _SECRET_NAME.search(key) else _masked(str(value))
    return fields


def _masked(text: str) -> str:
    # The two substring tests keep the expression off the common line.
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
