"""Services and clients of the tests that are written from the specification's text: nothing of ours but the process."""

from __future__ import annotations

import atexit
import base64
import json
import os
import shutil
import socket
import ssl
import struct
import urllib.request
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError

from twisted.trial.unittest import TestCase

from tests.faults.scenario import scratch
from tests.flows.far_ends import Hook
from tests.flows.few_maps import few_maps
from tests.flows.idp import OwnProvider
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE, block_until
from tests.wire.certificates import Authority

T = TypeVar("T")
ADMIN = "only-operators-know-this"


class Deployment:
    """A started service.  `given`: variables beside the ports, the folder of data, few maps, and short pauses."""

    def __init__(self, **given: str) -> None:
        self.folder = scratch()
        short = {"IPF_WORKER_PROCESSES": "0", "IPF_BACKOFF_BASE_MS": "20", "IPF_MAPS_DIR": str(few_maps())}
        self.service = ServiceProcess(self.folder / "service", **short, **given)
        environment = self.service.environment
        environment["IPF_HTTP_LISTEN"] = f"tcp:{self.service.http_port}"  # as the specification has them: a port
        environment["IPF_MLLP_LISTEN"] = f"tcp:{self.service.mllp_port}"
        if "SUBSCRIPTION_SERVICE_CHANNEL_SECURITY" not in given:
            del environment["SUBSCRIPTION_SERVICE_CHANNEL_SECURITY"]
        self.service.start()
        atexit.register(self.stop)
        self.service.wait_ready()

    def stop(self) -> None:
        """End it."""
        self.service.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """One request; status and body."""
        return self.service.request(method, path, body, {name.replace("_", "-"): one for name, one in headers.items()})

    def head(self, path: str, **headers: str) -> tuple[int, dict[str, str]]:
        """The status and the headers of an answer to GET; the names in small letters."""
        asked = urllib.request.Request(self.service.base_url + path, headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                return answer.status, {name.lower(): value for name, value in answer.headers.items()}
        except HTTPError as refused:
            return refused.code, {name.lower(): value for name, value in refused.headers.items()}

    def records(self) -> list[dict[str, Any]]:
        """The log so far, one JSON record a line."""
        lines = self.service.log_path.read_bytes().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    def line(self, text: str) -> dict[str, Any]:
        """The first record whose message has this text, once it is there."""
        return block_until(lambda: next((one for one in self.records() if text in one["message"]), None), text)

    def send(self, message: bytes, host: str = "127.0.0.1") -> list[bytes]:
        """Send one message over MLLP on a plain socket; the segments of the answer."""
        with socket.create_connection((host, self.service.mllp_port), PATIENCE) as sender:
            sender.sendall(b"\x0b" + message + b"\x1c\r")
            answer = b""
            while not answer.endswith(b"\x1c\r"):
                received = sender.recv(65_536)
                assert received, "the service hung up"
                answer += received
        assert answer.startswith(b"\x0b"), answer
        return answer.strip(b"\x0b\x1c\r").split(b"\r")

    def message(self, source_id: str, *statuses: str, **headers: str) -> dict[str, Any]:
        """The row of a message, once it has one of these statuses."""

        def found() -> Any:
            items = self.ask("GET", f"/admin/messages?source_id={source_id}", **headers)[1]["items"]
            return items[0] if items and (not statuses or items[0]["status"] in statuses) else None

        return block_until(found, f"{source_id} is {statuses}")


def hl7(kind: str, control_id: str, *segments: str, sender: str = "WARD") -> bytes:
    """A message with segments after MSH, each ended by a carriage return."""
    head = f"MSH|^~\\&|{sender}|GENERAL|IPF|IPF|20260102030405||{kind}|{control_id}|P|2.5.1"
    return ("\r".join((head, *segments)) + "\r").encode()


def admission(control_id: str, number: str, sender: str = "WARD") -> bytes:
    """An ADT^A01 of a patient."""
    event, patient = "EVN|A01|20260102030405", f"PID|1||{number}^^^GENERAL^MR||Hansen^Kari||19700315|F"
    visit = f"PV1|1|I|W3^301^2||||D1^Solberg|||||||||||V{number}^^^GENERAL^VN"
    return hl7("ADT^A01^ADT_A01", control_id, event, patient, visit, sender=sender)


class Websocket:
    """A client of RFC 6455 on a plain socket: text messages of less than 126 bytes to the service."""

    def __init__(self, port: int, **headers: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            "GET /websocket HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13",
            *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()), "", "",
        ]  # fmt: skip
        self._socket.sendall("\r\n".join(lines).encode())
        self._received = b""
        self.status = int(self._until(b"\r\n\r\n").split(b" ")[1])

    def send(self, text: str) -> None:
        """A text message."""
        mask, payload = os.urandom(4), text.encode()
        masked = bytes(one ^ mask[number % 4] for number, one in enumerate(payload))
        self._socket.sendall(bytes((0x81, 0x80 | len(payload))) + mask + masked)

    def receive(self) -> str:
        """The next text message."""
        while True:
            first, length = self._exactly(2)
            if length == 126:
                (length,) = struct.unpack("!H", self._exactly(2))
            payload = self._exactly(length)
            if first & 0x0F == 1:
                return payload.decode()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _until(self, end: bytes) -> bytes:
        while end not in self._received:
            self._more()
        found, _, self._received = self._received.partition(end)
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            self._more()
        found, self._received = self._received[:size], self._received[size:]
        return found

    def _more(self) -> None:
        received = self._socket.recv(65_536)
        assert received, "the service hung up"
        self._received += received


class SecureHook(Hook):
    """A subscriber with a certificate of an authority, on an address of this host."""

    def __init__(self, authority: Authority) -> None:
        super().__init__()
        key, certificate = authority.sign("localhost")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = self.url.replace("http:", "https:")


@cache
def default_mode() -> Deployment:
    """A service without any setting of security, which all tests share."""
    return Deployment()


@cache
def with_issuer() -> tuple[Deployment, OwnProvider, SecureHook]:
    """A service with an issuer, an admin token and mode strict; its provider, and a subscriber that it trusts."""
    provider, folder = OwnProvider(), Path(scratch())
    authority = Authority(folder)
    hook = SecureHook(authority)
    for stop in (provider.stop, hook.stop, lambda: shutil.rmtree(folder, ignore_errors=True)):
        atexit.register(stop)
    deployment = Deployment(
        SUBSCRIPTION_SERVICE_AUTH_ISSUER=provider.issuer,
        SUBSCRIPTION_SERVICE_VALIDATION_MODE="warn",
        IPF_ADMIN_AUTH_TOKEN=ADMIN,
        SSL_CERT_FILE=str(authority.path),
    )
    return deployment, provider, hook


class SpecificationTest(TestCase):
    """Tests that block: the service is another process, and far ends run in threads."""

    maxDiff = None

    def wait(self, condition: Callable[[], T | None], what: str = "") -> T:
        """As `block_until`."""
        found = block_until(condition, what)
        assert found is not None
        return found
