"""An identity provider for flow tests: the real one of the reference folder where node is, else a small one of ours.

The real one (`oidc-provider`, versions in `provider/package.json`) is installed once under the temporary folder, and
runs `idp.mjs` of `../shared/reference/oidc`; without npm, a registry or that folder, `OwnProvider` serves the same
addresses with keys of `tests/security/issuer.py`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from functools import cache
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode
from urllib.request import Request, urlopen

import playwright

from tests.security.issuer import jwk, token
from tests.service_process import ROOT
from tests.waiting import PATIENCE, free_port

REFERENCE = ROOT.parent / "shared/reference/oidc/idp.mjs"
PACKAGE = Path(__file__).with_name("provider") / "package.json"
NODE = Path(playwright.__file__).with_name("driver") / "node"
"""Playwright brings a node of its own, which is newer than that of Debian 12: the provider needs 20."""
AUDIENCE = "http://127.0.0.1:8090/fhir"


@cache
def prepared() -> Path | None:
    """The folder in which the real provider is installed; None when it cannot be."""
    digest = sha256(PACKAGE.read_bytes()).hexdigest()[:8]
    place = Path(tempfile.gettempdir()) / f"ipf-oidc-{os.getuid()}-{digest}"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        return place if place.is_dir() or _install(place) else None


def _install(place: Path) -> bool:
    """Whether npm installed the provider; the folder is in its place when it is complete."""
    if shutil.which("npm") is None:
        return False
    folder = Path(tempfile.mkdtemp(prefix="ipf-oidc-"))
    shutil.copy(PACKAGE, folder)
    if REFERENCE.is_file():
        shutil.copy(REFERENCE, folder)
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent"]
    try:
        subprocess.run(command, cwd=folder, check=True, timeout=120, capture_output=True)
    except (subprocess.SubprocessError, OSError):
        shutil.rmtree(folder, ignore_errors=True)
        return False
    folder.rename(place)
    return True


class Provider:
    """What both have: an issuer, and tokens of the client-credentials grant."""

    def __init__(self) -> None:
        self.port = free_port()
        self.issuer = f"http://127.0.0.1:{self.port}"

    def token(self, client: str, scope: str) -> str:
        """An access token."""
        form = {"grant_type": "client_credentials", "client_id": client, "client_secret": "s3cret", "scope": scope}
        with urlopen(Request(f"{self.issuer}/token", urlencode(form).encode()), timeout=PATIENCE) as answer:
            found: str = json.load(answer)["access_token"]
        return found


class RealProvider(Provider):
    """`idp.mjs` as a child process."""

    def __init__(self, folder: Path, **environment: str) -> None:
        super().__init__()
        command = [str(NODE), "idp.mjs", str(self.port)]
        self._process = subprocess.Popen(
            command, cwd=folder, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        while b"ready" not in (line := self._process.stdout.readline()):
            if not line:
                raise RuntimeError("the identity provider did not start")

    def stop(self) -> None:
        """End it: an outage."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class OwnProvider(Provider):
    """The same addresses, in a thread."""

    def __init__(self) -> None:
        super().__init__()
        provider, keys = self, {"keys": [jwk("rsa"), jwk("P-256")]}  # made here: other threads only read them

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                """Discovery and keys."""
                self._answer(provider.document() if "well-known" in self.path else keys)

            def do_POST(self) -> None:
                """The token endpoint."""
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self._answer({"access_token": provider.signed(form["client_id"][0], form["scope"][0])})

            def _answer(self, body: Any) -> None:
                content = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.handle_error = lambda request, address: None  # type: ignore[method-assign]  # a client hangs up
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def document(self) -> dict[str, Any]:
        """The discovery document."""
        return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/jwks", "token_endpoint": f"{self.issuer}/token"}

    def signed(self, client: str, scope: str) -> str:
        """A token as the real one makes them."""
        now = time.time()
        key = "P-256" if client == "es" else "rsa"
        tenant = client.partition("tenant-")[2] or None
        return token(key, iss=self.issuer, sub=client, client_id=client, aud=AUDIENCE, scope=scope, iat=now,
                     exp=now + 900, tenant=tenant)  # fmt: skip

    def stop(self) -> None:
        """End it: an outage."""
        self._server.shutdown()
        self._server.server_close()


def start() -> RealProvider | OwnProvider:
    """The real one where it can be had."""
    folder = prepared()
    return OwnProvider() if folder is None or not (folder / "idp.mjs").is_file() else RealProvider(folder)
