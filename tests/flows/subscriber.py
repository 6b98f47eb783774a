"""A subscriber and an operator as the interface specification describes them, for `test_specification_subscriber.py`.

Web server over TLS, websocket client, HTTP client with a bearer token.  Nothing here knows more than that document.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from autobahn.twisted.websocket import WebSocketClientFactory
from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.trial.unittest import TestCase

from tests.faults.scenario import scratch
from tests.service_process import ServiceProcess
from tests.waiting import block_until
from tests.wire.certificates import Authority
from tests.wire.channels.test_websocket import Caller

T = TypeVar("T")
SECRET = "Bearer subscriber-s3cret"
JSON = "application/fhir+json"
TOPIC = "http://example.org/topics/patient-changes"
SUBSCRIPTION_TOPIC = {
    "resourceType": "SubscriptionTopic", "url": TOPIC, "title": "Patients", "status": "active",
    "resourceTrigger": [{"resource": "Patient", "supportedInteraction": ["create", "update"]}],
}  # fmt: skip


class Sent(NamedTuple):
    """One notification; the names of `headers` in small letters."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class WebHook:
    """{callback_url}: a web server over TLS.  `status`: what it answers."""

    def __init__(self, authority: Authority, host: str = "127.0.0.1") -> None:
        self.sent: list[Sent] = []
        self.status = 200
        hook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                hook.sent.append(Sent(self.command, self.path, headers, body))
                self.send_response(hook.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_PUT = _answer

            def log_message(self, *_: object) -> None:
                """Nothing."""

        key, certificate = authority.sign(host)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.handle_error = lambda request, address: None  # type: ignore[method-assign]  # a client hangs up
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def at(self, path: str) -> list[Sent]:
        """The requests so far at this path and below."""
        return [one for one in self.sent if one.path == path or one.path.startswith(f"{path}/")]

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()


def lan_address() -> str:
    """A private address of this machine; loopback where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 9))  # nothing is sent
            found = str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
    return found if ip_address(found).is_private else "127.0.0.1"


class SpecificationCase(TestCase):
    """A started service, a web hook that it trusts, and the sentences that each step checks."""

    service: ServiceProcess
    token: str | None = None

    def begin(self, host: str = "127.0.0.1", **environment: str) -> None:
        """Start the service; channel security is the default, `strict`."""
        folder = scratch()
        self.authority = Authority(folder)
        self.hook = WebHook(self.authority, host)
        self.addCleanup(self.hook.stop)
        self.service = ServiceProcess(
            folder / "service",
            IPF_WORKER_PROCESSES="0",
            SSL_CERT_FILE=str(Path(self.authority.path)),
            SUBSCRIPTION_SERVICE_CHANNEL_SECURITY="strict",
            SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW=f"127.0.0.0/8 {host}/32 example.org",
            SUBSCRIPTION_SERVICE_DELIVERY_MAX_ATTEMPTS="2",
            SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_BASE_MS="50",
            **environment,
        )
        self.service.start()
        self.addCleanup(self.service.stop)
        self.service.wait_ready()

    @contextmanager
    def says(self, section: str, sentence: str) -> Iterator[None]:
        """A failure within it names the section and the sentence."""
        try:
            yield
        except AssertionError as failed:
            raise AssertionError(f'{section}: "{sentence}": {failed}') from failed

    def ask(self, method: str, path: str, body: object = None, token: str | None = None, **headers: str) -> Any:
        """Status and body; a token of the client, unless another one is given ("": none)."""
        bearer = self.token if token is None else token
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if bearer:
            sent["Authorization"] = f"Bearer {bearer}"
        return self.service.request(method, path, body, sent)

    def fhir(self, method: str, path: str, body: object = None, token: str | None = None, **headers: str) -> Any:
        """The body of a FHIR request that succeeds."""
        status, found = self.ask(method, f"/fhir/{path}", body, token, **headers)
        self.assertIn(status, (200, 201), found)
        return found

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """The body of a request to the admin API that succeeds; JSON in and out."""
        status, found = self.ask(
            method, f"/admin/subscriptions/{path}", body, token="", content_type="application/json"
        )
        self.assertEqual(status, 200, found)
        return found

    def channel(self, path: str, *headers: str, **members: Any) -> dict[str, Any]:
        """A rest-hook with the Authorization header that `strict` asks for."""
        found = {"type": "rest-hook", "endpoint": f"{self.hook.url}{path}", "payload": JSON}
        found |= {"header": [f"Authorization: {SECRET}", *headers], **members}
        return {name: value for name, value in found.items() if value is not None}

    def subscription(self, channel: dict[str, Any], criteria: str = "Patient?") -> dict[str, Any]:
        """What a subscriber posts."""
        named = {"resourceType": "Subscription", "status": "requested", "reason": "specification"}
        return {**named, "criteria": criteria, "channel": channel}

    def register(self, channel: dict[str, Any], criteria: str = "Patient?", token: str | None = None) -> str:
        """The id of a Subscription that became active."""
        made = self.fhir("POST", "Subscription", self.subscription(channel, criteria), token)
        id = str(made["id"])
        self.becomes(id, "active", token)
        return id

    def becomes(self, id: str, status: str, token: str | None = None) -> Any:
        """The Subscription when it has this status."""

        def found() -> Any:
            one = self.fhir("GET", f"Subscription/{id}", None, token)
            return one["status"] == status and one

        return block_until(found, f"Subscription/{id} is {status}")

    def wait(self, ask: Callable[[], T], what: str = "") -> T:
        """What `ask` answers as soon as it is true."""
        return block_until(ask, what)

    def notified(self, path: str, count: int = 1) -> list[Sent]:
        """So many notifications at this path."""
        return self.wait(lambda: (len(found := self.hook.at(path)) >= count and found) or [], f"{count} at {path}")

    async def websocket(self, protocol: str | None = None) -> Caller:
        """A client of wss://<host>/websocket, here without TLS."""
        protocols = [protocol] if protocol else None
        factory = WebSocketClientFactory(f"ws://127.0.0.1:{self.service.http_port}/websocket", protocols=protocols)
        factory.noisy, factory.protocol = False, Caller
        caller = await TCP4ClientEndpoint(reactor, "127.0.0.1", self.service.http_port).connect(factory)
        self.addCleanup(lambda: caller.closed)
        self.addCleanup(caller.dropConnection, abort=True)
        await caller.opened
        return caller


def entries_of(body: bytes) -> list[Any]:
    """The resources of a Bundle."""
    return [one.get("resource") for one in json.loads(body)["entry"]]
