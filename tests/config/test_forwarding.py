"""`IPF_FORWARD_FILE`: what is read, and each mistake with its place."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.config.forwarding import read_destinations
from ipf.errors import Problem
from ipf.ports.messages.forwards import Destination

EXAMPLE = Path(__file__).resolve().parents[2] / "etc/forward.toml"
HEAD = '[[destination]]\nname = "lab"\n'
TCP = HEAD + 'endpoint = "tcp:h:1"\n'


class ForwardingTests(TestCase):
    def read(self, text: str) -> list[dict[str, Any]]:
        path = Path(self.mktemp())
        path.write_text(text, encoding="utf-8")
        return read_destinations(path)

    def test_the_example(self) -> None:
        first, second = (Destination(**one) for one in read_destinations(EXAMPLE))
        self.assertEqual((first.name, first.host, first.port, first.tls, first.types),
                         ("laboratory", "10.0.0.7", 2575, False, ("ADT_*", "ORM_O01")))  # fmt: skip
        self.assertEqual((second.tls, second.max_attempts, second.remove, second.key),
                         (True, 20, ("Z*",), Path("/etc/ipf/ipf.key")))  # fmt: skip
        self.assertEqual(dict(second.changes)["PV1-50"], "{PV1-19}")

    def test_values(self) -> None:
        (made,) = self.read(HEAD + 'endpoint = "tls:[::1]:99"\nsince = 2026-01-01T00:00:00\nack_seconds = 5\n')
        self.assertEqual((made["host"], made["port"], made["since"], made["ack_seconds"]),
                         ("::1", 99, datetime(2026, 1, 1, tzinfo=UTC), 5.0))  # fmt: skip

    def test_mistakes(self) -> None:
        for text, reason in (
            ("x = 1", "[[destination]]"),
            ("[", "is no TOML"),
            ('destination = ["x"]', "must be a table"),
            ('[[destination]]\nendpoint = "tcp:h:1"', "name must be"),
            ('[[destination]]\nname = "Lab X"', "name must be"),
            (HEAD, "endpoint must be"),
            (HEAD + 'endpoint = "h:1"', "endpoint must be"),
            (TCP + "colour = 1", "unknown key colour"),
            (TCP + 'ca = "x"', "need an endpoint tls"),
            (HEAD + 'endpoint = "tls:h:1"\nkey = "x"', "belong together"),
            (TCP + 'types = "ADT_A01"', "types must be a list"),
            (TCP + 'types = ["ADT^A01"]', "ADT^A01 is none of"),
            (TCP + 'remove = ["Z"]', "Z is none of"),
            (TCP + 'set = {"MSH-10" = "1"}', "MSH-10 is no field"),
            (TCP + 'set = {"PID" = "1"}', "PID is no field"),
            (TCP + 'set = {"PID-3" = 1}', "must be a text"),
            (TCP + "where = 1", "where must be"),
            (TCP + 'compute = {"MSH-9" = "1"}', "compute: MSH-9 is no field"),
            (TCP + "ack_seconds = 61", "from 0.1 to 60"),
            (TCP + "max_attempts = true", "must be a number"),
            (TCP + 'since = "soon"', "must be a time"),
            (TCP + TCP, "two destinations of the name lab"),
        ):
            with self.assertRaises(Problem, msg=text) as raised:
                self.read(text)
            self.assertIn(reason, str(raised.exception), text)

    def test_a_file_that_is_not_there(self) -> None:
        with self.assertRaises(Problem):
            read_destinations(Path("/no/such/file.toml"))
