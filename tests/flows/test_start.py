"""Starts that cannot succeed end at once, with a status and the name of the setting."""

from __future__ import annotations

import json
import shutil
import socket

from twisted.trial.unittest import TestCase

from tests.faults.scenario import scratch
from tests.service_process import ServiceProcess
from tests.waiting import block_until


class StartTests(TestCase):
    def ended(self, service: ServiceProcess) -> list[str]:
        """The errors in the log of a service that ended with status 1."""
        service.from_template = False
        service.start()
        block_until(lambda: service.ended() is not None, "it ends")
        self.assertEqual(service.stop(), 1, service.log_tail())
        self.assertFalse((service.folder / "data" / "postgres").exists())
        lines = [json.loads(line) for line in service.log_path.read_bytes().splitlines() if line.startswith(b"{")]
        return [one["message"] for one in lines if one["level"] == "ERROR"]

    def service(self, **environment: str) -> ServiceProcess:
        """A service on a new folder."""
        made = ServiceProcess(scratch(), **environment)
        self.addCleanup(shutil.rmtree, made.folder, True)
        return made

    def test_a_port_in_use_is_found_before_the_database_is_started(self) -> None:
        service = self.service()
        with socket.socket() as other:
            other.bind(("127.0.0.1", service.mllp_port))
            other.listen()
            errors = self.ended(service)
        endpoint = service.environment["IPF_MLLP_LISTEN"]
        self.assertEqual(errors, [f"ipf cannot start: IPF_MLLP_LISTEN: {endpoint}: the port is in use"])

    def test_a_wrong_setting_is_named(self) -> None:
        service = self.service(IPF_MLLP_LISTEN="tcp:2575 tcp:2575")
        self.ended(service)
        self.assertIn("IPF_MLLP_LISTEN", service.log_tail())
