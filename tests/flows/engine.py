"""The service that the flows of `bin/test` share.

The first test that asks starts it, and it ends with the worker process.  A module that uses it says
`FAMILY = "engine"`, so that all of them run in one process.  Its settings suit all of these flows.  Each flow has
senders, patients, listeners and subscriptions of its own, and looks at nothing else: totals belong to nobody.
"""

from __future__ import annotations

import atexit
import http.client
import shutil
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from hl7.client import MLLPClient
from twisted.trial.unittest import TestCase

from tests.faults.feed import admission
from tests.faults.scenario import scratch
from tests.flows.athena import Practice
from tests.flows.far_ends import FhirServer, Hook, Mailbox
from tests.flows.polled import CREDENTIALS, profiles
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE, block_until, free_port

T = TypeVar("T")
TOKEN = "sender-0123456789"
"""What HL7 v2 over HTTP asks for."""
_DESTINATIONS = """
[[destination]]
name = "registry"
endpoint = "tcp:127.0.0.1:{0}"
senders = ["FORWARDED"]

[[destination]]
name = "archive"
endpoint = "tcp:127.0.0.1:{1}"
senders = ["FORWARDED"]
set = {{"MSH-5" = "ARCHIVE"}}
"""
_ENDS_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
os.execv(sys.argv[1], sys.argv[1:])
"""


class Engine(ServiceProcess):
    """The service with all its sources and far ends.

    `lab`: the port of HL7 over HTTP; `closed`: another, where only a foreign network may connect.  `watched`: the
    folder of the file source `drop`.  `destinations`: the ports of `registry` and `archive`, where nobody listens yet.
    """

    def __init__(self) -> None:
        folder = scratch()
        self.hook, self.mailbox, self.ehr, self.practice = Hook(), Mailbox(), FhirServer(), Practice(3)
        self.practice.calm = True
        self.lab, self.closed = free_port(), free_port()
        self.destinations = free_port(), free_port()
        self.watched = folder / "drop"
        self.watched.mkdir()
        profiles(folder / "profiles", f"{self.ehr.url}/fhir", self.practice.port)
        (folder / "forward.toml").write_text(_DESTINATIONS.format(*self.destinations))
        super().__init__(
            folder,
            IPF_WORKER_PROCESSES="1",
            IPF_CONVERTER_NICE="3",
            IPF_HL7_HTTP_LISTEN=f"lab=tcp:{self.lab} closed=tcp:{self.closed}",
            IPF_HL7_HTTP_TOKEN=TOKEN,
            IPF_MLLP_ALLOW="closed=10.9.8.0/24",
            IPF_FILE_SOURCES=f"drop={self.watched}",
            IPF_FILE_POLL_SECONDS="0.1",
            IPF_PROFILE_DIR=str(folder / "profiles"),
            IPF_FORWARD_FILE=str(folder / "forward.toml"),
            IPF_SMTP_URL=f"smtp://127.0.0.1:{self.mailbox.port}?from=ipf@example.org",
            IPF_BACKOFF_BASE_MS="50",
            IPF_MAX_ATTEMPTS="2",
            SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_BASE_MS="50",
            SUBSCRIPTION_SERVICE_DELIVERY_MAX_ATTEMPTS="3",
            SUBSCRIPTION_SERVICE_DELIVERY_TIMEOUT_MS="120000",  # what is slow to answer is not sent again
            **CREDENTIALS,
        )

    def command(self) -> list[str]:
        """It ends with the worker also when that is killed."""
        return [sys.executable, "-c", _ENDS_WITH_PARENT, *super().command()]

    def close(self) -> None:
        """End everything."""
        self.stop()
        for far_end in (self.hook, self.mailbox, self.ehr, self.practice):
            far_end.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def _started() -> Engine:
    """With a subscription that stays: the service counts those that are active only every 20 seconds."""
    made = Engine()
    made.start()
    atexit.register(made.close)
    made.wait_ready()
    made.request("POST", "/fhir/Subscription", {
        "resourceType": "Subscription", "status": "requested", "reason": "counted", "criteria": "Basic?code=nowhere",
        "channel": {"type": "rest-hook", "endpoint": f"{made.hook.url}/never"},
    })  # fmt: skip
    return made


def from_sender(sender: str, control_id: str, patient: str, phone: str = "+47") -> bytes:
    """An ADT^A01 without its frame."""
    return admission(control_id, patient, phone).strip(b"\x0b\x1c\r").replace(b"|FEED|", f"|{sender}|".encode()) + b"\r"


class EngineTestCase(TestCase):
    """Tests of the shared engine, which block: the engine is another process, and far ends run in threads."""

    def setUp(self) -> None:
        self.engine = _started()
        self.engine.wait_ready()

    def wait(self, condition: Callable[[], T], what: str = "") -> T:
        """As `block_until`; the end of the log says why not."""
        try:
            return block_until(condition, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.engine.log_tail()}") from None

    def send(self, *messages: bytes) -> list[list[bytes]]:
        """Send messages over MLLP, by a client that is not ours; the segments of each answer."""
        with MLLPClient("127.0.0.1", self.engine.mllp_port) as client:
            return [client.send_message(one).strip(b"\x0b\x1c\r").split(b"\r") for one in messages]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The body of an answer that is no error."""
        status, answer = self.engine.request(method, path, body)
        self.assertLess(status, 300, answer)
        return answer

    def listed(self, query: str) -> list[Any]:
        """The messages that a query finds, at most 200, the latest first."""
        items: list[Any] = self.ask("GET", f"/admin/messages?limit=200&{query}")["items"]
        return items

    def row(self, sender: str, source_id: str, status: str) -> Any:
        """The message, once it has this status."""
        query = f"source_system={sender}&source_id={source_id}&status={status}"
        return self.wait(lambda: self.listed(query), f"{source_id} is {status}")[0]

    def found(self, search: str) -> list[Any]:
        """The resources that a search finds."""
        return [one["resource"] for one in self.ask("GET", f"/fhir/{search}").get("entry", ())]

    def subscribe(self, channel: dict[str, Any], criteria: str, **members: Any) -> Any:
        """The Subscription, once it is decided whether it is active; it is deleted when the test ends."""
        made = {
            "resourceType": "Subscription", "status": "requested", "reason": "flow", "criteria": criteria,
            "channel": channel, **members,
        }  # fmt: skip
        path = f"/fhir/Subscription/{self.ask('POST', '/fhir/Subscription', made)['id']}"
        self.addCleanup(self.engine.request, "DELETE", path)

        def decided() -> Any:
            found = self.ask("GET", path)
            return found["status"] != "requested" and found

        return self.wait(decided, f"{path} is decided")

    def post(
        self, port: int, body: bytes, kind: str, method: str = "POST", path: str = "/", **headers: str
    ) -> tuple[int, bytes]:
        """Send something over HTTP to another listener; status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {"Content-Type": kind} | headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
