"""One service as processes with a few roles each: what each serves, how they wake each other, an upgrade of some."""

from __future__ import annotations

import socket
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.feed import Feed
from tests.faults.roles import RoleProcesses, two_databases
from tests.service_process import ServiceProcess
from tests.waiting import free_port, until

GROUP = "flows"
POLL_MS = 3_600_000
"""An idle worker polls once an hour: what happens earlier was notified."""
SERVED = {
    # process: roles that health shows; status of GET /admin/mapping, /fhir/Patient, /mapping/fhir/metadata; takes MLLP
    "receive": (["receive"], 404, 404, 404, True),
    "convert": (["convert"], 404, 404, 404, False),
    "deliver": (["deliver", "poll"], 404, 404, 404, False),
    "fhir": (["admin", "fhir", "mapping"], 200, 200, 200, False),
}
REST = ("convert", "deliver", "fhir")


class RolesTests(TestCase):
    timeout = LIMIT  # four processes, one after the other

    async def test_four_processes_with_roles_of_their_own(self) -> None:
        run(self._four(await two_databases()))

    async def _four(self, databases: tuple[str, str]) -> None:
        wanted = {name: {"IPF_ROLES": ",".join(row[0])} for name, row in SERVED.items()}
        async with RoleProcesses(databases, wanted, IPF_WORKER_PROCESSES="0", IPF_WORKER_POLL_MS=str(POLL_MS)) as roles:
            for name, one in roles.processes.items():
                self._serves(name, one)
            await self._wakes(roles)
            await self._upgrade(roles)
            await roles.settled()
            self.assertEqual(roles.broken_promises(), [])

    def _serves(self, name: str, one: ServiceProcess) -> None:
        roles, admin, fhir, mapping, takes_mllp = SERVED[name]
        status, health = one.get("/actuator/health")
        self.assertEqual((status, health["roles"]), (200, roles), health)
        self.assertEqual("converters" in health["components"], "convert" in roles)
        self.assertEqual(one.get("/actuator/prometheus")[0], 200)
        answered = [one.get(path)[0] for path in ("/admin/mapping", "/fhir/Patient", "/mapping/fhir/metadata")]
        self.assertEqual(answered, [admin, fhir, mapping], name)
        with socket.socket() as sender:
            self.assertEqual(sender.connect_ex(("127.0.0.1", one.mllp_port)) == 0, takes_mllp, name)

    async def _wakes(self, roles: RoleProcesses) -> None:
        """A message goes through three processes without a poll; a lost notification is allowed, not three."""
        for number in range(3):
            feed = Feed(roles.feed.port, senders=1, first_sender=70 + number)
            feed.start()
            received = len(roles.sink.times)
            await feed.until(3)
            await feed.stop()
            roles.feed.accepted.update(feed.accepted)
            roles.feed.sent.update(feed.sent)
            if await roles.sink.until(received + len(feed.accepted), 30):
                return
        self.fail("no message was notified within 30 seconds")

    async def _upgrade(self, roles: RoleProcesses) -> None:
        """Everything but the receiver is stopped and started again: senders see nothing of it."""
        roles.feed.start()
        for name in REST:
            await roles.feed.until(len(roles.feed.accepted) + 20)
            await roles.restart(name)
        await roles.feed.until(len(roles.feed.accepted) + 20)
        await roles.feed.stop()
        self.assertEqual(set(roles.feed.codes), {"AA"})

    async def test_fhir_clients_have_a_listener_of_their_own(self) -> None:
        run(self._own_listener(await two_databases()))

    async def _own_listener(self, databases: tuple[str, str]) -> None:
        port = free_port()
        wanted = {"receive": {"IPF_FHIR_LISTEN": f"tcp:{port}:interface=127.0.0.1", "IPF_WORKER_PROCESSES": "0"}}
        roles = RoleProcesses(databases, wanted)
        one = roles.service
        try:
            one.start()
            await roles.answers("receive")
            paths = ("/fhir/Patient", "/mapping/fhir/metadata", "/admin/mapping", "/actuator/health/liveness")
            on_http = [one.get(path)[0] for path in paths]
            self.assertEqual(on_http, [404, 404, 200, 200])
            one.http_port = port
            on_fhir = [one.get(path)[0] for path in paths]
            self.assertEqual(on_fhir, [200, 200, 404, 404])
            self.assertIn(f"FHIR http://127.0.0.1:{port}/fhir", one.log_tail())
        finally:
            await roles.__aexit__()


class StartTests(TestCase):
    """What `twistd ipf` makes of IPF_ROLES before it opens anything."""

    timeout = LIMIT  # four processes, one after the other

    def test_an_unknown_role_ends_the_start(self) -> None:
        run(self._refused("receive,converts", "IPF_ROLES: expected one or more of all, engine, receive"))

    def test_half_a_service_needs_shared_databases(self) -> None:
        run(self._refused("receive", "IPF_ROLES: receive without convert leaves messages to other processes"))

    async def _refused(self, roles: str, reason: str) -> None:
        one = ServiceProcess(Path(self.mktemp()), IPF_ROLES=roles)
        one.start()
        await until(lambda: one.ended() is not None)
        self.assertEqual(one.ended(), 1)
        self.assertIn(reason, one.log_tail())

    def test_the_console_alone_needs_no_database(self) -> None:
        run(self._console())

    async def _console(self) -> None:
        port = free_port()
        one = ServiceProcess(Path(self.mktemp()), IPF_ROLES="console", IPF_UI_LISTEN=f"tcp:{port}:interface=127.0.0.1")
        one.from_template = False
        one.start()
        one.http_port = port
        try:
            await until(lambda: one.ended() is not None or b"event=started console" in one.log_path.read_bytes())
            self.assertIsNone(one.ended(), one.log_tail())
            self.assertEqual(one.get("/")[0], 303)
            self.assertFalse(Path(one.environment["IPF_DATA_DIR"]).exists())
        finally:
            one.stop()
