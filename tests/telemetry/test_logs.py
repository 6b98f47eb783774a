"""Log records have the fields of the specification."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable

from twisted.logger import Logger, LogLevel, LogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.telemetry.logs import LogWriter, event_line, level_named


def logged(write: Callable[[Logger], object], level: str = "TRACE", human: bool = False) -> list[str]:
    """The lines that `write` causes."""
    stream = io.BytesIO()
    write(Logger("ipf.test", observer=LogPublisher(LogWriter(stream, level_named(level), human))))
    return stream.getvalue().decode().split("\n")[:-1]


def record(write: Callable[[Logger], object]) -> dict[str, object]:
    """The one record that `write` causes."""
    (line,) = logged(write)
    return json.loads(line)


class RecordTests(TestCase):
    def test_required_fields(self) -> None:
        body = record(lambda log: log.info("hello {name}", name="there"))
        self.assertRegex(str(body.pop("@timestamp")), r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual(
            body,
            {
                "@version": "1",
                "level": "INFO",
                "level_value": 20000,
                "logger_name": "ipf.test",
                "thread_name": "MainThread",
                "schema_version": "1.0",
                "message": "hello there",
                "mdc": {"name": "there"},
            },
        )

    def test_levels_are_a_closed_set(self) -> None:
        for level, expected in (
            (LogLevel.debug, ("DEBUG", 10000)),
            (LogLevel.info, ("INFO", 20000)),
            (LogLevel.warn, ("WARN", 30000)),
            (LogLevel.error, ("ERROR", 40000)),
            (LogLevel.critical, ("ERROR", 40000)),
        ):
            body = record(lambda log, level=level: log.emit(level, "x"))
            self.assertEqual((body["level"], body["level_value"]), expected)

    def test_correlation_id_only_where_there_is_one(self) -> None:
        self.assertEqual(record(lambda log: log.info("x", correlation_id="c"))["correlation_id"], "c")
        self.assertNotIn("correlation_id", record(lambda log: log.info("x", correlation_id=None)))

    def test_a_failure_carries_its_stack_trace_on_one_line(self) -> None:
        def fail(log: Logger) -> None:
            try:
                raise ValueError("Bearer abc")
            except ValueError:
                log.failure("it broke")

        body = record(fail)
        self.assertEqual((body["level"], body["message"]), ("ERROR", "it broke"))
        self.assertIn("\n", str(body["stack_trace"]))
        self.assertIn("ValueError: Bearer ***", str(body["stack_trace"]))

    def test_a_failure_without_text_shows_the_exception(self) -> None:
        body = record(lambda log: log.emit(LogLevel.critical, None, log_failure=Failure(ValueError("why"))))
        self.assertEqual(body["message"], "why")

    def test_extra_fields_are_strings_in_mdc(self) -> None:
        body = record(lambda log: log.info("x", port=2575, ok=True, ratio=0.5, thing=object(), names=["a"], none=None))
        self.assertEqual(body["mdc"], {"port": "2575", "ok": "True", "ratio": "0.5"})

    def test_secrets_are_redacted(self) -> None:
        body = record(
            lambda log: log.warn(
                "connect {url} with Authorization: Bearer e30.e30.x",
                url="postgresql://ipf:hunter2@db/ipf",
                admin_token="t0ps3cret",
            )
        )
        self.assertEqual(body["message"], "connect postgresql://ipf:***@db/ipf with Authorization: Bearer ***")
        self.assertNotIn("hunter2", json.dumps(body))
        self.assertNotIn("t0ps3cret", json.dumps(body))
        plain = "see http://host:8090/x and mail@example.org, basic metabolic panel"
        self.assertEqual(record(lambda log: log.info(plain))["message"], plain)

    def test_unusual_text(self) -> None:
        for text in ('tab\tquote"back\\slash\nline', "\ud800 alone", "\x00\x1b", "{", "}", "{0}", "ünïcode 😀"):
            body = record(lambda log, text=text: log.info("{text}", text=text))
            self.assertEqual(body["message"], text.encode("utf-8", "replace").decode())
        self.assertIn("missing", str(record(lambda log: log.info("a {missing} field"))["message"]))

    def test_levels_below_the_limit_are_not_written(self) -> None:
        def all_levels(log: Logger) -> None:
            log.debug("d")
            log.info("i")
            log.warn("w")
            log.error("e")

        for level, count in (("TRACE", 4), ("debug", 4), ("INFO", 3), ("WARN", 2), ("ERROR", 1)):
            self.assertEqual(len(logged(all_levels, level)), count)
        self.assertRaises(ValueError, level_named, "loud")

    def test_text_for_terminals(self) -> None:
        (line,) = logged(lambda log: log.info("hello", correlation_id="c-1"), human=True)
        self.assertRegex(line, r"^\d\d:\d\d:\d\d\.\d{3} INFO  ipf\.test +hello \[c-1\]$")

    def test_a_closed_stream_raises_nothing(self) -> None:
        stream = io.BytesIO()
        writer = LogWriter(stream)
        stream.close()
        writer({"log_level": LogLevel.info, "log_format": "x"})

    def test_lines_of_one_turn_are_flushed_together(self) -> None:
        """A warning is flushed at once, with the lines before it."""
        flushed: list[int] = []
        turns: list[Callable[[], None]] = []

        class Stream(io.BytesIO):
            def flush(self) -> None:
                flushed.append(self.getvalue().count(b"\n"))

        log = Logger("ipf.test", observer=LogWriter(Stream(), later=turns.append))
        for line in ("one", "two"):
            log.info(line)
        self.assertEqual((flushed, len(turns)), ([], 1))
        turns.pop()()
        log.info("three")
        log.warn("four")
        self.assertEqual((flushed, len(turns)), ([2, 4], 1))

    def test_an_event_that_cannot_be_rendered_is_reported(self) -> None:
        class Broken(str):
            def __str__(self) -> str:
                raise RuntimeError("no")

        body = record(lambda log: log.info("x", field=Broken("y")))
        self.assertIn("cannot be rendered", str(body["message"]))


class EventLineTests(TestCase):
    def test_tokens(self) -> None:
        for fields, expected in (
            ({}, "event=dlq"),
            ({"message_id": 7, "source_system": "ADT1"}, "event=dlq message_id=7 source_system=ADT1"),
            ({"a": None, "b": True, "c": False, "d": 1.5}, "event=dlq a=null b=true c=false d=1.5"),
            ({"last_error": "no map for ADT_A01"}, 'event=dlq last_error="no map for ADT_A01"'),
            ({"a": 'say "x"\n', "b": "", "c": "k=v"}, 'event=dlq a="say \\"x\\"\\n" b="" c="k=v"'),
            ({"a": "back\\slash", "b": "\u2028\u0085\x7f"}, 'event=dlq a="back\\\\slash" b="\\u2028\\u0085\\u007f"'),
        ):
            self.assertEqual(event_line("dlq", **fields), expected)
        self.assertEqual(event_line("x", name="audit_event", id=1), "audit_event=x id=1")

    def test_values_of_format_lines_are_quoted(self) -> None:
        """A rate-limited line is a format string; its values are quoted as in `event_line`."""
        line = "event=rejected peer={peer} reason={reason} size={size} why={absent} {reason}"
        text = record(lambda log: log.info(line, peer="10.0.0.1", reason='no {MSH}: "x"', size=7))["message"]
        self.assertEqual(text, 'event=rejected peer=10.0.0.1 reason="no {MSH}: \\"x\\"" size=7 why=null no {MSH}: "x"')

    def test_a_line_is_never_a_format(self) -> None:
        line = event_line("dlq", last_error="{0} {boom} }")
        self.assertEqual(record(lambda log: log.info(line))["message"], line)
        self.assertEqual(record(lambda log: log.info("{line}", line=line))["message"], line)

    def test_a_broken_surrogate_is_replaced(self) -> None:
        self.assertEqual(event_line("x", a="\ud800 y"), 'event=x a="? y"')


class QuotedTests(TestCase):
    """Text that an exception quotes may be patient data."""

    def test_quoted_text_of_exceptions_is_redacted(self) -> None:
        mark = "PHI" + "MARK"  # not a literal: the trace shows source lines
        missing = f"/nowhere/{mark}"
        steps: tuple[Callable[[], object], ...] = (lambda: float(mark), lambda: {}[mark], lambda: os.stat(missing))
        for step in steps:
            try:
                step()
            except Exception:
                failure = Failure()
            lines = "\n".join(logged(lambda log: log.failure("a step failed", failure)))  # noqa: B023
            self.assertNotIn(mark, lines)
            self.assertIn("test_logs.py", lines)
            self.assertIn(failure.type.__name__, lines)

    def test_texts_of_problems_stay_whole(self) -> None:
        body = record(lambda log: log.failure("refused", Failure(Problem(Category.VALUE, "no map 'ADT_A01'"))))
        self.assertIn("no map 'ADT_A01'", str(body["stack_trace"]))
