"""What a service talks to, on real sockets, in threads: web hook, mailbox, FHIR server, receiver of messages."""

from __future__ import annotations

import contextlib
import json
import random
import socketserver
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from aiosmtpd.controller import Controller

from ipf.hl7.framing import Framer, frame
from ipf.hl7.header import scan_header
from tests.waiting import free_port

Answer = tuple[int, object]


class Request(NamedTuple):
    """What an HTTP server was sent; the names of `headers` in small letters."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class HttpServer:
    """Answers each request with status and JSON of `answer`.  `port`: of 127.0.0.1; 0: one that is free."""

    def __init__(self, answer: Callable[[Request], Answer], port: int = 0) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                status, answered = answer(Request(self.command, self.path, headers, body))
                payload = b"" if answered is None else json.dumps(answered).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/fhir+json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            do_GET = do_POST = do_PUT = do_DELETE = _answer

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.handle_error = lambda request, address: None  # type: ignore[method-assign]  # a client hangs up
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()


class Hook(HttpServer):
    """A subscriber's web server: remembers every request.  `refusals`: a status for paths that start so."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.refusals: dict[str, int] = {}
        super().__init__(self._take)

    def _take(self, request: Request) -> Answer:
        self.requests.append(request)
        return next((code for path, code in self.refusals.items() if request.path.startswith(path)), 200), None

    def at(self, path: str) -> list[Request]:
        """The requests so far whose path starts so."""
        return [one for one in self.requests if one.path.startswith(path)]


class Mailbox:
    """A mail server on a free port: keeps every mail."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self._server = Controller(self, hostname="127.0.0.1", port=free_port())
        self._server.start()
        self.port = self._server.port

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """aiosmtpd has a mail."""
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return "250 OK"

    def to(self, address: str) -> list[EmailMessage]:
        """The mails to an address so far."""
        return [one for one in self.mails if one["To"] == address]

    def stop(self) -> None:
        """Close the port."""
        self._server.stop()


class FhirServer(HttpServer):
    """Searches by `_lastUpdated` in pages, for those who have the token `t`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[datetime, dict[str, Any]]] = {}
        super().__init__(self._search)

    def store(self, resource: dict[str, Any]) -> str:
        """Store the next version of a resource; its key, such as `Patient/p1/2`."""
        name = f"{resource['resourceType']}/{resource['id']}"
        with self._lock:
            last = self._held.get(name)
            version = str(int(last[1]["meta"]["versionId"]) + 1 if last else 1)
            now = datetime.now(UTC)
            self._held[name] = now, resource | {"meta": {"versionId": version, "lastUpdated": now.isoformat()}}
        return f"{name}/{version}"

    def _search(self, request: Request) -> Answer:
        if request.headers.get("authorization") != "Bearer t":
            return 401, {"resourceType": "OperationOutcome"}
        url = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        kind, since = url.path.rpartition("/")[2], datetime.fromisoformat(query["_lastUpdated"].removeprefix("gt"))
        with self._lock:
            held = sorted(self._held.values(), key=lambda one: one[0])
        found = [one for moment, one in held if one["resourceType"] == kind and moment > since]
        start, count = int(query.get("offset", 0)), int(query["_count"])
        bundle: dict[str, Any] = {"resourceType": "Bundle", "type": "searchset"}
        bundle["entry"] = [{"resource": one} for one in found[start : start + count]]
        if len(found) > start + count:
            here = self.url + request.path.partition("&offset=")[0]
            bundle["link"] = [{"relation": "next", "url": f"{here}&offset={start + count}"}]
        return 200, bundle


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
