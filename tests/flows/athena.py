"""A practice's REST API in memory, on a real socket: OAuth2, changes that are handed out once, pages, limits, faults.

Each change is handed out once, by `/v1/1/patients/changed`; `showprocessedstartdatetime` repeats what was handed out
from then on.  Tokens end after some requests; now and then a request is refused with 429 or 503, or its answer is lost
on its way.
"""

from __future__ import annotations

import json
import random
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

ZONE, TIME = ZoneInfo("America/New_York"), "%m/%d/%Y %H:%M:%S"
PAGE, REQUESTS_OF_A_TOKEN = 5, 7
SECRET = "s3cret"


class Practice:
    """The state of the API.  `port`: where it listens."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.lock = threading.Lock()
        self.versions: dict[int, int] = {}
        self.waiting: list[tuple[int, int]] = []
        self.handed_out: list[tuple[datetime, int, int]] = []
        self.tokens = 0
        self.left = 0
        self.faults: dict[str, int] = dict.fromkeys(("429", "503", "lost", "401"), 0)
        self.calm = False
        practice = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                practice.get(self)

            def do_POST(self) -> None:
                practice.token(self)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()

    def change(self, number: int) -> None:
        """A patient is created, or changed."""
        with self.lock:
            self.versions[number] = self.versions.get(number, 0) + 1
            self.waiting.append((number, self.versions[number]))

    def token(self, request: Any) -> None:
        """`POST /oauth2/token`."""
        form = parse_qs(request.rfile.read(int(request.headers["Content-Length"])).decode())
        if form.get("client_secret") != [SECRET] or form.get("client_id") != ["me"]:
            _answer(request, 401, {"error": "invalid_client"})
            return
        with self.lock:
            self.tokens, self.left = self.tokens + 1, REQUESTS_OF_A_TOKEN
            name = f"token-{self.tokens}"
        _answer(request, 200, {"access_token": name, "expires_in": 3600})

    def get(self, request: Any) -> None:
        """A page of changes, or a fault."""
        with self.lock:
            if not self._is_authorized(request):
                self.faults["401"] += 1
                _answer(request, 401, {})
                return
            fault = None if self.calm or self.chance.random() > 0.2 else self.chance.choice(("429", "503", "lost"))
            if fault in ("429", "503"):
                self.faults[fault] += 1
                _answer(request, int(fault), {}, ("Retry-After", "1"))
                return
            body = self._page(urlsplit(request.path))
        if fault == "lost":
            self.faults[fault] += 1
            request.connection.close()
            return
        _answer(request, 200, body)

    def _is_authorized(self, request: Any) -> bool:
        self.left -= 1
        return self.left >= 0 and request.headers.get("Authorization") == f"Bearer token-{self.tokens}"

    def _page(self, url: Any) -> Any:
        assert url.path == "/v1/1/patients/changed", url
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        start = int(query.get("offset", 0))
        if "showprocessedstartdatetime" in query:
            low, high = (
                datetime.strptime(query[f"showprocessed{name}datetime"], TIME).replace(tzinfo=ZONE)
                for name in ("start", "end")
            )
            found = [(number, version) for moment, number, version in self.handed_out if low <= moment <= high]
            page, more = found[start : start + PAGE], len(found) > start + PAGE
            kept = f"?{url.query.partition('&offset=')[0]}&offset={start + PAGE}"
        else:
            page, self.waiting = self.waiting[:PAGE], self.waiting[PAGE:]
            self.handed_out += [(datetime.now(UTC), *one) for one in page]
            more, kept = bool(self.waiting), f"?page={len(self.handed_out)}"
        body: Any = {"patients": [_record(*one) for one in page], "totalcount": len(page)}
        return {**body, "next": f"{url.path}{kept}"} if more else body


def _record(number: int, version: int) -> Any:
    return {"patientid": str(number), "practiceid": "1", "lastname": f"Name{number}", "email": f"{version}@test",
            "lastmodified": version}  # fmt: skip


def _answer(request: Any, status: int, body: Any, *headers: tuple[str, str]) -> None:
    payload = json.dumps(body).encode()
    try:
        request.send_response(status)
        for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(payload))), *headers):
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(payload)
    except OSError:
        pass  # the client was killed
