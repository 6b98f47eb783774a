"""bin/feed, bin/subscriber and the image's health check with a service, as compose.yaml uses them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from queue import Queue
from threading import Thread

from twisted.trial.unittest import TestCase

from tests.service_process import ROOT, ServiceProcess
from tests.waiting import LIMIT, PATIENCE, block_until, free_port

GROUP = "deployment"

MESSAGES = 60


class FeedTests(TestCase):
    """One service for all."""

    timeout = 5 * LIMIT  # it blocks, and each of its waits has a limit

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="ipf-feed-")
        self.addCleanup(folder.cleanup)
        self.service = ServiceProcess(Path(folder.name))
        self.service.start()
        self.addCleanup(self.service.stop)
        self.service.wait_ready()

    def test_the_parts_of_the_stack(self) -> None:
        self._health_check()
        port = free_port()
        endpoint = f"http://127.0.0.1:{port}/notify"
        for _ in range(2):  # the first one is killed, and leaves its Subscription
            subscriber, lines = self._subscriber(f"127.0.0.1:{port}", endpoint)
            self.assertIn(f"Patient? -> {endpoint}", lines.get(timeout=PATIENCE))
            self.assertEqual(len(self._subscriptions()), 1)
            subscriber.kill()
            subscriber.wait(PATIENCE)
        subscriber, lines = self._subscriber(f"127.0.0.1:{port}", endpoint)
        lines.get(timeout=PATIENCE)
        self.assertEqual(self._feed().count(" AA\n"), MESSAGES)
        self._all_delivered()
        self.assertRegex(lines.get(timeout=PATIENCE), r"^PUT /Patient/\S+ version 1$")
        subscriber.terminate()
        self.assertEqual(subscriber.wait(PATIENCE), 0)
        self.assertEqual(self._subscriptions(), [])

    def _health_check(self) -> None:
        def check(port: int, *path: str) -> tuple[int, str]:
            command = [sys.executable, str(ROOT / "etc/docker/healthcheck"), *path]
            listen = {"IPF_HTTP_LISTEN": f"tcp:{port}:interface=0.0.0.0"}

            def ended() -> subprocess.CompletedProcess[str] | None:
                found = subprocess.run(
                    command, env=os.environ | listen, capture_output=True, text=True, timeout=PATIENCE, check=False
                )
                # It waits for four seconds, which a busy machine may need for an answer.
                return None if "timed out" in found.stderr else found

            found = block_until(ended, "the health check has its answer")
            return found.returncode, found.stderr

        self.assertEqual(check(self.service.http_port), (0, ""))
        self.assertEqual(check(self.service.http_port, "/actuator/health/readiness"), (0, ""))
        status, said = check(self.service.http_port, "/nowhere")
        self.assertEqual((status, "/nowhere: 404" in said), (1, True), said)
        status, said = check(free_port())
        self.assertEqual((status, "refused" in said), (1, True), said)

    def _subscriber(self, listen: str, endpoint: str) -> tuple[subprocess.Popen[str], Queue[str]]:
        options = ["--http", self.service.base_url, "--listen", listen, "--endpoint", endpoint]
        running = subprocess.Popen(
            [sys.executable, str(ROOT / "bin/subscriber"), *options], stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(running.wait, PATIENCE)
        self.addCleanup(running.kill)
        lines: Queue[str] = Queue()
        assert running.stdout is not None
        Thread(target=lambda output: [lines.put(line) for line in output], args=[running.stdout], daemon=True).start()
        return running, lines

    def _subscriptions(self) -> list[str]:
        _, bundle = self.service.get("/fhir/Subscription")
        return [entry["resource"]["id"] for entry in bundle.get("entry", ())]

    def _feed(self) -> str:
        rate = ["--per-second", "500", "--patients", "12", "--messages", str(MESSAGES)]
        command = [sys.executable, str(ROOT / "bin/feed"), "--to", f"127.0.0.1:{self.service.mllp_port}", *rate]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout

    def _all_delivered(self) -> None:
        """No message of the feed fails; ten patients at most have all of them."""

        def statuses() -> list[str]:
            _, page = self.service.get("/admin/messages?limit=500")
            self.assertEqual([one["last_error"] for one in page["items"] if one["last_error"]], [])
            return [one["status"] for one in page["items"]]

        block_until(lambda: statuses() == ["DELIVERED"] * MESSAGES, "all messages are delivered")
        _, counted = self.service.get("/fhir/Patient?_summary=count")
        self.assertLessEqual(counted["total"], 12)
        for kind in ("Encounter", "Observation"):
            self.assertGreater(self.service.get(f"/fhir/{kind}?_summary=count")[1]["total"], 5, kind)
