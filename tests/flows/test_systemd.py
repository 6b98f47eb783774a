"""Started as systemd starts it, with its listeners passed in, and with a collector of spans: what each of them sees."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from twisted.trial.unittest import TestCase

from tests.activated import Activated, listening
from tests.event_loop import LIMIT, run
from tests.faults.feed import admission
from tests.flows.test_end_to_end import answer_to
from tests.service_process import ServiceProcess, children_of
from tests.traffic.sink import Sink
from tests.traffic.subscribers import subscribe
from tests.waiting import PATIENCE, free_port, until

GROUP = "flows"
QUEUE = "STATUS=0 messages in the queue"


class SystemdTests(TestCase):
    timeout = LIMIT  # intervals of the watchdog

    def test_a_service_under_systemd(self) -> None:
        run(self.watched())

    async def watched(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="ipf-watched-"))
        self.addCleanup(shutil.rmtree, folder, True)
        folder.chmod(0o755)
        notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notified.bind(str(folder / "notify"))
        notified.setblocking(False)
        self.addCleanup(notified.close)
        sent: list[str] = []
        asyncio.get_running_loop().add_reader(notified, lambda: sent.append(notified.recv(4096).decode()))
        collector, subscriber = Sink(), Sink()
        collector.keep_bodies = True
        http_port, mllp_port = free_port(), free_port()
        sockets = {"http": listening(http_port), "mllp": listening(mllp_port)}
        self.addCleanup(lambda: [one.close() for one in sockets.values()])
        service = Activated(
            folder / "service",
            sockets,
            IPF_HTTP_LISTEN="systemd:domain=INET:name=http",
            IPF_MLLP_LISTEN="lab=systemd:domain=INET:name=mllp",
            IPF_OTLP_URL=await collector.start(),
            NOTIFY_SOCKET=str(folder / "notify"),
            WATCHDOG_USEC="1000000",
            OTEL_BSP_SCHEDULE_DELAY="200",
        )
        service.http_port, service.mllp_port = http_port, mllp_port
        service.start()
        try:
            await until(lambda: asyncio.to_thread(service.ready))
            await subscribe(service, await subscriber.start(), "Patient?")
            acknowledged = await answer_to(service.mllp_port, admission("M1", "P1", "+4711"))
            self.assertEqual(acknowledged[1], b"MSA|AA|M1")
            self.assertTrue(await subscriber.until(1, PATIENCE))
            trace = await self.traced(service)
            names = await self.spans_of(collector, trace)
            self.assertEqual(names, {"receive": "main", "map": "converter", "store": "converter", "notify": "main"})
            await until(lambda: not ("WATCHDOG=1" not in sent or not any(one.startswith(QUEUE) for one in sent)))
            await self.fed_while_the_database_hangs(service, sent)
            await self.not_fed_without_a_listener(service, sockets["mllp"], sent)
        finally:
            await asyncio.to_thread(service.stop)
            asyncio.get_running_loop().remove_reader(notified)
        said = [one for one in sent if not one.startswith(("STATUS=", "WATCHDOG="))]
        self.assertEqual(said, ["READY=1", "STOPPING=1"])

    async def fed_while_the_database_hangs(self, service: Activated, sent: list[str]) -> None:
        """A restart would mend nothing, and nobody could be told."""
        pid = int((service.folder / "data" / "postgres" / "postmaster.pid").read_text().splitlines()[0])
        processes = [pid, *children_of(pid)]
        for one in processes:
            os.kill(one, signal.SIGSTOP)
        try:
            before = sent.count("WATCHDOG=1")
            await until(lambda: sent.count("WATCHDOG=1") >= before + 8)
        finally:
            for one in processes:
                os.kill(one, signal.SIGCONT)

    async def not_fed_without_a_listener(self, service: Activated, mllp: socket.socket, sent: list[str]) -> None:
        """A listener that has stopped to listen is named in the log, and the watchdog is no longer notified."""
        marker = b'"event":"listener_unanswered","listener":"MLLP lab"'

        def times() -> int:
            return service.log_path.read_bytes().count(marker)

        mllp.shutdown(socket.SHUT_RDWR)
        first = times() + 1
        await until(lambda: times() >= first)
        before = sent.count("WATCHDOG=1")
        await until(lambda: times() >= first + 4)
        self.assertEqual(sent.count("WATCHDOG=1"), before)

    async def traced(self, service: ServiceProcess) -> str:
        """The trace of the one message through the API, once it is settled; its id."""

        async def delivered() -> Any:
            _, page = await asyncio.to_thread(service.get, "/admin/messages")
            return page["items"][0]["status"] == "DELIVERED" and page["items"][0]

        correlation_id: str = (await until(delivered))["correlation_id"]
        status, trace = await asyncio.to_thread(service.get, f"/admin/observe/trace/{correlation_id}")
        self.assertEqual(status, 200)
        self.assertIn("ADT_A01", trace["messages"][0]["transform"]["map_url"].replace("ADT-A01", "ADT_A01"))
        self.assertIn("Patient", [one["resource_type"] for one in trace["resources"]])
        self.assertEqual([one["subscription_id"][:13] for one in trace["events"]], ["Subscription/"])
        return correlation_id.replace("-", "")

    async def spans_of(self, collector: Sink, trace: str) -> dict[str, str]:
        """Span name -> process, of this trace; all but the root hang below it."""
        found: dict[str, str] = {}
        parents: set[bytes] = set()

        def all_are_there() -> bool:
            for body in collector.bodies:
                for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                    role = {one.key: one.value.string_value for one in group.resource.attributes}["process.role"]
                    for span in group.scope_spans[0].spans:
                        if span.trace_id.hex() == trace:
                            found[span.name] = role
                            parents.add(span.parent_span_id)
            return len(found) == 4

        await until(all_are_there)
        self.assertEqual(len(parents), 2, parents)
        self.assertIn(b"", parents)
        return found
