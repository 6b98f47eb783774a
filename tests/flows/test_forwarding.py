"""Received messages are sent on to two systems, through kills of the service and receivers that fail.

Each receiver gets every message, in the order of receipt; the one that is away gets them when it is back.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import socketserver
import threading
import time
from collections.abc import Callable
from typing import Any

from hl7.client import MLLPClient
from twisted.trial.unittest import TestCase

from ipf.hl7.framing import Framer, frame
from ipf.hl7.header import scan_header
from tests.faults.feed import admission
from tests.faults.scenario import scratch
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE, free_port
from tests.wire.admin.operators import check

GROUP = "kills"
MESSAGES = 240
CONFIG = """
[[destination]]
name = "registry"
endpoint = "tcp:127.0.0.1:{0}"
types = ["ADT_*"]

[[destination]]
name = "archive"
endpoint = "tcp:127.0.0.1:{1}"
set = {{"MSH-5" = "ARCHIVE"}}
"""


class Receiver:
    """A receiver with faults: it hangs up before or after it has a message, and answers AE, or AR to one of them."""

    def __init__(self, port: int, seed: int, refused: str = "") -> None:
        self.chance = random.Random(seed)
        self.refused = refused
        self.calm = seed == 0
        self.taken: list[str] = []
        self.messages: list[bytes] = []
        receiver = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                framer = Framer()
                with contextlib.suppress(ConnectionError):  # the service was killed
                    while data := self.request.recv(65536):
                        for event in framer.feed(data):
                            if not isinstance(event, bytes) or not receiver.answer(self.request, event):
                                return

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, request: Any, message: bytes) -> bool:
        """Take a message, or not; False: the connection ends."""
        id = scan_header(message).source_id
        fault = "" if self.calm or self.chance.random() > 0.05 else self.chance.choice(("before", "after", "AE"))
        if fault == "before":
            return False
        code = "AR" if id == self.refused else fault if fault == "AE" else "AA"
        if code == "AA" and id not in self.taken:
            self.taken.append(id)
            self.messages.append(message)
        if fault == "after":
            return False
        request.sendall(frame(f"MSH|^~\\&|R|R|I|I|2026||ACK|1|P|2.5\rMSA|{code}|{id}\r".encode()))
        return True

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()


class ForwardingFlowTests(TestCase):
    timeout = 2 * PATIENCE

    def setUp(self) -> None:
        self.folder = scratch()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.ports = free_port(), free_port()
        (self.folder / "forward.toml").write_text(CONFIG.format(*self.ports))
        self.service = ServiceProcess(self.folder / "service", IPF_FORWARD_FILE=str(self.folder / "forward.toml"))
        self.service.start()
        self.addCleanup(self.service.stop)
        self.service.wait_ready()

    def receiver(self, port: int, seed: int, refused: str = "") -> Receiver:
        made = Receiver(port, seed, refused)
        self.addCleanup(made.stop)
        return made

    def send(self, *ids: str) -> None:
        """By a client that is not ours; each message is acknowledged."""
        with MLLPClient("127.0.0.1", self.service.mllp_port) as client:
            for id in ids:
                answer = client.send(admission(id, "P1", "+47"))
                self.assertIn(f"MSA|AA|{id}".encode(), answer)

    def shown(self) -> dict[str, Any]:
        status, body = self.service.get("/admin/destinations")
        check("GET", "/admin/destinations", status, body)
        return {one["name"]: one for one in body["items"]}

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        pause = getattr(time, "sleep")  # noqa: B009  # blocking on purpose: there is no reactor here
        while not condition():
            self.assertLess(time.monotonic(), deadline, json.dumps(self.shown()))
            pause(0.05)

    def test_each_receiver_gets_everything_in_order(self) -> None:
        self.wait(lambda: set(self.shown()) == {"registry", "archive"} and all(
            one["last_error"] is None for one in self.shown().values()))  # fmt: skip
        registry = self.receiver(self.ports[0], 5, refused="M7")
        ids = [f"M{number}" for number in range(MESSAGES)]
        for start in range(0, MESSAGES, MESSAGES // 4):
            self.send(*ids[start : start + MESSAGES // 4])
            self.wait(lambda count=start: len(registry.taken) > count)  # type: ignore[misc]
            self.service.kill()
            self.service.start()
            self.service.wait_ready()
        registry.calm = True
        self.wait(lambda: len(registry.taken) == MESSAGES - 1)
        self.assertEqual(registry.taken, [one for one in ids if one != "M7"])
        self.assertEqual(self.shown()["archive"]["sent"], 0)
        _, health = self.service.get("/actuator/health")
        self.assertEqual(health["components"]["forwarding"]["status"], "DOWN")
        archive = self.receiver(self.ports[1], 0)
        self.service.request("POST", "/admin/destinations/archive/resume")
        self.wait(lambda: len(archive.taken) == MESSAGES)
        self.assertEqual(archive.taken, ids)
        self.assertEqual({scan_header(one).field(5) for one in archive.messages}, {"ARCHIVE"})
        self.check_the_ledger(registry)

    def check_the_ledger(self, registry: Receiver) -> None:
        """One dead letter, which an operator sends again."""
        self.wait(lambda: all(one["pending"] == 0 for one in self.shown().values()))
        counts = {name: (one["sent"], one["dead_letters"]) for name, one in self.shown().items()}
        self.assertEqual(counts, {"registry": (MESSAGES - 1, 1), "archive": (MESSAGES, 0)})
        status, dead = self.service.get("/admin/destinations/registry/messages?status=DEAD_LETTER")
        check("GET", "/admin/destinations/registry/messages", status, dead)
        self.assertEqual([(one["source_id"], one["code"]) for one in dead["items"]], [("M7", "AR")])
        registry.refused = ""
        self.assertEqual(self.service.request("POST", "/admin/destinations/registry/retry")[1], {"retried": 1})
        self.wait(lambda: registry.taken[-1] == "M7")
